//! Sending: from an accepted operation to "stored", across brokers that come, go, fill up and die.
//!
//! An operation waits in one queue until the engine's flush finds it a broker. A broker that has not been told of the
//! topic yet is told first, and says how many partitions the topic has there: until then it is parked. What comes back unsent, or refused by a
//! broker that cannot take it now, waits before everything new, behind what came back earlier; what may have been stored
//! is placed again or reported, as its policy says.

#![allow(clippy::result_large_err, reason = "a refusal gives the argument back; it is rare, and costs one move")]

#[cfg(any(test, feature = "mutants"))]
mod audit;
mod registration;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use self::registration::{PARKED, Registration, Standing};
use super::partitions::Count;
use super::registry::Registry;
use super::{MessageId, TopicSpec, When, fnv1a};
use crate::command::{Add, Arg, By, Command, Eval, Extra};
use crate::config::{Endpoint, Limits};
use crate::effect::{Cx, Effect, Route, Timer};
use crate::id::{BrokerId, OpId, Slab, Table};
use crate::key::{self, Key};
use crate::mutant::Mutant;
use crate::op::{Call, NotSent, Op, OpError, Outcome, Policy, Refused, Reject, Rejected, Send, Stale, Stored};
use crate::output::Event;
use crate::reply::{ErrorClass, ErrorReply, Reply, StreamId};
use crate::rng::{Purpose, Rng, Seed};
use crate::script::Script;
use crate::time::{Mono, Wall};
use crate::timers::{TimerSlot, Timers};

/// Accepted operations, from submit to done.
#[derive(Debug)]
pub(crate) struct Producer {
    ops: Slab<OpId, Pending>,
    /// What must be placed again, in its old order; before `backlog`.
    again: VecDeque<OpId>,
    backlog: VecDeque<OpId>,
    /// How many of those in the two queues still wait; the others were cancelled or have given up.
    waiting: usize,
    waiting_bytes: u64,
    /// Deadlines of those that a flush found no broker for.
    deadlines: BTreeSet<(Mono, OpId)>,
    timer: TimerSlot,
    topics: Vec<Topic>,
    by_name: BTreeMap<Arc<str>, u32>,
    /// The topic of the last submit: most processes send to few topics.
    last: Option<(Arc<TopicSpec>, u32)>,
    brokers: Table<BrokerId, Contact>,
    registry: Registry,
    ids: Rng,
    stopping: bool,
}

#[derive(Debug)]
struct Topic {
    spec: Arc<TopicSpec>,
    /// What this process knows of the number of partitions: what the application states, or what a broker has heard of.
    count: Count,
    /// The partition streams of the broker that has most.
    keys: Vec<Key>,
}

/// What this process has told one broker since it was last contacted.
#[derive(Debug)]
struct Contact {
    at: Endpoint,
    registered: Vec<Registration>,
    next_partition: u32,
}

#[derive(Debug)]
enum Pending {
    Send(Sending),
    Call(BrokerId),
}

#[derive(Debug)]
struct Sending {
    topic: u32,
    /// Where it was sent last.
    broker: Option<BrokerId>,
    partition: u32,
    id: MessageId,
    body: Bytes,
    extra: Option<Arc<Extra>>,
    key_hash: Option<u64>,
    /// Not to be delivered before.
    due: Option<Due>,
    bytes: u64,
    policy: Policy,
    deadline: Mono,
    /// It was sent once and its answer never came: it may be stored already.
    ambiguous: Option<Endpoint>,
    /// What the last broker said that refused it for reasons of its own.
    refused: Option<Box<Refused>>,
    queued: bool,
}

/// When a message that is to wait is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// On this process's clock: however long the message waits for a broker, it waits that much less there.
    After(Mono),
    /// On its broker's.
    At(Wall),
}

impl Producer {
    pub(crate) fn new(seed: Seed, timers: &mut Timers<Timer>) -> Self {
        Self {
            ops: Slab::new(),
            again: VecDeque::new(),
            backlog: VecDeque::new(),
            waiting: 0,
            waiting_bytes: 0,
            deadlines: BTreeSet::new(),
            timer: timers.register(Timer::Backlog),
            topics: Vec::new(),
            by_name: BTreeMap::new(),
            last: None,
            brokers: Table::default(),
            registry: Registry::default(),
            ids: Rng::new(seed, Purpose::MessageIds),
            stopping: false,
        }
    }

