//! Commands as typed values, and one walk over their arguments.
//!
//! The RESP writer, a model broker and `Debug` are three sinks of the same walk, so what a simulation executes is what
//! a server receives.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::config::Credentials;
use crate::key::{self, Key};
use crate::reply::StreamId;
use crate::script::Script;

/// What receives the arguments of a command, in order.
pub trait ArgSink {
    /// How many arguments follow.
    fn count(&mut self, n: usize);
    /// A constant word.
    fn word(&mut self, word: &'static str);
    /// Any bytes.
    fn bytes(&mut self, bytes: &[u8]);
    /// A body: like `bytes`, for sinks that can keep it without a copy.
    fn body(&mut self, body: &Bytes) {
        self.bytes(body);
    }
    /// A number, in decimal.
    fn int(&mut self, n: i64);
    /// A stream entry id, `ms-seq`.
    fn id(&mut self, id: StreamId);
    /// A UUID in its 36-character form.
    fn uuid(&mut self, uuid: &[u8; 16]);
}

/// One command for one connection. Hot ones are variants of their own; rare ones hold a box.
#[derive(Clone)]
pub enum Command {
    /// `HELLO 3 [AUTH …] SETNAME …`: the first word on every connection.
    Hello(Box<Hello>),
    /// `AUTH`, where `HELLO` is unknown.
    Auth(Arc<Credentials>),
    /// `CLIENT SETNAME`, where `HELLO` is unknown.
    SetName(Arc<str>),
    /// `CLIENT ID`: what `UNBLOCK` and `KILL` need later.
    ClientId,
    /// `INFO`: run id, role, version, memory policy, persistence.
    Info,
    /// `PING`.
    Ping,
    /// `TIME`.
    Time,
    /// `SET streaming:mq:store … NX`: names the data set if nobody has.
    NameStore(Box<[u8; 16]>),
    /// `GET streaming:mq:store`.
    ReadStore,
    /// `CLIENT UNBLOCK`: ends a blocking read without losing what it has.
    Unblock(i64),
    /// `CLIENT KILL ID`: makes sure that a lost reader takes nothing more.
    Kill(i64),
    /// `XADD`.
    Add(Add),
    /// `XACK`.
    Ack(Ack),
    /// `XREADGROUP … >`.
    ReadGroup(Box<ReadGroup>),
    /// `XREAD`: waits for news without taking anything.
    Read(Box<Read>),
    /// `XINFO CONSUMERS`.
    Consumers(Key, Arc<str>),
    /// A script, by checksum or by text.
    Eval(Arc<Eval>, By),
    /// Any words: for administration.
    Raw(Box<[Bytes]>),
}

/// `HELLO`'s arguments.
#[derive(Clone)]
pub struct Hello {
    /// Credentials, if the fleet wants any.
    pub credentials: Option<Arc<Credentials>>,
    /// The connection's name.
    pub name: Arc<str>,
}

/// `XADD key * payload … id …`, and what goes with it.
#[derive(Clone)]
pub struct Add {
    /// The stream.
    pub key: Key,
    /// The body.
    pub body: Bytes,
    /// The message id.
    pub id: [u8; 16],
    /// Message key and headers; absent for the plain message.
    pub extra: Option<Arc<Extra>>,
}

/// Fields that most messages do not have. Each field costs time on both sides of the wire.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// The message key.
    pub key: Option<Bytes>,
    /// Field name (`h:` and the header's name) and value.
    pub headers: Vec<(Bytes, Bytes)>,
}

/// `XACK key group id…`
#[derive(Clone)]
pub struct Ack {
    /// The stream.
    pub key: Key,
    /// The group.
    pub group: Arc<str>,
    /// Which entries.
    pub ids: Vec<StreamId>,
}

/// `XREADGROUP GROUP group consumer COUNT count [BLOCK ms] STREAMS key… >…`
#[derive(Clone)]
pub struct ReadGroup {
    /// The group.
    pub group: Arc<str>,
    /// The consumer.
    pub consumer: Arc<str>,
    /// Entries per stream: `COUNT` counts for each stream on its own.
    pub count: u32,
    /// How long to wait for the first entry, in milliseconds.
    pub block_ms: Option<u32>,
    /// The streams.
    pub keys: Vec<Key>,
}

/// `XREAD COUNT 1 BLOCK ms STREAMS key… id…`
#[derive(Clone)]
pub struct Read {
    /// How long to wait, in milliseconds.
    pub block_ms: u32,
    /// The streams, each with the id after which to look.
    pub from: Vec<(Key, StreamId)>,
}

