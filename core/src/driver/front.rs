//! The driver's side that faces the application: who asked for what, who wants to hear what.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;
use core::task::Waker;
use core::time::Duration;

use super::client::{BrokerInfo, Client, CloseReport, Inspection};
use super::inbox::{Completions, Taken, Ticket};
use super::message::{Completion, Events, FleetEvent, FleetView, Mailbox, Message, Queue};
use super::routes::Routes;
use super::sockets::Gauge;
use crate::engine::Engine;
use crate::id::{DeliveryId, OpId, SubId};
use crate::mutant::Mutant;
use crate::op::{Op, Settled, Sub, Verdict};
use crate::output::{Delivery, Event};
use crate::sync::Arc;
use crate::time::{Mono, Now};

/// Tickets, queues and watchers. Dropped, it leaves nobody waiting.
pub(super) struct Front {
    inbox: Arc<Mailbox>,
    fleet: Arc<FleetView>,
    taken: Vec<Message>,
    ops: Routes<OpId, Ticket>,
    settles: Routes<DeliveryId, Ticket>,
    subscribers: Routes<SubId, Subscriber>,
    /// When which ticket is to be answered. Few: a batch that fills up has one.
    timers: BTreeSet<(Mono, Ticket)>,
    /// Subscribers with something to publish.
    touched: Vec<SubId>,
    watchers: Vec<Arc<Events>>,
    completions: Completions<Completion>,
    fleet_changed: bool,
    closing: Option<Closing>,
    stopped: bool,
}

struct Subscriber {
    queue: Arc<Queue>,
    deliveries: Vec<Delivery>,
    overdue: Vec<DeliveryId>,
    /// Nobody takes from the queue any more.
    leaving: bool,
    tickets: Vec<Ticket>,
}

struct Closing {
    grace: Duration,
    begun: bool,
    tickets: Vec<Ticket>,
    report: CloseReport,
}

impl Closing {
    fn after(grace: Duration) -> Self {
        Self { grace, begun: false, tickets: Vec::new(), report: CloseReport::default() }
    }
}

impl Front {
    pub(super) fn new(client: &Client) -> Self {
        Self {
            inbox: Arc::clone(client.inbox()),
            fleet: Arc::clone(client.view()),
            taken: Vec::new(),
            ops: Routes::new(),
            settles: Routes::new(),
            subscribers: Routes::new(),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            watchers: Vec::new(),
            completions: Completions::new(),
            fleet_changed: true,
            closing: None,
            stopped: false,
        }
    }

    /// Whether the engine has stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Takes the inbox whole; with none taken, `waker` is armed.
    pub(super) fn take(&mut self, waker: &Waker) -> Taken {
        self.inbox.take(&mut self.taken, waker)
    }

    /// Tells the engine what was taken.
    pub(super) fn obey(&mut self, engine: &mut Engine, now: Now, socket: Option<&Gauge>) {
        let mut taken = mem::take(&mut self.taken);
        for message in taken.drain(..) {
            self.message(engine, now, socket, message);
        }
        self.taken = taken;
    }

    /// Nobody holds the client any more.
    pub(super) fn abandoned(&mut self, grace: Duration) {
        self.closing.get_or_insert_with(|| Closing::after(grace));
    }

    /// Begins the end, once, if it was asked for: what nobody has begun to handle is given back, loops over deliveries
    /// end. Says whether it did.
    ///
    /// Called when everything that was taken in has found its broker, so that it counts as under way.
    pub(super) fn shut_down(&mut self, engine: &mut Engine, now: Now) -> bool {
        let Some(closing) = self.closing.as_mut().filter(|closing| !closing.begun) else { return false };
        closing.begun = true;
        for (_, subscriber) in self.subscribers.iter_mut() {
            subscriber.leaving = true;
            release(engine, now, subscriber);
            subscriber.queue.end();
        }
        // What is left was handed out. A message that no handler comes back from must count, or it goes round for ever.
        self.subscribers.iter_mut().for_each(|(sub, _)| engine.all_started(now, sub));
        engine.shutdown(now, closing.grace);
        true
    }

