//! How many partitions a topic has, and who may say so.
//!
//! Each broker holds the number, with a version. The first service that states one sets it, as version 1; growing it is
//! an administrator's act and a new version, which every process carries to the brokers that lag behind. A number never
//! shrinks: partitions that nobody reads would keep their messages. Two services that state different numbers at version
//! 1 contradict each other: neither can know which is meant, so the later one's messages are refused, not misplaced.

use alloc::vec::Vec;
use core::time::Duration;

use crate::command::Arg;
use crate::reply::Reply;

/// How long a broker's word on a topic is taken for true: as long as a growth may go unnoticed.
pub(crate) const REGISTER_AGAIN: Duration = Duration::from_secs(10);

/// Streams named in one registration.
pub(crate) const ENSURE_STREAMS: usize = 100;

/// A number of partitions as a broker or a process knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// 0 if nobody has stated one yet.
    pub(crate) partitions: u32,
    /// 1 as first stated, one more with each growth; 0 if nobody has.
    pub(crate) version: u64,
}

impl Count {
    /// What a service states.
    pub(crate) fn stated(partitions: u32) -> Self {
        Self { partitions, version: 1 }
    }

    /// Reads the answer of `ensure`: `{partitions, made, groups, version}`.
    pub(crate) fn answered(reply: &Reply) -> Option<Self> {
        let mut parts = reply.view().items()?;
        let partitions = parts.next()?.as_int()?;
        let version = parts.nth(2)?.as_int()?;
        Some(Self::told(partitions, version))
    }

    /// Reads the answer of `HMGET meta partitions version`.
    pub(crate) fn read(reply: &Reply) -> Option<Self> {
        let mut parts = reply.view().items()?;
        let mut number = || -> Option<Option<i64>> {
            let part = parts.next()?;
            Some(part.as_str().and_then(|text| text.parse().ok()))
        };
        let (partitions, version) = (number()?.unwrap_or(0), number()?.unwrap_or(0));
        Some(Self::told(partitions, version))
    }

    fn told(partitions: i64, version: i64) -> Self {
        let partitions = u32::try_from(partitions).unwrap_or(0).min(super::MAX_PARTITIONS);
        let version = u64::try_from(version).unwrap_or(0);
        // A number without a version is the first one.
        Self { partitions, version: if partitions == 0 { 0 } else { version.max(1) } }
    }

    /// How many to use: a topic has at least one.
    pub(crate) fn used(self) -> u32 {
        self.partitions.max(1)
    }

    /// Learns what another party knows. A later version wins; of two equal ones the larger number, so that growths that
    /// crossed end alike everywhere. Whether that was news.
    pub(crate) fn learn(&mut self, other: Self) -> bool {
        let news = (other.version, other.partitions) > (self.version, self.partitions);
        if news {
            // It never shrinks.
            *self = Self { partitions: other.partitions.max(self.partitions), version: other.version };
        }
        news
    }

    /// As `ensure` takes it.
    pub(crate) fn args(self) -> Vec<Arg> {
        let version = i64::try_from(self.version).unwrap_or(i64::MAX);
        alloc::vec![self.partitions.into(), Arg::Int(version)]
    }

    /// Whether a service that states `stated` contradicts what a broker has. One that states less than a topic has grown
    /// to since only has not heard of it.
    pub(crate) fn contradicts(self, stated: u32) -> bool {
        self.partitions != 0 && self.partitions != stated && !(stated < self.partitions && self.version > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ReplyBuilder;

    fn count(partitions: u32, version: u64) -> Count {
        Count { partitions, version }
    }

    #[test]
    fn the_later_version_wins_and_a_number_never_shrinks() {
        let mut known = Count::default();
        assert!(known.learn(Count::stated(4)));
        assert!(!known.learn(Count::stated(4)));
        assert!(known.learn(count(6, 2)));
        assert!(known.learn(count(8, 2)), "growths that crossed");
        assert!(!known.learn(count(6, 2)));
        assert!(!known.learn(count(12, 1)));
        assert!(known.learn(count(2, 3)));
        assert_eq!(known, count(8, 3));
    }

    #[test]
    fn two_services_contradict_each_other_unless_a_growth_explains_it() {
        assert!(!count(4, 1).contradicts(4));
        assert!(count(4, 1).contradicts(8));
        assert!(count(8, 1).contradicts(4));
        assert!(!count(8, 2).contradicts(4), "it has not heard of the growth");
        assert!(count(8, 2).contradicts(9));
        assert!(!Count::default().contradicts(9), "nobody has said anything");
    }

    #[test]
    fn answers_are_read_and_nonsense_is_not() {
        let mut build = ReplyBuilder::new();
        build.array(4).int(8).int(0);
        build.array(0).int(2);
        assert_eq!(Count::answered(&build.finish()), Some(count(8, 2)));
        let mut build = ReplyBuilder::new();
        build.array(2).bulk(b"8").nil();
        assert_eq!(Count::read(&build.finish()), Some(count(8, 1)), "written before there were versions");
        let mut build = ReplyBuilder::new();
        build.array(2).nil().nil();
        assert_eq!(Count::read(&build.finish()), Some(Count::default()));
        let mut build = ReplyBuilder::new();
        build.array(2).bulk(b"-3").bulk(b"x");
        assert_eq!(Count::read(&build.finish()), Some(Count::default()));
        assert_eq!(Count::answered(&Reply::Nil), None);
        assert_eq!(Count::read(&Reply::Int(3)), None);
    }
}
