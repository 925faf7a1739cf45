//! Which server process answers at which address: what a handshake knows and an announcement cannot.
//!
//! Two addresses with one run id are one broker and must be read once. One GUID with two run ids is two brokers: a
//! copied machine or container, which an operator should hear about.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::member::{Place, State};
use super::{Fleet, disarm, rearm, tell};
use crate::announce::Guid;
use crate::config::Endpoint;
use crate::effect::{Cx, Effect};
use crate::id::BrokerId;
use crate::output::{BrokerChange, Event, Warning};

/// Servers have run ids of 40 characters. Much longer ones are some other protocol's, and not worth keeping.
const RUN_BYTES_MAX: usize = 64;

impl Fleet {
    /// The answer to [`Effect::AskIdentity`]: whether the process is the one it was.
    pub(crate) fn on_identity(&mut self, broker: BrokerId, same: bool, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        if same {
            // The new GUID is another announcer's of the same process, unless another broker has it too.
            return self.warn_of_shared_guids(broker, cx);
        }
        member.place.run = None;
        if let Some(run) = member.rest.run.take() {
            self.index.remove_run(&run, broker);
        }
        let Some(member) = self.members.get(broker) else { return };
        tell(broker, member, BrokerChange::Restarted, cx);
        cx.effect(Effect::Restarted(broker));
    }

    /// A handshake is through, and has read this run id; empty if the server does not say.
    ///
    /// Returns whether the broker can be used under this id. Otherwise it is another address of an earlier member, which
    /// has taken that address, and [`Effect::Forget`] is on its way.
    #[must_use]
    pub(crate) fn on_ready(&mut self, broker: BrokerId, run: &str, cx: &mut Cx<'_>) -> bool {
        let Some(member) = self.members.get_mut(broker) else { return false };
        if member.state == State::Merged {
            return false;
        }
        let run = Some(run).filter(|run| (1..=RUN_BYTES_MAX).contains(&run.len()));
        let twin = run.and_then(|run| self.index.by_run(run, &self.members)).filter(|&twin| twin != broker);
        self.remember_process(broker, run, cx);
        if let Some(twin) = twin {
            let born = |id| self.members.get(id).map(|member| member.rest.born);
            if born(twin) < born(broker) {
                self.merge(twin, broker, cx);
                return false;
            }
            self.merge(broker, twin, cx);
        }
        self.split_others(broker, cx);
        self.warn_of_shared_guids(broker, cx);
        true
    }

    fn remember_process(&mut self, broker: BrokerId, run: Option<&str>, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(broker) else { return };
        let was_ready = core::mem::replace(&mut member.ready, true);
        member.rest.unready = None;
        let run: Option<Box<str>> = run.map(Box::from);
        let before = core::mem::replace(&mut member.place.run, run.clone());
        let restarted = before.is_some() && run.is_some() && before != run;
        if member.rest.run != run {
            let indexed = core::mem::replace(&mut member.rest.run, run.clone());
            if let Some(indexed) = indexed {
                self.index.remove_run(&indexed, broker);
            }
            if let Some(run) = run {
                self.index.add_run(&run, broker);
            }
        }
        rearm(member, cx);
        if restarted {
            tell(broker, member, BrokerChange::Restarted, cx);
        }
        // One that has left is only read from: it is ready when it is back.
        if !was_ready && !member.is_leaving() {
            tell(broker, member, BrokerChange::Ready, cx);
        }
    }

