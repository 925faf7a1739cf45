//! Consumers of a topic: how a group is described, and the stream of its messages.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use futures_core::Stream;

use super::client::{Error, Feed, Stopped};
use super::job::{Job, Origin};
use super::topic::Topic;
use crate::op::{Retention, Start, Sub};
use crate::sync::Arc;

/// A member of a group to be: each message of the topic is handled by one member of every group.
///
/// Describe it, then consume by [`run`](Self::run), by [`run_on`](Self::run_on) for handlers that need several cores,
/// by [`run_batch`](Self::run_batch), or by a loop of your own over [`subscribe`](Self::subscribe).
///
/// Whichever it is: a message that is not settled comes again, to this member or another; after
/// [`max_deliveries`](Self::max_deliveries) it becomes a dead letter.
#[derive(Clone, Debug)]
#[must_use = "it consumes nothing by itself"]
pub struct Group {
    topic: Topic,
    name: Arc<str>,
    start: Start,
    in_flight: Option<u32>,
    concurrency: Option<u32>,
    claim_after: Option<Duration>,
    claim_period: Option<Duration>,
    max_deliveries: Option<u32>,
    handler_timeout: Option<Duration>,
    retry: Option<(Duration, Duration)>,
    retention: Retention,
    grace: Duration,
}

/// Above one batch of a read: while its messages are handled the next is on its way.
const IN_FLIGHT_OF_RUN: u32 = 256;
/// What a loop that handles one message after the other can use.
const IN_FLIGHT_OF_STREAM: u32 = 64;

impl Group {
    pub(super) fn new(topic: Topic, name: &str) -> Self {
        Self {
            topic,
            name: name.into(),
            start: Start::default(),
            in_flight: None,
            concurrency: None,
            claim_after: None,
            claim_period: None,
            max_deliveries: None,
            handler_timeout: None,
            retry: None,
            retention: Retention::default(),
            grace: Duration::from_secs(10),
        }
    }

    /// Where a new group starts. One that exists goes on where it is. Default: with the oldest message.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// The most messages in hand at once, those that were asked for included. Default 256 for the runners and 64 for a
    /// stream.
    pub fn in_flight(mut self, messages: u32) -> Self {
        self.in_flight = Some(messages);
        self
    }

    /// The most handlers at once, for the runners; at least 1. Default as `in_flight`, and 1 for batches.
    pub fn concurrency(mut self, handlers: u32) -> Self {
        self.concurrency = Some(handlers);
        self
    }

    /// Messages of a consumer that has been silent this long are taken over. Default 30 s. All members of a group
    /// should say the same.
    pub fn claim_after(mut self, silence: Duration) -> Self {
        self.claim_after = Some(silence);
        self
    }

    /// How often to look for such consumers. Default 5 s.
    pub fn claim_period(mut self, period: Duration) -> Self {
        self.claim_period = Some(period);
        self
    }

