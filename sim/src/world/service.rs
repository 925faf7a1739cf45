//! A service in the world: a machine with clocks, and the process that runs on it at the moment.

use std::net::SocketAddr;

use bytes::Bytes;
use flota_core::output::ClosedReason;

use super::fast::FastService;
use super::kernel::{AppEvent, Event, Kernel};
use crate::clock::HostClock;
use crate::plan::Plan;
use crate::seen::{Host, Item, Line, What};

/// A service.
pub(crate) struct ServiceHost {
    pub(crate) index: u32,
    pub(crate) clock: HostClock,
    /// Starts of its process so far.
    lives: u32,
    process: Option<FastService>,
    paused: bool,
    held: Vec<Event>,
    /// Its messages, in the order of their times; where it is in them.
    work: Vec<u32>,
    next: usize,
}

impl ServiceHost {
    pub(crate) fn new(index: u32, plan: &Plan) -> Self {
        let service = plan.services.get(index as usize);
        let (rate, offset) = service.map_or((0, 0), |service| (service.rate_ppm, service.offset_ms));
        let mut work: Vec<u32> =
            plan.work.iter().zip(0u32..).filter(|(work, _)| work.service == index).map(|(_, item)| item).collect();
        work.sort_by_key(|item| plan.work.get(*item as usize).map_or(0, |work| work.at_ms));
        Self {
            index,
            // Machines have been up for different times.
            clock: HostClock::new(rate, 1_000_000 + u64::from(index) * 777_777, offset),
            lives: 0,
            process: None,
            paused: false,
            held: Vec::new(),
            work,
            next: 0,
        }
    }

    // ---- its process ----

    pub(crate) fn start(&mut self, k: &mut Kernel) {
        if self.process.as_ref().is_some_and(|process| !process.stopped) {
            return;
        }
        self.rerun(k);
        self.lives += 1;
        self.process = Some(FastService::start(self.index, self.lives, &self.clock, k));
    }

    /// Kills the process; with its machine, nobody is told.
    pub(crate) fn crash(&mut self, k: &mut Kernel, machine: bool) {
        self.paused = false;
        self.held.clear();
        self.rerun(k);
        if let Some(mut process) = self.process.take() {
            process.die(k, machine);
        }
    }

    pub(crate) fn shutdown(&mut self, k: &mut Kernel, grace_us: u64) {
        if let Some(process) = &mut self.process
            && !process.stopping
        {
            process.shutdown(k, &self.clock, grace_us);
        }
    }

    /// After an ordered stop: a new process, whether or not the old one has come to its end.
    pub(crate) fn restart(&mut self, k: &mut Kernel) {
        if self.process.as_ref().is_some_and(|process| !process.stopped) {
            self.crash(k, false);
        }
        self.start(k);
    }

    pub(crate) fn pause(&mut self, k: &mut Kernel) {
        if self.process.is_some() && !self.paused {
            self.paused = true;
            k.see(Host::Service(self.index), What::Paused);
        }
    }

    pub(crate) fn resume(&mut self, k: &mut Kernel) {
        if !self.paused {
            return;
        }
        self.paused = false;
        k.see(Host::Service(self.index), What::Resumed);
        // What has arrived is read before time passes.
        let (time, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|event| matches!(event, Event::Wake { .. }));
        for event in rest {
            k.at(k.at, event);
        }
        for event in time {
            // After everything of this moment, whatever the order of equal times.
            let Event::Wake { service, life, .. } = event else { continue };
            if let Some(process) = &mut self.process {
                let at = k.at + 1;
                process.wake_anew(at);
                k.at(at, Event::Wake { service, life, at });
            }
        }
    }

    pub(crate) fn hold(&mut self, event: Event) {
        self.held.push(event);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.stopped)
    }

    /// All its messages are handed over, and none is in a handler's hands.
    pub(crate) fn is_settled(&self, plan: &Plan) -> bool {
        self.next_work(plan).is_none() && self.process.as_ref().is_none_or(FastService::is_settled)
    }

    /// Feeds what was recorded to a fresh engine.
    pub(crate) fn rerun(&mut self, k: &mut Kernel) {
        if let Some(process) = &mut self.process
            && let Some((inputs, differs)) = process.recorder.rerun()
        {
            k.see(Host::Service(self.index), What::Rerun { inputs, differs });
            process.recorder.stop();
        }
    }

    // ---- events for its process ----

    /// When it sends its next message, in microseconds of true time.
    pub(crate) fn next_work(&self, plan: &Plan) -> Option<u64> {
        let item = self.work.get(self.next)?;
        plan.work.get(*item as usize).map(|work| work.at_ms * 1000)
    }

    /// Sends the next message; one that is due while no process runs is never sent.
    pub(crate) fn work(&mut self, k: &mut Kernel) {
        let Some(item) = self.work.get(self.next).copied() else { return };
        self.next += 1;
        if let Some(process) = &mut self.process
            && !process.stopping
        {
            process.submit(k, &self.clock, Item(item));
        }
        if let Some(at) = self.next_work(&k.plan) {
            k.at(at, Event::Work(self.index));
        }
    }

    pub(crate) fn app(&mut self, k: &mut Kernel, life: u32, event: AppEvent) {
        if life != self.lives {
            return;
        }
        let Some(process) = &mut self.process else { return };
        if !process.app(k, &self.clock, event) {
            self.crash(k, false);
            let us = 500_000 + k.hosts.below(1_500_000);
            k.after(us, Event::ServiceStart(self.index));
        }
    }

    pub(crate) fn datagram(&mut self, k: &mut Kernel, from: SocketAddr, payload: Bytes) {
        if let Some(process) = self.live() {
            process.0.datagram(k, process.1, from, payload);
        }
    }

    pub(crate) fn dialled(&mut self, k: &mut Kernel, line: Line, refused: bool) {
        if let Some(process) = self.live() {
            process.0.dialled(k, process.1, line, refused);
        }
    }

    pub(crate) fn receive(&mut self, k: &mut Kernel, line: Line, upto: u64) {
        if let Some(process) = self.live() {
            process.0.receive(k, process.1, line, upto);
        }
    }

    pub(crate) fn writable(&mut self, k: &mut Kernel, line: Line) {
        if let Some(process) = self.live() {
            process.0.writable(k, process.1, line);
        }
    }

    pub(crate) fn closed(&mut self, k: &mut Kernel, line: Line, reason: ClosedReason, detail: &str) {
        if let Some(process) = self.live() {
            process.0.closed(k, process.1, line, reason, detail);
        }
    }

    pub(crate) fn wake(&mut self, k: &mut Kernel, life: u32, at: u64) {
        if life == self.lives
            && let Some(process) = self.live()
        {
            process.0.wake(k, process.1, at);
        }
    }

    pub(crate) fn end_turn(&mut self, k: &mut Kernel, life: u32) {
        if life == self.lives
            && let Some(process) = self.live()
        {
            process.0.end_open_turn(k, process.1);
        }
    }

    fn live(&mut self) -> Option<(&mut FastService, &HostClock)> {
        self.process.as_mut().map(|process| (process, &self.clock))
    }
}
