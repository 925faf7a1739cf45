//! Lists, and waiting for them.

use std::collections::VecDeque;

use bytes::Bytes;

use super::super::call::{Block, Call, NOT_INT, Reaction, SYNTAX, Stop, parse_float, parse_int};
use super::super::db::WRONG_TYPE;
use super::super::{Item, Object, Value};
use super::flag::{DENY_OOM, NO_SCRIPT, WRITE};
use super::{Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::data("LPUSH", -3, WRITE | DENY_OOM, |call| push(call, End::Left, false)),
    Command::data("RPUSH", -3, WRITE | DENY_OOM, |call| push(call, End::Right, false)),
    Command::data("LPUSHX", -3, WRITE | DENY_OOM, |call| push(call, End::Left, true)),
    Command::data("RPUSHX", -3, WRITE | DENY_OOM, |call| push(call, End::Right, true)),
    Command::data("LPOP", -2, WRITE, |call| pop(call, End::Left, "lpop")),
    Command::data("RPOP", -2, WRITE, |call| pop(call, End::Right, "rpop")),
    Command::data("LLEN", 2, 0, length),
    Command::data("LRANGE", 4, 0, range),
    Command::data("LTRIM", 4, WRITE, trim),
    Command::data("LREM", 4, WRITE, remove),
    Command::data("LINDEX", 3, 0, index),
    Command::data("LMOVE", 5, WRITE | DENY_OOM, lmove),
    Command::data("RPOPLPUSH", 3, WRITE | DENY_OOM, |call| move_between(call, End::Right, End::Left)),
    Command::data("BLPOP", -3, WRITE | NO_SCRIPT, |call| blocking_pop(call, End::Left)),
    Command::data("BRPOP", -3, WRITE | NO_SCRIPT, |call| blocking_pop(call, End::Right)),
    Command::data("BLMOVE", 6, WRITE | DENY_OOM | NO_SCRIPT, blmove),
    Command::data("BRPOPLPUSH", 4, WRITE | DENY_OOM | NO_SCRIPT, brpoplpush),
];

#[derive(Clone, Copy, PartialEq)]
enum End {
    Left,
    Right,
}

impl End {
    fn parse(word: &[u8]) -> Result<Self, Stop> {
        match word {
            _ if is(word, "LEFT") => Ok(Self::Left),
            _ if is(word, "RIGHT") => Ok(Self::Right),
            _ => Err(SYNTAX.into()),
        }
    }

    fn push(self, list: &mut VecDeque<Bytes>, value: Bytes) {
        match self {
            Self::Left => list.push_front(value),
            Self::Right => list.push_back(value),
        }
    }

    fn pop(self, list: &mut VecDeque<Bytes>) -> Option<Bytes> {
        match self {
            Self::Left => list.pop_front(),
            Self::Right => list.pop_back(),
        }
    }
}

fn push(call: &mut Call<'_>, end: End, only_present: bool) -> Reaction {
    let key = call.word(1)?;
    if only_present && call.db.list(key, call.at)?.is_none() {
        return Ok(Value::Int(0));
    }
    let list = call.db.list_or_new(key, call.at)?;
    for value in call.args.iter().skip(2) {
        end.push(list, value.clone());
    }
    let length = count(list.len());
    call.db.changed(key);
    Ok(length)
}

