//! A service in full fidelity: the real driver and the real client, as tasks of an executor whose every choice is drawn,
//! over sockets whose bytes come and go in drawn pieces.
//!
//! The world's events move bytes and time and wake tasks; tasks run in an event of their own, a moment later.

mod app;
mod executor;
mod net;
mod outside;
mod runner;

use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use flota_core::driver::{Client, Driver, Setup};
use flota_core::engine::Incarnation;
use flota_core::output::ClosedReason;
use flota_core::rng::Seed;

use super::fast::close_client_end;
use super::kernel::{AppEvent, Event, Kernel};
use crate::clock::HostClock;
use crate::seen::{Host, Item, Line, What};
use app::App;
use executor::Executor;
use net::{Dialling, Ending, SimAlarm, SimNet, SimSocket};
use outside::Outside;

/// One life of a service's process.
pub(crate) struct FullService {
    index: u32,
    life: u32,
    outside: Outside,
    executor: Executor,
    client: Client,
    /// The driver's task.
    driver: u64,
    /// It was polled since the last turn that was seen.
    driver_polled: bool,
    /// An event that polls is on its way.
    polls_soon: bool,
    pub(crate) stopped: bool,
}

impl FullService {
    /// A process starts: its driver, and its consumers.
    pub(crate) fn start(index: u32, life: u32, clock: &HostClock, k: &mut Kernel) -> Self {
        let plan = k.plan.services.get(index as usize).cloned().expect("a service of the plan");
        k.see(Host::Service(index), What::Born(life));
        let config = super::config::engine_config(&k.plan, index);
        let outside = Outside::new(index, life, clock, k, plan.clone());
        let setup = Setup {
            socket: config.discovery.is_some().then(|| SimSocket(outside.clone())),
            config,
            net: SimNet(outside.clone()),
            gauge: None,
            alarm: SimAlarm(outside.clone()),
            incarnation: Incarnation(u64::from(index) << 32 | u64::from(life)),
            seed: Seed::from_u64(k.plan.seed ^ (u64::from(index) << 20 | u64::from(life)).wrapping_mul(0x9e37)),
        };
        let made = outside.lend(k, clock, || Driver::new(setup));
        let (driver, client) = made.expect("a plan's configuration is valid");
        let events = client.events();
        outside.state().events = Some(events);
        let mut executor = Executor::default();
        let driver = executor.spawn(Box::pin(driver));
        for (consume, sub) in plan.consumes.into_iter().zip(0u32..) {
            let app = App { outside: outside.clone(), client: client.clone() };
            executor.spawn(Box::pin(app.consume(sub, consume)));
        }
        let mut service = Self {
            index,
            life,
            outside,
            executor,
            client,
            driver,
            driver_polled: false,
            polls_soon: false,
            stopped: false,
        };
        service.look(k);
        service
    }

    // ---- the world speaks ----

    pub(crate) fn datagram(&mut self, k: &mut Kernel, from: SocketAddr, payload: Bytes) {
        let mut state = self.outside.state();
        // A system's buffer is finite, too.
        if state.datagrams.len() < DATAGRAMS {
            state.datagrams.push_back((from, payload));
        }
        let waker = state.port.take();
        drop(state);
        self.wake_by(k, [waker]);
    }

    pub(crate) fn dialled(&mut self, k: &mut Kernel, line: Line, refused: bool) {
        let mut state = self.outside.state();
        let Some(end) = state.ends.get_mut(&line) else { return };
        end.dial = if refused { Dialling::Refused } else { Dialling::Connected };
        let wakers = end.wakers();
        drop(state);
        self.wake_by(k, wakers);
    }

    /// Bytes have arrived.
    pub(crate) fn receive(&mut self, k: &mut Kernel, line: Line, upto: u64) {
        if let Some(conn) = k.net.get_mut(line) {
            conn.down.arrived = conn.down.arrived.max(upto);
        }
        let waker = self.outside.state().ends.get_mut(&line).and_then(|end| end.reader.take());
        self.wake_by(k, [waker]);
    }

    /// The system has room for more bytes again.
    pub(crate) fn writable(&mut self, k: &mut Kernel, line: Line) {
        let waker = self.outside.state().ends.get_mut(&line).and_then(|end| end.writer.take());
        self.wake_by(k, [waker]);
    }

    /// The peer has ended a connection.
    pub(crate) fn closed(&mut self, k: &mut Kernel, line: Line, reason: ClosedReason) {
        let mut state = self.outside.state();
        let Some(end) = state.ends.get_mut(&line) else { return };
        end.ended = Some(if reason == ClosedReason::Eof { Ending::Eof } else { Ending::Reset });
        let wakers = end.wakers();
        drop(state);
        self.wake_by(k, wakers);
    }

    pub(crate) fn wake(&mut self, k: &mut Kernel, at: u64) {
        let mut state = self.outside.state();
        if state.alarm_at != Some(at) {
            return;
        }
        let waker = state.alarm.take();
        drop(state);
        self.wake_by(k, [waker]);
    }

    /// Its next waking is put off.
    pub(crate) fn wake_anew(&mut self, at: u64) {
        self.outside.state().alarm_at = Some(at);
    }

