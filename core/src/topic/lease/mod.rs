//! Leases: which member of a group has which partitions on one broker, and how long it may believe so.
//!
//! A [`Lease`] is the side of one member (a subscription) on one data set. Every few seconds it sends a *tick*, the script
//! [`Tick`](crate::script::Script::Tick), which is heartbeat, expiry, renewal, release, sharing and granting at once: the
//! server keeps a member's partitions for as long as it hears of the member, and nothing is written per partition by a
//! group that is at rest.
//!
//! It is pure: time comes in, and it neither sends nor waits. Whoever drives it
//!
//! 1. tells it what happened, with the time;
//! 2. then asks [`poll`](Lease::poll) until it wants nothing, and [`take_changes`](Lease::take_changes);
//! 3. comes back at [`next_at`](Lease::next_at), and asks [`believed`](Lease::believed) whenever something depends on it:
//!    before a message is handed to a handler, and when a verdict is sent.
//!
//! # Why two members never believe in one partition
//!
//! A member believes from the *emission* of the tick that was answered, for 98 % of the time to live less half a second,
//! by a clock that runs while the machine sleeps. The server counts the whole time from the *execution*, which is later.
//! So belief ends first as long as the two clocks run within two percent of each other, however long an answer takes or
//! the process sleeps. What a member gives up it stops believing before it tells the server. A token is larger than
//! every one before it, and a member takes only a token that it has not had: what was lost is never silently had again.
//!
//! # What the parts are
//!
//! `tick` writes the request and reads the reply, `holdings` knows what is held and what has to go, `fence` is the token
//! that goes with a message.

mod fence;
mod holdings;
mod tick;

#[cfg(test)]
mod tests;

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use self::fence::{Fence, Scope, Token};
use self::holdings::Holdings;
use self::tick::{Answer, Full, Request};
use crate::command::Eval;
use crate::key::{self, Key};
use crate::mutant::Mutant;
use crate::reply::{Reply, UnexpectedShape};
use crate::time::Mono;

/// Between a member's registration and its first grant: members that start together are all counted before anybody is
/// given anything, instead of handing most of it over again.
const AFTER_JOIN: Duration = Duration::from_millis(200);

/// As long as a member has less than its share, others may release something at any moment.
const BELOW_SHARE: Duration = Duration::from_millis(700);

/// When there is more to be had than one tick may take.
const AFTER_MORE: Duration = Duration::from_millis(50);

/// After a refusal or an answer that makes no sense.
const AFTER_REFUSAL: Duration = Duration::from_millis(700);

/// The longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a belief is shorter than 98 % of the time to live.
const MARGIN: Duration = Duration::from_millis(500);

/// The most partitions that one tick may grant: so much work in one script is enough.
const ROOM: u32 = 100;

/// What a lease is about; all of it stays as it is.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The broker's data set, the topic and the group.
    pub scope: Arc<Scope>,
    /// The member: a name that no other subscription of any process has, ever.
    pub member: Arc<str>,
    /// The number of partitions, where the broker knows none.
    pub partitions: u32,
    /// How long the server keeps what a member has that it does not hear of. The same for all members of a group.
    pub ttl: Duration,
    /// How long a partition that is to be given up may keep its messages in hand.
    pub drain: Duration,
    /// A member none of whose reads ends for so long leaves the line: it would keep partitions that nobody reads.
    pub deaf: Duration,
    /// A planted fault.
    #[cfg(feature = "mutants")]
    #[doc(hidden)]
    pub mutant: Option<Mutant>,
}

/// A connection to the server: what the server needs to know to tell what it may have forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact {
    /// The server process; empty if it does not say, and then no restart is noticed by it.
    pub run: Arc<str>,
    /// When that process started, by its own clock, in milliseconds since 1970.
    pub started_ms: i64,
    /// How much of its log can be missing after a crash, in milliseconds; none without a log that is written all the time.
    pub log_lost_ms: Option<u32>,
}

/// What a lease wants.
#[derive(Debug)]
pub enum Want {
    /// This script run on the server, as soon as may be; its answer goes to [`Lease::on_reply`].
    Tick(Eval),
    /// The connection given up: its answer is overdue. Nothing more comes until there is another.
    HangUp,
}

