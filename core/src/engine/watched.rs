//! An engine under watch: every input is followed by the checks that the contract promises to whoever drives it.
//!
//! Conversations and the property test put their inputs in here, so that nothing they do goes unchecked.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::{Engine, Incarnation};
use crate::command::{Arg, Command};
use crate::config::{Config, Endpoint};
use crate::id::{ConnId, DeliveryId, OpId, SubId};
use crate::op::{Op, Rejected, Stale, Sub, Verdict};
use crate::output::{Closed, Event, Output};
use crate::reply::Reply;
use crate::rng::Seed;
use crate::script::Script;
use crate::time::{Mono, Now, Wall};

/// When every test begins, on both clocks.
pub(super) const START: Now = Now { mono: Mono(3_600_000_000), wall: Wall(1_700_000_000_000) };
/// More outputs than any single input of a small test has a reason to cause.
const OUTPUTS: usize = 2_000;

pub(super) struct Watched {
    pub(super) engine: Engine,
    pub(super) now: Now,
    /// The deadline that the engine named last.
    pub(super) wait: Option<Mono>,
    pub(super) wires: BTreeMap<ConnId, Wire>,
    pub(super) open: BTreeSet<OpId>,
    pub(super) subs: BTreeMap<SubId, Credit>,
    pub(super) hand: BTreeMap<DeliveryId, SubId>,
    pub(super) stopped: bool,
    /// A fault is planted: the first complaint of an audit is kept.
    pub(super) planted: bool,
    pub(super) complaint: Option<String>,
    subscriptions: u64,
}

/// A connection as its server sees it.
pub(super) struct Wire {
    pub(super) to: Endpoint,
    pub(super) connected: bool,
    pub(super) unanswered: VecDeque<Command>,
    pub(super) unreported: u64,
}

/// A subscription's bound, and what of it is used.
pub(super) struct Credit {
    /// The number at the end of its consumer's name.
    number: u64,
    in_flight: u32,
}

impl Watched {
    pub(super) fn new(config: Config, seed: u64) -> (Self, Vec<Output>) {
        let engine = Engine::new(config, Incarnation(1), Seed::from_u64(seed), START).expect("a valid configuration");
        let mut watched = Self {
            engine,
            now: START,
            wait: None,
            wires: BTreeMap::new(),
            open: BTreeSet::new(),
            subs: BTreeMap::new(),
            hand: BTreeMap::new(),
            stopped: false,
            planted: false,
            complaint: None,
            subscriptions: 0,
        };
        let first = watched.after();
        (watched, first)
    }

    pub(super) fn datagram(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Output> {
        self.engine.handle_datagram(self.now, from, datagram);
        self.after()
    }

    pub(super) fn connected(&mut self, conn: ConnId) -> Vec<Output> {
        if let Some(wire) = self.wires.get_mut(&conn) {
            wire.connected = true;
        }
        self.engine.handle_connected(self.now, conn);
        self.after()
    }

    pub(super) fn sent(&mut self, conn: ConnId, commands: u64) -> Vec<Output> {
        if let Some(wire) = self.wires.get_mut(&conn) {
            wire.unreported = wire.unreported.saturating_sub(commands);
        }
        self.engine.handle_sent(self.now, conn, commands);
        self.after()
    }

    pub(super) fn reply(&mut self, conn: ConnId, reply: Reply) -> Vec<Output> {
        if let Some(wire) = self.wires.get_mut(&conn)
            && !reply.is_push()
        {
            wire.unanswered.pop_front();
        }
        self.engine.handle_reply(self.now, conn, reply);
        self.after()
    }

    pub(super) fn closed(&mut self, conn: ConnId, why: Closed) -> Vec<Output> {
        self.wires.remove(&conn);
        self.engine.handle_closed(self.now, conn, why);
        self.after()
    }

    /// Time passes.
    pub(super) fn timeout(&mut self) -> Vec<Output> {
        self.engine.handle_timeout(self.now);
        self.after()
    }

    pub(super) fn submit(&mut self, op: Op) -> (Result<OpId, Rejected<Op>>, Vec<Output>) {
        let result = self.engine.submit(self.now, op);
        if let Ok(op) = result {
            assert!(self.open.insert(op), "{op:?} was given out before");
        }
        let outputs = self.after();
        (result, outputs)
    }

    pub(super) fn cancel(&mut self, op: OpId) -> (Result<(), Stale>, Vec<Output>) {
        let result = self.engine.cancel(self.now, op);
        (result, self.after())
    }

    pub(super) fn subscribe(&mut self, sub: Sub) -> (Result<SubId, Rejected<Sub>>, Vec<Output>) {
        let in_flight = sub.in_flight;
        let result = self.engine.subscribe(self.now, sub);
        if let Ok(sub) = result {
            self.subscriptions += 1;
            self.subs.insert(sub, Credit { number: self.subscriptions, in_flight });
        }
        let outputs = self.after();
        (result, outputs)
    }

    pub(super) fn unsubscribe(&mut self, sub: SubId, grace: Duration) -> (Result<(), Stale>, Vec<Output>) {
        let result = self.engine.unsubscribe(self.now, sub, grace);
        (result, self.after())
    }

    pub(super) fn all_started(&mut self, sub: SubId) -> Vec<Output> {
        self.engine.all_started(self.now, sub);
        self.after()
    }

    pub(super) fn started(&mut self, delivery: DeliveryId) -> (Result<(), Stale>, Vec<Output>) {
        let result = self.engine.started(self.now, delivery);
        (result, self.after())
    }

    pub(super) fn settle(&mut self, id: DeliveryId, verdict: Verdict, tell: bool) -> (Result<(), Stale>, Vec<Output>) {
        let result = self.engine.settle(self.now, id, verdict, tell);
        // Stale: it was given back when the grace of its subscription ended.
        assert!(self.hand.remove(&id).is_some() || result.is_err(), "{id:?} was settled twice");
        (result, self.after())
    }

    pub(super) fn shutdown(&mut self, grace: Duration) -> Vec<Output> {
        self.engine.shutdown(self.now, grace);
        self.after()
    }

    // ---- the checks ----

    fn after(&mut self) -> Vec<Output> {
        // Only this lets time pass.
        self.engine.handle_timeout(self.now);
        let outputs = self.drain();
        assert!(outputs.len() <= OUTPUTS, "{} outputs for one input", outputs.len());
        // Once more at the same time: everything due was done, everything possible was said.
        self.engine.handle_timeout(self.now);
        let more = self.drain();
        assert!(more.is_empty(), "a second handle_timeout at the same time says {more:?}");
        self.check_credit();
        match self.engine.audit() {
            Err(why) if self.planted => self.complaint = self.complaint.take().or(Some(why)),
            result => assert_eq!(result, Ok(())),
        }
        outputs
    }

    fn drain(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            match self.engine.poll_output() {
                Output::Wait(until) => {
                    let now = self.now.mono;
                    assert!(until.is_none_or(|until| until > now), "waits for {until:?} at {now:?}");
                    assert!(!self.stopped || until.is_none(), "waits for {until:?} after it has stopped");
                    assert!(
                        matches!(self.engine.poll_output(), Output::Wait(again) if again == until),
                        "two waits differ"
                    );
                    self.wait = until;
                    return outputs;
                }
                output => {
                    assert!(!self.stopped, "after it has stopped: {output:?}");
                    self.note(&output);
                    outputs.push(output);
                }
            }
        }
    }

