//! A topic as an application holds it, and sending.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::client::{Client, Error};
use super::group::Group;
use super::inbox::{Receipt, Refused};
use super::message::{self, Completion};
use crate::op::{Op, Policy, Send, Stored};
use crate::sync::Arc;
use crate::topic::{BadName, Message, TopicSpec};

/// How many messages of one [`Topic::send_all`] are on their way at a time: enough to keep a broker busy between two
/// answers, few enough to leave room for others.
const WINDOW: usize = 256;

/// A topic: a work queue over the whole fleet. Made by [`Client::topic`]; cheap to clone, clones are the same.
///
/// ```
/// # use flota_core::driver::{Client, Error};
/// # use flota_core::topic::Message;
/// # async fn example(client: Client) -> Result<(), Error> {
/// let orders = client.topic("orders").partitions(8);
/// let stored = orders.send(Message::new("4 apples").key("customer-42").header("source", "shop")).await?;
/// println!("{} lies on broker {:?}", stored.id, stored.broker);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Topic {
    client: Client,
    name: Arc<str>,
    spec: Result<Arc<TopicSpec>, BadName>,
    policy: Policy,
    wait: Option<Duration>,
}

impl Client {
    /// A topic of this name, with as many partitions as others have given it (see [`Topic::partitions`]). A name that is
    /// not one is the error of the first use.
    #[must_use]
    pub fn topic(&self, name: &str) -> Topic {
        Topic {
            client: self.clone(),
            name: name.into(),
            spec: TopicSpec::following(name),
            policy: Policy::default(),
            wait: None,
        }
    }
}

impl Topic {
    /// States how many partitions it has on every broker, at least 1. Messages of one key go to one partition.
    ///
    /// The first service that states a number sets it; it can grow, and never shrinks. A service that states another
    /// number is refused ([`OpError::Partitions`](crate::op::OpError::Partitions)) when it sends; one that states none
    /// follows. Default: none, which means 1 if nobody states one.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.spec = TopicSpec::new(&self.name, partitions);
        self
    }

    /// What to do when a connection dies between a message and its answer. Default: send it again.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How long a message may wait for a broker before it fails as not sent. Default 30 s, or what the configuration
    /// says (`timing.send_init`).
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stores a message on one broker and says where, once the broker has answered.
    ///
    /// Waits while too much is under way already (`limits.backlog_ops`, `limits.backlog_bytes`). Dropped before that is
    /// over, nothing was sent; dropped later, the message takes its course.
    ///
    /// # Errors
    ///
    /// Why it is not known to be stored.
    pub async fn send(&self, message: impl Into<Message>) -> Result<Stored, Error> {
        self.client.send(self.request(message.into())?).await
    }

    /// Stores many messages, in order, and says of each, in order, what came of it.
    ///
    /// Up to 256 are on their way at a time: one task sends as fast as with many. Dropped, those on their way take their
    /// course and the rest is not sent.
    ///
    /// ```
    /// # use flota_core::driver::Client;
    /// # use flota_core::topic::Message;
    /// # async fn example(client: Client, lines: Vec<String>) {
    /// let results = client.topic("lines").send_all(lines.into_iter().map(Message::new)).await;
    /// let failed = results.iter().filter(|result| result.is_err()).count();
    /// # }
    /// ```
    pub async fn send_all<I>(&self, messages: I) -> Vec<Result<Stored, Error>>
    where
        I: IntoIterator,
        I::Item: Into<Message>,
    {
        let mut results = Vec::new();
        let mut under_way: VecDeque<Receipt<message::Message, Completion>> = VecDeque::with_capacity(WINDOW);
        for message in messages {
            let send = match self.request(message.into()) {
                Ok(send) => send,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            let bytes = send.message.len();
            let mut make = |ticket| message::Message::Submit { op: Op::Send(send), ticket };
            loop {
                if under_way.len() < WINDOW {
                    match self.client.inbox().try_submit(bytes, make) {
                        Ok(receipt) => break under_way.push_back(receipt),
                        Err(Refused::Full(unused) | Refused::Closed(unused)) => make = unused,
                    }
                }
                match under_way.pop_front() {
                    Some(receipt) => results.push(answer(receipt.await.ok())),
                    // It is others who use the credit up: stand in line with them.
                    None => break results.push(answer(self.client.inbox().submit(bytes, make).await.ok())),
                }
            }
        }
        for receipt in under_way {
            results.push(answer(receipt.await.ok()));
        }
        results
    }

    /// A group of consumers of this topic: each message goes to one member of every group.
    pub fn group(&self, name: &str) -> Group {
        Group::new(self.clone(), name)
    }

    fn request(&self, message: Message) -> Result<Send, Error> {
        let topic = self.spec()?;
        Ok(Send { topic, message, policy: self.policy, wait: self.wait })
    }

    pub(super) fn spec(&self) -> Result<Arc<TopicSpec>, Error> {
        self.spec.clone().map_err(Error::Name)
    }

    pub(super) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

fn answer(completion: Option<Completion>) -> Result<Stored, Error> {
    completion.map_or(Err(Error::Stopped), Completion::into_stored)
}
