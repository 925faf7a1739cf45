//! The connections to each broker: when to dial, which is ready, what a lost one leaves behind.
//!
//! A broker has one pipelined command lane and one connection for each subscription that blocks there. This machine
//! dials, shakes hands, notices silence, backs off, and correlates answers with whoever asked.

#[cfg(any(test, feature = "mutants"))]
mod audit;
mod backoff;
mod handshake;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use backoff::Backoff;
pub(crate) use handshake::client_name;

use crate::command::{By, Command, Eval};
use crate::config::Endpoint;
use crate::conn::{Conn, Facts, Lane, Matched, Phase};
use crate::effect::{Client, Cx, Effect, Own, Route, Timer};
use crate::id::{BrokerId, ConnId, Slab, SubId, Table};
use crate::mutant::{Mutant, global_count};
use crate::output::{Closed, ClosedReason, Event, Output, Unready, UnreadyReason, Warning};
use crate::reply::{ErrorClass, Reply};
use crate::rng::{Purpose, Rng, Seed};
use crate::time::Mono;
use crate::timers::TimerSlot;

/// How often a server that refuses everything is asked whether it still does.
const POLL: Duration = Duration::from_secs(1);

/// All connections.
#[derive(Debug)]
pub(crate) struct Links {
    conns: Slab<ConnId, Conn>,
    links: Table<BrokerId, Link>,
    rng: Rng,
    client_name: Arc<str>,
}

/// The connections to one broker.
#[derive(Debug)]
struct Link {
    endpoint: Endpoint,
    command: Option<ConnId>,
    state: State,
    readers: Vec<Reader>,
    backoff: Backoff,
    /// The next dial, or the next question whether a refusing server still refuses, or the end of an identity question.
    timer: TimerSlot,
    facts: Facts,
    /// Scripts that this server process is believed to have.
    loaded: u32,
    /// The time by which an identity question must be answered.
    asked: Option<Mono>,
    /// When it was last dialled out of turn.
    hurried: Option<Mono>,
    full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    Ready,
    /// Connected, and the server refuses everything for now.
    Refusing,
}

/// One subscription's connection to one broker.
#[derive(Debug)]
struct Reader {
    sub: SubId,
    conn: Option<ConnId>,
    ready: bool,
    backoff: Backoff,
    timer: TimerSlot,
}

impl Link {
    /// Arms the timer for the next poll or the end of an identity question, whichever is first.
    fn wait(&self, poll: Option<Mono>, cx: &mut Cx<'_>) {
        match poll.into_iter().chain(self.asked).min() {
            Some(at) => cx.timers.arm(self.timer, at),
            None => cx.timers.disarm(self.timer),
        };
    }
}

impl Links {
    pub(crate) fn new(seed: Seed, client_name: Arc<str>) -> Self {
        Self { conns: Slab::new(), links: Table::default(), rng: Rng::new(seed, Purpose::Backoff), client_name }
    }

    /// Connects to a new member.
    pub(crate) fn open(&mut self, broker: BrokerId, endpoint: Endpoint, cx: &mut Cx<'_>) {
        let link = Link {
            endpoint,
            command: None,
            state: State::Down,
            readers: Vec::new(),
            backoff: Backoff::default(),
            timer: cx.timers.register(Timer::Link(broker)),
            facts: Facts::default(),
            loaded: 0,
            asked: None,
            hurried: None,
            full: false,
        };
        self.links.insert(broker, link);
        self.dial(broker, Lane::Command, cx);
    }

    /// Dials another address of the same member, from the start.
    pub(crate) fn move_to(&mut self, broker: BrokerId, endpoint: Endpoint, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        link.endpoint = endpoint;
        self.restart(broker, cx);
    }

    /// There is a fresh sign of life of a member: what waits out its backoff is dialled now. What was learned about its
    /// connections is kept, so that signs of life alone do not lead to a tight loop.
    pub(crate) fn hurry(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let Some(link) = self.links.get_mut(broker) else { return };
        if link.hurried.is_some_and(|last| now.since(last) < POLL) {
            // A stranger can bring this about: not more often than that.
            return;
        }
        link.hurried = Some(now);
        let mut waiting = Vec::new();
        if link.command.is_none() {
            waiting.push((link.timer, Lane::Command));
        }
        waiting.extend(link.readers.iter().filter(|r| r.conn.is_none()).map(|r| (r.timer, Lane::Reader(r.sub))));
        for (timer, lane) in waiting {
            cx.timers.disarm(timer);
            self.dial(broker, lane, cx);
        }
    }

