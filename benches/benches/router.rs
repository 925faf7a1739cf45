//! Picking a broker, of few or many, with all of them ready or half.

use core::time::Duration;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use flota_core::id::{BrokerId, Id};
use flota_core::router::Router;

const SIZES: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];

/// Which brokers cannot take a message.
type Unready = fn(broker: u32, of: u32) -> bool;

fn pick(c: &mut Criterion) {
    let cases: [(&str, Unready); 3] = [
        ("router/all_ready", |_, _| false),
        ("router/every_other_unready", |broker, _| broker % 2 == 1),
        ("router/first_half_unready", |broker, of| broker < of / 2),
    ];
    for (name, unready) in cases {
        let mut group = c.benchmark_group(name);
        for size in SIZES {
            let mut router = Router::new();
            (0..size).for_each(|broker| router.add(BrokerId::from_parts(broker, 0)));
            (0..size).filter(|n| unready(*n, size)).for_each(|n| router.remove(BrokerId::from_parts(n, 0)));
            group.bench_function(BenchmarkId::from_parameter(size), |b| b.iter(|| router.pick()));
        }
        group.finish();
    }
}

criterion_group! {
    name = router;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = pick
}
criterion_main!(router);
