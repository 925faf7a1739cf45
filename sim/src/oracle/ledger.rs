//! The ledger: what is true of messages, streams and services, kept from the observations alone.

use std::collections::BTreeMap;

use bytes::Bytes;
use flota_core::id::BrokerId;
use flota_core::op::OpError;
use flota_core::output::BrokerChange;
use flota_core::reply::StreamId;
use flota_core::script::Script;

use super::Hands;
use super::hands::Spot;
use crate::broker::{Change, Why, msgpack};
use crate::plan::Plan;
use crate::seen::{Host, Item, Phase, Place, Seen, What, Word};
use crate::world;

/// What is known so far.
#[derive(Debug)]
pub struct Ledger {
    /// The part of the run.
    pub phase: Phase,
    /// By message.
    pub items: Vec<ItemState>,
    /// By broker and key.
    pub streams: BTreeMap<(u32, Bytes), StreamState>,
    /// By service.
    pub services: Vec<ServiceState>,
    /// By broker: it is being rebuilt from what its disk kept; changes are of the past.
    pub recovering: Vec<bool>,
    /// What waits in buckets until it is due: by broker and hash, by item.
    pub waiting: BTreeMap<(u32, Bytes), BTreeMap<Bytes, WaitingState>>,
    /// Who consumes, and what is in whose hand.
    pub hands: Hands,
}

/// A message.
#[derive(Clone, Debug, Default)]
pub struct ItemState {
    /// Whose it is to send.
    pub service: u32,
    /// When it was handed over, by which life of its service; none if it was refused or never sent.
    pub accepted: Option<(u64, u32)>,
    /// When it was resolved, and how.
    pub done: Option<(u64, Result<Place, OpError>)>,
    /// The process that sent it died before that.
    pub orphaned: bool,
    /// Every time it was stored: broker, entry, when. Recovery does not count.
    pub stores: Vec<(u32, StreamId, u64)>,
    /// Acknowledged by each group so often.
    pub acks: BTreeMap<Bytes, u32>,
    /// Copies in dead letters so far.
    pub dead: u32,
    /// A broker that held it forgot it, or was told to drop it.
    pub forgotten: bool,
}

/// A message in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingState {
    /// Which message it is.
    pub item: Option<Item>,
    /// What is moved when it is due: names and values in turn.
    pub fields: Vec<Bytes>,
}

/// A stream on a broker.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    /// The topic and partition, for a stream of messages; none for dead letters and others.
    pub partition: Option<(String, u32)>,
    /// Whose retries it holds, if it is a retry stream of that partition.
    pub retries_of: Option<String>,
    /// Its entries.
    pub entries: BTreeMap<StreamId, EntryState>,
    /// Its groups.
    pub groups: BTreeMap<Bytes, GroupState>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryState {
    /// Which message it carries.
    pub item: Option<Item>,
    /// When it was added.
    pub at: u64,
    /// The entry it was in the beginning, if it is a retry.
    pub origin: Option<StreamId>,
    /// Which delivery of the message its first one is.
    pub attempt: u32,
}

/// A group of a stream.
#[derive(Clone, Debug)]
pub struct GroupState {
    /// The last entry it was given.
    pub last: StreamId,
    /// What is pending.
    pub pending: BTreeMap<StreamId, PendingState>,
}

/// A pending entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingState {
    /// Whose it is.
    pub consumer: Bytes,
    /// How often it was delivered.
    pub deliveries: u64,
    /// Since when it is that consumer's, at this count.
    pub since: u64,
    /// The body was removed meanwhile.
    pub bodyless: bool,
}

/// A service.
#[derive(Clone, Debug, Default)]
pub struct ServiceState {
    /// Its process's number; none while none runs.
    pub life: Option<u32>,
    /// It is stopping, or has stopped.
    pub stopping: bool,
    /// It stands still.
    pub paused: bool,
    /// Its fleet as its events tell it.
    pub fleet: BTreeMap<BrokerId, Member>,
}

/// A member of a service's fleet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its place in the plan.
    pub broker: Option<u32>,
    /// It can be used.
    pub ready: bool,
    /// It has left.
    pub leaving: bool,
    /// Its memory is full: no sends there.
    pub full: bool,
}

