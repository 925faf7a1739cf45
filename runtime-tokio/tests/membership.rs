//! Brokers that come, go, come back and are lied about, as announcements tell it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flota_core::output::BrokerChange;
use flota_tokio::op::Stored;
use flota_tokio::{BrokerInfo, Client, FleetEvent, FleetEvents, connect};
use support::{Announcer, Redis, Shout, discovery, free_udp_port, redis_is_there, stream, within};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval, timeout};

const SECOND: Duration = Duration::from_secs(1);

fn ready(fleet: &[BrokerInfo]) -> usize {
    fleet.iter().filter(|broker| broker.ready && !broker.leaving).count()
}

/// The next change of a broker at this address that is as wanted, with all that came before it.
async fn until(events: &mut FleetEvents, at: SocketAddr, wanted: impl Fn(&BrokerChange) -> bool) -> Vec<BrokerChange> {
    let mut changes = Vec::new();
    loop {
        match within(events.next()).await.expect("the driver is there") {
            FleetEvent::Broker(event) if event.address == at.into() => {
                changes.push(event.change.clone());
                if wanted(&event.change) {
                    return changes;
                }
            }
            FleetEvent::Broker(_) | FleetEvent::Warning(_) => {}
            FleetEvent::Skipped(count) => panic!("{count} events were skipped"),
        }
    }
}

/// A thousand messages a second, whatever becomes of them.
struct Flow {
    sending: tokio::task::JoinHandle<u64>,
    stored: UnboundedReceiver<Answer>,
    stop: tokio::sync::watch::Sender<bool>,
}

/// When a message was sent, which it was, and where it was stored.
type Answer = (Instant, u64, Stored);

