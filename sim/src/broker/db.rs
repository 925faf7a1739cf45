//! The data: one ordered map of keys, and a journal of what changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::stream::Stream;
use super::zset::Zset;

/// All keys of a broker.
#[derive(Clone, Debug, Default)]
pub struct Db {
    pub(super) items: BTreeMap<Bytes, Item>,
    /// How many changes there were: a command that raises it is logged.
    pub(super) dirty: u64,
    /// Keys that somebody may have waited for, in the order in which they became ready.
    pub(super) ready: Vec<Bytes>,
    /// What happened to streams, for whoever watches; kept only when asked for.
    pub(super) changes: Option<Vec<Change>>,
}

/// A key's value and its expiry.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value.
    pub object: Object,
    /// When it expires, in milliseconds of the server's clock.
    pub expires_ms: Option<i64>,
}

/// A value.
#[derive(Clone, Debug)]
pub enum Object {
    /// A string.
    Str(Bytes),
    /// A list; never empty.
    List(VecDeque<Bytes>),
    /// A hash; never empty.
    Hash(BTreeMap<Bytes, Bytes>),
    /// A set; never empty.
    Set(BTreeSet<Bytes>),
    /// A sorted set; never empty.
    Zset(Zset),
    /// A stream; may be empty.
    Stream(Stream),
}

/// What happened to a stream or one of its groups: what an oracle needs to know and no reply tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An entry was added.
    Added {
        /// Stream.
        key: Bytes,
        /// Its id.
        id: StreamId,
        /// Names and values in turn.
        fields: Vec<Bytes>,
    },
    /// An entry was removed.
    Removed {
        /// Stream.
        key: Bytes,
        /// Its id.
        id: StreamId,
        /// By what.
        why: Why,
    },
    /// An entry is pending under a consumer: delivered, or claimed.
    Pending {
        /// Stream.
        key: Bytes,
        /// Group.
        group: Bytes,
        /// Its id.
        id: StreamId,
        /// Whose it is now.
        consumer: Bytes,
        /// Whose it was; none when it was delivered for the first time.
        from: Option<Bytes>,
        /// How long it had been idle, in milliseconds; zero at the first delivery.
        idle_ms: i64,
        /// Its delivery count from now on.
        deliveries: u64,
    },
    /// A pending entry was acknowledged.
    Acked {
        /// Stream.
        key: Bytes,
        /// Group.
        group: Bytes,
        /// Its id.
        id: StreamId,
        /// Whose it was.
        consumer: Bytes,
    },
    /// A group was created, destroyed or set to another position.
    Group {
        /// Stream.
        key: Bytes,
        /// Group.
        group: Bytes,
        /// Where it stands now; none when it is gone.
        at: Option<StreamId>,
    },
    /// A consumer's name was removed.
    ConsumerGone {
        /// Stream.
        key: Bytes,
        /// Group.
        group: Bytes,
        /// The name.
        consumer: Bytes,
        /// Entries that were pending under it and are pending no more.
        pending: u64,
    },
    /// A stream is gone as a whole: deleted, expired, flushed or overwritten.
    StreamGone {
        /// Stream.
        key: Bytes,
    },
}

/// Why an entry was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// `XDEL`.
    Deleted,
    /// `XTRIM`, or the limit of an `XADD`.
    Trimmed,
}

impl Db {
    /// Records a change of a stream, if somebody watches.
    pub(super) fn record(&mut self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }
}
