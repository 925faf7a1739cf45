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
