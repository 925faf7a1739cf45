//! Looking at topics and at dead letters, and letting topics grow, over every broker that is ready.
//!
//! Nothing here is on a hot path: one command after the other, each answer read as it comes.

mod dead;
mod grow;
mod parse;
mod scheduled;
#[cfg(all(test, not(loom)))]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;

use super::client::{BrokerInfo, Client, Error};
use crate::command::Command;
use crate::config::Endpoint;
use crate::key::{self, Key};
use crate::op::OpError;
use crate::reply::{Entries, Reply, StreamId};
use crate::topic::{BadName, is_name};

pub use dead::{DeadLetter, Dropped, Letters, Replayed};
pub use grow::Grown;

/// Where a server does not say how much a group has still to read, at most this many entries are counted.
const COUNTED: u64 = 1_000;
/// Entries read at a time.
const PAGE: usize = 100;

/// Administration of a fleet: made by [`Client::admin`]. It looks at the brokers that are ready at the call and says
/// nothing of the others; [`Client::fleet`] knows which those are.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

impl Client {
    /// Topics and dead letters, for operators.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

/// One topic over all brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicReport {
    /// The topic's name.
    pub topic: String,
    /// Messages stored, handled or not.
    pub length: u64,
    /// Delivered and not settled, summed over the groups.
    pub pending: u64,
    /// Not yet delivered, summed over the groups.
    pub lag: u64,
    /// Dead letters.
    pub dead: u64,
    /// Scheduled messages whose time has not come.
    pub scheduled: u64,
    /// The same broker by broker, in the order of the fleet.
    pub brokers: Vec<TopicOnBroker>,
}

/// One topic on one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOnBroker {
    /// The broker.
    pub address: Endpoint,
    /// The partitions it has, by number.
    pub partitions: Vec<PartitionReport>,
}

/// One partition on one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its number.
    pub partition: u32,
    /// Messages stored, handled or not.
    pub length: u64,
    /// Its groups, as the server lists them.
    pub groups: Vec<GroupReport>,
}

/// One group on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// The group's name.
    pub group: String,
    /// Delivered and not settled, retries included.
    pub pending: u64,
    /// Retries whose time has not come.
    pub retrying: u64,
    /// Not yet delivered, retries included. Where the server does not say, as Redis before 7.0, it is counted, up to 1,000.
    pub lag: u64,
    /// The member that owns the partition, where partitions have owners.
    pub owner: Option<String>,
    /// The age of its oldest message that is pending or not yet delivered, in milliseconds by the broker's clock; none
    /// when there is no such message.
    pub oldest_ms: Option<u64>,
}

impl Admin {
    /// Length, groups, pending and lag of a topic, or of every topic there is, sorted by name. A topic that no broker
    /// knows is not among them.
    ///
    /// # Errors
    ///
    /// When the name is none, or a broker does not answer, or not what its answer should be.
    pub async fn topics(&self, topic: Option<&str>) -> Result<Vec<TopicReport>, Error> {
        topic.map_or(Ok(()), check)?;
        let mut reports: BTreeMap<String, TopicReport> = BTreeMap::new();
        for broker in self.brokers() {
            let now_ms = broker.read(Command::Time, parse::time).await?;
            for (name, partitions) in self.partitions(&broker, topic).await? {
                let report = reports
                    .entry(name)
                    .or_insert_with_key(|name| TopicReport { topic: name.clone(), ..TopicReport::default() });
                report.dead = report.dead.saturating_add(broker.length(&key::dead_letters(&report.topic)).await?);
                let mut found = Vec::new();
                for partition in partitions {
                    let partition = broker.partition(&report.topic, partition, now_ms).await?;
                    report.add(&partition);
                    found.push(partition);
                }
                report.scheduled = report.scheduled.saturating_add(broker.scheduled(&report.topic).await?);
                report.brokers.push(TopicOnBroker { address: broker.info.address.clone(), partitions: found });
            }
        }
        Ok(reports.into_values().collect())
    }

