//! What was delivered and not acknowledged: `XACK`, `XPENDING`.

use std::collections::BTreeMap;

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::super::Value;
use super::super::super::call::{Call, Reaction, SYNTAX, Stop};
use super::super::super::db::Change;
use super::super::super::stream::{Group, Pending};
use super::super::is;
use super::{Journal, count_value, group_of, id_value, interval_end, interval_start, strict_id};

pub(super) fn ack(call: &mut Call<'_>) -> Reaction {
    let (key, name) = (call.word(1)?, call.word(2)?);
    let mut journal = Journal::new(call.db);
    let stream = call.db.stream(key, call.at)?;
    let Some(group) = stream.and_then(|stream| stream.groups.get_mut(name)) else { return Ok(Value::Int(0)) };
    let ids = call.args.iter().skip(3).map(|id| strict_id(id, 0)).collect::<Result<Vec<_>, _>>()?;
    let mut count = 0;
    for id in ids {
        if let Some(pending) = group.release(id) {
            count += 1;
            journal.note(|| Change::Acked { key: key.clone(), group: name.clone(), id, consumer: pending.consumer });
        }
    }
    journal.report(call.db);
    call.db.dirty += count;
    Ok(count_value(count))
}

/// Which pending entries `XPENDING` shall list.
struct Filter {
    start: StreamId,
    end: StreamId,
    count: usize,
    idle_min_ms: i64,
    consumer: Option<Bytes>,
}

pub(super) fn pending(call: &mut Call<'_>) -> Reaction {
    let filter = if call.args.len() == 3 { None } else { Some(filter(call)?) };
    let (key, name) = (call.word(1)?, call.word(2)?);
    let stream = group_of(call.db, call.at, key, name)?;
    let Some(group) = stream.groups.get(name) else { return Ok(Value::NilArray) };
    Ok(match filter {
        None => summary(group),
        Some(filter) => list(group, &filter, call.at.ms()),
    })
}

fn filter(call: &Call<'_>) -> Result<Filter, Stop> {
    if !(6..=9).contains(&call.args.len()) {
        return Err(SYNTAX.into());
    }
    let mut place = 3;
    let mut idle_min_ms = 0;
    if is(call.word(3)?, "IDLE") {
        idle_min_ms = call.int(4)?;
        if call.args.len() < 8 {
            return Err(SYNTAX.into());
        }
        place = 5;
    }
    Ok(Filter {
        count: usize::try_from(call.int(place + 2)?).unwrap_or(0),
        start: interval_start(call.word(place)?)?,
        end: interval_end(call.word(place + 1)?)?,
        idle_min_ms,
        consumer: call.args.get(place + 3).cloned(),
    })
}

fn summary(group: &Group) -> Value {
    let ids = group.pending().first_key_value().zip(group.pending().last_key_value());
    let Some(((first, _), (last, _))) = ids else {
        return Value::Array(vec![Value::Int(0), Value::Nil, Value::Nil, Value::NilArray]);
    };
    let consumers = group.consumers().iter().filter(|(_, consumer)| !consumer.pending().is_empty());
    let consumers = consumers.map(|(name, consumer)| {
        Value::Array(vec![Value::Bulk(name.clone()), Value::bulk(consumer.pending().len().to_string())])
    });
    Value::Array(vec![
        count_value(group.pending().len() as u64),
        id_value(*first),
        id_value(*last),
        Value::Array(consumers.collect()),
    ])
}

fn list(group: &Group, filter: &Filter, now_ms: i64) -> Value {
    if filter.start > filter.end {
        return Value::Array(Vec::new());
    }
    let all: &BTreeMap<StreamId, Pending> = group.pending();
    let range = filter.start..=filter.end;
    let row = |(id, pending): (&StreamId, &Pending)| {
        let idle_ms = now_ms.saturating_sub(pending.delivered_ms);
        (filter.idle_min_ms <= 0 || idle_ms >= filter.idle_min_ms).then(|| {
            Value::Array(vec![
                id_value(*id),
                Value::Bulk(pending.consumer.clone()),
                Value::Int(idle_ms.max(0)),
                count_value(pending.deliveries),
            ])
        })
    };
    let rows = match &filter.consumer {
        None => all.range(range).filter_map(row).take(filter.count).collect(),
        Some(name) => match group.consumers().get(name) {
            None => Vec::new(),
            Some(consumer) => {
                let own = consumer.pending().range(range).filter_map(|id| all.get_key_value(id));
                own.filter_map(row).take(filter.count).collect()
            }
        },
    };
    Value::Array(rows)
}
