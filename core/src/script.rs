//! The Lua scripts that run on brokers: their texts, their checksums, and what each is for.
//!
//! One text for every supported server. Every key is declared. A script checks first, writes last and acknowledges last
//! of all, because an error in the middle keeps what was done before. Each is safe to run again with the same
//! arguments, because its reply may have been lost.

/// A script. [`Command::Eval`](crate::command::Command::Eval) runs one, by checksum where the broker has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Script {
    /// Takes over pending entries page by page: from the dead, from `@free`, from `@retry`, or one's own lost replies. Moves
    /// poison to the dead letters before any handler sees it.
    Claim,
    /// Copies entries to the dead letters, then acknowledges them.
    Dead,
    /// Hands entries to `@retry`, claimable after a delay.
    Defer,
    /// Registers a topic and its groups, and creates what is missing.
    Ensure,
    /// Removes a consumer's name where it holds nothing.
    Leave,
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
    /// The last generated id of each stream.
    Tail,
    /// A lease: heartbeat, expiry, renewal, release, sharing and granting of partitions in one call per group.
    Tick,
    /// Removes what every registered group has done with.
    Trim,
}

impl Script {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Claim,
        Self::Dead,
        Self::Defer,
        Self::Ensure,
        Self::Leave,
        Self::Reap,
        Self::Rejoin,
        Self::Release,
        Self::Renew,
        Self::Replay,
        Self::Tail,
        Self::Tick,
        Self::Trim,
    ];

    /// The Lua text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Claim => include_str!("scripts/claim.lua"),
            Self::Dead => include_str!("scripts/dead.lua"),
            Self::Defer => include_str!("scripts/defer.lua"),
            Self::Ensure => include_str!("scripts/ensure.lua"),
            Self::Leave => include_str!("scripts/leave.lua"),
            Self::Reap => include_str!("scripts/reap.lua"),
            Self::Rejoin => include_str!("scripts/rejoin.lua"),
            Self::Release => include_str!("scripts/release.lua"),
            Self::Renew => include_str!("scripts/renew.lua"),
            Self::Replay => include_str!("scripts/replay.lua"),
            Self::Tail => include_str!("scripts/tail.lua"),
            Self::Tick => include_str!("scripts/tick.lua"),
            Self::Trim => include_str!("scripts/trim.lua"),
        }
    }

    /// The SHA-1 of the text, as `EVALSHA` takes it.
    #[must_use]
    pub const fn sha1(self) -> &'static str {
        match self {
            Self::Claim => "a30f77c76b4c70a92d220b02062797b61ac4415a",
            Self::Dead => "2d97daf5f1f6ba735c845e9215d0d413698da217",
            Self::Defer => "7051571537801cbb1429687eb5c62fcd95174a7c",
            Self::Ensure => "b8c090f8b7d62906f55f11501dd55a610dfd768d",
            Self::Leave => "2f44536ef6ebaaad26df91855075bd7399714911",
            Self::Reap => "30c9b16370be8dc223ccde008926dea5449a85e0",
            Self::Rejoin => "292580b80f9d5c29efd9f040cf0e8ef15a5f8de5",
            Self::Release => "56904f4f6465af4154fd7c0d05a97d5526d089bc",
            Self::Renew => "852cf392361157adbabfb2b2a2649f849f0c888a",
            Self::Replay => "353b7e7b1e1f16230c3e99bf88c3ca84a24dee1c",
            Self::Tail => "5676994c293ad0058782b202f44a10b567a08828",
            Self::Tick => "dd2ca149aebd699678577304cd5fc325e11ab16e",
            Self::Trim => "56eced5b2aac1631527603213cc18d474f2a72a1",
        }
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// How long an entry in `@retry` must have been idle to be due: a deferral sets its idle time to this less the delay,
/// so it is also the longest delay. Matches `scripts/defer.lua`.
pub const RETRY_HORIZON_MS: u64 = 3_600_000;

/// The consumer that holds entries given back; anybody claims from it at once.
pub const FREE: &str = "@free";

/// The consumer that holds entries whose retry is not due yet.
pub const RETRY: &str = "@retry";

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

    #[test]
    fn the_horizon_is_the_one_in_the_script() {
        assert!(Script::Defer.text().contains(&alloc::format!("{RETRY_HORIZON_MS} - ARGV")));
    }
}
