//! A stream: its entries, its groups, and what is pending in them. No replies: see the commands.

mod counters;
mod group;
mod node;
/// An id whose differences from the first id of its node lost all but their low 32 bits.
fn cut_to_32_bits(id: StreamId, first: StreamId) -> StreamId {
    let cut = |of: u64, from: u64| from.wrapping_add_signed(i64::from(of.wrapping_sub(from) as i32));
    StreamId { ms: cut(id.ms, first.ms), seq: cut(id.seq, first.seq) }
}

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use flota_core::reply::StreamId;

pub use group::{Consumer, Group, Pending};
use node::Node;

use super::Profile;

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    entries: BTreeMap<StreamId, Arc<[Bytes]>>,
    /// Real servers keep entries in nodes, and approximate trimming removes whole ones: what it leaves depends on them.
    nodes: VecDeque<Node>,
    last: StreamId,
    deleted_max: StreamId,
    added: u64,
    bytes: u64,
    pub(super) groups: BTreeMap<Bytes, Group>,
}

/// How far to trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// To this many entries.
    Len(u64),
    /// To entries from this id on.
    Id(StreamId),
}

/// How to trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    pub(super) bound: Bound,
    /// Whole nodes only.
    pub(super) approximate: bool,
    /// At most this many entries; zero is no limit.
    pub(super) limit: u64,
}

/// What an entry takes besides its bytes.
const ENTRY: u64 = 32;

impl Stream {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The highest id there ever was.
    #[must_use]
    pub fn last(&self) -> StreamId {
        self.last
    }

    /// The highest id that `XDEL` removed; [`StreamId::MIN`] if none.
    #[must_use]
    pub fn deleted_max(&self) -> StreamId {
        self.deleted_max
    }

