//! What a fleet must look like after what was heard: a sorted map of addresses, and the GUIDs that keep each alive.
//!
//! Written without a look at how the core does it. It knows what anybody on the segment knows: datagrams and a clock. Three
//! things only an engine can know are taken from what it does, and therefore not judged: when it goes on at another address
//! of the same member (its dials tell), when two members turn out to be one server process, and when an address turns out
//! to be another process than the member it was announced for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use flota_core::announce::{self, Announcement, Guid, Status};
use flota_core::config::{Endpoint, Limits};
use flota_core::id::BrokerId;
use flota_core::output::NotAdmitted;

use crate::plan::Knobs;
use crate::world::broker_at;

/// The rules that a service was given.
pub(super) struct Rules {
    allow: Vec<(u32, u32)>,
    fleet_max: usize,
    guids_max: usize,
    alternatives_max: usize,
    newcomers_per_second: u64,
    newcomers_burst: u64,
    /// Of the plan: tells whether two addresses are one server's.
    brokers: usize,
}

/// The name of the fleet.
const NAME: &str = "imq-broker";
/// What silence is forgiven on top of the interval, and the longest interval that counts; both in microseconds.
const GRACE_US: u64 = 5_001_000;
const INTERVAL_MAX_US: u64 = 60_000_000;

/// A fleet as one process must see it.
#[derive(Default)]
pub(super) struct Model {
    members: BTreeMap<u32, Member>,
    next: u32,
    addresses: BTreeMap<Endpoint, u32>,
    guids: BTreeMap<Guid, Vec<u32>>,
    ids: BTreeMap<BrokerId, u32>,
    sources: BTreeMap<IpAddr, (u64, u64)>,
    heard: u64,
    /// When each member is to be looked at, in microseconds of the process's own clock: nothing of it lapses before.
    looks: BTreeSet<(u64, u32)>,
    /// Events that must be told before the turn ends.
    owed: Vec<(Owed, u32)>,
    /// Addresses dialled in this turn.
    dials: Vec<Endpoint>,
    /// Came back without a word: right if it turns out to be the same process as one that was present.
    returned: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Member {
    places: BTreeMap<Endpoint, Place>,
    /// The address it is dialled at.
    pub(super) in_use: Option<Endpoint>,
    shown: Option<Guid>,
    pub(super) state: State,
    /// When it last said goodbye, in microseconds of the process's own clock.
    pub(super) down_us: Option<u64>,
    /// The last accepted announcement of any of its addresses.
    pub(super) last_up_us: u64,
    /// When it is to be looked at, if at all.
    look_us: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Present,
    Withdrawn,
    Expired,
}

#[derive(Default)]
struct Place {
    /// In the order in which they were first heard.
    guids: Vec<Heard>,
    configured: bool,
}

#[derive(Clone, Copy)]
struct Heard {
    guid: Guid,
    deadline_us: u64,
    first: u64,
}

/// An event that a datagram asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    Announced,
    Withdrawn,
}

/// What an admitted datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing new, or a goodbye that does not count.
    Known,
    /// Another GUID at a known address.
    Alias,
    /// Another address of a known GUID.
    Alternative,
    /// A newcomer.
    Joined,
    /// One that had left is back; after so many microseconds, if it had said goodbye.
    Rejoined(Option<u64>),
    /// It said goodbye.
    Withdrawn,
}

/// What an expiry is.
pub(super) enum Expiry {
    Right,
    /// An address of it is alive for so many microseconds more; whether it is the one in use.
    Early(u64, bool),
    /// It had left, or is none that could expire.
    Wrong(&'static str),
}

/// Something that should have happened by now.
pub(super) enum Late {
    /// A member whose last address has lapsed.
    Alive(Overdue),
    /// A member whose address lapsed and that has another one to go on at.
    Unmoved(Endpoint),
}

/// A member that should have expired; times in microseconds of the process's own clock.
pub(super) struct Overdue {
    pub(super) address: Endpoint,
    pub(super) late_us: u64,
    pub(super) last_up_us: u64,
}

impl Rules {
    pub(super) fn new(knobs: &Knobs, brokers: usize) -> Self {
        let limits = Limits::default();
        Self {
            allow: knobs.allow.iter().filter_map(|text| network(text)).collect(),
            fleet_max: knobs.fleet_max as usize,
            guids_max: limits.guids_per_address as usize,
            alternatives_max: limits.alternatives as usize,
            newcomers_per_second: u64::from(limits.newcomers_per_second),
            newcomers_burst: u64::from(limits.newcomers_burst),
            brokers,
        }
    }

