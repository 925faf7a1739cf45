//! Replies as Lua values, Lua values as replies.

use std::borrow::Cow;

use bytes::Bytes;
use mlua::{Lua, MultiValue, Table, Value as Lv};

use super::super::number::{general_17, shortest, truncated};
use super::{Era, Value};

/// How deep a returned table may be nested.
const DEPTH_MAX: usize = 1000;

/// The words of a command; the refusal if one is neither text nor number.
pub(super) fn words(era: Era, args: &MultiValue) -> Result<Vec<Bytes>, &'static str> {
    if args.is_empty() {
        return Err(era.no_words());
    }
    args.iter().map(|arg| word(era, arg).ok_or_else(|| era.bad_word())).collect()
}

fn word(era: Era, arg: &Lv) -> Option<Bytes> {
    // Up to here, both forms of a whole number are its decimal digits.
    const PLAIN: i64 = 100_000_000_000_000_000;
    let n = match arg {
        Lv::String(text) => return Some(Bytes::copy_from_slice(&text.as_bytes())),
        Lv::Integer(n) if n.abs() < PLAIN => return Some(n.to_string().into()),
        Lv::Integer(n) => *n as f64,
        Lv::Number(n) => *n,
        _ => return None,
    };
    Some(if era >= Era::SevenTwo { shortest(n) } else { general_17(n) }.into())
}

/// A reply as a script sees it: as in RESP2, nothing as false.
pub(super) fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<Lv> {
    Ok(match value {
        Value::Nil | Value::NilArray => Lv::Boolean(false),
        // Lua 5.1 has doubles only.
        Value::Int(n) => Lv::Number(*n as f64),
        Value::Bulk(bytes) | Value::Verbatim(bytes) => Lv::String(lua.create_string(bytes)?),
        Value::Double(n) => Lv::String(lua.create_string(n)?),
        Value::Status(text) => single(lua, "ok", text)?,
        Value::Error(text) => single(lua, "err", text)?,
        Value::Array(values) | Value::Set(values) | Value::Push(values) => list(lua, values.iter(), values.len())?,
        Value::Map(pairs) => list(lua, pairs.iter().flat_map(|(k, v)| [k, v]), 2 * pairs.len())?,
    })
}

fn single(lua: &Lua, field: &str, text: &str) -> mlua::Result<Lv> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, text)?;
    Ok(Lv::Table(table))
}

fn list<'a>(lua: &Lua, values: impl Iterator<Item = &'a Value>, count: usize) -> mlua::Result<Lv> {
    let table = lua.create_table_with_capacity(count, 0)?;
    for (value, at) in values.zip(1..) {
        table.raw_seti(at, to_lua(lua, value)?)?;
    }
    Ok(Lv::Table(table))
}

/// What a script returned, as a reply.
pub(super) fn from_lua(value: &Lv) -> mlua::Result<Value> {
    from_lua_within(value, 0)
}

fn from_lua_within(value: &Lv, depth: usize) -> mlua::Result<Value> {
    Ok(match value {
        Lv::String(text) => Value::Bulk(Bytes::copy_from_slice(&text.as_bytes())),
        Lv::Integer(n) => Value::Int(*n),
        Lv::Number(n) => Value::Int(truncated(*n)),
        Lv::Boolean(true) => Value::Int(1),
        Lv::Table(_) if depth >= DEPTH_MAX => Value::error("ERR reached lua stack limit"),
        Lv::Table(table) => from_table(table, depth + 1)?,
        _ => Value::Nil,
    })
}

fn from_table(table: &Table, depth: usize) -> mlua::Result<Value> {
    if let Lv::String(text) = table.raw_get("err")? {
        let text = text.to_string_lossy();
        return Ok(Value::Error(one_line(up_to_zero(&text).trim_end_matches(['\r', '\n']))));
    }
    if let Lv::String(text) = table.raw_get("ok")? {
        return Ok(Value::Status(Cow::Owned(one_line(up_to_zero(&text.to_string_lossy())))));
    }
    if table.raw_len() == 0
        && let Some(special) = special(table)?
    {
        return Ok(special);
    }
    let mut values = Vec::with_capacity(table.raw_len());
    for at in 1.. {
        match table.raw_get(at)? {
            Lv::Nil => break,
            value => values.push(from_lua_within(&value, depth)?),
        }
    }
    Ok(Value::Array(values))
}

/// What only a connection with RESP3 can tell from an array.
fn special(table: &Table) -> mlua::Result<Option<Value>> {
    if let Some(n) = table.raw_get::<Lv>("double")?.as_number() {
        return Ok(Some(Value::Double(general_17(n))));
    }
    for field in ["map", "set", "big_number", "verbatim_string"] {
        if !table.raw_get::<Lv>(field)?.is_nil() {
            return Ok(Some(Value::Error(format!("ERR a script's reply with '{field}' is not modelled"))));
        }
    }
    Ok(None)
}

/// What C takes for the whole of a text.
pub(super) fn up_to_zero(text: &str) -> &str {
    text.split('\0').next().unwrap_or_default()
}

/// A status or an error ends at the end of its line.
pub(super) fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
