use super::*;
use crate::announce::tests::cases;

#[test]
fn sequences_of_datagrams_have_the_members_that_the_cases_name() {
    let mut seen = 0;
    for case in cases::all().iter().filter(|case| case.is_about_members()) {
        seen += 1;
        let mut world = World::new();
        let after: Vec<String> = (case.datagrams.iter())
            .map(|datagram| {
                world.datagram(datagram);
                let members = world.members();
                world.pass_ms(500);
                members
            })
            .collect();
        // What is in parentheses after the address is either an alternative or a remark.
        let outcome = case.outcome.strip_prefix("members ").expect("a row about members");
        let outcome = outcome.split(" (one member").next().unwrap_or(outcome);
        assert_eq!(after.join(" -> "), outcome, "line {}: {}", case.line, case.note);
    }
    assert!(seen >= 15, "{seen} rows are about members");
}

#[test]
fn a_member_expires_a_millisecond_after_its_interval_and_the_grace() {
    for (seconds, silence_ms) in [("1", 6_001), ("0", 5_001), ("0.5", 5_501), ("60", 65_001), ("86400", 65_001)] {
        let mut world = World::new();
        world.up_every(1, A, seconds);
        world.pass_ms(400);
        world.up_every(1, A, seconds);
        world.events();
        world.pass(Duration::from_micros(silence_ms * 1000 - 1));
        assert_eq!((world.members().as_str(), world.events().as_str()), ("A@1", ""), "{seconds} s");
        world.pass(Duration::from_micros(1));
        assert_eq!(world.members(), "none");
        assert_eq!(world.events(), format!("A@1 Expired {silence_ms}"));
        assert_eq!(world.effects(), "Joined(b0.0), Left(b0.0)");
    }
}

#[test]
fn the_latest_announcement_decides_by_its_own_interval() {
    let mut world = World::new();
    world.up_every(1, A, "60");
    world.up_every(1, A, "1");
    world.pass_ms(6_000);
    assert_eq!(world.members(), "A@1");
    world.pass_ms(1);
    assert_eq!(world.members(), "none");
}

#[test]
fn an_announcement_that_arrives_with_the_deadline_counts() {
    let mut world = World::new();
    world.up(1, A);
    world.now = world.now + Duration::from_secs(60);
    world.up(1, A);
    assert_eq!(world.members(), "A@1");
    assert_eq!(world.events(), "A@1 Announced");
}

/// B60: a broker that crashed and restarted on its address announces a new GUID.
#[test]
fn the_deadline_of_an_old_guid_does_not_end_a_restarted_broker() {
    let mut world = World::new();
    world.up(1, A);
    world.pass_ms(1_500);
    for _ in 0..20 {
        world.up(2, A);
        world.pass_ms(1_000);
        assert_eq!(world.members(), "A@2");
    }
    assert_eq!(world.events(), "A@1 Announced");
    assert_eq!(world.effects(), "Joined(b0.0), Hurry(b0.0)");
    assert_eq!(world.fleet.index.by_guid(guid_of(1)), None, "the old GUID has lapsed");
}

#[test]
fn two_announcers_that_take_turns_are_one_member_and_one_question() {
    let mut world = World::new();
    world.up(1, A);
    assert!(world.ready(A, "run-1"));
    world.effects();
    for _ in 0..10 {
        for guid in [1, 2, 3] {
            world.up(guid, A);
            world.pass_ms(300);
        }
    }
    assert_eq!(world.members(), "A@3");
    assert_eq!(world.effects(), "AskIdentity(b0.0), AskIdentity(b0.0)", "one for each GUID that was new");
    // The newest falls silent: the others still speak for the member, under the newest of them.
    for _ in 0..7 {
        world.up(1, A);
        world.up(2, A);
        world.pass_ms(1_000);
    }
    assert_eq!(world.members(), "A@2");
    assert_eq!(world.fleet.members.len(), 1);
}

