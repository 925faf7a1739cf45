//! How long to wait before the next dial.

use core::time::Duration;

use crate::config::Timing;
use crate::output::UnreadyReason;
use crate::rng::Rng;
use crate::time::Mono;

/// Doubling delays with jitter. The count starts over only after a connection has stayed ready for a while: a server
/// that accepts and drops must not be dialled in a tight loop.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    attempts: u32,
    ready_since: Option<Mono>,
}

/// A server that loads its data says so itself; it is looked at more often than one that is down.
const LOADING_CAP: Duration = Duration::from_secs(1);

impl Backoff {
    pub(super) fn on_ready(&mut self, now: Mono) {
        self.ready_since = Some(now);
    }

    /// The delay after a lost or failed connection: uniform between half of `min(cap, base·2ⁿ)` and all of it.
    ///
    /// Half, not zero, is the lower end: with draws from zero about one run in a hundred dials a dead address more
    /// than a dozen times in half a minute, and twenty clients still spread over a range as wide as the delay's half.
    pub(super) fn after_loss(&mut self, why: UnreadyReason, now: Mono, timing: &Timing, rng: &mut Rng) -> Duration {
        if self.ready_since.take().is_some_and(|since| now.since(since) >= timing.stable_after) {
            self.attempts = 0;
        }
        let cap = match why {
            UnreadyReason::Loading => timing.backoff_cap.min(LOADING_CAP),
            _ => timing.backoff_cap,
        };
        let grown = timing.backoff_base.saturating_mul(1u32.checked_shl(self.attempts).unwrap_or(u32::MAX));
        // Other credentials are an operator's doing, and each attempt costs the server a handshake and a log line.
        let most = if why == UnreadyReason::Auth { cap } else { grown.min(cap) };
        // One that loads is alive and says how it is: however long that takes, it is no reason to wait long afterwards.
        if grown < cap || why != UnreadyReason::Loading {
            self.attempts = self.attempts.saturating_add(1).min(31);
        }
        let most_us = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(rng.between(most_us / 2, most_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Seed};
    use alloc::vec::Vec;

    fn dials_within(seed: u64, span: Duration) -> usize {
        let timing = Timing::default();
        let mut rng = Rng::new(Seed::from_u64(seed), Purpose::Backoff);
        let mut backoff = Backoff::default();
        let mut at = Duration::ZERO;
        let mut dials = 0;
        while at <= span {
            dials += 1;
            at += backoff.after_loss(UnreadyReason::Closed, Mono(0) + at, &timing, &mut rng);
        }
        dials
    }

    #[test]
    fn a_listener_that_closes_at_once_sees_at_most_twelve_dials_in_thirty_seconds() {
        let most = (0..1_000).map(|seed| dials_within(seed, Duration::from_secs(30))).max();
        assert!(most <= Some(12), "{most:?}");
    }

    #[test]
    fn delays_of_many_clients_do_not_align() {
        let timing = Timing::default();
        let third = |seed| {
            let mut rng = Rng::new(Seed::from_u64(seed), Purpose::Backoff);
            let mut backoff = Backoff::default();
            (0..3).map(|_| backoff.after_loss(UnreadyReason::Refused, Mono(0), &timing, &mut rng)).sum::<Duration>()
        };
        let mut at: Vec<_> = (0..20).map(third).collect();
        at.sort();
        at.dedup_by_key(|delay| delay.as_millis() / 5);
        assert!(at.len() >= 12, "20 clients at {} distinct times", at.len());
    }

    #[test]
    fn only_a_stable_connection_starts_the_count_over() {
        let timing = Timing::default();
        let mut rng = Rng::new(Seed::from_u64(1), Purpose::Backoff);
        let mut backoff = Backoff::default();
        for _ in 0..6 {
            backoff.after_loss(UnreadyReason::Closed, Mono(0), &timing, &mut rng);
        }
        backoff.on_ready(Mono(0));
        let short = backoff.after_loss(UnreadyReason::Closed, Mono(5_000_000), &timing, &mut rng);
        assert!(short >= Duration::from_secs(3), "{short:?}");
        backoff.on_ready(Mono(0));
        let stable = backoff.after_loss(UnreadyReason::Closed, Mono(10_000_000), &timing, &mut rng);
        assert!(stable <= Duration::from_millis(100), "{stable:?}");
    }

    #[test]
    fn a_long_load_does_not_lengthen_what_comes_afterwards() {
        let timing = Timing::default();
        let mut rng = Rng::new(Seed::from_u64(1), Purpose::Backoff);
        let mut backoff = Backoff::default();
        for _ in 0..60 {
            let delay = backoff.after_loss(UnreadyReason::Loading, Mono(0), &timing, &mut rng);
            assert!(delay <= LOADING_CAP, "{delay:?}");
        }
        backoff.on_ready(Mono(0));
        let delay = backoff.after_loss(UnreadyReason::Closed, Mono(4_000_000), &timing, &mut rng);
        assert!(delay <= 2 * LOADING_CAP, "{delay:?}");
    }

    #[test]
    fn wrong_credentials_wait_long_from_the_first_time() {
        let mut rng = Rng::new(Seed::from_u64(1), Purpose::Backoff);
        let delay = Backoff::default().after_loss(UnreadyReason::Auth, Mono(0), &Timing::default(), &mut rng);
        assert!(delay >= Duration::from_secs(15), "{delay:?}");
    }
}
