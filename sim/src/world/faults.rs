//! Faults of the plan, put into effect and taken back.

use flota_core::announce::{Guid, Status};

use super::World;
use super::kernel::{Event, Kernel};
use super::net::Toward;
use crate::plan::Trouble;
use crate::seen::{Host, Line, What};

impl World {
    pub(super) fn fault_begins(&mut self, index: u32) {
        let Some(fault) = self.k.plan.faults.get(index as usize).cloned() else { return };
        self.k.see(Host::World, What::FaultBegins(index));
        let until = fault.until_ms().min(self.k.plan.heal_at_ms) * 1000;
        match fault.what {
            Trouble::ServiceCrash { service, machine } => {
                self.with_service(service, |host, k| host.crash(k, machine));
            }
            Trouble::ServiceStop { service, grace_ms } => {
                self.with_service(service, |host, k| host.shutdown(k, grace_ms * 1000));
            }
            Trouble::ServicePause { service } => self.with_service(service, |host, k| host.pause(k)),
            Trouble::ServiceStep { service, by_ms } => self.with_service(service, |host, _| host.clock.step(by_ms)),
            Trouble::Partition { services, brokers, way } => self.k.net.cut(index, until, &services, &brokers, way),
            Trouble::Reset { service, broker } => {
                let lines = lines_between(&self.k, Some(service), broker);
                self.reset(&lines);
            }
            Trouble::ResetOne { service, broker, nth } => {
                let lines = lines_between(&self.k, Some(service), broker);
                let one = lines.get(nth as usize % lines.len().max(1)).copied();
                self.reset(one.as_slice());
            }
            Trouble::Flood { .. } => self.k.after(0, Event::Flood(index)),
            Trouble::UdpLoss { parts } => self.k.net.extra_loss += parts,
            what => self.broker_fault_begins(what),
        }
    }

    fn broker_fault_begins(&mut self, what: Trouble) {
        match what {
            Trouble::BrokerCrash { broker, machine } => self.with_broker(broker, |host, k| host.crash(k, machine)),
            Trouble::BrokerStop { broker } => self.with_broker(broker, |host, k| host.stop(k)),
            Trouble::BrokerPause { broker } => self.with_broker(broker, |host, _| host.paused = true),
            Trouble::BrokerSlow { broker, times } => self.with_broker(broker, |host, _| host.slow = times.max(1)),
            Trouble::BrokerLoading { broker } => self.with_broker(broker, |host, k| {
                host.crash(k, false);
                host.start(k);
                host.set_condition(|condition| condition.loading = true);
            }),
            Trouble::BrokerFull { broker } => self.with_broker(broker, |host, _| host.model.set_memory_max(1)),
            Trouble::BrokerReplica { broker } => self.condition(broker, |condition| condition.read_only = true),
            Trouble::BrokerMisconf { broker } => self.condition(broker, |condition| condition.misconf = true),
            Trouble::BrokerCrowded { broker } => self.with_broker(broker, |host, _| host.crowded = true),
            Trouble::BrokerStep { broker, by_ms } => {
                self.with_broker(broker, |host, _| host.offset_us += by_ms * 1000);
            }
            Trouble::ScriptFlush { broker } => {
                self.with_broker(broker, |host, k| host.operate(k, &[b"SCRIPT", b"FLUSH"]))
            }
            Trouble::FlushAll { broker } => self.with_broker(broker, |host, k| host.operate(k, &[b"FLUSHALL"])),
            Trouble::Trim { broker, keep } => self.with_broker(broker, |host, k| host.trim(k, keep)),
            Trouble::KillClients { broker } => self.kill_clients(broker),
            Trouble::AnnouncerSilent { broker } => self.with_broker(broker, |host, _| host.announcer.silent = true),
            Trouble::AnnouncerDown { broker } => self.with_broker(broker, |host, k| {
                host.say(k, Status::Down, host.guid());
                host.announcer.silent = true;
            }),
            Trouble::AnnouncerTwo { broker } => self.with_broker(broker, |host, _| host.announcer.twice = true),
            Trouble::AnnouncerInterval { broker, interval_ms } => {
                self.with_broker(broker, |host, k| host.change_interval(k, interval_ms));
            }
            Trouble::ForgedDown { broker } => {
                self.with_broker(broker, |host, k| host.say(k, Status::Down, host.guid()))
            }
            Trouble::Readdressed { broker } => self.with_broker(broker, |host, _| host.announcer.moved = true),
            _ => {}
        }
    }