    /// Whether an address may be dialled.
    pub(super) fn allows(&self, address: &Endpoint) -> bool {
        let Endpoint::Ip(SocketAddr::V4(v4)) = address else { return false };
        let ip = u32::from(*v4.ip());
        self.allow.is_empty() || self.allow.iter().any(|(base, mask)| ip & mask == *base)
    }

    /// What an admissible datagram says, and the address it says it of.
    pub(super) fn admit<'a>(&self, datagram: &'a [u8]) -> Result<(Announcement<'a>, Endpoint), NotAdmitted> {
        let said = announce::parse(datagram).map_err(NotAdmitted::Malformed)?;
        if said.name != NAME {
            return Err(NotAdmitted::OtherName);
        }
        let ip = match said.address.host {
            announce::Host::V4(ip) => IpAddr::V4(ip),
            announce::Host::V6(ip) => IpAddr::V6(ip).to_canonical(),
            announce::Host::Name(_) => return Err(NotAdmitted::HostName),
        };
        let address = Endpoint::Ip((ip, said.address.port.get()).into());
        if !self.allows(&address) {
            return Err(NotAdmitted::Network);
        }
        Ok((said, address))
    }
}

/// `10.0.0.0/8` as its first address and its mask.
fn network(text: &str) -> Option<(u32, u32)> {
    let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
    let mask = u32::MAX.checked_shl(32 - prefix.parse::<u32>().ok()?).unwrap_or(0);
    Some((u32::from(address.parse::<std::net::Ipv4Addr>().ok()?) & mask, mask))
}

// ---- datagrams ----

impl Model {
    /// A fleet that begins with the configured addresses.
    pub(super) fn new(configured: impl Iterator<Item = Endpoint>) -> Self {
        let mut model = Self::default();
        for address in configured {
            model.join(address, Place { guids: Vec::new(), configured: true });
        }
        model
    }

    /// Takes what is admissible in; or says why it changes nothing.
    pub(super) fn hear(
        &mut self,
        now_us: u64,
        from: IpAddr,
        said: &Announcement<'_>,
        address: Endpoint,
        rules: &Rules,
    ) -> Result<Taken, NotAdmitted> {
        let Status::Up { interval, .. } = said.status else { return Ok(self.down(now_us, said.guid, &address)) };
        let interval_us = interval.as_millis().saturating_mul(1_000).min(INTERVAL_MAX_US);
        let deadline_us = now_us + interval_us + GRACE_US;
        self.heard += 1;
        let heard = Heard { guid: said.guid, deadline_us, first: self.heard };
        let Some(label) = self.addresses.get(&address).copied() else {
            return self.new_address(now_us, from, address, heard, rules);
        };
        let Some(member) = self.members.get_mut(&label) else { return Ok(Taken::Known) };
        let place = member.places.entry(address.clone()).or_default();
        if let Some(known) = place.guids.iter_mut().find(|known| known.guid == said.guid) {
            known.deadline_us = deadline_us;
            member.last_up_us = now_us;
            self.look(label, deadline_us);
            return Ok(Taken::Known);
        }
        self.new_guid(now_us, from, label, &address, heard, rules)
    }

    fn new_address(
        &mut self,
        now_us: u64,
        from: IpAddr,
        address: Endpoint,
        heard: Heard,
        rules: &Rules,
    ) -> Result<Taken, NotAdmitted> {
        let owner = self.owner(heard.guid);
        let room = match owner.and_then(|owner| self.members.get(&owner)) {
            Some(member) => member.places.len() <= rules.alternatives_max,
            None => self.members.len() < rules.fleet_max,
        };
        if !room {
            return Err(NotAdmitted::FleetFull);
        }
        self.draw(now_us, from, rules)?;
        let (guid, deadline_us) = (heard.guid, heard.deadline_us);
        let place = Place { guids: vec![heard], configured: false };
        let (label, taken) = match owner {
            Some(owner) => {
                self.addresses.insert(address.clone(), owner);
                if let Some(member) = self.members.get_mut(&owner) {
                    member.places.insert(address, place);
                }
                (owner, Taken::Alternative)
            }
            None => (self.join(address, place), Taken::Joined),
        };
        self.guids.entry(guid).or_default().push(label);
        if let Some(member) = self.members.get_mut(&label) {
            member.last_up_us = now_us;
        }
        self.look(label, deadline_us);
        Ok(taken)
    }

