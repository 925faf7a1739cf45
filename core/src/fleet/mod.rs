//! Who is in the fleet: members come and go by what is announced, what is configured, and the passing of time.
//!
//! A member is one broker: one server process, known for certain by its run id once a handshake has read it, until then
//! by its address. Each address has a few GUIDs, one for each announcer that speaks for it, and each GUID its own
//! deadline. An address lives as long as any of its GUIDs, so the silence of an old announcer never ends a broker for
//! which a new one speaks. A GUID that is heard at a second address makes that one an alternative of the same member.
//!
//! A departed member stays, as leaving, until somebody else is done with it; an announcement brings it back as it was.

use core::net::SocketAddr;
use core::time::Duration;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::announce::{self, Announcement, Interval, Status};
use crate::config::{Config, Endpoint};
use crate::effect::{Cx, Effect, Timer};
use crate::id::{BrokerId, Slab};
use crate::mutant::Mutant;
use crate::output::{BrokerChange, BrokerEvent, Event, NotAdmitted, Unready, UnreadyReason};
use crate::rng::Seed;
use crate::time::Mono;

use admission::{Reports, Sources};
use index::{AddressKey, HashKey, Index};
use member::{Gone, Heard, Place, Rest, State, Step};

pub(crate) use member::Member;

mod admission;
#[cfg(any(test, feature = "mutants"))]
mod audit;
mod identity;
mod index;
mod member;
#[cfg(test)]
mod tests;

/// Membership and liveness of every broker.
pub(crate) struct Fleet {
    members: Slab<BrokerId, Member>,
    index: Index,
    sources: Sources,
    reports: Reports,
    /// Counts what has happened here: it orders what the clock cannot.
    turn: u64,
}

impl Fleet {
    pub(crate) fn new(config: &Config, seed: Seed) -> Self {
        let key = HashKey::new(seed);
        Self {
            members: Slab::new(),
            index: Index::new(key),
            sources: Sources::new(key, &config.limits),
            reports: Reports::new(),
            turn: 0,
        }
    }

    /// Lets the configured brokers join. They never expire, whatever is announced.
    pub(crate) fn start(&mut self, cx: &mut Cx<'_>) {
        for address in &cx.config.brokers {
            if self.index.by_address(address.into(), &self.members).is_none() {
                self.join(Place::new(address.clone(), true), cx);
            }
        }
    }

    /// A datagram arrived. A refused one changes counters and nothing else.
    pub(crate) fn on_datagram(&mut self, from: SocketAddr, datagram: &[u8], cx: &mut Cx<'_>) {
        cx.stats.datagrams += 1;
        if let Err(why) = self.hear(from, datagram, cx) {
            self.reports.refused(why, datagram, cx);
        }
    }

    fn hear(&mut self, from: SocketAddr, datagram: &[u8], cx: &mut Cx<'_>) -> Result<(), NotAdmitted> {
        let said = announce::parse(datagram).map_err(NotAdmitted::Malformed);
        if said.is_err() && cx.mutant(Mutant::MalformedProlongs) {
            let heard = self.members.iter_mut().flat_map(|(_, member)| &mut member.place.guids);
            heard.for_each(|heard| heard.deadline = heard.deadline + Duration::from_secs(60));
        }
        let said = said?;
        let Some(discovery) = &cx.config.discovery else { return Ok(()) };
        match admission::check(discovery, from, &said) {
            Err(NotAdmitted::OtherName) if cx.mutant(Mutant::OtherFleetHeard) => {}
            Err(NotAdmitted::Network) if cx.mutant(Mutant::NetworkUnchecked) => {}
            Err(NotAdmitted::HostName) if cx.mutant(Mutant::HostNameDialled) => {}
            checked => checked?,
        }
        match said.status {
            Status::Up { interval, .. } => self.on_up(from, &said, interval, cx),
            Status::Down => {
                self.on_down(&said, cx);
                Ok(())
            }
        }
    }