    fn message(&mut self, engine: &mut Engine, now: Now, socket: Option<&Gauge>, message: Message) {
        match message {
            Message::Submit { op, ticket } => self.submit(engine, now, op, ticket),
            Message::Settle { delivery, verdict, ticket } => self.settle(engine, now, delivery, verdict, ticket),
            Message::SettleAll(verdicts) => {
                for (delivery, verdict) in verdicts {
                    self.settle(engine, now, delivery, verdict, None);
                }
            }
            // Stale here means that the engine has given the delivery up meanwhile: its verdict will be stale, too.
            Message::Started(deliveries) => {
                for delivery in deliveries {
                    let _ = engine.started(now, delivery);
                }
            }
            Message::Subscribe { sub, queue, ticket } => self.subscribe(engine, now, *sub, queue, ticket),
            Message::Unsubscribe { queue, grace, ticket } => self.unsubscribe(engine, now, &queue, grace, ticket),
            Message::WakeAt { after, ticket } => {
                self.timers.insert((now.mono + after, ticket));
            }
            Message::Watch(events) => self.watchers.push(events),
            Message::Inspect(ticket) => {
                let inspection = Inspection {
                    fleet: fleet_of(engine),
                    stats: engine.stats().clone(),
                    socket: socket.map(Gauge::read),
                    at: now.mono,
                };
                self.completions.push(ticket, Completion::Inspected(Box::new(inspection)));
            }
            Message::Close { grace, ticket } => {
                self.closing.get_or_insert_with(|| Closing::after(grace)).tickets.push(ticket);
            }
        }
    }

    fn submit(&mut self, engine: &mut Engine, now: Now, op: Op, ticket: Ticket) {
        match engine.submit(now, op) {
            Ok(id) => self.ops.insert(id, ticket),
            Err(rejected) => self.completions.push(ticket, Completion::Rejected(rejected.why)),
        }
    }

    fn settle(
        &mut self,
        engine: &mut Engine,
        now: Now,
        delivery: DeliveryId,
        verdict: Verdict,
        ticket: Option<Ticket>,
    ) {
        // Most receipts are dropped at once. Nobody to tell: it may share a command with others.
        let ticket = ticket.filter(|ticket| !self.inbox.free_abandoned(*ticket));
        match (engine.settle(now, delivery, verdict, ticket.is_some()), ticket) {
            (Ok(()), Some(ticket)) => self.settles.insert(delivery, ticket),
            (Err(_), Some(ticket)) => self.completions.push(ticket, Completion::Settled(Settled::Fenced)),
            (_, None) => {}
        }
    }

