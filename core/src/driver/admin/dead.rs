//! Dead letters: what no handler could handle. Looked at, sent back, or dropped.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;

use super::{Admin, Broker, PAGE, check, parse, words};
use crate::command::{Arg, By, Command, Eval};
use crate::config::Endpoint;
use crate::driver::client::Error;
use crate::key;
use crate::reply::{Entries, StreamId};
use crate::script::Script;
use crate::topic::is_name;

/// One message that is not delivered any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message id, by which it is replayed and dropped. An entry without one has its own entry id here.
    pub id: String,
    /// Its entry among the dead letters of that broker.
    pub entry: StreamId,
    /// The broker it lies on.
    pub broker: Endpoint,
    /// The partition it was in.
    pub partition: u32,
    /// The group that could not handle it.
    pub group: String,
    /// The body.
    pub body: Bytes,
    /// Why, in the words of its last handler.
    pub reason: String,
    /// How often its last entry was delivered to that group: a retry makes a new entry.
    pub deliveries: u32,
    /// How often the message was delivered to that group, earlier entries of it included; since its last replay.
    pub attempts: u32,
    /// When it was sent, in milliseconds since 1970 by the broker's clock.
    pub first_ms: u64,
    /// When it was given up, by the same clock.
    pub dead_ms: u64,
}

/// Which dead letters of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Letters {
    /// Every one there is when it begins.
    All,
    /// Those with these message ids, on whichever broker they lie.
    Ids(Vec<String>),
}

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Sent back to their groups.
    pub replayed: u64,
    /// Taken by somebody else meanwhile.
    pub gone: u64,
    /// Ids that no dead letter has.
    pub unknown: Vec<String>,
}

/// What came of dropping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Deleted.
    pub dropped: u64,
    /// Taken by somebody else meanwhile.
    pub gone: u64,
    /// Ids that no dead letter has.
    pub unknown: Vec<String>,
}

impl Admin {
    /// Every dead letter of a topic, broker by broker, oldest first.
    ///
    /// # Errors
    ///
    /// When the name is none, or a broker does not answer, or not what its answer should be.
    pub async fn dead_letters(&self, topic: &str) -> Result<Vec<DeadLetter>, Error> {
        check(topic)?;
        let mut found = Vec::new();
        for broker in self.brokers() {
            let mut walk = Walk::begin(&broker, topic).await?;
            while let Some(page) = walk.next(&broker).await? {
                found.extend((0..page.len()).map(|at| DeadLetter::read(&page, at, &broker.info.address)));
            }
        }
        Ok(found)
    }

    /// Sends dead letters back to the group that had given them up, and to no other, with a count of attempts that starts
    /// anew. Each is taken from the dead letters in the same step: of two replays at once, one
    /// brings it back. A message that several groups have given up is as many dead letters.
    ///
    /// # Errors
    ///
    /// As [`dead_letters`](Self::dead_letters). Those that were sent back before the error are.
    pub async fn replay(&self, topic: &str, letters: Letters) -> Result<Replayed, Error> {
        check(topic)?;
        let mut wanted = Wanted::new(letters);
        let mut result = Replayed::default();
        for broker in self.brokers() {
            let mut walk = Walk::begin(&broker, topic).await?;
            while let Some(page) = walk.next(&broker).await? {
                let mut by_target: BTreeMap<(u32, String), Vec<StreamId>> = BTreeMap::new();
                for at in wanted.of(&page) {
                    let target = (partition(&page, at), text(&page, at, b"dead-group"));
                    by_target.entry(target).or_default().push(page.id(at));
                }
                for ((partition, group), entries) in by_target {
                    for answer in broker.replay(topic, partition, &group, &entries).await? {
                        let back = StreamId::parse(answer.as_bytes()).is_some();
                        *(if back { &mut result.replayed } else { &mut result.gone }) += 1;
                    }
                }
            }
        }
        result.unknown = wanted.unknown();
        Ok(result)
    }

    /// Deletes dead letters for good.
    ///
    /// # Errors
    ///
    /// As [`dead_letters`](Self::dead_letters). Those that were deleted before the error are.
    pub async fn drop(&self, topic: &str, letters: Letters) -> Result<Dropped, Error> {
        check(topic)?;
        let mut wanted = Wanted::new(letters);
        let mut result = Dropped::default();
        for broker in self.brokers() {
            let mut walk = Walk::begin(&broker, topic).await?;
            while let Some(page) = walk.next(&broker).await? {
                let entries: Vec<StreamId> = wanted.of(&page).into_iter().map(|at| page.id(at)).collect();
                if entries.is_empty() {
                    continue;
                }
                let dropped = broker.delete(topic, &entries).await?;
                result.dropped = result.dropped.saturating_add(dropped);
                result.gone += (entries.len() as u64).saturating_sub(dropped);
            }
        }
        result.unknown = wanted.unknown();
        Ok(result)
    }
}

