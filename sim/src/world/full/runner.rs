//! Consuming by a runner: it calls handlers, drops those that take too long, and settles by their results.

use std::future::pending;
use std::pin::pin;

use flota_core::driver::{Group, Job};
use flota_core::op::Verdict;

use super::super::app::Deed;
use super::app::{App, Received, first};
use super::outside::Outside;
use crate::plan::Consume;
use crate::seen::{Given, Hand, What};

impl App {
    /// Runs handlers until the period is over; none when the client is closed.
    pub(super) async fn run(&self, sub: u32, group: &Group, consume: &Consume, period_us: u64) -> Option<()> {
        let grace = self.outside.state().grace();
        let handler = |job: Job| {
            let received = self.receive(sub, &job);
            let running = Running::new(&self.outside, received.hand);
            self.clone().supervised(job, received, running, consume.handler_us)
        };
        let run = group.clone().concurrency(consume.in_flight).grace(grace).run(handler);
        let stopper = run.stopper();
        let mut run = pin!(run);
        self.outside.see(What::Subscribed(sub));
        if first(run.as_mut(), self.until(period_us)).await.is_some() {
            return None;
        }
        if self.leave(sub).is_none() {
            // Everything ends, and its handlers with it, in the time that they have then.
            let _ = run.await;
            return None;
        }
        stopper.stop();
        run.await.ok()
    }

    async fn supervised(self, job: Job, received: Received, mut running: Running, usual_us: u64) -> Verdict {
        let lag_us = self.outside.state().lag_us();
        if lag_us > 0 {
            self.outside.sleep(lag_us).await;
        }
        self.outside.see(What::Started(received.hand));
        let (given, times) = match received.deed {
            Deed::Settle(given, times) => (given, times),
            Deed::SettleTwice(given) => (given, 1),
            Deed::Crash => {
                self.outside.state().crashed = true;
                return pending().await;
            }
            Deed::Hang => return pending().await,
        };
        let needs_us = self.outside.state().k.hosts.exponential(usual_us).saturating_mul(times);
        self.outside.sleep(needs_us).await;
        running.settle(given);
        drop(job);
        match given {
            Given::Done => Verdict::Done,
            Given::Retry => Verdict::Retry { reason: "again".into(), after: None },
            Given::Reject => Verdict::Reject { reason: "never".into() },
            Given::Release => Verdict::Release { started: true },
        }
    }
}

/// A handler that runs. Dropped before its verdict, it was overdue, or its runner has ended.
struct Running {
    outside: Outside,
    hand: Hand,
    since_us: u64,
    settled: bool,
}

impl Running {
    fn new(outside: &Outside, hand: Hand) -> Self {
        let state = outside.state();
        let since_us = state.clock.now(state.k.at).mono.0;
        drop(state);
        Self { outside: outside.clone(), hand, since_us, settled: false }
    }

    fn settle(&mut self, verdict: Given) {
        self.settled = true;
        let mut state = self.outside.state();
        let live = !state.driver_ended;
        state.see(What::Settled { hand: self.hand, verdict, live });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (dead, overdue) = {
            let mut state = self.outside.state();
            state.under_way -= 1;
            let ran_us = state.clock.now(state.k.at).mono.0.saturating_sub(self.since_us);
            (state.dead, ran_us >= state.k.plan.knobs.handler_timeout_ms * 1000)
        };
        if !self.settled && !dead && overdue {
            self.outside.see(What::Overdue(self.hand));
            self.settle(Given::Retry);
        }
    }
}
