//! Retries and dead letters: how often (27) and when (28) a message that was not handled comes back.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::reply::StreamId;
use flota_core::script::{FREE, RETRY, RETRY_HORIZON_MS, Script};

use super::consumer::{is_partition, is_recovering};
use super::hands::{HandState, Spot, Who, group_number};
use super::{Oracle, Scene, Verdict};
use crate::broker::Change;
use crate::plan::{Fidelity, Knobs, Plan, Trouble};
use crate::seen::{Given, Hand, Host, Seen, What, Word};

pub(crate) struct Retrying {
    /// Each broker's clock less true time, in milliseconds.
    clocks: Vec<i64>,
    deferred: BTreeMap<(Spot, u8), Deferred>,
    /// Verdicts that asked for a retry.
    asked: BTreeMap<(Spot, u8), u32>,
    /// Dead letters of an entry and group.
    dead: BTreeMap<(Spot, Bytes), u32>,
    /// Entries whose holder fell silent while they were the only suspect in its hands, or on its way there.
    alone: BTreeSet<(Spot, u8)>,
    /// Entries that came to their holder after a retry: no suspects, they may run beside others.
    waited: BTreeSet<(Spot, u8)>,
    /// Entries that a claim took which its consumer had given up before it ran: with its connection, or its life.
    ghosts: BTreeSet<(Spot, u8)>,
    /// Entries whose handler had started and was not done when they were given back.
    unfinished: BTreeSet<(Spot, u8)>,
}

/// An entry that waits for its retry.
struct Deferred {
    /// True time, in microseconds.
    at: u64,
    /// The broker's clock then.
    clock_ms: i64,
    delay_ms: u64,
}

/// Delivered this often without a verdict, an entry is suspected to kill who handles it. Counts of one's own claims are
/// not raised, so such a consumer may suspect it one earlier.
const SUSPECT_FROM: u32 = 3;
/// With fewer deliveries nothing becomes a suspect before it becomes a dead letter.
const SUSPICION_NEEDS: u32 = 3;

impl Retrying {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            clocks: plan.brokers.iter().map(|broker| broker.offset_ms).collect(),
            deferred: BTreeMap::new(),
            asked: BTreeMap::new(),
            dead: BTreeMap::new(),
            alone: BTreeSet::new(),
            waited: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            unfinished: BTreeSet::new(),
        }
    }
}

impl Oracle for Retrying {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        match (seen.host, &seen.what) {
            (Host::World, What::FaultBegins(fault)) => {
                if let Some(Trouble::BrokerStep { broker, by_ms }) =
                    scene.plan.faults.get(*fault as usize).map(|fault| &fault.what)
                    && let Some(clock) = self.clocks.get_mut(*broker as usize)
                {
                    *clock += by_ms;
                }
            }
            (Host::Service(service), What::Settled { hand, verdict: Given::Retry, live: true }) => {
                self.asked_for_retry(service, *hand, scene, verdict);
            }
            (Host::Service(service), What::Delivered(delivered)) => {
                let most = scene.plan.knobs.max_deliveries;
                if delivered.deliveries > most {
                    let (entry, n) = (delivered.entry, delivered.deliveries);
                    verdict.fail(27, scene.at, Host::Service(service), || {
                        format!("entry {entry} was delivered for the {n}th time; after {most} it must be a dead letter")
                    });
                }
            }
            (Host::Broker(broker), What::Forgot(_)) => self.forget(|spot| spot.broker == broker),
            (Host::Broker(broker), What::Changed(change)) if !is_recovering(scene.ledger, broker) => {
                self.see_change(broker, change, scene, verdict);
            }
            _ => {}
        }
    }

    fn late(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        let busy: BTreeSet<u8> =
            scene.ledger.hands.iter().filter(|hand| hand.is_held()).map(|hand| hand.group).collect();
        // Where handlers run on, a retry may wait for them.
        for ((spot, group), deferred) in self.deferred.iter().filter(|((_, group), _)| !busy.contains(group)) {
            let elapsed = self.elapsed_ms(spot.broker, deferred, scene.at);
            if elapsed > i64::try_from(deferred.delay_ms).unwrap_or(i64::MAX) {
                verdict.fail(28, scene.at, Host::Broker(spot.broker), || {
                    let due = deferred.delay_ms;
                    format!("the retry of {spot} in group g{group} was due after {due} ms; {elapsed} ms later nobody has claimed it")
                });
            }
        }
    }
}

