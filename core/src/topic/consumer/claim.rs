//! Taking over: entries of consumers that died, entries given back, and one's own whose read reply was lost.
//!
//! A survey lists a group's consumers with what they hold and how long they have been silent; each one worth claiming
//! from becomes a job. A job runs page by page, within the free credit, one at a time per reader. The script decides
//! by the server's own idle times and delivery counts, and sends poison to the dead letters before any handler sees it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::reader::partition_of;
use super::{Answer, Consumer, Held};
use crate::command::{Arg, By, Command, Eval};
use crate::effect::Cx;
use crate::id::{DeliveryId, Slab};
use crate::key;
use crate::mutant::Mutant;
use crate::output::{Event, Warning};
use crate::reply::{EntriesBuilder, ErrorClass, Reply, StreamId, View};
use crate::script::{FREE, Script};
use crate::time::Mono;

/// An entry that has been delivered this often without being settled runs alone among such: when a consumer dies,
/// its neighbours must not be counted with the one that killed it.
pub(super) const SUSPECT_FROM: u32 = 2;
/// Suspects in hand at once.
const SUSPECTS: u32 = 1;
/// Entries claimed at once, credit permitting.
const PAGE: u32 = 100;
/// A consumer with nothing pending loses its name after this long.
const REAP_AFTER_MS: i64 = 3_600_000;

/// Claim from one consumer of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    stream: u16,
    from: Arc<str>,
    min_idle_ms: u64,
    cursor: Arc<str>,
    /// Credit reserved while a page is under way.
    reserved: u32,
    /// Suspects that the page under way may bring.
    suspects: u32,
}

impl Job {
    fn new(stream: u16, from: Arc<str>, min_idle_ms: u64) -> Self {
        Self { stream, from, min_idle_ms, cursor: "-".into(), reserved: 0, suspects: 0 }
    }

    pub(super) fn stream(&self) -> u16 {
        self.stream
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(super) fn reserved(&self) -> u32 {
        self.reserved
    }

    pub(super) fn is_from(&self, name: &str) -> bool {
        &*self.from == name
    }
}

impl super::reader::Reader {
    /// Whether entries that nobody holds must still be claimed back before anything new is read.
    pub(super) fn is_recovering(&self) -> bool {
        self.lost
    }

    /// Whether a suspect may come of what was asked there, or be pending under one's own name because the answer was lost.
    fn may_bring_suspect(&self, now: Mono) -> bool {
        self.claiming.as_ref().is_some_and(|job| job.suspects > 0) || self.suspect_lost.is_some_and(|until| now < until)
    }

    fn enqueue(&mut self, job: Job) {
        // A claim under way does not count: what has become due since it ran would be missed.
        if !self.jobs.iter().any(|other| other.stream == job.stream && other.from == job.from) {
            self.jobs.push_back(job);
        }
    }

    /// Whether what is pending under a name is being claimed.
    pub(super) fn is_claiming_from(&self, name: &str) -> bool {
        self.jobs.iter().chain(&self.claiming).any(|job| job.is_from(name))
    }
}

impl Consumer {
    /// Asks every broker who holds what.
    pub(super) fn survey(&mut self, cx: &mut Cx<'_>) {
        // The time of one that was lost may be over.
        self.next_suspect(cx);
        for at in 0..self.readers.len() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            self.survey_one(at, cx);
            self.ask_due(at, cx);
        }
    }

    pub(super) fn survey_one(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.is_live() || reader.surveys > 0 || self.stop.is_some() {
            return;
        }
        let streams: Vec<_> = reader.readable().map(|(key, stream)| (key.clone(), stream)).collect();
        reader.surveys = u32::try_from(streams.len()).unwrap_or(u32::MAX);
        for (key, stream) in streams {
            self.command(at, Command::Consumers(key, self.spec.group.clone()), Answer::Survey(stream), cx);
        }
        self.recount(at, cx);
    }

    /// Asks who holds what of one stream, besides what is asked already.
    pub(super) fn survey_stream(&mut self, at: u32, stream: u16, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.is_live() || self.stop.is_some() {
            return;
        }
        let Some(key) = reader.key(stream).cloned() else { return };
        reader.surveys = reader.surveys.saturating_add(1);
        self.command(at, Command::Consumers(key, self.spec.group.clone()), Answer::Survey(stream), cx);
    }

