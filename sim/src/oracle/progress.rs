//! What must not take long: taking back what is pending under a living consumer's name and in nobody's hand (45), and
//! consuming from a broker whose memory is full (48), and asking for messages while there is credit (29).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::hands::{ConsumerState, HandState, Spot, Who, group_number};
use super::ledger::PendingState;
use super::quiet::Quiet;
use super::{Oracle, Scene, Verdict};
use crate::plan::{Plan, Trouble};
use crate::seen::{Given, Host, Seen, What};

pub(crate) struct Progress {
    quiet: Quiet,
    next_look: u64,
    busy: BTreeMap<Who, Busy>,
    /// Brokers that have forgotten something: an engine learns of what came back only by comparing numbers twice.
    forgetful: Vec<bool>,
    /// When a broker's memory became full; none while it is not.
    full: Vec<Option<u64>>,
}

/// When a consumer last had no room.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    /// It had something in hand.
    held: u64,
    /// Its credit was used up.
    full: u64,
    /// It had a suspect in hand, beside which no other may run.
    suspect: u64,
}

/// How often it is looked at, in microseconds.
const LOOK_US: u64 = 200_000;
/// `Timing::block_margin`.
const MARGIN_US: u64 = 1_000_000;
/// Round trips, turns that are put off, and a claim that waits behind other claims.
const SLACK_US: u64 = 2_000_000;

/// How long a reader rests after a refusal.
const REST_US: u64 = 5_000_000;

impl Progress {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            quiet: Quiet::new(plan),
            next_look: 0,
            busy: BTreeMap::new(),
            forgetful: vec![false; plan.brokers.len()],
            full: vec![None; plan.brokers.len()],
        }
    }
}

impl Oracle for Progress {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        self.quiet.see(seen, scene.plan);
        match (seen.host, &seen.what) {
            (Host::Broker(broker), What::Forgot(_)) => {
                if let Some(forgetful) = self.forgetful.get_mut(broker as usize) {
                    *forgetful = true;
                }
            }
            (Host::World, What::FaultBegins(fault)) => self.fault(*fault, Some(seen.at), scene.plan),
            (Host::World, What::FaultEnds(fault)) => self.fault(*fault, None, scene.plan),
            _ => {}
        }
        if seen.at >= self.next_look {
            self.next_look = seen.at + LOOK_US;
            self.look(scene, verdict);
        }
    }
}

impl Progress {
    fn fault(&mut self, fault: u32, since: Option<u64>, plan: &Plan) {
        if let Some(Trouble::BrokerFull { broker }) = plan.faults.get(fault as usize).map(|fault| &fault.what)
            && let Some(full) = self.full.get_mut(*broker as usize)
        {
            *full = since;
        }
    }

    fn look(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        let stalled = if self.full.iter().any(Option::is_some) { stalled(scene) } else { BTreeMap::new() };
        for (who, consumer) in scene.ledger.hands.open() {
            let busy = self.busy.entry(who).or_default();
            if consumer.held > 0 || consumer.stopping {
                busy.held = scene.at;
            }
            if consumer.held + stalled.get(&who).copied().unwrap_or(0) >= consumer.in_flight {
                busy.full = scene.at;
            }
            if scene.ledger.hands.left(who).any(|hand| hand.is_held() && hand.deliveries > 1) {
                busy.suspect = scene.at;
            }
        }
        self.look_at_readers(scene, verdict);
        for ((broker, key), stream) in scene.ledger.streams.iter().filter(|(_, stream)| stream.partition.is_some()) {
            for (name, group) in &stream.groups {
                for (id, pending) in &group.pending {
                    let Some(who) = Who::named(&pending.consumer) else { continue };
                    let spot = Spot { broker: *broker, key: key.clone(), id: *id };
                    self.look_at_pending(&spot, who, pending, scene, verdict);
                }
                let next = stream.entries.range(group.last..).find(|(id, _)| **id > group.last);
                if let (Some((id, entry)), Some(number)) = (next, group_number(name)) {
                    let spot = Spot { broker: *broker, key: key.clone(), id: *id };
                    self.look_at_waiting(&spot, number, entry.at, scene, verdict);
                }
            }
        }
    }

    /// Who has nothing in hand has all its credit, and asks for messages.
    fn look_at_readers(&self, scene: &Scene<'_>, verdict: &mut Verdict) {
        for (service, broker, idle_since) in self.quiet.idle_readers() {
            let life = scene.ledger.services.get(service as usize).and_then(|state| state.life);
            let ours = |who: &Who| who.service == service && Some(who.life) == life;
            let mut open = scene.ledger.hands.open().filter(|(who, _)| ours(who));
            if life.is_none() || !open.all(|(who, _)| active(who, scene).is_some()) {
                continue;
            }
            // A broker that just answered on this connection may be waited for on the other one: a backoff may be long.
            if !self.quiet.is_linked(service, broker) {
                continue;
            }
            let busy = self.busy.iter().filter(|(who, _)| ours(who)).map(|(_, busy)| busy.held).max();
            let quiet = self.quiet.since(service, broker, scene.at, scene.plan, |_| false);
            let since = idle_since.max(busy.unwrap_or(0)).max(quiet);
            let most = self.limit_us(broker, scene.plan) + REST_US;
            if scene.at.saturating_sub(since) > most {
                verdict.fail(29, scene.at, Host::Service(service), || {
                    let passed = (scene.at - since) / 1000;
                    format!("nothing is in hand, and for {passed} ms it has asked broker {broker} for nothing on a connection of a subscription; credit that nothing holds must be used")
                });
            }
        }
    }

