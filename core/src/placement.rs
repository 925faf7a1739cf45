//! Which brokers may be sent to: ready, present, with room on the lane and in memory.

use crate::effect::{Cx, Timer};
use crate::id::{BrokerId, Table};
use crate::mutant::Mutant;
use crate::router::Router;
use crate::timers::TimerSlot;

/// The router, and what keeps a broker out of it.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    router: Router,
    /// Where keys may have their homes: like `router`, but a full lane does not move a key.
    homes: Router,
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

impl Standing {
    fn may_be_home(&self) -> bool {
        self.present && self.ready && self.memory != Memory::Full
    }

    fn may_take_more(&self) -> bool {
        self.may_be_home() && self.room
    }
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
        self.homes.remove(broker);
        if let Some(slot) = self.brokers.remove(broker).and_then(|standing| standing.timer) {
            cx.timers.remove(slot);
        }
    }

    /// The rotation begins anew: only a planted fault asks for it.
    pub(crate) fn restart(&mut self) {
        self.router.restart();
    }

    /// The broker for the next message: in turn, or the key's home.
    pub(crate) fn pick(&mut self, key: Option<u64>, cx: &mut Cx<'_>) -> Option<BrokerId> {
        let key = if cx.mutant(Mutant::UnkeyedByHash) { Some(key.unwrap_or(0)) } else { key };
        let broker = match key {
            None => self.router.pick(),
            Some(hash) => {
                let brokers = &self.brokers;
                self.homes.pick_highest(|broker| {
                    let seed = brokers.get(broker).map_or(0, |standing| standing.weight_seed);
                    crate::topic::fnv1a(&(seed ^ hash.rotate_left(32)).to_le_bytes())
                })
            }
        }?;
        if self.brokers.get(broker).is_some_and(|standing| standing.memory == Memory::Probe) {
            self.spend_probe(broker, cx);
        }
        Some(broker)
    }

    /// A probe is a single message: until its answer, the broker stays out. The next probe does not wait for that
    /// answer, which may never come.
    fn spend_probe(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        self.change(broker, |standing| {
            standing.memory = Memory::Full;
            if let Some(slot) = standing.timer {
                cx.timers.arm(slot, cx.now.mono + cx.config.timing.oom_probe);
            }
        });
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn owns_timer(&self, broker: BrokerId, slot: TimerSlot) -> bool {
        self.brokers.get(broker).is_some_and(|standing| standing.timer == Some(slot))
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn brokers(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.brokers.iter().map(|(broker, _)| broker)
    }

    /// Compares the two rotations with what is known of each broker.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn audit(&self) -> Result<(), alloc::string::String> {
        self.audit_one("takes messages", &self.router, Standing::may_take_more)?;
        self.audit_one("is a home of keys", &self.homes, Standing::may_be_home)
    }

    #[cfg(any(test, feature = "mutants"))]
    fn audit_one(&self, what: &str, router: &Router, may: fn(&Standing) -> bool) -> Result<(), alloc::string::String> {
        for broker in router.ready() {
            let fits = self.brokers.get(*broker).is_some_and(may);
            crate::audit::holds("rotation", fits, || alloc::format!("{broker:?} {what}, and may not"))?;
        }
        let able = self.brokers.iter().filter(|(_, standing)| may(standing)).count();
        crate::audit::same("rotation", format_args!("brokers of which each {what}"), router.len(), able)
    }

    fn change(&mut self, broker: BrokerId, how: impl FnOnce(&mut Standing)) {
        let Some(standing) = self.brokers.get_mut(broker) else { return };
        how(standing);
        let (may_be_home, may_take_more) = (standing.may_be_home(), standing.may_take_more());
        for (router, may) in [(&mut self.router, may_take_more), (&mut self.homes, may_be_home)] {
            if may { router.add(broker) } else { router.remove(broker) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::id::Id;
    use crate::stats::Stats;
    use crate::time::Now;
    use crate::timers::Timers;
    use alloc::collections::VecDeque;

    /// Three ready brokers, and whatever a test does with them.
    fn with_three(test: impl FnOnce(&mut Placement, &mut Cx<'_>, [BrokerId; 3])) {
        let ids = [0, 1, 2].map(|n| BrokerId::from_parts(n, 0));
        let mut placement = Placement::default();
        for (broker, store) in ids.into_iter().zip(["a", "b", "c"]) {
            placement.join(broker);
            placement.on_ready(broker, store);
        }
        let (config, mut timers, mut stats) = (Config::default(), Timers::new(), Stats::default());
        let (mut out, mut effects) = (VecDeque::new(), VecDeque::new());
        let mut cx = Cx {
            now: Now::default(),
            config: &config,
            timers: &mut timers,
            out: &mut out,
            effects: &mut effects,
            stats: &mut stats,
        };
        test(&mut placement, &mut cx, ids);
    }

    #[test]
    fn a_full_lane_takes_no_unkeyed_message_and_keeps_its_keys() {
        with_three(|placement, cx, ids| {
            let home = placement.pick(Some(7), cx).unwrap();
            placement.on_room(home, false);
            assert_eq!(placement.pick(Some(7), cx), Some(home));
            for _ in 0..6 {
                assert_ne!(placement.pick(None, cx), Some(home));
            }
            ids.into_iter().for_each(|broker| placement.on_room(broker, false));
            assert_eq!(placement.pick(None, cx), None);
        });
    }

    #[test]
    fn full_memory_lets_one_probe_through_at_a_time() {
        with_three(|placement, cx, [first, ..]| {
            placement.on_memory(first, true, cx);
            assert!((0..6).all(|_| placement.pick(None, cx) != Some(first)));
            placement.on_memory_timer(first);
            assert_eq!((0..6).filter(|_| placement.pick(None, cx) == Some(first)).count(), 1);
            placement.on_memory(first, false, cx);
            assert_eq!((0..6).filter(|_| placement.pick(None, cx) == Some(first)).count(), 2);
        });
    }

    #[test]
    fn an_audit_finds_who_is_in_a_rotation_and_should_not_be_or_the_other_way_round() {
        with_three(|placement, _, [first, ..]| {
            assert_eq!(placement.audit(), Ok(()));
            placement.router.remove(first);
            let complaint = placement.audit().unwrap_err();
            assert!(complaint.ends_with("the account says 2, a recount 3; they differ by 1"), "{complaint}");
            placement.router.add(first);
            placement.brokers.get_mut(first).unwrap().memory = Memory::Full;
            assert!(placement.audit().unwrap_err().contains("takes messages, and may not"));
        });
    }

    #[test]
    fn who_has_left_or_is_unready_is_not_picked() {
        with_three(|placement, cx, [first, second, third]| {
            placement.set_present(first, false);
            placement.on_unready(second);
            assert_eq!(placement.pick(None, cx), Some(third));
            assert_eq!(placement.pick(Some(1), cx), Some(third));
            placement.set_present(first, true);
            assert!((0..2).any(|_| placement.pick(None, cx) == Some(first)));
        });
    }
}
