//! Streams.

use super::Command;

pub(super) const TABLE: &[Command] = &[];
