//! Verdicts on their way to a broker: acknowledgements in batches, retries, dead letters, and what is given back.
//!
//! Per reader and kind one command is in flight; what is settled meanwhile makes the next batch. An answer that never
//! comes puts the batch back: each of these commands may run twice.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::reader::{is_retry_stream, partition_of};
use super::{Answer, Consumer, Held, Task};
use crate::command::{Ack, Arg, By, Command, Eval};
use crate::effect::Cx;
use crate::id::{DeliveryId, Slab};
use crate::key;
use crate::mutant::Mutant;
use crate::op::{Settled, Verdict};
use crate::output::{Event, Warning};
use crate::reply::{ErrorClass, Reply, StreamId};
use crate::script::Script;

/// Ids in one `XACK` or renewal.
const IDS: usize = 1_000;
/// Entries in one script that copies bodies or looks up each id.
const ENTRIES: usize = 100;
/// Bytes of such entries in one script; one entry may be larger.
const BYTES: u64 = 1 << 20;
/// The longest delay: what is added to a time of the server must stay an exact number in its scripts.
const LONGEST_MS: u64 = 1 << 50;
/// How long a refused batch of retries or dead letters waits.
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

/// An entry to put away until its retry is due.
#[derive(Clone, Debug)]
pub(super) struct Again {
    stream: u16,
    id: StreamId,
    delay_ms: u64,
    /// Which attempt the retry will be.
    attempt: u32,
    bytes: u32,
    tell: Option<DeliveryId>,
}

