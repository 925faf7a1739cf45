//! Keys of any type: presence, expiry, listing.

use bytes::Bytes;

use super::super::call::{Call, NOT_INT, Reaction, SYNTAX, parse_int};
use super::super::{Db, Item, Profile, ServerTime, Value};
use super::flag::WRITE;
use super::strings::end_ms;
use super::{Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::data("DEL", -2, WRITE, del),
    Command::data("UNLINK", -2, WRITE, del),
    Command::data("EXISTS", -2, 0, exists),
    Command::data("TYPE", 2, 0, type_of),
    Command::data("EXPIRE", -3, WRITE, |call| expire(call, "expire", true, false)),
    Command::data("PEXPIRE", -3, WRITE, |call| expire(call, "pexpire", false, false)),
    Command::data("EXPIREAT", -3, WRITE, |call| expire(call, "expireat", true, true)),
    Command::data("PEXPIREAT", -3, WRITE, |call| expire(call, "pexpireat", false, true)),
    Command::data("TTL", 2, 0, |call| ttl(call, true)),
    Command::data("PTTL", 2, 0, |call| ttl(call, false)),
    Command::data("PERSIST", 2, WRITE, persist),
    Command::data("DBSIZE", 1, 0, dbsize),
    Command::data("KEYS", 2, 0, keys),
    Command::data("SCAN", -2, 0, scan),
    Command::data("FLUSHALL", -1, WRITE, flush),
    Command::data("FLUSHDB", -1, WRITE, flush),
];

fn del(call: &mut Call<'_>) -> Reaction {
    let mut removed = 0;
    for key in call.args.iter().skip(1) {
        call.db.expire(key, call.at);
        if call.db.remove(key).is_some() {
            call.db.changed(key);
            removed += 1;
        }
    }
    Ok(Value::Int(removed))
}

fn exists(call: &mut Call<'_>) -> Reaction {
    let present = call.args.iter().skip(1).filter(|key| call.db.peek(key, call.at).is_some()).count();
    Ok(Value::Int(i64::try_from(present).unwrap_or(i64::MAX)))
}

fn type_of(call: &mut Call<'_>) -> Reaction {
    Ok(Value::status(call.db.peek(call.word(1)?, call.at).map_or("none", |item| item.object.type_name())))
}

