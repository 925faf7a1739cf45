//! Against real servers: found by their announcements, used, lost, found again.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use flota_core::command::Command;
use flota_tokio::config::Config;
use flota_tokio::op::{Policy, Send};
use flota_tokio::topic::{Message, TopicSpec};
use flota_tokio::{BrokerInfo, Client, FleetEvent, connect};
use support::{Redis, announce, discovery, free_udp_port, redis_is_there, within};
use tokio::task::JoinSet;

fn ready(fleet: &[BrokerInfo]) -> usize {
    fleet.iter().filter(|broker| broker.ready).count()
}

async fn count(client: &Client, broker: &BrokerInfo, key: &str) -> i64 {
    let words = ["XLEN", key].map(|word| word.to_string().into());
    let reply = client.call(broker.id, Command::Raw(words.into())).await.unwrap();
    reply.view().as_int().unwrap()
}

async fn three_hundred_messages() {
    let servers: Vec<_> = (0..3).map(|_| Redis::start()).collect();
    let port = free_udp_port();
    let client = connect(discovery(port)).await.unwrap();
    servers.iter().for_each(|server| announce(server.address, port));
    within(client.until(|fleet| ready(fleet) == 3)).await.unwrap();

    let topic = TopicSpec::new("orders", 1).unwrap();
    let mut sends = JoinSet::new();
    for n in 0..300 {
        let (client, topic) = (client.clone(), topic.clone());
        let message = Message::new(format!("message {n}"));
        let send = Send { topic, message, policy: Policy::AtLeastOnce, wait: None };
        sends.spawn(async move { client.send(send).await });
    }
    let mut by_broker = BTreeMap::new();
    while let Some(stored) = within(sends.join_next()).await {
        *by_broker.entry(stored.unwrap().unwrap().broker).or_insert(0) += 1;
    }
    assert_eq!(by_broker.values().sum::<i64>(), 300);
    for broker in client.fleet().iter() {
        assert_eq!(within(count(&client, broker, topic.partitions()[0].as_str())).await, by_broker[&broker.id]);
        assert!(by_broker[&broker.id] > 50, "{by_broker:?}");
    }
    let inspection = within(client.inspect()).await.unwrap();
    assert_eq!(inspection.stats.stored, 300);
    assert_eq!(inspection.socket.unwrap().dropped, Some(0));
    let report = within(client.close(Duration::from_secs(5))).await.unwrap();
    assert_eq!(report.failed, 0);
}

#[tokio::test]
async fn three_hundred_messages_over_three_announced_brokers() {
    if redis_is_there() {
        three_hundred_messages().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_on_two_workers() {
    if redis_is_there() {
        three_hundred_messages().await;
    }
}

#[tokio::test]
async fn a_send_waits_for_the_first_broker() {
    if !redis_is_there() {
        return;
    }
    let port = free_udp_port();
    let client = connect(discovery(port)).await.unwrap();
    let topic = TopicSpec::new("orders", 1).unwrap();
    let send = Send { topic, message: Message::new("early"), policy: Policy::AtMostOnce, wait: None };
    let sending = tokio::spawn({
        let client = client.clone();
        async move { client.send(send).await }
    });
    let server = Redis::start();
    announce(server.address, port);
    within(sending).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_host_name_is_resolved_at_the_dial() {
    if !redis_is_there() {
        return;
    }
    let server = Redis::start();
    let name = format!("localhost:{}", server.address.port());
    let client = connect(Config::brokers([name]).unwrap()).await.unwrap();
    within(client.ready()).await.unwrap();
}

/// More than a runtime's budget for one task: all of them are heard before the first one's time is up.
#[tokio::test]
async fn a_large_fleet_is_heard_at_once() {
    const FLEET: u16 = 500;
    let port = free_udp_port();
    let client = connect(discovery(port)).await.unwrap();
    // The driver has not run yet: it finds all of these at once.
    for n in 0..FLEET {
        announce(([127, 1, (n / 256) as u8, (n % 256) as u8], 1_000 + n).into(), port);
    }
    within(client.until(|fleet| fleet.len() == usize::from(FLEET))).await.unwrap();
    let inspection = within(client.inspect()).await.unwrap();
    assert_eq!(inspection.stats.datagrams, u64::from(FLEET));
    assert_eq!(inspection.socket.unwrap().dropped, Some(0));
}

#[tokio::test]
async fn a_dead_broker_is_seen_at_once() {
    if !redis_is_there() {
        return;
    }
    let server = Redis::start();
    let client = connect(Config::brokers([server.address.to_string()]).unwrap()).await.unwrap();
    within(client.ready()).await.unwrap();
    let mut events = client.events();
    drop(server);
    within(client.until(|fleet| ready(fleet) == 0)).await.unwrap();
    assert!(matches!(within(events.next()).await, Some(FleetEvent::Broker(_))));
}

#[tokio::test]
async fn the_announcement_port_cannot_be_had() {
    let mut config = discovery(free_udp_port());
    if let Some(discovery) = &mut config.discovery {
        discovery.listen.set_ip(Ipv4Addr::new(192, 0, 2, 1).into());
    }
    let error = connect(config).await.unwrap_err().to_string();
    assert!(error.contains("cannot listen for announcements on udp 192.0.2.1"), "{error}");
}

#[tokio::test]
async fn a_client_dropped_with_its_runtime_running_ends_its_driver() {
    if !redis_is_there() {
        return;
    }
    let server = Redis::start();
    let client = connect(Config::brokers([server.address.to_string()]).unwrap()).await.unwrap();
    within(client.ready()).await.unwrap();
    let mut events = client.events();
    drop(client);
    let last = within(async {
        while events.next().await.is_some() {}
        "ended"
    });
    assert_eq!(last.await, "ended");
}
