//! Dealing credit: how much each broker may be asked for, so that what is in hand and what is asked for never exceed
//! `in_flight` together.
//!
//! `COUNT` counts per stream, so a read over s streams reserves s times its count until its answer is in.
//!
//! *Ample* credit, at least one for every stream of every broker: each reader has one read outstanding. A reader that
//! just found entries asks for all the credit it may have, which is self-clocking: while that read is in the air,
//! credit accumulates. One that found nothing blocks with a share, then with the least, so that idle brokers tie up
//! nothing.
//!
//! *Scarce* credit: a blocked read would tie up what another broker could use. Readers wait with a plain `XREAD`, which
//! takes nothing, and fetch with what credit there is. In the order that loses no wake-up: note the end of the
//! streams, find that nothing is new for the group, wait for entries after that end. A wait in vain ends with a look at
//! the ends: a stream that was made anew under a clock that was set back goes on below the one that is waited for.

use alloc::vec::Vec;

use super::{Answer, Consumer};
use crate::command::{By, Command, Eval, Read, ReadGroup};
use crate::effect::Cx;
use crate::id::{DeliveryId, Slab};
use crate::key::Key;
use crate::mutant::Mutant;
use crate::reply::{Reply, StreamId};
use crate::script::Script;

/// The most entries of one read: a reply of this many small ones is some megabytes.
pub(super) const MOST: u32 = 16_384;

/// What the last reads of a broker say about the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appetite {
    /// Entries were found: there are probably more.
    Hungry,
    /// A look without waiting found nothing.
    Curious,
    /// A whole blocking read found nothing.
    Idle,
}

/// How a reader waits while credit is scarce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Some streams may have entries: `clean` were asked in vain since `tails` was noted.
    Asking { tails: Option<Vec<StreamId>>, next: u16, clean: u16 },
    /// Nothing was new up to these ids.
    Watching(Vec<StreamId>),
    /// Nothing came after them: do the streams still end there?
    Checking(Vec<StreamId>),
}

impl Default for Watch {
    fn default() -> Self {
        Self::Asking { tails: None, next: 0, clean: 0 }
    }
}

impl Watch {
    /// Whether nothing was found when it was last asked.
    pub(super) fn found_nothing(&self) -> bool {
        matches!(self, Self::Watching(_) | Self::Checking(_))
    }
}

impl Consumer {
    /// Sends what a burst has made possible: verdicts, claims, reads.
    pub(super) fn flush(&mut self, hand: &Slab<DeliveryId, super::Held>, cx: &mut Cx<'_>) {
        let stalled: usize = self.readers.iter().map(super::reader::Reader::stalled).sum();
        self.stalled = u32::try_from(stalled).unwrap_or(u32::MAX);
        for at in 0..self.readers.len() {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            self.flush_verdicts(at, cx);
            self.recover(at, cx);
            self.flush_claims(at, hand, cx);
        }
        if self.stop.is_some() {
            self.advance_stop(cx);
        } else {
            self.deal(cx);
        }
    }

    fn deal(&mut self, cx: &mut Cx<'_>) {
        let mut streams = 0;
        let mut active = 0;
        let mut waiting = 0;
        for reader in self.readers.iter().filter(|reader| reader.is_live() && reader.lane) {
            let own = reader.streams();
            active += 1;
            streams += own;
            waiting += if reader.read.is_none() { own } else { 0 };
        }
        if active == 0 {
            return;
        }
        // What cannot be put away for a retry takes its credit for as long as memory is full.
        let scarce = self.spec.in_flight.saturating_sub(self.stalled) < streams;
        let count = self.readers.len();
        let first = self.deal_from % count;
        let mut starving = false;
        for n in 0..count {
            let at = (first + n) % count;
            let Some(reader) = self.readers.get(at) else { continue };
            if !reader.is_live() || !reader.lane || reader.read.is_some() || reader.is_recovering() {
                continue;
            }
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            if scarce {
                self.ask_scarce(at, cx);
            } else {
                let own = reader.streams();
                waiting = waiting.saturating_sub(own);
                starving |= !self.ask_ample(at, own, active, waiting, cx);
            }
        }
        if scarce || starving {
            self.wake_rich(scarce, cx);
        }
    }

    /// Ends reads that wait with more credit than they need while others have none, so that it is dealt anew.
    pub(super) fn wake_rich(&mut self, scarce: bool, cx: &mut Cx<'_>) {
        for at in 0..self.readers.len() {
            let Some(reader) = self.readers.get(at) else { continue };
            let least = if scarce { 0 } else { reader.streams() };
            if reader.read.is_some_and(|read| read.reserved > least) {
                self.wake(u32::try_from(at).unwrap_or(u32::MAX), cx);
            }
        }
    }

    /// One read over all streams, if there is credit for it. `others` is the least that the other readers without a read
    /// need.
    fn ask_ample(&mut self, at: u32, own: u32, active: u32, others: u32, cx: &mut Cx<'_>) -> bool {
        let free = self.free();
        if free < own {
            return false;
        }
        let share = self.spec.in_flight / active;
        let Some(appetite) = self.readers.get(at as usize).map(|reader| reader.appetite) else { return true };
        let (most, blocks) = match appetite {
            Appetite::Hungry if active == 1 => (free, true),
            Appetite::Hungry => (free.saturating_sub(others), false),
            Appetite::Curious => (free.saturating_sub(others).min(share), true),
            Appetite::Idle => (own, true),
        };
        let Some(reader) = self.readers.get_mut(at as usize) else { return true };
        let count = (most.min(reader.most) / own).max(1);
        let keys = reader.readable().map(|(key, _)| key.clone()).collect();
        self.deal_from = at as usize + 1;
        let reserved = if cx.mutant(Mutant::CreditNotReserved) { 0 } else { count * own };
        self.reserve(at, Answer::Read, reserved, blocks);
        self.read_group(at, keys, count, blocks, cx);
        true
    }

