//! One subscription's work on one broker: its own connection, reading, recovery, and what is in flight there.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::claim::Job;
use super::credit::{Appetite, Watch};
use super::settle::{Batch, Settling};
use super::{Answer, Consumer, Contact, Held, Task};
use crate::command::Command;
use crate::config::Endpoint;
use crate::effect::{Client, Cx, Effect};
use crate::id::{BrokerId, DeliveryId, Slab};
use crate::key::{self, Key};
use crate::mutant::Mutant;
use crate::reply::{ErrorClass, ErrorReply, Reply, StreamId};
use crate::time::Mono;

pub(super) const NOTHING_SEEN: StreamId = StreamId { ms: 0, seq: 0 };

/// One subscription on one broker, or rather on one data set: it outlives the connection, and the broker's address.
#[derive(Debug)]
pub(super) struct Reader {
    /// Absent while no member has this data set.
    pub(super) broker: Option<BrokerId>,
    pub(super) store: Arc<str>,
    pub(super) at: Endpoint,
    pub(super) clock_offset_ms: i64,
    /// The command lane is up.
    pub(super) ready: bool,
    /// The reader's own connection is up.
    pub(super) lane: bool,
    pub(super) stage: Stage,
    /// Registrations under way, and whether another is needed after them.
    pub(super) ensuring: u32,
    pub(super) again: bool,
    pub(super) checking: usize,
    pub(super) keys: Vec<Key>,
    /// The highest entry seen of each stream.
    pub(super) seen: Vec<StreamId>,
    pub(super) read: Option<Outstanding>,
    pub(super) appetite: Appetite,
    pub(super) watch: Watch,
    /// A reply was lost: entries may be pending under this consumer's name that nobody holds. Nothing new is read until
    /// they have been claimed back.
    pub(super) lost: bool,
    /// More of that came while they were being claimed back, maybe behind what had been gone through.
    pub(super) lost_again: bool,
    /// The most entries of one read or claim. A reply that never arrived lowers it: it may have been too large.
    pub(super) most: u32,
    /// Streams of another type: left out until they are looked at again.
    pub(super) bad: Vec<bool>,
    /// Pending entries that the last survey could not explain, and how many had been delivered by then.
    pub(super) unexplained: (u64, u64),
    pub(super) delivered: u64,
    /// What the last survey found pending with other consumers, by stream.
    pub(super) elsewhere: Vec<u64>,
    run: Arc<str>,
    lost_client: Option<Client>,
    /// Suspects may have been left pending under this consumer's name because there was no room for one.
    pub(super) suspects_left: bool,
    /// … or under other names.
    pub(super) suspects_waiting: bool,
    /// A claim that might bring a suspect has no answer: one may be pending under this consumer's name. Until when that
    /// keeps others from being asked for.
    pub(super) suspect_lost: Option<Mono>,
    pub(super) held: u32,
    pub(super) acks: Batch,
    pub(super) told: Vec<(u16, StreamId, DeliveryId)>,
    pub(super) acking: VecDeque<Settling>,
    pub(super) defers: Vec<super::settle::Deferral>,
    pub(super) deferring: Vec<super::settle::Deferral>,
    pub(super) deaths: Vec<super::settle::Death>,
    pub(super) dying: Vec<super::settle::Death>,
    /// Memory is full there: the dead letters rest for a moment.
    pub(super) deaths_wait: bool,
    pub(super) releases: super::settle::Releases,
    pub(super) jobs: VecDeque<Job>,
    pub(super) claiming: Option<Job>,
    pub(super) renewing: VecDeque<u16>,
    pub(super) surveys: u32,
    /// Entries done with since the last trim, whether one is planned, and how many are under way.
    pub(super) done: u64,
    pub(super) trim_planned: bool,
    pub(super) trimming: u32,
    /// A refusal was told once.
    pub(super) trim_refused: bool,
    pub(super) left: bool,
    pub(super) leaving: bool,
}

/// How far a reader has come; named for what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The broker is away, or the registration must be sent.
    New,
    ExpectEnsure,
    /// A key has another type: each is asked for its own.
    ExpectTypes,
    /// Registered; reads as soon as its connection is up and nothing lost is left to recover.
    Live,
    /// Refused something; tries again later.
    Resting,
}

