//! Routing of effects: what one machine wants from another, until nobody wants anything.

use super::{Engine, Life};
use crate::effect::{Effect, Route};
use crate::id::BrokerId;
use crate::mutant::Mutant;
use crate::output::Unready;
use crate::reply::Reply;
use crate::topic::consumer::Contact;

/// Effects that one input may cause at most. Each settles something, so there is an end; a loop is a bug of ours.
const STEPS: usize = 1 << 24;

impl Engine {
    /// Routes effects until none is left.
    pub(super) fn route(&mut self) {
        let mut steps = 0;
        while let Some(effect) = self.effects.pop_front() {
            steps += 1;
            assert!(steps < STEPS, "effects go round in circles: {effect:?}");
            if self.life != Life::Stopped {
                self.carry(effect);
            }
        }
    }

    fn carry(&mut self, effect: Effect) {
        match effect {
            Effect::Joined(broker) => self.on_joined(broker),
            Effect::Rejoined(broker) => {
                self.placement.set_present(broker, true);
                let (departures, mut cx) = self.lend_departures();
                departures.return_or_forget(broker, &mut cx);
                self.tell_of_full_memory(broker);
            }
            Effect::Hurry(broker) => {
                let (links, mut cx) = self.lend_links();
                links.hurry(broker, &mut cx);
            }
            Effect::Left(broker) => {
                self.placement.set_present(broker, self.config.is_mutant(Mutant::DownKeepsRotation));
                let (producer, mut cx) = self.lend_producer();
                producer.unpark(broker, &mut cx);
                let (departures, mut cx) = self.lend_departures();
                departures.leave(broker, &mut cx);
            }
            Effect::AskIdentity(broker) => {
                let (links, mut cx) = self.lend_links();
                links.ask_identity(broker, &mut cx);
            }
            Effect::Identity(broker, same) => {
                let (fleet, mut cx) = self.lend_fleet();
                fleet.on_identity(broker, same, &mut cx);
            }
            Effect::Moved(broker) => {
                let Some(to) = self.fleet.address(broker).cloned() else { return };
                let (links, mut cx) = self.lend_links();
                links.move_to(broker, to, &mut cx);
            }
            Effect::Restarted(broker) => {
                let (links, mut cx) = self.lend_links();
                links.restart(broker, &mut cx);
            }
            Effect::Forget(broker) => self.on_forget(broker),
            Effect::Ready(broker) => self.on_ready(broker),
            Effect::Unready(broker, why) => self.on_unready(broker, why),
            Effect::Room(broker, room) => self.placement.on_room(broker, room),
            Effect::Memory(broker, full) => {
                let news = self.placement.is_memory_full(broker) != full;
                let (placement, mut cx) = self.lend_placement();
                placement.on_memory(broker, full, &mut cx);
                if full && self.config.is_mutant(Mutant::OomStopsReads) {
                    self.consumers.on_broker_unready(broker);
                }
                if full {
                    let (producer, mut cx) = self.lend_producer();
                    producer.unpark(broker, &mut cx);
                }
                if news {
                    let (fleet, mut cx) = self.lend_fleet();
                    fleet.on_memory(broker, full, &mut cx);
                }
            }
            Effect::ReaderReady { sub, broker } => {
                self.consumers.on_reader_ready(sub, broker);
            }
            Effect::ReaderLost { sub, broker, client } => self.consumers.on_reader_lost(sub, broker, client),
            Effect::OpenReader { sub, broker } => {
                let (links, mut cx) = self.lend_links();
                links.open_reader(sub, broker, &mut cx);
            }
            Effect::CloseReader { sub, broker } => {
                let (links, mut cx) = self.lend_links();
                links.close_reader(sub, broker, &mut cx);
            }
            Effect::Command { broker, command, route } => {
                let (links, mut cx) = self.lend_links();
                links.send(broker, command, route, &mut cx);
            }
            Effect::ReaderCommand { sub, broker, command, route } => {
                let (links, mut cx) = self.lend_links();
                links.send_reader(sub, broker, command, route, &mut cx);
            }
            Effect::Unblock { sub, broker } => {
                let (links, mut cx) = self.lend_links();
                links.unblock(sub, broker, &mut cx);
            }
            Effect::Answer { broker, route, reply } => self.on_answer(broker, route, reply),
            Effect::Orphan { broker, route, sent } => self.on_orphan(broker, route, sent),
            Effect::Ended(sub) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.remove(sub, &mut cx);
            }
        }
    }

    fn on_joined(&mut self, broker: BrokerId) {
        let Some(endpoint) = self.fleet.address(broker).cloned() else { return };
        self.placement.join(broker);
        let (links, mut cx) = self.lend_links();
        links.open(broker, endpoint, &mut cx);
    }

    fn on_forget(&mut self, broker: BrokerId) {
        let (links, mut cx) = self.lend_links();
        links.close(broker, &mut cx);
        let (departures, mut cx) = self.lend_departures();
        departures.return_or_forget(broker, &mut cx);
        // The close has orphaned what was in flight there; those effects are routed before this one ends.
        self.route();
        let (placement, mut cx) = self.lend_placement();
        placement.forget(broker, &mut cx);
        let (producer, mut cx) = self.lend_producer();
        producer.forget(broker, &mut cx);
        let (consumers, mut cx) = self.lend_consumers();
        consumers.forget(broker, &mut cx);
        let (fleet, mut cx) = self.lend_fleet();
        fleet.forget(broker, &mut cx);
    }

    fn on_ready(&mut self, broker: BrokerId) {
        let Some(facts) = self.links.facts(broker).cloned() else { return };
        let Some(at) = self.links.endpoint(broker).cloned() else { return };
        // Until the data set could be named, the server process stands in for it.
        let store = if facts.store.is_empty() { facts.run_id.clone() } else { facts.store };
        let (fleet, mut cx) = self.lend_fleet();
        if !fleet.on_ready(broker, &facts.run_id, &mut cx) {
            return;
        }
        // A second address of the same process is given up before this one is used: its readers must move, not double.
        self.route();
        if !self.links.is_ready(broker) {
            return;
        }
        self.placement.on_ready(broker, &store);
        self.tell_of_full_memory(broker);
        let (producer, mut cx) = self.lend_producer();
        producer.on_ready(broker, at.clone(), &mut cx);
        let run = facts.run_id.as_str().into();
        let contact = Contact { store: store.into(), at, run, clock_offset_ms: facts.clock_offset_ms };
        let (consumers, mut cx) = self.lend_consumers();
        consumers.on_broker_ready(broker, contact, &mut cx);
        if let Some((announcer, mut cx)) = self.lend_announcer() {
            announcer.on_ready(broker, &facts.run_id, &mut cx);
        }
    }

    /// A member that is ready, again or for the first time, may have had no memory left when that was last known. No send
    /// goes there but to find out: nobody should think otherwise.
    fn tell_of_full_memory(&mut self, broker: BrokerId) {
        if self.placement.is_memory_full(broker) {
            let (fleet, mut cx) = self.lend_fleet();
            fleet.on_memory(broker, true, &mut cx);
        }
    }

    fn on_unready(&mut self, broker: BrokerId, why: Unready) {
        if !(self.links.is_connected(broker) && self.config.is_mutant(Mutant::RefusingKept)) {
            self.placement.on_unready(broker);
        }
        let (producer, mut cx) = self.lend_producer();
        producer.unpark(broker, &mut cx);
        self.consumers.on_broker_unready(broker);
        if let Some((announcer, mut cx)) = self.lend_announcer() {
            announcer.on_unready(&why, &mut cx);
        }
        let (fleet, mut cx) = self.lend_fleet();
        fleet.on_unready(broker, why, &mut cx);
    }

    fn on_answer(&mut self, broker: BrokerId, route: Route, reply: Reply) {
        match route {
            Route::Op(op) => {
                let (producer, mut cx) = self.lend_producer();
                let stored = producer.on_reply(op, broker, reply, &mut cx);
                if stored && self.placement.is_memory_full(broker) {
                    self.effects.push_back(Effect::Memory(broker, false));
                }
            }
            Route::Register(topic) => {
                // One message finds out whether there is memory again; the others that wait look elsewhere.
                let full = self.placement.is_memory_full(broker);
                let (producer, mut cx) = self.lend_producer();
                let sent = producer.on_registered(topic, broker, &reply, if full { 1 } else { usize::MAX }, &mut cx);
                if full && sent {
                    let (placement, mut cx) = self.lend_placement();
                    placement.on_memory(broker, true, &mut cx);
                }
            }
            Route::Consumer(sub, answer) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_answer(sub, broker, answer, reply, &mut cx);
            }
            Route::Announcer => {
                if let Some((announcer, mut cx)) = self.lend_announcer() {
                    announcer.on_pong(&reply, &mut cx);
                }
            }
            Route::Own(_) | Route::Discard => {}
        }
    }

    pub(super) fn on_orphan(&mut self, broker: BrokerId, route: Route, sent: bool) {
        match route {
            Route::Op(op) => {
                let (producer, mut cx) = self.lend_producer();
                producer.on_orphan(op, broker, sent, &mut cx);
            }
            Route::Consumer(sub, answer) => {
                let (consumers, mut cx) = self.lend_consumers();
                consumers.on_orphan(sub, broker, answer, &mut cx);
            }
            Route::Register(topic) => {
                let (producer, mut cx) = self.lend_producer();
                producer.on_unregistered(topic, broker, &mut cx);
            }
            // The announcer counts the silence.
            Route::Announcer | Route::Own(_) | Route::Discard => {}
        }
    }
}
