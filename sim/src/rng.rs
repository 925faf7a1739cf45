//! Seeded randomness for the world, one generator per purpose.
//!
//! Integers only: logarithms of the platform's library differ in the last bit, and a run must be the same everywhere.

/// A small generator (SplitMix64, Steele, Lea and Flood 2014): one addition and two multiplications a number.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of this purpose. Purposes are independent: one more draw for the network moves no fault.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut mixed = Self(seed ^ flota_core::topic::fnv1a(purpose.as_bytes()));
        mixed.next();
        mixed
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "a generator of numbers, not an iterator: it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `parts` of a million.
    pub fn chance(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < u64::from(parts)
    }

    /// One of them; the slice must not be empty.
    ///
    /// # Panics
    ///
    /// When it is.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        assert!(!from.is_empty(), "picked from nothing");
        &from[self.below(from.len() as u64) as usize]
    }

    /// Exponentially distributed around `mean`, near enough: the logarithm is linear between powers of two.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let drawn = self.next() | 1;
        let whole = u64::from(drawn.leading_zeros());
        let rest = 65_536 - ((drawn << whole << 1) >> 48);
        // -ln u = ln 2 · -log₂ u; 45,426 / 65,536 is ln 2.
        let log2 = (whole << 16) + rest;
        u64::try_from((u128::from(mean) * u128::from(log2) * 45_426) >> 32).unwrap_or(u64::MAX)
    }

    /// Puts a slice into a drawn order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_has_its_mean_and_a_tail() {
        let mut rng = Rng::new(1, "test");
        let drawn: Vec<u64> = (0..100_000).map(|_| rng.exponential(1000)).collect();
        let mean = drawn.iter().sum::<u64>() / 100_000;
        assert!((950..1100).contains(&mean), "{mean}");
        let long = drawn.iter().filter(|d| **d > 3000).count();
        assert!((3000..7500).contains(&long), "{long} of 100,000 beyond three means; 4,979 expected");
    }

    #[test]
    fn purposes_do_not_move_each_other() {
        let mut a = Rng::new(7, "faults");
        let mut b = Rng::new(7, "network");
        assert_ne!(a.next(), b.next());
        assert_eq!(Rng::new(7, "faults").next(), Rng::new(7, "faults").next());
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::new(3, "test");
        let drawn: Vec<u64> = (0..500).map(|_| rng.between(4, 6)).collect();
        assert!((4..=6).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| (4..=6).contains(n)));
        assert_eq!(rng.below(0), 0);
    }
}
