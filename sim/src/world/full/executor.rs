//! An executor with one thread and no hurry: which of the tasks that were woken is polled next is drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::outside::Task;
use crate::rng::Rng;

/// Tasks, and which of them were woken.
#[derive(Default)]
pub(super) struct Executor {
    tasks: BTreeMap<u64, (Task, Waker)>,
    next: u64,
    woken: Arc<Woken>,
}

/// Wakers must be able to come from anywhere, although here they never do.
#[derive(Default)]
struct Woken(Mutex<BTreeSet<u64>>);

impl Woken {
    fn set(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.set().insert(self.number);
    }
}

impl Executor {
    /// Adds a task, which is polled soon. Returns its number.
    pub(super) fn spawn(&mut self, task: Task) -> u64 {
        let number = self.next;
        self.next += 1;
        let waker = Waker::from(Arc::new(TaskWaker { number, woken: Arc::clone(&self.woken) }));
        self.tasks.insert(number, (task, waker));
        self.woken.set().insert(number);
        number
    }

    /// Whether a task wants to be polled.
    pub(super) fn is_woken(&self, number: u64) -> bool {
        self.woken.set().contains(&number)
    }

    /// Whether any task wants to be polled.
    pub(super) fn has_work(&self) -> bool {
        !self.woken.set().is_empty()
    }

    /// Draws one of the tasks that were woken.
    pub(super) fn pick(&self, rng: &mut Rng) -> Option<u64> {
        let mut woken = self.woken.set();
        let number = if woken.len() < 2 {
            woken.first().copied()
        } else {
            woken.iter().nth(rng.below(woken.len() as u64) as usize).copied()
        }?;
        woken.remove(&number);
        Some(number)
    }

    /// Polls a task once. A finished one is forgotten: true.
    pub(super) fn poll(&mut self, number: u64) -> bool {
        // One that has finished may still be woken.
        let Some((task, waker)) = self.tasks.get_mut(&number) else { return false };
        let mut cx = Context::from_waker(waker);
        if task.as_mut().poll(&mut cx) == Poll::Pending {
            return false;
        }
        self.tasks.remove(&number);
        true
    }

    /// Wakes one of the tasks for no reason.
    pub(super) fn wake_any(&self, rng: &mut Rng) {
        let at = rng.below(self.tasks.len() as u64) as usize;
        if let Some(number) = self.tasks.keys().nth(at) {
            self.woken.set().insert(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Says its name and comes back so many times.
    fn talker(name: u8, times: u32, said: &Rc<RefCell<Vec<u8>>>) -> Task {
        let said = Rc::clone(said);
        let mut left = times;
        Box::pin(std::future::poll_fn(move |cx| {
            said.borrow_mut().push(name);
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    fn order(seed: u64) -> Vec<u8> {
        let said = Rc::default();
        let mut executor = Executor::default();
        let mut rng = Rng::new(seed, "test");
        for name in 0..4 {
            executor.spawn(talker(name, 3, &said));
        }
        while let Some(number) = executor.pick(&mut rng) {
            executor.poll(number);
        }
        assert!(executor.tasks.is_empty(), "every task has come to its end");
        said.take()
    }

    #[test]
    fn the_order_of_polls_follows_from_the_seed() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(1).len(), 16);
    }
}
