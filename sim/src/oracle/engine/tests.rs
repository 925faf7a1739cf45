use flota_core::time::{Now, Wall};

use super::super::testing::{Bench, plan};
use super::*;

fn bench() -> Bench {
    let mut bench = Bench::new(plan(1, 1, 1), |_| Box::new(Driving::default()));
    bench.service(What::Born(1));
    bench
}

fn turn(now: u64, time_passed: bool, outputs: u32, wait: Option<u64>) -> What {
    let now = Now { mono: Mono(now), wall: Wall(0) };
    What::Turn { now, inputs: 1, time_passed, outputs, wait: wait.map(Mono) }
}

#[test]
fn a_call_before_its_time_does_nothing() {
    let early = |after, outputs| {
        let mut bench = bench();
        bench.service(What::Early { wait: Some(Mono(9)), after: Some(Mono(after)), outputs });
        bench.violated()
    };
    assert_eq!(early(9, 0), []);
    assert_eq!(early(9, 1), [38]);
    assert_eq!(early(8, 0), [38]);
}

#[test]
fn when_time_has_passed_nothing_is_due() {
    let mut bench = bench();
    bench.service(turn(100, true, 1, Some(101)));
    assert_eq!(bench.violated(), []);
    bench.service(turn(101, true, 1, Some(101)));
    assert_eq!(bench.violated(), [39]);
}

#[test]
fn an_input_leaves_what_is_due_and_makes_nothing_due() {
    let mut late = bench();
    late.service(turn(100, true, 1, Some(150)));
    late.service(turn(160, false, 1, Some(150)));
    assert_eq!(late.violated(), [], "it was due before");
    let mut bench = bench();
    bench.service(turn(100, true, 1, Some(500)));
    bench.service(turn(160, false, 0, Some(160)));
    assert_eq!(bench.violated(), [39]);
}

#[test]
fn an_engine_is_not_woken_for_nothing_again_and_again() {
    let wake = |every_us: u64| {
        let mut bench = bench();
        for n in 0..500 {
            bench.at += every_us;
            bench.service(turn(n, true, 0, Some(n + 1)));
        }
        bench.violated()
    };
    assert_eq!(wake(100_000), []);
    assert_eq!(wake(10), [40]);
}

#[test]
fn a_turn_has_an_end() {
    let mut bench = bench();
    bench.service(turn(1, false, 200, None));
    assert_eq!(bench.violated(), []);
    bench.service(turn(2, false, 20_000, None));
    assert_eq!(bench.violated(), [40]);
}

#[test]
fn books_that_do_not_add_up_are_told() {
    let mut bench = bench();
    bench.service(What::Audited(Ok(())));
    assert_eq!(bench.violated(), []);
    bench.service(What::Audited(Err("one too many".to_string())));
    assert_eq!(bench.violated(), [41]);
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let mut bench = bench();
    bench.service(What::Rerun { inputs: 7, differs: None });
    assert_eq!(bench.violated(), []);
    bench.service(What::Rerun { inputs: 7, differs: Some((3, "Wait".to_string())) });
    assert_eq!(bench.violated(), [43]);
}

#[test]
fn a_short_write_is_marked() {
    let mut bench = bench();
    bench.service(What::Wrote { line: Line(1), command: crate::seen::Word::ReadGroup, bytes: 10 });
    bench.service(turn(1, false, 1, None));
    assert_eq!(bench.hits("short write"), 1);
    bench.service(What::Sent(Line(1), 1));
    bench.service(turn(2, false, 1, None));
    assert_eq!(bench.hits("short write"), 1);
}