    /// An entry that is pending under a consumer's name: is it in that consumer's hand?
    fn look_at_pending(&self, spot: &Spot, who: Who, pending: &PendingState, scene: &Scene<'_>, verdict: &mut Verdict) {
        let hands = &scene.ledger.hands;
        let Some(consumer) = active(who, scene) else { return };
        if !self.quiet.is_linked(who.service, spot.broker) {
            return;
        }
        let mine = |hand: &&HandState| hand.who == who;
        if hands.at(spot).filter(mine).any(HandState::is_held) {
            return;
        }
        let last = hands.at(spot).filter(mine).filter_map(|hand| hand.verdict).next_back();
        let said_at = last.map_or(0, |(_, at)| at);
        if last.is_some_and(|(given, at)| given == Given::Done && at >= pending.since) {
            self.look_at_unacknowledged(spot, who, said_at, scene, verdict);
        }
        let busy = self.busy.get(&who).copied().unwrap_or_default();
        let suspect = if pending.deliveries > 1 { busy.suspect } else { 0 };
        let quiet = self.quiet.since(who.service, spot.broker, scene.at, scene.plan, |_| false);
        let since = pending.since.max(said_at).max(busy.full).max(suspect).max(quiet);
        let most = self.limit_us(spot.broker, scene.plan);
        if scene.at.saturating_sub(since) > most && consumer.held < consumer.in_flight {
            verdict.fail(45, scene.at, Host::Broker(spot.broker), || {
                let (passed, known) = ((scene.at - since) / 1000, last.map(|(given, _)| given));
                format!("{spot} is pending under {who} and in nobody's hand (last verdict: {known:?}); {passed} ms of quiet have passed, {} ms must do", most / 1000)
            });
        }
    }

    /// Until an orphan is claimed back: the old connection's read may block that long, and the new one's comes to its
    /// end first.
    fn limit_us(&self, broker: u32, plan: &Plan) -> u64 {
        let knobs = &plan.knobs;
        let network = 20 * (plan.network.latency_us + plan.network.jitter_us) + 4 * plan.network.spike_us;
        let block = 2 * knobs.block_ms * 1000 + MARGIN_US + SLACK_US + network;
        let forgetful = self.forgetful.get(broker as usize).copied().unwrap_or(false);
        // Two surveys that agree, each up to a fifth later than its period, and one that was just missed.
        block + if forgetful { 4 * knobs.claim_period_ms * 1000 * 6 / 5 } else { 0 }
    }

    fn look_at_unacknowledged(&self, spot: &Spot, who: Who, said_at: u64, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(full) = self.full.get(spot.broker as usize).copied().flatten() else { return };
        let quiet = self.quiet.since(who.service, spot.broker, scene.at, scene.plan, is_full);
        let since = full.max(said_at).max(quiet);
        let most = self.limit_us(spot.broker, scene.plan);
        if scene.at.saturating_sub(since) > most {
            verdict.fail(48, scene.at, Host::Broker(spot.broker), || {
                let passed = (scene.at - since) / 1000;
                format!("memory is full there, and {spot}, which {who} has done with, is not acknowledged after {passed} ms; consuming must go on")
            });
        }
    }

    /// An entry that nobody was given yet, on a broker whose memory is full.
    fn look_at_waiting(&self, spot: &Spot, group: u8, added_at: u64, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(full) = self.full.get(spot.broker as usize).copied().flatten() else { return };
        let most = self.limit_us(spot.broker, scene.plan);
        for (who, consumer) in scene.ledger.hands.open().filter(|(_, consumer)| consumer.group == group) {
            let stream = scene.ledger.streams.get(&(spot.broker, spot.key.clone()));
            let topic = stream.and_then(|stream| stream.partition.as_ref());
            let reads = topic.is_some_and(|(topic, _)| *topic == Plan::topic(consumer.topic));
            if !reads || active(who, scene).is_none() || !self.quiet.is_linked(who.service, spot.broker) {
                continue;
            }
            let quiet = self.quiet.since(who.service, spot.broker, scene.at, scene.plan, is_full);
            let busy = self.busy.get(&who).copied().unwrap_or_default();
            let since = full.max(added_at).max(busy.full).max(quiet);
            if scene.at.saturating_sub(since) > most {
                verdict.fail(48, scene.at, Host::Broker(spot.broker), || {
                    let passed = (scene.at - since) / 1000;
                    format!(
                        "memory is full there, and {spot} is not read by {who} after {passed} ms; consuming must go on"
                    )
                });
            }
        }
    }
}

/// How many entries of each consumer wait to be put away for a retry: while memory is full they take room, as if they
/// were in hand.
fn stalled(scene: &Scene<'_>) -> BTreeMap<Who, u32> {
    let mut stalled = BTreeMap::new();
    for ((broker, key), stream) in scene.ledger.streams.iter().filter(|(_, stream)| stream.partition.is_some()) {
        for (id, pending) in stream.groups.values().flat_map(|group| &group.pending) {
            let Some(who) = Who::named(&pending.consumer) else { continue };
            let spot = Spot { broker: *broker, key: key.clone(), id: *id };
            let last = scene.ledger.hands.at(&spot).rfind(|hand| hand.who == who);
            if last.is_some_and(|hand| hand.says(Given::Retry)) {
                *stalled.entry(who).or_default() += 1;
            }
        }
    }
    stalled
}

/// The consumer, if its process runs and it means to go on.
fn active<'a>(who: Who, scene: &Scene<'a>) -> Option<&'a ConsumerState> {
    let service = scene.ledger.services.get(who.service as usize)?;
    if service.paused || service.stopping || service.life != Some(who.life) {
        return None;
    }
    scene.ledger.hands.consumer(who).filter(|consumer| consumer.ended.is_none() && !consumer.stopping)
}

fn is_full(what: &Trouble) -> bool {
    matches!(what, Trouble::BrokerFull { .. })
}
