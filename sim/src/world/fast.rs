//! A service in fast fidelity: its engine is called directly, commands and replies travel as values.

mod application;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flota_core::Engine;
use flota_core::command::{Arg, Command, Eval};
use flota_core::engine::Incarnation;
use flota_core::id::{BrokerId, ConnId, DeliveryId, OpId, SubId};
use flota_core::output::{Closed, ClosedReason, Output};
use flota_core::rng::Seed;
use flota_core::script::Script;
use flota_core::time::Now;
use flota_core::topic::TopicSpec;

use super::app;
use super::kernel::{AppEvent, Event, Kernel};
use super::net::{self, Cargo, Conn, Pipe, Toward};
use super::record::{Input, Recorder};
use crate::broker::convert;
use crate::clock::HostClock;
use crate::plan::ServicePlan;
use crate::seen::{Hand, Host, Item, Line, What, Word};
use application::Held;

/// One life of a service's process.
pub(crate) struct FastService {
    index: u32,
    life: u32,
    plan: ServicePlan,
    pub(crate) engine: Engine,
    lines: BTreeMap<ConnId, Outbox>,
    /// Those whose socket has not taken everything.
    unwritten: BTreeSet<ConnId>,
    conns: BTreeMap<Line, ConnId>,
    subs: BTreeMap<SubId, u32>,
    sub_ids: BTreeMap<u32, SubId>,
    ops: BTreeMap<OpId, Item>,
    items: BTreeMap<Item, OpId>,
    hands: BTreeMap<u64, Held>,
    numbers: BTreeMap<DeliveryId, u64>,
    next_hand: u64,
    /// Where each member is, by the addresses it was dialled at.
    places: BTreeMap<BrokerId, u32>,
    topics: BTreeMap<u8, Arc<TopicSpec>>,
    wake_at: Option<u64>,
    /// Inputs since the last turn.
    open_turn: Option<u32>,
    /// The turn ends with an event of its own, which is on its way.
    ends_later: bool,
    time_passed: bool,
    pub(crate) stopping: bool,
    pub(crate) stopped: bool,
    pub(crate) recorder: Recorder,
    turns: u64,
    datagrams: u64,
}

/// What was given to a connection and not yet taken by its socket.
struct Outbox {
    line: Line,
    /// Bytes given in all.
    given: u64,
    /// Where each command that is not yet written whole ends.
    ends: VecDeque<u64>,
}

impl FastService {
    /// A process starts: its engine, and its subscriptions.
    pub(crate) fn start(index: u32, life: u32, clock: &HostClock, k: &mut Kernel) -> Self {
        let plan = k.plan.services.get(index as usize).cloned().expect("a service of the plan");
        let now = clock.now(k.at);
        let config = super::config::engine_config(&k.plan, index);
        let who = Incarnation(u64::from(index) << 32 | u64::from(life));
        let seed = Seed::from_u64(k.plan.seed ^ (u64::from(index) << 20 | u64::from(life)).wrapping_mul(0x9e37));
        let engine = Engine::new(config.clone(), who, seed, now).expect("a plan's configuration is valid");
        k.see(Host::Service(index), What::Born(life));
        let mut service = Self {
            index,
            life,
            engine,
            lines: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            conns: BTreeMap::new(),
            subs: BTreeMap::new(),
            sub_ids: BTreeMap::new(),
            ops: BTreeMap::new(),
            items: BTreeMap::new(),
            hands: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_hand: 0,
            places: BTreeMap::new(),
            topics: BTreeMap::new(),
            wake_at: None,
            open_turn: None,
            ends_later: false,
            time_passed: false,
            stopping: false,
            stopped: false,
            recorder: Recorder::new(k.hosts.chance(200_000), config, who, seed, now),
            turns: 0,
            datagrams: 0,
            plan,
        };
        for sub in 0..service.plan.consumes.len() {
            service.subscribe(k, now, sub as u32);
        }
        if service.plan.subscribe_loop_ms > 0 {
            let us = service.plan.subscribe_loop_ms * 1000;
            for sub in 0..service.plan.consumes.len() {
                k.after(us, Event::App(index, life, AppEvent::Resubscribe(sub as u32)));
            }
        }
        service.turn(k, clock, now);
        service
    }

    // ---- the world speaks ----

    pub(crate) fn datagram(&mut self, k: &mut Kernel, clock: &HostClock, from: std::net::SocketAddr, payload: Bytes) {
        let now = clock.now(k.at);
        k.see(self.host(), What::Heard { from, datagram: payload.clone() });
        let stranger = net::broker_at(&from.into(), k.plan.brokers.len()).is_none();
        self.datagrams += 1;
        let looks = k.plan.brokers.len() <= FLEET_LOOKED_AT && (stranger || self.datagrams.is_multiple_of(LOOK_EVERY));
        let before = looks.then(|| super::config::fleet_digest(&self.engine));
        self.input(now, Input::Datagram(from, payload));
        if let Some(before) = before {
            k.see(self.host(), What::Looked { before, after: super::config::fleet_digest(&self.engine) });
        }
        self.end_turn(k, clock, now);
    }

