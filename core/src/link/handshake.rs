//! The handshake: from the first byte on a connection to "this can be used".
//!
//! `HELLO 3 [AUTH …] SETNAME …` first, in one round trip; where the server does not know it, `AUTH` and
//! `CLIENT SETNAME` and RESP2. Then, in a second round trip, everything worth knowing: who it is, which data it has,
//! whether it takes writes. `PING` comes last, because `HELLO` succeeds while a server is still loading.

use alloc::string::{String, ToString};

use super::{Links, State};
use crate::command::Command;
use crate::conn::{Lane, Phase, objection, read_info};
use crate::effect::{Cx, Effect, Own, Route};
use crate::id::ConnId;
use crate::output::UnreadyReason;
use crate::reply::{ErrorClass, Reply};

impl Links {
    /// An answer to a command that the connection sent for itself.
    pub(super) fn on_own(&mut self, id: ConnId, own: Own, reply: &Reply, cx: &mut Cx<'_>) {
        match own {
            Own::Hello => self.on_hello(id, reply, cx),
            Own::Auth => {
                if let Reply::Error(error) = reply {
                    self.fail(id, refusal_reason(error.class()), error.text(), cx);
                }
            }
            // A server that refuses a name still serves.
            Own::SetName => self.ask_facts(id, cx),
            Own::ClientId => self.on_client_id(id, reply, cx),
            Own::Info => self.on_info(id, reply, cx),
            Own::NameStore => {}
            Own::Poll => self.on_poll(id, reply, cx),
            Own::Store => {
                if let (Some(conn), Some(store)) = (self.conns.get_mut(id), reply.view().as_str()) {
                    conn.facts.store = store.to_string();
                }
            }
            Own::Time => self.on_time(id, reply, cx),
            Own::Ping => self.on_pong(id, reply, cx),
            Own::Identity => self.on_identity(id, reply, cx),
        }
    }

    fn on_hello(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        let Reply::Error(error) = reply else { return self.ask_facts(id, cx) };
        match error.class() {
            ErrorClass::UnknownCommand | ErrorClass::NoProto => {
                if let Some(credentials) = cx.config.credentials.clone() {
                    self.emit(id, Command::Auth(credentials), Route::Own(Own::Auth), cx);
                }
                let name = self.client_name.clone();
                self.emit(id, Command::SetName(name), Route::Own(Own::SetName), cx);
            }
            class => self.fail(id, refusal_reason(class), error.text(), cx),
        }
    }

    /// The second round trip. A reader only needs its number.
    fn ask_facts(&mut self, id: ConnId, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.enter(Phase::ExpectFacts, cx.now.mono);
        let lane = conn.lane;
        self.emit(id, Command::ClientId, Route::Own(Own::ClientId), cx);
        if lane == Lane::Command {
            let name_store = self.name_store();
            self.emit(id, Command::Info, Route::Own(Own::Info), cx);
            self.emit(id, name_store, Route::Own(Own::NameStore), cx);
            self.emit(id, Command::ReadStore, Route::Own(Own::Store), cx);
            self.emit(id, Command::Time, Route::Own(Own::Time), cx);
            self.emit(id, Command::Ping, Route::Own(Own::Ping), cx);
        }
    }

    fn on_client_id(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.client = reply.view().as_int();
        if let Lane::Reader(sub) = conn.lane {
            if let Reply::Error(error) = reply {
                return self.fail(id, refusal_reason(error.class()), error.text(), cx);
            }
            // Whose numbering the client id is from. Without a command lane that is not known: it may be a new process.
            let connected = self.links.get(conn.broker).filter(|link| link.state != State::Down);
            conn.facts.run_id = connected.map(|link| link.facts.run_id.clone()).unwrap_or_default();
            conn.enter(Phase::Ready, cx.now.mono);
            let (broker, timer, dialled) = (conn.broker, conn.timer, conn.dialled());
            cx.timers.disarm(timer);
            self.doubt_command_lane(broker, dialled, cx);
            if let Some(reader) = self.reader_mut(broker, sub) {
                reader.ready = true;
                reader.backoff.on_ready(cx.now.mono);
                cx.effect(Effect::ReaderReady { sub, broker });
            }
        }
    }

    fn on_info(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        match reply {
            Reply::Error(error) => match error.class() {
                // Without INFO no restart is ever noticed by it; everything else works.
                ErrorClass::NoPerm => {}
                class => self.fail(id, refusal_reason(class), error.text(), cx),
            },
            other => {
                if let (Some(conn), Some(info)) = (self.conns.get_mut(id), other.view().as_str()) {
                    read_info(info, &mut conn.facts);
                }
            }
        }
    }