    /// Accepts a send into the queue.
    pub(crate) fn submit_send(&mut self, send: Send, cx: &mut Cx<'_>) -> Result<OpId, Rejected<Op>> {
        if let Err(why) = self.admit(&send, &cx.config.limits) {
            return Err(Rejected { why, given: Op::Send(send) });
        }
        let Send { topic, message, policy, wait } = send;
        let bytes = message.len() as u64;
        let key_hash = message.key.as_deref().map(fnv1a);
        let id = message.id.unwrap_or_else(|| {
            let mut random = [0; 10];
            self.ids.fill(&mut random);
            MessageId::new(cx.now.wall, random)
        });
        let extra = (message.key.is_some() || !message.headers.is_empty()).then(|| {
            let headers =
                message.headers.into_iter().map(|(name, value)| (format!("h:{name}").into(), value)).collect();
            Arc::new(Extra { key: message.key, headers })
        });
        let cut = usize::from(cx.mutant(Mutant::BodyShort)).min(message.body.len());
        let sending = Sending {
            topic: self.topic_index(topic),
            broker: None,
            partition: 0,
            id,
            body: message.body.slice(..message.body.len() - cut),
            extra,
            key_hash,
            due: match message.when {
                When::Now => None,
                When::After(delay) => Some(Due::After(cx.now.mono + delay)),
                When::At(wall) => Some(Due::At(wall)),
            },
            bytes,
            policy,
            deadline: cx.now.mono + wait.unwrap_or(cx.config.timing.send_init),
            ambiguous: None,
            refused: None,
            queued: true,
        };
        let op = self.ops.insert(Pending::Send(sending));
        self.waiting += 1;
        self.waiting_bytes += bytes;
        self.drop_finished();
        self.backlog.push_back(op);
        cx.stats.ops += 1;
        Ok(op)
    }

    /// Accepts a call and sends it.
    pub(crate) fn submit_call(&mut self, call: Call, cx: &mut Cx<'_>) -> Result<OpId, Rejected<Op>> {
        if self.stopping {
            return Err(Rejected { why: Reject::Stopping, given: Op::Call(call) });
        }
        let op = self.ops.insert(Pending::Call(call.broker));
        cx.stats.ops += 1;
        cx.effect(Effect::Command { broker: call.broker, command: call.command, route: Route::Op(op) });
        Ok(op)
    }

    /// Resolves an operation at once: as not sent if it still waits, else as ambiguous; its answer is ignored.
    pub(crate) fn cancel(&mut self, op: OpId, cx: &mut Cx<'_>) -> Result<(), Stale> {
        let error = match self.ops.get(op).ok_or(Stale)? {
            Pending::Send(Sending { queued: true, ambiguous: None, .. }) => OpError::NotSent(NotSent::Cancelled),
            Pending::Send(Sending { ambiguous: Some(at), .. }) => OpError::Ambiguous(at.clone()),
            Pending::Send(Sending { broker: Some(broker), .. }) | Pending::Call(broker) => {
                self.at(*broker).map_or(OpError::NotSent(NotSent::Cancelled), OpError::Ambiguous)
            }
            Pending::Send(Sending { broker: None, .. }) => OpError::NotSent(NotSent::Cancelled),
        };
        let error = if cx.mutant(Mutant::CancelNotSent) { OpError::NotSent(NotSent::Cancelled) } else { error };
        if cx.mutant(Mutant::CancelKeepsOp) {
            cx.event(Event::Done { op, result: Err(error) });
            return Ok(());
        }
        self.finish(op, Err(error), cx);
        Ok(())
    }

    /// The next operation that wants a broker, with the hash of its key.
    pub(crate) fn next_waiting(&mut self) -> Option<(OpId, Option<u64>)> {
        loop {
            let op = *self.again.front().or_else(|| self.backlog.front())?;
            match self.ops.get(op) {
                Some(Pending::Send(sending)) => return Some((op, sending.key_hash)),
                // Cancelled while it waited.
                _ => self.pop_waiting(),
            }
        }
    }

