//! `XINFO`.

use bytes::Bytes;

use super::super::super::call::{Call, Reaction, Stop};
use super::super::super::stream::{Consumer, Group, Stream};
use super::super::super::{Profile, Value};
use super::super::is;
use super::{bad_subcommand, count_value, entry, id_value, lines, map, shown};

const NO_KEY: &str = "ERR no such key";

pub(super) fn stream(call: &mut Call<'_>) -> Reaction {
    let full = full_count(call)?;
    let profile = call.profile;
    let Some(stream) = call.db.stream(call.word(2)?, call.at)? else { return Err(NO_KEY.into()) };
    let (keys, nodes) = stream.tree();
    let mut fields = vec![
        ("length", count_value(stream.len())),
        ("radix-tree-keys", count_value(keys)),
        ("radix-tree-nodes", count_value(nodes)),
        ("last-generated-id", id_value(stream.last())),
    ];
    if profile.at_least(7, 0) {
        fields.extend([
            ("max-deleted-entry-id", id_value(stream.deleted_max())),
            ("entries-added", count_value(stream.added())),
            ("recorded-first-entry-id", id_value(stream.first())),
        ]);
    }
    let all = || stream.range(flota_core::reply::StreamId::MIN, flota_core::reply::StreamId::MAX);
    if let Some(count) = full {
        fields.push(("entries", Value::Array(all().take(count).map(|(id, fields)| entry(id, fields)).collect())));
        let groups = stream.groups().iter().map(|(name, group)| full_group(stream, name, group, count, profile));
        fields.push(("groups", Value::Array(groups.collect())));
    } else {
        let show = |found: Option<_>| found.map_or(Value::Nil, |(id, fields)| entry(id, fields));
        fields.push(("groups", count_value(stream.groups().len() as u64)));
        fields.push(("first-entry", show(all().next())));
        fields.push(("last-entry", show(all().next_back())));
    }
    Ok(map(fields))
}

/// How many entries `FULL` shows of each kind; none when it is not asked for.
fn full_count(call: &Call<'_>) -> Result<Option<usize>, Stop> {
    let Some(option) = call.args.get(3) else { return Ok(None) };
    match call.args.get(4) {
        _ if !is(option, "FULL") => Err(bad_subcommand(call)),
        None => Ok(Some(10)),
        Some(word) if is(word, "COUNT") && call.args.len() == 6 => Ok(Some(match call.int(5)? {
            0 => usize::MAX,
            count => usize::try_from(count).unwrap_or(10),
        })),
        Some(_) => Err(bad_subcommand(call)),
    }
}

fn full_group(stream: &Stream, name: &Bytes, group: &Group, count: usize, profile: &Profile) -> Value {
    let mut fields = vec![("name", Value::Bulk(name.clone())), ("last-delivered-id", id_value(group.last()))];
    fields.extend(counters(stream, group, profile));
    let pending = group.pending().iter().take(count).map(|(id, pending)| {
        Value::Array(vec![
            id_value(*id),
            Value::Bulk(pending.consumer.clone()),
            Value::Int(pending.delivered_ms),
            count_value(pending.deliveries),
        ])
    });
    let consumers =
        group.consumers().iter().map(|(name, consumer)| full_consumer(group, name, consumer, count, profile));
    fields.extend([
        ("pel-count", count_value(group.pending().len() as u64)),
        ("pending", Value::Array(pending.collect())),
        ("consumers", Value::Array(consumers.collect())),
    ]);
    map(fields)
}

fn full_consumer(group: &Group, name: &Bytes, consumer: &Consumer, count: usize, profile: &Profile) -> Value {
    let mut fields = vec![("name", Value::Bulk(name.clone())), ("seen-time", Value::Int(consumer.seen_ms))];
    if profile.at_least(7, 2) {
        fields.push(("active-time", Value::Int(consumer.active_ms.unwrap_or(-1))));
    }
    let own = consumer.pending().iter().take(count).filter_map(|id| group.pending().get_key_value(id));
    let pending = own.map(|(id, pending)| {
        Value::Array(vec![id_value(*id), Value::Int(pending.delivered_ms), count_value(pending.deliveries)])
    });
    fields.extend([
        ("pel-count", count_value(consumer.pending().len() as u64)),
        ("pending", Value::Array(pending.collect())),
    ]);
    map(fields)
}

/// How far a group has read, from 7.0 on.
fn counters(stream: &Stream, group: &Group, profile: &Profile) -> Vec<(&'static str, Value)> {
    if !profile.at_least(7, 0) {
        return Vec::new();
    }
    vec![
        ("entries-read", group.read().map_or(Value::Nil, count_value)),
        ("lag", stream.lag(group, profile).map_or(Value::Nil, Value::Int)),
    ]
}

pub(super) fn groups(call: &mut Call<'_>) -> Reaction {
    let profile = call.profile;
    let Some(stream) = call.db.stream(call.word(2)?, call.at)? else { return Err(NO_KEY.into()) };
    let groups = stream.groups().iter().map(|(name, group)| {
        let mut fields = vec![
            ("name", Value::Bulk(name.clone())),
            ("consumers", count_value(group.consumers().len() as u64)),
            ("pending", count_value(group.pending().len() as u64)),
            ("last-delivered-id", id_value(group.last())),
        ];
        fields.extend(counters(stream, group, profile));
        map(fields)
    });
    Ok(Value::Array(groups.collect()))
}

pub(super) fn consumers(call: &mut Call<'_>) -> Reaction {
    let (key, name, now_ms) = (call.word(2)?, call.word(3)?, call.at.ms());
    let shows_activity = call.profile.at_least(7, 2);
    let Some(stream) = call.db.stream(key, call.at)? else { return Err(NO_KEY.into()) };
    let Some(group) = stream.groups().get(name) else {
        return Err(format!("NOGROUP No such consumer group '{}' for key name '{}'", shown(name), shown(key)).into());
    };
    let consumers = group.consumers().iter().map(|(name, consumer)| {
        let since = |ms: i64| Value::Int(now_ms.saturating_sub(ms).max(0));
        let mut fields = vec![
            ("name", Value::Bulk(name.clone())),
            ("pending", count_value(consumer.pending().len() as u64)),
            ("idle", since(consumer.seen_ms)),
        ];
        if shows_activity {
            fields.push(("inactive", consumer.active_ms.map_or(Value::Int(-1), since)));
        }
        map(fields)
    });
    Ok(Value::Array(consumers.collect()))
}

pub(super) fn help(call: &mut Call<'_>) -> Reaction {
    let Value::Array(mut text) = lines(HELP) else { return Ok(Value::NilArray) };
    text.push(Value::status(if call.profile.valkey { "    Print this help." } else { "    Prints this help." }));
    Ok(Value::Array(text))
}

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <groupname>",
    "    Show consumers of <groupname>.",
    "GROUPS <key>",
    "    Show the stream consumer groups.",
    "STREAM <key> [FULL [COUNT <count>]",
    "    Show information about the stream.",
    "HELP",
];