    pub(super) fn on_survey(
        &mut self,
        at: u32,
        stream: u16,
        reply: &Reply,
        hand: &Slab<DeliveryId, Held>,
        cx: &mut Cx<'_>,
    ) {
        let claim_idle_ms = u64::try_from(self.spec.claim_idle.as_millis()).unwrap_or(u64::MAX);
        let own = self.name.clone();
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.surveys = reader.surveys.saturating_sub(1);
        if let Reply::Error(error) = reply {
            if error.class() == ErrorClass::NoGroup {
                self.rejoin(at, hand, cx);
            }
            return;
        }
        let mut reap = false;
        let (mut elsewhere, mut own_pending) = (0, 0);
        for consumer in reply.view().items().into_iter().flatten() {
            let Some((name, pending, idle_ms)) = read_consumer(consumer) else { continue };
            let count = u64::try_from(pending).unwrap_or(0);
            let sum = if name == &*own { &mut own_pending } else { &mut elsewhere };
            // Saturating: these are numbers that a peer says.
            *sum = count.saturating_add(*sum);
            reap |= pending == 0 && name != FREE && name != &*own && idle_ms >= REAP_AFTER_MS;
            if pending == 0 || name == &*own {
                continue;
            }
            let min_idle_ms = match name {
                FREE => 0,
                _ if cx.mutant(Mutant::ClaimAlive) => 0,
                // It answered or renewed lately: alive.
                _ if u64::try_from(idle_ms).unwrap_or(0) < claim_idle_ms => continue,
                _ => claim_idle_ms,
            };
            if !cx.mutant(Mutant::ClaimNever) {
                reader.enqueue(Job::new(stream, name.into(), min_idle_ms));
            }
        }
        if let Some(known) = reader.elsewhere.get_mut(stream as usize) {
            *known = elsewhere;
        }
        if reap {
            self.reap(at, stream, cx);
        }
        if !cx.mutant(Mutant::OrphansForgotten) {
            self.explain(at, stream, own_pending, hand);
        }
    }

    /// Compares what is pending under this name with what is known of. A difference that nothing under way explains, or
    /// that stands still over two surveys, is entries that nobody holds: they are claimed back.
    fn explain(&mut self, at: u32, stream: u16, pending: u64, hand: &Slab<DeliveryId, Held>) {
        let held = self.held_of(at, stream, false, hand).count() as u64;
        let unsettled = self.unsettled(at, stream).len() as u64;
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if reader.suspects_left {
            // Left on purpose.
            return;
        }
        let excess = pending.saturating_sub(held).saturating_sub(unsettled);
        let under_way =
            reader.read.map_or(0, |read| read.reserved) + reader.claiming.as_ref().map_or(0, |job| job.reserved);
        let now = (excess, reader.delivered);
        let stands = excess > 0 && reader.unexplained == now;
        reader.unexplained = now;
        reader.lost |= excess > u64::from(under_way) || stands;
    }

    /// What is in hand of a stream, whichever reader of its data set brought it; with those that have lost theirs, if
    /// asked for.
    fn held_of(
        &self,
        at: u32,
        stream: u16,
        detached: bool,
        hand: &Slab<DeliveryId, Held>,
    ) -> impl Iterator<Item = StreamId> {
        let is_it = move |of: u32| of == at || self.shares_data(at, of) || (detached && self.is_detached(of));
        let held = hand.iter().map(|(_, held)| held).filter(move |held| held.sub == self.id && held.stream == stream);
        held.filter(move |held| is_it(held.reader)).map(|held| held.entry)
    }

    /// Entries of a stream whose verdicts have not been confirmed, whichever reader of its data set has them.
    fn unsettled(&self, at: u32, stream: u16) -> Vec<StreamId> {
        let readers = self.readers.iter().zip(0u32..).filter(|(_, of)| *of == at || self.shares_data(at, *of));
        readers.flat_map(|(reader, _)| reader.unsettled(stream)).collect()
    }

    fn shares_data(&self, at: u32, of: u32) -> bool {
        let both = (self.readers.get(at as usize), self.readers.get(of as usize));
        matches!(both, (Some(at), Some(of)) if at.shares_data(of))
    }

    fn is_detached(&self, of: u32) -> bool {
        self.readers.get(of as usize).is_some_and(super::reader::Reader::is_detached)
    }

