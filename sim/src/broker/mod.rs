//! The model broker: what a Redis or Valkey server does, as a pure function of its state, a time and a command.
//!
//! It has no clock, socket or thread. Whoever drives it says what time it is and carries replies; the same calls give
//! the same replies and the same state. A command it lacks is answered as a real server would answer an unknown one and is
//! also kept as a [gap](Broker::gaps): a simulation that meets one fails, because a silent answer proves nothing.

mod call;
mod db;
mod profile;
mod script;
mod stream;
mod value;
mod zset;

use bytes::Bytes;

pub use call::{Block, Call, Reaction, Stop};
pub use db::{Change, Db, Item, Object, Why};
pub use profile::{Memory, Profile};
pub use value::Value;

/// A connection, numbered by whoever drives the broker; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The server's wall clock, in microseconds since 1970-01-01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerTime(pub u64);

impl ServerTime {
    /// Whole milliseconds: what expiry, idle times and generated ids count in.
    #[must_use]
    pub fn ms(self) -> i64 {
        i64::try_from(self.0 / 1000).unwrap_or(i64::MAX)
    }
}

/// What a broker wants done for a connection, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Out {
    /// Send this.
    Reply(ClientId, Value),
    /// Close it once everything before has been sent.
    Close(ClientId),
}

/// A command that changed data, and when: executed again in this order on an empty broker they give the same data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The server's clock when it took effect.
    pub at: ServerTime,
    /// The command; what was blocked appears in the form that does not block, when it was served.
    pub args: Vec<Bytes>,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Broker {
    db: Db,
    profile: Profile,
}

// STUB until the broker's own is here.
impl Broker {
    fn profile(&self) -> &Profile {
        &self.profile
    }
    fn call_from_script(&mut self, _: ServerTime, _: ClientId, _: &[Bytes]) -> Value {
        Value::Nil
    }
}
