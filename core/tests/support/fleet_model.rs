//! Membership of the fleet in as few lines as it takes: the reference that the real state machine is compared with.
//!
//! It knows announcements and time, nothing of connections. Addresses and GUIDs are small numbers. Its methods are called
//! one for one with the machine's: each handles its input first and then what is due at `now`.

use std::collections::BTreeMap;
// Also included by a crate without the prelude of std.
use std::vec::Vec;

#[derive(Debug, Clone, Default)]
pub struct Model {
    members: Vec<Member>,
    /// Counts announcements: it orders what the clock cannot.
    heard: u64,
}

/// One broker: the address it is shown at, and all that is announced for it, there and at alternative addresses.
#[derive(Debug, Clone)]
struct Member {
    at: u8,
    pairs: Vec<Pair>,
}

/// One GUID at one address, until `gone_at_ms`, heard in the `first` and most recently in the `last` announcement.
#[derive(Debug, Clone, Copy)]
struct Pair {
    addr: u8,
    guid: u8,
    gone_at_ms: u64,
    first: u64,
    last: u64,
}

impl Model {
    pub fn up(&mut self, now_ms: u64, guid: u8, addr: u8, interval_ms: u64) {
        self.heard += 1;
        // A known address stays with its member, whatever the GUID. A known GUID makes a new address an alternative of the
        // member that heard that GUID first. Anything else is a newcomer.
        let index = self.by_address(addr).or_else(|| self.first_to_hear(guid)).unwrap_or_else(|| {
            self.members.push(Member { at: addr, pairs: Vec::new() });
            self.members.len() - 1
        });
        let pairs = &mut self.members[index].pairs;
        let mut pair = Pair { addr, guid, gone_at_ms: 0, first: self.heard, last: self.heard };
        // The latest `up` decides alone, by its own interval: strictly more than interval + 5 s of silence.
        pair.gone_at_ms = now_ms.saturating_add(interval_ms.min(60_000) + 5_001);
        if let Some(known) = pairs.iter().position(|p| p.addr == addr && p.guid == guid) {
            pair.first = pairs.swap_remove(known).first;
        } else if pairs.iter().filter(|p| p.addr == addr).count() == 4 {
            // A fifth GUID of an address pushes out the one that would go next.
            let next = (0..pairs.len())
                .filter(|&i| pairs[i].addr == addr)
                .min_by_key(|&i| (pairs[i].gone_at_ms, pairs[i].first));
            next.map(|i| pairs.swap_remove(i));
        }
        pairs.push(pair);
        self.at(now_ms);
    }

    pub fn down(&mut self, now_ms: u64, guid: u8, addr: u8) {
        // Only the newest GUID of an address can take it down: a late `down` of a previous life changes nothing.
        if let Some(index) = self.by_address(addr).filter(|&i| self.members[i].newest_guid(addr) == Some(guid)) {
            if self.members[index].at == addr {
                self.members.remove(index); // the member, with its alternatives
            } else {
                self.members[index].pairs.retain(|p| p.addr != addr); // a mere alternative
            }
        }
        self.at(now_ms);
    }

    pub fn at(&mut self, now_ms: u64) {
        for member in &mut self.members {
            member.pairs.retain(|p| p.gone_at_ms > now_ms);
            // An address goes with its last GUID; the member goes on at the alternative heard latest, if there is one.
            if member.newest_guid(member.at).is_none()
                && let Some(latest) = member.pairs.iter().max_by_key(|p| p.last)
            {
                member.at = latest.addr;
            }
        }
        self.members.retain(|m| !m.pairs.is_empty());
    }

    /// Address and newest GUID of every member.
    pub fn members(&self) -> BTreeMap<u8, u8> {
        self.members.iter().filter_map(|m| Some((m.at, m.newest_guid(m.at)?))).collect()
    }

    /// Every address that is known but is not a member, and the address of its member.
    pub fn alternatives(&self) -> BTreeMap<u8, u8> {
        let known = self.members.iter().flat_map(|m| m.pairs.iter().map(|p| (p.addr, m.at)));
        known.filter(|(addr, at)| addr != at).collect()
    }

    fn by_address(&self, addr: u8) -> Option<usize> {
        self.members.iter().position(|m| m.pairs.iter().any(|p| p.addr == addr))
    }

    fn first_to_hear(&self, guid: u8) -> Option<usize> {
        let heard_it = |m: &Member| m.pairs.iter().filter(|p| p.guid == guid).map(|p| p.first).min();
        let by_age = self.members.iter().enumerate().filter_map(|(i, m)| Some((heard_it(m)?, i)));
        by_age.min().map(|(_, index)| index)
    }
}

impl Member {
    /// Newest is the one that appeared last, not the one repeated last: two announcers of one broker do not take turns.
    fn newest_guid(&self, addr: u8) -> Option<u8> {
        self.pairs.iter().filter(|p| p.addr == addr).max_by_key(|p| p.first).map(|p| p.guid)
    }
}
