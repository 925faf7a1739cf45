//! Retries and dead letters: how often (27) and when (28) a message that was not handled comes back, and that it comes
//! back to nobody else (52).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use flota_core::key::{parse_partition, parse_retry_stream};
use flota_core::reply::StreamId;
use flota_core::script::{FREE, Script};

use super::consumer::{is_dead_letters, is_recovering};
use super::hands::{HandState, Spot, Who, group_number};
use super::ledger::{field, number};
use super::{Oracle, Scene, Verdict};
use crate::broker::{Change, msgpack};
use crate::plan::{Fidelity, Knobs, Plan, Trouble};
use crate::seen::{Given, Hand, Host, Seen, What, Word};

pub(crate) struct Retrying {
    /// Each broker's clock less true time, in milliseconds.
    clocks: Vec<i64>,
    /// What was put away for a retry: by broker, bucket, item and attempt. Kept when it is moved, because a broker may
    /// forget the move.
    put_away: BTreeMap<(u32, Bytes, Bytes, u32), PutAway>,
    /// What the present script has moved to retry streams, by broker.
    moved: BTreeMap<u32, Vec<Vec<Bytes>>>,
    /// Handlers that asked for a retry of a message, as it was in the beginning, in a group.
    asked: BTreeMap<(Spot, u8), BTreeSet<(Spot, u32)>>,
    /// Dead letters of an entry and group.
    dead: BTreeMap<(Spot, Bytes), u32>,
    /// Entries whose holder fell silent while they were the only suspect in its hands, or on its way there.
    alone: BTreeSet<(Spot, u8)>,
    /// Entries that a claim took which its consumer had given up before it ran: with its connection, or its life.
    ghosts: BTreeSet<(Spot, u8)>,
    /// Entries whose handler had started and was not done when they were given back.
    unfinished: BTreeSet<(Spot, u8)>,
}

/// A message that waits for its retry, or did.
#[derive(Clone, Debug)]
struct PutAway {
    /// True time, in microseconds.
    at: u64,
    /// The broker's clock then.
    clock_ms: i64,
    delay_ms: u64,
    fields: Vec<Bytes>,
}

/// Delivered this often without a verdict, an entry is suspected to kill who handles it. Counts of one's own claims are
/// not raised, so such a consumer may suspect it one earlier.
const SUSPECT_FROM: u32 = 3;
/// With fewer deliveries nothing becomes a suspect before it becomes a dead letter.
const SUSPICION_NEEDS: u32 = 3;

impl Retrying {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            clocks: plan.brokers.iter().map(|broker| broker.offset_ms).collect(),
            put_away: BTreeMap::new(),
            moved: BTreeMap::new(),
            asked: BTreeMap::new(),
            dead: BTreeMap::new(),
            alone: BTreeSet::new(),
            ghosts: BTreeSet::new(),
            unfinished: BTreeSet::new(),
        }
    }
}

impl Oracle for Retrying {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        match (seen.host, &seen.what) {
            (Host::World, What::FaultBegins(fault)) => {
                if let Some(Trouble::BrokerStep { broker, by_ms }) =
                    scene.plan.faults.get(*fault as usize).map(|fault| &fault.what)
                    && let Some(clock) = self.clocks.get_mut(*broker as usize)
                {
                    *clock += by_ms;
                }
            }
            (Host::Service(service), What::Settled { hand, verdict: Given::Retry, live: true }) => {
                self.asked_for_retry(service, *hand, scene, verdict);
            }
            (Host::Service(service), What::Delivered(delivered)) => {
                let most = scene.plan.knobs.max_deliveries;
                if delivered.attempt > most {
                    let (entry, n) = (delivered.entry, delivered.attempt);
                    verdict.fail(27, scene.at, Host::Service(service), || {
                        format!("entry {entry} was delivered for the {n}th time; after {most} it must be a dead letter")
                    });
                }
            }
            (Host::Broker(broker), What::Executed { .. }) => drop(self.moved.remove(&broker)),
            (Host::Broker(broker), What::Forgot(_)) => self.forget(|spot| spot.broker == broker),
            (Host::Broker(broker), What::Changed(change)) if !is_recovering(scene.ledger, broker) => {
                self.see_change(broker, change, scene, verdict);
            }
            _ => {}
        }
    }

    fn late(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        let busy: BTreeSet<u8> =
            scene.ledger.hands.iter().filter(|hand| hand.is_held()).map(|hand| hand.group).collect();
        // Where handlers run on, a retry may wait for them.
        for ((broker, bucket), items) in &scene.ledger.waiting {
            let group = bucket_of(bucket).and_then(|(_, _, group)| group_number(group.as_bytes()));
            if group.is_none_or(|group| busy.contains(&group)) {
                continue;
            }
            for (item, waiting) in items {
                let attempt = number(&waiting.fields, b"attempt").unwrap_or(0);
                let Some(put) = self.put_away.get(&(*broker, bucket.clone(), item.clone(), attempt)) else { continue };
                let elapsed = self.elapsed_ms(*broker, put, scene.at);
                if elapsed > i64::try_from(put.delay_ms).unwrap_or(i64::MAX) {
                    verdict.fail(28, scene.at, Host::Broker(*broker), || {
                        let (due, bucket, item) =
                            (put.delay_ms, String::from_utf8_lossy(bucket), String::from_utf8_lossy(item));
                        format!("{item} of {bucket} was due after {due} ms; {elapsed} ms later nobody has moved it")
                    });
                }
            }
        }
    }
}

