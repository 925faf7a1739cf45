use flota_core::id::{BrokerId, ConnId, Id};
use flota_core::output::{BrokerChange, Unready, UnreadyReason};
use flota_core::time::Now;

use super::*;
use crate::oracle::testing::{Bench, plan};
use crate::world::broker_address;

/// A service with two ready brokers, on lines 0 and 1; messages 0 to 19 without a key; a lane takes four commands.
fn bench() -> Bench {
    let mut plan = plan(1, 2, 20);
    plan.knobs.pipeline = 4;
    let mut bench = Bench::new(plan, |plan| Box::new(Routing::new(plan)));
    bench.service(What::Born(1));
    for broker in 0..2 {
        bench.service(What::Dialled {
            conn: ConnId::from_parts(broker, 0),
            line: Line(broker),
            to: Endpoint::Ip(broker_address(broker, false)),
        });
        tell(&mut bench, broker, BrokerChange::Announced);
        tell(&mut bench, broker, BrokerChange::Ready);
    }
    bench
}

fn tell(bench: &mut Bench, broker: u32, change: BrokerChange) {
    let address = Endpoint::Ip(broker_address(broker, false));
    bench.service(What::Fleet { id: BrokerId::from_parts(broker, 0), address, change });
}

fn full(bench: &mut Bench, broker: u32) {
    tell(bench, broker, BrokerChange::Unready(Unready { reason: UnreadyReason::Oom, detail: String::new() }));
}

fn send(bench: &mut Bench, item: u32, broker: u32) {
    bench.service(What::Submitted { item: Item(item), accepted: Ok(()) });
    bench.service(What::Wrote { line: Line(broker), command: Word::Add(Some(Item(item))), bytes: 100 });
}

fn answer(bench: &mut Bench, broker: u32) {
    bench.service(What::Replied(Line(broker)));
}

fn turn(bench: &mut Bench) {
    bench.service(What::Turn { now: Now::default(), inputs: 1, time_passed: false, outputs: 0, wait: None });
}

#[test]
fn taking_turns_is_fair_and_favouring_one_is_not() {
    let mut fair = bench();
    for item in 0..10 {
        send(&mut fair, item, item % 2);
        answer(&mut fair, item % 2);
    }
    assert_eq!(fair.violated(), []);
    let mut unfair = bench();
    send(&mut unfair, 0, 0);
    assert_eq!(unfair.violated(), []);
    send(&mut unfair, 1, 0);
    assert_eq!(unfair.violated(), [16]);
}

#[test]
fn a_change_of_the_fleet_begins_the_count_anew() {
    let mut bench = bench();
    send(&mut bench, 0, 0);
    tell(&mut bench, 1, BrokerChange::Withdrawn);
    send(&mut bench, 1, 0);
    tell(&mut bench, 1, BrokerChange::Announced);
    send(&mut bench, 2, 0);
    assert_eq!(bench.violated(), []);
}

#[test]
fn a_crowded_lane_ends_the_count() {
    let mut bench = bench();
    for item in 0..8 {
        send(&mut bench, item, item % 2);
    }
    (0..4).for_each(|_| answer(&mut bench, 0));
    for item in 8..11 {
        send(&mut bench, item, 0);
    }
    assert_eq!(bench.violated(), []);
    assert_eq!(bench.hits("a lane was at its limit"), 1);
}

#[test]
fn who_is_unknown_unready_or_gone_is_not_sent_to() {
    let closed = || BrokerChange::Unready(Unready { reason: UnreadyReason::Closed, detail: String::new() });
    for change in
        [closed(), BrokerChange::Withdrawn, BrokerChange::Expired { silent_ms: 6_001 }, BrokerChange::Forgotten]
    {
        let mut bench = bench();
        tell(&mut bench, 1, change);
        send(&mut bench, 0, 0);
        assert_eq!(bench.violated(), []);
        send(&mut bench, 1, 1);
        assert_eq!(bench.violated(), [17]);
    }
}

#[test]
fn a_full_broker_gets_one_message_in_a_while() {
    let mut bench = bench();
    full(&mut bench, 1);
    bench.at += PROBE_US;
    send(&mut bench, 0, 1);
    assert_eq!(bench.violated(), []);
    bench.at += PROBE_US - TURN_US - 1;
    send(&mut bench, 1, 1);
    assert_eq!(bench.violated(), [17]);
}

#[test]
fn nothing_waits_while_somebody_has_room() {
    let mut bench = bench();
    bench.service(What::Submitted { item: Item(0), accepted: Ok(()) });
    assert_eq!(bench.violated(), []);
    turn(&mut bench);
    assert_eq!(bench.violated(), [18]);
}

#[test]
fn what_waits_for_room_may_wait() {
    let mut bench = bench();
    for item in 0..8 {
        send(&mut bench, item, item % 2);
    }
    bench.service(What::Submitted { item: Item(8), accepted: Ok(()) });
    turn(&mut bench);
    answer(&mut bench, 0);
    turn(&mut bench);
    assert_eq!(bench.violated(), [], "three of four are unanswered: a lane takes more once it has drained to half");
    answer(&mut bench, 0);
    turn(&mut bench);
    assert_eq!(bench.violated(), [18]);
}

#[test]
fn what_a_lost_connection_carried_needs_a_broker_again() {
    let mut bench = bench();
    send(&mut bench, 0, 0);
    bench.service(What::HungUp(Line(0)));
    tell(&mut bench, 0, BrokerChange::Unready(Unready { reason: UnreadyReason::Closed, detail: String::new() }));
    turn(&mut bench);
    assert_eq!(bench.violated(), [18]);
}
