#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::config::Config;
use crate::driver::fake::Wakes;
use crate::driver::inbox::{Completions, Ticket};
use crate::driver::message::Queue as Deliveries;
use crate::driver::verdict::Reject;
use crate::id::{BrokerId, Id, SubId};
use crate::op;
use crate::reply::ReplyBuilder;
use core::future::{pending, poll_fn, ready};
use core::task::Waker;

/// Plays the driver: takes what handles say, and answers by script.
struct Script {
    inbox: Arc<Mailbox>,
    queue: Option<Arc<Deliveries>>,
    next: u32,
    /// Each message's verdicts, as text.
    settled: Vec<Vec<String>>,
    started: Vec<Vec<u32>>,
    timers: Vec<(Duration, Ticket)>,
    leaving: Vec<(Duration, Option<Ticket>)>,
    in_flight: u32,
    wakes: Arc<Wakes>,
    waker: Waker,
}

fn script() -> (Script, Group) {
    let client = Client::new(&Config::discover());
    let group = client.topic("t").group("g");
    let (wakes, waker) = Wakes::new();
    let script = Script {
        inbox: Arc::clone(client.inbox()),
        queue: None,
        next: 0,
        settled: Vec::new(),
        started: Vec::new(),
        timers: Vec::new(),
        leaving: Vec::new(),
        in_flight: 0,
        wakes,
        waker,
    };
    (script, group)
}

impl Script {
    /// Polls the run and hears what it says.
    fn poll<R: Future<Output = Result<(), Error>> + Unpin>(&mut self, run: &mut R) -> Poll<Result<(), Error>> {
        self.wakes.take();
        let polled = Pin::new(run).poll(&mut Context::from_waker(&self.waker));
        self.hear();
        polled
    }

    /// Until it has joined.
    fn join<R: Future<Output = Result<(), Error>> + Unpin>(&mut self, run: &mut R) {
        assert!(self.poll(run).is_pending());
        assert!(self.queue.is_some(), "it did not subscribe");
        assert_eq!(self.wakes.take(), 1);
        assert!(self.poll(run).is_pending());
    }

    fn hear(&mut self) {
        let mut messages = Vec::new();
        self.inbox.take(&mut messages, Waker::noop());
        for message in messages {
            match message {
                Message::Subscribe { sub, queue, ticket } => {
                    self.in_flight = sub.in_flight;
                    self.queue = Some(queue);
                    self.complete(ticket, Completion::Subscribed);
                }
                Message::SettleAll(verdicts) => {
                    self.settled.push(verdicts.into_iter().map(|(id, verdict)| text(id, &verdict)).collect());
                }
                Message::Settle { delivery, verdict, ticket } => {
                    self.settled.push(vec![text(delivery, &verdict)]);
                    if let Some(ticket) = ticket {
                        self.complete(ticket, Completion::Settled(op::Settled::Ok));
                    }
                }
                Message::Started(ids) => self.started.push(ids.into_iter().map(Id::index).collect()),
                Message::WakeAt { after, ticket } => self.timers.push((after, ticket)),
                Message::Unsubscribe { grace, ticket, .. } => self.leaving.push((grace, ticket)),
                other => panic!("{other:?}"),
            }
        }
    }

    fn complete(&self, ticket: Ticket, result: Completion) {
        let mut results = Completions::new();
        results.push(ticket, result);
        self.inbox.complete(&mut results);
    }

    fn queue(&self) -> &Deliveries {
        self.queue.as_ref().unwrap()
    }

