//! Recounts connections.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::Links;
use crate::audit::{holds, same};
use crate::conn::Lane;
use crate::effect::Timer;
use crate::id::{BrokerId, ConnId};
use crate::timers::TimerSlot;

impl Links {
    /// Compares the connections with who owns them, and each one's watermark with what it has sent.
    pub(crate) fn audit(&self) -> Result<(), String> {
        same("connections", "connections", self.conns.len(), self.conns.keys().count())?;
        let mut owned: BTreeSet<ConnId> = BTreeSet::new();
        for (broker, link) in self.links.iter() {
            let command = link.command.map(|conn| (conn, Lane::Command));
            let readers = link.readers.iter().filter_map(|r| Some((r.conn?, Lane::Reader(r.sub))));
            for (id, lane) in command.into_iter().chain(readers) {
                holds("connections", owned.insert(id), || format!("{id:?} is owned twice"))?;
                let is_it = self.conns.get(id).is_some_and(|conn| conn.broker == broker && conn.lane == lane);
                holds("connections", is_it, || format!("{id:?} is not the {lane:?} of {broker:?} that owns it"))?;
            }
            let subs: BTreeSet<_> = link.readers.iter().map(|reader| reader.sub).collect();
            same("connections", format_args!("{broker:?} readers"), link.readers.len(), subs.len())?;
        }
        for (id, conn) in self.conns.iter() {
            holds("connections", owned.contains(&id), || format!("{id:?} to {:?} is nobody's", conn.broker))?;
            conn.audit().map_err(|why| format!("connections: {id:?}: {why}"))?;
        }
        Ok(())
    }

    /// The brokers that have connections, or wait for some.
    pub(crate) fn brokers(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.links.iter().map(|(broker, _)| broker)
    }

    pub(crate) fn owns_timer(&self, timer: Timer, slot: TimerSlot) -> bool {
        match timer {
            Timer::Conn(conn) => self.conns.get(conn).is_some_and(|conn| conn.timer == slot),
            Timer::Link(broker) => self.links.get(broker).is_some_and(|link| link.timer == slot),
            Timer::ReaderDial(broker, sub) => {
                let link = self.links.get(broker);
                link.is_some_and(|link| link.readers.iter().any(|reader| reader.sub == sub && reader.timer == slot))
            }
            _ => false,
        }
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.conns.len()
    }
}