    pub(crate) fn dialled(&mut self, k: &mut Kernel, clock: &HostClock, line: Line, refused: bool) {
        let now = clock.now(k.at);
        let Some(conn) = self.conns.get(&line).copied() else { return };
        if refused {
            self.closed(k, clock, line, ClosedReason::Refused, "connection refused");
            return;
        }
        k.see(self.host(), What::Connected(line));
        self.input(now, Input::Connected(conn));
        self.end_turn(k, clock, now);
    }

    /// Bytes of replies have arrived.
    pub(crate) fn receive(&mut self, k: &mut Kernel, clock: &HostClock, line: Line, upto: u64) {
        let Some(id) = self.conns.get(&line).copied() else { return };
        let now = clock.now(k.at);
        let Some(conn) = k.net.get_mut(line) else { return };
        conn.down.arrived = conn.down.arrived.max(upto);
        let arrived = conn.down.arrived;
        let mut ready = Vec::new();
        let mut begun = false;
        if let Cargo::Values { replies, .. } = &mut conn.cargo {
            while replies.front().is_some_and(|(end, _)| *end <= arrived) {
                ready.extend(replies.pop_front().map(|(_, reply)| reply));
            }
            begun = !replies.is_empty() && ready.is_empty();
        }
        if begun {
            self.input(now, Input::Partial(id));
        }
        for reply in ready {
            k.see(self.host(), What::Replied(line));
            self.input(now, Input::Reply(id, reply));
        }
        self.end_turn(k, clock, now);
    }

    /// The kernel has room again.
    pub(crate) fn writable(&mut self, k: &mut Kernel, clock: &HostClock, line: Line) {
        let Some(id) = self.conns.get(&line) else { return };
        if self.lines.get(id).is_some_and(|outbox| !outbox.ends.is_empty()) {
            let now = clock.now(k.at);
            self.end_turn(k, clock, now);
        }
    }

    pub(crate) fn closed(&mut self, k: &mut Kernel, clock: &HostClock, line: Line, reason: ClosedReason, detail: &str) {
        let Some(id) = self.conns.remove(&line) else { return };
        let now = clock.now(k.at);
        self.lines.remove(&id);
        if let Some(conn) = k.net.get_mut(line) {
            conn.client_open = false;
        }
        k.net.sweep(line);
        let why = Closed { reason, detail: detail.to_string() };
        k.see(self.host(), What::Closed { line, why: why.clone() });
        self.input(now, Input::Closed(id, why));
        self.end_turn(k, clock, now);
    }

    pub(crate) fn wake(&mut self, k: &mut Kernel, clock: &HostClock, at: u64) {
        if self.wake_at != Some(at) {
            return;
        }
        self.wake_at = None;
        let now = clock.now(k.at);
        self.time_passed = true;
        self.input(now, Input::Timeout);
        self.turn(k, clock, now);
    }

    pub(crate) fn end_open_turn(&mut self, k: &mut Kernel, clock: &HostClock) {
        if self.open_turn.is_some() {
            let now = clock.now(k.at);
            self.turn(k, clock, now);
        }
    }

    pub(crate) fn shutdown(&mut self, k: &mut Kernel, clock: &HostClock, grace_us: u64) {
        let now = clock.now(k.at);
        self.stopping = true;
        k.see(self.host(), What::Stopping { grace_us });
        self.input(now, Input::Shutdown(Duration::from_micros(grace_us)));
        self.turn(k, clock, now);
    }

    // ---- turns ----

    fn input(&mut self, now: Now, input: Input) {
        if let Some(inputs) = &mut self.open_turn {
            *inputs += 1;
        } else {
            self.open_turn = Some(1);
        }
        self.recorder.input(&mut self.engine, now, input);
    }

    /// Ends the turn now, or lets it take in what arrives within the next moment.
    fn end_turn(&mut self, k: &mut Kernel, clock: &HostClock, now: Now) {
        if self.ends_later {
            return;
        }
        if k.hosts.chance(k.plan.network.batch) {
            self.open_turn.get_or_insert(0);
            self.ends_later = true;
            let us = k.hosts.below(200);
            k.after(us, Event::EndTurn { service: self.index, life: self.life });
        } else {
            self.turn(k, clock, now);
        }
    }

