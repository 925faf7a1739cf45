//! Many seeds until one fails, and what is needed for that.

use std::fmt;

use super::{Run, Sim};
use crate::plan::Fault;

/// A run that failed.
#[derive(Debug)]
pub struct Found<S> {
    /// How many seeds were run until then, the failing one included.
    pub seeds: u64,
    /// How many faults there were in that run.
    pub faults: usize,
    /// That run with as few of its faults as it fails with in the same way.
    pub run: Run<S>,
}

/// Runs seeds until one fails; none if none does. `build` is called for each run, with the seed.
///
/// Faults that the failure does not need are left out of the run that is returned. To run it by hand, pass
/// `found.run.report.plan.faults` to [`Sim::only_faults`].
pub fn search<S: 'static>(seeds: impl IntoIterator<Item = u64>, build: impl Fn(u64) -> Sim<S>) -> Option<Found<S>> {
    seeds.into_iter().zip(1u64..).find_map(|(seed, seeds)| {
        let run = build(seed).run();
        let failed = run.failure()?.invariant;
        let faults = run.report.plan.faults.len();
        let again = |faults: &[Fault]| {
            let run = build(seed).only_faults(faults.to_vec()).run();
            run.failure().is_some_and(|failure| failure.invariant == failed).then_some(run)
        };
        Some(Found { seeds, faults, run: fewest(run, again) })
    })
}

/// Leaves out runs of faults, all, halves, quarters, down to single ones, for as long as it fails.
fn fewest<S>(first: Run<S>, again: impl Fn(&[Fault]) -> Option<Run<S>>) -> Run<S> {
    let mut best = first;
    let mut size = best.report.plan.faults.len();
    while size > 0 {
        let mut end = best.report.plan.faults.len();
        while end > 0 {
            let from = end.saturating_sub(size);
            let mut fewer = best.report.plan.faults.clone();
            fewer.drain(from..end);
            if let Some(run) = again(&fewer) {
                best = run;
            }
            end = from;
        }
        size /= 2;
    }
    best
}

impl<S> fmt::Display for Found<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.run.report.plan.faults.len();
        writeln!(f, "found after {} seeds; {left} of {} faults are needed", self.seeds, self.faults)?;
        self.run.fmt(f)
    }
}
