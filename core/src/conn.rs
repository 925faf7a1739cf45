//! One connection: what was sent on it, whose answers are awaited, and which of them may have reached the server.
//!
//! Redis answers in order, so correlation is a queue of plain data. Cancelling rewrites a slot's route; it never
//! removes the slot, because the answer comes all the same.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use crate::command::{By, Command, Eval};
use crate::config::Timing;
use crate::effect::Route;
use crate::id::{BrokerId, SubId};
use crate::output::{Unready, UnreadyReason};
use crate::reply::Reply;
use crate::script::Script;
use crate::time::Mono;
use crate::timers::TimerSlot;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Everything that does not block, pipelined: one per broker.
    Command,
    /// The blocking reads of one subscription.
    Reader(SubId),
}

/// How far a connection has come; named for what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    ExpectConnect,
    ExpectHello,
    ExpectFacts,
    Ready,
}

/// A connection, from the dial to the close.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) broker: BrokerId,
    pub(crate) lane: Lane,
    pub(crate) phase: Phase,
    /// The server's number for it, for `CLIENT UNBLOCK` and `CLIENT KILL`.
    pub(crate) client: Option<i64>,
    pub(crate) facts: Facts,
    pub(crate) timer: TimerSlot,
    slots: VecDeque<Slot>,
    answered: u64,
    accepted: u64,
    dialled: Mono,
    /// The last command on a silent line, or reply.
    progress: Mono,
    /// When the next reply is due, if there is reason to believe that the line is dead.
    doubt: Option<Mono>,
}

/// What the handshake learned about the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// One server process; empty where `INFO` is forbidden.
    pub(crate) run_id: String,
    /// One data set; empty until it could be written.
    pub(crate) store: String,
    pub(crate) version: String,
    pub(crate) replica: bool,
    pub(crate) loading: bool,
    /// The eviction policy, where memory is limited and the policy can remove messages.
    pub(crate) evicts: Option<String>,
    /// Server time less local monotonic time, in milliseconds, as of the handshake.
    pub(crate) clock_offset_ms: i64,
}

#[derive(Debug)]
struct Slot {
    route: Route,
    expect: Expect,
    block_ms: u32,
    /// A script, kept because the server may have forgotten it, and how it was named.
    script: Option<(Arc<Eval>, By)>,
}

/// An answer with its place in the correlation.
pub(crate) struct Matched {
    pub(crate) route: Route,
    pub(crate) script: Option<(Arc<Eval>, By)>,
    /// Whether its shape is one this command can have.
    pub(crate) fits: bool,
}

impl Conn {
    pub(crate) fn new(broker: BrokerId, lane: Lane, timer: TimerSlot, now: Mono) -> Self {
        Self {
            broker,
            lane,
            phase: Phase::ExpectConnect,
            client: None,
            facts: Facts::default(),
            timer,
            slots: VecDeque::new(),
            answered: 0,
            accepted: 0,
            dialled: now,
            progress: now,
            doubt: None,
        }
    }

    /// Records a command about to be sent.
    pub(crate) fn push(&mut self, command: &Command, route: Route, now: Mono) {
        if self.slots.is_empty() {
            self.progress = now;
        }
        let script = if let Command::Eval(eval, by) = command { Some((eval.clone(), *by)) } else { None };
        let block_ms = command.block_ms().unwrap_or(0);
        self.slots.push_back(Slot { route, expect: Expect::of(command), block_ms, script });
    }

    /// The stream accepted this many more commands whole.
    pub(crate) fn accept(&mut self, commands: u64) {
        let emitted = self.answered + self.slots.len() as u64;
        self.accepted = self.accepted.saturating_add(commands).min(emitted);
    }

    /// Something arrived, though no whole reply.
    pub(crate) fn note_progress(&mut self, now: Mono) {
        self.progress = now;
    }

    /// Takes the slot that a reply answers; `None` when nothing was asked.
    pub(crate) fn pop(&mut self, reply: &Reply, now: Mono) -> Option<Matched> {
        let slot = self.slots.pop_front()?;
        self.answered += 1;
        // An answer proves that the command left, whatever was reported.
        self.accepted = self.accepted.max(self.answered);
        self.progress = now;
        self.doubt = None;
        Some(Matched { route: slot.route, script: slot.script, fits: slot.expect.fits(reply) })
    }

    /// Like [`pop`](Self::pop), and the slot stays: only a planted fault asks for it.
    pub(crate) fn peek(&mut self, reply: &Reply, now: Mono) -> Option<Matched> {
        let slot = self.slots.front()?;
        self.progress = now;
        Some(Matched { route: slot.route, script: slot.script.clone(), fits: slot.expect.fits(reply) })
    }

    /// Removes a slot: only a planted fault asks for it.
    pub(crate) fn forget_route(&mut self, route: Route) {
        self.slots.retain(|slot| slot.route != route);
    }

