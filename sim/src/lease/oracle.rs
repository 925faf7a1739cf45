//! What must hold, judged from outside: by true time, by what was executed, and by what each process could know.

use std::collections::BTreeMap;
use std::fmt;

use flota_core::topic::lease::Token;

use crate::invariants::title;

/// Something that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub invariant: u8,
    /// True time, in microseconds.
    pub at: u64,
    /// How it did not hold.
    pub text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}.{:06} s: {}", title(self.invariant), self.at / 1_000_000, self.at % 1_000_000, self.text)
    }
}

/// A tick as it was executed.
pub(super) struct Executed<'a> {
    pub(super) at: u64,
    pub(super) member: &'a str,
    /// The newest token that the member had been told when it sent it: as it is, not as it says.
    pub(super) newest: u64,
    pub(super) clock_us: u64,
    /// What the server says is the member's.
    pub(super) mine: &'a [(u32, Token)],
}

/// What the server did so far.
#[derive(Default)]
pub(super) struct Ledger {
    /// Every token that was ever given for a partition: when, and to whom.
    grants: BTreeMap<(u32, Token), (u64, String)>,
    /// The largest of each partition.
    tops: BTreeMap<u32, (Token, u64)>,
    losses: Vec<Loss>,
    /// The server's clock was set forward: when, and by how many microseconds.
    leaps: Vec<(u64, u64)>,
}

/// The server forgot something.
struct Loss {
    at: u64,
    /// So much that it cannot even know that it did.
    whole: bool,
    /// The newest token that anybody who has ticked since then had been told.
    heard: u64,
    /// Since when somebody has partitions who had never been told of any.
    naive: Option<u64>,
}

impl Ledger {
    pub(super) fn lost(&mut self, at: u64, whole: bool) {
        self.losses.push(Loss { at, whole, heard: 0, naive: None });
    }

    pub(super) fn leapt(&mut self, at: u64, by_us: u64) {
        self.leaps.push((at, by_us));
    }

    /// A tick was executed: its grants are new ones, larger than any before.
    pub(super) fn executed(&mut self, tick: &Executed<'_>) -> Result<u64, Broken> {
        let broken = |text| Broken { invariant: 46, at: tick.at, text };
        for loss in &mut self.losses {
            loss.heard = loss.heard.max(tick.newest);
        }
        let mut granted = 0;
        for (partition, token) in tick.mine.iter().copied() {
            if let Some((_, to)) = self.grants.get(&(partition, token)) {
                if to == tick.member {
                    continue;
                }
                let text = format!("{} has partition {partition} under the token {token} of {to}", tick.member);
                return Err(broken(text));
            }
            granted += 1;
            let top = self.tops.get(&partition).copied();
            if let Some((top, since)) = top.filter(|(top, _)| token <= *top) {
                // Nothing could have told the server.
                let nobody_knew = |loss: &Loss| loss.at >= since && loss.heard < top.0 && tick.clock_us <= top.0;
                if !self.losses.iter().any(nobody_knew) {
                    let text = format!("partition {partition} goes to {} under {token}, after {top}", tick.member);
                    return Err(broken(text));
                }
            } else {
                self.tops.insert(partition, (token, tick.at));
            }
            self.grants.insert((partition, token), (tick.at, tick.member.to_string()));
        }
        if granted > 0 && tick.newest == 0 {
            for loss in self.losses.iter_mut().filter(|loss| loss.naive.is_none()) {
                loss.naive = Some(tick.at);
            }
        }
        Ok(granted)
    }

    /// When a token was given out.
    pub(super) fn granted(&self, partition: u32, token: Token) -> u64 {
        self.grants.get(&(partition, token)).map_or(0, |(at, _)| *at)
    }

    /// Whether the server could not but give away what somebody believes in: a belief that rests on a tick executed at
    /// `rests`, against a grant at `granted`.
    ///
    /// Either its clock had leapt, so that by the clock the former holder's time was over; or it had forgotten so much, and
    /// had then heard of somebody who knew nothing either, before any of those who knew.
    pub(super) fn excuses(&self, rests: u64, granted: u64, ttl_us: u64) -> bool {
        let leaps = self.leaps.iter().filter(|(at, _)| (rests..=granted).contains(at));
        let leapt: u64 = leaps.map(|(_, by)| by).sum();
        let over = leapt > 0 && granted.saturating_sub(rests) + leapt >= ttl_us * 98 / 100;
        let since = |loss: &Loss| loss.whole && (rests..=granted).contains(&loss.at);
        let unknown = |loss: &Loss| since(loss) && loss.naive.is_some_and(|naive| naive <= granted);
        over || self.losses.iter().any(unknown)
    }

    /// Whether the server forgot a grant before a tick that it should have answered by it.
    pub(super) fn forgot(&self, granted: u64, tick: u64) -> bool {
        self.losses.iter().any(|loss| (granted..=tick).contains(&loss.at))
    }
}
