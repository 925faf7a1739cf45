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

/// The number at the start, and what follows it.
fn leading_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut n = 0u64;
    let mut digits = text.len();
    for (i, byte) in text.iter().enumerate() {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            digits = i;
            break;
        }
        // Nineteen nines are below 2⁶⁴: only the twentieth digit can overflow, so only there the question is asked.
        n = if i < 19 { n.wrapping_mul(10).wrapping_add(digit) } else { n.checked_mul(10)?.checked_add(digit)? };
    }
    let (number, rest) = text.split_at(digits);
    if matches!(number, [] | [b'0', _, ..]) { None } else { Some((n, rest)) }
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
