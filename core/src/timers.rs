//! Deadlines of many timers and the earliest of them. For embedders who build their own machine.
//!
//! Most timers here guard liveness: every datagram moves a deadline to "now and the usual time", and hardly any is ever
//! reached. Such deadlines arrive in order, so they are kept in a few sorted lists (`runs`) where moving to the end
//! costs the same however many there are; in a heap each move would cost its depth. What fits no list goes into a heap
//! (`heap`). The earliest deadline is the earliest of a handful of heads: exact, in constant time. Nothing is rounded.

mod heap;
mod runs;

use crate::time::Mono;
use alloc::vec::Vec;
use heap::Heap;
use runs::Runs;

/// Names one registered timer. Once removed it names nothing, also when its place is used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerSlot {
    generation: u32,
    index: u32,
}

impl core::fmt::Debug for TimerSlot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "t{}.{}", self.index, self.generation)
    }
}

/// Registered timers, each armed or not, and the earliest deadline among them.
///
/// Equal deadlines are ordered by when they were armed. Memory is that of the most timers ever registered at once;
/// only [`register`](Self::register) allocates.
#[derive(Debug)]
pub struct Timers<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    runs: Runs,
    heap: Heap,
    armed: usize,
    /// Armings that no run could take since a run last gave up a timer for one.
    refused: u8,
    last_sequence: u64,
}

#[derive(Debug)]
struct Slot<T> {
    /// Meaningless while nothing holds the timer.
    key: Key,
    generation: u32,
    held: Held,
    what: Option<T>,
}

/// Where an armed timer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nowhere,
    Heap,
    Run(u8),
}

/// The order of deadlines. No two armings have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key {
    at: Mono,
    /// Which arming this is, so that equal deadlines come in the order in which they were armed.
    sequence: u64,
}

/// One in this many armings that fit no run shortens a run: rare enough to be free where delays are random and no run
/// would be of use, often enough to recover from deadlines far ahead within a fraction of one round of re-arming.
const REFUSED_PER_SHORTENING: u8 = 8;

impl Key {
    /// One wide comparison instead of two branches: the order of heap siblings is not predictable.
    fn is_before(self, other: Self) -> bool {
        self.rank() < other.rank()
    }

    fn rank(self) -> u128 {
        (u128::from(self.at.0) << 64) | u128::from(self.sequence)
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            runs: Runs::default(),
            heap: Heap::default(),
            armed: 0,
            refused: 0,
            last_sequence: 0,
        }
    }
}