    fn new_guid(
        &mut self,
        now_us: u64,
        from: IpAddr,
        label: u32,
        address: &Endpoint,
        heard: Heard,
        rules: &Rules,
    ) -> Result<Taken, NotAdmitted> {
        let Some(member) = self.members.get(&label) else { return Ok(Taken::Known) };
        let is_back = member.state != State::Present;
        if !(is_back && member.shown == Some(heard.guid)) {
            self.draw(now_us, from, rules)?;
        }
        let Some(member) = self.members.get_mut(&label) else { return Ok(Taken::Known) };
        member.last_up_us = now_us;
        let place = member.places.entry(address.clone()).or_default();
        let mut pushed_out = None;
        if place.guids.len() >= rules.guids_max {
            let next = place.guids.iter().enumerate().min_by_key(|(_, heard)| (heard.deadline_us, heard.first));
            pushed_out = next.map(|(index, _)| index).map(|index| place.guids.remove(index).guid);
        }
        place.guids.push(heard);
        member.show();
        let gone_us = member.down_us.take().map(|down| now_us - down);
        member.state = State::Present;
        self.guids.entry(heard.guid).or_default().push(label);
        self.look(label, heard.deadline_us);
        if let Some(guid) = pushed_out {
            self.unhear(guid, label);
        }
        if !is_back {
            return Ok(Taken::Alias);
        }
        self.owed.push((Owed::Announced, label));
        Ok(Taken::Rejoined(gone_us))
    }

    fn down(&mut self, now_us: u64, guid: Guid, address: &Endpoint) -> Taken {
        let Some(label) = self.addresses.get(address).copied() else { return Taken::Known };
        let Some(member) = self.members.get_mut(&label) else { return Taken::Known };
        let is_static = member.places.values().any(|place| place.configured);
        let in_use = member.in_use.as_ref() == Some(address);
        let Some(place) = member.places.get_mut(address) else { return Taken::Known };
        if place.configured || place.guids.last().map(|heard| heard.guid) != Some(guid) {
            return Taken::Known;
        }
        if in_use && !is_static {
            member.state = State::Withdrawn;
            member.down_us = Some(now_us);
            self.owed.push((Owed::Withdrawn, label));
            self.depart(label);
            return Taken::Withdrawn;
        }
        let gone = std::mem::take(&mut place.guids);
        gone.into_iter().for_each(|heard| self.unhear(heard.guid, label));
        self.drop_dead(label);
        Taken::Known
    }

    /// A member may have to be looked at then.
    fn look(&mut self, label: u32, at_us: u64) {
        let Some(member) = self.members.get_mut(&label) else { return };
        if member.look_us.is_none_or(|look| at_us < look) {
            if let Some(later) = member.look_us.replace(at_us) {
                self.looks.remove(&(later, label));
            }
            self.looks.insert((at_us, label));
        }
    }

    /// One token for each newcomer, by its sender.
    fn draw(&mut self, now_us: u64, from: IpAddr, rules: &Rules) -> Result<(), NotAdmitted> {
        let full = rules.newcomers_burst * 1_000_000;
        let (level, at) = self.sources.entry(from.to_canonical()).or_insert((full, now_us));
        *level = level.saturating_add((now_us - *at).saturating_mul(rules.newcomers_per_second)).min(full);
        *at = now_us;
        *level = level.checked_sub(1_000_000).ok_or(NotAdmitted::TooFast)?;
        Ok(())
    }

    fn join(&mut self, address: Endpoint, place: Place) -> u32 {
        let label = self.next;
        self.next += 1;
        let shown = place.guids.last().map(|heard| heard.guid);
        let mut member = Member { in_use: Some(address.clone()), shown, ..Member::default() };
        member.places.insert(address.clone(), place);
        self.members.insert(label, member);
        self.addresses.insert(address, label);
        self.owed.push((Owed::Announced, label));
        label
    }

