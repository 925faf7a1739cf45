//! What the lines of a conversation mean: each is an input to an engine, and each output is a line.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use super::literal;
use crate::command::Command;
use crate::config::{Config, Credentials};
use crate::engine::watched::{START, Watched, Wire};
use crate::id::{BrokerId, ConnId, DeliveryId, OpId, SubId};
use crate::op::{Call, Op, Outcome, Policy, Send, Start, Sub, Verdict};
use crate::output::{BrokerChange, BrokerEvent, Closed, ClosedReason, Delivery, Event, Output};
use crate::script::Script;
use crate::time::{Mono, Wall};
use crate::topic::{Message, TopicSpec};

/// Says the lines of one conversation to an engine, and writes down what it answers.
#[derive(Default)]
pub(super) struct Runner {
    config: Option<Config>,
    seed: u64,
    watched: Option<Watched>,
    brokers: Names<BrokerId>,
    conns: Names<ConnId>,
    ops: Names<OpId>,
    subs: Names<SubId>,
    deliveries: Names<DeliveryId>,
    messages: Vec<String>,
    topics: BTreeMap<String, Arc<TopicSpec>>,
    /// Questions after what is due are shown, and answered by the conversation.
    due_shown: bool,
}

impl Runner {
    /// Says one line and returns the answer.
    pub(super) fn say(&mut self, line: &str) -> Vec<String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        if verb == "config" {
            self.configure(rest);
            return Vec::new();
        }
        let mut lines = self.begin();
        let mut outputs = self.input(verb, rest.trim(), &mut lines);
        if !self.due_shown {
            self.nothing_is_due(&mut outputs);
        }
        for output in outputs {
            let shown = self.show(&output);
            lines.push(shown);
        }
        lines
    }

    /// Answers what is asked at every contact and with every survey, where a conversation is about something else.
    fn nothing_is_due(&mut self, outputs: &mut Vec<Output>) {
        loop {
            let asked = |(_, wire): &(&ConnId, &Wire)| wire.unanswered.front().is_some_and(is_due);
            let Some(conn) = self.watched().wires.iter().find(asked).map(|(conn, _)| *conn) else { break };
            outputs.extend(self.watched().reply(conn, literal::reply("[[:-1 []] [:-1 []] []]")));
        }
        outputs.retain(|output| !matches!(output, Output::Send { command, .. } if is_due(command)));
    }

    fn begin(&mut self) -> Vec<String> {
        if self.watched.is_some() {
            return Vec::new();
        }
        let mut config = self.config.take().unwrap_or_else(Config::discover);
        config.service.get_or_insert_with(|| "svc".into());
        let (watched, first) = Watched::new(config, self.seed);
        self.watched = Some(watched);
        first.iter().map(|output| self.show(output)).collect()
    }

    fn watched(&mut self) -> &mut Watched {
        self.watched.as_mut().expect("begun")
    }

    fn input(&mut self, verb: &str, rest: &str, lines: &mut Vec<String>) -> Vec<Output> {
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let more = more.trim();
        match verb {
            "begin" => Vec::new(),
            "at" | "clock" => {
                let at = START.mono + duration(rest);
                let watched = self.watched();
                watched.now.wall.0 += i64::try_from(at.since(watched.now.mono).as_millis()).unwrap_or(0);
                watched.now.mono = at;
                if verb == "at" { watched.timeout() } else { Vec::new() }
            }
            "wait" => {
                let watched = self.watched();
                watched.now.mono = watched.wait.expect("the engine waits for a time");
                watched.timeout()
            }
            "datagram" => {
                let from = format!("{first}:63000").parse().expect("an address");
                self.watched().datagram(from, &datagram(more))
            }
            "connected" => {
                let conn = self.conns.find(rest);
                self.watched().connected(conn)
            }
            "sent" => {
                let conn = self.conns.find(first);
                self.watched().sent(conn, more.parse().expect("how many"))
            }
            "reply" => {
                let conn = self.conns.find(first);
                self.watched().reply(conn, literal::reply(more))
            }
            "closed" => {
                let conn = self.conns.find(first);
                self.watched().closed(conn, closed(more))
            }
            "handshake" => self.handshake(first, more),
            "send" => self.send(first, more, lines),
            "call" => {
                let broker = self.brokers.find(first);
                let words: Vec<bytes::Bytes> = more.split(' ').map(|word| word.to_string().into()).collect();
                self.submit(Op::Call(Call { broker, command: Command::Raw(words.into()) }), lines)
            }
            "cancel" => {
                let op = self.ops.find(rest);
                let (result, outputs) = self.watched().cancel(op);
                note_stale(result, lines);
                outputs
            }
            "subscribe" => self.subscribe(first, more, lines),
            "started" => {
                let delivery = self.deliveries.find(rest);
                let (result, outputs) = self.watched().started(delivery);
                note_stale(result, lines);
                outputs
            }
            "settle" => {
                let delivery = self.deliveries.find(first);
                let (more, tell) = more.strip_suffix(" tell").map_or((more, false), |more| (more, true));
                let (result, outputs) = self.watched().settle(delivery, verdict(more), tell);
                note_stale(result, lines);
                outputs
            }
            "all-started" => {
                let sub = self.subs.find(first);
                self.watched().all_started(sub)
            }
            "unsubscribe" => {
                let sub = self.subs.find(first);
                let (result, outputs) = self.watched().unsubscribe(sub, duration(more));
                note_stale(result, lines);
                outputs
            }
            "shutdown" => self.watched().shutdown(duration(rest)),
            other => panic!("nobody can say {other:?}"),
        }
    }

    fn configure(&mut self, text: &str) {
        let mut config = Config::discover();
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let timing = &mut config.timing;
            match name {
                "brokers" => {
                    config = Config { discovery: None, ..Config::brokers(value.split(',')).expect("addresses") }
                }
                "due" => self.due_shown = value == "shown",
                "seed" => self.seed = value.parse().expect("a number"),
                "login" => {
                    let (user, password) = value.split_once(':').expect("USER:PASSWORD");
                    config.credentials = Some(Arc::new(Credentials { user: user.into(), password: password.into() }));
                }
                "pipeline" => config.limits.pipeline = value.parse().expect("a number"),
                "backlog" => config.limits.backlog_ops = value.parse().expect("a number"),
                "block" => timing.block = duration(value),
                "response" => timing.response = duration(value),
                "idle_ping" => timing.idle_ping = duration(value),
                "send_init" => timing.send_init = duration(value),
                "drain" => timing.drain = duration(value),
                "forget" => timing.forget = duration(value),
                other => panic!("no such setting: {other:?}"),
            }
        }
        self.config = Some(config);
    }

    /// Plays the usual answers; what the engine says besides the handshake is the answer of this line.
    fn handshake(&mut self, name: &str, facts: &str) -> Vec<Output> {
        let conn = self.conns.find(name);
        let fact =
            |wanted: &str| facts.split_whitespace().find_map(|fact| fact.strip_prefix(wanted)?.strip_prefix('='));
        let mut rest = self.watched().connected(conn);
        while let Some(wire) = self.watched().wires.get(&conn) {
            let Some(command) = wire.unanswered.front() else { break };
            let reply = match command {
                Command::Hello(_) => "{server redis proto :3}".into(),
                Command::ClientId => format!(":{}", fact("client").unwrap_or("7")),
                Command::Info => format!("info {facts}"),
                Command::NameStore(_) => "_".into(),
                Command::ReadStore => format!("\"{}\"", fact("store").unwrap_or("store-0")),
                Command::Time => "[1700000000 000000]".into(),
                Command::Ping => "+PONG".into(),
                _ => break,
            };
            let sent = wire.unreported;
            rest.extend(self.watched().sent(conn, sent));
            rest.extend(self.watched().reply(conn, literal::reply(&reply)));
        }
        rest.retain(
            |output| !matches!(output, Output::Send { conn: on, command } if *on == conn && is_handshake(command)),
        );
        rest
    }

    fn send(&mut self, topic: &str, text: &str, lines: &mut Vec<String>) -> Vec<Output> {
        let (_, text) = text.split_once('"').expect("a body in quotes");
        let (body, options) = text.split_once('"').expect("a body in quotes");
        let mut send = Send {
            topic: self.topic(topic, 1),
            message: Message::new(body.to_string()),
            policy: Policy::AtLeastOnce,
            wait: None,
        };
        for word in options.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "once" => send.policy = Policy::AtMostOnce,
                "wait" => send.wait = Some(duration(value)),
                "delay" => send.message = send.message.delay(duration(value)),
                "at" => send.message = send.message.at(Wall(value.parse().expect("milliseconds"))),
                "key" => send.message = send.message.key(value.to_string()),
                "partitions" => send.topic = self.topic(topic, value.parse().expect("a number")),
                other => panic!("no such option of send: {other:?}"),
            }
        }
        self.submit(Op::Send(send), lines)
    }

    fn submit(&mut self, op: Op, lines: &mut Vec<String>) -> Vec<Output> {
        let (result, outputs) = self.watched().submit(op);
        match result {
            Ok(op) => {
                self.ops.name(op);
            }
            Err(rejected) => lines.push(format!("rejected {:?}", rejected.why)),
        }
        outputs
    }

    fn topic(&mut self, name: &str, partitions: u32) -> Arc<TopicSpec> {
        let spec = || TopicSpec::new(name, partitions).expect("a name");
        let known = self.topics.entry(name.into()).or_insert_with(spec);
        if known.partitions().len() < partitions as usize {
            *known = spec();
        }
        known.clone()
    }

    fn subscribe(&mut self, topic: &str, text: &str, lines: &mut Vec<String>) -> Vec<Output> {
        let (group, options) = text.split_once(' ').unwrap_or((text, ""));
        let mut sub = Sub::new(self.topic(topic, 1), group);
        for word in options.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "in_flight" => sub.in_flight = value.parse().expect("a number"),
                "partitions" => sub.topic = self.topic(topic, value.parse().expect("a number")),
                "limit" => sub.max_deliveries = value.parse().expect("a number"),
                "from_now" => sub.start = Start::Now,
                "claim_idle" => sub.claim_idle = duration(value),
                "claim_period" => sub.claim_period = duration(value),
                "handler_timeout" => sub.handler_timeout = duration(value),
                other => panic!("no such option of subscribe: {other:?}"),
            }
        }
        let (result, outputs) = self.watched().subscribe(sub);
        match result {
            Ok(sub) => {
                self.subs.name(sub);
            }
            Err(rejected) => lines.push(format!("rejected {:?}", rejected.why)),
        }
        outputs
    }

    /// Shuts the engine down: whatever state a conversation leaves it in, it answers everything and stops.
    pub(super) fn finish(&mut self) {
        self.begin();
        let watched = self.watched();
        watched.shutdown(Duration::ZERO);
        for _ in 0..1_000 {
            let Some(at) = watched.wait.filter(|_| !watched.stopped) else { break };
            watched.now.mono = at;
            watched.timeout();
        }
        assert!(watched.stopped, "it does not stop");
        assert!(watched.open.is_empty() && watched.subs.is_empty(), "stopped without answering everything");
        let from = "10.0.0.9:63000".parse().expect("an address");
        assert!(watched.datagram(from, &datagram("up A 10.9.9.9:6379 1")).is_empty());
    }

    // ---- showing ----

    pub(super) fn wait(&self) -> String {
        let wait = self.watched.as_ref().and_then(|watched| watched.wait);
        wait.map_or("none".into(), time)
    }

    fn show(&mut self, output: &Output) -> String {
        match output {
            Output::Dial { conn, to } => format!("dial c{} {to}", self.conns.name(*conn)),
            Output::Send { conn, command } => {
                let text = format!("{command:?}");
                format!("c{} {}", self.conns.name(*conn), self.shorten(&text))
            }
            Output::Hangup(conn) => format!("hangup c{}", self.conns.name(*conn)),
            Output::Datagram { to, payload } => {
                format!("datagram {to} {}", String::from_utf8_lossy(payload).replace('\t', " "))
            }
            Output::Event(event) => self.show_event(event),
            Output::Wait(_) => unreachable!("never collected"),
        }
    }

    fn show_event(&mut self, event: &Event) -> String {
        match event {
            Event::Broker(event) => self.show_broker(event),
            Event::Done { op, result } => {
                let op = self.ops.name(*op);
                let result = match result {
                    Ok(Outcome::Stored(stored)) => {
                        let id = self.shorten(&stored.id.to_string());
                        let broker = self.brokers.name(stored.broker);
                        match stored.due {
                            None => format!("stored {id} b{broker} p{} {}", stored.partition, stored.entry),
                            Some(due) => format!("scheduled {id} b{broker} p{} for {}", stored.partition, due.0),
                        }
                    }
                    Ok(Outcome::Reply(reply)) => format!("{:?}", reply.view()),
                    Err(error) => error.to_string(),
                };
                format!("done o{op} {result}")
            }
            Event::Delivery(delivery) => self.show_delivery(delivery),
            Event::Settled { delivery, result } => format!("settled d{} {result:?}", self.deliveries.name(*delivery)),
            Event::Overdue { sub, delivery } => {
                format!("overdue d{} s{}", self.deliveries.name(*delivery), self.subs.name(*sub))
            }
            Event::Unsubscribed { sub } => format!("unsubscribed s{}", self.subs.name(*sub)),
            Event::Warning(warning) => format!("warning {warning:?}"),
            Event::Stopped => "stopped".into(),
        }
    }

    fn show_broker(&mut self, event: &BrokerEvent) -> String {
        let change = match &event.change {
            BrokerChange::Announced => format!("announced {}", event.address),
            BrokerChange::Unready(why) if why.detail.is_empty() => format!("unready {}", why.reason),
            BrokerChange::Unready(why) => format!("unready {}: {}", why.reason, why.detail),
            other => format!("{other:?}").to_lowercase(),
        };
        format!("b{} {change}", self.brokers.name(event.broker))
    }

    fn show_delivery(&mut self, delivery: &Delivery) -> String {
        let body =
            delivery.batch.field(delivery.index as usize, b"payload").unwrap_or_default().escape_ascii().to_string();
        let attempt = if delivery.retry { format!(" attempt {}", delivery.attempt) } else { String::new() };
        format!(
            "deliver d{} s{} b{} {}{} {} #{}{attempt} \"{body}\"",
            self.deliveries.name(delivery.delivery),
            self.subs.name(delivery.sub),
            self.brokers.name(delivery.broker),
            if delivery.retry { 'r' } else { 'p' },
            delivery.partition,
            delivery.entry(),
            delivery.deliveries,
        )
    }

    /// Replaces what is long and says nothing: this process's name, message ids.
    fn shorten(&mut self, text: &str) -> String {
        let text = text.replace(PROCESS, "me");
        let shorten_word = |word: &str| match uuid::Uuid::try_parse(word) {
            Ok(_) if word.len() == 36 => {
                let known = self.messages.iter().position(|known| known == word);
                let n = known.unwrap_or_else(|| {
                    self.messages.push(word.into());
                    self.messages.len() - 1
                });
                format!("m{n}")
            }
            _ => word.into(),
        };
        let words: Vec<String> = text.split(' ').map(shorten_word).collect();
        words.join(" ")
    }
}

