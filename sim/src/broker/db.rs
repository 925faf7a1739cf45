//! The data: one ordered map of keys, and a journal of what changed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::ServerTime;
use super::call::Stop;
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
    /// Keys that a transaction watches, and how often each was changed since somebody began to watch it.
    pub(super) watched: BTreeMap<Bytes, Watched>,
    /// Keys that expired, ever: `INFO stats`.
    pub(super) expired: u64,
}

/// A key that transactions watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    /// How many connections watch it.
    pub(super) watchers: u32,
    /// How often it was changed.
    pub(super) version: u64,
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

/// What happened to a stream, one of its groups, or a hash: what an oracle needs to know and no reply tells.
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
    /// An entry is pending no more because a claim found that it is not in the stream any more; from 7.0 on.
    Dropped {
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
    /// A field of a hash was set, or removed.
    Field {
        /// Hash.
        key: Bytes,
        /// Field.
        field: Bytes,
        /// Its value; none when it is gone.
        value: Option<Bytes>,
    },
    /// A hash is gone as a whole.
    HashGone {
        /// Hash.
        key: Bytes,
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

/// What a command that meets another type answers.
pub(super) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Item {
    /// Whether its time is over.
    #[must_use]
    pub fn is_expired(&self, at: ServerTime) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= at.ms())
    }
}

impl Object {
    /// What `TYPE` says.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Str(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::Zset(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }
}

impl Db {
    /// Every key, expired or not.
    pub fn items(&self) -> impl Iterator<Item = (&Bytes, &Item)> {
        self.items.iter()
    }

    /// A key's value, unless it is absent or expired.
    #[must_use]
    pub fn peek(&self, key: &[u8], at: ServerTime) -> Option<&Item> {
        self.items.get(key).filter(|item| !item.is_expired(at))
    }

    /// All keys that have not expired, in order.
    pub fn live(&self, at: ServerTime) -> impl Iterator<Item = (&Bytes, &Item)> {
        self.items.iter().filter(move |(_, item)| !item.is_expired(at))
    }

    /// A key's value to change; what has expired is removed first.
    pub(super) fn item(&mut self, key: &[u8], at: ServerTime) -> Option<&mut Item> {
        self.expire(key, at);
        self.items.get_mut(key)
    }

    /// Puts a new value at a key, without expiry, in place of whatever is there; whoever waits for the key is told.
    /// Does not count as a change by itself: say [`Self::changed`] as well.
    pub(super) fn insert(&mut self, key: Bytes, object: Object) -> Option<&mut Object> {
        self.signal(&key);
        let previous = self.items.insert(key.clone(), Item { object, expires_ms: None });
        match previous {
            Some(Item { object: Object::Stream(_), .. }) => self.record(|| Change::StreamGone { key: key.clone() }),
            Some(Item { object: Object::Hash(_), .. }) => self.record(|| Change::HashGone { key: key.clone() }),
            _ => {}
        }
        self.items.get_mut(&key).map(|item| &mut item.object)
    }

