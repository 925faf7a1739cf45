//! The inbox: what the application's threads and the driver's task share, and all they share.
//!
//! One lock guards the queue of messages to the driver, the credits that bound it, the table of completion slots and
//! the driver's waker. A message costs its sender two locks (hand in, read the result), the driver two per *turn*, and
//! nobody an allocation once the buffers have grown.
//!
//! Three rules keep the lock harmless:
//!
//! * Wakers are collected under it and woken after it.
//! * Nothing foreign is dropped under it: a waker may hold the last reference to a task, a result may hold a delivery,
//!   and the drop of either may come back here.
//! * The driver arms its waker in the same critical section that found the queue empty, so a push either is seen or
//!   wakes.
//!
//! Credits are handed over, not raced for: who waits longest gets the next one charged in its name before it is woken.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::ops::Deref;
use core::task::{Poll, Waker};

use crate::id::{Id, Slab};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};

mod future;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

use future::Phase;
pub(crate) use future::{Receipt, Submit};

/// Names one completion slot; never equal to an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket {
    generation: u32,
    index: u32,
}

impl Id for Ticket {
    fn from_parts(index: u32, generation: u32) -> Self {
        Self { generation, index }
    }

    fn index(self) -> u32 {
        self.index
    }

    fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{}", self.index, self.generation)
    }
}

/// How much may be outstanding between [`Inbox::submit`] and its completion. Both limits hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credits {
    /// Messages; at least one is always allowed.
    pub(crate) ops: usize,
    /// The sum of what the submitters say their messages weigh. One message may be heavier than all of it when nothing
    /// else is outstanding: it could otherwise wait for ever.
    pub(crate) bytes: usize,
}

/// The driver has stopped; what was not accepted comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed<T>(pub(crate) T);

/// Why nothing was submitted, with the unused maker of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused<F> {
    /// No credit, or others have waited longer for one.
    Full(F),
    /// The driver has stopped.
    Closed(F),
}

/// What [`Inbox::take`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// How many messages were moved. With zero the waker is armed and the driver may sleep.
    pub(crate) messages: usize,
    /// Every [`Handle`] was dropped. What handles pushed has been taken by now, this call included.
    pub(crate) last_handle_gone: bool,
}

/// Messages `M` from many threads to one driver, results `R` back.
pub(crate) struct Inbox<M, R> {
    state: Mutex<State<M, R>>,
    handles: AtomicUsize,
}

