//! Giving entries to a member of a group.

use std::sync::Arc;

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::super::super::Value;
use super::super::super::super::call::Call;
use super::super::{Journal, Recipient, entry, id_value};
use crate::broker::stream::after;

/// Who reads what.
pub(super) type Member<'a> = Recipient<'a>;

impl Member<'_> {
    /// Notes that the consumer was here; one that was not known is a change.
    pub(super) fn see(&self, call: &mut Call<'_>) {
        let Ok(Some(stream)) = call.db.stream(self.key, call.at) else { return };
        let created = stream.groups.get_mut(self.group).is_some_and(|group| group.see(self.consumer, self.now_ms));
        call.db.dirty += u64::from(created);
    }
}

/// Delivers what comes after an id, for the first time.
pub(super) fn deliver(
    call: &mut Call<'_>,
    member: &Member<'_>,
    last: StreamId,
    count: usize,
    no_ack: bool,
) -> Vec<Value> {
    let mut journal = Journal::new(call.db);
    let Ok(Some(stream)) = call.db.stream(member.key, call.at) else { return Vec::new() };
    let range = stream.range(after_wrapping(last), StreamId::MAX);
    let entries: Vec<(StreamId, Arc<[Bytes]>)> = range.take(count).map(|(id, fields)| (id, fields.clone())).collect();
    let mut values = Vec::with_capacity(entries.len());
    for (id, fields) in &entries {
        stream.advance(member.group, *id, call.profile);
        if !no_ack && let Some(group) = stream.groups.get_mut(member.group) {
            member.take(group, *id, member.now_ms, 1, &mut journal);
            group.activate(member.consumer, member.now_ms);
        }
        values.push(entry(*id, fields));
    }
    call.db.dirty += u64::from(!entries.is_empty());
    journal.report(call.db);
    values
}

/// What a consumer has pending from an id on. Reading it counts as a delivery of what is still in the stream, but not as
/// a change: servers do not log it.
pub(super) fn history(call: &mut Call<'_>, member: &Member<'_>, start: StreamId, count: usize) -> Vec<Value> {
    let mut journal = Journal::new(call.db);
    let Ok(Some(stream)) = call.db.stream(member.key, call.at) else { return Vec::new() };
    let consumer = stream.groups.get(member.group).and_then(|group| group.consumers().get(member.consumer));
    let Some(consumer) = consumer else { return Vec::new() };
    let ids: Vec<StreamId> = consumer.pending().range(start..).take(count).copied().collect();
    let mut values = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(fields) = stream.entry(id).cloned() else {
            values.push(Value::Array(vec![id_value(id), Value::NilArray]));
            continue;
        };
        if let Some(group) = stream.groups.get_mut(member.group) {
            let deliveries = group.pending().get(&id).map_or(0, |pending| pending.deliveries).saturating_add(1);
            member.take(group, id, member.now_ms, deliveries, &mut journal);
        }
        values.push(entry(id, &fields));
    }
    journal.report(call.db);
    values
}

/// The id right above; above the highest there is the lowest again, as servers reckon.
pub(super) fn after_wrapping(id: StreamId) -> StreamId {
    after(id).unwrap_or(StreamId::MIN)
}