    /// Gives a member up: its connections close, what was asked there has no answer.
    pub(crate) fn close(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let detail = || Unready { reason: UnreadyReason::Closed, detail: "the broker left the fleet".to_string() };
        self.hang_up_all(broker, &detail(), cx);
        if let Some(link) = self.links.remove(broker) {
            cx.timers.remove(link.timer);
            for reader in link.readers {
                cx.timers.remove(reader.timer);
            }
        }
    }

    /// Whether a broker's command lane is up; sends may go there unless it has no room.
    pub(crate) fn is_ready(&self, broker: BrokerId) -> bool {
        self.links.get(broker).is_some_and(|link| link.state == State::Ready)
    }

    /// Whether nothing is unanswered on a broker's command lane.
    pub(crate) fn is_quiet(&self, broker: BrokerId) -> bool {
        let conn = self.links.get(broker).and_then(|link| link.command).and_then(|conn| self.conns.get(conn));
        conn.is_none_or(|conn| conn.unanswered() == 0)
    }

    /// Whether the command lane is connected at all, ready or not.
    pub(crate) fn is_connected(&self, broker: BrokerId) -> bool {
        self.links.get(broker).is_some_and(|link| link.state != State::Down)
    }

    pub(crate) fn facts(&self, broker: BrokerId) -> Option<&Facts> {
        self.links.get(broker).map(|link| &link.facts)
    }

    pub(crate) fn endpoint(&self, broker: BrokerId) -> Option<&Endpoint> {
        self.links.get(broker).map(|link| &link.endpoint)
    }

    /// Asks whether the server process is still the one from the handshake.
    pub(crate) fn ask_identity(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        let (State::Ready | State::Refusing, Some(conn), None) = (link.state, link.command, link.asked) else { return };
        let until = cx.now.mono + cx.config.timing.identity;
        link.asked = Some(until);
        cx.timers.arm_no_later(link.timer, until);
        self.emit(conn, Command::Info, Route::Own(Own::Identity), cx);
    }

    /// Sends on a broker's command lane; without one the route is orphaned at once, as never sent.
    pub(crate) fn send(&mut self, broker: BrokerId, command: Command, route: Route, cx: &mut Cx<'_>) {
        match self.links.get(broker) {
            Some(Link { command: Some(conn), state: State::Ready | State::Refusing, .. }) => {
                let conn = *conn;
                self.emit(conn, command, route, cx);
                self.note_room(broker, cx);
            }
            _ => cx.effect(Effect::Orphan { broker, route, sent: false }),
        }
    }

    /// Sends on a subscription's own connection.
    pub(crate) fn send_reader(
        &mut self,
        sub: SubId,
        broker: BrokerId,
        command: Command,
        route: Route,
        cx: &mut Cx<'_>,
    ) {
        match self.reader(broker, sub) {
            Some(Reader { conn: Some(conn), ready: true, .. }) => {
                let conn = *conn;
                self.emit(conn, command, route, cx);
            }
            _ => cx.effect(Effect::Orphan { broker, route, sent: false }),
        }
    }

    /// Opens a subscription's own connection to a broker and keeps it open.
    pub(crate) fn open_reader(&mut self, sub: SubId, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        if link.readers.iter().any(|reader| reader.sub == sub) && !cx.mutant(Mutant::ReaderDoubled) {
            return;
        }
        let timer = cx.timers.register(Timer::ReaderDial(broker, sub));
        link.readers.push(Reader { sub, conn: None, ready: false, backoff: Backoff::default(), timer });
        self.dial(broker, Lane::Reader(sub), cx);
    }

    /// Closes it for good. A blocked read dies with it: the caller has made sure that it holds nothing.
    pub(crate) fn close_reader(&mut self, sub: SubId, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        let Some(at) = link.readers.iter().position(|reader| reader.sub == sub) else { return };
        let reader = link.readers.swap_remove(at);
        cx.timers.remove(reader.timer);
        if let Some(id) = reader.conn {
            cx.out.push_back(Output::Hangup(id));
            self.bury(id, cx);
        }
    }

