#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;

use super::{Driver, Pace, Setup};
use crate::config::{Config, Discovery};
use crate::driver::client::{Client, Error, Stopped};
use crate::driver::fake::{Wakes, Wire, World};
use crate::driver::message::{Completion, FleetEvent, Message as Said};
use crate::engine::Incarnation;
use crate::op::{Op, OpError, Outcome, Policy, Send, Settled, Sub, Verdict};
use crate::rng::Seed;
use crate::topic::{Message, TopicSpec};

/// A driver in a world of its own, and who plays the servers.
struct Bench {
    driver: Driver<World>,
    world: World,
    wakes: Arc<Wakes>,
    waker: Waker,
    /// Ids of entries that the next read finds. Reads that find none stay unanswered.
    entries: Vec<&'static str>,
}

fn bench(config: Config) -> (Bench, Client) {
    let world = World::new();
    let setup = Setup {
        config,
        net: world.clone(),
        socket: Some(world.clone()),
        gauge: None,
        alarm: world.clone(),
        incarnation: Incarnation(7),
        seed: Seed::from_u64(1),
    };
    let (driver, client) = Driver::new(setup).unwrap();
    let (wakes, waker) = Wakes::new();
    (Bench { driver, world, wakes, waker, entries: Vec::new() }, client)
}

/// One broker, ready for messages.
fn ready() -> (Bench, Client) {
    let (mut bench, client) = bench(Config::brokers(["10.0.0.1:6379"]).unwrap());
    bench.settle();
    assert!(client.fleet()[0].ready, "{:?}", client.fleet());
    (bench, client)
}

impl Bench {
    /// One turn.
    fn turn(&mut self) -> Poll<()> {
        self.wakes.take();
        Pin::new(&mut self.driver).poll(&mut Context::from_waker(&self.waker))
    }

    /// Turns until the driver sleeps and the servers have answered everything.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            if self.turn().is_ready() {
                return;
            }
            self.world.wires().iter().for_each(|wire| serve(wire, &mut self.entries));
            if self.wakes.take() == 0 {
                return;
            }
        }
        panic!("the driver does not come to rest");
    }

    fn wire(&self) -> Wire {
        self.world.wires().last().unwrap().clone()
    }
}

fn serve(wire: &Wire, entries: &mut Vec<&'static str>) {
    for command in wire.commands() {
        let said = match command[0].as_str() {
            "XREADGROUP" if entries.is_empty() => continue,
            "XREADGROUP" => found(&command, &core::mem::take(entries)),
            _ => answer(&wire.ends().to, &command),
        };
        wire.say(said);
    }
}

fn found(command: &[String], entries: &[&str]) -> String {
    let key = command.iter().skip_while(|word| *word != "STREAMS").nth(1).unwrap();
    let mut said = format!("%1\r\n+{key}\r\n*{}\r\n", entries.len());
    for id in entries {
        said += &format!("*2\r\n$3\r\n{id}\r\n*2\r\n$7\r\npayload\r\n$4\r\nbody\r\n");
    }
    said
}

/// What a server says to what does not block.
fn answer(server: &str, command: &[String]) -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    match command[0].as_str() {
        "HELLO" => "%1\r\n+server\r\n+redis\r\n".into(),
        "CLIENT" if command[1] == "ID" => ":7\r\n".into(),
        "INFO" => bulk(&format!("redis_version:7.2.0\r\nrun_id:{server}\r\nrole:master\r\nloading:0\r\n")),
        "GET" => bulk(server),
        "TIME" => "*2\r\n+1\r\n+0\r\n".into(),
        "PING" => "+PONG\r\n".into(),
        "XADD" => bulk("1-1"),
        "EVALSHA" => "-NOSCRIPT no\r\n".into(),
        "EVAL" if command[1].contains("HGETALL") => "*4\r\n:1\r\n:1\r\n*0\r\n:1\r\n".into(),
        "EVAL" if command[1].contains("local out, there") => {
            "*3\r\n*2\r\n:-1\r\n*0\r\n*2\r\n:-1\r\n*0\r\n*0\r\n".into()
        }
        "EVAL" | "XACK" => ":1\r\n".into(),
        "XINFO" => "*0\r\n".into(),
        _ => "+OK\r\n".into(),
    }
}

