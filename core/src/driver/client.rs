//! The client: what an application holds of a running driver.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use futures_core::Stream;

use super::inbox::{Credits, Handle, Inbox, Receipt};
use super::message::{Completion, Events, FleetEvent, FleetView, Mailbox, Message, Queue};
use crate::announce::Guid;
use crate::command::Command;
use crate::config::{Config, Endpoint};
use crate::id::BrokerId;
use crate::op::{Call, Op, OpError, Outcome, PartitionsDiffer, Reject, Send, Stored, Sub};
use crate::output::Unready;
use crate::reply::Reply;
use crate::stats::Stats;
use crate::sync::Arc;
use crate::time::Mono;
use crate::topic::BadName;

/// How long a driver goes on for what is under way when nobody has closed it: when its last handle is gone.
pub(super) const BACKGROUND_GRACE: Duration = Duration::from_secs(5);

/// A fleet of brokers, as an application holds it. Clones are the same client.
///
/// When the last clone is dropped, topics and subscriptions included, the driver finishes in the background what is
/// under way, for at most five seconds; [`close`](Self::close) waits for that and says what was left.
#[derive(Clone)]
pub struct Client {
    handle: Handle<Message, Completion>,
    fleet: Arc<FleetView>,
}

impl Client {
    pub(super) fn new(config: &Config) -> Self {
        let credits = Credits {
            ops: config.limits.backlog_ops as usize,
            bytes: usize::try_from(config.limits.backlog_bytes).unwrap_or(usize::MAX),
        };
        Self { handle: Handle::new(&Inbox::new(credits)), fleet: Arc::new(FleetView::new()) }
    }

    /// Waits until a broker can be used, for as long as it takes.
    ///
    /// # Errors
    ///
    /// When the driver stops before that.
    pub async fn ready(&self) -> Result<(), Stopped> {
        self.until(|fleet| fleet.iter().any(|broker| broker.ready)).await
    }

    /// Waits until the fleet is as wanted; `wanted` is asked now and after every change.
    ///
    /// # Errors
    ///
    /// When the driver stops before that.
    pub async fn until(&self, wanted: impl Fn(&[BrokerInfo]) -> bool) -> Result<(), Stopped> {
        if poll_fn(|cx| self.fleet.poll_until(cx, &wanted)).await { Ok(()) } else { Err(Stopped) }
    }

    /// The members of the fleet as they were at its last change.
    #[must_use]
    pub fn fleet(&self) -> Arc<Vec<BrokerInfo>> {
        self.fleet.brokers()
    }

    /// Changes of the fleet and warnings, from now on.
    #[must_use]
    pub fn events(&self) -> FleetEvents {
        let events = Events::new();
        if self.handle.push(Message::Watch(Arc::clone(&events))).is_err() {
            events.end();
        }
        FleetEvents(events)
    }

    /// The fleet and the engine's counters as they are at this moment.
    ///
    /// # Errors
    ///
    /// When the driver has stopped.
    pub async fn inspect(&self) -> Result<Inspection, Stopped> {
        match self.handle.push_with_ticket(Message::Inspect).await {
            Ok(Completion::Inspected(inspection)) => Ok(*inspection),
            _ => Err(Stopped),
        }
    }

    /// Stores a message, when a broker is there to take it. Submitted in the first poll, or when the backlog has room;
    /// dropped after that, the message takes its course.
    ///
    /// # Errors
    ///
    /// Why it is not known to be stored.
    pub async fn send(&self, send: Send) -> Result<Stored, Error> {
        match self.submit(Op::Send(send)).await? {
            Outcome::Stored(stored) => Ok(stored),
            Outcome::Reply(_) => unreachable!("a send is answered by a place"),
        }
    }

    /// Runs a command on one broker: for administration. It is never repeated, and it must not block: it shares a
    /// connection with everything else that is said to that broker. A refusal of the server is an error here.
    ///
    /// # Errors
    ///
    /// Whatever kept the command from being answered.
    pub async fn call(&self, broker: BrokerId, command: Command) -> Result<Reply, Error> {
        match self.submit(Op::Call(Call { broker, command })).await? {
            Outcome::Reply(reply) => Ok(reply),
            Outcome::Stored(_) => unreachable!("a call stores nothing"),
        }
    }

    /// Stops: no more messages are taken in, those under way have `grace` to finish, and then everything is closed.
    ///
    /// # Errors
    ///
    /// When the driver had stopped already.
    pub async fn close(self, grace: Duration) -> Result<CloseReport, Stopped> {
        match self.handle.push_with_ticket(|ticket| Message::Close { grace, ticket }).await {
            Ok(Completion::Closed(report)) => Ok(report),
            _ => Err(Stopped),
        }
    }

    // For the other handles.

    pub(crate) fn inbox(&self) -> &Arc<Mailbox> {
        &self.handle
    }

    pub(super) fn view(&self) -> &Arc<FleetView> {
        &self.fleet
    }

    /// Submits in its first poll, or when the backlog has room. Dropped after that, the operation takes its course.
    pub(crate) async fn submit(&self, op: Op) -> Result<Outcome, Error> {
        let bytes = match &op {
            Op::Send(send) => send.message.len(),
            Op::Call(_) => 0,
        };
        match self.handle.submit(bytes, move |ticket| Message::Submit { op, ticket }).await {
            Ok(completion) => completion.into_outcome(),
            Err(_) => Err(Error::Stopped),
        }
    }