    /// It has left: only the address in use stays known.
    fn depart(&mut self, label: u32) {
        let Some(member) = self.members.get_mut(&label) else { return };
        let places = std::mem::take(&mut member.places);
        let in_use = member.in_use.clone();
        for (address, place) in places {
            place.guids.iter().for_each(|heard| self.unhear(heard.guid, label));
            if Some(&address) != in_use.as_ref() {
                self.addresses.remove(&address);
            }
        }
    }

    /// Addresses that nothing keeps alive and nobody uses are gone.
    fn drop_dead(&mut self, label: u32) {
        self.look(label, 0);
        let Some(member) = self.members.get_mut(&label) else { return };
        let in_use = member.in_use.clone();
        member.places.retain(|address, place| {
            let keep = place.configured || !place.guids.is_empty() || Some(address) == in_use.as_ref();
            if !keep {
                self.addresses.remove(address);
            }
            keep
        });
    }

    /// The member that heard a GUID first.
    fn owner(&self, guid: Guid) -> Option<u32> {
        let hearers = self.guids.get(&guid)?.iter().copied();
        let first = |label: &u32| {
            let places = self.members.get(label).into_iter().flat_map(|member| member.places.values());
            places.flat_map(|place| &place.guids).filter(|heard| heard.guid == guid).map(|heard| heard.first).min()
        };
        hearers.min_by_key(|label| first(label).unwrap_or(u64::MAX))
    }

    fn unhear(&mut self, guid: Guid, label: u32) {
        if let Some(hearers) = self.guids.get_mut(&guid) {
            if let Some(at) = hearers.iter().position(|hearer| *hearer == label) {
                hearers.swap_remove(at);
            }
            if hearers.is_empty() {
                self.guids.remove(&guid);
            }
        }
    }
}

impl Member {
    fn show(&mut self) {
        let newest = self.in_use.as_ref().and_then(|address| self.places.get(address)?.guids.last());
        self.shown = newest.map(|heard| heard.guid).or(self.shown);
    }

    fn is_static(&self) -> bool {
        self.places.values().any(|place| place.configured)
    }

    /// When the next GUID of any of its addresses lapses.
    fn next_us(&self) -> Option<u64> {
        self.places.values().flat_map(|place| &place.guids).map(|heard| heard.deadline_us).min()
    }

    /// When the last GUID of one of its addresses lapses.
    fn end_us(&self, address: &Endpoint) -> u64 {
        let guids = self.places.get(address).into_iter().flat_map(|place| &place.guids);
        guids.map(|heard| heard.deadline_us).max().unwrap_or(0)
    }
}

// ---- what the engine says and does ----

