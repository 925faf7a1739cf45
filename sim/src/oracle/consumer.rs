//! Consuming: every message is delivered (19), an acknowledgement is final (20) and follows from a verdict (21), nothing
//! is claimed from a consumer that shows signs of life (26), and nobody holds more than it may (29).

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::op::Settled;
use flota_core::reply::StreamId;
use flota_core::script::{FREE, Script};

use super::hands::{HandState, Spot, Who, group_number};
use super::{Ledger, Oracle, Scene, Verdict};
use crate::broker::{Change, msgpack};
use crate::plan::Fidelity;
use crate::seen::{Delivered, Given, Hand, Host, Item, Phase, Seen, What, Word};
use crate::world;

#[derive(Default)]
pub(crate) struct Consuming {
    /// When an entry was acknowledged for a group, by the group's number: until the group is set back.
    acked: BTreeMap<(Spot, u8), u64>,
    /// Entries that were ever acknowledged for a group.
    settled: BTreeSet<(Spot, u8)>,
    /// Entries that were ever pending in a group.
    given: BTreeSet<(Spot, u8)>,
    /// Dead letters that the present script has made, by broker.
    copies: BTreeMap<u32, Vec<Option<Item>>>,
    /// Copies in buckets that it has made.
    kept: BTreeMap<u32, Vec<Option<Item>>>,
    released: BTreeMap<Spot, Bytes>,
    /// When the final shutdown began.
    stops_at: Option<u64>,
    /// Groups that a broker was seen to lack.
    lacking: BTreeSet<u32>,
}

impl Oracle for Consuming {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        match (seen.host, &seen.what) {
            (Host::Broker(broker), what) => self.see_broker(broker, what, scene, verdict),
            (Host::Service(service), what) => self.see_service(service, what, scene, verdict),
            (Host::World, What::Phase(Phase::Quiesce)) => self.stops_at = Some(scene.at),
            (Host::World, What::Phase(Phase::Liveness)) => {
                let holds = |broker: u32| {
                    let mut streams = scene.ledger.streams.iter().filter(|((of, _), _)| *of == broker);
                    streams.any(|(_, stream)| stream.groups.values().any(|group| !group.pending.is_empty()))
                };
                if (0..scene.plan.brokers.len() as u32).filter(|broker| holds(*broker)).count() >= 2 {
                    verdict.mark("liveness entered with pending entries on two brokers");
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        for ((broker, key), stream) in scene.ledger.streams.iter().filter(|(_, stream)| stream.partition.is_some()) {
            for name in stream.groups.keys() {
                let Some(group) = group_number(name) else { continue };
                let never = |id: &&StreamId| {
                    !self.given.contains(&(Spot { broker: *broker, key: key.clone(), id: **id }, group))
                };
                // What is stored while everybody stops is for whoever comes next.
                let in_time = |id: &&StreamId| {
                    stream.entries.get(id).is_some_and(|entry| self.stops_at.is_none_or(|stops| entry.at < stops))
                };
                if let Some(id) = stream.entries.keys().filter(in_time).find(never) {
                    let spot = Spot { broker: *broker, key: key.clone(), id: *id };
                    verdict.fail(19, scene.at, Host::Broker(*broker), || {
                        format!("{spot} is stored and was never delivered in group g{group}; every entry must be")
                    });
                }
            }
        }
    }
}

impl Consuming {
    fn see_broker(&mut self, broker: u32, what: &What, scene: &Scene<'_>, verdict: &mut Verdict) {
        match what {
            What::Executed { command, refused, .. } => {
                self.copies.remove(&broker);
                self.kept.remove(&broker);
                match refused.as_deref() {
                    Some("NOSCRIPT") => verdict.mark("NOSCRIPT answered and the script sent again"),
                    Some("NOGROUP") if *command == Word::ReadGroup => {
                        self.lacking.insert(broker);
                    }
                    _ => {}
                }
            }
            What::Forgot(_) => {
                self.acked.retain(|(spot, _), _| spot.broker != broker);
            }
            What::Changed(change) if !is_recovering(scene.ledger, broker) => {
                self.see_change(broker, change, scene, verdict);
            }
            What::Changed(change) => self.recover(broker, change),
            _ => {}
        }
    }

    /// What a broker still has after it forgot something.
    fn recover(&mut self, broker: u32, change: &Change) {
        if let Change::Pending { key, group, id, .. } = change
            && let Some(group) = group_number(group)
        {
            self.given.insert((Spot { broker, key: key.clone(), id: *id }, group));
        }
    }