    /// Delivers messages, numbered from 0 on, whose bodies are their numbers.
    fn deliver(&mut self, messages: u32) {
        let first = self.next;
        self.next += messages;
        let mut reply = ReplyBuilder::new();
        reply.array(1).array(2).bulk(b"stream:topic:t:p:0").array(messages);
        for n in first..self.next {
            let body = n.to_string();
            reply.array(2).bulk(format!("{}-1", n + 1).as_bytes()).array(4);
            reply.bulk(b"payload").bulk(body.as_bytes()).bulk(b"h:number").bulk(body.as_bytes());
        }
        let batch = Arc::new(reply.finish().entries().unwrap());
        let delivery = |index| Delivery {
            delivery: DeliveryId::from_parts(first + index, 0),
            sub: SubId::from_parts(0, 0),
            broker: BrokerId::from_parts(0, 0),
            partition: 0,
            retry: false,
            deliveries: 1,
            attempt: 1,
            batch: Arc::clone(&batch),
            index,
        };
        self.queue().push(&mut (0..messages).map(delivery).collect(), &mut Vec::new());
    }

    fn overdue(&self, delivery: u32) {
        self.queue().push(&mut Vec::new(), &mut vec![DeliveryId::from_parts(delivery, 0)]);
    }

    fn left(&self) {
        self.queue().end();
        let ticket = self.leaving[0].1.unwrap();
        self.complete(ticket, Completion::Unsubscribed);
    }

    fn take_settled(&mut self) -> Vec<Vec<String>> {
        mem::take(&mut self.settled)
    }
}

fn text(id: DeliveryId, verdict: &Verdict) -> String {
    let n = id.index();
    match verdict {
        Verdict::Done => format!("{n} done"),
        Verdict::Retry { reason, after } => format!("{n} retry {after:?} {reason}"),
        Verdict::Reject { reason } => format!("{n} reject {reason}"),
        Verdict::Release { started } => format!("{n} release {started}"),
    }
}

/// A handler's gate: each message waits until its number is opened.
#[derive(Clone, Default)]
struct Gate(Rc<RefCell<Gates>>);

#[derive(Default)]
struct Gates {
    open: Vec<u32>,
    waiting: Vec<(u32, Waker)>,
}

impl Gate {
    fn open(&self, n: u32) {
        let mut gate = self.0.borrow_mut();
        gate.open.push(n);
        let (woken, rest) = mem::take(&mut gate.waiting).into_iter().partition(|(waits, _)| *waits == n);
        gate.waiting = rest;
        drop(gate);
        Vec::into_iter(woken).for_each(|(_, waker): (u32, Waker)| waker.wake());
    }

    fn waiting(&self) -> usize {
        self.0.borrow().waiting.len()
    }

    async fn pass(self, job: Job) -> Result<(), String> {
        let n = number(&job);
        poll_fn(|cx| {
            let mut gate = self.0.borrow_mut();
            if gate.open.contains(&n) {
                return Poll::Ready(());
            }
            gate.waiting.push((n, cx.waker().clone()));
            Poll::Pending
        })
        .await;
        Ok(())
    }
}

fn number(job: &Job) -> u32 {
    core::str::from_utf8(job.body()).unwrap().parse().unwrap()
}

#[test]
fn results_become_verdicts_in_one_message_of_the_turn() {
    let (mut script, group) = script();
    let mut run = group.run(|job: Job| async move {
        match number(&job) {
            0 => Ok(()),
            1 => Err("not now".into()),
            2 => Err(Reject::new("never").into()),
            3 => panic!("number {}", 3),
            4 => {
                drop(job.retry_after("own words", Duration::from_secs(7)));
                Ok(())
            }
            _ => Ok::<_, Box<dyn std::error::Error + Send + Sync>>(()),
        }
    });
    script.join(&mut run);
    script.deliver(6);
    assert_eq!(script.wakes.take(), 1);
    assert!(script.poll(&mut run).is_pending());
    let settled = script.take_settled();
    assert_eq!(settled[0], ["4 retry Some(7s) own words"], "the first verdict counts, so it leaves first");
    let all = ["0 done", "1 retry None not now", "2 reject never", "3 retry None handler panicked: number 3"];
    assert_eq!(settled[1][..4], all);
    assert_eq!(settled[1][4..], ["4 done", "5 done"]);
    assert_eq!(settled.len(), 2);
    assert!(script.started.is_empty(), "none was pending");
    assert_eq!(script.in_flight, 256);
}