    /// Whether the watermark lies between what was answered and what was sent.
    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn audit(&self) -> Result<(), String> {
        let (answered, accepted) = (crate::audit::size(self.answered), crate::audit::size(self.accepted));
        crate::audit::within("slots", "answered, of those accepted", answered, accepted)?;
        crate::audit::within("slots", "accepted, of those sent", accepted, answered + self.slots.len())
    }

    /// Everything still unanswered, oldest first, with whether it may have reached the server.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Route, bool)> + '_ {
        let sent = self.accepted.saturating_sub(self.answered);
        self.slots.drain(..).zip(0u64..).map(move |(slot, n)| (slot.route, n < sent))
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.slots.len()
    }

    /// Another connection, dialled then, has been answered: what was asked here before is due by `until`.
    ///
    /// A server answers in turn, so it is not the server that is slow. Whether that means anything for this line.
    pub(crate) fn doubt(&mut self, dialled: Mono, until: Mono) -> bool {
        let silent = self.phase == Phase::Ready && !self.slots.is_empty() && self.progress < dialled;
        if silent && self.doubt.is_none() {
            self.doubt = Some(until);
        }
        silent
    }

    pub(crate) fn dialled(&self) -> Mono {
        self.dialled
    }

    /// When the line has been silent for too long: before the handshake is done, with an answer outstanding, or idle.
    pub(crate) fn deadline(&self, timing: &Timing) -> Mono {
        let usual = match (self.phase, self.slots.front()) {
            (Phase::Ready, None) => self.progress + timing.idle_ping,
            (Phase::Ready, Some(slot)) if slot.block_ms > 0 => {
                self.progress + Duration::from_millis(u64::from(slot.block_ms)) + timing.block_margin
            }
            (Phase::Ready, Some(_)) => self.progress + timing.response,
            (Phase::ExpectConnect | Phase::ExpectHello | Phase::ExpectFacts, _) => self.dialled + timing.connect,
        };
        self.doubt.map_or(usual, |doubt| doubt.min(usual))
    }

    /// Moves to the next phase.
    pub(crate) fn enter(&mut self, phase: Phase, now: Mono) {
        self.phase = phase;
        if phase == Phase::Ready {
            self.progress = now;
        }
    }
}

/// The shapes that an answer may have, errors aside. Another shape means that the correlation slipped, and everything
/// after it would be somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Any,
    Int,
    Line,
    Bulk,
    Tree,
    TreeOrNil,
}

impl Expect {
    fn of(command: &Command) -> Self {
        match command {
            Command::Hello(_) | Command::Time | Command::Consumers(..) => Self::Tree,
            Command::Auth(_) | Command::SetName(_) | Command::Ping => Self::Line,
            Command::ClientId | Command::Unblock(_) | Command::Kill(_) | Command::Ack(_) => Self::Int,
            Command::Info | Command::Add(_) => Self::Bulk,
            Command::ReadGroup(_) | Command::Read(_) => Self::TreeOrNil,
            Command::Eval(eval, _) => match eval.script {
                Script::Cancel | Script::Release | Script::Leave | Script::Reap | Script::Rejoin => Self::Int,
                Script::Claim
                | Script::Dead
                | Script::Due
                | Script::Ensure
                | Script::Move
                | Script::Renew
                | Script::Replay
                | Script::Retry
                | Script::Schedule
                | Script::Tail
                | Script::Tick
                | Script::Trim => Self::Tree,
            },
            Command::NameStore(_) | Command::ReadStore | Command::Raw(_) => Self::Any,
        }
    }

    fn fits(self, reply: &Reply) -> bool {
        match (self, reply) {
            (Self::Any, _)
            | (_, Reply::Error(_))
            | (Self::Int, Reply::Int(_))
            | (Self::Line, Reply::Status(_))
            | (Self::Bulk, Reply::Bulk(_))
            | (Self::Tree | Self::TreeOrNil, Reply::Tree(_))
            | (Self::TreeOrNil, Reply::Nil) => true,
            (Self::Int | Self::Line | Self::Bulk | Self::Tree | Self::TreeOrNil, _) => false,
        }
    }
}

/// Reads what `INFO` says about a server.
pub(crate) fn read_info(info: &str, facts: &mut Facts) {
    let mut limited = false;
    let mut policy = "";
    for line in info.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "run_id" => facts.run_id = value.into(),
            // Valkey reports the Redis version it is compatible with under this name.
            "redis_version" => facts.version = value.into(),
            "role" => facts.replica = value == "slave",
            "loading" => facts.loading = value == "1",
            "maxmemory" => limited = value != "0",
            "maxmemory_policy" => policy = value,
            _ => {}
        }
    }
    facts.evicts = (limited && policy != "noeviction" && !policy.is_empty()).then(|| policy.into());
}

