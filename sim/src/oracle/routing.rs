//! Where messages go: invariants 16 to 18.
//!
//! What a service may know of its brokers is what it told its application. A broker whose memory was full when that was
//! last known counts as full until it is told otherwise over the same connection; it gets one message now and then to
//! find out. Messages with a key are exempt from 16 and 18: they may wait for the broker that is their home. A broker that
//! has been told of a topic and has not answered yet says with that how many partitions there are: messages wait for it,
//! and go there together when it has.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use flota_core::config::Endpoint;
use flota_core::script::Script;

use super::track::{Members, News, Standing, mono_us, seconds};
use super::{Oracle, Scene, Verdict};
use crate::plan::Plan;
use crate::seen::{Host, Item, Line, Seen, What, Word};

pub(super) struct Routing {
    services: Vec<Sender>,
    /// Messages whose script their broker did not know.
    unloaded: BTreeSet<Item>,
}

#[derive(Default)]
struct Sender {
    members: Members,
    /// Accepted, without a key, and on no connection.
    unplaced: BTreeSet<Item>,
    /// Messages without a key by address, since the set of brokers that take them last changed.
    counts: BTreeMap<Endpoint, u64>,
    /// A lane has been at its limit and has not drained to half since.
    crowded: bool,
    /// A registration was answered in this turn: what waited for it goes out, and was dealt before.
    dealt_before: bool,
    /// When each full broker last got a message; by its own clock.
    probed_us: BTreeMap<Endpoint, u64>,
}

impl Routing {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { services: plan.services.iter().map(|_| Sender::default()).collect(), unloaded: BTreeSet::new() }
    }
}

impl Oracle for Routing {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        if let (Host::Broker(_), What::Executed { command: Word::Add(Some(item)), refused: Some(refused), .. }) =
            (seen.host, &seen.what)
            && refused == "NOSCRIPT"
        {
            self.unloaded.insert(*item);
        }
        let Host::Service(service) = seen.host else { return };
        let Some(sender) = self.services.get_mut(service as usize) else { return };
        match scene.lines.news() {
            News::Wrote(line, word) => {
                // A script that was not loaded is sent again, to the same broker: that is no choice.
                if let Word::Add(Some(item)) = word
                    && self.unloaded.remove(item)
                {
                    sender.unplaced.remove(item);
                } else if let Word::Add(Some(item)) = word {
                    sender.placed(service, *item, *line, seen, scene, verdict);
                }
                sender.note_room(service, *line, scene, verdict);
            }
            News::Answered(line, word) => {
                match word {
                    Word::Add(Some(item)) => sender.wants(*item, scene),
                    Word::Script(Script::Ensure) => sender.dealt_before = true,
                    _ => {}
                }
                sender.note_room(service, *line, scene, verdict);
            }
            News::Gone(wire) => {
                for word in &wire.unanswered {
                    if let Word::Add(Some(item)) = word {
                        self.unloaded.remove(item);
                        sender.wants(*item, scene);
                    }
                }
                sender.counts.clear();
                sender.note_drained(service, scene);
            }
            News::Nothing => sender.see(service, seen, scene, verdict),
        }
    }
}

impl Sender {
    fn see(&mut self, service: u32, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        if self.members.see(&seen.what) {
            self.counts.clear();
        }
        match &seen.what {
            What::Born(_) | What::Died(_) | What::Stopped => *self = Self::default(),
            What::Fleet { address, .. } if self.members.at(address).any(|standing| standing.full) => {}
            What::Fleet { address, .. } => {
                self.probed_us.remove(address);
            }
            // What it was told before it stood still it acts upon now.
            What::Resumed => self.probed_us.clear(),
            What::Submitted { item, accepted: Ok(()) } => self.wants(*item, scene),
            What::Done { item, .. } => {
                self.unplaced.remove(item);
            }
            What::Turn { .. } => {
                self.conserves(service, seen.at, scene, verdict);
                if std::mem::take(&mut self.dealt_before) {
                    self.counts.clear();
                }
            }
            _ => {}
        }
    }

    /// It needs a broker, unless it is resolved: cancelled ones still get their answer.
    fn wants(&mut self, item: Item, scene: &Scene<'_>) {
        let open = scene.ledger.items.get(item.0 as usize).is_some_and(|state| state.done.is_none());
        if open && is_unkeyed(item, scene.plan) {
            self.unplaced.insert(item);
        }
    }

