//! Runners: a future that takes messages of a group, calls a handler for each, and settles them by its result.
//!
//! A handler is polled where it starts and kept only if it is pending: most handlers of a fast service never are. A
//! turn's verdicts leave as one message, so that they reach a broker as one acknowledgement.

mod batch;
mod handlers;
mod spawned;
mod stop;
#[cfg(all(test, not(loom)))]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use super::client::{Client, Error, Feed};
use super::group::{Group, Plan};
use super::inbox::Receipt;
use super::job::{Job, Origin};
use super::message::{Completion, Mailbox, Message};
use super::verdict::{IntoVerdict, overdue};
use crate::id::DeliveryId;
use crate::op::{Sub, Verdict};
use crate::output::Delivery;
use crate::sync::Arc;
use handlers::{Handlers, Ids};

pub use batch::{Batch, Batches};
pub use spawned::Spawned;
pub use stop::Stopper;

/// Handlers polled in one turn. Then other tasks run, the driver among them, or one group would starve it.
const POLLS: usize = 128;

impl Group {
    /// Handles every message of the group with `handler`, as many at a time as
    /// [`concurrency`](Self::concurrency) says, in the task that awaits it.
    ///
    /// The handler's result is the verdict: `Ok(())` is done, an error is a retry with its text as the reason, the error
    /// [`Reject`](super::Reject) a dead letter. A panic is a retry, and so is a handler that takes longer than
    /// [`handler_timeout`](Self::handler_timeout): it is dropped.
    ///
    /// ```
    /// # use flota_core::driver::{Client, Error, Job};
    /// # async fn charge(_: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let billing = client.topic("orders").group("billing").concurrency(32);
    /// billing.run(|job: Job| async move { charge(job.body()).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It goes on until [`Run::stopper`] ends it or the client is closed. Dropped, it leaves the group at once:
    /// handlers are dropped, and their messages are given back to be delivered to others.
    pub fn run<H, F>(&self, handler: H) -> Run<Each<H>, F>
    where
        H: FnMut(Job) -> F,
        F: Future<Output: IntoVerdict>,
    {
        Run::new(self.run_plan(), Each(handler))
    }

    /// The same with a task of its own for each message: for handlers that compute, so that they use every core.
    ///
    /// `spawn` hands a future to a runtime. For handlers that wait, [`run`](Self::run) costs a fifth of this.
    ///
    /// ```
    /// # use std::{future::Future, pin::Pin};
    /// # use flota_core::driver::{Client, Error, Job};
    /// # mod tokio { pub fn spawn<F>(_: F) {} }
    /// # async fn resize(_: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let resizers = client.topic("images").group("resize").concurrency(8);
    /// resizers.run_on(|task| drop(tokio::spawn(task)), |job: Job| async move { resize(job.body()).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_on<S, H, F>(
        &self,
        mut spawn: S,
        mut handler: H,
    ) -> Run<Each<impl FnMut(Job) -> Spawned + use<S, H, F>>, Spawned>
    where
        S: FnMut(Pin<Box<dyn Future<Output = ()> + Send>>),
        H: FnMut(Job) -> F,
        F: Future<Output: IntoVerdict> + Send + 'static,
    {
        Run::new(
            self.run_plan(),
            Each(move |job| {
                let (task, spawned) = spawned::split(handler(job));
                spawn(task);
                spawned
            }),
        )
    }

    /// Handles messages in batches of up to `max`: a batch is handed over when it is full, or `wait` after its first
    /// message.
    ///
    /// The result is the verdict on all of its messages that the handler has not settled one by one. By default the next
    /// batch is handed over when the handler has finished; [`concurrency`](Self::concurrency) allows more at a time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use flota_core::driver::{Batch, Client, Error};
    /// # async fn insert(_: Vec<&[u8]>) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let archive = client.topic("orders").group("archive");
    /// let handler = |batch: Batch| async move { insert(batch.iter().map(|job| job.body()).collect()).await };
    /// archive.run_batch(500, Duration::from_millis(200), handler).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_batch<H, F>(&self, max: usize, wait: Duration, handler: H) -> Run<Batches<H>, F>
    where
        H: FnMut(Batch) -> F,
        F: Future<Output: IntoVerdict>,
    {
        let max = max.max(1);
        Run::new(self.batch_plan(max), Batches::new(max, wait, handler))
    }
}

/// How messages become handlers: one by one, or in batches.
pub(super) trait Work<F> {
    /// What one handler gets.
    type Input;

    /// How many messages to take from the queue, with this many handlers free and this many messages waiting.
    fn room(&self, free: usize, waiting: usize) -> usize;

    /// Whether the next handler may start.
    fn is_due(&mut self, cx: &mut Context<'_>, inbox: &Arc<Mailbox>, waiting: usize) -> bool;

    /// Takes what the next handler gets, and says which deliveries it answers for. There is something when it is due.
    fn take(&mut self, waiting: &mut VecDeque<Delivery>) -> Option<(Ids, Self::Input)>;

    /// Calls the handler. It may panic.
    fn call(&mut self, input: Self::Input, origin: &Arc<Origin>) -> F;
}

/// One handler for each message.
#[derive(Debug)]
pub struct Each<H>(H);

impl<H: FnMut(Job) -> F, F> Work<F> for Each<H> {
    type Input = Delivery;