impl Retrying {
    fn forget(&mut self, gone: impl Fn(&Spot) -> bool) {
        self.deferred.retain(|(spot, _), _| !gone(spot));
        self.asked.retain(|(spot, _), _| !gone(spot));
        self.dead.retain(|(spot, _), _| !gone(spot));
        self.waited.retain(|(spot, _)| !gone(spot));
    }

    fn elapsed_ms(&self, broker: u32, since: &Deferred, at: u64) -> i64 {
        let clock = self.clocks.get(broker as usize).copied().unwrap_or(0);
        i64::try_from((at - since.at) / 1000).unwrap_or(i64::MAX) + clock - since.clock_ms
    }

    fn asked_for_retry(&mut self, service: u32, hand: Hand, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(hand) = scene.ledger.hands.hand(service, hand) else { return };
        let asked = self.asked.entry((hand.spot.clone(), hand.group)).or_default();
        *asked += 1;
        // Handlers of one entry overlap when it is claimed from one that runs on: those are no attempts of their own.
        let counts = |other: &&HandState| other.group == hand.group && other.says(Given::Retry);
        let distinct: BTreeSet<u32> =
            scene.ledger.hands.at(&hand.spot).filter(counts).map(|hand| hand.deliveries).collect();
        let most = scene.plan.knobs.max_deliveries;
        if distinct.len() as u32 > most {
            verdict.fail(27, scene.at, Host::Service(service), || {
                format!("{} was tried {} times; it may be tried {most} times", hand.spot, distinct.len())
            });
        }
    }

    fn see_change(&mut self, broker: u32, change: &Change, scene: &Scene<'_>, verdict: &mut Verdict) {
        match change {
            Change::Added { key, fields, .. } if !is_partition(key) => {
                self.buried(broker, key, fields, scene, verdict);
            }
            Change::Pending { key, group, id, consumer, from: Some(from), idle_ms, deliveries } => {
                let Some(group) = group_number(group) else { return };
                let spot = Spot { broker, key: key.clone(), id: *id };
                if consumer.as_ref() == RETRY.as_bytes() {
                    self.defer(spot, group, from, scene, verdict);
                } else if consumer.as_ref() == FREE.as_bytes() {
                    check_release(&spot, from, scene, verdict);
                    self.given_back(spot, group, from, scene);
                } else if from.as_ref() == RETRY.as_bytes() {
                    self.waited.insert((spot.clone(), group));
                    self.retried(spot, group, *idle_ms, scene, verdict);
                } else if from != consumer {
                    self.waited.remove(&(spot.clone(), group));
                    self.taken_over(spot.clone(), group, from, deliveries.saturating_sub(1), scene);
                    if Self::is_given_up(broker, consumer, scene) {
                        self.ghosts.insert((spot, group));
                    }
                }
            }
            Change::Acked { key, group, id, .. } => {
                if let Some(group) = group_number(group) {
                    self.deferred.remove(&(Spot { broker, key: key.clone(), id: *id }, group));
                }
            }
            Change::Group { key, .. } | Change::StreamGone { key } => {
                self.forget(|spot| spot.broker == broker && spot.key == *key);
            }
            _ => {}
        }
    }

