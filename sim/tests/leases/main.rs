//! The lease machine against random schedules. Environment:
//!
//! * `FLOTA_LEASE_SCHEDULES`: how many of each family; 1,000 unless given.
//! * `FLOTA_LEASE_FIRST`: the first seed; 0 unless given.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "how long it took is said, and nothing else")]

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use flota_core::mutant::Mutant;
use flota_sim::lease::{Ask, Family, Fault, Moved, Outcome, Schedule, hunt, run};

/// What all runs of a family came to.
#[derive(Default)]
struct Sum {
    runs: u64,
    ticks: u64,
    grants: u64,
    excused: u64,
    stale: u64,
    lost: u64,
    simulated_us: u64,
    failed: Vec<(u64, String)>,
}

impl Sum {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.runs += 1;
        self.ticks += outcome.ticks;
        self.grants += outcome.grants;
        self.excused += outcome.excused;
        self.stale += outcome.stale;
        self.lost += outcome.lost;
        self.simulated_us += outcome.simulated_us;
        self.failed.extend(outcome.broken.as_ref().map(|broken| (seed, broken.to_string())));
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Seeds that found something once.
const REMEMBERED: [u64; 6] = [202, 512, 580, 1193, 1466, 8799];

/// Runs all seeds, on all cores.
fn run_all(family: Family) -> Sum {
    let first = number("FLOTA_LEASE_FIRST", 0);
    let until = first + number("FLOTA_LEASE_SCHEDULES", 1_000);
    let (next, sum) = (AtomicU64::new(first), Mutex::new(Sum::default()));
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= until {
                        break;
                    }
                    let outcome = run(&Schedule::draw(family, seed), Ask::default());
                    sum.lock().expect("no run panicked").add(seed, &outcome);
                }
            });
        }
    });
    let mut sum = sum.into_inner().expect("no run panicked");
    println!(
        "{family:?}: {} schedules, {} ticks, {} grants, {} overlaps that nobody could have known of, {} stale ticks, \
         {} partitions lost by the living, {} s simulated, {:?}",
        sum.runs,
        sum.ticks,
        sum.grants,
        sum.excused,
        sum.stale,
        sum.lost,
        sum.simulated_us / 1_000_000,
        began.elapsed(),
    );
    sum.failed.sort();
    if let Some((seed, broken)) = sum.failed.first() {
        let schedule = Schedule::draw(family, *seed);
        let story = run(&schedule, Ask { tell: true, ..Ask::default() }).story;
        let end = story.len().saturating_sub(100);
        println!("{schedule:#?}\n{}", story.get(end..).unwrap_or_default().join("\n"));
        let seeds: Vec<_> = sum.failed.iter().map(|(seed, _)| seed).collect();
        panic!("{family:?}, seed {seed}: {broken}\nall that failed: {seeds:?}");
    }
    sum
}

#[test]
fn shares_are_even_soon_after_a_change_and_nothing_moves_needlessly() {
    let sum = run_all(Family::Calm);
    assert_eq!((sum.excused, sum.stale), (0, 0));
    assert_eq!(sum.lost, 0, "what is given up in order is not lost");
}

#[test]
fn nobody_believes_in_what_somebody_else_believes_in() {
    let sum = run_all(Family::Storm);
    // What never happens proves nothing.
    let least = sum.runs / 100;
    assert!(sum.excused > least && sum.stale > least && sum.lost > least, "the weather is too good");
}