    /// Removes a key. Whoever reads a stream with a group is told. Does not count as a change by itself.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Item> {
        let (key, item) = self.items.remove_entry(key)?;
        if matches!(item.object, Object::Stream(_)) {
            self.signal(&key);
            self.record(|| Change::StreamGone { key });
        } else if matches!(item.object, Object::Hash(_)) {
            self.record(|| Change::HashGone { key });
        }
        Some(item)
    }

    /// Removes a key if its collection is empty; a stream stays.
    pub(super) fn remove_if_empty(&mut self, key: &[u8]) -> bool {
        let empty = self.items.get(key).is_some_and(|item| match &item.object {
            Object::List(list) => list.is_empty(),
            Object::Hash(hash) => hash.is_empty(),
            Object::Set(set) => set.is_empty(),
            Object::Zset(zset) => zset.is_empty(),
            Object::Str(_) | Object::Stream(_) => false,
        });
        if empty {
            self.remove(key);
        }
        empty
    }

    /// A change of a key: counted (the command is logged), and transactions that watch the key fail.
    pub(super) fn changed(&mut self, key: &[u8]) {
        self.dirty += 1;
        self.touch(key);
    }

    /// Makes transactions that watch the key fail.
    pub(super) fn touch(&mut self, key: &[u8]) {
        if let Some(watched) = self.watched.get_mut(key) {
            watched.version += 1;
        }
    }

    /// Whoever waits for this key tries again once the command, script or transaction has ended.
    pub(super) fn signal(&mut self, key: &Bytes) {
        if self.ready.last() != Some(key) {
            self.ready.push(key.clone());
        }
    }

    /// Removes the key if its time is over.
    pub(super) fn expire(&mut self, key: &[u8], at: ServerTime) {
        if self.items.get(key).is_some_and(|item| item.is_expired(at)) {
            self.remove(key);
            self.touch(key);
            self.expired += 1;
        }
    }

    /// Removes every key whose time is over.
    pub(super) fn purge(&mut self, at: ServerTime) {
        let over: Vec<Bytes> =
            self.items.iter().filter(|(_, item)| item.is_expired(at)).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.expire(&key, at);
        }
    }

    /// Removes every key.
    pub(super) fn clear(&mut self, at: ServerTime) {
        self.purge(at);
        let all: Vec<Bytes> = self.items.keys().cloned().collect();
        for key in all {
            self.remove(&key);
            self.changed(&key);
        }
    }

    /// What the data takes, in bytes: keys and values and a constant per entry.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.items.iter().map(|(key, item)| bytes_of(key) + ENTRY + memory_of(&item.object)).sum()
    }

    /// Records a change of a stream, if somebody watches.
    pub(super) fn record(&mut self, change: impl FnOnce() -> Change) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }
}

/// One type's getters: the value if the key is there, and the value or a new empty one.
macro_rules! typed {
    ($read:ident, $make:ident, $variant:ident, $type:ty, $doc:literal) => {
        impl Db {
            #[doc = concat!("The ", $doc, " at a key, if any.")]
            #[allow(dead_code, reason = "every type has the same two getters")]
            pub(super) fn $read(&mut self, key: &[u8], at: ServerTime) -> Result<Option<&mut $type>, Stop> {
                match self.item(key, at) {
                    None => Ok(None),
                    Some(Item { object: Object::$variant(value), .. }) => Ok(Some(value)),
                    Some(_) => Err(WRONG_TYPE.into()),
                }
            }

            #[doc = concat!("The ", $doc, " at a key, made if there is none.")]
            #[allow(dead_code, reason = "every type has the same two getters")]
            pub(super) fn $make(&mut self, key: &Bytes, at: ServerTime) -> Result<&mut $type, Stop> {
                if self.item(key, at).is_none() {
                    self.insert(key.clone(), Object::$variant(Default::default()));
                }
                match self.items.get_mut(key) {
                    Some(Item { object: Object::$variant(value), .. }) => Ok(value),
                    _ => Err(WRONG_TYPE.into()),
                }
            }
        }
    };
}

typed!(string, string_or_new, Str, Bytes, "string");
typed!(list, list_or_new, List, VecDeque<Bytes>, "list");
typed!(hash, hash_or_new, Hash, BTreeMap<Bytes, Bytes>, "hash");
typed!(set, set_or_new, Set, BTreeSet<Bytes>, "set");
typed!(zset, zset_or_new, Zset, Zset, "sorted set");
typed!(stream, stream_or_new, Stream, Stream, "stream");

/// What an entry takes besides its bytes.
const ENTRY: u64 = 64;

fn bytes_of(bytes: &Bytes) -> u64 {
    bytes.len() as u64
}

fn memory_of(object: &Object) -> u64 {
    match object {
        Object::Str(value) => bytes_of(value),
        Object::List(list) => list.iter().map(|value| bytes_of(value) + ENTRY / 4).sum(),
        Object::Hash(hash) => hash.iter().map(|(name, value)| bytes_of(name) + bytes_of(value) + ENTRY).sum(),
        Object::Set(set) => set.iter().map(|member| bytes_of(member) + ENTRY).sum(),
        Object::Zset(zset) => zset.iter().map(|(member, _)| bytes_of(member) + 2 * ENTRY).sum(),
        Object::Stream(stream) => stream.memory(),
    }
}
