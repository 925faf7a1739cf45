use flota_core::config::Endpoint;
use flota_core::id::{BrokerId, ConnId, Id};
use flota_core::op::Refused;
use flota_core::output::{BrokerChange, Closed, ClosedReason};
use flota_core::reply::ErrorReply;
use flota_core::time::Now;

use super::*;
use crate::broker::Why;
use crate::oracle::testing::{Bench, plan};
use crate::seen::Hand;
use crate::world::broker_address;

const SECOND: u64 = 1_000_000;

/// A service with one broker, and messages 0 to 9: 8 is sent at most once, 9 is refused by its handlers.
fn bench() -> Bench {
    let mut plan = plan(1, 1, 10);
    plan.work[8].at_most_once = true;
    plan.work[9].fate = Fate::Reject;
    plan.knobs.send_init_ms = 5_000;
    let mut bench = Bench::new(plan, |plan| Box::new(Producer::new(plan)));
    bench.service(What::Born(1));
    bench
}

fn ready(bench: &mut Bench) {
    let address = address();
    for change in [BrokerChange::Announced, BrokerChange::Ready] {
        bench.service(What::Fleet { id: BrokerId::from_parts(0, 0), address: address.clone(), change });
    }
    bench.service(What::Dialled { conn: ConnId::from_parts(0, 0), line: Line(1), to: address });
}

fn address() -> Endpoint {
    Endpoint::Ip(broker_address(0, false))
}

fn key() -> Bytes {
    Bytes::from_static(b"stream:topic:t0:p:0")
}

fn entry(n: u64) -> StreamId {
    StreamId { ms: n, seq: 0 }
}

fn submit(bench: &mut Bench, item: u32) {
    bench.service(What::Submitted { item: Item(item), accepted: Ok(()) });
}

fn write(bench: &mut Bench, line: u32, item: u32) {
    bench.service(What::Wrote { line: Line(line), command: Word::Add(Some(Item(item))), bytes: 100 });
}

fn close(bench: &mut Bench, line: u32) {
    let why = Closed { reason: ClosedReason::Io, detail: "reset".to_string() };
    bench.service(What::Closed { line: Line(line), why });
}

fn store(bench: &mut Bench, item: u32, at: u64) {
    let body = world::body(Item(item), &bench.plan.work[item as usize]);
    let fields = vec![Bytes::from_static(b"payload"), body];
    bench.change(Change::Added { key: key(), id: entry(at), fields });
}

fn done(bench: &mut Bench, item: u32, result: Result<Place, OpError>) {
    bench.service(What::Done { item: Item(item), result });
}

fn place(at: u64) -> Place {
    Place { broker: Some(0), partition: 0, entry: entry(at) }
}

fn group(bench: &mut Bench, at: u64) {
    bench.change(Change::Group { key: key(), group: Bytes::from_static(b"g0"), at: Some(entry(at)) });
}

fn pend(bench: &mut Bench, at: u64) {
    let (key, group, consumer) = (key(), Bytes::from_static(b"g0"), Bytes::from_static(b"c"));
    bench.change(Change::Pending { key, group, id: entry(at), consumer, from: None, idle_ms: 0, deliveries: 1 });
}

fn ack(bench: &mut Bench, at: u64) {
    let (key, group, consumer) = (key(), Bytes::from_static(b"g0"), Bytes::from_static(b"c"));
    bench.change(Change::Acked { key, group, id: entry(at), consumer });
}

fn trim(bench: &mut Bench, at: u64) {
    bench.change(Change::Removed { key: key(), id: entry(at), why: Why::Trimmed });
}

fn refused() -> OpError {
    OpError::Refused(Box::new(Refused { broker: address(), error: ErrorReply::new(b"OOM no") }))
}

fn turn(bench: &mut Bench) {
    bench.service(What::Turn { now: Now::default(), inputs: 1, time_passed: true, outputs: 0, wait: None });
}

fn stored(bench: &mut Bench, item: u32) {
    ready(bench);
    submit(bench, item);
    write(bench, 1, item);
    store(bench, item, 7);
    bench.service(What::Replied(Line(1)));
    done(bench, item, Ok(place(7)));
}

