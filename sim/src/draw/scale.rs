//! From simulated time to places on the page.

/// Where the time axis begins and ends, in units of the drawing.
pub(super) const LEFT: f64 = 92.0;
pub(super) const RIGHT: f64 = 1_330.0;

/// The time axis.
pub(super) struct Scale {
    end: u64,
}

impl Scale {
    /// An axis from zero to a moment, in microseconds.
    pub(super) fn to(end: u64) -> Self {
        Self { end: end.max(1) }
    }

    pub(super) fn x(&self, at: u64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at.min(self.end) as f64) / self.end as f64
    }

    /// Round moments, a dozen or fewer, in microseconds.
    pub(super) fn ticks(&self) -> impl Iterator<Item = u64> + use<> {
        const STEPS_S: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600];
        let end = self.end;
        let step = STEPS_S.into_iter().map(|s| s * 1_000_000).find(|step| end / step <= 12).unwrap_or(end / 10);
        (0..).map(move |n| n * step).take_while(move |at| *at <= end)
    }

    /// The part of the axis that a moment falls into, of [`Self::BINS`].
    pub(super) fn bin(&self, at: u64) -> usize {
        (at.min(self.end) as u128 * Self::BINS as u128 / (u128::from(self.end) + 1)) as usize
    }

    /// When a part begins, in microseconds.
    pub(super) fn bin_begins(&self, bin: usize) -> u64 {
        (u128::from(self.end) * bin as u128 / Self::BINS as u128) as u64
    }

    pub(super) const BINS: usize = 300;
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
            let ticks: Vec<u64> = Scale::to(end).ticks().collect();
            assert!(!ticks.is_empty() && ticks.len() <= 30, "{end}: {ticks:?}");
        }
        assert_eq!(Scale::to(61_000_000).ticks().nth(1), Some(10_000_000));
    }

    #[test]
    fn every_moment_has_a_bin() {
        let scale = Scale::to(1_000_000);
        assert_eq!((scale.bin(0), scale.bin(1_000_000), scale.bin(u64::MAX)), (0, 299, 299));
        assert!(scale.bin_begins(scale.bin(777_777)) <= 777_777);
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
