//! The Lua scripts that run on brokers: their texts, their checksums, and what each is for.
//!
//! One text for every supported server. Every key is declared. A script checks first, writes last and acknowledges last
//! of all, because an error in the middle keeps what was done before. Each is safe to run again with the same
//! arguments, because its reply may have been lost.

/// A script. [`Command::Eval`](crate::command::Command::Eval) runs one, by checksum where the broker has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Script {
    /// Takes scheduled messages out of their bucket.
    Cancel,
    /// Takes over pending entries page by page: from the dead, from `@free`, or one's own lost replies. Moves poison to the
    /// dead letters before any handler sees it.
    Claim,
    /// Copies entries to the dead letters, then acknowledges them.
    Dead,
    /// What waits in a group's buckets and when the first of it is due; which of its retry streams there are.
    Due,
    /// Registers a topic and its groups, and creates what is missing.
    Ensure,
    /// Removes a consumer's name where it holds nothing.
    Leave,
    /// Moves what is due from a bucket to its stream.
    Move,
    /// Removes names of consumers that hold nothing and have been idle for long.
    Reap,
    /// Recreates a deleted group where it was, on a stream that has not been replaced.
    Rejoin,
    /// Hands entries to `@free`, claimable at once.
    Release,
    /// Keeps held entries from being claimed by others.
    Renew,
    /// Moves dead letters back.
    Replay,
    /// Copies entries to the group's bucket, until their retry is due, then acknowledges them.
    Retry,
    /// Puts a message into a topic's bucket until it is due.
    Schedule,
    /// The last generated id of each stream.
    Tail,
    /// A lease: heartbeat, expiry, renewal, release, sharing and granting of partitions in one call per group.
    Tick,
    /// Removes what every registered group has done with.
    Trim,
}

impl Script {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Cancel,
        Self::Claim,
        Self::Dead,
        Self::Due,
        Self::Ensure,
        Self::Leave,
        Self::Move,
        Self::Reap,
        Self::Rejoin,
        Self::Release,
        Self::Renew,
        Self::Replay,
        Self::Retry,
        Self::Schedule,
        Self::Tail,
        Self::Tick,
        Self::Trim,
    ];

    /// The Lua text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Cancel => include_str!("scripts/cancel.lua"),
            Self::Claim => include_str!("scripts/claim.lua"),
            Self::Dead => include_str!("scripts/dead.lua"),
            Self::Due => include_str!("scripts/due.lua"),
            Self::Ensure => include_str!("scripts/ensure.lua"),
            Self::Leave => include_str!("scripts/leave.lua"),
            Self::Move => include_str!("scripts/move.lua"),
            Self::Reap => include_str!("scripts/reap.lua"),
            Self::Rejoin => include_str!("scripts/rejoin.lua"),
            Self::Release => include_str!("scripts/release.lua"),
            Self::Renew => include_str!("scripts/renew.lua"),
            Self::Replay => include_str!("scripts/replay.lua"),
            Self::Retry => include_str!("scripts/retry.lua"),
            Self::Schedule => include_str!("scripts/schedule.lua"),
            Self::Tail => include_str!("scripts/tail.lua"),
            Self::Tick => include_str!("scripts/tick.lua"),
            Self::Trim => include_str!("scripts/trim.lua"),
        }
    }

    /// The SHA-1 of the text, as `EVALSHA` takes it.
    #[must_use]
    pub const fn sha1(self) -> &'static str {
        match self {
            Self::Cancel => "4624270bf163e7f94508de537cfda8d8ea756e88",
            Self::Claim => "aebd9477f31b9c107ddeb462a1b25df4655ffe86",
            Self::Dead => "7fde181b770e79d7454beba245ba43dc6b81528e",
            Self::Due => "a793cfd5991ff3c8c4dce14b9f0d8e2e0a7c99b8",
            Self::Ensure => "2a6a4062ec9d34df5fb9f96df11ce379c6f7a6f3",
            Self::Leave => "f812d03c0da5bc9fb2b8b47ef1ccea4aeed1b4b8",
            Self::Move => "14e4d1e64b5df72c456d0920b13d30282c222c36",
            Self::Reap => "30c9b16370be8dc223ccde008926dea5449a85e0",
            Self::Rejoin => "292580b80f9d5c29efd9f040cf0e8ef15a5f8de5",
            Self::Release => "56904f4f6465af4154fd7c0d05a97d5526d089bc",
            Self::Renew => "852cf392361157adbabfb2b2a2649f849f0c888a",
            Self::Replay => "353b7e7b1e1f16230c3e99bf88c3ca84a24dee1c",
            Self::Retry => "594e2675573ca0cc87eeb74da3b6bbbb63634ad3",
            Self::Schedule => "f4ea7c0d98373366acc6baba6d1371d8d0488519",
            Self::Tail => "5676994c293ad0058782b202f44a10b567a08828",
            Self::Tick => "dd2ca149aebd699678577304cd5fc325e11ab16e",
            Self::Trim => "56eced5b2aac1631527603213cc18d474f2a72a1",
        }
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The consumer that holds entries given back; anybody claims from it at once.
pub const FREE: &str = "@free";

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use core::fmt::Write;
    use sha1::{Digest, Sha1};

    #[test]
    fn checksums_are_those_of_the_texts() {
        for script in Script::ALL {
            let hex = Sha1::digest(script.text()).iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").unwrap();
                hex
            });
            assert_eq!(script.sha1(), hex, "{script:?}");
        }
    }
}
