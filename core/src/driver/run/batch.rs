//! Handlers that take many messages at once.

use alloc::collections::VecDeque;
use alloc::vec::{self, Vec};
use core::future::Future;
use core::ops::Deref;
use core::pin::Pin;
use core::slice;
use core::task::Context;
use core::time::Duration;

use super::Work;
use super::handlers::Ids;
use crate::driver::inbox::Receipt;
use crate::driver::job::{Job, Origin};
use crate::driver::message::{Completion, Mailbox, Message};
use crate::output::Delivery;
use crate::sync::Arc;

/// Messages that are handled together, in the order of their delivery: at least one.
///
/// The handler's result is the verdict on all of them. For one that deserves another, take it out and settle it:
///
/// ```
/// # use flota_core::driver::Batch;
/// async fn handle(batch: Batch) -> Result<(), std::io::Error> {
///     let (good, bad): (Vec<_>, Vec<_>) = batch.into_iter().partition(|job| job.body().starts_with(b"{"));
///     bad.into_iter().for_each(|job| drop(job.reject("not a JSON object")));
///     // … store the good ones together
/// #   drop(good);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Batch(Vec<Job>);

impl Deref for Batch {
    type Target = [Job];

    fn deref(&self) -> &[Job] {
        &self.0
    }
}

impl IntoIterator for Batch {
    type Item = Job;
    type IntoIter = vec::IntoIter<Job>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Job;
    type IntoIter = slice::Iter<'a, Job>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// One handler for many messages.
pub struct Batches<H> {
    max: usize,
    wait: Duration,
    handler: H,
    /// Runs while a batch fills up.
    timer: Option<Receipt<Message, Completion>>,
    /// The wait for the batch that fills up is over.
    elapsed: bool,
}

impl<H> Batches<H> {
    pub(super) fn new(max: usize, wait: Duration, handler: H) -> Self {
        Self { max, wait, handler, timer: None, elapsed: wait.is_zero() }
    }
}

impl<H: FnMut(Batch) -> F, F> Work<F> for Batches<H> {
    type Input = Vec<Delivery>;

    /// Also while no handler is free: the next batch comes together meanwhile.
    fn room(&self, _: usize, waiting: usize) -> usize {
        self.max.saturating_sub(waiting)
    }

    fn is_due(&mut self, cx: &mut Context<'_>, inbox: &Arc<Mailbox>, waiting: usize) -> bool {
        if waiting == 0 {
            return false;
        }
        if waiting >= self.max || self.elapsed {
            return true;
        }
        let after = self.wait;
        let timer =
            self.timer.get_or_insert_with(|| inbox.push_with_ticket(|ticket| Message::WakeAt { after, ticket }));
        // An answer of another kind means that the driver is gone: the end of the queue says so, too.
        self.elapsed = Pin::new(timer).poll(cx).is_ready();
        if self.elapsed {
            self.timer = None;
        }
        self.elapsed
    }

    fn take(&mut self, waiting: &mut VecDeque<Delivery>) -> Option<(Ids, Vec<Delivery>)> {
        self.timer = None;
        self.elapsed = self.wait.is_zero();
        let batch: Vec<Delivery> = waiting.drain(..waiting.len().min(self.max)).collect();
        let ids = batch.iter().map(|delivery| delivery.delivery).collect();
        (!batch.is_empty()).then_some((ids, batch))
    }

    fn call(&mut self, batch: Vec<Delivery>, origin: &Arc<Origin>) -> F {
        let jobs = batch.into_iter().map(|delivery| Job::supervised(delivery, origin)).collect();
        (self.handler)(Batch(jobs))
    }
}

impl<H> core::fmt::Debug for Batches<H> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Batches").field("max", &self.max).field("wait", &self.wait).finish_non_exhaustive()
    }
}