impl<M, R> Inbox<M, R> {
    /// An empty inbox, still without a [`Handle`].
    pub(crate) fn new(credits: Credits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                queue: Vec::new(),
                sleeper: None,
                slots: Slab::new(),
                credit: Credit { limit: credits, ops: 0, bytes: 0 },
                line: Line { tickets: VecDeque::new(), left: 0 },
                last_handle_gone: false,
                closed: false,
            }),
            handles: AtomicUsize::new(0),
        })
    }

    // The application's side.

    /// Hands in a message that needs neither credit nor completion.
    ///
    /// # Errors
    ///
    /// [`Closed`] with the message.
    pub(crate) fn push(&self, message: M) -> Result<(), Closed<M>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed(message));
        }
        state.queue.push(message);
        let sleeper = state.sleeper.take();
        drop(state);
        wake(sleeper);
        Ok(())
    }

    /// Hands in many messages at once, in order, and empties `batch`; its memory stays with the caller.
    ///
    /// # Errors
    ///
    /// [`Closed`], with `batch` as it was.
    pub(crate) fn push_all(&self, batch: &mut Vec<M>) -> Result<(), Closed<()>> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed(()));
        }
        state.queue.append(batch);
        let sleeper = state.sleeper.take();
        drop(state);
        wake(sleeper);
        Ok(())
    }

    /// Submits at once or not at all. `make` runs under the lock: it only builds the message.
    ///
    /// # Errors
    ///
    /// [`Refused`] with `make`, which was not called.
    pub(crate) fn try_submit<F>(self: &Arc<Self>, bytes: usize, make: F) -> Result<Receipt<M, R>, Refused<F>>
    where
        F: FnOnce(Ticket) -> M,
    {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refused::Closed(make));
        }
        if !state.may_submit(bytes) {
            return Err(Refused::Full(make));
        }
        state.credit.charge(bytes);
        let ticket = state.slots.insert(Slot::Pending { waker: None, cost: Some(bytes) });
        state.queue.push(make(ticket));
        let sleeper = state.sleeper.take();
        drop(state);
        wake(sleeper);
        Ok(self.receipt(Some(ticket)))
    }

    /// A future that submits in its first poll, or as soon after as it has credit, and resolves with the result.
    ///
    /// `make` runs under the lock: it only builds the message. Dropped before it was submitted, the future has done
    /// nothing; dropped later, the message takes its course and the result goes nowhere. It borrows: a counted
    /// reference per message would cost as much as a lock.
    pub(crate) fn submit<F>(&self, bytes: usize, make: F) -> Submit<'_, M, R, F>
    where
        F: FnOnce(Ticket) -> M,
    {
        Submit { inbox: self, phase: Phase::New { bytes, make } }
    }

    /// Hands in a message now, without credit, whose result may be awaited. `make` runs under the lock.
    ///
    /// When the driver has stopped `make` is not called and the receipt resolves with [`Closed`].
    pub(crate) fn push_with_ticket(self: &Arc<Self>, make: impl FnOnce(Ticket) -> M) -> Receipt<M, R> {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return self.receipt(None);
        }
        let ticket = state.slots.insert(Slot::Pending { waker: None, cost: None });
        state.queue.push(make(ticket));
        let sleeper = state.sleeper.take();
        drop(state);
        wake(sleeper);
        self.receipt(Some(ticket))
    }

    // The driver's side.

    /// Moves every queued message to the end of `into`, in one go. When there was none, `waker` is armed: the next
    /// message, or the loss of the last handle, wakes it, once. Sleep only after a call that found nothing.
    pub(crate) fn take(&self, into: &mut Vec<M>, waker: &Waker) -> Taken {
        let mut state = self.state.lock();
        let messages = state.queue.len();
        let replaced = if messages == 0 { refresh(&mut state.sleeper, waker) } else { None };
        if into.is_empty() {
            mem::swap(into, &mut state.queue);
        } else {
            into.append(&mut state.queue);
        }
        let last_handle_gone = state.last_handle_gone;
        drop(state);
        drop(replaced);
        Taken { messages, last_handle_gone }
    }

    /// Frees the slot of a message whose result nobody awaits any more, and says whether it did: then it must not be
    /// completed.
    pub(crate) fn free_abandoned(&self, ticket: Ticket) -> bool {
        let mut state = self.state.lock();
        let cost = match state.slots.get(ticket) {
            Some(Slot::Abandoned { cost }) => *cost,
            _ => return false,
        };
        state.slots.remove(ticket);
        let mut wakers = Vec::new();
        state.credit.refund(cost);
        state.grant(&mut wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Publishes a batch of results and empties it: each reaches the future that holds its ticket, the credits go to
    /// those who wait for them.
    ///
    /// # Panics
    ///
    /// When a ticket is completed twice while the inbox is open.
    pub(crate) fn complete(&self, batch: &mut Completions<R>) {
        let Completions { results, wakers, unread } = batch;
        if results.is_empty() {
            return;
        }
        let mut stale = None;
        let mut state = self.state.lock();
        for (ticket, result) in results.drain(..) {
            if !state.resolve(ticket, result, wakers, unread) {
                stale = Some(ticket);
            }
        }
        state.grant(wakers);
        let closed = state.closed;
        drop(state);
        wakers.drain(..).for_each(Waker::wake);
        unread.clear();
        assert!(closed || stale.is_none(), "{stale:?} was completed twice");
    }

    /// The driver has stopped, by request or by panic: every outstanding ticket resolves with a result from
    /// `remaining` (which runs under the lock and only builds it), who waits for credit is refused, and so is whatever
    /// comes later. Returns the messages nobody took; their tickets have been resolved with the others. A second call
    /// finds nothing to do.
    pub(crate) fn close(&self, mut remaining: impl FnMut() -> R) -> Vec<M> {
        let mut wakers = Vec::new();
        let mut unread = Vec::new();
        let mut state = self.state.lock();
        state.closed = true;
        let queue = mem::take(&mut state.queue);
        let sleeper = state.sleeper.take();
        let tickets: Vec<Ticket> = state.slots.keys().collect();
        for ticket in tickets {
            match state.slots.get(ticket) {
                Some(Slot::Pending { .. } | Slot::Abandoned { .. }) => {
                    state.resolve(ticket, remaining(), &mut wakers, &mut unread);
                }
                Some(Slot::Waiting { .. } | Slot::Granted { .. }) => state.refuse(ticket, &mut wakers),
                Some(Slot::Done(_)) | None => {}
            }
        }
        state.line = Line { tickets: VecDeque::new(), left: 0 };
        drop(state);
        drop(sleeper);
        wakers.into_iter().for_each(Waker::wake);
        drop(unread);
        queue
    }

    // Both sides.

    fn receipt(self: &Arc<Self>, ticket: Option<Ticket>) -> Receipt<M, R> {
        Receipt { inbox: Arc::clone(self), ticket }
    }

    /// Reads the result of a submitted message once, freeing its slot, or leaves `waker` there.
    fn poll_ticket(&self, ticket: Ticket, waker: &Waker) -> Poll<R> {
        let mut state = self.state.lock();
        if let Some(Slot::Pending { waker: stored, .. }) = state.slots.get_mut(ticket) {
            let replaced = refresh(stored, waker);
            drop(state);
            drop(replaced);
            return Poll::Pending;
        }
        match state.slots.remove(ticket) {
            Some(Slot::Done(result)) => Poll::Ready(result),
            _ => unreachable!("only its future frees a submitted slot, and {ticket:?} has one"),
        }
    }

    /// The future that held the ticket is gone.
    fn abandon(&self, ticket: Ticket) {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        let slot = match state.slots.get_mut(ticket) {
            Some(slot @ Slot::Pending { .. }) => {
                let cost = if let Slot::Pending { cost, .. } = slot { *cost } else { None };
                Some(mem::replace(slot, Slot::Abandoned { cost }))
            }
            Some(_) => {
                let slot = state.slots.remove(ticket);
                state.leave_line(slot.as_ref(), &mut wakers);
                slot
            }
            // Waited for credit until the inbox was closed.
            None => None,
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        drop(slot);
    }

    fn last_handle_dropped(&self) {
        let mut state = self.state.lock();
        state.last_handle_gone = true;
        let sleeper = state.sleeper.take();
        drop(state);
        wake(sleeper);
    }
}

struct State<M, R> {
    queue: Vec<M>,
    /// The driver's waker while it sleeps. Whoever takes it owes the wake.
    sleeper: Option<Waker>,
    slots: Slab<Ticket, Slot<R>>,
    credit: Credit,
    line: Line,
    last_handle_gone: bool,
    closed: bool,
}

/// What a ticket stands for. `cost` is what it holds of the credit; a receipt's message holds none.
enum Slot<R> {
    /// Stands in line for credit. Its message does not exist yet.
    Waiting { waker: Waker, bytes: usize },
    /// Has been given its credit and woken.
    Granted { bytes: usize },
    /// The message is the driver's, the result is awaited.
    Pending { waker: Option<Waker>, cost: Option<usize> },
    /// The message is the driver's, nobody awaits the result.
    Abandoned { cost: Option<usize> },
    /// The result waits to be read. Its credit has been given back.
    Done(R),
}

impl<M, R> State<M, R> {
    /// Whether a newcomer may go ahead: there is credit and nobody was here before.
    fn may_submit(&self, bytes: usize) -> bool {
        self.line.is_empty() && self.credit.covers(bytes)
    }

    /// Stores a result and gives back the credit. False when the ticket is not outstanding.
    fn resolve(&mut self, ticket: Ticket, result: R, wakers: &mut Vec<Waker>, unread: &mut Vec<R>) -> bool {
        match self.slots.get_mut(ticket) {
            Some(Slot::Pending { waker, cost }) => {
                wakers.extend(waker.take());
                self.credit.refund(*cost);
            }
            Some(Slot::Abandoned { cost }) => {
                self.credit.refund(*cost);
                self.slots.remove(ticket);
                unread.push(result);
                return true;
            }
            _ => {
                unread.push(result);
                return false;
            }
        }
        if let Some(slot) = self.slots.get_mut(ticket) {
            *slot = Slot::Done(result);
        }
        true
    }

    /// Gives credit to those in line, longest wait first, as far as it goes.
    fn grant(&mut self, wakers: &mut Vec<Waker>) {
        while let Some(ticket) = self.line.first() {
            match self.slots.get_mut(ticket) {
                Some(slot @ Slot::Waiting { .. }) => {
                    let Slot::Waiting { bytes, .. } = slot else { return };
                    let bytes = *bytes;
                    if !self.credit.covers(bytes) {
                        return;
                    }
                    self.credit.charge(bytes);
                    if let Slot::Waiting { waker, .. } = mem::replace(slot, Slot::Granted { bytes }) {
                        wakers.push(waker);
                    }
                    self.line.pop();
                }
                _ => self.line.pop_left(),
            }
        }
    }

    /// A future was dropped that may have stood in line or held a credit: whoever is next may go ahead.
    fn leave_line(&mut self, slot: Option<&Slot<R>>, wakers: &mut Vec<Waker>) {
        match slot {
            Some(Slot::Waiting { .. }) => {
                self.line.left += 1;
                self.line.tidy(&self.slots);
            }
            Some(Slot::Granted { bytes }) => self.credit.refund(Some(*bytes)),
            _ => return,
        }
        self.grant(wakers);
    }

    /// The inbox is closed: frees a slot that has submitted nothing. Its future sees that it is gone.
    fn refuse(&mut self, ticket: Ticket, wakers: &mut Vec<Waker>) {
        match self.slots.remove(ticket) {
            Some(Slot::Waiting { waker, .. }) => wakers.push(waker),
            // Woken already.
            Some(Slot::Granted { bytes }) => self.credit.refund(Some(bytes)),
            _ => {}
        }
    }
}

struct Credit {
    limit: Credits,
    ops: usize,
    bytes: usize,
}

impl Credit {
    fn covers(&self, bytes: usize) -> bool {
        self.ops == 0 || (self.ops < self.limit.ops && self.bytes.saturating_add(bytes) <= self.limit.bytes)
    }

    /// Only what [`covers`](Self::covers) allowed, so the sum cannot overflow.
    fn charge(&mut self, bytes: usize) {
        self.ops += 1;
        self.bytes += bytes;
    }

    fn refund(&mut self, cost: Option<usize>) {
        if let Some(bytes) = cost {
            self.ops -= 1;
            self.bytes -= bytes;
        }
    }
}

/// Who waits for credit, in order of arrival. Who leaves is only counted, and swept out when half have left.
struct Line {
    tickets: VecDeque<Ticket>,
    left: usize,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.tickets.len() == self.left
    }

    fn first(&self) -> Option<Ticket> {
        self.tickets.front().copied()
    }

    fn pop(&mut self) {
        self.tickets.pop_front();
    }

    fn pop_left(&mut self) {
        self.tickets.pop_front();
        self.left -= 1;
    }

    fn tidy<R>(&mut self, slots: &Slab<Ticket, Slot<R>>) {
        if self.left * 2 > self.tickets.len() {
            self.tickets.retain(|ticket| slots.contains(*ticket));
            self.left = 0;
        }
    }
}

/// Results on their way to [`Inbox::complete`], with the room it needs. The driver keeps one and reuses it.
pub(crate) struct Completions<R> {
    results: Vec<(Ticket, R)>,
    wakers: Vec<Waker>,
    unread: Vec<R>,
}

impl<R> Completions<R> {
    pub(crate) fn new() -> Self {
        Self { results: Vec::new(), wakers: Vec::new(), unread: Vec::new() }
    }

    /// Adds the result of a message.
    pub(crate) fn push(&mut self, ticket: Ticket, result: R) {
        self.results.push((ticket, result));
    }

    /// How many results wait to be published.
    pub(crate) fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether there is nothing to publish.
    pub(crate) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }
}

