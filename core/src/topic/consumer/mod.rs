//! Consuming: one subscription reads every broker's streams, holds at most its credit, and settles what it held.
//!
//! This file is the face towards the engine. The parts:
//! [`reader`] is one subscription's work on one broker, from registration to reading; [`credit`] deals the free credit
//! to readers; [`settle`] carries verdicts to brokers; [`bucket`] moves what waited for its time; [`claim`] takes over what others left pending; [`trim`] removes what all have done with; [`stop`] ends a
//! subscription without leaving anything behind.

#![allow(clippy::result_large_err, reason = "a refusal gives the argument back; it is rare, and costs one move")]

#[cfg(any(test, feature = "mutants"))]
mod audit;
mod bucket;
mod claim;
mod credit;
mod reader;
mod register;
mod settle;
mod stop;
mod trim;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use reader::{Reader, is_retry_stream, partition_of};

use crate::command::Command;
use crate::effect::{Client, Cx, Effect, Route, Timer};
use crate::id::{BrokerId, DeliveryId, Slab, SubId, Table};
use crate::mutant::Mutant;
use crate::op::{Reject, Rejected, Stale, Sub, Verdict};
use crate::output::{Delivery, Event};
use crate::reply::{Entries, Reply, StreamId};
use crate::rng::{Purpose, Rng, Seed};
use crate::time::Mono;
use crate::timers::TimerSlot;
use crate::topic::partitions::Count;
use crate::topic::registry::Registry;

/// What a consumer asked for, so that an answer finds its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ensure,
    Rejoin,
    /// How many partitions the topic has by now.
    Meta,
    Read,
    Tail,
    Watch,
    Ack,
    Renew,
    Survey(u16),
    Type(u16),
    Trim(u16),
    Claim,
    Retry,
    Due,
    Move(u16),
    Dead,
    Release,
    Reap,
    Kill,
    Leave,
    /// Of putting the data set's name back.
    Name,
}

/// All subscriptions, and every message in hand.
#[derive(Debug)]
pub(crate) struct Consumers {
    subs: Slab<SubId, Consumer>,
    hand: Slab<DeliveryId, Held>,
    /// Brokers in contact, for subscriptions that come later.
    brokers: Table<BrokerId, Contact>,
    /// Subscriptions that may have something to send.
    dirty: Vec<SubId>,
    jitter: Rng,
    /// `service.incarnation`: the part of a consumer's name that no other process has.
    name: Arc<str>,
    subscriptions: u64,
    stopping: bool,
}

/// What a subscription needs to know about a broker.
#[derive(Clone, Debug)]
pub(crate) struct Contact {
    pub(crate) store: Arc<str>,
    pub(crate) at: crate::config::Endpoint,
    /// The server process; empty if it does not say.
    pub(crate) run: Arc<str>,
    /// Server time less local monotonic time.
    pub(crate) clock_offset_ms: i64,
}

/// One subscription.
#[derive(Debug)]
struct Consumer {
    id: SubId,
    spec: Sub,
    registry: Registry,
    /// What is known of the topic's number of partitions.
    count: Count,
    /// When it was made: where a group that starts now starts.
    since: Mono,
    /// Its name in the group: never reused, never shared.
    name: Arc<str>,
    readers: Vec<Reader>,
    by_broker: Table<BrokerId, u32>,
    /// Entries in the application's hands.
    held: u32,
    /// Entries that reads and claims under way may bring.
    reserved: u32,
    /// Entries that nobody has in hand and that could not be put away yet, because memory is full there.
    stalled: u32,
    /// Entries in hand that have been delivered twice before without being settled.
    suspects: u32,
    /// Where dealing starts next time, so that scarce credit goes round.
    deal_from: usize,
    /// Running handlers in the order they started.
    running: VecDeque<(Mono, DeliveryId)>,
    agenda: BTreeSet<(Mono, Task)>,
    stop: Option<stop::Stop>,
    timers: Timers,
    dirty: bool,
}

#[derive(Debug)]
struct Timers {
    renew: TimerSlot,
    claim: TimerSlot,
    handler: TimerSlot,
    agenda: TimerSlot,
    stop: TimerSlot,
}

