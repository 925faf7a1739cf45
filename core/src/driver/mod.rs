//! The driver: sockets as traits, RESP, the client and its handles.

mod admin;
pub mod client;
mod env;
#[cfg(all(test, not(loom)))]
mod fake;
mod front;
mod group;
#[cfg_attr(not(test), allow(dead_code, reason = "not every handle uses all of it"))]
mod inbox;
mod job;
mod lane;
mod lanes;
mod message;
pub mod net;
mod port;
mod ready;
pub mod resp;
mod routes;
mod run;
pub mod sockets;
mod topic;
mod turn;
mod verdict;

pub use admin::{
    Admin, DeadLetter, Dropped, GroupReport, Grown, Letters, PartitionReport, Replayed, TopicOnBroker, TopicReport,
};
pub use client::{BrokerInfo, Client, CloseReport, Error, FleetEvents, Inspection, SocketInfo, Stopped};
pub use group::{Group, Subscription};
pub use job::{Job, Receipt};
pub use message::FleetEvent;
pub use run::{Batch, Batches, Each, Run, Spawned, Stopper};
pub use topic::Topic;
pub use turn::{Driver, Setup};
pub use verdict::{IntoVerdict, Reject};
