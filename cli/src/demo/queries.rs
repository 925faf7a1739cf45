//! What the demo asks brokers, through its own client.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use flota_core::command::Command;
use flota_core::id::BrokerId;
use flota_core::key;
use flota_core::reply::{Reply, View};
use flota_tokio::op::OpError;
use flota_tokio::topic::MessageId;
use flota_tokio::{Client, Error};

use super::{GROUP, TOPIC};

/// A broker that does not answer a small question within this time is asked again later.
const PATIENCE: Duration = Duration::from_secs(1);
/// More messages than a demo leaves anywhere.
const ALL: &str = "1000000";

/// Messages delivered and not acknowledged on one broker, by consumer; `None` when it cannot be asked.
pub(crate) async fn pending(client: &Client, broker: BrokerId) -> Option<BTreeMap<String, u64>> {
    let stream = key::partition(TOPIC, 0);
    let reply = match ask(client, broker, &["XPENDING", stream.as_str(), GROUP]).await? {
        Ok(reply) => reply,
        // No message has been there, and no consumer.
        Err(Error::Op(OpError::Refused(_))) => return Some(BTreeMap::new()),
        Err(_) => return None,
    };
    // Count, lowest, highest, and a list of consumers, which is nil when there are none.
    let consumers = reply.view().items()?.nth(3)?;
    let Some(consumers) = consumers.items() else { return Some(BTreeMap::new()) };
    consumers
        .map(|consumer| {
            let mut parts = consumer.items()?;
            let name = parts.next()?.as_str()?.to_string();
            Some((name, u64::try_from(parts.next()?.as_int()?).ok()?))
        })
        .collect()
}

/// How many messages the consumers of one worker hold on all brokers that can be asked.
pub(crate) async fn held_count(client: &Client, worker: &str) -> u64 {
    let mut held = 0;
    for info in client.fleet().iter().filter(|info| info.ready) {
        let by_consumer = pending(client, info.id).await.unwrap_or_default();
        held += by_consumer.iter().filter(|(name, _)| is_of(name, worker)).map(|(_, count)| count).sum::<u64>();
    }
    held
}

/// The messages that the consumers of one worker hold on all brokers that can be asked.
pub(crate) async fn held(client: &Client, worker: &str) -> Vec<MessageId> {
    let stream = key::partition(TOPIC, 0);
    let mut ids = Vec::new();
    for info in client.fleet().iter().filter(|info| info.ready) {
        let by_consumer = pending(client, info.id).await.unwrap_or_default();
        for consumer in by_consumer.keys().filter(|name| is_of(name, worker)) {
            let words = ["XPENDING", stream.as_str(), GROUP, "-", "+", ALL, consumer.as_str()];
            let Some(Ok(list)) = ask(client, info.id, &words).await else { continue };
            for entry in list.view().items().into_iter().flatten() {
                let entry = entry.items().and_then(|mut parts| parts.next()).and_then(View::as_str);
                let Some(entry) = entry else { continue };
                if let Some(Ok(found)) = ask(client, info.id, &["XRANGE", stream.as_str(), entry, entry]).await {
                    ids.extend(message_ids(&found));
                }
            }
        }
    }
    ids
}

/// The dead letters on one broker; `None` when it cannot be asked.
pub(crate) async fn dead(client: &Client, broker: BrokerId) -> Option<Vec<MessageId>> {
    let stream = key::dead_letters(TOPIC);
    let reply = ask(client, broker, &["XRANGE", stream.as_str(), "-", "+", "COUNT", ALL]).await?.ok()?;
    Some(message_ids(&reply))
}

async fn ask(client: &Client, broker: BrokerId, words: &[&str]) -> Option<Result<Reply, Error>> {
    let words = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    tokio::time::timeout(PATIENCE, client.call(broker, Command::Raw(words))).await.ok()
}

/// The field `id` of each entry of an `XRANGE`.
fn message_ids(reply: &Reply) -> Vec<MessageId> {
    let entries = reply.view().items().into_iter().flatten();
    entries.filter_map(|entry| entry.items()?.nth(1)?.value_of(b"id")?.as_str().and_then(MessageId::parse)).collect()
}

/// A consumer is named for its service first.
fn is_of(consumer: &str, worker: &str) -> bool {
    consumer.strip_prefix(worker).is_some_and(|rest| rest.starts_with('.'))
}