#[test]
fn a_handler_that_panics_before_its_future_is_there_is_a_retry() {
    let (mut script, group) = script();
    let mut run = group.run(|_| -> core::future::Ready<()> { panic!("at once") });
    script.join(&mut run);
    script.deliver(1);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled(), [["0 retry None handler panicked: at once"]]);
}

#[test]
fn pending_handlers_are_reported_once_and_settled_when_they_finish() {
    let (mut script, group) = script();
    let gate = Gate::default();
    let mut run = group.run(|job| gate.clone().pass(job));
    script.join(&mut run);
    gate.open(1);
    script.deliver(3);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled(), [["1 done"]]);
    assert_eq!(script.started, [[0, 2]]);
    gate.open(2);
    assert_eq!(script.wakes.take(), 1, "a woken handler wakes the run");
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(gate.waiting(), 1, "only who was woken is polled");
    gate.open(0);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled(), [["2 done"], ["0 done"]]);
    assert_eq!(script.started.len(), 1);
}

#[test]
fn an_overdue_handler_is_dropped_and_its_message_retried() {
    let (mut script, group) = script();
    let dropped = Rc::new(());
    let mut run = group.run(|job| {
        let held = Rc::clone(&dropped);
        async move {
            pending::<()>().await;
            drop((held, job));
        }
    });
    script.join(&mut run);
    script.deliver(2);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(Rc::strong_count(&dropped), 3, "here and in two handlers");
    script.overdue(1);
    assert_eq!(script.wakes.take(), 1);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled(), [["1 retry None handler timeout after 25 s"]]);
    assert_eq!(Rc::strong_count(&dropped), 2);
    script.overdue(1);
    assert!(script.poll(&mut run).is_pending());
    assert!(script.take_settled().is_empty(), "once");
}

#[test]
fn no_more_handlers_than_allowed_and_the_rest_stays_in_the_queue() {
    let (mut script, group) = script();
    let gate = Gate::default();
    let mut run = group.concurrency(2).run(|job| gate.clone().pass(job));
    script.join(&mut run);
    script.deliver(4);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(gate.waiting(), 2);
    assert_eq!(script.queue().reclaim().len(), 2, "an unsubscription can give them back");
    script.deliver(1);
    gate.open(0);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.started.concat(), [0, 1, 4]);
}

#[test]
fn after_many_polls_others_run() {
    let (mut script, group) = script();
    let mut run = group.run(|_| ready(()));
    script.join(&mut run);
    script.deliver(200);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled()[0].len(), POLLS);
    assert_eq!(script.wakes.take(), 1, "it goes on by itself");
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled()[0].len(), 200 - POLLS);
    assert_eq!(script.wakes.take(), 0);
}

#[test]
fn a_stopped_run_lets_handlers_finish_and_gives_back_the_rest() {
    let (mut script, group) = script();
    let gate = Gate::default();
    let mut run = group.grace(Duration::from_secs(3)).run(|job| gate.clone().pass(job));
    let stopper = run.stopper();
    script.join(&mut run);
    script.deliver(2);
    assert!(script.poll(&mut run).is_pending());
    stopper.stop();
    assert_eq!(script.wakes.take(), 1);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.leaving.len(), 1);
    assert_eq!(script.leaving[0].0, Duration::from_secs(3));
    gate.open(0);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled(), [["0 done"]]);
    // The other one has had its grace: the engine has given its message back.
    script.left();
    assert_eq!(script.poll(&mut run), Poll::Ready(Ok(())));
    assert!(script.take_settled().is_empty());
}