/// What a subscription does at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// Something is due in the bucket of this stream.
    Move(u32, u16),
    /// What is due in any bucket is asked for.
    Due(u32),
    /// Retries that were refused are tried again.
    Again(u32),
    /// A reader tries again after a refusal.
    Resume(u32),
    /// Dead letters that were refused are tried again.
    Bury(u32),
    /// A lost reader connection may have taken entries until now.
    Recover(u32),
    /// Keys of another type are looked at again.
    Recheck(u32),
    /// What is done with is removed.
    Trim(u32),
}

/// A message in the application's hands.
#[derive(Debug)]
struct Held {
    sub: SubId,
    reader: u32,
    stream: u16,
    entry: StreamId,
    /// Of the entry.
    deliveries: u32,
    /// Of the message, to this group: those of earlier entries included.
    attempt: u32,
    /// What a copy of it takes.
    bytes: u32,
    suspect: bool,
    started: bool,
}

/// What an application may ask for at the shortest: a period of nothing would never let an input end.
const LEAST_PERIOD: Duration = Duration::from_millis(10);

impl Consumers {
    pub(crate) fn new(seed: Seed, name: Arc<str>) -> Self {
        Self {
            subs: Slab::new(),
            hand: Slab::new(),
            brokers: Table::default(),
            dirty: Vec::new(),
            jitter: Rng::new(seed, Purpose::Jitter),
            name,
            subscriptions: 0,
            stopping: false,
        }
    }

