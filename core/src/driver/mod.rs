//! What carries the engine's outputs to sockets and back.

pub mod resp;