    /// Sends the operation that [`next_waiting`](Self::next_waiting) named, or parks it until the broker has said how many
    /// partitions its topic has.
    pub(crate) fn place(&mut self, op: OpId, broker: BrokerId, cx: &mut Cx<'_>) {
        self.pop_waiting();
        let Some(Pending::Send(sending)) = self.ops.get_mut(op) else { return };
        if !cx.mutant(Mutant::DeadlineSurvivesPlacement) {
            self.deadlines.remove(&(sending.deadline, op));
        }
        let topic = sending.topic;
        self.register(topic, broker, cx);
        let Some(registration) = self.registration(topic, broker) else { return self.place_again(op, cx) };
        match registration.standing {
            Some(standing) => self.send_or_refuse(op, broker, standing, cx),
            None => {
                registration.parked.push(op);
                if registration.parked.len().is_multiple_of(PARKED) {
                    // The rest is for others, until it has answered.
                    cx.effect(Effect::Room(broker, false));
                }
            }
        }
    }

    fn send_or_refuse(&mut self, op: OpId, broker: BrokerId, standing: Standing, cx: &mut Cx<'_>) {
        match standing {
            Standing::Partitions(count) => self.send(op, broker, count, cx),
            Standing::Differs(theirs) => {
                let Some(Pending::Send(sending)) = self.ops.get(op) else { return };
                let (topic, doubt) = (sending.topic, sending.ambiguous.clone());
                let differ = self.differ(topic, broker, theirs).map(|differ| OpError::Partitions(differ.into()));
                let error = doubt.map(OpError::Ambiguous).or(differ);
                self.finish(op, Err(error.unwrap_or(OpError::NotSent(NotSent::NotReady))), cx);
            }
        }
    }

    fn send(&mut self, op: OpId, broker: BrokerId, count: u32, cx: &mut Cx<'_>) {
        let Some(Pending::Send(sending)) = self.ops.get_mut(op) else { return };
        sending.queued = false;
        sending.broker = Some(broker);
        self.waiting -= 1;
        self.waiting_bytes = self.waiting_bytes.saturating_sub(sending.bytes);
        let Some(topic) = self.topics.get(sending.topic as usize) else { return };
        let count = u64::from(count).clamp(1, topic.keys.len() as u64);
        sending.partition = match (sending.key_hash, self.brokers.get_mut(broker)) {
            (Some(hash), _) => u32::try_from(hash % count).unwrap_or(0),
            (None, Some(contact)) => {
                contact.next_partition = contact.next_partition.wrapping_add(1);
                u32::try_from(u64::from(contact.next_partition) % count).unwrap_or(0)
            }
            (None, None) => 0,
        };
        let Some(key) = topic.keys.get(sending.partition as usize).cloned() else { return };
        let command = match sending.due {
            Some(due) if !cx.mutant(Mutant::ScheduledAtOnce) => {
                Command::Eval(schedule(topic.spec.name(), sending, due, cx.now.mono).into(), By::Sha1)
            }
            _ => Command::Add(Add { key, body: sending.body.clone(), id: sending.id.0, extra: sending.extra.clone() }),
        };
        cx.effect(Effect::Command { broker, command, route: Route::Op(op) });
    }

    /// Nobody can take the waiting operations: their deadlines count.
    pub(crate) fn wait(&mut self, cx: &mut Cx<'_>) {
        for queue in [&self.again, &self.backlog] {
            // Queues grow at their ends, so what lies before a known one is known.
            for op in queue.iter().rev() {
                if let Some(Pending::Send(sending)) = self.ops.get(*op)
                    && !self.deadlines.insert((sending.deadline, *op))
                {
                    break;
                }
            }
        }
        if let Some((at, _)) = self.deadlines.first()
            && !cx.mutant(Mutant::DeadlineUnarmed)
        {
            cx.timers.arm(self.timer, *at);
        }
    }

