//! Engines in the state that a measurement starts from, and brokers that play along.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use flota_core::command::{Arg, Command};
use flota_core::config::Config;
use flota_core::engine::{Engine, Incarnation};
use flota_core::id::{ConnId, DeliveryId, Id};
use flota_core::op::{Op, Policy, Send, Sub, Verdict};
use flota_core::output::{Event, Output};
use flota_core::reply::{Reply, ReplyBuilder};
use flota_core::rng::Seed;
use flota_core::script::Script;
use flota_core::time::{Mono, Now, Wall};
use flota_core::topic::{Message, TopicSpec};

/// When every measurement begins, on both clocks.
pub const START: Now = Now { mono: Mono(3_600_000_000), wall: Wall(1_700_000_000_000) };

/// An engine with brokers that are ready.
#[derive(Debug)]
pub struct World {
    /// It.
    pub engine: Engine,
    /// When it is.
    pub now: Now,
    topic: Arc<TopicSpec>,
    body: Bytes,
    /// What nobody has answered.
    open: VecDeque<(ConnId, Command)>,
    deliveries: Vec<DeliveryId>,
}

impl World {
    /// This many configured brokers, ready, one topic registered on each.
    #[must_use]
    pub fn new(brokers: usize) -> Self {
        let addresses = (0..brokers).map(|n| format!("10.0.{}.{}:6379", n / 250, n % 250));
        let config = Config::brokers(addresses).expect("addresses");
        let engine = Engine::new(config, Incarnation(1), Seed::from_u64(7), START).expect("a valid configuration");
        let mut world = Self {
            engine,
            now: START,
            topic: TopicSpec::new("orders", 1).expect("a name"),
            body: Bytes::from(vec![b'x'; 64]),
            open: VecDeque::new(),
            deliveries: Vec::new(),
        };
        world.settle();
        (0..2 * brokers).for_each(|_| world.send_one());
        world
    }

    /// One broker with a subscription that reads there and has asked for entries.
    #[must_use]
    pub fn subscribed(in_flight: u32) -> Self {
        let mut world = Self::new(1);
        let sub = Sub { in_flight, ..Sub::new(world.topic.clone(), "billing") };
        world.engine.subscribe(world.now, sub).expect("a subscription");
        world.settle();
        world
    }

    /// Puts a send of 64 bytes in.
    ///
    /// # Panics
    ///
    /// If the engine refuses it.
    pub fn submit(&mut self) {
        let message = Message::new(self.body.clone());
        let send = Send { topic: self.topic.clone(), message, policy: Policy::AtLeastOnce, wait: None };
        self.engine.submit(self.now, Op::Send(send)).expect("room for a send");
    }