#[test]
fn what_was_found_once_holds() {
    for seed in REMEMBERED {
        let outcome = run(&Schedule::draw(Family::Storm, seed), Ask::default());
        assert_eq!(outcome.broken, None, "seed {seed}");
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    const SEEDS: u64 = 300;
    let mut missed = Vec::new();
    for mutant in Mutant::ALL.iter().copied().filter(|mutant| mutant.is_in_lease()) {
        let hunt = hunt(mutant, SEEDS);
        let proves = mutant.invariants()[0];
        println!("{mutant:<24} {proves:>3}: {:>4} runs, {:?}, also {:?}", hunt.runs, hunt.found, hunt.others);
        if hunt.found.is_none() {
            missed.push(mutant);
        }
    }
    assert_eq!(missed, [], "not noticed within {SEEDS} seeds of each family");
}

/// The bound on clocks is there for a reason: one that runs ten percent slow outlives the server's patience.
#[test]
fn a_clock_that_is_too_slow_makes_two_believers() {
    const SEEDS: u64 = 300;
    let slow = |seed: &u64| {
        let mut schedule = Schedule::draw(Family::Storm, *seed);
        schedule.members.fill(-100_000);
        run(&schedule, Ask { only: Some(23), ..Ask::default() }).broken.is_some()
    };
    let found = (0..SEEDS).find(slow);
    println!("two believers with seed {found:?}");
    assert!(found.is_some());
}

const S: u64 = 1_000_000;

/// Runs what is written down, which must hold.
fn run_scripted(members: usize, faults: Vec<(u64, Fault)>, end_us: u64) -> Outcome {
    let schedule = Schedule::scripted(members, 12, faults, end_us);
    let outcome = run(&schedule, Ask { tell: true, ..Ask::default() });
    let end = outcome.story.len().saturating_sub(40);
    assert_eq!(outcome.broken, None, "{}", outcome.story[end..].join("\n"));
    outcome
}

#[test]
fn starts_and_stops_leave_nothing_behind() {
    let mut faults = vec![(0, Fault::Start(0))];
    for round in 1..=5 {
        faults.push((round * 10 * S, Fault::Start(1)));
        faults.push((round * 10 * S + 6 * S, Fault::Stop(1)));
    }
    // Those who said goodbye are forgotten when their time is over.
    let end = 60 * S + 15 * S + 5 * S;
    faults.push((end, Fault::Check(Moved::Any)));
    assert_eq!(run_scripted(2, faults, end + 1).known, (1, 1));
}

#[test]
fn what_a_restart_forgot_is_kept_by_its_holder_whoever_comes_first() {
    // The copy is from before the second member, which has its share when the server dies.
    let faults = |newcomer: u64| {
        vec![
            (0, Fault::Start(0)),
            (S, Fault::Copy),
            (2 * S, Fault::Start(1)),
            (9 * S, Fault::Check(Moved::Any)),
            (9 * S, Fault::Restart { copy: true, down_us: S, failover: false }),
            (newcomer, Fault::Start(2)),
            // As long as it may have forgotten something, everything stays where it is.
            (20 * S, Fault::Crash(2)),
            (20 * S, Fault::Check(Moved::None)),
        ]
    };
    // Before anybody is connected again, and after.
    for newcomer in [10 * S, 14 * S] {
        let outcome = run_scripted(3, faults(newcomer), 20 * S + 1);
        assert_eq!((outcome.excused, outcome.lost), (0, 0));
    }
}

#[test]
fn a_flush_moves_nothing_unless_a_newcomer_comes_first() {
    let faults = |newcomer: Option<u64>| {
        let mut faults = vec![(0, Fault::Start(0)), (0, Fault::Start(1)), (9 * S, Fault::Check(Moved::Any))];
        faults.extend(newcomer.map(|at| (at, Fault::Start(2))));
        faults.push((9 * S, Fault::Flush));
        faults
    };
    let mut alone = faults(None);
    alone.push((40 * S, Fault::Check(Moved::None)));
    let outcome = run_scripted(3, alone, 40 * S + 1);
    assert_eq!((outcome.excused, outcome.lost), (0, 0));
    // It cannot know, and neither can the server. What it is given has larger tokens, and the others are told.
    let mut joined = faults(Some(9 * S));
    joined.push((60 * S, Fault::Check(Moved::Any)));
    run_scripted(3, joined, 60 * S + 1);
}

#[test]
fn a_schedule_is_the_whole_of_a_run() {
    for family in [Family::Calm, Family::Storm] {
        for seed in 0..5 {
            let tell = || run(&Schedule::draw(family, seed), Ask { tell: true, ..Ask::default() }).story;
            assert_eq!(tell(), tell());
        }
    }
}
