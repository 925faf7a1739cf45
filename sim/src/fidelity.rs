//! Both fidelities of one plan (44): where nothing goes wrong, what becomes of each message is the same with engines alone
//! and with the real driver and client.
//!
//! Times, orders and connections differ, because a driver takes turns of its own; and when something goes wrong, they
//! decide what becomes of a message. So only plans without faults are compared.

use crate::oracle::Outcome;
use crate::plan::{Fidelity, Knobs, Network, Plan};
use crate::report::Report;
use crate::seen::Item;
use crate::trial::Trial;
use crate::world::World;

/// A plan, run in both fidelities.
#[derive(Clone, Debug)]
pub struct Compared {
    /// With engines alone.
    pub fast: Report,
    /// With the real driver and client.
    pub full: Report,
}

/// A message that came out differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub item: Item,
    /// What became of it with engines alone.
    pub fast: Outcome,
    /// … and with the real driver and client.
    pub full: Outcome,
}

/// The plan without anything that is a fault by another name: a link that is slower than what is sent, and senders that
/// give up.
#[must_use]
pub fn without_faults(mut plan: Plan) -> Plan {
    plan.faults.clear();
    plan.network.send_buffer = Network::default().send_buffer;
    plan.knobs.send_init_ms = Knobs::default().send_init_ms;
    plan
}

/// Runs a plan in both fidelities, each as `prepare` wants it.
#[must_use]
pub fn compare(plan: &Plan, prepare: impl Fn(&mut World)) -> Compared {
    let run = |fidelity| Trial::with(Plan { fidelity, ..plan.clone() }, &prepare).report;
    Compared { fast: run(Fidelity::Fast), full: run(Fidelity::Full) }
}

impl Compared {
    /// The messages that came out differently.
    #[must_use]
    pub fn differences(&self) -> Vec<Difference> {
        let both = self.fast.outcomes.iter().zip(&self.full.outcomes).zip(0u32..);
        both.filter(|((fast, full), _)| fast != full)
            .map(|((fast, full), number)| Difference { item: Item(number), fast: fast.clone(), full: full.clone() })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn outcomes_of(scenario: Scenario, seed: u64) -> Report {
        let plan = without_faults(scenario.draw(seed, 5_000));
        Trial::run(plan).report
    }

    #[test]
    fn what_comes_out_alike_does_not_differ() {
        let one = outcomes_of(Scenario::Calm, 1);
        assert!(one.outcomes.iter().any(|outcome| !outcome.handled.is_empty()), "nothing was handled");
        let same = Compared { fast: one.clone(), full: one };
        assert_eq!(same.differences(), Vec::new());
    }

    #[test]
    fn a_message_that_one_fidelity_does_not_hand_out_differs() {
        let fast = outcomes_of(Scenario::Calm, 1);
        let handled = |outcome: &Outcome| !outcome.handled.is_empty();
        let at = fast.outcomes.iter().position(handled).expect("something was handled");
        let mut full = fast.clone();
        full.outcomes[at].handled.clear();
        let differences = Compared { fast, full }.differences();
        assert_eq!(differences.iter().map(|one| one.item).collect::<Vec<_>>(), [Item(at as u32)]);
    }
}