fn message(policy: Policy) -> Op {
    let topic = TopicSpec::new("t", 1).unwrap();
    Op::Send(Send { topic, message: Message::new("body"), policy, wait: None })
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A send that has been polled once: it lies in the inbox.
fn sending(client: &Client, policy: Policy) -> Pin<Box<dyn Future<Output = Result<Outcome, Error>> + '_>> {
    let mut sent = Box::pin(client.submit(message(policy)));
    assert!(poll(&mut sent).is_pending());
    sent
}

/// One that has been sent a message: its broker knows the topic.
fn acquainted() -> (Bench, Client) {
    let (mut bench, client) = ready();
    let first = sending(&client, Policy::AtLeastOnce);
    bench.settle();
    drop(first);
    (bench, client)
}

#[test]
fn a_message_goes_out_and_its_answer_comes_back() {
    let (mut bench, client) = ready();
    let mut sent = sending(&client, Policy::AtLeastOnce);
    bench.settle();
    match poll(&mut sent) {
        Poll::Ready(Ok(Outcome::Stored(stored))) => assert_eq!(stored.entry.ms, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lone_message_is_written_at_once() {
    let (mut bench, client) = acquainted();
    let mut sent = sending(&client, Policy::AtLeastOnce);
    bench.settle();
    assert!(poll(&mut sent).is_ready());

    let before = bench.wire().ends().written.len();
    let _sent = sending(&client, Policy::AtLeastOnce);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.wire().ends().written.len(), before + 1);
}

#[test]
fn several_messages_let_the_others_go_first_and_leave_in_one_write() {
    let (mut bench, client) = acquainted();
    let _one = sending(&client, Policy::AtLeastOnce);
    let _two = sending(&client, Policy::AtLeastOnce);
    let before = bench.wire().ends().written.len();
    assert!(bench.turn().is_pending());
    assert_eq!(bench.wakes.take(), 1, "it yields, so it wakes itself");
    assert_eq!(bench.wire().ends().written.len(), before, "before its first write");
    let _three = sending(&client, Policy::AtLeastOnce);
    assert!(bench.turn().is_pending());
    assert_eq!(bench.wire().ends().written.len(), before + 1);
    let adds = bench.wire().commands().iter().filter(|command| command[0] == "XADD").count();
    assert_eq!(adds, 3);
}

#[test]
fn pace_yields_once_and_only_when_busy() {
    let mut pace = Pace::default();
    assert!(!pace.yields(1), "a lone sender");
    pace.wrote();
    pace.completed(1);
    assert!(!pace.yields(1), "a lone sender again");
    pace.wrote();
    pace.completed(64);
    assert!(pace.yields(1), "64 are about to send");
    assert!(!pace.yields(63), "once");
    pace.wrote();
    assert!(pace.yields(1), "64 were here last time");
    assert!(!pace.yields(0));
    pace.wrote();
    assert!(!pace.yields(0), "nothing was taken");
}

#[test]
fn what_was_accepted_is_reported_before_the_end() {
    let (mut bench, client) = acquainted();
    let wire = bench.wire();
    let mut sent = sending(&client, Policy::AtMostOnce);
    // Within one turn the command is accepted whole and the connection ends.
    wire.end();
    bench.world.state().refuse = Some(io::ErrorKind::ConnectionRefused);
    assert!(bench.turn().is_pending());
    assert!(matches!(poll(&mut sent), Poll::Ready(Err(Error::Op(OpError::Ambiguous(_))))), "it may have happened");
}

#[test]
fn what_was_not_accepted_is_placed_again() {
    let (mut bench, client) = ready();
    let wire = bench.wire();
    wire.ends().takes.extend([10]);
    wire.ends().stuck = true;
    let mut sent = sending(&client, Policy::AtMostOnce);
    assert!(bench.turn().is_pending());
    wire.end();
    bench.settle();
    assert!(poll(&mut sent).is_pending(), "it waits for a broker");
    bench.world.pass_to_the_alarm();
    for _ in 0..10 {
        bench.settle();
        if let Poll::Ready(result) = poll(&mut sent) {
            assert!(matches!(result, Ok(Outcome::Stored(_))), "{result:?}");
            return;
        }
        bench.world.pass_to_the_alarm();
    }
    panic!("it was not placed again");
}

#[test]
fn the_alarm_ends_the_wait_for_a_broker() {
    let (mut bench, client) = bench(Config::brokers(["10.0.0.1:6379"]).unwrap());
    bench.world.state().refuse = Some(io::ErrorKind::ConnectionRefused);
    let mut sent = sending(&client, Policy::AtLeastOnce);
    bench.settle();
    for _ in 0..100 {
        assert_eq!(bench.wakes.take(), 0);
        bench.world.pass_to_the_alarm();
        bench.settle();
        if let Poll::Ready(result) = poll(&mut sent) {
            assert!(matches!(result, Err(Error::Op(OpError::NotSent(_)))), "{result:?}");
            return;
        }
    }
    panic!("it waits for ever");
}

fn up(guid: u32) -> Vec<u8> {
    format!("imq-broker\t{guid:08x}-0000-4000-8000-000000000000\tup\t10.0.0.{guid}:6379\t1\n").into_bytes()
}

#[test]
fn an_announcement_that_has_arrived_is_heard_before_time_passes() {
    let (mut bench, client) = bench(Config { discovery: Some(Discovery::default()), ..Config::default() });
    let from = "10.0.0.1:63000".parse().unwrap();
    bench.settle();
    bench.world.announce(&up(1), from);
    bench.world.announce(&up(2), from);
    bench.settle();
    assert_eq!(client.fleet().len(), 2, "{:?}", bench.driver.engine.stats());

    let mut events = client.events();
    bench.settle();
    // The process was stopped for longer than a member may be silent, and both went on announcing.
    bench.world.announce(&up(2), from);
    bench.world.announce(&up(1), from);
    bench.world.pass(Duration::from_secs(60));
    bench.settle();
    while let Poll::Ready(event) = poll(&mut pin!(events.next())) {
        if let Some(FleetEvent::Broker(event)) = &event {
            assert!(!format!("{:?}", event.change).contains("Expired"), "{event:?}");
        }
    }
    assert!(client.fleet().iter().all(|broker| !broker.leaving), "{:?}", client.fleet());
}

#[test]
fn answers_that_have_arrived_are_read_before_time_passes() {
    let (mut bench, client) = ready();
    let mut sent = sending(&client, Policy::AtLeastOnce);
    assert!(bench.turn().is_pending() && bench.turn().is_pending());
    let wire = bench.wire();
    // The process was suspended for much longer than an answer may take, and the answers lie in the socket.
    bench.world.pass(Duration::from_secs(60));
    serve(&wire, &mut bench.entries);
    bench.settle();
    assert!(matches!(poll(&mut sent), Poll::Ready(Ok(Outcome::Stored(_)))));
    assert_eq!(bench.world.wires().len(), 1, "dialled again");
}

#[test]
fn a_reply_may_take_long_while_more_of_it_arrives() {
    let (mut bench, client) = ready();
    let mut first = sending(&client, Policy::AtLeastOnce);
    bench.settle();
    assert!(poll(&mut first).is_ready());
    let mut sent = sending(&client, Policy::AtLeastOnce);
    assert!(bench.turn().is_pending() && bench.turn().is_pending());
    let wire = bench.wire();
    assert_eq!(wire.commands().len(), 1);
    for byte in b"$3\r\n1-1" {
        bench.world.pass(Duration::from_secs(4));
        wire.say([*byte]);
        bench.settle();
    }
    wire.say("\r\n");
    bench.settle();
    assert!(matches!(poll(&mut sent), Poll::Ready(Ok(Outcome::Stored(_)))));
    assert_eq!(bench.world.wires().len(), 1, "dialled again");
}

#[test]
fn who_speaks_no_resp_is_not_used() {
    let (mut bench, client) = bench(Config::brokers(["10.0.0.1:6379"]).unwrap());
    assert!(bench.turn().is_pending());
    bench.wire().say("HTTP/1.1 400 Bad Request\r\n\r\n");
    bench.settle();
    let fleet = client.fleet();
    assert!(!fleet[0].ready);
    let why = fleet[0].unready.clone().unwrap();
    assert!(why.detail.contains("HTTP"), "{why:?}");
}

#[test]
fn a_dropped_driver_leaves_nobody_waiting() {
    let (mut bench, client) = bench(Config::brokers(["10.0.0.1:6379"]).unwrap());
    let mut events = client.events();
    let mut taken = sending(&client, Policy::AtLeastOnce);
    let mut fed = Box::pin(client.feed(Sub::new(TopicSpec::new("t", 1).unwrap(), "g")));
    assert!(poll(&mut fed).is_pending());
    // The first one yields.
    assert!(bench.turn().is_pending() && bench.turn().is_pending());
    let Poll::Ready(Ok(feed)) = poll(&mut fed) else { panic!("not subscribed") };
    let mut untaken = sending(&client, Policy::AtLeastOnce);
    let mut late_events = client.events();
    let mut until_ready = Box::pin(client.ready());
    assert!(poll(&mut until_ready).is_pending());

    drop(bench.driver);
    assert!(matches!(poll(&mut taken), Poll::Ready(Err(Error::Stopped))));
    assert!(matches!(poll(&mut untaken), Poll::Ready(Err(Error::Stopped))));
    assert_eq!(poll(&mut until_ready), Poll::Ready(Err(Stopped)));
    assert!(matches!(feed.queue().poll_next(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)));
    assert!(matches!(poll(&mut pin!(late_events.next())), Poll::Ready(None)));
    let rest = core::iter::from_fn(|| match poll(&mut pin!(events.next())) {
        Poll::Ready(event) => event,
        Poll::Pending => panic!("the events do not end"),
    });
    drop(rest.collect::<Vec<_>>());
    assert!(matches!(poll(&mut sending_after(&client)), Poll::Ready(Err(Error::Stopped))));
}

fn sending_after(client: &Client) -> Pin<Box<dyn Future<Output = Result<Outcome, Error>> + '_>> {
    Box::pin(client.submit(message(Policy::AtLeastOnce)))
}

#[test]
fn closing_answers_and_ends_the_driver() {
    let (mut bench, client) = ready();
    let other = client.clone();
    let mut sent = sending(&other, Policy::AtLeastOnce);
    let mut closed = Box::pin(client.close(Duration::from_secs(1)));
    assert!(poll(&mut closed).is_pending());
    bench.settle();
    assert!(matches!(poll(&mut sent), Poll::Ready(Ok(_))), "what was under way is finished");
    match poll(&mut closed) {
        Poll::Ready(Ok(report)) => assert_eq!(report.failed, 0),
        other => panic!("{other:?}"),
    }
    drop(bench.driver);
    assert!(matches!(poll(&mut sending_after(&other)), Poll::Ready(Err(Error::Stopped))));
}

#[test]
fn without_handles_the_driver_ends_by_itself() {
    let (mut bench, client) = ready();
    drop(client);
    assert_eq!(bench.wakes.take(), 1, "the last handle wakes it");
    for _ in 0..100 {
        if bench.turn().is_ready() {
            return;
        }
        bench.world.wires().iter().for_each(|wire| serve(wire, &mut bench.entries));
        if bench.wakes.take() == 0 {
            bench.world.pass_to_the_alarm();
        }
    }
    panic!("it goes on");
}

/// What was done to entries, in order of its arrival: the command's name, or the script's that gives back.
fn settled(wire: &Wire) -> Vec<String> {
    let ends = wire.ends();
    let all = String::from_utf8_lossy(&ends.written.concat()).into_owned();
    let mut found: Vec<(usize, String)> = Vec::new();
    for (what, mark) in [("ack", "XACK"), ("release", "'XCLAIM', KEYS[1], ARGV[1], '@free'")] {
        found.extend(all.match_indices(mark).map(|(at, _)| (at, what.into())));
    }
    found.sort();
    found.into_iter().map(|(_, what)| what).collect()
}

#[test]
fn what_was_not_taken_is_given_back_when_a_subscription_ends() {
    let (mut bench, client) = ready();
    let command_wire = bench.wire();
    bench.entries = ["1-1", "1-2", "1-3"].into();
    let mut fed = Box::pin(client.feed(Sub::new(TopicSpec::new("t", 1).unwrap(), "g")));
    assert!(poll(&mut fed).is_pending());
    bench.settle();
    let Poll::Ready(Ok(feed)) = poll(&mut fed) else { panic!("not subscribed") };
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(delivery)) = feed.queue().poll_next(&mut cx) else { panic!("nothing delivered") };
    assert_eq!(delivery.entry().seq, 1);

    let settle = |ticket| Said::Settle { delivery: delivery.delivery, verdict: Verdict::Done, ticket: Some(ticket) };
    let mut receipt = client.inbox().push_with_ticket(settle);
    assert!(poll(&mut receipt).is_pending());
    bench.settle();
    assert!(matches!(poll(&mut receipt), Poll::Ready(Ok(Completion::Settled(Settled::Ok)))));
    let mut again = client.inbox().push_with_ticket(settle);
    bench.settle();
    assert!(matches!(poll(&mut again), Poll::Ready(Ok(Completion::Settled(Settled::Fenced)))), "it is settled already");

    let queue = Arc::clone(feed.queue());
    let mut stopped = Box::pin(feed.stop(Duration::from_secs(1)));
    assert!(poll(&mut stopped).is_pending());
    for _ in 0..10 {
        bench.settle();
        if poll(&mut stopped) == Poll::Ready(Ok(())) {
            assert_eq!(settled(&command_wire), ["ack", "release"]);
            assert!(matches!(queue.poll_next(&mut cx), Poll::Ready(None)));
            return;
        }
        bench.world.pass_to_the_alarm();
    }
    panic!("the subscription does not end");
}

