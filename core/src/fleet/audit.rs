//! Recounts the members and what finds them.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::Fleet;
use super::member::{Member, State};
use crate::audit::{same, within};
use crate::config::Config;
use crate::effect::Timer;
use crate::id::BrokerId;
use crate::timers::TimerSlot;

impl Fleet {
    /// Compares the members with the index and with the limits.
    pub(crate) fn audit(&self, config: &Config) -> Result<(), String> {
        let limits = &config.limits;
        same("fleet", "members", self.members.len(), self.members.keys().count())?;
        within("fleet", "members", self.members.len(), config.brokers.len().max(limits.brokers as usize))?;
        // One that turned out to be another has given everything away, and is gone with the end of the input.
        let members = || self.members.iter().map(|(_, member)| member).filter(|m| m.state != State::Merged);
        let places = || members().flat_map(Member::places);
        let guids: BTreeSet<[u8; 16]> = places().flat_map(|p| &p.guids).map(|heard| heard.guid.to_bytes()).collect();
        let runs = members().filter(|member| member.rest.run.is_some()).count();
        let (indexed_addresses, indexed_guids, indexed_runs) = self.index.lens();
        same("fleet", "addresses", indexed_addresses, places().count())?;
        same("fleet", "GUIDs", indexed_guids, guids.len())?;
        same("fleet", "run ids", indexed_runs, runs)?;
        for place in places() {
            let what = format!("GUIDs of {}", place.address);
            within("fleet", what, place.guids.len(), limits.guids_per_address as usize)?;
        }
        for member in members() {
            let dynamic = member.rest.alternatives.iter().filter(|place| !place.configured).count();
            let what = format!("alternatives of {}", member.address());
            // The configured address in use makes room for itself when another is tried.
            within("fleet", what, dynamic, limits.alternatives as usize + usize::from(member.is_static()))?;
        }
        Ok(())
    }

    pub(crate) fn contains(&self, broker: BrokerId) -> bool {
        self.members.contains(broker)
    }

    pub(crate) fn owns_timer(&self, timer: Timer, slot: TimerSlot) -> bool {
        match timer {
            Timer::Liveness(broker) => self.members.get(broker).is_some_and(|member| member.timer == slot),
            Timer::AdmissionReport => self.reports.owns_timer(slot),
            _ => false,
        }
    }

    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
    }
}
