//! The lease machine by itself: one to eight members of a group against one model broker, in virtual time.
//!
//! The members are [`Lease`](flota_core::topic::lease::Lease)s, the broker executes the real script. A [`Schedule`] is
//! drawn from a seed and is the whole of a run: the same one is the same run.

mod member;
mod oracle;
mod plan;
mod server;
mod world;

pub use oracle::Broken;
pub use plan::{Family, Fault, Moved, Schedule};
pub use world::{Ask, Outcome, run};

use std::collections::BTreeSet;

use flota_core::mutant::Mutant;

/// What came of looking for a planted fault.
#[derive(Clone, Debug, Default)]
pub struct Hunt {
    /// Runs until the invariant that it proves did not hold, or in all.
    pub runs: u64,
    /// Where that was.
    pub found: Option<(Family, u64)>,
    /// What else did not hold.
    pub others: BTreeSet<u8>,
    /// True time in all runs, in microseconds.
    pub simulated_us: u64,
}

/// Runs schedules of so many seeds of each family, in turn, until the invariant that a planted fault proves does not hold.
#[must_use]
pub fn hunt(mutant: Mutant, seeds: u64) -> Hunt {
    let only = mutant.invariants().first().copied();
    let mut hunt = Hunt::default();
    for seed in 0..seeds {
        for family in [Family::Calm, Family::Storm] {
            let outcome = run(&Schedule::draw(family, seed), Ask { mutant: Some(mutant), only, tell: false });
            hunt.runs += 1;
            hunt.simulated_us += outcome.simulated_us;
            hunt.others.extend(outcome.others);
            if outcome.broken.is_some() {
                hunt.found = Some((family, seed));
                return hunt;
            }
        }
    }
    hunt
}
