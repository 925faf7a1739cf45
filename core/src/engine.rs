//! The engine: its public methods, and the routing of effects between machines. Nothing clever happens here.

#![allow(clippy::result_large_err, reason = "a refusal gives the argument back; it is rare, and costs one move")]

#[cfg(any(test, feature = "mutants"))]
mod audit;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod property;
mod routing;
#[cfg(test)]
mod watched;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;

#[cfg(any(test, feature = "mutants"))]
#[doc(hidden)]
pub use audit::Footprint;

use crate::announce::Guid;
use crate::announcer::Announcer;
use crate::config::{Config, ConfigError, Endpoint};
use crate::departure::{Departures, Look};
use crate::effect::{Cx, Effect, Route, Timer};
use crate::fleet::Fleet;
use crate::id::{BrokerId, ConnId, DeliveryId, OpId, SubId};
use crate::link::{Links, client_name};
use crate::mutant::Mutant;
use crate::op::{Op, Reject, Rejected, Stale, Sub, Verdict};
use crate::output::{Closed, Event, Output, Unready, WaitReason};
use crate::placement::Placement;
use crate::reply::Reply;
use crate::rng::Seed;
use crate::stats::Stats;
use crate::time::{Mono, Now};
use crate::timers::{TimerSlot, Timers};
use crate::topic::consumer::Consumers;
use crate::topic::producer::Producer;

/// One process start: part of connection and consumer names, so that no two lives are ever taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation(pub u64);

/// The state machine. See the [crate docs](crate) for the contract.
pub struct Engine {
    config: Config,
    now: Now,
    timers: Timers<Timer>,
    out: VecDeque<Output>,
    effects: VecDeque<Effect>,
    stats: Stats,
    fleet: Fleet,
    links: Links,
    placement: Placement,
    departures: Departures,
    producer: Producer,
    consumers: Consumers,
    announcer: Option<Announcer>,
    life: Life,
    /// Something was put in since the last flush.
    unflushed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    /// Until the grace ends.
    Stopping(TimerSlot),
    Stopped,
}

/// A member of the fleet, for looking at.
#[derive(Clone, Copy, Debug)]
pub struct BrokerView<'a> {
    /// Its id.
    pub id: BrokerId,
    /// Its newest GUID; none for a configured broker that nobody announces.
    pub guid: Option<Guid>,
    /// The address it is dialled at.
    pub address: &'a Endpoint,
    /// Whether it can be used.
    pub ready: bool,
    /// Why it cannot be used, as far as is known.
    pub unready: Option<&'a Unready>,
    /// It has left: no sends there, its messages are still read.
    pub leaving: bool,
    /// Accepted announcements.
    pub announcements: u64,
    /// Since when it is a member.
    pub joined: Mono,
    /// Configured: it never expires.
    pub is_static: bool,
}

impl Engine {
    /// An engine for this configuration.
    ///
    /// # Errors
    ///
    /// The first field of the configuration that cannot work.
    pub fn new(config: Config, who: Incarnation, seed: Seed, now: Now) -> Result<Self, ConfigError> {
        config.validate()?;
        let service = config.service.as_deref().unwrap_or("flota");
        let consumer_name: Arc<str> = alloc::format!("{service}.{:016x}", who.0).into();
        let mut timers = Timers::new();
        let announcer = config.announce.clone().map(|what| Announcer::new(what, &mut timers));
        let mut engine = Self {
            now,
            out: VecDeque::new(),
            effects: VecDeque::new(),
            stats: Stats::default(),
            fleet: Fleet::new(&config, seed),
            links: Links::new(seed, client_name(service, who.0).into()),
            placement: Placement::default(),
            departures: Departures::default(),
            producer: Producer::new(seed, &mut timers),
            consumers: Consumers::new(seed, consumer_name),
            announcer,
            life: Life::Running,
            unflushed: false,
            timers,
            config,
        };
        engine.with(now, |engine, _| {
            let (fleet, mut cx) = engine.lend_fleet();
            fleet.start(&mut cx);
        });
        Ok(engine)
    }

