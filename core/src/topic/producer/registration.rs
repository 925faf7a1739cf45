//! What each broker knows of a topic, and what waits for its word.
//!
//! A broker is told of a topic before anything is sent to it, and again from time to time. Until it has said how many
//! partitions the topic has there, messages are parked; a broker that is not to be sent to any more gives them back.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Contact, Producer, Topic, is_passing};
use crate::command::{By, Command, Eval};
use crate::config::Endpoint;
use crate::effect::{Cx, Effect, Route};
use crate::id::{BrokerId, OpId};
use crate::key;
use crate::op::PartitionsDiffer;
use crate::output::{Event, Warning};
use crate::reply::Reply;
use crate::script::Script;
use crate::time::Mono;
use crate::topic::partitions::{Count, ENSURE_STREAMS, REGISTER_AGAIN};

/// How many messages wait for a broker's word on their topic before those without a key go past.
pub(super) const PARKED: usize = 256;

/// One topic on one broker.
#[derive(Debug, Default)]
pub(super) struct Registration {
    /// When it was last told of the topic.
    pub(super) sent: Option<Mono>,
    /// What it answered; until it has, messages are parked here.
    pub(super) standing: Option<Standing>,
    pub(super) parked: Vec<OpId>,
}

/// What a broker says of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has this many partitions.
    Partitions(u32),
    /// It has this many, and this process states another number.
    Differs(u32),
}

impl Topic {
    /// Learns what a broker knows.
    fn learn(&mut self, count: Count) {
        self.count.learn(count);
        let known = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        // A broker may have more than the count that others agree on, and its messages go there.
        for i in known..count.used() {
            self.keys.push(key::partition(self.spec.name(), i));
        }
    }
}

impl Producer {
    /// A broker is in contact (again): it may have forgotten everything.
    pub(crate) fn on_ready(&mut self, broker: BrokerId, at: Endpoint, cx: &mut Cx<'_>) {
        self.forget(broker, cx);
        self.brokers.insert(broker, Contact { at, registered: Vec::new(), next_partition: 0 });
    }

    pub(crate) fn forget(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        self.unpark(broker, cx);
        self.brokers.remove(broker);
    }

    /// A broker is not to be sent to any more: whatever waits for its word looks for another one.
    pub(crate) fn unpark(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let topics = self.brokers.get_mut(broker).into_iter().flat_map(|contact| &mut contact.registered);
        let parked: Vec<OpId> = topics.flat_map(|topic| core::mem::take(&mut topic.parked)).collect();
        parked.into_iter().for_each(|op| self.place_again(op, cx));
    }

    /// A registration will have no answer: what was parked for it goes elsewhere, or here after the next contact.
    pub(crate) fn on_unregistered(&mut self, index: u32, broker: BrokerId, cx: &mut Cx<'_>) {
        if let Some(registration) = self.registration(index, broker) {
            registration.sent = None;
            let parked = core::mem::take(&mut registration.parked);
            parked.into_iter().for_each(|op| self.place_again(op, cx));
        }
    }

