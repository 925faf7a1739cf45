//! Verdicts on their way to a broker: acknowledgements in batches, deferrals, dead letters, and what is given back.
//!
//! Per reader and kind one command is in flight; what is settled meanwhile makes the next batch. An answer that never
//! comes puts the batch back: each of these commands may run twice.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Answer, Consumer, Held, Task};
use crate::command::{Ack, Arg, By, Command, Eval};
use crate::effect::Cx;
use crate::id::{DeliveryId, Slab};
use crate::key;
use crate::mutant::Mutant;
use crate::op::{Settled, Verdict};
use crate::output::{Event, Warning};
use crate::reply::{ErrorClass, Reply, StreamId};
use crate::script::{RETRY_HORIZON_MS, Script};
use crate::time::Mono;

/// Ids in one `XACK` or renewal.
const IDS: usize = 1_000;
/// Entries in one script that copies bodies or looks up each id.
const ENTRIES: usize = 100;
/// A due entry is claimed this much after its due time: the server's clock ticks in milliseconds.
const DUE_SLACK: Duration = Duration::from_millis(5);
/// Due times are rounded up to multiples of this many microseconds.
const DUE_GRID_US: u64 = 20_000;
/// How long a refused batch of dead letters waits.
const AGAIN: Duration = Duration::from_secs(1);

/// Ids by stream.
#[derive(Debug, Default)]
pub(super) struct Batch {
    streams: Vec<Vec<StreamId>>,
    len: usize,
}

impl Batch {
    pub(super) fn resize(&mut self, streams: usize) {
        self.streams.resize_with(streams, Vec::new);
    }