    // ---- the world speaks ----

    /// A datagram arrived on the announcement socket.
    ///
    /// Alone among the inputs it lets no time pass: what is due at `now` fires with the next one. So a late driver that
    /// empties its socket first expires nobody whose announcement has already arrived.
    pub fn handle_datagram(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) {
        self.with(now, |engine, _| {
            let (fleet, mut cx) = engine.lend_fleet();
            fleet.on_datagram(from, datagram, &mut cx);
        });
    }

    /// A dial succeeded, TLS included.
    pub fn handle_connected(&mut self, now: Now, conn: ConnId) {
        self.with(now, |engine, _| {
            let (links, mut cx) = engine.lend_links();
            links.on_connected(conn, &mut cx);
        });
    }

    /// The stream accepted this many more commands whole.
    pub fn handle_sent(&mut self, now: Now, conn: ConnId, commands: u64) {
        self.with(now, |engine, _| {
            let (links, mut cx) = engine.lend_links();
            links.on_sent(conn, commands, &mut cx);
        });
    }

    /// A reply arrived.
    pub fn handle_reply(&mut self, now: Now, conn: ConnId, reply: Reply) {
        self.with(now, |engine, _| {
            let (links, mut cx) = engine.lend_links();
            links.on_reply(conn, reply, &mut cx);
        });
    }

    /// A part of a reply arrived: the connection is alive, however long the rest takes.
    pub fn handle_partial(&mut self, now: Now, conn: ConnId) {
        self.with(now, |engine, _| {
            let (links, mut cx) = engine.lend_links();
            links.on_partial(conn, &mut cx);
        });
    }

    /// A connection failed, ended, or never came about.
    pub fn handle_closed(&mut self, now: Now, conn: ConnId, why: Closed) {
        self.with(now, |engine, _| {
            let (links, mut cx) = engine.lend_links();
            links.on_closed(conn, &why, &mut cx);
        });
    }

    /// Time has passed. Early, late or twice is harmless.
    pub fn handle_timeout(&mut self, now: Now) {
        self.with(now, |engine, _| {
            if engine.life != Life::Stopped {
                engine.fire_due();
            }
        });
    }

    // ---- the application speaks ----

    /// Accepts an operation; [`Event::Done`] follows exactly once.
    ///
    /// # Errors
    ///
    /// Why it cannot be accepted, with the operation.
    pub fn submit(&mut self, now: Now, op: Op) -> Result<OpId, Rejected<Op>> {
        self.with(now, |engine, _| match op {
            Op::Send(send) => {
                let (producer, mut cx) = engine.lend_producer();
                producer.submit_send(send, &mut cx)
            }
            Op::Call(call) if !engine.links.is_ready(call.broker) => {
                Err(Rejected { why: Reject::NotReady, given: Op::Call(call) })
            }
            Op::Call(call) => {
                let (producer, mut cx) = engine.lend_producer();
                producer.submit_call(call, &mut cx)
            }
        })
    }

    /// Resolves an operation at once: not sent if it still waits, else ambiguous, and its answer is ignored.
    ///
    /// # Errors
    ///
    /// It is finished already.
    pub fn cancel(&mut self, now: Now, op: OpId) -> Result<(), Stale> {
        self.with(now, |engine, _| {
            if engine.config.is_mutant(Mutant::CancelRemovesSlot) {
                engine.links.forget_route(Route::Op(op));
            }
            let (producer, mut cx) = engine.lend_producer();
            producer.cancel(op, &mut cx)
        })
    }

    /// Starts a consumer; deliveries follow.
    ///
    /// # Errors
    ///
    /// Why it cannot be accepted, with the subscription.
    pub fn subscribe(&mut self, now: Now, sub: Sub) -> Result<SubId, Rejected<Sub>> {
        self.with(now, |engine, _| {
            let (consumers, mut cx) = engine.lend_consumers();
            consumers.subscribe(sub, &mut cx)
        })
    }