    pub(crate) fn on_deadline(&mut self, cx: &mut Cx<'_>) {
        let early = Duration::from_secs(u64::from(cx.mutant(Mutant::DeadlineEarly)));
        while let Some((at, op)) = self.deadlines.first().copied() {
            if at > cx.now.mono + early {
                if !cx.mutant(Mutant::DeadlineUnarmed) {
                    cx.timers.arm(self.timer, at);
                }
                return;
            }
            // Whatever becomes of the operation: this comes to an end.
            self.deadlines.pop_first();
            self.give_up(op, NotSent::NoBroker, cx);
        }
        cx.timers.disarm(self.timer);
    }

    /// The answer to a send or a call. Whether a message was stored.
    pub(crate) fn on_reply(&mut self, op: OpId, broker: BrokerId, reply: Reply, cx: &mut Cx<'_>) -> bool {
        let result = match (self.ops.get(op), reply) {
            (None, _) => return false,
            (Some(Pending::Send(_)), Reply::Error(error)) => {
                self.on_refused(op, broker, error, cx);
                return false;
            }
            (Some(Pending::Call(_)), Reply::Error(error)) => Err(OpError::Refused(self.refused(broker, error))),
            (Some(Pending::Call(_)), reply) => Ok(Outcome::Reply(reply)),
            (Some(Pending::Send(Sending { due: Some(_), .. })), reply) if is_oom(&reply) => {
                self.on_refused(op, broker, ErrorReply::new(b"OOM memory is full"), cx);
                return false;
            }
            (Some(Pending::Send(sending)), reply) => match placed(&reply) {
                Some((entry, due)) => {
                    cx.stats.stored += 1;
                    let (id, partition) = (sending.id, sending.partition);
                    Ok(Outcome::Stored(Stored { id, broker, partition, entry, due }))
                }
                None => Err(match &sending.ambiguous {
                    Some(at) => OpError::Ambiguous(at.clone()),
                    None => OpError::Unanswered(self.at(broker).unwrap_or_else(nowhere)),
                }),
            },
        };
        let stored = matches!(result, Ok(Outcome::Stored(_)));
        self.finish(op, result, cx);
        stored
    }

    /// No answer will come.
    pub(crate) fn on_orphan(&mut self, op: OpId, broker: BrokerId, sent: bool, cx: &mut Cx<'_>) {
        let at = self.at(broker).unwrap_or_else(nowhere);
        if cx.mutant(Mutant::OrphanUnresolved) {
            self.ops.remove(op);
        }
        match self.ops.get_mut(op) {
            None => {}
            Some(Pending::Call(_)) => {
                let error = if sent { OpError::Ambiguous(at) } else { OpError::NotSent(NotSent::NotReady) };
                self.finish(op, Err(error), cx);
            }
            Some(Pending::Send(sending)) if sent && cx.mutant(Mutant::LostIsStored) => {
                let entry = StreamId { ms: 0, seq: 0 };
                let stored = Stored { id: sending.id, broker, partition: sending.partition, entry, due: None };
                self.finish(op, Ok(Outcome::Stored(stored)), cx);
            }
            Some(Pending::Send(_)) if sent && cx.mutant(Mutant::LostIsRefused) => {
                let refused = self.refused(broker, ErrorReply::new(b"ERR the connection was lost"));
                self.finish(op, Err(OpError::Refused(refused)), cx);
            }
            Some(Pending::Send(sending)) if sent => {
                if sending.policy == Policy::AtMostOnce && !cx.mutant(Mutant::OnceAgain) {
                    return self.finish(op, Err(OpError::Ambiguous(at)), cx);
                }
                sending.ambiguous = Some(at);
                cx.stats.ambiguous_again += 1;
                self.again(op, cx);
            }
            Some(Pending::Send(_)) => {
                cx.stats.placed_again += 1;
                self.again(op, cx);
            }
        }
    }

