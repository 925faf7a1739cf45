use bytes::Bytes;

use super::super::consumer::tests::{DEAD, ONE, OTHER, consuming, entry, fields};
use super::super::testing::Bench;
use super::*;
use crate::plan::Fault;

fn bench() -> Bench {
    let mut plan = consuming();
    plan.knobs.max_deliveries = 3;
    plan.faults = vec![Fault { at_ms: 0, for_ms: 0, what: Trouble::BrokerStep { broker: 0, by_ms: 400 } }];
    let mut bench = Bench::new(plan, |plan| Box::new(Retrying::new(plan)));
    bench.begin();
    bench
}

/// The handler of message 1 asks for a retry, and the entry waits.
fn deferred() -> Bench {
    let mut bench = bench();
    bench.received(1);
    bench.settled(0, 1, Given::Retry);
    bench.execute(Word::Script(Script::Defer));
    bench.pending(1, b"@retry", Some(ONE), 0);
    bench
}

fn claim(bench: &mut Bench, idle_ms: i64) {
    bench.execute(Word::Script(Script::Claim));
    bench.pending_at(1, OTHER, Some(b"@retry"), idle_ms, 2);
}

fn bury(bench: &mut Bench, script: Script, deliveries: u32) {
    let mut all = fields(1);
    for (name, value) in [
        ("dead-group", "g0".to_string()),
        ("dead-partition", "0".to_string()),
        ("dead-origin", entry(1).to_string()),
        ("dead-reason", "deliveries".to_string()),
        ("dead-deliveries", deliveries.to_string()),
    ] {
        all.extend([Bytes::from(name), Bytes::from(value)]);
    }
    bench.execute(Word::Script(script));
    bench.change(Change::Added { key: Bytes::from_static(DEAD), id: entry(100), fields: all });
}

#[test]
fn a_retry_comes_when_it_is_due_and_not_before() {
    let mut early = deferred();
    early.at += 900_000;
    claim(&mut early, 3_600_000);
    assert_eq!(early.violated(), [28]);
    let mut due = deferred();
    due.at += 1_000_000;
    claim(&mut due, 3_600_000);
    assert_eq!(due.violated(), []);
    assert_eq!(due.hits("retry due and delivered again"), 1);
}

#[test]
fn due_is_by_the_clock_of_the_server() {
    let mut stepped = deferred();
    stepped.at += 650_000;
    stepped.see(Host::World, What::FaultBegins(0));
    claim(&mut stepped, 3_600_050);
    assert_eq!(stepped.violated(), []);
}

#[test]
fn a_retry_that_the_server_does_not_hold_for_due_is_too_early() {
    let mut bench = deferred();
    bench.at += 2_000_000;
    claim(&mut bench, 1_000);
    assert_eq!(bench.violated(), [28]);
}

#[test]
fn a_retry_must_be_asked_for_and_must_wait() {
    let mut unasked = bench();
    unasked.received(1);
    unasked.settled(0, 1, Given::Done);
    unasked.execute(Word::Script(Script::Defer));
    unasked.pending(1, b"@retry", Some(ONE), 0);
    assert_eq!(unasked.violated(), [28]);
    let mut given_back = bench();
    given_back.received(1);
    given_back.at += 1;
    given_back.settled(0, 1, Given::Retry);
    given_back.execute(Word::Script(Script::Release));
    given_back.pending(1, b"@free", Some(ONE), 0);
    assert_eq!(given_back.violated(), [28]);
}

#[test]
fn a_message_is_delivered_so_often_and_not_once_more() {
    let mut bench = bench();
    bench.received(1);
    bench.delivered(1, 2, 1, 3);
    assert_eq!(bench.violated(), []);
    bench.delivered(1, 3, 1, 4);
    assert_eq!(bench.violated(), [27]);
}

#[test]
fn an_entry_becomes_a_dead_letter_once() {
    let mut bench = bench();
    bench.received(1);
    bench.settled(0, 1, Given::Reject);
    bury(&mut bench, Script::Dead, 1);
    assert_eq!(bench.violated(), []);
    bury(&mut bench, Script::Dead, 1);
    assert_eq!(bench.violated(), [27]);
}

#[test]
fn a_claim_buries_only_what_has_been_delivered_often_enough() {
    let mut bench = deferred();
    bury(&mut bench, Script::Claim, 2);
    assert_eq!(bench.violated(), [27]);
}

#[test]
fn nothing_becomes_a_dead_letter_for_its_neighbours() {
    let die = |neighbour: bool| {
        let mut bench = bench();
        bench.received(1);
        bench.delivered(0, 7, 1, 3);
        if neighbour {
            bench.added(2);
            bench.delivered(0, 8, 2, 3);
        }
        bench.service(What::Died(1));
        bench.execute(Word::Script(Script::Claim));
        bench.pending_at(1, OTHER, Some(ONE), 30_000, 3);
        bury(&mut bench, Script::Claim, 3);
        bench.violated()
    };
    assert_eq!(die(false), []);
    assert_eq!(die(true), [27]);
}

#[test]
fn a_suspect_whose_holder_died_while_it_was_on_its_way_may_have_run() {
    let die = |deliveries: u64, neighbour: bool| {
        let mut bench = bench();
        bench.added(1);
        bench.execute(Word::Script(Script::Claim));
        bench.pending_at(1, ONE, Some(OTHER), 30_000, deliveries);
        if neighbour {
            bench.added(2);
            bench.delivered(0, 8, 2, 3);
        }
        bench.service(What::Died(1));
        bench.at += 30_000_000;
        bench.execute(Word::Script(Script::Claim));
        bury(&mut bench, Script::Claim, 3);
        bench.violated()
    };
    assert_eq!(die(3, false), []);
    assert_eq!(die(3, true), [27], "its neighbour was in hand, and may have killed it");
    assert_eq!(die(2, false), [27], "it was none yet, and others ran beside it");
}