    /// An entry waits for its retry from now on: that follows from a verdict, and is due when the verdict's count says.
    fn defer(&mut self, spot: Spot, group: u8, from: &Bytes, scene: &Scene<'_>, verdict: &mut Verdict) {
        let who = Who::named(from);
        let asked = |hand: &&HandState| Some(hand.who) == who && hand.says(Given::Retry);
        let delays =
            scene.ledger.hands.at(&spot).filter(asked).map(|hand| delay_ms(&scene.plan.knobs, hand.deliveries));
        let Some(delay_ms) = delays.min() else {
            let from = String::from_utf8_lossy(from);
            return verdict.fail(28, scene.at, Host::Broker(spot.broker), || {
                format!("{spot} of {from} waits for a retry that no handler asked for")
            });
        };
        let clock_ms = self.clocks.get(spot.broker as usize).copied().unwrap_or(0);
        self.deferred.insert((spot, group), Deferred { at: scene.at, clock_ms, delay_ms });
    }

    /// Its retry begins: not before it is due.
    fn retried(&mut self, spot: Spot, group: u8, idle_ms: i64, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(deferred) = self.deferred.remove(&(spot.clone(), group)) else { return };
        let elapsed = self.elapsed_ms(spot.broker, &deferred, scene.at);
        let delay = i64::try_from(deferred.delay_ms).unwrap_or(i64::MAX);
        // The server counts whole milliseconds.
        if elapsed + 1 < delay || idle_ms < i64::try_from(RETRY_HORIZON_MS).unwrap_or(i64::MAX) {
            return verdict.fail(28, scene.at, Host::Broker(spot.broker), || {
                format!("{spot} was retried in group g{group} after {elapsed} ms of the server's time; it was due after {delay} ms")
            });
        }
        verdict.mark("retry due and delivered again");
    }

    /// Whether a broker executes for a consumer what that has given up: it cannot hold back from anything for its sake.
    fn is_given_up(broker: u32, consumer: &Bytes, scene: &Scene<'_>) -> bool {
        let consumer = Who::named(consumer).and_then(|who| scene.ledger.hands.consumer(who));
        consumer.is_some_and(|consumer| consumer.ended.is_some()) || scene.runs_for_nobody(broker)
    }

    /// Its holder fell silent, to whom it had been delivered so often.
    ///
    /// What counts is whom it was given to, not whether it arrived, or whether an acknowledgement was on its way back: a
    /// broker cannot tell a consumer that died of an entry from one that died, or was cut off, before or after.
    fn taken_over(&mut self, spot: Spot, group: u8, from: &Bytes, deliveries: u64, scene: &Scene<'_>) {
        let Some(who) = Who::named(from).filter(|_| deliveries >= u64::from(SUSPECT_FROM)) else { return };
        let hands = &scene.ledger.hands;
        let is_suspect = |hand: &&HandState| {
            hand.deliveries >= SUSPECT_FROM && !self.waited.contains(&(hand.spot.clone(), hand.group))
        };
        let mut others = hands.left(who).filter(|hand| hand.spot != spot).filter(is_suspect);
        // One that is done is in nobody's hand, but its acknowledgement was on the way.
        let done = hands.at(&spot).any(|hand| hand.who == who && hand.says(Given::Done));
        if done || others.next().is_none() {
            self.alone.insert((spot, group));
        }
    }

    /// It is given back: its handler had its chance if it had started.
    fn given_back(&mut self, spot: Spot, group: u8, from: &Bytes, scene: &Scene<'_>) {
        let last = Who::named(from).and_then(|who| scene.ledger.hands.at(&spot).rfind(|hand| hand.who == who));
        if last.is_some_and(|hand| hand.started) {
            self.unfinished.insert((spot, group));
        }
    }

