//! Generational identifiers and the slab they index.
//!
//! An id is an index and a generation. A freed slot raises its generation, so an id that outlived its thing finds
//! nothing instead of somebody else's thing. Sockets, timers and applications report late by nature; with these ids
//! "late" is a lookup that fails.

use alloc::vec::Vec;
use core::marker::PhantomData;

/// An identifier that a [`Slab`] hands out.
pub trait Id: Copy + Ord + core::fmt::Debug {
    /// Puts the two halves together.
    fn from_parts(index: u32, generation: u32) -> Self;
    /// The slot: small, dense, reused.
    fn index(self) -> u32;
    /// Which use of the slot.
    fn generation(self) -> u32;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $letter:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            // Generation first: ids order by age where slots are reused in turn.
            generation: u32,
            index: u32,
        }

        impl Id for $name {
            fn from_parts(index: u32, generation: u32) -> Self {
                Self { generation, index }
            }
            fn index(self) -> u32 {
                self.index
            }
            fn generation(self) -> u32 {
                self.generation
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!($letter, "{}.{}"), self.index, self.generation)
            }
        }
    )*};
}

ids! {
    /// One member of the fleet: an announced or configured server.
    BrokerId, "b";
    /// One connection, from the dial to the close. A reconnect is another id.
    ConnId, "c";
    /// One accepted operation.
    OpId, "o";
    /// One subscription.
    SubId, "s";
    /// One delivery of one message to this process.
    DeliveryId, "d";
}

/// A map from generational ids to values: constant-time, dense, iterated in slot order.
#[derive(Debug)]
pub struct Slab<K, V> {
    slots: Vec<Slot<V>>,
    free: Vec<u32>,
    len: usize,
    key: PhantomData<K>,
}

#[derive(Debug)]
struct Slot<V> {
    generation: u32,
    value: Option<V>,
}

impl<K, V> Default for Slab<K, V> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0, key: PhantomData }
    }
}

impl<K: Id, V> Slab<K, V> {
    /// An empty slab.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many values it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Stores a value under a new id, never equal to an earlier one.
    ///
    /// # Panics
    ///
    /// With 2³² values at once, which no configured limit allows.
    pub fn insert(&mut self, value: V) -> K {
        self.insert_with(|_| value)
    }

    /// Like [`insert`](Self::insert), for a value that holds its own id.
    pub fn insert_with(&mut self, value: impl FnOnce(K) -> V) -> K {
        self.len += 1;
        while let Some(index) = self.free.pop() {
            if let Some(slot) = self.slots.get_mut(index as usize) {
                let key = K::from_parts(index, slot.generation);
                slot.value = Some(value(key));
                return key;
            }
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 slots");
        let key = K::from_parts(index, 0);
        self.slots.push(Slot { generation: 0, value: Some(value(key)) });
        key
    }

    /// The value, unless it was removed.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&V> {
        let slot = self.slots.get(key.index() as usize)?;
        if slot.generation == key.generation() { slot.value.as_ref() } else { None }
    }

    /// The value to change, unless it was removed.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation == key.generation() { slot.value.as_mut() } else { None }
    }

    /// Whether the id still names a value.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// Takes the value out; its id names nothing from now on.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.generation != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        self.len -= 1;
        // A slot whose generations are used up is retired: an id must never come back.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(key.index());
        }
        Some(value)
    }

    /// Every value with its id, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.slots
            .iter()
            .zip(0u32..)
            .filter_map(|(slot, index)| slot.value.as_ref().map(|value| (K::from_parts(index, slot.generation), value)))
    }

    /// Every value to change, with its id, in slot order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.slots.iter_mut().zip(0u32..).filter_map(|(slot, index)| {
            let generation = slot.generation;
            slot.value.as_mut().map(|value| (K::from_parts(index, generation), value))
        })
    }

    /// The ids of every value, in slot order.
    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.iter().map(|(key, _)| key)
    }
}

/// Values under ids that somebody else hands out: one slot per index, the id kept to tell uses apart.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    slots: Vec<Option<(K, V)>>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { slots: Vec::new() }
    }
}

impl<K: Id, V> Table<K, V> {
    pub(crate) fn get(&self, key: K) -> Option<&V> {
        match self.slots.get(key.index() as usize)? {
            Some((at, value)) if *at == key => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        match self.slots.get_mut(key.index() as usize)? {
            Some((at, value)) if *at == key => Some(value),
            _ => None,
        }
    }

    /// Puts a value in place, and gives back what an older use of the slot had left there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        let index = key.index() as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots.get_mut(index)?.replace((key, value))
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.as_ref().is_some_and(|(at, _)| *at == key) { slot.take().map(|(_, value)| value) } else { None }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.slots.iter().flatten().map(|(key, value)| (*key, value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.slots.iter_mut().flatten().map(|(key, value)| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_equal_to_an_earlier_one() {
        let mut slab: Slab<OpId, u8> = Slab::new();
        let first = slab.insert(1);
        assert_eq!(slab.remove(first), Some(1));
        let second = slab.insert(2);
        assert_eq!(first.index(), second.index());
        assert_ne!(first, second);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&2));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_retired() {
        let mut slab: Slab<OpId, u8> = Slab::new();
        let first = slab.insert(1);
        slab.slots[0].generation = u32::MAX;
        let last = OpId::from_parts(first.index(), u32::MAX);
        assert_eq!(slab.remove(last), Some(1));
        let next = slab.insert(2);
        assert_ne!(next.index(), first.index());
    }

    #[test]
    fn iteration_is_in_slot_order() {
        let mut slab: Slab<OpId, u8> = Slab::new();
        let keys: Vec<_> = (0..4).map(|n| slab.insert(n)).collect();
        slab.remove(keys[1]);
        assert_eq!(slab.iter().map(|(_, v)| *v).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(slab.keys().count(), slab.len());
    }
}