    /// Gives the addresses of one member to an earlier one, since the same process answers at both.
    fn merge(&mut self, earlier: BrokerId, later: BrokerId, cx: &mut Cx<'_>) {
        let Some(member) = self.members.get_mut(later) else { return };
        member.state = State::Merged;
        disarm(member, cx);
        let last_up = member.last_up;
        let address = member.place.address.clone();
        let departed = Place::new(address.clone(), false);
        let mut places = core::mem::take(&mut member.rest.alternatives);
        places.push(core::mem::replace(&mut member.place, departed));
        if let Some(run) = member.rest.run.take() {
            self.index.remove_run(&run, later);
        }
        cx.effect(Effect::Forget(later));
        for place in &places {
            self.index.remove_address((&place.address).into(), later);
        }
        places.retain(Place::is_alive);
        if places.is_empty() {
            return;
        }
        let mut guids: Vec<Guid> = Vec::new();
        for place in &places {
            self.index.add_address((&place.address).into(), earlier);
            guids.extend(place.guids.iter().map(|heard| heard.guid));
        }
        let Some(member) = self.members.get_mut(earlier) else { return };
        member.last_up = member.last_up.max(last_up);
        member.rest.alternatives.append(&mut places);
        let was_leaving = member.state == State::Leaving;
        for guid in guids {
            self.index.find_first(guid, &self.members);
        }
        self.drop_surplus_alternatives(earlier, cx);
        if was_leaving {
            self.rejoin(earlier, cx);
        }
        let Some(member) = self.members.get(earlier) else { return };
        let answered = member.rest.alternatives.iter().position(|place| place.address == address);
        if let Some(answered) = answered.filter(|_| !member.ready || !member.place.is_alive()) {
            // The other address has just answered, so there is nothing to wait for; and nobody announces the one in use.
            self.switch(earlier, answered, cx);
        }
        self.settle(earlier, cx);
    }

    /// Those that would end first are the ones to go.
    fn drop_surplus_alternatives(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        loop {
            let Some(member) = self.members.get_mut(broker) else { return };
            let surplus = member.rest.alternatives.len() > cx.config.limits.alternatives as usize;
            let dynamic = member.rest.alternatives.iter().enumerate().filter(|(_, place)| !place.configured);
            let Some((index, _)) = dynamic.min_by_key(|(_, place)| place.end()).filter(|_| surplus) else { return };
            let place = member.rest.alternatives.swap_remove(index);
            self.index.remove_address((&place.address).into(), broker);
            for heard in &place.guids {
                self.index.remove_guid(heard.guid, broker, &self.members);
            }
        }
    }

    /// Lets alternatives go at which another process was ready than at the address in use: their GUID speaks for two.
    fn split_others(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        loop {
            let has_room = self.members.len() < cx.config.limits.brokers as usize;
            let Some(member) = self.members.get_mut(broker) else { return };
            let Some(run) = &member.place.run else { return };
            let is_other = |place: &Place| place.run.as_ref().is_some_and(|other| other != run);
            let Some(index) = member.rest.alternatives.iter().position(is_other).filter(|_| has_room) else { return };
            let place = member.rest.alternatives.swap_remove(index);
            rearm(member, cx);
            self.index.remove_address((&place.address).into(), broker);
            for heard in &place.guids {
                self.index.remove_guid(heard.guid, broker, &self.members);
            }
            let guids: Vec<Guid> = place.guids.iter().map(|heard| heard.guid).collect();
            self.join(place, cx);
            for guid in guids {
                self.index.find_first(guid, &self.members);
            }
        }
    }

    /// Once per member and GUID, when both processes are known.
    fn warn_of_shared_guids(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some((guid, addresses)) = self.shared_guid(broker) else { return };
        let Some(member) = self.members.get_mut(broker) else { return };
        if member.rest.shared_guid.replace(guid) != Some(guid) {
            cx.event(Event::Warning(Box::new(Warning::SharedGuid { guid, addresses })));
        }
    }

    fn shared_guid(&self, broker: BrokerId) -> Option<(Guid, [Endpoint; 2])> {
        let member = self.members.get(broker)?;
        let run = member.rest.run.as_deref()?;
        let guids = member.places().flat_map(|place| &place.guids).map(|heard| heard.guid);
        let mut shared = guids.filter(|&guid| self.index.places_of(guid) > member.places_of(guid));
        shared.find_map(|guid| {
            // A rare case, so a walk over the fleet is cheap enough.
            let is_other = |other: &super::Member| {
                other.places_of(guid) > 0 && other.rest.run.as_deref().is_some_and(|other| other != run)
            };
            let (_, other) = self.members.iter().find(|(_, other)| is_other(other))?;
            Some((guid, [other.place.address.clone(), member.place.address.clone()]))
        })
    }
}
