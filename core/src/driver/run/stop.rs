//! Ending a runner from elsewhere.

use core::task::{Context, Waker};

use crate::driver::inbox::{refresh, wake};
use crate::sync::{Arc, Mutex};

/// Ends a [`Run`](super::Run) cleanly: messages that no handler has begun are given back, running handlers have the
/// group's [`grace`](crate::driver::Group::grace) to finish, and then the run resolves. Clones end the same run.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    run: Option<Waker>,
}

impl Stopper {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State::default())))
    }

    /// Ends it. A second call does nothing.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.stopped = true;
        let run = state.run.take();
        drop(state);
        wake(run);
    }

    /// Whether it was stopped; if not, the task is woken when it is.
    pub(super) fn poll_stopped(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.0.lock();
        if state.stopped {
            return true;
        }
        let replaced = refresh(&mut state.run, cx.waker());
        drop(state);
        drop(replaced);
        false
    }
}
