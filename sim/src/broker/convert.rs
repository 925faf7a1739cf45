//! Between the core and a broker without bytes on the way: its commands as words, the broker's replies as it reads them.

use std::borrow::Cow;

use bytes::Bytes;
use flota_core::command::{ArgSink, Command};
use flota_core::reply::{ErrorReply, Reply, ReplyBuilder, StreamId};

use super::Value;
use crate::wire;

/// What a client that speaks this protocol, 2 or 3, reads: the same as decoding what [`wire::encode`] writes.
#[must_use]
pub fn reply(value: &Value, resp: u8) -> Reply {
    match value {
        Value::Nil | Value::NilArray => Reply::Nil,
        Value::Int(n) => Reply::Int(*n),
        Value::Status(text) => Reply::status(&line(text)),
        Value::Error(text) => Reply::Error(ErrorReply::new(line(text).as_bytes())),
        Value::Bulk(bytes) | Value::Verbatim(bytes) => Reply::bulk(bytes),
        Value::Double(n) if resp < 3 => Reply::bulk(n.as_bytes()),
        Value::Double(_) | Value::Array(_) | Value::Map(_) | Value::Set(_) | Value::Push(_) => {
            let mut build = ReplyBuilder::new();
            part(value, resp >= 3, &mut build);
            build.finish()
        }
    }
}

fn part(value: &Value, resp3: bool, build: &mut ReplyBuilder) {
    match value {
        Value::Nil | Value::NilArray => build.nil(),
        Value::Int(n) => build.int(*n),
        Value::Status(text) => build.status(&line(text)),
        Value::Error(text) => build.error(&line(text)),
        Value::Bulk(bytes) | Value::Verbatim(bytes) => build.bulk(bytes),
        Value::Double(n) if resp3 => build.double(n),
        Value::Double(n) => build.bulk(n.as_bytes()),
        Value::Map(pairs) => {
            map(pairs, resp3, build);
            build
        }
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            let n = count(values.len());
            match value {
                Value::Set(_) if resp3 => build.set(n),
                Value::Push(_) if resp3 => build.push(n),
                _ => build.array(n),
            };
            values.iter().for_each(|value| part(value, resp3, build));
            build
        }
    };
}

fn map(pairs: &[(Value, Value)], resp3: bool, build: &mut ReplyBuilder) {
    if resp3 {
        build.map(count(pairs.len()));
    } else {
        build.array(count(2 * pairs.len()));
    }
    for (key, value) in pairs {
        part(key, resp3, build);
        part(value, resp3, build);
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A status or an error as it arrives: its line ends are spaces.
fn line(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) { Cow::Owned(text.replace(['\r', '\n'], " ")) } else { Cow::Borrowed(text) }
}

/// How many bytes a reply takes in this protocol, 2 or 3.
#[must_use]
pub fn encoded_len_value(value: &Value, resp: u8) -> usize {
    wire::encoded_len(value, resp)
}

/// A command's words, its name first. A body is shared, not copied.
#[must_use]
pub fn words(command: &Command) -> Vec<Bytes> {
    if let Command::Raw(words) = command {
        return words.to_vec();
    }
    let mut words = Words(Vec::new());
    command.args(&mut words);
    words.0
}

struct Words(Vec<Bytes>);

impl ArgSink for Words {
    fn count(&mut self, n: usize) {
        self.0.reserve_exact(n);
    }

    fn word(&mut self, word: &'static str) {
        self.0.push(Bytes::from_static(word.as_bytes()));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(Bytes::copy_from_slice(bytes));
    }

    fn body(&mut self, body: &Bytes) {
        self.0.push(body.clone());
    }

    fn int(&mut self, n: i64) {
        // Most are small: counts, flags, partitions.
        const SMALL: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        match usize::try_from(n).ok().and_then(|n| SMALL.get(n)) {
            Some(word) => self.word(word),
            None => self.0.push(n.to_string().into()),
        }
    }

    fn id(&mut self, id: StreamId) {
        self.0.push(id.to_string().into());
    }

    fn uuid(&mut self, uuid: &[u8; 16]) {
        self.bytes(&hyphenated(uuid));
    }
}

/// The 36 characters of a UUID.
fn hyphenated(uuid: &[u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let places = (0..36).filter(|at| !matches!(at, 8 | 13 | 18 | 23));
    let digits = uuid.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    for (at, digit) in places.zip(digits) {
        text[at] = DIGITS[usize::from(digit)];
    }
    text
}

/// How many bytes a command takes on the wire.
#[must_use]
pub fn encoded_len(command: &Command) -> usize {
    let mut length = Length(0);
    command.args(&mut length);
    length.0
}

struct Length(usize);

impl Length {
    fn header(&mut self, n: usize) {
        self.0 += 3 + wire::decimal_len(n as u64);
    }

    fn argument(&mut self, length: usize) {
        self.header(length);
        self.0 += length + 2;
    }
}

impl ArgSink for Length {
    fn count(&mut self, n: usize) {
        self.header(n);
    }

    fn word(&mut self, word: &'static str) {
        self.argument(word.len());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.argument(bytes.len());
    }

    fn int(&mut self, n: i64) {
        self.argument(usize::from(n < 0) + wire::decimal_len(n.unsigned_abs()));
    }

    fn id(&mut self, id: StreamId) {
        self.argument(wire::decimal_len(id.ms) + 1 + wire::decimal_len(id.seq));
    }

    fn uuid(&mut self, _: &[u8; 16]) {
        self.argument(36);
    }
}

#[cfg(test)]
mod tests;