    /// Subscribes; what arrives lies in the feed.
    pub(crate) async fn feed(&self, sub: Sub) -> Result<Feed, Error> {
        let (feed, answer) = self.open_feed(sub);
        match answer.await {
            Ok(Completion::Subscribed) => Ok(feed),
            Ok(Completion::Rejected(why)) => Err(Error::Rejected(why)),
            _ => Err(Error::Stopped),
        }
    }

    /// The same without the wait: the answer tells whether there will be deliveries.
    pub(crate) fn open_feed(&self, sub: Sub) -> (Feed, Receipt<Message, Completion>) {
        // Made before the answer: whoever stops waiting for it has unsubscribed.
        let feed = Feed { queue: Queue::new(), client: self.clone(), stopped: false };
        let queue = Arc::clone(&feed.queue);
        let sub = sub.into();
        let answer = self.handle.push_with_ticket(|ticket| Message::Subscribe { sub, queue, ticket });
        (feed, answer)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("brokers", &self.fleet().len()).finish_non_exhaustive()
    }
}

/// A subscription's end of its queue. Dropped, it unsubscribes and releases what is left.
#[derive(Debug)]
pub(crate) struct Feed {
    queue: Arc<Queue>,
    client: Client,
    stopped: bool,
}

impl Feed {
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Gives back what nobody has taken from the queue, waits at most `grace` for the verdicts on the rest, and
    /// resolves when nothing is in hand any more.
    pub(crate) async fn stop(mut self, grace: Duration) -> Result<(), Stopped> {
        match self.begin_stop(grace).await {
            Ok(Completion::Unsubscribed) => Ok(()),
            _ => Err(Stopped),
        }
    }

    /// The same without the wait.
    pub(crate) fn begin_stop(&mut self, grace: Duration) -> Receipt<Message, Completion> {
        self.stopped = true;
        let queue = Arc::clone(&self.queue);
        self.client.handle.push_with_ticket(|ticket| Message::Unsubscribe { queue, grace, ticket: Some(ticket) })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.stopped {
            let queue = Arc::clone(&self.queue);
            // A driver that is gone has released everything.
            let _ = self.client.handle.push(Message::Unsubscribe { queue, grace: BACKGROUND_GRACE, ticket: None });
        }
    }
}

impl Completion {
    pub(super) fn into_stored(self) -> Result<Stored, Error> {
        match self.into_outcome()? {
            Outcome::Stored(stored) => Ok(stored),
            Outcome::Reply(_) => unreachable!("a send is answered by a place"),
        }
    }

    fn into_outcome(self) -> Result<Outcome, Error> {
        match self {
            Self::Op(result) => result.map_err(Error::Op),
            Self::Rejected(why) => Err(Error::Rejected(why)),
            _ => Err(Error::Stopped),
        }
    }
}

/// Changes of the fleet and warnings, as a stream. It ends with the driver.
#[derive(Debug)]
pub struct FleetEvents(Arc<Events>);

impl FleetEvents {
    /// The next one; `None` when the driver has stopped.
    pub async fn next(&mut self) -> Option<FleetEvent> {
        poll_fn(|cx| self.0.poll_next(cx)).await
    }
}

impl Stream for FleetEvents {
    type Item = FleetEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FleetEvent>> {
        self.0.poll_next(cx)
    }
}

/// One member of the fleet.
#[derive(Clone, Debug)]
pub struct BrokerInfo {
    /// Names it in [`Client::call`].
    pub id: BrokerId,
    /// Its newest GUID; none for a configured broker.
    pub guid: Option<Guid>,
    /// Where it is.
    pub address: Endpoint,
    /// Whether messages may be sent there.
    pub ready: bool,
    /// Why not, if that is known.
    pub unready: Option<Unready>,
    /// Whether it has left: it is read until it is empty.
    pub leaving: bool,
    /// How many announcements of it were accepted.
    pub announcements: u64,
    /// When it became a member, on the driver's clock.
    pub joined: Mono,
    /// Whether it was configured rather than announced.
    pub is_static: bool,
}

/// The state of a client at one moment.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The members of the fleet.
    pub fleet: Vec<BrokerInfo>,
    /// What the engine has done so far.
    pub stats: Stats,
    /// The announcement socket, if there is one.
    pub socket: Option<SocketInfo>,
    /// When this was, on the driver's clock.
    pub at: Mono,
}

/// What the system says about the announcement socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketInfo {
    /// The receive buffer the system granted, in bytes as the system counts them.
    pub receive_buffer_bytes: usize,
    /// Datagrams it has dropped because that buffer was full; none where it does not say.
    pub dropped: Option<u64>,
}

/// What was left when a client had closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// Operations that failed after the closing began. Each has told its caller why.
    pub failed: u64,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The topic's name is not a name; nothing happened.
    Name(BadName),
    /// It was refused at the door; nothing happened.
    Rejected(Reject),
    /// It was accepted and failed.
    Op(OpError),
    /// A topic would have fewer partitions than it has; nothing happened.
    Shrinks(Box<PartitionsDiffer>),
    /// The client was closed, or its driver is gone. What was under way may have happened.
    Stopped,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(why) => why.fmt(f),
            Self::Rejected(why) => why.fmt(f),
            Self::Op(why) => why.fmt(f),
            Self::Shrinks(why) => {
                let PartitionsDiffer { topic, broker, ours, theirs } = &**why;
                write!(f, "topic {topic} has {theirs} partitions on {broker} and does not shrink to {ours}")
            }
            Self::Stopped => Stopped.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// The client was closed, or its driver is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client was closed, or its driver is gone")
    }
}

impl core::error::Error for Stopped {}

impl From<Stopped> for Error {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}
