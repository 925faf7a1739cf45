//! Recounts credit, and what is in hand.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::{Consumer, Consumers};
use crate::audit::{holds, same, within};
use crate::effect::Timer;
use crate::id::{BrokerId, SubId};
use crate::timers::TimerSlot;

/// What is in hand of one reader.
#[derive(Clone, Copy, Default)]
struct InHand {
    held: usize,
    suspects: usize,
}

impl Consumers {
    /// Compares the accounts of credit with what is in hand and asked for.
    pub(crate) fn audit(&self) -> Result<(), String> {
        same("credit", "subscriptions", self.subs.len(), self.subs.keys().count())?;
        same("credit", "deliveries in hand", self.hand.len(), self.hand.keys().count())?;
        let mut in_hand: BTreeMap<(SubId, u32), InHand> = BTreeMap::new();
        for (delivery, held) in self.hand.iter() {
            let readers = self.subs.get(held.sub).map_or(0, |consumer| consumer.readers.len());
            let is_known = (held.reader as usize) < readers;
            holds("credit", is_known, || format!("{delivery:?} is in hand of {:?}, which is gone", held.sub))?;
            let counts = in_hand.entry((held.sub, held.reader)).or_default();
            counts.held += 1;
            counts.suspects += usize::from(held.suspect);
        }
        for (_, consumer) in self.subs.iter() {
            consumer.audit(&in_hand)?;
        }
        let flagged = self.subs.iter().filter(|(_, consumer)| consumer.dirty).count();
        let listed = self.dirty.iter().filter(|sub| self.subs.contains(**sub)).count();
        same("credit", "subscriptions with something to send", listed, flagged)
    }

    /// The brokers that any of it is about.
    pub(crate) fn contacts(&self) -> impl Iterator<Item = BrokerId> + '_ {
        let read = self.subs.iter().flat_map(|(_, consumer)| consumer.by_broker.iter().map(|(broker, _)| broker));
        self.brokers.iter().map(|(broker, _)| broker).chain(read)
    }

    pub(crate) fn owns_timer(&self, timer: Timer, slot: TimerSlot) -> bool {
        let is_its = |sub: SubId, of: fn(&super::Timers) -> TimerSlot| {
            self.subs.get(sub).is_some_and(|consumer| of(&consumer.timers) == slot)
        };
        match timer {
            Timer::Renew(sub) => is_its(sub, |timers| timers.renew),
            Timer::Claim(sub) => is_its(sub, |timers| timers.claim),
            Timer::Handler(sub) => is_its(sub, |timers| timers.handler),
            Timer::Agenda(sub) => is_its(sub, |timers| timers.agenda),
            Timer::Stop(sub) => is_its(sub, |timers| timers.stop),
            _ => false,
        }
    }

    pub(crate) fn delivery_count(&self) -> usize {
        self.hand.len()
    }
}

impl Consumer {
    fn audit(&self, in_hand: &BTreeMap<(SubId, u32), InHand>) -> Result<(), String> {
        let id = self.id;
        let (mut all, mut reserved, mut suspected) = (InHand::default(), 0, 0);
        for (reader, at) in self.readers.iter().zip(0u32..) {
            let here = in_hand.get(&(id, at)).copied().unwrap_or_default();
            same("credit", format_args!("{id:?} in hand from reader {at}"), reader.held as usize, here.held)?;
            all.held += here.held;
            all.suspects += here.suspects;
            let asked = reader.read.map_or(0, |read| read.reserved);
            reserved += asked as usize + reader.claiming.as_ref().map_or(0, |job| job.reserved() as usize);
            suspected += reader.claiming.as_ref().map_or(0, |job| job.suspects() as usize);
            reader.audit_verdicts(id)?;
            if let Some(broker) = reader.broker {
                let known = self.by_broker.get(broker).copied();
                holds("credit", known == Some(at), || format!("{id:?} reads {broker:?} by {at}, and knows {known:?}"))?;
            }
        }
        for (broker, at) in self.by_broker.iter() {
            let reads = self.readers.get(*at as usize).and_then(|reader| reader.broker);
            holds("credit", reads == Some(broker), || format!("{id:?} knows reader {at} of {broker:?}, {reads:?}"))?;
        }
        same("credit", format_args!("{id:?} in hand"), self.held as usize, all.held)?;
        same("credit", format_args!("{id:?} suspects in hand"), self.suspects as usize, all.suspects)?;
        same("credit", format_args!("{id:?} suspects reserved"), self.suspects_reserved as usize, suspected)?;
        same("credit", format_args!("{id:?} reserved"), self.reserved as usize, reserved)?;
        let most = self.spec.in_flight as usize;
        within("credit", format_args!("{id:?} in hand and reserved"), all.held + reserved, most)?;
        within("credit", format_args!("{id:?} handlers listed"), self.running.len(), 2 * most + 65)
    }
}
