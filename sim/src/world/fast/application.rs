//! The application of a service in fast fidelity: what it sends, how it handles, and what it is told.

use std::time::Duration;

use flota_core::id::DeliveryId;
use flota_core::op::{Op, Outcome, Policy, Send, Stale, Verdict};
use flota_core::output::Event as Said;
use flota_core::time::Now;
use flota_core::topic::Message;

use super::super::app::{self, Call, Deed};
use super::super::kernel::{AppEvent, Event, Kernel};
use super::super::{config, net};
use super::FastService;
use crate::clock::HostClock;
use crate::seen::{Delivered, Given, Item, Place, What};

/// A delivery that the application has.
pub(super) struct Held {
    delivery: DeliveryId,
    sub: u32,
    item: Option<Item>,
    attempt: u32,
    /// What its handler has come to, once it has: in applications that are not the plan's.
    deed: Option<Deed>,
    /// It has its verdict, and waits for what the broker makes of it.
    settled: bool,
}

impl FastService {
    pub(crate) fn submit(&mut self, k: &mut Kernel, clock: &HostClock, item: Item) {
        let Some(work) = k.plan.work.get(item.0 as usize).cloned() else { return };
        let now = clock.now(k.at);
        let mut message = Message::new(k.body(item).unwrap_or_default());
        if let Some(key) = work.key {
            message = message.key(format!("key-{key}"));
        }
        if let Some(ms) = work.delay_ms {
            message = message.delay(Duration::from_millis(ms));
        }
        let policy = if work.at_most_once { Policy::AtMostOnce } else { Policy::AtLeastOnce };
        let send = Send { topic: self.topic(work.topic), message, policy, wait: None };
        let result = self.recorder.submit(&mut self.engine, now, Op::Send(send));
        let accepted = match result {
            Ok(op) => {
                self.ops.insert(op, item);
                self.items.insert(item, op);
                if let Some(us) = work.cancel_after_us {
                    k.after(us, Event::App(self.index, self.life, AppEvent::Cancel(item.0)));
                }
                Ok(())
            }
            Err(rejected) => Err(rejected.why),
        };
        k.see(self.host(), What::Submitted { item, accepted });
        self.end_turn(k, clock, now);
    }

    /// Whether the process lives on.
    pub(crate) fn app(&mut self, k: &mut Kernel, clock: &HostClock, event: AppEvent) -> bool {
        let now = clock.now(k.at);
        match event {
            AppEvent::Start(number) => return self.start_handler(k, clock, now, number),
            AppEvent::Act(number, rest_us) => return self.act(k, number, rest_us),
            AppEvent::Finish(number) => self.finish_handler(k, now, number),
            AppEvent::Cancel(item) => {
                if let Some(op) = self.items.get(&Item(item)).copied() {
                    let live = self.recorder.cancel(&mut self.engine, now, op).is_ok();
                    k.see(self.host(), What::Cancelled { item: Item(item), live });
                }
            }
            AppEvent::Resubscribe(sub) => self.resubscribe(k, now, sub),
            AppEvent::Timer(_) => {}
        }
        self.end_turn(k, clock, now);
        true
    }

    fn start_handler(&mut self, k: &mut Kernel, clock: &HostClock, now: Now, number: u64) -> bool {
        let Some(held) = self.hands.get(&number) else { return true };
        let (delivery, sub) = (held.delivery, held.sub);
        let deed = deed(k, self.index, held);
        if self.recorder.started(&mut self.engine, now, delivery) == Err(Stale) {
            self.drop_hand(number);
            return true;
        }
        k.see(self.host(), What::Started(self.hand(number)));
        let usual = self.plan.consumes.get(sub as usize).map_or(1_000, |consume| consume.handler_us);
        match deed {
            _ if k.application.is_some() => {
                // What it does comes anywhere in its time: a crash is before it, or between it and the verdict.
                let us = k.hosts.exponential(usual);
                let act_us = k.hosts.below(us + 1);
                k.after(act_us, Event::App(self.index, self.life, AppEvent::Act(number, us - act_us)));
            }
            Deed::Crash => return false,
            Deed::Hang => {}
            Deed::Settle(_, times) => {
                let us = k.hosts.exponential(usual).saturating_mul(times);
                k.after(us, Event::App(self.index, self.life, AppEvent::Finish(number)));
            }
            Deed::SettleTwice(_) => {
                let us = k.hosts.exponential(usual);
                k.after(us, Event::App(self.index, self.life, AppEvent::Finish(number)));
            }
        }
        self.end_turn(k, clock, now);
        true
    }

