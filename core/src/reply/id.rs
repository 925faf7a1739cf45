//! The id of a stream entry.

use core::fmt;

/// `ms-seq`: the server's clock and a counter within the millisecond. Unique within one stream of one server, no further.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    /// Milliseconds since 1970 by the server's clock.
    pub ms: u64,
    /// The counter within that millisecond.
    pub seq: u64,
}

impl StreamId {
    /// Before every entry.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// Not before any entry.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Reads what a server prints: two decimal numbers of 64 bits without signs or leading zeros, one dash between.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (ms, rest) = leading_number(text)?;
        let (&b'-', rest) = rest.split_first()? else { return None };
        let (seq, rest) = leading_number(rest)?;
        rest.is_empty().then_some(Self { ms, seq })
    }
}

fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let value = match number {
        [] | [b'0', _, ..] => return None,
        // Nineteen nines are below 2⁶⁴: no step can overflow, so none needs the question.
        short if digits <= 19 => short.iter().fold(0u64, |n, b| n.wrapping_mul(10).wrapping_add(u64::from(b - b'0'))),
        long => long.iter().try_fold(0u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b - b'0')))?,
    };
    Some((value, rest))
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
