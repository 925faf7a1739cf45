//! A broker in the world: the model with a process, a clock, a disk and an announcer around it.

use std::collections::VecDeque;

use bytes::Bytes;
use flota_core::announce::{Address, Announcement, Guid, Host as AddressHost, Interval, Status, Transport};
use flota_core::script::Script;

use super::app;
use super::kernel::{Event, Kernel};
use super::net::{Cargo, Toward, broker_address};
use crate::broker::{Broker, Change, ClientId, Condition, Logged, Object, Out, Profile, ServerTime, Value, convert};
use crate::clock::EPOCH_MS;
use crate::plan::{BrokerPlan, Persistence};
use crate::seen::{Host, Line, What, Word};
use crate::wire::ProtocolError;

/// A broker.
pub(crate) struct BrokerHost {
    pub(crate) index: u32,
    pub(crate) model: Broker,
    pub(crate) up: bool,
    /// Its process's starts so far.
    pub(crate) life: u32,
    /// The whole machine is gone: nobody even refuses.
    pub(crate) machine_down: bool,
    /// Accepts no further connections.
    pub(crate) crowded: bool,
    /// Stands still; what arrives waits.
    pub(crate) paused: bool,
    /// Commands take so many times as long.
    pub(crate) slow: u32,
    /// Its clock's distance from true time.
    pub(crate) offset_us: i64,
    pub(crate) announcer: Announcer,
    /// What changed, with the true time: what a crash can forget.
    disk: Vec<(u64, Logged)>,
    /// Connections with commands to execute, in the order of their arrival.
    waiting: VecDeque<Line>,
    stepping: bool,
    ticking_at: Option<u64>,
    out: Vec<Out>,
    gaps: usize,
}

/// Who announces a broker.
pub(crate) struct Announcer {
    /// Speaks at all.
    pub(crate) silent: bool,
    /// A second announcer with a GUID of its own.
    pub(crate) twice: bool,
    /// The interval it promises, in milliseconds.
    pub(crate) interval_ms: u64,
    /// Announces the second address instead.
    pub(crate) moved: bool,
    /// Datagrams of an older voice are no longer sent.
    pub(crate) voice: u32,
}

impl BrokerHost {
    pub(crate) fn new(index: u32, plan: &BrokerPlan) -> Self {
        Self {
            index,
            model: Broker::new(profile(plan), &run_id(index, 0)),
            up: false,
            life: 0,
            machine_down: false,
            crowded: false,
            paused: false,
            slow: 1,
            offset_us: plan.offset_ms * 1000,
            announcer: Announcer { silent: false, twice: false, interval_ms: plan.interval_ms, moved: false, voice: 0 },
            disk: Vec::new(),
            waiting: VecDeque::new(),
            stepping: false,
            ticking_at: None,
            out: Vec::new(),
            gaps: 0,
        }
    }

    /// The broker's clock.
    pub(crate) fn clock(&self, at: u64) -> ServerTime {
        let us = i128::from(EPOCH_MS) * 1000 + i128::from(at) + i128::from(self.offset_us);
        ServerTime(u64::try_from(us).unwrap_or(0))
    }

    // ---- its process ----

    /// Starts, with what its disk holds.
    pub(crate) fn start(&mut self, k: &mut Kernel) {
        if self.up {
            return;
        }
        self.life += 1;
        self.up = true;
        self.machine_down = false;
        self.model.restart(&run_id(self.index, self.life));
        self.model.watch_changes();
        self.model.keep_log(self.persistence(k) == Persistence::EverySecond);
        k.see(Host::Broker(self.index), What::Up(self.life));
        if self.announcer.interval_ms > 0 {
            self.speak_anew(k);
        }
    }

    /// Is killed. What the disk had not yet is forgotten, and with its machine it does not even say that it is gone.
    pub(crate) fn crash(&mut self, k: &mut Kernel, machine: bool) {
        if !self.up {
            return;
        }
        self.up = false;
        self.machine_down = machine;
        self.announcer.voice += 1;
        k.see(Host::Broker(self.index), What::Down);
        self.lose_connections(k, machine);
        self.forget(k, machine);
    }

    /// Ends in order: says goodbye, keeps everything.
    pub(crate) fn stop(&mut self, k: &mut Kernel) {
        if !self.up {
            return;
        }
        if self.announcer.interval_ms > 0 && !self.announcer.silent {
            for _ in 0..3 {
                self.say(k, Status::Down, self.guid());
            }
        }
        self.up = false;
        self.announcer.voice += 1;
        k.see(Host::Broker(self.index), What::Down);
        self.lose_connections(k, false);
    }

