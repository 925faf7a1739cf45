//! Timers of the core against the two collections of std that could hold them.
//!
//! After every operation the earliest deadline is read, because a machine reports how long to wait after every input.

use core::cmp::Reverse;
use core::hint::black_box;
use core::time::Duration;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use flota_core::time::Mono;
use flota_core::timers::{TimerSlot, Timers};
use std::collections::{BTreeSet, BinaryHeap};

const SIZES: [usize; 3] = [10, 1_000, 100_000];
/// Every timer is re-armed to this many steps per timer from now: a member is silent for three intervals, then gone.
const SILENT_INTERVALS: u64 = 3;

/// What every candidate does. Timers are numbered from 0 and all armed from the start.
trait Candidate {
    const NAME: &'static str;
    fn with_armed(deadlines: &[u64]) -> Self;
    /// Moves a deadline and returns the earliest.
    fn rearm(&mut self, timer: usize, at: u64) -> u64;
    /// Takes the earliest, arms it again for `delay` after its deadline and returns the earliest.
    fn pop_and_arm(&mut self, delay: u64) -> u64;
}

struct Core {
    timers: Timers<u32>,
    slots: Vec<TimerSlot>,
}

impl Core {
    fn earliest(&self) -> u64 {
        self.timers.next().expect("all are armed").0
    }
}

impl Candidate for Core {
    const NAME: &'static str = "flota";

    fn with_armed(deadlines: &[u64]) -> Self {
        let mut timers = Timers::new();
        let mut slots = Vec::new();
        for (timer, at) in (0..).zip(deadlines) {
            let slot = timers.register(timer);
            timers.arm(slot, Mono(*at));
            slots.push(slot);
        }
        Self { timers, slots }
    }

    fn rearm(&mut self, timer: usize, at: u64) -> u64 {
        self.timers.arm(self.slots[timer], Mono(at));
        self.earliest()
    }

    fn pop_and_arm(&mut self, delay: u64) -> u64 {
        let now = self.earliest();
        let (slot, _) = self.timers.pop_due(Mono(now)).expect("the earliest is due");
        self.timers.arm(slot, Mono(now + delay));
        self.earliest()
    }
}

/// An ordered set of what is armed, and each timer's own key to find it there.
struct Tree {
    armed: BTreeSet<(u64, u64, u32)>,
    keys: Vec<(u64, u64, u32)>,
    sequence: u64,
}

impl Tree {
    fn insert(&mut self, timer: u32, at: u64) {
        self.sequence += 1;
        let key = (at, self.sequence, timer);
        self.armed.insert(key);
        self.keys[timer as usize] = key;
    }

    fn earliest(&self) -> u64 {
        self.armed.first().expect("all are armed").0
    }
}

impl Candidate for Tree {
    const NAME: &'static str = "btree_set";

    fn with_armed(deadlines: &[u64]) -> Self {
        let mut tree = Self { armed: BTreeSet::new(), keys: vec![(0, 0, 0); deadlines.len()], sequence: 0 };
        for (timer, at) in (0..).zip(deadlines) {
            tree.insert(timer, *at);
        }
        tree
    }

    fn rearm(&mut self, timer: usize, at: u64) -> u64 {
        self.armed.remove(&self.keys[timer]);
        self.insert(timer as u32, at);
        self.earliest()
    }

    fn pop_and_arm(&mut self, delay: u64) -> u64 {
        let (now, _, timer) = self.armed.pop_first().expect("all are armed");
        self.insert(timer, now + delay);
        self.earliest()
    }
}

/// A heap that is only pushed to; an entry whose sequence is not its timer's last is dropped when it surfaces.
struct LazyHeap {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    current: Vec<u64>,
    sequence: u64,
}

impl LazyHeap {
    fn push(&mut self, timer: u32, at: u64) {
        self.sequence += 1;
        self.heap.push(Reverse((at, self.sequence, timer)));
        self.current[timer as usize] = self.sequence;
    }

    fn earliest(&mut self) -> u64 {
        loop {
            let Reverse((at, sequence, timer)) = *self.heap.peek().expect("all are armed");
            if self.current[timer as usize] == sequence {
                return at;
            }
            self.heap.pop();
        }
    }
}

impl Candidate for LazyHeap {
    const NAME: &'static str = "binary_heap";

    fn with_armed(deadlines: &[u64]) -> Self {
        let mut lazy = Self { heap: BinaryHeap::new(), current: vec![0; deadlines.len()], sequence: 0 };
        for (timer, at) in (0..).zip(deadlines) {
            lazy.push(timer, *at);
        }
        lazy
    }

    fn rearm(&mut self, timer: usize, at: u64) -> u64 {
        self.push(timer as u32, at);
        self.earliest()
    }

    fn pop_and_arm(&mut self, delay: u64) -> u64 {
        let Reverse((now, _, timer)) = self.heap.pop().expect("the earliest is current");
        self.push(timer, now + delay);
        self.earliest()
    }
}

/// Xorshift: cheap enough not to be what is measured, and the same on every run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// The order in which timers are re-armed, over and over. Half-width: the table should not push them out of the cache.
fn in_turn(size: usize) -> Vec<u32> {
    (0..size as u32).collect()
}

/// Each timer once per interval, but every interval in another order: datagrams of a fleet, as jitter spreads them.
fn jittered(size: usize) -> Vec<u32> {
    let mut noise = Noise(7);
    let mut order = Vec::new();
    while order.len() < 4 * size {
        let mut interval = in_turn(size);
        for last in (1..size).rev() {
            interval.swap(last, noise.below(last as u64 + 1) as usize);
        }
        order.extend(interval);
    }
    order
}

fn rearm<C: Candidate>(c: &mut Criterion, group: &str, order_of: fn(usize) -> Vec<u32>) {
    let mut group = c.benchmark_group(group);
    for size in SIZES {
        let order = order_of(size);
        let silence = SILENT_INTERVALS * size as u64;
        let deadlines: Vec<u64> = (0..size as u64).map(|timer| timer + silence).collect();
        let mut candidate = C::with_armed(&deadlines);
        let (mut turn, mut now) = (0, size as u64);
        let mut step = || {
            let timer = order[turn] as usize;
            turn = if turn + 1 == order.len() { 0 } else { turn + 1 };
            now += 1;
            candidate.rearm(timer, now + silence)
        };
        // Into the steady state, so that the first samples are like the last.
        (0..8 * size).for_each(|_| {
            black_box(step());
        });
        group.bench_function(BenchmarkId::new(C::NAME, size), |b| b.iter(&mut step));
    }
    group.finish();
}

fn pop_and_arm<C: Candidate>(c: &mut Criterion) {
    let mut group = c.benchmark_group("timers/pop_and_arm");
    for size in SIZES {
        let mut noise = Noise(7);
        let span = 2 * size as u64;
        let deadlines: Vec<u64> = (0..size).map(|_| noise.below(span)).collect();
        let mut candidate = C::with_armed(&deadlines);
        let mut step = || candidate.pop_and_arm(1 + noise.below(span));
        (0..8 * size).for_each(|_| {
            black_box(step());
        });
        group.bench_function(BenchmarkId::new(C::NAME, size), |b| b.iter(&mut step));
    }
    group.finish();
}

fn all<C: Candidate>(c: &mut Criterion) {
    rearm::<C>(c, "timers/rearm_in_turn", in_turn);
    rearm::<C>(c, "timers/rearm_jittered", jittered);
    pop_and_arm::<C>(c);
}

criterion_group! {
    name = timers;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = all::<Core>, all::<Tree>, all::<LazyHeap>
}
criterion_main!(timers);
