//! Since when nothing disturbs a service and a broker: what takes long only then takes too long.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Plan, Trouble};
use crate::seen::{Host, Line, Seen, What, Word};
use crate::world;

/// The last disturbances.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// Faults that last at the moment.
    active: BTreeSet<u32>,
    everywhere: u64,
    brokers: Vec<u64>,
    services: Vec<u64>,
    pairs: BTreeMap<(u32, u32), u64>,
    /// The open connections of each service.
    links: Vec<Links>,
}

#[derive(Debug, Default)]
struct Links {
    open: BTreeMap<Line, Link>,
    /// Those whose socket has not taken everything.
    unsent: BTreeSet<Line>,
    /// Those of subscriptions: something was read on them.
    readers: BTreeSet<Line>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    broker: u32,
    connected: bool,
    /// Commands that its socket has not taken whole.
    unsent: u64,
    /// Commands without an answer.
    unanswered: u64,
    /// It is for commands: on no other one is a broker asked what it is.
    commands: bool,
    /// When the last of them was answered.
    answered: u64,
}

impl Link {
    fn new(broker: u32) -> Self {
        Self { broker, connected: false, unsent: 0, unanswered: 0, commands: false, answered: 0 }
    }
}

impl Quiet {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            active: BTreeSet::new(),
            everywhere: 0,
            brokers: vec![0; plan.brokers.len()],
            services: vec![0; plan.services.len()],
            pairs: BTreeMap::new(),
            links: plan.services.iter().map(|_| Links::default()).collect(),
        }
    }

    /// Since when nothing has disturbed the two, apart from what `but` says; now, if something does.
    pub(crate) fn since(&self, service: u32, broker: u32, at: u64, plan: &Plan, but: fn(&Trouble) -> bool) -> u64 {
        let disturbs = |fault: &u32| {
            let what = plan.faults.get(*fault as usize).map(|fault| &fault.what);
            what.is_some_and(|what| !but(what) && touches(what, service, broker))
        };
        if self.active.iter().any(disturbs) {
            return at;
        }
        let pair = self.pairs.get(&(service, broker)).copied().unwrap_or(0);
        let broker = self.brokers.get(broker as usize).copied().unwrap_or(at);
        let service = self.services.get(service as usize).copied().unwrap_or(at);
        self.everywhere.max(pair).max(broker).max(service)
    }

    /// Whether a connection for commands and one of a subscription are open between the two: there may be several of the
    /// latter, and nobody can claim on those.
    pub(crate) fn is_linked(&self, service: u32, broker: u32) -> bool {
        let links = self.links.get(service as usize).into_iter().flat_map(|links| links.open.values());
        let (mut commands, mut readers) = (0, 0);
        for link in links.filter(|link| link.connected && link.broker == broker) {
            *(if link.commands { &mut commands } else { &mut readers }) += 1;
        }
        commands > 0 && readers > 0
    }

    /// Connections of subscriptions on which nothing is asked: service, broker, since when.
    pub(crate) fn idle_readers(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        self.links.iter().zip(0u32..).flat_map(|(links, service)| {
            let readers = links.readers.iter().filter_map(|line| links.open.get(line));
            let idle = readers.filter(|link| link.connected && link.unanswered == 0);
            idle.map(move |link| (service, link.broker, link.answered))
        })
    }

    pub(crate) fn see(&mut self, seen: &Seen, plan: &Plan) {
        let at = seen.at;
        match (seen.host, &seen.what) {
            (Host::World, What::FaultBegins(fault)) => {
                self.disturb(*fault, at, plan);
                self.active.insert(*fault);
            }
            (Host::World, What::FaultEnds(fault)) => {
                self.disturb(*fault, at, plan);
                self.active.remove(fault);
            }
            (Host::Broker(broker), What::Up(_) | What::Down | What::Forgot(_)) => {
                if let Some(since) = self.brokers.get_mut(broker as usize) {
                    *since = at;
                }
            }
            (Host::Service(service), what) => self.see_service(service, at, what, plan),
            _ => {}
        }
    }

    fn see_service(&mut self, service: u32, at: u64, what: &What, plan: &Plan) {
        let Some(links) = self.links.get_mut(service as usize) else { return };
        match what {
            What::Born(_) | What::Died(_) | What::Paused | What::Resumed | What::Warned(_) => {
                if let Some(since) = self.services.get_mut(service as usize) {
                    *since = at;
                }
                if matches!(what, What::Died(_)) {
                    *links = Links::default();
                }
            }
            What::Dialled { line, to, .. } => {
                if let Some(broker) = world::broker_at(to, plan.brokers.len()) {
                    links.open.insert(*line, Link::new(broker));
                    self.pairs.insert((service, broker), at);
                }
            }
            What::Connected(line) => {
                if let Some(link) = links.open.get_mut(line) {
                    link.connected = true;
                    self.pairs.insert((service, link.broker), at);
                }
            }
            What::Wrote { line, command, .. } => {
                if let Some(link) = links.open.get_mut(line) {
                    link.unsent += 1;
                    link.unanswered += 1;
                    link.commands |= matches!(command, Word::Other("INFO"));
                    links.unsent.insert(*line);
                    if matches!(command, Word::ReadGroup | Word::Read) {
                        links.readers.insert(*line);
                    }
                }
            }
            What::Replied(line) => {
                if let Some(link) = links.open.get_mut(line) {
                    link.unanswered = link.unanswered.saturating_sub(1);
                    link.answered = at;
                }
            }
            What::Sent(line, commands) => {
                if let Some(link) = links.open.get_mut(line) {
                    link.unsent = link.unsent.saturating_sub(*commands);
                    if link.unsent == 0 {
                        links.unsent.remove(line);
                    }
                }
            }
            What::Turn { .. } => {
                // A socket that takes no more delays whatever is said there.
                let stuck = links.unsent.iter().filter_map(|line| links.open.get(line));
                self.pairs.extend(stuck.map(|link| ((service, link.broker), at)));
            }
            What::Stuck(line) => {
                if let Some(link) = links.open.get(line) {
                    self.pairs.insert((service, link.broker), at);
                }
            }
            What::Closed { line, .. } | What::HungUp(line) => {
                links.unsent.remove(line);
                links.readers.remove(line);
                if let Some(link) = links.open.remove(line) {
                    self.pairs.insert((service, link.broker), at);
                }
            }
            What::Fleet { address, .. } => {
                if let Some(broker) = world::broker_at(address, plan.brokers.len()) {
                    self.pairs.insert((service, broker), at);
                }
            }
            _ => {}
        }
    }

    fn disturb(&mut self, fault: u32, at: u64, plan: &Plan) {
        let Some(what) = plan.faults.get(fault as usize).map(|fault| &fault.what) else { return };
        if is_everywhere(what) {
            self.everywhere = at;
        }
        for (since, broker) in self.brokers.iter_mut().zip(0u32..) {
            if of_broker(what) == Some(broker) {
                *since = at;
            }
        }
        for (since, service) in self.services.iter_mut().zip(0u32..) {
            if of_service(what) == Some(service) {
                *since = at;
            }
        }
        if let Trouble::Partition { services, brokers, .. } = what {
            for service in services {
                for broker in brokers {
                    self.pairs.insert((*service, *broker), at);
                }
            }
        }
    }
}

