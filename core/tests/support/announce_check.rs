//! What holds for every datagram, whoever sent it. The corpus test and the fuzz target ask the same question.

#[path = "naive_announce.rs"]
pub mod naive_announce;

use flota_core::announce::{Announcement, parse};

use naive_announce::{naive_parse, to_json_line};

/// Bytes of an announcement at most, because listeners of other makes read no more.
const LONGEST: usize = 255;

/// Panics unless both parsers say the same of `datagram`, and an accepted one survives being written and read again.
/// Returns the line they agree on.
pub fn check(datagram: &[u8]) -> String {
    let line = first_opinion(datagram);
    let second = to_json_line(&naive_parse(datagram));
    assert_eq!(
        line,
        second,
        "the parsers disagree (left: first, right: naive) on {:?}",
        datagram.escape_ascii().to_string()
    );
    if let Ok(announcement) = parse(datagram) {
        let mut written = Vec::new();
        match announcement.encode(&mut written) {
            Ok(()) => {
                assert!(written.len() <= LONGEST, "{} bytes written", written.len());
                let shown = written.escape_ascii();
                assert_eq!(parse(&written).as_ref(), Ok(&announcement), "{line} was written as {shown}");
            }
            // The longest that can follow the address: a tab, the seconds, a tab, a marker.
            Err(_) => {
                assert!(without_rest(&announcement) + 1 + 21 + 1 + 5 > LONGEST, "not written though short: {line}")
            }
        }
    }
    line
}

fn first_opinion(datagram: &[u8]) -> String {
    match parse(datagram) {
        Ok(announcement) => {
            let mut line = String::new();
            announcement.write_json(&mut line).expect("a string takes everything");
            line
        }
        Err(reject) => format!("{{\"reject\":\"{reject}\"}}"),
    }
}

/// Bytes up to and including the address.
fn without_rest(announcement: &Announcement<'_>) -> usize {
    format!("{}\t{}\tdown\t{}", announcement.name, announcement.guid, announcement.address).len()
}