    pub(super) fn fault_ends(&mut self, index: u32) {
        let Some(fault) = self.k.plan.faults.get(index as usize).cloned() else { return };
        self.k.see(Host::World, What::FaultEnds(index));
        match fault.what {
            Trouble::ServiceCrash { service, .. } => self.with_service(service, |host, k| host.start(k)),
            Trouble::ServiceStop { service, .. } => self.with_service(service, |host, k| host.restart(k)),
            Trouble::ServicePause { service } => self.with_service(service, |host, k| host.resume(k)),
            Trouble::Partition { .. } => self.k.net.mend(index),
            Trouble::UdpLoss { parts } => self.k.net.extra_loss = self.k.net.extra_loss.saturating_sub(parts),
            Trouble::BrokerCrash { broker, .. } | Trouble::BrokerStop { broker } => {
                self.with_broker(broker, super::broker::BrokerHost::start);
            }
            Trouble::BrokerPause { broker } => self.with_broker(broker, |host, k| host.resume(k)),
            Trouble::BrokerSlow { broker, .. } => self.with_broker(broker, |host, _| host.slow = 1),
            Trouble::BrokerLoading { broker } => self.condition(broker, |condition| condition.loading = false),
            Trouble::BrokerFull { broker } => {
                let max = self.k.plan.brokers.get(broker as usize).map_or(0, |plan| plan.memory_max);
                self.with_broker(broker, |host, _| host.model.set_memory_max(max));
            }
            Trouble::BrokerReplica { broker } => self.condition(broker, |condition| condition.read_only = false),
            Trouble::BrokerMisconf { broker } => self.condition(broker, |condition| condition.misconf = false),
            Trouble::BrokerCrowded { broker } => self.with_broker(broker, |host, _| host.crowded = false),
            Trouble::AnnouncerSilent { broker } | Trouble::AnnouncerDown { broker } => {
                self.with_broker(broker, |host, k| {
                    host.announcer.silent = false;
                    if host.up {
                        host.speak_anew(k);
                    }
                });
            }
            Trouble::AnnouncerTwo { broker } => self.with_broker(broker, |host, _| host.announcer.twice = false),
            Trouble::AnnouncerInterval { broker, .. } => {
                let plan = self.k.plan.brokers.get(broker as usize).map_or(1_000, |plan| plan.interval_ms);
                self.with_broker(broker, |host, k| host.change_interval(k, plan));
            }
            Trouble::Readdressed { broker } => self.with_broker(broker, |host, _| host.announcer.moved = false),
            Trouble::ServiceStep { .. }
            | Trouble::BrokerStep { .. }
            | Trouble::ScriptFlush { .. }
            | Trouble::FlushAll { .. }
            | Trouble::Trim { .. }
            | Trouble::KillClients { .. }
            | Trouble::Reset { .. }
            | Trouble::ResetOne { .. }
            | Trouble::ForgedDown { .. }
            | Trouble::Flood { .. } => {}
        }
    }

    fn condition(&mut self, broker: u32, change: impl FnOnce(&mut crate::broker::Condition)) {
        self.with_broker(broker, |host, _| host.set_condition(change));
    }

    /// Connections are reset, at both ends.
    fn reset(&mut self, lines: &[Line]) {
        for &line in lines {
            self.k.part(line, Toward::Broker, true);
            self.k.part(line, Toward::Service, true);
        }
    }

    /// The broker closes every connection.
    fn kill_clients(&mut self, broker: u32) {
        for line in lines_between(&self.k, None, broker) {
            self.with_broker(broker, |host, k| host.learn_closed(k, line));
            self.k.part(line, Toward::Service, false);
        }
    }
}

fn lines_between(k: &Kernel, service: Option<u32>, broker: u32) -> Vec<Line> {
    k.net
        .lines()
        .filter(|(_, conn)| conn.broker == Some(broker) && conn.server_open)
        .filter(|(_, conn)| service.is_none_or(|service| conn.service == service))
        .map(|(line, _)| line)
        .collect()
}

impl super::broker::BrokerHost {
    fn change_interval(&mut self, k: &mut Kernel, interval_ms: u64) {
        if self.announcer.interval_ms > 0 {
            self.announcer.interval_ms = interval_ms.max(1);
            if self.up {
                self.speak_anew(k);
            }
        }
    }
}

/// A GUID that no broker of the plan has.
pub(super) fn strange_guid(n: u64) -> Guid {
    let mut bytes = [0x5a; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    Guid::from_bytes(bytes)
}
