//! The world: hosts, a network and time, moved by one queue of events.
//!
//! Read [`World::run`] first. Hosts know the kernel and nothing of each other: whatever passes between them is an event.

pub(crate) mod app;
mod broker;
mod config;
mod fast;
mod faults;
mod flood;
mod full;
mod kernel;
pub(crate) mod net;
mod record;
mod service;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use flota_core::output::ClosedReason;

pub use app::{body, item_in, item_of};
pub use net::{broker_address, broker_at, service_address};

use crate::oracle::Judge;
use crate::plan::Plan;
use crate::report::{Report, Tail};
use crate::seen::{Host, Line, Phase, Seen, TraceHash, What};
use broker::BrokerHost;
use kernel::{Event, Kernel};
use service::ServiceHost;

type Watcher = dyn FnMut(&Seen);

/// A run in progress.
pub struct World {
    k: Kernel,
    pub(crate) brokers: Vec<BrokerHost>,
    pub(crate) services: Vec<ServiceHost>,
    judge: Judge,
    hash: TraceHash,
    tail: Tail,
    phase: Phase,
    /// Goes on after a violation: to see which others follow.
    exhaustive: bool,
    most_events: u64,
    watcher: Option<Box<Watcher>>,
    /// True time at which the present phase must be over.
    bound: u64,
}

