//! A stream: its entries, its groups, and what is pending in them.

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {}

impl Stream {
    /// What it takes, in bytes.
    pub(super) fn memory(&self) -> u64 {
        0
    }
}