    pub(super) fn push(&mut self, stream: u16, id: StreamId) {
        if let Some(ids) = self.streams.get_mut(stream as usize) {
            ids.push(id);
            self.len += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn append(&mut self, other: &mut Self) {
        for (ids, stream) in other.streams.iter_mut().zip(0u16..) {
            ids.drain(..).for_each(|id| self.push(stream, id));
        }
        other.len = 0;
    }
}

/// Acknowledgements whose answer is awaited.
#[derive(Debug)]
pub(super) struct Settling {
    stream: u16,
    ids: Vec<StreamId>,
    tell: Option<DeliveryId>,
}

/// An entry to hand back until its retry is due.
#[derive(Clone, Debug)]
pub(super) struct Deferral {
    stream: u16,
    id: StreamId,
    delay_ms: u64,
    tell: Option<DeliveryId>,
}

/// An entry to move to the dead letters.
#[derive(Clone, Debug)]
pub(super) struct Death {
    stream: u16,
    id: StreamId,
    reason: Arc<str>,
    deliveries: u32,
    tell: Option<DeliveryId>,
}

/// Entries to give back.
#[derive(Debug, Default)]
pub(super) struct Releases {
    streams: Vec<Vec<(StreamId, bool)>>,
    waiting: usize,
    sent: Option<(u16, Vec<(StreamId, bool)>)>,
}

impl Releases {
    pub(super) fn resize(&mut self, streams: usize) {
        self.streams.resize_with(streams, Vec::new);
    }

    pub(super) fn push(&mut self, stream: u16, id: StreamId, started: bool) {
        if let Some(ids) = self.streams.get_mut(stream as usize) {
            ids.push((id, started));
            self.waiting += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0 && self.sent.is_none()
    }
}

impl super::reader::Reader {
    /// Compares the counts of what is to be said with what is there.
    #[cfg(any(test, feature = "mutants"))]
    pub(super) fn audit_verdicts(&self, of: crate::id::SubId) -> Result<(), alloc::string::String> {
        let acks = self.acks.streams.iter().map(Vec::len).sum();
        crate::audit::same("credit", format_args!("{of:?} acknowledgements to send"), self.acks.len, acks)?;
        let releases = self.releases.streams.iter().map(Vec::len).sum();
        crate::audit::same("credit", format_args!("{of:?} entries to give back"), self.releases.waiting, releases)
    }

    /// No answer to what was sent will come: all of it is to be sent again.
    pub(super) fn recall(&mut self) {
        for settling in core::mem::take(&mut self.acking) {
            self.put_back(settling);
        }
        self.defers.splice(0..0, self.deferring.drain(..));
        self.deaths.splice(0..0, self.dying.drain(..));
        if let Some((stream, entries)) = self.releases.sent.take() {
            entries.into_iter().for_each(|(id, started)| self.releases.push(stream, id, started));
        }
    }

    fn put_back(&mut self, settling: Settling) {
        for id in settling.ids {
            match settling.tell {
                Some(delivery) => self.told.push((settling.stream, id, delivery)),
                None => self.acks.push(settling.stream, id),
            }
        }
    }

    /// Says from now on what another was to say, of which nothing is under way.
    pub(super) fn take_verdicts(&mut self, other: &mut Self) {
        other.recall();
        self.acks.append(&mut other.acks);
        self.told.append(&mut other.told);
        self.defers.append(&mut other.defers);
        self.deaths.append(&mut other.deaths);
        for (entries, stream) in other.releases.streams.iter_mut().zip(0u16..) {
            entries.drain(..).for_each(|(id, started)| self.releases.push(stream, id, started));
        }
        other.releases.waiting = 0;
    }

    /// Entries of a stream whose verdicts have not been confirmed.
    pub(super) fn unsettled(&self, stream: u16) -> Vec<StreamId> {
        let mut ids = self.unfinished(stream);
        ids.extend(self.acks.streams.get(stream as usize).into_iter().flatten());
        let acking = self.acking.iter().filter(|settling| settling.stream == stream);
        ids.extend(acking.flat_map(|settling| settling.ids.iter().copied()));
        ids.extend(self.told.iter().filter(|(of, ..)| *of == stream).map(|(_, id, _)| *id));
        ids
    }

    /// Those of them that are not done with.
    pub(super) fn unfinished(&self, stream: u16) -> Vec<StreamId> {
        let at = stream as usize;
        let mut ids = Vec::new();
        let defers = self.defers.iter().chain(&self.deferring);
        ids.extend(defers.filter(|defer| defer.stream == stream).map(|defer| defer.id));
        let deaths = self.deaths.iter().chain(&self.dying);
        ids.extend(deaths.filter(|death| death.stream == stream).map(|death| death.id));
        ids.extend(self.releases.streams.get(at).into_iter().flatten().map(|(id, _)| *id));
        if let Some((of, sent)) = &self.releases.sent
            && *of == stream
        {
            ids.extend(sent.iter().map(|(id, _)| *id));
        }
        ids
    }
}

impl Consumer {
    pub(super) fn settle(&mut self, id: DeliveryId, held: &Held, verdict: Verdict, tell: bool, cx: &mut Cx<'_>) {
        self.held = self.held.saturating_sub(1 + u32::from(cx.mutant(Mutant::CreditFreedTwice)));
        if held.suspect {
            self.suspects = self.suspects.saturating_sub(1);
        }
        let tell = tell.then_some(id);
        let delay = self.retry_delay(held.deliveries);
        let limit = self.spec.max_deliveries.saturating_add(u32::from(cx.mutant(Mutant::LimitOffByOne)));
        let Some(reader) = self.readers.get_mut(held.reader as usize) else { return };
        reader.held = reader.held.saturating_sub(1);
        let (stream, entry, deliveries) = (held.stream, held.entry, held.deliveries);
        let verdict = match verdict {
            Verdict::Reject { .. } if cx.mutant(Mutant::DeadLetterSkipped) => Verdict::Done,
            Verdict::Retry { .. } if deliveries >= limit && cx.mutant(Mutant::DeadLetterSkipped) => Verdict::Done,
            Verdict::Release { .. } if cx.mutant(Mutant::ReleaseAcks) => Verdict::Done,
            Verdict::Retry { .. } if cx.mutant(Mutant::RetryAsRelease) => Verdict::Release { started: false },
            verdict => verdict,
        };
        match verdict {
            Verdict::Done => match tell {
                Some(delivery) => reader.told.push((stream, entry, delivery)),
                None => reader.acks.push(stream, entry),
            },
            Verdict::Retry { after, .. } if deliveries < limit => {
                let delay_ms =
                    u64::try_from(after.unwrap_or(delay).as_millis()).unwrap_or(u64::MAX).min(RETRY_HORIZON_MS);
                let delay_ms = delay_ms >> u32::from(cx.mutant(Mutant::BackoffHalved));
                reader.defers.push(Deferral { stream, id: entry, delay_ms, tell });
            }
            Verdict::Retry { reason, .. } | Verdict::Reject { reason } => {
                reader.deaths.push(Death { stream, id: entry, reason, deliveries, tell });
            }
            Verdict::Release { started } => {
                reader.releases.push(stream, entry, started);
                if let Some(delivery) = tell {
                    cx.event(Event::Settled { delivery, result: Settled::Ok });
                }
            }
        }
        if reader.broker.is_none() {
            self.stop_telling(held.reader, cx);
        }
        if held.suspect {
            self.next_suspect(cx);
        }
    }

    /// Whoever waits to be told what became of a verdict is told that nobody can say. The verdicts themselves stay.
    pub(super) fn stop_telling(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let mut untold = Vec::new();
        for (stream, id, delivery) in reader.told.drain(..) {
            reader.acks.push(stream, id);
            untold.push(delivery);
        }
        untold.extend(reader.acking.iter_mut().filter_map(|settling| settling.tell.take()));
        untold.extend(reader.deferring.iter_mut().chain(&mut reader.defers).filter_map(|defer| defer.tell.take()));
        untold.extend(reader.dying.iter_mut().chain(&mut reader.deaths).filter_map(|death| death.tell.take()));
        for delivery in untold {
            let result = Settled::Lost("its broker, or the data that was there, is gone".into());
            cx.event(Event::Settled { delivery, result });
        }
    }

    /// `base·2ⁿ⁻¹` after the n-th delivery, at most the cap.
    fn retry_delay(&self, deliveries: u32) -> Duration {
        let doublings = deliveries.saturating_sub(1).min(31);
        self.spec.retry_base.saturating_mul(1 << doublings).min(self.spec.retry_cap)
    }

    pub(super) fn flush_verdicts(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get(at as usize) else { return };
        if !reader.ready || reader.left || reader.leaving {
            return;
        }
        if reader.acking.is_empty() {
            self.send_acks(at, cx);
        }
        self.send_defers(at, cx);
        self.send_deaths(at, cx);
        self.send_releases(at, cx);
    }

    // ---- done ----

    fn send_acks(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let mut all: Vec<Settling> = Vec::new();
        if reader.acks.len > 0 {
            reader.acks.len = 0;
            for (ids, stream) in reader.acks.streams.iter_mut().zip(0u16..) {
                while !ids.is_empty() {
                    let rest = ids.split_off(ids.len().min(IDS));
                    all.push(Settling { stream, ids: core::mem::replace(ids, rest), tell: None });
                }
            }
        }
        // One by one, because the answer to a batch does not say which of its ids were somebody else's.
        let told = reader.told.drain(..);
        all.extend(told.map(|(stream, id, delivery)| Settling { stream, ids: alloc::vec![id], tell: Some(delivery) }));
        for settling in all {
            let Some(reader) = self.readers.get_mut(at as usize) else { return };
            let Some(key) = reader.key(settling.stream).cloned() else { continue };
            let ack = Ack { key, group: self.spec.group.clone(), ids: settling.ids.clone() };
            reader.acking.push_back(settling);
            cx.stats.acks += 1;
            self.command(at, Command::Ack(ack), Answer::Ack, cx);
        }
    }

    pub(super) fn on_acked(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(settling) = reader.acking.pop_front() else { return };
        let sent = settling.ids.len() as u64;
        match reply {
            Reply::Error(error) if passes(error.class()) => reader.put_back(settling),
            Reply::Error(error) => {
                let text = error.text().into();
                let warning = Warning::Refused { broker: reader.at.clone(), what: "acknowledging (XACK)", error: text };
                cx.event(Event::Warning(warning.into()));
                if let Some(delivery) = settling.tell {
                    cx.event(Event::Settled { delivery, result: Settled::Lost(error.text().into()) });
                }
            }
            other => {
                let acked = other.view().as_int().and_then(|n| u64::try_from(n).ok()).unwrap_or(0).min(sent);
                cx.stats.acked += acked;
                cx.stats.acked_elsewhere += sent - acked;
                if let Some(delivery) = settling.tell {
                    let result = if acked == sent { Settled::Ok } else { Settled::Fenced };
                    cx.event(Event::Settled { delivery, result });
                }
                self.note_done(at, acked, cx);
            }
        }
    }

    pub(super) fn on_ack_orphan(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(settling) = self.readers.get_mut(at as usize).and_then(|reader| reader.acking.pop_front()) else {
            return;
        };
        if !cx.mutant(Mutant::LostAckIsTold) {
            if let Some(reader) = self.readers.get_mut(at as usize) {
                reader.put_back(settling);
            }
        } else if let Some(delivery) = settling.tell {
            cx.event(Event::Settled { delivery, result: Settled::Ok });
        }
    }

    // ---- retry ----

    fn send_defers(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(stream) = reader.defers.first().map(|defer| defer.stream) else { return };
        if !reader.deferring.is_empty() {
            return;
        }
        reader.deferring = take_of(&mut reader.defers, |defer| defer.stream == stream);
        let Some(key) = reader.key(stream).cloned() else { return };
        let mut args = alloc::vec![Arg::Text(self.spec.group.clone()), Arg::Text(self.name.clone())];
        for defer in &reader.deferring {
            args.push(defer.id.into());
            args.push(Arg::Int(i64::try_from(defer.delay_ms).unwrap_or(i64::MAX)));
        }
        let eval = Eval { script: Script::Defer, keys: alloc::vec![key], args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Defer, cx);
    }

    pub(super) fn on_deferred(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let sent = core::mem::take(&mut reader.deferring);
        if let Reply::Error(error) = reply {
            if passes(error.class()) {
                reader.defers.splice(0..0, sent);
                return;
            }
            // They stay pending under this name until it has been silent for long enough to be claimed from.
            let (at, text) = (reader.at.clone(), error.text());
            for delivery in sent.into_iter().filter_map(|defer| defer.tell) {
                cx.event(Event::Settled { delivery, result: Settled::Lost(text.into()) });
            }
            let warning = Warning::Refused { broker: at, what: "deferring (EVAL)", error: text.into() };
            return cx.event(Event::Warning(warning.into()));
        }
        let mut kept = reply.view().items().into_iter().flatten().map(|one| one.as_int() == Some(1));
        let mut due = Vec::new();
        for defer in sent {
            let ours = kept.next().unwrap_or(false);
            if ours {
                cx.stats.deferred += 1;
                due.push((Duration::from_millis(defer.delay_ms), defer.stream));
            } else {
                cx.stats.fenced += 1;
            }
            if let Some(delivery) = defer.tell {
                let result = if ours { Settled::Ok } else { Settled::Fenced };
                cx.event(Event::Settled { delivery, result });
            }
        }
        if cx.mutant(Mutant::RetryNever) {
            return;
        }
        for (delay, stream) in due {
            // On a grid, so that many deferrals make one look.
            let due = cx.now.mono + delay + DUE_SLACK;
            self.plan(Mono(due.0.next_multiple_of(DUE_GRID_US)), Task::Retry(at, stream), cx);
        }
    }

    pub(super) fn on_defer_orphan(&mut self, at: u32, cx: &Cx<'_>) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            let sent = core::mem::take(&mut reader.deferring);
            reader.defers.splice(0..0, sent.into_iter().filter(|_| !cx.mutant(Mutant::DeferOrphanDropped)));
        }
    }

    // ---- dead letters ----

    fn send_deaths(&mut self, at: u32, cx: &mut Cx<'_>) {
        let topic = self.spec.topic.clone();
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(stream) = reader.deaths.first().map(|death| death.stream) else { return };
        if !reader.dying.is_empty() || reader.deaths_wait {
            return;
        }
        reader.dying = take_of(&mut reader.deaths, |death| death.stream == stream);
        let Some(source) = reader.key(stream).cloned() else { return };
        let keys = alloc::vec![source, key::dead_letters(topic.name()), key::owners(topic.name(), &self.spec.group)];
        let count = u32::try_from(reader.dying.len()).unwrap_or(0);
        let mut args = alloc::vec![
            Arg::Text(self.spec.group.clone()),
            Arg::Text(self.name.clone()),
            u32::from(stream).into(),
            "".into(),
            count.into()
        ];
        for death in &reader.dying {
            args.push(death.id.into());
            args.push(Arg::Text(death.reason.clone()));
            // A retry that keeps the entry pending makes every delivery an attempt.
            args.push(death.deliveries.into());
            args.push(death.deliveries.into());
            args.push(0u32.into());
        }
        let eval = Eval { script: Script::Dead, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Dead, cx);
    }

    pub(super) fn on_dead(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let sent = core::mem::take(&mut reader.dying);
        let memory_full =
            reply.view().items().and_then(|mut items| items.next()).and_then(|one| one.as_str()) == Some("oom");
        if let Reply::Error(error) = reply
            && !passes(error.class())
        {
            let warning = Warning::Refused {
                broker: reader.at.clone(),
                what: "moving entries to the dead letters (EVAL)",
                error: error.text().into(),
            };
            cx.event(Event::Warning(warning.into()));
            if error.class() == ErrorClass::NoGroup {
                // Nobody holds anything in a group that is gone.
                for delivery in sent.iter().filter_map(|death| death.tell) {
                    cx.event(Event::Settled { delivery, result: Settled::Fenced });
                }
                return;
            }
        }
        if memory_full || matches!(reply, Reply::Error(_)) {
            // Never acknowledged before the copy exists: it stays pending, and is tried again.
            reader.deaths.splice(0..0, sent);
            reader.deaths_wait = true;
            return self.plan(cx.now.mono + AGAIN, Task::Bury(at), cx);
        }
        let mut results = reply.view().items().into_iter().flatten();
        let mut dead = 0u32;
        for death in sent {
            let result = match results.next().and_then(|one| one.as_str()) {
                Some("gone") => Settled::Fenced,
                Some("lost") => {
                    cx.stats.bodies_lost += 1;
                    Settled::Lost("its body had been trimmed".into())
                }
                _ => {
                    dead += 1;
                    Settled::Ok
                }
            };
            cx.stats.fenced += u64::from(result == Settled::Fenced);
            if let Some(delivery) = death.tell {
                cx.event(Event::Settled { delivery, result });
            }
        }
        cx.stats.dead += u64::from(dead);
        self.note_done(at, u64::from(dead), cx);
    }

    pub(super) fn on_dead_orphan(&mut self, at: u32) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            let sent = core::mem::take(&mut reader.dying);
            reader.deaths.splice(0..0, sent);
        }
    }

