//! What the fleet and the engine allocate once they are warm: nothing for what strangers can send, next to nothing for a
//! message.

use flota_benches::allocations::{CountingAllocator, count};
use flota_benches::announcements::{Listener, SENDER, USUAL, drain};
use flota_benches::world::{START, World, read_reply};
use flota_core::announce::Reject;
use flota_core::config::Config;
use flota_core::driver::resp::{Limits, Scan};
use flota_core::engine::{Engine, Incarnation};
use flota_core::rng::Seed;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const GUID: &str = "2cc7c345-3569-44bb-b57a-b72d729d7012";

#[test]
fn reading_an_announcement_allocates_nothing() {
    let (said, counted) = count(|| flota_core::announce::parse(USUAL).is_ok());
    assert!(said);
    assert_eq!(counted.allocations, 0);
}

/// A datagram for every reason to refuse one, and the counter that says that it was this reason.
fn refused() -> Vec<(Vec<u8>, usize)> {
    let with = |name: &str, guid: &str, rest: &str| format!("{name}\t{guid}\t{rest}").into_bytes();
    let malformed = [
        vec![b'x'; 1025],
        b"\xff".to_vec(),
        b"hello".to_vec(),
        with("", GUID, "up\t10.0.4.12:6379\t1"),
        with("imq-broker", "2cc7c345", "up\t10.0.4.12:6379\t1"),
        with("imq-broker", GUID, "sideways\t10.0.4.12:6379\t1"),
        with("imq-broker", GUID, "up\t10.0.4:6379\t1"),
        with("imq-broker", GUID, "up\t10.0.4.12:0\t1"),
        with("imq-broker", GUID, "up\t10.0.4.12:6379\tsoon"),
    ];
    assert_eq!(malformed.len(), Reject::ALL.len());
    let mut all: Vec<_> = malformed.into_iter().zip(0..).collect();
    let first = all.len();
    for (datagram, counter) in [
        (with("other", GUID, "up\t10.0.4.12:6379\t1"), first),
        // Networks, host names and senders share a counter.
        (with("imq-broker", GUID, "up\t10.1.4.12:6379\t1"), first + 1),
        (with("imq-broker", GUID, "up\tredis-1.local:6379\t1"), first + 1),
        (with("imq-broker", GUID, "up\t10.0.4.13:6379\t1"), first + 1),
        // The fleet takes one; another sender is not even asked for a token.
        (with("imq-broker", "99999999-3569-44bb-b57a-b72d729d7012", "up\t10.0.0.1:6380\t1"), first + 2),
    ] {
        all.push((datagram, counter));
    }
    all
}

fn refusing(change: impl FnOnce(&mut Config)) -> Engine {
    let mut config = Config::discover();
    change(&mut config);
    Engine::new(config, Incarnation(1), Seed::from_u64(7), START).expect("a valid configuration")
}

fn counters(engine: &Engine) -> Vec<u64> {
    let stats = engine.stats();
    let mut all = stats.malformed.to_vec();
    all.extend([stats.other_name, stats.not_allowed, stats.fleet_full, stats.too_fast]);
    all
}

#[test]
fn a_refused_datagram_allocates_nothing_whatever_the_reason() {
    let mut engine = refusing(|config| {
        config.limits.brokers = 1;
        let discovery = config.discovery.as_mut().expect("discovery is on");
        discovery.allow = vec!["10.0.0.0/16".parse().expect("a network")];
        discovery.same_sender = true;
    });
    engine.handle_datagram(START, SENDER, format!("imq-broker\t{GUID}\tup\t10.0.0.1:6379\t1").as_bytes());
    drain(&mut engine);
    for (datagram, counter) in refused() {
        check_refusal(&mut engine, &datagram, counter);
    }
}

#[test]
fn a_newcomer_beyond_its_senders_rate_allocates_nothing() {
    let mut engine = refusing(|config| config.limits.newcomers_burst = 1);
    engine.handle_datagram(START, SENDER, format!("imq-broker\t{GUID}\tup\t10.0.0.1:6379\t1").as_bytes());
    drain(&mut engine);
    let newcomer = b"imq-broker\t99999999-3569-44bb-b57a-b72d729d7012\tup\t10.0.0.1:6380\t1";
    let too_fast = counters(&engine).len() - 1;
    check_refusal(&mut engine, newcomer, too_fast);
}

/// The first of a reason is told at once, the second is remembered for a report; from then on they are counted.
fn check_refusal(engine: &mut Engine, datagram: &[u8], counter: usize) {
    const TIMES: u64 = 100;
    for _ in 0..2 {
        engine.handle_datagram(START, SENDER, datagram);
        drain(engine);
    }
    let before = counters(engine)[counter];
    let ((), counted) = count(|| {
        for _ in 0..TIMES {
            engine.handle_datagram(START, SENDER, datagram);
            drain(engine);
        }
    });
    let text = datagram.escape_ascii();
    assert_eq!(counters(engine)[counter] - before, TIMES, "{text} is refused for another reason");
    assert_eq!(counted.allocations, 0, "{text}");
}

#[test]
fn hearing_a_member_again_allocates_nothing() {
    let mut listener = Listener::hearing(1_000);
    let ((), counted) = count(|| {
        for broker in 0..1_000 {
            listener.hear(broker);
        }
    });
    assert_eq!(counted.allocations, 0);
}

#[test]
fn a_send_allocates_nothing_beyond_its_body() {
    const SENDS: u64 = 1_000;
    let mut world = World::new(3);
    let ((), counted) = count(|| (0..SENDS).for_each(|_| world.send_one()));
    assert_eq!(counted.allocations, 0, "in {SENDS} sends");
}

#[test]
fn a_delivery_allocates_a_fraction_of_what_its_batch_does() {
    const ENTRIES: usize = 100;
    let wire = read_reply(ENTRIES);
    let reply = || Scan::new(Limits::default()).poll(&wire).expect("RESP").expect("a whole reply").0;
    let mut world = World::subscribed(ENTRIES as u32);
    let mut round = |reply| {
        world.answer_read(reply);
        assert_eq!(world.settle_all(), ENTRIES);
    };
    (0..8).for_each(|_| round(reply()));
    let read = reply();
    let ((), counted) = count(|| round(read));
    println!("{counted:?} for {ENTRIES} deliveries");
    assert!(counted.allocations <= 20, "{counted:?} for {ENTRIES} deliveries");
}
