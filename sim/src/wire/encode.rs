//! Replies as bytes, or only how many bytes they are.

use crate::broker::Value;

/// Appends a reply as a connection with that protocol, 2 or 3, receives it.
pub fn encode(value: &Value, resp: u8, into: &mut Vec<u8>) {
    write(value, resp >= 3, into);
}

/// How many bytes [`encode`] appends.
#[must_use]
pub fn encoded_len(value: &Value, resp: u8) -> usize {
    let mut length = Length(0);
    write(value, resp >= 3, &mut length);
    length.0
}

/// What takes bytes.
trait Sink {
    fn put(&mut self, bytes: &[u8]);
    fn decimal(&mut self, n: i64);
    /// The text of a status or an error: it ends with its line, so it has no line ends of its own.
    fn line(&mut self, text: &str);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn decimal(&mut self, n: i64) {
        // Room for the longest: a minus and 19 digits.
        let (mut text, mut at, mut rest) = ([0; 20], 20, n.unsigned_abs());
        loop {
            at -= 1;
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if n < 0 {
            at -= 1;
            text[at] = b'-';
        }
        self.extend_from_slice(&text[at..]);
    }

    fn line(&mut self, text: &str) {
        self.extend(text.bytes().map(|b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }));
    }
}

struct Length(usize);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }

    fn decimal(&mut self, n: i64) {
        self.0 += usize::from(n < 0) + decimal_len(n.unsigned_abs());
    }

    fn line(&mut self, text: &str) {
        self.0 += text.len();
    }
}

/// How many digits a number has.
pub(crate) fn decimal_len(n: u64) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn write(value: &Value, resp3: bool, out: &mut impl Sink) {
    match value {
        Value::Nil | Value::NilArray if resp3 => out.put(b"_\r\n"),
        Value::Nil => out.put(b"$-1\r\n"),
        Value::NilArray => out.put(b"*-1\r\n"),
        Value::Int(n) => {
            out.put(b":");
            out.decimal(*n);
            out.put(b"\r\n");
        }
        Value::Status(text) => {
            out.put(b"+");
            out.line(text);
            out.put(b"\r\n");
        }
        Value::Error(text) => {
            out.put(b"-");
            out.line(text);
            out.put(b"\r\n");
        }
        Value::Bulk(bytes) => bulk(bytes, out),
        Value::Double(n) if resp3 => {
            out.put(b",");
            out.put(n.as_bytes());
            out.put(b"\r\n");
        }
        Value::Double(n) => bulk(n.as_bytes(), out),
        Value::Verbatim(bytes) if resp3 => {
            header(b"=", bytes.len() + 4, out);
            out.put(b"txt:");
            out.put(bytes);
            out.put(b"\r\n");
        }
        Value::Verbatim(bytes) => bulk(bytes, out),
        Value::Array(values) => aggregate(b"*", values, resp3, out),
        Value::Set(values) => aggregate(if resp3 { b"~" } else { b"*" }, values, resp3, out),
        Value::Push(values) => aggregate(if resp3 { b">" } else { b"*" }, values, resp3, out),
        Value::Map(pairs) => {
            let (kind, count) = if resp3 { (b"%", pairs.len()) } else { (b"*", 2 * pairs.len()) };
            header(kind, count, out);
            for (key, value) in pairs {
                write(key, resp3, out);
                write(value, resp3, out);
            }
        }
    }
}

fn bulk(bytes: &[u8], out: &mut impl Sink) {
    header(b"$", bytes.len(), out);
    out.put(bytes);
    out.put(b"\r\n");
}

fn aggregate(kind: &[u8], values: &[Value], resp3: bool, out: &mut impl Sink) {
    header(kind, values.len(), out);
    values.iter().for_each(|value| write(value, resp3, out));
}

fn header(kind: &[u8], n: usize, out: &mut impl Sink) {
    out.put(kind);
    out.decimal(i64::try_from(n).unwrap_or(i64::MAX));
    out.put(b"\r\n");
}