    fn note(&mut self, output: &Output) {
        match output {
            Output::Dial { conn, to } => {
                let wire = Wire { to: to.clone(), connected: false, unanswered: VecDeque::new(), unreported: 0 };
                assert!(self.wires.insert(*conn, wire).is_none(), "{conn:?} is dialled twice");
            }
            Output::Send { conn, command } => {
                let wire = self.wires.get_mut(conn).unwrap_or_else(|| panic!("{command:?} on {conn:?}, which is gone"));
                assert!(wire.connected, "{command:?} before {conn:?} is connected");
                wire.unanswered.push_back(command.clone());
                wire.unreported += 1;
            }
            Output::Hangup(conn) => {
                assert!(self.wires.remove(conn).is_some(), "hangs up {conn:?}, which is gone");
            }
            Output::Event(Event::Done { op, .. }) => {
                assert!(self.open.remove(op), "{op:?} is done twice, or never began")
            }
            Output::Event(Event::Delivery(delivery)) => {
                assert!(self.subs.contains_key(&delivery.sub), "{:?} after its subscription ended", delivery.delivery);
                assert!(self.hand.insert(delivery.delivery, delivery.sub).is_none(), "{:?} twice", delivery.delivery);
            }
            Output::Event(Event::Unsubscribed { sub }) => {
                assert!(self.subs.remove(sub).is_some(), "{sub:?} ends twice");
                self.hand.retain(|_, of| of != sub);
            }
            Output::Event(Event::Stopped) => {
                assert!(self.open.is_empty(), "stopped with {:?} unanswered", self.open);
                assert!(self.subs.is_empty(), "stopped with subscriptions that never ended");
                assert!(self.wires.is_empty(), "stopped with open connections");
                self.stopped = true;
            }
            Output::Datagram { .. } | Output::Event(_) | Output::Wait(_) => {}
        }
    }

    /// What is in hand and what is asked for never exceed the bound together.
    fn check_credit(&self) {
        for (sub, credit) in &self.subs {
            let held = self.hand.values().filter(|of| *of == sub).count() as u64;
            let all = self.wires.values().flat_map(|wire| &wire.unanswered);
            let asked: u64 = all.map(|command| asked_by(command, credit.number)).sum();
            let most = u64::from(credit.in_flight);
            assert!(held + asked <= most, "{sub:?} holds {held} and asks for {asked}; its bound is {most}");
        }
    }
}

/// Entries that the answer to a command may bring to a subscription.
fn asked_by(command: &Command, number: u64) -> u64 {
    let is_of = |name: &str| name.rsplit('.').next().and_then(|last| last.parse().ok()) == Some(number);
    match command {
        Command::ReadGroup(read) if is_of(&read.consumer) => u64::from(read.count) * read.keys.len() as u64,
        Command::Eval(eval, _) if eval.script == Script::Claim => match (eval.args.get(1), eval.args.get(7)) {
            (Some(Arg::Text(name)), Some(Arg::Int(page))) if is_of(name) => u64::try_from(*page).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    }
}
