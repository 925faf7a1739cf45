use bytes::Bytes;

use super::super::consumer::tests::{DEAD, ONE, OTHER, STREAM, consuming, entry, fields};
use super::super::testing::Bench;
use super::*;
use crate::plan::Fault;
use crate::seen::Line;

fn bench() -> Bench {
    let mut plan = consuming();
    plan.knobs.max_deliveries = 3;
    plan.faults = vec![Fault { at_ms: 0, for_ms: 0, what: Trouble::BrokerStep { broker: 0, by_ms: 400 } }];
    let mut bench = Bench::new(plan, |plan| Box::new(Retrying::new(plan)));
    bench.begin();
    bench
}

const BUCKET: &[u8] = b"streaming:mq:retry:t0:g0:0:body";
const RETRIES: &[u8] = b"stream:topic:t0:p:0:retry:g0";

/// What the retry script puts away of message 1.
fn again(attempt: u32) -> Vec<Bytes> {
    let mut all = fields(1);
    let attempt = attempt.to_string();
    for (name, value) in [("attempt", &attempt), ("origin", &entry(1).to_string())] {
        all.extend([Bytes::from(name), Bytes::from(value.clone())]);
    }
    all
}

fn packed(texts: &[Bytes]) -> Bytes {
    let mut packed = vec![0x90 + texts.len() as u8];
    for text in texts {
        packed.push(0xa0 + text.len() as u8);
        packed.extend(text);
    }
    packed.into()
}

fn put_away(bench: &mut Bench, attempt: u32) {
    bench.execute(Word::Script(Script::Retry));
    let (key, field) = (Bytes::from_static(BUCKET), Bytes::from(format!("0:{}", entry(1))));
    bench.change(Change::Field { key, field, value: Some(packed(&again(attempt))) });
    bench.acked(1);
}

/// The handler of message 1 asks for a retry, and the message waits.
fn deferred() -> Bench {
    let mut bench = bench();
    bench.received(1);
    bench.settled(0, 1, Given::Retry);
    put_away(&mut bench, 2);
    bench
}

fn moved(bench: &mut Bench, to: &'static [u8]) {
    bench.execute(Word::Script(Script::Move));
    bench.change(Change::Added { key: Bytes::from_static(to), id: entry(50), fields: again(2) });
    taken_out(bench);
}

fn taken_out(bench: &mut Bench) {
    let (key, field) = (Bytes::from_static(BUCKET), Bytes::from(format!("0:{}", entry(1))));
    bench.change(Change::Field { key, field, value: None });
}

fn bury(bench: &mut Bench, script: Script, deliveries: u32) {
    let mut all = fields(1);
    for (name, value) in [
        ("dead-group", "g0".to_string()),
        ("dead-partition", "0".to_string()),
        ("dead-origin", entry(1).to_string()),
        ("dead-reason", "deliveries".to_string()),
        ("dead-attempts", deliveries.to_string()),
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
    moved(&mut early, RETRIES);
    assert_eq!(early.violated(), [28]);
    let mut due = deferred();
    due.at += 1_000_000;
    moved(&mut due, RETRIES);
    assert_eq!(due.violated(), []);
    assert_eq!(due.hits("retry due and delivered again"), 1);
}

#[test]
fn due_is_by_the_clock_of_the_server() {
    let mut stepped = deferred();
    stepped.at += 650_000;
    stepped.see(Host::World, What::FaultBegins(0));
    moved(&mut stepped, RETRIES);
    assert_eq!(stepped.violated(), []);
}

#[test]
fn a_retry_is_not_taken_out_and_dropped() {
    let mut bench = deferred();
    bench.at += 2_000_000;
    bench.execute(Word::Script(Script::Move));
    taken_out(&mut bench);
    assert_eq!(bench.violated(), [28]);
}

#[test]
fn a_retry_is_its_groups_alone() {
    let mut shared = deferred();
    shared.at += 2_000_000;
    moved(&mut shared, STREAM);
    assert_eq!(shared.violated(), [52]);
    let mut read = deferred();
    read.at += 2_000_000;
    moved(&mut read, RETRIES);
    let pending = |group: &'static [u8]| Change::Pending {
        key: Bytes::from_static(RETRIES),
        group: Bytes::from_static(group),
        id: entry(50),
        consumer: Bytes::from_static(ONE),
        from: None,
        idle_ms: 0,
        deliveries: 1,
    };
    read.change(pending(b"g0"));
    assert_eq!(read.violated(), []);
    read.change(pending(b"g1"));
    assert_eq!(read.violated(), [52]);
}