/// A script with its keys and arguments.
#[derive(Clone, Debug)]
pub struct Eval {
    /// Which.
    pub script: Script,
    /// `KEYS`.
    pub keys: Vec<Key>,
    /// `ARGV`.
    pub args: Vec<Arg>,
}

/// How a script is named to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `EVALSHA`: the server is believed to have it.
    Sha1,
    /// `EVAL`: runs and loads it.
    Text,
}

/// An argument of a script.
#[derive(Clone, PartialEq, Eq)]
pub enum Arg {
    /// A constant.
    Word(&'static str),
    /// A name.
    Text(Arc<str>),
    /// Any bytes.
    Bytes(Bytes),
    /// A number.
    Int(i64),
    /// A stream entry id.
    Id(StreamId),
}

impl From<i64> for Arg {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl From<u32> for Arg {
    fn from(n: u32) -> Self {
        Self::Int(i64::from(n))
    }
}

impl From<StreamId> for Arg {
    fn from(id: StreamId) -> Self {
        Self::Id(id)
    }
}

impl From<&Arc<str>> for Arg {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(text.clone())
    }
}

impl From<&'static str> for Arg {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl Command {
    /// Walks over the arguments, command name included.
    pub fn args(&self, sink: &mut impl ArgSink) {
        match self {
            Self::Add(add) => add.args(sink),
            Self::Ack(ack) => ack.args(sink),
            Self::ReadGroup(read) => read.args(sink),
            Self::Read(read) => read.args(sink),
            Self::Eval(eval, by) => eval.args(*by, sink),
            Self::Hello(hello) => hello.args(sink),
            Self::Auth(credentials) => auth(credentials, sink),
            Self::SetName(name) => {
                words(sink, 3, &["CLIENT", "SETNAME"]);
                sink.bytes(name.as_bytes());
            }
            Self::ClientId => words(sink, 2, &["CLIENT", "ID"]),
            Self::Info => words(sink, 1, &["INFO"]),
            Self::Ping => words(sink, 1, &["PING"]),
            Self::Time => words(sink, 1, &["TIME"]),
            Self::NameStore(id) => {
                words(sink, 4, &["SET", key::STORE]);
                sink.uuid(id);
                sink.word("NX");
            }
            Self::ReadStore => words(sink, 2, &["GET", key::STORE]),
            Self::Unblock(client) => {
                words(sink, 3, &["CLIENT", "UNBLOCK"]);
                sink.int(*client);
            }
            Self::Kill(client) => {
                words(sink, 4, &["CLIENT", "KILL", "ID"]);
                sink.int(*client);
            }
            Self::Consumers(key, group) => {
                words(sink, 4, &["XINFO", "CONSUMERS"]);
                sink.bytes(key.as_str().as_bytes());
                sink.bytes(group.as_bytes());
            }
            Self::Raw(all) => {
                sink.count(all.len());
                all.iter().for_each(|word| sink.bytes(word));
            }
        }
    }

    /// How long the server may block on it, in milliseconds: the reply's deadline is that much later.
    #[must_use]
    pub fn block_ms(&self) -> Option<u32> {
        match self {
            Self::ReadGroup(read) => read.block_ms,
            Self::Read(read) => Some(read.block_ms),
            Self::Hello(_)
            | Self::Auth(_)
            | Self::SetName(_)
            | Self::ClientId
            | Self::Info
            | Self::Ping
            | Self::Time
            | Self::NameStore(_)
            | Self::ReadStore
            | Self::Unblock(_)
            | Self::Kill(_)
            | Self::Add(_)
            | Self::Ack(_)
            | Self::Consumers(..)
            | Self::Eval(..)
            | Self::Raw(_) => None,
        }
    }
}