    /// The handler of an application that is not the plan's does what it does. Whether the process lives on.
    fn act(&mut self, k: &mut Kernel, number: u64, rest_us: u64) -> bool {
        let (service, life, stopped) = (self.index, self.life, self.stopped);
        let Some(held) = self.hands.get_mut(&number).filter(|held| !held.settled && !stopped) else { return true };
        let (Some(item), Some(application)) = (held.item, k.application.clone()) else { return true };
        let Some(body) = k.body(item) else { return true };
        let (at, sub, attempt) = (Duration::from_micros(k.at), held.sub, held.attempt);
        let deed = application.borrow_mut().act(&Call { at, service, life, sub, item, attempt }, &body);
        held.deed = Some(deed);
        k.after(rest_us, Event::App(service, life, AppEvent::Finish(number)));
        deed != Deed::Crash
    }

    fn finish_handler(&mut self, k: &mut Kernel, now: Now, number: u64) {
        let Some(held) = self.hands.get(&number) else { return };
        match deed(k, self.index, held) {
            Deed::Settle(given, _) => self.settle(k, now, number, given),
            Deed::SettleTwice(given) => {
                let delivery = held.delivery;
                self.settle(k, now, number, given);
                // The second time it names nothing: the engine must say so and change nothing.
                let live = self.recorder.settle(&mut self.engine, now, delivery, verdict(given), true).is_ok();
                k.see(self.host(), What::Settled { hand: self.hand(number), verdict: given, live });
            }
            Deed::Crash | Deed::Hang => {}
        }
    }

    fn settle(&mut self, k: &mut Kernel, now: Now, number: u64, given: Given) {
        let Some(held) = self.hands.get_mut(&number) else { return };
        held.settled = true;
        let live = self.recorder.settle(&mut self.engine, now, held.delivery, verdict(given), true).is_ok();
        k.see(self.host(), What::Settled { hand: self.hand(number), verdict: given, live });
        if !live {
            self.drop_hand(number);
        }
    }

    pub(super) fn subscribe(&mut self, k: &mut Kernel, now: Now, sub: u32) {
        let Some(consume) = self.plan.consumes.get(sub as usize).cloned() else { return };
        let topic = self.topic(consume.topic);
        let wanted = config::subscription(&k.plan.knobs, topic, &consume);
        if let Ok(id) = self.recorder.subscribe(&mut self.engine, now, wanted) {
            self.subs.insert(id, sub);
            self.sub_ids.insert(sub, id);
            k.see(self.host(), What::Subscribed(sub));
        }
    }

    fn resubscribe(&mut self, k: &mut Kernel, now: Now, sub: u32) {
        if self.stopping {
            return;
        }
        match self.sub_ids.remove(&sub) {
            Some(id) => {
                let grace = Duration::from_millis(k.hosts.below(2_000));
                if self.recorder.unsubscribe(&mut self.engine, now, id, grace).is_ok() {
                    k.see(self.host(), What::Unsubscribing(sub));
                }
            }
            None => self.subscribe(k, now, sub),
        }
        let us = self.plan.subscribe_loop_ms * 1000;
        k.after(us, Event::App(self.index, self.life, AppEvent::Resubscribe(sub)));
    }

    // ---- what the engine tells ----