    /// A message was written: 17, and what 16 counts.
    fn placed(&mut self, service: u32, item: Item, line: Line, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(wire) = scene.lines.get(service, line) else { return };
        self.unplaced.remove(&item);
        let there: Vec<&Standing> = self.members.at(&wire.to).collect();
        if !there.iter().any(|standing| standing.ready && !standing.leaving) {
            verdict.fail(17, seen.at, seen.host, || {
                let state = match there.first() {
                    None => "is no member of its fleet",
                    Some(standing) if standing.leaving => "has left its fleet",
                    Some(_) => "is not ready",
                };
                format!(
                    "{item} is sent to {}, which {state} by the service's own events; it goes to a ready member",
                    wire.to
                )
            });
            return;
        }
        if !there.iter().any(|standing| standing.is_able()) {
            let to = wire.to.clone();
            self.probed(service, item, to, seen, scene, verdict);
            self.counts.clear();
            return;
        }
        if is_unkeyed(item, scene.plan) && !self.crowded && !self.dealt_before {
            *self.counts.entry(wire.to.clone()).or_default() += 1;
            self.is_fair(service, &wire.to, seen, scene, verdict);
        }
    }

    /// A broker whose memory is full gets a message now and then, to see whether it still is.
    fn probed(
        &mut self,
        service: u32,
        item: Item,
        to: Endpoint,
        seen: &Seen,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        verdict.mark("a full broker was probed");
        let now = mono_us(scene.plan, service, seen.at);
        if let Some(last) = self.probed_us.insert(to.clone(), now)
            && now + TURN_US < last + PROBE_US
        {
            verdict.fail(17, seen.at, seen.host, || {
                format!(
                    "{item} is sent to {to}, whose memory is full, {} after the last one; a full \
                     broker gets one message in {}",
                    seconds(now - last),
                    seconds(PROBE_US)
                )
            });
        }
    }

    /// 16: who was just sent to is not ahead of anybody else who can take messages by more than one.
    fn is_fair(&self, service: u32, to: &Endpoint, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        // Others have been dealt and are not written yet: for whom is not known.
        if !self.unplaced.is_empty() {
            return;
        }
        let count = |address: &Endpoint| self.counts.get(address).copied().unwrap_or(0);
        let most = count(to);
        let behind =
            |standing: &&Standing| most > count(&standing.address) + 1 && !is_asked(service, &standing.address, scene);
        if most > 1
            && let Some(least) = self.members.able().find(behind)
        {
            verdict.fail(16, seen.at, seen.host, || {
                format!(
                    "{to} has got {most} messages without a key and {} has got {} since the set of ready brokers last \
                     changed; they may differ by one",
                    least.address,
                    count(&least.address)
                )
            });
        }
    }

    /// Notices lanes that fill up, and the moment in which all have drained.
    fn note_room(&mut self, service: u32, line: Line, scene: &Scene<'_>, verdict: &mut Verdict) {
        let most = scene.plan.knobs.pipeline as usize;
        if scene.lines.get(service, line).is_some_and(|wire| wire.unanswered.len() >= most) {
            if !self.crowded {
                verdict.mark("a lane was at its limit");
            }
            self.crowded = true;
        } else {
            self.note_drained(service, scene);
        }
    }

    fn note_drained(&mut self, service: u32, scene: &Scene<'_>) {
        if self.crowded && scene.lines.are_drained(service) {
            self.crowded = false;
            self.counts.clear();
        }
    }

    /// 18: nothing waits while somebody could take it.
    fn conserves(&self, service: u32, at: u64, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(item) = self.unplaced.first().copied() else { return };
        // Also of one that is full: it gets a message now and then.
        if scene.lines.of(service).any(|wire| wire.unanswered.iter().any(is_registration)) {
            return;
        }
        let half = scene.plan.knobs.pipeline as usize / 2;
        let has_room =
            |standing: &&Standing| scene.lines.to(service, &standing.address).all(|wire| wire.unanswered.len() <= half);
        if let Some(standing) = self.members.able().find(has_room) {
            verdict.fail(18, at, Host::Service(service), || {
                format!(
                    "the turn ends and {} messages wait ({item} among them), and {} is ready and has room for them",
                    self.unplaced.len(),
                    standing.address
                )
            });
        }
    }
}

/// Whether a broker has been told of a topic and has not answered.
fn is_asked(service: u32, address: &Endpoint, scene: &Scene<'_>) -> bool {
    scene.lines.to(service, address).any(|wire| wire.unanswered.iter().any(is_registration))
}

pub(super) fn is_registration(word: &Word) -> bool {
    matches!(word, Word::Script(Script::Ensure))
}

fn is_unkeyed(item: Item, plan: &Plan) -> bool {
    plan.work.get(item.0 as usize).is_some_and(|work| work.key.is_none())
}

/// A turn takes in inputs for so long before it says what came of the first.
const TURN_US: u64 = 1_000;
/// How often a full broker may get a message: the core's default.
const PROBE_US: u64 = 250_000;