#[test]
fn a_message_that_is_handled_and_trimmed_is_in_order() {
    let mut bench = bench();
    group(&mut bench, 0);
    stored(&mut bench, 0);
    pend(&mut bench, 7);
    ack(&mut bench, 7);
    trim(&mut bench, 7);
    bench.end();
    assert_eq!(bench.violated(), []);
}

#[test]
fn a_message_reported_as_stored_must_be_somewhere() {
    let mut bench = bench();
    submit(&mut bench, 0);
    done(&mut bench, 0, Ok(place(7)));
    assert_eq!(bench.violated(), [1, 8]);
}

#[test]
fn what_is_trimmed_before_its_group_has_acknowledged_it_is_lost() {
    let mut bench = bench();
    group(&mut bench, 0);
    stored(&mut bench, 0);
    pend(&mut bench, 7);
    assert_eq!(bench.violated(), []);
    trim(&mut bench, 7);
    assert_eq!(bench.violated(), [1]);
}

#[test]
fn a_group_that_starts_behind_a_message_has_lost_it() {
    let mut bench = bench();
    stored(&mut bench, 0);
    group(&mut bench, 9);
    assert_eq!(bench.violated(), []);
    bench.end();
    assert_eq!(bench.violated(), [1]);
}

#[test]
fn a_refused_message_must_be_among_the_dead_letters() {
    for copied in [true, false] {
        let mut bench = bench();
        group(&mut bench, 0);
        stored(&mut bench, 9);
        pend(&mut bench, 7);
        if copied {
            let body = world::body(Item(9), &bench.plan.work[9]);
            let fields = vec![Bytes::from_static(b"payload"), body];
            bench.change(Change::Added { key: Bytes::from_static(b"stream:topic:t0:dlq"), id: entry(8), fields });
        }
        ack(&mut bench, 7);
        bench.end();
        assert_eq!(bench.violated().is_empty(), copied);
    }
}

#[test]
fn what_a_crash_or_an_operator_took_is_nobodys_fault() {
    let mut crashed = bench();
    stored(&mut crashed, 0);
    crashed.broker(What::Down);
    crashed.broker(What::Forgot(1));
    crashed.change(Change::StreamGone { key: key() });
    crashed.broker(What::Up(2));
    crashed.end();
    assert_eq!(crashed.violated(), []);

    let mut flushed = bench();
    stored(&mut flushed, 0);
    let operator = Line(u32::MAX);
    flushed.broker(What::Executed { line: operator, command: Word::Other("other"), refused: None });
    flushed.change(Change::StreamGone { key: key() });
    flushed.end();
    assert_eq!(flushed.violated(), []);

    let mut trimmed = bench();
    group(&mut trimmed, 0);
    stored(&mut trimmed, 0);
    trimmed.broker(What::Executed { line: operator, command: Word::Other("other"), refused: None });
    trim(&mut trimmed, 7);
    trimmed.end();
    assert_eq!(trimmed.violated(), []);

    let mut deleted = bench();
    stored(&mut deleted, 0);
    deleted.broker(What::Executed { line: Line(1), command: Word::Other("other"), refused: None });
    deleted.change(Change::StreamGone { key: key() });
    assert_eq!(deleted.violated(), [1]);
}

#[test]
fn never_sent_and_refused_are_lies_if_it_is_stored_before_or_after() {
    for (error, invariant) in [(OpError::NotSent(NotSent::Cancelled), 2), (refused(), 3)] {
        for before in [true, false] {
            let mut bench = bench();
            submit(&mut bench, 0);
            if before {
                store(&mut bench, 0, 7);
            }
            done(&mut bench, 0, Err(error.clone()));
            if !before {
                assert_eq!(bench.violated(), []);
                store(&mut bench, 0, 7);
            }
            assert_eq!(bench.violated(), [invariant]);
        }
    }
}

#[test]
fn an_ambiguous_send_may_be_stored_or_not() {
    let mut bench = bench();
    for item in [0, 1] {
        submit(&mut bench, item);
    }
    store(&mut bench, 0, 7);
    for item in [0, 1] {
        done(&mut bench, item, Err(OpError::Ambiguous(address())));
    }
    assert_eq!(bench.violated(), []);
    assert_eq!(bench.hits("an ambiguous send was executed"), 1);
    assert_eq!(bench.hits("an ambiguous send was not executed"), 1);
}