    // ---- given back ----

    fn send_releases(&mut self, at: u32, cx: &mut Cx<'_>) {
        let topic = self.spec.topic.clone();
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if reader.releases.waiting == 0 || reader.releases.sent.is_some() {
            return;
        }
        let mut streams = reader.releases.streams.iter_mut().zip(0u16..);
        let Some((entries, stream)) = streams.find(|(entries, _)| !entries.is_empty()) else { return };
        let rest = entries.split_off(entries.len().min(ENTRIES));
        let entries = core::mem::replace(entries, rest);
        reader.releases.waiting = reader.releases.waiting.saturating_sub(entries.len());
        let Some(source) = reader.key(stream).cloned() else { return };
        let mut args = alloc::vec![
            Arg::Text(self.spec.group.clone()),
            Arg::Text(self.name.clone()),
            u32::from(stream).into(),
            "".into()
        ];
        for (id, started) in &entries {
            args.push((*id).into());
            args.push(if *started { "1" } else { "0" }.into());
        }
        reader.releases.sent = Some((stream, entries));
        let keys = alloc::vec![source, key::owners(topic.name(), &self.spec.group)];
        let eval = Eval { script: Script::Release, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Release, cx);
    }

    pub(super) fn on_released(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some((stream, entries)) = reader.releases.sent.take() else { return };
        match reply {
            Reply::Error(error) if passes(error.class()) => {
                entries.into_iter().for_each(|(id, started)| reader.releases.push(stream, id, started));
            }
            other => {
                cx.stats.released = cx
                    .stats
                    .released
                    .saturating_add(other.view().as_int().and_then(|n| u64::try_from(n).ok()).unwrap_or(0))
            }
        }
    }

