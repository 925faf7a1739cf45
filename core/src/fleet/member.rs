//! One member: its addresses, who announces them, and until when.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use smallvec::SmallVec;

use super::index::AddressKey;
use crate::announce::Guid;
use crate::config::Endpoint;
use crate::output::Unready;
use crate::time::Mono;
use crate::timers::TimerSlot;

/// A broker the fleet knows: announced, configured, or departed and not yet done with.
///
/// What every announcement touches comes first and in this order, so that a large fleet costs few cache lines for each.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Member {
    /// When its timer is due, which may be too early: an announcement prolongs a member without a word to the timer,
    /// which looks again when it is due. `NEVER` while the timer is not armed.
    pub(super) armed: Mono,
    /// The last accepted announcement, of whichever address.
    pub(super) last_up: Mono,
    pub(super) announcements: u64,
    pub(super) state: State,
    pub(super) ready: bool,
    /// The address in use.
    pub(super) place: Place,
    pub(super) timer: TimerSlot,
    pub(super) rest: Box<Rest>,
}

/// What changes with a member's state, and not with each announcement.
#[derive(Debug)]
pub(super) struct Rest {
    /// Other addresses of the same broker, in no order.
    pub(super) alternatives: Vec<Place>,
    /// The newest GUID of the address in use; stays for the events after that GUID is gone.
    pub(super) shown: Option<Guid>,
    /// Orders members by when they joined, also within one tick of the clock.
    pub(super) born: u64,
    pub(super) joined: Mono,
    /// Why it was last not ready; none when it is, and before its first attempt has failed.
    pub(super) unready: Option<Unready>,
    /// Since when the address in use has not been ready, while it is not.
    pub(super) unready_since: Mono,
    /// The process that was last ready here; indexed. Forgotten when the address in use changes.
    pub(super) run: Option<Box<str>>,
    /// The GUID that an operator has been warned about.
    pub(super) shared_guid: Option<Guid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Announced or configured: it takes sends.
    Present,
    /// Withdrawn or expired, and still read. It has no GUIDs and no alternatives.
    Leaving,
    /// Turned out to be another member, which has taken its addresses. Its end is on the way.
    Merged,
}

/// One address of a member.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Place {
    pub(super) address: Endpoint,
    /// Who announces it, in the order first heard: the last one is the newest. Nearly always there is just one.
    pub(super) guids: SmallVec<[Heard; 1]>,
    /// Configured, so it needs no announcement to live and no `down` ends it: who has written down an address knows
    /// better than a datagram without a signature.
    pub(super) configured: bool,
    /// The process that was last ready at this address.
    pub(super) run: Option<Box<str>>,
    /// Which switch of address last led here; 0 for none.
    pub(super) tried: u64,
}

/// One GUID at one address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) guid: Guid,
    /// It counts until here, exclusively.
    pub(super) deadline: Mono,
    /// Which announcement of the fleet's was its first here, and which its latest: they order what the clock cannot.
    pub(super) first: u64,
    pub(super) last: u64,
}

/// What a member needs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    /// Its address is gone or does not work: go on at this alternative.
    Switch(usize),
    /// Nothing of it is left.
    Expire,
}

impl Place {
    pub(super) fn new(address: Endpoint, configured: bool) -> Self {
        Self { address, configured, guids: SmallVec::new(), run: None, tried: 0 }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.configured || !self.guids.is_empty()
    }

    pub(super) fn newest(&self) -> Option<Guid> {
        self.guids.last().map(|heard| heard.guid)
    }

    pub(super) fn heard_mut(&mut self, guid: Guid) -> Option<&mut Heard> {
        self.guids.iter_mut().find(|heard| heard.guid == guid)
    }

    /// Adds a GUID that is not there. At the limit the one that would lapse next makes room, and is returned.
    pub(super) fn hear(&mut self, heard: Heard, limit: u32) -> Option<Guid> {
        let full = self.guids.len() >= limit as usize;
        let next = self.guids.iter().enumerate().min_by_key(|(_, heard)| (heard.deadline, heard.first));
        let pushed_out = next.filter(|_| full).map(|(index, _)| index).map(|index| self.guids.remove(index).guid);
        self.guids.push(heard);
        pushed_out
    }

    /// The announcement that was its latest.
    fn last_heard(&self) -> u64 {
        self.guids.iter().map(|heard| heard.last).max().unwrap_or(0)
    }

    /// When its last GUID lapses.
    pub(super) fn end(&self) -> Mono {
        if self.configured {
            return Mono::NEVER;
        }
        self.guids.iter().map(|heard| heard.deadline).max().unwrap_or_default()
    }
}

