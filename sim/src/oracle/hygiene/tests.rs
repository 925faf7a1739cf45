use flota_core::id::{ConnId, Id};
use flota_core::output::{Closed, ClosedReason};
use flota_core::time::{Mono, Now, Wall};

use super::super::consumer::tests::consuming;
use super::super::testing::Bench;
use super::*;
use crate::seen::{Given, Line};
use crate::world::broker_address;

fn bench() -> Bench {
    let mut bench = Bench::new(consuming(), |_| Box::new(Housekeeping::default()));
    bench.begin();
    bench
}

fn dial(bench: &mut Bench, line: u32) {
    let to = Endpoint::Ip(broker_address(0, false));
    bench.service(What::Dialled { conn: ConnId::from_parts(line, 0), line: Line(line), to });
}

fn turn(outputs: u32, wait: Option<u64>) -> What {
    let now = Now { mono: Mono(1), wall: Wall(0) };
    What::Turn { now, inputs: 1, time_passed: true, outputs, wait: wait.map(Mono) }
}

#[test]
fn a_broker_has_one_connection_for_commands_and_one_for_each_subscription() {
    let mut bench = bench();
    dial(&mut bench, 1);
    dial(&mut bench, 2);
    assert_eq!(bench.violated(), []);
    bench.service(What::HungUp(Line(2)));
    dial(&mut bench, 3);
    assert_eq!(bench.violated(), []);
    dial(&mut bench, 4);
    assert_eq!(bench.violated(), [37]);
}

#[test]
fn an_address_that_refuses_is_not_dialled_in_a_loop() {
    let tries = |every_us: u64| {
        let mut bench = bench();
        for n in 0..40 {
            bench.at += every_us;
            dial(&mut bench, n);
            let why = Closed { reason: ClosedReason::Refused, detail: String::new() };
            bench.service(What::Closed { line: Line(n), why });
        }
        bench.violated()
    };
    assert_eq!(tries(100_000), []);
    assert_eq!(tries(5_000), [37]);
}

#[test]
fn a_process_stops_when_its_grace_is_over() {
    let mut bench = bench();
    bench.service(What::Stopping { grace_us: 1_000_000 });
    bench.at += 4_200_000;
    bench.service(turn(0, Some(1)));
    assert_eq!(bench.violated(), []);
    bench.at += 1_000_000;
    bench.service(turn(0, Some(1)));
    assert_eq!(bench.violated(), [42]);
}

#[test]
fn one_that_stands_still_stops_when_it_goes_on() {
    let mut bench = bench();
    bench.service(What::Stopping { grace_us: 1_000_000 });
    bench.service(What::Paused);
    bench.at += 60_000_000;
    bench.see(Host::Service(1), turn(0, Some(1)));
    bench.service(What::Resumed);
    bench.service(What::Stopped);
    bench.service(turn(1, None));
    assert_eq!(bench.violated(), []);
}

#[test]
fn handlers_have_the_grace() {
    let stop = |verdict: Option<Given>, after_us: u64| {
        let mut bench = bench();
        bench.received(1);
        bench.service(What::Stopping { grace_us: 1_000_000 });
        if let Some(verdict) = verdict {
            bench.settled(0, 1, verdict);
        }
        bench.at += after_us;
        bench.service(What::Unsubscribed(0));
        bench.service(What::Stopped);
        bench.violated()
    };
    assert_eq!(stop(Some(Given::Done), 1_000), []);
    assert_eq!(stop(None, 1_000_000), []);
    assert_eq!(stop(None, 1_000), [42]);
}

#[test]
fn one_that_has_stopped_is_silent() {
    let after = |outputs, wait| {
        let mut bench = bench();
        bench.service(What::Stopping { grace_us: 0 });
        bench.service(What::Stopped);
        bench.service(turn(5, None));
        bench.service(turn(outputs, wait));
        bench.violated()
    };
    assert_eq!(after(0, None), []);
    assert_eq!(after(0, Some(9)), [42]);
    assert_eq!(after(1, None), [42]);
}
