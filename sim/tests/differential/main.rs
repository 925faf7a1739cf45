//! The model broker against real servers: the same commands, the same replies, the same data.
//!
//! Sequences come from seeds; a difference is shrunk and printed with its seed. Environment:
//!
//! * `FLOTA_SERVERS`: a folder with a folder per server; see `sim/servers.sh`. The path is searched, too.
//! * `FLOTA_REQUIRE_REDIS=1`: no server at all is a failure.
//! * `FLOTA_DIFF_SEQUENCES`: how many sequences per server; 2,000 unless given.
//! * `FLOTA_DIFF_FIRST`: the first seed; 0 unless given.
//! * `FLOTA_DIFF_SEED`: only this one.
//! * `FLOTA_DIFF_MOST`: how many differences to report before giving up; 1 unless given.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "real servers have clocks and processes")]

mod compare;
mod dump;
mod generator;
mod lies;
mod names;
mod runner;
mod server;
mod shrink;
mod subject;
mod wire;

use std::env;
use std::io::{Write, stderr};
use std::sync::Mutex;

use lies::{Liar, Lie};
use runner::{Bench, Tally};
use server::{Kind, Server};
use subject::{Model, Subject};

/// Says something also where the test passes, whose output is not shown.
macro_rules! say {
    ($($text:tt)*) => {{
        // Nobody may be listening.
        let _ = writeln!(stderr(), $($text)*);
    }};
}

/// One server at a time: they are busy.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn the_model_is_like_redis_6_2() {
    check(Kind::Redis62);
}

#[test]
fn the_model_is_like_redis_7_0() {
    check(Kind::Redis70);
}

#[test]
fn the_model_is_like_valkey_8_1() {
    check(Kind::Valkey81);
}

/// What the comparison would not notice proves nothing by its silence.
#[test]
fn a_model_that_lies_is_found_out() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some((kind, executable)) = Kind::ALL.into_iter().find_map(|kind| Some((kind, kind.find()?))) else {
        say!("SKIPPED: no server is there");
        return;
    };
    let server = Server::start(&executable, "lies");
    for lie in Lie::ALL {
        let mut liar = Liar::new(Model::new(kind), lie);
        let mut bench = Bench::new(&server, &mut liar);
        let differs = |seed| bench.run(&generator::sequence(seed), &mut Tally::default()).is_err();
        assert!((0..1_000).any(differs), "nobody noticed {lie:?}");
    }
}

#[test]
fn some_server_is_there_if_required() {
    let found: Vec<_> = Kind::ALL.into_iter().filter(|kind| kind.find().is_some()).collect();
    let required = env::var_os("FLOTA_REQUIRE_REDIS").is_some_and(|value| value == "1");
    assert!(!required || !found.is_empty(), "no server found: run sim/servers.sh FOLDER and set FLOTA_SERVERS=FOLDER");
}

fn check(kind: Kind) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let sequences = number("FLOTA_DIFF_SEQUENCES").unwrap_or(2_000);
    run(kind, &mut Model::new(kind), sequences);
}

fn run(kind: Kind, subject: &mut dyn Subject, sequences: u64) {
    let Some(executable) = kind.find() else {
        say!("SKIPPED: {} is not there; run sim/servers.sh FOLDER and set FLOTA_SERVERS=FOLDER", kind.name());
        return;
    };
    let server = Server::start(&executable, "real");
    let mut bench = Bench::new(&server, subject);
    let mut tally = Tally::default();
    let only = number("FLOTA_DIFF_SEED");
    let first = number("FLOTA_DIFF_FIRST").unwrap_or(0);
    let seeds = only.map_or(first..first + sequences, |seed| seed..seed + 1);
    let most = number("FLOTA_DIFF_MOST").unwrap_or(1);
    let mut found = 0;
    for seed in seeds {
        let sequence = generator::sequence(seed);
        let Err(difference) = bench.run(&sequence, &mut tally) else { continue };
        report(kind, seed, &mut bench, &sequence, &difference);
        found += 1;
        if found >= most {
            break;
        }
    }
    assert_eq!(found, 0, "the model and {} differ", kind.name());
    if only.is_none() {
        summarize(kind, &tally);
    }
}

fn report(kind: Kind, seed: u64, bench: &mut Bench<'_>, sequence: &generator::Sequence, found: &runner::Difference) {
    say!("== {}: a difference with FLOTA_DIFF_SEED={seed}, at step {}", kind.name(), found.step);
    match shrink::shrink(bench, sequence, found) {
        Some((short, difference)) => say!("{} commands are enough:\n{difference}\n", short.steps.len()),
        None => say!("it does not happen again:\n{found}\n"),
    }
}

fn summarize(kind: Kind, tally: &Tally) {
    say!(
        "== {}: {} sequences without a difference, {} commands, somebody blocked in {} sequences, {} cut short by a clock",
        kind.name(),
        tally.sequences,
        tally.commands,
        tally.with_blocked,
        tally.ticked,
    );
    assert!(tally.ticked * 100 <= tally.sequences, "{} of {} sequences cut short", tally.ticked, tally.sequences);
    println!("{}", names::table(tally));
    if tally.sequences < names::FEWEST {
        say!("too few sequences to say whether they tried everything");
        return;
    }
    assert!(tally.with_blocked * 10 >= tally.sequences, "blocked in only {} sequences", tally.with_blocked);
    let rare = names::too_rare(tally);
    assert!(rare.is_empty(), "run too seldom: {}", rare.join(", "));
}

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
