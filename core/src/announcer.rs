//! Announcing a broker: `up` while it answers, `down` when it does not or is about to go.
//!
//! A broker is announced only while it answers `PING` and takes writes. Its GUID is made from the server's run id, so
//! it changes exactly when the server restarts.

use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;

use crate::announce::{Address, Announcement, EncodeError, Guid, Host, Interval, Status};
use crate::command::Command;
use crate::config::{Announce, Endpoint};
use crate::effect::{Cx, Effect, Route, Timer};
use crate::id::BrokerId;
use crate::output::{Output, Unready, UnreadyReason};
use crate::reply::Reply;
use crate::time::Mono;
use crate::timers::{TimerSlot, Timers};

/// How long an answer may take before it counts as a miss.
const ANSWER: Duration = Duration::from_secs(1);
/// Misses before `down`.
const MISSES: u32 = 2;
/// Goodbyes at a shutdown: datagrams get lost.
const GOODBYES: usize = 3;

/// The announcer's state.
#[derive(Debug)]
pub(crate) struct Announcer {
    what: Announce,
    timer: TimerSlot,
    broker: Option<BrokerId>,
    guid: Option<Guid>,
    /// The last word was `up`.
    up: bool,
    asked: Option<Mono>,
    misses: u32,
    /// It has said goodbye.
    stopped: bool,
}

impl Announcer {
    pub(crate) fn new(what: Announce, timers: &mut Timers<Timer>) -> Self {
        let timer = timers.register(Timer::Announce);
        Self { what, timer, broker: None, guid: None, up: false, asked: None, misses: 0, stopped: false }
    }

    /// The server can be used: the first announcement leaves at once.
    pub(crate) fn on_ready(&mut self, broker: BrokerId, run_id: &str, cx: &mut Cx<'_>) {
        if self.stopped {
            return;
        }
        let guid = guid_of(run_id);
        if self.guid.is_some_and(|old| old != guid) {
            self.say_down(1, cx);
        }
        self.broker = Some(broker);
        self.guid = Some(guid);
        self.misses = 0;
        self.asked = None;
        self.tick(cx);
    }

    /// A refused or closed connection is certain; silence needs a second look.
    pub(crate) fn on_unready(&mut self, why: &Unready, cx: &mut Cx<'_>) {
        self.broker = None;
        self.asked = None;
        if why.reason != UnreadyReason::Timeout {
            self.say_down(1, cx);
        }
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn owns_timer(&self, slot: TimerSlot) -> bool {
        self.timer == slot
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.tick(cx);
    }

    pub(crate) fn on_pong(&mut self, reply: &Reply, cx: &mut Cx<'_>) {
        if self.stopped {
            return;
        }
        self.asked = None;
        if matches!(reply, Reply::Error(_)) {
            return self.miss(cx);
        }
        self.misses = 0;
        self.up = true;
        let status = up(&self.what);
        self.say(status, 1, cx);
    }

    pub(crate) fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.stopped = true;
        cx.timers.disarm(self.timer);
        self.say_down(GOODBYES, cx);
    }