/// Numbers things in order of appearance.
struct Names<T>(Vec<T>);

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq + Copy + Debug> Names<T> {
    fn name(&mut self, thing: T) -> usize {
        self.0.iter().position(|known| *known == thing).unwrap_or_else(|| {
            self.0.push(thing);
            self.0.len() - 1
        })
    }

    /// The thing of a name like `c3`.
    fn find(&self, name: &str) -> T {
        let n: usize = name.get(1..).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no name: {name:?}"));
        *self.0.get(n).unwrap_or_else(|| panic!("{name} has not appeared yet"))
    }
}

/// The part of a consumer's name that no other process has.
const PROCESS: &str = "svc.0000000000000001";

/// The name that a server knows for one as it is written in a conversation.
pub(super) fn real_name(name: &str) -> String {
    name.strip_prefix("me.").map_or(name.into(), |n| format!("{PROCESS}.{n}"))
}

fn note_stale(result: Result<(), crate::op::Stale>, lines: &mut Vec<String>) {
    if result.is_err() {
        lines.push("stale".into());
    }
}

fn is_due(command: &Command) -> bool {
    matches!(command, Command::Eval(eval, _) if eval.script == Script::Due)
}

fn is_handshake(command: &Command) -> bool {
    matches!(
        command,
        Command::Hello(_)
            | Command::ClientId
            | Command::Info
            | Command::NameStore(_)
            | Command::ReadStore
            | Command::Time
            | Command::Ping
    )
}

