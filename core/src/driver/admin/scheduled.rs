//! What waits for its time: scheduled messages, which can be cancelled, and the retries of groups.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Admin, Broker, check, parse, words};
use crate::command::{Arg, By, Command, Eval};
use crate::driver::client::Error;
use crate::key;
use crate::reply::{StreamId, View};
use crate::script::Script;
use crate::topic::{MessageId, is_name};

/// A group's retries of one partition.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// Not due yet.
    pub(super) waiting: u64,
    /// In the retry stream, delivered and not settled.
    pub(super) pending: u64,
    /// … and not yet delivered.
    pub(super) lag: u64,
    /// The oldest of both.
    pub(super) oldest: Option<StreamId>,
}

impl Admin {
    /// Takes scheduled messages out again, on whichever broker they wait, and says how many there were. One that is due
    /// may have been delivered already, and counts for nothing then.
    ///
    /// # Errors
    ///
    /// When the name is none, or a broker does not answer, or not what its answer should be. Those that were cancelled
    /// before the error are.
    pub async fn cancel(&self, topic: &str, messages: &[MessageId]) -> Result<u64, Error> {
        check(topic)?;
        let mut cancelled = 0u64;
        let ids: Vec<Arc<str>> = messages.iter().map(|id| format!("{id}").into()).collect();
        for broker in self.brokers() {
            for partition in broker.partitions_with_scheduled(topic).await? {
                for chunk in ids.chunks(super::PAGE) {
                    let bucket = key::delay_bucket(topic, partition);
                    let mut args = alloc::vec![Arg::from(partition)];
                    args.extend(chunk.iter().map(Arg::from));
                    let keys = alloc::vec![bucket.items, bucket.bodies, bucket.index];
                    let eval = Eval { script: Script::Cancel, keys, args };
                    let taken = broker.read(Command::Eval(eval.into(), By::Sha1), parse::number).await?;
                    cancelled = cancelled.saturating_add(taken);
                }
            }
        }
        Ok(cancelled)
    }
}

impl Broker {
    /// How many scheduled messages of a topic wait here.
    pub(super) async fn scheduled(&self, topic: &str) -> Result<u64, Error> {
        let mut count = 0u64;
        for partition in self.partitions_with_scheduled(topic).await? {
            let bucket = key::delay_bucket(topic, partition);
            count = count.saturating_add(self.read(words(["ZCARD", bucket.items.as_str()]), parse::number).await?);
        }
        Ok(count)
    }

    async fn partitions_with_scheduled(&self, topic: &str) -> Result<Vec<u32>, Error> {
        let index = key::delay_index(topic);
        let partitions = |reply: &crate::reply::Reply| {
            let items = reply.view().items()?;
            Some(items.filter_map(View::as_str).filter_map(|partition| partition.parse().ok()).collect())
        };
        self.read(words(["ZRANGE", index.as_str(), "0", "-1"]), partitions).await
    }

    /// Topics that have scheduled messages here, whether anything else is there or not.
    pub(super) async fn topics_with_scheduled(&self, topic: Option<&str>) -> Result<BTreeSet<String>, Error> {
        let pattern = key::delay_index(topic.unwrap_or("*"));
        let prefix = key::delay_index("");
        let mut found = BTreeSet::new();
        let mut cursor = String::from("0");
        loop {
            let scan = ["SCAN", &cursor, "MATCH", pattern.as_str(), "COUNT", "1000", "TYPE", "zset"];
            let (next, keys) = self.read(words(scan), parse::scan).await?;
            let names = keys.iter().filter_map(|key| key.strip_prefix(prefix.as_str()));
            // The buckets themselves have a colon in what follows.
            found.extend(names.filter(|name| is_name(name)).map(String::from));
            if next == "0" {
                return Ok(found);
            }
            cursor = next;
        }
    }

    pub(super) async fn retries(&self, topic: &str, partition: u32, group: &str) -> Result<Retries, Error> {
        if !is_name(group) {
            return Ok(Retries::default());
        }
        let bucket = key::retry_bucket(topic, partition, group);
        let waiting = self.read(words(["ZCARD", bucket.items.as_str()]), parse::number).await?;
        let stream = key::retry_stream(topic, partition, group);
        let length = self.length(&stream).await?;
        if length == 0 {
            return Ok(Retries { waiting, ..Retries::default() });
        }
        let groups = self.read(words(["XINFO", "GROUPS", stream.as_str()]), parse::groups).await?;
        let Some(its) = groups.into_iter().find(|its| its.name == group) else {
            return Ok(Retries { waiting, lag: length, ..Retries::default() });
        };
        let lag = match its.lag {
            Some(lag) => lag,
            None => self.count_after(&stream, its.last).await?,
        };
        let next = self.range(&stream, Some(its.last), StreamId::MAX, 1).await?;
        let next = (!next.is_empty()).then(|| next.id(0));
        let pending = if its.pending > 0 { self.oldest_pending(&stream, group).await? } else { None };
        let oldest = pending.into_iter().chain(next).min();
        Ok(Retries { waiting, pending: its.pending, lag, oldest })
    }
}
