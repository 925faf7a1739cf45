//! A fleet with its timers and queues, and nobody else: what it says is text, so that an assertion reads as a story.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::*;
use crate::announce::Guid;
use crate::id::Id;
use crate::output::{Output, UnreadyReason, Warning};
use crate::stats::Stats;
use crate::time::{Mono, Now};
use crate::timers::Timers;

mod admission;
mod identity;
mod liveness;
mod model;

const A: &str = "10.0.4.12:6379";
const B: &str = "10.0.4.13:6379";
const C: &str = "10.0.4.14:6379";

struct World {
    config: Config,
    fleet: Fleet,
    timers: Timers<Timer>,
    out: VecDeque<Output>,
    effects: VecDeque<Effect>,
    stats: Stats,
    now: Mono,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::discover();
        change(&mut config);
        let fleet = Fleet::new(&config, Seed::from_u64(1));
        let mut world = Self {
            config,
            fleet,
            timers: Timers::new(),
            out: VecDeque::new(),
            effects: VecDeque::new(),
            stats: Stats::default(),
            // Not zero, so that nothing takes "never" for "just now".
            now: Mono(3_600_000_000),
        };
        world.run(Fleet::start);
        world
    }

    fn run<R>(&mut self, input: impl FnOnce(&mut Fleet, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx {
            now: Now { mono: self.now, ..Now::default() },
            config: &self.config,
            timers: &mut self.timers,
            out: &mut self.out,
            effects: &mut self.effects,
            stats: &mut self.stats,
        };
        input(&mut self.fleet, &mut cx)
    }

    fn datagram_from(&mut self, from: &str, datagram: &[u8]) {
        let from: SocketAddr = from.parse().expect("an address");
        self.run(|fleet, cx| fleet.on_datagram(from, datagram, cx));
        self.fire();
    }

    fn datagram(&mut self, datagram: &[u8]) {
        self.datagram_from("10.0.4.1:40000", datagram);
    }

    fn up(&mut self, guid: u8, address: &str) {
        self.up_every(guid, address, "1");
    }

    fn up_every(&mut self, guid: u8, address: &str, seconds: &str) {
        self.datagram(format!("imq-broker\t{}\tup\t{address}\t{seconds}\tplain", guid_of(guid)).as_bytes());
    }

    fn down(&mut self, guid: u8, address: &str) {
        self.datagram(format!("imq-broker\t{}\tdown\t{address}", guid_of(guid)).as_bytes());
    }

    /// Lets time pass, stopping wherever a timer is due.
    fn pass(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(due) = self.timers.next().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.fire();
        }
        self.now = until;
    }

    fn pass_ms(&mut self, ms: u64) {
        self.pass(Duration::from_millis(ms));
    }

    fn fire(&mut self) {
        while let Some((_, timer)) = self.timers.pop_due(self.now) {
            self.run(|fleet, cx| match timer {
                Timer::Liveness(broker) => fleet.on_liveness(broker, cx),
                Timer::AdmissionReport => fleet.on_admission_report(cx),
                other => panic!("{other:?} is not the fleet's"),
            });
        }
    }

    fn at(&self, address: &str) -> BrokerId {
        let found = self.fleet.iter().find(|(_, member)| member.address().to_string() == address);
        found.unwrap_or_else(|| panic!("nobody is at {address}")).0
    }

    fn ready(&mut self, address: &str, run: &str) -> bool {
        let broker = self.at(address);
        self.run(|fleet, cx| fleet.on_ready(broker, run, cx))
    }

    fn unready(&mut self, address: &str, reason: UnreadyReason) {
        let broker = self.at(address);
        let why = Unready { reason, detail: String::new() };
        self.run(|fleet, cx| fleet.on_unready(broker, why, cx));
        self.fire();
    }

    fn forget(&mut self, broker: BrokerId) {
        self.run(|fleet, cx| fleet.forget(broker, cx));
    }

    /// What it wants from others since the last time.
    fn effects(&mut self) -> String {
        let effects: Vec<String> = self.effects.drain(..).map(|effect| format!("{effect:?}")).collect();
        effects.join(", ")
    }

    /// What it has told the application since the last time.
    fn events(&mut self) -> String {
        let events: Vec<String> = self.out.drain(..).map(|output| event_text(&output)).collect();
        events.join(", ")
    }

    /// Who takes sends, as in the file of cases: the address, the GUID, the alternatives.
    fn members(&self) -> String {
        let present = self.fleet.iter().filter(|(_, member)| !member.is_leaving());
        let mut members: Vec<String> = present.map(|(_, member)| member_text(member)).collect();
        members.sort();
        if members.is_empty() { "none".to_string() } else { members.join(", ") }
    }
}

fn guid_of(n: u8) -> Guid {
    match n {
        1 => Guid::parse("2cc7c345-3569-44bb-b57a-b72d729d7012"),
        2 => Guid::parse("99999999-3569-44bb-b57a-b72d729d7099"),
        n => Some(Guid::from_bytes([n; 16])),
    }
    .expect("a GUID")
}

fn guid_text(guid: Option<Guid>) -> String {
    let known = guid.and_then(|guid| (1..=255).find(|n| guid_of(*n) == guid));
    known.map_or("@-".to_string(), |n| format!("@{n}"))
}

fn address_text(address: &str) -> &str {
    match address {
        A => "A",
        B => "B",
        C => "C",
        other => other,
    }
}

fn member_text(member: &Member) -> String {
    let mut text = format!("{}{}", address_text(&member.address().to_string()), guid_text(member.guid()));
    for alternative in &member.rest.alternatives {
        text += &format!(" (alternative {})", alternative.address);
    }
    text
}

fn event_text(output: &Output) -> String {
    match output {
        Output::Event(Event::Broker(event)) => {
            let what = match &event.change {
                BrokerChange::Unready(why) => format!("Unready {}", why.reason),
                BrokerChange::Expired { silent_ms } => format!("Expired {silent_ms}"),
                other => format!("{other:?}"),
            };
            format!("{}{} {what}", address_text(&event.address.to_string()), guid_text(event.guid))
        }
        Output::Event(Event::Warning(warning)) => match &**warning {
            Warning::NotAdmitted { why, count, example } => format!("{why} {count} {example:?}"),
            Warning::SharedGuid { guid, addresses: [one, two] } => {
                let [one, two] = [one.to_string(), two.to_string()];
                format!("{} shared by {} {}", guid_text(Some(*guid)), address_text(&one), address_text(&two))
            }
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}