impl Broker {
    /// At most a page of entries.
    async fn replay(
        &self,
        topic: &str,
        partition: u32,
        group: &str,
        entries: &[StreamId],
    ) -> Result<Vec<String>, Error> {
        // What says of no group that it is its, or of none that can be, goes to the partition, for all of them.
        let group = if is_name(group) { group } else { "" };
        let target = match group {
            "" => key::partition(topic, partition),
            group => key::retry_stream(topic, partition, group),
        };
        let mut args = alloc::vec![Arg::Text(group.into()), Arg::from(partition)];
        args.extend(entries.iter().map(|id| Arg::Id(*id)));
        let keys = alloc::vec![key::dead_letters(topic), target];
        let eval = Eval { script: Script::Replay, keys, args };
        self.read(Command::Eval(eval.into(), By::Sha1), parse::replayed).await
    }

    async fn delete(&self, topic: &str, entries: &[StreamId]) -> Result<u64, Error> {
        let (stream, ids) = (key::dead_letters(topic), entries.iter().map(ToString::to_string));
        let ids: Vec<String> = ids.collect();
        let command = ["XDEL", stream.as_str()].into_iter().chain(ids.iter().map(String::as_str));
        self.read(words(command), parse::number).await
    }
}

/// A walk through the dead letters of one broker as they are at its begin: what is replayed meanwhile may die again,
/// and is not met twice.
struct Walk {
    stream: key::Key,
    after: Option<StreamId>,
    /// None once there is nothing more.
    until: Option<StreamId>,
}

impl Walk {
    async fn begin(broker: &Broker, topic: &str) -> Result<Self, Error> {
        let stream = key::dead_letters(topic);
        let newest = words(["XREVRANGE", stream.as_str(), "+", "-", "COUNT", "1"]);
        let newest = broker.read(newest, parse::range).await?;
        let until = (!newest.is_empty()).then(|| newest.id(0));
        Ok(Self { stream, after: None, until })
    }

    async fn next(&mut self, broker: &Broker) -> Result<Option<Entries>, Error> {
        let Some(until) = self.until else { return Ok(None) };
        let page = broker.range(&self.stream, self.after, until, PAGE).await?;
        if page.len() < PAGE {
            self.until = None;
        }
        if page.is_empty() {
            return Ok(None);
        }
        self.after = Some(page.id(page.len() - 1));
        Ok(Some(page))
    }
}

/// Which dead letters are meant, and which of the ids were met.
struct Wanted {
    ids: Option<BTreeSet<String>>,
    met: BTreeSet<String>,
}

impl Wanted {
    fn new(letters: Letters) -> Self {
        let ids = match letters {
            Letters::All => None,
            Letters::Ids(ids) => Some(ids.into_iter().collect()),
        };
        Self { ids, met: BTreeSet::new() }
    }

    /// The places in a page of those that are meant.
    fn of(&mut self, page: &Entries) -> Vec<usize> {
        let mut places = Vec::new();
        for at in 0..page.len() {
            if let Some(ids) = &self.ids {
                let id = id(page, at);
                if !ids.contains(&id) {
                    continue;
                }
                self.met.insert(id);
            }
            places.push(at);
        }
        places
    }

    fn unknown(self) -> Vec<String> {
        self.ids.into_iter().flatten().filter(|id| !self.met.contains(id)).collect()
    }
}

impl DeadLetter {
    pub(super) fn read(entries: &Entries, at: usize, broker: &Endpoint) -> Self {
        let origin = entries.field(at, b"dead-origin").and_then(StreamId::parse);
        Self {
            id: id(entries, at),
            entry: entries.id(at),
            broker: broker.clone(),
            partition: partition(entries, at),
            group: text(entries, at, b"dead-group"),
            body: entries.field_slice(at, b"payload").unwrap_or_default(),
            reason: text(entries, at, b"dead-reason"),
            deliveries: number(entries, at, b"dead-deliveries"),
            attempts: number(entries, at, b"dead-attempts"),
            first_ms: origin.map_or(entries.id(at).ms, |id| id.ms),
            dead_ms: entries.id(at).ms,
        }
    }
}

fn id(entries: &Entries, at: usize) -> String {
    entries.field(at, b"id").map_or_else(|| format!("{}", entries.id(at)), |id| String::from_utf8_lossy(id).into())
}

fn partition(entries: &Entries, at: usize) -> u32 {
    number(entries, at, b"dead-partition")
}

fn text(entries: &Entries, at: usize, name: &[u8]) -> String {
    String::from_utf8_lossy(entries.field(at, name).unwrap_or_default()).into()
}

/// Zero where it is missing or no number.
fn number(entries: &Entries, at: usize, name: &[u8]) -> u32 {
    let digits = entries.field(at, name).and_then(|digits| core::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