    pub(crate) fn subscribe(&mut self, spec: Sub, cx: &mut Cx<'_>) -> Result<SubId, Rejected<Sub>> {
        let why = if self.stopping {
            Some(Reject::Stopping)
        } else if spec.in_flight == 0 {
            Some(Reject::NoCredit)
        } else if !super::is_name(&spec.group) {
            Some(Reject::BadGroup)
        } else if self.subs.len() >= cx.config.limits.subscriptions as usize {
            Some(Reject::TooManySubscriptions)
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Rejected { why, given: spec });
        }
        let claim_idle = spec.claim_idle.max(LEAST_PERIOD);
        let claim_period = spec.claim_period.max(LEAST_PERIOD);
        let spec = Sub { claim_idle, claim_period, ..spec };
        let spec = if cx.mutant(Mutant::GroupPerProcess) {
            Sub { group: alloc::format!("{}.{}", spec.group, self.name).into(), ..spec }
        } else {
            spec
        };
        self.subscriptions += 1;
        let name = alloc::format!("{}.{}", self.name, self.subscriptions).into();
        let id = self.subs.insert_with(|id| Consumer::new(id, spec, name, cx));
        let known: Vec<(BrokerId, Contact)> = self.brokers.iter().map(|(id, contact)| (id, contact.clone())).collect();
        let Some(consumer) = self.subs.get_mut(id) else { return Ok(id) };
        for (broker, contact) in known {
            consumer.on_broker_ready(broker, &contact, &self.hand, cx);
        }
        let (renew, claim) = (consumer.spec.claim_idle / 3, consumer.spec.claim_period);
        cx.timers.arm(consumer.timers.renew, cx.now.mono + renew);
        let claim = self.jittered(claim);
        if let Some(consumer) = self.subs.get(id) {
            cx.timers.arm(consumer.timers.claim, cx.now.mono + claim);
        }
        Ok(id)
    }

    /// A handler has started: its time runs.
    pub(crate) fn started(&mut self, delivery: DeliveryId, cx: &mut Cx<'_>) -> Result<(), Stale> {
        let held = self.hand.get_mut(delivery).ok_or(Stale)?;
        let consumer = self.subs.get_mut(held.sub).ok_or(Stale)?;
        if !core::mem::replace(&mut held.started, true) {
            let until = cx.now.mono + consumer.spec.handler_timeout;
            if consumer.running.is_empty() {
                cx.timers.arm(consumer.timers.handler, until);
            }
            consumer.running.push_back((until, delivery));
            // Settled ones leave here, not only when their time is over.
            while consumer.running.front().is_some_and(|(_, first)| !self.hand.contains(*first)) {
                consumer.running.pop_front();
            }
            if consumer.running.len() > 2 * consumer.held as usize + 64 {
                let hand = &self.hand;
                consumer.running.retain(|(_, delivery)| hand.contains(*delivery));
            }
        }
        Ok(())
    }

    /// Whatever is in hand has reached a handler, as far as anybody knows.
    pub(crate) fn all_started(&mut self, sub: SubId) {
        for (_, held) in self.hand.iter_mut().filter(|(_, held)| held.sub == sub) {
            held.started = true;
        }
    }

    pub(crate) fn settle(
        &mut self,
        id: DeliveryId,
        verdict: Verdict,
        tell: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), Stale> {
        let held = self.hand.remove(id).ok_or(Stale)?;
        let consumer = self.subs.get_mut(held.sub).ok_or(Stale)?;
        consumer.settle(id, &held, verdict, tell, cx);
        self.mark(held.sub);
        Ok(())
    }

    // ---- what brokers do ----

    pub(crate) fn on_broker_ready(&mut self, broker: BrokerId, contact: Contact, cx: &mut Cx<'_>) {
        for (_, consumer) in self.subs.iter_mut() {
            consumer.on_broker_ready(broker, &contact, &self.hand, cx);
        }
        self.brokers.insert(broker, contact);
        self.mark_all();
    }

    pub(crate) fn on_broker_unready(&mut self, broker: BrokerId) {
        self.brokers.remove(broker);
        for (_, consumer) in self.subs.iter_mut() {
            if let Some(reader) = consumer.reader_mut(broker) {
                reader.on_broker_unready();
            }
        }
        self.mark_all();
    }

    pub(crate) fn forget(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        self.brokers.remove(broker);
        for (_, consumer) in self.subs.iter_mut() {
            consumer.detach(broker, cx);
        }
        self.mark_all();
    }

    /// Whether no subscription knows of anything left on a broker: the last read found nothing, nothing is in hand, no
    /// retry is to come.
    pub(crate) fn is_drained(&self, broker: BrokerId) -> bool {
        self.subs.iter().all(|(_, consumer)| consumer.is_drained(broker))
    }

    pub(crate) fn on_reader_ready(&mut self, sub: SubId, broker: BrokerId) {
        if let Some(reader) = self.subs.get_mut(sub).and_then(|consumer| consumer.reader_mut(broker)) {
            reader.lane = true;
            self.mark(sub);
        }
    }

    pub(crate) fn on_reader_lost(&mut self, sub: SubId, broker: BrokerId, client: Option<Client>) {
        if let Some(reader) = self.subs.get_mut(sub).and_then(|consumer| consumer.reader_mut(broker)) {
            reader.on_lane_lost(client);
            self.mark(sub);
        }
    }

    pub(crate) fn on_answer(&mut self, sub: SubId, broker: BrokerId, answer: Answer, reply: Reply, cx: &mut Cx<'_>) {
        let Some(consumer) = self.subs.get_mut(sub) else { return };
        let Some(at) = consumer.by_broker.get(broker).copied() else { return };
        let hand = &mut self.hand;
        match answer {
            Answer::Ensure => consumer.on_ensured(at, &reply, cx),
            // The registration behind it makes what it could not.
            Answer::Rejoin => {}
            Answer::Meta => consumer.on_meta(at, &reply, cx),
            Answer::Read => consumer.on_read(at, &reply, hand, cx),
            Answer::Tail => consumer.on_tail(at, &reply, cx),
            Answer::Watch => consumer.on_watched(at, &reply, cx),
            Answer::Ack => consumer.on_acked(at, &reply, cx),
            Answer::Renew => consumer.on_renewed(at, &reply, cx),
            Answer::Survey(stream) => consumer.on_survey(at, stream, &reply, hand, cx),
            Answer::Type(stream) => consumer.on_type(at, stream, &reply, cx),
            Answer::Trim(stream) => consumer.on_trimmed(at, stream, &reply, cx),
            Answer::Claim => consumer.on_claimed(at, &reply, hand, cx),
            Answer::Retry => consumer.on_retried(at, &reply, cx),
            Answer::Due => consumer.on_due(at, &reply, cx),
            Answer::Move(stream) => consumer.on_moved(at, stream, &reply, cx),
            Answer::Dead => consumer.on_dead(at, &reply, cx),
            Answer::Release => consumer.on_released(at, &reply, cx),
            Answer::Kill => consumer.on_killed(at, matches!(reply, Reply::Int(_)), cx),
            Answer::Leave => consumer.on_left(at, cx),
            Answer::Reap | Answer::Name => {}
        }
        self.mark(sub);
    }

    pub(crate) fn on_orphan(&mut self, sub: SubId, broker: BrokerId, answer: Answer, cx: &mut Cx<'_>) {
        let Some(consumer) = self.subs.get_mut(sub) else { return };
        let Some(at) = consumer.by_broker.get(broker).copied() else { return };
        consumer.on_orphan(at, answer, cx);
        self.mark(sub);
    }

    // ---- timers ----

    pub(crate) fn on_renew_timer(&mut self, sub: SubId, cx: &mut Cx<'_>) {
        let Some(consumer) = self.subs.get_mut(sub) else { return };
        consumer.renew(&self.hand, cx);
        let period =
            if cx.mutant(Mutant::RenewSpins) { Duration::from_millis(1) } else { consumer.spec.claim_idle / 3 };
        cx.timers.arm(consumer.timers.renew, cx.now.mono + period);
    }

    pub(crate) fn on_claim_timer(&mut self, sub: SubId, cx: &mut Cx<'_>) {
        let Some(consumer) = self.subs.get_mut(sub) else { return };
        consumer.survey(cx);
        let (slot, period) = (consumer.timers.claim, consumer.spec.claim_period);
        let next = self.jittered(period);
        cx.timers.arm(slot, cx.now.mono + next);
        self.mark(sub);
    }

    pub(crate) fn on_handler_timer(&mut self, sub: SubId, cx: &mut Cx<'_>) {
        let Some(consumer) = self.subs.get_mut(sub) else { return };
        while let Some((until, delivery)) = consumer.running.front().copied() {
            if !self.hand.contains(delivery) {
                consumer.running.pop_front();
            } else if until <= cx.now.mono {
                consumer.running.pop_front();
                cx.event(Event::Overdue { sub, delivery });
            } else {
                cx.timers.arm(consumer.timers.handler, until);
                return;
            }
        }
    }

    pub(crate) fn on_agenda_timer(&mut self, sub: SubId, cx: &mut Cx<'_>) {
        if let Some(consumer) = self.subs.get_mut(sub) {
            consumer.on_agenda(cx);
            self.mark(sub);
        }
    }

    /// Decides acknowledgements, claims and reads, once per burst.
    pub(crate) fn flush(&mut self, cx: &mut Cx<'_>) {
        while let Some(sub) = self.dirty.pop() {
            if let Some(consumer) = self.subs.get_mut(sub) {
                consumer.dirty = false;
                consumer.unite(&mut self.hand);
                consumer.flush(&self.hand, cx);
            }
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    // ---- inside ----

    fn mark(&mut self, sub: SubId) {
        if let Some(consumer) = self.subs.get_mut(sub)
            && !core::mem::replace(&mut consumer.dirty, true)
        {
            self.dirty.push(sub);
        }
    }

    fn mark_all(&mut self) {
        for (sub, consumer) in self.subs.iter_mut() {
            if !core::mem::replace(&mut consumer.dirty, true) {
                self.dirty.push(sub);
            }
        }
    }

    /// A period ± 20 %, so that consumers started together do not ask together.
    fn jittered(&mut self, period: Duration) -> Duration {
        let us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.jitter.between(us - us / 5, us.saturating_add(us / 5)))
    }
}

