//! What several oracles follow: what is unanswered on each connection, and what a service's events say of its brokers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use flota_core::config::Endpoint;
use flota_core::id::BrokerId;
use flota_core::output::{BrokerChange, UnreadyReason};

use crate::clock::HostClock;
use crate::plan::Plan;
use crate::seen::{Host, Line, Seen, What, Word};

/// How much later than its time something may happen, in microseconds of the service's own clock: a turn takes in what
/// arrives within a moment before it looks at what is due.
pub(super) const TURN_US: u64 = 1_000;

/// A service's monotonic clock at a true time, in microseconds; differences are what counts.
pub(super) fn mono_us(plan: &Plan, service: u32, at: u64) -> u64 {
    let rate = plan.services.get(service as usize).map_or(0, |service| service.rate_ppm);
    HostClock::new(rate, 0, 0).now(at).mono.0
}

/// Microseconds as seconds, for people.
pub(super) fn seconds(us: u64) -> String {
    format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000)
}

/// The connections of all services, and what the last observation meant for them.
#[derive(Default)]
pub(crate) struct Lines {
    services: Vec<Wires>,
    news: News,
    /// Those that their services have given up: what was written there may still be executed.
    given_up: BTreeSet<Line>,
}

/// The open connections of one service.
#[derive(Default)]
struct Wires {
    open: BTreeMap<Line, Wire>,
    /// The same by address.
    to: BTreeMap<Endpoint, Vec<Line>>,
    /// Those that were answered within the turn that is not over yet.
    fresh: Vec<Line>,
    /// Half of what a connection may have without an answer, and those that have more.
    half: usize,
    busy: BTreeSet<Line>,
}

/// One connection, seen from the service.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(super) to: Endpoint,
    /// The dial has succeeded.
    pub(super) connected: bool,
    /// Commands without an answer, oldest first.
    pub(super) unanswered: VecDeque<Word>,
    /// Answered within the turn that is not over yet.
    fresh: Vec<Word>,
}

/// What an observation means for a connection.
#[derive(Debug, Default)]
pub(crate) enum News {
    #[default]
    Nothing,
    /// A command was written.
    Wrote(Line, Word),
    /// The oldest unanswered command was answered.
    Answered(Line, Word),
    /// It is gone, with what was unanswered.
    Gone(Wire),
}

impl Lines {
    pub(super) fn new(plan: &Plan) -> Self {
        let half = plan.knobs.pipeline as usize / 2;
        Self { services: plan.services.iter().map(|_| Wires { half, ..Wires::default() }).collect(), ..Self::default() }
    }

    pub(super) fn see(&mut self, seen: &Seen) {
        let Host::Service(service) = seen.host else {
            self.news = News::Nothing;
            return;
        };
        if let What::HungUp(line) | What::Closed { line, .. } = &seen.what {
            self.given_up.insert(*line);
        }
        self.news = self.services.get_mut(service as usize).map_or(News::Nothing, |wires| wires.see(&seen.what));
    }

    /// What the last observation meant.
    pub(super) fn news(&self) -> &News {
        &self.news
    }

    /// Whether a connection was given up by its service: whatever is executed for it, nobody hears of it.
    pub(super) fn is_given_up(&self, line: Line) -> bool {
        self.given_up.contains(&line)
    }

    pub(super) fn get(&self, service: u32, line: Line) -> Option<&Wire> {
        self.services.get(service as usize)?.open.get(&line)
    }

    /// The open connections of a service.
    pub(super) fn of(&self, service: u32) -> impl Iterator<Item = &Wire> {
        self.services.get(service as usize).into_iter().flat_map(|wires| wires.open.values())
    }

    /// Whether no connection of a service has more without an answer than half of what it may have.
    pub(super) fn are_drained(&self, service: u32) -> bool {
        self.services.get(service as usize).is_none_or(|wires| wires.busy.is_empty())
    }

    /// The open connections of a service to an address.
    pub(super) fn to<'a>(&'a self, service: u32, to: &Endpoint) -> impl Iterator<Item = &'a Wire> {
        let wires = self.services.get(service as usize);
        let lines = wires.and_then(|wires| wires.to.get(to)).into_iter().flatten();
        lines.filter_map(move |line| wires?.open.get(line))
    }
}