    /// When the next timer of a handle is due.
    pub(super) fn next_timer(&self) -> Option<Mono> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Answers the timers that are due. The answers go out with the next [`publish`](Self::publish).
    pub(super) fn ring(&mut self, now: Mono) {
        while let Some(due) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&due);
            self.completions.push(due.1, Completion::Timer);
        }
    }

    fn subscribe(&mut self, engine: &mut Engine, now: Now, sub: Sub, queue: Arc<Queue>, ticket: Ticket) {
        match engine.subscribe(now, sub) {
            Ok(id) => {
                queue.opened(id);
                let subscriber = Subscriber {
                    queue,
                    deliveries: Vec::new(),
                    overdue: Vec::new(),
                    leaving: false,
                    tickets: Vec::new(),
                };
                self.subscribers.insert(id, subscriber);
                self.completions.push(ticket, Completion::Subscribed);
            }
            Err(rejected) => {
                queue.end();
                self.completions.push(ticket, Completion::Rejected(rejected.why));
            }
        }
    }

    fn unsubscribe(
        &mut self,
        engine: &mut Engine,
        now: Now,
        queue: &Arc<Queue>,
        grace: Duration,
        ticket: Option<Ticket>,
    ) {
        let id = queue.sub();
        if let Some((id, subscriber)) = id.and_then(|id| Some((id, self.subscribers.get_mut(id)?))) {
            subscriber.leaving = true;
            release(engine, now, subscriber);
            subscriber.tickets.extend(ticket);
            // What is left was handed out. A message that no handler comes back from must count, or it goes round for ever.
            engine.all_started(now, id);
            // Stale here means that its end is on the way already.
            let _ = engine.unsubscribe(now, id, grace);
            return;
        }
        // It was never accepted, or it has ended.
        queue.end();
        if let Some(ticket) = ticket {
            self.completions.push(ticket, Completion::Unsubscribed);
        }
    }

    /// Takes note of what the engine says to the application, for the next [`publish`](Self::publish).
    pub(super) fn event(&mut self, engine: &mut Engine, now: Now, event: Event) {
        match event {
            Event::Done { op, result } => {
                if let (Err(_), Some(closing)) = (&result, &mut self.closing) {
                    closing.report.failed += 1;
                }
                if let Some(ticket) = self.ops.remove(op) {
                    self.completions.push(ticket, Completion::Op(result));
                }
            }
            Event::Delivery(delivery) => self.deliver(engine, now, delivery),
            Event::Settled { delivery, result } => {
                if let Some(ticket) = self.settles.remove(delivery) {
                    self.completions.push(ticket, Completion::Settled(result));
                }
            }
            Event::Overdue { sub, delivery } => {
                if let Some(subscriber) = self.subscribers.get_mut(sub) {
                    subscriber.overdue.push(delivery);
                    self.touched.push(sub);
                }
            }
            Event::Unsubscribed { sub } => self.unsubscribed(sub),
            Event::Broker(change) => {
                self.fleet_changed = true;
                self.tell(&FleetEvent::Broker((*change).into()));
            }
            Event::Warning(warning) => self.tell(&FleetEvent::Warning((*warning).into())),
            Event::Stopped => self.stopped = true,
        }
    }

    fn deliver(&mut self, engine: &mut Engine, now: Now, delivery: Delivery) {
        match self.subscribers.get_mut(delivery.sub) {
            Some(subscriber) if !subscriber.leaving => {
                if subscriber.deliveries.is_empty() {
                    self.touched.push(delivery.sub);
                }
                if engine.is_mutant(Mutant::DriverDropsDelivery) {
                    subscriber.deliveries.clear();
                }
                subscriber.deliveries.push(delivery);
            }
            // It was on its way when its subscription ended.
            _ => {
                let _ = engine.settle(now, delivery.delivery, UNSTARTED, false);
            }
        }
    }

    fn unsubscribed(&mut self, sub: SubId) {
        if let Some(subscriber) = self.subscribers.remove(sub) {
            subscriber.queue.end();
            for ticket in subscriber.tickets {
                self.completions.push(ticket, Completion::Unsubscribed);
            }
        }
    }

    fn tell(&mut self, event: &FleetEvent) {
        // Who holds the last reference has nobody to tell.
        self.watchers.retain(|watcher| Arc::strong_count(watcher) > 1);
        self.watchers.iter().for_each(|watcher| watcher.push(event.clone()));
    }

    /// Hands out what has come together, one lock for all results and one per queue. Says how many results those were.
    pub(super) fn publish(&mut self, engine: &Engine) -> usize {
        if mem::take(&mut self.fleet_changed) {
            self.fleet.replace(fleet_of(engine));
        }
        for sub in self.touched.drain(..) {
            if let Some(subscriber) = self.subscribers.get_mut(sub) {
                subscriber.queue.push(&mut subscriber.deliveries, &mut subscriber.overdue);
            }
        }
        if self.stopped
            && let Some(closing) = self.closing.take()
        {
            for ticket in closing.tickets {
                self.completions.push(ticket, Completion::Closed(closing.report));
            }
        }
        let results = self.completions.len();
        self.inbox.complete(&mut self.completions);
        results
    }
}

/// The driver stops, as asked or by a panic: every ticket resolves, every queue ends.
impl Drop for Front {
    fn drop(&mut self) {
        for message in self.inbox.close(|| Completion::Stopped) {
            match message {
                Message::Subscribe { queue, .. } => queue.end(),
                Message::Watch(events) => events.end(),
                _ => {}
            }
        }
        self.subscribers.iter_mut().for_each(|(_, subscriber)| subscriber.queue.end());
        self.watchers.iter().for_each(|watcher| watcher.end());
        self.fleet.end();
    }
}

const UNSTARTED: Verdict = Verdict::Release { started: false };

/// Gives back what nobody has begun to handle.
fn release(engine: &mut Engine, now: Now, subscriber: &mut Subscriber) {
    let unpublished = mem::take(&mut subscriber.deliveries);
    for delivery in subscriber.queue.reclaim().into_iter().chain(unpublished) {
        let _ = engine.settle(now, delivery.delivery, UNSTARTED, false);
    }
}

fn fleet_of(engine: &Engine) -> Vec<BrokerInfo> {
    let info = |broker: crate::engine::BrokerView<'_>| BrokerInfo {
        id: broker.id,
        guid: broker.guid,
        address: broker.address.clone(),
        ready: broker.ready,
        unready: broker.unready.cloned(),
        leaving: broker.leaving,
        announcements: broker.announcements,
        joined: broker.joined,
        is_static: broker.is_static,
    };
    engine.fleet().map(info).collect()
}