    fn tick(&mut self, cx: &mut Cx<'_>) {
        cx.timers.arm(self.timer, cx.now.mono + self.what.interval);
        match (self.broker, self.asked) {
            (Some(_), Some(since)) if cx.now.mono.since(since) < ANSWER => {}
            (Some(_), Some(_)) | (None, _) => {
                self.asked = None;
                self.miss(cx);
                self.ask(cx);
            }
            (Some(_), None) => self.ask(cx),
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>) {
        if let Some(broker) = self.broker {
            self.asked = Some(cx.now.mono);
            cx.effect(Effect::Command { broker, command: Command::Ping, route: Route::Announcer });
        }
    }

    fn miss(&mut self, cx: &mut Cx<'_>) {
        self.misses = self.misses.saturating_add(1);
        if self.misses >= MISSES {
            self.say_down(1, cx);
        }
    }

    fn say_down(&mut self, times: usize, cx: &mut Cx<'_>) {
        if core::mem::take(&mut self.up) {
            self.say(Status::Down, times, cx);
        }
    }

    fn say(&self, status: Status, times: usize, cx: &mut Cx<'_>) {
        let Some(guid) = self.guid else { return };
        // It was checked with the configuration: what cannot be said was refused there.
        let Ok(text) = datagram(&self.what, guid, status) else { return };
        let payload = Bytes::from(text);
        for _ in 0..times {
            for to in &self.what.to {
                cx.out.push_back(Output::Datagram { to: *to, payload: payload.clone() });
            }
        }
    }
}

/// Whether this can be announced at all.
pub(crate) fn check(what: &Announce) -> Result<(), EncodeError> {
    let guid = Guid::from_bytes([0; 16]);
    datagram(what, guid, up(what))?;
    datagram(what, guid, Status::Down)?;
    Ok(())
}

fn up(what: &Announce) -> Status {
    let interval_ms = u64::try_from(what.interval.as_millis()).unwrap_or(u64::MAX);
    Status::Up { interval: Interval::from_millis(interval_ms), transport: what.transport }
}

fn datagram(what: &Announce, guid: Guid, status: Status) -> Result<Vec<u8>, EncodeError> {
    let (host, port) = match &what.advertise {
        Endpoint::Ip(core::net::SocketAddr::V4(at)) => (Host::V4(*at.ip()), at.port()),
        Endpoint::Ip(core::net::SocketAddr::V6(at)) => (Host::V6(*at.ip()), at.port()),
        Endpoint::Name(name, port) => (Host::Name(name), *port),
    };
    let port = port.try_into().map_err(|_| EncodeError::BadHost)?;
    let mut text = Vec::new();
    Announcement { name: &what.name, guid, address: Address { host, port }, status }.encode(&mut text)?;
    Ok(text)
}

/// The first 128 bits of the run id, marked as a UUID of the application's own making (version 8, RFC 9562 §5.8).
fn guid_of(run_id: &str) -> Guid {
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(run_id.as_bytes().chunks(2)) {
        *byte = pair.iter().fold(0, |value, digit| {
            (value << 4) | u8::try_from(char::from(*digit).to_digit(16).unwrap_or(0)).unwrap_or(0)
        });
    }
    Guid::from_bytes(*uuid::Builder::from_custom_bytes(bytes).as_uuid().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::id::Id;
    use crate::stats::Stats;
    use crate::time::{Now, Wall};
    use alloc::collections::VecDeque;
    use alloc::string::{String, ToString};

    const RUN: &str = "0123456789abcdef0123456789abcdef01234567";

    /// An announcer, and everything it may touch.
    struct Bench {
        announcer: Announcer,
        timers: Timers<Timer>,
        config: Config,
        now: Now,
    }

    impl Bench {
        fn new() -> Self {
            let what = Announce {
                name: "imq-broker".into(),
                advertise: "10.0.0.5:6379".parse().unwrap(),
                interval: Duration::from_secs(1),
                to: alloc::vec!["127.255.255.255:63000".parse().unwrap()],
                transport: crate::announce::Transport::Unspecified,
            };
            let mut timers = Timers::new();
            let announcer = Announcer::new(what, &mut timers);
            let now = Now { mono: Mono(1_000_000), wall: Wall(0) };
            Self { announcer, timers, config: Config::default(), now }
        }

        /// What it says and asks when this happens.
        fn when(&mut self, happens: impl FnOnce(&mut Announcer, &mut Cx<'_>)) -> Vec<String> {
            let (mut out, mut effects, mut stats) = (VecDeque::new(), VecDeque::new(), Stats::default());
            let mut cx = Cx {
                now: self.now,
                config: &self.config,
                timers: &mut self.timers,
                out: &mut out,
                effects: &mut effects,
                stats: &mut stats,
            };
            happens(&mut self.announcer, &mut cx);
            let asked = effects.iter().map(|_| "ping".to_string());
            let said = out.iter().map(|output| match output {
                Output::Datagram { payload, .. } => String::from_utf8_lossy(payload).split('\t').nth(2).unwrap().into(),
                other => alloc::format!("{other:?}"),
            });
            asked.chain(said).collect()
        }

        fn up(&mut self) {
            let broker = BrokerId::from_parts(0, 0);
            assert_eq!(self.when(|announcer, cx| announcer.on_ready(broker, RUN, cx)), ["ping"]);
            assert_eq!(self.pong(), ["up"]);
        }

        fn pong(&mut self) -> Vec<String> {
            self.when(|announcer, cx| announcer.on_pong(&Reply::status("PONG"), cx))
        }

        fn second(&mut self) -> Vec<String> {
            self.now.mono = self.now.mono + Duration::from_secs(1);
            self.when(|announcer, cx| announcer.on_timer(cx))
        }
    }

    fn unready(reason: UnreadyReason) -> Unready {
        Unready { reason, detail: String::new() }
    }

    #[test]
    fn it_speaks_for_a_server_that_answers() {
        let mut bench = Bench::new();
        assert!(bench.second().is_empty(), "announced before it answered");
        bench.up();
        assert_eq!(bench.second(), ["ping"]);
        assert_eq!(bench.pong(), ["up"]);
    }

    #[test]
    fn two_misses_are_a_goodbye_and_a_refusal_is_one_at_once() {
        let mut bench = Bench::new();
        bench.up();
        assert_eq!(bench.second(), ["ping"]);
        assert_eq!(bench.second(), ["ping"], "one miss");
        assert_eq!(bench.second(), ["ping", "down"]);
        assert_eq!(bench.pong(), ["up"]);
        assert_eq!(bench.when(|announcer, cx| announcer.on_unready(&unready(UnreadyReason::Refused), cx)), ["down"]);
        assert!(bench.second().is_empty(), "a goodbye is said once");
    }

    #[test]
    fn after_its_goodbyes_it_is_silent() {
        let mut bench = Bench::new();
        bench.up();
        assert_eq!(bench.second(), ["ping"]);
        assert_eq!(bench.when(|announcer, cx| announcer.on_stop(cx)), ["down"; GOODBYES]);
        assert!(bench.pong().is_empty(), "the answer was on its way");
        let broker = BrokerId::from_parts(0, 0);
        assert!(bench.when(|announcer, cx| announcer.on_ready(broker, RUN, cx)).is_empty());
        assert_eq!(bench.timers.next(), None);
    }

    #[test]
    fn a_guid_follows_the_run_id() {
        assert_eq!(guid_of(RUN).to_string(), "01234567-89ab-8def-8123-456789abcdef");
        assert_ne!(guid_of(RUN), guid_of("1123456789abcdef0123456789abcdef01234567"));
    }

    #[test]
    fn a_restarted_server_says_goodbye_under_its_old_guid() {
        let mut bench = Bench::new();
        bench.up();
        let broker = BrokerId::from_parts(0, 0);
        let said = bench.when(|announcer, cx| announcer.on_ready(broker, "fedcba9876543210fedcba9876543210", cx));
        assert_eq!(said, ["ping", "down"]);
    }
}
