//! Connections that end at the worst moment, and those that never end.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flota_tokio::config::{Config, Timing};
use flota_tokio::op::{OpError, Policy, Settled};
use flota_tokio::{Client, Error, connect};
use support::{PATIENCE, Proxy, Redis, client_of, client_with, redis_is_there, stream, within};
use tokio::time::timeout;

/// What a consumer loses it looks for itself: nobody takes it over for being silent.
const NEVER: Duration = Duration::from_secs(3_600);

/// Eight messages appear at once: one read brings them all.
const EIGHT: &str = "for i = 0, 7 do redis.call('XADD', KEYS[1], '*', 'payload', ARGV[1] .. i .. ARGV[2], \
                     'id', '01900000-0000-7000-8000-' .. ARGV[1] .. i) end";

/// What follows the number of a message: nothing that could be told from the frame around it by its looks.
fn rest() -> String {
    "\r\n$11\r\n%1\r\n*-1\r\n:0\r\n".repeat(7)
}

async fn through(proxy: &Proxy) -> Client {
    let mut config = Config::brokers([proxy.address.to_string()]).unwrap();
    let (backoff_base, backoff_cap) = (Duration::from_millis(1), Duration::from_millis(2));
    config.timing = Timing { backoff_base, backoff_cap, ..Timing::default() };
    client_with(config).await
}

