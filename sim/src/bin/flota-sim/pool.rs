//! Many jobs over all cores, their results in order.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use crate::error::Failure;

/// Does every job; `each` gets their results in the order of their numbers. After `stop`, no further job begins.
///
/// Threads take the next number from one counter, so that a long job holds nobody up. An error of `each` ends it.
pub(crate) fn run<T: Send>(
    jobs: Range<u64>,
    threads: Option<usize>,
    stop: &AtomicBool,
    work: impl Fn(u64) -> T + Sync,
    mut each: impl FnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get)).max(1);
    let next = AtomicU64::new(jobs.start);
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads {
            let sender = sender.clone();
            let (next, failed, work) = (&next, &failed, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && !failed.load(Ordering::Relaxed) {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs.end || sender.send((job, work(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let outcome = in_order(jobs.start, results, &mut each);
        failed.store(true, Ordering::Relaxed);
        outcome
    })
}

fn in_order<T>(
    first: u64,
    results: mpsc::Receiver<(u64, T)>,
    each: &mut impl FnMut(T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut waiting = BTreeMap::new();
    let mut due = first;
    for (job, result) in results {
        waiting.insert(job, result);
        while let Some(result) = waiting.remove(&due) {
            each(result)?;
            due += 1;
        }
    }
    // Interrupted: the numbers have gaps now.
    waiting.into_values().try_for_each(each)
}

/// Set by an interrupt. A second one ends the process at once.
pub(crate) fn interrupt() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without a handler the signal ends the process, which is what was wanted, only with less said.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag));
        let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
    }
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_none_is_missing() {
        let mut seen = Vec::new();
        // The first jobs take the longest.
        let work = |job: u64| (0..(40 - job) * 2_000).fold(job, |n, _| std::hint::black_box(n));
        run(3..40, Some(4), &AtomicBool::new(false), work, |job| {
            seen.push(job);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, (3..40).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_it() {
        let result = run(
            0..u64::MAX,
            Some(2),
            &AtomicBool::new(false),
            |job| job,
            |job| {
                if job == 5 { Err(Failure::usage("enough")) } else { Ok(()) }
            },
        );
        assert!(result.is_err());
    }
}