impl Wires {
    fn see(&mut self, what: &What) -> News {
        match what {
            What::Born(_) | What::Died(_) => {
                *self = Self { half: self.half, ..Self::default() };
                News::Nothing
            }
            What::Dialled { line, to, .. } => {
                let wire = Wire { to: to.clone(), connected: false, unanswered: VecDeque::new(), fresh: Vec::new() };
                self.open.insert(*line, wire);
                self.to.entry(to.clone()).or_default().push(*line);
                News::Nothing
            }
            What::Connected(line) => {
                if let Some(wire) = self.open.get_mut(line) {
                    wire.connected = true;
                }
                News::Nothing
            }
            What::Wrote { line, command, .. } => {
                if let Some(wire) = self.open.get_mut(line) {
                    wire.unanswered.push_back(*command);
                    if wire.unanswered.len() > self.half {
                        self.busy.insert(*line);
                    }
                }
                News::Wrote(*line, *command)
            }
            What::Replied(line) => {
                let Some(wire) = self.open.get_mut(line) else { return News::Nothing };
                let Some(word) = wire.unanswered.pop_front() else { return News::Nothing };
                if wire.unanswered.len() <= self.half {
                    self.busy.remove(line);
                }
                if wire.fresh.is_empty() {
                    self.fresh.push(*line);
                }
                wire.fresh.push(word);
                News::Answered(*line, word)
            }
            What::Turn { .. } => {
                for line in self.fresh.drain(..) {
                    if let Some(wire) = self.open.get_mut(&line) {
                        wire.fresh.clear();
                    }
                }
                News::Nothing
            }
            What::Closed { line, .. } => self.remove(*line).map_or(News::Nothing, News::Gone),
            What::HungUp(line) => {
                let Some(mut wire) = self.remove(*line) else { return News::Nothing };
                // An engine that gave the connection up earlier in this turn ignored what was still answered on it.
                for word in wire.fresh.drain(..).rev() {
                    wire.unanswered.push_front(word);
                }
                News::Gone(wire)
            }
            _ => News::Nothing,
        }
    }

    fn remove(&mut self, line: Line) -> Option<Wire> {
        let wire = self.open.remove(&line)?;
        self.busy.remove(&line);
        if let Some(lines) = self.to.get_mut(&wire.to) {
            lines.retain(|other| *other != line);
            if lines.is_empty() {
                self.to.remove(&wire.to);
            }
        }
        Some(wire)
    }
}

/// The fleet of one process, by what it told its application.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: BTreeMap<BrokerId, Standing>,
    at: BTreeMap<Endpoint, Vec<BrokerId>>,
    /// How many may be sent to.
    able: usize,
}

/// A broker, by what the service told about it.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) address: Endpoint,
    pub(super) ready: bool,
    /// It said goodbye, or was silent for too long.
    pub(super) leaving: bool,
    /// Its memory was full when that was last known: a new connection says nothing about it.
    pub(super) full: bool,
}

impl Members {
    /// Whether the observation changed anything.
    pub(super) fn see(&mut self, what: &What) -> bool {
        match what {
            What::Born(_) | What::Died(_) | What::Stopped => {
                *self = Self::default();
                true
            }
            What::Fleet { id, address, change } => {
                self.change(*id, address, change);
                true
            }
            _ => false,
        }
    }

    fn change(&mut self, id: BrokerId, address: &Endpoint, change: &BrokerChange) {
        let known = self.all.remove(&id);
        if let Some(known) = &known {
            self.able -= usize::from(known.is_able());
            self.leave(id, &known.address);
        }
        if *change == BrokerChange::Forgotten {
            return;
        }
        let mut standing = known.unwrap_or_else(|| Standing::new(address));
        standing.address = address.clone();
        match change {
            BrokerChange::Announced => standing.leaving = false,
            BrokerChange::Ready => {
                standing.full &= !standing.ready;
                standing.ready = true;
            }
            BrokerChange::Unready(why) if why.reason == UnreadyReason::Oom => standing.full = true,
            BrokerChange::Unready(_) => standing.ready = false,
            BrokerChange::Withdrawn | BrokerChange::Expired { .. } => standing.leaving = true,
            BrokerChange::Restarted | BrokerChange::Forgotten => {}
        }
        self.able += usize::from(standing.is_able());
        self.at.entry(address.clone()).or_default().push(id);
        self.all.insert(id, standing);
    }

    fn leave(&mut self, id: BrokerId, address: &Endpoint) {
        if let Some(there) = self.at.get_mut(address) {
            there.retain(|other| *other != id);
            if there.is_empty() {
                self.at.remove(address);
            }
        }
    }

    /// Those that may be sent to.
    pub(super) fn able(&self) -> impl Iterator<Item = &Standing> {
        self.all.values().filter(|standing| standing.is_able())
    }

    /// Whether any may be sent to.
    pub(super) fn is_any_able(&self) -> bool {
        self.able > 0
    }

    /// Those at an address: one, except in the moment in which one gives way to another.
    pub(super) fn at(&self, address: &Endpoint) -> impl Iterator<Item = &Standing> {
        self.at.get(address).into_iter().flatten().filter_map(|id| self.all.get(id))
    }
}

impl Standing {
    fn new(address: &Endpoint) -> Self {
        Self { address: address.clone(), ready: false, leaving: false, full: false }
    }

    /// Whether sends go there.
    pub(super) fn is_able(&self) -> bool {
        self.ready && !self.leaving && !self.full
    }
}
