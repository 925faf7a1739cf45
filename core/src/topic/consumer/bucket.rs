//! What waits for its time: a group's retries and a topic's scheduled messages lie in buckets on the broker, one for each
//! partition, until somebody moves what is due to the stream where it is read.
//!
//! Who put something into a bucket knows when it is due, and moves it then. What others put there is found by asking for
//! the earliest due time of all buckets: with every survey, and once more about a second after such a time if that comes
//! before the next survey, by when whoever knew of it should have moved it. So a consumer for which nothing is due asks
//! once a survey; and what a consumer leaves that dies is late by no more than a survey's period and that second.
//!
//! Scheduled messages are put away by producers, which do not stay. While some are due within a minute, or were, they
//! are asked for each second: those scheduled for later than a survey's period are late by a few milliseconds, others by
//! up to that period at first, and by up to a second in a busy time.
//!
//! A group's retry stream of a partition exists from the first retry on. It is read from when it is known to exist.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::credit::Watch;
use super::reader::{NOTHING_SEEN, is_retry_stream, partition_of, retry_stream_of};
use super::settle::passes;
use super::{Answer, Consumer, Task};
use crate::command::{Arg, By, Command, Eval};
use crate::effect::Cx;
use crate::key::{self, Key};
use crate::mutant::Mutant;
use crate::output::{Event, Warning};
use crate::reply::{ErrorReply, Reply, View};
use crate::script::Script;
use crate::time::Mono;
use crate::topic::fnv1a;
use crate::topic::partitions::ENSURE_STREAMS;

/// What is due is moved this much after its due time: the server's clock ticks in milliseconds.
const SLACK: Duration = Duration::from_millis(5);
/// Due times are rounded up to multiples of this many microseconds, so that many of them make one move.
const GRID_US: u64 = 20_000;
/// How long others have to move what they know of, on average.
const OTHERS: Duration = Duration::from_secs(1);
/// Scheduled messages that are due within this time, or were, are looked after …
const SOON: Duration = Duration::from_secs(60);
/// … that often.
const EACH: Duration = Duration::from_secs(1);
/// How long a refused move waits.
const AGAIN: Duration = Duration::from_secs(1);
/// Entries, and bytes, of one move.
const ENTRIES: u32 = 100;
const BYTES: u32 = 1 << 20;
/// Buckets named in one answer.
const DUE: u32 = 100;

/// The buckets of one broker, by the stream that what is due goes to.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    all: Vec<Bucket>,
    /// The streams that each question under way asks for.
    asked: VecDeque<Vec<u16>>,
    /// When to ask again before the next survey.
    again: Option<Mono>,
    /// Scheduled messages are asked for each second until then.
    busy_until: Mono,
    /// Whether anything waited when it was last said: scheduled messages, retries.
    waits: [bool; 2],
    /// A refusal was told once.
    refused: bool,
}

/// What is known here of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// When to move what is due by then.
    next: Option<Mono>,
    /// The latest due time of what this consumer put there.
    own_until: Mono,
    /// A move is under way.
    moving: bool,
}

impl Buckets {
    pub(super) fn resize(&mut self, streams: usize) {
        self.all.resize(streams, Bucket::default());
    }

    /// Whether nothing is known to wait there.
    pub(super) fn are_empty(&self) -> bool {
        self.waits == [false; 2] && self.all.iter().all(|bucket| bucket.next.is_none() && !bucket.moving)
    }

    /// No answer will come to what is under way.
    pub(super) fn forget_asked(&mut self) {
        self.asked.clear();
        self.all.iter_mut().for_each(|bucket| bucket.moving = false);
    }
}

impl Consumer {
    /// Asks what is due, and which retry streams there are.
    pub(super) fn ask_due(&mut self, at: u32, cx: &mut Cx<'_>) {
        self.ask(at, true, cx);
    }