    fn room(&self, free: usize, waiting: usize) -> usize {
        free.saturating_sub(waiting)
    }

    fn is_due(&mut self, _: &mut Context<'_>, _: &Arc<Mailbox>, waiting: usize) -> bool {
        waiting > 0
    }

    fn take(&mut self, waiting: &mut VecDeque<Delivery>) -> Option<(Ids, Delivery)> {
        let delivery = waiting.pop_front()?;
        Some((Ids::from_buf([delivery.delivery]), delivery))
    }

    fn call(&mut self, delivery: Delivery, origin: &Arc<Origin>) -> F {
        (self.0)(Job::supervised(delivery, origin))
    }
}

/// Consumes a group by calling a handler: a future that goes on until it is stopped. Made by [`Group::run`] and its
/// siblings.
///
/// It joins the group in its first poll. Dropped, it leaves at once: handlers are dropped, their messages given back.
///
/// # Errors
///
/// It resolves with an error when it could not join, or when the client was closed; with `Ok` after
/// [`Stopper::stop`], once handlers have finished or had their grace and the brokers have heard it.
#[must_use = "futures do nothing unless they are polled"]
pub struct Run<W, F> {
    work: W,
    handlers: Handlers<F>,
    client: Client,
    /// Until it has joined.
    sub: Option<Result<Sub, Error>>,
    feed: Option<Feed>,
    phase: Phase,
    /// Taken from the queue, not yet begun.
    waiting: VecDeque<Delivery>,
    overdue: Vec<DeliveryId>,
    /// What the driver is told at the end of the turn.
    started: Vec<DeliveryId>,
    verdicts: Vec<(DeliveryId, Verdict)>,
    outbox: Vec<Message>,
    concurrency: usize,
    handler_timeout: Duration,
    grace: Duration,
    origin: Arc<Origin>,
    stopper: Stopper,
}

enum Phase {
    New,
    Joining(Receipt<Message, Completion>),
    Working,
    /// Leaving, with what it resolves with then.
    Leaving(Receipt<Message, Completion>, Result<(), Error>),
    Over,
}

/// What a look into the queue has shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Open,
    Ended,
}

impl<W, F> Run<W, F> {
    fn new(plan: Plan, work: W) -> Self {
        let handler_timeout = plan.sub.as_ref().map_or(Duration::ZERO, |sub| sub.handler_timeout);
        Self {
            work,
            handlers: Handlers::new(),
            client: plan.client,
            sub: Some(plan.sub),
            feed: None,
            phase: Phase::New,
            waiting: VecDeque::new(),
            overdue: Vec::new(),
            started: Vec::new(),
            verdicts: Vec::new(),
            outbox: Vec::new(),
            concurrency: plan.concurrency,
            handler_timeout,
            grace: plan.grace,
            origin: plan.origin,
            stopper: Stopper::new(),
        }
    }

    /// Ends it from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Tells the driver what this turn has brought: which handlers go on, and all verdicts in one message.
    fn flush(&mut self) {
        if !self.started.is_empty() {
            self.outbox.push(Message::Started(mem::take(&mut self.started)));
        }
        if !self.verdicts.is_empty() {
            self.outbox.push(Message::SettleAll(mem::take(&mut self.verdicts)));
        }
        if self.origin.inbox.push_all(&mut self.outbox).is_err() {
            // A driver that is gone holds no messages: they are delivered to others. The queue says so next.
            self.outbox.clear();
        }
    }

    /// Gives back what no handler has begun.
    fn give_back_waiting(&mut self) {
        let unstarted = self.waiting.drain(..).map(|delivery| delivery.delivery);
        self.verdicts.extend(unstarted.map(|id| (id, Verdict::Release { started: false })));
    }

    fn drop_overdue(&mut self) {
        for delivery in self.overdue.drain(..) {
            self.handlers.abort(delivery, &overdue(self.handler_timeout), &mut self.verdicts);
        }
    }

    fn leave(&mut self, result: Result<(), Error>) {
        self.give_back_waiting();
        self.flush();
        self.phase = match &mut self.feed {
            Some(feed) => Phase::Leaving(feed.begin_stop(self.grace), result),
            None => Phase::Over,
        };
    }

    /// Handlers that are still there have had their grace.
    fn finish(&mut self, result: Result<(), Error>) -> Poll<Result<(), Error>> {
        self.phase = Phase::Over;
        self.handlers.clear();
        self.feed = None;
        Poll::Ready(result)
    }
}

