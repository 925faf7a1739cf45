//! The application of a process: a task for each message it sends, each of its consumers, and each handler.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use flota_core::config::Endpoint;
use flota_core::driver::{Client, Error, Group, Job};
use flota_core::op::{NotSent, OpError, Policy, Reject, Send, Stored};
use flota_core::topic::{Message, TopicSpec};

use super::super::app::{self, Deed};
use super::outside::Outside;
use crate::plan::{Consume, Fate, Knobs, Plan};
use crate::seen::{Delivered, Given, Hand, Item, Place, What};

/// What every task of an application holds.
#[derive(Clone)]
pub(super) struct App {
    pub(super) outside: Outside,
    pub(super) client: Client,
}

// ---- sending ----

impl App {
    /// Sends one message, and waits for what comes of it as long as the plan lets it.
    pub(super) async fn send(self, item: Item) {
        let Some(work) = self.outside.state().k.plan.work.get(item.0 as usize).cloned() else { return };
        let Ok(topic) = TopicSpec::new(&Plan::topic(work.topic), 1) else { return };
        let mut message = Message::new(app::body(item, &work));
        if let Some(key) = work.key {
            message = message.key(format!("key-{key}"));
        }
        if let Some(ms) = work.delay_ms {
            message = message.delay(Duration::from_millis(ms));
        }
        let policy = if work.at_most_once { Policy::AtMostOnce } else { Policy::AtLeastOnce };
        self.outside.see(What::Submitted { item, accepted: Ok(()) });
        let sent = self.client.send(Send { topic, message, policy, wait: None });
        let result = match work.cancel_after_us {
            None => Some(sent.await),
            Some(us) => first(sent, self.outside.sleep(us)).await,
        };
        let mut state = self.outside.state();
        state.under_way -= 1;
        let result = match result {
            Some(Ok(Stored { broker, partition, entry, .. })) => {
                Ok(Place { broker: state.place(broker), partition, entry })
            }
            Some(Err(Error::Op(error))) => Err(error),
            Some(Err(Error::Rejected(Reject::Stopping))) => Err(OpError::NotSent(NotSent::Stopping)),
            Some(Err(Error::Stopped)) => Err(unknown()),
            Some(Err(error @ (Error::Name(_) | Error::Rejected(_) | Error::Shrinks(_)))) => {
                state.see(What::Gap(format!("a reason to refuse a message of the plan: {error}")));
                Err(OpError::NotSent(NotSent::Stopping))
            }
            None => {
                state.see(What::Cancelled { item, live: true });
                Err(unknown())
            }
        };
        state.see(What::Done { item, result });
    }
}

/// Whoever stops waiting, and whoever outlives its driver, knows nothing: it may have been stored.
fn unknown() -> OpError {
    OpError::Ambiguous(Endpoint::Ip(([0, 0, 0, 0], 0).into()))
}

// ---- consuming ----

impl App {
    /// Consumes; in a loop of subscribing and leaving, if the plan says so.
    pub(super) async fn consume(self, sub: u32, consume: Consume) {
        let period_us = self.outside.state().plan.subscribe_loop_ms * 1000;
        let knobs = self.outside.state().k.plan.knobs.clone();
        let group = group(&self.client, &knobs, &consume);
        loop {
            if self.outside.state().stopping {
                return;
            }
            let runs = self.outside.state().k.hosts.chance(500_000);
            let left = if runs {
                self.run(sub, &group, &consume, period_us).await
            } else {
                self.stream(sub, &group, &consume, period_us).await
            };
            if left.is_none() {
                return;
            }
            self.outside.see(What::Unsubscribed(sub));
            self.outside.sleep(period_us).await;
        }
    }

    /// A loop of its own over the messages of a subscription, until the period is over; none when the client is closed.
    async fn stream(&self, sub: u32, group: &Group, consume: &Consume, period_us: u64) -> Option<()> {
        self.outside.see(What::Subscribed(sub));
        let mut subscription = group.subscribe().await.ok()?;
        let mut until = pin!(self.until(period_us));
        while let Some(next) = first(pin!(subscription.next()), until.as_mut()).await {
            self.take(sub, next?, consume);
        }
        let grace = self.leave(sub)?;
        let _ = subscription.close(grace).await;
        Some(())
    }

    /// It wants to leave a group: the grace of its handlers, unless everything ends anyway.
    pub(super) fn leave(&self, sub: u32) -> Option<Duration> {
        let mut state = self.outside.state();
        if state.stopping {
            return None;
        }
        state.see(What::Unsubscribing(sub));
        Some(state.grace())
    }

