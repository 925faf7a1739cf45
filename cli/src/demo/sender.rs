//! The sender: bursts at a steady pace, each message answered for by a broker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flota_core::driver::Topic;
use flota_core::topic::Message;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::board::Board;

/// What one message costs a worker. With the runtime's timers it becomes a millisecond more.
const WORK: Duration = Duration::from_millis(3);
/// Of a worker's time, in hundredths, that the flow should need: bursts leave messages in its hands, and it keeps up.
const BUSY_PERCENT: u128 = 80;
/// A burst is at least this much for each worker, so that one that is killed right after it has messages in hand.
const BURST_PER_WORKER: usize = 20;

/// When to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    burst: usize,
    every: Duration,
    length: Duration,
    workload: Workload,
}

/// What the flow asks of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    /// What a message costs.
    pub(crate) work: Duration,
    /// How many to work on at once.
    pub(crate) concurrency: u32,
    /// How many to have in hand.
    pub(crate) in_flight: u32,
}

impl Pace {
    /// Spreads the messages over `length`, which leaves the rate below `rate`.
    pub(crate) fn new(messages: usize, rate: u32, length: Duration, workers: u16) -> Self {
        let per_second = (messages as u128 * 1_000_000 / length.as_micros().max(1)).clamp(1, u128::from(rate));
        let tenth = usize::try_from(per_second / 10).unwrap_or(usize::MAX);
        let burst = tenth.max(BURST_PER_WORKER * usize::from(workers)).min(messages);
        let every = length.mul_f64(burst as f64 / messages as f64).max(Duration::from_millis(1));
        let cost = WORK + Duration::from_millis(1);
        let busy = per_second * cost.as_micros() * 100 / (u128::from(workers) * 1_000_000 * BUSY_PERCENT);
        let concurrency = u32::try_from(busy + 1).unwrap_or(u32::MAX);
        let workload = Workload { work: WORK, concurrency, in_flight: concurrency.saturating_mul(16).max(64) };
        Self { burst, every, length, workload }
    }

    /// How long the flow lasts.
    pub(crate) fn length(self) -> Duration {
        self.length
    }

    /// What the flow asks of one worker.
    pub(crate) fn workload(self) -> Workload {
        self.workload
    }
}

/// Sends `messages` messages and returns when each has been answered for.
pub(crate) async fn send(board: Arc<Board>, topic: Topic, messages: usize, pace: Pace) {
    let mut ticks = interval(pace.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut flying = JoinSet::new();
    let mut next = 0;
    loop {
        tokio::select! {
            _ = ticks.tick(), if next < messages => {
                let burst = next..messages.min(next + pace.burst);
                next = burst.end;
                for number in burst {
                    let topic = topic.clone();
                    flying.spawn(async move { topic.send(Message::new(format!("order {number}"))).await });
                }
            }
            Some(done) = flying.join_next() => {
                let now = Instant::now();
                board.update(|state| match done {
                    Ok(Ok(stored)) => state.stored(&stored, now),
                    Ok(Err(why)) => state.send_failed(why.to_string()),
                    Err(why) => state.send_failed(why.to_string()),
                });
            }
            else => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flow_takes_as_long_as_it_should_and_leaves_a_worker_its_hands_full() {
        let pace = Pace::new(10_000, 1_000, Duration::from_secs(18), 3);
        assert_eq!(pace.burst, 60);
        assert_eq!(pace.every, Duration::from_millis(108));
        assert_eq!((pace.workload.concurrency, pace.workload.in_flight), (1, 64));
        let pace = Pace::new(100_000, 5_000, Duration::from_secs(20), 3);
        assert_eq!((pace.burst, pace.every), (500, Duration::from_millis(100)));
        assert!(pace.workload.concurrency * 250 * 3 > 5_000);
        let pace = Pace::new(5, 1_000, Duration::from_millis(5), 3);
        assert_eq!((pace.burst, pace.every), (5, Duration::from_millis(5)));
    }
}