    fn lose_connections(&mut self, k: &mut Kernel, silently: bool) {
        self.waiting.clear();
        self.stepping = false;
        self.ticking_at = None;
        let mine: Vec<Line> = k
            .net
            .lines()
            .filter(|(_, conn)| conn.broker == Some(self.index) && conn.server_open)
            .map(|(line, _)| line)
            .collect();
        for line in mine {
            if let Some(conn) = k.net.get_mut(line) {
                conn.server_open = false;
                conn.inbox.clear();
            }
            if !silently {
                let reset = k.network.chance(500_000);
                k.part(line, Toward::Service, reset);
            }
            k.net.sweep(line);
        }
    }

    fn forget(&mut self, k: &mut Kernel, machine: bool) {
        let lost = match self.persistence(k) {
            Persistence::Always => return,
            Persistence::Never => {
                let forgotten = Broker::new(self.model.profile().clone(), &run_id(self.index, self.life));
                self.replace(k, forgotten, u64::MAX);
                return;
            }
            // A process that dies alone leaves what it wrote with the system.
            Persistence::EverySecond if !machine => return,
            Persistence::EverySecond => k.hosts.below(2_000_000),
        };
        let log = self.model.take_log();
        self.keep(k.at, log);
        let until = k.at.saturating_sub(lost);
        let kept = self.disk.partition_point(|(at, _)| *at <= until);
        let forgotten = self.disk.len() - kept;
        if forgotten == 0 {
            return;
        }
        self.disk.truncate(kept);
        let mut rebuilt = Broker::new(self.model.profile().clone(), &run_id(self.index, self.life));
        for (_, logged) in &self.disk {
            rebuilt.apply(logged);
        }
        self.replace(k, rebuilt, forgotten as u64);
    }

    /// The data set is another one now: the old one is gone, the new one is told from its beginning.
    fn replace(&mut self, k: &mut Kernel, by: Broker, forgotten: u64) {
        let host = Host::Broker(self.index);
        k.see(host, What::Forgot(forgotten));
        for (key, item) in self.model.db().items() {
            let gone = match item.object {
                Object::Stream(_) => Change::StreamGone { key: key.clone() },
                Object::Hash(_) => Change::HashGone { key: key.clone() },
                _ => continue,
            };
            k.see(host, What::Changed(Box::new(gone)));
        }
        self.model = by;
        for change in self.model.retell() {
            k.see(host, What::Changed(Box::new(change)));
        }
    }

    fn persistence(&self, k: &Kernel) -> Persistence {
        k.plan.brokers.get(self.index as usize).map_or(Persistence::Always, |plan| plan.persistence)
    }

    fn keep(&mut self, at: u64, log: Vec<Logged>) {
        self.disk.extend(log.into_iter().map(|logged| (at, logged)));
    }

    pub(crate) fn set_condition(&mut self, change: impl FnOnce(&mut Condition)) {
        let mut condition = self.model.condition();
        change(&mut condition);
        self.model.set_condition(condition);
    }

    // ---- its connections ----

    /// A connection is there.
    pub(crate) fn accept(&mut self, k: &mut Kernel, line: Line) {
        k.see(Host::Broker(self.index), What::Accepted(line));
        let at = self.clock(k.at);
        let address = format!("10.0.0.1:{}", 20_000 + line.0 % 40_000);
        let refusal = if self.crowded {
            Some(Value::error("ERR max number of clients reached"))
        } else {
            self.model.connect(at, ClientId(u64::from(line.0)), &address)
        };
        let Some(refusal) = refusal else { return };
        let Some(conn) = k.net.get_mut(line) else { return };
        conn.server_open = false;
        let bytes = load(conn, &refusal, 2);
        k.ship(line, Toward::Service, bytes);
        k.part(line, Toward::Service, false);
    }

    /// A connection is gone.
    pub(crate) fn learn_closed(&mut self, k: &mut Kernel, line: Line) {
        let Some(conn) = k.net.get_mut(line) else { return };
        if !conn.server_open {
            return;
        }
        conn.server_open = false;
        conn.inbox.clear();
        k.see(Host::Broker(self.index), What::Dropped(line));
        k.net.sweep(line);
        let at = self.clock(k.at);
        self.model.disconnect(at, ClientId(u64::from(line.0)));
        self.waiting.retain(|waits| *waits != line);
    }

