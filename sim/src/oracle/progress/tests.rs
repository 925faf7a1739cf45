use flota_core::config::Endpoint;
use flota_core::id::{ConnId, Id};

use super::super::consumer::tests::{ONE, consuming};
use super::super::testing::Bench;
use super::*;
use crate::plan::Fault;
use crate::seen::{Line, Phase, Word};
use crate::world::broker_address;

fn bench() -> Bench {
    let mut plan = consuming();
    plan.faults = vec![Fault { at_ms: 0, for_ms: 60_000, what: Trouble::BrokerFull { broker: 0 } }];
    let mut bench = Bench::new(plan, |plan| Box::new(Progress::new(plan)));
    bench.begin();
    for line in 0..2 {
        let to = Endpoint::Ip(broker_address(0, false));
        bench.service(What::Dialled { conn: ConnId::from_parts(line, 0), line: Line(line), to });
        bench.service(What::Connected(Line(line)));
    }
    handshake(&mut bench, 0);
    bench
}

/// On the connection for commands.
fn handshake(bench: &mut Bench, line: u32) {
    bench.service(What::Wrote { line: Line(line), command: Word::Other("INFO"), bytes: 14 });
    bench.service(What::Sent(Line(line), 1));
    bench.service(What::Replied(Line(line)));
}

/// Time passes, and somebody looks.
fn wait(bench: &mut Bench, seconds: u64) {
    for _ in 0..seconds * 4 {
        bench.at += 250_000;
        bench.see(Host::World, What::Phase(Phase::Safety));
    }
}

/// Read by service 0, and the answer never came.
fn orphaned() -> Bench {
    let mut bench = bench();
    bench.added(1);
    bench.execute(Word::ReadGroup);
    bench.pending(1, ONE, None, 0);
    bench
}

#[test]
fn what_is_in_nobodys_hand_is_claimed_back() {
    let mut bench = orphaned();
    wait(&mut bench, 6);
    assert_eq!(bench.violated(), []);
    wait(&mut bench, 3);
    assert_eq!(bench.violated(), [45]);
}

#[test]
fn who_has_credit_and_both_connections_reads() {
    let idle = || {
        let mut bench = bench();
        bench.service(What::Wrote { line: Line(1), command: Word::ReadGroup, bytes: 100 });
        bench.service(What::Sent(Line(1), 1));
        bench.service(What::Replied(Line(1)));
        bench
    };
    let mut idler = idle();
    wait(&mut idler, 8);
    assert_eq!(idler.violated(), []);
    wait(&mut idler, 90);
    assert_eq!(idler.violated(), [29]);

    // Who waits out a backoff has nothing to claim with, and reads nothing that it could not.
    let mut cut = idle();
    cut.service(What::HungUp(Line(0)));
    wait(&mut cut, 90);
    assert_eq!(cut.violated(), []);
}

#[test]
fn what_is_in_hand_may_take_long() {
    let mut bench = orphaned();
    bench.delivered(0, 1, 1, 1);
    wait(&mut bench, 60);
    assert_eq!(bench.violated(), []);
    bench.settled(0, 1, Given::Done);
    wait(&mut bench, 9);
    assert_eq!(bench.violated(), [45], "its acknowledgement must have come");
}

#[test]
fn nobody_can_claim_without_connections_or_credit() {
    let mut alone = orphaned();
    alone.service(What::HungUp(Line(1)));
    wait(&mut alone, 60);
    assert_eq!(alone.violated(), []);
    // A second subscription reads on, and the connection for commands is not there.
    let mut readers = orphaned();
    let to = Endpoint::Ip(broker_address(0, false));
    readers.service(What::Dialled { conn: ConnId::from_parts(2, 0), line: Line(2), to });
    readers.service(What::Connected(Line(2)));
    readers.service(What::HungUp(Line(0)));
    wait(&mut readers, 60);
    assert_eq!(readers.violated(), []);
    let mut full = orphaned();
    full.delivered(0, 2, 2, 1);
    full.delivered(0, 3, 3, 1);
    wait(&mut full, 60);
    assert_eq!(full.violated(), []);
}

#[test]
fn a_broker_whose_memory_is_full_is_consumed_from() {
    let mut unread = bench();
    unread.added(1);
    unread.see(Host::World, What::FaultBegins(0));
    wait(&mut unread, 9);
    assert_eq!(unread.violated(), [48]);
    let mut unacknowledged = bench();
    unacknowledged.received(1);
    unacknowledged.see(Host::World, What::FaultBegins(0));
    unacknowledged.settled(0, 1, Given::Done);
    wait(&mut unacknowledged, 9);
    assert_eq!(unacknowledged.violated(), [48]);
}

#[test]
fn who_has_nothing_in_hand_asks_for_messages() {
    let idle = |answered: bool| {
        let mut bench = bench();
        bench.service(What::Wrote { line: Line(1), command: Word::ReadGroup, bytes: 100 });
        bench.service(What::Sent(Line(1), 1));
        if answered {
            bench.service(What::Replied(Line(1)));
        }
        wait(&mut bench, 15);
        bench.violated()
    };
    assert_eq!(idle(false), []);
    assert_eq!(idle(true), [29]);
}
