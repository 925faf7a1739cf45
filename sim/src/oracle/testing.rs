//! A bench for oracles: observations by hand, one oracle, and what it says.

use super::track::Lines;
use super::{Ledger, Oracle, Scene, Verdict};
use crate::broker::Change;
use crate::plan::{BrokerPlan, Fate, Knobs, Network, Persistence, Plan, ServicePlan, Work};
use crate::seen::{Host, Seen, What};

pub(super) struct Bench {
    pub(super) plan: Plan,
    /// True time of the next observation, in microseconds.
    pub(super) at: u64,
    ledger: Ledger,
    lines: Lines,
    oracle: Box<dyn Oracle>,
    verdict: Verdict,
}

/// So many services with exact clocks, announced brokers, and messages of service 0.
pub(super) fn plan(services: u32, brokers: u32, messages: u64) -> Plan {
    let service = ServicePlan { from_ms: 0, rate_ppm: 0, offset_ms: 0, consumes: Vec::new(), subscribe_loop_ms: 0 };
    let broker = BrokerPlan {
        from_ms: 0,
        interval_ms: 1_000,
        offset_ms: 0,
        service_us: 10,
        persistence: Persistence::Never,
        memory_max: 0,
    };
    let work = |at_ms| Work {
        at_ms,
        service: 0,
        topic: 0,
        key: None,
        bytes: 20,
        at_most_once: false,
        cancel_after_us: None,
        delay_ms: None,
        fate: Fate::Done,
    };
    Plan {
        scenario: "by hand".to_string(),
        seed: 0,
        knobs: Knobs::default(),
        network: Network::default(),
        brokers: (0..brokers).map(|_| broker.clone()).collect(),
        services: (0..services).map(|_| service.clone()).collect(),
        work: (0..messages).map(work).collect(),
        faults: Vec::new(),
        warm_up_ms: 0,
        heal_at_ms: 1_000,
        shuffled: false,
        fidelity: crate::plan::Fidelity::Fast,
    }
}

impl Bench {
    pub(super) fn new(plan: Plan, oracle: impl FnOnce(&Plan) -> Box<dyn Oracle>) -> Self {
        let oracle = oracle(&plan);
        let (ledger, lines) = (Ledger::new(&plan), Lines::new(&plan));
        Self { at: 1_000_000, ledger, lines, oracle, verdict: Verdict::default(), plan }
    }

    pub(super) fn see(&mut self, host: Host, what: What) {
        let seen = Seen { at: self.at, host, what };
        self.ledger.see(&seen);
        self.lines.see(&seen);
        let scene = Scene { at: self.at, plan: &self.plan, ledger: &self.ledger, lines: &self.lines };
        self.oracle.see(&seen, &scene, &mut self.verdict);
    }

    /// Of service 0.
    pub(super) fn service(&mut self, what: What) {
        self.see(Host::Service(0), what);
    }

    /// Of broker 0.
    pub(super) fn broker(&mut self, what: What) {
        self.see(Host::Broker(0), what);
    }

    /// On broker 0.
    pub(super) fn change(&mut self, change: Change) {
        self.broker(What::Changed(Box::new(change)));
    }

    pub(super) fn end(&mut self) {
        let scene = Scene { at: self.at, plan: &self.plan, ledger: &self.ledger, lines: &self.lines };
        self.oracle.end(&scene, &mut self.verdict);
    }

    /// The invariants that did not hold so far, in their order.
    pub(super) fn violated(&self) -> Vec<u8> {
        let mut numbers: Vec<u8> = self.verdict.violations.iter().map(|violation| violation.invariant).collect();
        numbers.sort_unstable();
        numbers
    }

    pub(super) fn hits(&self, mark: &str) -> u64 {
        self.verdict.marks.hits(mark)
    }
}
