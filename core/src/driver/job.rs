//! A message in the hands of the application, and what it says about it.

use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use bytes::Bytes;

use super::client::Stopped;
use super::inbox;
use super::message::{Completion, Mailbox, Message};
use super::verdict::retry;
use crate::id::BrokerId;
use crate::op::{Settled, Verdict};
use crate::output::Delivery;
use crate::reply::StreamId;
use crate::sync::Arc;
use crate::topic::MessageId;

/// What all messages of one subscription share.
pub(super) struct Origin {
    pub(super) inbox: Arc<Mailbox>,
    pub(super) topic: Arc<str>,
    pub(super) group: Arc<str>,
}

/// A message to handle. Say what became of it by [`done`](Self::done), [`retry`](Self::retry) or
/// [`reject`](Self::reject); the first verdict counts.
///
/// Dropped without a verdict it is delivered again, as after `retry("dropped without a verdict")`. Inside of a handler
/// that [`Group::run`](super::Group::run) calls, the handler's result is the verdict, and dropping means nothing.
///
/// It keeps the whole batch it came in in memory: see [`into_owned`](Self::into_owned).
#[must_use = "dropped without a verdict it is delivered again"]
pub struct Job {
    delivery: Delivery,
    origin: Arc<Origin>,
    on_drop: OnDrop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDrop {
    /// A loop over a subscription has lost it.
    Retry,
    /// Somebody else, or nobody any more, answers for it.
    Nothing,
}

impl Job {
    /// For a loop of the application's own.
    pub(super) fn new(delivery: Delivery, origin: &Arc<Origin>) -> Self {
        Self { delivery, origin: Arc::clone(origin), on_drop: OnDrop::Retry }
    }

    /// For a handler whose result is the verdict.
    pub(super) fn supervised(delivery: Delivery, origin: &Arc<Origin>) -> Self {
        Self { delivery, origin: Arc::clone(origin), on_drop: OnDrop::Nothing }
    }

    /// The body. Empty when the entry has none, which only another program's entries may have.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.field(BODY).unwrap_or_default()
    }

    /// The body as a buffer that can be kept. It keeps the whole batch in memory.
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        self.delivery.batch.field_slice(self.index(), BODY).unwrap_or_default()
    }

    /// The message id as it was sent, the same wherever the message travels. Empty when the entry has none.
    #[must_use]
    pub fn id(&self) -> &str {
        self.field(b"id").and_then(|id| core::str::from_utf8(id).ok()).unwrap_or_default()
    }

    /// The message id, when it is the UUID that Flota gives.
    #[must_use]
    pub fn message_id(&self) -> Option<MessageId> {
        MessageId::parse(self.id())
    }

    /// The stream entry, unique only together with broker and partition.
    #[must_use]
    pub fn entry(&self) -> StreamId {
        self.delivery.entry()
    }

    /// The message key, if it was sent with one.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.field(b"key")
    }

    /// Names and values of the headers, in the order they were sent. Those whose name is not UTF-8 are left out.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let fields = self.delivery.batch.fields(self.index());
        fields.filter_map(|(name, value)| Some((core::str::from_utf8(name.strip_prefix(HEADER)?).ok()?, value)))
    }

    /// The value of the first header of that name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers().find(|(is, _)| *is == name).map(|(_, value)| value)
    }

    /// The topic it was sent to.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.origin.topic
    }

    /// The group it was delivered to.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.origin.group
    }

    /// The broker it lies on; [`Client::fleet`](super::Client::fleet) knows its address.
    #[must_use]
    pub fn broker(&self) -> BrokerId {
        self.delivery.broker
    }

    /// The number of its partition.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.delivery.partition
    }

    /// Whether its entry lies in the group's retry stream of its partition: entry ids of the two may be equal.
    #[must_use]
    pub fn is_retry(&self) -> bool {
        self.delivery.retry
    }

    /// Which attempt this is, from 1: earlier ones ended in a retry, or with their consumer.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.delivery.attempt
    }

    /// How often the entry has been delivered to this group, this time included. A retry makes a new entry.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.delivery.deliveries
    }

    /// The value of a field of the entry by its name on the wire, also of one that Flota does not know.
    #[must_use]
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        self.delivery.batch.field(self.index(), name)
    }

    /// The same message with a copy of its own of body, key and headers.
    ///
    /// Messages of one read share one buffer, which lives as long as any of them. Who holds on to a few of many, or
    /// holds one for long, frees the rest with this. It is not done unasked: to copy a message that is settled within
    /// the millisecond costs more than to share it.
    pub fn into_owned(mut self) -> Self {
        let single = self.delivery.batch.single(self.index());
        self.delivery.batch = Arc::new(single);
        self.delivery.index = 0;
        self
    }

    /// Handled: it is acknowledged and does not come again.
    ///
    /// Takes effect at once. The receipt can be awaited to learn what the broker made of it, or dropped.
    pub fn done(self) -> Receipt {
        self.settle(Verdict::Done)
    }

    /// Not handled: it is delivered again after the group's backoff, or, past the delivery limit, becomes a dead
    /// letter with this reason.
    pub fn retry(self, reason: impl AsRef<str>) -> Receipt {
        self.settle(Verdict::Retry { reason: reason.as_ref().into(), after: None })
    }

    /// The same with a delay of your own instead of the backoff.
    pub fn retry_after(self, reason: impl AsRef<str>, after: Duration) -> Receipt {
        self.settle(Verdict::Retry { reason: reason.as_ref().into(), after: Some(after) })
    }

    /// Never to be handled: it becomes a dead letter with this reason at once.
    pub fn reject(self, why: impl AsRef<str>) -> Receipt {
        self.settle(Verdict::Reject { reason: why.as_ref().into() })
    }

    /// Given back untouched: another consumer may have it at once, and this delivery does not count.
    pub fn release(self) -> Receipt {
        self.settle(Verdict::Release { started: false })
    }

    fn settle(mut self, verdict: Verdict) -> Receipt {
        self.on_drop = OnDrop::Nothing;
        let delivery = self.delivery.delivery;
        let settle = |ticket| Message::Settle { delivery, verdict, ticket: Some(ticket) };
        Receipt(self.origin.inbox.push_with_ticket(settle))
    }

    fn index(&self) -> usize {
        self.delivery.index as usize
    }
}

const BODY: &[u8] = b"payload";
const HEADER: &[u8] = b"h:";

impl Drop for Job {
    fn drop(&mut self) {
        if mem::replace(&mut self.on_drop, OnDrop::Nothing) == OnDrop::Retry {
            let verdict = retry("dropped without a verdict");
            let settle = Message::Settle { delivery: self.delivery.delivery, verdict, ticket: None };
            // A driver that is gone holds no messages: they are delivered to others.
            let _ = self.origin.inbox.push(settle);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id())
            .field("entry", &self.entry())
            .field("topic", &self.topic())
            .field("group", &self.group())
            .field("partition", &self.partition())
            .field("deliveries", &self.deliveries())
            .field("body_bytes", &self.body().len())
            .finish_non_exhaustive()
    }
}

/// What the broker makes of a verdict, when it has answered. The verdict has left already: dropping this cancels
/// nothing, and most applications do.
pub struct Receipt(inbox::Receipt<Message, Completion>);

impl Future for Receipt {
    type Output = Result<Settled, Stopped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(Completion::Settled(settled)) => Poll::Ready(Ok(settled)),
            _ => Poll::Ready(Err(Stopped)),
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt(..)")
    }
}
