//! What is compared with a real server: the model.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use flota_sim::broker::{Broker, ClientId, Condition, Out, Profile, ServerTime, Value};
use flota_sim::wire::encode;

use crate::generator::{PASSWORD, Trouble};
use crate::runner::OBSERVER;
use crate::server::Kind;
use crate::wire::{self, Wire};

/// What a subject does for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Reply(usize, Wire),
    Close(usize),
}

/// Something that takes commands. Connections are numbered by the caller; a number is used again after a close.
pub(crate) trait Subject {
    /// Begins anew, without data and connections.
    fn reset(&mut self, password: bool);
    /// From now on this is wrong with it.
    fn set_trouble(&mut self, trouble: Trouble);
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
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since.as_micros()).expect("a clock before the year 500,000")
}

/// The model.
pub(crate) struct Model {
    profile: Profile,
    broker: Broker,
    clients: Vec<ClientId>,
    next: u64,
}

impl Model {
    pub(crate) fn new(kind: Kind) -> Self {
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
    fn reset(&mut self, password: bool) {
        let password = password.then(|| PASSWORD.to_string());
        self.broker = Broker::new(Profile { password, ..self.profile.clone() }, &"0".repeat(40));
        self.clients.clear();
    }

    fn set_trouble(&mut self, trouble: Trouble) {
        self.broker.set_memory_max(u64::from(trouble == Trouble::MemoryFull));
        let no_replicas = trouble == Trouble::NoReplicas;
        self.broker.set_condition(Condition { no_replicas, ..Condition::default() });
    }

    fn connect(&mut self, connection: usize) -> i64 {
        let client = ClientId(self.next);
        self.next += 1;
        self.clients.resize(self.clients.len().max(connection + 1), ClientId(0));
        self.clients[connection] = client;
        self.broker.connect(ServerTime(now_us()), client, "/socket:0");
        let password = self.broker.profile().password.is_some();
        let mut ask = |command: &[&'static str]| {
            let args: Vec<_> = command.iter().map(|word| Bytes::from_static(word.as_bytes())).collect();
            self.execute(now_us(), connection, &args)
        };
        if password {
            ask(&["AUTH", PASSWORD]);
        }
        let reply = ask(&["CLIENT", "ID"]);
        if password && connection != OBSERVER {
            ask(&["RESET"]);
        }
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

/// The model's value written as it writes it, and read as a server's.
fn on_the_wire(value: &Value, protocol: u8) -> Wire {
    let mut bytes = Vec::new();
    encode(value, protocol, &mut bytes);
    match wire::parse(&bytes) {
        Ok(Some((wire, length))) if length == bytes.len() => wire,
        other => panic!("{value:?} was written as {:?} and read as {other:?}", wire::readable(&bytes)),
    }
}