impl Ledger {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            phase: Phase::WarmUp,
            items: plan.work.iter().map(|work| ItemState { service: work.service, ..ItemState::default() }).collect(),
            streams: BTreeMap::new(),
            services: vec![ServiceState::default(); plan.services.len()],
            recovering: vec![false; plan.brokers.len()],
            waiting: BTreeMap::new(),
            hands: Hands::new(plan),
        }
    }

    /// An accepted message of a living process that is not resolved.
    #[must_use]
    pub fn unresolved(&self) -> Option<(Item, u32)> {
        let open = |state: &ItemState| state.accepted.is_some() && state.done.is_none() && !state.orphaned;
        let at = self.items.iter().position(open)?;
        Some((Item(at as u32), self.items.get(at)?.service))
    }

    /// The entry that another was in the beginning, in its partition.
    #[must_use]
    pub fn origin(&self, spot: &Spot) -> Spot {
        let entry = self.streams.get(&(spot.broker, spot.key.clone())).and_then(|stream| stream.entries.get(&spot.id));
        let partition = std::str::from_utf8(&spot.key).ok().and_then(flota_core::key::parse_retry_stream);
        match (entry.and_then(|entry| entry.origin), partition) {
            (Some(id), Some((topic, number, _))) => {
                let key = flota_core::key::partition(topic, number);
                Spot { broker: spot.broker, key: Bytes::copy_from_slice(key.as_str().as_bytes()), id }
            }
            _ => spot.clone(),
        }
    }

    /// A group of a partition that has something undelivered, pending, or waiting for a retry.
    #[must_use]
    pub fn unfinished(&self) -> Option<(u32, String)> {
        let mut waiting = self.waiting.iter().filter(|(_, bucket)| !bucket.is_empty());
        if let Some(((broker, key), bucket)) = waiting.next() {
            let (key, count) = (String::from_utf8_lossy(key), bucket.len());
            return Some((*broker, format!("{count} messages still wait in {key}")));
        }
        self.streams.iter().find_map(|((broker, key), stream)| {
            stream.partition.as_ref()?;
            stream.groups.iter().find_map(|(group, state)| {
                let name = String::from_utf8_lossy(group);
                let key = String::from_utf8_lossy(key);
                if let Some((id, pending)) = state.pending.iter().next() {
                    let whose = String::from_utf8_lossy(&pending.consumer);
                    let text = format!("entry {id} of {key} is still pending in group {name} under {whose}");
                    return Some((*broker, text));
                }
                let next = stream.entries.range(state.last..).find(|(id, _)| **id > state.last)?;
                Some((*broker, format!("entry {} of {key} is still undelivered in group {name}", next.0)))
            })
        })
    }

    pub(crate) fn see(&mut self, seen: &Seen) {
        self.hands.see(seen);
        match (seen.host, &seen.what) {
            (Host::World, What::Phase(phase)) => self.phase = *phase,
            (Host::Service(service), what) => self.see_service(service, seen.at, what),
            (Host::Broker(broker), what) => self.see_broker(broker, seen.at, what),
            (Host::World, _) => {}
        }
    }

    fn see_service(&mut self, service: u32, at: u64, what: &What) {
        match what {
            What::Submitted { item, accepted: Ok(()) } => {
                let life = self.service(service).and_then(|state| state.life).unwrap_or(0);
                if let Some(state) = self.items.get_mut(item.0 as usize) {
                    state.accepted = Some((at, life));
                }
            }
            What::Done { item, result } => {
                if let Some(state) = self.items.get_mut(item.0 as usize) {
                    state.done.get_or_insert((at, result.clone()));
                }
            }
            _ => {}
        }
        let Some(state) = self.services.get_mut(service as usize) else { return };
        match what {
            What::Born(life) => *state = ServiceState { life: Some(*life), ..ServiceState::default() },
            What::Died(_) | What::Stopped => {
                state.life = None;
                state.paused = false;
                state.fleet.clear();
                if matches!(what, What::Died(_)) {
                    self.orphan(service);
                }
            }
            What::Stopping { .. } => state.stopping = true,
            What::Paused => state.paused = true,
            What::Resumed => state.paused = false,
            What::Fleet { id, address, change } => state.fleet_changed(*id, address, change, self.recovering.len()),
            _ => {}
        }
    }

    fn service(&self, service: u32) -> Option<&ServiceState> {
        self.services.get(service as usize)
    }

    /// What a dead process had not heard of is nobody's any more.
    fn orphan(&mut self, service: u32) {
        let lost =
            |state: &&mut ItemState| state.service == service && state.accepted.is_some() && state.done.is_none();
        self.items.iter_mut().filter(lost).for_each(|state| state.orphaned = true);
    }

    fn see_broker(&mut self, broker: u32, at: u64, what: &What) {
        match what {
            What::Forgot(_) => {
                if let Some(recovering) = self.recovering.get_mut(broker as usize) {
                    *recovering = true;
                }
            }
            What::Up(_) => {
                if let Some(recovering) = self.recovering.get_mut(broker as usize) {
                    *recovering = false;
                }
            }
            What::Changed(change) => self.change(broker, at, change),
            _ => {}
        }
    }

    fn change(&mut self, broker: u32, at: u64, change: &Change) {
        let recovering = self.recovering.get(broker as usize).copied().unwrap_or(false);
        // What was scheduled was stored when it was.
        let moves = self.hands.running(broker) == Some(Word::Script(Script::Move));
        match change {
            Change::Added { key, id, fields } => {
                let item = world::item_in(fields);
                let stream = self.stream(broker, key);
                let origin = field(fields, b"origin").and_then(|id| StreamId::parse(id));
                let attempt = number(fields, b"attempt").unwrap_or(1);
                stream.entries.insert(*id, EntryState { item, at, origin, attempt });
                let dead = stream.partition.is_none();
                let again = stream.retries_of.is_some();
                if let Some(state) = item.and_then(|item| self.items.get_mut(item.0 as usize))
                    && !recovering
                {
                    if dead {
                        state.dead += 1;
                    } else if !again && !moves {
                        state.stores.push((broker, *id, at));
                    }
                }
            }
            Change::Removed { key, id, why } => {
                let stream = self.stream(broker, key);
                stream.entries.remove(id);
                if *why == Why::Trimmed || *why == Why::Deleted {
                    for group in stream.groups.values_mut() {
                        if let Some(pending) = group.pending.get_mut(id) {
                            pending.bodyless = true;
                        }
                    }
                }
            }
            Change::Pending { key, group, id, consumer, deliveries, .. } => {
                let stream = self.stream(broker, key);
                let bodyless = !stream.entries.contains_key(id);
                let state = stream
                    .groups
                    .entry(group.clone())
                    .or_insert_with(|| GroupState { last: StreamId::MIN, pending: BTreeMap::new() });
                state.last = state.last.max(*id);
                let pending = PendingState { consumer: consumer.clone(), deliveries: *deliveries, since: at, bodyless };
                state.pending.insert(*id, pending);
            }
            Change::Acked { key, group, id, .. } => {
                let stream = self.stream(broker, key);
                if let Some(state) = stream.groups.get_mut(group) {
                    state.pending.remove(id);
                }
                let item = stream.entries.get(id).and_then(|entry| entry.item);
                if let Some(state) = item.and_then(|item| self.items.get_mut(item.0 as usize)) {
                    *state.acks.entry(group.clone()).or_default() += 1;
                }
            }
            Change::Dropped { key, group, id, .. } => {
                if let Some(state) = self.stream(broker, key).groups.get_mut(group) {
                    state.pending.remove(id);
                }
            }
            Change::Group { key, group, at: Some(last) } => {
                let stream = self.stream(broker, key);
                let state = stream
                    .groups
                    .entry(group.clone())
                    .or_insert_with(|| GroupState { last: *last, pending: BTreeMap::new() });
                state.last = *last;
            }
            Change::Group { key, group, at: None } => {
                self.stream(broker, key).groups.remove(group);
            }
            Change::ConsumerGone { key, group, consumer, .. } => {
                if let Some(state) = self.stream(broker, key).groups.get_mut(group) {
                    state.pending.retain(|_, pending| pending.consumer != *consumer);
                }
            }
            Change::Field { key, field, value } if is_bucket(key) => {
                let bucket = self.waiting.entry((broker, key.clone())).or_default();
                match value.as_ref().and_then(msgpack::texts) {
                    Some(fields) => {
                        let item = world::item_in(&fields);
                        if let Some(state) = item.and_then(|item| self.items.get_mut(item.0 as usize))
                            && is_scheduled(key)
                            && !recovering
                        {
                            state.stores.push((broker, StreamId::MIN, at));
                        }
                        bucket.insert(field.clone(), WaitingState { item, fields });
                    }
                    None => drop(bucket.remove(field)),
                }
            }
            Change::HashGone { key } if is_bucket(key) => {
                for waiting in self.waiting.remove(&(broker, key.clone())).into_iter().flat_map(BTreeMap::into_values) {
                    if let Some(state) = waiting.item.and_then(|item| self.items.get_mut(item.0 as usize)) {
                        state.forgotten = true;
                    }
                }
            }
            Change::Field { .. } | Change::HashGone { .. } => {}
            Change::StreamGone { key } => {
                if let Some(stream) = self.streams.remove(&(broker, key.clone())) {
                    for item in stream.entries.values().filter_map(|entry| entry.item) {
                        if let Some(state) = self.items.get_mut(item.0 as usize) {
                            state.forgotten = true;
                        }
                    }
                }
            }
        }
    }

    fn stream(&mut self, broker: u32, key: &Bytes) -> &mut StreamState {
        self.streams.entry((broker, key.clone())).or_insert_with(|| {
            let name = std::str::from_utf8(key).unwrap_or_default();
            let partition = flota_core::key::parse_partition(name);
            let retries = flota_core::key::parse_retry_stream(name);
            let of = partition.or(retries.map(|(topic, number, _)| (topic, number)));
            StreamState {
                partition: of.map(|(topic, number)| (topic.to_string(), number)),
                retries_of: retries.map(|(.., group)| group.to_string()),
                ..StreamState::default()
            }
        })
    }
}