    fn see_change(&mut self, broker: u32, change: &Change, scene: &Scene<'_>, verdict: &mut Verdict) {
        match change {
            Change::Added { key, fields, .. } if is_dead_letters(key) => {
                self.copies.entry(broker).or_default().push(world::item_in(fields));
            }
            Change::Field { value: Some(value), .. } => {
                let copy = msgpack::texts(value).map(|fields| world::item_in(&fields));
                self.kept.entry(broker).or_default().extend(copy);
            }
            Change::Pending { key, group, id, consumer, from, idle_ms, deliveries } => {
                let spot = Spot { broker, key: key.clone(), id: *id };
                if let Some(group) = group_number(group) {
                    self.given.insert((spot.clone(), group));
                }
                let moved = Moved { spot, consumer, from: from.as_ref(), idle_ms: *idle_ms, deliveries: *deliveries };
                self.moved(&moved, scene, verdict);
            }
            Change::Acked { key, group, id, .. } => {
                let spot = Spot { broker, key: key.clone(), id: *id };
                if let Some(group) = group_number(group) {
                    self.check_ack(&spot, group, scene, verdict);
                    self.acked.insert((spot.clone(), group), scene.at);
                    self.settled.insert((spot, group));
                }
            }
            Change::Group { key, group, at: Some(last) } => {
                if self.lacking.remove(&broker) {
                    verdict.mark("NOGROUP answered and the group made again");
                }
                // What lies behind it will be delivered again, and rightly so.
                let again = |spot: &Spot| spot.broker == broker && spot.key == *key && spot.id > *last;
                let number = group_number(group);
                self.acked.retain(|(spot, of), _| !(again(spot) && Some(*of) == number));
            }
            Change::Removed { key, id, .. } => {
                let stream = scene.ledger.streams.get(&(broker, key.clone()));
                if stream.is_some_and(|stream| stream.groups.values().any(|group| group.pending.contains_key(id))) {
                    verdict.mark("body trimmed while it was pending");
                }
            }
            Change::StreamGone { key } => {
                self.acked.retain(|(spot, _), _| spot.broker != broker || spot.key != *key);
            }
            _ => {}
        }
    }

    /// An entry has come to another consumer, or to the same again.
    fn moved(&mut self, moved: &Moved<'_>, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(from) = moved.from else { return };
        let hands = &scene.ledger.hands;
        if moved.consumer.as_ref() == FREE.as_bytes() {
            self.released.insert(moved.spot.clone(), from.clone());
        }
        let claims = hands.running(moved.spot.broker) == Some(Word::Script(Script::Claim));
        let Some(to) = Who::named(moved.consumer) else { return };
        if from.as_ref() == FREE.as_bytes() {
            if self.released.remove(&moved.spot).is_some_and(|by| by != *moved.consumer) {
                verdict.mark("released entry taken by another");
            }
        } else if from == moved.consumer {
            if claims {
                self.claimed_own(moved, to, scene, verdict);
            }
        } else {
            check_idle(moved, from, claims, scene, verdict);
        }
        if claims && moved.deliveries > 2 {
            verdict.mark("suspect claimed to run alone");
        }
    }

    /// A consumer took back what was pending under its own name: that must be in nobody's hand.
    fn claimed_own(&mut self, moved: &Moved<'_>, to: Who, scene: &Scene<'_>, verdict: &mut Verdict) {
        if scene.runs_for_nobody(moved.spot.broker) {
            // It was asked on a connection that is gone: nothing is delivered, and the holder is the same.
            return;
        }
        verdict.mark("entry recovered by its own name");
        let mut mine = scene.ledger.hands.at(&moved.spot).filter(|hand| hand.who == to);
        let Some(last) = mine.next_back() else { return };
        let what = if last.is_held() {
            "it has it in hand"
        } else if last.says(Given::Done) && last.answered.is_none() && scene.plan.fidelity == Fidelity::Fast {
            // A runner asks for no answers.
            "it has settled it as done, and that is on its way"
        } else {
            return;
        };
        verdict.fail(20, scene.at, Host::Broker(moved.spot.broker), || {
            format!("{to} claimed {} back from its own name although {what}; it will be handled twice", moved.spot)
        });
    }

    /// An acknowledgement must follow from a verdict, or from a dead letter.
    fn check_ack(&mut self, spot: &Spot, group: u8, scene: &Scene<'_>, verdict: &mut Verdict) {
        let hands = &scene.ledger.hands;
        let host = Host::Broker(spot.broker);
        let mut verdicts = hands.at(spot).filter(|hand| hand.group == group);
        let running = hands.running(spot.broker);
        let stream = scene.ledger.streams.get(&(spot.broker, spot.key.clone()));
        let entry = stream.and_then(|stream| stream.entries.get(&spot.id));
        let wrong = match running {
            Some(Word::Ack(_)) if verdicts.any(|hand| hand.says(Given::Done)) => return,
            Some(Word::Ack(_)) => "no handler has said that it is done",
            Some(Word::Script(Script::Claim | Script::Dead | Script::Retry)) if entry.is_none() => {
                return verdict.mark("pending entry without a body acknowledged");
            }
            Some(Word::Script(script @ (Script::Claim | Script::Dead))) => {
                let copies = self.copies.entry(spot.broker).or_default();
                let item = entry.and_then(|entry| entry.item);
                let copy = copies.iter().position(|copy| *copy == item);
                let refused = |hand: &HandState| {
                    let last = hand.attempt >= scene.plan.knobs.max_deliveries;
                    hand.says(Given::Reject) || (last && hand.says(Given::Retry))
                };
                match copy {
                    None => "the script made no dead letter of it",
                    Some(_) if script == Script::Dead && !verdicts.any(refused) => {
                        "no handler has refused it, nor asked for one retry too many"
                    }
                    Some(at) => {
                        copies.remove(at);
                        if script == Script::Claim {
                            verdict.mark("poison sent to the dead letters by a claim");
                        }
                        return;
                    }
                }
            }
            Some(Word::Script(Script::Retry)) => {
                let item = entry.and_then(|entry| entry.item);
                let kept = self.kept.entry(spot.broker).or_default();
                let copy = kept.iter().position(|copy| *copy == item);
                match copy {
                    None => "the script put no copy of it away",
                    Some(_) if !verdicts.any(|hand| hand.says(Given::Retry)) => "no handler has asked for a retry",
                    Some(at) => {
                        kept.remove(at);
                        return;
                    }
                }
            }
            _ => "what was executed may not acknowledge anything",
        };
        verdict
            .fail(21, scene.at, host, || format!("{spot} was acknowledged in group g{group} by {running:?}: {wrong}"));
    }

