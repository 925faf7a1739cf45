//! A process that is a member: its clock, its connection, the machine, and what stands for a consumer around it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flota_core::mutant::Mutant;
use flota_core::reply::Reply;
use flota_core::topic::lease::{Lease, Scope, Terms, Token};

use super::plan::{S, Schedule};
use crate::clock::HostClock;

/// How long a read blocks, in microseconds.
pub(super) const BLOCK: u64 = 2 * S;

/// One process, from its start to its end.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) clock: HostClock,
    pub(super) lease: Lease,
    /// Which connection it has; another one has another number.
    pub(super) conn: u64,
    pub(super) connected: bool,
    /// What is in the consumer's hands: partitions taken over and not given back.
    pub(super) hands: BTreeMap<u32, Token>,
    /// Does nothing until then.
    pub(super) suspended_until: u64,
    /// What came in meanwhile, in order.
    pub(super) inbox: Vec<Input>,
    pub(super) deaf_until: u64,
    /// It is to stop, or has.
    pub(super) stopping: bool,
    pub(super) gone: bool,
    /// What its belief rested on, one after the other: when the ticks that prolonged it were executed.
    pub(super) rests: Vec<u64>,
    /// The newest token that it has been told.
    pub(super) newest: u64,
    /// When it will be woken next.
    pub(super) waking: Option<u64>,
}

/// Something that reaches a process.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Reply { conn: u64, reply: Reply, execution: Execution },
    Closed { conn: u64 },
    Drained { partition: u32, token: Token },
    ReadEnds,
    Wake,
}

/// When a tick was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Execution {
    pub(super) at: u64,
}

impl Member {
    pub(super) fn new(schedule: &Schedule, place: usize, start: u64, mutant: Option<Mutant>, name: String) -> Self {
        let scope = Scope { store: "store".into(), topic: "t".into(), group: "g".into() };
        #[cfg(not(feature = "mutants"))]
        let _ = mutant;
        let terms = Terms {
            scope: Arc::new(scope),
            member: name.as_str().into(),
            partitions: schedule.partitions,
            ttl: Duration::from_millis(schedule.ttl_ms),
            drain: Duration::from_micros(schedule.drain_us),
            deaf: Duration::from_micros(3 * BLOCK),
            #[cfg(feature = "mutants")]
            mutant,
        };
        let ppm = schedule.members.get(place).copied().unwrap_or_default();
        Self {
            name,
            // Clocks have nothing to do with each other.
            clock: HostClock::new(ppm, 1_000_000 * (1 + place as u64) + start % 997, 0),
            lease: Lease::new(terms),
            conn: 0,
            connected: false,
            hands: BTreeMap::new(),
            suspended_until: 0,
            inbox: Vec::new(),
            deaf_until: 0,
            stopping: false,
            gone: false,
            rests: Vec::new(),
            newest: 0,
            waking: None,
        }
    }

    /// Whether it wants a share, and will have one.
    pub(super) fn is_in_line(&self, at: u64) -> bool {
        !self.gone && !self.stopping && self.deaf_until <= at
    }

    /// What it believes in at a true time.
    pub(super) fn believes(&self, at: u64, partition: u32) -> Option<Token> {
        if self.gone { None } else { self.lease.believed(self.clock.now(at).mono, partition) }
    }
}
