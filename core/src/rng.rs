//! Seeded randomness, one independent stream per purpose.
//!
//! Splitting by purpose keeps runs comparable: a change that draws one more number for backoff does not shift the
//! message ids of the same seed.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Where all randomness of an engine comes from: 32 bytes, from the operating system in production, chosen in tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u8; 32]);

impl Seed {
    /// A seed from a small number, for tests and simulations.
    #[must_use]
    pub fn from_u64(n: u64) -> Self {
        let mut bytes = [0; 32];
        ChaCha8Rng::seed_from_u64(n).fill_bytes(&mut bytes);
        Self(bytes)
    }
}

impl core::fmt::Debug for Seed {
    // A seed also keys the hash tables that strangers fill: it stays out of logs.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// What a generator is for. Each purpose has its own stream of the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    Backoff = 1,
    MessageIds = 2,
    Jitter = 3,
    TableKeys = 4,
}

/// A generator for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Rng(ChaCha8Rng);

impl Rng {
    pub(crate) fn new(seed: Seed, purpose: Purpose) -> Self {
        let mut generator = ChaCha8Rng::from_seed(seed.0);
        generator.set_stream(purpose as u64);
        Self(generator)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `low..=high`, near enough to uniform for delays (the bias is below 2⁻³² for ranges below 2³²).
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low).saturating_add(1);
        let scaled = (u128::from(self.next_u64()) * u128::from(span)) >> 64;
        low + u64::try_from(scaled).unwrap_or(0)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_are_independent_and_repeatable() {
        let seed = Seed::from_u64(7);
        let draw = |purpose| Rng::new(seed, purpose).next_u64();
        assert_eq!(draw(Purpose::Backoff), draw(Purpose::Backoff));
        assert_ne!(draw(Purpose::Backoff), draw(Purpose::MessageIds));
    }

    #[test]
    fn between_stays_within_and_reaches_both_ends() {
        let mut rng = Rng::new(Seed::from_u64(1), Purpose::Jitter);
        let drawn: alloc::vec::Vec<_> = (0..200).map(|_| rng.between(3, 5)).collect();
        assert!(drawn.iter().all(|n| (3..=5).contains(n)));
        assert!((3..=5).all(|n| drawn.contains(&n)));
        assert_eq!(rng.between(9, 9), 9);
    }
}
