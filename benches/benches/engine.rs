//! The engine's part of a send and of a delivery, without the wire.

use core::time::Duration;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use flota_benches::world::{World, read_reply};
use flota_core::driver::resp::{Limits, Scan};

const ENTRIES: u64 = 100;

fn send(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine/send");
    for brokers in [1, 10, 1_000] {
        let mut world = World::new(brokers);
        group.bench_function(BenchmarkId::from_parameter(brokers), |b| b.iter(|| world.send_one()));
    }
    group.finish();
}

/// A read's answer, its deliveries, their verdicts, the acknowledgement and its answer. The figure is for all of them.
fn delivery(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine/deliveries");
    group.throughput(Throughput::Elements(ENTRIES));
    let mut world = World::subscribed(ENTRIES as u32);
    let wire = read_reply(ENTRIES as usize);
    group.bench_function(BenchmarkId::from_parameter(ENTRIES), |b| {
        b.iter_batched(
            || Scan::new(Limits::default()).poll(&wire).expect("RESP").expect("a whole reply").0,
            |reply| {
                world.answer_read(reply);
                world.settle_all()
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group! {
    name = engine;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = send, delivery
}
criterion_main!(engine);
