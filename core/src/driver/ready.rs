//! Which links have something to do: one waker per link, one wake for the driver, work in proportion to what is ready.
//!
//! A link's waker flags its number in a shared set and wakes the driver's task; a thousand idle links cost nothing.

use alloc::task::Wake;
use alloc::vec::Vec;
use core::mem;
use core::task::Waker;

use super::inbox::{refresh, wake};
use crate::sync::{Arc, Mutex};

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

/// The set of links that were woken since the driver last asked.
pub(crate) struct ReadySet {
    shared: Arc<Mutex<State>>,
}

impl ReadySet {
    /// A set in which nothing is ready.
    pub(crate) fn new() -> Self {
        Self { shared: Arc::new(Mutex::new(State { flagged: Vec::new(), bits: Vec::new(), driver: None })) }
    }

    /// A waker that flags `link`: a small number, which grows the set to its size. Make it once per link and keep it,
    /// so that streams recognise it. A waker that outlives its link flags whoever has the number then: one idle poll.
    pub(crate) fn waker(&self, link: u32) -> Waker {
        let (word, _) = place(link);
        let mut state = self.shared.lock();
        if state.bits.len() <= word {
            // Here, so that a wake never allocates for it.
            state.bits.resize(word + 1, 0);
        }
        drop(state);
        Waker::from(Arc::new(LinkWaker { link, shared: Arc::clone(&self.shared) }))
    }

    /// Adds the links that were woken since the last call to the end of `into`, each once, in order of their first
    /// wake, and arms `waker`: the next link to be flagged wakes it, once. Ask before polling the links, not after: a
    /// wake that comes in between flags its link again.
    pub(crate) fn take(&self, into: &mut Vec<u32>, waker: &Waker) {
        let mut state = self.shared.lock();
        let State { flagged, bits, driver } = &mut *state;
        for link in &*flagged {
            let (word, bit) = place(*link);
            if let Some(word) = bits.get_mut(word) {
                *word &= !bit;
            }
        }
        if into.is_empty() {
            mem::swap(into, flagged);
        } else {
            into.append(flagged);
        }
        let replaced = refresh(driver, waker);
        drop(state);
        drop(replaced);
    }
}

struct State {
    /// The links whose bit is set, in the order it was set.
    flagged: Vec<u32>,
    bits: Vec<u64>,
    /// The driver's waker until it was woken. Whoever takes it owes the wake.
    driver: Option<Waker>,
}

struct LinkWaker {
    link: u32,
    shared: Arc<Mutex<State>>,
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let (word, bit) = place(self.link);
        let mut state = self.shared.lock();
        let Some(word) = state.bits.get_mut(word) else { return };
        if *word & bit != 0 {
            return;
        }
        *word |= bit;
        state.flagged.push(self.link);
        let driver = state.driver.take();
        drop(state);
        wake(driver);
    }
}

/// The word and the bit of a link.
fn place(link: u32) -> (usize, u64) {
    ((link / u64::BITS) as usize, 1 << (link % u64::BITS))
}
