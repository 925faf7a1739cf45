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
            Self::Swarm => &[
                ("NOGROUP answered and the group made again", 5),
                ("NOSCRIPT answered and the script sent again", 83),
                ("a broker expired with sends in flight", 16),
                ("a full broker was probed", 310),
                ("a full fleet refused a newcomer", 9600),
                ("a message was stored twice", 38),
                ("another GUID spoke for a known address", 10000),
                ("entry recovered by its own name", 29),
                ("poison sent to the dead letters by a claim", 110),
            ],
            Self::Churn => &[
                ("a broker said goodbye and was back within a second", 100),
                ("a known GUID spoke for another address", 210),
                ("a send gave up", 350),
                ("an ambiguous send was executed", 130),
                ("an ambiguous send was not executed", 320),
                ("two dials of one address raced", 4500),
            ],
            Self::Crash => &[
                ("claimed from a dead consumer", 550),
                ("delivery claimed while its handler still runs", 3),
                ("liveness entered with pending entries on two brokers", 13),
                ("poison sent to the dead letters by a claim", 73),
                ("released entry taken by another", 49),
                ("suspect claimed to run alone", 230),
            ],
            Self::Partition => &[
                ("a broker expired with sends in flight", 21),
                ("a message was stored twice", 100),
                ("a send gave up", 500),
                ("an ambiguous send was executed", 150),
                ("entry recovered by its own name", 50),
                ("two dials of one address raced", 3600),
            ],
            Self::Flood => &[
                ("a damaged datagram was admitted", 6),
                ("a full fleet refused a newcomer", 100000),
                ("another GUID spoke for a known address", 46000),
                ("two dials of one address raced", 2900),
            ],
            Self::Clocks => &[
                ("claimed from a dead consumer", 740),
                ("delivery claimed while its handler still runs", 9),
                ("retry due and delivered again", 850),
                ("suspect claimed to run alone", 350),
            ],
            Self::Poison => &[
                ("claimed from a dead consumer", 2600),
                ("poison sent to the dead letters by a claim", 520),
                ("retry due and delivered again", 2400),
                ("suspect claimed to run alone", 1300),
                ("unsubscribed while handlers were running", 69),
            ],
            Self::Retries => &[
                ("claimed from a dead consumer", 3100),
                ("poison sent to the dead letters by a claim", 150),
                ("retry due and delivered again", 6800),
                ("scheduled message due and moved", 2700),
            ],
            Self::Rolling => &[
                ("a broker said goodbye and was back within a second", 8),
                ("an ambiguous send was not executed", 270),
                ("released entry taken by another", 76),
                ("unsubscribed while handlers were running", 50),
            ],
            Self::Conditions => &[
                ("a full broker was probed", 2400),
                ("a send gave up", 1900),
                ("body trimmed while it was pending", 960),
                ("pending entry without a body acknowledged", 630),
                ("the backlog was full", 640),
            ],
            Self::Answers => &[
                ("a message was stored twice", 610),
                ("acknowledgement of an entry that was elsewhere already", 230),
                ("an ambiguous send was executed", 230),
                ("entry recovered by its own name", 700),
                ("short write", 340),
            ],
            Self::Calm => &[
                ("a lane was at its limit", 150),
                ("recorded inputs gave the same outputs again", 37),
                ("short write", 430000),
                ("unsubscribed while handlers were running", 20),
            ],
            // One run of the one says little, and nothing but time passes in the other.
            Self::Large | Self::Idle => &[],
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