    pub(super) async fn until(&self, us: u64) {
        if us == 0 {
            return pending().await;
        }
        self.outside.sleep(us).await;
    }

    /// A message is the application's.
    pub(super) fn receive(&self, sub: u32, job: &Job) -> Received {
        let mut state = self.outside.state();
        let item = app::item_of(job.body());
        let work = item.and_then(|item| state.k.plan.work.get(item.0 as usize));
        let intact = item.zip(work).is_some_and(|(item, work)| app::body(item, work) == job.body());
        let fate = work.map_or_else(Fate::default, |work| work.fate);
        let group = state.plan.consumes.get(sub as usize).map_or(0, |consume| consume.group);
        let hand = Hand { life: state.life, number: state.next_hand };
        state.next_hand += 1;
        state.under_way += 1;
        let delivered = Delivered {
            hand,
            sub,
            item,
            intact,
            broker: state.place(job.broker()),
            partition: job.partition(),
            retry: job.is_retry(),
            entry: job.entry(),
            deliveries: job.deliveries(),
            attempt: job.attempt(),
        };
        state.see(What::Delivered(Box::new(delivered)));
        Received { hand, item, deed: app::deed(fate, group, job.attempt()) }
    }

    /// Its handler is a task of its own.
    fn take(&self, sub: u32, job: Job, consume: &Consume) {
        let received = self.receive(sub, &job);
        let (app, usual_us) = (self.clone(), consume.handler_us);
        self.outside.spawn(async move { app.handle(job, received, usual_us).await });
    }

    async fn handle(self, job: Job, received: Received, usual_us: u64) {
        let Received { hand, item, deed } = received;
        // Most handlers start at once; some wait for a turn.
        let lag_us = self.outside.state().lag_us();
        if lag_us > 0 {
            self.outside.sleep(lag_us).await;
        }
        self.outside.see(What::Started(hand));
        let (given, times) = match deed {
            Deed::Crash => {
                self.outside.state().crashed = true;
                return pending().await;
            }
            Deed::Hang => (None, 0),
            Deed::Settle(given, times) => (Some(given), times),
            // A message is consumed by its verdict: the type allows no second one.
            Deed::SettleTwice(given) => (Some(given), 1),
        };
        let limit_us = self.outside.state().k.plan.knobs.handler_timeout_ms * 1000;
        let needs_us = self.outside.state().k.hosts.exponential(usual_us).saturating_mul(times);
        // A loop of one's own sets its own limit: it drops what takes too long.
        let given = given.filter(|_| needs_us < limit_us);
        self.outside.sleep(if given.is_some() { needs_us } else { limit_us }).await;
        self.settle(job, hand, item, given).await;
        self.outside.state().under_way -= 1;
    }

    async fn settle(&self, job: Job, hand: Hand, item: Option<Item>, given: Option<Given>) {
        let live = !self.outside.state().driver_ended;
        let Some(given) = given else {
            self.outside.see(What::Settled { hand, verdict: Given::Retry, live });
            return drop(job);
        };
        let given = match given {
            // Given back untouched it does not count, and would come back for ever.
            Given::Release if item.is_none_or(|item| !self.outside.state().released.insert(item)) => Given::Done,
            given => given,
        };
        self.outside.see(What::Settled { hand, verdict: given, live });
        let receipt = match given {
            Given::Done => job.done(),
            Given::Retry => job.retry("again"),
            Given::Reject => job.reject("never"),
            Given::Release => job.release(),
        };
        if let Ok(result) = receipt.await {
            self.outside.see(What::Answered { hand, result });
        }
    }
}

/// A message in a handler's hand.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub(super) hand: Hand,
    pub(super) item: Option<Item>,
    pub(super) deed: Deed,
}

fn group(client: &Client, knobs: &Knobs, consume: &Consume) -> Group {
    client
        .topic(&Plan::topic(consume.topic))
        .group(&Plan::group(consume.group))
        .in_flight(consume.in_flight)
        .claim_after(Duration::from_millis(knobs.claim_idle_ms))
        .claim_period(Duration::from_millis(knobs.claim_period_ms))
        .max_deliveries(knobs.max_deliveries)
        .handler_timeout(Duration::from_millis(knobs.handler_timeout_ms))
        .retry(Duration::from_millis(knobs.retry_base_ms), Duration::from_millis(knobs.retry_cap_ms))
}

/// What the first future comes to, unless the second is ready before it.
pub(super) async fn first<F: Future>(wanted: F, end: impl Future<Output = ()>) -> Option<F::Output> {
    let (mut wanted, mut end) = (pin!(wanted), pin!(end));
    poll_fn(|cx| match wanted.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}
