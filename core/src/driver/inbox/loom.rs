//! Every interleaving of the threads and the driver, up to the bound on preemptions.
//!
//! A driver that sleeps when it should not, or a future nobody wakes, is a deadlock, which loom reports. Each test
//! names the mutation it was seen to fail against.

use alloc::vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Context;

use ::loom::future::block_on;
use ::loom::model;
use ::loom::thread;

use super::*;

type Small = Inbox<Message, u32>;
type Message = (u32, Option<Ticket>);

const PLENTY: Credits = Credits { ops: 100, bytes: 100 };

/// What the driver answers at its end.
const STOPPED: u32 = 99;

fn send(inbox: &Small, value: u32) -> Submit<'_, Message, u32, impl FnOnce(Ticket) -> Message + use<>> {
    inbox.submit(1, move |ticket| (value, Some(ticket)))
}

/// Sleeps until there are messages and returns how many.
fn next_batch(inbox: &Small, into: &mut Vec<Message>) -> usize {
    block_on(poll_fn(|cx| match inbox.take(into, cx.waker()).messages {
        0 => Poll::Pending,
        messages => Poll::Ready(messages),
    }))
}

fn answer(inbox: &Small, messages: impl IntoIterator<Item = Message>) {
    let mut batch = Completions::new();
    for (value, ticket) in messages {
        batch.push(ticket.expect("submitted"), value);
    }
    inbox.complete(&mut batch);
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn assert_idle(inbox: &Small) {
    let state = inbox.state.lock();
    assert_eq!((state.credit.ops, state.credit.bytes), (0, 0));
    assert_eq!(state.slots.len(), 0);
    assert!(state.line.is_empty());
}

/// Fails when `take` unlocks between finding the queue empty and arming its waker, and when `push` forgets to wake.
#[test]
fn nothing_is_lost_and_the_driver_never_sleeps_on_messages() {
    model(|| {
        let inbox = Small::new(PLENTY);
        for value in 0..2 {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.push((value, None)).expect("open"));
        }
        let mut messages = Vec::new();
        while messages.len() < 2 {
            next_batch(&inbox, &mut messages);
        }
        messages.sort_unstable();
        assert_eq!(messages, [(0, None), (1, None)]);
    });
}

/// Fails when `take` puts what it finds in front of what the driver still holds.
#[test]
fn each_producer_keeps_its_order() {
    model(|| {
        let inbox = Small::new(PLENTY);
        for producer in 0..2 {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                inbox.push((producer * 10, None)).expect("open");
                inbox.push_all(&mut vec![(producer * 10 + 1, None)]).expect("open");
            });
        }
        let mut messages = Vec::new();
        while messages.len() < 4 {
            next_batch(&inbox, &mut messages);
        }
        let of = |producer| messages.iter().map(|m| m.0).filter(|v| v / 10 == producer).collect::<Vec<_>>();
        assert_eq!(of(0), [0, 1]);
        assert_eq!(of(1), [10, 11]);
    });
}

/// Fails when `poll_new` looks at `closed` in a critical section of its own: a ticket is then taken after the close.
#[test]
fn a_submit_that_races_the_close_resolves_exactly_once() {
    model(|| {
        let inbox = Small::new(PLENTY);
        let senders: Vec<_> = (0..2)
            .map(|value| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || match block_on(send(&inbox, value)) {
                    Ok(result) => assert!(result == value || result == STOPPED),
                    Err(Closed(make)) => assert_eq!(make(Ticket::from_parts(0, 0)).0, value),
                })
            })
            .collect();
        let mut messages = Vec::new();
        inbox.take(&mut messages, Waker::noop());
        answer(&inbox, messages.drain(..));
        inbox.close(|| STOPPED);
        for sender in senders {
            sender.join().expect("resolved");
        }
        assert_idle(&inbox);
    });
}

