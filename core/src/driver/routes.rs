//! From the engine's ids to who waits for them.

use alloc::vec::Vec;

use crate::id::Id;

/// What belongs to ids that somebody else hands out: an array by index, without hashing and without a tree.
///
/// The engine may free an id and hand its index out again before the driver has heard of the end of the first. The
/// older one moves aside then; that is rare, and few at a time.
#[derive(Debug)]
pub(super) struct Routes<K, V> {
    slots: Vec<Option<(K, V)>>,
    displaced: Vec<(K, V)>,
}

impl<K: Id, V> Routes<K, V> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), displaced: Vec::new() }
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        let index = key.index() as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.slots.get_mut(index) {
            self.displaced.extend(slot.replace((key, value)));
        }
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        match self.slots.get_mut(key.index() as usize) {
            Some(Some((found, value))) if *found == key => Some(value),
            _ => self.displaced.iter_mut().find(|(found, _)| *found == key).map(|(_, value)| value),
        }
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        let slot = self.slots.get_mut(key.index() as usize)?;
        if slot.as_ref().is_some_and(|(found, _)| *found == key) {
            return slot.take().map(|(_, value)| value);
        }
        let at = self.displaced.iter().position(|(found, _)| *found == key)?;
        Some(self.displaced.swap_remove(at).1)
    }

    /// Every value with its id, in no order that means anything.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.slots.iter_mut().flatten().chain(&mut self.displaced).map(|(key, value)| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::OpId;

    #[test]
    fn an_index_used_again_too_early_does_not_lose_the_first() {
        let (first, second) = (OpId::from_parts(3, 0), OpId::from_parts(3, 1));
        let mut routes = Routes::new();
        routes.insert(first, 'a');
        routes.insert(second, 'b');
        assert_eq!(routes.get_mut(first), Some(&mut 'a'));
        assert_eq!(routes.iter_mut().count(), 2);
        assert_eq!(routes.remove(first), Some('a'));
        assert_eq!(routes.remove(first), None);
        assert_eq!(routes.remove(second), Some('b'));
        assert_eq!(routes.remove(OpId::from_parts(9, 0)), None);
        assert_eq!(routes.iter_mut().count(), 0);
    }
}
