//! Time as an input: integer points in time that only a caller can supply.
//!
//! The core has no clock. [`Mono`] orders deadlines and comes from a clock that keeps running while the machine
//! sleeps (`CLOCK_BOOTTIME` on Linux), because a lease held across a suspend must be seen as lapsed. [`Wall`] names
//! minute buckets and stamps messages and never decides a deadline.

use core::ops::{Add, Sub};
use core::time::Duration;

/// A point on the process's own monotonic clock, in microseconds since an arbitrary origin.
///
/// Arithmetic saturates: a deadline beyond the end of time is "never", not an overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The end of time: a deadline that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time that has passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Mono {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A wall clock reading: milliseconds since 1970-01-01 UTC. It may step in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

/// Before 1970 as the beginning of 1970; beyond the end of time as that.
#[cfg(feature = "std")]
#[allow(clippy::disallowed_types, reason = "an argument: no clock is read")]
impl From<std::time::SystemTime> for Wall {
    fn from(time: std::time::SystemTime) -> Self {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// What every input carries: both clocks, read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Orders deadlines.
    pub mono: Mono,
    /// Stamps messages and names minute buckets.
    pub wall: Wall,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Mono(5) + Duration::MAX, Mono::NEVER);
        assert_eq!(Mono(5) - Duration::from_secs(1), Mono(0));
        assert_eq!(Mono(5).since(Mono(7)), Duration::ZERO);
        assert_eq!(Mono(3_000_007).since(Mono(7)), Duration::from_secs(3));
    }
}
