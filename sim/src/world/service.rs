//! A service in the world: a machine with clocks, and the process that runs on it at the moment.

use std::net::SocketAddr;

use bytes::Bytes;
use flota_core::output::ClosedReason;

use super::fast::FastService;
use super::full::FullService;
use super::kernel::{AppEvent, Event, Kernel};
use crate::clock::HostClock;
use crate::plan::{Fidelity, Plan};
use crate::seen::{Host, Item, Line, What};

/// A service.
pub(crate) struct ServiceHost {
    pub(crate) index: u32,
    pub(crate) clock: HostClock,
    /// Starts of its process so far.
    lives: u32,
    fidelity: Fidelity,
    process: Option<Process>,
    paused: bool,
    held: Vec<Event>,
    /// Its messages, in the order of their times; where it is in them.
    work: Vec<u32>,
    next: usize,
}

/// A process, in the fidelity of the run.
enum Process {
    Fast(Box<FastService>),
    Full(Box<FullService>),
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
            fidelity: plan.fidelity,
            process: None,
            paused: false,
            held: Vec::new(),
            work,
            next: 0,
        }
    }

    // ---- its process ----

    pub(crate) fn start(&mut self, k: &mut Kernel) {
        if self.process.as_ref().is_some_and(|process| !process.is_stopped()) {
            return;
        }
        self.rerun(k);
        self.lives += 1;
        let (index, life) = (self.index, self.lives);
        self.process = Some(match self.fidelity {
            Fidelity::Fast => Process::Fast(Box::new(FastService::start(index, life, &self.clock, k))),
            Fidelity::Full => Process::Full(Box::new(FullService::start(index, life, &self.clock, k))),
        });
    }

    /// Kills the process; with its machine, nobody is told.
    pub(crate) fn crash(&mut self, k: &mut Kernel, machine: bool) {
        self.paused = false;
        self.held.clear();
        self.rerun(k);
        match self.process.take() {
            Some(Process::Fast(mut process)) => process.die(k, machine),
            Some(Process::Full(mut process)) => process.die(k, machine),
            None => {}
        }
    }

    pub(crate) fn shutdown(&mut self, k: &mut Kernel, grace_us: u64) {
        match &mut self.process {
            Some(Process::Fast(process)) if !process.stopping => process.shutdown(k, &self.clock, grace_us),
            Some(Process::Full(process)) if !process.is_stopping() => process.shutdown(k, grace_us),
            _ => {}
        }
    }

    /// After an ordered stop: a new process, whether or not the old one has come to its end.
    pub(crate) fn restart(&mut self, k: &mut Kernel) {
        if self.process.as_ref().is_some_and(|process| !process.is_stopped()) {
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
            if life != self.lives {
                // An earlier process's: it must not put off this one's.
                continue;
            }
            let at = k.at + 1;
            match &mut self.process {
                Some(Process::Fast(process)) => process.wake_anew(at),
                Some(Process::Full(process)) => process.wake_anew(at),
                None => continue,
            }
            k.at(at, Event::Wake { service, life, at });
        }
    }

    /// Keeps an event for the time when it goes on; none that its machine takes in without it.
    pub(crate) fn hold(&mut self, event: Event) {
        self.held.push(event);
    }

    /// Whether an event for its process has to wait: it stands still. Sockets belong to its machine, which does not.
    pub(crate) fn holds(&self, event: &Event) -> bool {
        let arrives = matches!(event, Event::Datagram { .. } | Event::ToService { .. } | Event::ServiceLearns { .. });
        self.paused && !(arrives && self.fidelity == Fidelity::Full)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.process.as_ref().is_none_or(Process::is_stopped)
    }

    /// All its messages are handed over, and none is in a handler's hands.
    pub(crate) fn is_settled(&self, plan: &Plan) -> bool {
        let idle = match &self.process {
            Some(Process::Fast(process)) => process.is_settled(),
            Some(Process::Full(process)) => process.is_settled(),
            None => true,
        };
        self.next_work(plan).is_none() && idle
    }

    /// Feeds what was recorded to a fresh engine.
    pub(crate) fn rerun(&mut self, k: &mut Kernel) {
        if let Some(Process::Fast(process)) = &mut self.process
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
        match &mut self.process {
            Some(Process::Fast(process)) if !process.stopping => process.submit(k, &self.clock, Item(item)),
            Some(Process::Full(process)) if !process.is_stopping() => process.submit(k, Item(item)),
            _ => {}
        }
        if let Some(at) = self.next_work(&k.plan) {
            k.at(at, Event::Work(self.index));
        }
    }

    pub(crate) fn app(&mut self, k: &mut Kernel, life: u32, event: AppEvent) {
        if life != self.lives {
            return;
        }
        let lives = match &mut self.process {
            Some(Process::Fast(process)) => process.app(k, &self.clock, event),
            Some(Process::Full(process)) => {
                process.app(k, &event);
                true
            }
            None => true,
        };
        if !lives {
            self.end_by_handler(k);
        }
    }

    /// A handler has ended the process: it is started again.
    fn end_by_handler(&mut self, k: &mut Kernel) {
        self.crash(k, false);
        let us = 500_000 + k.hosts.below(1_500_000);
        k.after(us, Event::ServiceStart(self.index));
    }

    pub(crate) fn datagram(&mut self, k: &mut Kernel, from: SocketAddr, payload: Bytes) {
        match &mut self.process {
            Some(Process::Fast(process)) => process.datagram(k, &self.clock, from, payload),
            Some(Process::Full(process)) => process.datagram(k, from, payload),
            None => {}
        }
    }

    pub(crate) fn dialled(&mut self, k: &mut Kernel, line: Line, refused: bool) {
        match &mut self.process {
            Some(Process::Fast(process)) => process.dialled(k, &self.clock, line, refused),
            Some(Process::Full(process)) => process.dialled(k, line, refused),
            None => {}
        }
    }

    pub(crate) fn receive(&mut self, k: &mut Kernel, line: Line, upto: u64) {
        match &mut self.process {
            Some(Process::Fast(process)) => process.receive(k, &self.clock, line, upto),
            Some(Process::Full(process)) => process.receive(k, line, upto),
            None => {}
        }
    }

    pub(crate) fn writable(&mut self, k: &mut Kernel, line: Line) {
        match &mut self.process {
            Some(Process::Fast(process)) => process.writable(k, &self.clock, line),
            Some(Process::Full(process)) => process.writable(k, line),
            None => {}
        }
    }

    pub(crate) fn closed(&mut self, k: &mut Kernel, line: Line, reason: ClosedReason, detail: &str) {
        match &mut self.process {
            Some(Process::Fast(process)) => process.closed(k, &self.clock, line, reason, detail),
            Some(Process::Full(process)) => process.closed(k, line, reason),
            None => {}
        }
    }

    pub(crate) fn wake(&mut self, k: &mut Kernel, life: u32, at: u64) {
        match &mut self.process {
            Some(Process::Fast(process)) if life == self.lives => process.wake(k, &self.clock, at),
            Some(Process::Full(process)) if life == self.lives => process.wake(k, at),
            _ => {}
        }
    }

    pub(crate) fn end_turn(&mut self, k: &mut Kernel, life: u32) {
        match &mut self.process {
            Some(Process::Fast(process)) if life == self.lives => process.end_open_turn(k, &self.clock),
            Some(Process::Full(process)) if life == self.lives => {
                let lives = process.poll(k, &self.clock);
                if !lives {
                    self.end_by_handler(k);
                }
            }
            _ => {}
        }
    }
}

impl Process {
    fn is_stopped(&self) -> bool {
        match self {
            Self::Fast(process) => process.stopped,
            Self::Full(process) => process.stopped,
        }
    }
}