    fn on_time(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let mut parts = reply.view().items().into_iter().flatten().filter_map(|part| part.as_int());
        if let (Some(seconds), Some(micros)) = (parts.next(), parts.next()) {
            let server_ms = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
            let local_ms = i64::try_from(cx.now.mono.0 / 1_000).unwrap_or(i64::MAX);
            conn.facts.clock_offset_ms = server_ms.saturating_sub(local_ms);
        }
    }

    /// The last answer of the handshake, a sign of life, or the end of a refusal.
    fn on_pong(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        let Some((broker, phase)) = self.conns.get(id).map(|conn| (conn.broker, conn.phase)) else { return };
        let refused = if let Reply::Error(error) = reply { Some(error) } else { None };
        match (phase, refused) {
            (Phase::Ready, None) => self.end_refusal(broker, cx),
            (Phase::Ready, Some(error)) => self.on_refusal(id, error.class(), error.text().to_string(), cx),
            (_, Some(error)) => self.fail(id, refusal_reason(error.class()), error.text(), cx),
            (_, None) => self.finish(id, cx),
        }
    }

    /// Whether a server that refused everything takes writes again. Full memory is not its state but the next send's.
    fn on_poll(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(broker) = self.conns.get(id).map(|conn| conn.broker) else { return };
        match reply {
            Reply::Error(error) if !matches!(error.class(), ErrorClass::Oom | ErrorClass::NoPerm) => {
                self.on_refusal(id, error.class(), error.text().to_string(), cx);
            }
            _ => self.end_refusal(broker, cx),
        }
    }

    /// Everything is known: usable, or not and why.
    fn finish(&mut self, id: ConnId, cx: &mut Cx<'_>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Some(why) = objection(&conn.facts) {
            return self.fail(id, why.reason, &why.detail, cx);
        }
        conn.enter(Phase::Ready, cx.now.mono);
        cx.timers.arm(conn.timer, conn.deadline(&cx.config.timing));
        let (broker, facts) = (conn.broker, conn.facts.clone());
        let Some(link) = self.links.get_mut(broker) else { return };
        if link.facts.run_id != facts.run_id || facts.run_id.is_empty() {
            link.loaded = 0;
        }
        let policy_is_news = link.facts.evicts != facts.evicts;
        link.facts = facts;
        link.state = State::Ready;
        link.backoff.on_ready(cx.now.mono);
        cx.timers.disarm(link.timer);
        cx.effect(Effect::Ready(broker));
        if policy_is_news {
            self.warn_risky(broker, cx);
        }
    }

    fn end_refusal(&mut self, broker: crate::id::BrokerId, cx: &mut Cx<'_>) {
        let Some(link) = self.links.get_mut(broker) else { return };
        if link.state == State::Refusing {
            link.state = State::Ready;
            link.wait(None, cx);
            cx.effect(Effect::Ready(broker));
        }
    }

    fn on_identity(&mut self, id: ConnId, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(broker) = self.conns.get(id).map(|conn| conn.broker) else { return };
        let Some(link) = self.links.get(broker) else { return };
        if matches!(reply, Reply::Error(_)) {
            // No answer to the question: a script may be running. The deadline decides.
            return;
        }
        let mut facts = crate::conn::Facts::default();
        if let Some(info) = reply.view().as_str() {
            read_info(info, &mut facts);
        }
        let same = facts.run_id == link.facts.run_id;
        self.identity_answer(broker, same, cx);
    }
}

/// What an error in the handshake says about the server.
fn refusal_reason(class: ErrorClass) -> UnreadyReason {
    match class {
        ErrorClass::NoAuth | ErrorClass::WrongPass | ErrorClass::NoPerm => UnreadyReason::Auth,
        ErrorClass::Loading => UnreadyReason::Loading,
        ErrorClass::ReadOnly => UnreadyReason::Replica,
        ErrorClass::Misconf | ErrorClass::NoReplicas | ErrorClass::Busy | ErrorClass::MasterDown => {
            UnreadyReason::Refusing
        }
        ErrorClass::Oom
        | ErrorClass::NoScript
        | ErrorClass::NoGroup
        | ErrorClass::WrongType
        | ErrorClass::BusyGroup
        | ErrorClass::Unblocked
        | ErrorClass::ExecAbort
        | ErrorClass::NoProto
        | ErrorClass::UnknownCommand
        | ErrorClass::Other => UnreadyReason::NotRedis,
    }
}

/// The name of this process's connections: who it is, for `CLIENT LIST`.
pub(crate) fn client_name(service: &str, incarnation: u64) -> String {
    alloc::format!("flota.{service}.{incarnation:016x}")
}
