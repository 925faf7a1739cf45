//! Topics, groups, runners and dead letters against real servers.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flota_tokio::topic::Message;
use flota_tokio::{Batch, Client, Job, Letters, Reject};
use support::{Redis, client_of, redis_is_there, within};
use tokio::sync::Notify;

async fn fleet(servers: usize) -> (Vec<Redis>, Client) {
    let servers = Redis::several(servers, &[]);
    let client = client_of(&servers).await;
    (servers, client)
}

async fn send(client: &Client, topic: &str, partitions: u32, messages: usize) {
    let topic = client.topic(topic).partitions(partitions);
    let results = within(topic.send_all((0..messages).map(|n| Message::new(n.to_string()).key(n.to_string())))).await;
    assert_eq!(results.len(), messages);
    for result in results {
        result.unwrap();
    }
}

/// Counts down, and tells when it is done.
#[derive(Clone)]
struct Left(Arc<(AtomicUsize, Notify)>);

impl Left {
    fn new(count: usize) -> Self {
        Self(Arc::new((AtomicUsize::new(count), Notify::new())))
    }

    fn one(&self) {
        if self.0.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.1.notify_one();
        }
    }

    async fn none(&self) {
        self.0.1.notified().await;
    }
}

#[tokio::test]
async fn a_run_handles_everything_and_leaves_nothing_behind() {
    if !redis_is_there() {
        return;
    }
    let (_servers, client) = fleet(2).await;
    send(&client, "orders", 2, 1_000).await;
    let left = Left::new(1_000);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let run = client.topic("orders").partitions(2).group("billing").run({
        let (left, seen) = (left.clone(), Arc::clone(&seen));
        move |job: Job| {
            let (left, seen) = (left.clone(), Arc::clone(&seen));
            async move {
                assert_eq!(job.key(), Some(job.body()));
                assert_eq!(job.attempt(), 1);
                if job.body().ends_with(b"7") {
                    tokio::task::yield_now().await;
                }
                seen.lock().unwrap().insert(job.body().to_vec());
                left.one();
                Ok::<_, std::io::Error>(())
            }
        }
    });
    let stopper = run.stopper();
    let run = tokio::spawn(run);
    within(left.none()).await;
    stopper.stop();
    within(run).await.unwrap().unwrap();
    assert_eq!(seen.lock().unwrap().len(), 1_000);

    let reports = within(client.admin().topics(Some("orders"))).await.unwrap();
    assert_eq!(reports.len(), 1);
    let report = &reports[0];
    assert_eq!((report.topic.as_str(), report.length, report.pending, report.lag), ("orders", 1_000, 0, 0));
    assert_eq!(report.brokers.len(), 2);
    for broker in &report.brokers {
        assert_eq!(broker.partitions.iter().map(|partition| partition.partition).collect::<Vec<_>>(), [0, 1]);
        for partition in &broker.partitions {
            assert_eq!(partition.groups[0].group, "billing");
            assert_eq!(partition.groups[0].oldest_ms, None);
        }
    }
    assert!(within(client.admin().topics(Some("nobody"))).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawned_handlers_and_batches_handle_everything() {
    if !redis_is_there() {
        return;
    }
    let (_servers, client) = fleet(2).await;
    send(&client, "images", 1, 500).await;
    let left = Left::new(500);
    let spawned = client.topic("images").group("resize").run_on(|task| drop(tokio::spawn(task)), {
        let left = left.clone();
        move |job: Job| {
            let left = left.clone();
            async move {
                drop(job);
                left.one();
            }
        }
    });
    let stopper = spawned.stopper();
    let spawned = tokio::spawn(spawned);
    within(left.none()).await;
    stopper.stop();
    within(spawned).await.unwrap().unwrap();

    let left = Left::new(500);
    let largest = Arc::new(AtomicUsize::new(0));
    let batches = client.topic("images").group("index").run_batch(64, Duration::from_millis(20), {
        let (left, largest) = (left.clone(), Arc::clone(&largest));
        move |batch: Batch| {
            largest.fetch_max(batch.len(), Ordering::SeqCst);
            let left = left.clone();
            async move { batch.iter().for_each(|_| left.one()) }
        }
    });
    let stopper = batches.stopper();
    let batches = tokio::spawn(batches);
    within(left.none()).await;
    stopper.stop();
    within(batches).await.unwrap().unwrap();
    assert_eq!(largest.load(Ordering::SeqCst), 64);
    let report = within(client.admin().topics(None)).await.unwrap().remove(0);
    assert_eq!((report.pending, report.lag), (0, 0));
    assert_eq!(report.brokers[0].partitions[0].groups.len(), 2);
}

#[tokio::test]
async fn dead_letters_are_listed_replayed_once_and_dropped() {
    if !redis_is_there() {
        return;
    }
    let (_servers, client) = fleet(2).await;
    send(&client, "mail", 2, 20).await;
    let mail = client.topic("mail").partitions(2);
    let left = Left::new(20);
    let run = mail.group("smtp").run({
        let left = left.clone();
        move |job: Job| {
            left.one();
            async move { if job.body().len() == 1 { Err(Reject::new("no such box")) } else { Ok(()) } }
        }
    });
    let stopper = run.stopper();
    let run = tokio::spawn(run);
    within(left.none()).await;
    stopper.stop();
    within(run).await.unwrap().unwrap();

    let admin = client.admin();
    let dead = within(admin.dead_letters("mail")).await.unwrap();
    assert_eq!(dead.len(), 10);
    for letter in &dead {
        assert_eq!((letter.group.as_str(), letter.reason.as_str(), letter.deliveries), ("smtp", "no such box", 1));
        assert_eq!(letter.body.len(), 1);
        assert!(letter.first_ms <= letter.dead_ms && letter.first_ms > 1_700_000_000_000);
    }
    assert_eq!(within(admin.topics(Some("mail"))).await.unwrap()[0].dead, 10);

    let three: Vec<String> = dead[..3].iter().map(|letter| letter.id.clone()).chain(["unknown".into()]).collect();
    let (one, other) =
        tokio::join!(admin.replay("mail", Letters::Ids(three.clone())), admin.replay("mail", Letters::Ids(three)));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_eq!(one.replayed + other.replayed, 3, "of two replays at once one brings it back: {one:?} {other:?}");
    assert!(one.unknown.contains(&"unknown".into()));
    let report = &within(admin.topics(Some("mail"))).await.unwrap()[0];
    assert_eq!((report.length, report.dead, report.lag), (20, 7, 3));
    assert!(report.brokers.iter().flat_map(|b| &b.partitions).flat_map(|p| &p.groups).any(|g| g.oldest_ms.is_some()));

    // They come back to the group as they were.
    let mut jobs = within(mail.group("smtp").subscribe()).await.unwrap();
    let mut again = BTreeSet::new();
    for _ in 0..3 {
        let job = within(jobs.next()).await.unwrap();
        again.insert(job.id().to_owned());
        assert_eq!(job.body().len(), 1);
        assert_eq!(within(job.done()).await, Ok(flota_tokio::op::Settled::Ok));
    }
    assert_eq!(again, dead[..3].iter().map(|letter| letter.id.clone()).collect());
    within(jobs.close(Duration::from_secs(5))).await.unwrap();

    let dropped = within(admin.drop("mail", Letters::All)).await.unwrap();
    assert_eq!((dropped.dropped, dropped.gone), (7, 0));
    assert!(within(admin.dead_letters("mail")).await.unwrap().is_empty());
    let error = within(admin.dead_letters("a:b")).await.unwrap_err().to_string();
    assert!(error.contains("\"a:b\" is not a name"), "{error}");
}