    /// Ends a consumer: running handlers have `grace`, then their messages are given back.
    /// [`Event::Unsubscribed`] follows.
    ///
    /// # Errors
    ///
    /// It has ended already.
    pub fn unsubscribe(&mut self, now: Now, sub: SubId, grace: Duration) -> Result<(), Stale> {
        self.with(now, |engine, _| {
            let (consumers, mut cx) = engine.lend_consumers();
            consumers.unsubscribe(sub, grace, &mut cx)
        })
    }

    /// A handler started on a delivery: its time runs from now.
    ///
    /// # Errors
    ///
    /// The delivery is settled, or was taken back.
    pub fn started(&mut self, now: Now, delivery: DeliveryId) -> Result<(), Stale> {
        self.with(now, |engine, _| {
            let (consumers, mut cx) = engine.lend_consumers();
            consumers.started(delivery, &mut cx)
        })
    }

    /// Everything in hand of a subscription counts as started: for a caller that hands messages out without knowing what
    /// becomes of them. Their time does not run. What no handler has seen is to be given back before.
    pub fn all_started(&mut self, now: Now, sub: SubId) {
        self.with(now, |engine, _| engine.consumers.all_started(sub));
    }

    /// What became of a delivery. With `tell`, [`Event::Settled`] says what the broker made of it.
    ///
    /// # Errors
    ///
    /// The delivery is settled, or was taken back.
    pub fn settle(&mut self, now: Now, delivery: DeliveryId, verdict: Verdict, tell: bool) -> Result<(), Stale> {
        self.with(now, |engine, _| {
            let (consumers, mut cx) = engine.lend_consumers();
            consumers.settle(delivery, verdict, tell, &mut cx)
        })
    }

    /// Stops: nothing new is accepted, consumers end, what is in flight has `grace`. [`Event::Stopped`] follows.
    pub fn shutdown(&mut self, now: Now, grace: Duration) {
        self.with(now, |engine, now| {
            if engine.life != Life::Running {
                return;
            }
            let slot = engine.timers.register(Timer::Shutdown);
            // Consumers keep the grace for handlers and need a moment more for their last words.
            if !engine.config.is_mutant(Mutant::StopNever) {
                engine.timers.arm(slot, now.mono + grace + LAST_WORDS);
            }
            engine.life = Life::Stopping(slot);
            let (producer, mut cx) = engine.lend_producer();
            producer.stop(&mut cx);
            let (consumers, mut cx) = engine.lend_consumers();
            consumers.stop(grace, &mut cx);
            if let Some((announcer, mut cx)) = engine.lend_announcer() {
                announcer.on_stop(&mut cx);
            }
        });
    }

    // ---- the engine speaks ----

    /// The next thing to do. Drain it until [`Output::Wait`].
    pub fn poll_output(&mut self) -> Output {
        if let Some(output) = self.out.pop_front() {
            return output;
        }
        if core::mem::take(&mut self.unflushed) {
            self.flush();
            if let Some(output) = self.out.pop_front() {
                return output;
            }
        }
        let is_over = self.life == Life::Stopped && !self.config.is_mutant(Mutant::WaitAfterStop);
        Output::Wait(if is_over { None } else { self.timers.next() })
    }

    /// Why [`Output::Wait`] names the time it names.
    #[must_use]
    pub fn wait_reason(&self) -> WaitReason {
        match self.timers.next_what() {
            None => WaitReason::Idle,
            Some(Timer::Liveness(_) | Timer::AdmissionReport) => WaitReason::Liveness,
            Some(Timer::Conn(_)) => WaitReason::Connection,
            Some(Timer::Link(_) | Timer::ReaderDial(..)) => WaitReason::Backoff,
            Some(Timer::Backlog | Timer::Memory(_)) => WaitReason::Backlog,
            Some(Timer::Renew(_) | Timer::Claim(_) | Timer::Handler(_) | Timer::Agenda(_) | Timer::Stop(_)) => {
                WaitReason::Consumer
            }
            Some(Timer::Announce) => WaitReason::Announcement,
            Some(Timer::Departure(_) | Timer::Shutdown) => WaitReason::Housekeeping,
        }
    }