impl<T: Copy> Timers<T> {
    /// No timers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a timer that is not armed. `what` says what the timer is for and comes back when it is due.
    ///
    /// # Panics
    ///
    /// With 2³² - 1 timers registered at once, which no configured limit allows.
    pub fn register(&mut self, what: T) -> TimerSlot {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.what = Some(what);
            return TimerSlot { generation: slot.generation, index };
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index != runs::NONE).expect("a free index");
        self.slots.push(Slot { key: Key::default(), generation: 0, held: Held::Nowhere, what: Some(what) });
        self.runs.make_room(self.slots.len());
        self.heap.make_room(self.slots.len());
        self.free.reserve(self.slots.len());
        TimerSlot { generation: 0, index }
    }

    /// Arms the timer for `at`, or moves it there. Returns `false`, and does nothing, if the slot was removed.
    pub fn arm(&mut self, slot: TimerSlot, at: Mono) -> bool {
        let Some(timer) = self.timer(slot) else { return false };
        let held = timer.held;
        self.last_sequence += 1;
        let key = Key { at, sequence: self.last_sequence };
        match held {
            Held::Nowhere => self.armed += 1,
            Held::Heap => {}
            Held::Run(run) => self.runs.remove(run, slot.index),
        }
        let held = self.hold(slot.index, held, key);
        let timer = &mut self.slots[slot.index as usize];
        timer.key = key;
        timer.held = held;
        true
    }

    /// Arms the timer for `at`, or moves it there if it is armed for later. Returns `false`, and does nothing, if the
    /// slot was removed.
    pub fn arm_no_later(&mut self, slot: TimerSlot, at: Mono) -> bool {
        match self.deadline(slot) {
            Some(armed) if armed <= at => true,
            _ => self.arm(slot, at),
        }
    }

    /// Forgets the deadline and keeps the timer. Returns whether it was armed; `false` as well if the slot was removed.
    pub fn disarm(&mut self, slot: TimerSlot) -> bool {
        let was_armed = self.timer(slot).is_some_and(|timer| timer.held != Held::Nowhere);
        if was_armed {
            self.release(slot.index);
        }
        was_armed
    }

    /// Removes the timer, armed or not, and returns what it was for; `None` if that was done before.
    pub fn remove(&mut self, slot: TimerSlot) -> Option<T> {
        self.timer(slot)?;
        self.disarm(slot);
        let timer = &mut self.slots[slot.index as usize];
        // A slot whose generations are used up is retired: a name must never come back.
        if let Some(next) = timer.generation.checked_add(1) {
            timer.generation = next;
            self.free.push(slot.index);
        }
        timer.what.take()
    }

    /// When the timer is due; `None` if it is not armed or was removed.
    #[must_use]
    pub fn deadline(&self, slot: TimerSlot) -> Option<Mono> {
        self.timer(slot).filter(|timer| timer.held != Held::Nowhere).map(|timer| timer.key.at)
    }

    /// The earliest deadline, in constant time; `None` if no timer is armed.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.earliest().map(|(key, _)| key.at)
    }

    /// What the earliest deadline is for: the reason of the wait until [`next`](Self::next).
    #[must_use]
    pub fn next_what(&self) -> Option<T> {
        let (_, index) = self.earliest()?;
        self.slots[index as usize].what
    }

    /// Disarms and returns the earliest timer whose deadline is not after `now`; `None` if nothing is due.
    pub fn pop_due(&mut self, now: Mono) -> Option<(TimerSlot, T)> {
        let (key, index) = self.earliest()?;
        if key.at > now {
            return None;
        }
        self.release(index);
        let timer = &self.slots[index as usize];
        Some((TimerSlot { generation: timer.generation, index }, timer.what?))
    }

    /// How many timers are armed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.armed
    }

    /// Whether no timer is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Every timer that is registered, armed or not.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn registered(&self) -> impl Iterator<Item = (TimerSlot, T)> + '_ {
        let numbered = self.slots.iter().zip(0u32..);
        numbered.filter_map(|(slot, index)| Some((TimerSlot { generation: slot.generation, index }, slot.what?)))
    }

    /// How many timers are armed, counted one by one.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn armed_recount(&self) -> usize {
        self.slots.iter().filter(|slot| slot.held != Held::Nowhere).count()
    }

    fn timer(&self, slot: TimerSlot) -> Option<&Slot<T>> {
        // A retired slot keeps its last generation, but holds nothing.
        self.slots.get(slot.index as usize).filter(|timer| timer.generation == slot.generation && timer.what.is_some())
    }

    fn earliest(&self) -> Option<(Key, u32)> {
        let mut earliest = self.heap.first();
        for index in self.runs.firsts() {
            let key = self.slots[index as usize].key;
            if earliest.is_none_or(|(than, _)| key.is_before(than)) {
                earliest = Some((key, index));
            }
        }
        earliest
    }

    /// Puts a timer that no run holds where `key` belongs. `held` says whether the heap holds it so far.
    fn hold(&mut self, index: u32, held: Held, key: Key) -> Held {
        match self.run_for(key) {
            Some(run) => {
                if held == Held::Heap {
                    self.heap.remove(index);
                }
                self.runs.append(run, index);
                Held::Run(run)
            }
            None => {
                if held == Held::Heap {
                    self.heap.change(index, key);
                } else {
                    self.heap.insert(index, key);
                }
                Held::Heap
            }
        }
    }

    /// The run whose end `key` continues most closely, or an unused one.
    fn run_for(&mut self, key: Key) -> Option<u8> {
        let (mut before, mut unused, mut after) = (None, None, None);
        for (run, last) in self.runs.lasts() {
            let Some(last) = last else {
                unused = Some(run);
                continue;
            };
            let end = self.slots[last as usize].key;
            if end.is_before(key) {
                if before.is_none_or(|(_, latest): (u8, Key)| latest.is_before(end)) {
                    before = Some((run, end));
                }
            } else if after.is_none_or(|(_, earliest): (u8, Key)| end.is_before(earliest)) {
                after = Some((run, end));
            }
        }
        if let Some(run) = before.map(|(run, _)| run).or(unused) {
            return Some(run);
        }
        self.refused += 1;
        if self.refused == REFUSED_PER_SHORTENING {
            self.refused = 0;
            self.shorten(after?.0);
        }
        None
    }

    /// Gives the last timer of a run to the heap.
    ///
    /// Without this a few deadlines far ahead would keep the runs from the many until they are due.
    fn shorten(&mut self, run: u8) {
        if let Some(last) = self.runs.last(run) {
            let timer = &mut self.slots[last as usize];
            timer.held = Held::Heap;
            self.runs.remove(run, last);
            self.heap.insert(last, timer.key);
        }
    }

    /// Disarms an armed timer.
    fn release(&mut self, index: u32) {
        let timer = &mut self.slots[index as usize];
        match core::mem::replace(&mut timer.held, Held::Nowhere) {
            Held::Nowhere => unreachable!("only an armed timer is released"),
            Held::Heap => self.heap.remove(index),
            Held::Run(run) => self.runs.remove(run, index),
        }
        self.armed -= 1;
    }
}

#[cfg(test)]
mod tests;
