//! Hashes.

use bytes::Bytes;

use super::super::call::{Call, Reaction, parse_int};
use super::super::{Change, Value};
use super::Command;
use super::flag::{DENY_OOM, WRITE};

pub(super) const TABLE: &[Command] = &[
    Command::data("HSET", -4, WRITE | DENY_OOM, hset),
    Command::data("HMSET", -4, WRITE | DENY_OOM, hmset),
    Command::data("HSETNX", 4, WRITE | DENY_OOM, hsetnx),
    Command::data("HGET", 3, 0, hget),
    Command::data("HMGET", -3, 0, hmget),
    Command::data("HGETALL", 2, 0, hgetall),
    Command::data("HKEYS", 2, 0, hkeys),
    Command::data("HVALS", 2, 0, hvals),
    Command::data("HDEL", -3, WRITE, hdel),
    Command::data("HINCRBY", 4, WRITE | DENY_OOM, hincrby),
    Command::data("HLEN", 2, 0, hlen),
    Command::data("HEXISTS", 3, 0, hexists),
];

fn hset(call: &mut Call<'_>) -> Reaction {
    set_fields(call, "hset").map(Value::Int)
}

fn hmset(call: &mut Call<'_>) -> Reaction {
    set_fields(call, "hmset").map(|_| Value::OK)
}

fn set(call: &mut Call<'_>, key: &Bytes, field: &Bytes, value: &Bytes) {
    call.db.record(|| Change::Field { key: key.clone(), field: field.clone(), value: Some(value.clone()) });
}

/// Sets all and says how many are new.
fn set_fields(call: &mut Call<'_>, name: &str) -> Result<i64, super::super::Stop> {
    let key = call.word(1)?;
    let fields = call.args.get(2..).unwrap_or_default();
    if !fields.len().is_multiple_of(2) {
        return Err(format!("ERR wrong number of arguments for '{name}' command").into());
    }
    let hash = call.db.hash_or_new(key, call.at)?;
    let mut new = 0;
    for pair in fields.chunks_exact(2) {
        if let [field, value] = pair {
            new += i64::from(hash.insert(field.clone(), value.clone()).is_none());
        }
    }
    for pair in fields.chunks_exact(2) {
        if let [field, value] = pair {
            set(call, key, field, value);
        }
    }
    call.db.changed(key);
    Ok(new)
}

fn hsetnx(call: &mut Call<'_>) -> Reaction {
    let (key, field, value) = (call.word(1)?, call.word(2)?, call.word(3)?);
    if call.db.hash(key, call.at)?.is_some_and(|hash| hash.contains_key(field)) {
        return Ok(Value::Int(0));
    }
    call.db.hash_or_new(key, call.at)?.insert(field.clone(), value.clone());
    set(call, key, field, value);
    call.db.changed(key);
    Ok(Value::Int(1))
}

fn hget(call: &mut Call<'_>) -> Reaction {
    let field = call.word(2)?;
    let hash = call.db.hash(call.word(1)?, call.at)?;
    Ok(hash.and_then(|hash| hash.get(field)).map_or(Value::Nil, |value| Value::Bulk(value.clone())))
}

fn hmget(call: &mut Call<'_>) -> Reaction {
    let fields = call.args.get(2..).unwrap_or_default();
    let hash = call.db.hash(call.word(1)?, call.at)?;
    let value = |field: &Bytes| hash.as_ref().and_then(|hash| hash.get(field));
    Ok(Value::Array(fields.iter().map(|field| value(field).map_or(Value::Nil, |v| Value::Bulk(v.clone()))).collect()))
}

fn hgetall(call: &mut Call<'_>) -> Reaction {
    let hash = call.db.hash(call.word(1)?, call.at)?;
    let pairs = hash.into_iter().flat_map(|hash| hash.iter());
    Ok(Value::Map(pairs.map(|(field, value)| (Value::Bulk(field.clone()), Value::Bulk(value.clone()))).collect()))
}

fn hkeys(call: &mut Call<'_>) -> Reaction {
    let hash = call.db.hash(call.word(1)?, call.at)?;
    Ok(Value::Array(hash.into_iter().flat_map(|hash| hash.keys()).map(|field| Value::Bulk(field.clone())).collect()))
}

fn hvals(call: &mut Call<'_>) -> Reaction {
    let hash = call.db.hash(call.word(1)?, call.at)?;
    Ok(Value::Array(hash.into_iter().flat_map(|hash| hash.values()).map(|value| Value::Bulk(value.clone())).collect()))
}

fn hdel(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let Some(hash) = call.db.hash(key, call.at)? else { return Ok(Value::Int(0)) };
    let mut removed = 0;
    let mut gone = Vec::new();
    for field in call.args.iter().skip(2) {
        if hash.remove(field).is_some() {
            removed += 1;
            gone.push(field);
        }
    }
    for field in gone {
        call.db.record(|| Change::Field { key: key.clone(), field: field.clone(), value: None });
    }
    if removed > 0 {
        call.db.remove_if_empty(key);
        call.db.changed(key);
    }
    Ok(Value::Int(removed))
}

fn hincrby(call: &mut Call<'_>) -> Reaction {
    let (key, field, by) = (call.word(1)?, call.word(2)?, call.int(3)?);
    let now = match call.db.hash(key, call.at)?.and_then(|hash| hash.get(field)) {
        Some(value) => parse_int(value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = now.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    let value = Bytes::from(sum.to_string());
    call.db.hash_or_new(key, call.at)?.insert(field.clone(), value.clone());
    set(call, key, field, &value);
    call.db.changed(key);
    Ok(Value::Int(sum))
}

fn hlen(call: &mut Call<'_>) -> Reaction {
    let length = call.db.hash(call.word(1)?, call.at)?.map_or(0, |hash| hash.len());
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn hexists(call: &mut Call<'_>) -> Reaction {
    let field = call.word(2)?;
    let present = call.db.hash(call.word(1)?, call.at)?.is_some_and(|hash| hash.contains_key(field));
    Ok(Value::Int(i64::from(present)))
}
