//! The sans-IO core of Flota.
#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(feature = "std")]
mod driver;
pub mod id;
pub mod rng;
#[cfg(feature = "std")]
mod sync;
pub mod time;
