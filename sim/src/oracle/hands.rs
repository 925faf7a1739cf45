//! Who consumes, and what is in whose hand: kept from what services and brokers are seen to do.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::op::Settled;
use flota_core::reply::StreamId;
use flota_core::script::Script;

use crate::broker::Change;
use crate::plan::{Consume, Plan};
use crate::seen::{Delivered, Given, Hand, Host, Item, Line, Seen, What, Word};

/// One consumer: a subscription of one process, as its name on brokers says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The service.
    pub service: u32,
    /// The start of its process.
    pub life: u32,
    /// The number of the subscription in that process, from 1.
    pub number: u32,
}

/// An entry on a broker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The broker.
    pub broker: u32,
    /// The stream.
    pub key: Bytes,
    /// The entry.
    pub id: StreamId,
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct ConsumerState {
    /// Its place in `ServicePlan::consumes`.
    pub sub: u32,
    /// Of which topic, by number.
    pub topic: u8,
    /// In which group, by number.
    pub group: u8,
    /// How much it may hold.
    pub in_flight: u32,
    /// How much it holds.
    pub held: u32,
    /// The application asked it to end.
    pub unsubscribing: bool,
    /// It is ending, by itself or with its process.
    pub stopping: bool,
    /// When it ended.
    pub ended: Option<u64>,
}

/// A delivery.
#[derive(Clone, Debug)]
pub struct HandState {
    /// Whose.
    pub who: Who,
    /// Its group, by number.
    pub group: u8,
    /// Of which entry.
    pub spot: Spot,
    /// Which message it is.
    pub item: Option<Item>,
    /// The count it came with.
    pub deliveries: u32,
    /// The count of the message that it came with.
    pub attempt: u32,
    /// When it was delivered.
    pub at: u64,
    /// Its handler has started.
    pub started: bool,
    /// What the application said, and when.
    pub verdict: Option<(Given, u64)>,
    /// What the engine said became of that.
    pub answered: Option<Settled>,
    /// Its process died or its subscription ended before there was a verdict.
    pub over: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Hands {
    plan: Vec<Vec<Consume>>,
    consumers: BTreeMap<Who, ConsumerState>,
    /// Those that have not ended.
    open: BTreeSet<Who>,
    lives: Vec<u32>,
    hands: Vec<HandState>,
    by_hand: BTreeMap<(u32, Hand), usize>,
    by_spot: BTreeMap<Spot, Vec<usize>>,
    /// Those without a verdict.
    left: BTreeMap<Who, BTreeSet<usize>>,
    /// What each broker executes.
    running: Vec<Option<(Line, Word)>>,
    /// When an entry came to be a consumer's: read or claimed, not renewed.
    taken: BTreeMap<(Spot, Who), u64>,
}

impl Who {
    /// The consumer of that name; none for the names that stand for nobody.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(name).ok()?;
        let mut parts = text.strip_prefix('s')?.split('.');
        let service = parts.next()?.parse().ok()?;
        let incarnation = u64::from_str_radix(parts.next()?, 16).ok()?;
        let number = parts.next()?.parse().ok()?;
        Some(Self { service, life: incarnation as u32, number })
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "subscription {} of service {}'s process {}", self.number, self.service, self.life)
    }
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {} of {} on broker {}", self.id, String::from_utf8_lossy(&self.key), self.broker)
    }
}

impl HandState {
    /// The application has it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.verdict.is_none() && !self.over
    }

    /// Whether its handler was given this verdict.
    #[must_use]
    pub fn says(&self, given: Given) -> bool {
        self.verdict.is_some_and(|(verdict, _)| verdict == given)
    }
}

/// The number of a group of the plan; what follows a dot does not belong to it.
#[must_use]
pub(crate) fn group_number(name: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix('g')?;
    text.split('.').next()?.parse().ok()
}

