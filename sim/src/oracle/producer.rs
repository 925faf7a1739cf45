//! What a sender may rely on: invariants 1 to 8.
//!
//! Exempt from 1: what a broker forgot by a crash under its persistence, and what an operator flushed. Judged are the
//! groups that exist on a broker: one that is registered and was never created there cannot have lost anything there.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use flota_core::op::{NotSent, OpError, Reject};
use flota_core::reply::StreamId;
use flota_core::script::Script;

use super::ledger::is_scheduled;
use super::routing::is_registration;
use super::track::{Members, News, TURN_US, mono_us, seconds};
use super::{ItemState, Oracle, Scene, Verdict};
use crate::broker::{Change, msgpack};
use crate::plan::{Fate, Fidelity, Plan};
use crate::seen::{Delivered, Host, Item, Line, Place, Seen, What, Word};
use crate::world;

pub(super) struct Producer {
    services: Vec<Sender>,
    items: Vec<Sent>,
    brokers: Vec<Store>,
    /// What a broker forgot by a crash, or was told to drop.
    forgotten: BTreeSet<Item>,
}

/// A process that sends.
#[derive(Default)]
struct Sender {
    life: u32,
    stopped: bool,
    members: Members,
    /// The last true time at which some broker could be sent to.
    able_at: Option<u64>,
    /// When a broker was last told of a topic, or that ended: a message that has found a broker waits for its word, however
    /// long that takes.
    asked_at: Option<u64>,
    paused: bool,
    resumed_at: u64,
    /// Accepted and not yet resolved, in the order of their deadlines.
    waiting: VecDeque<Item>,
}

/// A message on its way.
#[derive(Clone, Default)]
struct Sent {
    /// It was written to a connection.
    written: bool,
    /// It is on a connection, unanswered.
    on: Option<Line>,
    /// A connection that carried it ended before the answer.
    doubt: bool,
    dones: u32,
}

/// What lies on a broker.
#[derive(Default)]
struct Store {
    recovering: bool,
    /// An operator's command is what was executed last.
    by_operator: bool,
    entries: BTreeMap<Bytes, BTreeMap<StreamId, Item>>,
    /// What is scheduled, by hash and message id.
    scheduled: BTreeMap<Bytes, BTreeMap<Bytes, Item>>,
    /// What was scheduled is being moved.
    moves: bool,
    /// What it held when its process died, and has not got back.
    limbo: BTreeSet<Item>,
}

impl Producer {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            services: plan.services.iter().map(|_| Sender::default()).collect(),
            items: vec![Sent::default(); plan.work.len()],
            brokers: plan.brokers.iter().map(|_| Store::default()).collect(),
            forgotten: BTreeSet::new(),
        }
    }

    fn item(&mut self, item: Item) -> Option<&mut Sent> {
        self.items.get_mut(item.0 as usize)
    }
}

impl Oracle for Producer {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        match seen.host {
            Host::Service(service) => {
                self.see_line(service, seen, scene, verdict);
                self.see_service(service, seen, scene, verdict);
            }
            Host::Broker(broker) => self.see_broker(broker, seen, scene, verdict),
            Host::World => {}
        }
    }

    fn end(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        self.reconcile(scene, verdict);
        self.passed_over(scene, verdict);
    }
}

// ---- connections: 6 ----

impl Producer {
    fn see_line(&mut self, service: u32, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        if let News::Wrote(_, word) | News::Answered(_, word) = scene.lines.news()
            && is_registration(word)
        {
            self.asked(service, seen.at);
        }
        match scene.lines.news() {
            News::Wrote(line, Word::Add(Some(item))) => {
                let (line, item) = (*line, *item);
                let Some(sent) = self.items.get_mut(item.0 as usize) else { return };
                if let Some(before) = sent.on.filter(|before| scene.lines.get(service, *before).is_some()) {
                    verdict.fail(6, seen.at, seen.host, || {
                        format!(
                            "{item} is written to line {} while it is still unanswered on line {}: it may be stored twice; \
                             only a closed connection allows a repetition",
                            line.0, before.0
                        )
                    });
                }
                let waited = accepted_at(scene, item).is_some_and(|at| seen.at > at + TURN_US);
                if waited && !sent.written {
                    verdict.mark("a send waited and was placed");
                }
                sent.on = Some(line);
                sent.written = true;
            }
            News::Answered(_, Word::Add(Some(item))) => {
                if let Some(sent) = self.item(*item) {
                    sent.on = None;
                }
            }
            News::Gone(wire) => {
                if wire.unanswered.iter().any(is_registration) {
                    self.asked(service, seen.at);
                }
                for word in &wire.unanswered {
                    let Word::Add(Some(item)) = word else { continue };
                    let Some(sent) = self.item(*item) else { continue };
                    sent.on = None;
                    sent.doubt = true;
                }
            }
            _ => {}
        }
    }

