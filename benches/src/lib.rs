//! What several benches need: a count of allocations, and engines in the state that a measurement starts from.

pub mod allocations;
pub mod announcements;
pub mod world;