impl World {
    /// A world before its first moment.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let brokers = plan.brokers.iter().zip(0u32..).map(|(broker, index)| BrokerHost::new(index, broker)).collect();
        let services = (0..plan.services.len() as u32).map(|index| ServiceHost::new(index, &plan)).collect();
        let judge = Judge::new(&plan);
        let mut world = Self {
            k: Kernel::new(plan),
            brokers,
            services,
            judge,
            hash: TraceHash::default(),
            tail: Tail::default(),
            phase: Phase::WarmUp,
            exhaustive: false,
            most_events: u64::MAX,
            watcher: None,
            bound: u64::MAX,
        };
        world.begin();
        world
    }

    /// Lets somebody see everything that is seen: for drawing.
    pub fn watch(&mut self, watcher: impl FnMut(&Seen) + 'static) {
        self.watcher = Some(Box::new(watcher));
    }

    /// Puts an application in the place of the plan's.
    pub(crate) fn host(&mut self, application: Rc<RefCell<dyn app::Application>>) {
        self.k.application = Some(application);
    }

    /// Goes on to the end even when an invariant is violated.
    pub fn exhaust(&mut self) {
        self.exhaustive = true;
    }

    /// Ends the run after so many events, wherever it is then: a planted fault may spin.
    pub fn limit_events(&mut self, events: u64) {
        self.most_events = events;
    }

    /// Runs to the end, or to the first violated invariant.
    #[must_use]
    pub fn run(mut self) -> Report {
        self.drive();
        self.report()
    }

    /// Moves until it is over. What was seen by then can be reported even if this panics.
    pub(crate) fn drive(&mut self) {
        while self.phase != Phase::End
            && self.k.events < self.most_events
            && (self.exhaustive || self.judge.violations().is_empty())
        {
            let Some(event) = self.k.next() else { break };
            self.dispatch(event);
            self.look_at_seen();
        }
        if self.phase == Phase::End {
            self.judge.end(self.k.at, &self.k.plan);
        }
    }

    pub(crate) fn report(self) -> Report {
        Report {
            scenario: self.k.plan.scenario.clone(),
            seed: self.k.plan.seed,
            violations: self.judge.violations().to_vec(),
            hash: self.hash.value(),
            events: self.k.events,
            simulated_us: self.k.at,
            marks: self.judge.marks().clone(),
            outcomes: self.judge.outcomes(),
            tail: self.tail.lines(),
            plan: self.k.plan,
        }
    }

    fn begin(&mut self) {
        let plan = self.k.plan.clone();
        self.k.see(Host::World, What::Phase(Phase::WarmUp));
        for (broker, index) in plan.brokers.iter().zip(0u32..) {
            self.k.at(broker.from_ms * 1000, Event::BrokerStart(index));
        }
        for (service, index) in plan.services.iter().zip(0u32..) {
            self.k.at(service.from_ms * 1000, Event::ServiceStart(index));
            if let Some(at) = self.services.get(index as usize).and_then(|host| host.next_work(&plan)) {
                self.k.at(at, Event::Work(index));
            }
        }
        for (fault, index) in plan.faults.iter().zip(0u32..) {
            if fault.at_ms < plan.heal_at_ms {
                self.k.at(fault.at_ms.max(plan.warm_up_ms) * 1000, Event::FaultBegins(index));
                self.k.at(fault.until_ms().min(plan.heal_at_ms) * 1000, Event::FaultEnds(index));
            }
        }
        self.k.at(plan.warm_up_ms * 1000, Event::Look);
    }

    fn dispatch(&mut self, event: Event) {
        if let Some(service) = self.held_back(&event) {
            service.hold(event);
            return;
        }
        match event {
            Event::ServiceStart(service) => self.with_service(service, |host, k| host.start(k)),
            Event::Work(service) => self.with_service(service, |host, k| host.work(k)),
            Event::App(service, life, event) => self.with_service(service, |host, k| host.app(k, life, event)),
            Event::Datagram { service, from, payload } => {
                self.with_service(service, |host, k| host.datagram(k, from, payload));
            }
            Event::Broadcast { from, payload, broker } => self.broadcast(from, &payload, broker),
            Event::Dial { line, tries } => self.dial(line, tries),
            Event::ToBroker { line, upto } => self.arrives_at_broker(line, upto),
            Event::ToService { line, upto } => self.for_line(line, |host, k, line| host.receive(k, line, upto)),
            Event::BrokerLearns(line) => {
                let broker = self.k.net.get(line).and_then(|conn| conn.broker);
                if let Some(broker) = broker {
                    self.with_broker(broker, |host, k| host.learn_closed(k, line));
                }
            }
            Event::ServiceLearns { line, reset } => {
                let (reason, detail) = if reset {
                    (ClosedReason::Io, "connection reset by peer")
                } else {
                    (ClosedReason::Eof, "the peer closed the connection")
                };
                self.for_line(line, |host, k, line| host.closed(k, line, reason, detail));
            }
            Event::Wake { service, life, at } => self.with_service(service, |host, k| host.wake(k, life, at)),
            Event::EndTurn { service, life } => self.with_service(service, |host, k| host.end_turn(k, life)),
            Event::BrokerStart(broker) => self.with_broker(broker, BrokerHost::start),
            Event::BrokerStep { broker, life } => self.with_broker(broker, |host, k| host.step(k, life)),
            Event::BrokerTick { broker, life } => self.with_broker(broker, |host, k| host.tick(k, life)),
            Event::Announce { broker, voice } => self.with_broker(broker, |host, k| host.announce(k, voice)),
            Event::FaultBegins(fault) => self.fault_begins(fault),
            Event::FaultEnds(fault) => self.fault_ends(fault),
            Event::Flood(fault) => self.flood(fault),
            Event::Look => self.look(),
        }
    }

    /// The paused service that an event is for.
    fn held_back(&mut self, event: &Event) -> Option<&mut ServiceHost> {
        let service = match event {
            Event::Work(service)
            | Event::App(service, ..)
            | Event::Datagram { service, .. }
            | Event::Wake { service, .. }
            | Event::EndTurn { service, .. } => *service,
            Event::ToService { line, .. } | Event::ServiceLearns { line, .. } => self.k.net.get(*line)?.service,
            Event::ServiceStart(_)
            | Event::Broadcast { .. }
            | Event::Dial { .. }
            | Event::ToBroker { .. }
            | Event::BrokerLearns(_)
            | Event::BrokerStart(_)
            | Event::BrokerStep { .. }
            | Event::BrokerTick { .. }
            | Event::Announce { .. }
            | Event::FaultBegins(_)
            | Event::FaultEnds(_)
            | Event::Flood(_)
            | Event::Look => return None,
        };
        self.services.get_mut(service as usize).filter(|host| host.holds(event))
    }

    fn with_service(&mut self, service: u32, act: impl FnOnce(&mut ServiceHost, &mut Kernel)) {
        if let Some(host) = self.services.get_mut(service as usize) {
            act(host, &mut self.k);
        }
    }

    fn with_broker(&mut self, broker: u32, act: impl FnOnce(&mut BrokerHost, &mut Kernel)) {
        if let Some(host) = self.brokers.get_mut(broker as usize) {
            act(host, &mut self.k);
        }
    }

    fn for_line(&mut self, line: Line, act: impl FnOnce(&mut ServiceHost, &mut Kernel, Line)) {
        let service = self.k.net.get(line).map(|conn| conn.service);
        if let Some(host) = service.and_then(|service| self.services.get_mut(service as usize)) {
            act(host, &mut self.k, line);
        }
    }

    // ---- datagrams ----

    /// One datagram on the segment: every service hears it for itself, or does not.
    fn broadcast(&mut self, from: SocketAddr, payload: &Bytes, broker: Option<u32>) {
        let net = self.k.plan.network.clone();
        let loss = net.udp_loss.saturating_add(self.k.net.extra_loss);
        for service in 0..self.services.len() as u32 {
            let barred =
                broker.is_some_and(|broker| self.k.net.cut_until(service, broker, net::Toward::Service).is_some());
            if barred || self.k.network.chance(loss) {
                continue;
            }
            let times = 1 + u32::from(self.k.network.chance(net.udp_twice));
            for _ in 0..times {
                let payload = self.damage(payload, net.udp_damage);
                let us = self.k.latency();
                self.k.after(us, Event::Datagram { service, from, payload });
            }
        }
    }

    fn damage(&mut self, payload: &Bytes, chance: u32) -> Bytes {
        if payload.is_empty() || !self.k.network.chance(chance) {
            return payload.clone();
        }
        let at = self.k.network.below(payload.len() as u64) as usize;
        if self.k.network.chance(500_000) {
            return payload.slice(..at);
        }
        let mut bytes = payload.to_vec();
        bytes[at] ^= 1 << self.k.network.below(8);
        bytes.into()
    }

    // ---- connections ----

    /// A dial reaches its end: accepted, refused, or tried again because nobody answers.
    fn dial(&mut self, line: Line, tries: u32) {
        let Some(conn) = self.k.net.get(line) else { return };
        if !conn.client_open {
            self.k.net.sweep(line);
            return;
        }
        let Some(broker) = conn.broker else {
            // Where nobody ever was: half of the addresses refuse, half are silent.
            if line.0.is_multiple_of(2) {
                self.for_line(line, |host, k, line| host.dialled(k, line, true));
            }
            return;
        };
        let service = conn.service;
        let cut = [net::Toward::Broker, net::Toward::Service]
            .into_iter()
            .any(|toward| self.k.net.cut_until(service, broker, toward).is_some());
        let Some(host) = self.brokers.get_mut(broker as usize) else { return };
        if cut || host.machine_down {
            // The system sends its SYN again: after 1 s, 3 s, 7 s, and so on.
            if tries < 6 {
                self.k.after(1_000_000 << tries, Event::Dial { line, tries: tries + 1 });
            }
            return;
        }
        let refused = !host.up;
        if !refused {
            if let Some(conn) = self.k.net.get_mut(line) {
                conn.server_open = true;
                conn.broker_life = host.life;
            }
            host.accept(&mut self.k, line);
        }
        self.for_line(line, |host, k, line| host.dialled(k, line, refused));
    }

    fn arrives_at_broker(&mut self, line: Line, upto: u64) {
        let Some(broker) = self.k.net.get(line).and_then(|conn| conn.broker) else { return };
        if let Some(host) = self.brokers.get_mut(broker as usize) {
            host.receive(&mut self.k, line, upto);
        }
        self.for_line(line, |host, k, line| host.writable(k, line));
    }

    // ---- phases ----

    fn look(&mut self) {
        match self.phase {
            Phase::WarmUp => {
                self.enter(Phase::Safety);
                self.k.at(self.k.plan.heal_at_ms * 1000, Event::Look);
            }
            Phase::Safety => {
                self.enter(Phase::Liveness);
                self.heal();
                self.bound = self.k.at + self.k.plan.liveness_ms() * 1000;
                self.k.after(LOOK_US, Event::Look);
            }
            Phase::Liveness => {
                let settled = self.judge.is_settled() && self.services.iter().all(|host| host.is_settled(&self.k.plan));
                if settled || self.k.at >= self.bound {
                    if !settled {
                        self.judge.late(self.k.at, &self.k.plan);
                    }
                    self.enter(Phase::Quiesce);
                    for service in &mut self.services {
                        service.shutdown(&mut self.k, GRACE_US);
                    }
                    self.bound = self.k.at + GRACE_US + 10_000_000;
                }
                self.k.after(LOOK_US, Event::Look);
            }
            Phase::Quiesce => {
                if self.services.iter().all(ServiceHost::is_stopped) || self.k.at >= self.bound {
                    for service in &mut self.services {
                        service.rerun(&mut self.k);
                    }
                    self.enter(Phase::End);
                } else {
                    self.k.after(LOOK_US, Event::Look);
                }
            }
            Phase::End => {}
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.k.see(Host::World, What::Phase(phase));
    }

    /// Whoever is down is started: what does not come right now never will.
    fn heal(&mut self) {
        for broker in &mut self.brokers {
            broker.start(&mut self.k);
        }
        for service in &mut self.services {
            service.start(&mut self.k);
        }
    }

    fn look_at_seen(&mut self) {
        let seen = std::mem::take(&mut self.k.seen);
        for one in &seen {
            self.hash.seen(one);
            self.tail.push(one);
            if let Some(watcher) = &mut self.watcher {
                watcher(one);
            }
            self.judge.see(one, &self.k.plan);
        }
        self.k.seen = seen;
        self.k.seen.clear();
        if let Some(text) = self.k.application.as_ref().and_then(|application| application.borrow_mut().complaint()) {
            self.judge.complain(self.k.at, text);
        }
    }
}

/// How often the world looks whether everything has come right, in microseconds.
const LOOK_US: u64 = 100_000;
/// The grace of the final shutdown, in microseconds.
const GRACE_US: u64 = 5_000_000;