    fn asked(&mut self, service: u32, at: u64) {
        if let Some(sender) = self.services.get_mut(service as usize) {
            sender.asked_at = Some(at);
        }
    }

    /// It was stored: 2, 3 and 6.
    fn stored(&mut self, broker: u32, at: u64, item: Item, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(state) = scene.ledger.items.get(item.0 as usize) else { return };
        let host = Host::Broker(broker);
        if let Some((_, Err(error))) = &state.done {
            untrue(item, state, error, at, host, verdict);
        }
        if state.stores.len() < 2 {
            return;
        }
        let once = scene.plan.work.get(item.0 as usize).is_some_and(|work| work.at_most_once);
        let doubt = self.item(item).is_some_and(|sent| sent.doubt);
        if once || !doubt {
            let why = if once { "it may be stored at most once" } else { "no connection that carried it was lost" };
            verdict.fail(6, at, host, || {
                format!("{item} is stored {} times ({}), and {why}", state.stores.len(), places(state))
            });
        } else {
            verdict.mark("a message was stored twice");
        }
    }
}

/// An error that says that nothing was stored, although something was.
fn untrue(item: Item, state: &ItemState, error: &OpError, at: u64, host: Host, verdict: &mut Verdict) {
    let (invariant, said) = match error {
        OpError::NotSent(_) | OpError::Partitions(_) => (2, "never sent"),
        OpError::Refused(_) => (3, "refused"),
        OpError::Ambiguous(_) | OpError::Unanswered(_) => return,
    };
    if !state.stores.is_empty() {
        verdict.fail(invariant, at, host, || {
            format!("{item} is reported as {said} (\"{error}\"), and it was stored: {}", places(state))
        });
    }
}

fn places(state: &ItemState) -> String {
    let place = |(broker, entry, at): &(u32, StreamId, u64)| format!("{entry} on broker {broker} at {}", seconds(*at));
    state.stores.iter().map(place).collect::<Vec<_>>().join(", ")
}

fn accepted_at(scene: &Scene<'_>, item: Item) -> Option<u64> {
    scene.ledger.items.get(item.0 as usize)?.accepted.map(|(at, _)| at)
}

// ---- services: 2 to 5, 7, 8 ----

impl Producer {
    fn see_service(&mut self, service: u32, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(sender) = self.services.get_mut(service as usize) else { return };
        if sender.members.is_any_able() {
            sender.able_at = Some(seen.at);
        }
        if sender.members.see(&seen.what) && sender.members.is_any_able() {
            sender.able_at = Some(seen.at);
        }
        match &seen.what {
            What::Born(life) => *sender = Sender { life: *life, ..Sender::default() },
            What::Died(_) => sender.waiting.clear(),
            What::Paused => sender.paused = true,
            What::Resumed => (sender.paused, sender.resumed_at) = (false, seen.at),
            What::Submitted { item, accepted: Ok(()) } => sender.waiting.push_back(*item),
            What::Submitted { accepted: Err(Reject::BacklogFull), .. } => verdict.mark("the backlog was full"),
            What::Done { item, result } => self.done(service, *item, result, seen, scene, verdict),
            What::Stray => verdict.fail(4, seen.at, seen.host, || {
                "an operation is resolved that was resolved before, or never accepted; each resolves once".to_string()
            }),
            What::Stopped => self.stopped(service, seen, scene, verdict),
            What::Turn { .. } => self.overdue(service, seen.at, scene, verdict),
            What::Delivered(given) => delivered(given, seen, scene, verdict),
            _ => {}
        }
    }