/// What has become of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is this member's: first take over what is pending there, then read.
    Acquired(u32, Token),
    /// It is not this member's any more: what is in hand there is fenced, and nothing is read.
    Lost(u32, Token),
    /// Somebody else is to have it: read nothing more there, and say [`Lease::released`] when nothing is in hand and no
    /// read that names it is out.
    Drain(u32),
    /// It may be kept after all.
    Resume(u32),
}

/// What a member is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It registers and takes nothing yet.
    Join,
    /// It takes its share.
    Run,
    /// It gives up what it has, because none of its reads ends.
    Deaf,
    /// The same, because it was told to.
    Leave,
    /// Its last word: it has nothing.
    Gone,
}

/// A tick without an answer yet.
#[derive(Debug)]
struct Flight {
    at: Mono,
    /// The end of the belief that its answer gives.
    until: Mono,
    mode: Mode,
    /// What [`Lease::epoch`] was.
    epoch: u64,
}

/// A member's side of its leases on one data set.
///
/// Keep it for as long as the member's name is in use on that data set, over all connections and restarts of the server.
#[derive(Debug)]
pub struct Lease {
    terms: Terms,
    keys: [Key; 5],
    /// The member's place in line: drawn from names, so that it is another one on each broker.
    place: u64,
    contact: Option<Contact>,
    mode: Mode,
    holdings: Holdings,
    /// When belief ends in everything that is held.
    until: Mono,
    /// The server's generation that this side agrees with; 0 if it may not.
    known: u64,
    /// Counts what makes both sides differ: an answer to a tick from before it proves no agreement.
    epoch: u64,
    sequence: u64,
    /// The newest token that any answer has shown.
    newest: Token,
    partitions: u32,
    /// What the last answer gave as this member's share.
    share: u32,
    /// How many are in line, by the last answer.
    members: u32,
    flight: Option<Flight>,
    /// When the next tick is due.
    due: Mono,
    /// When a read last ended, or there was nothing to read.
    heard: Mono,
    over: bool,
    changes: Vec<Change>,
}

