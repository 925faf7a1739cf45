//! Registration: the topic, the group and its streams on one broker, created where they are missing and repaired where
//! somebody removed them.

use alloc::vec::Vec;
use core::time::Duration;

use super::credit::{Appetite, Watch};
use super::reader::{NOTHING_SEEN, Reader, Stage, is_retry_stream};
use super::{Answer, Consumer, Held, Task};
use crate::command::{Arg, By, Command, Eval};
use crate::effect::Cx;
use crate::id::{DeliveryId, Slab};
use crate::key::{self, Key};
use crate::mutant::Mutant;
use crate::op::{PartitionsDiffer, Start};
use crate::output::{Event, Warning};
use crate::reply::{ErrorClass, ErrorReply, Reply, StreamId};
use crate::script::Script;
use crate::topic::partitions::{Count, ENSURE_STREAMS, REGISTER_AGAIN};

/// How long a reader rests after a refusal that will not pass by itself.
const REST: Duration = Duration::from_secs(5);
/// How long a key of another type is left alone.
const RECHECK: Duration = Duration::from_secs(60);
/// How long it rests after one that may.
const PAUSE: Duration = Duration::from_secs(1);

impl Consumer {
    /// Registers the topic and the group, and creates what is missing.
    pub(super) fn ensure(&mut self, at: u32, cx: &mut Cx<'_>) {
        let topic = self.spec.topic.clone();
        let group = self.spec.group.clone();
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.ready || self.stop.is_some() {
            return;
        }
        reader.stage = Stage::ExpectEnsure;
        reader.counted = cx.now.mono;
        reader.grow(topic.name(), &group, topic.partitions().len().max(self.count.used() as usize));
        let partitions = reader.readable().filter(|(_, stream)| !is_retry_stream(*stream));
        let keys: Vec<Key> = partitions.map(|(key, _)| key.clone()).collect();
        reader.ensuring = u32::try_from(keys.chunks(ENSURE_STREAMS).count()).unwrap_or(u32::MAX);
        let start = match self.spec.start {
            Start::Oldest if !cx.mutant(Mutant::StartNow) => alloc::string::String::from("0"),
            Start::Oldest | Start::Now => {
                // In this broker's clock, with a margin where it was met later: a producer may have met it first.
                let ms = i64::try_from(self.since.0 / 1_000).unwrap_or(0).saturating_add(reader.clock_offset_ms);
                let margin = if cx.now.mono == self.since { 0 } else { 1_000 };
                alloc::format!("{}-0", (ms - margin).max(0))
            }
        };
        // With every other group that is known of: one whose consumers are away must exist there before anything is
        // acknowledged.
        self.registry.claim(topic.name(), &group, &start);
        let mut args = self.count.args();
        args.extend(self.registry.args(topic.name(), Some((&group, &start))));
        for chunk in keys.chunks(ENSURE_STREAMS) {
            let name = topic.name();
            let names = [key::meta(name), key::groups(name)].into_iter().chain(chunk.iter().cloned()).collect();
            let eval = Eval { script: Script::Ensure, keys: names, args: args.clone() };
            self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Ensure, cx);
        }
    }

    pub(super) fn on_ensured(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        if let Reply::Error(error) = reply {
            return match error.class() {
                ErrorClass::WrongType => self.check_types(at, cx),
                _ => self.rest(at, "registering a group (EVAL)", error, cx),
            };
        }
        let count = Count::answered(reply).unwrap_or_default();
        let topic = self.spec.topic.clone();
        let groups = reply.view().items().and_then(|mut parts| parts.nth(2));
        let news = self.registry.learn(topic.name(), groups) | self.count.learn(count);
        let deleted = self.registry.is_gone(topic.name(), &self.spec.group);
        if news {
            self.spread(at, cx);
        }
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.ensuring = reader.ensuring.saturating_sub(1);
        if let Some(ours) = topic.stated().filter(|ours| count.contradicts(*ours))
            && reader.ensuring == 0
        {
            // Nothing is lost by reading all there are: who must not go on is a producer.
            let (topic, broker) = (topic.name().into(), reader.at.clone());
            let differ = PartitionsDiffer { topic, broker, ours, theirs: count.used() };
            cx.event(Event::Warning(Warning::Partitions(differ.into()).into()));
        }
        // A broker that knows more partitions than were just registered: register those too.
        // Somebody deleted this group: whoever consumes it begins it anew.
        reader.again |= deleted | reader.grow(topic.name(), &self.spec.group, count.used() as usize);
        if reader.ensuring > 0 || reader.stage != Stage::ExpectEnsure {
            return;
        }
        if core::mem::take(&mut reader.again) {
            return self.ensure(at, cx);
        }
        reader.stage = Stage::Live;
        reader.appetite = Appetite::Hungry;
        reader.watch = Watch::default();
        self.survey_one(at, cx);
        self.ask_due(at, cx);
    }

    /// Asks how many partitions the topic has by now, if that was long ago: others may have let it grow.
    pub(super) fn recount(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if cx.now.mono < reader.counted + REGISTER_AGAIN {
            return;
        }
        reader.counted = cx.now.mono;
        let meta = key::meta(self.spec.topic.name());
        let words = ["HMGET", meta.as_str(), "partitions", "version"];
        let words = words.map(|word| bytes::Bytes::copy_from_slice(word.as_bytes()));
        self.command(at, Command::Raw(words.into()), Answer::Meta, cx);
    }

    pub(super) fn on_meta(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        // What is wrong with the key is said by the registration.
        let Some(count) = Count::read(reply) else { return };
        let Some(reader) = self.readers.get(at as usize).filter(|reader| reader.is_live()) else { return };
        let from = u32::try_from(reader.partitions()).unwrap_or(u32::MAX);
        let lags =
            self.count.learn(count) || (count.version, count.partitions) < (self.count.version, self.count.partitions);
        if count.used() > from {
            let (topic, broker) = (self.spec.topic.name().into(), reader.at.clone());
            cx.event(Event::Warning(Warning::Grown { topic, broker, from, to: count.used() }.into()));
        }
        if count.used() > from || lags {
            self.ensure(at, cx);
        }
    }

    /// A broker knew of groups that the others may not know of.
    fn spread(&mut self, from: u32, cx: &mut Cx<'_>) {
        for at in (0..self.readers.len()).filter_map(|at| u32::try_from(at).ok()).filter(|at| *at != from) {
            if self.readers.get(at as usize).is_some_and(Reader::is_live) {
                self.ensure(at, cx);
            }
        }
    }

    /// A key has another type, and the command that met it does not say which: asks each.
    pub(super) fn check_types(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if reader.checking > 0 {
            return;
        }
        reader.stage = Stage::ExpectTypes;
        let named = reader.keys.iter().zip(0u16..).zip(&reader.absent).filter(|(_, absent)| !**absent);
        let named: Vec<(Key, u16)> = named.map(|((key, stream), _)| (key.clone(), stream)).collect();
        reader.checking = named.len();
        for (key, stream) in named {
            let words = ["TYPE", key.as_str()].map(|word| bytes::Bytes::copy_from_slice(word.as_bytes()));
            self.command(at, Command::Raw(words.into()), Answer::Type(stream), cx);
        }
    }

    pub(super) fn on_type(&mut self, at: u32, stream: u16, reply: &Reply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if let Reply::Error(error) = reply {
            reader.checking = 0;
            return self.rest(at, "asking for the type of a key (TYPE)", error, cx);
        }
        let bad = !matches!(reply.view().as_str(), Some("stream" | "none"));
        let was = reader.bad.get_mut(stream as usize).map(|was| core::mem::replace(was, bad));
        if bad && was == Some(false) {
            let key = reader.key(stream).map_or("a key", Key::as_str);
            let error = alloc::format!("{key} is not a stream; it is left out. Delete or rename it");
            let warning = Warning::Refused { broker: reader.at.clone(), what: "reading (XREADGROUP)", error };
            cx.event(Event::Warning(warning.into()));
        }
        reader.checking = reader.checking.saturating_sub(1);
        if reader.checking > 0 || reader.stage != Stage::ExpectTypes {
            return;
        }
        let none_is_good = reader.readable().all(|(_, stream)| is_retry_stream(stream));
        if none_is_good {
            reader.stage = Stage::Resting;
        }
        if reader.bad.contains(&true) {
            self.plan(cx.now.mono + RECHECK, Task::Recheck(at), cx);
        }
        if !none_is_good {
            self.ensure(at, cx);
        }
    }

    /// The group is gone, on one stream at least.
    pub(super) fn rejoin(&mut self, at: u32, hand: &Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        if self.readers.get(at as usize).is_some_and(|reader| reader.stage == Stage::Live) {
            self.close_retry_streams(at);
            self.name_store(at, cx);
            self.register(at, hand, cx);
        }
    }

    /// Whatever removed a stream or its group may have removed the data set's name with it. It goes by that name still:
    /// under another one, after the next restart, it would be taken for another data set, and what is in hand for lost.
    pub(super) fn name_store(&self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get(at as usize).filter(|reader| !reader.store.is_empty()) else { return };
        let words = ["SET", key::STORE, &reader.store, "NX"].map(|word| bytes::Bytes::copy_from_slice(word.as_bytes()));
        self.command(at, Command::Raw(words.into()), Answer::Name, cx);
    }

    /// Registers. Where a stream is still the one that was read and its group is gone, the group goes on where it was; a
    /// new stream is read from its start.
    pub(super) fn register(&mut self, at: u32, hand: &Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get(at as usize) else { return };
        let read = reader.keys.iter().zip(&reader.seen).zip(0u16..).filter(|((_, seen), _)| **seen > NOTHING_SEEN);
        for ((key, seen), stream) in read {
            let unsettled = hand
                .iter()
                .filter(|(_, held)| held.sub == self.id && held.reader == at && held.stream == stream)
                .map(|(_, held)| held.entry)
                // Verdicts other than "done" that are on their way are lost with the group.
                .chain(reader.unfinished(stream))
                .map(before)
                .min();
            let group = Arg::Text(self.spec.group.clone());
            let args = alloc::vec![group, (*seen).into(), unsettled.unwrap_or(*seen).into()];
            let eval = Eval { script: Script::Rejoin, keys: alloc::vec![key.clone()], args };
            self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Rejoin, cx);
        }
        self.ensure(at, cx);
    }

    /// A refusal: say so, and try again from the registration after a while.
    pub(super) fn rest(&mut self, at: u32, what: &'static str, error: &ErrorReply, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.stage = Stage::Resting;
        let passing = matches!(
            error.class(),
            ErrorClass::Loading
                | ErrorClass::Busy
                | ErrorClass::Misconf
                | ErrorClass::NoReplicas
                | ErrorClass::MasterDown
        );
        if !passing {
            let warning = Warning::Refused { broker: reader.at.clone(), what, error: error.text().into() };
            cx.event(Event::Warning(warning.into()));
        }
        self.plan(cx.now.mono + if passing { PAUSE } else { REST }, Task::Resume(at), cx);
    }
}

/// The id directly below: a group that starts there delivers the entry itself.
fn before(id: StreamId) -> StreamId {
    match id.seq.checked_sub(1) {
        Some(seq) => StreamId { ms: id.ms, seq },
        None => StreamId { ms: id.ms.saturating_sub(1), seq: u64::MAX },
    }
}
