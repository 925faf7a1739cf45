//! A sorted set.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// Members in order of their scores, equal scores in order of their bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Zset {
    scores: BTreeMap<Bytes, Score>,
    order: BTreeSet<(Score, Bytes)>,
}

/// A number that can be ordered: never "not a number".
#[derive(Clone, Copy, Debug)]
struct Score(f64);

impl Zset {
    /// How many members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Whether it has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// A member's score.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(|score| score.0)
    }

    /// Sets a member's score; returns what it was.
    pub fn insert(&mut self, member: Bytes, score: f64) -> Option<f64> {
        let previous = self.scores.insert(member.clone(), Score(score));
        if let Some(previous) = previous {
            self.order.remove(&(previous, member.clone()));
        }
        self.order.insert((Score(score), member));
        previous.map(|score| score.0)
    }

    /// Removes a member; returns whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some((member, score)) = self.scores.remove_entry(member) else { return false };
        self.order.remove(&(score, member))
    }

    /// All members in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> + Clone {
        self.order.iter().map(|(score, member)| (member, score.0))
    }

    /// Members from this score on, in order.
    pub fn from(&self, least: f64) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> + Clone {
        self.order.range((Score(least), Bytes::new())..).map(|(score, member)| (member, score.0))
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}
