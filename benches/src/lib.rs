//! What several benches need: a count of allocations.

pub mod allocations;