    /// The answer to a topic's registration. Of what was parked for it, `most` messages go out; whether any did.
    pub(crate) fn on_registered(
        &mut self,
        index: u32,
        broker: BrokerId,
        reply: &Reply,
        most: usize,
        cx: &mut Cx<'_>,
    ) -> bool {
        if let Reply::Error(error) = reply
            && is_passing(error.class())
        {
            self.on_unregistered(index, broker, cx);
            return false;
        }
        let Some(at) = self.at(broker) else { return false };
        let Some(topic) = self.topics.get_mut(index as usize) else { return false };
        let (count, before) = (Count::answered(reply), topic.count);
        let standing = match count {
            Some(count) => {
                topic.learn(count);
                match topic.spec.stated() {
                    Some(ours) if count.contradicts(ours) => Standing::Differs(count.used()),
                    _ => Standing::Partitions(count.used()),
                }
            }
            // It refuses to say: as the application states, or as others said.
            None => Standing::Partitions(topic.count.used()),
        };
        let spec = topic.spec.clone();
        if let Reply::Error(error) = reply {
            let what = "registering a topic (EVAL)";
            let warning = Warning::Refused { broker: at.clone(), what, error: error.text().to_string() };
            cx.event(Event::Warning(warning.into()));
        }
        let groups = reply.view().items().and_then(|mut parts| parts.nth(2));
        if self.registry.learn(spec.name(), groups) || count.is_some_and(|count| count.version > before.version) {
            // The others may not know of these groups, or of this growth: their next send registers again.
            for (_, contact) in self.brokers.iter_mut().filter(|(other, _)| *other != broker) {
                if let Some(registration) = contact.registered.get_mut(index as usize) {
                    registration.sent = None;
                }
            }
        }
        let more = count.is_some_and(|count| count.partitions > before.partitions);
        let Some(registration) = self.registration(index, broker) else { return false };
        if more {
            // Its other partitions are yet to be named.
            registration.sent = None;
        }
        let was = registration.standing.replace(standing);
        if was != Some(standing) {
            let topic = spec.name().into();
            match (was, standing) {
                (_, Standing::Differs(theirs)) => {
                    if let Some(differ) = self.differ(index, broker, theirs) {
                        cx.event(Event::Warning(Warning::Partitions(differ.into()).into()));
                    }
                }
                (Some(Standing::Partitions(from)), Standing::Partitions(to)) => {
                    cx.event(Event::Warning(Warning::Grown { topic, broker: at, from, to }.into()));
                }
                (Some(Standing::Differs(_)) | None, Standing::Partitions(_)) => {}
            }
        }
        let parked = self.registration(index, broker).map(|registration| core::mem::take(&mut registration.parked));
        let mut parked = parked.unwrap_or_default();
        if parked.len() >= PARKED {
            cx.effect(Effect::Room(broker, true));
        }
        let rest = parked.split_off(most.min(parked.len()));
        let sends = !parked.is_empty();
        parked.into_iter().for_each(|op| self.send_or_refuse(op, broker, standing, cx));
        rest.into_iter().for_each(|op| self.place_again(op, cx));
        sends
    }

    /// Tells a broker about a topic before the first send there, and from time to time: a group whose consumers are away
    /// must exist before anything is stored, and a topic may have grown.
    pub(super) fn register(&mut self, index: u32, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(topic) = self.topics.get(index as usize) else { return };
        let Some(contact) = self.brokers.get_mut(broker) else { return };
        let at = index as usize;
        if contact.registered.len() <= at {
            contact.registered.resize_with(at + 1, Registration::default);
        }
        let Some(registered) = contact.registered.get_mut(at) else { return };
        if registered.sent.is_some_and(|sent| cx.now.mono < sent + REGISTER_AGAIN) {
            return;
        }
        registered.sent = Some(cx.now.mono);
        // Whoever must not send waits for the answer: they may agree by now.
        registered.standing = registered.standing.filter(|standing| matches!(standing, Standing::Partitions(_)));
        let name = topic.spec.name();
        for chunk in topic.keys.chunks(ENSURE_STREAMS) {
            let keys = [key::meta(name), key::groups(name)].into_iter().chain(chunk.iter().cloned()).collect();
            let mut args = topic.count.args();
            args.extend(self.registry.args(name, None));
            let eval = Eval { script: Script::Ensure, keys, args };
            let command = Command::Eval(eval.into(), By::Sha1);
            cx.effect(Effect::Command { broker, command, route: Route::Register(index) });
        }
    }

    pub(super) fn differ(&self, index: u32, broker: BrokerId, theirs: u32) -> Option<PartitionsDiffer> {
        let topic = self.topics.get(index as usize)?;
        let (name, ours) = (topic.spec.name().into(), topic.spec.stated()?);
        Some(PartitionsDiffer { topic: name, broker: self.at(broker)?, ours, theirs })
    }

    pub(super) fn registration(&mut self, index: u32, broker: BrokerId) -> Option<&mut Registration> {
        self.brokers.get_mut(broker)?.registered.get_mut(index as usize)
    }
}