    /// Bytes have arrived.
    pub(crate) fn receive(&mut self, k: &mut Kernel, line: Line, upto: u64) {
        let Some(conn) = k.net.get_mut(line) else { return };
        let before = conn.up.arrived;
        conn.up.arrived = before.max(upto);
        if !conn.server_open {
            // Nobody listens to it any more: whoever still writes is told, if there is a machine to tell.
            if !self.machine_down && conn.client_open {
                k.part(line, Toward::Service, true);
            }
            return;
        }
        let had = conn.inbox.len();
        if let Err(error) = take_commands(conn, before) {
            self.refuse_bytes(k, line, error);
            return;
        }
        let Some(conn) = k.net.get_mut(line) else { return };
        if conn.inbox.len() > had && !self.waiting.contains(&line) {
            self.waiting.push_back(line);
        }
        self.wake(k);
    }

    /// What arrived is no command: the connection is closed. No engine's driver may ever write such a thing.
    fn refuse_bytes(&mut self, k: &mut Kernel, line: Line, error: ProtocolError) {
        k.see(Host::Broker(self.index), What::Gap(format!("patience for what is no command: {error}")));
        let Some(conn) = k.net.get_mut(line) else { return };
        let bytes = load(conn, &Value::error(error), 2);
        k.ship(line, Toward::Service, bytes);
        self.learn_closed(k, line);
        k.part(line, Toward::Service, false);
    }

    /// Sees that the next step is on its way.
    pub(crate) fn wake(&mut self, k: &mut Kernel) {
        if self.stepping || self.waiting.is_empty() || !self.up || self.paused {
            return;
        }
        self.stepping = true;
        let typical = k.plan.brokers.get(self.index as usize).map_or(10, |plan| plan.service_us);
        let us = 1 + k.hosts.exponential(typical * u64::from(self.slow));
        k.after(us, Event::BrokerStep { broker: self.index, life: self.life });
    }

    /// Executes what one connection has sent.
    pub(crate) fn step(&mut self, k: &mut Kernel, life: u32) {
        if life != self.life || !self.up || self.paused {
            self.stepping = false;
            return;
        }
        self.stepping = false;
        let Some(line) = self.waiting.pop_front() else { return };
        let client = ClientId(u64::from(line.0));
        for _ in 0..COMMANDS_PER_STEP {
            if self.model.is_blocked(client) {
                break;
            }
            let Some(words) = k.net.get_mut(line).and_then(|conn| conn.inbox.pop_front()) else { break };
            self.execute(k, line, &words);
        }
        let more = k.net.get(line).is_some_and(|conn| conn.server_open && !conn.inbox.is_empty());
        if more && !self.model.is_blocked(client) {
            self.waiting.push_back(line);
        }
        self.look_after_blocked(k);
        self.wake(k);
    }

    /// Time is over for some that are blocked.
    pub(crate) fn tick(&mut self, k: &mut Kernel, life: u32) {
        if life != self.life || !self.up {
            return;
        }
        self.ticking_at = None;
        if self.paused {
            return;
        }
        let at = self.clock(k.at);
        let mut out = std::mem::take(&mut self.out);
        self.model.tick(at, &mut out);
        self.carry(k, &mut out);
        self.out = out;
        self.look_after_blocked(k);
        self.wake(k);
    }

    /// A command of an operator on the broker itself.
    pub(crate) fn operate(&mut self, k: &mut Kernel, words: &[&[u8]]) {
        if !self.up {
            return;
        }
        let words: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
        let at = self.clock(k.at);
        let operator = ClientId(u64::MAX);
        self.model.connect(at, operator, "127.0.0.1:1");
        self.execute(k, Line(u32::MAX), &words);
        self.model.disconnect(at, operator);
        self.look_after_blocked(k);
        self.wake(k);
    }

    /// An operator's tool trims every stream of messages, whoever still needs what is in them.
    pub(crate) fn trim(&mut self, k: &mut Kernel, keep: u32) {
        let is_partition =
            |key: &[u8]| std::str::from_utf8(key).is_ok_and(|key| flota_core::key::parse_partition(key).is_some());
        let streams: Vec<Bytes> =
            self.model.db().items().map(|(key, _)| key).filter(|key| is_partition(key)).cloned().collect();
        let keep = keep.to_string();
        for key in streams {
            self.operate(k, &[b"XTRIM", &key, b"MAXLEN", keep.as_bytes()]);
        }
    }

    fn execute(&mut self, k: &mut Kernel, line: Line, words: &[Bytes]) {
        let client = if line.0 == u32::MAX { ClientId(u64::MAX) } else { ClientId(u64::from(line.0)) };
        let at = self.clock(k.at);
        let mut out = std::mem::take(&mut self.out);
        self.model.execute(at, client, words, &mut out);
        let refused = out.iter().find_map(|out| match out {
            Out::Reply(to, Value::Error(text)) if *to == client => {
                Some(text.split(' ').next().unwrap_or_default().to_string())
            }
            // A script's own word for it.
            Out::Reply(to, Value::Array(items)) if *to == client && is_oom(items) => Some("OOM".to_string()),
            _ => None,
        });
        k.see(Host::Broker(self.index), What::Executed { line, command: classify(words), refused });
        self.carry(k, &mut out);
        self.out = out;
    }