/// The value of a field of an entry.
pub(super) fn field<'a>(fields: &'a [Bytes], name: &[u8]) -> Option<&'a Bytes> {
    fields.chunks_exact(2).find(|pair| pair.first().is_some_and(|key| key.as_ref() == name))?.get(1)
}

/// … as a number.
pub(super) fn number(fields: &[Bytes], name: &[u8]) -> Option<u32> {
    std::str::from_utf8(field(fields, name)?).ok()?.parse().ok()
}

/// Whether a hash holds scheduled messages.
pub(super) fn is_scheduled(key: &Bytes) -> bool {
    is_bucket(key) && key.starts_with(b"streaming:mq:delay:")
}

/// Whether a hash holds what waits in a bucket.
fn is_bucket(key: &Bytes) -> bool {
    let kinds: [&[u8]; 2] = [b"streaming:mq:retry:", b"streaming:mq:delay:"];
    key.ends_with(b":body") && kinds.iter().any(|kind| key.starts_with(kind))
}

impl ServiceState {
    fn fleet_changed(
        &mut self,
        id: BrokerId,
        address: &flota_core::config::Endpoint,
        change: &BrokerChange,
        brokers: usize,
    ) {
        let broker = world::broker_at(address, brokers);
        let member = self.fleet.entry(id).or_insert(Member { broker, ready: false, leaving: false, full: false });
        member.broker = broker;
        match change {
            BrokerChange::Announced => member.leaving = false,
            BrokerChange::Ready => (member.ready, member.full) = (true, false),
            BrokerChange::Unready(why) if why.reason == flota_core::output::UnreadyReason::Oom => member.full = true,
            BrokerChange::Unready(_) => member.ready = false,
            BrokerChange::Withdrawn | BrokerChange::Expired { .. } => member.leaving = true,
            BrokerChange::Restarted => {}
            BrokerChange::Forgotten => {
                self.fleet.remove(&id);
            }
        }
    }
}
