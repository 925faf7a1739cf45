//! Strings.

use bytes::Bytes;

use super::super::call::{Call, NOT_INT, Reaction, SYNTAX, Stop, parse_int};
use super::super::db::{Object, WRONG_TYPE};
use super::super::{ServerTime, Value};
use super::flag::{DENY_OOM, WRITE};
use super::keys::invalid_expiry;
use super::{Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::data("GET", 2, 0, get),
    Command::data("SET", -3, WRITE | DENY_OOM, set),
    Command::data("STRLEN", 2, 0, strlen),
    Command::data("INCR", 2, WRITE | DENY_OOM, |call| add(call, 1)),
    Command::data("DECR", 2, WRITE | DENY_OOM, |call| add(call, -1)),
    Command::data("INCRBY", 3, WRITE | DENY_OOM, |call| {
        let by = call.int(2)?;
        add(call, by)
    }),
    Command::data("DECRBY", 3, WRITE | DENY_OOM, |call| {
        let by = call.int(2)?;
        add(call, by.checked_neg().ok_or("ERR decrement would overflow")?)
    }),
];

fn get(call: &mut Call<'_>) -> Reaction {
    let value = call.db.string(call.word(1)?, call.at)?;
    Ok(value.map_or(Value::Nil, |value| Value::Bulk(value.clone())))
}

fn strlen(call: &mut Call<'_>) -> Reaction {
    let value = call.db.string(call.word(1)?, call.at)?;
    Ok(Value::Int(value.map_or(0, |value| i64::try_from(value.len()).unwrap_or(i64::MAX))))
}

fn add(call: &mut Call<'_>, by: i64) -> Reaction {
    let key = call.word(1)?;
    let now = match call.db.string(key, call.at)? {
        Some(value) => parse_int(value).ok_or(NOT_INT)?,
        None => 0,
    };
    let sum = now.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    *call.db.string_or_new(key, call.at)? = Bytes::from(sum.to_string());
    call.db.changed(key);
    Ok(Value::Int(sum))
}

/// The options of `SET`.
#[derive(Default)]
struct Options {
    only_new: bool,
    only_present: bool,
    answer_old: bool,
    keep_expiry: bool,
    /// Milliseconds of the server's clock.
    expires_ms: Option<i64>,
}

fn set(call: &mut Call<'_>) -> Reaction {
    let (key, value) = (call.word(1)?, call.word(2)?);
    let options = set_options(call)?;
    let item = call.db.item(key, call.at);
    let (present, expires_before) = item.as_ref().map_or((false, None), |item| (true, item.expires_ms));
    let old = match item.as_ref().map(|item| &item.object) {
        Some(Object::Str(old)) => Value::Bulk(old.clone()),
        Some(_) if options.answer_old => return Err(WRONG_TYPE.into()),
        _ => Value::Nil,
    };
    if options.only_new && present || options.only_present && !present {
        return Ok(if options.answer_old { old } else { Value::Nil });
    }
    let expires_ms = if options.keep_expiry { expires_before } else { options.expires_ms };
    match item {
        Some(item) if matches!(item.object, Object::Str(_)) => {
            item.object = Object::Str(value.clone());
        }
        _ => {
            call.db.insert(key.clone(), Object::Str(value.clone()));
        }
    }
    if let Some(item) = call.db.items.get_mut(key) {
        item.expires_ms = expires_ms;
    }
    call.db.changed(key);
    // With a time that is over already the key is gone at once.
    call.db.expire(key, call.at);
    Ok(if options.answer_old { old } else { Value::OK })
}

fn set_options(call: &mut Call<'_>) -> Result<Options, Stop> {
    let mut options = Options::default();
    let mut timed: Option<(bool, bool, i64)> = None;
    let mut place = 3;
    while let Some(word) = call.args.get(place) {
        place += 1;
        if is(word, "NX") && !options.only_present {
            options.only_new = true;
        } else if is(word, "XX") && !options.only_new {
            options.only_present = true;
        } else if is(word, "GET") {
            options.answer_old = true;
        } else if is(word, "KEEPTTL") && timed.is_none() {
            options.keep_expiry = true;
        } else if let Some((seconds, absolute)) = unit(word)
            && timed.is_none()
            && !options.keep_expiry
            && let Some(time) = call.args.get(place)
        {
            place += 1;
            // A number that is none is reported only where no syntax error comes later.
            timed = Some((seconds, absolute, 0));
            match parse_int(time) {
                Some(time) => timed = Some((seconds, absolute, time)),
                None => options.expires_ms = Some(i64::MIN),
            }
        } else {
            return Err(SYNTAX.into());
        }
    }
    // Before 7.0 NX did not go with GET.
    if options.only_new && options.answer_old && !call.profile.at_least(7, 0) {
        return Err(SYNTAX.into());
    }
    if options.expires_ms.is_some() {
        return Err(NOT_INT.into());
    }
    if let Some((seconds, absolute, time)) = timed {
        let end = end_ms(time, seconds, absolute, call.at).filter(|_| time > 0);
        options.expires_ms = Some(end.ok_or_else(|| invalid_expiry("set", call.profile))?);
    }
    Ok(options)
}

/// Whether it counts seconds, and whether from 1970.
fn unit(word: &[u8]) -> Option<(bool, bool)> {
    [("EX", true, false), ("PX", false, false), ("EXAT", true, true), ("PXAT", false, true)]
        .into_iter()
        .find(|(name, _, _)| is(word, name))
        .map(|(_, seconds, absolute)| (seconds, absolute))
}

/// When a time ends, in milliseconds of the server's clock, unless that is no number.
pub(super) fn end_ms(time: i64, seconds: bool, absolute: bool, at: ServerTime) -> Option<i64> {
    let time_ms = if seconds { time.checked_mul(1_000)? } else { time };
    if absolute { Some(time_ms) } else { time_ms.checked_add(at.ms()) }
}
