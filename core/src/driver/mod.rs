//! The driver: sockets as traits, RESP, the client and its handles.

#[cfg_attr(any(not(test), loom), allow(dead_code, reason = "the driver's loop is its user"))]
mod inbox;
#[cfg_attr(any(not(test), loom), allow(dead_code, reason = "the driver's loop is its user"))]
mod ready;
pub mod resp;
