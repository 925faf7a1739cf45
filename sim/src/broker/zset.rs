//! A sorted set.

/// A sorted set.
#[derive(Clone, Debug, Default)]
pub struct Zset {}
