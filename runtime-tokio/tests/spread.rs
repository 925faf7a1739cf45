//! Messages over several real servers: how they spread, how they come together again, and what is left behind.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flota_tokio::config::Config;
use flota_tokio::op::Settled;
use flota_tokio::topic::Message;
use flota_tokio::{Client, Job, connect};
use support::{PATIENCE, Redis, client_of, redis_is_there, stream, within};
use tokio::sync::Semaphore;

async fn send_numbers(client: &Client, topic: &str, messages: usize) {
    let sends = client.topic(topic);
    for result in within(sends.send_all((0..messages).map(|n| Message::new(n.to_string())))).await {
        result.unwrap();
    }
}

#[tokio::test]
async fn three_brokers_take_the_same_share_and_one_consumer_gets_all() {
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(3, &[]);
    let client = client_of(&servers).await;
    send_numbers(&client, "shares", 300).await;
    let lengths: Vec<_> = servers.iter().map(|server| server.count(&["XLEN", &stream("shares", 0)])).collect();
    println!("300 messages over three brokers: {lengths:?}");
    assert!(lengths.iter().all(|length| length.abs_diff(100) <= 1), "{lengths:?}");
    assert_eq!(lengths.iter().sum::<u64>(), 300);
    within(client.close(Duration::from_secs(5))).await.unwrap();

    // Somebody who was not there when they were stored.
    let late = client_of(&servers).await;
    let mut jobs = within(late.topic("shares").group("late").subscribe()).await.unwrap();
    let mut bodies = BTreeSet::new();
    while bodies.len() < 300 {
        let job = within(jobs.next()).await.unwrap();
        assert!(bodies.insert(job.body().to_vec()), "{job:?} came twice");
        job.done();
    }
    assert_eq!(bodies, (0..300).map(|n| n.to_string().into_bytes()).collect());
}

#[tokio::test]
async fn one_in_flight_over_sixty_four_brokers_is_one() {
    const MESSAGES: usize = 640;
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(64, &[]);
    let client = client_of(&servers).await;
    send_numbers(&client, "few", MESSAGES).await;
    let lengths: Vec<_> = servers.iter().map(|server| server.count(&["XLEN", &stream("few", 0)])).collect();
    assert!(lengths.iter().all(|length| *length == 10), "{lengths:?}");

    let (held, most, handled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Semaphore::new(0));
    let handled = Arc::new(handled);
    let begun = Instant::now();
    // As many handlers as it likes: what holds it back is what it may have in flight.
    let run = client.topic("few").group("one").in_flight(1).concurrency(64).run({
        let (held, most, handled) = (Arc::clone(&held), Arc::clone(&most), Arc::clone(&handled));
        move |job: Job| {
            most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let (held, handled) = (Arc::clone(&held), Arc::clone(&handled));
            async move {
                // Long enough for another to come, were it allowed to.
                tokio::time::sleep(Duration::from_millis(1)).await;
                held.fetch_sub(1, Ordering::SeqCst);
                handled.add_permits(1);
                drop(job.done());
            }
        }
    });
    let stopper = run.stopper();
    let run = tokio::spawn(run);
    let all = handled.acquire_many(u32::try_from(MESSAGES).unwrap());
    tokio::time::timeout(4 * PATIENCE, all).await.expect("it takes too long").unwrap().forget();
    let took = begun.elapsed();
    println!("{MESSAGES} messages one at a time over 64 brokers: {took:?}");
    stopper.stop();
    within(run).await.unwrap().unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(handled.available_permits(), 0, "none came twice");
}

#[tokio::test]
async fn five_rounds_of_a_consumer_leave_no_name_and_nothing_pending() {
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(2, &[]);
    let client = client_of(&servers).await;
    let topic = client.topic("rounds").partitions(2);
    let look = |what: &[&str], group: &[&str]| -> Vec<Vec<String>> {
        let streams = (0..2).map(|partition| stream("rounds", partition));
        let asks = streams.flat_map(|stream| servers.iter().map(move |server| (server, stream.clone())));
        asks.map(|(server, stream)| server.ask(&[what, &[stream.as_str()], group].concat())).collect()
    };
    for round in 0..5 {
        let messages = (0..40).map(|n| Message::new(format!("{round} {n}")).key(n.to_string()));
        for result in within(topic.send_all(messages)).await {
            result.unwrap();
        }
        let mut jobs = within(topic.group("visitors").subscribe()).await.unwrap();
        // Some are settled, one is in hand at the end, others are never looked at.
        for _ in 0..10 {
            let job = within(jobs.next()).await.unwrap();
            assert_eq!(within(job.done()).await, Ok(Settled::Ok));
        }
        let in_hand = within(jobs.next()).await.unwrap();
        let closing = tokio::spawn(jobs.close(Duration::from_secs(5)));
        drop(in_hand.done());
        within(closing).await.unwrap().unwrap();
        // What was given back lies with nobody: that is a name too, and the only one.
        for names in look(&["XINFO", "CONSUMERS"], &["visitors"]) {
            let others = names.chunks(6).filter(|consumer| consumer[1] != "@free").count();
            assert_eq!(others, 0, "after round {round}: {names:?}");
        }
    }
    // The rest is there for the next, once.
    let mut jobs = within(topic.group("visitors").subscribe()).await.unwrap();
    let mut left = BTreeSet::new();
    while left.len() < 5 * (40 - 11) {
        let job = within(jobs.next()).await.unwrap();
        assert!(left.insert(job.body().to_vec()), "{job:?} came twice");
        job.done();
    }
    within(jobs.close(Duration::from_secs(5))).await.unwrap();
    for pending in look(&["XPENDING"], &["visitors"]) {
        assert_eq!(pending[0], "0", "{pending:?}");
    }
    let names = look(&["XINFO", "CONSUMERS"], &["visitors"]);
    println!("consumers after the last round: {names:?}");
    assert!(names.iter().flat_map(|names| names.chunks(6)).all(|consumer| consumer[1] == "@free"), "{names:?}");
}

#[tokio::test]
async fn bodies_arrive_byte_for_byte() {
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(2, &[]);
    let client = client_of(&servers).await;
    let million: Vec<u8> = (0..1_048_576_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut sent: Vec<Vec<u8>> = vec![Vec::new(), vec![0], million, (0..=255).collect()];
    sent.extend((0..=255).map(|byte| vec![byte]));
    sent.extend([b"\r\n".to_vec(), b"$-1\r\n*1\r\n".to_vec()]);
    for result in within(client.topic("bodies").send_all(sent.clone())).await {
        result.unwrap();
    }
    let (bodies, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let run = client.topic("bodies").group("readers").run(move |job: Job| {
        bodies.send(job.body().to_vec()).unwrap();
        async move { drop(job.done()) }
    });
    let stopper = run.stopper();
    let run = tokio::spawn(run);
    let mut got = Vec::new();
    while got.len() < sent.len() {
        got.push(within(arrived.recv()).await.unwrap());
    }
    stopper.stop();
    within(run).await.unwrap().unwrap();
    sent.sort();
    got.sort();
    assert!(got == sent, "{} bodies arrived, not all as they were sent", got.len());
}

#[tokio::test]
async fn a_fleet_that_is_not_there_takes_nothing() {
    let closed = support::free_tcp_port();
    let client = connect(Config::brokers([format!("127.0.0.1:{closed}")]).unwrap()).await.unwrap();
    let error = within(client.topic("nowhere").wait(Duration::from_millis(200)).send("lost")).await.unwrap_err();
    assert!(error.to_string().contains("no broker was ready in time"), "{error}");
}
