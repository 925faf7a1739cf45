use core::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_link_is_reported_once_and_the_driver_woken_once() {
    let set = ReadySet::new();
    let count = Arc::new(Count::default());
    let driver = Waker::from(Arc::clone(&count));
    let links: Vec<Waker> = (0..200).map(|link| set.waker(link)).collect();
    let mut ready = Vec::new();
    set.take(&mut ready, &driver);
    assert!(ready.is_empty());

    for link in [130, 3, 63, 64, 3, 130] {
        links[link].wake_by_ref();
    }
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    set.take(&mut ready, &driver);
    assert_eq!(ready, [130, 3, 63, 64]);

    // Flagged again after it was reported; what the caller already holds stays.
    links[3].wake_by_ref();
    set.take(&mut ready, &driver);
    assert_eq!(ready, [130, 3, 63, 64, 3]);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[test]
fn a_wake_before_the_driver_first_asks_is_kept() {
    let set = ReadySet::new();
    set.waker(70).wake();
    let mut ready = Vec::new();
    set.take(&mut ready, Waker::noop());
    assert_eq!(ready, [70]);
}

#[test]
fn wakers_outlive_the_set() {
    let set = ReadySet::new();
    let waker = set.waker(0);
    drop(set);
    waker.wake();
}