impl Retrying {
    fn forget(&mut self, gone: impl Fn(&Spot) -> bool) {
        self.asked.retain(|(spot, _), _| !gone(spot));
        self.dead.retain(|(spot, _), _| !gone(spot));
    }

    fn elapsed_ms(&self, broker: u32, since: &PutAway, at: u64) -> i64 {
        let clock = self.clocks.get(broker as usize).copied().unwrap_or(0);
        i64::try_from((at - since.at) / 1000).unwrap_or(i64::MAX) + clock - since.clock_ms
    }

    fn asked_for_retry(&mut self, service: u32, hand: Hand, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(hand) = scene.ledger.hands.hand(service, hand) else { return };
        let asked = self.asked.entry((scene.ledger.origin(&hand.spot), hand.group)).or_default();
        // Handlers of one entry overlap when it is claimed from one that runs on: those are no attempts of their own.
        asked.insert((hand.spot.clone(), hand.deliveries));
        let most = scene.plan.knobs.max_deliveries;
        if asked.len() as u32 > most {
            let tried = asked.len();
            verdict.fail(27, scene.at, Host::Service(service), || {
                format!("{} was tried {tried} times; it may be tried {most} times", hand.spot)
            });
        }
    }

    fn see_change(&mut self, broker: u32, change: &Change, scene: &Scene<'_>, verdict: &mut Verdict) {
        let key_name = |key: &Bytes| String::from_utf8_lossy(key).into_owned();
        match change {
            Change::Added { key, fields, .. } if is_dead_letters(key) => {
                self.buried(broker, key, fields, scene, verdict);
            }
            Change::Added { key, fields, .. } => self.added(broker, key, fields, scene, verdict),
            Change::Field { key, field, value } => {
                if bucket_of(key).is_none() {
                    return;
                }
                match value {
                    Some(packed) => self.put_away(broker, key, field, packed, scene, verdict),
                    None => self.taken_out(broker, key, field, scene, verdict),
                }
            }
            Change::Pending { key, group, id, consumer, from, deliveries, .. } => {
                let owner = std::str::from_utf8(key).ok().and_then(parse_retry_stream).map(|(.., group)| group);
                if owner.is_some_and(|owner| owner.as_bytes() != group.as_ref()) {
                    verdict.fail(52, scene.at, Host::Broker(broker), || {
                        let group = String::from_utf8_lossy(group);
                        format!("group {group} was given entry {id} of {}, which is another's", key_name(key))
                    });
                }
                let (Some(group), Some(from)) = (group_number(group), from) else { return };
                let spot = Spot { broker, key: key.clone(), id: *id };
                if consumer.as_ref() == FREE.as_bytes() {
                    check_release(&spot, from, scene, verdict);
                    self.given_back(spot, group, from, scene);
                } else if from != consumer {
                    self.taken_over(spot.clone(), group, from, deliveries.saturating_sub(1), scene);
                    if Self::is_given_up(broker, consumer, scene) {
                        self.ghosts.insert((spot, group));
                    }
                }
            }
            Change::Group { key, .. } | Change::StreamGone { key } => {
                self.forget(|spot| spot.broker == broker && spot.key == *key);
            }
            _ => {}
        }
    }

