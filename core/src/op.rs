//! What an application asks for, and what it gets.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::command::Command;
use crate::config::Endpoint;
use crate::id::BrokerId;
use crate::reply::{ErrorReply, Reply, StreamId};
use crate::time::Wall;
use crate::topic::{Message, MessageId, TopicSpec};

/// An operation: accepted and answered exactly once, or refused at once with its argument.
#[derive(Clone, Debug)]
pub enum Op {
    /// Store a message on one broker.
    Send(Send),
    /// Run a command on one broker, for administration.
    Call(Call),
}

/// Store a message.
#[derive(Clone, Debug)]
pub struct Send {
    /// Where to.
    pub topic: Arc<TopicSpec>,
    /// What.
    pub message: Message,
    /// What to do when it may or may not have been stored.
    pub policy: Policy,
    /// How long it may wait for a broker; `None` takes `Timing::send_init`.
    pub wait: Option<Duration>,
}

/// Run a command on one broker. It is never repeated.
#[derive(Clone, Debug)]
pub struct Call {
    /// On which.
    pub broker: BrokerId,
    /// A command that does not block.
    pub command: Command,
}

/// What to do when a connection dies between a command and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Place it again, with the same message id. It may be stored twice.
    #[default]
    AtLeastOnce,
    /// Report [`OpError::Ambiguous`]. It is stored at most once.
    AtMostOnce,
}

/// What came of an operation that succeeded.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The broker answered that the message is stored; how durably is the broker's own persistence.
    Stored(Stored),
    /// The broker's answer to a call.
    Reply(Reply),
}

/// Where a message was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The message id, the same wherever it travels.
    pub id: MessageId,
    /// The broker.
    pub broker: BrokerId,
    /// The partition's number.
    pub partition: u32,
    /// The entry, unique only together with broker and partition; all zero while the message is scheduled.
    pub entry: StreamId,
    /// When it is due by the broker's clock, if it is scheduled.
    pub due: Option<Wall>,
}

/// Why an accepted operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpError {
    /// Nothing was sent: it certainly did not happen.
    NotSent(NotSent),
    /// It was sent and the connection died before the answer: it may have happened.
    Ambiguous(Endpoint),
    /// A broker refused it: it did not happen.
    Refused(Box<Refused>),
    /// The broker answered something that is no answer to this command.
    Unanswered(Endpoint),
    /// Services disagree about the topic's number of partitions: nothing was sent.
    Partitions(Box<PartitionsDiffer>),
}

/// Two numbers of partitions for one topic. Messages of one key would lie in two of them, and in some nobody would look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionsDiffer {
    /// Which topic.
    pub topic: Arc<str>,
    /// On which broker.
    pub broker: Endpoint,
    /// What this service states.
    pub ours: u32,
    /// What the broker was told before.
    pub theirs: u32,
}

impl fmt::Display for PartitionsDiffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topic, broker, ours, theirs } = self;
        write!(f, "topic {topic} has {theirs} partitions on {broker}, and this service says {ours}: ")?;
        if ours > theirs {
            write!(f, "say {theirs} or none, or let it grow first (`flota topic grow {topic} {ours}`)")
        } else {
            write!(f, "say {theirs} or none; a topic does not shrink")
        }
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// No broker was ready within the time it may wait.
    NoBroker,
    /// The named broker is not there, or not ready.
    NotReady,
    /// The application cancelled it.
    Cancelled,
    /// The engine is shutting down.
    Stopping,
}

/// A broker's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which broker.
    pub broker: Endpoint,
    /// What it said.
    pub error: ErrorReply,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(NotSent::NoBroker) => f.write_str("not sent: no broker was ready in time"),
            Self::NotSent(NotSent::NotReady) => f.write_str("not sent: that broker is not ready"),
            Self::NotSent(NotSent::Cancelled) => f.write_str("not sent: cancelled before it left"),
            Self::NotSent(NotSent::Stopping) => f.write_str("not sent: the client is closing"),
            Self::Ambiguous(broker) => {
                write!(f, "ambiguous: the connection to {broker} died before its answer; it may have been stored")
            }
            Self::Refused(refused) => write!(f, "refused by {}: {}", refused.broker, refused.error.text()),
            Self::Unanswered(broker) => write!(f, "{broker} answered something that is no answer to the command"),
            Self::Partitions(differ) => write!(f, "not sent: {differ}"),
        }
    }
}

impl core::error::Error for OpError {}

/// A refusal at the door: why, and the argument back.
#[derive(Clone, Debug)]
pub struct Rejected<T> {
    /// Why.
    pub why: Reject,
    /// What was asked for, unchanged.
    pub given: T,
}

