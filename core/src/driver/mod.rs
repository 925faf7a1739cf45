//! The driver: sockets as traits, RESP, the client and its handles.

pub mod client;
#[cfg_attr(not(test), allow(dead_code, reason = "not every handle uses all of it"))]
mod inbox;
mod message;
mod ready;
pub mod resp;

pub use client::{BrokerInfo, Client, CloseReport, Error, FleetEvents, Inspection, Stopped};
pub use message::FleetEvent;