    /// Drains what the engine says, writes, and drains again what came of that.
    fn turn(&mut self, k: &mut Kernel, clock: &HostClock, now: Now) {
        let inputs = self.open_turn.take().unwrap_or(0);
        let time_passed = std::mem::take(&mut self.time_passed);
        let mut outputs = 0;
        let wait = loop {
            let wait = loop {
                match self.recorder.output(&mut self.engine) {
                    Output::Wait(until) => break until,
                    output => {
                        outputs += 1;
                        self.carry_out(k, now, output);
                    }
                }
                assert!(outputs < OUTPUTS_MAX, "one turn of an engine gives outputs without end");
            };
            if !self.write(k, now) {
                break wait;
            }
        };
        (self.open_turn, self.ends_later) = (None, false);
        // The turn may end a moment after its last input.
        let last = self.recorder.last();
        k.see(self.host(), What::Turn { now: last, inputs, time_passed, outputs, wait });
        self.turns += 1;
        if let Some(until) = wait {
            let at = clock.when(until).max(k.at);
            if self.wake_at != Some(at) {
                self.wake_at = Some(at);
                k.at(at, Event::Wake { service: self.index, life: self.life, at });
            }
        } else {
            self.wake_at = None;
        }
        if self.turns.is_multiple_of(EARLY_EVERY) && wait.is_some_and(|until| until > now.mono) {
            self.call_early(k, now, wait);
        }
        if self.turns.is_multiple_of(AUDIT_EVERY) {
            super::config::audit(&self.engine, self.index, k);
        }
    }

    /// Calls `handle_timeout` although nothing is due: it must change nothing.
    fn call_early(&mut self, k: &mut Kernel, now: Now, wait: Option<flota_core::time::Mono>) {
        self.recorder.input(&mut self.engine, now, Input::Timeout);
        let mut outputs = 0;
        let after = loop {
            match self.recorder.output(&mut self.engine) {
                Output::Wait(until) => break until,
                output => {
                    outputs += 1;
                    self.carry_out(k, now, output);
                }
            }
        };
        k.see(self.host(), What::Early { wait, after, outputs });
    }

    fn carry_out(&mut self, k: &mut Kernel, now: Now, output: Output) {
        match output {
            Output::Dial { conn, to } => self.dial(k, conn, &to),
            Output::Send { conn, command } => self.give(k, conn, command),
            Output::Hangup(conn) => self.hang_up(k, conn),
            // Only announcers send any, and none runs in an engine here.
            Output::Datagram { .. } => {}
            Output::Event(event) => self.hear(k, now, event),
            Output::Wait(_) => {}
        }
    }

    fn dial(&mut self, k: &mut Kernel, id: ConnId, to: &flota_core::config::Endpoint) {
        let broker = net::broker_at(to, k.plan.brokers.len());
        let line = k.net.open(Conn {
            service: self.index,
            broker,
            broker_life: 0,
            client_open: true,
            server_open: false,
            up: Pipe::default(),
            down: Pipe::default(),
            cargo: Cargo::Values { commands: VecDeque::new(), replies: VecDeque::new() },
            inbox: VecDeque::new(),
        });
        self.lines.insert(id, Outbox { line, given: 0, ends: VecDeque::new() });
        self.conns.insert(line, id);
        k.see(self.host(), What::Dialled { conn: id, line, to: to.clone() });
        let us = k.latency() + k.latency();
        k.after(us, Event::Dial { line, tries: 0 });
    }

    fn give(&mut self, k: &mut Kernel, id: ConnId, command: Command) {
        let Some(outbox) = self.lines.get_mut(&id) else { return };
        let bytes = convert::encoded_len(&command) as u64;
        outbox.given += bytes;
        outbox.ends.push_back(outbox.given);
        self.unwritten.insert(id);
        let line = outbox.line;
        k.see(Host::Service(self.index), What::Wrote { line, command: word(&command), bytes });
        let given = outbox.given;
        if let Some(Conn { cargo: Cargo::Values { commands, .. }, .. }) = k.net.get_mut(line) {
            commands.push_back((given, command));
        }
    }

    fn hang_up(&mut self, k: &mut Kernel, id: ConnId) {
        let Some(outbox) = self.lines.remove(&id) else { return };
        self.conns.remove(&outbox.line);
        k.see(self.host(), What::HungUp(outbox.line));
        close_client_end(k, outbox.line, false);
    }

