//! What the engine says: commands to send, deadlines to wait for, events.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::net::SocketAddr;

use bytes::Bytes;

use crate::announce::{Guid, Reject};
use crate::command::Command;
use crate::config::Endpoint;
use crate::id::{BrokerId, ConnId, DeliveryId, OpId, SubId};
use crate::op::{OpError, Outcome, PartitionsDiffer, Settled};
use crate::reply::{Entries, StreamId};
use crate::time::Mono;

/// One thing for the driver to do. Drain them until [`Output::Wait`].
#[must_use]
#[derive(Debug)]
pub enum Output {
    /// Connect, and report `handle_connected` or `handle_closed`.
    Dial {
        /// The id of the connection to be.
        conn: ConnId,
        /// Where to.
        to: Endpoint,
    },
    /// Encode and write, in this order.
    Send {
        /// On which connection.
        conn: ConnId,
        /// What.
        command: Command,
    },
    /// Close; nothing more is expected from it.
    Hangup(ConnId),
    /// Send a datagram.
    Datagram {
        /// Where to.
        to: SocketAddr,
        /// What.
        payload: Bytes,
    },
    /// Tell the application.
    Event(Event),
    /// Nothing more now; call `handle_timeout` then.
    Wait(Option<Mono>),
}

/// What happened, for the application.
#[derive(Debug)]
pub enum Event {
    /// The fleet changed.
    Broker(Box<BrokerEvent>),
    /// An accepted operation is finished: exactly one for each.
    Done {
        /// Which.
        op: OpId,
        /// What came of it.
        result: Result<Outcome, OpError>,
    },
    /// A message to handle; answer with `settle`.
    Delivery(Delivery),
    /// What became of a verdict, where the settling asked to be told.
    Settled {
        /// Which delivery.
        delivery: DeliveryId,
        /// What the broker made of it.
        result: Settled,
    },
    /// A handler has been running for `handler_timeout`: end it and settle with a retry.
    Overdue {
        /// Of which subscription.
        sub: SubId,
        /// Which delivery.
        delivery: DeliveryId,
    },
    /// A subscription has ended: nothing of it is in hand or on the wire.
    Unsubscribed {
        /// Which.
        sub: SubId,
    },
    /// Something an operator should know; nothing is lost unless it says so.
    Warning(Box<Warning>),
    /// The engine has stopped; only `Wait(None)` follows.
    Stopped,
}

/// A change of the fleet.
#[derive(Clone, Debug)]
pub struct BrokerEvent {
    /// Which member.
    pub broker: BrokerId,
    /// Its newest GUID; none for a configured broker.
    pub guid: Option<Guid>,
    /// Its address.
    pub address: Endpoint,
    /// What changed.
    pub change: BrokerChange,
}

/// What changed about a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerChange {
    /// It became a member.
    Announced,
    /// It can be used.
    Ready,
    /// It cannot be used for now.
    Unready(Unready),
    /// It said goodbye: no sends there from now on.
    Withdrawn,
    /// It was silent for too long.
    Expired {
        /// Milliseconds from its last accepted announcement to now.
        silent_ms: u64,
    },
    /// Another server process answers at its address.
    Restarted,
    /// It is no longer read either, and forgotten.
    Forgotten,
}

/// Why a member cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// The class.
    pub reason: UnreadyReason,
    /// What came back.
    pub detail: String,
}

/// Classes of "cannot be used".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnreadyReason {
    /// The dial was refused.
    Refused,
    /// No answer within the deadline.
    Timeout,
    /// What answers does not speak RESP, or not like Redis.
    NotRedis,
    /// It is loading its data.
    Loading,
    /// It is a replica: it cannot take messages.
    Replica,
    /// It wants other credentials.
    Auth,
    /// The TLS handshake failed.
    Tls,
    /// Its memory is full: no sends there, reads go on.
    Oom,
    /// The connection closed.
    Closed,
    /// It refuses everything for now: a failing snapshot, missing replicas, a script that does not end.
    Refusing,
}

impl fmt::Display for UnreadyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::NotRedis => "not_redis",
            Self::Loading => "loading",
            Self::Replica => "replica",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::Oom => "oom",
            Self::Closed => "closed",
            Self::Refusing => "refusing",
        })
    }
}

/// Why a connection closed, as the adapter saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The class.
    pub reason: ClosedReason,
    /// The system's or the parser's words.
    pub detail: String,
}

