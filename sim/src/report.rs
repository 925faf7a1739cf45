//! What is left of a run: its outcome, its hash, its last lines.

use std::collections::VecDeque;

use crate::oracle::{Marks, Outcome, Violation};
use crate::plan::Plan;
use crate::seen::Seen;

/// A finished run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scenario.
    pub scenario: String,
    /// The seed.
    pub seed: u64,
    /// The first violation of each invariant; empty when everything held.
    pub violations: Vec<Violation>,
    /// The hash over everything seen.
    pub hash: u64,
    /// Events handled.
    pub events: u64,
    /// True time at the end, in microseconds.
    pub simulated_us: u64,
    /// What happened how often of what should happen sometimes.
    pub marks: Marks,
    /// What became of each message, by its place in the plan.
    pub outcomes: Vec<Outcome>,
    /// The last transitions, a line each.
    pub tail: Vec<String>,
    /// What was run.
    pub plan: Plan,
}

impl Report {
    /// Whether every invariant held.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }
}

/// The last transitions: observations that a person would want to read.
#[derive(Default)]
pub(crate) struct Tail(VecDeque<Seen>);

/// How many transitions a failure shows.
const TAIL: usize = 40;

impl Tail {
    pub(crate) fn push(&mut self, seen: &Seen) {
        if !seen.is_transition() {
            return;
        }
        if self.0.len() == TAIL {
            self.0.pop_front();
        }
        self.0.push_back(seen.clone());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }
}
