//! What happens to the members of a group and to their broker, drawn from a seed before anything moves.

use super::member::BLOCK;
use crate::rng::Rng;

/// Second, in microseconds.
pub(super) const S: u64 = 1_000_000;
/// Millisecond.
pub(super) const MS: u64 = 1_000;

/// What is done to members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// One thing at a time, and nothing else goes wrong: what is asked is how soon, and what moves.
    Calm,
    /// Everything at any time, then quiet: what is asked is that nobody is wrong, and that it comes right.
    Storm,
}

/// A run of some members against one broker.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Its seed.
    pub seed: u64,
    /// Its family.
    pub family: Family,
    /// Time to live, in milliseconds.
    pub ttl_ms: u64,
    /// Partitions at first.
    pub partitions: u32,
    /// How long partitions may drain, in microseconds.
    pub drain_us: u64,
    /// How much faster than true time the server's clock runs, in parts per million.
    pub server_ppm: i64,
    /// A log that is written all the time, of which little can be missing; otherwise snapshots of any age.
    pub log: bool,
    /// How many members' clocks there are, and how fast they run.
    pub members: Vec<i64>,
    /// What happens, in order.
    pub faults: Vec<(u64, Fault)>,
    /// From here on nothing goes wrong any more.
    pub quiet_us: u64,
    /// The end.
    pub end_us: u64,
}

/// Something that happens. Members are named by their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process starts, under a name of its own.
    Start(usize),
    /// It dies.
    Crash(usize),
    /// It stops in order.
    Stop(usize),
    /// It does nothing until then; its clock runs on.
    Suspend(usize, u64),
    /// None of its reads ends until then.
    Deafen(usize, u64),
    /// Its connection is lost.
    Cut(usize),
    /// A copy of the server's data is made.
    Copy,
    /// The server dies, and is back after so long with the last copy, or with all its data.
    Restart {
        /// With the copy.
        copy: bool,
        /// How long it is away.
        down_us: u64,
        /// It is another process that has been running for long.
        failover: bool,
    },
    /// `FLUSHALL`.
    Flush,
    /// One of the five keys is deleted.
    Delete(usize),
    /// The server's clock is set, by milliseconds.
    Step(i64),
    /// The topic has so many partitions from now on; mostly that is more.
    Grow(u32),
    /// Whoever is there has what it should have, and nothing else has moved since the last time.
    Check(Moved),
    /// … at some time until then.
    Settle(u64),
}

/// What may have moved since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// Anything: the first check.
    Any,
    /// To this member.
    To(usize),
    /// From this member.
    From(usize),
    /// Nothing, not even under another token.
    None,
}

impl Schedule {
    /// The schedule of a seed.
    #[must_use]
    pub fn draw(family: Family, seed: u64) -> Self {
        let mut rng = Rng::new(seed, "leases");
        let ttl_ms = *rng.pick(&[15_000, 15_000, 15_000, 6_000, 3_000]);
        let partitions = *rng.pick(&[1, 2, 3, 5, 7, 8, 12, 12, 16, 24, 40]);
        let count = *rng.pick(&[1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8]);
        let members = (0..count).map(|_| rng.between(0, 18_000) as i64 - 9_000).collect();
        let mut schedule = Self {
            seed,
            family,
            ttl_ms,
            // More than one tick may grant.
            partitions: if rng.chance(20_000) { 150 } else { partitions },
            drain_us: rng.between(1, 5) * S,
            server_ppm: rng.between(0, 18_000) as i64 - 9_000,
            log: rng.chance(500_000),
            members,
            faults: Vec::new(),
            quiet_us: 0,
            end_us: 0,
        };
        match family {
            Family::Calm => schedule.draw_calm(&mut rng),
            Family::Storm => schedule.draw_storm(&mut rng),
        }
        schedule
    }

    /// A schedule of which everything that happens is given: of members with good clocks, on a server with a good clock.
    #[must_use]
    pub fn scripted(members: usize, partitions: u32, faults: Vec<(u64, Fault)>, end_us: u64) -> Self {
        Self {
            seed: 0,
            family: Family::Calm,
            ttl_ms: 15_000,
            partitions,
            drain_us: S,
            server_ppm: 0,
            log: true,
            members: vec![0; members],
            faults,
            quiet_us: end_us,
            end_us,
        }
    }

    /// Time to live, in microseconds.
    pub(super) fn ttl_us(&self) -> u64 {
        self.ttl_ms * MS
    }

    /// The longest that a member does not tick, and a little for the way.
    fn period_us(&self) -> u64 {
        self.ttl_us() / 5 * 111 / 100 + 20 * MS
    }

    /// How soon everybody has what it should have after somebody came or went in order: the others' next tick, the time
    /// to drain, and what a member below its share waits.
    pub(super) fn balanced_us(&self) -> u64 {
        self.period_us() + self.drain_us + 700 * MS * 102 / 100 + 100 * MS
    }

    /// … after somebody died: its time is over, and each of the others has ticked.
    fn buried_us(&self) -> u64 {
        self.ttl_us() * 101 / 100 + self.period_us() + 100 * MS
    }

