use alloc::boxed::Box;
use alloc::vec;
use core::future::Future;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicU32, Ordering};
use core::task::{Context, Poll, Waker};
use std::sync::mpsc;
use std::task::Wake;
use std::thread;

use super::*;

const PLENTY: Credits = Credits { ops: 1 << 20, bytes: 1 << 30 };

/// Messages are a value and the ticket to complete, results are values.
type Small = Inbox<Message, u32>;
type Message = (u32, Option<Ticket>);

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (Arc::clone(&count), Waker::from(count))
    }

    fn wakes(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn taken(inbox: &Small) -> Vec<Message> {
    let mut into = Vec::new();
    inbox.take(&mut into, Waker::noop());
    into
}

fn answer(inbox: &Small, ticket: Option<Ticket>, result: u32) {
    let mut batch = Completions::new();
    batch.push(ticket.expect("a message with a ticket"), result);
    inbox.complete(&mut batch);
    assert!(batch.is_empty());
}

/// Nothing is outstanding, nobody waits, no slot is taken.
fn assert_idle(inbox: &Small) {
    let state = inbox.state.lock();
    assert_eq!((state.credit.ops, state.credit.bytes), (0, 0));
    assert_eq!(state.slots.len(), 0);
    assert!(state.line.is_empty());
}

fn send(inbox: &Small, value: u32, bytes: usize) -> Submit<'_, Message, u32, impl FnOnce(Ticket) -> Message + use<>> {
    inbox.submit(bytes, move |ticket| (value, Some(ticket)))
}

