//! Anything may happen in any order: datagrams, answers right and wrong, cuts, partial reports, operations, verdicts.
//!
//! Besides the contract (see [`super::watched`]): each answer reaches whoever asked, because every answer here says what it
//! answers; no verdict reaches a broker that was not given; every receipt is answered. And when the world calms down, the
//! engine does everything it is for: all operations are done, and every subscription reads every broker.
//!
//! The numbers of cases suit a debug build on a busy machine; optimised, a thousand times as many take minutes.

#[cfg(feature = "mutants")]
mod planted;
mod server;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use proptest::collection::vec as list;
use proptest::prelude::*;

use self::server::{Served, Server};
use super::watched::Watched;
use crate::command::{Arg, Command};
use crate::config::Config;
use crate::id::{ConnId, DeliveryId, OpId};
use crate::op::{Call, Op, Outcome, Policy, Send, Sub, Verdict};
use crate::output::{Closed, ClosedReason, Event, Output};
use crate::reply::StreamId;
use crate::script::Script;
use crate::topic::{Message, TopicSpec};

#[derive(Clone, Debug)]
enum Act {
    Announce { server: usize, guid: usize, up: bool },
    Connect(usize),
    Refuse(usize),
    Sent(usize, u64),
    Answer(usize, u32),
    Wrong(usize, u32),
    Cut(usize),
    Restart(usize, bool),
    Pass(u64),
    Due,
    Send { key: Option<u8>, once: bool, wait_ms: Option<u64>, partitions: u32 },
    Call(usize),
    Cancel(usize),
    Subscribe { in_flight: u32, partitions: u32 },
    Unsubscribe(usize, u64),
    Started(usize),
    Settle(usize, u32, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..3usize, 0..3usize, prop::bool::weighted(0.8)).prop_map(|(server, guid, up)| Act::Announce { server, guid, up }),
        8 => any::<usize>().prop_map(Act::Connect),
        1 => any::<usize>().prop_map(Act::Refuse),
        4 => (any::<usize>(), 0..6u64).prop_map(|(conn, n)| Act::Sent(conn, n)),
        40 => (any::<usize>(), any::<u32>()).prop_map(|(conn, roll)| Act::Answer(conn, roll)),
        3 => (any::<usize>(), any::<u32>()).prop_map(|(conn, roll)| Act::Wrong(conn, roll)),
        2 => any::<usize>().prop_map(Act::Cut),
        1 => (0..3usize, any::<bool>()).prop_map(|(server, same_data)| Act::Restart(server, same_data)),
        2 => (0..3_000u64).prop_map(Act::Pass),
        4 => Just(Act::Due),
        8 => (prop::option::of(0..4u8), any::<bool>(), prop::option::of(0..2_000u64), 1..4u32)
            .prop_map(|(key, once, wait_ms, partitions)| Act::Send { key, once, wait_ms, partitions }),
        1 => (0..3usize).prop_map(Act::Call),
        1 => any::<usize>().prop_map(Act::Cancel),
        2 => (1..8u32, 1..4u32).prop_map(|(in_flight, partitions)| Act::Subscribe { in_flight, partitions }),
        1 => (any::<usize>(), 0..2_000u64).prop_map(|(sub, grace)| Act::Unsubscribe(sub, grace)),
        2 => any::<usize>().prop_map(Act::Started),
        12 => (any::<usize>(), any::<u32>(), any::<bool>()).prop_map(|(one, verdict, tell)| Act::Settle(one, verdict, tell)),
    ]
}

/// What was decided about an entry, and so what may be said to its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Retry,
    Reject,
    Release,
}