    fn done(
        &mut self,
        service: u32,
        item: Item,
        result: &Result<Place, OpError>,
        seen: &Seen,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        let Some(state) = scene.ledger.items.get(item.0 as usize) else { return };
        let Some(sender) = self.services.get_mut(service as usize) else { return };
        let Some(sent) = self.items.get_mut(item.0 as usize) else { return };
        sent.dones += 1;
        let wrong = match state.accepted {
            None => Some("it was never accepted"),
            Some((_, life)) if life != sender.life => Some("it was accepted by an earlier process"),
            Some(_) if sent.dones > 1 => Some("it was resolved before"),
            Some(_) if sender.stopped => Some("its process had said that it has stopped"),
            Some(_) => None,
        };
        if let Some(wrong) = wrong {
            verdict.fail(4, seen.at, seen.host, || format!("{item} is resolved, and {wrong}; each resolves once"));
        }
        match result {
            Ok(place) => stored_at(item, state, *place, seen, verdict),
            Err(error) => {
                untrue(item, state, error, seen.at, seen.host, verdict);
                match error {
                    OpError::NotSent(NotSent::NoBroker) => self.gave_up(service, item, seen, scene, verdict),
                    OpError::Ambiguous(_) if state.stores.is_empty() => {
                        verdict.mark("an ambiguous send was not executed");
                    }
                    OpError::Ambiguous(_) => verdict.mark("an ambiguous send was executed"),
                    _ => {}
                }
            }
        }
    }

    /// No broker in time: not earlier than promised, and not later.
    fn gave_up(&mut self, service: u32, item: Item, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        verdict.mark("a send gave up");
        let Some(accepted) = accepted_at(scene, item) else { return };
        let waited = mono_us(scene.plan, service, seen.at) - mono_us(scene.plan, service, accepted);
        let promised = scene.plan.knobs.send_init_ms * 1_000;
        if waited < promised {
            verdict.fail(7, seen.at, seen.host, || {
                format!(
                    "{item} gives up for want of a broker after {} by its own clock; it may wait for {}",
                    seconds(waited),
                    seconds(promised)
                )
            });
        }
        if self.is_late(service, item, seen.at, scene) == Some(true) {
            verdict.fail(7, seen.at, seen.host, || {
                format!(
                    "{item} gives up for want of a broker after {} by its own clock, no broker could be sent to all the \
                     time, and it may wait for {}",
                    seconds(waited),
                    seconds(promised)
                )
            });
        }
    }

    /// Whether a message has waited for longer than it may, although no broker was there all the time; none while it may
    /// still wait, or while its process has not had the time to say so.
    fn is_late(&self, service: u32, item: Item, at: u64, scene: &Scene<'_>) -> Option<bool> {
        if scene.plan.fidelity == Fidelity::Full && (scene.plan.knobs.backlog_ops as usize) < scene.plan.work.len() {
            // A client holds back what is beyond that, and nobody sees when it hands a message to its engine.
            return None;
        }
        if scene.plan.fidelity == Fidelity::Full && scene.lines.of(service).any(|wire| wire.connected) {
            // It may be placed there, to see whether its memory is still full, and not be written yet: the driver knows.
            return None;
        }
        let sender = self.services.get(service as usize)?;
        let accepted = accepted_at(scene, item)?;
        let mono = |at| mono_us(scene.plan, service, at);
        let waited = mono(at).saturating_sub(mono(accepted));
        let just_resumed = sender.paused || (sender.resumed_at > 0 && at < sender.resumed_at + TURN_US);
        if waited <= scene.plan.knobs.send_init_ms * 1_000 + TURN_US || just_resumed {
            return None;
        }
        let unwritten = self.items.get(item.0 as usize).is_some_and(|sent| !sent.written);
        let cold = [sender.able_at, sender.asked_at].iter().flatten().all(|at| *at < accepted);
        let cold = cold && !scene.lines.of(service).any(|wire| wire.unanswered.iter().any(is_registration));
        Some(unwritten && cold)
    }

    /// Whatever waits longer than it may, although no broker was there all the time.
    fn overdue(&mut self, service: u32, at: u64, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(sender) = self.services.get_mut(service as usize) else { return };
        let done = |item: &Item| scene.ledger.items.get(item.0 as usize).is_none_or(|state| state.done.is_some());
        while sender.waiting.front().is_some_and(done) {
            sender.waiting.pop_front();
        }
        let Some(item) = sender.waiting.front().copied() else { return };
        let Some(late) = self.is_late(service, item, at, scene) else { return };
        if late && let Some(accepted) = accepted_at(scene, item) {
            let waited = mono_us(scene.plan, service, at).saturating_sub(mono_us(scene.plan, service, accepted));
            verdict.fail(7, at, Host::Service(service), || {
                format!(
                    "{item} has been waiting for {} by its own clock, no broker could be sent to all the time, and it \
                     may wait for {}",
                    seconds(waited),
                    seconds(scene.plan.knobs.send_init_ms * 1_000)
                )
            });
        }
        // It is placed, or may be: the next one counts.
        if let Some(sender) = self.services.get_mut(service as usize) {
            sender.waiting.pop_front();
        }
    }