fn pop(call: &mut Call<'_>, end: End, name: &str) -> Reaction {
    if call.args.len() > 3 {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let wanted = match call.args.get(2) {
        None => None,
        Some(word) => {
            let wanted = parse_int(word).and_then(|wanted| usize::try_from(wanted).ok());
            Some(wanted.ok_or("ERR value is out of range, must be positive")?)
        }
    };
    let (key, modern) = (call.word(1)?, call.profile.at_least(7, 0));
    if wanted == Some(0) && !modern {
        // Not even the key is looked at.
        return Ok(Value::NilArray);
    }
    let Some(list) = call.db.list(key, call.at)? else {
        return Ok(if wanted.is_some() && modern { Value::NilArray } else { Value::Nil });
    };
    let reply = match wanted {
        None => end.pop(list).map_or(Value::Nil, Value::Bulk),
        Some(0) => return Ok(Value::Array(Vec::new())),
        Some(wanted) => {
            Value::Array((0..wanted.min(list.len())).filter_map(|_| end.pop(list)).map(Value::Bulk).collect())
        }
    };
    call.db.remove_if_empty(key);
    call.db.changed(key);
    Ok(reply)
}

fn length(call: &mut Call<'_>) -> Reaction {
    Ok(count(call.db.list(call.word(1)?, call.at)?.map_or(0, |list| list.len())))
}

fn range(call: &mut Call<'_>) -> Reaction {
    let (start, stop) = (call.int(2)?, call.int(3)?);
    let Some(list) = call.db.list(call.word(1)?, call.at)? else { return Ok(Value::Array(Vec::new())) };
    let (from, length) = span(start, stop, list.len());
    Ok(Value::Array(list.iter().skip(from).take(length).cloned().map(Value::Bulk).collect()))
}

fn trim(call: &mut Call<'_>) -> Reaction {
    let (key, start, stop) = (call.word(1)?, call.int(2)?, call.int(3)?);
    let Some(list) = call.db.list(key, call.at)? else { return Ok(Value::OK) };
    let (from, length) = span(start, stop, list.len());
    list.drain(..from);
    list.truncate(length);
    call.db.remove_if_empty(key);
    call.db.changed(key);
    Ok(Value::OK)
}

/// First place and number of places that two indices mean; negative ones count from the end.
pub(super) fn span(start: i64, stop: i64, length: usize) -> (usize, usize) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
    let (from, to) = (place(start).max(0), place(stop).min(length - 1));
    if from > to {
        return (0, 0);
    }
    (usize::try_from(from).unwrap_or(0), usize::try_from(to - from + 1).unwrap_or(0))
}

fn remove(call: &mut Call<'_>) -> Reaction {
    let (key, limit, value) = (call.word(1)?, call.int(2)?, call.word(3)?);
    if limit == i64::MIN && call.profile.at_least(7, 2) {
        let most = i64::MAX;
        return Err(format!("ERR value is out of range, value must between -{most} and {most}").into());
    }
    let Some(list) = call.db.list(key, call.at)? else { return Ok(Value::Int(0)) };
    let most = if limit == 0 { usize::MAX } else { usize::try_from(limit.unsigned_abs()).unwrap_or(usize::MAX) };
    let mut places: Vec<usize> =
        list.iter().enumerate().filter(|(_, other)| *other == value).map(|(place, _)| place).collect();
    if limit < 0 {
        places.reverse();
    }
    places.truncate(most);
    places.sort_unstable();
    for place in places.iter().rev() {
        list.remove(*place);
    }
    if !places.is_empty() {
        call.db.remove_if_empty(key);
        call.db.changed(key);
    }
    Ok(count(places.len()))
}

fn index(call: &mut Call<'_>) -> Reaction {
    let word = call.word(2)?;
    let Some(list) = call.db.list(call.word(1)?, call.at)? else { return Ok(Value::Nil) };
    let index = parse_int(word).ok_or(NOT_INT)?;
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let place = usize::try_from(if index < 0 { index.saturating_add(length) } else { index });
    Ok(place.ok().and_then(|place| list.get(place)).map_or(Value::Nil, |value| Value::Bulk(value.clone())))
}

fn lmove(call: &mut Call<'_>) -> Reaction {
    let (from, to) = (End::parse(call.word(3)?)?, End::parse(call.word(4)?)?);
    move_between(call, from, to)
}

