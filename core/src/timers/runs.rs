//! A few lists of timers, each sorted because it only grows at its end.
//!
//! The lists are threaded through one table by slot index, so taking a timer out of the middle touches two neighbours
//! and nothing is allocated. What the order is, the caller knows.

use alloc::vec::Vec;

/// Enough for the handful of fixed delays that a machine arms over and over (liveness, command, reconnect, lease), few
/// enough to look at all of them on each operation.
const RUNS: usize = 4;

/// No timer: the end of a list. Never a slot index.
pub(super) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Runs {
    runs: [Run; RUNS],
    /// By slot index. Eight bytes each and apart from the rest of the slot: neighbours in a run are far apart in
    /// memory, and this much of many timers stays in the cache.
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

impl Default for Runs {
    fn default() -> Self {
        Self { runs: [Run { first: NONE, last: NONE }; RUNS], links: Vec::new() }
    }
}

impl Runs {
    /// Makes indices below `slots` usable.
    pub(super) fn make_room(&mut self, slots: usize) {
        self.links.resize(slots, Link { previous: NONE, next: NONE });
    }

    /// The first timer of each run that has any.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().map(|run| run.first).filter(|first| *first != NONE)
    }

    /// Each run, with its last timer if it has any.
    pub(super) fn lasts(&self) -> impl Iterator<Item = (u8, Option<u32>)> + '_ {
        (0..).zip(&self.runs).map(|(number, run)| (number, Some(run.last).filter(|last| *last != NONE)))
    }

    pub(super) fn last(&self, run: u8) -> Option<u32> {
        Some(self.runs[usize::from(run)].last).filter(|last| *last != NONE)
    }

    /// Adds a timer that is in no run to the end of this one.
    pub(super) fn append(&mut self, run: u8, index: u32) {
        let run = &mut self.runs[usize::from(run)];
        self.links[index as usize] = Link { previous: run.last, next: NONE };
        match run.last {
            NONE => run.first = index,
            last => self.links[last as usize].next = index,
        }
        run.last = index;
    }

    /// Takes a timer out of the run it is in.
    pub(super) fn remove(&mut self, run: u8, index: u32) {
        let run = &mut self.runs[usize::from(run)];
        let Link { previous, next } = self.links[index as usize];
        match previous {
            NONE => run.first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => run.last = previous,
            next => self.links[next as usize].previous = previous,
        }
    }
}
