//! What handles say to the driver, what they get for it, and the queues between them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use super::client::{BrokerInfo, CloseReport, Inspection};
use super::inbox::{Inbox, Ticket, refresh, wake};
use crate::id::{DeliveryId, SubId};
use crate::op::{Op, OpError, Outcome, Reject, Settled, Sub, Verdict};
use crate::output::{BrokerEvent, Delivery, Warning};
use crate::sync::{Arc, Mutex};

#[cfg(all(test, not(loom)))]
mod tests;

/// The inbox of a driver.
pub(crate) type Mailbox = Inbox<Message, Completion>;

/// What a handle says to the driver.
#[derive(Debug)]
pub(crate) enum Message {
    /// Answered with `Op` or `Rejected`.
    Submit { op: Op, ticket: Ticket },
    /// A verdict; with a ticket it is answered with `Settled`. A delivery that is no longer this process's is answered
    /// as fenced.
    Settle { delivery: DeliveryId, verdict: Verdict, ticket: Option<Ticket> },
    /// A turn's verdicts, of which nobody wants to hear.
    SettleAll(Vec<(DeliveryId, Verdict)>),
    /// Handlers of these deliveries are running.
    Started(Vec<DeliveryId>),
    /// Answered with `Subscribed` or `Rejected`. Deliveries go to the queue.
    Subscribe { sub: Box<Sub>, queue: Arc<Queue>, ticket: Ticket },
    /// Answered with `Unsubscribed` when nothing of it is in hand any more. What still lies in the queue is given back.
    Unsubscribe { queue: Arc<Queue>, grace: Duration, ticket: Option<Ticket> },
    /// Answered with `Timer` when that much time has passed: handles have no clock of their own.
    WakeAt { after: Duration, ticket: Ticket },
    /// Tell these about every event from now on, as long as somebody else holds them.
    Watch(Arc<Events>),
    /// Answered with `Inspected`.
    Inspect(Ticket),
    /// Answered with `Closed` when the engine has stopped.
    Close { grace: Duration, ticket: Ticket },
}

/// The answer to a message.
#[derive(Debug)]
pub(crate) enum Completion {
    /// What came of an operation.
    Op(Result<Outcome, OpError>),
    /// An operation or subscription was not accepted; it is dropped.
    Rejected(Reject),
    /// What the broker made of a verdict.
    Settled(Settled),
    /// The queue will be filled.
    Subscribed,
    /// The queue has ended.
    Unsubscribed,
    /// The time is over.
    Timer,
    /// The fleet and the counters as they are.
    Inspected(Box<Inspection>),
    /// The engine has stopped.
    Closed(CloseReport),
    /// The driver is gone: it was closed, dropped, or it panicked.
    Stopped,
}

/// Deliveries of one subscription, from the driver to whoever handles them.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    sub: Option<SubId>,
    deliveries: VecDeque<Delivery>,
    overdue: Vec<DeliveryId>,
    waker: Option<Waker>,
    ended: bool,
}

