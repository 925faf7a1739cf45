//! Oracles: what must hold in every run. Each invariant has a number, which its violation names.
//!
//! Oracles read the same observations as everybody else ([`Seen`]), and the [`Ledger`] that is kept
//! from them. They never look into an engine: what they judge is what an application, a broker or a clock could see.

mod consumer;
mod engine;
mod fleet;
mod hands;
mod hygiene;
mod ledger;
mod outcomes;
mod producer;
mod progress;
mod quiet;
mod retry;
mod routing;
mod schedule;
#[cfg(test)]
mod testing;
mod track;

pub use hands::{ConsumerState, HandState, Hands, Spot, Who};
pub use ledger::{EntryState, GroupState, ItemState, Ledger, PendingState, ServiceState, StreamState};
pub use outcomes::{Class, Outcome};

use std::collections::BTreeMap;

use track::Lines;

use crate::invariants::CHECK;
use crate::plan::{Fidelity, Plan};
use crate::seen::{Host, Seen, What};

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number; 0 is the simulator's own: a gap of the model.
    pub invariant: u8,
    /// True time, in microseconds.
    pub at: u64,
    /// Where.
    pub host: Host,
    /// What was seen, and what should have been.
    pub text: String,
}

/// One or several invariants that need the same bookkeeping.
pub(crate) trait Oracle {
    /// Takes an observation in. The ledger and the connections have it already.
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict);

    /// The run is over: final accounts.
    fn end(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        let _ = (scene, verdict);
    }

    /// Everything is healed, and the time in which it should have come right is over.
    fn late(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        let _ = (scene, verdict);
    }
}

/// What an oracle may look at besides the observation.
pub(crate) struct Scene<'a> {
    pub(crate) at: u64,
    pub(crate) plan: &'a Plan,
    pub(crate) ledger: &'a Ledger,
    pub(crate) lines: &'a Lines,
}

impl Scene<'_> {
    /// Whether a broker executes something for a connection that its service has given up: nobody hears of it.
    fn runs_for_nobody(&self, broker: u32) -> bool {
        self.ledger.hands.running_for(broker).is_some_and(|line| self.lines.is_given_up(line))
    }
}

/// Where oracles write.
#[derive(Default)]
pub(crate) struct Verdict {
    /// The first violation of each invariant, in the order in which they were found.
    violations: Vec<Violation>,
    marks: Marks,
}

impl Verdict {
    /// An invariant does not hold.
    pub(crate) fn fail(&mut self, invariant: u8, at: u64, host: Host, text: impl FnOnce() -> String) {
        if self.violations.iter().all(|known| known.invariant != invariant) {
            self.violations.push(Violation { invariant, at, host, text: text() });
        }
    }

    /// Something that should happen sometimes has happened.
    pub(crate) fn mark(&mut self, name: &'static str) {
        self.marks.hit(name);
    }
}

/// How often each thing happened that should happen sometimes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks(BTreeMap<&'static str, u64>);

impl Marks {
    /// Counts one.
    pub fn hit(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (name, hits) in &other.0 {
            *self.0.entry(name).or_default() += hits;
        }
    }

    /// Every mark with its hits, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, hits)| (*name, *hits))
    }

    /// Hits of one.
    #[must_use]
    pub fn hits(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

fn oracles(plan: &Plan) -> Vec<Box<dyn Oracle>> {
    let mut oracles: Vec<Box<dyn Oracle>> = vec![
        Box::new(producer::Producer::new(plan)),
        Box::new(consumer::Consuming::default()),
        Box::new(retry::Retrying::new(plan)),
        Box::new(schedule::Scheduling::new(plan)),
        Box::new(progress::Progress::new(plan)),
        Box::new(hygiene::Housekeeping::default()),
        Box::new(fleet::Fleet::new(plan)),
    ];
    if plan.fidelity == Fidelity::Fast {
        // They judge what an engine says within a turn, and inside of a driver nobody sees that.
        oracles.push(Box::new(routing::Routing::new(plan)));
        oracles.push(Box::new(engine::Driving::default()));
    }
    oracles
}

/// All oracles, and what they read.
pub(crate) struct Judge {
    ledger: Ledger,
    lines: Lines,
    oracles: Vec<Box<dyn Oracle>>,
    verdict: Verdict,
}

impl Judge {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { ledger: Ledger::new(plan), lines: Lines::new(plan), oracles: oracles(plan), verdict: Verdict::default() }
    }

    pub(crate) fn see(&mut self, seen: &Seen, plan: &Plan) {
        self.ledger.see(seen);
        self.lines.see(seen);
        if let What::Gap(command) = &seen.what {
            self.verdict.fail(0, seen.at, seen.host, || format!("the model broker lacks {command}"));
        }
        let scene = Scene { at: seen.at, plan, ledger: &self.ledger, lines: &self.lines };
        for oracle in &mut self.oracles {
            oracle.see(seen, &scene, &mut self.verdict);
        }
    }

    /// Everything that was accepted is resolved, and nothing is undelivered or pending anywhere.
    pub(crate) fn is_settled(&self) -> bool {
        self.ledger.unresolved().is_none() && self.ledger.unfinished().is_none()
    }

    pub(crate) fn late(&mut self, at: u64, plan: &Plan) {
        let scene = Scene { at, plan, ledger: &self.ledger, lines: &self.lines };
        if let Some((item, service)) = self.ledger.unresolved() {
            let text = || format!("message {} was accepted and is not resolved long after everything healed", item.0);
            self.verdict.fail(4, at, Host::Service(service), text);
        }
        if let Some((broker, text)) = self.ledger.unfinished() {
            self.verdict.fail(19, at, Host::Broker(broker), || text);
        }
        for oracle in &mut self.oracles {
            oracle.late(&scene, &mut self.verdict);
        }
    }

    pub(crate) fn end(&mut self, at: u64, plan: &Plan) {
        let scene = Scene { at, plan, ledger: &self.ledger, lines: &self.lines };
        for oracle in &mut self.oracles {
            oracle.end(&scene, &mut self.verdict);
        }
    }

    /// The application says that something is wrong.
    pub(crate) fn complain(&mut self, at: u64, text: String) {
        self.verdict.fail(CHECK, at, Host::World, || text);
    }

    /// The first violation of each invariant so far.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.verdict.violations
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.verdict.marks
    }

    /// What became of each message so far.
    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        self.ledger.outcomes()
    }
}