    /// A message waits for its retry from now on: that follows from a verdict, and is due when the attempt says.
    fn put_away(
        &mut self,
        broker: u32,
        bucket: &Bytes,
        item: &Bytes,
        packed: &Bytes,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        let host = Host::Broker(broker);
        let Some(spot) = source(broker, bucket, item) else { return };
        let fields = msgpack::texts(packed).unwrap_or_default();
        let attempt = number(&fields, b"attempt").unwrap_or(0);
        let asked: Vec<&HandState> = scene.ledger.hands.at(&spot).filter(|hand| hand.says(Given::Retry)).collect();
        if asked.is_empty() {
            return verdict.fail(28, scene.at, host, || format!("{spot} waits for a retry that no handler asked for"));
        }
        let before = scene.ledger.streams.get(&(broker, spot.key.clone()));
        let before = before.and_then(|stream| stream.entries.get(&spot.id)).map_or(0, |entry| entry.attempt - 1);
        let ours = asked.into_iter().find(|hand| before + hand.deliveries + 1 == attempt);
        let Some(hand) = ours else {
            return verdict.fail(27, scene.at, host, || {
                format!("the retry of {spot} will be attempt {attempt}; no delivery of it was the one before that")
            });
        };
        let delay_ms = delay_ms(&scene.plan.knobs, before + hand.deliveries);
        let clock_ms = self.clocks.get(broker as usize).copied().unwrap_or(0);
        let put = PutAway { at: scene.at, clock_ms, delay_ms, fields };
        self.put_away.insert((broker, bucket.clone(), item.clone(), attempt), put);
    }

    /// It leaves its bucket: into the retry stream, in the same step.
    fn taken_out(&self, broker: u32, bucket: &Bytes, item: &Bytes, scene: &Scene<'_>, verdict: &mut Verdict) {
        // The ledger has taken it out already; what was put away says what it was.
        let moved = self.moved.get(&broker).into_iter().flatten();
        let is_it = |fields: &&Vec<Bytes>| {
            let attempt = number(fields, b"attempt").unwrap_or(0);
            let put = self.put_away.get(&(broker, bucket.clone(), item.clone(), attempt));
            put.is_some_and(|put| put.fields == **fields)
        };
        if moved.filter(is_it).count() == 0 {
            verdict.fail(28, scene.at, Host::Broker(broker), || {
                let (item, bucket) = (String::from_utf8_lossy(item), String::from_utf8_lossy(bucket));
                format!("{item} was taken out of {bucket} and went nowhere: its retry is lost")
            });
        }
    }

    /// An entry of a partition or of a retry stream: its retry begins, not before it is due, and for its group only.
    fn added(&mut self, broker: u32, key: &Bytes, fields: &[Bytes], scene: &Scene<'_>, verdict: &mut Verdict) {
        if scene.ledger.hands.running(broker) != Some(Word::Script(Script::Move)) {
            return;
        }
        let host = Host::Broker(broker);
        let name = std::str::from_utf8(key).unwrap_or_default();
        let Some(attempt) = number(fields, b"attempt") else { return };
        self.moved.entry(broker).or_default().push(fields.to_vec());
        if parse_partition(name).is_some() {
            return verdict.fail(52, scene.at, host, || {
                format!("attempt {attempt} of a message was moved to {name}, where every group sees it")
            });
        }
        let waits = scene.ledger.waiting.iter().filter(|((of, bucket), _)| *of == broker && belongs(bucket, name));
        let mut items =
            waits.flat_map(|((_, bucket), items)| items.iter().map(move |(item, state)| (bucket, item, state)));
        let found = items.find(|(.., state)| state.fields == fields);
        let put = found
            .and_then(|(bucket, item, _)| self.put_away.get(&(broker, bucket.clone(), item.clone(), attempt)).cloned());
        let Some(put) = put else {
            return verdict.fail(28, scene.at, host, || {
                format!("attempt {attempt} of a message came to {name}, and nobody had put it away")
            });
        };
        let elapsed = self.elapsed_ms(broker, &put, scene.at);
        let delay = i64::try_from(put.delay_ms).unwrap_or(i64::MAX);
        // The server counts whole milliseconds.
        if elapsed + 1 < delay {
            return verdict.fail(28, scene.at, host, || {
                format!("attempt {attempt} of a message came to {name} after {elapsed} ms of the server's time; it was due after {delay} ms")
            });
        }
        verdict.mark("retry due and delivered again");
    }

