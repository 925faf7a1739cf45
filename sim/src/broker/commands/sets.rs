//! Sets.

use super::super::Value;
use super::super::call::{Call, Reaction};
use super::Command;
use super::flag::{DENY_OOM, WRITE};

pub(super) const TABLE: &[Command] = &[
    Command::data("SADD", -3, WRITE | DENY_OOM, add),
    Command::data("SREM", -3, WRITE, remove),
    Command::data("SMEMBERS", 2, 0, members),
    Command::data("SCARD", 2, 0, size),
    Command::data("SISMEMBER", 3, 0, contains),
];

fn add(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let set = call.db.set_or_new(key, call.at)?;
    let added = call.args.iter().skip(2).filter(|member| set.insert((*member).clone())).count();
    if added > 0 {
        call.db.changed(key);
    }
    Ok(count(added))
}

fn remove(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let Some(set) = call.db.set(key, call.at)? else { return Ok(Value::Int(0)) };
    let removed = call.args.iter().skip(2).filter(|member| set.remove(*member)).count();
    if removed > 0 {
        call.db.remove_if_empty(key);
        call.db.changed(key);
    }
    Ok(count(removed))
}

fn members(call: &mut Call<'_>) -> Reaction {
    let set = call.db.set(call.word(1)?, call.at)?;
    Ok(Value::Set(set.into_iter().flat_map(|set| set.iter()).cloned().map(Value::Bulk).collect()))
}

fn size(call: &mut Call<'_>) -> Reaction {
    Ok(count(call.db.set(call.word(1)?, call.at)?.map_or(0, |set| set.len())))
}

fn contains(call: &mut Call<'_>) -> Reaction {
    let member = call.word(2)?;
    let present = call.db.set(call.word(1)?, call.at)?.is_some_and(|set| set.contains(member));
    Ok(Value::Int(i64::from(present)))
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}
