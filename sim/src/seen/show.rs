//! Observations as lines for people.

use std::fmt;

use super::{Host, Item, Seen, What};

impl Seen {
    /// Whether it says something a reader of the last lines wants to know: not every turn and byte.
    #[must_use]
    pub fn is_transition(&self) -> bool {
        !matches!(
            self.what,
            What::Turn { .. }
                | What::Early { .. }
                | What::Audited(Ok(()))
                | What::Sent(..)
                | What::Replied(_)
                | What::Heard { .. }
                | What::Looked { .. }
                | What::Wrote { .. }
        )
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::World => f.write_str("world"),
            Self::Service(n) => write!(f, "service {n}"),
            Self::Broker(n) => write!(f, "broker {n}"),
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} {:<11} ", Seconds(self.at), self.host.to_string())?;
        self.what.fmt(f)
    }
}

/// Microseconds, shown as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { item, result: Ok(place) } => match place.broker {
                Some(broker) => write!(f, "done {item}: stored on broker {broker} as {}", place.entry),
                None => write!(f, "done {item}: stored as {}", place.entry),
            },
            Self::Done { item, result: Err(error) } => write!(f, "done {item}: {error}"),
            Self::Submitted { item, accepted: Ok(()) } => write!(f, "send {item}"),
            Self::Submitted { item, accepted: Err(why) } => write!(f, "send {item} refused: {why}"),
            Self::Delivered(given) => {
                let item = given.item.map_or_else(|| "a body nobody sent".to_string(), |item| item.to_string());
                write!(f, "delivered {item} ({} of broker ", given.entry)?;
                match given.broker {
                    Some(broker) => write!(f, "{broker}")?,
                    None => f.write_str("?")?,
                }
                write!(f, ", delivery {}) as hand {}.{}", given.deliveries, given.hand.life, given.hand.number)
            }
            Self::Settled { hand, verdict, live } => {
                let stale = if *live { "" } else { " (names nothing any more)" };
                write!(f, "settle hand {}.{}: {verdict:?}{stale}", hand.life, hand.number)
            }
            Self::Answered { hand, result } => write!(f, "hand {}.{}: {result:?}", hand.life, hand.number),
            Self::Started(hand) => write!(f, "handler of hand {}.{}", hand.life, hand.number),
            Self::Fleet { id, address, change } => write!(f, "{id:?} at {address}: {change:?}"),
            Self::Dialled { line, to, .. } => write!(f, "dial {to} as line {}", line.0),
            Self::Connected(line) => write!(f, "line {} connected", line.0),
            Self::Closed { line, why } => write!(f, "line {} closed: {:?}, {}", line.0, why.reason, why.detail),
            Self::HungUp(line) => write!(f, "hang up line {}", line.0),
            Self::Executed { line, command, refused: None } => write!(f, "line {}: {command:?}", line.0),
            Self::Executed { line, command, refused: Some(code) } => {
                write!(f, "line {}: {command:?} refused: {code}", line.0)
            }
            Self::Changed(change) => write!(f, "  {change:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}
