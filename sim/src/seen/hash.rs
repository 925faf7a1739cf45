//! The canonical form of an observation, for the hash.

use flota_core::config::Endpoint;
use flota_core::id::Id;
use flota_core::output::BrokerChange;
use flota_core::reply::StreamId;

use super::{Hand, Host, Seen, TraceHash, What, Word};
use crate::broker::{Change, Why};

impl TraceHash {
    /// Takes an observation in: its time, its host, its kind, its ids and a hash of what it carries.
    pub fn seen(&mut self, seen: &Seen) {
        self.word(seen.at);
        self.word(match seen.host {
            Host::World => 0,
            Host::Service(n) => 1 << 32 | u64::from(n),
            Host::Broker(n) => 2 << 32 | u64::from(n),
        });
        self.what(&seen.what);
    }

    fn what(&mut self, what: &What) {
        match what {
            What::Phase(phase) => self.words(&[1, *phase as u64]),
            What::FaultBegins(n) => self.words(&[2, u64::from(*n)]),
            What::FaultEnds(n) => self.words(&[3, u64::from(*n)]),
            What::Born(life) => self.words(&[4, u64::from(*life)]),
            What::Died(life) => self.words(&[5, u64::from(*life)]),
            What::Stopping { grace_us } => self.words(&[6, *grace_us]),
            What::Stopped => self.word(7),
            What::Paused => self.word(8),
            What::Resumed => self.word(9),
            What::Submitted { item, accepted } => self.words(&[10, u64::from(item.0), u64::from(accepted.is_ok())]),
            What::Cancelled { item, live } => self.words(&[11, u64::from(item.0), u64::from(*live)]),
            What::Done { item, result } => {
                self.words(&[12, u64::from(item.0)]);
                match result {
                    Ok(place) => {
                        self.words(&[u64::from(place.broker.unwrap_or(u32::MAX)), u64::from(place.partition)]);
                        self.id(place.entry);
                    }
                    Err(error) => self.bytes(error.to_string().as_bytes()),
                }
            }
            What::Subscribed(sub) => self.words(&[13, u64::from(*sub)]),
            What::Unsubscribing(sub) => self.words(&[14, u64::from(*sub)]),
            What::Unsubscribed(sub) => self.words(&[15, u64::from(*sub)]),
            What::Delivered(given) => {
                self.word(16);
                self.hand(given.hand);
                self.words(&[u64::from(given.sub), given.item.map_or(u64::MAX, |item| u64::from(item.0))]);
                self.words(&[u64::from(given.intact), u64::from(given.broker.unwrap_or(u32::MAX))]);
                self.words(&[u64::from(given.partition), u64::from(given.deliveries)]);
                self.words(&[u64::from(given.retry), u64::from(given.attempt)]);
                self.id(given.entry);
            }
            What::Started(hand) => {
                self.word(17);
                self.hand(*hand);
            }
            What::Settled { hand, verdict, live } => {
                self.words(&[18, *verdict as u64, u64::from(*live)]);
                self.hand(*hand);
            }
            What::Answered { hand, result } => {
                self.word(19);
                self.hand(*hand);
                self.bytes(format!("{result:?}").as_bytes());
            }
            What::Overdue(hand) => {
                self.word(20);
                self.hand(*hand);
            }
            What::Heard { datagram, .. } => {
                self.word(21);
                self.bytes(datagram);
            }
            What::Fleet { id, address, change } => {
                self.words(&[22, u64::from(id.index()), u64::from(id.generation())]);
                self.address(address);
                self.bytes(change_name(change).as_bytes());
            }
            What::Warned(warning) => {
                self.word(23);
                self.bytes(format!("{warning:?}").as_bytes());
            }
            What::Dialled { conn, line, to } => {
                self.words(&[24, u64::from(conn.index()), u64::from(conn.generation()), u64::from(line.0)]);
                self.address(to);
            }
            What::Connected(line) => self.words(&[25, u64::from(line.0)]),
            What::Wrote { line, command, bytes } => {
                self.words(&[26, u64::from(line.0), *bytes]);
                self.command(*command);
            }
            What::Sent(line, n) => self.words(&[27, u64::from(line.0), *n]),
            What::Replied(line) => self.words(&[28, u64::from(line.0)]),
            What::Closed { line, why } => self.words(&[29, u64::from(line.0), why.reason as u64]),
            What::Stuck(line) => self.words(&[45, u64::from(line.0)]),
            What::HungUp(line) => self.words(&[30, u64::from(line.0)]),
            What::Turn { now, inputs, time_passed, outputs, wait } => {
                self.words(&[31, now.mono.0, now.wall.0 as u64, u64::from(*inputs), u64::from(*time_passed)]);
                self.words(&[u64::from(*outputs), wait.map_or(u64::MAX, |at| at.0)]);
            }
            What::Early { wait, after, outputs } => {
                let [wait, after] = [wait, after].map(|at| at.map_or(u64::MAX, |at| at.0));
                self.words(&[32, wait, after, u64::from(*outputs)]);
            }
            What::Audited(result) => self.words(&[33, u64::from(result.is_ok())]),
            What::Rerun { inputs, differs } => self.words(&[34, *inputs, u64::from(differs.is_some())]),
            What::Up(life) => self.words(&[35, u64::from(*life)]),
            What::Down => self.word(36),
            What::Forgot(n) => self.words(&[37, *n]),
            What::Executed { line, command, refused } => {
                self.words(&[38, u64::from(line.0)]);
                self.command(*command);
                self.bytes(refused.as_deref().unwrap_or_default().as_bytes());
            }
            What::Changed(change) => {
                self.word(39);
                self.change(change);
            }
            What::Accepted(line) => self.words(&[40, u64::from(line.0)]),
            What::Dropped(line) => self.words(&[41, u64::from(line.0)]),
            What::Stray => self.word(60),
            What::Looked { before, after } => self.words(&[61, *before, *after]),
            What::Gap(command) => {
                self.word(42);
                self.bytes(command.as_bytes());
            }
        }
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.word(*word));
    }

    fn hand(&mut self, hand: Hand) {
        self.words(&[u64::from(hand.life), hand.number]);
    }

    fn id(&mut self, id: StreamId) {
        self.words(&[id.ms, id.seq]);
    }

    fn address(&mut self, address: &Endpoint) {
        match address {
            Endpoint::Ip(std::net::SocketAddr::V4(v4)) => {
                self.words(&[u64::from(u32::from(*v4.ip())), u64::from(v4.port())]);
            }
            Endpoint::Ip(_) | Endpoint::Name(..) => self.bytes(address.to_string().as_bytes()),
        }
    }

    fn command(&mut self, command: Word) {
        match command {
            Word::Add(item) => self.words(&[1, item.map_or(u64::MAX, |item| u64::from(item.0))]),
            Word::Ack(n) => self.words(&[2, u64::from(n)]),
            Word::ReadGroup => self.word(3),
            Word::Read => self.word(4),
            Word::Script(script) => self.words(&[5, script as u64]),
            Word::Auth => self.word(6),
            Word::Other(name) => {
                self.word(7);
                self.bytes(name.as_bytes());
            }
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Added { key, id, fields } => {
                self.word(1);
                self.bytes(key);
                self.id(*id);
                fields.iter().for_each(|field| self.bytes(field));
            }
            Change::Removed { key, id, why } => {
                self.words(&[2, u64::from(*why == Why::Trimmed)]);
                self.bytes(key);
                self.id(*id);
            }
            Change::Pending { key, group, id, consumer, from, idle_ms, deliveries } => {
                self.words(&[3, *idle_ms as u64, *deliveries]);
                [key, group, consumer].into_iter().for_each(|bytes| self.bytes(bytes));
                self.bytes(from.as_deref().unwrap_or_default());
                self.id(*id);
            }
            Change::Acked { key, group, id, consumer } => {
                self.word(4);
                [key, group, consumer].into_iter().for_each(|bytes| self.bytes(bytes));
                self.id(*id);
            }
            Change::Dropped { key, group, id, consumer } => {
                self.word(8);
                [key, group, consumer].into_iter().for_each(|bytes| self.bytes(bytes));
                self.id(*id);
            }
            Change::Group { key, group, at } => {
                self.word(5);
                [key, group].into_iter().for_each(|bytes| self.bytes(bytes));
                self.id(at.unwrap_or(StreamId::MAX));
            }
            Change::ConsumerGone { key, group, consumer, pending } => {
                self.words(&[6, *pending]);
                [key, group, consumer].into_iter().for_each(|bytes| self.bytes(bytes));
            }
            Change::StreamGone { key } => {
                self.word(7);
                self.bytes(key);
            }
            Change::Field { key, field, value } => {
                self.words(&[9, u64::from(value.is_some())]);
                [key, field].into_iter().for_each(|bytes| self.bytes(bytes));
                self.bytes(value.as_deref().unwrap_or_default());
            }
            Change::HashGone { key } => {
                self.word(10);
                self.bytes(key);
            }
        }
    }
}

fn change_name(change: &BrokerChange) -> &'static str {
    match change {
        BrokerChange::Announced => "announced",
        BrokerChange::Ready => "ready",
        BrokerChange::Unready(_) => "unready",
        BrokerChange::Withdrawn => "withdrawn",
        BrokerChange::Expired { .. } => "expired",
        BrokerChange::Restarted => "restarted",
        BrokerChange::Forgotten => "forgotten",
    }
}
