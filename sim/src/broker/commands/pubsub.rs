//! Published messages.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::super::call::Reaction;
use super::super::client::Client;
use super::super::{Broker, ClientId, Out, Value};
use super::flag::{LOADING, NO_SCRIPT, SUBSCRIBED};
use super::keys::matches_glob;
use super::{Ask, Command};

const FLAGS: u32 = NO_SCRIPT | LOADING | SUBSCRIBED;

pub(super) const TABLE: &[Command] = &[
    Command::server("PUBLISH", 3, LOADING, publish),
    Command::server("SUBSCRIBE", -2, FLAGS, |broker, ask| Ok(subscribe(broker, ask, &CHANNELS))),
    Command::server("PSUBSCRIBE", -2, FLAGS, |broker, ask| Ok(subscribe(broker, ask, &PATTERNS))),
    Command::server("UNSUBSCRIBE", -1, FLAGS, |broker, ask| Ok(unsubscribe(broker, ask, &CHANNELS))),
    Command::server("PUNSUBSCRIBE", -1, FLAGS, |broker, ask| Ok(unsubscribe(broker, ask, &PATTERNS))),
];

/// Channels or patterns: the same, but for their names and where they are kept.
struct Kind {
    subscribe: &'static str,
    unsubscribe: &'static str,
    of_client: fn(&mut Client) -> &mut BTreeSet<Bytes>,
    of_broker: fn(&mut Broker) -> &mut BTreeMap<Bytes, BTreeSet<ClientId>>,
}

const CHANNELS: Kind = Kind {
    subscribe: "subscribe",
    unsubscribe: "unsubscribe",
    of_client: |client| &mut client.channels,
    of_broker: |broker| &mut broker.channels,
};

const PATTERNS: Kind = Kind {
    subscribe: "psubscribe",
    unsubscribe: "punsubscribe",
    of_client: |client| &mut client.patterns,
    of_broker: |broker| &mut broker.patterns,
};

fn publish(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let [_, channel, message] = ask.args else { return Ok(Value::Int(0)) };
    let mut sent = 0;
    let defers = broker.profile.at_least(7, 2);
    let mut send = |client: ClientId, parts: Vec<Value>| {
        // Since 7.2 nothing comes between a command and its reply.
        let queue = if defers && client == ask.client { &mut broker.after_reply } else { &mut broker.pending };
        queue.push(Out::Reply(client, Value::Push(parts)));
        sent += 1;
    };
    for client in broker.channels.get(channel).into_iter().flatten() {
        let parts = [Value::bulk("message"), Value::Bulk(channel.clone()), Value::Bulk(message.clone())];
        send(*client, parts.into());
    }
    for (pattern, clients) in &broker.patterns {
        if !matches_glob(pattern, channel) {
            continue;
        }
        for client in clients {
            let parts = [Value::bulk("pmessage"), Value::Bulk(pattern.clone())];
            let rest = [Value::Bulk(channel.clone()), Value::Bulk(message.clone())];
            send(*client, parts.into_iter().chain(rest).collect());
        }
    }
    Ok(Value::Int(sent))
}

/// Answers one message per channel; the last one is the command's reply.
fn subscribe(broker: &mut Broker, ask: &Ask<'_>, kind: &Kind) -> Value {
    let mut answers = Vec::new();
    for name in ask.args.iter().skip(1) {
        (kind.of_broker)(broker).entry(name.clone()).or_default().insert(ask.client);
        let Some(client) = broker.clients.get_mut(&ask.client) else { continue };
        (kind.of_client)(client).insert(name.clone());
        answers.push(answer(kind.subscribe, Some(name), client.subscriptions()));
    }
    last(broker, ask.client, answers)
}

fn unsubscribe(broker: &mut Broker, ask: &Ask<'_>, kind: &Kind) -> Value {
    let Some(client) = broker.clients.get_mut(&ask.client) else { return Value::Nil };
    let named = ask.args.get(1..).unwrap_or_default();
    let names: Vec<Bytes> =
        if named.is_empty() { (kind.of_client)(client).iter().cloned().collect() } else { named.to_vec() };
    let mut answers = Vec::new();
    if names.is_empty() {
        answers.push(answer(kind.unsubscribe, None, client.subscriptions()));
    }
    for name in names {
        let subscribers = (kind.of_broker)(broker);
        if let Some(clients) = subscribers.get_mut(&name) {
            clients.remove(&ask.client);
            if clients.is_empty() {
                subscribers.remove(&name);
            }
        }
        let Some(client) = broker.clients.get_mut(&ask.client) else { continue };
        (kind.of_client)(client).remove(&name);
        answers.push(answer(kind.unsubscribe, Some(&name), client.subscriptions()));
    }
    last(broker, ask.client, answers)
}

fn answer(what: &'static str, name: Option<&Bytes>, subscriptions: usize) -> Value {
    let name = name.map_or(Value::Nil, |name| Value::Bulk(name.clone()));
    let count = Value::Int(i64::try_from(subscriptions).unwrap_or(i64::MAX));
    Value::Push(vec![Value::bulk(what), name, count])
}

fn last(broker: &mut Broker, client: ClientId, mut answers: Vec<Value>) -> Value {
    let reply = answers.pop().unwrap_or(Value::Nil);
    broker.pending.extend(answers.into_iter().map(|answer| Out::Reply(client, answer)));
    reply
}

impl Broker {
    /// A connection subscribes to nothing any more, and is not told so.
    pub(in super::super) fn forget_subscriptions(&mut self, client: ClientId) {
        for subscribers in self.channels.values_mut().chain(self.patterns.values_mut()) {
            subscribers.remove(&client);
        }
        self.channels.retain(|_, subscribers| !subscribers.is_empty());
        self.patterns.retain(|_, subscribers| !subscribers.is_empty());
        if let Some(state) = self.clients.get_mut(&client) {
            state.channels.clear();
            state.patterns.clear();
        }
    }
}
