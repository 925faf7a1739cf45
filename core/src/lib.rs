//! The sans-IO core of Flota.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod id;
pub mod rng;
pub mod time;
pub mod timers;