    /// This is what every broker sends every second: one look-up, one comparison, one store.
    fn on_up(
        &mut self,
        from: SocketAddr,
        said: &Announcement<'_>,
        interval: Interval,
        cx: &mut Cx<'_>,
    ) -> Result<(), NotAdmitted> {
        let address = AddressKey::from(said.address);
        self.turn += 1;
        let deadline = cx.now.mono + silence(interval, cx.config);
        let heard = Heard { guid: said.guid, deadline, first: self.turn, last: self.turn };
        let Some(broker) = self.index.by_address(address, &self.members) else {
            return self.on_new_address(from, address, heard, cx);
        };
        let Some(member) = self.members.get_mut(broker) else { unreachable!("indexed addresses are of members") };
        let Some(known) = member.place_mut(address).and_then(|place| place.heard_mut(said.guid)) else {
            return self.on_new_guid(from, broker, address, heard, cx);
        };
        if !cx.mutant(Mutant::HeardNotProlonged) {
            known.deadline = deadline;
        }
        known.last = heard.last;
        member.announcements += 1;
        member.last_up = cx.now.mono;
        // A later deadline is for the timer to find out: moving it every second costs more memory accesses than all of
        // the above, and looking in vain happens once in a member's patience.
        if deadline < member.armed {
            rearm(member, cx);
        }
        Ok(())
    }

    fn on_new_address(
        &mut self,
        from: SocketAddr,
        address: AddressKey<'_>,
        heard: Heard,
        cx: &mut Cx<'_>,
    ) -> Result<(), NotAdmitted> {
        let limits = &cx.config.limits;
        let owner = self.index.by_guid(heard.guid);
        let room = match owner.and_then(|owner| self.members.get(owner)) {
            Some(member) => member.rest.alternatives.len() < limits.alternatives as usize,
            None => self.members.len() < limits.brokers as usize || cx.mutant(Mutant::FullTableGrows),
        };
        if !room {
            return Err(NotAdmitted::FleetFull);
        }
        if owner.is_some() && cx.mutant(Mutant::SecondAddressIgnored) {
            return Ok(());
        }
        self.sources.draw(from.ip(), cx.now.mono)?;
        let mut place = Place::new(address.to_endpoint(), false);
        place.guids.push(heard);
        if let Some(owner) = owner {
            self.add_alternative(owner, place, cx);
        } else {
            self.join(place, cx);
        }
        Ok(())
    }

    fn add_alternative(&mut self, broker: BrokerId, place: Place, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        self.index.add_address((&place.address).into(), broker);
        for heard in &place.guids {
            self.index.add_guid(heard.guid, broker);
        }
        member.rest.alternatives.push(place);
        member.announcements += 1;
        member.last_up = cx.now.mono;
        rearm(member, cx);
    }

    /// Another announcer speaks for a known address, or a departed member is back.
    fn on_new_guid(
        &mut self,
        from: SocketAddr,
        broker: BrokerId,
        address: AddressKey<'_>,
        heard: Heard,
        cx: &mut Cx<'_>,
    ) -> Result<(), NotAdmitted> {
        let Some(member) = self.members.get_mut(broker) else { return Ok(()) };
        let is_back = member.state == State::Leaving;
        if is_back && cx.mutant(Mutant::RejoinIgnored) {
            return Ok(());
        }
        // A forged `down` must not let a flood of forged newcomers keep the real one out.
        let is_new = !(is_back && member.rest.shown == Some(heard.guid));
        if is_new {
            self.sources.draw(from.ip(), cx.now.mono)?;
        }
        member.announcements += 1;
        member.last_up = cx.now.mono;
        let Some(place) = member.place_mut(address) else { unreachable!("the index found the member by it") };
        let pushed_out = place.hear(heard, cx.config.limits.guids_per_address);
        let in_use = AddressKey::from(&member.place.address) == address;
        member.show();
        self.index.add_guid(heard.guid, broker);
        if let Some(guid) = pushed_out {
            self.index.remove_guid(guid, broker, &self.members);
        }
        if is_back {
            self.rejoin(broker, cx);
        }
        let Some(member) = self.members.get_mut(broker) else { return Ok(()) };
        if in_use && member.ready && is_new {
            cx.effect(Effect::AskIdentity(broker));
        } else if in_use && !member.ready {
            cx.effect(Effect::Hurry(broker));
        }
        rearm(member, cx);
        Ok(())
    }