/// The conditions of `EXPIRE`, from 7.0.
#[derive(Clone, Copy, Default)]
struct Only {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

fn expire(call: &mut Call<'_>, name: &str, seconds: bool, absolute: bool) -> Reaction {
    let key = call.word(1)?;
    let only = expire_conditions(call, name)?;
    let (time, at) = (call.int(2)?, call.at);
    let end = if seconds && !call.profile.at_least(7, 0) {
        // Before 7.0 the milliseconds of so many seconds wrapped round.
        end_ms(time.wrapping_mul(1_000), false, absolute, at)
    } else {
        end_ms(time, seconds, absolute, at)
    };
    let end = end.ok_or_else(|| invalid_expiry(name, call.profile))?;
    let Some(item) = call.db.item(key, at) else { return Ok(Value::Int(0)) };
    let now = item.expires_ms;
    let fails = only.none && now.is_some()
        || only.some && now.is_none()
        // No expiry counts as the latest of all.
        || only.later && now.is_none_or(|now| end <= now)
        || only.earlier && now.is_some_and(|now| end >= now);
    if fails {
        return Ok(Value::Int(0));
    }
    item.expires_ms = Some(end);
    call.db.changed(key);
    call.db.expire(key, at);
    Ok(Value::Int(1))
}

/// The refusal of a time that is out of range.
pub(super) fn invalid_expiry(name: &str, profile: &Profile) -> String {
    let named = if profile.at_least(7, 0) { format!("'{name}' command") } else { name.to_string() };
    format!("ERR invalid expire time in {named}")
}

fn expire_conditions(call: &Call<'_>, name: &str) -> Result<Only, super::super::Stop> {
    let mut only = Only::default();
    if call.args.len() > 3 && !call.profile.at_least(7, 0) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    for word in call.args.iter().skip(3) {
        match word {
            _ if is(word, "NX") => only.none = true,
            _ if is(word, "XX") => only.some = true,
            _ if is(word, "GT") => only.later = true,
            _ if is(word, "LT") => only.earlier = true,
            _ => return Err(format!("ERR Unsupported option {}", super::text(word, 128)).into()),
        }
    }
    if only.none && (only.some || only.later || only.earlier) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if only.later && only.earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(only)
}

fn ttl(call: &mut Call<'_>, seconds: bool) -> Reaction {
    let Some(item) = call.db.peek(call.word(1)?, call.at) else { return Ok(Value::Int(-2)) };
    let Some(expires_ms) = item.expires_ms else { return Ok(Value::Int(-1)) };
    let left_ms = expires_ms - call.at.ms();
    Ok(Value::Int(if seconds { (left_ms + 500) / 1_000 } else { left_ms }))
}

fn persist(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let had = call.db.item(key, call.at).and_then(|item| item.expires_ms.take()).is_some();
    if had {
        call.db.changed(key);
    }
    Ok(Value::Int(i64::from(had)))
}

fn dbsize(call: &mut Call<'_>) -> Reaction {
    Ok(Value::Int(i64::try_from(call.db.live(call.at).count()).unwrap_or(i64::MAX)))
}

fn keys(call: &mut Call<'_>) -> Reaction {
    let pattern = call.word(1)?;
    let names = call.db.live(call.at).map(|(key, _)| key).filter(|key| matches_glob(pattern, key));
    Ok(Value::Array(names.cloned().map(Value::Bulk).collect()))
}

fn scan(call: &mut Call<'_>) -> Reaction {
    let cursor = std::str::from_utf8(call.word(1)?).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or("ERR invalid cursor")?;
    let (mut pattern, mut count, mut kind): (Option<&Bytes>, i64, Option<&Bytes>) = (None, 10, None);
    for option in call.args.get(2..).unwrap_or_default().chunks(2) {
        let [name, value] = option else { return Err(SYNTAX.into()) };
        if is(name, "COUNT") {
            count = parse_int(value).ok_or(NOT_INT)?;
            if count < 1 {
                return Err(SYNTAX.into());
            }
        } else if is(name, "MATCH") {
            pattern = Some(value);
        } else if is(name, "TYPE") {
            kind = Some(value);
        } else {
            return Err(SYNTAX.into());
        }
    }
    const TYPES: [&str; 6] = ["string", "list", "set", "zset", "hash", "stream"];
    if let Some(kind) = kind.filter(|kind| call.profile.valkey && !TYPES.iter().any(|known| is(kind, known))) {
        return Err(format!("ERR unknown type name '{}'", super::text(kind, 128)).into());
    }
    let (next, found) = scan_from(call.db, call.at, cursor, usize::try_from(count).unwrap_or(usize::MAX));
    let fits = |key: &Bytes, item: &Item| {
        pattern.is_none_or(|pattern| matches_glob(pattern, key))
            && kind.is_none_or(|kind| is(kind, item.object.type_name()))
    };
    let keys = found.into_iter().filter(|(key, item)| fits(key, item)).map(|(key, _)| Value::Bulk(key.clone()));
    Ok(Value::Array(vec![Value::bulk(next.to_string()), Value::Array(keys.collect())]))
}

/// The next keys from a cursor on. The cursor is a hash of the key to go on at, keys are in order of their hashes: so a
/// key that is there during a whole iteration is met, whatever else comes and goes.
fn scan_from(db: &Db, at: ServerTime, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &Item)>) {
    let mut rest: Vec<_> = db.live(at).map(|(key, item)| (place(key), key, item)).collect();
    rest.retain(|(place, _, _)| *place >= cursor);
    rest.sort_unstable_by_key(|(place, key, _)| (*place, *key));
    let mut end = count.min(rest.len());
    // Keys of one place go together, or the cursor could not tell where to go on.
    while end > 0 && end < rest.len() && rest.get(end).map(|next| next.0) == rest.get(end - 1).map(|last| last.0) {
        end += 1;
    }
    let next = rest.get(end).map_or(0, |(place, _, _)| *place);
    rest.truncate(end);
    (next, rest.into_iter().map(|(_, key, item)| (key, item)).collect())
}

/// Where a key stands in an iteration: never zero, which is the end.
fn place(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash >> 16).max(1)
}

fn flush(call: &mut Call<'_>) -> Reaction {
    match call.args.get(1) {
        None => {}
        Some(mode) if call.args.len() == 2 && (is(mode, "ASYNC") || is(mode, "SYNC")) => {}
        Some(_) => return Err(SYNTAX.into()),
    }
    call.db.clear(call.at);
    // Counts as a change even if there was nothing, as in a real server.
    call.db.dirty += 1;
    Ok(Value::OK)
}

/// Whether text fits a pattern of `*`, `?`, `[a-z]`, `[^…]` and `\\`.
pub(in super::super) fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go back to: after the last star, and one further in the text.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let matched = match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            (None, Some(_)) | (Some(_), None) => None,
            (Some(b'?'), Some(_)) => Some(p + 1),
            (Some(b'['), Some(byte)) => class(pattern, p + 1, *byte),
            (Some(b'\\'), Some(byte)) if p + 1 < pattern.len() => (pattern.get(p + 1) == Some(byte)).then_some(p + 2),
            (Some(wanted), Some(byte)) => (wanted == byte).then_some(p + 1),
        };
        match (matched, star) {
            (Some(next), _) => (p, t) = (next, t + 1),
            (None, Some((after, from))) if from < text.len() => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// Where the pattern goes on if the byte is in the class that starts here.
fn class(pattern: &[u8], start: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(start) == Some(&b'^');
    let mut place = start + usize::from(negated);
    let mut found = false;
    loop {
        match (pattern.get(place), pattern.get(place + 1), pattern.get(place + 2)) {
            // A class that is not closed ends with the pattern.
            (None, _, _) => break,
            (Some(b']'), _, _) => {
                place += 1;
                break;
            }
            (Some(b'\\'), Some(escaped), _) => {
                found |= *escaped == byte;
                place += 2;
            }
            (Some(low), Some(b'-'), Some(high)) => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                place += 3;
            }
            (Some(one), _, _) => {
                found |= *one == byte;
                place += 1;
            }
        }
    }
    (found != negated).then_some(place)
}