#[test]
fn a_dropped_run_loses_no_message() {
    let (mut script, group) = script();
    let gate = Gate::default();
    let mut run = group.run(|job| gate.clone().pass(job));
    script.join(&mut run);
    (0..POLLS as u32 - 1).for_each(|n| gate.open(n));
    script.deliver(POLLS as u32 + 2);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled().concat().len(), POLLS - 1);
    drop(run);
    script.hear();
    // One was running, the budget did not reach two.
    let [running, first, second] = [0, 1, 2].map(|n| n + POLLS as u32 - 1);
    let rest = [format!("{running} release true"), format!("{first} release false"), format!("{second} release false")];
    assert_eq!(script.take_settled(), [rest]);
    assert_eq!(script.leaving.len(), 1);
    assert_eq!(script.leaving[0].0, Duration::ZERO);
}

#[test]
fn a_closed_client_ends_the_run() {
    let (mut script, group) = script();
    let mut run = group.run(|_| ready(()));
    script.join(&mut run);
    script.queue().end();
    assert!(script.poll(&mut run).is_pending());
    script.left();
    assert_eq!(script.poll(&mut run), Poll::Ready(Err(Error::Stopped)));
}

#[test]
fn a_bad_name_is_an_error_of_the_run() {
    let (_, group) = script();
    let client = Client::new(&Config::discover());
    drop(group);
    let mut run = client.topic("a:b").group("g").run(|_| ready(()));
    let polled = Pin::new(&mut run).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(Error::Name(_)))));
}

#[test]
fn the_wait_for_a_batch_begins_with_its_first_message_although_no_handler_is_free() {
    let (mut script, group) = script();
    let mut run = group.run_batch(2, Duration::from_millis(50), |_| pending::<()>());
    script.join(&mut run);
    script.deliver(3);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.started, [[0, 1]]);
    assert_eq!(script.timers.len(), 1);
}

fn numbers(batch: &Batch) -> Vec<u32> {
    batch.iter().map(number).collect()
}

#[test]
fn a_batch_is_handed_over_when_it_is_full_or_its_time_is_over() {
    let (mut script, group) = script();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut run = group.run_batch(3, Duration::from_millis(50), |batch: Batch| {
        seen.borrow_mut().push(numbers(&batch));
        ready(())
    });
    script.join(&mut run);
    assert_eq!(script.in_flight, 256);
    script.deliver(4);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(*seen.borrow(), [vec![0, 1, 2]]);
    assert_eq!(script.timers.len(), 1, "the fourth message waits for more");
    assert_eq!(script.timers[0].0, Duration::from_millis(50));
    script.deliver(1);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.timers.len(), 1);
    assert_eq!(seen.borrow().len(), 1);
    script.complete(script.timers[0].1, Completion::Timer);
    assert_eq!(script.wakes.take(), 1);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(*seen.borrow(), [vec![0, 1, 2], vec![3, 4]]);
    assert_eq!(script.take_settled(), [vec!["0 done", "1 done", "2 done"], vec!["3 done", "4 done"]]);
}

#[test]
fn one_batch_at_a_time_and_a_settled_message_keeps_its_own_verdict() {
    let (mut script, group) = script();
    let open = Rc::new(RefCell::new(false));
    let mut run = group.run_batch(2, Duration::ZERO, |batch: Batch| {
        let open = Rc::clone(&open);
        async move {
            let mut jobs = batch.into_iter();
            drop(jobs.next().map(|job| job.reject("bad")));
            poll_fn(|_| if *open.borrow() { Poll::Ready(()) } else { Poll::Pending }).await;
            Err("all of them")
        }
    });
    script.join(&mut run);
    script.deliver(4);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.started, [[0, 1]]);
    assert_eq!(script.take_settled(), [["0 reject bad"]]);
    script.overdue(1);
    *open.borrow_mut() = true;
    assert!(script.poll(&mut run).is_pending());
    let settled = script.take_settled();
    let late = ["0 retry None handler timeout after 25 s", "1 retry None handler timeout after 25 s"];
    assert_eq!(settled[0], ["2 reject bad"], "the place is free for the next");
    assert_eq!(settled[1][..2], late);
    assert_eq!(settled[1][2..], ["2 retry None all of them", "3 retry None all of them"]);
}