/// Fails when `abandon` leaves a result that is done in its slot, and when `resolve` keeps the result of an abandoned
/// one.
#[test]
fn a_drop_that_races_the_completion_frees_the_slot_once() {
    model(|| {
        let inbox = Small::new(PLENTY);
        let receipt = inbox.push_with_ticket(|ticket| (1, Some(ticket)));
        let dropper = Arc::clone(&inbox);
        let dropper = thread::spawn(move || {
            drop(receipt);
            let mut submit = send(&dropper, 2);
            assert!(poll_once(&mut submit).is_pending());
            assert!(matches!(poll_once(&mut submit), Poll::Pending | Poll::Ready(Ok(2))));
        });
        let mut messages = Vec::new();
        while messages.len() < 2 {
            let known = messages.len();
            next_batch(&inbox, &mut messages);
            answer(&inbox, messages.iter().skip(known).copied());
        }
        dropper.join().expect("no panic");
        assert_idle(&inbox);
    });
}

/// Fails when `complete` does not grant, and when dropping who was granted keeps the credit.
#[test]
fn credits_are_never_exceeded_nor_leaked_and_who_waits_is_woken() {
    model(|| {
        let inbox = Small::new(Credits { ops: 1, bytes: 100 });
        let quitter = Arc::clone(&inbox);
        let quitter = thread::spawn(move || {
            // Dropped unsent, in line, granted, submitted or done.
            let mut submit = send(&quitter, 1);
            let _ = poll_once(&mut submit);
            drop(submit);
        });
        let sender = Arc::clone(&inbox);
        let sender = thread::spawn(move || {
            assert!(matches!(block_on(send(&sender, 2)), Ok(2)));
        });
        let mut messages = Vec::new();
        let mut served = false;
        while !served {
            assert_eq!(next_batch(&inbox, &mut messages), 1, "one credit, one message");
            served = messages[0].0 == 2;
            answer(&inbox, messages.drain(..));
        }
        sender.join().expect("served");
        quitter.join().expect("no panic");
        // It may have come last.
        inbox.take(&mut messages, Waker::noop());
        answer(&inbox, messages.drain(..));
        assert_idle(&inbox);
    });
}

/// Like a driver: whatever ends it closes the inbox.
struct Closer(Arc<Small>);

impl Drop for Closer {
    fn drop(&mut self) {
        self.0.close(|| STOPPED);
    }
}

/// Fails when `close` resolves only what is still queued, and when it leaves those who wait for credit alone.
#[test]
fn a_driver_that_is_dropped_leaves_nobody_waiting() {
    model(|| {
        let inbox = Small::new(Credits { ops: 1, bytes: 100 });
        let senders: Vec<_> = (0..2)
            .map(|value| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || match block_on(send(&inbox, value)) {
                    Ok(result) => assert_eq!(result, STOPPED),
                    Err(Closed(_)) => {}
                })
            })
            .collect();
        let driver = Closer(Arc::clone(&inbox));
        next_batch(&driver.0, &mut Vec::new());
        drop(driver);
        for sender in senders {
            sender.join().expect("resolved");
        }
        assert_idle(&inbox);
    });
}

/// Fails when `clone` loads and stores the count instead of adding to it, and when the flag is set without a wake.
#[test]
fn the_last_handle_is_the_last_even_when_one_is_being_cloned() {
    model(|| {
        let inbox = Small::new(PLENTY);
        let first = Handle::new(&inbox);
        let second = first.clone();
        thread::spawn(move || {
            let clone = second.clone();
            drop(second);
            clone.push((1, None)).expect("open");
        });
        thread::spawn(move || drop(first));
        let mut messages = Vec::new();
        block_on(poll_fn(|cx| {
            loop {
                let found = inbox.take(&mut messages, cx.waker());
                if found.last_handle_gone {
                    return Poll::Ready(());
                }
                if found.messages == 0 {
                    return Poll::Pending;
                }
            }
        }));
        assert_eq!(messages, [(1, None)], "nothing comes after the last handle");
    });
}
