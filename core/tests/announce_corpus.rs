//! Both announcement parsers over everything that is known to be interesting: the table of cases and the fuzz corpus.

#[path = "support/announce_check.rs"]
#[allow(unreachable_pub, reason = "the fuzz target includes the same file")]
mod announce_check;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use announce_check::check;
use announce_check::naive_announce::{naive_parse, to_json_line};

/// Input, outcome, note; the input with escapes.
const ROWS: &str = include_str!("../src/announce/datagrams.tsv");

const REASONS: [&str; 9] =
    ["TooLong", "NotUtf8", "MissingField", "EmptyName", "BadGuid", "BadStatus", "BadAddress", "BadPort", "BadInterval"];

#[test]
fn the_naive_parser_gives_the_outcome_of_each_row() {
    let rows = ROWS.lines().skip(1).map(|row| row.split('\t').collect::<Vec<_>>());
    let parse_rows: Vec<_> = rows.filter(|row| row[1].starts_with('{')).collect();
    assert!(parse_rows.len() >= 72, "only {} rows", parse_rows.len());
    for row in parse_rows {
        assert_eq!(to_json_line(&naive_parse(&unescaped(row[0]))), row[1], "{}", row[2]);
    }
}

#[test]
fn both_parsers_agree_on_the_corpus_and_it_reaches_every_outcome() {
    let lines = corpus().iter().map(|datagram| check(datagram)).collect::<BTreeSet<String>>();
    let reached = |start: String| lines.iter().any(|line| line.starts_with(&start));
    for reason in REASONS {
        assert!(reached(format!("{{\"reject\":\"{reason}\"}}")), "no seed is rejected as {reason}");
    }
    for status in ["up", "down"] {
        assert!(reached(format!("{{\"status\":\"{status}\"")), "no seed is accepted as {status}");
    }
    let known = |line: &String| line.starts_with("{\"status\"") || REASONS.iter().any(|reason| line.contains(reason));
    assert!(lines.iter().all(known), "the corpus reaches a reason that is not listed here");
}

/// Cutting each seed anywhere, and changing any byte of it, reaches the neighbourhood of each boundary.
#[test]
fn both_parsers_agree_near_the_corpus() {
    for datagram in corpus().iter().filter(|datagram| datagram.len() < 200) {
        for at in 0..datagram.len() {
            check(&datagram[..at]);
            for byte in *b"\t\0:.-0Z\xff" {
                let mut changed = datagram.clone();
                changed[at] = byte;
                check(&changed);
            }
        }
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/announce");
    let entries = fs::read_dir(&directory).unwrap_or_else(|e| panic!("read the seeds in {}: {e}", directory.display()));
    entries.map(|entry| fs::read(entry.expect("list the seeds").path()).expect("read a seed")).collect()
}

/// `\t \n \r \0 \xNN` are bytes, `{rep:c:n}` is byte c n times, `(empty payload)` is zero bytes.
fn unescaped(text: &str) -> Vec<u8> {
    if text == "(empty payload)" {
        return Vec::new();
    }
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some((byte, count, after)) = repetition(rest) {
            bytes.extend(std::iter::repeat_n(byte, count));
            rest = after;
        } else if c == '\\' {
            let (byte, length) = match rest.as_bytes()[1] {
                b't' => (b'\t', 2),
                b'n' => (b'\n', 2),
                b'r' => (b'\r', 2),
                b'0' => (0, 2),
                b'x' => (u8::from_str_radix(&rest[2..4], 16).expect("two hexadecimal digits"), 4),
                other => panic!("unknown escape \\{} in {text}", char::from(other)),
            };
            bytes.push(byte);
            rest = &rest[length..];
        } else {
            bytes.extend(c.to_string().bytes());
            rest = &rest[c.len_utf8()..];
        }
    }
    bytes
}

/// The byte and the count of a `{rep:c:n}` that `text` begins with, and what follows it.
fn repetition(text: &str) -> Option<(u8, usize, &str)> {
    let (inside, after) = text.strip_prefix("{rep:")?.split_once('}')?;
    let (byte, count) = inside.split_once(':')?;
    Some((byte.as_bytes()[0], count.parse().ok()?, after))
}
