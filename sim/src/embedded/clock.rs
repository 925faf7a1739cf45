//! The server's clock: the wall clock, except that it never goes back.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a real server's clock; simulations have their own"
)]

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::broker::ServerTime;

/// A clock.
#[derive(Debug)]
pub(super) struct Clock {
    last: ServerTime,
    read: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { last: wall(), read: Instant::now() }
    }

    /// When the wall clock is set back this one goes on from where it was, so that whoever waits is not forgotten.
    pub(super) fn now(&mut self) -> ServerTime {
        let now = Instant::now();
        let passed = u64::try_from(now.saturating_duration_since(self.read).as_micros()).unwrap_or(u64::MAX);
        let steady = ServerTime(self.last.0.saturating_add(passed));
        // What is less than a microsecond is not dropped at each look.
        if passed > 0 {
            self.last = steady.max(wall());
            self.read = now;
        }
        self.last
    }
}

fn wall() -> ServerTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ServerTime(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
