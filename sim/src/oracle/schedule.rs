//! Scheduled messages (53): stored where they are sent, delivered when they are due and not before, moved once, never lost.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use flota_core::key::parse_partition;
use flota_core::script::Script;

use super::consumer::is_recovering;
use super::ledger::{field, is_scheduled};
use super::{Oracle, Scene, Verdict};
use crate::broker::{Change, msgpack};
use crate::plan::{Plan, Trouble};
use crate::seen::{Host, Item, Seen, What, Word};
use crate::world;

pub(crate) struct Scheduling {
    /// Each broker's clock less true time, in milliseconds.
    clocks: Vec<i64>,
    /// What was scheduled: by broker, bucket and message id. Kept when it is moved, because a broker may forget the move.
    put: BTreeMap<(u32, Bytes, Bytes), Put>,
    /// What the present script has moved, by broker.
    moved: BTreeMap<u32, Vec<Bytes>>,
}

/// A message that waits until it is due, or did.
#[derive(Clone, Copy, Debug)]
struct Put {
    /// True time, in microseconds.
    at: u64,
    /// The broker's clock then, less true time.
    clock_ms: i64,
    /// How long it has to wait from then on at least, in milliseconds.
    delay_ms: i64,
}

/// A process's clock may run so much faster than true time, in percent.
const DRIFT: u64 = 2;

impl Scheduling {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            clocks: plan.brokers.iter().map(|broker| broker.offset_ms).collect(),
            put: BTreeMap::new(),
            moved: BTreeMap::new(),
        }
    }
}

impl Oracle for Scheduling {
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
            (Host::Broker(broker), What::Executed { .. }) => drop(self.moved.remove(&broker)),
            (Host::Broker(broker), What::Changed(change)) if !is_recovering(scene.ledger, broker) => match &**change {
                Change::Added { key, fields, .. } => self.added(broker, key, fields, scene, verdict),
                Change::Field { key, field, value } if is_scheduled(key) => match value {
                    Some(packed) => self.put(broker, key, field, packed, scene),
                    None => self.taken_out(broker, key, field, scene, verdict),
                },
                _ => {}
            },
            _ => {}
        }
    }

    fn late(&mut self, scene: &Scene<'_>, verdict: &mut Verdict) {
        for ((broker, bucket), items) in scene.ledger.waiting.iter().filter(|((_, bucket), _)| is_scheduled(bucket)) {
            for id in items.keys() {
                let Some(put) = self.put.get(&(*broker, bucket.clone(), id.clone())) else { continue };
                let elapsed = self.elapsed_ms(*broker, put, scene.at);
                if elapsed > put.delay_ms {
                    verdict.fail(53, scene.at, Host::Broker(*broker), || {
                        let (due, bucket) = (put.delay_ms, String::from_utf8_lossy(bucket));
                        format!("a message in {bucket} was due after {due} ms; {elapsed} ms later nobody has moved it")
                    });
                }
            }
        }
    }
}

impl Scheduling {
    fn elapsed_ms(&self, broker: u32, since: &Put, at: u64) -> i64 {
        let clock = self.clocks.get(broker as usize).copied().unwrap_or(0);
        i64::try_from((at - since.at) / 1000).unwrap_or(i64::MAX) + clock - since.clock_ms
    }

    fn put(&mut self, broker: u32, bucket: &Bytes, id: &Bytes, packed: &Bytes, scene: &Scene<'_>) {
        let Some(item) = msgpack::texts(packed).and_then(|fields| world::item_in(&fields)) else { return };
        let accepted = scene.ledger.items.get(item.0 as usize).and_then(|state| state.accepted);
        let waited_us = accepted.map_or(0, |(at, _)| scene.at.saturating_sub(at)) * (100 + DRIFT) / 100;
        let waited = i64::try_from(waited_us / 1000).unwrap_or(i64::MAX);
        let delay_ms = delay_ms(item, scene).saturating_sub(waited).max(0);
        let clock_ms = self.clocks.get(broker as usize).copied().unwrap_or(0);
        self.put.insert((broker, bucket.clone(), id.clone()), Put { at: scene.at, clock_ms, delay_ms });
    }

    /// An entry of a partition: if it had to wait, it did.
    fn added(&mut self, broker: u32, key: &Bytes, fields: &[Bytes], scene: &Scene<'_>, verdict: &mut Verdict) {
        let host = Host::Broker(broker);
        let Some(item) = world::item_in(fields) else { return };
        if std::str::from_utf8(key).ok().and_then(parse_partition).is_none() || delay_ms(item, scene) == 0 {
            return;
        }
        // A retry that goes astray is another matter.
        if field(fields, b"attempt").is_some() {
            return;
        }
        if scene.ledger.hands.running(broker) != Some(Word::Script(Script::Move)) {
            return verdict.fail(53, scene.at, host, || {
                format!("{item} was stored at once; it has to wait for {} ms", delay_ms(item, scene))
            });
        }
        let Some(id) = field(fields, b"id") else { return };
        let waits = scene.ledger.waiting.iter().filter(|((of, bucket), _)| *of == broker && is_scheduled(bucket));
        let found = waits.filter(|(_, items)| items.contains_key(id)).map(|((_, bucket), _)| bucket).next();
        let again = self.moved.get(&broker).is_some_and(|moved| moved.contains(id));
        let put = found.and_then(|bucket| self.put.get(&(broker, bucket.clone(), id.clone())).copied());
        let Some(put) = put.filter(|_| !again) else {
            return verdict.fail(53, scene.at, host, || format!("{item} was moved to its partition, and did not wait"));
        };
        self.moved.entry(broker).or_default().push(id.clone());
        let elapsed = self.elapsed_ms(broker, &put, scene.at);
        // Sender, server and this oracle count whole milliseconds: each may leave out a part of one.
        if elapsed + 3 < put.delay_ms {
            return verdict.fail(53, scene.at, host, || {
                format!(
                    "{item} was moved after {elapsed} ms of the server's time; it was due after {} ms",
                    put.delay_ms
                )
            });
        }
        verdict.mark("scheduled message due and moved");
    }

    /// It leaves its bucket: into its partition, in the same step.
    fn taken_out(&self, broker: u32, bucket: &Bytes, id: &Bytes, scene: &Scene<'_>, verdict: &mut Verdict) {
        if !self.moved.get(&broker).is_some_and(|moved| moved.contains(id)) {
            verdict.fail(53, scene.at, Host::Broker(broker), || {
                let (id, bucket) = (String::from_utf8_lossy(id), String::from_utf8_lossy(bucket));
                format!("{id} was taken out of {bucket} and went nowhere: it is lost")
            });
        }
    }
}

fn delay_ms(item: Item, scene: &Scene<'_>) -> i64 {
    let work = scene.plan.work.get(item.0 as usize);
    work.and_then(|work| i64::try_from(work.delay_ms?).ok()).unwrap_or(0)
}