#[test]
fn each_accepted_message_resolves_once() {
    let again = OpError::Ambiguous(address());
    let mut twice = bench();
    submit(&mut twice, 0);
    done(&mut twice, 0, Err(again.clone()));
    assert_eq!(twice.violated(), []);
    done(&mut twice, 0, Err(again.clone()));
    assert_eq!(twice.violated(), [4]);

    let mut unasked = bench();
    done(&mut unasked, 0, Err(again.clone()));
    assert_eq!(unasked.violated(), [4]);

    let mut stray = bench();
    stray.service(What::Stray);
    assert_eq!(stray.violated(), [4]);

    let mut open = bench();
    submit(&mut open, 0);
    open.service(What::Stopped);
    assert_eq!(open.violated(), [4]);

    let mut late = bench();
    late.service(What::Stopped);
    submit(&mut late, 0);
    done(&mut late, 0, Err(again));
    assert_eq!(late.violated(), [4]);
}

#[test]
fn a_delivered_body_is_one_that_was_submitted() {
    for (item, intact, sent, right) in [
        (Some(Item(0)), true, true, true),
        (Some(Item(0)), false, true, false),
        (None, false, true, false),
        (Some(Item(0)), true, false, false),
    ] {
        let mut bench = bench();
        if sent {
            submit(&mut bench, 0);
        }
        let hand = Hand { life: 1, number: 0 };
        let given = Delivered {
            hand,
            sub: 0,
            item,
            intact,
            broker: Some(0),
            partition: 0,
            retry: false,
            entry: entry(7),
            deliveries: 1,
            attempt: 1,
        };
        bench.service(What::Delivered(Box::new(given)));
        assert_eq!(bench.violated().is_empty(), right);
    }
}

#[test]
fn a_second_store_needs_a_lost_connection_and_a_policy_that_allows_it() {
    let mut lost = bench();
    ready(&mut lost);
    submit(&mut lost, 0);
    write(&mut lost, 1, 0);
    store(&mut lost, 0, 7);
    close(&mut lost, 1);
    write(&mut lost, 2, 0);
    store(&mut lost, 0, 8);
    assert_eq!(lost.violated(), []);

    let mut open = bench();
    ready(&mut open);
    submit(&mut open, 0);
    write(&mut open, 1, 0);
    store(&mut open, 0, 7);
    write(&mut open, 1, 0);
    assert_eq!(open.violated(), [6]);

    let mut once = bench();
    ready(&mut once);
    submit(&mut once, 8);
    write(&mut once, 1, 8);
    store(&mut once, 8, 7);
    close(&mut once, 1);
    assert_eq!(once.violated(), []);
    store(&mut once, 8, 8);
    assert_eq!(once.violated(), [6]);
}

#[test]
fn without_a_broker_a_send_gives_up_neither_early_nor_late() {
    for (after, right) in [(4 * SECOND, false), (5 * SECOND, true), (6 * SECOND, false)] {
        let mut bench = bench();
        submit(&mut bench, 0);
        bench.at += after;
        done(&mut bench, 0, Err(OpError::NotSent(NotSent::NoBroker)));
        assert_eq!(bench.violated().is_empty(), right);
    }
    let mut late = bench();
    submit(&mut late, 0);
    late.at += 5 * SECOND + TURN_US;
    turn(&mut late);
    assert_eq!(late.violated(), []);
    late.at += 1;
    turn(&mut late);
    assert_eq!(late.violated(), [7]);
}

#[test]
fn a_send_that_gives_up_late_has_not_waited_in_vain_if_a_broker_was_there_meanwhile() {
    let mut bench = bench();
    submit(&mut bench, 0);
    ready(&mut bench);
    bench.at += 6 * SECOND;
    done(&mut bench, 0, Err(OpError::NotSent(NotSent::NoBroker)));
    assert_eq!(bench.violated(), []);
}

#[test]
fn the_reported_place_is_where_it_was_stored() {
    let mut bench = bench();
    submit(&mut bench, 0);
    store(&mut bench, 0, 7);
    done(&mut bench, 0, Ok(place(8)));
    assert_eq!(bench.violated(), [8]);
}