#[test]
fn messages_come_out_whole_and_in_order() {
    let inbox = Small::new(PLENTY);
    inbox.push((1, None)).expect("open");
    let mut batch = vec![(2, None), (3, None)];
    inbox.push_all(&mut batch).expect("open");
    assert!(batch.is_empty());
    let mut into = vec![(0, None)];
    let found = inbox.take(&mut into, Waker::noop());
    assert_eq!(found, Taken { messages: 3, last_handle_gone: false });
    assert_eq!(into.iter().map(|m| m.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(inbox.take(&mut into, Waker::noop()).messages, 0);
}

#[test]
fn one_push_wakes_a_sleeping_driver() {
    let inbox = Small::new(PLENTY);
    let (count, waker) = Count::new();
    let mut into = Vec::new();
    inbox.push((0, None)).expect("open");
    inbox.take(&mut into, &waker);
    inbox.push((0, None)).expect("open");
    assert_eq!(count.wakes(), 0, "a driver that found something is awake");

    into.clear();
    inbox.take(&mut into, &waker);
    into.clear();
    inbox.take(&mut into, &waker);
    inbox.take(&mut into, &waker);
    assert_eq!(Arc::strong_count(&count), 3, "the waker is cloned once per sleep");
    inbox.push((0, None)).expect("open");
    inbox.push((0, None)).expect("open");
    assert_eq!(count.wakes(), 1);
    assert_eq!(Arc::strong_count(&count), 2);
}

#[test]
fn the_driver_that_slept_last_is_woken() {
    let inbox = Small::new(PLENTY);
    let (old, old_waker) = Count::new();
    let (new, new_waker) = Count::new();
    let mut into = Vec::new();
    inbox.take(&mut into, &old_waker);
    inbox.take(&mut into, &new_waker);
    inbox.push((0, None)).expect("open");
    assert_eq!((old.wakes(), new.wakes()), (0, 1));
}

#[test]
fn a_submit_hands_in_at_its_first_poll_and_reads_its_own_result() {
    let inbox = Small::new(PLENTY);
    let (count, waker) = Count::new();
    let (mut first, mut second) = (send(&inbox, 1, 10), send(&inbox, 2, 10));
    assert!(taken(&inbox).is_empty());
    assert!(poll(&mut first, &waker).is_pending());
    assert!(poll(&mut second, &waker).is_pending());
    let messages = taken(&inbox);
    assert_eq!(messages.len(), 2);
    answer(&inbox, messages[1].1, 200);
    assert_eq!(count.wakes(), 1);
    assert!(poll(&mut first, &waker).is_pending());
    assert!(matches!(poll(&mut second, &waker), Poll::Ready(Ok(200))));
    answer(&inbox, messages[0].1, 100);
    assert!(matches!(poll(&mut first, &waker), Poll::Ready(Ok(100))));
    drop((first, second));
    assert_idle(&inbox);
}

#[test]
fn a_future_that_moved_to_another_task_wakes_that_one() {
    let inbox = Small::new(Credits { ops: 1, bytes: 100 });
    let (old, old_waker) = Count::new();
    let (new, new_waker) = Count::new();
    let (mut first, mut second) = (send(&inbox, 1, 1), send(&inbox, 2, 1));
    for waker in [&old_waker, &new_waker] {
        assert!(poll(&mut first, waker).is_pending());
        assert!(poll(&mut second, waker).is_pending());
    }
    answer(&inbox, taken(&inbox)[0].1, 1);
    assert_eq!((old.wakes(), new.wakes()), (0, 2), "the result, and the credit");
    assert_eq!(Arc::strong_count(&old), 2, "the old waker is gone");
}

#[test]
fn credit_limits_messages_and_is_handed_over_in_order_of_arrival() {
    let inbox = Small::new(Credits { ops: 2, bytes: 1000 });
    let (count, waker) = Count::new();
    let mut futures: Vec<_> = (0..5).map(|n| send(&inbox, n, 1)).collect();
    for future in &mut futures {
        assert!(poll(future, &waker).is_pending());
    }
    let first = taken(&inbox);
    assert_eq!(first.iter().map(|m| m.0).collect::<Vec<_>>(), [0, 1]);

    answer(&inbox, first[0].1, 0);
    assert_eq!(count.wakes(), 2, "the sender and the next in line");
    // A newcomer does not overtake who was promised the credit, whoever is polled first.
    assert!(matches!(inbox.try_submit(1, |ticket| (9, Some(ticket))), Err(Refused::Full(_))));
    assert!(poll(&mut futures[3], &waker).is_pending());
    assert!(poll(&mut futures[2], &waker).is_pending());
    assert_eq!(taken(&inbox).iter().map(|m| m.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn bytes_are_credit_too_and_the_line_does_not_let_light_messages_overtake() {
    let inbox = Small::new(Credits { ops: 10, bytes: 100 });
    let waker = Waker::noop();
    let mut heavy = send(&inbox, 0, 90);
    let mut next = send(&inbox, 1, 20);
    let mut light = send(&inbox, 2, 1);
    assert!(poll(&mut heavy, waker).is_pending());
    assert!(poll(&mut next, waker).is_pending());
    assert!(poll(&mut light, waker).is_pending());
    let first = taken(&inbox);
    assert_eq!(first.len(), 1, "one byte would have fitted, but came later");
    // Who gives up in front lets the others go.
    let (count, counting) = Count::new();
    assert!(poll(&mut light, &counting).is_pending());
    drop(next);
    assert_eq!(count.wakes(), 1);
    assert!(poll(&mut light, waker).is_pending());
    assert_eq!(taken(&inbox).iter().map(|m| m.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_message_heavier_than_the_limit_goes_alone() {
    let inbox = Small::new(Credits { ops: 10, bytes: 100 });
    let small = inbox.try_submit(1, |ticket| (0, Some(ticket))).ok().expect("credit");
    let mut giant = send(&inbox, 1, usize::MAX);
    assert!(poll(&mut giant, Waker::noop()).is_pending());
    answer(&inbox, small.ticket(), 0);
    assert!(poll(&mut giant, Waker::noop()).is_pending());
    assert!(matches!(inbox.try_submit(1, |ticket| (2, Some(ticket))), Err(Refused::Full(_))));
    let messages = taken(&inbox);
    assert_eq!(messages.len(), 2);
    answer(&inbox, messages[1].1, 7);
    assert!(matches!(poll(&mut giant, Waker::noop()), Poll::Ready(Ok(7))));
    drop(small);
    assert_idle(&inbox);
}

#[test]
fn a_granted_credit_that_is_dropped_goes_to_the_next() {
    let inbox = Small::new(Credits { ops: 1, bytes: 100 });
    let (count, waker) = Count::new();
    let mut first = send(&inbox, 0, 1);
    let mut granted = send(&inbox, 1, 1);
    let mut last = send(&inbox, 2, 1);
    assert!(poll(&mut first, Waker::noop()).is_pending());
    assert!(poll(&mut granted, Waker::noop()).is_pending());
    assert!(poll(&mut last, &waker).is_pending());
    answer(&inbox, taken(&inbox)[0].1, 0);
    assert_eq!(count.wakes(), 0);
    drop(granted);
    assert_eq!(count.wakes(), 1);
    assert!(poll(&mut last, &waker).is_pending());
    answer(&inbox, taken(&inbox)[0].1, 0);
    drop((first, last));
    assert_idle(&inbox);
}

#[test]
fn those_who_give_up_behind_a_stuck_head_are_swept_out() {
    let inbox = Small::new(Credits { ops: 1, bytes: 100 });
    let mut stuck: Vec<_> = (0..4).map(|n| send(&inbox, n, 1)).collect();
    for future in &mut stuck {
        assert!(poll(future, Waker::noop()).is_pending());
    }
    for _ in 0..1000 {
        assert!(poll(&mut send(&inbox, 9, 1), Waker::noop()).is_pending());
    }
    assert!(inbox.state.lock().line.tickets.len() <= 8);
    for n in 0..4 {
        let messages = taken(&inbox);
        assert_eq!(messages[0].0, n);
        answer(&inbox, messages[0].1, n);
        for future in stuck.iter_mut().skip(n as usize + 1) {
            assert!(poll(future, Waker::noop()).is_pending());
        }
    }
    drop(stuck);
    assert_idle(&inbox);
}

#[test]
fn dropping_detaches_the_message_takes_its_course() {
    let inbox = Small::new(PLENTY);
    let mut early = send(&inbox, 1, 10);
    assert!(poll(&mut early, Waker::noop()).is_pending());
    drop(early);
    drop(send(&inbox, 2, 10));
    drop(inbox.push_with_ticket(|ticket| (3, Some(ticket))));
    let mut late = send(&inbox, 4, 10);
    assert!(poll(&mut late, Waker::noop()).is_pending());
    let messages = taken(&inbox);
    assert_eq!(messages.iter().map(|m| m.0).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(inbox.state.lock().credit.ops, 2, "outstanding, whoever listens");
    for (value, ticket) in messages {
        answer(&inbox, ticket, value);
    }
    drop(late);
    assert_idle(&inbox);
}

#[test]
fn a_slot_that_nobody_awaits_can_be_freed_without_a_result() {
    let inbox = Small::new(Credits { ops: 1, bytes: 10 });
    let (_, waker) = Count::new();
    let awaited = inbox.push_with_ticket(|ticket| (1, Some(ticket)));
    let mut sent = send(&inbox, 2, 1);
    assert!(poll(&mut sent, &waker).is_pending());
    let mut in_line = send(&inbox, 3, 1);
    let (count, next) = Count::new();
    assert!(poll(&mut in_line, &next).is_pending());
    drop(sent);
    let messages = taken(&inbox);
    assert!(!inbox.free_abandoned(messages[0].1.unwrap()));
    assert!(inbox.free_abandoned(messages[1].1.unwrap()));
    assert!(!inbox.free_abandoned(messages[1].1.unwrap()), "once");
    assert_eq!(count.wakes(), 1, "its credit goes to the next");
    drop(awaited);
    assert!(inbox.free_abandoned(messages[0].1.unwrap()));
}

#[test]
fn a_receipt_needs_no_credit_and_may_be_answered_before_it_is_polled() {
    let inbox = Small::new(Credits { ops: 1, bytes: 1 });
    let _full = inbox.try_submit(1, |ticket| (0, Some(ticket)));
    let mut receipt = inbox.push_with_ticket(|ticket| (1, Some(ticket)));
    let messages = taken(&inbox);
    assert_eq!(receipt.ticket(), messages[1].1);
    answer(&inbox, messages[1].1, 11);
    assert_eq!(poll(&mut receipt, Waker::noop()), Poll::Ready(Ok(11)));
}

#[test]
fn closing_resolves_everything_and_refuses_what_comes() {
    let inbox = Small::new(Credits { ops: 2, bytes: 100 });
    let (count, waker) = Count::new();
    let mut done = send(&inbox, 0, 1);
    let mut unanswered = send(&inbox, 1, 1);
    assert!(poll(&mut done, &waker).is_pending());
    assert!(poll(&mut unanswered, &waker).is_pending());
    let mut in_line = send(&inbox, 2, 1);
    let mut granted = send(&inbox, 3, 100);
    assert!(poll(&mut granted, &waker).is_pending());
    assert!(poll(&mut in_line, &waker).is_pending());
    answer(&inbox, taken(&inbox)[0].1, 5);
    let mut queued = inbox.push_with_ticket(|ticket| (4, Some(ticket)));
    drop(inbox.push_with_ticket(|ticket| (5, Some(ticket))));
    let wakes = count.wakes();

    let returned = inbox.close(|| 99);
    assert_eq!(returned.iter().map(|m| m.0).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(count.wakes() - wakes, 3);
    assert!(matches!(poll(&mut done, &waker), Poll::Ready(Ok(5))));
    assert!(matches!(poll(&mut unanswered, &waker), Poll::Ready(Ok(99))));
    assert_eq!(poll(&mut queued, &waker), Poll::Ready(Ok(99)));
    let Poll::Ready(Err(Closed(make))) = poll(&mut in_line, &waker) else { panic!("refused") };
    assert_eq!(make(Ticket::from_parts(0, 0)).0, 2, "the message comes back");
    drop(granted);

    assert_eq!(inbox.push((6, None)), Err(Closed((6, None))));
    let mut batch = vec![(7, None)];
    assert_eq!(inbox.push_all(&mut batch), Err(Closed(())));
    assert_eq!(batch.len(), 1);
    assert!(matches!(poll(&mut send(&inbox, 8, 1), &waker), Poll::Ready(Err(_))));
    assert!(matches!(inbox.try_submit(1, |ticket| (9, Some(ticket))), Err(Refused::Closed(_))));
    let mut receipt = inbox.push_with_ticket(|ticket| (10, Some(ticket)));
    assert_eq!(poll(&mut receipt, &waker), Poll::Ready(Err(Closed(()))));
    assert!(inbox.close(|| 98).is_empty());
    assert!(taken(&inbox).is_empty());
    assert_idle(&inbox);
}

#[test]
fn results_that_come_after_the_close_are_ignored() {
    let inbox = Small::new(PLENTY);
    let mut receipt = inbox.push_with_ticket(|ticket| (1, Some(ticket)));
    let ticket = receipt.ticket();
    inbox.close(|| 99);
    answer(&inbox, ticket, 1);
    assert_eq!(poll(&mut receipt, Waker::noop()), Poll::Ready(Ok(99)));
}

#[test]
#[should_panic(expected = "was completed twice")]
fn completing_twice_is_a_bug_of_the_driver() {
    let inbox = Small::new(PLENTY);
    let receipt = inbox.push_with_ticket(|ticket| (1, Some(ticket)));
    answer(&inbox, receipt.ticket(), 1);
    answer(&inbox, receipt.ticket(), 2);
}

#[test]
fn a_stale_ticket_never_completes_its_successor() {
    let inbox = Small::new(PLENTY);
    let first = inbox.push_with_ticket(|ticket| (1, Some(ticket)));
    let stale = first.ticket().expect("open");
    answer(&inbox, Some(stale), 1);
    drop(first);
    let mut second = inbox.push_with_ticket(|ticket| (2, Some(ticket)));
    assert_eq!(second.ticket().map(Id::index), Some(stale.index()));
    let mut unread = Vec::new();
    assert!(!inbox.state.lock().resolve(stale, 7, &mut Vec::new(), &mut unread));
    assert_eq!(unread, [7]);
    assert!(poll(&mut second, Waker::noop()).is_pending());
}

#[test]
fn the_last_handle_is_reported_after_what_it_pushed() {
    let inbox = Small::new(PLENTY);
    let (count, waker) = Count::new();
    let first = Handle::new(&inbox);
    let second = first.clone();
    let mut into = Vec::new();
    inbox.take(&mut into, &waker);
    drop(first);
    assert_eq!(count.wakes(), 0);
    drop(second);
    assert_eq!(count.wakes(), 1);
    assert!(inbox.take(&mut into, &waker).last_handle_gone);
    // What is still held by futures and deliveries goes on.
    inbox.push((1, None)).expect("open until it is closed");
    assert_eq!(count.wakes(), 2);
    assert_eq!(inbox.take(&mut into, &waker), Taken { messages: 1, last_handle_gone: true });
}

/// A value whose drop comes back to the inbox: a delivery that settles itself, a task that owns a future.
struct Settles(Arc<Inbox<u32, Box<Settles>>>);

impl Drop for Settles {
    fn drop(&mut self) {
        let _ = self.0.push(1);
    }
}

impl Wake for Settles {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn nothing_foreign_is_dropped_under_the_lock() {
    // Each step deadlocks when it is wrong, so a watchdog turns that into a failure.
    let (finished, verdict) = mpsc::channel();
    thread::spawn(move || {
        let inbox = Inbox::new(PLENTY);
        let settles = || Box::new(Settles(Arc::clone(&inbox)));
        let waker = || Waker::from(Arc::new(Settles(Arc::clone(&inbox))));
        let mut batch = Completions::new();
        let mut into = Vec::new();

        inbox.take(&mut into, &waker());
        inbox.take(&mut into, &waker());
        // Unread results, one dropped before and one after its completion; wakers that are replaced and abandoned.
        let mut abandoned = inbox.push_with_ticket(|_| 0);
        assert!(poll(&mut abandoned, &waker()).is_pending());
        assert!(poll(&mut abandoned, &waker()).is_pending());
        batch.push(abandoned.ticket().expect("open"), settles());
        drop(abandoned);
        let unread = inbox.push_with_ticket(|_| 0);
        batch.push(unread.ticket().expect("open"), settles());
        inbox.complete(&mut batch);
        drop(unread);
        // Who waits for credit.
        let mut heavy = inbox.submit(usize::MAX, |_| 0);
        let mut in_line = inbox.submit(1, |_| 0);
        assert!(poll(&mut heavy, &waker()).is_pending());
        assert!(poll(&mut in_line, &waker()).is_pending());
        assert!(poll(&mut in_line, &waker()).is_pending());
        drop(in_line);
        drop(heavy);
        drop(inbox.close(settles));
        finished.send(()).expect("the test waits");
    });
    verdict.recv_timeout(std::time::Duration::from_secs(20)).expect("no deadlock");
}

#[test]
fn eight_producers_keep_their_order_and_lose_nothing() {
    const PRODUCERS: u32 = 8;
    const EACH: u32 = 20_000;
    let inbox: Arc<Inbox<(u32, u32), ()>> = Inbox::new(PLENTY);
    let handle = Handle::new(&inbox);
    for producer in 0..PRODUCERS {
        let handle = handle.clone();
        thread::spawn(move || {
            let mut batch = Vec::new();
            for n in 0..EACH {
                if n % 7 < 3 {
                    batch.push((producer, n));
                } else {
                    handle.push_all(&mut batch).expect("open");
                    handle.push((producer, n)).expect("open");
                }
            }
            handle.push_all(&mut batch).expect("open");
        });
    }
    drop(handle);
    let mut next = [0; PRODUCERS as usize];
    let mut into = Vec::new();
    block_on(core::future::poll_fn(|cx| {
        loop {
            let found = inbox.take(&mut into, cx.waker());
            for (producer, n) in into.drain(..) {
                assert_eq!(next[producer as usize], n);
                next[producer as usize] += 1;
            }
            if found.messages == 0 {
                return if found.last_handle_gone { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    }));
    assert_eq!(next, [EACH; PRODUCERS as usize]);
}

#[test]
fn eight_producers_share_few_credits() {
    const PRODUCERS: u32 = 8;
    const EACH: u32 = 20_000;
    let inbox = Small::new(Credits { ops: 5, bytes: 300 });
    let handle = Handle::new(&inbox);
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let handle = handle.clone();
            thread::spawn(move || {
                for n in 0..EACH {
                    let value = producer * EACH + n;
                    let mut submit = send(&handle, value, (n % 400) as usize);
                    if n % 5 == 0 {
                        // Somewhere between unsent, in line, submitted and done.
                        let _ = poll(&mut submit, Waker::noop());
                        continue;
                    }
                    let result = block_on(submit);
                    assert!(matches!(result, Ok(r) if r == value));
                }
            })
        })
        .collect();
    drop(handle);
    let mut into = Vec::new();
    let mut batch = Completions::new();
    block_on(core::future::poll_fn(|cx| {
        loop {
            let found = inbox.take(&mut into, cx.waker());
            assert!(into.len() <= 5);
            for (value, ticket) in into.drain(..) {
                batch.push(ticket.expect("submitted"), value);
            }
            inbox.complete(&mut batch);
            if found.messages == 0 {
                return if found.last_handle_gone { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    }));
    for producer in producers {
        producer.join().expect("every result reached its sender");
    }
    assert_idle(&inbox);
}