#[test]
fn a_fifth_guid_of_an_address_pushes_out_the_one_that_would_lapse_next() {
    let mut world = World::new();
    for (guid, seconds) in [(1, "9"), (2, "3"), (3, "6"), (4, "7"), (5, "8")] {
        world.up_every(guid, A, seconds);
    }
    let known = |guid| world.fleet.index.by_guid(guid_of(guid)).is_some();
    assert_eq!([1, 2, 3, 4, 5].map(known), [true, false, true, true, true]);
    assert_eq!(world.members(), "A@5");
}

#[test]
fn only_the_newest_guid_of_an_address_says_goodbye() {
    let mut world = World::new();
    world.up(1, A);
    world.up(2, A);
    world.down(1, A);
    world.down(3, A);
    world.down(2, B);
    assert_eq!(world.members(), "A@2");
    world.events();
    world.effects();
    world.down(2, A);
    assert_eq!((world.members().as_str(), world.events().as_str()), ("none", "A@2 Withdrawn"));
    assert_eq!(world.effects(), "Left(b0.0)");
    world.down(2, A);
    world.pass_ms(100_000);
    assert_eq!(world.events(), "", "a second goodbye is none, and who is gone does not expire");
}

#[test]
fn a_departed_member_comes_back_as_it_was() {
    let mut world = World::new();
    world.up(1, A);
    let broker = world.at(A);
    assert!(world.ready(A, "run-1"));
    world.down(1, A);
    assert!(world.fleet.is_leaving(broker));
    world.events();
    world.effects();
    world.up(1, A);
    assert_eq!(world.events(), "A@1 Announced, A@1 Ready");
    assert_eq!(world.effects(), "Rejoined(b0.0)", "no dial, and nothing to ask");
    assert_eq!(world.at(A), broker);
    assert!(!world.fleet.is_leaving(broker));
    // Again, but by an announcer that was not there before.
    world.down(1, A);
    world.effects();
    world.up(2, A);
    assert_eq!(world.effects(), "Rejoined(b0.0), AskIdentity(b0.0)");
    world.pass_ms(6_001);
    assert_eq!(world.members(), "none");
}

#[test]
fn a_forgotten_member_is_a_newcomer_when_it_returns() {
    let mut world = World::new();
    world.up(1, A);
    let broker = world.at(A);
    assert!(world.ready(A, "run-1"));
    world.down(1, A);
    world.forget(broker);
    assert!(world.events().ends_with("A@1 Withdrawn, A@1 Forgotten"));
    assert_eq!(world.fleet.index.lens(), (0, 0, 0));
    assert_eq!((world.timers.len(), world.fleet.members.len()), (0, 0));
    world.effects();
    world.forget(broker);
    world.run(|fleet, cx| fleet.on_liveness(broker, cx));
    assert_eq!((world.effects(), world.events()), (String::new(), String::new()), "an old id names nothing");
    world.up(1, A);
    assert_eq!(world.effects(), "Joined(b0.1)");
}

#[test]
fn a_configured_broker_never_expires_and_no_datagram_ends_it() {
    let mut world = World::with(|config| {
        let addresses = ["10.0.4.12:6379", "[::ffff:10.0.4.12]:6379", "redis-1.local:6379"];
        config.brokers = addresses.iter().map(|address| address.parse().expect("an endpoint")).collect();
    });
    assert_eq!(world.members(), "A@-, redis-1.local:6379@-", "the same address twice is one member");
    world.up(1, A);
    assert_eq!(world.members(), "A@1, redis-1.local:6379@-");
    world.down(1, A);
    assert_eq!(world.fleet.index.by_guid(guid_of(1)), Some(world.at(A)), "nothing has changed");
    world.pass_ms(1_000_000);
    assert_eq!(world.members(), "A@1, redis-1.local:6379@-");
    assert_eq!(world.effects(), "Joined(b0.0), Joined(b1.0), Hurry(b0.0)");
}