    /// No new operations; what waits is given up, what is in flight may finish.
    pub(crate) fn stop(&mut self, cx: &mut Cx<'_>) {
        self.stopping = true;
        while let Some((op, _)) = self.next_waiting() {
            self.give_up(op, NotSent::Stopping, cx);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ops.is_empty()
    }

    /// The grace is over: everything still open resolves now.
    pub(crate) fn abandon(&mut self, cx: &mut Cx<'_>) {
        let open: Vec<OpId> = self.ops.keys().collect();
        for op in open {
            self.give_up(op, NotSent::Stopping, cx);
        }
    }

    // ---- inside ----

    fn admit(&self, send: &Send, limits: &Limits) -> Result<(), Reject> {
        let message = &send.message;
        if self.stopping {
            return Err(Reject::Stopping);
        }
        if message.body.len() > limits.body_bytes as usize {
            return Err(Reject::BodyTooLarge(limits.body_bytes));
        }
        if message.headers.len() > limits.headers as usize {
            return Err(Reject::TooManyHeaders(limits.headers));
        }
        if message.headers.iter().any(|(name, _)| name.is_empty()) {
            return Err(Reject::EmptyHeaderName);
        }
        let bytes = self.waiting_bytes + message.len() as u64;
        if self.waiting >= limits.backlog_ops as usize || (bytes > limits.backlog_bytes && self.waiting > 0) {
            return Err(Reject::BacklogFull);
        }
        Ok(())
    }

    fn topic_index(&mut self, spec: Arc<TopicSpec>) -> u32 {
        if let Some((last, index)) = &self.last
            && Arc::ptr_eq(last, &spec)
        {
            return *index;
        }
        let index = match self.by_name.get(spec.name()) {
            Some(index) => *index,
            None => {
                let index = u32::try_from(self.topics.len()).unwrap_or(u32::MAX);
                let count = spec.stated().map(Count::stated).unwrap_or_default();
                self.topics.push(Topic { keys: spec.partitions().to_vec(), count, spec: spec.clone() });
                self.by_name.insert(spec.name().into(), index);
                index
            }
        };
        self.last = Some((spec, index));
        index
    }

    fn on_refused(&mut self, op: OpId, broker: BrokerId, error: ErrorReply, cx: &mut Cx<'_>) {
        let class = error.class();
        let refused = self.refused(broker, error);
        let Some(Pending::Send(sending)) = self.ops.get_mut(op) else { return };
        if class == ErrorClass::Oom {
            cx.effect(Effect::Memory(broker, true));
        }
        if class == ErrorClass::Oom || is_passing(class) {
            sending.refused = Some(refused);
            self.again(op, cx);
        } else {
            // Refused here; but an earlier attempt elsewhere may have been stored.
            let error = sending.ambiguous.take().map_or(OpError::Refused(refused), OpError::Ambiguous);
            self.finish(op, Err(error), cx);
        }
    }

    fn refused(&self, broker: BrokerId, error: ErrorReply) -> Box<Refused> {
        Box::new(Refused { broker: self.at(broker).unwrap_or_else(nowhere), error })
    }

    fn at(&self, broker: BrokerId) -> Option<Endpoint> {
        self.brokers.get(broker).map(|contact| contact.at.clone())
    }

    fn again(&mut self, op: OpId, cx: &mut Cx<'_>) {
        let Some(Pending::Send(sending)) = self.ops.get_mut(op) else { return };
        if self.stopping || sending.deadline <= cx.now.mono {
            let why = if self.stopping { NotSent::Stopping } else { NotSent::NoBroker };
            return self.give_up(op, why, cx);
        }
        sending.queued = true;
        self.waiting += 1;
        self.waiting_bytes += sending.bytes;
        self.again.push_back(op);
    }

    /// One that still waits looks for another broker.
    fn place_again(&mut self, op: OpId, cx: &mut Cx<'_>) {
        if !self.stopping {
            self.again.push_back(op);
        } else if self.ops.contains(op) {
            self.give_up(op, NotSent::Stopping, cx);
        }
    }

    /// Keeps those who finished while they waited from piling up behind one that waits for long.
    fn drop_finished(&mut self) {
        if self.again.len() + self.backlog.len() > 2 * self.waiting + 64 {
            let ops = &self.ops;
            self.again.retain(|op| ops.contains(*op));
            self.backlog.retain(|op| ops.contains(*op));
        }
    }

    fn pop_waiting(&mut self) {
        if self.again.pop_front().is_none() {
            self.backlog.pop_front();
        }
    }

    /// Resolves what found no broker: as it may have been stored, as it was refused, or as never sent.
    fn give_up(&mut self, op: OpId, why: NotSent, cx: &mut Cx<'_>) {
        let error = match self.ops.get_mut(op) {
            Some(Pending::Send(sending)) => match (sending.ambiguous.take(), sending.refused.take()) {
                (Some(_), _) if cx.mutant(Mutant::GiveUpForgetsDoubt) => OpError::NotSent(why),
                (Some(_), Some(refused)) if cx.mutant(Mutant::RefusalHidesDoubt) => OpError::Refused(refused),
                (Some(at), _) => OpError::Ambiguous(at),
                (None, Some(refused)) => OpError::Refused(refused),
                (None, None) => OpError::NotSent(why),
            },
            Some(Pending::Call(_)) | None => OpError::NotSent(why),
        };
        self.finish(op, Err(error), cx);
    }

    fn finish(&mut self, op: OpId, result: Result<Outcome, OpError>, cx: &mut Cx<'_>) {
        if let Some(Pending::Send(sending)) = self.ops.remove(op)
            && sending.queued
        {
            self.waiting -= 1;
            let freed = if cx.mutant(Mutant::BacklogBytesLeaked) { 0 } else { sending.bytes };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(freed);
            self.deadlines.remove(&(sending.deadline, op));
        }
        cx.event(Event::Done { op, result });
    }
}

/// Refused for the server's own state: it was not stored, and another broker may take it.
fn is_passing(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Misconf
        | ErrorClass::NoReplicas
        | ErrorClass::ReadOnly
        | ErrorClass::Loading
        | ErrorClass::Busy
        | ErrorClass::MasterDown
        | ErrorClass::NoAuth => true,
        ErrorClass::Oom
        | ErrorClass::WrongPass
        | ErrorClass::NoPerm
        | ErrorClass::NoScript
        | ErrorClass::NoGroup
        | ErrorClass::WrongType
        | ErrorClass::BusyGroup
        | ErrorClass::Unblocked
        | ErrorClass::ExecAbort
        | ErrorClass::NoProto
        | ErrorClass::UnknownCommand
        | ErrorClass::Other => false,
    }
}