#[test]
fn what_waits_in_the_queue_follows_when_a_full_batch_has_left() {
    let (mut script, group) = script();
    let open = Rc::new(RefCell::new(None));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut run =
        group.run_batch(2, Duration::ZERO, |batch: Batch| {
            seen.borrow_mut().extend(numbers(&batch));
            let (open, first) = (Rc::clone(&open), number(&batch[0]) == 0);
            poll_fn(move |cx| {
                if first && open.replace(Some(cx.waker().clone())).is_none() { Poll::Pending } else { Poll::Ready(()) }
            })
        });
    script.join(&mut run);
    script.deliver(9);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(*seen.borrow(), [0, 1], "the next batch is full and has to wait");
    open.borrow().as_ref().unwrap().wake_by_ref();
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(*seen.borrow(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

#[test]
fn spawned_handlers_settle_through_the_run() {
    let (mut script, group) = script();
    let tasks: Rc<RefCell<Vec<Task>>> = Rc::default();
    let spawn = |task| tasks.borrow_mut().push(task);
    let mut run = group.run_on(spawn, |job: Job| async move {
        match number(&job) {
            0 => Ok(()),
            1 => Err("later"),
            2 => panic!("oh"),
            _ => pending().await,
        }
    });
    script.join(&mut run);
    script.deliver(5);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.started, [[0, 1, 2, 3, 4]]);
    let (wakes, waker) = Wakes::new();
    let mut cx = Context::from_waker(&waker);
    let mut spawned: VecDeque<Task> = tasks.take().into();
    for _ in 0..3 {
        assert!(spawned.pop_front().unwrap().as_mut().poll(&mut cx).is_ready());
    }
    // The runtime lost one, another takes too long.
    let mut late = spawned.pop_front().unwrap();
    assert!(late.as_mut().poll(&mut cx).is_pending());
    drop(spawned);
    assert!(script.poll(&mut run).is_pending());
    let lost = "4 retry None the handler's task was dropped by its runtime";
    let all = ["0 done", "1 retry None later", "2 retry None handler panicked: oh", lost];
    assert_eq!(script.take_settled(), [all]);
    assert_eq!(wakes.take(), 0);
    script.overdue(3);
    assert!(script.poll(&mut run).is_pending());
    assert_eq!(script.take_settled(), [["3 retry None handler timeout after 25 s"]]);
    assert_eq!(wakes.take(), 1, "the task hears that nobody waits for it");
    assert!(late.as_mut().poll(&mut cx).is_ready());
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_loop_of_its_own_settles_one_by_one_and_a_dropped_job_comes_again() {
    let (mut script, group) = script();
    let mut joining = Box::pin(group.subscribe());
    assert!(poll(&mut joining).is_pending());
    script.hear();
    let Poll::Ready(Ok(mut jobs)) = poll(&mut joining) else { panic!("not subscribed") };
    assert_eq!(script.in_flight, 64);
    script.deliver(3);
    let mut next = || match poll(&mut Box::pin(jobs.next())) {
        Poll::Ready(Some(job)) => job,
        other => panic!("{other:?}"),
    };
    drop(next());
    let mut receipt = next().done();
    let owned = next().into_owned();
    assert_eq!((owned.body(), owned.header("number")), (&b"2"[..], Some(&b"2"[..])));
    assert_eq!((owned.entry().ms, owned.attempt(), owned.id()), (3, 1, ""));
    drop(owned.release());
    script.hear();
    let all = [["0 retry None dropped without a verdict"], ["1 done"], ["2 release false"]];
    assert_eq!(script.take_settled(), all);
    assert_eq!(poll(&mut receipt), Poll::Ready(Ok(op::Settled::Ok)));
    drop(jobs);
    script.hear();
    assert_eq!(script.leaving.len(), 1);
}