fn closed(text: &str) -> Closed {
    let (reason, detail) = text.split_once(' ').unwrap_or((text, ""));
    let reason = match reason {
        "refused" => ClosedReason::Refused,
        "unresolved" => ClosedReason::Unresolved,
        "tls" => ClosedReason::Tls,
        "protocol" => ClosedReason::Protocol,
        "eof" => ClosedReason::Eof,
        "io" => ClosedReason::Io,
        other => panic!("nothing closes with {other:?}"),
    };
    Closed { reason, detail: detail.into() }
}

/// `up A 10.0.0.1:6379 1` or `down A 10.0.0.1:6379`, as it goes over the wire.
fn datagram(text: &str) -> Vec<u8> {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| match word.as_bytes() {
            [letter @ b'A'..=b'F'] => {
                let digits = |n| char::from(*letter).to_string().repeat(n);
                format!("{}-{}-{}-{}-{}", digits(8), digits(4), digits(4), digits(4), digits(12))
            }
            _ => word.into(),
        })
        .collect();
    match words.as_slice() {
        [status, guid, rest @ ..] => format!("imq-broker\t{guid}\t{status}\t{}", rest.join("\t")).into_bytes(),
        _ => text.as_bytes().to_vec(),
    }
}

fn verdict(text: &str) -> Verdict {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    match verb {
        "done" => Verdict::Done,
        "retry" => Verdict::Retry { reason: "failed".into(), after: rest.strip_prefix("after=").map(duration) },
        "reject" => Verdict::Reject { reason: rest.into() },
        "release" => Verdict::Release { started: rest == "started" },
        other => panic!("no verdict: {other:?}"),
    }
}

/// `2s`, `1.5s` or `200ms`, to the microsecond.
fn duration(text: &str) -> Duration {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1_000),
        None => (text.strip_suffix('s').unwrap_or_else(|| panic!("no duration: {text:?}")), 1_000_000),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part = format!("{part:0<6}");
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("no number: {text:?}"));
    Duration::from_micros(number(whole) * scale + number(&part) * scale / 1_000_000)
}

fn time(at: Mono) -> String {
    let us = at.since(START.mono).as_micros();
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

#[test]
fn times_read_as_they_are_shown() {
    for (text, us) in [("2s", 2_000_000), ("1.5s", 1_500_000), ("200ms", 200_000), ("0.000001s", 1)] {
        assert_eq!(duration(text), Duration::from_micros(us));
    }
    assert_eq!(time(START.mono + duration("1.05s")), "1.05s");
    assert_eq!(time(START.mono + duration("20s")), "20s");
}