/// Cuts one reply at each of every fourth byte; how long a reply was.
async fn cut_at_every_fourth_byte(server: SocketAddr, mut wire: support::Wire, first: usize) -> usize {
    let proxy = Proxy::to(server);
    let client = through(&proxy).await;
    let topic = format!("cut{first}");
    let group = client.topic(&topic).group("all").claim_after(NEVER);
    let mut jobs = within(group.subscribe()).await.unwrap();
    let (stream, rest) = (stream(&topic, 0), rest());
    let (mut bytes, mut twice, mut all) = (usize::MAX, 0, BTreeSet::new());
    let mut at = first;
    while at <= bytes {
        let number = format!("{at:011}");
        proxy.cut_next_read(at);
        wire.ask(&["EVAL", EIGHT, "1", &stream, &number, &rest]);
        let mut missing: BTreeSet<_> = (0..8).map(|i| format!("{number}{i}{rest}").into_bytes()).collect();
        all.extend(missing.iter().cloned());
        while !missing.is_empty() {
            let job = within(jobs.next()).await.unwrap();
            assert!(all.contains(job.body()), "nobody sent {:?}", String::from_utf8_lossy(job.body()));
            twice += usize::from(!missing.remove(job.body()));
            drop(job.done());
        }
        let replies = proxy.replies();
        bytes = *replies.first().expect("a read brought them");
        at += 4;
    }
    let stats = within(client.inspect()).await.unwrap().stats;
    assert_eq!((stats.misshapen, stats.dead), (0, 0));
    println!(
        "replies of {bytes} bytes cut at {} places: {} messages, {twice} of them twice",
        (at - first) / 4,
        all.len()
    );
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reply_cut_at_each_of_its_bytes_costs_no_message_and_is_taken_for_no_other() {
    if !redis_is_there() {
        return;
    }
    let server = Redis::start();
    let begun = Instant::now();
    let quarters =
        [0, 1, 2, 3].map(|first| tokio::spawn(cut_at_every_fourth_byte(server.address, server.wire(), first)));
    for quarter in quarters {
        // What is found late, by some timer, adds up to more.
        let bytes = timeout(2 * PATIENCE, quarter).await.expect("it takes too long").unwrap();
        assert!((1_800..3_000).contains(&bytes), "{bytes} bytes");
    }
    println!("all cuts: {:?}", begun.elapsed());
}

/// Sends batches and cuts their answers at each of every fourth byte; how many sends had no answer.
async fn cut_sends(server: SocketAddr, mut wire: support::Wire, first: usize, policy: Policy) -> usize {
    const BATCH: usize = 32;
    const ANSWERS: usize = BATCH * "$15\r\n1700000000000-0\r\n".len();
    let proxy = Proxy::to(server);
    let client = through(&proxy).await;
    let name = format!("sends{first}");
    let topic = client.topic(&name).policy(policy);
    // Registers the topic, so that from here on there are answers to sends alone.
    within(topic.send("first")).await.unwrap();
    let (mut stored, mut unknown) = (BTreeMap::new(), 0);
    for at in (first..ANSWERS).step_by(4) {
        within(client.ready()).await.unwrap();
        proxy.cut_answers(at);
        let bodies: Vec<_> = (0..BATCH).map(|n| format!("{at} {n}")).collect();
        for (result, body) in within(topic.send_all(bodies.clone())).await.into_iter().zip(bodies) {
            match result {
                Ok(place) => drop(stored.insert(place.entry.to_string(), (body, place.id.to_string()))),
                Err(Error::Op(OpError::Ambiguous(_))) if policy == Policy::AtMostOnce => unknown += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(proxy.has_cut(), "{at}");
    }
    let words = wire.ask(&["XRANGE", &stream(&name, 0), "-", "+"]);
    let (mut there, mut ids) = (BTreeMap::new(), BTreeSet::new());
    for entry in words.chunks(5) {
        let field = |name: &str| entry[1..].chunks(2).find(|field| field[0] == name).unwrap()[1].clone();
        there.insert(&entry[0], (field("payload"), field("id")));
        ids.insert(field("id"));
    }
    for (entry, what) in &stored {
        assert_eq!(there.get(entry), Some(what), "the answer to another command was taken for this one's");
    }
    if policy == Policy::AtMostOnce {
        assert_eq!(ids.len(), there.len(), "none is stored twice");
    }
    println!("{policy:?}: {} stored, {unknown} unknown, {} twice", stored.len(), there.len() - ids.len());
    assert_eq!(within(client.inspect()).await.unwrap().stats.misshapen, 0);
    unknown
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_to_sends_cut_at_each_of_their_bytes_are_taken_for_no_others() {
    if !redis_is_there() {
        return;
    }
    let server = Redis::start();
    let policies = [Policy::AtLeastOnce, Policy::AtMostOnce, Policy::AtLeastOnce, Policy::AtMostOnce];
    let quarters: Vec<_> = policies
        .iter()
        .enumerate()
        .map(|(first, policy)| tokio::spawn(cut_sends(server.address, server.wire(), first, *policy)))
        .collect();
    for (quarter, policy) in quarters.into_iter().zip(policies) {
        assert_eq!(quarter.await.unwrap() > 0, policy == Policy::AtMostOnce);
    }
}

/// How long after its connections have gone silent a consumer gets a message that was sent then.
async fn silence(freeze: impl Fn(&Proxy)) -> Duration {
    let servers = Redis::several(1, &[]);
    let proxy = Proxy::to(servers[0].address);
    let (direct, client) = (client_of(&servers).await, through(&proxy).await);
    let group = client.topic("silence").group("all").claim_after(NEVER);
    let mut jobs = within(group.subscribe()).await.unwrap();
    let topic = direct.topic("silence");
    within(topic.send("before")).await.unwrap();
    // With nothing unanswered, nothing but the read itself can miss an answer.
    assert_eq!(within(within(jobs.next()).await.unwrap().done()).await, Ok(Settled::Ok));

    freeze(&proxy);
    let frozen = Instant::now();
    // The server hands it to the silent connection, which still waits for one.
    within(topic.send("into the silence")).await.unwrap();
    let job = within(jobs.next()).await.unwrap();
    let took = frozen.elapsed();
    assert_eq!(job.body(), b"into the silence");
    assert_eq!(within(job.done()).await, Ok(Settled::Ok));
    let settled = frozen.elapsed();
    within(topic.send("after")).await.unwrap();
    assert_eq!(within(jobs.next()).await.unwrap().body(), b"after");
    println!("what was sent into the silence came after {took:?} and was settled after {settled:?}");
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_goes_silent_is_given_up_when_its_answer_is_overdue() {
    if !redis_is_there() {
        return;
    }
    let Timing { block, block_margin, .. } = Timing::default();
    let took = silence(Proxy::freeze_readers).await;
    assert!(took <= block + block_margin + Duration::from_millis(500), "{took:?}");
}

/// What the lost read held is claimed by a command, so a silent command connection must be noticed too: a second after
/// a fresh connection has been answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_all_go_silent_are_given_up_once_a_fresh_one_is_answered() {
    if !redis_is_there() {
        return;
    }
    let Timing { block, block_margin, identity, .. } = Timing::default();
    let took = silence(Proxy::freeze).await;
    assert!(took <= block + block_margin + identity + Duration::from_millis(500), "{took:?}");
}

/// Listens, accepts and closes, and remembers when.
fn closes_at_once(begun: Instant) -> (SocketAddr, Arc<Mutex<Vec<Duration>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, support::free_tcp_port())).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(Mutex::new(Vec::new()));
    std::thread::spawn({
        let accepted = Arc::clone(&accepted);
        // It ends with the process: nothing tells it that the test is over.
        move || listener.incoming().for_each(|_| accepted.lock().unwrap().push(begun.elapsed()))
    });
    (address, accepted)
}

#[tokio::test]
async fn those_who_close_at_once_are_dialled_a_dozen_times_in_half_a_minute_and_not_all_at_once() {
    let begun = Instant::now();
    let listeners: Vec<_> = (0..20).map(|_| closes_at_once(begun)).collect();
    let brokers = listeners.iter().map(|(address, _)| address.to_string());
    let client = connect(Config::brokers(brokers).unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let dials: Vec<Vec<Duration>> = listeners.iter().map(|(_, accepted)| accepted.lock().unwrap().clone()).collect();
    let counts: Vec<_> = dials.iter().map(Vec::len).collect();
    let mut fifth: Vec<_> = dials.iter().map(|dials| dials[4]).collect();
    fifth.sort();
    let spread = fifth[19] - fifth[0];
    let together = fifth.iter().map(|at| fifth.iter().filter(|o| o.abs_diff(*at).as_millis() < 25).count()).max();
    println!("dials in 30 s: {counts:?}; the fifth of each within {spread:?}, at most {together:?} in 50 ms");
    assert!(counts.iter().all(|count| (6..=12).contains(count)), "{counts:?}");
    assert!(spread >= Duration::from_millis(200), "{spread:?}");
    assert!(together <= Some(10), "{fifth:?}");
    drop(client);
}
