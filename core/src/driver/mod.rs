//! The driver: sockets as traits, RESP, the client and its handles.

pub mod client;
mod env;
#[cfg(all(test, not(loom)))]
mod fake;
mod front;
#[cfg_attr(not(test), allow(dead_code, reason = "not every handle uses all of it"))]
mod inbox;
mod lane;
mod lanes;
mod message;
pub mod net;
mod port;
mod ready;
pub mod resp;
mod routes;
pub mod sockets;
mod turn;

pub use client::{BrokerInfo, Client, CloseReport, Error, FleetEvents, Inspection, SocketInfo, Stopped};
pub use message::FleetEvent;
pub use turn::{Driver, Setup};
