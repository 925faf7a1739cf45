//! The primitives of everything threads share, in two editions: std's, and loom's under `--cfg loom`, which explores
//! every interleaving.
//!
//! `Arc` is std's in both. Wakers are made from it, methods take `self: &Arc<Self>`, and its counting is std's to check.

pub(crate) use alloc::sync::Arc;

// Loom is a dependency of tests only.
#[cfg(all(loom, test))]
use ::loom::sync as edition;
#[cfg(not(all(loom, test)))]
use ::std::sync as edition;

pub(crate) mod atomic {
    //! Atomic numbers.

    pub(crate) use super::edition::atomic::{AtomicUsize, Ordering};
}

pub(crate) use edition::MutexGuard;

/// A mutex without poison: what it guards is consistent whenever the lock is free, so a panic elsewhere must not take
/// the rest of the process with it.
#[derive(Debug)]
pub(crate) struct Mutex<T>(edition::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(edition::Mutex::new(value))
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(::std::sync::PoisonError::into_inner)
    }
}
