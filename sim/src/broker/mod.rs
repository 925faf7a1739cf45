//! The model broker: what a Redis or Valkey server does, as a pure function of its state, a time and a command.
//!
//! It has no clock, socket or thread. Whoever drives it says what time it is and carries replies; the same calls give
//! the same replies and the same state. A command it lacks is answered as a real server would answer an unknown one and is
//! also kept as a [gap](Broker::gaps): a simulation that meets one fails, because a silent answer proves nothing.

mod blocking;
mod call;
mod client;
mod commands;
pub mod convert;
mod db;
mod execute;
pub mod msgpack;
pub(crate) mod number;
mod profile;
mod retell;
mod script;
mod stream;
mod value;
mod zset;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

pub use call::{Block, Call, Reaction, Stop};
use client::Client;
pub use db::{Change, Db, Item, Object, Why};
pub use profile::{Memory, Profile};
pub use stream::{Consumer, Group, Pending, Stream};
pub use value::Value;

/// A connection, numbered by whoever drives the broker; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The server's wall clock, in microseconds since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime(pub u64);

impl ServerTime {
    /// Whole milliseconds: what expiry, idle times and generated ids count in.
    #[must_use]
    pub fn ms(self) -> i64 {
        i64::try_from(self.0 / 1000).unwrap_or(i64::MAX)
    }
}

/// What a broker wants done for a connection, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Out {
    /// Send this.
    Reply(ClientId, Value),
    /// Close it once everything before has been sent.
    Close(ClientId),
}

/// A command that changed data, and when: executed again in this order on an empty broker they give the same data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The server's clock when it took effect.
    pub at: ServerTime,
    /// The command; what was blocked appears in the form that does not block, when it was served.
    pub args: Vec<Bytes>,
}

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// It reads its data set: everything but a few commands is refused with `LOADING`.
    pub loading: bool,
    /// It is a replica: `role:slave`, and writes are refused with `READONLY`.
    pub read_only: bool,
    /// It could not persist: writes are refused with `MISCONF`.
    pub misconf: bool,
    /// It has too few replicas: writes are refused with `NOREPLICAS`.
    pub no_replicas: bool,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Broker {
    db: Db,
    profile: Profile,
    condition: Condition,
    /// `run_id`: one per process.
    run_id: String,
    /// When the process started: at the first thing it is told.
    started: Option<ServerTime>,
    clients: BTreeMap<ClientId, Client>,
    /// The number the next connection gets: what `CLIENT ID` answers.
    next_number: i64,
    /// Who waits for a key, the first one first.
    waiting: BTreeMap<Bytes, VecDeque<ClientId>>,
    /// When waits end that do not last for ever, in microseconds of server time.
    deadlines: BTreeSet<(u64, ClientId)>,
    channels: BTreeMap<Bytes, BTreeSet<ClientId>>,
    patterns: BTreeMap<Bytes, BTreeSet<ClientId>>,
    /// Scripts by the SHA-1 of their text, in hexadecimal.
    scripts: BTreeMap<String, Bytes>,
    /// Of the script that runs now: what it may do.
    script: ScriptState,
    /// What goes to connections before the reply to the command that runs now.
    pending: Vec<Out>,
    /// What goes to the connection after that reply.
    after_reply: Vec<Out>,
    /// Who is to be closed once the command that runs now has been answered.
    closing: Vec<ClientId>,
    /// The writes of the command, script or transaction that runs now.
    effects: Vec<Vec<Bytes>>,
    log: Option<Vec<Logged>>,
    gaps: Vec<String>,
    /// The size of the data as of this number of changes.
    measured: Option<(u64, u64)>,
    commands_processed: u64,
    connections_received: u64,
}

/// Of the script that runs now.
#[derive(Clone, Copy, Debug, Default)]
struct ScriptState {
    /// The memory was over its limit when it started.
    out_of_memory: bool,
    /// It changed something: from then on it may use more memory, so that it is not cut in two.
    wrote: bool,
}

/// Who replays a log.
const INTERNAL: ClientId = ClientId(u64::MAX);

impl Broker {
    /// A new process without data. `run_id` is 40 hexadecimal digits.
    #[must_use]
    pub fn new(profile: Profile, run_id: &str) -> Self {
        Self {
            db: Db::default(),
            profile,
            condition: Condition::default(),
            run_id: run_id.to_string(),
            started: None,
            clients: BTreeMap::new(),
            next_number: 1,
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            channels: BTreeMap::new(),
            patterns: BTreeMap::new(),
            scripts: BTreeMap::new(),
            script: ScriptState::default(),
            pending: Vec::new(),
            after_reply: Vec::new(),
            closing: Vec::new(),
            effects: Vec::new(),
            log: None,
            gaps: Vec::new(),
            measured: None,
            commands_processed: 0,
            connections_received: 0,
        }
    }

