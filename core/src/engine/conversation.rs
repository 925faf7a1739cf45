//! Conversations with the engine, as text files that a reader without Rust can follow.
//!
//! `>` is said to the engine, `<` is what it must answer, in order and nothing else; `#` is a remark. Every kind of name
//! is numbered in order of appearance: brokers `b0`, connections `c0`, operations `o0`, subscriptions `s0`, deliveries
//! `d0`, message ids `m0`. A `*` in an expected line stands for anything. `< wait 2s` checks the deadline that the engine
//! names last; it may be left out. Times count from the start of the conversation.
//!
//! | said | meaning |
//! | --- | --- |
//! | `config brokers=A,B seed=2 block=2s …` | before everything else; without it the fleet is discovered |
//! | `at 1.5s`, `clock 1.5s` | it is that late: with a call of `handle_timeout`, without one |
//! | `wait` | it is as late as the engine wanted to wait for |
//! | `datagram FROM up A ADDRESS SECONDS` | the announcer `A` (a GUID of As) says so |
//! | `connected c0`, `sent c0 5`, `closed c0 refused` | what the socket reports |
//! | `reply c0 +PONG` | an answer, see [`literal`] |
//! | `handshake c0 run=R store=S client=7` | connected, and the usual answers up to the last |
//! | `send orders "body" key=K once wait=5s` | submit; `once` is at most once |
//! | `call b0 DBSIZE`, `cancel o0` | |
//! | `subscribe orders billing in_flight=1 partitions=2 …` | |
//! | `started d0`, `settle d0 done tell`, `settle d0 retry after=1s`, `reject why`, `release` | |
//! | `unsubscribe s0 5s`, `shutdown 5s` | with this grace |
//!
//! After every input the whole contract is checked (see [`super::watched`]), and at the end of each file the engine is
//! shut down and must have answered everything. `FLOTA_BLESS=1` rewrites expected lines that differ, for review.

mod literal;
mod runner;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::fs;
use std::path::{Path, PathBuf};

use runner::Runner;

/// Makes a test of each file, and one that none is forgotten.
macro_rules! conversations {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            hold(stringify!($name));
        })*

        #[test]
        fn every_file_is_held() {
            let named = [$(stringify!($name)),*];
            for entry in fs::read_dir(directory()).expect("the conversations") {
                let path = entry.expect("a file").path();
                let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
                assert!(named.contains(&stem), "{} is not listed in conversations!", path.display());
            }
        }
    };
}

conversations! {
    backlog_full
    backoff
    calls
    claims
    cold_start
    data_moved
    dead_letters
    deadlines
    dealt_anew
    departed_and_closed
    departed_and_empty
    down_up
    drain
    drain_retry
    ends_lower
    fate
    fate_of_given_up
    grown
    grown_for_consumers
    handshake
    handshake_old_server
    handshake_refused
    kill_refused
    lost_again
    lost_claim
    lost_read
    lost_read_and_commands
    restarted_reader
    memory_full
    memory_full_and_back
    memory_full_while_refusing
    memory_probe_lost
    misshapen
    new_guid
    new_guid_while_refusing
    no_patience
    no_time_to_wait
    nogroup
    nogroup_after_flush
    noscript
    old_guid
    other_data
    other_type
    other_type_everywhere
    overdue
    partitions
    partitions_differ
    pipeline_full
    poison
    read_deadline
    readonly
    reap
    recovery_refused
    refused_after_doubt
    refused_reads
    refusing
    registry
    renewal
    retry
    retry_elsewhere
    retry_last
    retry_memory_full
    retry_orphan
    retry_stream_gone
    round_robin
    scarce
    scheduled
    scheduled_elsewhere
    shutdown
    shutdown_unanswered
    shutdown_with_work
    silent_connections
    stop_after_grace
    stop_of_a_stream
    stop_unanswered
    stop_unconnected
    stop_within_grace
    subscribe
    suspects
    suspects_lost
    suspects_of_its_own
    suspects_of_two_brokers
    suspects_of_two_pages
    trim
    unblocked
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine/conversations")
}

/// A line of a file that says something, and what is expected after it.
struct Turn {
    /// Remarks and empty lines before it.
    before: Vec<String>,
    said: String,
    expected: Vec<String>,
}