/// A command on the reader's own connection, and the credit reserved for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outstanding {
    pub(super) what: Answer,
    pub(super) reserved: u32,
    pub(super) blocks: bool,
    /// It was told to end.
    pub(super) woken: bool,
}

impl Reader {
    fn new(contact: &Contact) -> Self {
        Self {
            broker: None,
            store: contact.store.clone(),
            at: contact.at.clone(),
            clock_offset_ms: 0,
            ready: false,
            lane: false,
            stage: Stage::New,
            ensuring: 0,
            again: false,
            checking: 0,
            keys: Vec::new(),
            seen: Vec::new(),
            read: None,
            appetite: Appetite::Hungry,
            watch: Watch::default(),
            lost: false,
            lost_again: false,
            most: super::credit::MOST,
            bad: Vec::new(),
            unexplained: (0, 0),
            delivered: 0,
            elsewhere: Vec::new(),
            run: contact.run.clone(),
            lost_client: None,
            suspects_left: false,
            suspects_waiting: false,
            suspect_lost: None,
            held: 0,
            acks: Batch::default(),
            told: Vec::new(),
            acking: VecDeque::new(),
            defers: Vec::new(),
            deferring: Vec::new(),
            deaths: Vec::new(),
            dying: Vec::new(),
            deaths_wait: false,
            releases: super::settle::Releases::default(),
            jobs: VecDeque::new(),
            claiming: None,
            renewing: VecDeque::new(),
            surveys: 0,
            done: 0,
            trim_planned: false,
            trimming: 0,
            trim_refused: false,
            left: false,
            leaving: false,
        }
    }

    pub(super) fn on_broker_unready(&mut self) {
        self.ready = false;
        self.stage = Stage::New;
        self.jobs.clear();
    }

    fn detach(&mut self) {
        self.on_broker_unready();
        self.broker = None;
        self.lane = false;
        self.ensuring = 0;
        self.checking = 0;
        self.trimming = 0;
        self.surveys = 0;
        self.renewing.clear();
    }

    pub(super) fn on_lane_lost(&mut self, client: Option<Client>) {
        self.lane = false;
        self.lost_client = client.or(self.lost_client.take());
    }

    /// Whether nothing is known to be left there, as of the last contact.
    pub(super) fn is_drained(&self) -> bool {
        // What refuses to be read holds nobody up.
        let nothing_found =
            self.appetite == Appetite::Idle || self.watch.found_nothing() || self.stage == Stage::Resting;
        let nothing_claimed = self.jobs.is_empty() && self.claiming.is_none();
        let nothing_elsewhere = self.elsewhere.iter().all(|pending| *pending == 0);
        self.held == 0 && self.is_settled() && nothing_claimed && nothing_elsewhere && nothing_found
    }

    /// The streams that can be read, with their numbers.
    pub(super) fn readable(&self) -> impl Iterator<Item = (&Key, u16)> {
        self.keys.iter().zip(0u16..).zip(&self.bad).filter(|(_, bad)| !**bad).map(|(stream, _)| stream)
    }

    /// Whether its data set cannot be reached: gone, or known under another name now.
    pub(super) fn is_detached(&self) -> bool {
        self.broker.is_none()
    }

    /// Whether another is a reader of the same data set: a broker has come back at another address, and nobody has noticed
    /// yet that it is gone from the first.
    pub(super) fn shares_data(&self, other: &Self) -> bool {
        !self.store.is_empty() && self.store == other.store
    }

    /// Whether nothing refers to it any more.
    fn is_vacant(&self) -> bool {
        self.broker.is_none() && self.held == 0 && self.is_settled()
    }

    /// A reply that never came may have been too large to come.
    pub(super) fn shrink(&mut self, asked: u32) {
        // This many of the largest bodies still fit into a reply.
        const FIT: u32 = 16;
        self.most = (asked / 4).max(FIT).min(self.most);
    }

    /// Whether every verdict has reached the broker.
    pub(super) fn is_settled(&self) -> bool {
        self.acks.is_empty()
            && self.told.is_empty()
            && self.acking.is_empty()
            && self.defers.is_empty()
            && self.deferring.is_empty()
            && self.deaths.is_empty()
            && self.dying.is_empty()
            && self.releases.is_empty()
    }

    pub(super) fn is_live(&self) -> bool {
        self.ready && self.stage == Stage::Live
    }

