//! What is seen of a run: one stream of observations, in true time, that the trace hash, the oracles, the last lines
//! before a failure and the drawing all read.

mod hash;
mod show;

use bytes::Bytes;
use flota_core::config::Endpoint;
use flota_core::id::{BrokerId, ConnId};
use flota_core::op::{OpError, Reject, Settled};
use flota_core::output::{BrokerChange, Closed, Warning};
use flota_core::reply::StreamId;
use flota_core::script::Script;
use flota_core::time::{Mono, Now};

use crate::broker::Change;

/// One observation.
#[derive(Clone, Debug)]
pub struct Seen {
    /// True time, in microseconds.
    pub at: u64,
    /// Of whom.
    pub host: Host,
    /// What.
    pub what: What,
}

/// Somebody in the world; the numbers are indices into the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// The world itself.
    World,
    /// A service.
    Service(u32),
    /// A broker.
    Broker(u32),
}

/// The part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No faults yet.
    WarmUp,
    /// Work and faults.
    Safety,
    /// Faults are over; everything must come right.
    Liveness,
    /// Everybody stops in order.
    Quiesce,
    /// It is over; final accounts.
    End,
}

/// A message of the plan, by its place in `Plan::work`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item(pub u32);

/// A connection, numbered over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(pub u32);

/// A delivery: whose, and its number there. Unique over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hand {
    /// The start of the service's process: counts up.
    pub life: u32,
    /// The delivery's number in that life.
    pub number: u64,
}

/// What is observed. In full fidelity the engine is inside of a driver: what only the engine's caller can see is marked
/// *fast only*.
#[derive(Clone, Debug)]
pub enum What {
    // ---- the world ----
    /// A new part of the run.
    Phase(Phase),
    /// A fault begins; its place in the plan.
    FaultBegins(u32),
    /// A fault ends.
    FaultEnds(u32),

    // ---- a service's life ----
    /// A process starts: its number among the service's starts.
    Born(u32),
    /// It is killed.
    Died(u32),
    /// It begins to stop, with this grace.
    Stopping {
        /// The grace, in microseconds.
        grace_us: u64,
    },
    /// It says that it has stopped.
    Stopped,
    /// It stands still.
    Paused,
    /// It goes on.
    Resumed,

    // ---- its application ----
    /// A message is handed over, or refused at the door.
    Submitted {
        /// Which.
        item: Item,
        /// Whether it was accepted.
        accepted: Result<(), Reject>,
    },
    /// The sender wants it back; whether that still named an operation.
    Cancelled {
        /// Which.
        item: Item,
        /// It was still under way.
        live: bool,
    },
    /// An accepted message is resolved.
    Done {
        /// Which.
        item: Item,
        /// How.
        result: Result<Place, OpError>,
    },
    /// *Fast only.* An operation is resolved that is not under way.
    Stray,
    /// A consumer starts; its place in `ServicePlan::consumes`.
    Subscribed(u32),
    /// A consumer was asked to end.
    Unsubscribing(u32),
    /// A consumer has ended.
    Unsubscribed(u32),
    /// A message is handed to the application.
    Delivered(Box<Delivered>),
    /// A handler starts on it.
    Started(Hand),
    /// The application settles it; whether that still named a delivery.
    Settled {
        /// Which.
        hand: Hand,
        /// How.
        verdict: Given,
        /// It still named a delivery.
        live: bool,
    },
    /// What the broker made of it.
    Answered {
        /// Which.
        hand: Hand,
        /// Its answer.
        result: Settled,
    },
    /// The engine wants a handler ended.
    Overdue(Hand),

    // ---- its fleet ----
    /// A datagram reaches its socket.
    Heard {
        /// From.
        from: std::net::SocketAddr,
        /// What.
        datagram: Bytes,
    },
    /// *Fast only.* What its engine showed of a small fleet before a datagram and after it, hashed.
    Looked {
        /// Before.
        before: u64,
        /// After.
        after: u64,
    },
    /// Its fleet changed.
    Fleet {
        /// Which member.
        id: BrokerId,
        /// Its address.
        address: Endpoint,
        /// How.
        change: BrokerChange,
    },
    /// Something it wants an operator to know.
    Warned(Box<Warning>),