    /// Whether a broker executes for a consumer what that has given up: it cannot hold back from anything for its sake.
    fn is_given_up(broker: u32, consumer: &Bytes, scene: &Scene<'_>) -> bool {
        let consumer = Who::named(consumer).and_then(|who| scene.ledger.hands.consumer(who));
        consumer.is_some_and(|consumer| consumer.ended.is_some()) || scene.runs_for_nobody(broker)
    }

    /// Its holder fell silent, to whom it had been delivered so often.
    ///
    /// What counts is whom it was given to, not whether it arrived, or whether an acknowledgement was on its way back: a
    /// broker cannot tell a consumer that died of an entry from one that died, or was cut off, before or after.
    fn taken_over(&mut self, spot: Spot, group: u8, from: &Bytes, deliveries: u64, scene: &Scene<'_>) {
        let Some(who) = Who::named(from).filter(|_| deliveries >= u64::from(SUSPECT_FROM)) else { return };
        let hands = &scene.ledger.hands;
        let is_suspect = |hand: &&HandState| hand.deliveries >= SUSPECT_FROM;
        let mut others = hands.left(who).filter(|hand| hand.spot != spot).filter(is_suspect);
        // One that is done is in nobody's hand, but its acknowledgement was on the way.
        let done = hands.at(&spot).any(|hand| hand.who == who && hand.says(Given::Done));
        if done || others.next().is_none() {
            self.alone.insert((spot, group));
        }
    }

    /// It is given back: its handler had its chance if it had started.
    fn given_back(&mut self, spot: Spot, group: u8, from: &Bytes, scene: &Scene<'_>) {
        let last = Who::named(from).and_then(|who| scene.ledger.hands.at(&spot).rfind(|hand| hand.who == who));
        if last.is_some_and(|hand| hand.started) {
            self.unfinished.insert((spot, group));
        }
    }

    /// A dead letter: once for each entry and group, and only for what deserves it.
    fn buried(&mut self, broker: u32, key: &Bytes, fields: &[Bytes], scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(Word::Script(script @ (Script::Claim | Script::Dead))) = scene.ledger.hands.running(broker) else {
            return;
        };
        let Some(spot) = origin(broker, key, fields) else { return };
        let Some(group) = field(fields, b"dead-group") else { return };
        let host = Host::Broker(broker);
        let copies = self.dead.entry((spot.clone(), group.clone())).or_default();
        *copies += 1;
        if *copies > 1 {
            let group = String::from_utf8_lossy(group);
            verdict.fail(27, scene.at, host, || {
                format!("{spot} became a dead letter of group {group} for the {copies}th time; once is enough")
            });
        }
        let Some(group) = group_number(group) else { return };
        let attempts = number(fields, b"dead-attempts");
        let most = scene.plan.knobs.max_deliveries;
        if script != Script::Claim {
            return;
        }
        if attempts.is_none_or(|n| n < most) {
            verdict.fail(27, scene.at, host, || {
                format!("{spot} became a dead letter after {attempts:?} deliveries; it may have {most}")
            });
        }
        let failed =
            |hand: &HandState| hand.group == group && hand.verdict.is_some_and(|(verdict, _)| verdict != Given::Done);
        // The script takes it from its last holder and buries it in one step.
        let name = Plan::group(group);
        let sources = sources(&spot, &name, scene);
        for source in &sources {
            let last = scene.ledger.streams.get(&(broker, source.key.clone())).and_then(|stream| {
                let pending = stream.groups.get(name.as_bytes())?.pending.get(&source.id)?;
                Some((pending.consumer.clone(), pending.deliveries))
            });
            if let Some((last, deliveries)) = last {
                self.taken_over(source.clone(), group, &last, deliveries, scene);
            }
        }
        let excuses = [&self.alone, &self.unfinished, &self.ghosts];
        let is_excused = |source: &Spot| excuses.iter().any(|excuse| excuse.contains(&(source.clone(), group)));
        let excused = most < SUSPICION_NEEDS || sources.iter().any(is_excused);
        if !excused && !sources.iter().any(|source| scene.ledger.hands.at(source).any(failed)) {
            verdict.fail(27, scene.at, host, || {
                format!("{spot} became a dead letter of group g{group}; none of its handlers failed, and it was never alone in the hands of one that fell silent, or on its way there")
            });
        }
    }
}

