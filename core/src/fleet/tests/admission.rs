use super::*;
use crate::config::Discovery;
use crate::fleet::admission::Sources;
use crate::rng::{Purpose, Rng};

fn with_discovery(change: impl FnOnce(&mut Discovery)) -> World {
    World::with(|config| change(config.discovery.as_mut().expect("discovery is on")))
}

#[test]
fn each_rule_refuses_by_name_and_counts() {
    let mut world = World::new();
    world.datagram(b"hello");
    world.datagram(b"\xff");
    world.datagram(format!("other\t{}\tup\t{A}\t1", guid_of(1)).as_bytes());
    world.up(1, "redis-1.local:6379");
    let example = |name: &str, address: &str| format!("{name}\\\\t{}\\\\tup\\\\t{address}\\\\t1", guid_of(1));
    let events = [
        "MissingField 1 \"hello\"".to_string(),
        "NotUtf8 1 \"\\\\xff\"".to_string(),
        format!("OtherName 1 \"{}\"", example("other", A)),
        format!("HostName 1 \"{}\\\\tplain\"", example("imq-broker", "redis-1.local:6379")),
    ];
    assert_eq!(world.events(), events.join(", "));
    assert_eq!((world.stats.datagrams, world.stats.other_name, world.stats.not_allowed), (4, 1, 1));
    assert_eq!(world.stats.malformed.iter().sum::<u64>(), 2);
    assert_eq!((world.members().as_str(), world.effects().as_str()), ("none", ""));
}

#[test]
fn only_allowed_networks_are_admitted_and_mapped_addresses_count_as_their_own() {
    let mut world = with_discovery(|discovery| {
        discovery.allow = ["10.0.4.0/24", "fd00::/8"].iter().map(|n| n.parse().expect("a network")).collect();
        discovery.host_names = true;
    });
    for refused in ["10.0.5.12:6379", "[::ffff:10.0.5.12]:6379", "[2001:db8::7]:6379"] {
        world.up(1, refused);
        world.down(1, refused);
    }
    assert_eq!((world.members().as_str(), world.stats.not_allowed), ("none", 6));
    for (n, admitted) in (1..).zip([A, "[::ffff:10.0.4.13]:6379", "[fd00::7]:6379", "redis-1.local:6379"]) {
        world.up(n, admitted);
    }
    assert_eq!(world.members(), "A@1, B@2, [fd00::7]:6379@3, redis-1.local:6379@4");
}

#[test]
fn a_sender_may_be_required_to_announce_itself() {
    let mut world = with_discovery(|discovery| {
        discovery.same_sender = true;
        discovery.host_names = true;
    });
    world.up(1, A);
    world.up(1, "redis-1.local:6379");
    assert_eq!((world.members().as_str(), world.stats.not_allowed), ("none", 2));
    let up = format!("imq-broker\t{}\tup\t{A}\t1", guid_of(1));
    world.datagram_from("[::ffff:10.0.4.12]:999", up.as_bytes());
    assert_eq!(world.members(), "A@1");
    world.down(1, A);
    let mapped = format!("imq-broker\t{}\tup\t[::ffff:10.0.4.12]:6379\t1", guid_of(1));
    world.datagram_from("10.0.4.12:999", mapped.as_bytes());
    assert_eq!(world.stats.not_allowed, 3);
    assert_eq!(world.members(), "A@1", "a goodbye of another sender is refused as well");
}

#[test]
fn any_name_must_be_asked_for() {
    let mut world = with_discovery(|discovery| discovery.name = None);
    world.datagram(format!("other\t{}\tup\t{A}\t1", guid_of(1)).as_bytes());
    assert_eq!(world.members(), "A@1");
}

#[test]
fn without_discovery_nothing_is_heard() {
    let mut world = World::with(|config| config.discovery = None);
    world.up(1, A);
    assert_eq!(world.members(), "none");
}

#[test]
fn a_reason_is_told_at_once_and_then_as_a_number_every_second() {
    let mut world = World::new();
    world.datagram(b"one");
    assert_eq!(world.events(), "MissingField 1 \"one\"");
    for datagram in [b"two".as_slice(), b"three", b"four"] {
        world.datagram(datagram);
    }
    world.pass_ms(999);
    assert_eq!(world.events(), "");
    world.pass_ms(1);
    assert_eq!(world.events(), "MissingField 3 \"two\"");
    world.pass_ms(500);
    world.datagram(&[b'x'; 500]);
    world.datagram(b"\xff");
    assert_eq!(world.events(), "NotUtf8 1 \"\\\\xff\"", "another reason has its own second");
    world.pass_ms(500);
    assert_eq!(world.events(), format!("MissingField 1 \"{}\"", "x".repeat(128)), "and an example is cut");
    world.pass_ms(60_000);
    assert_eq!((world.events().as_str(), world.timers.len()), ("", 0), "no news is no event and no timer");
    world.datagram(b"late");
    assert_eq!(world.events(), "MissingField 1 \"late\"");
}

#[test]
fn a_full_fleet_refuses_newcomers_and_keeps_its_members() {
    let mut world = World::with(|config| config.limits.brokers = 2);
    world.up(1, A);
    world.up(2, B);
    world.up(3, C);
    assert_eq!((world.members().as_str(), world.stats.fleet_full), ("A@1, B@2", 1));
    // A departed one still takes its place, and may have it back.
    world.down(1, A);
    world.up(3, C);
    assert_eq!((world.members().as_str(), world.stats.fleet_full), ("B@2", 2));
    world.up(1, A);
    assert_eq!(world.members(), "A@1, B@2");
    world.down(1, A);
    world.forget(world.at(A));
    world.up(3, C);
    assert_eq!(world.members(), "B@2, C@3");
}

