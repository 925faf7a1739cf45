//! What applications say and do: bodies that name their message, and the fate of each message in a handler's hands.

use std::time::Duration;

use bytes::Bytes;

use crate::plan::{Fate, Work};
use crate::seen::{Given, Item};

/// The body of a message: its number, and bytes that follow from it.
#[must_use]
pub fn body(item: Item, work: &Work) -> Bytes {
    let mut body = tag(item);
    let length = (work.bytes as usize).max(body.len());
    // Every byte value turns up, the ones that end lines in RESP among them.
    let filler = (body.len()..length).map(|at| (at as u32).wrapping_mul(37).wrapping_add(item.0) as u8);
    body.extend(filler);
    body.into()
}

/// The message a body names.
#[must_use]
pub fn item_of(body: &[u8]) -> Option<Item> {
    let digits = body.strip_prefix(b"m")?.get(..10)?;
    if body.get(11) != Some(&b'.') {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok().map(Item)
}

/// The message that an `XADD`, or the fields of an entry, carries.
#[must_use]
pub fn item_in(words: &[Bytes]) -> Option<Item> {
    let at = words.iter().position(|word| word.as_ref() == b"payload")?;
    item_of(words.get(at + 1)?)
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Settles so, after so many times the usual duration.
    Settle(Given, u64),
    /// Settles so, and once more.
    SettleTwice(Given),
    /// Ends its process.
    Crash,
    /// Does not end by itself.
    Hang,
}

/// What a handler of a group does with a message that has been delivered so many times.
#[must_use]
pub(crate) fn deed(fate: Fate, group: u8, attempt: u32) -> Deed {
    match fate {
        Fate::Done => Deed::Settle(Given::Done, 1),
        Fate::Retry(times) if attempt <= u32::from(times) => Deed::Settle(Given::Retry, 1),
        Fate::Fails(in_group) if in_group == group => Deed::Settle(Given::Retry, 1),
        Fate::Reject => Deed::Settle(Given::Reject, 1),
        Fate::Crash(times) if attempt <= u32::from(times) => Deed::Crash,
        Fate::Hang => Deed::Hang,
        Fate::Slow(times) => Deed::Settle(Given::Done, u64::from(times)),
        Fate::Twice => Deed::SettleTwice(Given::Done),
        Fate::Release if attempt <= 1 => Deed::Settle(Given::Release, 1),
        Fate::Retry(_) | Fate::Crash(_) | Fate::Release | Fate::Fails(_) => Deed::Settle(Given::Done, 1),
    }
}

/// An application that is not the plan's: it has bodies and handlers of its own. *Fast fidelity only.*
pub(crate) trait Application {
    /// The body of a message as it is stored: [`tag`] and the application's own bytes.
    fn body(&self, item: Item) -> Option<Bytes>;

    /// A handler does what it does, somewhere between its start and its end; and how it will end.
    fn act(&mut self, call: &Call, body: &Bytes) -> Deed;

    /// What it has found wrong, once.
    fn complaint(&mut self) -> Option<String>;
}

/// A handler at work on a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// True time.
    pub(crate) at: Duration,
    pub(crate) service: u32,
    /// The start of its process.
    pub(crate) life: u32,
    /// The consumer's place in `ServicePlan::consumes`.
    pub(crate) sub: u32,
    pub(crate) item: Item,
    pub(crate) attempt: u32,
}

/// What a stored body begins with, whoever wrote the rest: it names the message.
#[must_use]
pub(crate) fn tag(item: Item) -> Vec<u8> {
    format!("m{:010}.", item.0).into_bytes()
}

/// The length of a [`tag`].
pub(crate) const TAG: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_its_message_and_holds_every_byte() {
        let work = Work {
            at_ms: 0,
            service: 0,
            topic: 0,
            key: None,
            bytes: 600,
            at_most_once: false,
            cancel_after_us: None,
            delay_ms: None,
            fate: Fate::Done,
        };
        let body = body(Item(4711), &work);
        assert_eq!(item_of(&body), Some(Item(4711)));
        assert_eq!(body.len(), 600);
        assert!((0..=255u8).all(|byte| body.contains(&byte)));
        assert_eq!(item_of(b"m12"), None);
        assert_eq!(item_of(b"x0000000001.rest"), None);
    }
}
