//! Commands as people type them.

use bytes::Bytes;

/// The words of a line without zero bytes; none if a quote is not closed, or closed within a word.
pub(super) fn split(mut rest: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if let [0x0B, more @ ..] = rest {
            rest = more;
            continue;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, more) = word(rest)?;
        words.push(word.into());
        rest = more;
    }
}

/// The word at the start, and what follows it.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Some((word, rest)),
            [b'"', more @ ..] => {
                rest = double_quoted(more, &mut word)?;
                return ends(rest).then_some((word, rest));
            }
            [b'\'', more @ ..] => {
                rest = single_quoted(more, &mut word)?;
                return ends(rest).then_some((word, rest));
            }
            [byte, more @ ..] => {
                word.push(*byte);
                rest = more;
            }
        }
    }
}

fn ends(rest: &[u8]) -> bool {
    rest.first().is_none_or(|b| b.is_ascii_whitespace() || *b == 0x0B)
}

/// Up to the closing quote, which it takes; what follows.
fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, more) = match rest {
            [] => return None,
            [b'"', more @ ..] => return Some(more),
            [b'\\', b'x', high, low, more @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), more)
            }
            [b'\\', escaped, more @ ..] => (unescaped(*escaped), more),
            [byte, more @ ..] => (*byte, more),
        };
        word.push(byte);
        rest = more;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, more) = match rest {
            [] => return None,
            [b'\'', more @ ..] => return Some(more),
            [b'\\', b'\'', more @ ..] => (b'\'', more),
            [byte, more @ ..] => (*byte, more),
        };
        word.push(byte);
        rest = more;
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.to_ascii_uppercase().wrapping_sub(b'A').wrapping_add(10),
    }
}