/// Whether a fault that lasts disturbs the two.
fn touches(what: &Trouble, service: u32, broker: u32) -> bool {
    match what {
        // Over at once.
        Trouble::Reset { .. }
        | Trouble::ResetOne { .. }
        | Trouble::KillClients { .. }
        | Trouble::ScriptFlush { .. }
        | Trouble::FlushAll { .. }
        | Trouble::Trim { .. }
        | Trouble::BrokerStep { .. }
        | Trouble::ServiceStep { .. }
        | Trouble::ForgedDown { .. } => false,
        Trouble::Partition { services, brokers, .. } => services.contains(&service) && brokers.contains(&broker),
        what => is_everywhere(what) || of_broker(what) == Some(broker) || of_service(what) == Some(service),
    }
}

fn is_everywhere(what: &Trouble) -> bool {
    matches!(what, Trouble::Flood { .. } | Trouble::UdpLoss { .. })
}

fn of_broker(what: &Trouble) -> Option<u32> {
    match what {
        Trouble::BrokerCrash { broker, .. }
        | Trouble::BrokerStop { broker }
        | Trouble::BrokerPause { broker }
        | Trouble::BrokerSlow { broker, .. }
        | Trouble::BrokerLoading { broker }
        | Trouble::BrokerFull { broker }
        | Trouble::BrokerReplica { broker }
        | Trouble::BrokerMisconf { broker }
        | Trouble::BrokerCrowded { broker }
        | Trouble::BrokerStep { broker, .. }
        | Trouble::ScriptFlush { broker }
        | Trouble::FlushAll { broker }
        | Trouble::Trim { broker, .. }
        | Trouble::KillClients { broker }
        | Trouble::Reset { broker, .. }
        | Trouble::ResetOne { broker, .. }
        | Trouble::AnnouncerSilent { broker }
        | Trouble::AnnouncerDown { broker }
        | Trouble::AnnouncerTwo { broker }
        | Trouble::AnnouncerInterval { broker, .. }
        | Trouble::ForgedDown { broker }
        | Trouble::Readdressed { broker } => Some(*broker),
        _ => None,
    }
}

fn of_service(what: &Trouble) -> Option<u32> {
    match what {
        Trouble::ServiceCrash { service, .. }
        | Trouble::ServiceStop { service, .. }
        | Trouble::ServicePause { service }
        | Trouble::ServiceStep { service, .. }
        | Trouble::Reset { service, .. }
        | Trouble::ResetOne { service, .. } => Some(*service),
        _ => None,
    }
}
