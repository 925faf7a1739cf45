//! How far a group is behind, as servers from 7.0 on reckon it: by counters, which gaps in the stream make useless.

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::{Group, Stream};
use crate::broker::Profile;

impl Stream {
    /// How many entries a group has yet to read; none when that cannot be known without counting them.
    #[must_use]
    pub(in crate::broker) fn lag(&self, group: &Group, profile: &Profile) -> Option<i64> {
        if self.added == 0 {
            return Some(0);
        }
        let read = match group.read {
            Some(read) if !self.has_gap_from(group.last, profile) => read,
            _ => self.place_of(group.last, profile)?,
        };
        // Both can be set by hand, so the difference may be negative.
        Some(self.added.wrapping_sub(read).cast_signed())
    }

    /// A group goes on to an entry: its counter follows.
    pub(in crate::broker) fn advance(&mut self, name: &Bytes, id: StreamId, profile: &Profile) {
        let Some(group) = self.groups.get(name) else { return };
        if id <= group.last {
            return;
        }
        // Before 7.2 nobody looked for a gap, or a trimmed start, between the group and this entry.
        let careful = profile.at_least(7, 2);
        let from = if careful { group.last } else { id };
        let counts = !self.has_gap_from(from, profile) && (!careful || group.last >= self.first());
        let read = match group.read {
            Some(read) if counts => Some(read.saturating_add(1)),
            read if self.added == 0 => read,
            _ => self.place_of(id, profile),
        };
        if let Some(group) = self.groups.get_mut(name) {
            group.read = read;
            group.last = id;
        }
    }

    /// Whether an entry from this id on was removed by `XDEL`, as far as is known.
    fn has_gap_from(&self, start: StreamId, profile: &Profile) -> bool {
        if self.is_empty() || self.deleted_max == StreamId::MIN {
            return false;
        }
        if !profile.at_least(7, 2) && self.first() > self.deleted_max {
            return false;
        }
        start <= self.deleted_max
    }

    /// How many entries were ever added up to this id, if it can be told.
    fn place_of(&self, id: StreamId, profile: &Profile) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.is_empty() && id <= self.last {
            return Some(self.added);
        }
        if profile.at_least(7, 2) && id != StreamId::MIN && id < self.deleted_max {
            return None;
        }
        if id >= self.last {
            return (id == self.last).then_some(self.added);
        }
        let (first, behind) = (self.first(), self.added.wrapping_sub(self.len()));
        if self.deleted_max != StreamId::MIN && self.deleted_max >= first {
            return None;
        }
        match id.cmp(&first) {
            std::cmp::Ordering::Less => Some(behind),
            std::cmp::Ordering::Equal => Some(behind.wrapping_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }
}