fn words(sink: &mut impl ArgSink, count: usize, words: &[&'static str]) {
    sink.count(count);
    words.iter().for_each(|word| sink.word(word));
}

fn auth(credentials: &Credentials, sink: &mut impl ArgSink) {
    if credentials.user.is_empty() {
        words(sink, 2, &["AUTH"]);
    } else {
        words(sink, 3, &["AUTH"]);
        sink.bytes(credentials.user.as_bytes());
    }
    sink.bytes(credentials.password.as_bytes());
}

impl Hello {
    fn args(&self, sink: &mut impl ArgSink) {
        words(sink, 4 + if self.credentials.is_some() { 3 } else { 0 }, &["HELLO", "3"]);
        if let Some(credentials) = &self.credentials {
            sink.word("AUTH");
            // `HELLO` wants a user name; "default" is the one that `requirepass` guards.
            let user = if credentials.user.is_empty() { "default" } else { &credentials.user };
            sink.bytes(user.as_bytes());
            sink.bytes(credentials.password.as_bytes());
        }
        sink.word("SETNAME");
        sink.bytes(self.name.as_bytes());
    }
}

impl Add {
    fn args(&self, sink: &mut impl ArgSink) {
        let extra = self.extra.as_deref();
        let more = extra.map_or(0, |e| 2 * (usize::from(e.key.is_some()) + e.headers.len()));
        sink.count(7 + more);
        sink.word("XADD");
        sink.bytes(self.key.as_str().as_bytes());
        sink.word("*");
        sink.word("payload");
        sink.body(&self.body);
        sink.word("id");
        sink.uuid(&self.id);
        if let Some(extra) = extra {
            if let Some(key) = &extra.key {
                sink.word("key");
                sink.bytes(key);
            }
            for (name, value) in &extra.headers {
                sink.bytes(name);
                sink.bytes(value);
            }
        }
    }
}

impl Ack {
    fn args(&self, sink: &mut impl ArgSink) {
        sink.count(3 + self.ids.len());
        sink.word("XACK");
        sink.bytes(self.key.as_str().as_bytes());
        sink.bytes(self.group.as_bytes());
        self.ids.iter().for_each(|id| sink.id(*id));
    }
}

impl ReadGroup {
    fn args(&self, sink: &mut impl ArgSink) {
        sink.count(7 + if self.block_ms.is_some() { 2 } else { 0 } + 2 * self.keys.len());
        sink.word("XREADGROUP");
        sink.word("GROUP");
        sink.bytes(self.group.as_bytes());
        sink.bytes(self.consumer.as_bytes());
        sink.word("COUNT");
        sink.int(i64::from(self.count));
        if let Some(ms) = self.block_ms {
            sink.word("BLOCK");
            sink.int(i64::from(ms));
        }
        sink.word("STREAMS");
        self.keys.iter().for_each(|key| sink.bytes(key.as_str().as_bytes()));
        self.keys.iter().for_each(|_| sink.word(">"));
    }
}

impl Read {
    fn args(&self, sink: &mut impl ArgSink) {
        sink.count(6 + 2 * self.from.len());
        sink.word("XREAD");
        sink.word("COUNT");
        sink.int(1);
        sink.word("BLOCK");
        sink.int(i64::from(self.block_ms));
        sink.word("STREAMS");
        self.from.iter().for_each(|(key, _)| sink.bytes(key.as_str().as_bytes()));
        self.from.iter().for_each(|(_, id)| sink.id(*id));
    }
}

impl Eval {
    fn args(&self, by: By, sink: &mut impl ArgSink) {
        sink.count(3 + self.keys.len() + self.args.len());
        match by {
            By::Sha1 => {
                sink.word("EVALSHA");
                sink.word(self.script.sha1());
            }
            By::Text => {
                sink.word("EVAL");
                sink.word(self.script.text());
            }
        }
        sink.int(i64::try_from(self.keys.len()).unwrap_or(i64::MAX));
        self.keys.iter().for_each(|key| sink.bytes(key.as_str().as_bytes()));
        for arg in &self.args {
            match arg {
                Arg::Word(word) => sink.word(word),
                Arg::Text(text) => sink.bytes(text.as_bytes()),
                Arg::Bytes(bytes) => sink.body(bytes),
                Arg::Int(n) => sink.int(*n),
                Arg::Id(id) => sink.id(*id),
            }
        }
    }
}

impl fmt::Debug for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Int(n) => n.fmt(f),
            Self::Id(id) => id.fmt(f),
        }
    }
}

impl fmt::Debug for Command {
    /// The words as a person would type them; a script by its name, a password not at all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(hello) => write!(f, "HELLO 3 … SETNAME {}", hello.name),
            Self::Auth(_) => f.write_str("AUTH …"),
            Self::Eval(eval, by) => {
                let verb = if *by == By::Sha1 { "EVALSHA" } else { "EVAL" };
                write!(f, "{verb} {:?} {:?} {:?}", eval.script, eval.keys, eval.args)
            }
            other => {
                let mut line = Line { f, first: true, result: Ok(()) };
                other.args(&mut line);
                line.result
            }
        }
    }
}

/// Prints arguments on one line.
struct Line<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
    result: fmt::Result,
}

impl Line<'_, '_> {
    fn put(&mut self, arg: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            let space = if core::mem::take(&mut self.first) { "" } else { " " };
            self.result = write!(self.f, "{space}{arg}");
        }
    }
}

