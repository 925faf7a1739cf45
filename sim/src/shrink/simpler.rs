//! Replacing what is odd by what is plain: randomness by constants, numbers by lower ones.

use super::Shrinker;
use crate::plan::{
    BrokerPlan, Consume, Fate, Fault, Knobs, Network, Persistence, Plan, ServicePlan, Trouble, Way, Work,
};

impl<F: FnMut(&Plan) -> Option<u8>> Shrinker<F> {
    /// A network and limits that do nothing by themselves: all at once, or one by one.
    pub(super) fn calmer(&mut self) {
        if !self.attempt(calm) {
            for calm in CALMER {
                self.attempt(calm);
            }
        }
        self.attempt(|plan| plan.network.latency_us = Network::default().latency_us);
    }

    /// Hosts that start at once, with true clocks.
    pub(super) fn plainer_hosts(&mut self) {
        for index in 0..self.best.brokers.len() {
            if !self.attempt(|plan| PLAIN_BROKER.iter().for_each(|plain| plain(&mut plan.brokers[index]))) {
                for plain in PLAIN_BROKER {
                    self.attempt(|plan| plain(&mut plan.brokers[index]));
                }
            }
        }
        for index in 0..self.best.services.len() {
            if !self.attempt(|plan| PLAIN_SERVICE.iter().for_each(|plain| plain(&mut plan.services[index]))) {
                for plain in PLAIN_SERVICE {
                    self.attempt(|plan| plain(&mut plan.services[index]));
                }
            }
            for sub in 0..self.best.services[index].consumes.len() {
                for plain in PLAIN_CONSUME {
                    self.attempt(|plan| plain(&mut plan.services[index].consumes[sub]));
                }
            }
        }
    }

    /// Messages that are short and are handled.
    pub(super) fn plainer_work(&mut self) {
        self.attempt(|plan| plan.work.iter_mut().for_each(|work| PLAIN_WORK.iter().for_each(|plain| plain(work))));
        for plain in PLAIN_WORK {
            self.attempt(|plan| plan.work.iter_mut().for_each(plain));
        }
        for index in 0..self.best.work.len().min(FEW) {
            for plain in PLAIN_WORK {
                self.attempt(|plan| plain(&mut plan.work[index]));
            }
        }
    }

    /// Faults that are short and mild.
    pub(super) fn plainer_faults(&mut self) {
        for index in 0..self.best.faults.len().min(FEW) {
            let Fault { for_ms, what, .. } = self.best.faults[index].clone();
            self.lower(1, for_ms, |plan, ms| plan.faults[index].for_ms = ms);
            for milder in milder(&what) {
                if self.attempt(|plan| plan.faults[index].what = milder) {
                    break;
                }
            }
        }
    }
}

/// A network and limits that do nothing by themselves.
pub(super) fn calm(plan: &mut Plan) {
    CALMER.iter().for_each(|calm| calm(plan));
}

/// More items than this are not looked at one by one: something else must make the lists shorter first.
const FEW: usize = 30;

const CALMER: &[fn(&mut Plan)] = &[
    |plan| plan.shuffled = false,
    |plan| plan.network.jitter_us = 0,
    |plan| plan.network.spike = 0,
    |plan| plan.network.cut = 0,
    |plan| plan.network.send_buffer = Network::default().send_buffer,
    |plan| plan.network.udp_loss = 0,
    |plan| plan.network.udp_twice = 0,
    |plan| plan.network.udp_damage = 0,
    |plan| plan.network.batch = 0,
    |plan| plan.knobs.pipeline = Knobs::default().pipeline,
    |plan| plan.knobs.fleet_max = Knobs::default().fleet_max,
    |plan| plan.knobs.backlog_ops = Knobs::default().backlog_ops,
];

const PLAIN_BROKER: &[fn(&mut BrokerPlan)] = &[
    |broker| broker.from_ms = 0,
    |broker| broker.offset_ms = 0,
    |broker| broker.persistence = Persistence::Always,
    |broker| broker.memory_max = 0,
    |broker| broker.interval_ms = 1_000,
    |broker| broker.service_us = 10,
];

const PLAIN_SERVICE: &[fn(&mut ServicePlan)] = &[
    |service| service.from_ms = 0,
    |service| service.rate_ppm = 0,
    |service| service.offset_ms = 0,
    |service| service.subscribe_loop_ms = 0,
];

const PLAIN_CONSUME: &[fn(&mut Consume)] =
    &[|consume| consume.group = 0, |consume| consume.in_flight = 1, |consume| consume.handler_us = 100];

const PLAIN_WORK: &[fn(&mut Work)] = &[
    |work| work.bytes = 12,
    |work| work.key = None,
    |work| work.at_most_once = false,
    |work| work.cancel_after_us = None,
    |work| work.delay_ms = None,
    |work| work.fate = Fate::Done,
    |work| work.topic = 0,
];

/// The same trouble, less of it.
fn milder(what: &Trouble) -> Vec<Trouble> {
    match what.clone() {
        Trouble::ServiceCrash { service, machine: true } => vec![Trouble::ServiceCrash { service, machine: false }],
        Trouble::BrokerCrash { broker, machine: true } => vec![Trouble::BrokerCrash { broker, machine: false }],
        Trouble::ServiceStop { service, grace_ms: 1.. } => vec![Trouble::ServiceStop { service, grace_ms: 0 }],
        Trouble::ServiceStep { service, by_ms } if by_ms.abs() > 1 => {
            vec![Trouble::ServiceStep { service, by_ms: by_ms / 2 }]
        }
        Trouble::BrokerStep { broker, by_ms } if by_ms.abs() > 1 => {
            vec![Trouble::BrokerStep { broker, by_ms: by_ms / 2 }]
        }
        Trouble::BrokerSlow { broker, times: times @ 3.. } => {
            vec![Trouble::BrokerSlow { broker, times: times / 2 }]
        }
        Trouble::Flood { per_second: per_second @ 40.., kind } => {
            vec![Trouble::Flood { per_second: per_second / 2, kind }]
        }
        Trouble::Partition { services, brokers, way } => {
            let some = |hosts: &[u32]| hosts.iter().take(hosts.len() / 2).copied().collect::<Vec<_>>();
            let mut milder = Vec::new();
            if brokers.len() > 1 {
                let brokers = some(&brokers);
                milder.push(Trouble::Partition { services: services.clone(), brokers, way });
            }
            if services.len() > 1 {
                let services = some(&services);
                milder.push(Trouble::Partition { services, brokers: brokers.clone(), way });
            }
            if way == Way::Both {
                milder.extend([Way::ToServices, Way::ToBrokers].map(|way| Trouble::Partition {
                    services: services.clone(),
                    brokers: brokers.clone(),
                    way,
                }));
            }
            milder
        }
        _ => Vec::new(),
    }
}
