//! The sans-IO core of Flota.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod command;
#[cfg(feature = "std")]
pub mod driver;
pub mod id;
pub mod reply;
pub mod rng;
pub mod time;
