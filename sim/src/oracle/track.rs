//! What several oracles follow: what is unanswered on each connection, and what a service's events say of its brokers.

use std::collections::{BTreeMap, VecDeque};

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

/// The connections of all services.
#[derive(Default)]
pub(super) struct Lines(BTreeMap<Line, Wire>);

/// One connection, seen from the service.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) service: u32,
    pub(super) to: Endpoint,
    /// The dial has succeeded.
    pub(super) connected: bool,
    /// Commands without an answer, oldest first.
    pub(super) unanswered: VecDeque<Word>,
    /// Answered within the turn that is not over yet.
    fresh: Vec<Word>,
}

/// What an observation means for a connection.
#[derive(Debug)]
pub(super) enum News {
    Nothing,
    /// A command was written.
    Wrote(Line, Word),
    /// The oldest unanswered command was answered.
    Answered(Line, Word),
    /// It is gone, with what was unanswered.
    Gone(Wire),
}

impl Lines {
    pub(super) fn see(&mut self, seen: &Seen) -> News {
        let Host::Service(service) = seen.host else { return News::Nothing };
        match &seen.what {
            What::Born(_) | What::Died(_) => {
                self.0.retain(|_, wire| wire.service != service);
                News::Nothing
            }
            What::Dialled { line, to, .. } => {
                self.0.insert(
                    *line,
                    Wire { service, to: to.clone(), connected: false, unanswered: VecDeque::new(), fresh: Vec::new() },
                );
                News::Nothing
            }
            What::Connected(line) => {
                if let Some(wire) = self.0.get_mut(line) {
                    wire.connected = true;
                }
                News::Nothing
            }
            What::Wrote { line, command, .. } => {
                if let Some(wire) = self.0.get_mut(line) {
                    wire.unanswered.push_back(*command);
                }
                News::Wrote(*line, *command)
            }
            What::Replied(line) => {
                let answered = self.0.get_mut(line).and_then(|wire| {
                    let word = wire.unanswered.pop_front()?;
                    wire.fresh.push(word);
                    Some(word)
                });
                answered.map_or(News::Nothing, |word| News::Answered(*line, word))
            }
            What::Turn { .. } => {
                self.0.values_mut().filter(|wire| wire.service == service).for_each(|wire| wire.fresh.clear());
                News::Nothing
            }
            What::Closed { line, .. } => self.0.remove(line).map_or(News::Nothing, News::Gone),
            What::HungUp(line) => {
                let Some(mut wire) = self.0.remove(line) else { return News::Nothing };
                // An engine that gave the connection up earlier in this turn ignored what was still answered on it.
                for word in wire.fresh.drain(..).rev() {
                    wire.unanswered.push_front(word);
                }
                News::Gone(wire)
            }
            _ => News::Nothing,
        }
    }

    pub(super) fn get(&self, line: Line) -> Option<&Wire> {
        self.0.get(&line)
    }

    /// The open connections of a service.
    pub(super) fn of(&self, service: u32) -> impl Iterator<Item = &Wire> {
        self.0.values().filter(move |wire| wire.service == service)
    }
}

/// The fleet of one process, by what it told its application.
#[derive(Debug, Default)]
pub(super) struct Members(BTreeMap<BrokerId, Standing>);

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
                self.0.clear();
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
        if *change == BrokerChange::Forgotten {
            self.0.remove(&id);
            return;
        }
        let unknown = Standing { address: address.clone(), ready: false, leaving: false, full: false };
        let standing = self.0.entry(id).or_insert(unknown);
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
    }

    /// Those that may be sent to.
    pub(super) fn able(&self) -> impl Iterator<Item = &Standing> {
        self.0.values().filter(|standing| standing.is_able())
    }

    /// Those at an address: one, except in the moment in which one gives way to another.
    pub(super) fn at<'a>(&'a self, address: &'a Endpoint) -> impl Iterator<Item = &'a Standing> {
        self.0.values().filter(move |standing| standing.address == *address)
    }
}

impl Standing {
    /// Whether sends go there.
    pub(super) fn is_able(&self) -> bool {
        self.ready && !self.leaving && !self.full
    }
}
