//! Retries and scheduled messages against real servers.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::{Duration, Instant, SystemTime};

use flota_tokio::op::Settled;
use flota_tokio::topic::MessageId;
use flota_tokio::{Client, Message};
use support::{Redis, client_of, redis_is_there, within};

async fn fleet() -> (Redis, Client) {
    let server = Redis::start();
    let client = client_of(std::slice::from_ref(&server)).await;
    (server, client)
}

#[tokio::test]
async fn a_retry_is_the_groups_own_and_says_which_attempt_it_is() {
    if !redis_is_there() {
        return;
    }
    let (server, client) = fleet().await;
    let orders = client.topic("orders");
    let (base, cap) = (Duration::from_millis(100), Duration::from_millis(200));
    let mut failing = within(orders.group("failing").retry(base, cap).max_deliveries(3).subscribe()).await.unwrap();
    let mut other = within(orders.group("other").subscribe()).await.unwrap();
    orders.send(Message::new("x").header("a", "b")).await.unwrap();

    let mut last = Instant::now();
    for attempt in 1..=3 {
        let job = within(failing.next()).await.unwrap();
        assert_eq!((job.attempt(), job.is_retry(), job.body()), (attempt, attempt > 1, &b"x"[..]));
        assert_eq!(job.header("a"), Some(&b"b"[..]));
        if attempt > 1 {
            assert!(last.elapsed() >= base, "attempt {attempt} came after {:?}", last.elapsed());
        }
        last = Instant::now();
        assert_eq!(within(job.retry("no")).await, Ok(Settled::Ok));
    }
    let dead = within(client.admin().dead_letters("orders")).await.unwrap();
    assert_eq!((dead.len(), dead[0].attempts, dead[0].deliveries), (1, 3, 1));
    let job = within(other.next()).await.unwrap();
    assert_eq!(job.attempt(), 1);
    within(job.done()).await.unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(300), other.next()).await;
    assert!(nothing.is_err(), "the other group saw a retry: {nothing:?}");
    assert_eq!(
        server.count(&["EXISTS", "streaming:mq:retry:orders:failing:0", "streaming:mq:retry:orders:failing"]),
        0
    );
}

#[tokio::test]
async fn scheduled_messages_come_when_they_are_due_to_every_group_and_can_be_cancelled() {
    if !redis_is_there() {
        return;
    }
    let (server, client) = fleet().await;
    let orders = client.topic("orders");
    let mut one = within(orders.group("one").subscribe()).await.unwrap();
    let mut two = within(orders.group("two").subscribe()).await.unwrap();
    let began = Instant::now();
    let stored = within(orders.send(Message::new("x").delay(Duration::from_secs(2)))).await.unwrap();
    assert!(stored.due.is_some());
    // The same id waits once, and what is cancelled does not come.
    let again = within(orders.send(Message::new("x").id(stored.id).delay(Duration::from_secs(9)))).await.unwrap();
    assert_eq!(again.due, stored.due);
    let far = SystemTime::now() + Duration::from_secs(3_600);
    let later: Vec<MessageId> = {
        let sent = within(orders.send_all((0..3).map(|n| Message::new(n.to_string()).at(far)))).await;
        sent.into_iter().map(|stored| stored.unwrap().id).collect()
    };
    let scheduled = async || within(client.admin().topics(Some("orders"))).await.unwrap()[0].scheduled;
    assert_eq!(scheduled().await, 4);
    assert_eq!(within(client.admin().cancel("orders", &later[..2])).await.unwrap(), 2);
    assert_eq!(within(client.admin().cancel("orders", &later[..2])).await.unwrap(), 0);
    assert_eq!(scheduled().await, 2);
    for jobs in [&mut one, &mut two] {
        let job = within(jobs.next()).await.unwrap();
        assert_eq!((job.body(), job.id(), job.attempt()), (&b"x"[..], stored.id.to_string().as_str(), 1));
        assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
        within(job.done()).await.unwrap();
    }
    assert_eq!(scheduled().await, 1);
    assert_eq!(server.count(&["ZCARD", "streaming:mq:delay:orders:0"]), 1);
}

/// However much is due at once, no command keeps the server busy for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_that_are_due_at_once_hold_nobody_up() {
    const COUNT: usize = 100_000;
    const SLOW_US: u64 = 5_000;
    if !redis_is_there() {
        return;
    }
    let (server, client) = fleet().await;
    let orders = client.topic("orders");
    let due = SystemTime::now() + Duration::from_secs(3_600);
    let sent = orders.send_all((0..COUNT).map(|n| Message::new(n.to_string()).at(due))).await;
    assert!(sent.iter().all(Result::is_ok));
    assert_eq!(server.count(&["ZCARD", "streaming:mq:delay:orders:0"]), COUNT as u64);
    // Their time comes for all of them in the same moment.
    server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "100000000"]);
    let all_due = "local due = redis.call('ZRANGE', KEYS[1], 0, -1)
        for _, item in ipairs(due) do redis.call('ZADD', KEYS[1], 1, item) end
        redis.call('ZADD', KEYS[2], 1, '0')
        return #due";
    server.ask(&["EVAL", all_due, "2", "streaming:mq:delay:orders:0", "streaming:mq:delay:orders"]);
    server.ask(&["SLOWLOG", "RESET"]);
    server.ask(&["CONFIG", "RESETSTAT"]);
    server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", &SLOW_US.to_string()]);

    let mut jobs = within(orders.group("g").in_flight(1_000).subscribe()).await.unwrap();
    for _ in 0..COUNT {
        within(jobs.next()).await.unwrap().done();
    }
    let scripts = server.ask(&["INFO", "commandstats"]).remove(0);
    let scripts = scripts.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap().to_owned();
    let field = |name: &str| {
        let value = scripts.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        value.unwrap().split('.').next().unwrap().parse::<u64>().unwrap()
    };
    let slow = server.count(&["SLOWLOG", "LEN"]);
    println!(
        "{} scripts of {} us on average, {slow} commands over {SLOW_US} us",
        field("calls"),
        field("usec_per_call")
    );
    assert!(field("calls") >= COUNT as u64 / 100, "{scripts}");
    assert!(field("usec_per_call") < SLOW_US / 2, "{scripts}");
    // What takes long of itself takes long each time; a machine that does something else for a moment is another matter.
    assert!(slow <= field("calls") / 200, "{slow} commands took longer than {SLOW_US} us: {scripts}");
}
