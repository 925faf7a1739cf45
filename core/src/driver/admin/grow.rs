//! Letting a topic grow.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Admin, Broker, check, words};
use crate::command::{By, Command, Eval};
use crate::config::Endpoint;
use crate::driver::client::Error;
use crate::key::{self, Key};
use crate::op::PartitionsDiffer;
use crate::script::Script;
use crate::topic::MAX_PARTITIONS;
use crate::topic::partitions::{Count, ENSURE_STREAMS};

/// What came of growing a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// How many partitions it had on the broker that had most.
    pub from: u32,
    /// The brokers that were told, with how many partitions each has now.
    pub brokers: Vec<(Endpoint, u32)>,
}

impl Admin {
    /// Gives a topic more partitions, on every broker that is ready; processes that use it carry the number to the others.
    /// Services notice within ten seconds and a claim period. Most keys have another partition from then on: what was sent
    /// before and after is not in order.
    ///
    /// Asked for as many as there are, it makes sure of the brokers that lag behind.
    ///
    /// # Errors
    ///
    /// [`Error::Shrinks`] when a broker has more, and as [`topics`](Self::topics).
    pub async fn grow(&self, topic: &str, partitions: u32) -> Result<Grown, Error> {
        check(topic)?;
        let partitions = partitions.clamp(1, MAX_PARTITIONS);
        let brokers = self.brokers();
        let mut known = Count::default();
        for broker in &brokers {
            let count = broker.count(topic).await?;
            if count.partitions > partitions {
                let (broker, theirs) = (broker.info.address.clone(), count.partitions);
                let differ = PartitionsDiffer { topic: topic.into(), broker, ours: partitions, theirs };
                return Err(Error::Shrinks(Box::new(differ)));
            }
            known.learn(count);
        }
        let grows = partitions > known.partitions;
        let count = Count { partitions, version: known.version.saturating_add(u64::from(grows)) };
        let mut result = Grown { from: known.partitions, brokers: Vec::new() };
        for broker in &brokers {
            let has = broker.set_count(topic, count).await?;
            result.brokers.push((broker.info.address.clone(), has.partitions));
        }
        Ok(result)
    }
}

impl Broker {
    /// What it knows of a topic's number of partitions.
    async fn count(&self, topic: &str) -> Result<Count, Error> {
        let meta = key::meta(topic);
        self.read(words(["HMGET", meta.as_str(), "partitions", "version"]), Count::read).await
    }

    /// Tells it, and gives every group of the topic its place in the new streams before anything is stored there.
    async fn set_count(&self, topic: &str, count: Count) -> Result<Count, Error> {
        let streams: Vec<Key> = (0..count.partitions).map(|i| key::partition(topic, i)).collect();
        let mut has = Count::default();
        for chunk in streams.chunks(ENSURE_STREAMS) {
            let keys = [key::meta(topic), key::groups(topic)].into_iter().chain(chunk.iter().cloned()).collect();
            let eval = Eval { script: Script::Ensure, keys, args: count.args() };
            has = self.read(Command::Eval(eval.into(), By::Sha1), Count::answered).await?;
        }
        Ok(has)
    }
}