// The bound stands at each method, because it is nobody else's.
impl<W, F> Run<W, F> {
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>>
    where
        W: Work<F>,
        F: Future<Output: IntoVerdict>,
    {
        loop {
            match &mut self.phase {
                Phase::New => match self.sub.take() {
                    Some(Ok(sub)) => {
                        let (feed, answer) = self.client.open_feed(sub);
                        self.feed = Some(feed);
                        self.phase = Phase::Joining(answer);
                    }
                    Some(Err(error)) => return self.finish(Err(error)),
                    None => return self.finish(Err(Error::Stopped)),
                },
                Phase::Joining(answer) => match ready!(Pin::new(answer).poll(cx)) {
                    Ok(Completion::Subscribed) => self.phase = Phase::Working,
                    Ok(Completion::Rejected(why)) => return self.finish(Err(Error::Rejected(why))),
                    _ => return self.finish(Err(Error::Stopped)),
                },
                Phase::Working => {
                    if self.stopper.poll_stopped(cx) {
                        self.leave(Ok(()));
                    } else if self.turn(cx) == Queue::Ended {
                        self.leave(Err(Error::Stopped));
                    } else {
                        return Poll::Pending;
                    }
                }
                Phase::Leaving(left, _) => {
                    if let Poll::Ready(answer) = Pin::new(left).poll(cx) {
                        let Phase::Leaving(_, result) = mem::replace(&mut self.phase, Phase::Over) else { continue };
                        let told = matches!(answer, Ok(Completion::Unsubscribed));
                        return self.finish(if told { result } else { Err(Error::Stopped) });
                    }
                    self.last_turn(cx);
                    return Poll::Pending;
                }
                Phase::Over => panic!("polled after it had resolved"),
            }
        }
    }

    /// Polls what was woken, starts what fits, and tells the driver.
    fn turn(&mut self, cx: &mut Context<'_>) -> Queue
    where
        W: Work<F>,
        F: Future<Output: IntoVerdict>,
    {
        let mut budget = POLLS;
        self.poll_woken(cx, &mut budget);
        let mut queue = Queue::Open;
        loop {
            let free = self.concurrency.saturating_sub(self.handlers.running());
            let moved = self.look(cx, self.work.room(free, self.waiting.len()));
            self.drop_overdue();
            let started = self.start(cx, &mut budget);
            match moved {
                Poll::Ready(false) => break queue = Queue::Ended,
                // What has started made room: what there was none for may still lie in the queue, and nobody will say.
                _ if budget > 0 && (started || moved.is_ready()) => {}
                _ => break,
            }
        }
        if budget == 0 {
            cx.waker().wake_by_ref();
        }
        self.flush();
        queue
    }

    /// Polls what was woken, and nothing else starts.
    fn last_turn(&mut self, cx: &mut Context<'_>)
    where
        F: Future<Output: IntoVerdict>,
    {
        let mut budget = POLLS;
        self.poll_woken(cx, &mut budget);
        // That it has ended is known; what is overdue comes all the same.
        let _ = self.look(cx, 0);
        self.drop_overdue();
        if budget == 0 {
            cx.waker().wake_by_ref();
        }
        self.flush();
    }

    fn look(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<bool> {
        match &self.feed {
            Some(feed) => feed.queue().poll_batch(cx, room, &mut self.waiting, &mut self.overdue),
            None => Poll::Ready(false),
        }
    }

    fn poll_woken(&mut self, cx: &mut Context<'_>, budget: &mut usize)
    where
        F: Future<Output: IntoVerdict>,
    {
        self.handlers.hear(cx.waker());
        while *budget > 0 && self.handlers.poll_next_woken(&mut self.verdicts) {
            *budget -= 1;
        }
    }

    fn start(&mut self, cx: &mut Context<'_>, budget: &mut usize) -> bool
    where
        W: Work<F>,
        F: Future<Output: IntoVerdict>,
    {
        let before = *budget;
        // Asked also when no handler is free: the wait for a batch begins with its first message.
        while *budget > 0
            && self.work.is_due(cx, &self.origin.inbox, self.waiting.len())
            && self.handlers.running() < self.concurrency
            && let Some((ids, input)) = self.work.take(&mut self.waiting)
        {
            *budget -= 1;
            let call = || self.work.call(input, &self.origin);
            self.handlers.start(ids, call, &mut self.verdicts, &mut self.started);
        }
        *budget < before
    }
}

impl<H: FnMut(Job) -> F, F: Future<Output: IntoVerdict>> Future for Run<Each<H>, F> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().drive(cx)
    }
}

impl<H: FnMut(Batch) -> F, F: Future<Output: IntoVerdict>> Future for Run<Batches<H>, F> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().drive(cx)
    }
}

// Handlers are pinned in boxes of their own; everything else is only moved.
impl<W, F> Unpin for Run<W, F> {}

impl<W, F> Drop for Run<W, F> {
    fn drop(&mut self) {
        let Some(mut feed) = self.feed.take() else { return };
        for id in self.handlers.ids() {
            self.verdicts.push((id, Verdict::Release { started: true }));
        }
        self.handlers.clear();
        self.give_back_waiting();
        self.flush();
        if !matches!(self.phase, Phase::Leaving(..)) {
            drop(feed.begin_stop(Duration::ZERO));
        }
    }
}

impl<W, F> fmt::Debug for Run<W, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("topic", &self.origin.topic)
            .field("group", &self.origin.group)
            .field("handlers", &self.handlers.running())
            .finish_non_exhaustive()
    }
}
