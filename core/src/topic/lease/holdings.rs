//! What a member holds, what of it has to go, and what it has had before.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Change, Token};
use crate::time::Mono;

/// The partitions of one member.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: BTreeMap<u32, Held>,
    /// The newest token that was had for a partition: what was given up is not taken again under it. At most one for
    /// each partition there can be.
    had: BTreeMap<u32, Token>,
    acquired: u64,
}

#[derive(Debug)]
struct Held {
    token: Token,
    /// Counts acquisitions: the last one is the first to go, because it has the least to lose.
    nth: u64,
    /// It has to go, by then at the latest.
    end: Option<Mono>,
    /// Not presented any more.
    hidden: bool,
}

impl Holdings {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn token(&self, partition: u32) -> Option<Token> {
        self.held.get(&partition).map(|held| held.token)
    }

    /// What a tick presents: everything, also what has to go.
    pub(super) fn presented(&self) -> impl Iterator<Item = (u32, Token)> {
        self.held.iter().filter(|(_, held)| !held.hidden).map(|(partition, held)| (*partition, held.token))
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (u32, Token)> {
        self.held.iter().filter(|(_, held)| held.end.is_none()).map(|(partition, held)| (*partition, held.token))
    }

    pub(super) fn is_surplus(&self, partition: u32) -> bool {
        self.held.get(&partition).is_some_and(|held| held.end.is_some())
    }

    /// What has to go, the last acquired first.
    pub(super) fn surplus(&self) -> Vec<u32> {
        self.by_age(true).into_iter().rev().collect()
    }

    /// Takes a partition, unless it was had under that token, or a newer one, before.
    pub(super) fn acquire(&mut self, partition: u32, token: Token) -> bool {
        if self.had.get(&partition).is_some_and(|had| *had >= token) {
            return false;
        }
        self.acquired += 1;
        self.had.insert(partition, token);
        self.held.insert(partition, Held { token, nth: self.acquired, end: None, hidden: false });
        true
    }

    pub(super) fn give_up(&mut self, partition: u32) -> Option<Token> {
        self.held.remove(&partition).map(|held| held.token)
    }

    /// A fault: it is given up, and believed nevertheless.
    pub(super) fn hide(&mut self, partition: u32) {
        if let Some(held) = self.held.get_mut(&partition) {
            held.hidden = true;
        }
    }

    pub(super) fn take_all(&mut self) -> Vec<(u32, Token)> {
        core::mem::take(&mut self.held).into_iter().map(|(partition, held)| (partition, held.token)).collect()
    }

    /// Takes out what is not among these, or under another token.
    pub(super) fn take_but(&mut self, mine: &BTreeMap<u32, Token>) -> Vec<(u32, Token)> {
        let gone: Vec<_> =
            self.held.iter().filter(|(partition, held)| mine.get(partition) != Some(&held.token)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(partition, held)| (*partition, held.token)).collect();
        gone.iter().for_each(|(partition, _)| _ = self.held.remove(partition));
        gone
    }

    /// Takes out one whose time to go is over.
    pub(super) fn take_overdue(&mut self, now: Mono) -> Option<(u32, Token)> {
        let overdue = self.held.iter().find(|(_, held)| held.end.is_some_and(|end| end <= now));
        let (partition, token) = overdue.map(|(partition, held)| (*partition, held.token))?;
        self.held.remove(&partition);
        Some((partition, token))
    }

    pub(super) fn next_overdue(&self) -> Option<Mono> {
        self.held.values().filter_map(|held| held.end).min()
    }

    /// Has so many go that the share is left: the last acquired first, and back the other way.
    pub(super) fn settle(&mut self, share: usize, end: Mono, changes: &mut Vec<Change>) {
        let surplus = self.held.len().saturating_sub(share);
        let (going, kept) = (self.by_age(true), self.by_age(false));
        for partition in kept.into_iter().rev().take(surplus.saturating_sub(going.len())) {
            self.set_end(partition, Some(end));
            changes.push(Change::Drain(partition));
        }
        let back = going.len().saturating_sub(surplus);
        for partition in going.into_iter().take(back) {
            self.set_end(partition, None);
            changes.push(Change::Resume(partition));
        }
    }

    fn set_end(&mut self, partition: u32, end: Option<Mono>) {
        if let Some(held) = self.held.get_mut(&partition) {
            held.end = end;
        }
    }

    /// Those that have to go, or those that have not, the first acquired first.
    fn by_age(&self, going: bool) -> Vec<u32> {
        let mut all: Vec<_> = self.held.iter().filter(|(_, held)| held.end.is_some() == going).collect();
        all.sort_unstable_by_key(|(_, held)| held.nth);
        all.into_iter().map(|(partition, _)| *partition).collect()
    }
}
