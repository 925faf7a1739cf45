//! Leaving out parts: the end of a run, hosts, subscriptions.

use super::Shrinker;
use crate::plan::{Fault, Plan, Trouble};

impl<F: FnMut(&Plan) -> Option<u8>> Shrinker<F> {
    /// Cuts the end off.
    pub(super) fn shorten(&mut self) {
        let floor = self.best.warm_up_ms + 1;
        self.lower(floor, self.best.heal_at_ms, |plan, ms| {
            plan.heal_at_ms = ms;
            plan.work.retain(|work| work.at_ms <= ms);
            plan.faults.retain(|fault| fault.at_ms < ms);
        });
    }

    /// When nothing else helps: one to three messages, sent at the same moment shortly before a fault. What needs a
    /// message on its way at that moment meets many by chance, but one that is well timed is enough.
    pub(super) fn few_messages(&mut self) -> bool {
        let faults: Vec<u64> = self.best.faults.iter().map(|fault| fault.at_ms).collect();
        if faults.len() > 4 {
            return false;
        }
        for count in 1..=self.best.work.len().saturating_sub(1).min(3) {
            for before_ms in [0, 1, 2, 5, 10, 15, 20, 25, 30, 40, 60, 100, 200, 500] {
                for at_ms in &faults {
                    let at_ms = at_ms.saturating_sub(before_ms);
                    let timed = |plan: &mut Plan| {
                        plan.work.drain(..plan.work.len() - count);
                        plan.work.iter_mut().for_each(|work| work.at_ms = at_ms);
                    };
                    let calm = |plan: &mut Plan| {
                        timed(plan);
                        super::simpler::calm(plan);
                    };
                    if self.attempt(calm) || self.attempt(timed) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Halves the hosts, then tries without each. The others move up: a host is its index.
    pub(super) fn fewer_hosts(&mut self) {
        while self.best.brokers.len() > 1 && self.attempt(|plan| halve(plan.brokers.len(), plan, without_broker)) {}
        while self.best.services.len() > 1 && self.attempt(|plan| halve(plan.services.len(), plan, without_service)) {}
        for broker in (0..self.best.brokers.len() as u32).rev() {
            self.attempt(|plan| without_broker(plan, broker));
        }
        for service in (0..self.best.services.len() as u32).rev() {
            if self.attempt(|plan| without_service(plan, service)) {
                continue;
            }
            // Perhaps another can send what it sends.
            let other = u32::from(service == 0);
            self.attempt(|plan| {
                for work in plan.work.iter_mut().filter(|work| work.service == service) {
                    work.service = other;
                }
                without_service(plan, service);
            });
        }
    }

    /// Takes subscriptions away, all of a service's or one.
    pub(super) fn fewer_subscriptions(&mut self) {
        for service in 0..self.best.services.len() {
            self.attempt(|plan| plan.services[service].consumes.clear());
            for consume in (0..self.best.services[service].consumes.len()).rev() {
                self.attempt(|plan| {
                    plan.services[service].consumes.remove(consume);
                });
            }
        }
    }
}

fn halve(hosts: usize, plan: &mut Plan, without: fn(&mut Plan, u32)) {
    for host in (hosts.div_ceil(2)..hosts).rev() {
        without(plan, host as u32);
    }
}

fn without_broker(plan: &mut Plan, gone: u32) {
    plan.brokers.remove(gone as usize);
    plan.faults.retain_mut(|fault| {
        if let Trouble::Partition { brokers, .. } = &mut fault.what {
            brokers.retain_mut(|broker| moves_up(broker, gone));
            return !brokers.is_empty();
        }
        fault.what.broker_mut().is_none_or(|broker| moves_up(broker, gone))
    });
}

fn without_service(plan: &mut Plan, gone: u32) {
    plan.services.remove(gone as usize);
    plan.work.retain_mut(|work| moves_up(&mut work.service, gone));
    plan.faults.retain_mut(|Fault { what, .. }| {
        if let Trouble::Partition { services, .. } = what {
            services.retain_mut(|service| moves_up(service, gone));
            return !services.is_empty();
        }
        what.service_mut().is_none_or(|service| moves_up(service, gone))
    });
}

/// Whether an index still names a host; it names the same one afterwards.
fn moves_up(host: &mut u32, gone: u32) -> bool {
    if *host > gone {
        *host -= 1;
        return true;
    }
    *host < gone
}