    pub(super) fn hear(&mut self, k: &mut Kernel, now: Now, event: Said) {
        match event {
            Said::Broker(event) => {
                if let Some(place) = net::broker_at(&event.address, k.plan.brokers.len()) {
                    self.places.insert(event.broker, place);
                }
                let (id, address, change) = (event.broker, event.address.clone(), event.change.clone());
                k.see(self.host(), What::Fleet { id, address, change });
            }
            Said::Done { op, result } => {
                let Some(item) = self.ops.remove(&op) else {
                    k.see(self.host(), What::Stray);
                    return;
                };
                self.items.remove(&item);
                let result = match result {
                    Ok(Outcome::Stored(stored)) => Ok(Place {
                        broker: self.places.get(&stored.broker).copied(),
                        partition: stored.partition,
                        entry: stored.entry,
                    }),
                    Ok(Outcome::Reply(_)) => return,
                    Err(error) => Err(error),
                };
                k.see(self.host(), What::Done { item, result });
            }
            Said::Delivery(delivery) => self.deliver(k, &delivery),
            Said::Settled { delivery, result } => {
                let Some(number) = self.numbers.get(&delivery).copied() else { return };
                k.see(self.host(), What::Answered { hand: self.hand(number), result });
                self.drop_hand(number);
            }
            Said::Overdue { delivery, .. } => {
                let Some(number) = self.numbers.get(&delivery).copied() else { return };
                k.see(self.host(), What::Overdue(self.hand(number)));
                // As a driver does: the handler is ended, and the message is tried again.
                self.settle(k, now, number, Given::Retry);
            }
            Said::Unsubscribed { sub } => {
                if let Some(sub) = self.subs.remove(&sub) {
                    k.see(self.host(), What::Unsubscribed(sub));
                }
            }
            Said::Warning(warning) => k.see(self.host(), What::Warned(warning)),
            Said::Stopped => {
                self.stopped = true;
                k.see(self.host(), What::Stopped);
            }
        }
    }

    fn deliver(&mut self, k: &mut Kernel, delivery: &flota_core::output::Delivery) {
        let at = delivery.index as usize;
        let body = delivery.batch.field(at, b"payload").unwrap_or_default();
        let item = app::item_of(body);
        let intact = item.and_then(|item| k.body(item)).is_some_and(|sent| sent == body);
        let sub = self.subs.get(&delivery.sub).copied().unwrap_or(u32::MAX);
        let number = self.next_hand;
        self.next_hand += 1;
        self.numbers.insert(delivery.delivery, number);
        let attempt = delivery.attempt;
        let held = Held { delivery: delivery.delivery, sub, item, attempt, deed: None, settled: false };
        self.hands.insert(number, held);
        let delivered = Delivered {
            hand: self.hand(number),
            sub,
            item,
            intact,
            broker: self.places.get(&delivery.broker).copied(),
            partition: delivery.partition,
            retry: delivery.retry,
            entry: delivery.entry(),
            deliveries: delivery.deliveries,
            attempt,
        };
        k.see(self.host(), What::Delivered(Box::new(delivered)));
        // Most handlers start at once; some wait for a turn.
        let us = if k.hosts.chance(200_000) { k.hosts.below(50_000) } else { 0 };
        k.after(us, Event::App(self.index, self.life, AppEvent::Start(number)));
    }

    fn drop_hand(&mut self, number: u64) {
        if let Some(held) = self.hands.remove(&number) {
            self.numbers.remove(&held.delivery);
        }
    }
}

/// What a handler does with what is in its hand: as it has decided, or as the plan wants it.
fn deed(k: &Kernel, service: u32, held: &Held) -> Deed {
    if k.application.is_some() {
        return held.deed.unwrap_or(Deed::Hang);
    }
    let fate = held.item.and_then(|item| k.plan.work.get(item.0 as usize)).map_or_else(Default::default, |w| w.fate);
    let consumes = k.plan.services.get(service as usize).and_then(|plan| plan.consumes.get(held.sub as usize));
    app::deed(fate, consumes.map_or(0, |consume| consume.group), held.attempt)
}

fn verdict(given: Given) -> Verdict {
    match given {
        Given::Done => Verdict::Done,
        Given::Retry => Verdict::Retry { reason: "again".into(), after: None },
        Given::Reject => Verdict::Reject { reason: "never".into() },
        Given::Release => Verdict::Release { started: true },
    }
}