/// A counted reference: the driver learns when the last one is gone. Receipts and deliveries hold plain `Arc`s, so
/// they can finish while the driver drains.
pub(crate) struct Handle<M, R> {
    inbox: Arc<Inbox<M, R>>,
}

impl<M, R> Handle<M, R> {
    /// The first handle of an inbox. Further ones are clones.
    pub(crate) fn new(inbox: &Arc<Inbox<M, R>>) -> Self {
        let earlier = inbox.handles.fetch_add(1, Ordering::Relaxed);
        assert_eq!(earlier, 0, "an inbox has one first handle; clone it");
        Self { inbox: Arc::clone(inbox) }
    }
}

impl<M, R> Clone for Handle<M, R> {
    fn clone(&self) -> Self {
        // `self` is counted, so the count cannot be zero here whatever other threads drop.
        self.inbox.handles.fetch_add(1, Ordering::Relaxed);
        Self { inbox: Arc::clone(&self.inbox) }
    }
}

impl<M, R> Drop for Handle<M, R> {
    fn drop(&mut self) {
        if self.inbox.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inbox.last_handle_dropped();
        }
    }
}

impl<M, R> Deref for Handle<M, R> {
    type Target = Arc<Inbox<M, R>>;

    fn deref(&self) -> &Self::Target {
        &self.inbox
    }
}

/// Stores the waker unless it is there already. What it replaces is dropped by the caller, after the lock.
pub(super) fn refresh(stored: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match stored {
        Some(old) if old.will_wake(waker) => None,
        _ => stored.replace(waker.clone()),
    }
}

pub(super) fn wake(sleeper: Option<Waker>) {
    if let Some(waker) = sleeper {
        waker.wake();
    }
}
