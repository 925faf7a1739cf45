//! What one announcement costs in fleets of different sizes, and one expiry.
//!
//! `hear` is all of it; what `parse` takes of that does not depend on the size of the fleet.

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use flota_benches::announcements::{Datagram, Listener, jittered};
use flota_core::announce::parse;

const SIZES: [usize; 4] = [10, 1_000, 10_000, 100_000];

fn hear(c: &mut Criterion) {
    let mut group = c.benchmark_group("fleet/hear");
    for size in SIZES {
        let order = jittered(size);
        let mut turns = order.iter().cycle();
        let mut listener = Listener::hearing(size);
        let mut step = || listener.hear(*turns.next().expect("an endless order") as usize);
        // Into the steady state, so that the first samples are like the last.
        (0..8 * size).for_each(|_| {
            black_box(step());
        });
        group.bench_function(BenchmarkId::from_parameter(size), |b| b.iter(&mut step));
    }
    group.finish();
}

fn parse_only(c: &mut Criterion) {
    let mut group = c.benchmark_group("fleet/parse");
    for size in SIZES {
        let order = jittered(size);
        let mut turns = order.iter().cycle();
        let mut datagram = Datagram::default();
        let mut step = || {
            let broker = *turns.next().expect("an endless order") as usize;
            parse(black_box(datagram.of(broker))).is_ok()
        };
        group.bench_function(BenchmarkId::from_parameter(size), |b| b.iter(&mut step));
    }
    group.finish();
}

/// Everybody falls silent at once; the figure is for one of them.
fn expire(c: &mut Criterion) {
    let mut group = c.benchmark_group("fleet/expire");
    group.sample_size(10);
    for size in SIZES {
        group.bench_function(BenchmarkId::from_parameter(size), |b| {
            b.iter_custom(|expiries| {
                let mut spent = Duration::ZERO;
                let rounds = expiries.div_ceil(size as u64);
                for _ in 0..rounds {
                    let mut listener = Listener::hearing(size);
                    let start = Instant::now();
                    assert_eq!(listener.expire(), size);
                    spent += start.elapsed();
                }
                spent.div_f64(rounds as f64 * size as f64 / expiries as f64)
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = fleet;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = hear, parse_only, expire
}
criterion_main!(fleet);