    // ---- looking without touching ----

    /// The members, departed ones included, in no particular order.
    pub fn fleet(&self) -> impl Iterator<Item = BrokerView<'_>> {
        self.fleet.iter().map(|(id, member)| BrokerView {
            id,
            guid: member.guid(),
            address: member.address(),
            ready: self.links.is_ready(id),
            unready: member.unready(),
            leaving: member.is_leaving(),
            announcements: member.announcements(),
            joined: member.joined(),
            is_static: member.is_static(),
        })
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether this fault is planted: the driver asks for its own.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(crate) fn is_mutant(&self, mutant: Mutant) -> bool {
        self.config.is_mutant(mutant)
    }

    // ---- one input ----

    /// Runs one input and what it causes. What is due stays due: only `handle_timeout` lets time pass.
    fn with<T>(&mut self, now: Now, input: impl FnOnce(&mut Self, Now) -> T) -> T {
        let result = self.take_in(now, input);
        if let Life::Stopping(_) = self.life {
            self.finish_if_idle();
        }
        result
    }

    fn take_in<T>(&mut self, now: Now, input: impl FnOnce(&mut Self, Now) -> T) -> T {
        let now = self.clamp(now);
        self.now = now;
        if self.life == Life::Stopped {
            // The machines refuse what an application asks for; whatever else they say is for nobody.
            let said = self.out.len();
            let result = input(self, now);
            self.out.truncate(said);
            self.effects.clear();
            return result;
        }
        self.unflushed = true;
        let result = input(self, now);
        self.route();
        result
    }

    fn fire_due(&mut self) {
        if self.config.is_mutant(Mutant::FiresEarly)
            && let Some((_, timer)) = self.timers.pop_due(self.now.mono + Duration::from_millis(200))
        {
            self.on_timer(timer);
            self.route();
        }
        while let Some((_, timer)) = self.timers.pop_due(self.now.mono) {
            self.on_timer(timer);
            self.route();
            if self.config.is_mutant(Mutant::OneTimerPerTimeout) {
                break;
            }
        }
    }

    /// A monotonic clock that goes back is held where it was, and counted.
    fn clamp(&mut self, now: Now) -> Now {
        if now.mono < self.now.mono {
            self.stats.clock_reversals += 1;
            return Now { mono: self.now.mono, wall: now.wall };
        }
        now
    }

    /// Decides what a burst of inputs has made possible: placements, then acknowledgements, claims and reads.
    fn flush(&mut self) {
        if self.config.is_mutant(Mutant::RotationRestarts) {
            self.placement.restart();
        }
        while let Some((op, key)) = self.producer.next_waiting() {
            let (placement, mut cx) = self.lend_placement();
            let Some(broker) = placement.pick(key, &mut cx) else {
                let (producer, mut cx) = self.lend_producer();
                producer.wait(&mut cx);
                // Some may have no time to wait at all.
                producer.on_deadline(&mut cx);
                break;
            };
            let (producer, mut cx) = self.lend_producer();
            producer.place(op, broker, &mut cx);
            self.route();
            if self.config.is_mutant(Mutant::OnePerFlush) {
                break;
            }
        }
        while self.consumers.has_dirty() {
            let (consumers, mut cx) = self.lend_consumers();
            consumers.flush(&mut cx);
            self.route();
        }
        if let Life::Stopping(_) = self.life {
            self.finish_if_idle();
        }
    }