/// The command that puts a message into its topic's bucket on a broker.
fn schedule(topic: &str, sending: &Sending, due: Due, now: Mono) -> Eval {
    let bucket = key::delay_bucket(topic, sending.partition);
    let when = match due {
        Due::At(wall) => Arg::Text(format!("@{}", wall.0.clamp(0, LATEST_MS)).into()),
        Due::After(at) => Arg::Int(i64::try_from(at.since(now).as_millis()).unwrap_or(LATEST_MS).min(LATEST_MS)),
    };
    let id: Arc<str> = sending.id.to_string().into();
    let mut args = alloc::vec![sending.partition.into(), Arg::Text(id.clone()), when];
    args.extend(["payload".into(), Arg::Bytes(sending.body.clone()), "id".into(), Arg::Text(id)]);
    if let Some(extra) = &sending.extra {
        args.extend(extra.key.iter().flat_map(|key| ["key".into(), Arg::Bytes(key.clone())]));
        let headers = extra.headers.iter();
        args.extend(headers.flat_map(|(name, value)| [Arg::Bytes(name.clone()), Arg::Bytes(value.clone())]));
    }
    Eval { script: Script::Schedule, keys: alloc::vec![bucket.items, bucket.bodies, bucket.index], args }
}

/// Where a message was stored: its entry, or none yet and when it is due.
fn placed(reply: &Reply) -> Option<(StreamId, Option<Wall>)> {
    if let Some(entry) = reply.view().as_bytes().and_then(StreamId::parse) {
        return Some((entry, None));
    }
    // A score has a fraction in some protocols, and a number in others.
    let due = reply.view().items()?.nth(1)?;
    let due = due.as_int().or_else(|| due.as_str()?.split('.').next()?.parse().ok())?;
    Some((StreamId { ms: 0, seq: 0 }, Some(Wall(due))))
}

fn is_oom(reply: &Reply) -> bool {
    reply.view().items().and_then(|mut items| items.next()).and_then(|word| word.as_str()) == Some("oom")
}

/// The latest time a message may be scheduled for: above it the numbers of scripts are not exact.
const LATEST_MS: i64 = 1 << 50;

/// For a broker that answered although it was never in contact: cannot happen, and must not panic.
fn nowhere() -> Endpoint {
    Endpoint::Name("unknown".into(), 0)
}