    /// The next command to a broker, on which connection, with no other outputs before it than events.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn command(&mut self) -> (ConnId, Command) {
        loop {
            match self.engine.poll_output() {
                // A driver reports once per write that commands have left; here each answer proves it for one.
                Output::Send { conn, command } => return (conn, command),
                Output::Event(Event::Delivery(delivery)) => self.deliveries.push(delivery.delivery),
                Output::Event(_) => {}
                other => panic!("a command is expected, not {other:?}"),
            }
        }
    }

    /// Takes an answer, and throws away what the engine says to it. How many events that were.
    pub fn answer(&mut self, conn: ConnId, reply: Reply) -> usize {
        self.engine.handle_reply(self.now, conn, reply);
        self.events()
    }

    /// Answers so many sends in one burst. How many events that gave.
    pub fn answer_burst(&mut self, conn: ConnId, sends: usize) -> usize {
        for _ in 0..sends {
            self.engine.handle_reply(self.now, conn, Reply::bulk(b"1700000000000-0"));
        }
        self.events()
    }

    /// A whole send: accepted, on the wire, answered, done.
    ///
    /// # Panics
    ///
    /// If it is not done then.
    pub fn send_one(&mut self) {
        self.submit();
        let (conn, command) = loop {
            match self.command() {
                (conn, command @ Command::Add(_)) => break (conn, command),
                (conn, command) => self.play(conn, command),
            }
        };
        drop(command);
        assert!(self.answer(conn, Reply::bulk(b"1700000000000-0")) > 0, "a send is done when it is answered");
    }

    /// Takes the answer to the read that is under way.
    ///
    /// # Panics
    ///
    /// If no read is.
    pub fn answer_read(&mut self, reply: Reply) {
        let at = self.open.iter().position(|(_, command)| matches!(command, Command::ReadGroup(_)));
        let (conn, _) = self.open.remove(at.expect("a read under way")).expect("found there");
        self.engine.handle_reply(self.now, conn, reply);
        self.events();
    }

    /// Settles every delivery in hand as done, in one burst, and has the acknowledgement answered. How many that were.
    ///
    /// # Panics
    ///
    /// If a delivery is stale.
    pub fn settle_all(&mut self) -> usize {
        let mut deliveries = std::mem::take(&mut self.deliveries);
        for delivery in &deliveries {
            self.engine.started(self.now, *delivery).expect("a fresh delivery");
            self.engine.settle(self.now, *delivery, Verdict::Done, false).expect("a delivery in hand");
        }
        let settled = deliveries.len();
        deliveries.clear();
        self.deliveries = deliveries;
        self.settle();
        settled
    }

    /// Plays the brokers until nothing is left to answer but reads.
    pub fn settle(&mut self) {
        loop {
            self.events();
            let is_read = |command: &Command| matches!(command, Command::ReadGroup(_));
            let Some(at) = self.open.iter().position(|(_, command)| !is_read(command)) else { return };
            let (conn, command) = self.open.remove(at).expect("found there");
            self.play(conn, command);
        }
    }

    /// Takes the engine's outputs until it waits. How many events there were.
    fn events(&mut self) -> usize {
        let mut events = 0;
        loop {
            match self.engine.poll_output() {
                Output::Wait(_) => return events,
                Output::Dial { conn, .. } => self.engine.handle_connected(self.now, conn),
                Output::Send { conn, command } => self.open.push_back((conn, command)),
                Output::Event(event) => {
                    events += 1;
                    if let Event::Delivery(delivery) = event {
                        self.deliveries.push(delivery.delivery);
                    }
                }
                Output::Hangup(_) | Output::Datagram { .. } => {}
            }
        }
    }

    fn play(&mut self, conn: ConnId, command: Command) {
        let reply = usual_answer(conn, &command);
        self.engine.handle_reply(self.now, conn, reply);
    }
}

/// What a healthy broker says to a command.
fn usual_answer(conn: ConnId, command: &Command) -> Reply {
    let mut build = ReplyBuilder::new();
    let this = conn.index();
    match command {
        Command::Hello(_) => build.map(1).bulk(b"proto").int(3),
        Command::ClientId => build.int(i64::from(this) + 1),
        Command::Info => {
            build.bulk(format!("run_id:run-{this}\r\nredis_version:7.2.0\r\nrole:master\r\nloading:0\r\n").as_bytes())
        }
        Command::NameStore(_) => build.nil(),
        Command::ReadStore => build.bulk(format!("store-{this}").as_bytes()),
        Command::Time => build.array(2).bulk(b"1700000000").bulk(b"0"),
        Command::Ping => build.status("PONG"),
        Command::Ack(ack) => build.int(ack.ids.len() as i64),
        Command::Consumers(..) => build.array(0),
        Command::Eval(eval, _) if eval.script == Script::Ensure => {
            let groups = eval.args.get(2..).unwrap_or_default();
            build.array(4).int(1).int(1).array(groups.len() as u32);
            for arg in groups {
                match arg {
                    Arg::Text(text) => build.bulk(text.as_bytes()),
                    Arg::Bytes(bytes) => build.bulk(bytes),
                    _ => build.bulk(b"1 live 0"),
                };
            }
            build.int(1)
        }
        Command::Eval(eval, _) if eval.script == Script::Due => {
            // Nothing waits for its time.
            build.array(3);
            build.array(2).int(-1).array(0);
            build.array(2).int(-1).array(0).array(0)
        }
        other => panic!("no usual answer to {other:?}"),
    };
    build.finish()
}

/// What a broker answers to a read that finds this many entries of 64 bytes, as bytes.
#[must_use]
pub fn read_reply(entries: usize) -> Vec<u8> {
    let key = "stream:topic:orders:p:0";
    let mut wire = format!("%1\r\n${}\r\n{key}\r\n*{entries}\r\n", key.len()).into_bytes();
    for entry in 0..entries {
        let id = format!("1700000000000-{entry}");
        let body = "x".repeat(64);
        let message = "018bcfe5-6800-7abc-8def-0123456789ab";
        let text = format!(
            "*2\r\n${}\r\n{id}\r\n*4\r\n$7\r\npayload\r\n$64\r\n{body}\r\n$2\r\nid\r\n$36\r\n{message}\r\n",
            id.len()
        );
        wire.extend_from_slice(text.as_bytes());
    }
    wire
}
