//! `bit`: operations on 32 bits.

use mlua::{Lua, Table, Variadic};

pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    fold(lua, &table, "band", |a, b| a & b)?;
    fold(lua, &table, "bor", |a, b| a | b)?;
    fold(lua, &table, "bxor", |a, b| a ^ b)?;
    shift(lua, &table, "lshift", |a, by| a << by)?;
    shift(lua, &table, "rshift", |a, by| a.cast_unsigned().wrapping_shr(by).cast_signed())?;
    shift(lua, &table, "arshift", |a, by| a >> by)?;
    shift(lua, &table, "rol", i32::rotate_left)?;
    shift(lua, &table, "ror", i32::rotate_right)?;
    table.raw_set("tobit", lua.create_function(|_, a: f64| Ok(bits(a)))?)?;
    table.raw_set("bnot", lua.create_function(|_, a: f64| Ok(!bits(a)))?)?;
    table.raw_set("bswap", lua.create_function(|_, a: f64| Ok(bits(a).swap_bytes()))?)?;
    table.raw_set("tohex", lua.create_function(|_, (a, n): (f64, Option<i32>)| Ok(tohex(bits(a), n.unwrap_or(8))))?)?;
    Ok(table)
}

fn fold(lua: &Lua, table: &Table, name: &str, op: fn(i32, i32) -> i32) -> mlua::Result<()> {
    let function = lua.create_function(move |_, (first, rest): (f64, Variadic<f64>)| {
        Ok(rest.iter().fold(bits(first), |all, n| op(all, bits(*n))))
    })?;
    table.raw_set(name, function)
}

fn shift(lua: &Lua, table: &Table, name: &str, op: fn(i32, u32) -> i32) -> mlua::Result<()> {
    let function = lua.create_function(move |_, (a, by): (f64, f64)| Ok(op(bits(a), bits(by).cast_unsigned() & 31)))?;
    table.raw_set(name, function)
}

/// The lower 32 bits of the nearest whole number.
fn bits(n: f64) -> i32 {
    const RANGE: f64 = 4_294_967_296.0;
    (n.round_ties_even().rem_euclid(RANGE) as u32).cast_signed()
}

/// Hexadecimal digits, the lowest `n`; in upper case if negative.
fn tohex(bits: i32, n: i32) -> String {
    let digits = usize::try_from(n.unsigned_abs().min(8)).unwrap_or(8);
    let text = if n < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    text.get(8 - digits..).unwrap_or_default().to_string()
}