impl Consumer {
    fn new(id: SubId, spec: Sub, name: Arc<str>, cx: &mut Cx<'_>) -> Self {
        let timers = Timers {
            renew: cx.timers.register(Timer::Renew(id)),
            claim: cx.timers.register(Timer::Claim(id)),
            handler: cx.timers.register(Timer::Handler(id)),
            agenda: cx.timers.register(Timer::Agenda(id)),
            stop: cx.timers.register(Timer::Stop(id)),
        };
        Self {
            id,
            registry: Registry::default(),
            count: spec.topic.stated().map(Count::stated).unwrap_or_default(),
            spec,
            since: cx.now.mono,
            name,
            readers: Vec::new(),
            by_broker: Table::default(),
            held: 0,
            reserved: 0,
            stalled: 0,
            suspects: 0,
            deal_from: 0,
            running: VecDeque::new(),
            agenda: BTreeSet::new(),
            stop: None,
            timers,
            dirty: false,
        }
    }

    fn reader(&self, broker: BrokerId) -> Option<&Reader> {
        self.readers.get(*self.by_broker.get(broker)? as usize)
    }

    fn reader_mut(&mut self, broker: BrokerId) -> Option<&mut Reader> {
        self.readers.get_mut(*self.by_broker.get(broker)? as usize)
    }