impl Member {
    pub(crate) fn address(&self) -> &Endpoint {
        &self.place.address
    }

    /// The newest GUID of its address; none for a configured broker that nobody announces.
    pub(crate) fn guid(&self) -> Option<Guid> {
        self.rest.shown
    }

    /// Configured, so it never expires.
    pub(crate) fn is_static(&self) -> bool {
        self.places().any(|place| place.configured)
    }

    /// Departed: it takes no sends.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state != State::Present
    }

    /// Why it was last not ready; none when it is, and before its first attempt has failed.
    pub(crate) fn unready(&self) -> Option<&Unready> {
        self.rest.unready.as_ref()
    }

    /// Since when it has been a member.
    pub(crate) fn joined(&self) -> Mono {
        self.rest.joined
    }

    /// How often it has been announced.
    pub(crate) fn announcements(&self) -> u64 {
        self.announcements
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        core::iter::once(&self.place).chain(&self.rest.alternatives)
    }

    pub(super) fn is_at(&self, address: AddressKey<'_>) -> bool {
        // The address in use first and alone: the others are a cache line further.
        let is_it = |place: &Place| AddressKey::from(&place.address) == address;
        is_it(&self.place) || self.rest.alternatives.iter().any(is_it)
    }

    pub(super) fn place_mut(&mut self, address: AddressKey<'_>) -> Option<&mut Place> {
        if AddressKey::from(&self.place.address) == address {
            return Some(&mut self.place);
        }
        self.rest.alternatives.iter_mut().find(|place| AddressKey::from(&place.address) == address)
    }

    /// The announcement in which it first heard a GUID that it still hears.
    pub(super) fn first_heard(&self, guid: Guid) -> Option<u64> {
        let heard = self.places().flat_map(|place| &place.guids).filter(|heard| heard.guid == guid);
        heard.map(|heard| heard.first).min()
    }

    /// At how many of its addresses a GUID is heard.
    pub(super) fn places_of(&self, guid: Guid) -> u32 {
        let of_place = |place: &&Place| place.guids.iter().any(|heard| heard.guid == guid);
        self.places().filter(of_place).map(|_| 1).sum()
    }

    /// When it must be looked at again.
    pub(super) fn due(&self, alternative_after: Duration) -> Option<Mono> {
        let lapse = self.places().flat_map(|place| &place.guids).map(|heard| heard.deadline).min();
        let switch = self.may_switch().then(|| self.rest.unready_since + alternative_after);
        lapse.into_iter().chain(switch).min()
    }

    fn may_switch(&self) -> bool {
        self.state == State::Present && !self.ready && !self.rest.alternatives.is_empty()
    }

    /// Takes out the GUIDs that have lapsed, and the alternatives that lapsed with their last.
    pub(super) fn lapse(&mut self, now: Mono, gone: &mut Gone) {
        for place in core::iter::once(&mut self.place).chain(&mut self.rest.alternatives) {
            place.guids.retain(|heard| {
                let keep = heard.deadline > now;
                if !keep {
                    gone.guids.push(heard.guid);
                }
                keep
            });
        }
        self.drop_dead_alternatives(gone);
        self.show();
    }

    pub(super) fn drop_dead_alternatives(&mut self, gone: &mut Gone) {
        gone.addresses
            .extend(self.rest.alternatives.extract_if(.., |place| !place.is_alive()).map(|place| place.address));
    }

    /// The newest GUID of the address in use is the one to show; the last one stays when there is none.
    pub(super) fn show(&mut self) {
        self.rest.shown = self.place.newest().or(self.rest.shown);
    }

    pub(super) fn step(&self, now: Mono, alternative_after: Duration) -> Step {
        if self.state != State::Present {
            return Step::Stay;
        }
        let numbered = self.rest.alternatives.iter().enumerate();
        if !self.place.is_alive() {
            // The address that was announced latest is the likeliest to answer.
            let latest = numbered.max_by_key(|(_, place)| place.last_heard());
            return latest.map_or(Step::Expire, |(index, _)| Step::Switch(index));
        }
        if !self.may_switch() || self.rest.unready_since + alternative_after > now {
            return Step::Stay;
        }
        // Each gets its turn, also when none works.
        let next = numbered.min_by_key(|(_, place)| (place.tried, u64::MAX - place.last_heard()));
        next.map_or(Step::Stay, |(index, _)| Step::Switch(index))
    }
}

/// What has left a member and is to leave the index.
#[derive(Default)]
pub(super) struct Gone {
    pub(super) guids: SmallVec<[Guid; 8]>,
    pub(super) addresses: SmallVec<[Endpoint; 2]>,
}
