//! Inputs of an engine, kept so that a fresh engine can be fed the same: it must say the same.

#![allow(clippy::result_large_err, reason = "what an engine refuses is passed on as it is")]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use flota_core::Engine;
use flota_core::config::Config;
use flota_core::engine::Incarnation;
use flota_core::id::{ConnId, DeliveryId, OpId, SubId};
use flota_core::op::{Op, Rejected, Stale, Sub, Verdict};
use flota_core::output::{Closed, Output};
use flota_core::reply::Reply;
use flota_core::rng::Seed;
use flota_core::time::Now;

use crate::seen::TraceHash;

/// Something the world says to an engine.
#[derive(Clone)]
pub(crate) enum Input {
    Datagram(SocketAddr, Bytes),
    Connected(ConnId),
    Sent(ConnId, u64),
    Reply(ConnId, Reply),
    Partial(ConnId),
    Closed(ConnId, Closed),
    Timeout,
    Shutdown(Duration),
}

/// Something the application asks of it.
#[derive(Clone)]
enum Ask {
    World(Input),
    Submit(Op),
    Cancel(OpId),
    Subscribe(Sub),
    Unsubscribe(SubId, Duration),
    Started(DeliveryId),
    Settle(DeliveryId, Verdict, bool),
    /// An output was taken.
    Output,
}

/// Passes everything on to an engine and, for some lives, keeps it.
pub(crate) struct Recorder {
    kept: Option<Box<Kept>>,
    /// The clocks of the last input.
    last: Now,
}

struct Kept {
    config: Config,
    who: Incarnation,
    seed: Seed,
    now: Now,
    asked: Vec<(Now, Ask)>,
    /// A hash of what was said, after each output.
    said: TraceHash,
    marks: Vec<u64>,
}

/// Beyond so many inputs a life is too long to be kept.
const INPUTS_MAX: usize = 200_000;

impl Recorder {
    pub(crate) fn new(keeps: bool, config: Config, who: Incarnation, seed: Seed, now: Now) -> Self {
        let kept = Kept { config, who, seed, now, asked: Vec::new(), said: TraceHash::default(), marks: Vec::new() };
        Self { kept: keeps.then(|| Box::new(kept)), last: now }
    }

    pub(crate) fn input(&mut self, engine: &mut Engine, now: Now, input: Input) {
        self.keep(now, || Ask::World(input.clone()));
        say(engine, now, input);
    }

    pub(crate) fn submit(&mut self, engine: &mut Engine, now: Now, op: Op) -> Result<OpId, Rejected<Op>> {
        self.keep(now, || Ask::Submit(op.clone()));
        engine.submit(now, op)
    }

    pub(crate) fn cancel(&mut self, engine: &mut Engine, now: Now, op: OpId) -> Result<(), Stale> {
        self.keep(now, || Ask::Cancel(op));
        engine.cancel(now, op)
    }

    pub(crate) fn subscribe(&mut self, engine: &mut Engine, now: Now, sub: Sub) -> Result<SubId, Rejected<Sub>> {
        self.keep(now, || Ask::Subscribe(sub.clone()));
        engine.subscribe(now, sub)
    }

    pub(crate) fn unsubscribe(
        &mut self,
        engine: &mut Engine,
        now: Now,
        sub: SubId,
        grace: Duration,
    ) -> Result<(), Stale> {
        self.keep(now, || Ask::Unsubscribe(sub, grace));
        engine.unsubscribe(now, sub, grace)
    }

    pub(crate) fn started(&mut self, engine: &mut Engine, now: Now, delivery: DeliveryId) -> Result<(), Stale> {
        self.keep(now, || Ask::Started(delivery));
        engine.started(now, delivery)
    }

    pub(crate) fn settle(
        &mut self,
        engine: &mut Engine,
        now: Now,
        delivery: DeliveryId,
        verdict: Verdict,
        tell: bool,
    ) -> Result<(), Stale> {
        self.keep(now, || Ask::Settle(delivery, verdict.clone(), tell));
        engine.settle(now, delivery, verdict, tell)
    }

    pub(crate) fn output(&mut self, engine: &mut Engine) -> Output {
        let output = engine.poll_output();
        if let Some(kept) = &mut self.kept {
            kept.asked.push((kept.now, Ask::Output));
            kept.said.bytes(format!("{output:?}").as_bytes());
            kept.marks.push(kept.said.value());
        }
        output
    }

    /// The clocks of the last input: all that an engine knows of the time.
    pub(crate) fn last(&self) -> Now {
        self.last
    }

    fn keep(&mut self, now: Now, ask: impl FnOnce() -> Ask) {
        self.last = now;
        if let Some(kept) = &mut self.kept {
            kept.asked.push((now, ask()));
            if kept.asked.len() > INPUTS_MAX {
                self.kept = None;
            }
        }
    }

    /// Keeps nothing more.
    pub(crate) fn stop(&mut self) {
        self.kept = None;
    }

    /// Feeds a fresh engine with what was kept: how many inputs, and the first output that differs.
    pub(crate) fn rerun(&self) -> Option<(u64, Option<(u64, String)>)> {
        let kept = self.kept.as_deref()?;
        let mut engine = Engine::new(kept.config.clone(), kept.who, kept.seed, kept.now).ok()?;
        let mut said = TraceHash::default();
        let mut marks = kept.marks.iter();
        for (n, (now, ask)) in kept.asked.iter().enumerate() {
            if let Some(differs) = again(&mut engine, *now, ask.clone(), &mut said, &mut marks) {
                return Some((kept.asked.len() as u64, Some((n as u64, differs))));
            }
        }
        Some((kept.asked.len() as u64, None))
    }
}

fn again(
    engine: &mut Engine,
    now: Now,
    ask: Ask,
    said: &mut TraceHash,
    marks: &mut std::slice::Iter<'_, u64>,
) -> Option<String> {
    match ask {
        Ask::World(input) => say(engine, now, input),
        Ask::Submit(op) => drop(engine.submit(now, op)),
        Ask::Cancel(op) => drop(engine.cancel(now, op)),
        Ask::Subscribe(sub) => drop(engine.subscribe(now, sub)),
        Ask::Unsubscribe(sub, grace) => drop(engine.unsubscribe(now, sub, grace)),
        Ask::Started(delivery) => drop(engine.started(now, delivery)),
        Ask::Settle(delivery, verdict, tell) => drop(engine.settle(now, delivery, verdict, tell)),
        Ask::Output => {
            let output = format!("{:?}", engine.poll_output());
            said.bytes(output.as_bytes());
            if marks.next() != Some(&said.value()) {
                return Some(output);
            }
        }
    }
    None
}

fn say(engine: &mut Engine, now: Now, input: Input) {
    match input {
        Input::Datagram(from, payload) => engine.handle_datagram(now, from, &payload),
        Input::Connected(conn) => engine.handle_connected(now, conn),
        Input::Sent(conn, commands) => engine.handle_sent(now, conn, commands),
        Input::Reply(conn, reply) => engine.handle_reply(now, conn, reply),
        Input::Partial(conn) => engine.handle_partial(now, conn),
        Input::Closed(conn, why) => engine.handle_closed(now, conn, why),
        Input::Timeout => engine.handle_timeout(now),
        Input::Shutdown(grace) => engine.shutdown(now, grace),
    }
}