#[test]
fn a_member_has_few_alternatives() {
    let mut world = World::with(|config| config.limits.alternatives = 1);
    for address in [A, B, C] {
        world.up(1, address);
    }
    assert_eq!((world.members().as_str(), world.stats.fleet_full), ("A@1 (alternative 10.0.4.13:6379)", 1));
}

#[test]
fn newcomers_alternatives_and_new_guids_are_limited_per_source_and_known_ones_never() {
    let mut world = World::with(|config| {
        config.limits.newcomers_burst = 3;
        config.limits.newcomers_per_second = 2;
    });
    world.up(1, A);
    world.up(1, B);
    world.up(2, A);
    let full = "A@2 (alternative 10.0.4.13:6379)";
    assert_eq!(world.members(), full);
    for (guid, address) in [(3, C), (1, C), (3, A), (3, B)] {
        world.up(guid, address);
    }
    assert_eq!((world.members().as_str(), world.stats.too_fast), (full, 4));
    for _ in 0..100 {
        for (guid, address) in [(1, A), (2, A), (1, B)] {
            world.up(guid, address);
        }
    }
    assert_eq!(world.stats.too_fast, 4);
    world.down(2, A);
    world.up(2, A);
    assert_eq!(world.members(), "A@2", "a forged goodbye and a flood do not keep it out");
    world.datagram_from("10.9.9.9:1", format!("imq-broker\t{}\tup\t{C}\t1", guid_of(3)).as_bytes());
    assert_eq!(world.members(), "A@2, C@3", "another source has its own share");
    world.pass_ms(499);
    world.up(4, B);
    assert_eq!(world.stats.too_fast, 5);
    world.pass_ms(1);
    world.up(4, B);
    assert_eq!(world.members(), "A@2, B@4, C@3");
}

#[test]
fn sources_are_forgotten_when_they_have_the_most_tokens() {
    let config = Config::default();
    let mut sources = Sources::new(HashKey::new(Seed::from_u64(3)), &config.limits);
    let spender = "10.0.0.1".parse().expect("an address");
    let now = Mono(1_000_000);
    for _ in 0..config.limits.newcomers_burst {
        assert_eq!(sources.draw(spender, now), Ok(()));
    }
    // Ten times as many sources as are remembered, each of which draws once.
    for n in 0..10_240_u32 {
        assert_eq!(sources.draw(core::net::Ipv4Addr::from(0x0b00_0000 + n).into(), now), Ok(()));
    }
    assert_eq!(sources.draw(spender, now), Err(NotAdmitted::TooFast), "who has spent most is remembered longest");
}

#[test]
fn a_flood_changes_no_member_and_is_held_to_the_rate() {
    let mut world = World::with(|config| config.limits.brokers = 3_000);
    let mut rng = Rng::new(Seed::from_u64(5), Purpose::Jitter);
    let own = format!("imq-broker\t{}\tup\t{A}\t1\tplain", guid_of(1));
    world.up(1, A);
    let (mut joined, mut elapsed_ms) = (0_u64, 0_u64);
    for n in 0..100_000_u64 {
        if n % 5_000 == 0 {
            world.up(1, A);
        }
        if n % 5 == 0 {
            world.pass_ms(1);
            elapsed_ms += 1;
        }
        let datagram = match n % 3 {
            0 => garbage(&mut rng),
            1 => one_byte_off(&own, &mut rng),
            _ => forgery(&mut rng),
        };
        world.datagram_from("10.6.6.6:6666", &datagram);
        for effect in world.effects.drain(..) {
            match effect {
                Effect::Joined(_) => joined += 1,
                Effect::Left(broker) => assert_ne!(world.fleet.address(broker).expect("it is leaving").to_string(), A),
                _ => {}
            }
        }
        assert!(world.fleet.members.len() <= 3_000);
    }
    assert!(joined <= 1 + 1_024 + elapsed_ms * 100 / 1_000 + 1, "{joined} newcomers in {elapsed_ms} ms");
    assert!(joined > 1_024, "{joined}: a flood of this size reaches the limit");
    assert!(!world.fleet.is_leaving(world.at(A)));
    assert_eq!(world.stats.datagrams, 100_000 + 21);
    let warnings = world.out.iter().filter(|output| matches!(output, Output::Event(Event::Warning(_)))).count() as u64;
    assert!(warnings <= 15 * (elapsed_ms / 1_000 + 2), "{warnings} warnings in {elapsed_ms} ms");
    model::check(&world);
}

fn garbage(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = alloc::vec![0; rng.between(0, 1_500) as usize];
    rng.fill(&mut bytes);
    bytes
}

fn one_byte_off(datagram: &str, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = datagram.as_bytes().to_vec();
    let at = rng.between(0, bytes.len() as u64 - 1) as usize;
    bytes[at] = rng.between(0, 255) as u8;
    bytes
}

fn forgery(rng: &mut Rng) -> Vec<u8> {
    let mut guid = [0; 16];
    rng.fill(&mut guid);
    let [a, b] = [rng.between(0, 255), rng.between(1, 254)];
    format!("imq-broker\t{}\tup\t10.7.{a}.{b}:6379\t{}", Guid::from_bytes(guid), rng.between(0, 9)).into_bytes()
}
