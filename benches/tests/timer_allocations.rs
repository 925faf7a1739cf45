//! Arming, moving and firing timers allocates nothing: only registering one does.

use flota_benches::allocations::{CountingAllocator, count};
use flota_core::time::Mono;
use flota_core::timers::{TimerSlot, Timers};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn only_registering_allocates() {
    let mut timers = Timers::new();
    let slots: Vec<TimerSlot> = (0..1_000u32).map(|what| timers.register(what)).collect();
    let (fired, counted) = count(|| {
        for (slot, n) in slots.iter().zip(0u64..) {
            // Scattered, so that the heap is used; then in order, so that the runs are.
            timers.arm(*slot, Mono(n * 7_919 % 1_000));
        }
        for (slot, n) in slots.iter().zip(0u64..) {
            timers.arm(*slot, Mono(1_000 + n));
        }
        let fired = std::iter::from_fn(|| timers.pop_due(Mono(1_499))).count();
        for slot in &slots {
            timers.remove(*slot);
        }
        fired
    });
    assert_eq!(fired, 500);
    assert_eq!(counted.allocations, 0);
}
