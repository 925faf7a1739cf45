//! Makes a failing plan small: whatever can go without the same invariant holding again goes.
//!
//! Read [`shrink`] first. It goes through passes until one changes nothing; each pass replaces what is random by
//! constants, leaves out parts of the plan's lists, then hosts, then lowers numbers. Nothing is assumed of why
//! the plan fails: each change is run, and kept only if the run fails in the same way.

mod parts;
mod simpler;

use crate::plan::Plan;

/// The smallest plan found that fails as `plan` does; `plan` itself if it does not fail.
///
/// `fails` runs a plan and says which invariant did not hold first, if any. It is called some hundreds of times.
#[must_use]
pub fn shrink(plan: Plan, mut fails: impl FnMut(&Plan) -> Option<u8>) -> Plan {
    let Some(target) = fails(&plan) else { return plan };
    let mut shrinker = Shrinker { best: plan, target, fails };
    for _ in 0..PASSES {
        let before = shrinker.best.clone();
        // First what is random: while much can still fail, something will without it, and what is left out later does
        // not move everything else in time.
        shrinker.calmer();
        shrinker.shorten();
        shrinker.thin(|plan| &mut plan.faults);
        shrinker.thin(|plan| &mut plan.work);
        shrinker.fewer_hosts();
        shrinker.fewer_subscriptions();
        shrinker.plainer_hosts();
        shrinker.plainer_work();
        shrinker.plainer_faults();
        if shrinker.best == before && !shrinker.few_messages() {
            break;
        }
    }
    shrinker.best
}

/// More passes than were ever needed: an end if two changes undo each other.
const PASSES: usize = 12;

struct Shrinker<F> {
    /// The smallest that fails so far.
    best: Plan,
    /// The invariant that must not hold.
    target: u8,
    fails: F,
}

impl<F: FnMut(&Plan) -> Option<u8>> Shrinker<F> {
    /// Keeps a change if the plan still fails with it.
    fn attempt(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        if candidate == self.best || (self.fails)(&candidate) != Some(self.target) {
            return false;
        }
        self.best = candidate;
        true
    }

    /// Leaves out runs of a list's items: all of them, halves, quarters, and so on to single ones.
    fn thin<T>(&mut self, list: fn(&mut Plan) -> &mut Vec<T>) {
        let mut size = list(&mut self.best).len();
        while size > 0 {
            let mut end = list(&mut self.best).len();
            while end > 0 {
                let from = end.saturating_sub(size);
                self.attempt(|plan| drop(list(plan).drain(from..end)));
                end = from;
            }
            size /= 2;
        }
    }

    /// Lowers a number as far as the plan still fails, to within a sixteenth.
    fn lower(&mut self, floor: u64, now: u64, set: impl Fn(&mut Plan, u64)) {
        if now <= floor || self.attempt(|plan| set(plan, floor)) {
            return;
        }
        let (mut holds, mut fails) = (floor, now);
        while fails - holds > 1.max(fails / 16) {
            let middle = holds + (fails - holds) / 2;
            if self.attempt(|plan| set(plan, middle)) {
                fails = middle;
            } else {
                holds = middle;
            }
        }
    }
}

#[cfg(test)]
mod tests;