    /// How many entries were ever added.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.added
    }

    /// The id of the first entry; [`StreamId::MIN`] if there is none.
    #[must_use]
    pub fn first(&self) -> StreamId {
        self.entries.first_key_value().map_or(StreamId::MIN, |(id, _)| *id)
    }

    /// The id of the last entry that is still there.
    #[must_use]
    pub fn last_present(&self) -> Option<StreamId> {
        self.entries.last_key_value().map(|(id, _)| *id)
    }

    /// An entry's names and values in turn.
    #[must_use]
    pub fn entry(&self, id: StreamId) -> Option<&Arc<[Bytes]>> {
        self.entries.get(&id)
    }

    /// Entries from `start` to `end`, both included.
    pub fn range(
        &self,
        start: StreamId,
        end: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Arc<[Bytes]>)> + '_ {
        // A range that ends before it starts is empty here; the map would panic.
        let end = (start <= end).then_some(end);
        end.into_iter().flat_map(move |end| self.entries.range(start..=end)).map(|(id, fields)| (*id, fields))
    }

    /// The groups by name.
    #[must_use]
    pub fn groups(&self) -> &BTreeMap<Bytes, Group> {
        &self.groups
    }

    /// What it takes, in bytes: those of entries and names, and a constant for each entry and what is pending.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.bytes + self.groups.iter().map(|(name, group)| name.len() as u64 + group.memory()).sum::<u64>()
    }

    /// The id that `XADD *` gives at this time: always above the last one. None when there is none left.
    #[must_use]
    pub(super) fn next_id(&self, now_ms: i64) -> Option<StreamId> {
        let ms = u64::try_from(now_ms).unwrap_or_default();
        if ms > self.last.ms { Some(StreamId { ms, seq: 0 }) } else { after(self.last) }
    }

    /// Appends an entry; its id has to be above the last one, else nothing happens and the answer is false.
    pub(super) fn add(&mut self, id: StreamId, fields: Arc<[Bytes]>, profile: &Profile) -> bool {
        if id <= self.last {
            return false;
        }
        if self.nodes.back().is_none_or(|node| node.is_full_for(&fields, profile)) {
            self.nodes.push_back(Node::new(id, &fields));
        }
        if let Some(node) = self.nodes.back_mut() {
            node.append(id, &fields);
        }
        self.bytes += weight(&fields);
        self.entries.insert(id, fields);
        self.last = id;
        self.added += 1;
        true
    }

    /// Removes an entry as `XDEL` does; false if it is not there.
    pub(super) fn delete(&mut self, id: StreamId) -> bool {
        if !self.take(id) {
            return false;
        }
        let place = self.nodes.partition_point(|node| node.first <= id).saturating_sub(1);
        if let Some(node) = self.nodes.get_mut(place) {
            node.bury(1);
            if node.live == 0 {
                self.nodes.remove(place);
            }
        }
        self.deleted_max = self.deleted_max.max(id);
        true
    }

    /// Removes entries from the start. Returns what was removed, in order.
    pub(super) fn trim(&mut self, trim: Trim, profile: &Profile) -> Vec<StreamId> {
        let mut gone = Vec::new();
        while let Some(node) = self.nodes.front() {
            if matches!(trim.bound, Bound::Len(max) if self.len() <= max) {
                break;
            }
            if trim.limit > 0 && gone.len() as u64 + u64::from(node.live) > trim.limit {
                break;
            }
            let whole = match trim.bound {
                Bound::Len(max) => self.len() - u64::from(node.live) >= max,
                Bound::Id(min) => node.last < min,
            };
            if whole {
                let last = node.last;
                self.nodes.pop_front();
                self.take_while(&mut gone, |_, id| id <= last);
                continue;
            }
            if !trim.approximate {
                let (before, first, last) = (gone.len(), node.first, node.last);
                // Within a node, 6.2 reads the differences between ids as 32 bits.
                let seen = |id| if profile.at_least(7, 0) { id } else { cut_to_32_bits(id, first) };
                match trim.bound {
                    Bound::Len(max) => self.take_while(&mut gone, |len, _| len > max),
                    Bound::Id(min) => self.take_while(&mut gone, |_, id| id <= last && seen(id) < min),
                }
                let buried = u32::try_from(gone.len() - before).unwrap_or(u32::MAX);
                if let Some(node) = self.nodes.front_mut() {
                    node.bury(buried);
                }
            }
            break;
        }
        gone
    }

    /// What `XSETID` sets; what is not given stays.
    pub(super) fn set_id(&mut self, last: StreamId, added: Option<u64>, deleted_max: Option<StreamId>) {
        self.last = last;
        self.added = added.unwrap_or(self.added);
        self.deleted_max = deleted_max.filter(|id| *id != StreamId::MIN).unwrap_or(self.deleted_max);
    }

    /// How many nodes there are, and how many the radix tree that finds them has itself.
    #[must_use]
    pub(super) fn tree(&self) -> (u64, u64) {
        (self.nodes.len() as u64, node::tree_nodes(self.nodes.iter().map(|node| node.first)))
    }

    /// Takes entries from the front for as long as `more(length, id of the first)` says so.
    fn take_while(&mut self, gone: &mut Vec<StreamId>, more: impl Fn(u64, StreamId) -> bool) {
        while let Some((id, _)) = self.entries.first_key_value() {
            let id = *id;
            if !more(self.len(), id) {
                break;
            }
            self.take(id);
            gone.push(id);
        }
    }

    fn take(&mut self, id: StreamId) -> bool {
        let Some(fields) = self.entries.remove(&id) else { return false };
        self.bytes -= weight(&fields);
        true
    }
}

/// The id right above; none above the highest.
pub(super) fn after(id: StreamId) -> Option<StreamId> {
    match id.seq.checked_add(1) {
        Some(seq) => Some(StreamId { ms: id.ms, seq }),
        None => id.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
    }
}

/// The id right below; none below the lowest.
pub(super) fn before(id: StreamId) -> Option<StreamId> {
    match id.seq.checked_sub(1) {
        Some(seq) => Some(StreamId { ms: id.ms, seq }),
        None => id.ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
    }
}

fn weight(fields: &[Bytes]) -> u64 {
    ENTRY + fields.iter().map(|field| field.len() as u64).sum::<u64>()
}
