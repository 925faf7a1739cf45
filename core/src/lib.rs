//! The sans-IO core of Flota.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod announce;
mod announcer;
pub mod command;
pub mod config;
mod conn;
mod departure;
#[cfg(feature = "std")]
pub mod driver;
mod effect;
pub mod engine;
mod fleet;
pub mod id;
pub mod key;
mod link;
pub mod op;
pub mod output;
mod placement;
pub mod reply;
pub mod rng;
pub mod router;
pub mod script;
pub mod stats;
#[cfg(feature = "std")]
mod sync;
pub mod time;
pub mod timers;
pub mod topic;

pub use engine::Engine;
