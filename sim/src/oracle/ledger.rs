//! The ledger: what is true of messages, streams and services, kept from the observations alone.

use std::collections::BTreeMap;

use bytes::Bytes;
use flota_core::id::BrokerId;
use flota_core::op::OpError;
use flota_core::output::BrokerChange;
use flota_core::reply::StreamId;

use super::Hands;
use crate::broker::{Change, Why};
use crate::plan::Plan;
use crate::seen::{Host, Item, Phase, Place, Seen, What};
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

/// A stream on a broker.
#[derive(Clone, Debug, Default)]
pub struct StreamState {
    /// The topic and partition, for a stream of messages; none for dead letters and others.
    pub partition: Option<(String, u32)>,
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

    /// A group of a partition that has something undelivered or pending.
    #[must_use]
    pub fn unfinished(&self) -> Option<(u32, String)> {
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
        match change {
            Change::Added { key, id, fields } => {
                let item = world::item_in(fields);
                let stream = self.stream(broker, key);
                stream.entries.insert(*id, EntryState { item, at });
                let dead = stream.partition.is_none();
                if let Some(state) = item.and_then(|item| self.items.get_mut(item.0 as usize))
                    && !recovering
                {
                    if dead {
                        state.dead += 1;
                    } else {
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
        self.streams.entry((broker, key.clone())).or_insert_with(|| StreamState {
            partition: std::str::from_utf8(key)
                .ok()
                .and_then(flota_core::key::parse_partition)
                .map(|(topic, number)| (topic.to_string(), number)),
            ..StreamState::default()
        })
    }
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
