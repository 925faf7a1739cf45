//! What a drawing needs of what is seen: intervals and moments per host.

use std::collections::{BTreeMap, BTreeSet};

use flota_core::id::BrokerId;
use flota_core::op::Settled;
use flota_core::output::BrokerChange;

use crate::broker::Change;
use crate::plan::Plan;
use crate::seen::{Given, Hand, Host, Phase, Seen, What};
use crate::world::broker_at;

/// What was seen, host by host.
pub(super) struct Film {
    /// When each part began, in microseconds.
    pub(super) phases: Vec<(u64, Phase)>,
    pub(super) brokers: Vec<BrokerFilm>,
    pub(super) services: Vec<ServiceFilm>,
    /// The moment seen last.
    pub(super) end: u64,
}

#[derive(Default)]
pub(super) struct BrokerFilm {
    /// Changes of its state, with their times.
    pub(super) states: Vec<(u64, State)>,
    pub(super) moments: Vec<(u64, Mark)>,
}

#[derive(Default)]
pub(super) struct ServiceFilm {
    pub(super) states: Vec<(u64, State)>,
    pub(super) moments: Vec<(u64, Mark)>,
    /// By broker of the plan: what the service thought of it, from when on.
    pub(super) views: BTreeMap<u32, Vec<(u64, View)>>,
    members: BTreeMap<BrokerId, u32>,
    /// Deliveries that the application said are handled.
    handled: BTreeSet<Hand>,
    /// Brokers of the plan.
    brokers: usize,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Down,
    Up,
    Paused,
    Stopping,
}

/// What a service thinks of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Unknown,
    Member,
    Ready,
}

/// Something that takes no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mark {
    /// A message handed to the engine; for a broker, an entry stored.
    Sent,
    /// A message handed to the application; for a broker, an entry given to a consumer.
    Given,
    /// Handled, and acknowledged.
    Acked,
    /// To be tried again; for a broker, an entry that changed its consumer.
    Retried,
    /// Refused by the application; for a broker, a dead letter stored.
    Dead,
}

impl Film {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            phases: Vec::new(),
            brokers: plan.brokers.iter().map(|_| BrokerFilm::default()).collect(),
            services: plan.services.iter().map(|_| ServiceFilm::new(plan.brokers.len())).collect(),
            end: 0,
        }
    }

    /// When faults were over.
    pub(super) fn healed_at(&self) -> Option<u64> {
        self.phases.iter().find(|(_, phase)| *phase == Phase::Liveness).map(|(at, _)| *at)
    }

    pub(super) fn see(&mut self, seen: &Seen) {
        self.end = seen.at;
        match seen.host {
            Host::World => {
                if let What::Phase(phase) = seen.what {
                    self.phases.push((seen.at, phase));
                }
            }
            Host::Broker(broker) => {
                if let Some(film) = self.brokers.get_mut(broker as usize) {
                    film.see(seen);
                }
            }
            Host::Service(service) => {
                if let Some(film) = self.services.get_mut(service as usize) {
                    film.see(seen);
                }
            }
        }
    }
}

impl BrokerFilm {
    fn see(&mut self, seen: &Seen) {
        match &seen.what {
            What::Up(_) => self.states.push((seen.at, State::Up)),
            What::Down => self.states.push((seen.at, State::Down)),
            What::Changed(change) => {
                if let Some(mark) = mark_of(change) {
                    self.moments.push((seen.at, mark));
                }
            }
            _ => {}
        }
    }
}

fn mark_of(change: &Change) -> Option<Mark> {
    match change {
        Change::Added { key, .. } if key.ends_with(b":dlq") => Some(Mark::Dead),
        Change::Added { .. } => Some(Mark::Sent),
        Change::Pending { from: None, .. } => Some(Mark::Given),
        Change::Pending { from: Some(_), .. } => Some(Mark::Retried),
        Change::Acked { .. } => Some(Mark::Acked),
        _ => None,
    }
}

impl ServiceFilm {
    fn new(brokers: usize) -> Self {
        Self { brokers, ..Self::default() }
    }

    fn see(&mut self, seen: &Seen) {
        let at = seen.at;
        match &seen.what {
            What::Born(_) | What::Resumed => self.states.push((at, State::Up)),
            What::Died(_) | What::Stopped => {
                self.states.push((at, State::Down));
                self.forget(at);
            }
            What::Stopping { .. } => self.states.push((at, State::Stopping)),
            What::Paused => self.states.push((at, State::Paused)),
            What::Submitted { accepted: Ok(()), .. } => self.moments.push((at, Mark::Sent)),
            What::Delivered(_) => self.moments.push((at, Mark::Given)),
            What::Settled { hand, verdict: Given::Done, live: true } => {
                self.handled.insert(*hand);
            }
            What::Answered { hand, result } if self.handled.remove(hand) && *result == Settled::Ok => {
                self.moments.push((at, Mark::Acked));
            }
            What::Settled { verdict: Given::Retry, live: true, .. } => self.moments.push((at, Mark::Retried)),
            What::Settled { verdict: Given::Reject, live: true, .. } => self.moments.push((at, Mark::Dead)),
            What::Fleet { id, address, change } => {
                if let Some(broker) = broker_at(address, self.brokers) {
                    self.members.insert(*id, broker);
                }
                let Some(broker) = self.members.get(id).copied() else { return };
                let view = match change {
                    BrokerChange::Announced | BrokerChange::Unready(_) | BrokerChange::Restarted => View::Member,
                    BrokerChange::Ready => View::Ready,
                    BrokerChange::Withdrawn | BrokerChange::Expired { .. } | BrokerChange::Forgotten => View::Unknown,
                };
                self.views.entry(broker).or_default().push((at, view));
            }
            _ => {}
        }
    }

    /// A process that ends knows nothing any more.
    fn forget(&mut self, at: u64) {
        self.members.clear();
        for views in self.views.values_mut() {
            if views.last().is_some_and(|(_, view)| *view != View::Unknown) {
                views.push((at, View::Unknown));
            }
        }
    }
}