    fn draw_calm(&mut self, rng: &mut Rng) {
        self.members.truncate(5);
        while self.members.len() < 3 {
            self.members.push(rng.between(0, 18_000) as i64 - 9_000);
        }
        let together = rng.between(1, self.members.len() as u64 - 1) as usize;
        let mut there: Vec<usize> = (0..together).collect();
        let mut next = together;
        for member in &there {
            self.faults.push((rng.below(50 * MS), Fault::Start(*member)));
        }
        // Together, so nobody gets anything that it has to give back.
        let mut at = 500 * MS;
        self.faults.push((at, Fault::Check(Moved::Any)));
        for _ in 0..rng.between(1, 3) {
            at += rng.below(self.ttl_us() / 3);
            let who = there[rng.below(there.len() as u64) as usize];
            let (fault, after, moved) = match rng.below(7) {
                0 | 1 if next < self.members.len() => {
                    there.push(next);
                    next += 1;
                    (Fault::Start(next - 1), self.balanced_us(), Moved::To(next - 1))
                }
                2 if there.len() > 1 => {
                    there.retain(|other| *other != who);
                    (Fault::Stop(who), self.balanced_us(), Moved::From(who))
                }
                3 if there.len() > 1 => {
                    there.retain(|other| *other != who);
                    (Fault::Crash(who), self.buried_us(), Moved::From(who))
                }
                4 if there.len() > 1 => {
                    there.retain(|other| *other != who);
                    (Fault::Deafen(who, u64::MAX), 3 * BLOCK + self.balanced_us(), Moved::From(who))
                }
                5 => (
                    Fault::Restart { copy: false, down_us: rng.below(S), failover: false },
                    self.period_us() + 2 * S,
                    Moved::None,
                ),
                _ => (Fault::Cut(who), self.period_us() + S, Moved::None),
            };
            // After a restart nothing is granted for a while: it has to be over before anybody comes or goes.
            let grace = if matches!(fault, Fault::Restart { .. }) { self.ttl_us() + 5 * S } else { 0 };
            self.faults.push((at, fault));
            at += after;
            self.faults.push((at, Fault::Check(moved)));
            at += grace;
            if self.is_deafened(who) {
                // One that is deaf and has nothing cannot be told from the others, and would be given what they leave.
                break;
            }
        }
        (self.quiet_us, self.end_us) = (at, at);
    }

    fn is_deafened(&self, who: usize) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Deafen(other, _) if *other == who))
    }

    fn draw_storm(&mut self, rng: &mut Rng) {
        let ttl = self.ttl_us();
        self.quiet_us = rng.between(ttl, 3 * ttl);
        let count = self.members.len() as u64;
        for member in 0..self.members.len() {
            let at = if rng.chance(600_000) { rng.below(S) } else { rng.below(self.quiet_us) };
            self.faults.push((at, Fault::Start(member)));
        }
        for _ in 0..rng.between(2, 12) {
            let at = rng.between(S, self.quiet_us - 1);
            let who = rng.below(count) as usize;
            let until = |length: u64| (at + length).min(self.quiet_us);
            let fault = match rng.below(100) {
                0..14 => Fault::Crash(who),
                14..22 => Fault::Start(who),
                22..30 => Fault::Stop(who),
                // Where belief ends and the server's does not is worth a look.
                30..38 => Fault::Suspend(who, until(rng.between(ttl * 3 / 4, ttl * 11 / 10))),
                38..48 => Fault::Suspend(who, until(rng.below(3 * ttl))),
                48..54 => Fault::Deafen(who, until(rng.below(3 * ttl))),
                54..64 => Fault::Cut(who),
                64..76 => {
                    let age = if self.log { rng.below(1_500 * MS) } else { rng.below(at) };
                    self.faults.push((at - age.min(at), Fault::Copy));
                    let failover = rng.chance(200_000);
                    Fault::Restart { copy: true, down_us: rng.below(2 * S).min(self.quiet_us - at), failover }
                }
                76..79 => {
                    Fault::Restart { copy: false, down_us: rng.below(S).min(self.quiet_us - at), failover: false }
                }
                79..83 => Fault::Flush,
                83..90 => Fault::Delete(rng.below(5) as usize),
                90..95 => {
                    let size = *rng.pick(&[300, 900, 5_000, 12_000, 30_000, 3_600_000, 3_600_000]);
                    Fault::Step(if rng.chance(500_000) { size } else { -size })
                }
                _ => Fault::Grow(self.partitions + rng.between(1, 9) as u32),
            };
            self.faults.push((at, fault));
        }
        self.faults.sort_by_key(|(at, _)| *at);
        // The dead are late, then everything is free, then it is shared.
        let right = self.quiet_us + 2 * ttl + 2 * self.balanced_us() + 5 * S;
        self.faults.push((self.quiet_us + ttl / 2 + 3 * S, Fault::Settle(right)));
        self.end_us = right + ttl;
    }
}
