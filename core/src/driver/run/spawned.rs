//! A handler in a task of its own, and the end of it that the runner keeps.

use alloc::boxed::Box;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::driver::inbox::{refresh, wake};
use crate::driver::verdict::{IntoVerdict, panicked, retry};
use crate::op::Verdict;
use crate::sync::{Arc, Mutex};

/// A handler that runs in another task. Dropped, it has the handler dropped there.
pub struct Spawned(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    verdict: Option<Verdict>,
    /// The runner does not want it any more.
    aborted: bool,
    runner: Option<Waker>,
    task: Option<Waker>,
}

/// The task to spawn, and what stands for it in the runner.
pub(super) fn split<F>(handler: F) -> (Pin<Box<dyn Future<Output = ()> + Send>>, Spawned)
where
    F: Future<Output: IntoVerdict> + Send + 'static,
{
    let shared = Arc::new(Mutex::new(Shared::default()));
    let ending = Ending(Arc::clone(&shared));
    let task = async move {
        let ending = ending;
        let mut handler = pin!(handler);
        let verdict = poll_fn(|cx| {
            if ending.is_aborted(cx.waker()) {
                return Poll::Ready(None);
            }
            let handler = handler.as_mut();
            let polled = catch_unwind(AssertUnwindSafe(|| handler.poll(cx).map(IntoVerdict::into_verdict)));
            polled.unwrap_or_else(|payload| Poll::Ready(panicked(&*payload))).map(Some)
        });
        if let Some(verdict) = verdict.await {
            ending.finish(verdict);
        }
    };
    (Box::pin(task), Spawned(shared))
}

/// The task's end. Dropped before the handler has finished, it says that the task is gone.
struct Ending(Arc<Mutex<Shared>>);

impl Ending {
    fn is_aborted(&self, task: &Waker) -> bool {
        let mut shared = self.0.lock();
        let replaced = refresh(&mut shared.task, task);
        let aborted = shared.aborted;
        drop(shared);
        drop(replaced);
        aborted
    }

    fn finish(&self, verdict: Verdict) {
        let mut shared = self.0.lock();
        shared.verdict.get_or_insert(verdict);
        let runner = shared.runner.take();
        // Nothing is left to abort.
        let task = shared.task.take();
        drop(shared);
        drop(task);
        wake(runner);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.finish(retry("the handler's task was dropped by its runtime"));
    }
}

impl Future for Spawned {
    type Output = Verdict;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let mut shared = self.0.lock();
        if let Some(verdict) = shared.verdict.take() {
            return Poll::Ready(verdict);
        }
        let replaced = refresh(&mut shared.runner, cx.waker());
        drop(shared);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let mut shared = self.0.lock();
        shared.aborted = true;
        let task = shared.task.take();
        drop(shared);
        wake(task);
    }
}

impl fmt::Debug for Spawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spawned(..)")
    }
}