/// Classes of closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedReason {
    /// The dial was refused, or the host is unreachable.
    Refused,
    /// The name does not resolve.
    Unresolved,
    /// The TLS handshake failed.
    Tls,
    /// The bytes are not RESP.
    Protocol,
    /// The peer closed it.
    Eof,
    /// The socket failed.
    Io,
    /// It was hung up here.
    Hangup,
}

/// A message to handle.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// To settle it by.
    pub delivery: DeliveryId,
    /// Of which subscription.
    pub sub: SubId,
    /// On which broker it lies.
    pub broker: BrokerId,
    /// Its partition's number.
    pub partition: u32,
    /// Whether its entry lies in the group's retry stream of that partition, and not in the partition itself.
    pub retry: bool,
    /// How often this entry has been delivered, this time included. A retry makes a new entry.
    pub deliveries: u32,
    /// How often the message has been delivered to this group, this time and earlier entries included.
    pub attempt: u32,
    /// The batch it came in.
    pub batch: Arc<Entries>,
    /// Its place in the batch.
    pub index: u32,
}

impl Delivery {
    /// Its entry id, unique only together with broker, partition, and whether it is a retry.
    #[must_use]
    pub fn entry(&self) -> StreamId {
        self.batch.id(self.index as usize)
    }
}

/// Something an operator should know.
#[derive(Clone, Debug)]
pub enum Warning {
    /// Datagrams were not admitted: at most one event a second per reason.
    NotAdmitted {
        /// Why.
        why: NotAdmitted,
        /// How many since the last event of this reason.
        count: u64,
        /// One of them, escaped.
        example: String,
    },
    /// A broker's settings endanger messages.
    Risky {
        /// Which broker.
        broker: Endpoint,
        /// What, and what to do.
        what: String,
    },
    /// Services disagree about a topic's number of partitions. What this one sends there is refused until they agree; it
    /// reads all of them.
    Partitions(Box<PartitionsDiffer>),
    /// A topic has grown: the next messages of most keys go to other partitions than those before.
    Grown {
        /// Which topic.
        topic: Arc<str>,
        /// On which broker.
        broker: Endpoint,
        /// From how many partitions.
        from: u32,
        /// To how many.
        to: u32,
    },
    /// A broker refused something this process needs.
    Refused {
        /// Which broker.
        broker: Endpoint,
        /// What was attempted.
        what: &'static str,
        /// What came back.
        error: String,
    },
    /// Messages went to the dead letters without a handler seeing them again.
    Dead {
        /// Which topic.
        topic: String,
        /// Which group.
        group: String,
        /// How many.
        count: u32,
    },
    /// Pending messages whose bodies had been trimmed: they are gone.
    BodiesLost {
        /// Which topic.
        topic: String,
        /// Which group.
        group: String,
        /// How many.
        count: u32,
    },
    /// One GUID speaks for two server processes.
    SharedGuid {
        /// The GUID.
        guid: Guid,
        /// Where it was heard.
        addresses: [Endpoint; 2],
    },
}

/// Why a datagram was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotAdmitted {
    /// It is not an announcement.
    Malformed(Reject),
    /// Another fleet's name.
    OtherName,
    /// An address outside the allowed networks.
    Network,
    /// A host name, where only literals are accepted.
    HostName,
    /// It came from another address than it announces.
    Sender,
    /// The fleet is at its limit.
    FleetFull,
    /// Its sender introduces newcomers too fast.
    TooFast,
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(reject) => reject.fmt(f),
            Self::OtherName => f.write_str("OtherName"),
            Self::Network => f.write_str("Network"),
            Self::HostName => f.write_str("HostName"),
            Self::Sender => f.write_str("Sender"),
            Self::FleetFull => f.write_str("FleetFull"),
            Self::TooFast => f.write_str("TooFast"),
        }
    }
}

/// Why the engine wants to be woken at the time that `Wait` names: for logs and for finding spins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Nothing is due.
    Idle,
    /// A member would expire.
    Liveness,
    /// A connection's deadline: handshake, reply or idle ping.
    Connection,
    /// A reconnect.
    Backoff,
    /// An operation would give up waiting for a broker.
    Backlog,
    /// A consumer's renewal, claim, retry or handler timeout.
    Consumer,
    /// The next announcement.
    Announcement,
    /// A departed broker, an alternative address, or the end of a shutdown.
    Housekeeping,
}