    fn ask(&mut self, at: u32, streams_too: bool, cx: &mut Cx<'_>) {
        let (topic, group) = (self.spec.topic.clone(), self.spec.group.clone());
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.is_live() || !reader.buckets.asked.is_empty() || self.stop.is_some() {
            return;
        }
        if let Some(again) = reader.buckets.again.take() {
            self.agenda.remove(&(again, Task::Due(at)));
        }
        let left_out = reader.bad.iter().zip(&reader.absent);
        let streams = reader.keys.iter().zip(0u16..).zip(left_out);
        let absent: Vec<(Key, u16)> = streams
            .filter(|(_, (bad, absent))| streams_too && **absent && !**bad)
            .map(|((key, stream), _)| (key.clone(), stream))
            .collect();
        let indexes = [key::retry_index(topic.name(), &group), key::delay_index(topic.name())];
        let mut evals = Vec::new();
        for chunk in absent.chunks(ENSURE_STREAMS).chain(absent.is_empty().then_some(&[][..])) {
            let keys = indexes.iter().chain(chunk.iter().map(|(key, _)| key)).cloned().collect();
            let args = alloc::vec![Arg::Text(group.clone()), DUE.into()];
            evals.push(Eval { script: Script::Due, keys, args });
            reader.buckets.asked.push_back(chunk.iter().map(|(_, stream)| *stream).collect());
        }
        for eval in evals {
            self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Due, cx);
        }
    }

    /// `{{ms to the next retry, {partitions…}}, {the same of scheduled messages}, {places of streams that exist…}}`
    pub(super) fn on_due(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(asked) = reader.buckets.asked.pop_front() else { return };
        if let Reply::Error(error) = reply {
            return self.bucket_refused(at, "looking for what is due (EVAL)", error, cx);
        }
        let parts: Vec<View<'_>> = reply.view().items().into_iter().flatten().collect();
        let [retries, scheduled, there] = parts.as_slice() else { return };
        for place in there.items().into_iter().flatten().filter_map(|place| usize::try_from(place.as_int()?).ok()) {
            if let Some(stream) = asked.get(place) {
                self.open_retry_stream(at, *stream, cx);
            }
        }
        self.on_due_of(at, *scheduled, false, cx);
        self.on_due_of(at, *retries, true, cx);
    }

    fn on_due_of(&mut self, at: u32, answer: View<'_>, retries: bool, cx: &mut Cx<'_>) {
        let mut parts = answer.items().into_iter().flatten();
        let next_ms = parts.next().and_then(|ms| ms.as_int()).and_then(|ms| u64::try_from(ms).ok());
        let due = parts.next().and_then(|due| due.items());
        for partition in due.into_iter().flatten().filter_map(|of| of.as_str()?.parse().ok()) {
            let Some(stream) = retry_stream_of(partition) else { continue };
            self.move_due(at, if retries { stream } else { stream - 1 }, cx);
        }
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.buckets.waits[usize::from(retries)] = next_ms.is_some();
        if !retries {
            return self.plan_scheduled(at, next_ms.map(Duration::from_millis), cx);
        }
        // Later ones are found by the next survey.
        if let Some(next) = next_ms.map(Duration::from_millis).filter(|next| *next < self.spec.claim_period) {
            let share = u32::try_from(fnv1a(self.name.as_bytes()) % 100).unwrap_or(0);
            self.plan_due(at, cx.now.mono + next + OTHERS / 2 + OTHERS * share / 100, cx);
        }
    }

    /// Nobody here has put scheduled messages away, so nobody knows of new ones: while there are some that are due soon,
    /// or have been, they are asked for each second.
    fn plan_scheduled(&mut self, at: u32, next: Option<Duration>, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if next.is_some_and(|next| next < SOON) {
            reader.buckets.busy_until = cx.now.mono + SOON;
        }
        if cx.now.mono < reader.buckets.busy_until {
            let wait = next.map_or(EACH, |next| (next + SLACK).min(EACH));
            // What is due is being moved; the rest of it follows at once, without being asked for.
            let wait = if next == Some(Duration::ZERO) { EACH } else { wait };
            self.plan_due(at, cx.now.mono + wait, cx);
        }
    }

    pub(super) fn on_due_orphan(&mut self, at: u32) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            // The next contact asks again.
            reader.buckets.asked.pop_front();
        }
    }

    pub(super) fn on_due_time(&mut self, at: u32, cx: &mut Cx<'_>) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.buckets.again = None;
            self.ask(at, false, cx);
        }
    }

    fn plan_due(&mut self, at: u32, when: Mono, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if reader.buckets.again.is_some_and(|again| again <= when) {
            return;
        }
        if let Some(later) = reader.buckets.again.replace(when) {
            self.agenda.remove(&(later, Task::Due(at)));
        }
        self.plan(when, Task::Due(at), cx);
    }

    // ---- moving ----

    /// Something of this consumer's waits in the bucket of a partition.
    pub(super) fn note_waiting(&mut self, at: u32, partition: u32, due: Mono, cx: &mut Cx<'_>) {
        let Some(stream) = retry_stream_of(partition) else { return };
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(bucket) = reader.buckets.all.get_mut(stream as usize) else { return };
        bucket.own_until = bucket.own_until.max(due);
        if cx.mutant(Mutant::RetryNever) {
            return;
        }
        reader.buckets.waits[1] = true;
        self.plan_move(at, stream, due + SLACK, cx);
    }

    fn plan_move(&mut self, at: u32, stream: u16, when: Mono, cx: &mut Cx<'_>) {
        let when = Mono(when.0.checked_next_multiple_of(GRID_US).unwrap_or(when.0));
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(bucket) = reader.buckets.all.get_mut(stream as usize) else { return };
        if bucket.next.is_some_and(|next| next <= when) {
            return;
        }
        if let Some(later) = bucket.next.replace(when) {
            self.agenda.remove(&(later, Task::Move(at, stream)));
        }
        self.plan(when, Task::Move(at, stream), cx);
    }

    pub(super) fn on_move_time(&mut self, at: u32, stream: u16, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(bucket) = reader.buckets.all.get_mut(stream as usize) else { return };
        if bucket.next.is_some_and(|next| next <= cx.now.mono) {
            // Where the broker is away, the next contact asks what is due.
            bucket.next = None;
            self.move_due(at, stream, cx);
        }
    }

    fn move_due(&mut self, at: u32, stream: u16, cx: &mut Cx<'_>) {
        let (topic, group) = (self.spec.topic.clone(), self.spec.group.clone());
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.is_live() || self.stop.is_some() || reader.bad.get(stream as usize) != Some(&false) {
            return;
        }
        let unmoved = if is_retry_stream(stream) { Mutant::RetryNever } else { Mutant::ScheduledUnmoved };
        if cx.mutant(unmoved) {
            return;
        }
        let Some(bucket) = reader.buckets.all.get_mut(stream as usize) else { return };
        if core::mem::replace(&mut bucket.moving, true) {
            return;
        }
        let shared = u16::from(is_retry_stream(stream) && cx.mutant(Mutant::RetryForAll));
        let Some(target) = reader.keys.get((stream - shared) as usize).cloned() else { return };
        let partition = partition_of(stream);
        let (bucket, group) = if is_retry_stream(stream) {
            (key::retry_bucket(topic.name(), partition, &group), Arg::Text(group.clone()))
        } else {
            (key::delay_bucket(topic.name(), partition), Arg::Word(""))
        };
        let owners = key::owners(topic.name(), &self.spec.group);
        let keys = alloc::vec![bucket.items, bucket.bodies, target, bucket.index, owners];
        let me = Arg::Text(self.name.clone());
        let args = alloc::vec![group, me, partition.into(), "".into(), ENTRIES.into(), BYTES.into()];
        let eval = Eval { script: Script::Move, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Move(stream), cx);
    }

    /// `{moved, ms to the next or -1, without a body, buckets in which something waits}`
    pub(super) fn on_moved(&mut self, at: u32, stream: u16, reply: &Reply, cx: &mut Cx<'_>) {
        self.on_move_orphan(at, stream);
        if let Reply::Error(error) = reply {
            if passes(error.class()) {
                self.plan_move(at, stream, cx.now.mono + AGAIN, cx);
            }
            return self.bucket_refused(at, "moving what is due (EVAL)", error, cx);
        }
        let mut parts = reply.view().items().into_iter().flatten().map_while(|part| part.as_int());
        let (Some(moved), Some(next_ms)) = (parts.next(), parts.next()) else { return };
        let (bare, waits) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        cx.stats.moved = cx.stats.moved.saturating_add(u64::try_from(moved).unwrap_or(0));
        let retries = is_retry_stream(stream);
        if retries && moved > 0 {
            self.open_retry_stream(at, stream, cx);
        }
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.buckets.waits[usize::from(retries)] = waits > 0;
        let own_until = reader.buckets.all.get(stream as usize).map_or(Mono(0), |bucket| bucket.own_until);
        let Ok(next_ms) = u64::try_from(next_ms) else { return };
        let next = cx.now.mono + Duration::from_millis(next_ms);
        if next_ms == 0 && (moved > 0 || bare > 0) {
            self.move_due(at, stream, cx);
        } else if next <= own_until + SLACK {
            // Maybe one's own; whose it is nobody else would move it in time.
            self.plan_move(at, stream, next + SLACK, cx);
        }
    }

    pub(super) fn on_move_orphan(&mut self, at: u32, stream: u16) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if let Some(bucket) = reader.buckets.all.get_mut(stream as usize) {
            bucket.moving = false;
        }
    }

    fn bucket_refused(&mut self, at: u32, what: &'static str, error: &ErrorReply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !passes(error.class()) && !core::mem::replace(&mut reader.buckets.refused, true) {
            let warning = Warning::Refused { broker: reader.at.clone(), what, error: error.text().into() };
            cx.event(Event::Warning(warning.into()));
        }
    }

    // ---- retry streams ----

    /// A retry stream exists: it is read from now on.
    fn open_retry_stream(&mut self, at: u32, stream: u16, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let Some(absent) = reader.absent.get_mut(stream as usize) else { return };
        if cx.mutant(Mutant::RetryStreamUnread) || !core::mem::replace(absent, false) {
            return;
        }
        reader.watch = Watch::default();
        // It was read before: what is pending there under this name may be in nobody's hand.
        reader.lost |= reader.seen.get(stream as usize).is_some_and(|seen| *seen > NOTHING_SEEN);
        // Others may have left something pending there, and this consumer may be gone before the next survey.
        self.survey_stream(at, stream, cx);
        // The read under way does not name it.
        self.wake(at, cx);
    }

    /// Some streams are gone, and any of these may be among them: they are looked for again.
    pub(super) fn close_retry_streams(&mut self, at: u32) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        for (absent, stream) in reader.absent.iter_mut().zip(0u16..) {
            *absent = is_retry_stream(stream);
        }
    }
}