    fn is_drained(&self, broker: BrokerId) -> bool {
        let Some(at) = self.by_broker.get(broker).copied() else { return true };
        self.readers.get(at as usize).is_none_or(Reader::is_drained)
    }

    /// Credit that nothing holds or may bring.
    fn free(&self) -> u32 {
        let taken = self.held.saturating_add(self.reserved).saturating_add(self.stalled);
        self.spec.in_flight.saturating_sub(taken)
    }

    /// Sends on the broker's command lane.
    fn command(&self, at: u32, command: Command, answer: Answer, cx: &mut Cx<'_>) {
        if let Some(broker) = self.readers.get(at as usize).and_then(|reader| reader.broker) {
            cx.effect(Effect::Command { broker, command, route: Route::Consumer(self.id, answer) });
        }
    }

    /// Sends on this subscription's own connection.
    fn read_command(&self, at: u32, command: Command, answer: Answer, cx: &mut Cx<'_>) {
        if let Some(broker) = self.readers.get(at as usize).and_then(|reader| reader.broker) {
            let route = Route::Consumer(self.id, answer);
            cx.effect(Effect::ReaderCommand { sub: self.id, broker, command, route });
        }
    }

    /// Hands a batch to the application: entries of the streams the batch names, or all of those a claim was for.
    fn deliver(
        &mut self,
        at: u32,
        batch: Entries,
        claimed: Option<&claim::Job>,
        hand: &mut Slab<DeliveryId, Held>,
        cx: &mut Cx<'_>,
    ) {
        let batch = Arc::new(batch);
        let stream = claimed.map(claim::Job::stream);
        // What is claimed back from one's own name keeps its count; from others it has just been raised.
        let suspect_from = claim::SUSPECT_FROM + u32::from(claimed.is_none_or(|job| !job.is_from(&self.name)));
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(broker) = reader.broker else { return };
        let streams = reader.streams_of(&batch);
        reader.delivered += batch.len() as u64;
        for index in 0..batch.len() {
            let named = || streams.get(batch.stream(index)).copied().flatten();
            let Some(stream) = stream.or_else(named) else { continue };
            let entry = batch.id(index);
            // A first read does not say; the claim script does.
            let deliveries = batch.deliveries(index).max(1);
            reader.note_seen(stream, entry);
            if self.stop.is_some() {
                reader.releases.push(stream, entry, false);
                continue;
            }
            let suspect = deliveries >= suspect_from;
            self.suspects += u32::from(suspect);
            self.held += 1;
            reader.held += 1;
            let retry = is_retry_stream(stream);
            let before = if retry { delivered_before(&batch, index) } else { 0 };
            let attempt = deliveries.saturating_add(before);
            let bytes = batch.size(index);
            let held =
                Held { sub: self.id, reader: at, stream, entry, deliveries, attempt, bytes, suspect, started: false };
            let delivery = hand.insert(held);
            if cx.mutant(Mutant::AckAtDelivery) {
                reader.acks.push(stream, entry);
            }
            cx.stats.delivered += 1;
            let index = (index + usize::from(cx.mutant(Mutant::BatchIndex))) % batch.len();
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let partition = partition_of(stream);
            let batch = batch.clone();
            let sub = self.id;
            cx.event(Event::Delivery(Delivery {
                delivery,
                sub,
                broker,
                partition,
                retry,
                deliveries,
                attempt,
                batch,
                index,
            }));
        }
    }
}

/// How often a message had been delivered before its retry was put into the retry stream.
fn delivered_before(batch: &Entries, index: usize) -> u32 {
    let attempt = batch.field(index, b"attempt").and_then(|n| core::str::from_utf8(n).ok()?.parse::<u32>().ok());
    attempt.map_or(0, |attempt| attempt.saturating_sub(1))
}
