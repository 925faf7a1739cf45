//! What servers answer to the questions of an operator: RESP2 and RESP3, old versions and new ones.

use alloc::string::String;
use alloc::vec::Vec;

use crate::reply::{Entries, EntriesBuilder, Reply, StreamId, View};

/// One group as `XINFO GROUPS` describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) pending: u64,
    /// The last entry it was given.
    pub(super) last: StreamId,
    /// None before Redis 7.0, and where the server cannot tell any more.
    pub(super) lag: Option<u64>,
}

/// `XINFO GROUPS`.
pub(super) fn groups(reply: &Reply) -> Option<Vec<Group>> {
    reply.view().items()?.map(group).collect()
}

fn group(view: View<'_>) -> Option<Group> {
    Some(Group {
        name: text(view.value_of(b"name")?)?,
        pending: unsigned(view.value_of(b"pending")?)?,
        last: id(view.value_of(b"last-delivered-id")?)?,
        // Some versions count below zero after deletions.
        lag: view.value_of(b"lag").and_then(View::as_int).map(|lag| lag.try_into().unwrap_or(0)),
    })
}

/// `XPENDING key group`: the oldest pending entry, if there is one.
pub(super) fn oldest_pending(reply: &Reply) -> Option<Option<StreamId>> {
    let oldest = reply.view().items()?.nth(1)?;
    if oldest.is_nil() { Some(None) } else { id(oldest).map(Some) }
}

/// `SCAN`: where to go on, and the keys. Keys that are no text are nobody's we look for.
pub(super) fn scan(reply: &Reply) -> Option<(String, Vec<String>)> {
    let mut items = reply.view().items()?;
    let (cursor, keys) = (items.next()?, items.next()?);
    Some((text(cursor)?, keys.items()?.filter_map(text).collect()))
}

/// `TIME`, in milliseconds.
pub(super) fn time(reply: &Reply) -> Option<u64> {
    let mut items = reply.view().items()?;
    let (seconds, micros) = (unsigned(items.next()?)?, unsigned(items.next()?)?);
    seconds.checked_mul(1_000)?.checked_add(micros / 1_000)
}

/// A number that is not below zero.
pub(super) fn number(reply: &Reply) -> Option<u64> {
    unsigned(reply.view())
}

/// `XRANGE`.
pub(super) fn range(reply: &Reply) -> Option<Entries> {
    let mut entries = EntriesBuilder::new();
    entries.range(reply.view()).ok()?;
    Some(entries.finish())
}

/// The replay script: for each entry its new id, or why it stays.
pub(super) fn replayed(reply: &Reply) -> Option<Vec<String>> {
    reply.view().items()?.map(text).collect()
}

fn text(view: View<'_>) -> Option<String> {
    view.as_str().map(Into::into)
}

fn id(view: View<'_>) -> Option<StreamId> {
    view.as_bytes().and_then(StreamId::parse)
}

fn unsigned(view: View<'_>) -> Option<u64> {
    view.as_int().and_then(|n| n.try_into().ok())
}