    // ---- services ----

    fn see_service(&mut self, service: u32, what: &What, scene: &Scene<'_>, verdict: &mut Verdict) {
        match what {
            What::Delivered(delivered) => self.delivered(service, delivered, scene, verdict),
            What::Answered { hand, result } => self.answered(service, *hand, result, scene, verdict),
            What::Unsubscribing(sub) => {
                let Some(who) = scene.ledger.hands.newest(service, *sub) else { return };
                if scene.ledger.hands.left(who).any(|hand| hand.is_held() && hand.started) {
                    verdict.mark("unsubscribed while handlers were running");
                }
            }
            _ => {}
        }
    }

    fn delivered(&mut self, service: u32, delivered: &Delivered, scene: &Scene<'_>, verdict: &mut Verdict) {
        let hands = &scene.ledger.hands;
        let Some(hand) = hands.hand(service, delivered.hand) else { return };
        let Some(consumer) = hands.consumer(hand.who) else { return };
        if consumer.held > consumer.in_flight {
            verdict.fail(29, scene.at, Host::Service(service), || {
                let (held, most) = (consumer.held, consumer.in_flight);
                format!("{} holds {held} messages; it may hold {most}", hand.who)
            });
        }
        let acked = self.acked.get(&(hand.spot.clone(), hand.group)).copied();
        let taken = hands.taken(&hand.spot, hand.who);
        if let (Some(acked), Some(taken)) = (acked, taken)
            && taken > acked
        {
            verdict.fail(20, scene.at, Host::Service(service), || {
                let (spot, group) = (&hand.spot, hand.group);
                format!("{spot} was acknowledged in group g{group} at {acked} us, given out again at {taken} us and delivered; an acknowledgement is final")
            });
        }
    }

    /// What is told of a verdict must be true.
    fn answered(&mut self, service: u32, hand: Hand, result: &Settled, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(hand) = scene.ledger.hands.hand(service, hand) else { return };
        if !hand.says(Given::Done) {
            return;
        }
        match result {
            Settled::Fenced => verdict.mark("acknowledgement of an entry that was elsewhere already"),
            Settled::Ok if !self.settled.contains(&(hand.spot.clone(), hand.group)) => {
                verdict.fail(20, scene.at, Host::Service(service), || {
                    format!("{} was told that {} is acknowledged; the broker never did it", hand.who, hand.spot)
                });
            }
            _ => {}
        }
    }
}

/// An entry that changed hands.
struct Moved<'a> {
    spot: Spot,
    consumer: &'a Bytes,
    from: Option<&'a Bytes>,
    idle_ms: i64,
    deliveries: u64,
}

/// An entry taken from another consumer must have been idle for long enough.
fn check_idle(moved: &Moved<'_>, from: &Bytes, claims: bool, scene: &Scene<'_>, verdict: &mut Verdict) {
    let hands = &scene.ledger.hands;
    let least = i64::try_from(scene.plan.knobs.claim_idle_ms).unwrap_or(i64::MAX);
    let (spot, idle_ms) = (&moved.spot, moved.idle_ms);
    let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(moved.consumer));
    if !claims || idle_ms < least {
        verdict.fail(26, scene.at, Host::Broker(spot.broker), || {
            format!("{spot} went from {from} to {to} after {idle_ms} ms of silence; it must be silent for {least} ms and be claimed")
        });
    }
    let Some(from) = Who::named(from.as_bytes()) else { return };
    if hands.consumer(from).is_some_and(|consumer| consumer.ended.is_some()) {
        verdict.mark("claimed from a dead consumer");
    }
    if hands.at(spot).any(|hand| hand.who == from && hand.is_held() && hand.started) {
        verdict.mark("delivery claimed while its handler still runs");
    }
}

pub(super) fn is_dead_letters(key: &Bytes) -> bool {
    key.ends_with(b":dlq")
}

pub(super) fn is_recovering(ledger: &Ledger, broker: u32) -> bool {
    ledger.recovering.get(broker as usize).copied().unwrap_or(false)
}
