//! The sans-IO core of Flota.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod announce;
pub mod id;
pub mod rng;
pub mod time;
