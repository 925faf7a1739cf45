//! `XGROUP`.

use flota_core::reply::StreamId;

use super::super::super::Value;
use super::super::super::call::{Call, Reaction, Stop};
use super::super::super::db::Change;
use super::super::super::stream::{Group, Stream};
use super::super::is;
use super::{any_id, bad_subcommand, count_value, lines, shown, strict_id};

pub(super) fn create(call: &mut Call<'_>) -> Reaction {
    // 6.2 knows one option, and looks for the key before it counts the words.
    let late = !call.profile.at_least(7, 0) && call.args.len() > 6;
    let (make, read) = if late { (false, None) } else { options(call, true)? };
    let (key, name, position) = (call.word(2)?, call.word(3)?, call.word(4)?);
    let last = match call.db.stream(key, call.at)? {
        None if !make => return Err(NO_KEY.into()),
        stream => stream.map_or(StreamId::MIN, |stream| stream.last()),
    };
    if late {
        return Err(bad_subcommand(call));
    }
    let last = if position[..] == *b"$" { last } else { strict_id(position, 0)? };
    if call.db.stream(key, call.at)?.is_none() {
        // The key exists from now on, whatever comes of the group.
        call.db.touch(key);
    }
    let stream = call.db.stream_or_new(key, call.at)?;
    if stream.groups.contains_key(name) {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    stream.groups.insert(name.clone(), Group::new(last, read));
    call.db.record(|| Change::Group { key: key.clone(), group: name.clone(), at: Some(last) });
    call.db.dirty += 1;
    Ok(Value::OK)
}

pub(super) fn set_id(call: &mut Call<'_>) -> Reaction {
    let new = call.profile.at_least(7, 0);
    let read = if new { options(call, false)?.1 } else { None };
    let (key, name, position) = (call.word(2)?, call.word(3)?, call.word(4)?);
    let stream = existing(call)?;
    let top = stream.last();
    if !new && call.args.len() > 5 {
        return Err(bad_subcommand(call));
    }
    let last = if position[..] == *b"$" { top } else { any_id(position, 0)? };
    if let Some(group) = existing(call)?.groups.get_mut(name) {
        (group.last, group.read) = (last, read);
    }
    call.db.record(|| Change::Group { key: key.clone(), group: name.clone(), at: Some(last) });
    call.db.dirty += 1;
    Ok(Value::OK)
}

pub(super) fn destroy(call: &mut Call<'_>) -> Reaction {
    let (key, name) = (call.word(2)?, call.word(3)?);
    let Some(stream) = call.db.stream(key, call.at)? else { return Err(NO_KEY.into()) };
    if stream.groups.remove(name).is_none() {
        return Ok(Value::Int(0));
    }
    call.db.record(|| Change::Group { key: key.clone(), group: name.clone(), at: None });
    call.db.dirty += 1;
    // Whoever waits for entries of this group is told.
    call.db.signal(key);
    Ok(Value::Int(1))
}

pub(super) fn create_consumer(call: &mut Call<'_>) -> Reaction {
    let (name, consumer, now_ms) = (call.word(3)?, call.word(4)?, call.at.ms());
    let created = existing(call)?.groups.get_mut(name).is_some_and(|group| group.create(consumer, now_ms));
    call.db.dirty += u64::from(created);
    Ok(Value::Int(i64::from(created)))
}

pub(super) fn delete_consumer(call: &mut Call<'_>) -> Reaction {
    let (key, name, consumer) = (call.word(2)?, call.word(3)?, call.word(4)?);
    let expelled = existing(call)?.groups.get_mut(name).and_then(|group| group.expel(consumer));
    let Some(pending) = expelled else { return Ok(Value::Int(0)) };
    call.db.record(|| Change::ConsumerGone {
        key: key.clone(),
        group: name.clone(),
        consumer: consumer.clone(),
        pending,
    });
    call.db.dirty += 1;
    Ok(count_value(pending))
}

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
    the MKSTREAM option to create an empty stream automatically.";

/// The stream of a subcommand that needs it and the group.
fn existing<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Stream, Stop> {
    let (key, name) = (call.word(2)?, call.word(3)?);
    match call.db.stream(key, call.at)? {
        None => Err(NO_KEY.into()),
        Some(stream) if stream.groups.contains_key(name) => Ok(stream),
        Some(_) => {
            Err(format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(name), shown(key)).into())
        }
    }
}

/// Whether to make the stream, and how many entries were read.
fn options(call: &Call<'_>, creates: bool) -> Result<(bool, Option<u64>), Stop> {
    let mut make = false;
    let mut read = None;
    let mut place = 5;
    while let Some(word) = call.args.get(place) {
        let more = place + 1 < call.args.len();
        if creates && is(word, "MKSTREAM") {
            make = true;
        } else if more && call.profile.at_least(7, 0) && is(word, "ENTRIESREAD") {
            place += 1;
            read = match call.int(place)? {
                -1 => None,
                number => Some(u64::try_from(number).map_err(|_| "ERR value for ENTRIESREAD must be positive or -1")?),
            };
        } else {
            return Err(bad_subcommand(call));
        }
        place += 1;
    }
    // More words than the subcommand can use are refused even if each makes sense.
    if call.args.len() > 8 { Err(bad_subcommand(call)) } else { Ok((make, read)) }
}

pub(super) fn help(call: &mut Call<'_>) -> Reaction {
    Ok(match (call.profile.at_least(7, 0), call.profile.valkey) {
        (false, _) => lines(HELP_6_2),
        (true, valkey) => {
            let Value::Array(mut text) = lines(HELP) else { return Ok(Value::NilArray) };
            text.push(Value::status(if valkey { "    Print this help." } else { "    Prints this help." }));
            Value::Array(text)
        }
    })
}

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
    "HELP",
];

const HELP_6_2: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>    Remove the specified group.",
    "SETID <key> <groupname> <id|$>",
    "    Set the current group ID.",
    "HELP",
    "    Prints this help.",
];
