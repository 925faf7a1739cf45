//! Counts what a piece of code allocates.
//!
//! A bench installs the allocator and wraps what it measures:
//!
//! ```
//! use flota_benches::allocations::{CountingAllocator, count};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (boxed, counted) = count(|| Box::new([0u8; 64]));
//! assert_eq!((counted.allocations, counted.bytes), (1, 64));
//! # drop(boxed);
//! ```

#![allow(unsafe_code, reason = "a global allocator is an unsafe trait; only measurements use this one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Sub;

/// The system's allocator, which counts for the thread that calls it.
#[derive(Debug)]
pub struct CountingAllocator;

/// What a thread has allocated. Freeing is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that obtained memory; growing what one has is one as well.
    pub allocations: u64,
    /// Bytes obtained; of a growth, only what was added.
    pub bytes: u64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { allocations: self.allocations - earlier.allocations, bytes: self.bytes - earlier.bytes }
    }
}

thread_local! {
    // Per thread, so that neither a reporter's nor a server's thread disturbs the figures. Constant and without a
    // destructor, because the allocator may not allocate and runs until the thread's very end.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, bytes: 0 }) };
}

/// Runs `work` and returns its result and what this thread allocated meanwhile.
///
/// # Panics
///
/// If [`CountingAllocator`] is not the global allocator: zero would look like a good result.
pub fn count<R>(work: impl FnOnce() -> R) -> (R, Counts) {
    let probe = COUNTS.get();
    drop(std::hint::black_box(Box::new(0u8)));
    assert!(COUNTS.get() != probe, "counting allocations needs CountingAllocator as the #[global_allocator]");
    let before = COUNTS.get();
    let result = work();
    (result, COUNTS.get() - before)
}

fn note(bytes: usize) {
    let Counts { allocations, bytes: so_far } = COUNTS.get();
    COUNTS.set(Counts { allocations: allocations + 1, bytes: so_far + bytes as u64 });
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract; counting touches only
// a thread-local that neither allocates nor is ever dropped.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size.saturating_sub(layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(memory, layout, new_size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn counts_obtained_memory_of_this_thread_only() {
        let other = std::thread::spawn(|| {
            std::thread::park();
            drop(std::hint::black_box(vec![0u8; 4096]));
        });
        let (list, counted) = count(|| {
            other.thread().unpark();
            let mut list: Vec<u8> = Vec::with_capacity(10);
            list.resize(10, 1);
            list.reserve_exact(20);
            list
        });
        other.join().expect("the other thread ends well");
        assert_eq!(list.capacity(), 30);
        assert_eq!(counted, Counts { allocations: 2, bytes: 30 });
    }

    #[test]
    fn freeing_is_not_counted() {
        let list = vec![0u8; 100];
        assert_eq!(count(move || drop(list)).1, Counts::default());
    }
}
