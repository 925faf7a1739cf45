//! `datagrams.tsv`: inputs and their right outcome, for the parser and for the fleet.
//!
//! Columns are input, outcome, note; tab-separated, without quoting. In an input `\t \n \r \0 \xNN` are bytes,
//! `{rep:c:n}` is the byte c n times, `(empty payload)` is zero bytes, and ` || ` separates datagrams that arrive one
//! after another, half a second apart. The outcome of one datagram is its JSON. That of a sequence is `members S1 -> S2
//! …`: who is in the fleet after each datagram, where A is 10.0.4.12:6379, B is 10.0.4.13:6379, @1 and @2 are the GUIDs
//! that begin with 2cc7 and 9999, `none` is an empty fleet, and `(alternative X)` is a second address known for that
//! member. The fleet filters by the name `imq-broker` and allows all networks.

use alloc::string::String;
use alloc::vec::Vec;

const TSV: &str = include_str!("../datagrams.tsv");

pub(crate) struct Case {
    /// Its place in the file, from 1, for the message of a failed test.
    pub(crate) line: usize,
    pub(crate) datagrams: Vec<Vec<u8>>,
    pub(crate) outcome: &'static str,
    pub(crate) note: &'static str,
}

impl Case {
    /// Whether the outcome is about the fleet and not about one datagram.
    pub(crate) fn is_about_members(&self) -> bool {
        self.outcome.starts_with("members ")
    }
}

/// Every row of the file.
pub(crate) fn all() -> Vec<Case> {
    let numbered = TSV.lines().enumerate().skip(1).map(|(index, row)| (index + 1, row));
    numbered
        .map(|(line, row)| {
            let columns: Vec<&'static str> = row.split('\t').collect();
            let [input, outcome, note] = columns[..] else { panic!("line {line} has {} columns", columns.len()) };
            Case { line, datagrams: input.split(" || ").map(bytes).collect(), outcome, note }
        })
        .collect()
}

/// The bytes that an input stands for.
pub(crate) fn bytes(input: &str) -> Vec<u8> {
    if input == "(empty payload)" {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut rest = input;
    while let Some(c) = rest.chars().next() {
        if let Some(escape) = rest.strip_prefix('\\') {
            rest = unescape(escape, &mut out);
        } else if let Some(repeat) = rest.strip_prefix("{rep:") {
            rest = unrepeat(repeat, &mut out);
        } else {
            let (literal, after) = rest.split_at(c.len_utf8());
            out.extend_from_slice(literal.as_bytes());
            rest = after;
        }
    }
    out
}

fn unescape<'a>(escape: &'a str, out: &mut Vec<u8>) -> &'a str {
    let (letter, after) = escape.split_at(1);
    let byte = match letter {
        "t" => b'\t',
        "n" => b'\n',
        "r" => b'\r',
        "0" => b'\0',
        "x" => {
            let (hex, after) = after.split_at(2);
            out.push(u8::from_str_radix(hex, 16).expect("two hex digits"));
            return after;
        }
        other => panic!("unknown escape \\{other}"),
    };
    out.push(byte);
    after
}

fn unrepeat<'a>(repeat: &'a str, out: &mut Vec<u8>) -> &'a str {
    let (what, after) = repeat.split_once('}').expect("a closing brace");
    let (byte, count) = what.split_once(':').expect("a byte and a count");
    out.extend_from_slice(byte.repeat(count.parse().expect("a count")).as_bytes());
    after
}

#[test]
fn inputs_stand_for_their_bytes() {
    assert_eq!(bytes(r"a\tb\n\r\0\xff\x20ü"), b"a\tb\n\r\0\xff \xc3\xbc");
    assert_eq!(bytes("x{rep:n:3}y"), b"xnnny");
    assert_eq!(bytes("{2cc7}"), b"{2cc7}");
    assert_eq!(bytes("(empty payload)"), b"");
}

#[test]
fn the_file_is_complete() {
    let cases = all();
    assert_eq!(cases.len(), 87);
    assert_eq!(cases.iter().filter(|case| case.is_about_members()).count(), 15);
    let repeated: Vec<String> = cases
        .iter()
        .filter(|case| case.is_about_members() != (case.datagrams.len() > 1) && case.note != "down for unknown broker")
        .map(|case| alloc::format!("line {}: {}", case.line, case.note))
        .collect();
    assert_eq!(repeated, Vec::<String>::new(), "sequences are about members, single datagrams are about parsing");
}