    /// Which of the streams each of a batch's streams is. Replies keep the order of the request, so the search goes on
    /// from the last one found.
    pub(super) fn streams_of(&self, batch: &crate::reply::Entries) -> Vec<Option<u16>> {
        let count = self.keys.len();
        let mut next = 0;
        let mut find = |name: &[u8]| {
            let is_it = |at: &usize| self.keys.get(*at).is_some_and(|key| key.as_str().as_bytes() == name);
            let found = (0..count).map(|n| (next + n) % count).find(is_it)?;
            next = found + 1;
            u16::try_from(found).ok()
        };
        (0..batch.streams()).map(|stream| find(batch.stream_key(stream))).collect()
    }

    pub(super) fn note_seen(&mut self, stream: u16, entry: StreamId) {
        if let Some(seen) = self.seen.get_mut(stream as usize) {
            *seen = entry.max(*seen);
        }
    }

    pub(super) fn key(&self, stream: u16) -> Option<&Key> {
        self.keys.get(stream as usize)
    }

    /// Makes room for this many partitions. Whether that was news.
    pub(super) fn grow(&mut self, topic: &str, partitions: usize) -> bool {
        let want = partitions.min(super::super::MAX_PARTITIONS as usize);
        let news = want > self.keys.len();
        for i in self.keys.len()..want {
            self.keys.push(key::partition(topic, u32::try_from(i).unwrap_or(0)));
        }
        self.seen.resize(self.keys.len(), NOTHING_SEEN);
        self.acks.resize(self.keys.len());
        self.releases.resize(self.keys.len());
        self.bad.resize(self.keys.len(), false);
        self.elsewhere.resize(self.keys.len(), 0);
        news
    }

    /// Another data set is behind the address: what was in hand there is void.
    fn is_other(&self, contact: &Contact) -> bool {
        // The same process may have been nameless before, when its memory was full.
        let same_process = !self.run.is_empty() && self.run == contact.run;
        !same_process && !self.store.is_empty() && !contact.store.is_empty() && self.store != contact.store
    }
}

impl Consumer {
    /// A broker can be used (again). A data set that was known under another address is taken up where it was.
    pub(super) fn on_broker_ready(
        &mut self,
        broker: BrokerId,
        contact: &Contact,
        hand: &Slab<DeliveryId, Held>,
        cx: &mut Cx<'_>,
    ) {
        if self.reader(broker).is_some_and(|reader| reader.is_other(contact)) {
            self.detach(broker, cx);
            // Its read belongs to the data set that is gone.
            cx.effect(Effect::CloseReader { sub: self.id, broker });
        }
        let known = self.by_broker.get(broker).copied().or_else(|| self.stranded(&contact.store));
        let at = known.unwrap_or_else(|| self.new_reader(contact));
        if let Some(before) = self.readers.get(at as usize).and_then(|reader| reader.broker)
            && before != broker
        {
            // The data set has moved: its reader moves along and leaves nothing at the old address.
            self.detach(before, cx);
            cx.effect(Effect::CloseReader { sub: self.id, broker: before });
        }
        self.by_broker.insert(broker, at);
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        reader.broker = Some(broker);
        reader.store = contact.store.clone();
        reader.at = contact.at.clone();
        reader.run = contact.run.clone();
        reader.clock_offset_ms = contact.clock_offset_ms;
        reader.ready = true;
        reader.left = false;
        reader.appetite = Appetite::Hungry;
        reader.watch = Watch::default();
        if self.stop.is_none() {
            cx.effect(Effect::OpenReader { sub: self.id, broker });
        }
        self.register(at, hand, cx);
    }

