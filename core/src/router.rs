//! Which broker gets the next message.
//!
//! Brokers that can take one are kept in a dense list, so that a pick costs the same with ten brokers or a hundred
//! thousand, and the same however many of them are unready.

use alloc::vec::Vec;

use crate::id::{BrokerId, Id};

/// Round robin over the brokers that can take a message.
#[derive(Debug, Default)]
pub struct Router {
    ready: Vec<BrokerId>,
    /// Where in `ready` a broker stands, by its index; `NOWHERE` when it does not.
    place: Vec<u32>,
    next: usize,
}

const NOWHERE: u32 = u32::MAX;

impl Router {
    /// A router without brokers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A broker can take messages from now on.
    pub fn add(&mut self, broker: BrokerId) {
        let index = broker.index() as usize;
        if self.place.len() <= index {
            self.place.resize(index + 1, NOWHERE);
        }
        if self.find(broker).is_none() {
            self.place[index] = u32::try_from(self.ready.len()).unwrap_or(NOWHERE);
            self.ready.push(broker);
        }
    }

    /// A broker cannot take messages any more.
    pub fn remove(&mut self, broker: BrokerId) {
        let Some(at) = self.find(broker) else { return };
        self.place[broker.index() as usize] = NOWHERE;
        self.ready.swap_remove(at);
        if let Some(moved) = self.ready.get(at) {
            self.place[moved.index() as usize] = u32::try_from(at).unwrap_or(NOWHERE);
        }
        if self.next > at && self.next >= self.ready.len() {
            self.next = 0;
        }
    }

    /// The next broker in turn; `None` when none can take a message.
    pub fn pick(&mut self) -> Option<BrokerId> {
        if self.next >= self.ready.len() {
            self.next = 0;
        }
        let broker = self.ready.get(self.next).copied()?;
        self.next += 1;
        Some(broker)
    }

    pub(crate) fn restart(&mut self) {
        self.next = 0;
    }

    /// The broker on which `weight` is highest: rendezvous hashing, so that losing one of n moves 1/n of the keys.
    pub fn pick_highest(&self, weight: impl Fn(BrokerId) -> u64) -> Option<BrokerId> {
        self.ready.iter().copied().max_by_key(|broker| (weight(*broker), *broker))
    }

    /// How many brokers can take a message.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether none can.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Those that can take a message, in no particular order.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn ready(&self) -> &[BrokerId] {
        &self.ready
    }

    fn find(&self, broker: BrokerId) -> Option<usize> {
        let at = *self.place.get(broker.index() as usize)? as usize;
        if self.ready.get(at) == Some(&broker) { Some(at) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    fn id(n: u32) -> BrokerId {
        BrokerId::from_parts(n, 0)
    }

    #[test]
    fn counts_differ_by_at_most_one_while_nothing_changes() {
        let mut router = Router::new();
        (0..3).for_each(|n| router.add(id(n)));
        let mut counts = BTreeMap::new();
        for _ in 0..301 {
            *counts.entry(router.pick().unwrap()).or_insert(0) += 1;
        }
        assert!(counts.values().all(|count| [100, 101].contains(count)), "{counts:?}");
    }

    #[test]
    fn what_was_removed_is_not_picked_and_the_rest_is() {
        let mut router = Router::new();
        (0..5).for_each(|n| router.add(id(n)));
        router.add(id(2));
        router.remove(id(1));
        router.remove(id(1));
        router.remove(id(4));
        let mut picked: Vec<_> = (0..3).filter_map(|_| router.pick()).collect();
        picked.sort();
        assert_eq!(picked, [id(0), id(2), id(3)]);
        (0..5).for_each(|n| router.remove(id(n)));
        assert_eq!(router.pick(), None);
    }

    #[test]
    fn an_older_use_of_a_slot_is_another_broker() {
        let mut router = Router::new();
        router.add(id(0));
        router.remove(BrokerId::from_parts(0, 1));
        assert_eq!(router.pick(), Some(id(0)));
    }

    #[test]
    fn a_key_moves_only_when_its_broker_goes() {
        let mut router = Router::new();
        (0..10).for_each(|n| router.add(id(n)));
        let weight = |key: u64| {
            move |broker: BrokerId| {
                crate::topic::fnv1a(&[key.to_le_bytes(), u64::from(broker.index()).to_le_bytes()].concat())
            }
        };
        let homes: Vec<_> = (0..200).map(|key| router.pick_highest(weight(key)).unwrap()).collect();
        router.remove(id(3));
        for (key, home) in homes.iter().enumerate().filter(|(_, home)| **home != id(3)) {
            assert_eq!(router.pick_highest(weight(key as u64)), Some(*home));
        }
    }
}