impl Queue {
    /// An empty queue of a subscription to be.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(QueueState::default()) })
    }

    // The handler's side.

    /// The next delivery; `None` when the subscription has ended and nothing is left.
    ///
    /// What a loop over single deliveries wants: what it has not asked for stays where an unsubscription gives it back.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut state = self.state.lock();
        if let Some(delivery) = state.deliveries.pop_front() {
            return Poll::Ready(Some(delivery));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        let replaced = refresh(&mut state.waker, cx.waker());
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Moves up to `most` deliveries and every overdue one, in one lock: what a runner wants.
    ///
    /// Ready with true when it moved anything, with false when the subscription has ended and nothing is left.
    pub(crate) fn poll_batch(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        into: &mut VecDeque<Delivery>,
        overdue: &mut Vec<DeliveryId>,
    ) -> Poll<bool> {
        let mut state = self.state.lock();
        let take = most.min(state.deliveries.len());
        if take == state.deliveries.len() && into.is_empty() {
            mem::swap(into, &mut state.deliveries);
        } else {
            into.extend(state.deliveries.drain(..take));
        }
        let moved = take > 0 || !state.overdue.is_empty();
        overdue.append(&mut state.overdue);
        if moved {
            return Poll::Ready(true);
        }
        if state.ended && state.deliveries.is_empty() {
            return Poll::Ready(false);
        }
        let replaced = refresh(&mut state.waker, cx.waker());
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    // The driver's side.

    /// The subscription it belongs to, once there is one.
    pub(crate) fn sub(&self) -> Option<SubId> {
        self.state.lock().sub
    }

    pub(super) fn opened(&self, sub: SubId) {
        self.state.lock().sub = Some(sub);
    }

    /// Hands over a batch and empties it.
    pub(super) fn push(&self, deliveries: &mut Vec<Delivery>, overdue: &mut Vec<DeliveryId>) {
        let mut state = self.state.lock();
        state.deliveries.extend(deliveries.drain(..));
        state.overdue.append(overdue);
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }

    /// Takes back what nobody has taken.
    pub(super) fn reclaim(&self) -> VecDeque<Delivery> {
        mem::take(&mut self.state.lock().deliveries)
    }

    /// Nothing comes any more. What lies in it may still be taken.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }
}

/// Something that happened to the fleet, or that an operator should know.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// A member joined, left, or changed its state.
    Broker(Arc<BrokerEvent>),
    /// Nothing is lost unless it says so.
    Warning(Arc<Warning>),
    /// The reader was too slow: this many events before the next one are gone.
    Skipped(u64),
}

/// Events for one watcher. The oldest give way when it does not keep up.
#[derive(Debug)]
pub(crate) struct Events {
    state: Mutex<EventsState>,
}

#[derive(Debug, Default)]
struct EventsState {
    queue: VecDeque<FleetEvent>,
    skipped: u64,
    waker: Option<Waker>,
    ended: bool,
}

impl Events {
    /// More than a fleet of a thousand brokers says when all of them join at once.
    const KEPT: usize = 4_096;

    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(EventsState::default()) })
    }

    /// The next event; `None` when the driver has stopped and nothing is left.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<FleetEvent>> {
        let mut state = self.state.lock();
        let skipped = mem::take(&mut state.skipped);
        if skipped > 0 {
            return Poll::Ready(Some(FleetEvent::Skipped(skipped)));
        }
        if let Some(event) = state.queue.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        let replaced = refresh(&mut state.waker, cx.waker());
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    pub(super) fn push(&self, event: FleetEvent) {
        let mut state = self.state.lock();
        let dropped = if state.queue.len() >= Self::KEPT {
            state.skipped += 1;
            state.queue.pop_front()
        } else {
            None
        };
        state.queue.push_back(event);
        let waker = state.waker.take();
        drop(state);
        drop(dropped);
        wake(waker);
    }

    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let waker = state.waker.take();
        drop(state);
        wake(waker);
    }
}

/// The fleet as the driver last saw it change, for anybody to look at.
#[derive(Debug)]
pub(crate) struct FleetView {
    state: Mutex<FleetState>,
}

#[derive(Debug)]
struct FleetState {
    brokers: Arc<Vec<BrokerInfo>>,
    waiting: Vec<Waker>,
    ended: bool,
}

impl FleetView {
    pub(super) fn new() -> Self {
        let state = FleetState { brokers: Arc::new(Vec::new()), waiting: Vec::new(), ended: false };
        Self { state: Mutex::new(state) }
    }

    /// A snapshot: it is replaced whole, never changed.
    pub(crate) fn brokers(&self) -> Arc<Vec<BrokerInfo>> {
        Arc::clone(&self.state.lock().brokers)
    }

    /// Ready with true once the fleet satisfies `wanted`, with false when the driver has stopped before that.
    pub(crate) fn poll_until(&self, cx: &mut Context<'_>, wanted: impl Fn(&[BrokerInfo]) -> bool) -> Poll<bool> {
        let mut state = self.state.lock();
        if wanted(&state.brokers) {
            return Poll::Ready(true);
        }
        if state.ended {
            return Poll::Ready(false);
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(super) fn replace(&self, brokers: Vec<BrokerInfo>) {
        let brokers = Arc::new(brokers);
        let mut state = self.state.lock();
        let old = mem::replace(&mut state.brokers, brokers);
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        drop(old);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}