    /// One step of asking, noting or waiting.
    fn ask_scarce(&mut self, at: u32, cx: &mut Cx<'_>) {
        let free = self.free();
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let keys: Vec<Key> = reader.readable().map(|(key, _)| key.clone()).collect();
        let streams = u16::try_from(keys.len()).unwrap_or(u16::MAX);
        match &mut reader.watch {
            Watch::Watching(tails) | Watch::Checking(tails) | Watch::Asking { tails: Some(tails), .. }
                if tails.len() != keys.len() =>
            {
                // Streams have come or gone since.
                reader.watch = Watch::default();
                self.ask_scarce(at, cx);
            }
            Watch::Watching(tails) => {
                let block_ms = block_ms(cx);
                let from = keys.into_iter().zip(tails.iter().copied()).collect();
                self.reserve(at, Answer::Watch, 0, true);
                self.read_command(at, Command::Read(Read { block_ms, from }.into()), Answer::Watch, cx);
            }
            Watch::Asking { tails: None, .. } | Watch::Checking(_) => {
                let eval = Eval { script: Script::Tail, keys, args: Vec::new() };
                self.reserve(at, Answer::Tail, 0, false);
                self.read_command(at, Command::Eval(eval.into(), By::Sha1), Answer::Tail, cx);
            }
            Watch::Asking { tails: tails @ Some(_), clean, .. } if *clean >= streams => {
                let tails = tails.take().unwrap_or_default();
                reader.watch = Watch::Watching(tails);
                self.ask_scarce(at, cx);
            }
            Watch::Asking { next, .. } if free > 0 => {
                let key = keys.get(*next as usize).cloned();
                *next = if *next + 1 >= streams { 0 } else { *next + 1 };
                self.deal_from = at as usize + 1;
                self.reserve(at, Answer::Read, u32::from(!cx.mutant(Mutant::CreditNotReserved)), false);
                self.read_group(at, key.into_iter().collect(), 1, false, cx);
            }
            Watch::Asking { .. } => {}
        }
    }

    /// What an answered read says about the next one.
    pub(super) fn after_read(&mut self, at: u32, found: bool, blocked: bool) {
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        if found {
            reader.most = reader.most.saturating_mul(2).min(MOST);
        }
        reader.appetite = match (found, blocked) {
            (true, _) => Appetite::Hungry,
            (false, false) => Appetite::Curious,
            (false, true) => Appetite::Idle,
        };
        if let Watch::Asking { tails, clean, .. } = &mut reader.watch {
            if found {
                *clean = 0;
                *tails = None;
            } else {
                *clean += 1;
            }
        }
    }

    pub(super) fn on_tail(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        self.take_read(at);
        if let Reply::Error(error) = reply {
            return self.rest(at, "looking for the end of the streams (EVAL)", error, cx);
        }
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        let ids: Option<Vec<StreamId>> =
            reply.view().items().map(|items| items.filter_map(|id| id.as_bytes().and_then(StreamId::parse)).collect());
        let Some(ids) = ids else { return };
        reader.watch = match &reader.watch {
            Watch::Checking(tails) if *tails == ids => Watch::Watching(ids),
            Watch::Asking { next, .. } => Watch::Asking { tails: Some(ids), next: *next, clean: 0 },
            Watch::Watching(_) | Watch::Checking(_) => Watch::Asking { tails: Some(ids), next: 0, clean: 0 },
        };
    }

    /// Something is new, or the wait is over.
    pub(super) fn on_watched(&mut self, at: u32, reply: &Reply, cx: &mut Cx<'_>) {
        self.take_read(at);
        let Some(reader) = self.readers.get_mut(at as usize) else { return };
        match reply {
            Reply::Nil => {
                if let Watch::Watching(tails) = &mut reader.watch {
                    reader.watch = Watch::Checking(core::mem::take(tails));
                }
            }
            Reply::Error(error) => {
                let error = error.clone();
                self.rest(at, "waiting for entries (XREAD)", &error, cx);
            }
            _ => reader.watch = Watch::default(),
        }
    }

    fn reserve(&mut self, at: u32, what: Answer, reserved: u32, blocks: bool) {
        if let Some(reader) = self.readers.get_mut(at as usize) {
            reader.read = Some(super::reader::Outstanding { what, reserved, blocks, woken: false });
            self.reserved += reserved;
        }
    }

    fn read_group(&self, at: u32, keys: Vec<Key>, count: u32, blocks: bool, cx: &mut Cx<'_>) {
        let read = ReadGroup {
            group: self.spec.group.clone(),
            consumer: self.name.clone(),
            count,
            block_ms: blocks.then(|| block_ms(cx)),
            keys,
        };
        self.read_command(at, Command::ReadGroup(read.into()), Answer::Read, cx);
    }
}

impl super::reader::Reader {
    /// How many streams a read names.
    fn streams(&self) -> u32 {
        u32::try_from(self.readable().count()).unwrap_or(u32::MAX).max(1)
    }
}

fn block_ms(cx: &Cx<'_>) -> u32 {
    u32::try_from(cx.config.timing.block.as_millis()).unwrap_or(u32::MAX).max(1)
}
