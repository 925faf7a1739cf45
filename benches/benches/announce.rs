//! One datagram: reading it, refusing it, writing it.

use core::hint::black_box;
use core::time::Duration;
use criterion::{Criterion, criterion_group, criterion_main};
use flota_benches::announcements::USUAL;
use flota_core::announce::parse;

fn announce(c: &mut Criterion) {
    let mut group = c.benchmark_group("announce");
    group.bench_function("parse", |b| b.iter(|| parse(black_box(USUAL))));
    // The last thing that is tested: as far as a refusal can get.
    let refused = USUAL.map(|byte| if byte == b'1' { b'?' } else { byte });
    group.bench_function("reject", |b| b.iter(|| parse(black_box(&refused))));
    let said = parse(USUAL).expect("an announcement");
    let mut out = Vec::with_capacity(USUAL.len());
    group.bench_function("encode", |b| {
        b.iter(|| {
            out.clear();
            black_box(&said).encode(&mut out)
        });
    });
    group.finish();
}

criterion_group! {
    name = announcements;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = announce
}
criterion_main!(announcements);