#[test]
fn mapped_addresses_are_the_addresses_they_map() {
    let mut world = World::new();
    world.up(1, A);
    world.up(1, "[::ffff:10.0.4.12]:6379");
    assert_eq!(world.members(), "A@1");
}

#[test]
fn an_alternative_lives_and_dies_on_its_own() {
    let mut world = World::new();
    world.up(1, A);
    assert!(world.ready(A, "run-1"));
    world.up(1, B);
    assert_eq!(world.members(), "A@1 (alternative 10.0.4.13:6379)");
    world.down(1, B);
    assert_eq!(world.members(), "A@1");
    world.up(1, B);
    for _ in 0..10 {
        world.pass_ms(1_000);
        world.up(1, A);
    }
    assert_eq!(world.members(), "A@1", "silent for too long");
    assert_eq!(world.effects(), "Joined(b0.0)");
}

#[test]
fn a_member_whose_address_falls_silent_goes_on_at_the_one_announced_latest() {
    let mut world = World::new();
    world.up(1, A);
    let broker = world.at(A);
    assert!(world.ready(A, "run-1"));
    for _ in 0..7 {
        world.pass_ms(1_000);
        world.up(1, B);
        world.up(2, B);
        world.up(1, C);
    }
    assert_eq!(world.members(), "C@1 (alternative 10.0.4.13:6379)");
    assert_eq!(world.at(C), broker);
    assert_eq!(world.effects(), "Joined(b0.0), Moved(b0.0)");
    world.down(1, C);
    assert_eq!(world.members(), "none", "its goodbye is that of the broker");
}

#[test]
fn an_address_that_does_not_get_ready_is_left_for_an_alternative() {
    let mut world = World::new();
    world.up_every(1, A, "60");
    assert!(world.ready(A, "run-1"));
    for address in [B, C] {
        world.up_every(1, address, "60");
    }
    world.pass_ms(10_000);
    world.effects();
    world.unready(A, UnreadyReason::Closed);
    world.pass_ms(2_999);
    assert_eq!(world.effects(), "");
    world.pass_ms(1);
    assert_eq!(world.effects(), "Moved(b0.0)");
    // Each gets its turn.
    let mut tried = Vec::new();
    for _ in 0..6 {
        tried.push(member_text(world.fleet.iter().next().expect("one member").1).remove(0));
        world.pass_ms(3_000);
    }
    assert_eq!(tried, ['C', 'B', 'A', 'C', 'B', 'A']);
    assert_eq!(world.fleet.members.len(), 1);
}

#[test]
fn readiness_is_told_when_it_changes() {
    let mut world = World::new();
    world.up_every(1, A, "60");
    world.unready(A, UnreadyReason::Refused);
    world.unready(A, UnreadyReason::Refused);
    world.unready(A, UnreadyReason::Timeout);
    assert!(world.ready(A, "run-1"));
    assert!(world.ready(A, "run-1"));
    world.unready(A, UnreadyReason::Timeout);
    let events = "A@1 Announced, A@1 Unready refused, A@1 Unready timeout, A@1 Ready, A@1 Unready timeout";
    assert_eq!(world.events(), events);
}

#[test]
fn one_that_left_is_ready_when_it_is_back_and_not_before() {
    let mut world = World::new();
    world.up(1, A);
    assert!(world.ready(A, "run-1"));
    world.down(1, A);
    world.unready(A, UnreadyReason::Closed);
    world.events();
    assert!(world.ready(A, "run-2"));
    assert_eq!(world.events(), "A@1 Restarted");
    world.up(2, A);
    assert_eq!(world.events(), "A@2 Announced, A@2 Ready");
    world.down(2, A);
    world.unready(A, UnreadyReason::Refused);
    world.up(2, A);
    world.events();
    world.unready(A, UnreadyReason::Refused);
    assert_eq!(world.events(), "A@2 Unready refused", "it is told again to whoever heard that it is back");
}