#[test]
fn verdicts_whose_receipts_were_dropped_share_an_acknowledgement() {
    let (mut bench, client) = ready();
    let wire = bench.wire();
    bench.entries = ["1-1", "1-2", "1-3"].into();
    let group = client.topic("t").group("g");
    let mut joining = Box::pin(group.subscribe());
    assert!(joining.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    bench.settle();
    let Poll::Ready(Ok(mut jobs)) = poll(&mut joining) else { panic!("not subscribed") };
    let mut next = || match poll(&mut pin!(jobs.next())) {
        Poll::Ready(Some(job)) => job,
        other => panic!("{other:?}"),
    };
    let (one, two, three) = (next(), next(), next());
    drop(one.done());
    let mut receipt = two.done();
    drop(three.done());
    bench.settle();
    assert_eq!(settled(&wire), ["ack", "ack"], "one for two, one for who waits for it");
    assert_eq!(poll(&mut receipt), Poll::Ready(Ok(Settled::Ok)));
}

#[test]
fn a_timer_is_answered_when_its_time_is_over() {
    let (mut bench, client) = ready();
    let late = Duration::from_millis(700);
    let mut late = client.inbox().push_with_ticket(|ticket| Said::WakeAt { after: late, ticket });
    let soon = Duration::from_millis(300);
    let mut soon = client.inbox().push_with_ticket(|ticket| Said::WakeAt { after: soon, ticket });
    bench.settle();
    bench.world.pass(Duration::from_millis(299));
    bench.settle();
    assert!(poll(&mut soon).is_pending());
    bench.world.pass_to_the_alarm();
    bench.settle();
    assert!(matches!(poll(&mut soon), Poll::Ready(Ok(Completion::Timer))));
    assert!(poll(&mut late).is_pending());
    bench.world.pass_to_the_alarm();
    bench.settle();
    assert!(matches!(poll(&mut late), Poll::Ready(Ok(Completion::Timer))));
}

#[test]
fn an_inspection_shows_what_was_done() {
    let (mut bench, client) = ready();
    let mut looked = Box::pin(client.inspect());
    assert!(poll(&mut looked).is_pending());
    bench.settle();
    match poll(&mut looked) {
        Poll::Ready(Ok(inspection)) => {
            assert_eq!(inspection.fleet.len(), 1);
            assert!(inspection.stats.commands > 0);
        }
        other => panic!("{other:?}"),
    }
}
