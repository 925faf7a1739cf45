//! The token that goes with a message: whoever has a larger one came later.

use alloc::sync::Arc;
use core::cmp::Ordering;
use core::fmt;

/// A fencing token: larger with every grant of a partition. It is near the server's microseconds since 1970, which is
/// how it keeps growing on a server that has forgotten everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where tokens can be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The id of the broker's data set.
    pub store: Arc<str>,
    /// The topic.
    pub topic: Arc<str>,
    /// The consumer group.
    pub group: Arc<str>,
}

/// What a handler can give to a database, so that who came later is not overwritten by who came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Data set, topic and group.
    pub scope: Arc<Scope>,
    /// The partition.
    pub partition: u32,
    /// The token.
    pub token: Token,
}

impl PartialOrd for Fence {
    /// Which came later; none for fences of two partitions or scopes, whose tokens say nothing about each other.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let one = self.partition == other.partition && self.scope == other.scope;
        one.then(|| self.token.cmp(&other.token))
    }
}