    fn reap(&self, at: u32, stream: u16, cx: &mut Cx<'_>) {
        let Some(key) = self.readers.get(at as usize).and_then(|reader| reader.key(stream)).cloned() else { return };
        let args = alloc::vec![
            Arg::Text(self.spec.group.clone()),
            Arg::Int(REAP_AFTER_MS),
            PAGE.into(),
            Arg::Text(self.name.clone()),
            FREE.into()
        ];
        let eval = Eval { script: Script::Reap, keys: alloc::vec![key], args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Reap, cx);
    }

    /// Claims back what is pending under one's own name and in nobody's hand. Whether that was not under way already.
    pub(super) fn claim_own(&mut self, at: u32) -> bool {
        let name = self.name.clone();
        let Some(reader) = self.readers.get_mut(at as usize) else { return false };
        if reader.is_claiming_from(&name) {
            return false;
        }
        let streams: Vec<u16> = reader.readable().map(|(_, stream)| stream).collect();
        for stream in streams {
            reader.enqueue(Job::new(stream, name.clone(), 0));
        }
        true
    }

    pub(super) fn flush_claims(&mut self, at: u32, hand: &Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        let free = self.free();
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.is_live() || reader.claiming.is_some() || self.stop.is_some() {
            return;
        }
        // One's own entries wait for a read that is out: what it brings would be claimed, and run twice.
        let reading = reader.read.is_some_and(|read| read.what == Answer::Read);
        let own = self.name.clone();
        let Some(next) = reader.jobs.iter().position(|job| !reading || job.from != own) else { return };
        let page = PAGE.min(reader.most).min(free);
        if page == 0 {
            // The credit may lie with reads that wait for entries which never come.
            return self.wake_rich(true, cx);
        }
        let Some(mut job) = reader.jobs.remove(next) else { return };
        let Some(source) = reader.key(job.stream).cloned() else { return };
        job.reserved = page;
        job.suspects = self.suspects_allowed(at, job.from == own, cx.now.mono);
        self.reserved += page;
        let topic = self.spec.topic.name();
        let keys = alloc::vec![source, key::dead_letters(topic), key::owners(topic, &self.spec.group)];
        let mut args = alloc::vec![
            Arg::Text(self.spec.group.clone()),
            Arg::Text(own.clone()),
            partition_of(job.stream).into(),
            "".into(),
            Arg::Text(job.from.clone()),
            Arg::Int(i64::try_from(job.min_idle_ms).unwrap_or(i64::MAX)),
            Arg::Text(job.cursor.clone()),
            page.into(),
            self.spec.max_deliveries.saturating_add(u32::from(cx.mutant(Mutant::LimitOffByOne))).into(),
            SUSPECT_FROM.into(),
            job.suspects.into(),
            "".into()
        ];
        if job.from == own && !cx.mutant(Mutant::ClaimOwnInHand) {
            // What came from a data set that cannot be reached may be this one under its earlier name: rather later than
            // twice at once.
            args.extend(self.held_of(at, job.stream, true, hand).map(Arg::Id));
            // Verdicts that are on their way.
            args.extend(self.unsettled(at, job.stream).into_iter().map(Arg::Id));
        }
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.claiming = Some(job);
        }
        let eval = Eval { script: Script::Claim, keys, args };
        self.command(at, Command::Eval(eval.into(), By::Sha1), Answer::Claim, cx);
    }

    /// How many suspects a claim may bring: none while one is in hand, or asked of any broker. Its holder may die of each,
    /// and then of all the others, too, as far as brokers can tell.
    fn suspects_allowed(&self, at: u32, own: bool, now: Mono) -> u32 {
        let others = self.readers.iter().zip(0u32..).filter(|(_, of)| !(own && *of == at));
        let asked = others.filter(|(reader, _)| reader.may_bring_suspect(now)).map(|_| 1).sum();
        SUSPECTS.saturating_sub(self.suspects).saturating_sub(asked)
    }

    /// Suspects that had to wait may run now, if none is in hand or asked for.
    pub(super) fn next_suspect(&mut self, cx: &mut Cx<'_>) {
        for at in 0..self.readers.len() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            if self.suspects_allowed(at, true, cx.now.mono) == 0 {
                continue;
            }
            let Some(reader) = self.readers.get_mut(at as usize) else { continue };
            // What is pending is being gone through, and that may be past them: its end comes here, too.
            if !reader.is_claiming_from(&self.name) {
                reader.lost |= core::mem::take(&mut reader.suspects_left);
            }
            if core::mem::take(&mut reader.suspects_waiting) {
                self.survey_one(at, cx);
            }
        }
    }

    /// `{cursor, {{id, deliveries, fields}…}, {dead…}, {bodies gone…}}`
    pub(super) fn on_claimed(&mut self, at: u32, reply: &Reply, hand: &mut Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        let Some(job) = self.take_claim(at) else { return };
        let own = job.from == self.name;
        if let Reply::Error(error) = reply {
            return match error.class() {
                ErrorClass::NoGroup => self.rejoin(at, hand, cx),
                _ => self.rest(at, "claiming (EVAL)", error, cx),
            };
        }
        let parts: Vec<View<'_>> = reply.view().items().into_iter().flatten().collect();
        let [cursor, got, dead, lost] = parts.as_slice() else { return };
        let count = |view: &View<'_>| u32::try_from(view.items().map_or(0, Iterator::count)).unwrap_or(u32::MAX);
        self.report(at, job.stream, count(dead), count(lost), cx);
        let mut builder = EntriesBuilder::new();
        if builder.claimed(*got).is_ok() {
            let entries = builder.finish();
            cx.stats.claimed += entries.len() as u64;
            self.deliver(at, entries, Some(&job), hand, cx);
        } else {
            cx.stats.misshapen += 1;
        }
        // Where there was no room for a suspect, some may have been passed over.
        let passed_over = job.suspects == 0 || self.suspects > 0;
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.suspects_left |= own && passed_over;
        reader.suspects_waiting |= !own && passed_over;
        reader.most = reader.most.saturating_mul(2).min(super::credit::MOST);
        match cursor.as_str() {
            Some(next) if !next.is_empty() => {
                reader.jobs.push_front(Job { cursor: next.into(), reserved: 0, suspects: 0, ..job });
            }
            _ => {
                if own && !reader.is_claiming_from(&self.name) {
                    reader.lost = core::mem::take(&mut reader.lost_again);
                }
                if !reader.lost {
                    reader.suspect_lost = None;
                }
            }
        }
        self.next_suspect(cx);
    }

    fn report(&mut self, at: u32, stream: u16, dead: u32, lost: u32, cx: &mut Cx<'_>) {
        self.note_done(at, stream, u64::from(dead) + u64::from(lost), cx);
        cx.stats.dead += u64::from(dead);
        cx.stats.bodies_lost += u64::from(lost);
        let (topic, group) = (self.spec.topic.name(), &*self.spec.group);
        if dead > 0 {
            let warning = Warning::Dead { topic: topic.into(), group: group.into(), count: dead };
            cx.event(Event::Warning(warning.into()));
        }
        if lost > 0 {
            let warning = Warning::BodiesLost { topic: topic.into(), group: group.into(), count: lost };
            cx.event(Event::Warning(warning.into()));
        }
    }

    fn take_claim(&mut self, at: u32) -> Option<Job> {
        let job = self.readers.get_mut(at as usize)?.claiming.take()?;
        self.reserved = self.reserved.saturating_sub(job.reserved);
        Some(job)
    }

    /// The answer is lost, and with it perhaps entries that are pending under this name now.
    pub(super) fn on_claim_orphan(&mut self, at: u32, now: Mono) {
        let Some(job) = self.take_claim(at) else { return };
        let idle = self.spec.claim_idle;
        self.lose_track(at);
        if let Some(reader) = self.readers.get_mut(at as usize) {
            if job.suspects > 0 {
                // Until it is claimed back; but where it cannot be, somebody else may claim it by then.
                reader.suspect_lost = Some(now + idle);
            }
            reader.shrink(job.reserved);
        }
    }
}

/// Name, pending entries and idle time of one consumer, whichever protocol and version reported it.
fn read_consumer(view: View<'_>) -> Option<(&str, i64, i64)> {
    let mut name = None;
    let mut pending = None;
    let mut idle = None;
    for (key, value) in view.pairs()? {
        match key.as_str()? {
            "name" => name = value.as_str(),
            "pending" => pending = value.as_int(),
            "idle" => idle = value.as_int(),
            _ => {}
        }
    }
    Some((name?, pending?, idle?))
}
