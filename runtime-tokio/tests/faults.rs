//! What operators and accidents do to a server while a consumer is at work: it goes on by itself, without a fuss.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use flota_tokio::{Client, Subscription};
use support::{Redis, client_of, redis_is_there, stream, within};

/// Failing commands that one event may cost.
const FAILURES: u64 = 3;

/// A server with a consumer of both partitions of a topic.
struct Scene {
    server: Redis,
    client: Client,
    jobs: Subscription,
    sent: usize,
}

impl Scene {
    async fn start() -> Self {
        let servers = Redis::several(1, &[]);
        let client = client_of(&servers).await;
        let jobs = within(client.topic("work").partitions(2).group("all").subscribe()).await.unwrap();
        let mut scene = Self { server: { servers }.remove(0), client, jobs, sent: 0 };
        scene.goes_on().await;
        scene
    }

    /// Messages to both partitions arrive and can be settled, one of each by a script.
    async fn goes_on(&mut self) {
        let topic = self.client.topic("work").partitions(2);
        let mut missing = BTreeSet::new();
        for n in self.sent..self.sent + 4 {
            let body = format!("message {n}");
            within(topic.send(body.clone())).await.unwrap();
            missing.insert(body.into_bytes());
        }
        self.sent += 4;
        while !missing.is_empty() {
            let job = within(self.jobs.next()).await.unwrap();
            missing.remove(job.body());
            let receipt = if missing.len() < 2 { job.reject("not this one") } else { job.done() };
            within(receipt).await.unwrap();
        }
    }

    /// How many commands fail from an event until a second after the consumer has gone on.
    async fn failures_of(&mut self, what: &str, event: impl AsyncFnOnce(&mut Redis)) {
        let before = self.server.failures();
        let begun = Instant::now();
        event(&mut self.server).await;
        self.goes_on().await;
        let took = begun.elapsed();
        // Whatever goes on failing does so within this time.
        tokio::time::sleep(Duration::from_secs(1)).await;
        // A new process has counted from zero.
        let now = self.server.failures();
        let failed = now.checked_sub(before).unwrap_or(now);
        println!("{what}: went on after {took:?}, {failed} failing commands");
        assert!(failed <= FAILURES, "{what}: {failed} failing commands");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections() {
    if !redis_is_there() {
        return;
    }
    let mut scene = Scene::start().await;
    for (what, blocked) in [("the reader killed", true), ("the command connection killed", false)] {
        let kill = async |server: &mut Redis| {
            let mut wire = server.wire();
            let me = wire.ask(&["CLIENT", "ID"]).remove(0);
            let list = wire.ask(&["CLIENT", "LIST"]).remove(0);
            for client in list.lines() {
                let field =
                    |name: &str| client.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('=')).unwrap();
                if field("id") != me && field("flags").contains('b') == blocked {
                    assert_eq!(wire.ask(&["CLIENT", "KILL", "ID", field("id")]), ["1"]);
                }
            }
        };
        scene.failures_of(what, kill).await;
    }
    let all = async |server: &mut Redis| drop(server.ask(&["CLIENT", "KILL", "TYPE", "normal"]));
    scene.failures_of("all connections killed", all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts() {
    if !redis_is_there() {
        return;
    }
    let mut scene = Scene::start().await;
    let flush = async |server: &mut Redis| drop(server.ask(&["SCRIPT", "FLUSH"]));
    scene.failures_of("SCRIPT FLUSH", flush).await;
    let both = async |server: &mut Redis| {
        server.ask(&["SCRIPT", "FLUSH"]);
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    };
    scene.failures_of("SCRIPT FLUSH and all connections killed", both).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_partition() {
    if !redis_is_there() {
        return;
    }
    let mut scene = Scene::start().await;
    let delete = async |server: &mut Redis| drop(server.ask(&["DEL", &stream("work", 1)]));
    scene.failures_of("DEL of one partition", delete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_server() {
    if !redis_is_there() {
        return;
    }
    let mut scene = Scene::start().await;
    let flush = async |server: &mut Redis| drop(server.ask(&["FLUSHALL"]));
    scene.failures_of("FLUSHALL", flush).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_nothing_left() {
    if !redis_is_there() {
        return;
    }
    let mut scene = Scene::start().await;
    let restart = async |server: &mut Redis| {
        server.kill();
        server.start_again();
    };
    scene.failures_of("a restart with an empty folder", restart).await;
}