    /// Writes what the sockets take, and reports it. Whether anything was reported.
    fn write(&mut self, k: &mut Kernel, now: Now) -> bool {
        let buffer = k.plan.network.send_buffer;
        let mut sent = Vec::new();
        for id in self.unwritten.iter().copied().collect::<Vec<_>>() {
            let Some(outbox) = self.lines.get_mut(&id) else {
                self.unwritten.remove(&id);
                continue;
            };
            let Some(conn) = k.net.get(outbox.line) else { continue };
            let bytes = (outbox.given - conn.up.written).min(conn.room(buffer));
            k.ship(outbox.line, Toward::Broker, bytes);
            let written = k.net.get(outbox.line).map_or(0, |conn| conn.up.written);
            let mut whole = 0;
            while outbox.ends.front().is_some_and(|end| *end <= written) {
                outbox.ends.pop_front();
                whole += 1;
            }
            if outbox.ends.is_empty() {
                self.unwritten.remove(&id);
            }
            if whole > 0 {
                sent.push((id, outbox.line, whole));
            }
        }
        let any = !sent.is_empty();
        for (id, line, whole) in sent {
            k.see(self.host(), What::Sent(line, whole));
            self.recorder.input(&mut self.engine, now, Input::Sent(id, whole));
        }
        any
    }

    /// Nothing of its application is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.ops.is_empty() && self.hands.is_empty()
    }

    /// Its next waking is put off.
    pub(crate) fn wake_anew(&mut self, at: u64) {
        self.wake_at = Some(at);
    }

    /// Its process is gone: what the system does with its sockets.
    pub(crate) fn die(&mut self, k: &mut Kernel, machine: bool) {
        k.see(self.host(), What::Died(self.life));
        for line in self.conns.keys() {
            close_client_end(k, *line, machine);
        }
    }

    fn topic(&mut self, number: u8) -> Arc<TopicSpec> {
        let spec = self.topics.entry(number).or_insert_with(|| {
            TopicSpec::new(&crate::plan::Plan::topic(number), 1).expect("a topic's name is a letter and a number")
        });
        Arc::clone(spec)
    }

    fn hand(&self, number: u64) -> Hand {
        Hand { life: self.life, number }
    }

    fn host(&self) -> Host {
        Host::Service(self.index)
    }
}

/// More than any turn can need: beyond it the engine talks to itself.
const OUTPUTS_MAX: u32 = 1_000_000;
/// Fleets of up to so many brokers are looked at around datagrams: each of a stranger, and every so many of a broker.
const FLEET_LOOKED_AT: usize = 16;
const LOOK_EVERY: u64 = 4;
/// Every so many turns the engine is called before its time.
const EARLY_EVERY: u64 = 17;
/// Every so many turns it counts itself.
const AUDIT_EVERY: u64 = 97;

/// The service's end of a connection is gone; the broker learns of it unless the machine vanished.
pub(super) fn close_client_end(k: &mut Kernel, line: Line, silently: bool) {
    let Some(conn) = k.net.get_mut(line) else { return };
    conn.client_open = false;
    let server = conn.server_open;
    if server && !silently {
        k.part(line, Toward::Broker, false);
    }
    if server && silently {
        // What keeps a server from holding the dead for ever: TCP keepalive.
        k.after(KEEPALIVE_US, Event::BrokerLearns(line));
    }
    k.net.sweep(line);
}

/// Redis' `tcp-keepalive` of 300 s.
const KEEPALIVE_US: u64 = 300_000_000;

/// The message that a script puts into a bucket.
fn scheduled(eval: &Eval) -> Option<Item> {
    let bodies = eval.args.iter().filter_map(|arg| if let Arg::Bytes(body) = arg { Some(body) } else { None });
    bodies.filter_map(|body| app::item_of(body)).next()
}

fn word(command: &Command) -> Word {
    match command {
        Command::Add(add) => Word::Add(app::item_of(&add.body)),
        Command::Ack(ack) => Word::Ack(u32::try_from(ack.ids.len()).unwrap_or(u32::MAX)),
        Command::ReadGroup(_) => Word::ReadGroup,
        Command::Read(_) => Word::Read,
        Command::Eval(eval, _) if eval.script == Script::Schedule => Word::Add(scheduled(eval)),
        Command::Eval(eval, _) => Word::Script(eval.script),
        Command::Auth(_) => Word::Auth,
        Command::Hello(hello) if hello.credentials.is_some() => Word::Auth,
        Command::Hello(_) => Word::Other("HELLO"),
        Command::Ping => Word::Other("PING"),
        Command::Info => Word::Other("INFO"),
        Command::SetName(_) | Command::ClientId | Command::Unblock(_) | Command::Kill(_) => Word::Other("CLIENT"),
        Command::Time => Word::Other("TIME"),
        Command::NameStore(_) => Word::Other("SET"),
        Command::ReadStore => Word::Other("GET"),
        Command::Consumers(..) => Word::Other("XINFO"),
        Command::Raw(_) => Word::Other("other"),
    }
}