    fn finish_if_idle(&mut self) {
        let is_idle = self.producer.is_idle() && self.consumers.is_empty();
        if is_idle || self.config.is_mutant(Mutant::StopsAtOnce) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if self.life == Life::Stopped {
            return;
        }
        let all: alloc::vec::Vec<BrokerId> = self.fleet.iter().map(|(id, _)| id).collect();
        for broker in all {
            let (links, mut cx) = self.lend_links();
            links.close(broker, &mut cx);
        }
        // Only the operations on the way still matter: what was sent may have happened.
        while let Some(effect) = self.effects.pop_front() {
            if let Effect::Orphan { broker, route: route @ Route::Op(_), sent } = effect {
                self.on_orphan(broker, route, sent);
            }
        }
        let (producer, mut cx) = self.lend_producer();
        producer.abandon(&mut cx);
        let (consumers, mut cx) = self.lend_consumers();
        consumers.abandon(&mut cx);
        self.effects.clear();
        self.life = Life::Stopped;
        self.out.push_back(Output::Event(Event::Stopped));
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::Liveness(broker) => {
                let (fleet, mut cx) = self.lend_fleet();
                fleet.on_liveness(broker, &mut cx);
            }
            Timer::AdmissionReport => {
                let (fleet, mut cx) = self.lend_fleet();
                fleet.on_admission_report(&mut cx);
            }
            Timer::Conn(conn) => {
                let (links, mut cx) = self.lend_links();
                links.on_conn_timer(conn, &mut cx);
            }
            Timer::Link(broker) => {
                let (links, mut cx) = self.lend_links();
                links.on_link_timer(broker, &mut cx);
            }
            Timer::ReaderDial(broker, sub) => {
                let (links, mut cx) = self.lend_links();
                links.on_reader_dial(broker, sub, &mut cx);
            }
            Timer::Departure(broker) => self.look_at_departed(broker),
            Timer::Memory(broker) => self.placement.on_memory_timer(broker),
            Timer::Backlog => {
                let (producer, mut cx) = self.lend_producer();
                producer.on_deadline(&mut cx);
            }
            Timer::Renew(sub) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_renew_timer(sub, &mut cx);
            }
            Timer::Claim(sub) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_claim_timer(sub, &mut cx);
            }
            Timer::Handler(sub) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_handler_timer(sub, &mut cx);
            }
            Timer::Agenda(sub) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_agenda_timer(sub, &mut cx);
            }
            Timer::Stop(sub) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_stop_timer(sub, &mut cx);
            }
            Timer::Announce => {
                if let Some((announcer, mut cx)) = self.lend_announcer() {
                    announcer.on_timer(&mut cx);
                }
            }
            Timer::Shutdown => self.finish(),
        }
    }

    fn look_at_departed(&mut self, broker: BrokerId) {
        let empty = self.consumers.is_drained(broker) && self.links.is_quiet(broker);
        let look = Look { connected: self.links.is_connected(broker), empty };
        let (departures, mut cx) = self.lend_departures();
        departures.look(broker, look, &mut cx);
    }
}

impl core::fmt::Debug for Engine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Engine")
            .field("now", &self.now)
            .field("life", &self.life)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// How long consumers may need for their last words after the grace.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Lends a machine together with everything it may touch.
macro_rules! lend {
    ($($lend:ident => $machine:ident: $kind:ty;)*) => {
        impl Engine {$(
            fn $lend(&mut self) -> (&mut $kind, Cx<'_>) {
                let cx = Cx {
                    now: self.now,
                    config: &self.config,
                    timers: &mut self.timers,
                    out: &mut self.out,
                    effects: &mut self.effects,
                    stats: &mut self.stats,
                };
                (&mut self.$machine, cx)
            }
        )*}
    };
}

lend! {
    lend_fleet => fleet: Fleet;
    lend_links => links: Links;
    lend_placement => placement: Placement;
    lend_departures => departures: Departures;
    lend_producer => producer: Producer;
    lend_consumers => consumers: Consumers;
}

impl Engine {
    fn lend_announcer(&mut self) -> Option<(&mut Announcer, Cx<'_>)> {
        let announcer = self.announcer.as_mut()?;
        let cx = Cx {
            now: self.now,
            config: &self.config,
            timers: &mut self.timers,
            out: &mut self.out,
            effects: &mut self.effects,
            stats: &mut self.stats,
        };
        Some((announcer, cx))
    }
}
