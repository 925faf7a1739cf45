//! Streams.

mod add;
mod claim;
mod group;
mod info;
mod pending;
mod range;
mod read;

use std::sync::Arc;

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::call::{Call, Stop};
use super::super::db::{Change, Db};
use super::super::stream::{Group, Pending, Stream, after, before};
use super::super::{ServerTime, Value};
use super::Command;
use super::flag::{DENY_OOM, WRITE};

pub(super) const TABLE: &[Command] = &[
    Command::data("XADD", -5, WRITE | DENY_OOM, add::add),
    Command::data("XTRIM", -4, WRITE, add::trim),
    Command::data("XDEL", -3, WRITE, add::delete),
    Command::data("XSETID", -3, WRITE | DENY_OOM, add::set_id),
    Command::data("XLEN", 2, 0, range::len),
    Command::data("XRANGE", -4, 0, |call| range::range(call, false)),
    Command::data("XREVRANGE", -4, 0, |call| range::range(call, true)),
    Command::data("XREAD", -4, 0, |call| read::read(call, false)),
    Command::data("XREADGROUP", -7, WRITE, |call| read::read(call, true)),
    Command::data("XACK", -4, WRITE, pending::ack),
    Command::data("XPENDING", -3, 0, pending::pending),
    Command::data("XCLAIM", -6, WRITE, claim::claim),
    Command::data("XAUTOCLAIM", -6, WRITE, claim::auto_claim),
    Command::container("XGROUP"),
    Command::data("XGROUP|CREATE", -5, WRITE | DENY_OOM, group::create),
    Command::data("XGROUP|SETID", -5, WRITE, group::set_id),
    Command::data("XGROUP|DESTROY", 4, WRITE, group::destroy),
    Command::data("XGROUP|CREATECONSUMER", 5, WRITE | DENY_OOM, group::create_consumer),
    Command::data("XGROUP|DELCONSUMER", 5, WRITE, group::delete_consumer),
    Command::data("XGROUP|HELP", 2, 0, group::help),
    Command::container("XINFO"),
    Command::data("XINFO|STREAM", -3, 0, info::stream),
    Command::data("XINFO|GROUPS", 3, 0, info::groups),
    Command::data("XINFO|CONSUMERS", 4, 0, info::consumers),
    Command::data("XINFO|HELP", 2, 0, info::help),
];

const INVALID_ID: &str = "ERR Invalid stream ID specified as stream command argument";

/// Changes to report once the stream is no longer borrowed; nothing is kept when nobody watches.
struct Journal {
    watched: bool,
    changes: Vec<Change>,
}

impl Journal {
    fn new(db: &Db) -> Self {
        Self { watched: db.changes.is_some(), changes: Vec::new() }
    }

    fn note(&mut self, change: impl FnOnce() -> Change) {
        if self.watched {
            self.changes.push(change());
        }
    }

    fn report(self, db: &mut Db) {
        for change in self.changes {
            db.record(|| change);
        }
    }
}

/// What somebody who delivers or claims entries needs to know.
struct Recipient<'a> {
    key: &'a Bytes,
    group: &'a Bytes,
    consumer: &'a Bytes,
    now_ms: i64,
}

impl Recipient<'_> {
    /// Makes an entry pending, and notes it.
    fn take(&self, group: &mut Group, id: StreamId, delivered_ms: i64, deliveries: u64, journal: &mut Journal) {
        let pending = Pending { consumer: self.consumer.clone(), delivered_ms, deliveries };
        let before = group.assign(id, pending);
        journal.note(|| Change::Pending {
            key: self.key.clone(),
            group: self.group.clone(),
            id,
            consumer: self.consumer.clone(),
            idle_ms: before.as_ref().map_or(0, |before| self.now_ms.saturating_sub(before.delivered_ms)),
            from: before.map(|before| before.consumer),
            deliveries,
        });
    }
}

/// Reads an id that is written out, with or without its second number.
fn strict_id(text: &[u8], missing_seq: u64) -> Result<StreamId, Stop> {
    if text.len() > 127 {
        return Err(INVALID_ID.into());
    }
    let parts = match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => {
            let (ms, seq) = text.split_at(dash);
            number(ms).zip(seq.get(1..).and_then(number))
        }
        None => number(text).zip(Some(missing_seq)),
    };
    parts.map(|(ms, seq)| StreamId { ms, seq }).ok_or_else(|| INVALID_ID.into())
}

/// Reads an id, or one of the words for the lowest and the highest.
fn any_id(text: &[u8], missing_seq: u64) -> Result<StreamId, Stop> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => strict_id(text, missing_seq),
    }
}

/// Servers accept what `strtoull` does: spaces and a plus sign before, leading zeros.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The start of an interval; `(` excludes it.
fn interval_start(text: &[u8]) -> Result<StreamId, Stop> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            after(strict_id(id, 0)?).ok_or_else(|| "ERR invalid start ID for the interval".into())
        }
        text => any_id(text, 0),
    }
}

/// The end of an interval; `(` excludes it.
fn interval_end(text: &[u8]) -> Result<StreamId, Stop> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            before(strict_id(id, u64::MAX)?).ok_or_else(|| "ERR invalid end ID for the interval".into())
        }
        text => any_id(text, u64::MAX),
    }
}

/// The stream and the group of a command that needs both.
fn group_of<'a>(db: &'a mut Db, at: ServerTime, key: &Bytes, name: &Bytes) -> Result<&'a mut Stream, Stop> {
    match db.stream(key, at)? {
        Some(stream) if stream.groups.contains_key(name) => Ok(stream),
        _ => Err(format!("NOGROUP No such key '{}' or consumer group '{}'", shown(key), shown(name)).into()),
    }
}

fn entry(id: StreamId, fields: &Arc<[Bytes]>) -> Value {
    Value::Array(vec![id_value(id), Value::Array(fields.iter().cloned().map(Value::Bulk).collect())])
}

fn id_value(id: StreamId) -> Value {
    Value::bulk(id.to_string())
}

fn word_value(word: &'static str) -> Value {
    Value::Bulk(Bytes::from_static(word.as_bytes()))
}

fn count_value(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn map(pairs: Vec<(&'static str, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(name, value)| (word_value(name), value)).collect())
}

fn lines(text: &'static [&'static str]) -> Value {
    Value::Array(text.iter().map(|line| Value::status(line)).collect())
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ")
}

/// Options that make no sense for a subcommand.
fn bad_subcommand(call: &Call<'_>) -> Stop {
    let word = |place: usize| call.args.get(place).map(|word| shown(word)).unwrap_or_default();
    let unknown = if call.profile.at_least(7, 0) { "unknown" } else { "Unknown" };
    format!(
        "ERR {unknown} subcommand or wrong number of arguments for '{}'. Try {} HELP.",
        word(1),
        word(0).to_ascii_uppercase()
    )
    .into()
}

/// The words of a command that is put into the log.
fn words(parts: &[&[u8]]) -> Vec<Bytes> {
    parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
}
