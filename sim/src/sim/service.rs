//! A service as its author writes it: consumers, each with a handler.

use std::borrow::Cow;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

use crate::seen::Given;
use crate::world::app::Deed;

/// A handler of one process.
pub(super) type Handler<S> = Box<dyn FnMut(&mut S, &Job) -> Verdict>;

/// A process to be: what it consumes.
pub struct Service<S> {
    pub(super) consumers: Vec<Consumer<S>>,
}

pub(super) struct Consumer<S> {
    pub(super) topic: Rc<str>,
    pub(super) group: Rc<str>,
    pub(super) in_flight: u32,
    pub(super) takes: Duration,
    /// The handler of a process that starts.
    pub(super) fresh: Rc<dyn Fn() -> Handler<S>>,
}

impl<S: 'static> Service<S> {
    /// Handles the messages of a topic for a group: each group has every message once, one of its services handles it.
    ///
    /// What the closure owns is the memory of its process: each start of the process has a fresh clone of it. It must
    /// depend on nothing but that, the state and the message; with clocks or randomness of its own a seed says nothing.
    #[must_use]
    pub fn consume<H>(mut self, topic: &str, group: &str, handler: H) -> Self
    where
        H: FnMut(&mut S, &Job) -> Verdict + Clone + 'static,
    {
        let fresh = Rc::new(move || Box::new(handler.clone()) as Handler<S>);
        let takes = Duration::from_millis(20);
        self.consumers.push(Consumer { topic: topic.into(), group: group.into(), in_flight: 16, takes, fresh });
        self
    }

    /// How many messages the last consumer has in hand at most: 16 unless it is said.
    #[must_use]
    pub fn in_flight(mut self, messages: u32) -> Self {
        if let Some(last) = self.consumers.last_mut() {
            last.in_flight = messages.max(1);
        }
        self
    }

    /// How long the last consumer's handler takes on average: 20 ms unless it is said.
    #[must_use]
    pub fn takes(mut self, takes: Duration) -> Self {
        if let Some(last) = self.consumers.last_mut() {
            last.takes = takes;
        }
        self
    }
}

impl<S> Default for Service<S> {
    fn default() -> Self {
        Self { consumers: Vec::new() }
    }
}

impl<S> Clone for Service<S> {
    fn clone(&self) -> Self {
        Self { consumers: self.consumers.clone() }
    }
}

impl<S> Clone for Consumer<S> {
    fn clone(&self) -> Self {
        Self {
            topic: Rc::clone(&self.topic),
            group: Rc::clone(&self.group),
            in_flight: self.in_flight,
            takes: self.takes,
            fresh: Rc::clone(&self.fresh),
        }
    }
}

/// A message in a handler's hand.
#[derive(Clone, Debug)]
pub struct Job {
    pub(super) body: Bytes,
    pub(super) topic: Rc<str>,
    pub(super) deliveries: u32,
    pub(super) at: Duration,
    pub(super) service: u32,
    pub(super) life: u32,
}

impl Job {
    /// What was sent.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// What was sent, as text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Where to.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// How often it was delivered, this time included. More than once does not mean that it was handled, and once does
    /// not mean that it was not: a sender in doubt stores a message twice.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.deliveries
    }

    /// The simulated time since the run began.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.at
    }

    /// The service that handles it.
    #[must_use]
    pub fn service(&self) -> u32 {
        self.service
    }

    /// Which start of that service's process this is; the first is 1.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.life
    }
}

/// What a handler says of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Handled: it is acknowledged.
    Done,
    /// Again, later.
    Retry,
    /// Never: it becomes a dead letter.
    Reject,
    /// None: the process dies here. It is started again a moment later.
    Crash,
    /// None: the handler does not end. Its time runs out, and the message is tried again.
    Hang,
}

impl Verdict {
    pub(super) fn deed(self) -> Deed {
        match self {
            Self::Done => Deed::Settle(Given::Done, 1),
            Self::Retry => Deed::Settle(Given::Retry, 1),
            Self::Reject => Deed::Settle(Given::Reject, 1),
            Self::Crash => Deed::Crash,
            Self::Hang => Deed::Hang,
        }
    }
}
