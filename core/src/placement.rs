//! Which brokers may be sent to: ready, present, with room on the lane and in memory.

use crate::effect::{Cx, Timer};
use crate::id::{BrokerId, Table};
use crate::router::Router;
use crate::timers::TimerSlot;

/// The router, and what keeps a broker out of it.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    router: Router,
    brokers: Table<BrokerId, Standing>,
}

#[derive(Debug)]
struct Standing {
    present: bool,
    ready: bool,
    room: bool,
    memory: Memory,
    /// Differs between brokers and survives their restarts: the broker's share in rendezvous hashing.
    weight_seed: u64,
    timer: Option<TimerSlot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Enough,
    /// The last send was refused for lack of it.
    Full,
    /// One send may find out whether it still is.
    Probe,
}

impl Placement {
    pub(crate) fn join(&mut self, broker: BrokerId) {
        let standing =
            Standing { present: true, ready: false, room: true, memory: Memory::Enough, weight_seed: 0, timer: None };
        self.brokers.insert(broker, standing);
    }

    pub(crate) fn set_present(&mut self, broker: BrokerId, present: bool) {
        self.change(broker, |standing| standing.present = present);
    }

    /// `store` names the data set: the same one keeps its keys wherever it is reached.
    pub(crate) fn on_ready(&mut self, broker: BrokerId, store: &str) {
        self.change(broker, |standing| {
            standing.ready = true;
            standing.room = true;
            standing.weight_seed = crate::topic::fnv1a(store.as_bytes());
        });
    }

    pub(crate) fn on_unready(&mut self, broker: BrokerId) {
        self.change(broker, |standing| standing.ready = false);
    }

    pub(crate) fn on_room(&mut self, broker: BrokerId, room: bool) {
        self.change(broker, |standing| standing.room = room);
    }

    /// A send was refused for lack of memory, or one went through.
    pub(crate) fn on_memory(&mut self, broker: BrokerId, full: bool, cx: &mut Cx<'_>) {
        let Some(standing) = self.brokers.get_mut(broker) else { return };
        if full {
            let slot = *standing.timer.get_or_insert_with(|| cx.timers.register(Timer::Memory(broker)));
            cx.timers.arm(slot, cx.now.mono + cx.config.timing.oom_probe);
        }
        let memory = if full { Memory::Full } else { Memory::Enough };
        self.change(broker, |standing| standing.memory = memory);
    }

    pub(crate) fn is_memory_full(&self, broker: BrokerId) -> bool {
        self.brokers.get(broker).is_some_and(|standing| standing.memory != Memory::Enough)
    }

    pub(crate) fn on_memory_timer(&mut self, broker: BrokerId) {
        self.change(broker, |standing| {
            if standing.memory == Memory::Full {
                standing.memory = Memory::Probe;
            }
        });
    }

    pub(crate) fn forget(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        self.router.remove(broker);
        if let Some(slot) = self.brokers.remove(broker).and_then(|standing| standing.timer) {
            cx.timers.remove(slot);
        }
    }

    /// The broker for the next message: in turn, or the key's home.
    pub(crate) fn pick(&mut self, key: Option<u64>, cx: &mut Cx<'_>) -> Option<BrokerId> {
        let broker = match key {
            None => self.router.pick(),
            Some(hash) => {
                let brokers = &self.brokers;
                self.router.pick_highest(|broker| {
                    let seed = brokers.get(broker).map_or(0, |standing| standing.weight_seed);
                    crate::topic::fnv1a(&(seed ^ hash.rotate_left(32)).to_le_bytes())
                })
            }
        }?;
        // A probe is a single message: until its answer, the broker stays out. The next probe does not wait for that
        // answer, which may never come.
        self.change(broker, |standing| {
            if standing.memory == Memory::Probe {
                standing.memory = Memory::Full;
                if let Some(slot) = standing.timer {
                    cx.timers.arm(slot, cx.now.mono + cx.config.timing.oom_probe);
                }
            }
        });
        Some(broker)
    }

    fn change(&mut self, broker: BrokerId, how: impl FnOnce(&mut Standing)) {
        let Some(standing) = self.brokers.get_mut(broker) else { return };
        how(standing);
        if standing.present && standing.ready && standing.room && standing.memory != Memory::Full {
            self.router.add(broker);
        } else {
            self.router.remove(broker);
        }
    }
}