#[test]
fn a_retry_says_which_attempt_it_is() {
    let mut bench = bench();
    bench.received(1);
    bench.settled(0, 1, Given::Retry);
    put_away(&mut bench, 1);
    assert_eq!(bench.violated(), [27]);
}

#[test]
fn a_retry_must_be_asked_for_and_must_wait() {
    let mut unasked = bench();
    unasked.received(1);
    unasked.settled(0, 1, Given::Done);
    put_away(&mut unasked, 2);
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

/// Entry 1 was claimed for service 1, whose process then died.
#[derive(Default)]
struct Claimed {
    /// It arrived there …
    arrived: bool,
    /// … and its handler was done with it.
    done: bool,
    /// Entry 2 was in hand, too, delivered as often.
    neighbour: bool,
    /// The process had died already when the claim ran.
    for_the_dead: bool,
    /// It had given up the connection that the claim came by.
    by_a_lost_line: bool,
}

/// What is said of entry 1's becoming a dead letter after that.
fn die(claimed: &Claimed) -> Vec<u8> {
    let mut bench = bench();
    bench.received(1);
    bench.received(2);
    bench.service(What::Died(1));
    let dies = |bench: &mut Bench| bench.see(Host::Service(1), What::Died(1));
    bench.execute(Word::Script(Script::Claim));
    if claimed.neighbour {
        bench.pending_at(2, OTHER, Some(ONE), 3_600_000, 3);
        bench.delivered(1, 8, 2, 3);
    }
    if claimed.by_a_lost_line {
        bench.see(Host::Service(1), What::HungUp(Line(0)));
    }
    if claimed.for_the_dead {
        dies(&mut bench);
    }
    bench.pending_at(1, OTHER, Some(ONE), 30_000, 3);
    if claimed.arrived {
        bench.delivered(1, 7, 1, 3);
    }
    if claimed.done {
        bench.settled(1, 7, Given::Done);
    }
    if !claimed.for_the_dead {
        dies(&mut bench);
    }
    bury(&mut bench, Script::Claim, 3);
    bench.violated()
}

#[test]
fn nothing_becomes_a_dead_letter_for_its_neighbours() {
    let arrived = || Claimed { arrived: true, ..Claimed::default() };
    assert_eq!(die(&arrived()), []);
    assert_eq!(die(&Claimed { neighbour: true, ..arrived() }), [27]);
    assert_eq!(die(&Claimed { neighbour: true, done: true, ..arrived() }), [], "its acknowledgement was on the way");
}

#[test]
fn a_claim_whose_answer_is_lost_counts_and_was_not_to_be_sent_beside_a_suspect() {
    assert_eq!(die(&Claimed::default()), []);
    let neighbour = || Claimed { neighbour: true, ..Claimed::default() };
    assert_eq!(die(&neighbour()), [27]);
    assert_eq!(die(&Claimed { for_the_dead: true, ..neighbour() }), []);
    assert_eq!(die(&Claimed { by_a_lost_line: true, ..neighbour() }), []);
}

#[test]
fn a_handler_that_has_started_and_is_given_back_has_had_its_delivery() {
    for (starts, expected) in [(true, vec![]), (false, vec![27])] {
        let mut bench = bench();
        bench.received(1);
        bench.pending_at(1, OTHER, Some(ONE), 30_000, 3);
        if starts {
            bench.delivered(1, 7, 1, 3);
        }
        bench.execute(Word::Script(Script::Release));
        bench.pending_at(1, b"@free", Some(OTHER), 0, 3);
        bury(&mut bench, Script::Claim, 3);
        assert_eq!(bench.violated(), expected);
    }
}