    async fn partitions(&self, broker: &Broker, topic: Option<&str>) -> Result<BTreeMap<String, BTreeSet<u32>>, Error> {
        let pattern = key::partition_pattern(topic);
        let mut found: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut cursor = String::from("0");
        loop {
            let scan = ["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000", "TYPE", "stream"];
            let (next, keys) = broker.read(words(scan), parse::scan).await?;
            for (name, partition) in keys.iter().filter_map(|key| key::parse_partition(key)) {
                // The pattern of one topic may match others' keys only when a name had a wildcard, which none has.
                found.entry(name.into()).or_default().insert(partition);
            }
            if next == "0" {
                break;
            }
            cursor = next;
        }
        for name in broker.topics_with_scheduled(topic).await? {
            found.entry(name).or_default();
        }
        Ok(found)
    }

    /// The brokers that can be asked.
    fn brokers(&self) -> Vec<Broker> {
        let fleet = self.client.fleet();
        let ready = fleet.iter().filter(|broker| broker.ready);
        ready.map(|info| Broker { client: self.client.clone(), info: info.clone() }).collect()
    }
}

impl TopicReport {
    fn add(&mut self, partition: &PartitionReport) {
        self.length = self.length.saturating_add(partition.length);
        for group in &partition.groups {
            self.pending = self.pending.saturating_add(group.pending);
            self.lag = self.lag.saturating_add(group.lag);
        }
    }
}

fn check(topic: &str) -> Result<(), Error> {
    if is_name(topic) { Ok(()) } else { Err(Error::Name(BadName(topic.into()))) }
}

/// One broker to ask.
struct Broker {
    client: Client,
    info: BrokerInfo,
}

impl Broker {
    /// Runs a command whose answer must have that shape.
    async fn read<T>(&self, command: Command, parse: impl FnOnce(&Reply) -> Option<T>) -> Result<T, Error> {
        let reply = self.client.call(self.info.id, command).await?;
        parse(&reply).ok_or_else(|| Error::Op(OpError::Unanswered(self.info.address.clone())))
    }

    async fn length(&self, stream: &Key) -> Result<u64, Error> {
        self.read(words(["XLEN", stream.as_str()]), parse::number).await
    }

    async fn partition(&self, topic: &str, partition: u32, now_ms: u64) -> Result<PartitionReport, Error> {
        let stream = key::partition(topic, partition);
        let length = self.length(&stream).await?;
        let mut groups = Vec::new();
        for group in self.read(words(["XINFO", "GROUPS", stream.as_str()]), parse::groups).await? {
            let next = self.range(&stream, Some(group.last), StreamId::MAX, 1).await?;
            let next = (!next.is_empty()).then(|| next.id(0));
            let lag = match group.lag {
                Some(lag) => lag,
                None if next.is_none() => 0,
                None if group.last == StreamId::MIN => length,
                None => self.count_after(&stream, group.last).await?,
            };
            let oldest = if group.pending > 0 { self.oldest_pending(&stream, &group.name).await? } else { None };
            let again = self.retries(topic, partition, &group.name).await?;
            let oldest = oldest.into_iter().chain(next).chain(again.oldest).min();
            let oldest_ms = oldest.map(|id| now_ms.saturating_sub(id.ms));
            groups.push(GroupReport {
                pending: group.pending.saturating_add(again.pending),
                retrying: again.waiting,
                lag: lag.saturating_add(again.lag),
                group: group.name,
                owner: None,
                oldest_ms,
            });
        }
        Ok(PartitionReport { partition, length, groups })
    }

    async fn oldest_pending(&self, stream: &Key, group: &str) -> Result<Option<StreamId>, Error> {
        self.read(words(["XPENDING", stream.as_str(), group]), parse::oldest_pending).await
    }

    async fn count_after(&self, stream: &Key, last: StreamId) -> Result<u64, Error> {
        let (mut count, mut after) = (0, last);
        while count < COUNTED {
            let page = self.range(stream, Some(after), StreamId::MAX, PAGE).await?;
            count += page.len() as u64;
            if page.len() < PAGE {
                break;
            }
            after = page.id(page.len() - 1);
        }
        Ok(count)
    }

    /// Entries after one, up to and with another.
    async fn range(
        &self,
        stream: &Key,
        after: Option<StreamId>,
        until: StreamId,
        count: usize,
    ) -> Result<Entries, Error> {
        let from = after.map_or_else(|| "-".into(), |id| alloc::format!("({id}"));
        let (until, count) = (alloc::format!("{until}"), alloc::format!("{count}"));
        self.read(words(["XRANGE", stream.as_str(), &from, &until, "COUNT", &count]), parse::range).await
    }
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    Command::Raw(words.into_iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
}
