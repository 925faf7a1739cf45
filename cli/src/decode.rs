//! `flota decode`: what announcement datagrams mean.

use std::io::{self, BufRead};

use flota_core::announce;

use crate::args::DecodeArgs;
use crate::error::{End, Failure, Outcome};
use crate::output;

pub(crate) fn run(args: &DecodeArgs) -> Outcome {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line).map_err(|e| Failure::io("cannot read standard input", &e))?;
        if read == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        let datagram =
            if args.hex { from_hex(&line) } else { unescaped(&line) }.map_err(|why| bad_line(number, &why))?;
        output::line(&meaning(&datagram))?;
    }
    Ok(End::Done)
}

fn bad_line(number: u64, why: &str) -> Failure {
    Failure::new("bad_input", format!("line {number} of standard input is no datagram: {why}"))
        .hint("escapes are \\t \\n \\r \\0 \\\\ and \\xNN; with --hex a line is an even number of hexadecimal digits")
}

fn meaning(datagram: &[u8]) -> String {
    let mut json = String::new();
    // Formatting into a string does not fail.
    let _ = match announce::parse(datagram) {
        Ok(announcement) => announcement.write_json(&mut json),
        Err(reject) => reject.write_json(&mut json),
    };
    json
}

fn unescaped(line: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'0') => b'\0',
            Some(b'\\') => b'\\',
            Some(b'x') => match (bytes.next().and_then(digit), bytes.next().and_then(digit)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err("\\x needs two hexadecimal digits".to_string()),
            },
            Some(other) => return Err(format!("unknown escape \\{}", char::from(other).escape_default())),
            None => return Err("a backslash at its end".to_string()),
        });
    }
    Ok(out)
}

fn from_hex(line: &[u8]) -> Result<Vec<u8>, String> {
    let digits = line.trim_ascii();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits", digits.len()));
    }
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect::<Option<_>>().ok_or_else(|| "not hexadecimal".to_string())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_bytes_and_nothing_else_is() {
        assert_eq!(unescaped(br"a\t\n\r\0\\\xfF").unwrap(), b"a\t\n\r\0\\\xff");
        for bad in [&br"\q"[..], br"\x1", br"\xg0", br"a\"] {
            assert!(unescaped(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn hex_is_pairs_of_digits() {
        assert_eq!(from_hex(b"00fF20\r").unwrap(), [0, 255, 32]);
        assert_eq!(from_hex(b"").unwrap(), b"");
        for bad in [&b"0"[..], b"0g", b"+1"] {
            assert!(from_hex(bad).is_err(), "{bad:?}");
        }
    }
}
