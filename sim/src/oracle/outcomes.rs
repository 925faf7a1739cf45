//! What became of each message (44): two runs of one plan without faults, in whatever fidelity, agree on it.

use std::collections::BTreeSet;

use flota_core::op::OpError;

use super::Ledger;
use crate::seen::Given;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How its sender was answered.
    pub done: Option<Class>,
    /// The groups, by number, that have handled it.
    pub handled: BTreeSet<u8>,
    /// How many dead letters were made of it.
    pub dead: u32,
}

/// A class of answers to a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Stored.
    Stored,
    /// Certainly not sent.
    NotSent,
    /// Refused by a broker.
    Refused,
    /// Nobody can say.
    Ambiguous,
}

impl Ledger {
    /// What became of each message, by its place in the plan.
    #[must_use]
    pub fn outcomes(&self) -> Vec<Outcome> {
        let mut all: Vec<Outcome> = self
            .items
            .iter()
            .map(|state| Outcome {
                done: state.done.as_ref().map(|(_, result)| match result {
                    Ok(_) => Class::Stored,
                    Err(OpError::NotSent(_) | OpError::Partitions(_)) => Class::NotSent,
                    Err(OpError::Refused(_)) => Class::Refused,
                    Err(OpError::Ambiguous(_) | OpError::Unanswered(_)) => Class::Ambiguous,
                }),
                handled: BTreeSet::new(),
                dead: state.dead,
            })
            .collect();
        for hand in self.hands.iter().filter(|hand| hand.says(Given::Done)) {
            if let Some(outcome) = hand.item.and_then(|item| all.get_mut(item.0 as usize)) {
                outcome.handled.insert(hand.group);
            }
        }
        all
    }
}
