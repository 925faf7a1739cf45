//! What is written down while a run goes on: its story, and what became of each message.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::run::Message;
use super::service::Verdict;
use crate::oracle::Ledger;
use crate::plan::{Plan, Trouble};
use crate::seen::{Hand, Host, Item, Seen, What};
use crate::world::app::{Call, TAG};

/// A line of a story.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// True time, in microseconds.
    pub(super) at: u64,
    /// Which message it is about; none if it is about everybody.
    pub(super) item: Option<Item>,
    pub(super) text: String,
}

pub(super) struct Notes {
    ledger: Ledger,
    lines: Vec<Line>,
    /// By message.
    calls: Vec<Calls>,
    /// By message, for people.
    names: Vec<String>,
    hands: BTreeMap<(u32, Hand), Item>,
    faults: Vec<Trouble>,
    sender: u32,
}

#[derive(Clone, Copy, Default)]
struct Calls {
    all: u32,
    done: u32,
}

impl Notes {
    /// `bodies` are as they are stored.
    pub(super) fn new(plan: &Plan, bodies: &[Bytes]) -> Self {
        Self {
            ledger: Ledger::new(plan),
            lines: Vec::new(),
            calls: vec![Calls::default(); bodies.len()],
            names: bodies.iter().map(|body| shown(own(body))).collect(),
            hands: BTreeMap::new(),
            faults: plan.faults.iter().map(|fault| fault.what.clone()).collect(),
            sender: (plan.services.len() as u32).saturating_sub(1),
        }
    }

    /// A handler was called.
    pub(super) fn called(&mut self, call: &Call, verdict: Verdict) {
        if let Some(calls) = self.calls.get_mut(call.item.0 as usize) {
            calls.all += 1;
            calls.done += u32::from(verdict == Verdict::Done);
        }
        let text = format!(
            "service {} (process {}): the handler is called with {}, delivery {}, and says {verdict:?}",
            call.service,
            call.life,
            self.name(call.item),
            call.attempt
        );
        let at = u64::try_from(call.at.as_micros()).unwrap_or(u64::MAX);
        self.lines.push(Line { at, item: Some(call.item), text });
    }

    pub(super) fn see(&mut self, seen: &Seen) {
        self.ledger.see(seen);
        let told = match seen.host {
            Host::World => self.tell_world(&seen.what),
            Host::Service(service) => self.tell_service(service, &seen.what),
            Host::Broker(broker) => match &seen.what {
                What::Up(_) => Some((None, format!("broker {broker} is up"))),
                What::Down => Some((None, format!("broker {broker} is down"))),
                What::Forgot(commands) if *commands > 0 => {
                    Some((None, format!("broker {broker} has forgotten {commands} changes")))
                }
                _ => None,
            },
        };
        if let Some((item, text)) = told {
            self.lines.push(Line { at: seen.at, item, text });
        }
    }

    fn tell_world(&self, what: &What) -> Option<(Option<Item>, String)> {
        let fault = |index: &u32| self.faults.get(*index as usize);
        match what {
            What::FaultBegins(index) => Some((None, format!("begins: {:?}", fault(index)?))),
            What::FaultEnds(index) => Some((None, format!("is over: {:?}", fault(index)?))),
            _ => None,
        }
    }

    fn tell_service(&mut self, service: u32, what: &What) -> Option<(Option<Item>, String)> {
        let who = if service == self.sender { "the sender".to_string() } else { format!("service {service}") };
        Some(match what {
            What::Born(life) if service != self.sender => (None, format!("{who} starts (process {life})")),
            What::Died(life) => (None, format!("{who} dies (process {life})")),
            What::Paused => (None, format!("{who} stands still")),
            What::Resumed => (None, format!("{who} goes on")),
            What::Submitted { item, accepted: Ok(()) } => (Some(*item), format!("{who} sends {}", self.name(*item))),
            What::Submitted { item, accepted: Err(why) } => {
                (Some(*item), format!("{who} is refused {}: {why}", self.name(*item)))
            }
            What::Done { item, result: Ok(place) } => {
                let broker = place.broker.map_or_else(|| "?".to_string(), |broker| broker.to_string());
                (Some(*item), format!("{who} hears that {} is stored on broker {broker}", self.name(*item)))
            }
            What::Done { item, result: Err(error) } => {
                (Some(*item), format!("{who} hears of {}: {error}", self.name(*item)))
            }
            What::Delivered(given) => {
                let item = given.item?;
                self.hands.insert((service, given.hand), item);
                let broker = given.broker.map_or_else(|| "?".to_string(), |broker| broker.to_string());
                (Some(item), format!("{who} is given {} by broker {broker}", self.name(item)))
            }
            What::Answered { hand, result } => {
                let item = self.hands.remove(&(service, *hand))?;
                (Some(item), format!("{who} hears what became of its verdict on {}: {result:?}", self.name(item)))
            }
            What::Overdue(hand) => {
                let item = self.hands.get(&(service, *hand)).copied()?;
                (Some(item), format!("{who}: the time of the handler of {} is over", self.name(item)))
            }
            _ => return None,
        })
    }

    fn name(&self, item: Item) -> &str {
        self.names.get(item.0 as usize).map_or("?", String::as_str)
    }

    /// What became of each message, and the story.
    pub(super) fn into_parts(self, plan: &Plan, topics: &[String], bodies: &[Bytes]) -> (Vec<Message>, Vec<Line>) {
        let outcomes = self.ledger.outcomes();
        let messages = bodies.iter().zip(&self.calls).zip(outcomes).zip(&self.ledger.items).zip(&plan.work);
        let messages = messages.map(|((((body, calls), outcome), state), work)| Message {
            topic: topics.get(usize::from(work.topic)).cloned().unwrap_or_default(),
            body: body.slice(TAG.min(body.len())..),
            sent: outcome.done,
            stored: u32::try_from(state.stores.len()).unwrap_or(u32::MAX),
            calls: calls.all,
            done: calls.done,
            dead: outcome.dead > 0,
        });
        let messages = messages.collect();
        (messages, self.lines)
    }
}

/// The author's part of what is stored.
fn own(body: &[u8]) -> &[u8] {
    body.get(TAG..).unwrap_or_default()
}

/// A body in a line: not more than a line takes.
fn shown(body: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(body);
    if text.chars().count() <= MOST {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(MOST).collect::<String>())
}