/// Why an operation or subscription was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// A body larger than `Limits::body_bytes`, which is named.
    BodyTooLarge(u32),
    /// More headers than `Limits::headers`, which is named.
    TooManyHeaders(u32),
    /// A header without a name.
    EmptyHeaderName,
    /// `Limits::backlog_ops` or `Limits::backlog_bytes` operations already wait for a broker.
    BacklogFull,
    /// The broker of a call is not there, or not ready.
    NotReady,
    /// `Limits::subscriptions` exist already.
    TooManySubscriptions,
    /// A subscription that can never have a message in hand.
    NoCredit,
    /// A group name that is not a name.
    BadGroup,
    /// The engine is shutting down.
    Stopping,
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BodyTooLarge(most) => write!(f, "the body is larger than {most} bytes (limits.body_bytes)"),
            Self::TooManyHeaders(most) => write!(f, "more than {most} headers (limits.headers)"),
            Self::EmptyHeaderName => f.write_str("a header has no name"),
            Self::BacklogFull => f.write_str("too much already waits for a broker (limits.backlog_ops, backlog_bytes)"),
            Self::NotReady => f.write_str("that broker is not ready"),
            Self::TooManySubscriptions => f.write_str("too many subscriptions (limits.subscriptions)"),
            Self::NoCredit => f.write_str("in_flight must be at least 1"),
            Self::BadGroup => f.write_str("the group's name must be 1 to 100 of A-Z a-z 0-9 . _ -"),
            Self::Stopping => f.write_str("the client is closing"),
        }
    }
}

impl core::error::Error for Reject {}

/// A subscription: one consumer of a group, over every broker.
#[derive(Clone, Debug)]
pub struct Sub {
    /// Which topic.
    pub topic: Arc<TopicSpec>,
    /// Which group.
    pub group: Arc<str>,
    /// Where a new group starts. An existing group goes on where it is.
    pub start: Start,
    /// The most messages in hand at once, asked for ones included.
    pub in_flight: u32,
    /// Entries of a consumer that has been silent this long are claimed. Default 30 s.
    pub claim_idle: Duration,
    /// How often to look for such consumers. Default 5 s.
    pub claim_period: Duration,
    /// Deliveries of one message before it goes to the dead letters. Default 5.
    pub max_deliveries: u32,
    /// How long one handler may run before [`Event::Overdue`](crate::output::Event::Overdue). Default 25 s.
    pub handler_timeout: Duration,
    /// First and longest delay of a retry; it doubles with each delivery. Defaults 1 s and 5 min.
    pub retry_base: Duration,
    /// See `retry_base`.
    pub retry_cap: Duration,
    /// What is kept of messages that every group has done with. Default: nothing.
    pub retention: Retention,
}

impl Sub {
    /// A consumer with every default.
    #[must_use]
    pub fn new(topic: Arc<TopicSpec>, group: &str) -> Self {
        Self {
            topic,
            group: group.into(),
            start: Start::Oldest,
            in_flight: 64,
            claim_idle: Duration::from_secs(30),
            claim_period: Duration::from_secs(5),
            max_deliveries: 5,
            handler_timeout: Duration::from_secs(25),
            retry_base: Duration::from_secs(1),
            retry_cap: Duration::from_secs(300),
            retention: Retention::Acked,
        }
    }
}

/// What consumers keep of messages that are done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Messages go once every registered group has acknowledged them and they are a minute old, or at once when the
    /// broker's memory is nearly full. A group that nobody consumes any more keeps everything from where it stopped.
    #[default]
    Acked,
    /// Nothing is removed by this consumer.
    Forever,
}

/// Where a new group starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest message still there.
    #[default]
    Oldest,
    /// With messages sent from now on.
    Now,
}

/// What became of a delivery, as the application sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Handled: acknowledge it.
    Done,
    /// Not handled: deliver it again, after a backoff or after the given delay. Beyond the delivery limit it becomes
    /// a dead letter with this reason.
    Retry {
        /// Why, for the dead letter and the log.
        reason: Arc<str>,
        /// Instead of the backoff.
        after: Option<Duration>,
    },
    /// Never to be handled: a dead letter with this reason.
    Reject {
        /// Why.
        reason: Arc<str>,
    },
    /// Given back; another consumer may have it at once. Counts as a delivery only if a handler had started on it.
    Release {
        /// Whether a handler had started.
        started: bool,
    },
}

/// What the broker made of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It took effect.
    Ok,
    /// Somebody else holds the message by now; the verdict had no effect there.
    Fenced,
    /// The broker no longer knows the message: it was trimmed, flushed or lost.
    Lost(String),
}

/// An id that names nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("that id names nothing any more")
    }
}

impl core::error::Error for Stale {}