impl ArgSink for Line<'_, '_> {
    fn count(&mut self, _: usize) {}
    fn word(&mut self, word: &'static str) {
        self.put(format_args!("{word}"));
    }
    fn bytes(&mut self, bytes: &[u8]) {
        const SHOWN: usize = 64;
        let more = if bytes.len() > SHOWN { "…" } else { "" };
        let shown = bytes.get(..bytes.len().min(SHOWN)).unwrap_or(bytes);
        self.put(format_args!("{}{more}", shown.escape_ascii()));
    }
    fn int(&mut self, n: i64) {
        self.put(format_args!("{n}"));
    }
    fn id(&mut self, id: StreamId) {
        self.put(format_args!("{id}"));
    }
    fn uuid(&mut self, uuid: &[u8; 16]) {
        self.put(format_args!("{}", uuid::Uuid::from_bytes(*uuid).as_hyphenated()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// Counts what a walk announces against what it delivers.
    #[derive(Default)]
    struct Counter {
        announced: usize,
        walked: usize,
    }

    impl ArgSink for Counter {
        fn count(&mut self, n: usize) {
            self.announced = n;
        }
        fn word(&mut self, _: &'static str) {
            self.walked += 1;
        }
        fn bytes(&mut self, _: &[u8]) {
            self.walked += 1;
        }
        fn int(&mut self, _: i64) {
            self.walked += 1;
        }
        fn id(&mut self, _: StreamId) {
            self.walked += 1;
        }
        fn uuid(&mut self, _: &[u8; 16]) {
            self.walked += 1;
        }
    }

    fn every_kind() -> Vec<Command> {
        let key = key::partition("t", 0);
        let id = StreamId { ms: 1, seq: 2 };
        let credentials = Arc::new(Credentials { user: "u".into(), password: "p".into() });
        let extra = Extra { key: Some("k".into()), headers: alloc::vec![("h:a".into(), "1".into())] };
        let add = Add { key: key.clone(), body: "b".into(), id: [7; 16], extra: None };
        let read = ReadGroup {
            group: "g".into(),
            consumer: "c".into(),
            count: 3,
            block_ms: Some(10),
            keys: alloc::vec![key.clone(), key.clone()],
        };
        let eval =
            Arc::new(Eval { script: Script::Renew, keys: alloc::vec![key.clone()], args: alloc::vec![id.into()] });
        alloc::vec![
            Command::Hello(Box::new(Hello { credentials: None, name: "n".into() })),
            Command::Hello(Box::new(Hello { credentials: Some(credentials.clone()), name: "n".into() })),
            Command::Auth(credentials),
            Command::Auth(Arc::new(Credentials { user: "".into(), password: "p".into() })),
            Command::SetName("n".into()),
            Command::ClientId,
            Command::Info,
            Command::Ping,
            Command::Time,
            Command::NameStore(Box::new([1; 16])),
            Command::ReadStore,
            Command::Unblock(5),
            Command::Kill(5),
            Command::Add(Add { extra: Some(Arc::new(extra)), ..add.clone() }),
            Command::Add(add),
            Command::Ack(Ack { key: key.clone(), group: "g".into(), ids: alloc::vec![id, id] }),
            Command::ReadGroup(Box::new(ReadGroup { block_ms: None, ..read.clone() })),
            Command::ReadGroup(Box::new(read)),
            Command::Read(Box::new(Read { block_ms: 5, from: alloc::vec![(key.clone(), id)] })),
            Command::Consumers(key, "g".into()),
            Command::Eval(eval.clone(), By::Sha1),
            Command::Eval(eval, By::Text),
            Command::Raw(alloc::vec![Bytes::from("DBSIZE")].into()),
        ]
    }

    #[test]
    fn every_walk_delivers_as_many_arguments_as_it_announces() {
        for command in every_kind() {
            let mut counter = Counter::default();
            command.args(&mut counter);
            assert_eq!(counter.announced, counter.walked, "{command:?}");
        }
    }

    #[test]
    fn debug_reads_like_a_command_line_and_keeps_secrets() {
        let shown: Vec<_> = every_kind().iter().map(|command| format!("{command:?}")).collect();
        assert!(shown.contains(&"XACK stream:topic:t:p:0 g 1-2 1-2".into()), "{shown:?}");
        assert!(shown.iter().all(|line| !line.contains(" p ")), "{shown:?}");
    }

    #[test]
    fn a_command_stays_small() {
        assert!(size_of::<Command>() <= 128, "{}", size_of::<Command>());
    }
}
