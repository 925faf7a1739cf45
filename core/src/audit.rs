//! What audits say: each running account and its recount, and by how much they differ.
//!
//! A complaint begins with the name of its clause and a colon: `backlog`, `connections`, `credit`, `fleet`, `rotation` or
//! `timers`.

use alloc::format;
use alloc::string::String;
use core::fmt;

/// Whether an account says what a recount says.
pub(crate) fn same(clause: &str, what: impl fmt::Display, account: usize, recount: usize) -> Result<(), String> {
    if account == recount {
        return Ok(());
    }
    let by = account.abs_diff(recount);
    Err(format!("{clause}: {what}: the account says {account}, a recount {recount}; they differ by {by}"))
}

/// Whether something is within its limit.
pub(crate) fn within(clause: &str, what: impl fmt::Display, is: usize, limit: usize) -> Result<(), String> {
    if is <= limit {
        return Ok(());
    }
    Err(format!("{clause}: {what}: {is} is {} more than the limit of {limit}", is - limit))
}

/// Whether something that must hold does.
pub(crate) fn holds(clause: &str, does: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if does { Ok(()) } else { Err(format!("{clause}: {}", otherwise())) }
}

/// Bytes as a count; more than fit are as many as fit.
pub(crate) fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
