//! The tick on the wire: the script's keys and arguments, and its reply. `scripts/tick.lua` is the other side.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::holdings::Holdings;
use super::{Contact, Token};
use crate::command::{Arg, Eval};
use crate::key::Key;
use crate::reply::{Items, Reply, UnexpectedShape, View};
use crate::script::Script;
use crate::topic::MAX_PARTITIONS;

/// Lua's numbers are doubles: whole numbers are exact up to here.
pub(super) const EXACT: u64 = 1 << 53;

/// One tick.
pub(super) struct Request<'a> {
    pub(super) keys: &'a [Key; 5],
    pub(super) member: &'a Arc<str>,
    pub(super) place: u64,
    pub(super) ttl: Duration,
    pub(super) mode: &'static str,
    pub(super) known: u64,
    pub(super) contact: Option<&'a Contact>,
    pub(super) newest: Token,
    pub(super) partitions: u32,
    pub(super) room: u32,
    pub(super) sequence: u64,
    pub(super) held: &'a Holdings,
}

impl Request<'_> {
    /// KEYS 1 state, 2 owners, 3 members, 4 rank, 5 the topic's meta. ARGV 1 member, 2 place in line, 3 time to live in ms,
    /// 4 mode, 5 known generation, 6 run id, 7 newest token, 8 partitions, 9 most to grant, 10 the process's start in ms,
    /// 11 what its log can have lost in ms or -1, 12 sequence number, 13 n, then n times a partition and its token.
    pub(super) fn eval(self) -> Eval {
        let unknown = Contact { run: "".into(), started_ms: 0, log_lost_ms: None };
        let contact = self.contact.unwrap_or(&unknown);
        let held: Vec<(u32, Token)> = self.held.presented().collect();
        let mut args = Vec::with_capacity(13 + 2 * held.len());
        args.push(Arg::from(self.member));
        args.push(number(self.place));
        args.push(number(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)));
        args.push(Arg::Word(self.mode));
        args.push(number(self.known));
        args.push(Arg::from(&contact.run));
        args.push(number(self.newest.0));
        args.push(self.partitions.into());
        args.push(self.room.into());
        args.push(contact.started_ms.into());
        args.push(Arg::Int(contact.log_lost_ms.map_or(-1, i64::from)));
        args.push(number(self.sequence));
        args.push(number(held.len() as u64));
        args.extend(held.into_iter().flat_map(|(partition, token)| [partition.into(), number(token.0)]));
        Eval { script: Script::Tick, keys: self.keys.to_vec(), args }
    }
}

fn number(n: u64) -> Arg {
    Arg::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// What a server answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The tick came after a later one; nothing happened.
    Stale,
    /// Nothing has changed since that generation.
    Same {
        /// It.
        generation: u64,
    },
    /// All there is to know.
    Full(Full),
}

/// The long form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// 0 if the next answer must be a full one, too.
    pub(super) generation: u64,
    /// The newest token the server knows of.
    pub(super) fence: Token,
    pub(super) partitions: u32,
    pub(super) share: u32,
    pub(super) members: u32,
    /// There is more to be had than one tick may take.
    pub(super) more: bool,
    pub(super) mine: BTreeMap<u32, Token>,
}

/// `{stale}`, `{same, now, generation}` or `{full, now, generation, fence, partitions, share, members, grace, more,
/// {partition, token…}}`.
pub(super) fn read(reply: &Reply) -> Result<Answer, UnexpectedShape> {
    let shape = |expected| UnexpectedShape { expected };
    let mut items = reply.view().items().ok_or(shape("an array"))?;
    let word = items.next().and_then(View::as_str).ok_or(shape("a word first"))?;
    let answer = match word {
        "stale" => Some(Answer::Stale),
        "same" => read_same(&mut items),
        "full" => read_full(&mut items).map(Answer::Full),
        _ => None,
    };
    // More than is known may come one day, at the end.
    answer.ok_or(shape("stale, same or full, and what goes with it"))
}

fn read_same(items: &mut Items<'_>) -> Option<Answer> {
    let [_, generation] = [exact(items)?, exact(items)?];
    Some(Answer::Same { generation })
}

fn read_full(items: &mut Items<'_>) -> Option<Full> {
    let _now = exact(items)?;
    let generation = exact(items)?;
    let fence = Token(exact(items)?);
    let partitions = small(items)?;
    let share = small(items)?;
    let members = u32::try_from(exact(items)?).ok()?;
    let _grace = exact(items)?;
    let more = exact(items)? != 0;
    let mut mine = BTreeMap::new();
    for (partition, token) in items.next()?.pairs()? {
        let partition = u32::try_from(partition.as_int()?).ok().filter(|partition| *partition < MAX_PARTITIONS)?;
        let token = u64::try_from(token.as_int()?).ok().filter(|token| (1..=EXACT).contains(token))?;
        if mine.insert(partition, Token(token)).is_some() {
            return None;
        }
    }
    Some(Full { generation, fence, partitions, share, members, more, mine })
}

fn exact(items: &mut Items<'_>) -> Option<u64> {
    u64::try_from(items.next()?.as_int()?).ok().filter(|n| *n <= EXACT)
}

fn small(items: &mut Items<'_>) -> Option<u32> {
    u32::try_from(exact(items)?).ok().filter(|n| *n <= MAX_PARTITIONS)
}
