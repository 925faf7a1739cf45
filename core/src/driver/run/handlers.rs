//! The handlers that are running: polled where they start, kept if they are pending, polled again when woken.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};

use smallvec::SmallVec;

use crate::driver::ready::ReadySet;
use crate::driver::verdict::{IntoVerdict, panicked};
use crate::id::DeliveryId;
use crate::op::Verdict;

/// The deliveries one handler answers for.
pub(in crate::driver) type Ids = SmallVec<[DeliveryId; 1]>;

/// A set of handlers. Each has a place that keeps its waker and its memory when the handler is gone: handlers that
/// finish in their first poll follow each other in one place and allocate nothing.
pub(super) struct Handlers<F> {
    ready: ReadySet,
    places: Vec<Place<F>>,
    free: Vec<u32>,
    running: usize,
    woken: Vec<u32>,
    /// Woken earlier than the budget of a turn reached.
    to_poll: VecDeque<u32>,
}

struct Place<F> {
    waker: Waker,
    ids: Ids,
    handler: Pin<Box<Option<F>>>,
}

impl<F> Handlers<F> {
    pub(super) fn new() -> Self {
        Self {
            ready: ReadySet::new(),
            places: Vec::new(),
            free: Vec::new(),
            running: 0,
            woken: Vec::new(),
            to_poll: VecDeque::new(),
        }
    }

    /// How many there are.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Learns who was woken, and has `waker` woken by whoever is next.
    pub(super) fn hear(&mut self, waker: &Waker) {
        self.ready.take(&mut self.woken, waker);
        self.to_poll.extend(self.woken.drain(..));
    }

    /// The deliveries of all of them.
    pub(super) fn ids(&self) -> impl Iterator<Item = DeliveryId> {
        self.places.iter().flat_map(|place| place.ids.iter().copied())
    }

    /// Drops them all.
    pub(super) fn clear(&mut self) {
        for place in &mut self.places {
            place.clear();
        }
        self.free = (0..self.places.len() as u32).collect();
        self.running = 0;
        self.to_poll.clear();
    }

    /// Drops the handler of a delivery, if it is still there, with a verdict on everything it answers for.
    pub(super) fn abort(&mut self, delivery: DeliveryId, verdict: &Verdict, verdicts: &mut Vec<(DeliveryId, Verdict)>) {
        let found = self.places.iter_mut().zip(0u32..).find(|(place, _)| place.ids.contains(&delivery));
        if let Some((place, index)) = found {
            settle(&mut place.ids, verdict.clone(), verdicts);
            place.clear();
            self.free.push(index);
            self.running -= 1;
        }
    }

    fn place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let index = self.places.len() as u32;
            let waker = self.ready.waker(index);
            self.places.push(Place { waker, ids: Ids::new(), handler: Box::pin(None) });
            index
        })
    }
}

impl<F: Future<Output: IntoVerdict>> Handlers<F> {
    /// Calls a handler and polls it once. If it is pending its deliveries are added to `started`.
    pub(super) fn start(
        &mut self,
        ids: Ids,
        call: impl FnOnce() -> F,
        verdicts: &mut Vec<(DeliveryId, Verdict)>,
        started: &mut Vec<DeliveryId>,
    ) {
        let index = self.place();
        let Some(place) = self.places.get_mut(index as usize) else { return };
        place.ids = ids;
        self.running += 1;
        // What a handler may have broken by its panic is its own.
        let called = catch_unwind(AssertUnwindSafe(|| place.handler.as_mut().set(Some(call()))));
        let polled = match called {
            Ok(()) => place.poll(),
            Err(payload) => Poll::Ready(panicked(&*payload)),
        };
        match polled {
            Poll::Pending => started.extend_from_slice(&place.ids),
            Poll::Ready(verdict) => self.end(index, verdict, verdicts),
        }
    }

    /// Polls one that was woken; false when there is none.
    pub(super) fn poll_next_woken(&mut self, verdicts: &mut Vec<(DeliveryId, Verdict)>) -> bool {
        let Some(index) = self.to_poll.pop_front() else { return false };
        // Its place may be empty: it was woken and then dropped.
        if let Some(place) = self.places.get_mut(index as usize)
            && place.handler.is_some()
            && let Poll::Ready(verdict) = place.poll()
        {
            self.end(index, verdict, verdicts);
        }
        true
    }

    fn end(&mut self, index: u32, verdict: Verdict, verdicts: &mut Vec<(DeliveryId, Verdict)>) {
        let Some(place) = self.places.get_mut(index as usize) else { return };
        settle(&mut place.ids, verdict, verdicts);
        self.free.push(index);
        self.running -= 1;
    }
}

impl<F> Place<F> {
    /// Drops the handler. If that panics, it is gone all the same.
    fn clear(&mut self) {
        self.ids.clear();
        let _ = catch_unwind(AssertUnwindSafe(|| self.handler.as_mut().set(None)));
    }
}

impl<F: Future<Output: IntoVerdict>> Place<F> {
    /// Polls the handler; with its verdict it is gone.
    fn poll(&mut self) -> Poll<Verdict> {
        let Self { waker, handler, .. } = self;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let Some(future) = handler.as_mut().as_pin_mut() else { return Poll::Pending };
            let verdict = future.poll(&mut Context::from_waker(waker)).map(IntoVerdict::into_verdict);
            if verdict.is_ready() {
                handler.as_mut().set(None);
            }
            verdict
        }));
        polled.unwrap_or_else(|payload| {
            let verdict = panicked(&*payload);
            let _ = catch_unwind(AssertUnwindSafe(|| handler.as_mut().set(None)));
            Poll::Ready(verdict)
        })
    }
}

fn settle(ids: &mut Ids, verdict: Verdict, verdicts: &mut Vec<(DeliveryId, Verdict)>) {
    let mut ids = mem::take(ids).into_iter();
    if ids.len() > 1 {
        let last = ids.next_back();
        verdicts.extend(ids.map(|id| (id, verdict.clone())));
        verdicts.extend(last.map(|id| (id, verdict)));
    } else {
        verdicts.extend(ids.next().map(|id| (id, verdict)));
    }
}