    /// The broker is gone, or another data set is behind its address. What was said to it is not answered any more; what
    /// was settled waits for the data set to come back.
    pub(super) fn detach(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        let Some(at) = self.by_broker.remove(broker) else { return };
        self.lose_read(at, cx);
        self.on_claim_orphan(at, cx.now.mono);
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.detach();
            reader.recall();
        }
        self.stop_telling(at, cx);
    }

    /// What is left with readers that cannot reach their data set goes to those that read it elsewhere.
    pub(super) fn unite(&mut self, hand: &mut Slab<DeliveryId, Held>) {
        for from in 0..self.readers.len() {
            let is_left = |reader: &&Reader| !reader.ready && (reader.held > 0 || !reader.is_settled());
            let Some(left) = self.readers.get(from).filter(is_left) else { continue };
            let has_room = |reader: &Reader| reader.is_live() && reader.keys.len() >= left.keys.len();
            let Some(to) = self.readers.iter().position(|reader| has_room(reader) && reader.shares_data(left)) else {
                continue;
            };
            let numbers = (u32::try_from(from).unwrap_or(u32::MAX), u32::try_from(to).unwrap_or(u32::MAX));
            for (_, held) in hand.iter_mut().filter(|(_, held)| held.sub == self.id && held.reader == numbers.0) {
                held.reader = numbers.1;
            }
            let Ok([left, reader]) = self.readers.get_disjoint_mut([from, to]) else { continue };
            reader.held += core::mem::take(&mut left.held);
            reader.done += core::mem::take(&mut left.done);
            reader.lost |= left.lost;
            reader.take_verdicts(left);
        }
    }

    /// A reader of this data set that cannot reach it any more where it was.
    fn stranded(&self, store: &str) -> Option<u32> {
        if store.is_empty() {
            return None;
        }
        let at = self.readers.iter().position(|reader| !reader.ready && &*reader.store == store)?;
        u32::try_from(at).ok()
    }

    /// A place among the readers: one that nothing refers to any more, or a new one.
    fn new_reader(&mut self, contact: &Contact) -> u32 {
        let at = self.readers.iter().position(Reader::is_vacant).unwrap_or(self.readers.len());
        match self.readers.get_mut(at) {
            Some(reader) => *reader = Reader::new(contact),
            None => self.readers.push(Reader::new(contact)),
        }
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// While entries may be pending under this name that nobody holds: makes sure that the old connection takes no more,
    /// and claims them back before anything new is read. However often that is refused or lost, it comes round again.
    pub(super) fn recover(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if !reader.lost || !reader.is_live() || self.stop.is_some() {
            return;
        }
        // A process that has ended took its connections with it, and the next one gives their numbers to others.
        if let Some(client) = reader.lost_client.take() {
            if !client.run.is_empty() && *client.run == *reader.run {
                self.command(at, Command::Kill(client.id), Answer::Kill, cx);
            } else {
                self.on_killed(at, false, cx);
            }
        }
        if self.claim_own(at) {
            // A read under way comes to its end first: a claim would take what its answer brings.
            self.wake(at, cx);
        }
    }

    /// Ends a read that blocks on the server, without losing what it has.
    pub(super) fn wake(&mut self, at: u32, cx: &mut Cx<'_>) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if let (Some(broker), Some(read)) = (reader.broker, &mut reader.read)
            && reader.ready
            && read.blocks
            && !core::mem::replace(&mut read.woken, true)
        {
            cx.effect(Effect::Unblock { sub: self.id, broker });
        }
    }

    /// Nobody is there any more under the old connection's name; or that is not known, and its read may go on blocking
    /// on the server, so there is more to look for when it must be over.
    pub(super) fn on_killed(&mut self, at: u32, certain: bool, cx: &mut Cx<'_>) {
        if !certain {
            let over = cx.now.mono + cx.config.timing.block + cx.config.timing.block_margin;
            self.plan(over, Task::Recover(at), cx);
        }
    }

    /// Something may be pending under this name that nobody holds.
    pub(super) fn lose_track(&mut self, at: u32) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.lost_again = reader.is_claiming_from(&self.name);
            reader.lost = true;
        }
    }

    /// A read that has no answer: what it took nobody holds.
    fn lose_read(&mut self, at: u32, cx: &Cx<'_>) {
        let Some(read) = self.take_read(at) else { return };
        let forgets = cx.mutant(Mutant::OrphansForgotten) || cx.mutant(Mutant::ReadLossForgotten);
        if let Some(reader) = self.readers.get_mut(at as usize) {
            if read.what == Answer::Read {
                reader.lost |= !forgets;
                reader.shrink(read.reserved);
            }
            reader.watch = Watch::default();
        }
    }

    /// The answer to a read of new entries.
    pub(super) fn on_read(&mut self, at: u32, reply: &Reply, hand: &mut Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        let Some(outstanding) = self.take_read(at) else { return };
        if cx.mutant(Mutant::CreditLeaked) {
            self.reserved = self.reserved.saturating_add(outstanding.reserved);
        }
        match reply {
            Reply::Error(error) => return self.on_read_refused(at, error, hand, cx),
            Reply::Nil => {}
            other => match other.entries() {
                Ok(entries) => {
                    let found = !entries.is_empty();
                    cx.stats.reads += u64::from(found);
                    cx.stats.empty_reads += u64::from(!found);
                    self.after_read(at, found, outstanding.blocks);
                    return self.deliver(at, entries, None, hand, cx);
                }
                Err(_) => cx.stats.misshapen += 1,
            },
        }
        cx.stats.empty_reads += 1;
        self.after_read(at, false, outstanding.blocks);
    }

    pub(super) fn take_read(&mut self, at: u32) -> Option<Outstanding> {
        let outstanding = self.readers.get_mut(at as usize)?.read.take()?;
        self.reserved = self.reserved.saturating_sub(outstanding.reserved);
        Some(outstanding)
    }

    fn on_read_refused(&mut self, at: u32, error: &ErrorReply, hand: &Slab<DeliveryId, Held>, cx: &mut Cx<'_>) {
        match error.class() {
            ErrorClass::NoGroup => self.rejoin(at, hand, cx),
            // The stream was deleted under a blocked read: look again, which recreates it.
            ErrorClass::Unblocked => {
                self.name_store(at, cx);
                self.ensure(at, cx);
            }
            ErrorClass::WrongType => self.check_types(at, cx),
            _ => self.rest(at, "reading (XREADGROUP)", error, cx),
        }
    }

    /// A command of this reader has no answer.
    pub(super) fn on_orphan(&mut self, at: u32, answer: Answer, cx: &mut Cx<'_>) {
        match answer {
            Answer::Read | Answer::Tail | Answer::Watch => self.lose_read(at, cx),
            Answer::Ensure => {
                if let Some(reader) = self.readers.get_mut(at as usize)
                    && reader.stage == Stage::ExpectEnsure
                {
                    reader.stage = Stage::New;
                    reader.ensuring = 0;
                }
            }
            Answer::Ack => self.on_ack_orphan(at, cx),
            Answer::Claim => self.on_claim_orphan(at, cx.now.mono),
            Answer::Survey(_) => {
                if let Some(reader) = self.readers.get_mut(at as usize) {
                    reader.surveys = reader.surveys.saturating_sub(1);
                }
            }
            Answer::Defer => self.on_defer_orphan(at, cx),
            Answer::Dead => self.on_dead_orphan(at),
            Answer::Release => self.on_release_orphan(at),
            Answer::Renew => {
                if let Some(reader) = self.readers.get_mut(at as usize) {
                    reader.renewing.pop_front();
                }
            }
            Answer::Leave => self.on_left(at, cx),
            Answer::Trim(_) => self.on_trim_orphan(at),
            Answer::Type(_) => {
                if let Some(reader) = self.readers.get_mut(at as usize) {
                    reader.checking = 0;
                }
            }
            Answer::Kill => self.on_killed(at, false, cx),
            Answer::Reap | Answer::Rejoin | Answer::Name => {}
        }
    }

    pub(super) fn plan(&mut self, at: Mono, task: Task, cx: &mut Cx<'_>) {
        self.agenda.insert((at, task));
        cx.timers.arm_no_later(self.timers.agenda, at);
    }

    pub(super) fn on_agenda(&mut self, cx: &mut Cx<'_>) {
        while let Some((at, task)) = self.agenda.first().copied() {
            if at > cx.now.mono {
                cx.timers.arm(self.timers.agenda, at);
                return;
            }
            self.agenda.remove(&(at, task));
            match task {
                Task::Retry(reader, stream) => self.claim_due(reader, stream),
                Task::Recover(reader) => self.lose_track(reader),
                Task::Trim(at) => self.on_trim_time(at, cx),
                Task::Recheck(at) => {
                    let stage = self.readers.get(at as usize).map(|reader| reader.stage);
                    if matches!(stage, Some(Stage::Live | Stage::Resting)) {
                        self.check_types(at, cx);
                    }
                }
                Task::Bury(reader) => {
                    if let Some(reader) = self.readers.get_mut(reader as usize) {
                        reader.deaths_wait = false;
                    }
                }
                Task::Resume(reader) => {
                    let resting = self.readers.get(reader as usize).is_some_and(|r| r.stage == Stage::Resting);
                    if resting {
                        self.ensure(reader, cx);
                    }
                }
            }
        }
    }
}
