//! The broker: the model server, its clock, and its data that may go back.

use bytes::Bytes;
use flota_core::key::{self, Key};
use flota_core::topic::lease::Contact;

use super::plan::{MS, S};
use crate::broker::{Broker, ClientId, Out, Profile, ServerTime, Value};
use crate::clock::EPOCH_MS;

/// Everything comes from one connection: who asks is in the arguments.
const CLIENT: ClientId = ClientId(1);

/// A server process after another, over one data set.
pub(super) struct Server {
    broker: Broker,
    copy: Option<Broker>,
    /// Counts processes: what was on its way to an earlier one is lost.
    pub(super) process: u64,
    pub(super) up: bool,
    ppm: i64,
    /// How far the clock has been set, in microseconds.
    offset_us: i64,
    started_us: u64,
    log: bool,
    script: Bytes,
    /// What the script is called by.
    pub(super) sha1: Bytes,
    pub(super) keys: [Key; 5],
}

impl Server {
    pub(super) fn new(ppm: i64, log: bool, partitions: u32, script: Bytes) -> Self {
        let keys = [
            key::lease("t", "g"),
            key::owners("t", "g"),
            key::lease_members("t", "g"),
            key::lease_rank("t", "g"),
            key::meta("t"),
        ];
        let broker = Broker::new(Profile::redis_7_0(), &run_id(0));
        let mut server = Self {
            broker,
            copy: None,
            process: 0,
            up: true,
            ppm,
            offset_us: 0,
            started_us: 0,
            log,
            script,
            sha1: Bytes::new(),
            keys,
        };
        server.started_us = server.clock_us(0);
        server.load(0);
        server.set_partitions(0, partitions);
        server
    }

    /// The server's clock at a true time.
    pub(super) fn clock_us(&self, at: u64) -> u64 {
        let own = i128::from(at) * i128::from(1_000_000 + self.ppm) / 1_000_000;
        let us = i128::from(EPOCH_MS) * 1_000 + own + i128::from(self.offset_us);
        u64::try_from(us).unwrap_or(0)
    }

    /// How much true time passes while the server counts so much.
    pub(super) fn true_us(&self, own_us: u64) -> u64 {
        own_us * 1_000_000 / u64::try_from(1_000_000 + self.ppm).unwrap_or(1_000_000)
    }

    pub(super) fn step(&mut self, by_ms: i64) {
        self.offset_us += by_ms * 1_000;
    }

    pub(super) fn copy(&mut self) {
        self.copy = Some(self.broker.clone());
    }

    pub(super) fn stop(&mut self) {
        self.up = false;
        self.process += 1;
    }

    /// Another process, over all data or over the last copy.
    pub(super) fn start(&mut self, at: u64, copy: bool, failover: bool) {
        if copy && let Some(copy) = &self.copy {
            self.broker = copy.clone();
        }
        self.broker.restart(&run_id(self.process));
        self.up = true;
        let now = self.clock_us(at);
        self.started_us = if failover { now - 3_600 * S } else { now };
        self.load(at);
    }

    /// The script is there before anybody asks for it by its checksum.
    fn load(&mut self, at: u64) {
        let now = self.clock_us(at);
        let _ = self.broker.connect(ServerTime(now), CLIENT, "10.0.0.1:1");
        let words = [Bytes::from_static(b"SCRIPT"), Bytes::from_static(b"LOAD"), self.script.clone()];
        if let Value::Bulk(sha1) = self.execute(at, &words) {
            self.sha1 = sha1;
        }
    }

    /// What a handshake reads.
    pub(super) fn contact(&self, at: u64) -> Contact {
        let now = self.clock_us(at);
        let uptime_s = (now / S).saturating_sub(self.started_us / S);
        let started_ms = i64::try_from((now / MS).saturating_sub(uptime_s * 1_000)).unwrap_or(i64::MAX);
        Contact { run: self.broker.run_id().into(), started_ms, log_lost_ms: self.log.then_some(3_000) }
    }

    /// Creates what a registration creates.
    pub(super) fn ensure(&mut self, at: u64, partitions: u32) {
        let meta = self.keys[4].as_str().to_string();
        self.ask(at, &["HSETNX", &meta, "partitions", &partitions.to_string()]);
    }

    pub(super) fn set_partitions(&mut self, at: u64, partitions: u32) {
        let meta = self.keys[4].as_str().to_string();
        self.ask(at, &["HSET", &meta, "partitions", &partitions.to_string()]);
    }

    /// The partitions there are, as far as leases go.
    pub(super) fn partitions(&mut self, at: u64) -> u32 {
        u32::try_from(self.field(at, "parts")).unwrap_or(u32::MAX)
    }

    /// Whether it grants nothing, because it may have forgotten grants.
    pub(super) fn is_in_grace(&mut self, at: u64) -> bool {
        self.field(at, "grace") != 0
    }

    /// A number of the state; 0 if it is not there.
    fn field(&mut self, at: u64, name: &str) -> u64 {
        let state = self.keys[0].as_str().to_string();
        match self.ask(at, &["HGET", &state, name]) {
            Value::Bulk(text) => std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(0),
            _ => 0,
        }
    }

    /// How many members it knows, and of how many it keeps the sequence number.
    pub(super) fn known(&mut self, at: u64) -> (usize, usize) {
        let [state, members] = [0, 2].map(|key| self.keys[key].as_str().to_string());
        let members = match self.ask(at, &["ZCARD", &members]) {
            Value::Int(n) => usize::try_from(n).unwrap_or(0),
            _ => 0,
        };
        let sequences = match self.ask(at, &["HKEYS", &state]) {
            Value::Array(names) => {
                names.iter().filter(|name| matches!(name, Value::Bulk(name) if name.starts_with(b"seq "))).count()
            }
            _ => 0,
        };
        (members, sequences)
    }

    /// Whether anything of leases is left.
    pub(super) fn has_state(&mut self, at: u64) -> bool {
        let state = self.keys[0].as_str().to_string();
        self.ask(at, &["EXISTS", &state]) == Value::Int(1)
    }

    pub(super) fn delete(&mut self, at: u64, key: usize) {
        let key = self.keys[key].as_str().to_string();
        self.ask(at, &["DEL", &key]);
    }

    pub(super) fn flush(&mut self, at: u64) {
        self.ask(at, &["FLUSHALL"]);
    }

    fn ask(&mut self, at: u64, words: &[&str]) -> Value {
        let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        self.execute(at, &words)
    }

    /// One command, and its reply.
    pub(super) fn execute(&mut self, at: u64, words: &[Bytes]) -> Value {
        let mut out = Vec::new();
        self.broker.execute(ServerTime(self.clock_us(at)), CLIENT, words, &mut out);
        let reply = out.into_iter().find_map(|out| match out {
            Out::Reply(_, value) => Some(value),
            Out::Close(_) => None,
        });
        reply.unwrap_or(Value::Nil)
    }

    pub(super) fn gaps(&self) -> &[String] {
        self.broker.gaps()
    }
}

/// 40 hexadecimal digits.
fn run_id(process: u64) -> String {
    format!("{process:040x}")
}
