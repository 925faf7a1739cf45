//! What "stored" is worth: when memory is full, and when the server dies.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use flota_tokio::config::Config;
use flota_tokio::op::Settled;
use support::{Redis, client_of, client_with, redis_is_there, stream, within};
use tokio::task::JoinSet;

const LARGE: usize = 64 << 10;

fn large(n: usize) -> Vec<u8> {
    let mut body = vec![b'x'; LARGE];
    body[..8].copy_from_slice(format!("{n:08}").as_bytes());
    body
}

fn number(body: &[u8]) -> usize {
    std::str::from_utf8(&body[..8]).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_makes_sends_wait_and_room_lets_them_go_on() {
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(1, &["--maxmemory-policy", "noeviction"]);
    let server = &servers[0];
    let client = client_of(&servers).await;
    let topic = client.topic("full");
    let mut jobs = within(topic.group("all").in_flight(4).subscribe()).await.unwrap();
    within(topic.send(large(0))).await.unwrap();
    let first = within(jobs.next()).await.unwrap();
    let limit = server.info("memory", "used_memory") + (8 << 20);
    server.ask(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);

    // One after the other until one cannot be stored in time.
    let (mut stored, mut refused) = (vec![0], Vec::new());
    let hurried = topic.clone().wait(Duration::from_millis(600));
    for n in 1.. {
        match within(hurried.send(large(n))).await {
            Ok(_) => stored.push(n),
            Err(error) => {
                println!("{} messages of 64 KiB were stored, then: {error}", stored.len());
                refused.push(n);
                break;
            }
        }
    }
    assert!(stored.len() > 50, "{}", stored.len());
    let next = refused[0] + 1;
    let waiting = tokio::spawn({
        let topic = topic.clone();
        async move { topic.send(large(next)).await }
    });

    // Consuming needs no memory. What has been handled makes room.
    let mut handled = BTreeSet::new();
    let half = stored.len() / 2;
    let mut job = first;
    loop {
        assert!(handled.insert(number(job.body())), "{job:?} came twice");
        assert_eq!(within(job.done()).await, Ok(Settled::Ok));
        if handled.len() == half {
            break;
        }
        job = within(jobs.next()).await.unwrap();
    }
    assert!(!waiting.is_finished(), "there is no room yet");
    let half_done = Instant::now();
    // What is done with is removed by the consumer itself, within fifteen seconds.
    tokio::time::timeout(Duration::from_secs(18), waiting).await.expect("no room was made").unwrap().unwrap();
    println!("half of it handled: the one that waited was stored {:?} later", half_done.elapsed());
    stored.push(next);

    while handled.len() < stored.len() {
        let job = within(jobs.next()).await.unwrap();
        assert!(handled.insert(number(job.body())), "{job:?} came twice");
        assert_eq!(within(job.done()).await, Ok(Settled::Ok));
    }
    assert_eq!(handled, stored.iter().copied().collect());
    println!("{} sent, {} refused, {} handled", next + 1, refused.len(), handled.len());
    assert_eq!(next + 1 - refused.len(), handled.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_survives_a_kill_when_the_server_writes_it_down() {
    const MESSAGES: usize = 3_000;
    if !redis_is_there() {
        return;
    }
    let mut server = Redis::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let client = client_with(Config::brokers([server.address.to_string()]).unwrap()).await;
    let topic = client.topic("safe");
    // The topic is known to the server before many ask at once.
    within(topic.send("first")).await.unwrap();
    let mut sends = JoinSet::new();
    for n in 0..MESSAGES {
        let topic = topic.clone();
        sends.spawn(async move { topic.send(n.to_string()).await });
    }
    let mut resolved = Vec::new();
    while resolved.len() < MESSAGES / 3 {
        resolved.push(within(sends.join_next()).await.unwrap().unwrap().unwrap());
    }
    let mut gone = client.events();
    server.kill();
    // What was answered before it died has resolved when its end is seen.
    within(gone.next()).await.unwrap();
    while let Some(stored) = sends.try_join_next() {
        resolved.push(stored.unwrap().unwrap());
    }
    let before = resolved.len();
    server.start_again();
    while let Some(stored) = within(sends.join_next()).await {
        resolved.push(stored.unwrap().unwrap());
    }
    assert_eq!(resolved.len(), MESSAGES);

    let words = server.ask(&["XRANGE", &stream("safe", 0), "-", "+"]);
    let mut entries = BTreeMap::new();
    for entry in words.chunks(5) {
        let id = entry[1..].chunks(2).find(|field| field[0] == "id").unwrap();
        entries.insert(entry[0].clone(), id[1].clone());
    }
    let again = entries.len() - MESSAGES - 1;
    println!("{before} of {MESSAGES} had resolved when the server was killed; {again} are there twice");
    assert!(before < MESSAGES, "it was killed too late to tell");
    for stored in resolved {
        assert_eq!(entries.get(&stored.entry.to_string()), Some(&stored.id.to_string()), "{stored:?}");
    }
    let stats = within(client.inspect()).await.unwrap().stats;
    assert!(again as u64 <= stats.ambiguous_again, "{again} > {}", stats.ambiguous_again);
}