/// Every entry that a message was in a group: in the partition, and as a retry.
fn sources(origin: &Spot, group: &str, scene: &Scene<'_>) -> Vec<Spot> {
    let mut sources = vec![origin.clone()];
    let Some((topic, number)) = std::str::from_utf8(&origin.key).ok().and_then(parse_partition) else { return sources };
    let key = flota_core::key::retry_stream(topic, number, group);
    let key = Bytes::copy_from_slice(key.as_str().as_bytes());
    let broker = origin.broker;
    let stream = scene.ledger.streams.get(&(broker, key.clone()));
    let entries = stream.into_iter().flat_map(|stream| &stream.entries);
    let again = entries.filter(|(_, entry)| entry.origin == Some(origin.id));
    sources.extend(again.map(|(id, _)| Spot { broker, key: key.clone(), id: *id }));
    sources
}

/// Of which topic, partition and group a bucket of retries is.
fn bucket_of(bucket: &Bytes) -> Option<(&str, u32, &str)> {
    let name = std::str::from_utf8(bucket).ok()?.strip_prefix("streaming:mq:retry:")?.strip_suffix(":body")?;
    let mut parts = name.split(':');
    let (topic, group, number) = (parts.next()?, parts.next()?, parts.next()?.parse().ok()?);
    Some((topic, number, group))
}

/// Whether what waits in a bucket goes to that stream.
fn belongs(bucket: &Bytes, stream: &str) -> bool {
    bucket_of(bucket).is_some_and(|of| parse_retry_stream(stream) == Some(of))
}

/// The entry that an item in a bucket was.
fn source(broker: u32, bucket: &Bytes, item: &Bytes) -> Option<Spot> {
    let (topic, number, group) = bucket_of(bucket)?;
    let (tag, id) = std::str::from_utf8(item).ok()?.split_once(':')?;
    let key = match tag {
        "0" => flota_core::key::partition(topic, number),
        _ => flota_core::key::retry_stream(topic, number, group),
    };
    Some(Spot { broker, key: Bytes::copy_from_slice(key.as_str().as_bytes()), id: StreamId::parse(id.as_bytes())? })
}

/// What was asked to be retried must wait: it is not given back to be taken at once.
fn check_release(spot: &Spot, from: &Bytes, scene: &Scene<'_>, verdict: &mut Verdict) {
    let Some(who) = Who::named(from) else { return };
    if scene.plan.fidelity == Fidelity::Full && scene.ledger.hands.consumer(who).is_some_and(|state| state.stopping) {
        // Its grace may have ended before the verdict: a driver does not say.
        return;
    }
    let taken = scene.ledger.hands.taken(spot, who);
    let Some(last) = scene.ledger.hands.at(spot).rfind(|hand| hand.who == who) else { return };
    if let Some((Given::Retry, at)) = last.verdict
        && taken.is_none_or(|taken| taken <= at)
    {
        verdict.fail(28, scene.at, Host::Broker(spot.broker), || {
            format!("{who} gave {spot} back although its handler asked for a retry, which has to wait")
        });
    }
}

/// How long a retry waits after so many attempts: twice as long each time, up to the cap.
fn delay_ms(knobs: &Knobs, attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1).min(31);
    knobs.retry_base_ms.saturating_mul(1 << doublings).min(knobs.retry_cap_ms)
}

/// Which entry a dead letter was.
fn origin(broker: u32, key: &Bytes, fields: &[Bytes]) -> Option<Spot> {
    let topic = std::str::from_utf8(key).ok()?.strip_prefix("stream:topic:")?.strip_suffix(":dlq")?;
    let partition = std::str::from_utf8(field(fields, b"dead-partition")?).ok()?.parse().ok()?;
    let key = flota_core::key::partition(topic, partition);
    let id = StreamId::parse(field(fields, b"dead-origin")?)?;
    Some(Spot { broker, key: Bytes::copy_from_slice(key.as_str().as_bytes()), id })
}