impl Flow {
    fn start(client: &Client, topic: &str) -> Self {
        let (answers, stored) = unbounded_channel();
        let (stop, mut stopped) = tokio::sync::watch::channel(false);
        let topic = client.topic(topic);
        let sending = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_millis(1));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for n in 0.. {
                tokio::select! {
                    biased;
                    _ = stopped.changed() => return n,
                    _ = ticks.tick() => {}
                }
                let (topic, answers, at) = (topic.clone(), answers.clone(), Instant::now());
                tokio::spawn(async move {
                    let stored = topic.send(n.to_string()).await.unwrap();
                    // Nobody reads them at the very end.
                    let _ = answers.send((at, n, stored));
                });
            }
            unreachable!("numbers do not end")
        });
        Self { sending, stored, stop }
    }

    async fn next(&mut self) -> Answer {
        within(self.stored.recv()).await.unwrap()
    }

    /// Ends it, and hands out the answers that were not taken yet, with the number of messages sent in all.
    async fn end(mut self) -> (u64, Vec<Answer>) {
        self.stop.send_replace(true);
        let sent = within(self.sending).await.unwrap();
        let mut rest = Vec::new();
        while let Some(answer) = within(self.stored.recv()).await {
            rest.push(answer);
        }
        (sent, rest)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_takes_messages_at_once_and_one_that_says_goodbye_takes_none_and_loses_none() {
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(4, &[]);
    let port = free_udp_port();
    let client = connect(discovery(port)).await.unwrap();
    let announcer = |n: usize| Announcer::start(servers[n].address, port, n as u32 + 1, SECOND);
    let (leaver, _staying) = (announcer(0), [announcer(1), announcer(2)]);
    within(client.until(|fleet| ready(fleet) == 3)).await.unwrap();

    // Its consumer takes a few messages and then waits: all brokers hold some when one of them leaves.
    let mut jobs = within(client.topic("flow").group("slow").in_flight(8).subscribe()).await.unwrap();
    let mut events = client.events();
    let mut flow = Flow::start(&client, "flow");
    let first = within(jobs.next()).await.unwrap();

    let mut answers = Vec::new();
    while answers.len() < 1_000 {
        answers.push(flow.next().await);
    }
    let announced = Instant::now();
    let _fourth = announcer(3);
    let newcomer = loop {
        let answer = flow.next().await;
        answers.push(answer);
        let fleet = client.fleet();
        let at = fleet.iter().find(|broker| broker.id == answer.2.broker).map(|broker| broker.address.clone());
        if at == Some(servers[3].address.into()) {
            break announced.elapsed();
        }
    };
    println!("the fourth broker had its first message {newcomer:?} after its first announcement");
    assert!(newcomer <= Duration::from_millis(1_500), "{newcomer:?}");

    let gone = client.fleet().iter().find(|broker| broker.address == servers[0].address.into()).unwrap().id;
    leaver.down();
    until(&mut events, servers[0].address, |change| *change == BrokerChange::Withdrawn).await;
    let withdrawn = Instant::now();
    // A second's worth of messages after that.
    while answers.iter().filter(|answer| answer.0 > withdrawn).count() < 1_000 {
        answers.push(flow.next().await);
    }
    let (sent, rest) = flow.end().await;
    answers.extend(rest);
    assert_eq!(answers.len() as u64, sent);
    let late = answers.iter().filter(|answer| answer.0 > withdrawn && answer.2.broker == gone).count();
    let held = answers.iter().filter(|answer| answer.2.broker == gone).count();
    println!("{sent} sent, {held} of them held by the broker that left, {late} stored there after its goodbye");
    assert_eq!(late, 0);
    assert!(held > 100, "it held {held}");

    let mut handled: BTreeSet<u64> = BTreeSet::new();
    let mut by_leaver = 0;
    let mut job = first;
    loop {
        by_leaver += usize::from(job.broker() == gone);
        let n = std::str::from_utf8(job.body()).unwrap().parse().unwrap();
        assert!(handled.insert(n), "{n} came twice");
        drop(job.done());
        if handled.len() as u64 == sent {
            break;
        }
        job = within(jobs.next()).await.unwrap();
    }
    assert_eq!(by_leaver, held);
    assert_eq!(servers[0].count(&["XLEN", &stream("flow", 0)]), held as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_broker_with_a_new_guid_is_used_at_once_and_not_ended_by_the_old_one() {
    if !redis_is_there() {
        return;
    }
    let mut server = Redis::start();
    let (at, port) = (server.address, free_udp_port());
    let client = connect(discovery(port)).await.unwrap();
    let old = Announcer::start(at, port, 1, SECOND);
    within(client.ready()).await.unwrap();
    let topic = client.topic("again");
    within(topic.send("before")).await.unwrap();
    let mut events = client.events();

    drop(old);
    server.kill();
    until(&mut events, at, |change| matches!(change, BrokerChange::Unready(_))).await;
    server.start_again();
    let (early, announced) = (topic.send("after"), Instant::now());
    let _new = Announcer::start(at, port, 2, SECOND);
    within(early).await.unwrap();
    let took = announced.elapsed();
    println!("the restarted broker stored a message {took:?} after its first announcement");
    assert!(took <= SECOND, "{took:?}");
    until(&mut events, at, |change| *change == BrokerChange::Ready).await;

    // The old announcer's time, six seconds after its last word, passes meanwhile.
    let changed = timeout(Duration::from_secs(7), until(&mut events, at, |_| true)).await;
    assert!(changed.is_err(), "{changed:?}");
    within(topic.send("later")).await.unwrap();
    assert_eq!(client.fleet().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_announcers_of_one_address_are_one_broker() {
    if !redis_is_there() {
        return;
    }
    let server = Redis::start();
    let (at, port) = (server.address, free_udp_port());
    let client = connect(discovery(port)).await.unwrap();
    let _one = Announcer::start(at, port, 1, SECOND / 5);
    within(client.ready()).await.unwrap();
    let mut jobs = within(client.topic("twice").group("once").subscribe()).await.unwrap();
    within(client.topic("twice").send("a")).await.unwrap();
    drop(within(jobs.next()).await.unwrap().done());

    let mut wire = server.wire();
    let mut events = client.events();
    let connections = wire.info("stats", "total_connections_received");
    let _other = Announcer::start(at, port, 2, SECOND / 5);
    // Five of each in a second, for longer than either could be silent.
    let changed = timeout(6 * SECOND, until(&mut events, at, |_| true)).await;
    assert!(changed.is_err(), "{changed:?}");
    assert_eq!(wire.info("stats", "total_connections_received"), connections);
    let inspection = within(client.inspect()).await.unwrap();
    assert_eq!(inspection.fleet.len(), 1);
    println!("{} announcements of two announcers, {connections} connections", inspection.fleet[0].announcements);
    assert!(inspection.fleet[0].announcements >= 40);
}

/// Not random, and different each time.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A third is no announcement, a third is one byte off the true one, a third names brokers that are not there.
fn flood(shout: &Shout, datagrams: usize, truth: &[u8]) {
    let mut state = 42;
    for n in 0..datagrams {
        let datagram = match n % 3 {
            0 => (0..next(&mut state) % 200).map(|_| next(&mut state) as u8).collect(),
            1 => {
                let mut off = truth.to_vec();
                let at = next(&mut state) as usize % off.len();
                off[at] ^= 1 + (next(&mut state) % 255) as u8;
                off
            }
            _ => {
                let (guid, ip) = (next(&mut state), next(&mut state));
                let [_, b, c, d] = (ip as u32).to_be_bytes();
                format!("imq-broker\t{:08x}-1111-4000-8000-000000000000\tup\t127.{b}.{c}.{d}:9\t1\tplain", guid as u32)
                    .into_bytes()
            }
        };
        shout.say(&datagram);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_lies_changes_nothing_for_those_who_are_there() {
    const FLOOD: usize = 100_000;
    if !redis_is_there() {
        return;
    }
    let servers = Redis::several(2, &[]);
    let (real, silent) = (servers[0].address, servers[1].address);
    let port = free_udp_port();
    let mut config = discovery(port);
    config.limits.brokers = 1_200;
    let limits = config.limits.clone();
    let client = connect(config).await.unwrap();
    let mut events = client.events();
    let _real = Announcer::start(real, port, 1, SECOND);
    within(client.ready()).await.unwrap();
    let silence = Instant::now();
    let shout = Shout::to(port);
    shout.say(format!("imq-broker\t00000002-0000-4000-8000-000000000000\tup\t{silent}\t1\tplain").as_bytes());
    within(client.until(|fleet| ready(fleet) == 2)).await.unwrap();

    // Asked after each change, so that it misses none.
    let unready = tokio::spawn({
        let client = client.clone();
        async move { client.until(|fleet| !fleet.iter().any(|b| b.address == real.into() && b.ready)).await }
    });

    // It begins shortly before the silent one's time is over, and lasts beyond it.
    tokio::time::sleep_until((silence + Duration::from_millis(5_800)).into()).await;
    let begun = Instant::now();
    let truth = format!("imq-broker\t00000001-0000-4000-8000-000000000000\tup\t{real}\t1\tplain").into_bytes();
    let flooding = std::thread::spawn(move || {
        flood(&shout, FLOOD, &truth);
        Instant::now()
    });
    let expired = loop {
        if let FleetEvent::Broker(event) = within(events.next()).await.unwrap()
            && event.address == silent.into()
            && let BrokerChange::Expired { silent_ms } = event.change
        {
            break silent_ms;
        }
    };
    let until_expired = silence.elapsed();
    let sender = tokio::task::spawn_blocking(move || flooding.join().unwrap());
    let flooded = within(sender).await.unwrap() - begun;
    // The engine has seen all that the kernel has kept.
    let inspection = loop {
        let before = within(client.inspect()).await.unwrap();
        tokio::time::sleep(SECOND / 10).await;
        let after = within(client.inspect()).await.unwrap();
        if after.stats.datagrams - before.stats.datagrams < 10 {
            break after;
        }
    };
    let elapsed = silence.elapsed();
    let (stats, socket) = (&inspection.stats, inspection.socket.unwrap());
    println!(
        "{FLOOD} datagrams in {flooded:?}: {} seen, {:?} dropped by the kernel (buffer {} bytes); {} members, {} dials in \
         {elapsed:?}; malformed {}, too fast {}, full {}; the silent one expired after {silent_ms} ms ({until_expired:?})",
        stats.datagrams,
        socket.dropped,
        socket.receive_buffer_bytes,
        inspection.fleet.len(),
        stats.dials,
        stats.malformed.iter().sum::<u64>(),
        stats.too_fast,
        stats.fleet_full,
        silent_ms = expired,
    );
    assert!(stats.datagrams + socket.dropped.unwrap() >= FLOOD as u64);
    assert!(expired <= 6_001 + 250, "{expired} ms");
    assert!(until_expired <= Duration::from_millis(6_001 + 500), "{until_expired:?}");
    assert!(inspection.fleet.len() <= limits.brokers as usize);
    let newcomers =
        u64::from(limits.newcomers_burst) + u64::from(limits.newcomers_per_second) * (elapsed.as_secs() + 1);
    assert!(inspection.fleet.len() as u64 <= newcomers + 2);
    // The delays between the dials of one that refuses are at least 50 ms, 100 ms, 200 ms and so on.
    let dials_each = 1 + u64::from((begun.elapsed().as_millis() / 50 + 1).ilog2());
    assert!(stats.dials <= dials_each * (newcomers + 2), "{} dials, not {dials_each} each", stats.dials);
    let of_real: Vec<_> = inspection.fleet.iter().filter(|broker| broker.address == real.into()).collect();
    assert!(of_real.len() == 1 && of_real[0].ready, "{of_real:?}");
    assert!(!unready.is_finished(), "the real one was unready meanwhile");
    within(client.topic("flooded").send("still here")).await.unwrap();
}