    /// Says goodbye to an address, if its newest announcer says so: a late one of an earlier process changes nothing.
    fn on_down(&mut self, said: &Announcement<'_>, cx: &mut Cx<'_>) {
        let address = AddressKey::from(said.address);
        let Some(broker) = self.index.by_address(address, &self.members) else { return };
        let Some(member) = self.members.get_mut(broker) else { return };
        let in_use = AddressKey::from(&member.place.address) == address;
        let is_static = member.is_static();
        let Some(place) = member.place_mut(address) else { return };
        // A configured address is not ended by a datagram without a signature.
        let is_newest = place.newest() == Some(said.guid) || cx.mutant(Mutant::DownOfAnyone);
        if place.configured || !is_newest || cx.mutant(Mutant::DownIgnored) {
            return;
        }
        if in_use && !is_static {
            return self.depart(broker, BrokerChange::Withdrawn, cx);
        }
        let mut gone = Gone { guids: place.guids.drain(..).map(|heard| heard.guid).collect(), ..Gone::default() };
        member.drop_dead_alternatives(&mut gone);
        self.unindex(broker, &gone);
        self.settle(broker, cx);
    }

    /// A member's timer is due.
    pub(crate) fn on_liveness(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        let mut gone = Gone::default();
        member.lapse(cx.now.mono, &mut gone);
        self.unindex(broker, &gone);
        self.settle(broker, cx);
    }

    /// The timer of the reports is due.
    pub(crate) fn on_admission_report(&mut self, cx: &mut Cx<'_>) {
        self.reports.report(cx);
    }

    /// A member cannot be used.
    pub(crate) fn on_unready(&mut self, broker: BrokerId, why: Unready, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        if member.ready {
            member.rest.unready_since = cx.now.mono;
        }
        let changed = member.ready || member.rest.unready.as_ref().map(|known| known.reason) != Some(why.reason);
        member.ready = false;
        member.rest.unready = Some(why.clone());
        rearm(member, cx);
        if changed && member.state != State::Merged {
            tell(broker, member, BrokerChange::Unready(why), cx);
        }
    }

    /// A ready member's memory is full, or no longer. It stays ready for everything but sends.
    pub(crate) fn on_memory(&mut self, broker: BrokerId, full: bool, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get(broker).filter(|member| member.ready) else { return };
        let detail = "its memory is full: no sends there, reads go on".into();
        let oom = BrokerChange::Unready(Unready { reason: UnreadyReason::Oom, detail });
        tell(broker, member, if full { oom } else { BrokerChange::Ready }, cx);
    }

    /// A departed member is done with: [`Effect::Forget`] is carried out.
    pub(crate) fn forget(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(member) = self.members.remove(broker) else { return };
        assert!(member.state != State::Present, "{broker:?} is forgotten after it has departed");
        self.index.remove_address((&member.place.address).into(), broker);
        if let Some(run) = &member.rest.run {
            self.index.remove_run(run, broker);
        }
        cx.timers.remove(member.timer);
        tell(broker, &member, BrokerChange::Forgotten, cx);
    }

    #[cfg(test)]
    pub(crate) fn member(&self, broker: BrokerId) -> Option<&Member> {
        self.members.get(broker)
    }