    fn stopped(&mut self, service: u32, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(sender) = self.services.get_mut(service as usize) else { return };
        sender.stopped = true;
        let open = |state: &&ItemState| {
            state.service == service
                && state.done.is_none()
                && state.accepted.is_some_and(|(_, life)| life == sender.life)
        };
        if let Some(at) = scene.ledger.items.iter().position(|state| open(&state)) {
            verdict.fail(4, seen.at, seen.host, || format!("the process has stopped, and m{at} is not resolved"));
        }
    }
}

/// It was reported as stored: 1 and 8.
fn stored_at(item: Item, state: &ItemState, place: Place, seen: &Seen, verdict: &mut Verdict) {
    if state.stores.is_empty() {
        verdict.fail(1, seen.at, seen.host, || {
            format!("{item} is reported as stored as {}, and no broker ever added it", place.entry)
        });
    }
    let right = |(broker, entry, _): &(u32, StreamId, u64)| place.broker == Some(*broker) && place.entry == *entry;
    if !state.stores.iter().any(right) {
        verdict.fail(8, seen.at, seen.host, || {
            let broker = place.broker.map_or_else(|| "an unknown broker".to_string(), |b| format!("broker {b}"));
            let really = if state.stores.is_empty() { "nowhere".to_string() } else { places(state) };
            format!("{item} is reported as {} on {broker}, and it was stored: {really}", place.entry)
        });
    }
}

fn delivered(given: &Delivered, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
    let what = match given.item {
        None => "has a body that names no message".to_string(),
        Some(item) if !given.intact => format!("has not the body that was submitted as {item}"),
        Some(item) if accepted_at(scene, item).is_none() => format!("is {item}, which nobody ever sent"),
        Some(_) => return,
    };
    verdict.fail(5, seen.at, seen.host, || {
        format!(
            "delivery {}.{} (entry {} of partition {}) {what}; each delivered body is one that was submitted, byte for byte",
            given.hand.life, given.hand.number, given.entry, given.partition
        )
    });
}

// ---- brokers: 1 ----

impl Producer {
    fn see_broker(&mut self, broker: u32, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(store) = self.brokers.get_mut(broker as usize) else { return };
        match &seen.what {
            What::Forgot(_) => {
                store.recovering = true;
                let had = std::mem::take(&mut store.entries).into_values();
                store.limbo.extend(had.flat_map(BTreeMap::into_values));
                let had = std::mem::take(&mut store.scheduled).into_values();
                store.limbo.extend(had.flat_map(BTreeMap::into_values));
            }
            What::Up(_) => {
                store.recovering = false;
                self.forgotten.append(&mut store.limbo);
            }
            What::Executed { line, command, .. } => {
                store.by_operator = line.0 == u32::MAX;
                store.moves = *command == Word::Script(Script::Move);
            }
            What::Changed(change) => self.changed(broker, seen.at, change, scene, verdict),
            _ => {}
        }
    }

    fn changed(&mut self, broker: u32, at: u64, change: &Change, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(store) = self.brokers.get_mut(broker as usize) else { return };
        match change {
            Change::Added { key, id, fields } if is_partition(key) => {
                let Some(item) = world::item_in(fields) else { return };
                store.entries.entry(key.clone()).or_default().insert(*id, item);
                store.limbo.remove(&item);
                if !store.recovering && !store.moves {
                    self.stored(broker, at, item, scene, verdict);
                }
            }
            Change::Field { key, field, value: Some(packed) } if is_scheduled(key) => {
                let Some(item) = msgpack::texts(packed).and_then(|fields| world::item_in(&fields)) else { return };
                store.scheduled.entry(key.clone()).or_default().insert(field.clone(), item);
                store.limbo.remove(&item);
                if !store.recovering {
                    self.stored(broker, at, item, scene, verdict);
                }
            }
            Change::Field { key, field, value: None } => {
                if let Some(scheduled) = store.scheduled.get_mut(key) {
                    scheduled.remove(field);
                }
            }
            Change::HashGone { key } => {
                let scheduled = store.scheduled.remove(key).unwrap_or_default();
                if store.by_operator || store.recovering {
                    self.forgotten.extend(scheduled.into_values());
                }
            }
            Change::Removed { key, id, .. } => {
                let item = store.entries.get_mut(key).and_then(|entries| entries.remove(id));
                let Some(item) = item.filter(|_| !store.recovering) else { return };
                if store.by_operator {
                    self.forgotten.insert(item);
                } else {
                    removed(broker, at, key, *id, item, scene, verdict);
                }
            }
            Change::StreamGone { key } => {
                let entries = store.entries.remove(key).unwrap_or_default();
                if store.by_operator || store.recovering {
                    self.forgotten.extend(entries.into_values());
                } else {
                    for (id, item) in entries {
                        removed(broker, at, key, id, item, scene, verdict);
                    }
                }
            }
            _ => {}
        }
    }

