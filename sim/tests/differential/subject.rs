//! What is compared with a real server: the model, or a second server to try the comparison itself.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use flota_sim::broker::{Broker, ClientId, Out, Profile, ServerTime, Value};
use flota_sim::wire::encode;

use crate::server::{Connection, Kind, NoReply, Server};
use crate::wire::{self, Wire};

/// What a subject does for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    Reply(usize, Wire),
    Close(usize),
}

/// Something that takes commands. Connections are numbered by the caller; a number is used again after a close.
pub trait Subject {
    /// Begins anew, without data and connections.
    fn reset(&mut self);
    /// Opens a connection. Returns its number as `CLIENT ID` tells it.
    fn connect(&mut self, connection: usize) -> i64;
    /// Executes a command. Time is given in microseconds and used by what has no clock.
    fn execute(&mut self, at_us: u64, connection: usize, args: &[Bytes]) -> Vec<Sent>;
    /// So long nothing happened that what waits for a moment has been answered.
    fn wait(&mut self, at_us: u64, connection: usize) -> Vec<Sent>;
    /// Whether a connection is in a blocking command.
    fn is_blocked(&self, connection: usize) -> bool;
    /// What it was asked that it does not know.
    fn gaps(&self) -> Vec<String>;
}

/// The wall clock, in microseconds since 1970.
#[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "real servers have real clocks")]
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since.as_micros()).expect("a clock before the year 500,000")
}

/// The model.
pub struct Model {
    profile: Profile,
    broker: Broker,
    clients: Vec<ClientId>,
    next: u64,
}

impl Model {
    pub fn new(kind: Kind) -> Self {
        let profile = match kind {
            Kind::Redis62 => Profile::redis_6_2(),
            Kind::Redis70 => Profile::redis_7_0(),
            Kind::Valkey81 => Profile::valkey_8_1(),
        };
        // As the test starts its servers.
        let profile = Profile { appendonly: false, tick_us: 10_000, ..profile };
        Self { broker: Broker::new(profile.clone(), &"0".repeat(40)), profile, clients: Vec::new(), next: 1 }
    }

    fn sent(&mut self, out: Vec<Out>) -> Vec<Sent> {
        let at = |client: ClientId| self.clients.iter().position(|known| *known == client).expect("a known client");
        let sent = out.into_iter().map(|out| match out {
            Out::Reply(client, value) => Sent::Reply(at(client), on_the_wire(&value, self.broker.resp(client))),
            Out::Close(client) => Sent::Close(at(client)),
        });
        sent.collect()
    }
}

impl Subject for Model {
    fn reset(&mut self) {
        self.broker = Broker::new(self.profile.clone(), &"0".repeat(40));
        self.clients.clear();
    }

    fn connect(&mut self, connection: usize) -> i64 {
        let client = ClientId(self.next);
        self.next += 1;
        self.clients.resize(self.clients.len().max(connection + 1), ClientId(0));
        self.clients[connection] = client;
        self.broker.connect(ServerTime(now_us()), client, "/socket:0");
        let reply = self.execute(now_us(), connection, &[Bytes::from("CLIENT"), Bytes::from("ID")]);
        match reply.as_slice() {
            [Sent::Reply(_, Wire::Int(number))] => *number,
            _ => panic!("CLIENT ID was answered with {reply:?}"),
        }
    }

    fn execute(&mut self, at_us: u64, connection: usize, args: &[Bytes]) -> Vec<Sent> {
        let mut out = Vec::new();
        self.broker.execute(ServerTime(at_us), self.clients[connection], args, &mut out);
        self.sent(out)
    }

    fn wait(&mut self, at_us: u64, _: usize) -> Vec<Sent> {
        let mut out = Vec::new();
        self.broker.tick(ServerTime(at_us + 1_000_000), &mut out);
        self.sent(out)
    }

    fn is_blocked(&self, connection: usize) -> bool {
        self.broker.is_blocked(self.clients[connection])
    }

    fn gaps(&self) -> Vec<String> {
        self.broker.gaps().to_vec()
    }
}

/// A second server.
pub struct Twin {
    server: Server,
    connections: Vec<Connection>,
    observer: Connection,
    blocked: Vec<bool>,
}

impl Twin {
    pub fn new(server: Server) -> Self {
        let observer = server.connect();
        Self { server, connections: Vec::new(), observer, blocked: Vec::new() }
    }

    fn collect(&mut self, asked: usize) -> Vec<Sent> {
        self.observer.settle();
        let mut sent = Vec::new();
        for (at, connection) in self.connections.iter_mut().enumerate() {
            let before = sent.len();
            loop {
                match connection.read_now() {
                    Ok(wire) => sent.push(Sent::Reply(at, wire)),
                    Err(NoReply::Silent) => break,
                    Err(NoReply::Closed) => {
                        sent.push(Sent::Close(at));
                        break;
                    }
                }
            }
            if at == asked {
                self.blocked[at] = sent.len() == before;
            } else if sent.len() > before {
                self.blocked[at] = false;
            }
        }
        sent
    }
}

impl Subject for Twin {
    fn reset(&mut self) {
        self.connections.clear();
        self.blocked.clear();
        self.observer.settle();
        for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
            self.observer.ask(command);
        }
    }

    fn connect(&mut self, connection: usize) -> i64 {
        let mut fresh = self.server.connect();
        let Wire::Int(number) = fresh.ask(&["CLIENT", "ID"]) else { panic!("CLIENT ID is a number") };
        if connection < self.connections.len() {
            self.connections[connection] = fresh;
            self.blocked[connection] = false;
        } else {
            self.connections.push(fresh);
            self.blocked.push(false);
        }
        number
    }

    fn execute(&mut self, _: u64, connection: usize, args: &[Bytes]) -> Vec<Sent> {
        self.connections[connection].send(args);
        self.collect(connection)
    }

    fn wait(&mut self, _: u64, connection: usize) -> Vec<Sent> {
        let reply = self.connections[connection].read();
        self.blocked[connection] = false;
        reply.map(|wire| Sent::Reply(connection, wire)).into_iter().collect()
    }

    fn is_blocked(&self, connection: usize) -> bool {
        self.blocked[connection]
    }

    fn gaps(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The model's value written as it writes it, and read as a server's.
fn on_the_wire(value: &Value, protocol: u8) -> Wire {
    let mut bytes = Vec::new();
    encode(value, protocol, &mut bytes);
    match wire::parse(&bytes) {
        Ok(Some((wire, length))) if length == bytes.len() => wire,
        other => panic!("{value:?} was written as {:?} and read as {other:?}", wire::readable(&bytes)),
    }
}
