//! The application's futures: a message that waits for credit and then for its result, and a result alone.

use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use super::{Closed, Inbox, Slot, Ticket, wake};
use crate::sync::Arc;

/// A message on its way and then its result: see [`Inbox::submit`].
#[must_use = "nothing is submitted before the first poll"]
pub(crate) struct Submit<'a, M, R, F> {
    pub(super) inbox: &'a Inbox<M, R>,
    pub(super) phase: Phase<F>,
}

pub(super) enum Phase<F> {
    New { bytes: usize, make: F },
    InLine { ticket: Ticket, make: F },
    Submitted(Ticket),
    Finished,
}

// The maker is only moved, never pinned.
impl<M, R, F> Unpin for Submit<'_, M, R, F> {}

impl<M, R, F: FnOnce(Ticket) -> M> Future for Submit<'_, M, R, F> {
    type Output = Result<R, Closed<F>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Phase::Submitted(ticket) = self.phase {
            let result = self.inbox.poll_ticket(ticket, cx.waker());
            if result.is_ready() {
                self.phase = Phase::Finished;
            }
            return result.map(Ok);
        }
        match mem::replace(&mut self.phase, Phase::Finished) {
            Phase::New { bytes, make } => self.poll_new(bytes, make, cx.waker().clone()),
            Phase::InLine { ticket, make } => self.poll_in_line(ticket, make, cx.waker()),
            Phase::Submitted(_) | Phase::Finished => panic!("polled after it had resolved"),
        }
    }
}

impl<M, R, F: FnOnce(Ticket) -> M> Submit<'_, M, R, F> {
    fn poll_new(&mut self, bytes: usize, make: F, waker: Waker) -> Poll<Result<R, Closed<F>>> {
        let mut state = self.inbox.state.lock();
        if state.closed {
            return Poll::Ready(Err(Closed(make)));
        }
        if !state.may_submit(bytes) {
            let ticket = state.slots.insert(Slot::Waiting { waker, bytes });
            state.line.tickets.push_back(ticket);
            drop(state);
            self.phase = Phase::InLine { ticket, make };
            return Poll::Pending;
        }
        state.credit.charge(bytes);
        let ticket = state.slots.insert(Slot::Pending { waker: Some(waker), cost: Some(bytes) });
        state.queue.push(make(ticket));
        let sleeper = state.sleeper.take();
        drop(state);
        self.phase = Phase::Submitted(ticket);
        wake(sleeper);
        Poll::Pending
    }

    fn poll_in_line(&mut self, ticket: Ticket, make: F, waker: &Waker) -> Poll<Result<R, Closed<F>>> {
        let mut state = self.inbox.state.lock();
        match state.slots.get_mut(ticket) {
            Some(Slot::Waiting { waker: stored, .. }) => {
                let replaced = if stored.will_wake(waker) { None } else { Some(mem::replace(stored, waker.clone())) };
                drop(state);
                drop(replaced);
                self.phase = Phase::InLine { ticket, make };
            }
            Some(slot @ Slot::Granted { .. }) => {
                let cost = if let Slot::Granted { bytes } = slot { Some(*bytes) } else { None };
                *slot = Slot::Pending { waker: Some(waker.clone()), cost };
                state.queue.push(make(ticket));
                let sleeper = state.sleeper.take();
                drop(state);
                self.phase = Phase::Submitted(ticket);
                wake(sleeper);
            }
            None => return Poll::Ready(Err(Closed(make))),
            Some(_) => unreachable!("{ticket:?} has submitted nothing yet"),
        }
        Poll::Pending
    }
}

impl<M, R, F> Drop for Submit<'_, M, R, F> {
    fn drop(&mut self) {
        if let Phase::InLine { ticket, .. } | Phase::Submitted(ticket) = self.phase {
            self.inbox.abandon(ticket);
        }
    }
}

/// The result of a message that was handed in: await it, or drop it and the message takes its course all the same.
pub(crate) struct Receipt<M, R> {
    pub(super) inbox: Arc<Inbox<M, R>>,
    /// None when the inbox was closed, or once the result was read.
    pub(super) ticket: Option<Ticket>,
}

impl<M, R> Receipt<M, R> {
    /// The ticket the message carries; none when it was refused or has been answered.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

impl<M, R> Future for Receipt<M, R> {
    type Output = Result<R, Closed<()>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ticket) = self.ticket else { return Poll::Ready(Err(Closed(()))) };
        let result = self.inbox.poll_ticket(ticket, cx.waker());
        if result.is_ready() {
            self.ticket = None;
        }
        result.map(Ok)
    }
}

impl<M, R> Drop for Receipt<M, R> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.inbox.abandon(ticket);
        }
    }
}
