//! A consumer group: where it stands, who belongs to it, and what is pending.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::reply::StreamId;

/// A consumer group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The last entry that was delivered.
    pub(in crate::broker) last: StreamId,
    /// How many entries of the stream's life it has read, if that is known.
    pub(in crate::broker) read: Option<u64>,
    pending: BTreeMap<StreamId, Pending>,
    consumers: BTreeMap<Bytes, Consumer>,
}

/// A delivery that was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Whose it is.
    pub consumer: Bytes,
    /// When it was delivered, or what a claim said, in milliseconds of the server's clock.
    pub delivered_ms: i64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// When it last asked for something, in milliseconds of the server's clock.
    pub seen_ms: i64,
    /// When it last got something to acknowledge.
    pub active_ms: Option<i64>,
    pending: BTreeSet<StreamId>,
}

/// What a pending entry or a consumer takes.
const RECORD: u64 = 64;

impl Consumer {
    /// What is pending under it, in order.
    #[must_use]
    pub fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

impl Group {
    /// A group that stands at an id.
    pub(in crate::broker) fn new(last: StreamId, read: Option<u64>) -> Self {
        Self { last, read, ..Self::default() }
    }

    /// The last entry that was delivered.
    #[must_use]
    pub fn last(&self) -> StreamId {
        self.last
    }

    /// How many entries of the stream's life it has read, if that is known.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        self.read
    }

    /// What is pending, by id.
    #[must_use]
    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// Its consumers by name.
    #[must_use]
    pub fn consumers(&self) -> &BTreeMap<Bytes, Consumer> {
        &self.consumers
    }

    /// What it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        RECORD * (self.pending.len() as u64 + self.consumers.len() as u64)
    }

    /// Notes that a consumer asked for something; true if it was not known before.
    pub(in crate::broker) fn see(&mut self, name: &Bytes, now_ms: i64) -> bool {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_ms = now_ms;
            return false;
        }
        self.create(name, now_ms)
    }

    /// Makes a consumer; false if there is one already.
    pub(in crate::broker) fn create(&mut self, name: &Bytes, now_ms: i64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        let consumer = Consumer { seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        self.consumers.insert(name.clone(), consumer);
        true
    }

    /// Notes that a consumer got something.
    pub(in crate::broker) fn activate(&mut self, name: &[u8], now_ms: i64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.active_ms = Some(now_ms);
        }
    }

    /// Makes an entry pending as given, under a consumer that exists; returns how it was pending before.
    pub(in crate::broker) fn assign(&mut self, id: StreamId, pending: Pending) -> Option<Pending> {
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.insert(id);
        }
        let owner = pending.consumer.clone();
        let previous = self.pending.insert(id, pending);
        if let Some(previous) = previous.as_ref().filter(|previous| previous.consumer != owner) {
            self.disown(&previous.consumer, id);
        }
        previous
    }

    /// An entry is pending no more; returns how it was.
    pub(in crate::broker) fn release(&mut self, id: StreamId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.disown(&pending.consumer, id);
        Some(pending)
    }

    /// Removes a consumer and whatever is pending under it; returns how much that was.
    pub(in crate::broker) fn expel(&mut self, name: &[u8]) -> Option<u64> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len() as u64)
    }

    fn disown(&mut self, name: &[u8], id: StreamId) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.pending.remove(&id);
        }
    }
}
