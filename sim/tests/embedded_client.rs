//! The client on embedded brokers: what applications do, without a server.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use flota_sim::embedded::{self, Embedded, Fleet, Options};
use flota_tokio::topic::Message;
use flota_tokio::{Config, connect};

/// What hangs fails.
async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("in time")
}

#[tokio::test]
async fn a_message_is_sent_and_handled() {
    let flota = embedded::client().await.unwrap();
    let orders = flota.topic("orders");
    within(orders.send("4 apples")).await.unwrap();
    let mut billing = within(orders.group("billing").subscribe()).await.unwrap();
    let job = within(billing.next()).await.unwrap();
    assert_eq!(job.body(), b"4 apples");
    within(job.done()).await.unwrap();
}

#[tokio::test]
async fn a_message_that_fails_comes_again_and_one_that_is_refused_is_a_dead_letter() {
    let flota = embedded::client().await.unwrap();
    let orders = flota.topic("orders");
    within(orders.send("bad")).await.unwrap();
    let group = orders.group("billing").retry(Duration::from_millis(10), Duration::from_millis(20));
    let mut billing = within(group.subscribe()).await.unwrap();
    let job = within(billing.next()).await.unwrap();
    assert_eq!(job.attempt(), 1);
    within(job.retry("not now")).await.unwrap();
    let job = within(billing.next()).await.unwrap();
    assert_eq!((job.attempt(), job.body()), (2, &b"bad"[..]));
    within(job.reject("never")).await.unwrap();
    let dead = within(flota.admin().dead_letters("orders")).await.unwrap();
    assert_eq!(dead.len(), 1);
}

#[tokio::test]
async fn three_hundred_messages_over_three_brokers() {
    let fleet = Fleet::start(3).unwrap();
    let client = within(fleet.client()).await.unwrap();
    let topic = client.topic("orders");
    let results = within(topic.send_all((0..300).map(|n| Message::new(n.to_string())))).await;
    let brokers: BTreeSet<_> = results.into_iter().map(|stored| stored.unwrap().broker).collect();
    assert_eq!(brokers.len(), 3);
    let mut jobs = within(topic.group("billing").subscribe()).await.unwrap();
    let mut seen = BTreeSet::new();
    while seen.len() < 300 {
        let job = within(jobs.next()).await.unwrap();
        seen.insert(job.body().to_vec());
        drop(job.done());
    }
}

#[tokio::test]
async fn a_broker_that_was_killed_comes_back_with_its_messages() {
    let folder = std::env::temp_dir().join(format!("flota-embedded-client-{}", std::process::id()));
    let options = Options { dir: Some(folder.clone()), ..Options::default() };
    let broker = Embedded::start(options.clone()).unwrap();
    let address = broker.address();
    let client = connect(Config::brokers([address.to_string()]).unwrap()).await.unwrap();
    let topic = client.topic("orders");
    for n in 0..10 {
        within(topic.send(n.to_string())).await.unwrap();
    }
    broker.kill();
    within(client.until(|fleet| fleet.iter().all(|broker| !broker.ready))).await.unwrap();
    let broker = Embedded::start(Options { address, ..options }).unwrap();
    let mut jobs = within(topic.group("billing").subscribe()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let job = within(jobs.next()).await.unwrap();
        seen.push(String::from_utf8(job.body().to_vec()).unwrap());
        drop(job.done());
    }
    assert_eq!(seen, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    drop(broker);
    std::fs::remove_dir_all(folder).unwrap();
}