    // ---- its connections ----
    /// It dials.
    Dialled {
        /// Its name for the connection.
        conn: ConnId,
        /// The world's.
        line: Line,
        /// Where to.
        to: Endpoint,
    },
    /// The dial succeeded.
    Connected(Line),
    /// *Fast only.* It gives a command to the socket.
    Wrote {
        /// On which connection.
        line: Line,
        /// Which.
        command: Word,
        /// How long, encoded.
        bytes: u64,
    },
    /// *Fast only.* The socket has taken so many more commands whole.
    Sent(Line, u64),
    /// *Fast only.* A reply is handed to the engine.
    Replied(Line),
    /// It hears that a connection is gone, or never came about.
    Closed {
        /// Which.
        line: Line,
        /// Why.
        why: Closed,
    },
    /// It closes one.
    HungUp(Line),
    /// *Full only.* Its system takes no more bytes for now, and there are more.
    Stuck(Line),

    // ---- its engine: fast only ----
    /// A turn: inputs taken in, outputs drained, until when it waits now. In full fidelity it is a poll of the driver:
    /// only whether time has passed is known.
    Turn {
        /// The clocks of the last input.
        now: Now,
        /// Inputs since the last turn.
        inputs: u32,
        /// One of the inputs was the passing of time.
        time_passed: bool,
        /// Outputs.
        outputs: u32,
        /// The deadline it names.
        wait: Option<Mono>,
    },
    /// A call of `handle_timeout` before the deadline; how many outputs it gave.
    Early {
        /// The deadline before.
        wait: Option<Mono>,
        /// The deadline after.
        after: Option<Mono>,
        /// Outputs.
        outputs: u32,
    },
    /// The engine counted itself: nothing, or what does not add up.
    Audited(Result<(), String>),
    /// The recorded inputs were fed to a fresh engine: the place of the first different output, if any.
    Rerun {
        /// How many inputs.
        inputs: u64,
        /// The first input after which outputs differ, and how.
        differs: Option<(u64, String)>,
    },

    // ---- a broker ----
    /// Its process runs: its number among the broker's starts.
    Up(u32),
    /// Its process is gone.
    Down,
    /// It forgot the last so many commands that changed something.
    Forgot(u64),
    /// It executes a command.
    Executed {
        /// For whom.
        line: Line,
        /// Which.
        command: Word,
        /// The code of its refusal.
        refused: Option<String>,
    },
    /// Something changed in one of its streams, by the command executed last.
    Changed(Box<Change>),
    /// It accepts a connection.
    Accepted(Line),
    /// It has lost one.
    Dropped(Line),
    /// A command that the model lacks.
    Gap(String),
}

/// A command, as far as oracles tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `XADD` of a message of the plan.
    Add(Option<Item>),
    /// `XACK` of so many.
    Ack(u32),
    /// `XREADGROUP`.
    ReadGroup,
    /// `XREAD`.
    Read,
    /// A script.
    Script(Script),
    /// A word of the handshake that carries credentials.
    Auth,
    /// Any other.
    Other(&'static str),
}

/// Where a message is stored, as its sender was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The broker's place in the plan, by the address the sender knows.
    pub broker: Option<u32>,
    /// The partition.
    pub partition: u32,
    /// The entry.
    pub entry: StreamId,
}

/// A message in the hands of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its number.
    pub hand: Hand,
    /// The consumer's place in `ServicePlan::consumes`.
    pub sub: u32,
    /// Which message it is, by its body.
    pub item: Option<Item>,
    /// Its body is byte for byte what was submitted.
    pub intact: bool,
    /// The broker's place in the plan.
    pub broker: Option<u32>,
    /// The partition.
    pub partition: u32,
    /// It lies in the group's retry stream of that partition.
    pub retry: bool,
    /// The entry.
    pub entry: StreamId,
    /// How often the entry was delivered, this time included.
    pub deliveries: u32,
    /// How often the message was, as the engine says.
    pub attempt: u32,
}

/// A verdict, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Handled.
    Done,
    /// Again, later.
    Retry,
    /// Never.
    Reject,
    /// Given back.
    Release,
}

/// A 64-bit hash over everything seen: two runs of one plan are the same run if theirs are equal.
#[derive(Clone, Copy, Debug)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Takes one number in.
    pub fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Takes bytes in.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        let mut rest = [0; 8];
        for (to, from) in rest.iter_mut().zip(chunks.remainder()) {
            *to = *from;
        }
        self.word(u64::from_le_bytes(rest));
    }

    /// The hash so far.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}