impl Model {
    /// Whether "it became a member" is right.
    pub(super) fn announced(&mut self, id: BrokerId, address: &Endpoint) -> Result<(), &'static str> {
        let Some(label) = self.addresses.get(address).copied() else { return Err("nothing admitted announced it") };
        if self.pay(Owed::Announced, label) {
            self.ids.insert(id, label);
            return Ok(());
        }
        let Some(member) = self.members.get_mut(&label) else { return Err("nothing admitted announced it") };
        if member.state != State::Present && self.ids.get(&id) == Some(&label) {
            member.state = State::Present;
            member.down_us = None;
            self.returned.push(label);
            return Ok(());
        }
        if member.in_use.as_ref() == Some(address) {
            return Err("it is a member already");
        }
        // Another process than the member it was announced for.
        let Some(place) = member.places.remove(address) else { return Err("nothing admitted announced it") };
        let guids: Vec<Guid> = place.guids.iter().map(|heard| heard.guid).collect();
        let split = self.join(address.clone(), place);
        self.look(split, 0);
        self.look(label, 0);
        for guid in guids {
            self.unhear(guid, label);
            self.guids.entry(guid).or_default().push(split);
        }
        self.pay(Owed::Announced, split);
        self.ids.insert(id, split);
        Ok(())
    }

    /// Whether "it said goodbye" is right.
    pub(super) fn withdrawn(&mut self, id: BrokerId) -> Result<(), &'static str> {
        let Some(label) = self.ids.get(&id).copied() else { return Err("it never was a member") };
        if self.pay(Owed::Withdrawn, label) { Ok(()) } else { Err("no goodbye of its newest announcer was heard") }
    }

    /// Whether "it was silent for too long" is right; it has left then.
    pub(super) fn expired(&mut self, id: BrokerId, now_us: u64) -> Expiry {
        let Some(label) = self.ids.get(&id).copied() else { return Expiry::Wrong("it never was a member") };
        let Some(member) = self.members.get_mut(&label) else { return Expiry::Wrong("it never was a member") };
        if member.state != State::Present {
            return Expiry::Wrong("it had left already");
        }
        if member.is_static() {
            return Expiry::Wrong("it is configured, and never expires");
        }
        let ends =
            member.places.keys().map(|address| (member.end_us(address), Some(address) == member.in_use.as_ref()));
        let latest = ends.max().unwrap_or((0, true));
        member.state = State::Expired;
        self.depart(label);
        if latest.0 > now_us { Expiry::Early(latest.0 - now_us, latest.1) } else { Expiry::Right }
    }

    /// Whether "forgotten" is right: it has left, or is the same process as another member.
    pub(super) fn forgotten(&mut self, id: BrokerId, rules: &Rules) -> Result<(), &'static str> {
        let Some(label) = self.ids.remove(&id) else { return Err("it never was a member") };
        let Some(mut member) = self.members.remove(&label) else { return Err("it never was a member") };
        self.owed.retain(|(_, owed)| *owed != label);
        if let Some(at_us) = member.look_us {
            self.looks.remove(&(at_us, label));
        }
        if let Some(in_use) = &member.in_use {
            self.addresses.remove(in_use);
        }
        let twin = self.twin(&member, rules);
        if twin.is_none() && member.state == State::Present {
            return Err("it has not left, and no other member is the same server");
        }
        let Some(twin) = twin.filter(|_| member.state == State::Present) else { return Ok(()) };
        self.returned.retain(|returned| *returned != twin);
        for (address, place) in std::mem::take(&mut member.places) {
            for heard in &place.guids {
                self.unhear(heard.guid, label);
            }
            if place.configured || !place.guids.is_empty() {
                place.guids.iter().for_each(|heard| self.guids.entry(heard.guid).or_default().push(twin));
                self.addresses.insert(address.clone(), twin);
                if let Some(twin) = self.members.get_mut(&twin) {
                    twin.places.insert(address, place);
                }
            } else {
                self.addresses.remove(&address);
            }
        }
        self.look(twin, 0);
        self.drop_surplus(twin, rules);
        Ok(())
    }

    /// Another member that is the same server, as the world knows it.
    fn twin(&self, member: &Member, rules: &Rules) -> Option<u32> {
        let broker = broker_at(member.in_use.as_ref()?, rules.brokers)?;
        let is_it = |other: &Member| other.in_use.as_ref().and_then(|at| broker_at(at, rules.brokers)) == Some(broker);
        self.members.iter().find(|(_, other)| is_it(other)).map(|(label, _)| *label)
    }

    fn drop_surplus(&mut self, label: u32, rules: &Rules) {
        loop {
            let Some(member) = self.members.get_mut(&label) else { return };
            if member.places.len() <= rules.alternatives_max + 1 {
                return;
            }
            let others =
                member.places.iter().filter(|(at, place)| Some(*at) != member.in_use.as_ref() && !place.configured);
            let Some(address) = others.min_by_key(|(at, _)| member.end_us(at)).map(|(at, _)| at.clone()) else {
                return;
            };
            let place = member.places.remove(&address).unwrap_or_default();
            self.addresses.remove(&address);
            place.guids.iter().for_each(|heard| self.unhear(heard.guid, label));
        }
    }

    /// It dials an address, which its member uses from the end of this turn on. Whether it is a member's.
    pub(super) fn dialled(&mut self, to: &Endpoint) -> bool {
        self.dials.push(to.clone());
        self.addresses.contains_key(to)
    }

    /// The turn is over: whose each dialled address is has been told by now.
    fn move_on(&mut self) {
        for to in std::mem::take(&mut self.dials) {
            let Some(label) = self.addresses.get(&to).copied() else { continue };
            let Some(member) = self.members.get_mut(&label) else { continue };
            if member.in_use.as_ref() != Some(&to) {
                let left = member.in_use.replace(to);
                member.show();
                // One that had departed kept its address by using it alone: it is nobody's now.
                if let Some(left) = left.filter(|left| !member.places.contains_key(left)) {
                    self.addresses.remove(&left);
                }
                self.drop_dead(label);
            }
        }
    }

    pub(super) fn member_at(&self, address: &Endpoint) -> Option<&Member> {
        self.members.get(self.addresses.get(address)?)
    }

    /// A turn ends in which time has passed: what has lapsed is gone; what should have been told by now.
    pub(super) fn lapse(&mut self, now_us: u64) -> Option<Late> {
        let mut late = None;
        let mut gone = Vec::new();
        for label in self.due(now_us) {
            let Some(member) = self.members.get_mut(&label) else { continue };
            let end = member.places.keys().map(|address| member.end_us(address)).max().unwrap_or(0);
            for place in member.places.values_mut() {
                let lapsed = place.guids.extract_if(.., |heard| heard.deadline_us <= now_us);
                gone.extend(lapsed.map(|heard| (heard.guid, label)));
            }
            member.show();
            if let Some(next) = member.next_us() {
                self.look(label, next);
            }
            let Some(member) = self.members.get(&label).filter(|member| member.state == State::Present) else {
                continue;
            };
            let Some(in_use) = member.in_use.clone() else { continue };
            let is_dead = member.places.get(&in_use).is_none_or(|place| !place.configured && place.guids.is_empty());
            let others = member.places.iter().any(|(_, place)| place.configured || !place.guids.is_empty());
            if is_dead && others {
                late.get_or_insert(Late::Unmoved(in_use));
            } else if is_dead {
                let late_us = now_us.saturating_sub(end);
                late.get_or_insert(Late::Alive(Overdue { address: in_use, late_us, last_up_us: member.last_up_us }));
            }
        }
        let labels: BTreeSet<u32> = gone.iter().map(|(_, label)| *label).collect();
        gone.into_iter().for_each(|(guid, label)| self.unhear(guid, label));
        labels.into_iter().for_each(|label| self.drop_dead(label));
        late
    }

    /// A member that should have expired some time ago, seen without the passing of time: no timer was set for it.
    pub(super) fn overdue(&mut self, now_us: u64, slack_us: u64) -> Option<Overdue> {
        let mut overdue = None;
        for label in self.due(now_us.checked_sub(slack_us + 1)?) {
            let Some(member) = self.members.get(&label) else { continue };
            let end = member.places.keys().map(|address| member.end_us(address)).max().unwrap_or(0);
            let is_due = member.state == State::Present && !member.is_static() && now_us > end + slack_us;
            if let Some(address) = member.in_use.clone().filter(|_| is_due) {
                overdue.get_or_insert(Overdue { address, late_us: now_us - end, last_up_us: member.last_up_us });
            }
            if let Some(next) = member.next_us() {
                self.look(label, next);
            }
        }
        overdue
    }

    /// Who is to be looked at, in the order of their labels; each is asked for once.
    fn due(&mut self, until_us: u64) -> BTreeSet<u32> {
        let mut due = BTreeSet::new();
        while let Some((_, label)) = self.looks.first().copied().filter(|(at_us, _)| *at_us <= until_us) {
            self.looks.pop_first();
            if let Some(member) = self.members.get_mut(&label) {
                member.look_us = None;
                due.insert(label);
            }
        }
        due
    }

    /// The turn is over: an event that should have been told and was not, and the address it is about.
    pub(super) fn unpaid(&mut self) -> Option<(Owed, Endpoint)> {
        self.move_on();
        let owed = std::mem::take(&mut self.owed);
        let (what, label) = owed.first()?;
        let address = self.members.get(label)?.in_use.clone()?;
        Some((*what, address))
    }

    /// The turn is over: a member that came back, and nothing has said why.
    pub(super) fn unexplained(&mut self) -> Option<Endpoint> {
        let returned = std::mem::take(&mut self.returned);
        self.members.get(returned.first()?)?.in_use.clone()
    }

    fn pay(&mut self, what: Owed, label: u32) -> bool {
        let at = self.owed.iter().position(|owed| *owed == (what, label));
        at.map(|at| self.owed.remove(at)).is_some()
    }
}
