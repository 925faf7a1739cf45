//! Looking for mistakes: everything an engine keeps an account of, counted again.

use alloc::format;
use alloc::string::String;

use super::{Engine, Life};
use crate::audit::{holds, same};
use crate::effect::Timer;
use crate::id::BrokerId;
use crate::timers::TimerSlot;

/// How much an engine holds, by its own accounts; [`Engine::audit`] says whether they are true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Members of the fleet, departed ones included.
    pub brokers: usize,
    /// Connections, from the dial to the close.
    pub connections: usize,
    /// Accepted operations that are not answered.
    pub ops: usize,
    /// Those of them that wait for a broker.
    pub backlog_ops: usize,
    /// Bytes of those that wait.
    pub backlog_bytes: u64,
    /// Messages in hand.
    pub deliveries: usize,
    /// Timers, armed or not.
    pub timers: usize,
}

impl Engine {
    /// Recounts what this engine holds and compares it with its running accounts and its limits. For tests and simulators,
    /// between two inputs and after its outputs are drained; only with the feature `mutants`. Takes time as the engine
    /// holds things.
    ///
    /// # Errors
    ///
    /// The first difference: its clause (`backlog`, `connections`, `credit`, `fleet`, `rotation` or `timers`), a colon,
    /// what differs, and by how much.
    #[doc(hidden)]
    pub fn audit(&self) -> Result<(), String> {
        self.producer.audit(&self.config.limits)?;
        self.links.audit()?;
        self.consumers.audit()?;
        self.fleet.audit(&self.config)?;
        self.audit_timers()?;
        if self.life == Life::Stopped {
            // What still arrives reaches the machine it is for, and no other.
            return Ok(());
        }
        self.placement.audit()?;
        self.audit_brokers()
    }

    /// How much it holds. Plain counts, in constant time but for the timers.
    #[doc(hidden)]
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        let (backlog_ops, backlog_bytes) = self.producer.backlog();
        Footprint {
            brokers: self.fleet.member_count(),
            connections: self.links.connection_count(),
            ops: self.producer.op_count(),
            backlog_ops,
            backlog_bytes,
            deliveries: self.consumers.delivery_count(),
            timers: self.timers.registered().count(),
        }
    }

    /// Every timer belongs to something that lives, and is the one it has.
    fn audit_timers(&self) -> Result<(), String> {
        for (slot, timer) in self.timers.registered() {
            let is_owned = self.owns_timer(timer, slot);
            holds("timers", is_owned, || format!("{slot:?} is for {timer:?}, which is gone or has another"))?;
        }
        same("timers", "armed", self.timers.len(), self.timers.armed_recount())
    }

    fn owns_timer(&self, timer: Timer, slot: TimerSlot) -> bool {
        match timer {
            Timer::Liveness(_) | Timer::AdmissionReport => self.fleet.owns_timer(timer, slot),
            Timer::Conn(_) | Timer::Link(_) | Timer::ReaderDial(..) => self.links.owns_timer(timer, slot),
            Timer::Departure(broker) => self.departures.owns_timer(broker, slot),
            Timer::Memory(broker) => self.placement.owns_timer(broker, slot),
            Timer::Backlog => self.producer.owns_timer(slot),
            Timer::Renew(_) | Timer::Claim(_) | Timer::Handler(_) | Timer::Agenda(_) | Timer::Stop(_) => {
                self.consumers.owns_timer(timer, slot)
            }
            Timer::Announce => self.announcer.as_ref().is_some_and(|announcer| announcer.owns_timer(slot)),
            Timer::Shutdown => matches!(self.life, Life::Stopping(of) if of == slot) || self.life == Life::Stopped,
        }
    }

    /// Every machine knows the members, and nobody else.
    fn audit_brokers(&self) -> Result<(), String> {
        let members = self.fleet.member_count();
        let known = |who: &str, broker: BrokerId| {
            holds("fleet", self.fleet.contains(broker), || format!("{broker:?} is gone, and still known to {who}"))
        };
        self.links.brokers().try_for_each(|broker| known("the connections", broker))?;
        self.placement.brokers().try_for_each(|broker| known("the rotation", broker))?;
        self.departures.brokers().try_for_each(|broker| known("the departures", broker))?;
        self.producer.contacts().try_for_each(|broker| known("the producer", broker))?;
        self.consumers.contacts().try_for_each(|broker| known("a consumer", broker))?;
        same("fleet", "members with connections", self.links.brokers().count(), members)?;
        same("fleet", "members in the rotation's table", self.placement.brokers().count(), members)
    }
}