    /// Records what changed, and sends what is to be sent.
    fn carry(&mut self, k: &mut Kernel, out: &mut Vec<Out>) {
        for change in self.model.take_changes() {
            k.see(Host::Broker(self.index), What::Changed(Box::new(change)));
        }
        let log = self.model.take_log();
        self.keep(k.at, log);
        if let Some(gap) = self.model.gaps().get(self.gaps) {
            self.gaps += 1;
            k.see(Host::Broker(self.index), What::Gap(gap.clone()));
        }
        for out in out.drain(..) {
            match out {
                Out::Reply(client, value) => {
                    let Some(line) = line_of(client) else { continue };
                    let resp = self.model.resp(client);
                    let Some(conn) = k.net.get_mut(line) else { continue };
                    let bytes = load(conn, &value, resp);
                    let gone = !conn.client_open;
                    let service = conn.service;
                    k.ship(line, Toward::Service, bytes);
                    if gone {
                        self.answer_to_nobody(k, line, service);
                    }
                    // One that was blocked may have more to execute.
                    if k.net.get(line).is_some_and(|conn| !conn.inbox.is_empty()) && !self.waiting.contains(&line) {
                        self.waiting.push_back(line);
                    }
                }
                Out::Close(client) => {
                    let Some(line) = line_of(client) else { continue };
                    self.learn_closed(k, line);
                    k.part(line, Toward::Service, false);
                }
            }
        }
    }

    /// What was sent to a machine that has forgotten the connection comes back as a reset, once that machine runs.
    fn answer_to_nobody(&mut self, k: &mut Kernel, line: Line, service: u32) {
        let barred = k.net.cut_until(service, self.index, Toward::Service).unwrap_or(k.at);
        let latency = k.latency();
        k.at(barred + 2 * latency, Event::BrokerLearns(line));
    }

    fn look_after_blocked(&mut self, k: &mut Kernel) {
        let Some(next) = self.model.next_tick() else { return };
        let clock = self.clock(k.at);
        let at = k.at + next.0.saturating_sub(clock.0);
        if self.ticking_at.is_none_or(|ticking| at < ticking) {
            self.ticking_at = Some(at);
            k.at(at, Event::BrokerTick { broker: self.index, life: self.life });
        }
    }

    /// It goes on after standing still.
    pub(crate) fn resume(&mut self, k: &mut Kernel) {
        self.paused = false;
        self.look_after_blocked(k);
        self.wake(k);
    }

    // ---- its announcer ----

    pub(crate) fn guid(&self) -> Guid {
        guid(self.index, self.life, 0)
    }

    /// Starts to announce, or starts over: with its first datagram at once.
    pub(crate) fn speak_anew(&mut self, k: &mut Kernel) {
        self.announcer.voice += 1;
        k.after(0, Event::Announce { broker: self.index, voice: self.announcer.voice });
    }

    pub(crate) fn announce(&mut self, k: &mut Kernel, voice: u32) {
        if voice != self.announcer.voice || self.announcer.interval_ms == 0 {
            return;
        }
        let condition = self.model.condition();
        if self.up && !self.paused && !self.announcer.silent && !condition.loading {
            let status =
                Status::Up { interval: Interval::from_millis(self.announcer.interval_ms), transport: Transport::Plain };
            self.say(k, status, self.guid());
            if self.announcer.twice {
                self.say(k, status, guid(self.index, self.life, 1));
            }
        }
        // A timer of another process: it drifts a little.
        let us = self.announcer.interval_ms * 1000;
        let next = us - us / 100 + k.hosts.below(us / 50 + 1);
        k.after(next, Event::Announce { broker: self.index, voice });
    }

    pub(crate) fn say(&self, k: &mut Kernel, status: Status, guid: Guid) {
        let address = broker_address(self.index, self.announcer.moved);
        let std::net::SocketAddr::V4(v4) = address else { return };
        let Ok(port) = std::num::NonZeroU16::try_from(v4.port()) else { return };
        let address = Address { host: AddressHost::V4(*v4.ip()), port };
        let announcement = Announcement { name: "imq-broker", guid, address, status };
        let mut payload = Vec::new();
        if announcement.encode(&mut payload).is_ok() {
            let from = std::net::SocketAddr::V4(v4);
            k.after(0, Event::Broadcast { from, payload: payload.into(), broker: Some(self.index) });
        }
    }
}