    pub(super) fn on_release_orphan(&mut self, at: u32) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if let Some((stream, entries)) = reader.releases.sent.take() {
            entries.into_iter().for_each(|(id, started)| reader.releases.push(stream, id, started));
        }
    }

    // ---- held ----

    /// Renews everything that is in hand, running or not, and what waits to be buried: its idle time would make
    /// somebody else claim it.
    pub(super) fn renew(&mut self, hand: &Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        for at in 0..self.readers.len() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            let Some(reader) = self.readers.get(at as usize) else { continue };
            if !reader.ready || !reader.renewing.is_empty() {
                continue;
            }
            let mut streams = Vec::new();
            streams.resize_with(reader.keys.len(), Vec::new);
            let ours = hand.iter().filter(|(_, held)| held.sub == self.id && held.reader == at);
            let waiting = reader.deaths.iter().map(|death| (death.stream, death.id));
            for (stream, id) in ours.map(|(_, held)| (held.stream, held.entry)).chain(waiting) {
                if let Some(ids) = streams.get_mut(stream as usize) {
                    ids.push(id);
                }
            }
            for (ids, stream) in streams.iter().zip(0u16..) {
                for chunk in ids.chunks(IDS / 2) {
                    self.send_renewal(at, stream, chunk, cx);
                }
            }
        }
    }

    fn send_renewal(&mut self, at: u32, stream: u16, ids: &[StreamId], cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(key) = reader.key(stream).cloned() else { return };
        reader.renewing.push_back(stream);
        let mut args = alloc::vec![Arg::Text(self.spec.group.clone()), Arg::Text(self.name.clone())];
        args.extend(ids.iter().map(|id| Arg::Id(*id)));
        let eval = Eval { script: Script::Renew, keys: alloc::vec![key], args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Renew, cx);
    }

    pub(super) fn on_renewed(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.renewing.pop_front();
        if !matches!(reply, Reply::Error(_)) {
            // Settled meanwhile, or claimed by somebody else. The handler goes on: in competing mode what it does is
            // still true, and its acknowledgement counts whoever holds the entry.
            cx.stats.fenced += reply.view().items().map_or(0, |lost| lost.count() as u64);
        }
    }
}

/// Takes up to a batch of those that match, in order.
fn take_of<T>(from: &mut Vec<T>, matches: impl Fn(&T) -> bool) -> Vec<T> {
    let mut taken = Vec::new();
    let mut rest = Vec::with_capacity(from.len());
    for one in from.drain(..) {
        if taken.len() < ENTRIES && matches(&one) { taken.push(one) } else { rest.push(one) }
    }
    *from = rest;
    taken
}

/// A refusal for the server's own state: the same command may succeed later, unchanged.
fn passes(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Loading
            | ErrorClass::Busy
            | ErrorClass::MasterDown
            | ErrorClass::Misconf
            | ErrorClass::NoReplicas
            | ErrorClass::ReadOnly
            | ErrorClass::Oom
            | ErrorClass::NoAuth
    )
}
