//! A 4-ary min-heap of timers that knows where each one is.

use super::Key;
use alloc::vec::Vec;

/// Four children lie together in two cache lines and make the heap half as deep as two would.
const ARITY: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
    /// By slot index: where the slot's entry is. Meaningless for a slot that has none.
    positions: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    index: u32,
}

impl Heap {
    /// Makes indices below `slots` usable.
    pub(super) fn make_room(&mut self, slots: usize) {
        self.positions.resize(slots, 0);
        self.entries.reserve(slots - self.entries.len());
    }

    pub(super) fn first(&self) -> Option<(Key, u32)> {
        self.entries.first().map(|entry| (entry.key, entry.index))
    }

    /// Adds a timer that is not in the heap.
    pub(super) fn insert(&mut self, index: u32, key: Key) {
        self.entries.push(Entry { key, index });
        self.sift_up(self.entries.len() - 1);
    }

    /// Moves a timer that is in the heap.
    pub(super) fn change(&mut self, index: u32, key: Key) {
        let position = self.position(index);
        self.entries[position].key = key;
        self.sift(position);
    }

    /// Takes out a timer that is in the heap.
    pub(super) fn remove(&mut self, index: u32) {
        let position = self.position(index);
        self.entries.swap_remove(position);
        if position < self.entries.len() {
            self.sift(position);
        }
    }

    fn position(&self, index: u32) -> usize {
        let position = self.positions[index as usize] as usize;
        assert!(self.entries[position].index == index, "a timer's entry is where its position says");
        position
    }

    fn sift(&mut self, position: usize) {
        // At most one of the two moves anything, and only an entry that did not move up can move down.
        if self.sift_up(position) == position {
            self.sift_down(position);
        }
    }

    fn sift_up(&mut self, mut hole: usize) -> usize {
        let moving = self.entries[hole];
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !moving.key.is_before(self.entries[parent].key) {
                break;
            }
            self.place(hole, self.entries[parent]);
            hole = parent;
        }
        self.place(hole, moving);
        hole
    }

    fn sift_down(&mut self, mut hole: usize) {
        let moving = self.entries[hole];
        while let Some(child) = self.earliest_child(hole) {
            if !self.entries[child].key.is_before(moving.key) {
                break;
            }
            self.place(hole, self.entries[child]);
            hole = child;
        }
        self.place(hole, moving);
    }

    fn earliest_child(&self, parent: usize) -> Option<usize> {
        let first = parent * ARITY + 1;
        let end = (first + ARITY).min(self.entries.len());
        (first..end).reduce(|earliest, child| {
            if self.entries[child].key.is_before(self.entries[earliest].key) { child } else { earliest }
        })
    }

    fn place(&mut self, position: usize, entry: Entry) {
        self.entries[position] = entry;
        // Fits: there are no more entries than slots, and a slot's index is 32 bits.
        self.positions[entry.index as usize] = position as u32;
    }
}
