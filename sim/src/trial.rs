//! A run whose panics are caught: an assertion of the core that does not hold is a failure of that run, with its hash
//! and its last lines, like any other.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::invariants::PANIC;
use crate::oracle::{Marks, Violation};
use crate::plan::Plan;
use crate::report::Report;
use crate::seen::{Host, Seen};
use crate::world::World;

/// A run that is over, however it ended.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What is left of it. A panic comes last among its violations, as [`PANIC`].
    pub report: Report,
    /// It panicked.
    pub panicked: bool,
}

impl Trial {
    /// Runs a plan to its end, or to the first violated invariant.
    #[must_use]
    pub fn run(plan: Plan) -> Self {
        Self::with(plan, |_| {})
    }

    /// Runs a plan as `prepare` wants it: watched, exhaustive, limited.
    #[must_use]
    pub fn with(plan: Plan, prepare: impl FnOnce(&mut World)) -> Self {
        let mut world = match catch_unwind(|| World::new(plan.clone())) {
            Ok(world) => world,
            Err(panic) => return Self { report: never_began(plan, text_of(&*panic)), panicked: true },
        };
        prepare(&mut world);
        let outcome = catch_unwind(AssertUnwindSafe(|| world.drive()));
        let mut report = world.report();
        if let Err(panic) = &outcome {
            let at = report.simulated_us;
            let text = text_of(&**panic);
            report.violations.push(Violation { invariant: PANIC, at, host: Host::World, text });
        }
        Self { report, panicked: outcome.is_err() }
    }

    /// Runs a plan and shows everything that is seen to somebody.
    #[must_use]
    pub fn watched(plan: Plan, watcher: impl FnMut(&Seen) + 'static) -> Self {
        Self::with(plan, |world| world.watch(watcher))
    }

    /// The first thing that did not hold.
    #[must_use]
    pub fn failure(&self) -> Option<&Violation> {
        self.report.violations.first()
    }

    /// The number of the invariant that did not hold first; [`PANIC`] for a panic.
    #[must_use]
    pub fn failed(&self) -> Option<u8> {
        self.failure().map(|violation| violation.invariant)
    }
}

/// Panics of runs are reported with their runs: from now on this process prints nothing about panics by itself.
pub fn keep_panics_quiet() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
        PLACE.with_borrow_mut(|last| *last = place);
    }));
}

thread_local! {
    /// Where this thread panicked last.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn text_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without words");
    format!("panicked{}: {words}", PLACE.with_borrow_mut(std::mem::take))
}

fn never_began(plan: Plan, text: String) -> Report {
    Report {
        scenario: plan.scenario.clone(),
        seed: plan.seed,
        violations: vec![Violation { invariant: PANIC, at: 0, host: Host::World, text }],
        hash: 0,
        events: 0,
        simulated_us: 0,
        marks: Marks::default(),
        outcomes: Vec::new(),
        tail: Vec::new(),
        plan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_panic_is_the_failure_of_its_run_and_keeps_what_was_seen() {
        let plan = Scenario::Calm.draw(1, 2_000);
        let mut left = 200;
        let trial = Trial::watched(plan, move |_| {
            left -= 1;
            assert!(left > 0, "enough of it");
        });
        assert_eq!(trial.failed(), Some(PANIC));
        let failure = trial.failure().expect("a failure");
        assert!(failure.text.contains("enough of it"), "{}", failure.text);
        assert!(!trial.report.tail.is_empty() && trial.report.events > 0);
    }
}
