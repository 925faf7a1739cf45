//! One command at work: what its handler may see and do, and how it can end without a reply.

use bytes::Bytes;

use super::{ClientId, Db, Profile, ServerTime, Value};

/// What a command's handler works with.
pub struct Call<'a> {
    /// The command's words, its name first.
    pub args: &'a [Bytes],
    /// The server's clock. Within a script it stands still.
    pub at: ServerTime,
    /// The data.
    pub db: &'a mut Db,
    /// Which server this is.
    pub profile: &'a Profile,
    /// Who asks.
    pub client: ClientId,
    /// The protocol the reply is for: 2 or 3. Scripts see 2.
    pub resp: u8,
    /// Whether the connection may be parked: not inside `MULTI`, where a blocking command answers at once as if its
    /// time were over. Scripts refuse blocking forms before the handler runs, or in it where only an option blocks.
    pub may_block: bool,
    /// Runs inside a script.
    pub in_script: bool,
    /// Why a parked command is attempted again: this key became ready. It was created, added to, removed or replaced.
    /// Before 7.2 a server then looks at this key only; from 7.2 it runs the whole command again.
    pub ready: Option<&'a Bytes>,
    /// What the log keeps instead of the command's own words, where these would not do the same to the same data
    /// at once and for a connection that cannot wait. Only looked at when the command changed something.
    pub log_as: Option<Vec<Bytes>>,
    /// What a real server knows and the model does not: see [`Broker::gaps`](super::Broker::gaps).
    pub gaps: &'a mut Vec<String>,
}

impl<'a> Call<'a> {
    /// The word at this place.
    ///
    /// # Errors
    ///
    /// A syntax error when there is none.
    pub fn word(&self, place: usize) -> Result<&'a Bytes, Stop> {
        self.args.get(place).ok_or_else(|| SYNTAX.into())
    }

    /// The whole number at this place.
    ///
    /// # Errors
    ///
    /// What a server says when it is not one.
    pub fn int(&self, place: usize) -> Result<i64, Stop> {
        parse_int(self.word(place)?).ok_or_else(|| NOT_INT.into())
    }
}

/// Options that make no sense.
pub(super) const SYNTAX: &str = "ERR syntax error";
/// Not a whole number of 64 bits in its only form.
pub(super) const NOT_INT: &str = "ERR value is not an integer or out of range";
/// Not a number.
pub(super) const NOT_FLOAT: &str = "ERR value is not a valid float";

/// Reads a whole number as a server does: no plus sign, no leading zeros, no spaces.
#[must_use]
pub(super) fn parse_int(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads a number that is no whole one: a score, a timeout. Infinities are numbers, "not a number" is none.
#[must_use]
pub(super) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let first = text.bytes().next()?;
    if first.is_ascii_whitespace() {
        return None;
    }
    text.parse::<f64>().ok().filter(|number| !number.is_nan())
}

/// How a handler ends early.
#[derive(Debug)]
pub enum Stop {
    /// With a refusal: code, space, text.
    Error(String),
    /// It has to wait; only where [`Call::may_block`].
    Block(Block),
}

/// A connection that waits for keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Any of these. They may not exist yet.
    pub keys: Vec<Bytes>,
    /// How long, in milliseconds; zero is for ever.
    pub timeout_ms: u64,
    /// The command to attempt again for a key that became ready, with whatever a wait has to remember made explicit:
    /// `$` of `XREAD` as the id it stood for.
    pub args: Vec<Bytes>,
    /// What is answered when the time is over.
    pub otherwise: Value,
}

/// What a served attempt of a parked command came to: see [`Call`]. A handler that blocks is called again for each key
/// that becomes ready, with the block's `args` and `may_block` set; it blocks again when there is nothing for it.
pub type Reaction = Result<Value, Stop>;

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Error(text)
    }
}

impl From<&str> for Stop {
    fn from(text: &str) -> Self {
        Self::Error(text.to_string())
    }
}