impl Lease {
    /// A member that holds nothing and has not been heard of.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        let (topic, group) = (&terms.scope.topic, &terms.scope.group);
        let keys = [
            key::lease(topic, group),
            key::owners(topic, group),
            key::lease_members(topic, group),
            key::lease_rank(topic, group),
            key::meta(topic),
        ];
        let names = format!("{}:{topic}:{group}:{}", terms.scope.store, terms.member);
        Self {
            keys,
            // Exact in a sorted set, whose scores are doubles.
            place: mix(super::fnv1a(names.as_bytes())) >> 12,
            contact: None,
            mode: Mode::Join,
            holdings: Holdings::default(),
            until: Mono::default(),
            known: 0,
            epoch: 0,
            sequence: 0,
            newest: Token(0),
            partitions: terms.partitions,
            share: 0,
            members: 0,
            flight: None,
            due: Mono::default(),
            heard: Mono::default(),
            over: false,
            changes: Vec::new(),
            terms,
        }
    }

    // ---- what is asked ----

    /// The token under which a partition is this member's now; none if it is not, as far as anybody can know.
    #[must_use]
    pub fn believed(&self, now: Mono, partition: u32) -> Option<Token> {
        let ended = now >= self.until && !self.mutant(Mutant::BeliefByTimer);
        if ended { None } else { self.holdings.token(partition) }
    }

    /// The same as what a handler is given.
    #[must_use]
    pub fn fence(&self, now: Mono, partition: u32) -> Option<Fence> {
        let token = self.believed(now, partition)?;
        Some(Fence { scope: self.terms.scope.clone(), partition, token })
    }

    /// Until when what is held is believed, unless an answer prolongs it; none if nothing is held. A read that blocks
    /// should not block for longer.
    #[must_use]
    pub fn belief_ends(&self) -> Option<Mono> {
        (!self.holdings.is_empty()).then_some(self.until)
    }

    /// What may be read, in order: all that is held and is to be kept.
    pub fn readable(&self, now: Mono) -> impl Iterator<Item = (u32, Token)> {
        self.holdings.kept().filter(move |_| now < self.until)
    }

    /// What is held and has to go, the last acquired first.
    #[must_use]
    pub fn surplus(&self) -> Vec<u32> {
        self.holdings.surplus()
    }

    /// How many partitions are held, those included that have to go.
    #[must_use]
    pub fn held(&self) -> usize {
        self.holdings.len()
    }

    /// As the last answer had them: partitions, this member's share of them, members in line.
    #[must_use]
    pub fn sharing(&self) -> (u32, u32, u32) {
        (self.partitions, self.share, self.members)
    }

    /// Whether the server has heard this member's last word.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// When to ask [`poll`](Self::poll) again, if nothing happens before.
    #[must_use]
    pub fn next_at(&self) -> Option<Mono> {
        let tick = match &self.flight {
            Some(flight) => Some(flight.at + self.patience()),
            None => (self.contact.is_some() && !self.over).then_some(self.due),
        };
        [tick, self.belief_ends(), self.holdings.next_overdue(), self.deaf_at()].into_iter().flatten().min()
    }

    /// What has become of partitions since the last time, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        core::mem::take(&mut self.changes)
    }

    /// What it wants now. Ask until it is nothing.
    pub fn poll(&mut self, now: Mono) -> Option<Want> {
        self.pass(now);
        if let Some(flight) = &self.flight {
            if now < flight.at + self.patience() {
                return None;
            }
            self.on_contact_lost(now);
            return Some(Want::HangUp);
        }
        if now < self.due || self.over {
            return None;
        }
        self.contact.is_some().then(|| Want::Tick(self.tick(now)))
    }

    // ---- what happens ----

    /// The server can be reached. What is held stays: it is presented, and a server that has forgotten it adopts it.
    pub fn on_contact(&mut self, now: Mono, contact: Contact) {
        self.on_contact_lost(now);
        self.contact = Some(contact);
        self.due = now;
    }

    /// The server cannot be reached. What is held is believed for as long as it was.
    pub fn on_contact_lost(&mut self, now: Mono) {
        self.pass(now);
        self.contact = None;
        self.flight = None;
        self.differ();
        if self.mutant(Mutant::HoldingsForgotten) {
            self.lose_all();
        }
        if self.mutant(Mutant::SequenceRestarts) {
            self.sequence = 0;
        }
    }

    /// No answer to the last tick will come; the server can be reached, as far as anybody knows.
    pub fn on_orphan(&mut self, now: Mono) {
        self.pass(now);
        if self.flight.take().is_some() {
            self.differ();
            self.due = now + AFTER_REFUSAL;
        }
    }

    /// The answer to the last tick. A refusal is as good as none.
    ///
    /// # Errors
    ///
    /// When it is not such an answer. Nothing of it is used.
    pub fn on_reply(&mut self, now: Mono, reply: &Reply) -> Result<(), UnexpectedShape> {
        self.pass(now);
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let answer = match reply {
            Reply::Error(_) => None,
            _ => tick::read(reply).map(Some).inspect_err(|_| self.refused(now))?,
        };
        self.over |= flight.mode == Mode::Gone && answer.is_some();
        match answer {
            None | Some(Answer::Stale) => self.refused(now),
            Some(Answer::Same { generation }) => self.on_same(now, &flight, generation),
            Some(Answer::Full(full)) => self.on_full(now, &flight, &full),
        }
        Ok(())
    }

    /// Something waits for its time, maybe: belief, or a partition that has to go.
    pub fn on_time(&mut self, now: Mono) {
        self.pass(now);
    }

    /// A read has ended by its answer, or the connection for reads is a new one.
    pub fn on_read(&mut self, now: Mono) {
        self.heard = now;
        if self.mode == Mode::Deaf {
            self.turn(now, Mode::Run);
        }
    }

    /// Nothing of a partition is in hand, and no read that names it is out: it is not believed any more, and whoever is to
    /// have it is told at once. Only what [has to go](Self::surplus) can be released.
    pub fn released(&mut self, now: Mono, partition: u32) {
        self.pass(now);
        if !self.holdings.is_surplus(partition) {
            return;
        }
        if self.mutant(Mutant::ReleaseBelieved) {
            self.holdings.hide(partition);
        } else {
            self.holdings.give_up(partition);
        }
        self.tell(now);
    }

    /// It wants nothing more and gives up what it has: each partition when it is released, or its time is over.
    pub fn leave(&mut self, now: Mono) {
        self.pass(now);
        if !matches!(self.mode, Mode::Leave | Mode::Gone) {
            self.turn(now, Mode::Leave);
        }
    }

    /// It wants its share again.
    pub fn rejoin(&mut self, now: Mono) {
        self.pass(now);
        if self.mode == Mode::Leave {
            self.heard = now;
            self.turn(now, Mode::Run);
        }
    }

    /// Its last word: whatever it still has is lost. Once the server has heard it, it [is over](Self::is_over).
    pub fn end(&mut self, now: Mono) {
        self.pass(now);
        if self.mode != Mode::Gone {
            self.lose_all();
            self.turn(now, Mode::Gone);
        }
    }

    // ---- inside ----

    /// What time does by itself.
    fn pass(&mut self, now: Mono) {
        if !self.holdings.is_empty() && now >= self.until {
            self.lose_all();
            if !self.mutant(Mutant::SameAfterLapse) {
                self.tell(now);
            }
        }
        while let Some((partition, token)) = self.holdings.take_overdue(now) {
            self.changes.push(Change::Lost(partition, token));
            self.tell(now);
        }
        if self.deaf_at().is_some_and(|at| now >= at) {
            self.turn(now, Mode::Deaf);
        }
    }

    /// When silence of its reads counts as deafness.
    fn deaf_at(&self) -> Option<Mono> {
        let listens = self.mode == Mode::Run && self.holdings.kept().next().is_some();
        (listens && !self.mutant(Mutant::DeafStays)).then(|| self.heard + self.terms.deaf)
    }

    fn lose_all(&mut self) {
        for (partition, token) in self.holdings.take_all() {
            self.changes.push(Change::Lost(partition, token));
        }
    }

    fn turn(&mut self, now: Mono, mode: Mode) {
        self.mode = mode;
        if mode != Mode::Run {
            self.settle(now, 0);
        }
        self.tell(now);
    }

    /// Both sides may differ: the next answer must be a full one.
    fn differ(&mut self) {
        self.known = 0;
        self.epoch += 1;
    }

    /// … and the server is to hear of it at once.
    fn tell(&mut self, now: Mono) {
        self.differ();
        self.due = now;
    }

    fn refused(&mut self, now: Mono) {
        self.differ();
        self.due = now + AFTER_REFUSAL;
    }

    fn tick(&mut self, now: Mono) -> Eval {
        // By the clock, so that a member that was forgotten here and comes back is not taken for its own past.
        let sequence = if self.mutant(Mutant::SequenceRestarts) { 0 } else { now.0.min(tick::EXACT) };
        self.sequence = sequence.max(self.sequence + 1);
        let belief = self.terms.ttl.saturating_mul(98) / 100;
        let until = now + belief.saturating_sub(MARGIN);
        self.flight = Some(Flight { at: now, until, mode: self.mode, epoch: self.epoch });
        Request {
            keys: &self.keys,
            member: &self.terms.member,
            place: self.place,
            ttl: self.terms.ttl,
            mode: match self.mode {
                Mode::Join => "join",
                Mode::Run => "run",
                Mode::Deaf | Mode::Leave => "leave",
                Mode::Gone => "gone",
            },
            known: self.known,
            contact: self.contact.as_ref(),
            newest: if self.mutant(Mutant::NewestUntold) { Token(0) } else { self.newest },
            partitions: self.partitions,
            room: ROOM,
            sequence: self.sequence,
            held: &self.holdings,
        }
        .eval()
    }

    /// Nothing has changed: what is held goes on.
    fn on_same(&mut self, now: Mono, flight: &Flight, generation: u64) {
        self.prolong(now, flight);
        if self.epoch != flight.epoch {
            self.due = now;
        } else if generation == self.known {
            self.due = self.next_tick(now, flight);
        } else {
            self.refused(now);
        }
    }

    /// The whole truth.
    fn on_full(&mut self, now: Mono, flight: &Flight, full: &Full) {
        self.newest = full.mine.iter().fold(self.newest.max(full.fence), |newest, (_, token)| newest.max(*token));
        self.members = full.members;
        if full.partitions > 0 {
            self.partitions = full.partitions;
        }
        let read_nothing = self.holdings.kept().next().is_none();
        let gone = self.holdings.take_but(&full.mine);
        self.changes.extend(gone.into_iter().map(|(partition, token)| Change::Lost(partition, token)));
        self.prolong(now, flight);
        let mut refused = false;
        for (&partition, &token) in &full.mine {
            if self.holdings.token(partition) == Some(token) {
                continue;
            }
            // A grant is believed from the emission on, like everything else.
            let may = self.mode == Mode::Run && now < flight.until;
            let first = self.holdings.is_empty();
            if may && self.holdings.acquire(partition, token) {
                self.changes.push(Change::Acquired(partition, token));
                if first {
                    self.until = self.until_of(now, flight);
                }
            } else {
                refused = true;
            }
        }
        let in_line = |mode| matches!(mode, Mode::Join | Mode::Run);
        // What a member that was not in line was told says nothing about its share now.
        if in_line(self.mode) && in_line(flight.mode) {
            self.share = full.share;
            if !self.mutant(Mutant::SurplusKept) {
                self.settle(now, full.share as usize);
            }
        }
        if read_nothing {
            // Silence counts from here.
            self.heard = now;
        }
        if self.mode == Mode::Join {
            // Heard: the next one takes its share.
            self.mode = Mode::Run;
            self.differ();
            self.due = now + AFTER_JOIN;
        } else if self.epoch != flight.epoch {
            self.due = now;
        } else if refused {
            // It is listed although it was given up here: it will be granted anew, or taken back.
            self.differ();
            self.due = now + AFTER_MORE;
        } else {
            self.known = full.generation;
            self.due = if full.more { now + AFTER_MORE } else { self.next_tick(now, flight) };
        }
    }

    fn prolong(&mut self, now: Mono, flight: &Flight) {
        if !self.holdings.is_empty() {
            self.until = self.until.max(self.until_of(now, flight));
        }
    }

    fn until_of(&self, now: Mono, flight: &Flight) -> Mono {
        if self.mutant(Mutant::BeliefTooLong) { now + self.terms.ttl } else { flight.until }
    }

    /// Gives up what is more than that, or takes it back.
    fn settle(&mut self, now: Mono, share: usize) {
        let end = now + self.terms.drain;
        self.holdings.settle(share, end, &mut self.changes);
        if self.mutant(Mutant::ReleaseBeforeDrain) && self.mode == Mode::Run {
            for partition in self.holdings.surplus() {
                self.holdings.give_up(partition);
                self.tell(now);
            }
        }
    }

    /// When the next one is due if all is well.
    fn next_tick(&self, now: Mono, flight: &Flight) -> Mono {
        if self.mode == Mode::Run && self.holdings.len() < self.share as usize {
            now + BELOW_SHARE.min(self.period())
        } else {
            self.after(flight.at, self.period()).max(now)
        }
    }

    /// Five ticks are one time to live.
    fn period(&self) -> Duration {
        self.terms.ttl / 5
    }

    fn patience(&self) -> Duration {
        PATIENCE.min(self.period())
    }

    /// A period ± 10 %, so that members that started together do not tick together.
    fn after(&self, at: Mono, period: Duration) -> Mono {
        let parts = mix(self.place ^ self.sequence.rotate_left(32)) % 201;
        at + (period / 1000).saturating_mul(900 + u32::try_from(parts).unwrap_or(0))
    }

    #[inline(always)]
    fn mutant(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.terms.mutant == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}

/// Spreads a number over 64 bits (the finalizer of SplitMix64): what FNV-1a makes of names that differ in their ends has
/// its differences in a few bits.
const fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