    /// Wakes a blocked read without losing what it has.
    pub(crate) fn unblock(&mut self, sub: SubId, broker: BrokerId, cx: &mut Cx<'_>) {
        let client = self.reader(broker, sub).and_then(|r| r.conn).and_then(|c| self.conns.get(c)?.client);
        if let Some(client) = client {
            self.send(broker, Command::Unblock(client), Route::Discard, cx);
        }
    }

    /// Removes the place of an answer: only a planted fault asks for it.
    pub(crate) fn forget_route(&mut self, route: Route) {
        self.conns.iter_mut().for_each(|(_, conn)| conn.forget_route(route));
    }

    // ---- what sockets report ----

    pub(crate) fn on_connected(&mut self, id: ConnId, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return stale(cx) };
        if conn.phase == Phase::ExpectConnect {
            conn.enter(Phase::ExpectHello, cx.now.mono);
            let hello = self.hello(cx);
            self.emit(id, hello, Route::Own(Own::Hello), cx);
        }
    }

    pub(crate) fn on_sent(&mut self, id: ConnId, commands: u64, cx: &mut Cx<'_>) {
        match self.conns.get_mut(id) {
            Some(conn) => conn.accept(commands.saturating_sub(u64::from(cx.mutant(Mutant::SentShort)))),
            None => stale(cx),
        }
    }

    pub(crate) fn on_partial(&mut self, id: ConnId, cx: &mut Cx<'_>) {
        match self.conns.get_mut(id) {
            Some(conn) => conn.note_progress(cx.now.mono),
            None => stale(cx),
        }
    }

    pub(crate) fn on_reply(&mut self, id: ConnId, reply: Reply, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return stale(cx) };
        if reply.is_push() {
            cx.stats.pushes += 1;
            return;
        }
        let broker = conn.broker;
        let keeps = matches!(reply, Reply::Error(_)) && cx.mutant(Mutant::ErrorKeepsSlot);
        let matched = if keeps { conn.peek(&reply, cx.now.mono) } else { conn.pop(&reply, cx.now.mono) };
        match matched {
            Some(matched) if matched.fits => {
                cx.stats.replies += 1;
                self.dispatch(id, broker, matched, reply, cx);
            }
            Some(matched) => {
                cx.stats.misshapen += 1;
                cx.effect(Effect::Orphan { broker, route: matched.route, sent: true });
                self.fail(id, UnreadyReason::NotRedis, "an answer of another shape than its command can have", cx);
            }
            None => {
                cx.stats.misshapen += 1;
                self.fail(id, UnreadyReason::NotRedis, "an answer that nothing had asked for", cx);
            }
        }
    }

    pub(crate) fn on_closed(&mut self, id: ConnId, why: &Closed, cx: &mut Cx<'_>) {
        if !self.conns.contains(id) {
            return stale(cx);
        }
        let reason = match why.reason {
            ClosedReason::Refused | ClosedReason::Unresolved => UnreadyReason::Refused,
            ClosedReason::Tls => UnreadyReason::Tls,
            ClosedReason::Protocol => UnreadyReason::NotRedis,
            ClosedReason::Eof | ClosedReason::Io | ClosedReason::Hangup => UnreadyReason::Closed,
        };
        self.lose(id, Unready { reason, detail: why.detail.clone() }, cx);
    }

    // ---- timers ----

    /// A connection has been silent: for too long, or just until the next sign of life is due.
    pub(crate) fn on_conn_timer(&mut self, id: ConnId, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let deadline = conn.deadline(&cx.config.timing);
        if cx.now.mono < deadline {
            cx.timers.arm(conn.timer, deadline);
            return;
        }
        match (conn.phase, conn.unanswered()) {
            (Phase::Ready, 0) => {
                if conn.lane == Lane::Command {
                    self.emit(id, Command::Ping, Route::Own(Own::Ping), cx);
                } else {
                    // A reader without a read outstanding has nothing to lose; its next read will find out.
                    cx.timers.disarm(conn.timer);
                }
            }
            (Phase::ExpectConnect, _) => self.fail(id, UnreadyReason::Timeout, "no connection within the deadline", cx),
            (Phase::ExpectHello | Phase::ExpectFacts, _) => {
                self.fail(
                    id,
                    UnreadyReason::Timeout,
                    "connected, and no answer to the handshake within the deadline",
                    cx,
                );
            }
            (Phase::Ready, _) => self.fail(id, UnreadyReason::Timeout, "no answer within the deadline", cx),
        }
    }

    /// A broker's own timer: dial, ask again, or give an identity question up.
    pub(crate) fn on_link_timer(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        match (link.state, link.command) {
            (State::Down, None) => self.dial(broker, Lane::Command, cx),
            (State::Down, Some(_)) => {}
            (State::Ready | State::Refusing, _) if link.asked.is_some_and(|until| cx.now.mono >= until) => {
                self.identity_answer(broker, false, cx);
            }
            (State::Refusing, Some(conn)) => {
                link.wait(Some(cx.now.mono + POLL), cx);
                // A write, because a server without its replicas answers PING.
                let probe = self.name_store();
                self.emit(conn, probe, Route::Own(Own::Poll), cx);
            }
            (State::Ready | State::Refusing, _) => link.wait(None, cx),
        }
    }

    pub(crate) fn on_reader_dial(&mut self, broker: BrokerId, sub: SubId, cx: &mut Cx<'_>) {
        if self.reader(broker, sub).is_some_and(|reader| reader.conn.is_none()) {
            self.dial(broker, Lane::Reader(sub), cx);
        }
    }

    // ---- inside ----

    fn reader(&self, broker: BrokerId, sub: SubId) -> Option<&Reader> {
        self.links.get(broker)?.readers.iter().find(|reader| reader.sub == sub)
    }

    fn reader_mut(&mut self, broker: BrokerId, sub: SubId) -> Option<&mut Reader> {
        self.links.get_mut(broker)?.readers.iter_mut().find(|reader| reader.sub == sub)
    }

    fn dial(&mut self, broker: BrokerId, lane: Lane, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        let now = cx.now.mono;
        let conn = self.conns.insert_with(|id| Conn::new(broker, lane, cx.timers.register(Timer::Conn(id)), now));
        match lane {
            Lane::Command => link.command = Some(conn),
            Lane::Reader(sub) => {
                if let Some(reader) = link.readers.iter_mut().find(|reader| reader.sub == sub) {
                    reader.conn = Some(conn);
                }
            }
        }
        if let Some(opened) = self.conns.get(conn) {
            let more = if cx.mutant(Mutant::GlobalCounter) { global_count() } else { 0 };
            cx.timers.arm(opened.timer, opened.deadline(&cx.config.timing) + Duration::from_micros(more));
        }
        cx.stats.dials += 1;
        cx.out.push_back(Output::Dial { conn, to: link.endpoint.clone() });
    }

    fn emit(&mut self, id: ConnId, command: Command, route: Route, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let loaded = self.links.get(conn.broker).map_or(0, |link| link.loaded);
        let command = by_text_if_unknown(command, loaded);
        let first = conn.unanswered() == 0;
        conn.push(&command, route, cx.now.mono);
        if first && conn.phase == Phase::Ready {
            cx.timers.arm_no_later(conn.timer, conn.deadline(&cx.config.timing));
        }
        cx.stats.commands += 1;
        cx.out.push_back(Output::Send { conn: id, command });
    }

    /// A reader that was dialled then has been answered: the server is well. If the command lane has been waiting since
    /// before, it is given little more time: it may have died silently together with that reader's predecessor, and what
    /// the predecessor held is claimed back on it.
    fn doubt_command_lane(&mut self, broker: BrokerId, dialled: Mono, cx: &mut Cx<'_>) {
        let Some(command) = self.links.get(broker).and_then(|link| link.command) else { return };
        let Some(conn) = self.conns.get_mut(command) else { return };
        if conn.doubt(dialled, cx.now.mono + cx.config.timing.identity) {
            cx.timers.arm_no_later(conn.timer, conn.deadline(&cx.config.timing));
        }
    }

    /// Says when a lane fills up and when it has drained to half.
    fn note_room(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        let Some(conn) = link.command.and_then(|conn| self.conns.get(conn)) else { return };
        let most = cx.config.limits.pipeline as usize;
        let full = if link.full { conn.unanswered() > most / 2 } else { conn.unanswered() >= most };
        if full != link.full {
            link.full = full;
            if full || !cx.mutant(Mutant::RoomForgotten) {
                cx.effect(Effect::Room(broker, !full));
            }
        }
    }

    fn dispatch(&mut self, id: ConnId, broker: BrokerId, matched: Matched, reply: Reply, cx: &mut Cx<'_>) {
        if let Some((eval, by)) = matched.script
            && self.note_script(id, broker, &eval, by, &reply)
        {
            cx.stats.noscript += 1;
            self.emit(id, Command::Eval(eval, By::Text), matched.route, cx);
            return;
        }
        if let Route::Own(own) = matched.route {
            self.on_own(id, own, &reply, cx);
        } else {
            let class =
                if let Reply::Error(error) = &reply { Some((error.class(), error.text().to_string())) } else { None };
            if matched.route != Route::Discard {
                cx.effect(Effect::Answer { broker, route: matched.route, reply });
            }
            if let Some((class, text)) = class {
                self.on_refusal(id, class, text, cx);
            }
        }
        self.note_room(broker, cx);
    }

    /// Remembers what the server has loaded. Whether the script must be sent again as text.
    fn note_script(&mut self, _: ConnId, broker: BrokerId, eval: &Arc<Eval>, by: By, reply: &Reply) -> bool {
        let Some(link) = self.links.get_mut(broker) else { return false };
        match reply {
            Reply::Error(error) if error.class() == ErrorClass::NoScript => {
                // One flush forgets them all.
                link.loaded = 0;
                by == By::Sha1
            }
            Reply::Error(_) => false,
            _ => {
                link.loaded |= eval.script.bit();
                false
            }
        }
    }

    /// An error that says something about the server rather than about the command.
    fn on_refusal(&mut self, id: ConnId, class: ErrorClass, text: String, cx: &mut Cx<'_>) {
        match class {
            ErrorClass::ReadOnly => self.fail(id, UnreadyReason::Replica, &text, cx),
            ErrorClass::NoAuth | ErrorClass::WrongPass => self.fail(id, UnreadyReason::Auth, &text, cx),
            ErrorClass::Loading => self.refuse(id, UnreadyReason::Loading, text, cx),
            ErrorClass::Misconf | ErrorClass::NoReplicas | ErrorClass::Busy | ErrorClass::MasterDown => {
                self.refuse(id, UnreadyReason::Refusing, text, cx);
            }
            ErrorClass::Oom
            | ErrorClass::NoPerm
            | ErrorClass::NoScript
            | ErrorClass::NoGroup
            | ErrorClass::WrongType
            | ErrorClass::BusyGroup
            | ErrorClass::Unblocked
            | ErrorClass::ExecAbort
            | ErrorClass::NoProto
            | ErrorClass::UnknownCommand
            | ErrorClass::Other => {}
        }
    }

    /// Keeps the connection of a server that refuses everything, and asks now and then.
    fn refuse(&mut self, id: ConnId, reason: UnreadyReason, detail: String, cx: &mut Cx<'_>) {
        let Some(broker) = self.conns.get(id).map(|conn| conn.broker) else { return };
        let Some(link) = self.links.get_mut(broker) else { return };
        if link.state == State::Ready {
            link.state = State::Refusing;
            link.wait(Some(cx.now.mono + POLL), cx);
            cx.effect(Effect::Unready(broker, Unready { reason, detail }));
        }
    }

    /// Ends a connection from this side.
    fn fail(&mut self, id: ConnId, reason: UnreadyReason, detail: &str, cx: &mut Cx<'_>) {
        cx.out.push_back(Output::Hangup(id));
        self.lose(id, Unready { reason, detail: detail.to_string() }, cx);
    }

    /// A connection is gone: its unanswered commands are orphans, and the next dial is scheduled.
    fn lose(&mut self, id: ConnId, why: Unready, cx: &mut Cx<'_>) {
        let Some((broker, lane, client, phase)) = self.bury(id, cx) else { return };
        let now = cx.now.mono;
        let Some(link) = self.links.get_mut(broker) else { return };
        let most = if cx.mutant(Mutant::BackoffSkipped) { Duration::from_millis(1) } else { Duration::MAX };
        match lane {
            Lane::Command => {
                let at = now + link.backoff.after_loss(why.reason, now, &cx.config.timing, &mut self.rng).min(most);
                link.command = None;
                link.state = State::Down;
                link.asked = None;
                link.full = false;
                cx.timers.arm(link.timer, at);
                cx.effect(Effect::Unready(broker, why));
            }
            Lane::Reader(sub) => {
                let Some(reader) = link.readers.iter_mut().find(|reader| reader.sub == sub) else { return };
                let at = now + reader.backoff.after_loss(why.reason, now, &cx.config.timing, &mut self.rng).min(most);
                reader.conn = None;
                reader.ready = false;
                if !cx.mutant(Mutant::ReaderNotRedialled) {
                    cx.timers.arm(reader.timer, at);
                }
                if phase == Phase::Ready {
                    cx.effect(Effect::ReaderLost { sub, broker, client });
                }
            }
        }
    }

    /// Removes a connection and orphans what it owed.
    fn bury(&mut self, id: ConnId, cx: &mut Cx<'_>) -> Option<(BrokerId, Lane, Option<Client>, Phase)> {
        let mut conn = self.conns.remove(id)?;
        cx.stats.closes += 1;
        if !cx.mutant(Mutant::ConnTimerLeaked) {
            cx.timers.remove(conn.timer);
        }
        let broker = conn.broker;
        for (route, sent) in conn.drain() {
            let sent = sent && !cx.mutant(Mutant::OrphansUnsent);
            if !matches!(route, Route::Own(_) | Route::Discard) {
                cx.effects.push_back(Effect::Orphan { broker, route, sent });
            }
        }
        let client = conn.client.map(|id| Client { run: conn.facts.run_id.as_str().into(), id });
        Some((broker, conn.lane, client, conn.phase))
    }

    fn hang_up_all(&mut self, broker: BrokerId, why: &Unready, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get(broker) else { return };
        let all: Vec<ConnId> = link.command.into_iter().chain(link.readers.iter().filter_map(|r| r.conn)).collect();
        for id in all {
            cx.out.push_back(Output::Hangup(id));
            self.lose(id, why.clone(), cx);
        }
    }

    /// Closes everything to a broker and dials it at once: another process is expected there.
    pub(crate) fn restart(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let why =
            Unready { reason: UnreadyReason::Closed, detail: "another server process is expected there".to_string() };
        self.hang_up_all(broker, &why, cx);
        let Some(link) = self.links.get_mut(broker) else { return };
        link.backoff = Backoff::default();
        cx.timers.disarm(link.timer);
        self.dial(broker, Lane::Command, cx);
    }

    fn identity_answer(&mut self, broker: BrokerId, same: bool, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        if link.asked.take().is_some() {
            cx.effect(Effect::Identity(broker, same));
        }
    }

    /// Names the data set, unless it has a name.
    fn name_store(&mut self) -> Command {
        let mut store = [0; 16];
        self.rng.fill(&mut store);
        Command::NameStore(store.into())
    }

    fn hello(&self, cx: &Cx<'_>) -> Command {
        let hello =
            crate::command::Hello { credentials: cx.config.credentials.clone(), name: self.client_name.clone() };
        Command::Hello(hello.into())
    }

    fn warn_risky(&self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get(broker) else { return };
        if let Some(policy) = &link.facts.evicts {
            let what = alloc::format!(
                "maxmemory-policy is {policy}: under memory pressure the server deletes whole streams; set noeviction"
            );
            cx.event(Event::Warning(Warning::Risky { broker: link.endpoint.clone(), what }.into()));
        }
    }
}

/// A script goes by text where the server is not known to have it, which also loads it.
fn by_text_if_unknown(command: Command, loaded: u32) -> Command {
    match command {
        Command::Eval(eval, By::Sha1) if loaded & eval.script.bit() == 0 => Command::Eval(eval, By::Text),
        other => other,
    }
}

fn stale(cx: &mut Cx<'_>) {
    cx.stats.stale_inputs += 1;
}
