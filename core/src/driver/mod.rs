//! The driver: sockets as traits, RESP, the client and its handles.

#[cfg_attr(not(test), allow(dead_code, reason = "the driver's loop is its user"))]
mod inbox;
#[cfg_attr(not(test), allow(dead_code, reason = "the driver's loop is its user"))]
mod ready;
