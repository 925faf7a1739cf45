//! A service in fast fidelity: its engine is called directly, commands and replies travel as values.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use flota_core::Engine;
use flota_core::command::Command;
use flota_core::engine::Incarnation;
use flota_core::id::{BrokerId, ConnId, DeliveryId, OpId, SubId};
use flota_core::op::{Op, Outcome, Policy, Send, Stale, Verdict};
use flota_core::output::{Closed, ClosedReason, Event as Said, Output};
use flota_core::rng::Seed;
use flota_core::time::Now;
use flota_core::topic::{Message, TopicSpec};

use super::app::{self, Call, Deed};
use super::kernel::{AppEvent, Event, Kernel};
use super::net::{self, Cargo, Conn, Pipe, Toward};
use super::record::{Input, Recorder};
use crate::broker::convert;
use crate::clock::HostClock;
use crate::plan::ServicePlan;
use crate::seen::{Delivered, Given, Hand, Host, Item, Line, Place, What, Word};

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

struct Held {
    delivery: DeliveryId,
    sub: u32,
    item: Option<Item>,
    deliveries: u32,
    /// What its handler has come to, once it has: in applications that are not the plan's.
    deed: Option<Deed>,
    /// It has its verdict, and waits for what the broker makes of it.
    settled: bool,
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

    // ---- its application ----

    pub(crate) fn submit(&mut self, k: &mut Kernel, clock: &HostClock, item: Item) {
        let Some(work) = k.plan.work.get(item.0 as usize).cloned() else { return };
        let now = clock.now(k.at);
        let mut message = Message::new(k.body(item).unwrap_or_default());
        if let Some(key) = work.key {
            message = message.key(format!("key-{key}"));
        }
        let policy = if work.at_most_once { Policy::AtMostOnce } else { Policy::AtLeastOnce };
        let send = Send { topic: self.topic(work.topic), message, policy, wait: None };
        let result = self.recorder.submit(&mut self.engine, now, Op::Send(send));
        let accepted = match result {
            Ok(op) => {
                self.ops.insert(op, item);
                self.items.insert(item, op);
                if let Some(us) = work.cancel_after_us {
                    k.after(us, Event::App(self.index, self.life, AppEvent::Cancel(item.0)));
                }
                Ok(())
            }
            Err(rejected) => Err(rejected.why),
        };
        k.see(self.host(), What::Submitted { item, accepted });
        self.end_turn(k, clock, now);
    }

    /// Whether the process lives on.
    pub(crate) fn app(&mut self, k: &mut Kernel, clock: &HostClock, event: AppEvent) -> bool {
        let now = clock.now(k.at);
        match event {
            AppEvent::Start(number) => return self.start_handler(k, clock, now, number),
            AppEvent::Act(number, rest_us) => return self.act(k, number, rest_us),
            AppEvent::Finish(number) => self.finish_handler(k, now, number),
            AppEvent::Cancel(item) => {
                if let Some(op) = self.items.get(&Item(item)).copied() {
                    let live = self.recorder.cancel(&mut self.engine, now, op).is_ok();
                    k.see(self.host(), What::Cancelled { item: Item(item), live });
                }
            }
            AppEvent::Resubscribe(sub) => self.resubscribe(k, now, sub),
            AppEvent::Timer(_) => {}
        }
        self.end_turn(k, clock, now);
        true
    }

    fn start_handler(&mut self, k: &mut Kernel, clock: &HostClock, now: Now, number: u64) -> bool {
        let Some(held) = self.hands.get(&number) else { return true };
        let (delivery, sub) = (held.delivery, held.sub);
        let deed = deed(k, held);
        if self.recorder.started(&mut self.engine, now, delivery) == Err(Stale) {
            self.drop_hand(number);
            return true;
        }
        k.see(self.host(), What::Started(self.hand(number)));
        let usual = self.plan.consumes.get(sub as usize).map_or(1_000, |consume| consume.handler_us);
        match deed {
            _ if k.application.is_some() => {
                // What it does comes anywhere in its time: a crash is before it, or between it and the verdict.
                let us = k.hosts.exponential(usual);
                let act_us = k.hosts.below(us + 1);
                k.after(act_us, Event::App(self.index, self.life, AppEvent::Act(number, us - act_us)));
            }
            Deed::Crash => return false,
            Deed::Hang => {}
            Deed::Settle(_, times) => {
                let us = k.hosts.exponential(usual).saturating_mul(times);
                k.after(us, Event::App(self.index, self.life, AppEvent::Finish(number)));
            }
            Deed::SettleTwice(_) => {
                let us = k.hosts.exponential(usual);
                k.after(us, Event::App(self.index, self.life, AppEvent::Finish(number)));
            }
        }
        self.end_turn(k, clock, now);
        true
    }