    /// How often a message is delivered before it becomes a dead letter. Default 5.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// How long a handler of a runner may take before it is dropped and its message retried. Default 25 s. A stream's
    /// messages have no limit: its loop owns them.
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = Some(timeout);
        self
    }

    /// The delay of the first retry, doubled with each delivery, and the longest. Default 1 s and 5 min.
    pub fn retry(mut self, base: Duration, cap: Duration) -> Self {
        self.retry = Some((base, cap));
        self
    }

    /// Whether messages go once every group has done with them. Default [`Retention::Acked`]: they do.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// How long running handlers may go on when a runner is stopped. Default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Becomes a member of the group and hands out its messages, for a loop of your own.
    ///
    /// ```
    /// # use flota_core::driver::{Client, Error};
    /// # fn ship(_: &[u8]) -> Result<(), String> { Ok(()) }
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let mut jobs = client.topic("orders").group("billing").subscribe().await?;
    /// while let Some(job) = jobs.next().await {
    ///     match ship(job.body()) {
    ///         Ok(()) => job.done(),
    ///         Err(why) => job.retry(why),
    ///     };
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the topic or group has no valid name, too many subscriptions exist, or the client was closed.
    pub async fn subscribe(&self) -> Result<Subscription, Error> {
        let sub = self.sub(IN_FLIGHT_OF_STREAM)?;
        let feed = self.topic.client().feed(sub).await?;
        Ok(Subscription { feed, origin: self.origin() })
    }

    /// What the engine is to be told; `in_flight` where the application has not said.
    pub(super) fn sub(&self, in_flight: u32) -> Result<Sub, Error> {
        let mut sub = Sub::new(self.topic.spec()?, &self.name);
        sub.start = self.start;
        sub.in_flight = self.in_flight.unwrap_or(in_flight);
        sub.claim_idle = self.claim_after.unwrap_or(sub.claim_idle);
        sub.claim_period = self.claim_period.unwrap_or(sub.claim_period);
        sub.max_deliveries = self.max_deliveries.unwrap_or(sub.max_deliveries);
        sub.handler_timeout = self.handler_timeout.unwrap_or(sub.handler_timeout);
        sub.retention = self.retention;
        (sub.retry_base, sub.retry_cap) = self.retry.unwrap_or((sub.retry_base, sub.retry_cap));
        Ok(sub)
    }

    pub(super) fn run_plan(&self) -> Plan {
        let sub = self.sub(IN_FLIGHT_OF_RUN);
        let in_flight = sub.as_ref().map_or(1, |sub| sub.in_flight);
        self.plan(sub, self.concurrency.unwrap_or(in_flight))
    }

    /// A batch can only fill up when that many messages may be in hand.
    pub(super) fn batch_plan(&self, max: usize) -> Plan {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let concurrency = self.concurrency.unwrap_or(1);
        // One batch comes together while the others are handled.
        let enough = max.saturating_mul(concurrency.saturating_add(1)).max(IN_FLIGHT_OF_RUN);
        let mut sub = self.sub(enough);
        if let Ok(sub) = &mut sub {
            sub.in_flight = sub.in_flight.max(max);
        }
        self.plan(sub, concurrency)
    }

    fn plan(&self, sub: Result<Sub, Error>, concurrency: u32) -> Plan {
        Plan {
            client: self.topic.client().clone(),
            sub,
            concurrency: usize::try_from(concurrency.max(1)).unwrap_or(usize::MAX),
            grace: self.grace,
            origin: self.origin(),
        }
    }

    fn origin(&self) -> Arc<Origin> {
        Arc::new(Origin {
            inbox: Arc::clone(self.topic.client().inbox()),
            topic: Arc::clone(self.topic.shared_name()),
            group: Arc::clone(&self.name),
        })
    }
}

/// What a runner needs to know before it starts.
pub(super) struct Plan {
    pub(super) client: super::Client,
    pub(super) sub: Result<Sub, Error>,
    pub(super) concurrency: usize,
    pub(super) grace: Duration,
    pub(super) origin: Arc<Origin>,
}

/// The messages of a group as they come to this member: a [`Stream`], or a loop around [`next`](Self::next).
///
/// Dropped, it leaves the group in the background: messages that were not taken from it are given back at once, for
/// those that were there are five seconds to settle them. [`close`](Self::close) waits for that.
#[must_use = "dropped, it leaves the group"]
pub struct Subscription {
    feed: Feed,
    origin: Arc<Origin>,
}

impl Subscription {
    /// The next message; `None` when the client was closed.
    pub async fn next(&mut self) -> Option<Job> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Leaves the group: what was not taken is given back at once, what was taken can be settled for as long as `grace`.
    /// Resolves when nothing is in hand any more and the brokers have heard it.
    ///
    /// # Errors
    ///
    /// When the client was closed meanwhile: it has given back everything.
    pub async fn close(self, grace: Duration) -> Result<(), Stopped> {
        self.feed.stop(grace).await
    }
}

impl Stream for Subscription {
    type Item = Job;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Job>> {
        self.feed.queue().poll_next(cx).map(|next| next.map(|delivery| Job::new(delivery, &self.origin)))
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("topic", &self.origin.topic)
            .field("group", &self.origin.group)
            .finish_non_exhaustive()
    }
}