/// Why a server that answered the handshake still cannot be used.
pub(crate) fn objection(facts: &Facts) -> Option<Unready> {
    let no = |reason, detail: String| Some(Unready { reason, detail });
    if facts.loading {
        return no(UnreadyReason::Loading, "the server is loading its data".into());
    }
    if facts.replica {
        return no(UnreadyReason::Replica, "the server is a replica; announce its master".into());
    }
    let mut parts = facts.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if !facts.version.is_empty() && version < (6, 2) {
        let detail = alloc::format!("the server is version {}; 6.2 or later is needed", facts.version);
        return no(UnreadyReason::NotRedis, detail);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Own;
    use crate::id::{ConnId, Id};
    use crate::reply::Short;
    use crate::timers::Timers;
    use alloc::vec::Vec;

    fn conn() -> Conn {
        let timer = Timers::<ConnId>::new().register(ConnId::from_parts(0, 0));
        let mut conn = Conn::new(BrokerId::from_parts(0, 0), Lane::Command, timer, Mono(0));
        conn.enter(Phase::Ready, Mono(0));
        conn
    }

    fn pong() -> Reply {
        Reply::Status(Short::new(b"PONG"))
    }

    #[test]
    fn what_lies_beyond_the_watermark_was_never_sent() {
        let mut conn = conn();
        for _ in 0..4 {
            conn.push(&Command::Ping, Route::Announcer, Mono(1));
        }
        conn.accept(2);
        assert!(conn.pop(&pong(), Mono(2)).is_some());
        let left: Vec<_> = conn.drain().map(|(_, sent)| sent).collect();
        assert_eq!(left, [true, false, false]);
    }

    #[test]
    fn a_watermark_never_passes_what_was_emitted() {
        let mut conn = conn();
        conn.push(&Command::Ping, Route::Announcer, Mono(1));
        conn.accept(u64::MAX);
        conn.push(&Command::Ping, Route::Announcer, Mono(1));
        assert_eq!(conn.drain().map(|(_, sent)| sent).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn answers_come_in_the_order_of_the_questions() {
        let mut conn = conn();
        conn.push(&Command::Ping, Route::Announcer, Mono(1));
        conn.push(&Command::Ping, Route::Own(Own::Ping), Mono(1));
        assert_eq!(conn.pop(&pong(), Mono(2)).map(|m| m.route), Some(Route::Announcer));
        assert_eq!(conn.pop(&pong(), Mono(2)).map(|m| m.route), Some(Route::Own(Own::Ping)));
        assert!(conn.pop(&pong(), Mono(2)).is_none());
    }

    #[test]
    fn answers_during_the_handshake_do_not_extend_its_deadline() {
        let timer = Timers::<ConnId>::new().register(ConnId::from_parts(0, 0));
        let mut conn = Conn::new(BrokerId::from_parts(0, 0), Lane::Command, timer, Mono(0));
        conn.enter(Phase::ExpectHello, Mono(1));
        conn.push(&Command::Ping, Route::Own(Own::Ping), Mono(1));
        assert!(conn.pop(&pong(), Mono(1_900_000)).is_some());
        assert_eq!(conn.deadline(&Timing::default()), Mono(2_000_000));
    }

    #[test]
    fn an_answer_elsewhere_casts_doubt_on_older_questions_alone() {
        let timing = Timing::default();
        let mut conn = conn();
        assert!(!conn.doubt(Mono(5), Mono(10)), "nothing was asked");
        conn.push(&Command::Ping, Route::Announcer, Mono(7));
        assert!(!conn.doubt(Mono(7), Mono(10)), "it was asked no earlier");
        assert_eq!(conn.deadline(&timing), Mono(7) + timing.response);
        assert!(conn.doubt(Mono(8), Mono(10)));
        assert!(conn.doubt(Mono(9), Mono(20)), "and more of it does not put the end off");
        assert_eq!(conn.deadline(&timing), Mono(10));
        assert!(conn.pop(&pong(), Mono(9)).is_some());
        assert_eq!(conn.deadline(&timing), Mono(9) + timing.idle_ping, "an answer dispels it");
    }

    #[test]
    fn another_shape_does_not_fit() {
        let mut conn = conn();
        conn.push(&Command::ClientId, Route::Announcer, Mono(1));
        assert!(!conn.pop(&pong(), Mono(2)).unwrap().fits);
    }

    #[test]
    fn info_is_read_by_name() {
        let mut facts = Facts::default();
        read_info(
            "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nrole:slave\r\nloading:0\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n",
            &mut facts,
        );
        assert_eq!((facts.run_id.as_str(), facts.version.as_str()), ("abc", "7.0.15"));
        assert_eq!(facts.evicts.as_deref(), Some("allkeys-lru"));
        assert_eq!(objection(&facts).unwrap().reason, UnreadyReason::Replica);
        let old = Facts { version: "6.0.16".into(), ..Facts::default() };
        assert!(objection(&old).unwrap().detail.contains("6.2"));
        assert_eq!(objection(&Facts::default()), None);
    }
}