/// How many commands of one connection a server executes before it looks at another.
const COMMANDS_PER_STEP: usize = 16;

fn line_of(client: ClientId) -> Option<Line> {
    u32::try_from(client.0).ok().map(Line)
}

/// The commands that have arrived whole.
fn take_commands(conn: &mut super::net::Conn, before: u64) -> Result<(), ProtocolError> {
    let arrived = conn.up.arrived;
    match &mut conn.cargo {
        Cargo::Values { commands, .. } => {
            while commands.front().is_some_and(|(end, _)| *end <= arrived) {
                if let Some((_, command)) = commands.pop_front() {
                    conn.inbox.push_back(convert::words(&command));
                }
            }
        }
        Cargo::Bytes { up, requests, .. } => {
            let new = usize::try_from(arrived - before).unwrap_or(usize::MAX).min(up.len());
            let bytes: Vec<u8> = up.drain(..new).collect();
            requests.feed(&bytes);
            while let Some(words) = requests.next()? {
                conn.inbox.push_back(words);
            }
        }
    }
    Ok(())
}

/// Puts a reply behind those that are on their way, and says how long it is.
fn load(conn: &mut super::net::Conn, value: &Value, resp: u8) -> u64 {
    match &mut conn.cargo {
        Cargo::Values { replies, .. } => {
            let bytes = convert::encoded_len_value(value, resp) as u64;
            replies.push_back((conn.down.written + bytes, convert::reply(value, resp)));
            bytes
        }
        Cargo::Bytes { down, ends, .. } => {
            let mut bytes = Vec::new();
            crate::wire::encode(value, resp, &mut bytes);
            down.extend(&bytes);
            ends.push_back(conn.down.written + bytes.len() as u64);
            bytes.len() as u64
        }
    }
}

fn is_oom(items: &[Value]) -> bool {
    matches!(items, [Value::Bulk(word)] if word.as_ref() == b"oom")
}

/// Whether a message is put into a topic's bucket: that is a send.
fn is_schedule(words: &[Bytes]) -> bool {
    let (text, sha1) = (Script::Schedule.text(), Script::Schedule.sha1());
    words.get(1).is_some_and(|script| script == text || script == sha1)
}

/// What an oracle needs to know of a command.
pub(crate) fn classify(words: &[Bytes]) -> Word {
    let Some(name) = words.first() else { return Word::Other("") };
    match name.as_ref() {
        b"XADD" => Word::Add(app::item_in(words)),
        b"EVAL" | b"EVALSHA" if is_schedule(words) => Word::Add(app::item_in(words)),
        b"XACK" => Word::Ack(u32::try_from(words.len().saturating_sub(3)).unwrap_or(u32::MAX)),
        b"XREADGROUP" => Word::ReadGroup,
        b"XREAD" => Word::Read,
        b"EVALSHA" => words
            .get(1)
            .and_then(|sha| Script::ALL.into_iter().find(|script| script.sha1().as_bytes() == sha.as_ref()))
            .map_or(Word::Other("EVALSHA"), Word::Script),
        b"EVAL" => words
            .get(1)
            .and_then(|text| Script::ALL.into_iter().find(|script| script.text().as_bytes() == text.as_ref()))
            .map_or(Word::Other("EVAL"), Word::Script),
        b"HELLO" if words.iter().any(|word| word.as_ref() == b"AUTH") => Word::Auth,
        b"AUTH" => Word::Auth,
        b"HELLO" => Word::Other("HELLO"),
        b"PING" => Word::Other("PING"),
        b"INFO" => Word::Other("INFO"),
        b"CLIENT" => Word::Other("CLIENT"),
        b"TIME" => Word::Other("TIME"),
        b"GET" => Word::Other("GET"),
        b"SET" => Word::Other("SET"),
        b"XINFO" => Word::Other("XINFO"),
        _ => Word::Other("other"),
    }
}

fn profile(plan: &BrokerPlan) -> Profile {
    let mut profile = Profile::redis_7_0();
    profile.memory.max = plan.memory_max;
    profile
}

fn run_id(broker: u32, life: u32) -> String {
    format!("{broker:08x}{life:08x}{:024x}", u64::from(broker) << 20 | u64::from(life))
}

fn guid(broker: u32, life: u32, voice: u8) -> Guid {
    let mut bytes = [0x40 | voice; 16];
    bytes[..4].copy_from_slice(&broker.to_be_bytes());
    bytes[4..8].copy_from_slice(&life.to_be_bytes());
    bytes[8] = 0x80;
    Guid::from_bytes(bytes)
}