    /// Every member, departed ones included, in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (BrokerId, &Member)> {
        self.members.iter()
    }

    /// Where to dial a member now.
    pub(crate) fn address(&self, broker: BrokerId) -> Option<&Endpoint> {
        self.members.get(broker).map(Member::address)
    }

    /// Whether a member has departed; `false` for one that is not known.
    #[cfg(test)]
    pub(crate) fn is_leaving(&self, broker: BrokerId) -> bool {
        self.members.get(broker).is_some_and(Member::is_leaving)
    }

    /// Makes a member of an address that nobody has.
    fn join(&mut self, place: Place, cx: &mut Cx<'_>) -> BrokerId {
        self.turn += 1;
        let now = cx.now.mono;
        let rest = Rest {
            alternatives: Vec::new(),
            shown: place.newest(),
            born: self.turn,
            joined: now,
            unready: None,
            unready_since: now,
            run: None,
            shared_guid: None,
        };
        let announcements = u64::from(!place.configured);
        let broker = self.members.insert_with(|broker| Member {
            armed: Mono::NEVER,
            last_up: now,
            announcements,
            state: State::Present,
            ready: false,
            place,
            timer: cx.timers.register(Timer::Liveness(broker)),
            rest: Box::new(rest),
        });
        let Some(member) = self.members.get_mut(broker) else { unreachable!("it was just inserted") };
        self.index.add_address((&member.place.address).into(), broker);
        for heard in &member.place.guids {
            self.index.add_guid(heard.guid, broker);
        }
        rearm(member, cx);
        tell(broker, member, BrokerChange::Announced, cx);
        cx.effect(Effect::Joined(broker));
        broker
    }

    /// Brings a departed member back as it was: its connection, if it has one, goes on.
    fn rejoin(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        member.state = State::Present;
        member.rest.joined = cx.now.mono;
        if !member.ready {
            member.rest.unready_since = cx.now.mono;
            // A newcomer's reason is told at its first failure, also if it is the one it had before it left.
            member.rest.unready = None;
        }
        tell(broker, member, BrokerChange::Announced, cx);
        if member.ready {
            tell(broker, member, BrokerChange::Ready, cx);
        }
        cx.effect(Effect::Rejoined(broker));
    }

    /// Takes a member out. Its address stays known, so that an announcement can bring it back.
    fn depart(&mut self, broker: BrokerId, change: BrokerChange, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        member.state = State::Leaving;
        let alternatives = core::mem::take(&mut member.rest.alternatives);
        let guids = member.place.guids.drain(..).chain(alternatives.iter().flat_map(|place| place.guids.clone()));
        let mut gone = Gone { guids: guids.map(|heard| heard.guid).collect(), ..Gone::default() };
        gone.addresses.extend(alternatives.into_iter().map(|place| place.address));
        disarm(member, cx);
        tell(broker, member, change, cx);
        cx.effect(Effect::Left(broker));
        self.unindex(broker, &gone);
    }

    /// Does what the state of a member's addresses asks for, and waits for the next time that it will.
    fn settle(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        match member.step(cx.now.mono, cx.config.timing.alternative_after) {
            Step::Stay => {}
            Step::Switch(index) => self.switch(broker, index, cx),
            Step::Expire => {
                let silent_ms = millis(cx.now.mono.since(member.last_up));
                return self.depart(broker, BrokerChange::Expired { silent_ms }, cx);
            }
        }
        if let Some(member) = self.members.get_mut(broker) {
            rearm(member, cx);
        }
    }

    /// Makes an alternative the address in use. Which process answers there is not known yet.
    fn switch(&mut self, broker: BrokerId, alternative: usize, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        self.turn += 1;
        let place = member.rest.alternatives.swap_remove(alternative);
        let old = core::mem::replace(&mut member.place, place);
        member.place.tried = self.turn;
        member.rest.unready_since = cx.now.mono;
        member.show();
        if old.is_alive() {
            member.rest.alternatives.push(old);
        } else {
            self.index.remove_address((&old.address).into(), broker);
        }
        if let Some(run) = member.rest.run.take() {
            self.index.remove_run(&run, broker);
        }
        cx.effect(Effect::Moved(broker));
    }

    fn unindex(&mut self, broker: BrokerId, gone: &Gone) {
        for &guid in &gone.guids {
            self.index.remove_guid(guid, broker, &self.members);
        }
        for address in &gone.addresses {
            self.index.remove_address(address.into(), broker);
        }
    }
}

/// How long a broker may be silent, by its own latest announcement. A millisecond more than what it promises.
fn silence(interval: Interval, config: &Config) -> Duration {
    let interval = Duration::from_millis(interval.as_millis()).min(config.timing.interval_cap);
    let times =
        if config.is_mutant(Mutant::GraceSkipped) { 0 } else { 1 + u32::from(config.is_mutant(Mutant::ExpiryLate)) };
    interval.saturating_add(config.timing.grace * times).saturating_add(Duration::from_millis(1))
}

fn rearm(member: &mut Member, cx: &mut Cx<'_>) {
    let Some(due) = member.due(cx.config.timing.alternative_after) else { return disarm(member, cx) };
    if member.armed != Mono::NEVER && cx.mutant(Mutant::LivenessNotRearmed) {
        return;
    }
    member.armed = due;
    cx.timers.arm(member.timer, due);
}

fn disarm(member: &mut Member, cx: &mut Cx<'_>) {
    member.armed = Mono::NEVER;
    cx.timers.disarm(member.timer);
}

fn tell(broker: BrokerId, member: &Member, change: BrokerChange, cx: &mut Cx<'_>) {
    let event = BrokerEvent { broker, guid: member.rest.shown, address: member.place.address.clone(), change };
    cx.event(Event::Broker(Box::new(event)));
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