    /// The handler of an application that is not the plan's does what it does. Whether the process lives on.
    fn act(&mut self, k: &mut Kernel, number: u64, rest_us: u64) -> bool {
        let (service, life, stopped) = (self.index, self.life, self.stopped);
        let Some(held) = self.hands.get_mut(&number).filter(|held| !held.settled && !stopped) else { return true };
        let (Some(item), Some(application)) = (held.item, k.application.clone()) else { return true };
        let Some(body) = k.body(item) else { return true };
        let (at, sub, deliveries) = (Duration::from_micros(k.at), held.sub, held.deliveries);
        let deed = application.borrow_mut().act(&Call { at, service, life, sub, item, deliveries }, &body);
        held.deed = Some(deed);
        k.after(rest_us, Event::App(service, life, AppEvent::Finish(number)));
        deed != Deed::Crash
    }

    fn finish_handler(&mut self, k: &mut Kernel, now: Now, number: u64) {
        let Some(held) = self.hands.get(&number) else { return };
        match deed(k, held) {
            Deed::Settle(given, _) => self.settle(k, now, number, given),
            Deed::SettleTwice(given) => {
                let delivery = held.delivery;
                self.settle(k, now, number, given);
                // The second time it names nothing: the engine must say so and change nothing.
                let live = self.recorder.settle(&mut self.engine, now, delivery, verdict(given), true).is_ok();
                k.see(self.host(), What::Settled { hand: self.hand(number), verdict: given, live });
            }
            Deed::Crash | Deed::Hang => {}
        }
    }

    fn settle(&mut self, k: &mut Kernel, now: Now, number: u64, given: Given) {
        let Some(held) = self.hands.get_mut(&number) else { return };
        held.settled = true;
        let live = self.recorder.settle(&mut self.engine, now, held.delivery, verdict(given), true).is_ok();
        k.see(self.host(), What::Settled { hand: self.hand(number), verdict: given, live });
        if !live {
            self.drop_hand(number);
        }
    }

    fn subscribe(&mut self, k: &mut Kernel, now: Now, sub: u32) {
        let Some(consume) = self.plan.consumes.get(sub as usize).cloned() else { return };
        let topic = self.topic(consume.topic);
        let wanted = super::config::subscription(&k.plan.knobs, topic, &consume);
        if let Ok(id) = self.recorder.subscribe(&mut self.engine, now, wanted) {
            self.subs.insert(id, sub);
            self.sub_ids.insert(sub, id);
            k.see(self.host(), What::Subscribed(sub));
        }
    }

