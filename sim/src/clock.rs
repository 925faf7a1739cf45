//! The clocks of one host, as functions of true time.

use flota_core::time::{Mono, Now, Wall};

/// What true time zero is on every wall clock: 2023-11-14 22:13:20 UTC.
pub const EPOCH_MS: i64 = 1_700_000_000_000;

/// A monotonic clock that runs a little fast or slow, and a wall clock that may be stepped.
#[derive(Clone, Debug)]
pub struct HostClock {
    /// How much faster than true time, in parts per million.
    rate_ppm: i64,
    /// True time at which the monotonic clock was `origin_us`.
    since_us: u64,
    origin_us: u64,
    /// The wall clock's distance from true time.
    offset_ms: i64,
}

impl HostClock {
    /// A clock that reads `origin_us` at true time zero.
    #[must_use]
    pub fn new(rate_ppm: i64, origin_us: u64, offset_ms: i64) -> Self {
        Self { rate_ppm: rate_ppm.clamp(-100_000, 100_000), since_us: 0, origin_us, offset_ms }
    }

    /// Both clocks at a true time.
    #[must_use]
    pub fn now(&self, at_us: u64) -> Now {
        let passed = i128::from(at_us.saturating_sub(self.since_us));
        let own = passed * i128::from(1_000_000 + self.rate_ppm) / 1_000_000;
        Now {
            mono: Mono(self.origin_us + u64::try_from(own).unwrap_or(0)),
            wall: Wall(EPOCH_MS + self.offset_ms + i64::try_from(at_us / 1000).unwrap_or(i64::MAX)),
        }
    }

    /// The first true time at which the monotonic clock has reached `mono`.
    #[must_use]
    pub fn when(&self, mono: Mono) -> u64 {
        let own = u128::from(mono.0.saturating_sub(self.origin_us));
        let rate = u128::try_from(1_000_000 + self.rate_ppm).unwrap_or(1);
        let passed = (own * 1_000_000).div_ceil(rate);
        self.since_us.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Steps the wall clock.
    pub fn step(&mut self, by_ms: i64) {
        self.offset_ms += by_ms;
    }

    /// How many microseconds of true time pass while this clock counts `own_us`, rounded up.
    #[must_use]
    pub fn true_us(&self, own_us: u64) -> u64 {
        let rate = u128::try_from(1_000_000 + self.rate_ppm).unwrap_or(1);
        u64::try_from((u128::from(own_us) * 1_000_000).div_ceil(rate)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_at_the_true_time_of_a_deadline_is_never_early() {
        for rate in [-50_000, -37, 0, 1, 99, 50_000] {
            let clock = HostClock::new(rate, 5_000_000, 0);
            for deadline in [5_000_000u64, 5_000_001, 5_999_999, 6_000_000, 3_605_000_123] {
                let at = clock.when(Mono(deadline));
                assert!(clock.now(at).mono.0 >= deadline, "rate {rate}, deadline {deadline}");
                assert!(at == 0 || clock.now(at - 1).mono.0 < deadline, "rate {rate}, deadline {deadline}: late");
            }
        }
    }
}
