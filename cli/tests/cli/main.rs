//! The command as people and programs use it, against real servers.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

mod bodies;
mod cold_start;
mod consume;
mod decode;
mod dev;
mod dlq;
mod partitions;
mod spread;
mod terminal;
mod unready;
mod usage;
mod watch;