    fn resubscribe(&mut self, k: &mut Kernel, now: Now, sub: u32) {
        if self.stopping {
            return;
        }
        match self.sub_ids.remove(&sub) {
            Some(id) => {
                let grace = Duration::from_millis(k.hosts.below(2_000));
                if self.recorder.unsubscribe(&mut self.engine, now, id, grace).is_ok() {
                    k.see(self.host(), What::Unsubscribing(sub));
                }
            }
            None => self.subscribe(k, now, sub),
        }
        let us = self.plan.subscribe_loop_ms * 1000;
        k.after(us, Event::App(self.index, self.life, AppEvent::Resubscribe(sub)));
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

    // ---- what the engine tells ----

    fn hear(&mut self, k: &mut Kernel, now: Now, event: Said) {
        match event {
            Said::Broker(event) => {
                if let Some(place) = net::broker_at(&event.address, k.plan.brokers.len()) {
                    self.places.insert(event.broker, place);
                }
                let (id, address, change) = (event.broker, event.address.clone(), event.change.clone());
                k.see(self.host(), What::Fleet { id, address, change });
            }
            Said::Done { op, result } => {
                let Some(item) = self.ops.remove(&op) else {
                    k.see(self.host(), What::Stray);
                    return;
                };
                self.items.remove(&item);
                let result = match result {
                    Ok(Outcome::Stored(stored)) => Ok(Place {
                        broker: self.places.get(&stored.broker).copied(),
                        partition: stored.partition,
                        entry: stored.entry,
                    }),
                    Ok(Outcome::Reply(_)) => return,
                    Err(error) => Err(error),
                };
                k.see(self.host(), What::Done { item, result });
            }
            Said::Delivery(delivery) => self.deliver(k, &delivery),
            Said::Settled { delivery, result } => {
                let Some(number) = self.numbers.get(&delivery).copied() else { return };
                k.see(self.host(), What::Answered { hand: self.hand(number), result });
                self.drop_hand(number);
            }
            Said::Overdue { delivery, .. } => {
                let Some(number) = self.numbers.get(&delivery).copied() else { return };
                k.see(self.host(), What::Overdue(self.hand(number)));
                // As a driver does: the handler is ended, and the message is tried again.
                self.settle(k, now, number, Given::Retry);
            }
            Said::Unsubscribed { sub } => {
                if let Some(sub) = self.subs.remove(&sub) {
                    k.see(self.host(), What::Unsubscribed(sub));
                }
            }
            Said::Warning(warning) => k.see(self.host(), What::Warned(warning)),
            Said::Stopped => {
                self.stopped = true;
                k.see(self.host(), What::Stopped);
            }
        }
    }

    fn deliver(&mut self, k: &mut Kernel, delivery: &flota_core::output::Delivery) {
        let at = delivery.index as usize;
        let body = delivery.batch.field(at, b"payload").unwrap_or_default();
        let item = app::item_of(body);
        let intact = item.and_then(|item| k.body(item)).is_some_and(|sent| sent == body);
        let sub = self.subs.get(&delivery.sub).copied().unwrap_or(u32::MAX);
        let number = self.next_hand;
        self.next_hand += 1;
        self.numbers.insert(delivery.delivery, number);
        let deliveries = delivery.deliveries;
        let held = Held { delivery: delivery.delivery, sub, item, deliveries, deed: None, settled: false };
        self.hands.insert(number, held);
        let delivered = Delivered {
            hand: self.hand(number),
            sub,
            item,
            intact,
            broker: self.places.get(&delivery.broker).copied(),
            partition: delivery.partition,
            entry: delivery.entry(),
            deliveries,
        };
        k.see(self.host(), What::Delivered(Box::new(delivered)));
        // Most handlers start at once; some wait for a turn.
        let us = if k.hosts.chance(200_000) { k.hosts.below(50_000) } else { 0 };
        k.after(us, Event::App(self.index, self.life, AppEvent::Start(number)));
    }

    fn drop_hand(&mut self, number: u64) {
        if let Some(held) = self.hands.remove(&number) {
            self.numbers.remove(&held.delivery);
        }
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

/// What a handler does with what is in its hand: as it has decided, or as the plan wants it.
fn deed(k: &Kernel, held: &Held) -> Deed {
    if k.application.is_some() {
        return held.deed.unwrap_or(Deed::Hang);
    }
    let fate = held.item.and_then(|item| k.plan.work.get(item.0 as usize)).map_or_else(Default::default, |w| w.fate);
    app::deed(fate, held.deliveries)
}

fn verdict(given: Given) -> Verdict {
    match given {
        Given::Done => Verdict::Done,
        Given::Retry => Verdict::Retry { reason: "again".into(), after: None },
        Given::Reject => Verdict::Reject { reason: "never".into() },
        Given::Release => Verdict::Release { started: true },
    }
}

fn word(command: &Command) -> Word {
    match command {
        Command::Add(add) => Word::Add(app::item_of(&add.body)),
        Command::Ack(ack) => Word::Ack(u32::try_from(ack.ids.len()).unwrap_or(u32::MAX)),
        Command::ReadGroup(_) => Word::ReadGroup,
        Command::Read(_) => Word::Read,
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