fn move_between(call: &mut Call<'_>, from: End, to: End) -> Reaction {
    let (source, target) = (call.word(1)?, call.word(2)?);
    if call.db.list(source, call.at)?.is_none() {
        return Ok(Value::Nil);
    }
    if source != target {
        call.db.list(target, call.at)?;
    }
    let Some(value) = call.db.list(source, call.at)?.and_then(|list| from.pop(list)) else { return Ok(Value::Nil) };
    // To the same list: it must not go in between, or its expiry would be lost.
    to.push(call.db.list_or_new(target, call.at)?, value.clone());
    call.db.remove_if_empty(source);
    call.db.changed(source);
    call.db.changed(target);
    Ok(Value::Bulk(value))
}

fn blocking_pop(call: &mut Call<'_>, end: End) -> Reaction {
    let args = call.args;
    let keys = args.get(1..args.len().saturating_sub(1)).unwrap_or_default();
    let timeout_ms = timeout_ms(call.word(args.len() - 1)?)?;
    for key in candidates(call, keys) {
        let Some(list) = call.db.list(key, call.at)? else { continue };
        let Some(value) = end.pop(list) else { continue };
        call.db.remove_if_empty(key);
        call.db.changed(key);
        let name = if end == End::Left { "LPOP" } else { "RPOP" };
        call.log_as = Some(vec![Bytes::from_static(name.as_bytes()), key.clone()]);
        return Ok(Value::Array(vec![Value::Bulk(key.clone()), Value::Bulk(value)]));
    }
    Err(wait(call, keys.to_vec(), timeout_ms))
}

/// The keys to look at: when one became ready, before 7.2 it alone, and nothing if it is no list.
fn candidates<'a>(call: &Call<'a>, keys: &'a [Bytes]) -> &'a [Bytes] {
    let Some(ready) = call.ready else { return keys };
    let is_list = matches!(call.db.peek(ready, call.at), Some(Item { object: Object::List(_), .. }));
    match is_list {
        false => &[],
        true if call.profile.at_least(7, 2) => keys,
        true => std::slice::from_ref(ready),
    }
}

fn blmove(call: &mut Call<'_>) -> Reaction {
    let (from, to) = (End::parse(call.word(3)?)?, End::parse(call.word(4)?)?);
    let timeout = call.word(5)?;
    let mut plain = vec![Bytes::from_static(b"LMOVE")];
    plain.extend(call.args.get(1..5).unwrap_or_default().iter().cloned());
    blocking_move(call, from, to, timeout, plain)
}

fn brpoplpush(call: &mut Call<'_>) -> Reaction {
    let timeout = call.word(3)?;
    let mut plain = vec![Bytes::from_static(b"RPOPLPUSH")];
    plain.extend(call.args.get(1..3).unwrap_or_default().iter().cloned());
    blocking_move(call, End::Right, End::Left, timeout, plain)
}

fn blocking_move(call: &mut Call<'_>, from: End, to: End, timeout: &[u8], plain: Vec<Bytes>) -> Reaction {
    let timeout_ms = timeout_ms(timeout)?;
    let source = call.word(1)?;
    let present = match call.db.peek(source, call.at) {
        None => false,
        Some(Item { object: Object::List(_), .. }) => true,
        Some(_) if call.ready.is_some() => false,
        Some(_) => return Err(WRONG_TYPE.into()),
    };
    if present {
        call.log_as = Some(plain);
        return move_between(call, from, to);
    }
    if !call.may_block {
        return Ok(Value::Nil);
    }
    Err(wait(call, vec![source.clone()], timeout_ms))
}

fn wait(call: &Call<'_>, keys: Vec<Bytes>, timeout_ms: u64) -> Stop {
    Stop::Block(Block { keys, timeout_ms, args: call.args.to_vec(), otherwise: Value::NilArray })
}

/// Seconds, with a fraction, as the last word of a command that waits.
fn timeout_ms(word: &[u8]) -> Result<u64, Stop> {
    let seconds = parse_float(word).ok_or("ERR timeout is not a float or out of range")?;
    let ms = (seconds * 1_000.0).ceil();
    // What does not fit wraps around in 7.0.
    if ms < 0.0 || ms >= i64::MAX as f64 {
        return Err("ERR timeout is negative".into());
    }
    Ok(ms as u64)
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