impl Hands {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.services.iter().map(|service| service.consumes.clone()).collect(),
            consumers: BTreeMap::new(),
            open: BTreeSet::new(),
            lives: vec![0; plan.services.len()],
            hands: Vec::new(),
            by_hand: BTreeMap::new(),
            by_spot: BTreeMap::new(),
            left: BTreeMap::new(),
            running: vec![None; plan.brokers.len()],
            taken: BTreeMap::new(),
        }
    }

    /// A consumer, ended or not.
    #[must_use]
    pub fn consumer(&self, who: Who) -> Option<&ConsumerState> {
        self.consumers.get(&who)
    }

    /// All consumers, ended ones included.
    pub fn consumers(&self) -> impl Iterator<Item = (Who, &ConsumerState)> {
        self.consumers.iter().map(|(who, state)| (*who, state))
    }

    /// A delivery.
    #[must_use]
    pub fn hand(&self, service: u32, hand: Hand) -> Option<&HandState> {
        self.hands.get(*self.by_hand.get(&(service, hand))?)
    }

    /// All deliveries of an entry, in the order of their times.
    pub fn at(&self, spot: &Spot) -> impl DoubleEndedIterator<Item = &HandState> {
        self.by_spot.get(spot).into_iter().flatten().filter_map(|at| self.hands.get(*at))
    }

    /// All deliveries to a consumer that it gave no verdict on.
    pub fn left(&self, who: Who) -> impl Iterator<Item = &HandState> {
        self.left.get(&who).into_iter().flatten().filter_map(|at| self.hands.get(*at))
    }

    /// All deliveries.
    pub fn iter(&self) -> impl Iterator<Item = &HandState> {
        self.hands.iter()
    }

    /// What a broker executes at the moment.
    #[must_use]
    pub fn running(&self, broker: u32) -> Option<Word> {
        (*self.running.get(broker as usize)?).map(|(_, word)| word)
    }

    /// For which connection it executes that.
    #[must_use]
    pub fn running_for(&self, broker: u32) -> Option<Line> {
        (*self.running.get(broker as usize)?).map(|(line, _)| line)
    }

    /// When an entry came to be a consumer's.
    #[must_use]
    pub fn taken(&self, spot: &Spot, who: Who) -> Option<u64> {
        self.taken.get(&(spot.clone(), who)).copied()
    }

    /// The subscription that a service's present process means by a place in its plan: the one that ends last.
    #[must_use]
    pub fn newest(&self, service: u32, sub: u32) -> Option<Who> {
        self.of_life(service).rfind(|(_, state)| state.sub == sub).map(|(who, _)| who)
    }

    /// Consumers that have not ended.
    pub fn open(&self) -> impl Iterator<Item = (Who, &ConsumerState)> {
        self.open.iter().filter_map(|who| self.consumers.get(who).map(|state| (*who, state)))
    }

    /// Subscriptions of a service's present process that have not ended.
    #[must_use]
    pub fn subscriptions(&self, service: u32) -> usize {
        self.open_of_life(service).count()
    }

    fn open_of_life(&self, service: u32) -> impl Iterator<Item = Who> {
        let life = self.lives.get(service as usize).copied().unwrap_or(0);
        let range = Who { service, life, number: 0 }..=Who { service, life, number: u32::MAX };
        self.open.range(range).copied()
    }

    fn of_life(&self, service: u32) -> impl DoubleEndedIterator<Item = (Who, &ConsumerState)> {
        let life = self.lives.get(service as usize).copied().unwrap_or(0);
        let range = Who { service, life, number: 0 }..=Who { service, life, number: u32::MAX };
        self.consumers.range(range).map(|(who, state)| (*who, state))
    }

    // ---- what is seen ----

    pub(crate) fn see(&mut self, seen: &Seen) {
        match (seen.host, &seen.what) {
            (Host::Service(service), what) => self.see_service(service, seen.at, what),
            (Host::Broker(broker), What::Executed { line, command, .. }) => {
                if let Some(running) = self.running.get_mut(broker as usize) {
                    *running = Some((*line, *command));
                }
            }
            (Host::Broker(broker), What::Changed(change)) => self.see_change(broker, seen.at, change),
            _ => {}
        }
    }

    fn see_change(&mut self, broker: u32, at: u64, change: &Change) {
        let Change::Pending { key, id, consumer, from, .. } = change else { return };
        let Some(who) = Who::named(consumer) else { return };
        let claims = self.running(broker) == Some(Word::Script(Script::Claim));
        if claims || from.as_ref() != Some(consumer) {
            self.taken.insert((Spot { broker, key: key.clone(), id: *id }, who), at);
        }
    }

    fn see_service(&mut self, service: u32, at: u64, what: &What) {
        match what {
            What::Born(life) => {
                if let Some(known) = self.lives.get_mut(service as usize) {
                    *known = *life;
                }
            }
            What::Subscribed(sub) => self.subscribe(service, *sub),
            What::Unsubscribing(sub) => {
                let who = self.newest(service, *sub);
                if let Some(state) = who.and_then(|who| self.consumers.get_mut(&who)) {
                    (state.unsubscribing, state.stopping) = (true, true);
                }
            }
            What::Stopping { .. } => {
                let all: Vec<Who> = self.of_life(service).map(|(who, _)| who).collect();
                for who in all {
                    self.consumers.entry(who).and_modify(|state| state.stopping = true);
                }
            }
            What::Unsubscribed(sub) => {
                let mine = |who: &Who| self.consumers.get(who).is_some_and(|state| state.sub == *sub);
                let who = self.open_of_life(service).find(mine);
                if let Some(who) = who {
                    self.end(who, at);
                }
            }
            What::Died(_) | What::Stopped => {
                let all: Vec<Who> = self.open_of_life(service).collect();
                for who in all {
                    self.end(who, at);
                }
            }
            What::Delivered(delivered) => self.deliver(service, at, delivered),
            What::Started(hand) => {
                if let Some(state) = self.hand_mut(service, *hand) {
                    state.started = true;
                }
            }
            What::Settled { hand, verdict, live: true } => self.settle(service, at, *hand, *verdict),
            What::Answered { hand, result } => {
                if let Some(state) = self.hand_mut(service, *hand) {
                    state.answered = Some(result.clone());
                }
            }
            _ => {}
        }
    }

    fn subscribe(&mut self, service: u32, sub: u32) {
        let life = self.lives.get(service as usize).copied().unwrap_or(0);
        let number = self.of_life(service).next_back().map_or(0, |(who, _)| who.number) + 1;
        let consume = self.plan.get(service as usize).and_then(|consumes| consumes.get(sub as usize));
        let Some(consume) = consume else { return };
        let state = ConsumerState {
            sub,
            topic: consume.topic,
            group: consume.group,
            in_flight: consume.in_flight,
            held: 0,
            unsubscribing: false,
            stopping: false,
            ended: None,
        };
        self.consumers.insert(Who { service, life, number }, state);
        self.open.insert(Who { service, life, number });
    }

    fn end(&mut self, who: Who, at: u64) {
        self.open.remove(&who);
        if let Some(state) = self.consumers.get_mut(&who) {
            state.ended = Some(at);
            state.held = 0;
        }
        for at in self.left.get(&who).into_iter().flatten() {
            if let Some(hand) = self.hands.get_mut(*at) {
                hand.over = true;
            }
        }
    }

    fn deliver(&mut self, service: u32, at: u64, delivered: &Delivered) {
        // One that is ending delivers nothing, so it is the newest.
        let Some(who) = self.newest(service, delivered.sub) else { return };
        let Some(consumer) = self.consumers.get_mut(&who) else { return };
        consumer.held += 1;
        let (topic, number) = (Plan::topic(consumer.topic), delivered.partition);
        let key = if delivered.retry {
            flota_core::key::retry_stream(&topic, number, &Plan::group(consumer.group))
        } else {
            flota_core::key::partition(&topic, number)
        };
        let key = Bytes::copy_from_slice(key.as_str().as_bytes());
        let spot = Spot { broker: delivered.broker.unwrap_or(u32::MAX), key, id: delivered.entry };
        let number = self.hands.len();
        self.by_hand.insert((service, delivered.hand), number);
        self.by_spot.entry(spot.clone()).or_default().push(number);
        self.left.entry(who).or_default().insert(number);
        self.hands.push(HandState {
            who,
            group: consumer.group,
            spot,
            item: delivered.item,
            deliveries: delivered.deliveries,
            attempt: delivered.attempt,
            at,
            started: false,
            verdict: None,
            answered: None,
            over: false,
        });
    }

    fn settle(&mut self, service: u32, at: u64, hand: Hand, verdict: Given) {
        let Some(number) = self.by_hand.get(&(service, hand)).copied() else { return };
        let Some(state) = self.hands.get_mut(number) else { return };
        let (held, who) = (state.is_held(), state.who);
        state.verdict = Some((verdict, at));
        if let Some(left) = self.left.get_mut(&who) {
            left.remove(&number);
        }
        if held && let Some(consumer) = self.consumers.get_mut(&who) {
            consumer.held = consumer.held.saturating_sub(1);
        }
    }

    fn hand_mut(&mut self, service: u32, hand: Hand) -> Option<&mut HandState> {
        self.hands.get_mut(*self.by_hand.get(&(service, hand))?)
    }
}
