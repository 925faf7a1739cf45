//! Ending a subscription: nothing new is read, what is in hand is settled or given back, the verdicts reach their
//! brokers, and the consumer's name goes.

use alloc::vec::Vec;
use core::time::Duration;

use super::reader::NOTHING_SEEN;
use super::{Answer, Consumer, Consumers, Held};
use crate::command::{Arg, By, Command, Eval};
use crate::effect::{Cx, Effect};
use crate::id::{DeliveryId, Slab, SubId};
use crate::op::Stale;
use crate::output::Event;
use crate::script::Script;

/// After the grace, how long the last verdicts and goodbyes may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Running handlers have their grace.
    Draining,
    /// The grace is over: everything was given back.
    Closing,
}

impl Consumers {
    /// Ends a subscription. Handlers that run have the grace; then their messages are given back.
    pub(crate) fn unsubscribe(&mut self, sub: SubId, grace: Duration, cx: &mut Cx<'_>) -> Result<(), Stale> {
        let consumer = self.subs.get_mut(sub).ok_or(Stale)?;
        if consumer.stop.is_none() {
            consumer.begin_stop(grace, cx);
        }
        self.mark(sub);
        Ok(())
    }

    /// Ends them all; no new ones.
    pub(crate) fn stop(&mut self, grace: Duration, cx: &mut Cx<'_>) {
        self.stopping = true;
        let all: Vec<SubId> = self.subs.keys().collect();
        for sub in all {
            // It exists: it was just listed.
            let _ = self.unsubscribe(sub, grace, cx);
        }
    }

    /// The time for last words is over, everywhere.
    pub(crate) fn abandon(&mut self, cx: &mut Cx<'_>) {
        let all: Vec<SubId> = self.subs.keys().collect();
        for sub in all {
            self.remove(sub, cx);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subs.is_empty()
    }

    pub(crate) fn on_stop_timer(&mut self, sub: SubId, cx: &mut Cx<'_>) {
        let Some(consumer) = self.subs.get_mut(sub) else { return };
        match consumer.stop {
            Some(Stop::Draining) => {
                consumer.give_back(&mut self.hand, cx);
                self.mark(sub);
            }
            // Whatever was not said by now stays unsaid: what is pending is claimed by others in time.
            Some(Stop::Closing) => consumer.end(cx),
            None => {}
        }
    }

    /// Removes an ended subscription.
    pub(crate) fn remove(&mut self, sub: SubId, cx: &mut Cx<'_>) {
        let Some(mut consumer) = self.subs.remove(sub) else { return };
        for at in 0..consumer.readers.len() {
            consumer.stop_telling(u32::try_from(at).unwrap_or(u32::MAX), cx);
        }
        let left: Vec<DeliveryId> = self.hand.iter().filter(|(_, held)| held.sub == sub).map(|(id, _)| id).collect();
        for delivery in left {
            self.hand.remove(delivery);
        }
        let timers = &consumer.timers;
        for slot in [timers.renew, timers.claim, timers.handler, timers.agenda, timers.stop] {
            cx.timers.remove(slot);
        }
        for broker in consumer.readers.iter().filter_map(|reader| reader.broker) {
            cx.effect(Effect::CloseReader { sub, broker });
        }
        cx.event(Event::Unsubscribed { sub });
    }
}

impl Consumer {
    fn begin_stop(&mut self, grace: Duration, cx: &mut Cx<'_>) {
        self.stop = Some(Stop::Draining);
        cx.timers.arm(self.timers.stop, cx.now.mono + grace);
        for at in 0..self.readers.len() {
            if let Some(reader) = self.readers.get_mut(at) {
                reader.jobs.clear();
            }
            self.wake(u32::try_from(at).unwrap_or(u32::MAX), cx);
        }
    }

    /// The grace is over.
    fn give_back(&mut self, hand: &mut Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        self.stop = Some(Stop::Closing);
        cx.timers.arm(self.timers.stop, cx.now.mono + LAST_WORDS);
        let ours: Vec<DeliveryId> = hand.iter().filter(|(_, held)| held.sub == self.id).map(|(id, _)| id).collect();
        for id in ours {
            if let Some(held) = hand.remove(id) {
                let verdict = crate::op::Verdict::Release { started: held.started };
                self.settle(id, &held, verdict, false, cx);
            }
        }
    }

    /// One step towards the end: each reader says goodbye once it has nothing left to say.
    pub(super) fn advance_stop(&mut self, cx: &mut Cx<'_>) {
        if self.held > 0 {
            return;
        }
        let mut waiting = false;
        for at in 0..self.readers.len() {
            let Some(reader) = self.readers.get(at) else { continue };
            if reader.left || reader.broker.is_none() || (!reader.ready && reader.is_settled()) {
                continue;
            }
            waiting = true;
            let quiet = reader.read.is_none() && reader.claiming.is_none() && reader.is_settled();
            if quiet && reader.ready && !reader.leaving {
                self.leave(u32::try_from(at).unwrap_or(u32::MAX), cx);
            }
        }
        if !waiting {
            self.end(cx);
        }
    }

    fn leave(&mut self, at: u32, cx: &mut Cx<'_>) {
        if self.readers.get(at as usize).is_some_and(|reader| reader.done > 0) {
            // Nobody may be left to do it later.
            self.trim(at, cx);
        }
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.leaving = true;
        // A retry stream that is not known to exist may be one that is looked for again.
        let known = reader.keys.iter().zip(&reader.absent).zip(&reader.seen);
        let known = known.filter(|((_, absent), seen)| !**absent || **seen > NOTHING_SEEN);
        let keys = known.map(|((key, _), _)| key.clone()).collect();
        let args = alloc::vec![Arg::Text(self.spec.group.clone()), Arg::Text(self.name.clone())];
        let eval = Eval { script: Script::Leave, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Leave, cx);
    }

    pub(super) fn on_left(&mut self, at: u32, _: &mut Cx<'_>) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.left = true;
            reader.leaving = false;
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>) {
        cx.timers.disarm(self.timers.stop);
        cx.effect(Effect::Ended(self.id));
    }
}