    /// A connection was accepted. `address` is the peer's, as `127.0.0.1:50000`. Returns what is to be sent before the
    /// connection is closed when there is no room for it.
    pub fn connect(&mut self, at: ServerTime, client: ClientId, address: &str) -> Option<Value> {
        self.started.get_or_insert(at);
        let limit = usize::try_from(self.profile.clients_max).unwrap_or(usize::MAX);
        if self.connected() >= limit {
            return Some(Value::error("ERR max number of clients reached"));
        }
        let authenticated = self.profile.password.is_none();
        let number = self.next_number;
        self.next_number += 1;
        self.connections_received += 1;
        self.clients.insert(client, Client::new(at, number, address, authenticated));
        None
    }

    /// How many connections there are.
    fn connected(&self) -> usize {
        self.clients.len() - usize::from(self.clients.contains_key(&INTERNAL))
    }

    /// A connection is gone. What it was doing is undone; what it did stays.
    pub fn disconnect(&mut self, _at: ServerTime, client: ClientId) {
        self.unpark(client);
        self.forget_watches(client);
        self.forget_subscriptions(client);
        self.clients.remove(&client);
    }

    /// Whether the connection waits in a blocking command: what it has sent since is not looked at until it has been
    /// answered, so keep it back.
    #[must_use]
    pub fn is_blocked(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.blocked.is_some())
    }

    /// The protocol a connection speaks, 2 or 3: how to write the next reply.
    #[must_use]
    pub fn resp(&self, client: ClientId) -> u8 {
        self.clients.get(&client).map_or(2, |client| client.resp)
    }

    /// Commands and options met so far that a real server may know and the model does not.
    #[must_use]
    pub fn gaps(&self) -> &[String] {
        &self.gaps
    }

    /// The same, forgotten here: for whoever runs for long.
    pub fn take_gaps(&mut self) -> Vec<String> {
        std::mem::take(&mut self.gaps)
    }

    /// The data.
    #[must_use]
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Which server this is.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// `run_id` as `INFO` shows it.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// `CONFIG SET maxmemory`; zero is no limit. The data is counted, a real server's own needs are not.
    pub fn set_memory_max(&mut self, bytes: u64) {
        self.profile.memory.max = bytes;
    }

    /// What is wrong with it from now on. Becoming a replica ends all waits and closes their connections: with the next
    /// [`tick`](Self::tick).
    pub fn set_condition(&mut self, condition: Condition) {
        let demoted = condition.read_only && !self.condition.read_only;
        self.condition = condition;
        let waiting: Vec<ClientId> =
            self.clients.iter().filter(|(_, c)| demoted && c.blocked.is_some()).map(|(id, _)| *id).collect();
        for client in waiting {
            let text = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
            self.unpark(client);
            self.pending.push(Out::Reply(client, Value::error(text)));
            self.pending.push(Out::Close(client));
            self.disconnect(ServerTime::default(), client);
        }
    }

    /// Removes a key as a server does that needs its memory; returns whether it was there. Logged as `DEL`.
    pub fn evict(&mut self, at: ServerTime, key: &Bytes, out: &mut Vec<Out>) -> bool {
        self.db.expire(key, at);
        let evicted = self.db.remove(key).is_some();
        if evicted {
            self.db.changed(key);
            self.effects.push(vec![Bytes::from_static(b"DEL"), key.clone()]);
            self.flush_effects(at);
        }
        self.serve(at, out);
        evicted
    }

    /// What is wrong with it now.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// A new process over the same data: connections, what they waited for or had begun, and scripts are gone.
    pub fn restart(&mut self, run_id: &str) {
        let mut fresh = Self::new(self.profile.clone(), run_id);
        std::mem::swap(&mut fresh.db, &mut self.db);
        fresh.db.watched.clear();
        fresh.db.ready.clear();
        fresh.log = self.log.take();
        fresh.gaps = std::mem::take(&mut self.gaps);
        fresh.condition = self.condition;
        *self = fresh;
    }

    /// Starts to record what happens to streams.
    pub fn watch_changes(&mut self) {
        self.db.changes.get_or_insert_default();
    }

    /// What happened to streams since the last time.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.db.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Starts or stops to keep the commands that change data.
    pub fn keep_log(&mut self, keep: bool) {
        self.log = keep.then(|| self.log.take().unwrap_or_default());
    }

    /// The commands that changed data since the last time. What a script or a transaction did stands between `MULTI`
    /// and `EXEC`, so that a log that is cut anywhere is applied as a whole or not at all.
    pub fn take_log(&mut self) -> Vec<Logged> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Does again what a log says. Conditions and limits do not apply, nobody is answered.
    pub fn apply(&mut self, logged: &Logged) {
        let internal = || Client { internal: true, ..Client::new(logged.at, 0, "", true) };
        self.clients.entry(INTERNAL).or_insert_with(internal);
        self.execute(logged.at, INTERNAL, &logged.args, &mut Vec::new());
    }
}
