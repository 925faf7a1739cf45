//! The kernel: true time, one queue of events, and what everybody in the world shares.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;

use super::app::{self, Application};
use super::net::Net;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::seen::{Host, Item, Line, Seen, What};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A service's process starts.
    ServiceStart(u32),
    /// A service sends the next of its messages.
    Work(u32),
    /// Something its application does; of which life.
    App(u32, u32, AppEvent),
    /// A datagram reaches a service's socket.
    Datagram { service: u32, from: SocketAddr, payload: Bytes },
    /// A datagram goes to every service.
    Broadcast { from: SocketAddr, payload: Bytes, broker: Option<u32> },
    /// A dial comes to an end.
    Dial { line: Line, tries: u32 },
    /// Bytes have reached the broker, up to this place in the stream.
    ToBroker { line: Line, upto: u64 },
    /// Bytes have reached the service.
    ToService { line: Line, upto: u64 },
    /// The service's end is closed, and the broker learns of it.
    BrokerLearns(Line),
    /// The broker's end is closed, and the service learns of it.
    ServiceLearns { line: Line, reset: bool },
    /// A service is woken for its deadline, if that is still this.
    Wake { service: u32, life: u32, at: u64 },
    /// A service ends a turn that took in several inputs; in full fidelity, it polls what was woken.
    EndTurn { service: u32, life: u32 },
    /// A broker's process starts.
    BrokerStart(u32),
    /// A broker executes what waits.
    BrokerStep { broker: u32, life: u32 },
    /// A broker looks after its blocked connections.
    BrokerTick { broker: u32, life: u32 },
    /// An announcer speaks; which of its voices.
    Announce { broker: u32, voice: u32 },
    /// A fault of the plan begins.
    FaultBegins(u32),
    /// It ends.
    FaultEnds(u32),
    /// Strangers send a few datagrams.
    Flood(u32),
    /// A time of the world's own: the next part, or a look whether everything has come right.
    Look,
}

/// What an application does.
#[derive(Clone, Debug)]
pub(crate) enum AppEvent {
    /// A handler starts on a delivery.
    Start(u64),
    /// It does what it does, in applications that are not the plan's, and ends so many microseconds later.
    Act(u64, u64),
    /// It ends.
    Finish(u64),
    /// A sender takes a message back.
    Cancel(u32),
    /// A consumer is ended and started again.
    Resubscribe(u32),
    /// *Full only.* What a task waits for is over.
    Timer(u64),
}

/// Everything shared: time, queue, randomness, network, and what was seen.
pub(crate) struct Kernel {
    /// True time, in microseconds.
    pub(crate) at: u64,
    pub(crate) plan: Plan,
    pub(crate) net: Net,
    pub(crate) seen: Vec<Seen>,
    /// In place of what the plan says of bodies and fates.
    pub(crate) application: Option<Rc<RefCell<dyn Application>>>,
    /// Events handled so far.
    pub(crate) events: u64,
    /// Of the network's moments.
    pub(crate) network: Rng,
    /// Of hosts' and handlers' durations.
    pub(crate) hosts: Rng,
    order: Rng,
    queue: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

struct Entry {
    at: u64,
    /// Breaks ties, drawn in shuffled runs.
    tie: u64,
    sequence: u64,
    event: Event,
}

impl Entry {
    fn key(&self) -> (u64, u64, u64) {
        (self.at, self.tie, self.sequence)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Kernel {
    pub(crate) fn new(plan: Plan) -> Self {
        let seed = plan.seed;
        Self {
            at: 0,
            net: Net::default(),
            seen: Vec::new(),
            application: None,
            events: 0,
            network: Rng::new(seed, "network"),
            hosts: Rng::new(seed, "hosts"),
            order: Rng::new(seed, "order"),
            queue: BinaryHeap::new(),
            sequence: 0,
            plan,
        }
    }

    /// One that stands where this one is while it is lent.
    pub(crate) fn stand_in(&self) -> Self {
        let plan = Plan {
            brokers: Vec::new(),
            services: Vec::new(),
            work: Vec::new(),
            faults: Vec::new(),
            scenario: String::new(),
            knobs: self.plan.knobs.clone(),
            network: self.plan.network.clone(),
            ..self.plan
        };
        Self::new(plan)
    }

    /// The body of a message, as it is stored.
    pub(crate) fn body(&self, item: Item) -> Option<Bytes> {
        if let Some(application) = &self.application {
            return application.borrow().body(item);
        }
        self.plan.work.get(item.0 as usize).map(|work| app::body(item, work))
    }

    /// Lets something happen so much later, in microseconds.
    pub(crate) fn after(&mut self, us: u64, event: Event) {
        self.at(self.at.saturating_add(us), event);
    }

    /// Lets something happen at a true time, at once when that has passed.
    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        let tie = if self.plan.shuffled { self.order.next() } else { 0 };
        self.queue.push(Reverse(Entry { at: at.max(self.at), tie, sequence: self.sequence, event }));
    }

    /// The next event; time jumps to it.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse(entry) = self.queue.pop()?;
        self.at = entry.at;
        self.events += 1;
        Some(entry.event)
    }

    pub(crate) fn see(&mut self, host: Host, what: What) {
        self.seen.push(Seen { at: self.at, host, what });
    }
}