    /// A dead letter: once for each entry and group, and only for what deserves it.
    fn buried(&mut self, broker: u32, key: &Bytes, fields: &[Bytes], scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(Word::Script(script @ (Script::Claim | Script::Dead))) = scene.ledger.hands.running(broker) else {
            return;
        };
        let Some(spot) = origin(broker, key, fields) else { return };
        let Some(group) = field(fields, b"dead-group") else { return };
        let host = Host::Broker(broker);
        let copies = self.dead.entry((spot.clone(), group.clone())).or_default();
        *copies += 1;
        if *copies > 1 {
            let group = String::from_utf8_lossy(group);
            verdict.fail(27, scene.at, host, || {
                format!("{spot} became a dead letter of group {group} for the {copies}th time; once is enough")
            });
        }
        let Some(group) = group_number(group) else { return };
        let deliveries =
            field(fields, b"dead-deliveries").and_then(|n| std::str::from_utf8(n).ok()?.parse::<u32>().ok());
        let most = scene.plan.knobs.max_deliveries;
        if script != Script::Claim {
            return;
        }
        if deliveries.is_none_or(|n| n < most) {
            verdict.fail(27, scene.at, host, || {
                format!("{spot} became a dead letter after {deliveries:?} deliveries; it may have {most}")
            });
        }
        let failed =
            |hand: &HandState| hand.group == group && hand.verdict.is_some_and(|(verdict, _)| verdict != Given::Done);
        // The script takes it from its last holder and buries it in one step.
        let name = Plan::group(group);
        let last = scene.ledger.streams.get(&(spot.broker, spot.key.clone())).and_then(|stream| {
            let pending = stream.groups.get(name.as_bytes())?.pending.get(&spot.id)?;
            Some((pending.consumer.clone(), pending.deliveries))
        });
        if let Some((last, deliveries)) = last {
            self.taken_over(spot.clone(), group, &last, deliveries, scene);
        }
        let entry = (spot.clone(), group);
        let excuses = [&self.alone, &self.unfinished, &self.ghosts];
        let excused = most < SUSPICION_NEEDS || excuses.iter().any(|excuse| excuse.contains(&entry));
        if !excused && !scene.ledger.hands.at(&spot).any(failed) {
            verdict.fail(27, scene.at, host, || {
                format!("{spot} became a dead letter of group g{group}; none of its handlers failed, and it was never alone in the hands of one that fell silent, or on its way there")
            });
        }
    }
}

/// What was asked to be retried must wait: it is not given back to be taken at once.
fn check_release(spot: &Spot, from: &Bytes, scene: &Scene<'_>, verdict: &mut Verdict) {
    let Some(who) = Who::named(from) else { return };
    if scene.plan.fidelity == Fidelity::Full && scene.ledger.hands.consumer(who).is_some_and(|state| state.stopping) {
        // Its grace may have ended before the verdict: a driver does not say.
        return;
    }
    let taken = scene.ledger.hands.taken(spot, who);
    let Some(last) = scene.ledger.hands.at(spot).rfind(|hand| hand.who == who) else { return };
    if let Some((Given::Retry, at)) = last.verdict
        && taken.is_none_or(|taken| taken <= at)
    {
        verdict.fail(28, scene.at, Host::Broker(spot.broker), || {
            format!("{who} gave {spot} back although its handler asked for a retry, which has to wait")
        });
    }
}

/// How long a retry waits after so many deliveries: twice as long each time, up to the cap.
fn delay_ms(knobs: &Knobs, deliveries: u32) -> u64 {
    let doublings = deliveries.saturating_sub(1).min(31);
    knobs.retry_base_ms.saturating_mul(1 << doublings).min(knobs.retry_cap_ms).min(RETRY_HORIZON_MS)
}

fn field<'a>(fields: &'a [Bytes], name: &[u8]) -> Option<&'a Bytes> {
    fields.chunks_exact(2).find(|pair| pair.first().is_some_and(|key| key.as_ref() == name))?.get(1)
}

/// Which entry a dead letter was.
fn origin(broker: u32, key: &Bytes, fields: &[Bytes]) -> Option<Spot> {
    let topic = std::str::from_utf8(key).ok()?.strip_prefix("stream:topic:")?.strip_suffix(":dlq")?;
    let partition = std::str::from_utf8(field(fields, b"dead-partition")?).ok()?.parse().ok()?;
    let key = flota_core::key::partition(topic, partition);
    let id = StreamId::parse(field(fields, b"dead-origin")?)?;
    Some(Spot { broker, key: Bytes::copy_from_slice(key.as_str().as_bytes()), id })
}
