//! Every interleaving of links that wake and the driver that asks.

use core::future::poll_fn;
use core::task::Poll;

use ::loom::future::block_on;
use ::loom::model;
use ::loom::thread;

use super::*;

/// Fails when `take` unlocks before it arms its waker, when `take` forgets to clear a bit, and when a link takes
/// the driver's waker without waking it.
#[test]
fn no_wake_is_lost() {
    model(|| {
        let set = ReadySet::new();
        let links = [set.waker(1), set.waker(65)];
        for link in links.clone() {
            thread::spawn(move || link.wake());
        }
        let mut ready = Vec::new();
        let mut all = |expected: usize| {
            block_on(poll_fn(|cx| {
                set.take(&mut ready, cx.waker());
                if ready.len() < expected { Poll::Pending } else { Poll::Ready(()) }
            }));
            ready.sort_unstable();
            ready.clone()
        };
        assert_eq!(all(2), [1, 65]);
        let [first, _] = links;
        thread::spawn(move || first.wake());
        assert_eq!(all(3), [1, 1, 65]);
    });
}