fn hold(name: &str) {
    let path = directory().join(format!("{name}.txt"));
    let text = fs::read_to_string(&path).expect("a conversation");
    let (mut turns, tail) = parse(&text);
    let bless = std::env::var_os("FLOTA_BLESS").is_some();
    let mut runner = Runner::default();
    let mut before = String::new();
    for turn in &mut turns {
        before += &format!("> {}\n", turn.said);
        // Kept for a panic inside: the position is worth more than the backtrace.
        std::println!("> {}", turn.said);
        let actual = runner.say(&turn.said);
        for line in &actual {
            std::println!("< {line}");
        }
        let waits = format!("wait {}", runner.wait());
        match difference(&turn.expected, &actual, &waits) {
            None => {}
            Some(_) if bless => turn.expected = blessed(&turn.expected, &actual, &waits),
            Some((expected, found)) => panic!(
                "\n{}\n{before}\n  expected: {expected}\n  actual:   {found}\n\nthe whole answer:\n{}\n(waits until {})\n",
                path.display(),
                actual.iter().fold(String::new(), |all, line| all + "< " + line + "\n"),
                runner.wait(),
            ),
        }
        for line in &turn.expected {
            before += &format!("< {line}\n");
        }
    }
    if bless {
        let mut text = String::new();
        for turn in turns {
            turn.before.iter().for_each(|line| text += &format!("{line}\n"));
            text += &format!("> {}\n", turn.said);
            turn.expected.iter().for_each(|line| text += &format!("< {line}\n"));
        }
        tail.iter().for_each(|line| text += &format!("{line}\n"));
        fs::write(path, text).expect("a writable conversation");
    }
    runner.finish();
}

fn parse(text: &str) -> (Vec<Turn>, Vec<String>) {
    let mut turns: Vec<Turn> = Vec::new();
    let mut before = Vec::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("> ") {
            turns.push(Turn { before: core::mem::take(&mut before), said: said.trim().into(), expected: Vec::new() });
        } else if let Some(expected) = line.strip_prefix("< ") {
            assert!(before.is_empty(), "a remark between an input and its answer: {line}");
            turns.last_mut().expect("an input before the first answer").expected.push(expected.trim().into());
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "neither said, answered nor a remark: {line}");
            before.push(line.to_string());
        }
    }
    (turns, before)
}

/// The first expected line that differs, with what is there instead.
fn difference(expected: &[String], actual: &[String], waits: &str) -> Option<(String, String)> {
    let mut actual = actual.iter();
    for line in expected {
        let found = if line.starts_with("wait ") { Some(waits) } else { actual.next().map(String::as_str) };
        let found = found.unwrap_or("nothing more");
        if !matches(line, found) {
            return Some((line.clone(), found.into()));
        }
    }
    actual.next().map(|more| ("nothing more".into(), more.clone()))
}

fn blessed(expected: &[String], actual: &[String], waits: &str) -> Vec<String> {
    let old = |line: &String| expected.iter().find(|old| matches(old, line)).unwrap_or(line).clone();
    let mut lines: Vec<String> = actual.iter().map(old).collect();
    if expected.iter().any(|line| line.starts_with("wait ")) {
        lines.push(old(&waits.to_string()));
    }
    lines
}

/// Whether a line is the expected one, where `*` stands for anything.
fn matches(expected: &str, found: &str) -> bool {
    match expected.split_once('*') {
        None => expected == found,
        Some((start, rest)) => found.strip_prefix(start).is_some_and(|found| {
            (0..=found.len()).filter(|at| found.is_char_boundary(*at)).any(|at| matches(rest, &found[at..]))
        }),
    }
}

#[test]
fn stars_stand_for_anything() {
    assert!(matches("a * c *", "a b c d"));
    assert!(matches("*", ""));
    assert!(!matches("a * c", "a b d"));
    assert!(!matches("a", "ab"));
}

#[test]
fn a_mismatch_is_found_wherever_it_is() {
    let lines = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    let waits = "wait 1s";
    assert_eq!(difference(&lines("a b"), &lines("a b"), waits), None);
    assert_eq!(difference(&lines("a c"), &lines("a b"), waits), Some(("c".into(), "b".into())));
    assert_eq!(difference(&lines("a b"), &lines("a"), waits), Some(("b".into(), "nothing more".into())));
    assert_eq!(difference(&lines("a"), &lines("a b"), waits), Some(("nothing more".into(), "b".into())));
    assert_eq!(difference(&["wait 2s".into()], &[], waits), Some(("wait 2s".into(), "wait 1s".into())));
}