    fn wake_by<const N: usize>(&mut self, k: &mut Kernel, wakers: [Option<Waker>; N]) {
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.look(k);
    }

    // ---- its application ----

    pub(crate) fn submit(&mut self, k: &mut Kernel, item: Item) {
        self.outside.state().under_way += 1;
        let app = App { outside: self.outside.clone(), client: self.client.clone() };
        self.executor.spawn(Box::pin(app.send(item)));
        self.look(k);
    }

    pub(crate) fn app(&mut self, k: &mut Kernel, event: &AppEvent) {
        if let AppEvent::Timer(number) = event {
            let waker = self.outside.state().ring(*number);
            self.wake_by(k, [waker]);
        }
    }

    pub(crate) fn shutdown(&mut self, k: &mut Kernel, grace_us: u64) {
        self.outside.state().stopping = true;
        k.see(self.host(), What::Stopping { grace_us });
        let client = self.client.clone();
        self.executor.spawn(Box::pin(async move {
            let _ = client.close(Duration::from_micros(grace_us)).await;
        }));
        self.look(k);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.outside.state().stopping
    }

    /// Nothing of its application is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.outside.state().under_way == 0
    }

    /// Its process is gone: what the system does with its sockets.
    pub(crate) fn die(&mut self, k: &mut Kernel, machine: bool) {
        k.see(self.host(), What::Died(self.life));
        let lines = {
            let mut state = self.outside.state();
            state.dead = true;
            std::mem::take(&mut state.ends)
        };
        for line in lines.keys() {
            close_client_end(k, *line, machine);
        }
        self.executor = Executor::default();
    }

    // ---- polling ----

    /// Sees to it that whatever was woken is polled.
    fn look(&mut self, k: &mut Kernel) {
        if self.polls_soon || !self.executor.has_work() {
            return;
        }
        self.polls_soon = true;
        let us = if k.hosts.chance(k.plan.network.batch) { k.hosts.below(POLL_DELAY_US) } else { 0 };
        k.after(us, Event::EndTurn { service: self.index, life: self.life });
    }

    /// Polls what was woken, in a drawn order. False when a handler has ended the process.
    pub(crate) fn poll(&mut self, k: &mut Kernel, clock: &HostClock) -> bool {
        self.polls_soon = false;
        let outside = self.outside.clone();
        outside.lend(k, clock, || self.poll_woken());
        if self.outside.state().crashed {
            return false;
        }
        if self.outside.state().driver_ended && !self.stopped {
            self.stopped = true;
            k.see(self.host(), What::Stopped);
        }
        self.see_turn(k, clock);
        self.look(k);
        true
    }

    /// The driver waits: its engine has taken in everything, and its application was told. What an engine does within a
    /// turn is the driver's.
    fn see_turn(&mut self, k: &mut Kernel, clock: &HostClock) {
        if self.stopped || !self.driver_polled || self.executor.is_woken(self.driver) {
            return;
        }
        self.driver_polled = false;
        let mut state = self.outside.state();
        let time_passed = std::mem::take(&mut state.time_passed);
        drop(state);
        let now = clock.now(k.at);
        k.see(self.host(), What::Turn { now, inputs: 0, time_passed, outputs: 0, wait: None });
    }

    fn poll_woken(&mut self) {
        let mut left = POLLS;
        self.wake_for_no_reason();
        while let Some(number) = self.pick() {
            if number == self.driver {
                self.driver_polled = true;
                let mut state = self.outside.state();
                state.time_passed |= state.alarm_at.is_some_and(|at| at <= state.k.at);
            }
            let finished = self.executor.poll(number);
            if number == self.driver {
                self.outside.state().driver_ended |= finished;
                self.outside.tell_fleet();
            }
            let mut state = self.outside.state();
            let spawned = std::mem::take(&mut state.spawned);
            let (crashed, ended) = (state.crashed, state.driver_ended);
            drop(state);
            for task in spawned {
                self.executor.spawn(task);
            }
            left -= 1;
            // When the driver has ended everybody hears of it in this moment.
            if crashed || (left == 0 && !ended) {
                return;
            }
        }
    }

    fn pick(&self) -> Option<u64> {
        self.executor.pick(&mut self.outside.state().k.hosts)
    }

    fn wake_for_no_reason(&mut self) {
        let mut guard = self.outside.state();
        let state = &mut *guard;
        if !state.k.hosts.chance(state.whims) {
            return;
        }
        self.executor.wake_any(&mut state.k.hosts);
        let at = state.k.hosts.below(state.ends.len() as u64) as usize;
        let waker = state.ends.values().nth(at).and_then(|end| end.reader.clone());
        drop(guard);
        waker.into_iter().for_each(Waker::wake);
    }

    fn host(&self) -> Host {
        Host::Service(self.index)
    }
}

impl Drop for FullService {
    fn drop(&mut self) {
        // Whatever still hangs on it must not reach for a world that is not lent.
        self.outside.state().dead = true;
    }
}

/// Datagrams a socket's buffer holds.
const DATAGRAMS: usize = 4_096;
/// How much later than the wake a task may run, in microseconds.
const POLL_DELAY_US: u64 = 200;
/// Polls in one moment.
const POLLS: u32 = 64;
