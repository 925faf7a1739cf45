//! Every key name on a broker, in one place.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;

/// The name of a key. Cheap to clone: hot keys are made once per topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The name as the server sees it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<alloc::string::String> for Key {
    fn from(name: alloc::string::String) -> Self {
        Self(name.into())
    }
}

/// The random id of a broker's data set: written once by whoever comes first, kept across restarts.
pub const STORE: &str = "streaming:mq:store";

/// A partition of a topic: the stream that holds its messages.
#[must_use]
pub fn partition(topic: &str, partition: u32) -> Key {
    format!("stream:topic:{topic}:p:{partition}").into()
}

/// Finds the partitions of a topic, or of all topics, and a little more, by `SCAN`.
#[must_use]
pub fn partition_pattern(topic: Option<&str>) -> alloc::string::String {
    format!("stream:topic:{}:p:*", topic.unwrap_or("*"))
}

/// The topic and the number of a partition from the name of its stream; none for any other key.
#[must_use]
pub fn parse_partition(key: &str) -> Option<(&str, u32)> {
    let (topic, number) = key.strip_prefix("stream:topic:")?.rsplit_once(":p:")?;
    let plain = number == "0" || (number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0'));
    if plain && crate::topic::is_name(topic) { Some((topic, number.parse().ok()?)) } else { None }
}

/// The dead letters of a topic, of all its groups and partitions on this broker.
#[must_use]
pub fn dead_letters(topic: &str) -> Key {
    format!("stream:topic:{topic}:dlq").into()
}

/// What a broker knows about a topic: the partition count.
#[must_use]
pub fn meta(topic: &str) -> Key {
    format!("streaming:mq:topic:{topic}:meta").into()
}

/// The registry of a topic's groups, so that a group whose consumers are away is not forgotten.
#[must_use]
pub fn groups(topic: &str) -> Key {
    format!("streaming:mq:topic:{topic}:groups").into()
}

/// What a broker remembers of a group's leases: the newest token, the generation, which server process wrote it.
#[must_use]
pub fn lease(topic: &str, group: &str) -> Key {
    format!("streaming:mq:lease:{topic}:{group}").into()
}

/// The members of a group that holds leases, with their deadlines.
#[must_use]
pub fn lease_members(topic: &str, group: &str) -> Key {
    format!("streaming:mq:lease:{topic}:{group}:members").into()
}

/// The members that are in line for partitions, with their places.
#[must_use]
pub fn lease_rank(topic: &str, group: &str) -> Key {
    format!("streaming:mq:lease:{topic}:{group}:rank").into()
}

/// Who owns which partition for a group (partitioned mode). Scripts that check an owner take it; competing mode has
/// no owners and the key never exists.
#[must_use]
pub fn owners(topic: &str, group: &str) -> Key {
    format!("streaming:mq:lease:{topic}:{group}:own").into()
}

/// A group's own redeliveries for one partition.
#[must_use]
pub fn retry_stream(topic: &str, partition: u32, group: &str) -> Key {
    format!("stream:topic:{topic}:p:{partition}:retry:{group}").into()
}

/// The topic, partition and group of a retry stream from its name; none for any other key.
#[must_use]
pub fn parse_retry_stream(key: &str) -> Option<(&str, u32, &str)> {
    let (partition, group) = key.rsplit_once(":retry:")?;
    let (topic, number) = parse_partition(partition)?;
    if crate::topic::is_name(group) { Some((topic, number, group)) } else { None }
}

/// Where messages wait that are not due yet: a sorted set of items by their due times, a hash of what they are, and the
/// index of all such sorted sets of a topic or group, by the earliest due time of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Items, by due time in milliseconds of the server's clock.
    pub items: Key,
    /// Item to packed fields.
    pub bodies: Key,
    /// Partition to earliest due time.
    pub index: Key,
}

/// A group's retries of one partition that are not due yet.
#[must_use]
pub fn retry_bucket(topic: &str, partition: u32, group: &str) -> Bucket {
    let index = retry_index(topic, group);
    let items = format!("{}:{partition}", index.as_str());
    Bucket { bodies: format!("{items}:body").into(), items: items.into(), index }
}

/// Which partitions have retries of a group that are not due yet.
#[must_use]
pub fn retry_index(topic: &str, group: &str) -> Key {
    format!("streaming:mq:retry:{topic}:{group}").into()
}

/// A topic's scheduled messages of one partition.
#[must_use]
pub fn delay_bucket(topic: &str, partition: u32) -> Bucket {
    let index = delay_index(topic);
    let items = format!("{}:{partition}", index.as_str());
    Bucket { bodies: format!("{items}:body").into(), items: items.into(), index }
}

/// Which partitions have scheduled messages.
#[must_use]
pub fn delay_index(topic: &str) -> Key {
    format!("streaming:mq:delay:{topic}").into()
}

/// Never exists: for a script's argument that has nothing to name.
#[must_use]
pub fn nothing() -> Key {
    "streaming:mq:nothing".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_from_what_lies_beside_them() {
        assert_eq!(parse_partition(partition("a.b", 17).as_str()), Some(("a.b", 17)));
        assert_eq!(parse_partition(partition("t", 0).as_str()), Some(("t", 0)));
        assert_eq!(parse_retry_stream(retry_stream("t", 3, "g").as_str()), Some(("t", 3, "g")));
        assert_eq!(parse_retry_stream(partition("t", 3).as_str()), None);
        let others = [
            retry_stream("t", 0, "g").as_str().into(),
            dead_letters("t").as_str().into(),
            "stream:topic:t:p:".into(),
            "stream:topic:t:p:01".into(),
            "stream:topic:a:b:p:1".into(),
            "stream:topic:t:p:99999999999".into(),
        ];
        for other in others {
            let other: alloc::string::String = other;
            assert_eq!(parse_partition(&other), None, "{other}");
        }
    }
}