    /// What became of everything that was reported as stored.
    fn reconcile(&self, scene: &Scene<'_>, verdict: &mut Verdict) {
        let entries =
            self.brokers.iter().flat_map(|store| store.entries.values()).flat_map(|all| all.values().copied());
        let scheduled =
            self.brokers.iter().flat_map(|store| store.scheduled.values()).flat_map(|all| all.values().copied());
        let lying: BTreeSet<Item> = entries.chain(scheduled).collect();
        for (state, number) in scene.ledger.items.iter().zip(0u32..) {
            let item = Item(number);
            let Some((done_at, Ok(place))) = &state.done else { continue };
            let fate = scene.plan.work.get(number as usize).map(|work| work.fate);
            if fate == Some(Fate::Reject) && (state.dead as usize) < state.acks.len() && !self.forgotten.contains(&item)
            {
                verdict.fail(1, scene.at, Host::World, || {
                    format!(
                        "{item} was refused by its handlers, {} groups have acknowledged it and {} copies are among the \
                         dead letters; each refusal leaves a copy",
                        state.acks.len(),
                        state.dead
                    )
                });
            }
            if state.acks.is_empty() && state.dead == 0 && !self.forgotten.contains(&item) && !lying.contains(&item) {
                verdict.fail(1, scene.at, Host::World, || {
                    format!(
                        "{item} was reported as stored ({} on {:?}) at {}; it is not acknowledged, not a dead letter, not \
                         forgotten by a crash and not there any more",
                        place.entry,
                        place.broker,
                        seconds(*done_at)
                    )
                });
            }
        }
    }

    /// Entries that a group will never be given again and has not acknowledged.
    fn passed_over(&self, scene: &Scene<'_>, verdict: &mut Verdict) {
        for ((broker, key), stream) in scene.ledger.streams.iter().filter(|(_, stream)| stream.partition.is_some()) {
            for (group, state) in &stream.groups {
                let passed = |id: &StreamId, item: &Item| {
                    *id <= state.last
                        && !state.pending.contains_key(id)
                        && scene.ledger.items.get(item.0 as usize).is_some_and(|known| !known.acks.contains_key(group))
                };
                let entries = stream.entries.iter().filter_map(|(id, entry)| Some((id, entry.item?)));
                for (id, item) in entries.filter(|(id, item)| passed(id, item)) {
                    verdict.fail(1, scene.at, Host::Broker(*broker), || {
                        format!(
                            "{item} (entry {id} of {}) lies before the position {} of group {}, is not pending there and \
                             was never acknowledged: the group will never see it",
                            String::from_utf8_lossy(key),
                            state.last,
                            String::from_utf8_lossy(group)
                        )
                    });
                }
            }
        }
    }
}

/// An entry is gone: every group of its stream must be done with it.
fn removed(broker: u32, at: u64, key: &Bytes, id: StreamId, item: Item, scene: &Scene<'_>, verdict: &mut Verdict) {
    let Some(state) = scene.ledger.items.get(item.0 as usize) else { return };
    let groups = scene.ledger.streams.get(&(broker, key.clone())).map(|stream| &stream.groups);
    let undone = match groups {
        Some(groups) if !groups.is_empty() => groups.keys().find(|group| !state.acks.contains_key(*group)),
        _ if state.acks.is_empty() => Some(key),
        _ => None,
    };
    if let Some(undone) = undone {
        verdict.fail(1, at, Host::Broker(broker), || {
            format!(
                "{item} (entry {id} of {}) is removed, and {} has not acknowledged it",
                String::from_utf8_lossy(key),
                if undone == key { "nobody".to_string() } else { format!("group {}", String::from_utf8_lossy(undone)) }
            )
        });
    }
}

fn is_partition(key: &[u8]) -> bool {
    std::str::from_utf8(key).ok().and_then(flota_core::key::parse_partition).is_some()
}
