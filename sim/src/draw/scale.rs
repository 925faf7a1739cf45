//! From simulated time to places on the page.

/// Where the time axis begins and ends, in units of the drawing.
pub(super) const LEFT: f64 = 92.0;
pub(super) const RIGHT: f64 = 1_330.0;

/// The time axis. Little happens once everything is healed, which can take long: that part is compressed then.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    end: u64,
    /// Where compression begins, in microseconds.
    bend: u64,
    /// … and on the page.
    bend_x: f64,
}

impl Scale {
    /// An axis from zero to a moment; both in microseconds. What lies after `healed` takes a quarter of it at most.
    pub(super) fn to(end: u64, healed: u64) -> Self {
        let end = end.max(1);
        if healed > 0 && end > healed + healed / 3 {
            return Self { end, bend: healed, bend_x: LEFT + (RIGHT - LEFT) * 0.75 };
        }
        Self { end, bend: end, bend_x: RIGHT }
    }

    pub(super) fn is_bent(&self) -> bool {
        self.bend < self.end
    }

    pub(super) fn x(&self, at: u64) -> f64 {
        let at = at.min(self.end);
        if at <= self.bend {
            return LEFT + (self.bend_x - LEFT) * at as f64 / self.bend as f64;
        }
        self.bend_x + (RIGHT - self.bend_x) * (at - self.bend) as f64 / (self.end - self.bend) as f64
    }

    /// The moment at a place.
    fn at(&self, x: f64) -> u64 {
        if x <= self.bend_x {
            return ((x - LEFT) / (self.bend_x - LEFT) * self.bend as f64).max(0.0) as u64;
        }
        self.bend + ((x - self.bend_x) / (RIGHT - self.bend_x) * (self.end - self.bend) as f64) as u64
    }

    /// Round moments, some in each part, in microseconds.
    pub(super) fn ticks(&self) -> Vec<u64> {
        let mut ticks: Vec<u64> = round(0, self.bend, 11).collect();
        if self.is_bent() {
            ticks.extend(round(self.bend, self.end, 3));
        }
        ticks
    }

    /// The part of the axis that a moment falls into, of [`Self::BINS`].
    pub(super) fn bin(&self, at: u64) -> usize {
        let part = (self.x(at) - LEFT) / (RIGHT - LEFT);
        ((part * Self::BINS as f64) as usize).min(Self::BINS - 1)
    }

    /// Where a part begins on the page, and when, in microseconds.
    pub(super) fn bin_begins(&self, bin: usize) -> (f64, u64) {
        let x = LEFT + (RIGHT - LEFT) * bin as f64 / Self::BINS as f64;
        (x, self.at(x))
    }

    pub(super) const BINS: usize = 300;
}

/// Round moments after one and up to another, about so many.
fn round(from: u64, to: u64, many: u64) -> impl Iterator<Item = u64> {
    const STEPS_S: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600];
    let steps = STEPS_S.into_iter().map(|s| s * 1_000_000);
    let step = steps.clone().find(|step| (to - from) / step <= many).unwrap_or((to - from) / many);
    let first = if from == 0 { 0 } else { from / step + 1 };
    (first..).map(move |n| n * step).take_while(move |at| *at <= to)
}

/// Changes as intervals: from, to, what.
pub(super) fn spans<T: Copy>(changes: &[(u64, T)], end: u64) -> impl Iterator<Item = (u64, u64, T)> + '_ {
    changes.iter().enumerate().map(move |(n, (from, what))| {
        let to = changes.get(n + 1).map_or(end, |(at, _)| *at);
        (*from, to, *what)
    })
}

/// Puts intervals into as few rows as they fit into without touching: the row of each.
pub(super) fn pack(intervals: &[(f64, f64)]) -> Vec<usize> {
    let mut ends: Vec<f64> = Vec::new();
    let mut rows = Vec::new();
    for (from, to) in intervals {
        let row = ends.iter().position(|end| end < from).unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0.0);
        }
        ends[row] = *to;
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for end in [1, 900_000, 3_000_000, 61_000_000, 400_000_000, 90_000_000_000] {
            for healed in [0, 60_000_000] {
                let ticks = Scale::to(end, healed).ticks();
                assert!(!ticks.is_empty() && ticks.len() <= 30 && ticks.is_sorted(), "{end}: {ticks:?}");
            }
        }
        assert_eq!(Scale::to(61_000_000, 0).ticks().get(1), Some(&10_000_000));
    }

    #[test]
    fn what_comes_after_healing_takes_a_quarter() {
        let scale = Scale::to(400, 50);
        assert!(scale.is_bent() && !Scale::to(60, 50).is_bent());
        assert_eq!((scale.x(0), scale.x(400), scale.x(999)), (LEFT, RIGHT, RIGHT));
        assert_eq!(scale.x(50), LEFT + (RIGHT - LEFT) * 0.75);
        assert!((1..=400).all(|at| scale.x(at) > scale.x(at - 1)));
    }

    #[test]
    fn every_moment_has_a_bin() {
        let scale = Scale::to(1_000_000, 100_000);
        assert_eq!((scale.bin(0), scale.bin(1_000_000), scale.bin(u64::MAX)), (0, 299, 299));
        for at in [0, 1, 99_999, 100_001, 777_777, 1_000_000] {
            let bin = scale.bin(at);
            assert!(scale.bin_begins(bin).1 <= at && at <= scale.bin_begins(bin + 1).1 + 1, "{at}");
        }
    }

    #[test]
    fn intervals_that_overlap_are_in_different_rows() {
        assert_eq!(pack(&[(0.0, 5.0), (2.0, 3.0), (4.0, 9.0), (6.0, 7.0)]), [0, 1, 1, 0]);
    }

    #[test]
    fn an_interval_lasts_until_the_next_change() {
        let spans: Vec<_> = spans(&[(1, 'a'), (4, 'b')], 9).collect();
        assert_eq!(spans, [(1, 4, 'a'), (4, 9, 'b')]);
    }
}
