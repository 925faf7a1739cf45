//! `flota decode` says of every known datagram what the parser says.

use crate::support::run;

const CASES: &str = include_str!("../../../core/src/announce/datagrams.tsv");

/// Input and outcome of the rows that are about one datagram.
fn rows() -> Vec<(String, &'static str)> {
    let rows = CASES.lines().skip(1).map(|row| row.split('\t').collect::<Vec<_>>());
    let parsed = rows.filter(|columns| !columns[1].starts_with("members "));
    parsed.map(|columns| (input(columns[0]), columns[1])).collect()
}

/// The file abbreviates what the command does not.
fn input(text: &str) -> String {
    if text == "(empty payload)" {
        return String::new();
    }
    let Some((before, rest)) = text.split_once("{rep:") else { return text.to_string() };
    let (what, after) = rest.split_once('}').unwrap();
    let (byte, count) = what.split_once(':').unwrap();
    format!("{before}{}{after}", byte.repeat(count.parse().unwrap()))
}

#[test]
fn every_known_datagram() {
    let rows = rows();
    assert_eq!(rows.len(), 72);
    let lines: String = rows.iter().map(|(input, _)| format!("{input}\n")).collect();
    let said = run(&["decode"], lines.as_bytes()).succeeded().text();
    for ((input, outcome), line) in rows.iter().zip(said.lines()) {
        assert_eq!(line, *outcome, "{input}");
    }
    assert_eq!(said.lines().count(), rows.len());
}

#[test]
fn the_same_in_hexadecimal() {
    let datagram = "imq-broker\t2cc7c345-3569-44bb-b57a-b72d729d7012\tdown\t10.0.4.12:6379";
    let hex: String = datagram.bytes().map(|byte| format!("{byte:02X}")).collect();
    let said = run(&["decode", "--hex"], format!("{hex}\n\n").as_bytes()).succeeded().text();
    let down = r#"{"status":"down","name":"imq-broker","guid":"2cc7c345-3569-44bb-b57a-b72d729d7012","address":"10.0.4.12:6379"}"#;
    assert_eq!(said, format!("{down}\n{{\"reject\":\"MissingField\"}}\n"));
}

#[test]
fn what_cannot_be_read_is_named_by_its_line() {
    let said = run(&["decode"], b"hello\n\\q\nhello\n");
    assert_eq!((said.code(), said.text().lines().count()), (1, 1), "{said:?}");
    assert!(said.err.contains("line 2 of standard input") && said.err.contains("next:"), "{said:?}");
    let said = run(&["decode", "--hex", "--json"], b"0g");
    assert!(said.err.starts_with(r#"{"error":{"code":"bad_input","message":"line 1"#), "{said:?}");
}