/// An entry to move to the dead letters.
#[derive(Clone, Debug)]
pub(super) struct Death {
    stream: u16,
    id: StreamId,
    reason: Arc<str>,
    attempts: u32,
    deliveries: u32,
    bytes: u32,
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
    /// What it could not put away yet, because memory is full there.
    pub(super) fn stalled(&self) -> usize {
        let retries = if self.retries_wait { self.retries.len() } else { 0 };
        retries + if self.deaths_wait { self.deaths.len() } else { 0 }
    }

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
        self.retries.splice(0..0, self.retrying.drain(..));
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
        self.retries.append(&mut other.retries);
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
        let retries = self.retries.iter().chain(&self.retrying);
        ids.extend(retries.filter(|again| again.stream == stream).map(|again| again.id));
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
        let delay = self.retry_delay(held.attempt);
        let limit = self.spec.max_deliveries.saturating_add(u32::from(cx.mutant(Mutant::LimitOffByOne)));
        let Some(reader) = self.readers.get_mut(held.reader as usize) else { return };
        reader.held = reader.held.saturating_sub(1);
        let (stream, entry, deliveries, attempt) = (held.stream, held.entry, held.deliveries, held.attempt);
        let bytes = held.bytes;
        let verdict = match verdict {
            Verdict::Reject { .. } if cx.mutant(Mutant::DeadLetterSkipped) => Verdict::Done,
            Verdict::Retry { .. } if attempt >= limit && cx.mutant(Mutant::DeadLetterSkipped) => Verdict::Done,
            Verdict::Release { .. } if cx.mutant(Mutant::ReleaseAcks) => Verdict::Done,
            Verdict::Retry { .. } if cx.mutant(Mutant::RetryAsRelease) => Verdict::Release { started: false },
            verdict => verdict,
        };
        match verdict {
            Verdict::Done => match tell {
                Some(delivery) => reader.told.push((stream, entry, delivery)),
                None => reader.acks.push(stream, entry),
            },
            Verdict::Retry { after, .. } if attempt < limit => {
                let delay_ms = u64::try_from(after.unwrap_or(delay).as_millis()).unwrap_or(u64::MAX).min(LONGEST_MS);
                let delay_ms = delay_ms >> u32::from(cx.mutant(Mutant::BackoffHalved));
                let delay_ms = if cx.mutant(Mutant::RetryNotDue) { 0 } else { delay_ms };
                let attempt = if cx.mutant(Mutant::AttemptForgotten) { 1 } else { attempt + 1 };
                reader.retries.push(Again { stream, id: entry, delay_ms, attempt, bytes, tell });
            }
            Verdict::Retry { reason, .. } | Verdict::Reject { reason } => {
                let attempts = attempt;
                reader.deaths.push(Death { stream, id: entry, reason, attempts, deliveries, bytes, tell });
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
        untold.extend(reader.retrying.iter_mut().chain(&mut reader.retries).filter_map(|again| again.tell.take()));
        untold.extend(reader.dying.iter_mut().chain(&mut reader.deaths).filter_map(|death| death.tell.take()));
        for delivery in untold {
            let result = Settled::Lost("its broker, or the data that was there, is gone".into());
            cx.event(Event::Settled { delivery, result });
        }
    }

    /// `base·2ⁿ⁻¹` after the n-th attempt, at most the cap.
    fn retry_delay(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
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
        self.send_retries(at, cx);
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
        let (sent, source) = (settling.ids.len() as u64, settling.stream);
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
                self.note_done(at, source, acked, cx);
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

    fn send_retries(&mut self, at: u32, cx: &mut Cx<'_>) {
        let (topic, group) = (self.spec.topic.clone(), self.spec.group.clone());
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(stream) = reader.retries.first().map(|again| again.stream) else { return };
        if !reader.retrying.is_empty() || reader.retries_wait {
            return;
        }
        reader.retrying = take_of(&mut reader.retries, |again| (again.stream == stream).then_some(again.bytes));
        let Some(source) = reader.key(stream).cloned() else { return };
        let partition = partition_of(stream);
        let bucket = key::retry_bucket(topic.name(), partition, &group);
        let owners = key::owners(topic.name(), &group);
        let keys = alloc::vec![source, bucket.items, bucket.bodies, bucket.index, owners];
        let count = u32::try_from(reader.retrying.len()).unwrap_or(0);
        let me = Arg::Text(self.name.clone());
        let mut args = alloc::vec![Arg::Text(group), me, partition.into(), "".into(), count.into()];
        // Entry ids of the two streams of a partition may be equal.
        let tag = if is_retry_stream(stream) { "1" } else { "0" };
        for again in &reader.retrying {
            args.push(again.id.into());
            args.push(Arg::Int(i64::try_from(again.delay_ms).unwrap_or(i64::MAX)));
            args.push(again.attempt.into());
            args.push(tag.into());
            args.push(0u32.into());
        }
        let eval = Eval { script: Script::Retry, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Retry, cx);
    }

    /// Of each entry when it is due, `gone` or `lost`; `{oom}`
    pub(super) fn on_retried(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let sent = core::mem::take(&mut reader.retrying);
        if is_oom(reply) || matches!(reply, Reply::Error(error) if passes(error.class())) {
            // Never acknowledged before the copy exists: it stays pending, and is tried again.
            reader.retries.splice(0..0, sent);
            reader.retries_wait = true;
            return self.plan(cx.now.mono + AGAIN, Task::Again(at), cx);
        }
        if let Reply::Error(error) = reply {
            // They stay pending under this name until it has been silent for long enough to be claimed from.
            let (at, text) = (reader.at.clone(), error.text());
            for delivery in sent.into_iter().filter_map(|again| again.tell) {
                cx.event(Event::Settled { delivery, result: Settled::Lost(text.into()) });
            }
            let warning = Warning::Refused { broker: at, what: "putting retries away (EVAL)", error: text.into() };
            return cx.event(Event::Warning(warning.into()));
        }
        let mut answers = reply.view().items().into_iter().flatten();
        let mut done = 0;
        let mut source = 0;
        for again in sent {
            source = again.stream;
            let result = match answers.next().and_then(|one| one.as_str()) {
                Some("lost") => {
                    cx.stats.bodies_lost += 1;
                    Settled::Lost("its body had been trimmed".into())
                }
                Some(due) if due.bytes().all(|b| b.is_ascii_digit()) => {
                    cx.stats.deferred += 1;
                    done += 1;
                    let due = cx.now.mono + Duration::from_millis(again.delay_ms);
                    self.note_waiting(at, partition_of(again.stream), due, cx);
                    Settled::Ok
                }
                _ => {
                    cx.stats.fenced += 1;
                    Settled::Fenced
                }
            };
            if let Some(delivery) = again.tell {
                cx.event(Event::Settled { delivery, result });
            }
        }
        self.note_done(at, source, done, cx);
    }

    pub(super) fn on_retry_orphan(&mut self, at: u32, cx: &Cx<'_>) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            let sent = core::mem::take(&mut reader.retrying);
            reader.retries.splice(0..0, sent.into_iter().filter(|_| !cx.mutant(Mutant::RetryOrphanDropped)));
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
        reader.dying = take_of(&mut reader.deaths, |death| (death.stream == stream).then_some(death.bytes));
        let Some(source) = reader.key(stream).cloned() else { return };
        let keys = alloc::vec![source, key::dead_letters(topic.name()), key::owners(topic.name(), &self.spec.group)];
        let count = u32::try_from(reader.dying.len()).unwrap_or(0);
        let mut args = alloc::vec![
            Arg::Text(self.spec.group.clone()),
            Arg::Text(self.name.clone()),
            partition_of(stream).into(),
            "".into(),
            count.into()
        ];
        for death in &reader.dying {
            args.push(death.id.into());
            args.push(Arg::Text(death.reason.clone()));
            args.push(death.attempts.into());
            args.push(death.deliveries.into());
            args.push(0u32.into());
        }
        let eval = Eval { script: Script::Dead, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Dead, cx);
    }

    pub(super) fn on_dead(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let sent = core::mem::take(&mut reader.dying);
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
        if is_oom(reply) || matches!(reply, Reply::Error(_)) {
            // Never acknowledged before the copy exists: it stays pending, and is tried again.
            reader.deaths.splice(0..0, sent);
            reader.deaths_wait = true;
            return self.plan(cx.now.mono + AGAIN, Task::Bury(at), cx);
        }
        let mut results = reply.view().items().into_iter().flatten();
        let mut dead = 0u32;
        let mut source = 0;
        for death in sent {
            source = death.stream;
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
        self.note_done(at, source, u64::from(dead), cx);
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
            partition_of(stream).into(),
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

    /// Renews everything that is in hand, running or not, and what waits to be put away: its idle time would make
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
            let deaths = reader.deaths.iter().map(|death| (death.stream, death.id));
            let waiting = reader.retries.iter().map(|again| (again.stream, again.id)).chain(deaths);
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

/// Takes up to a batch of those that match, in order; what matches has a size.
fn take_of<T>(from: &mut Vec<T>, size: impl Fn(&T) -> Option<u32>) -> Vec<T> {
    let mut taken = Vec::new();
    let mut rest = Vec::with_capacity(from.len());
    let mut bytes = 0;
    for one in from.drain(..) {
        match size(&one) {
            Some(size) if taken.is_empty() || (taken.len() < ENTRIES && bytes + u64::from(size) <= BYTES) => {
                bytes += u64::from(size);
                taken.push(one);
            }
            _ => rest.push(one),
        }
    }
    *from = rest;
    taken
}

/// Nothing was done, for lack of memory.
fn is_oom(reply: &Reply) -> bool {
    reply.view().items().and_then(|mut items| items.next()).and_then(|one| one.as_str()) == Some("oom")
}

/// A refusal for the server's own state: the same command may succeed later, unchanged.
pub(super) fn passes(class: ErrorClass) -> bool {
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
