//! What must happen sometimes: a scenario that no longer goes where it should go proves nothing by holding.

use super::Scenario;
use crate::oracle::Marks;

/// Of so many seeds the least hits are known.
pub const SEEDS: u64 = 200;

/// Something that happened too seldom in a batch of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seldom {
    /// What.
    pub mark: &'static str,
    /// How often it happened.
    pub hits: u64,
    /// How often it should have happened at least.
    pub least: u64,
}

impl Scenario {
    /// What happened too seldom in so many runs of this scenario, engines alone; nothing if they are fewer than [`SEEDS`].
    #[must_use]
    pub fn seldom(self, runs: u64, marks: &Marks) -> Vec<Seldom> {
        if runs < SEEDS {
            return Vec::new();
        }
        let expected = self.sometimes().iter().map(|(mark, least)| Seldom {
            mark,
            hits: marks.hits(mark),
            least: least.saturating_mul(runs) / SEEDS,
        });
        expected.filter(|seldom| seldom.hits < seldom.least).collect()
    }

    /// What happens sometimes, and how often at least in [`SEEDS`] seeds: about a quarter of what was seen when it was
    /// written down.
    #[must_use]
    pub fn sometimes(self) -> &'static [(&'static str, u64)] {
        match self {
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_too_seldom_is_named_in_proportion_to_the_runs() {
        let (mark, least) = Scenario::Crash.sometimes()[0];
        let mut marks = Marks::default();
        (0..least).for_each(|_| marks.hit(mark));
        let names = |runs| Scenario::Crash.seldom(runs, &marks).iter().any(|seldom| seldom.mark == mark);
        assert!(!names(SEEDS - 1) && !names(SEEDS));
        assert!(names(2 * SEEDS));
    }
}