struct World {
    watched: Watched,
    servers: Vec<Server>,
    served: Served,
    tags: BTreeMap<OpId, String>,
    deliveries: BTreeMap<DeliveryId, StreamId>,
    fates: BTreeMap<StreamId, Vec<Fate>>,
    told: Vec<DeliveryId>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self::with_config(seed, Config::discover())
    }

    fn with_config(seed: u64, mut config: Config) -> Self {
        config.limits.pipeline = 6;
        config.limits.backlog_ops = 16;
        config.limits.subscriptions = 4;
        config.timing.drain = Duration::from_secs(5);
        config.timing.forget = Duration::from_secs(20);
        let (watched, first) = Watched::new(config, seed);
        let mut world = Self {
            watched,
            servers: (0..3).map(Server::new).collect(),
            served: Served::default(),
            tags: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            fates: BTreeMap::new(),
            told: Vec::new(),
        };
        world.hear(&first);
        world
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Announce { server, guid, up } => self.announce(server, guid, up),
            Act::Connect(pick) => {
                if let Some(conn) = self.conn(pick, |connected, _| !connected) {
                    let outputs = self.watched.connected(conn);
                    self.hear(&outputs);
                }
            }
            Act::Refuse(pick) => {
                if let Some(conn) = self.conn(pick, |connected, _| !connected) {
                    self.close(conn, ClosedReason::Refused);
                }
            }
            Act::Sent(pick, n) => {
                if let Some(conn) = self.conn(pick, |connected, _| connected) {
                    let n = self.watched.wires.get(&conn).map_or(0, |wire| wire.unreported.min(n));
                    let outputs = self.watched.sent(conn, n);
                    self.hear(&outputs);
                }
            }
            Act::Answer(pick, roll) => {
                if let Some(conn) = self.conn(pick, |_, asked| asked) {
                    self.answer(conn, roll);
                }
            }
            Act::Wrong(pick, roll) => {
                // An administrator's command may be answered with anything.
                let raw = |conn: &ConnId| matches!(self.watched.wires[conn].unanswered.front(), Some(Command::Raw(_)));
                if let Some(conn) = self.conn(pick, |connected, _| connected).filter(|conn| !raw(conn)) {
                    let outputs = self.watched.reply(conn, server::wrong(roll));
                    self.hear(&outputs);
                }
            }
            Act::Cut(pick) => {
                if let Some(conn) = self.conn(pick, |connected, _| connected) {
                    self.close(conn, ClosedReason::Eof);
                }
            }
            Act::Restart(server, same_data) => self.restart(server, same_data),
            Act::Pass(ms) => self.pass(Duration::from_millis(ms)),
            Act::Due => {
                if let Some(due) = self.watched.wait {
                    self.watched.now.mono = due;
                    self.pass(Duration::ZERO);
                }
            }
            Act::Send { .. } | Act::Call(_) | Act::Cancel(_) => self.operate(act),
            Act::Subscribe { .. } | Act::Unsubscribe(..) | Act::Started(_) | Act::Settle(..) => self.consume(act),
        }
    }

    fn announce(&mut self, server: usize, guid: usize, up: bool) {
        let from = format!("10.0.0.{}:9", server + 1).parse().expect("an address");
        let guid = guid + 3 * server;
        let status = if up { "up" } else { "down" };
        let text =
            format!("imq-broker\t00000000-0000-4000-8000-00000000000{guid}\t{status}\t10.0.0.{}:6379\t5", server + 1);
        let outputs = self.watched.datagram(from, text.as_bytes());
        self.hear(&outputs);
    }

    fn operate(&mut self, act: Act) {
        match act {
            Act::Send { key, once, wait_ms, partitions } => {
                let mut message = Message::new("body");
                message.key = key.map(|key| alloc::vec![key].into());
                let op = Op::Send(Send {
                    topic: TopicSpec::new("orders", partitions).expect("a name"),
                    message,
                    policy: if once { Policy::AtMostOnce } else { Policy::AtLeastOnce },
                    wait: wait_ms.map(Duration::from_millis),
                });
                let (_, outputs) = self.watched.submit(op);
                self.hear(&outputs);
            }
            Act::Call(server) => {
                let address = self.servers[server].address.clone();
                let broker =
                    self.watched.engine.fleet().find(|broker| *broker.address == address).map(|broker| broker.id);
                let Some(broker) = broker else { return };
                let tag = format!("tag-{}", self.tags.len());
                let command = Command::Raw(alloc::vec!["ECHO".into(), tag.clone().into()].into());
                let (result, outputs) = self.watched.submit(Op::Call(Call { broker, command }));
                if let Ok(op) = result {
                    self.tags.insert(op, tag);
                }
                self.hear(&outputs);
            }
            Act::Cancel(pick) => {
                let open: Vec<OpId> = self.watched.open.iter().copied().collect();
                if let Some(op) = pick.checked_rem(open.len()).map(|at| open[at]) {
                    let (result, outputs) = self.watched.cancel(op);
                    assert!(result.is_ok() && !self.watched.open.contains(&op), "cancelling answers at once");
                    self.hear(&outputs);
                }
            }
            _ => unreachable!("no operation"),
        }
    }

    fn consume(&mut self, act: Act) {
        let hand: Vec<DeliveryId> = self.watched.hand.keys().copied().collect();
        match act {
            Act::Subscribe { in_flight, partitions } => {
                let mut sub = Sub::new(TopicSpec::new("orders", partitions).expect("a name"), "billing");
                sub.in_flight = in_flight;
                sub.claim_period = Duration::from_secs(1);
                sub.claim_idle = Duration::from_secs(6);
                sub.handler_timeout = Duration::from_secs(1);
                let (_, outputs) = self.watched.subscribe(sub);
                self.hear(&outputs);
            }
            Act::Unsubscribe(pick, grace) => {
                let subs: Vec<_> = self.watched.subs.keys().copied().collect();
                if let Some(sub) = pick.checked_rem(subs.len()).map(|at| subs[at]) {
                    let (_, outputs) = self.watched.unsubscribe(sub, Duration::from_millis(grace));
                    self.hear(&outputs);
                }
            }
            Act::Started(pick) => {
                if let Some(delivery) = pick.checked_rem(hand.len()).map(|at| hand[at]) {
                    let (_, outputs) = self.watched.started(delivery);
                    self.hear(&outputs);
                }
            }
            Act::Settle(pick, verdict, tell) => {
                if let Some(delivery) = pick.checked_rem(hand.len()).map(|at| hand[at]) {
                    self.settle(delivery, verdict, tell);
                }
            }
            _ => unreachable!("no consumption"),
        }
    }

    fn settle(&mut self, delivery: DeliveryId, roll: u32, tell: bool) {
        let reason = "because".into();
        let (verdict, fate) = match roll % 8 {
            0 => (Verdict::Retry { reason, after: Some(Duration::from_millis(u64::from(roll % 500))) }, Fate::Retry),
            1 => (Verdict::Reject { reason }, Fate::Reject),
            2 => (Verdict::Release { started: roll.is_multiple_of(3) }, Fate::Release),
            _ => (Verdict::Done, Fate::Done),
        };
        let entry = self.deliveries[&delivery];
        // Before the call: its outputs are checked against it.
        self.fates.entry(entry).or_default().push(fate);
        if tell {
            self.told.push(delivery);
        }
        let (result, outputs) = self.watched.settle(delivery, verdict, tell);
        if result.is_err() {
            self.told.retain(|told| *told != delivery);
        }
        self.hear(&outputs);
    }

    fn answer(&mut self, conn: ConnId, roll: u32) {
        let Some(wire) = self.watched.wires.get(&conn) else { return };
        let Some(command) = wire.unanswered.front().cloned() else { return };
        let Some(server) = self.servers.iter_mut().find(|server| server.address == wire.to) else { return };
        let reply = server.answer(&command, roll, &mut self.served);
        let outputs = self.watched.reply(conn, reply);
        self.hear(&outputs);
    }

    /// The process ends and another begins; what it had may be gone.
    fn restart(&mut self, server: usize, same_data: bool) {
        let server = &mut self.servers[server];
        server.restart(same_data);
        let address = server.address.clone();
        let conns: Vec<ConnId> =
            self.watched.wires.iter().filter(|(_, wire)| wire.to == address).map(|(conn, _)| *conn).collect();
        for conn in conns {
            if self.watched.wires.contains_key(&conn) {
                self.close(conn, ClosedReason::Io);
            }
        }
    }

    fn close(&mut self, conn: ConnId, reason: ClosedReason) {
        let outputs = self.watched.closed(conn, Closed { reason, detail: "cut".to_string() });
        self.hear(&outputs);
    }

    fn pass(&mut self, time: Duration) {
        self.watched.now.mono = self.watched.now.mono + time;
        let outputs = self.watched.timeout();
        self.hear(&outputs);
    }

    fn conn(&self, pick: usize, fits: impl Fn(bool, bool) -> bool) -> Option<ConnId> {
        let wires = self.watched.wires.iter();
        let fitting: Vec<ConnId> = wires
            .filter(|(_, wire)| fits(wire.connected, !wire.unanswered.is_empty()))
            .map(|(conn, _)| *conn)
            .collect();
        pick.checked_rem(fitting.len()).map(|at| fitting[at])
    }

    // ---- the checks ----

    fn hear(&mut self, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Event(Event::Done { op, result: Ok(outcome) }) => match outcome {
                    Outcome::Stored(stored) => {
                        assert_eq!(
                            self.served.stored.get(&stored.entry),
                            Some(&stored.id.0),
                            "another message's answer"
                        );
                    }
                    Outcome::Reply(reply) => {
                        let expected = self.tags.get(op).map(String::as_bytes);
                        assert!(reply.view().as_bytes() == expected, "{op:?} got {:?}, another's answer", reply.view());
                    }
                },
                Output::Event(Event::Delivery(delivery)) => {
                    let entry = delivery.entry();
                    let (partition, body) = &self.served.entries[&entry];
                    assert_eq!(delivery.partition, *partition, "{entry} of another partition");
                    let is = delivery.batch.field(delivery.index as usize, b"payload");
                    assert_eq!(is, Some(body.as_bytes()), "{entry} has another's body");
                    self.deliveries.insert(delivery.delivery, entry);
                }
                Output::Event(Event::Settled { delivery, .. }) => {
                    let at = self.told.iter().position(|told| told == delivery);
                    self.told.remove(at.unwrap_or_else(|| panic!("{delivery:?} is told twice, or to nobody")));
                }
                Output::Send { command, .. } => self.check_verdicts(command),
                _ => {}
            }
        }
    }

    /// Nothing is said about an entry that was not decided.
    fn check_verdicts(&self, command: &Command) {
        let has = |id: &StreamId, fates: &[Fate]| {
            let decided = self.fates.get(id);
            let fits = decided.is_some_and(|decided| decided.iter().any(|fate| fates.contains(fate)));
            assert!(fits, "{id} was decided as {decided:?}, and now {command:?}");
        };
        match command {
            Command::Ack(ack) => ack.ids.iter().for_each(|id| has(id, &[Fate::Done])),
            Command::Eval(eval, _) => {
                let ids = eval.args.iter().filter_map(|arg| if let Arg::Id(id) = arg { Some(id) } else { None });
                match eval.script {
                    Script::Retry => ids.for_each(|id| has(id, &[Fate::Retry])),
                    Script::Dead => ids.for_each(|id| has(id, &[Fate::Reject, Fate::Retry])),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    // ---- the calm ----

    /// Every broker is announced and answers at once; every message is handled.
    fn calm(&mut self) {
        // Longer than the longest rest after a refusal: that of a key of another type.
        let end = self.watched.now.mono + Duration::from_secs(90);
        while self.watched.now.mono < end {
            (0..3).for_each(|server| self.announce(server, 0, true));
            self.settle_down();
            // Reads that wait on the server come to their end.
            let blocked: Vec<ConnId> = self.waiting().collect();
            for conn in blocked {
                self.answer(conn, server::CALM);
            }
            self.settle_down();
            let until = self.watched.now.mono + Duration::from_millis(500);
            self.watched.now.mono = self.watched.wait.map_or(until, |due| due.min(until));
            self.pass(Duration::ZERO);
        }
        self.settle_down();
    }

    fn settle_down(&mut self) {
        for _ in 0..2_000 {
            let dialled = self.conn(0, |connected, _| !connected);
            let asked = self
                .watched
                .wires
                .iter()
                .find(|(_, wire)| wire.unanswered.front().is_some_and(|c| c.block_ms().is_none()));
            let held = self.watched.hand.keys().next().copied();
            match (dialled, asked.map(|(conn, _)| *conn), held) {
                (Some(conn), _, _) => {
                    let outputs = self.watched.connected(conn);
                    self.hear(&outputs);
                }
                (None, Some(conn), _) => self.answer(conn, server::CALM),
                (None, None, Some(delivery)) => self.settle(delivery, 7, true),
                (None, None, None) => return,
            }
        }
        let asked: Vec<_> = self.watched.wires.iter().map(|(conn, wire)| (conn, wire.unanswered.front())).collect();
        panic!("it never comes to rest, and asks {asked:?}: {:?}", self.watched.engine.consumers);
    }

    fn waiting(&self) -> impl Iterator<Item = ConnId> + '_ {
        let blocks = |command: &Command| command.block_ms().is_some();
        self.watched
            .wires
            .iter()
            .filter(move |(_, wire)| wire.unanswered.front().is_some_and(blocks))
            .map(|(conn, _)| *conn)
    }

    fn check_calm(&self) {
        assert!(self.watched.open.is_empty(), "{:?} are still not done", self.watched.open);
        assert!(self.told.is_empty(), "{:?} were never told", self.told);
        assert!(self.watched.engine.fleet().all(|broker| broker.ready), "not every broker is ready");
        for server in &self.servers {
            let on = |conn: &ConnId| self.watched.wires.get(conn).is_some_and(|wire| wire.to == server.address);
            let readers = self.waiting().filter(on).count();
            let subs = self.watched.subs.len();
            let state = || &self.watched.engine.consumers;
            assert!(readers == subs, "{readers} of {subs} subscriptions read {}: {:?}", server.address, state());
        }
    }

    fn end(&mut self) {
        let outputs = self.watched.shutdown(Duration::from_secs(1));
        self.hear(&outputs);
        for _ in 0..10_000 {
            if self.watched.stopped {
                break;
            }
            self.watched.now.mono = self.watched.wait.expect("it waits for its end");
            self.pass(Duration::ZERO);
        }
        assert!(self.watched.stopped, "it does not stop");
        assert!(self.told.is_empty(), "{:?} were never told", self.told);
    }
}

fn run(seed: u64, acts: Vec<Act>, calm: bool) {
    let mut world = World::new(seed);
    for act in acts {
        world.act(act);
    }
    if calm {
        world.calm();
        world.check_calm();
    }
    world.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_contract_holds(seed: u64, acts in list(act(), 1..400)) {
        run(seed, acts, false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_whatever_happened_everything_works_again(seed: u64, acts in list(act(), 1..300)) {
        run(seed, acts, true);
    }
}
