//! Taking over what is pending under others: `XCLAIM`, `XAUTOCLAIM`.

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::super::Value;
use super::super::super::call::{Call, Reaction, SYNTAX, Stop, parse_int};
use super::super::super::db::Change;
use super::super::super::stream::Stream;
use super::super::is;
use super::{Journal, Recipient, entry, group_of, id_value, interval_start, strict_id, words};

/// The options of both commands.
#[derive(Default)]
struct Options {
    idle_min_ms: i64,
    /// Since when a claimed entry is idle; now if not given.
    delivered_ms: Option<i64>,
    deliveries: Option<u64>,
    force: bool,
    only_ids: bool,
    last: Option<StreamId>,
}

/// What became of an entry that was to be claimed.
enum Outcome {
    Claimed(Value),
    /// It is not in the stream any more, and now pending no more.
    Dropped,
    Left,
}

pub(super) fn claim(call: &mut Call<'_>) -> Reaction {
    let (key, name, consumer) = (call.word(1)?, call.word(2)?, call.word(3)?);
    group_of(call.db, call.at, key, name)?;
    let idle_min_ms = claim_idle(call, "XCLAIM")?;
    let ids: Vec<StreamId> = call.args.iter().skip(5).map_while(|id| strict_id(id, 0).ok()).collect();
    let options = claim_options(call, 5 + ids.len(), idle_min_ms)?;
    let mut work = Claiming::begin(call, key, name, consumer, options)?;
    let mut claimed = Vec::new();
    for id in ids {
        match work.attempt(call, id)? {
            Outcome::Claimed(value) => claimed.push(value),
            Outcome::Dropped | Outcome::Left => {}
        }
    }
    work.finish(call);
    Ok(Value::Array(claimed))
}

pub(super) fn auto_claim(call: &mut Call<'_>) -> Reaction {
    let (key, name, consumer) = (call.word(1)?, call.word(2)?, call.word(3)?);
    let idle_min_ms = claim_idle(call, "XAUTOCLAIM")?;
    let start = interval_start(call.word(5)?)?;
    let (mut count, only_ids) = auto_claim_options(call)?;
    let stream = group_of(call.db, call.at, key, name)?;
    // It looks at ten times as many entries as it may claim.
    let mut attempts = count.saturating_mul(10);
    let Some(group) = stream.groups.get(name) else { return Ok(Value::NilArray) };
    let ids: Vec<StreamId> =
        group.pending().range(start..).map(|(id, _)| *id).take(attempts.saturating_add(1)).collect();
    let mut work = Claiming::begin(call, key, name, consumer, Options { idle_min_ms, only_ids, ..Options::default() })?;
    let (mut claimed, mut gone) = (Vec::new(), Vec::new());
    let mut rest = ids.into_iter();
    while attempts > 0 && count > 0 {
        let Some(id) = rest.next() else { break };
        attempts -= 1;
        match work.attempt(call, id)? {
            Outcome::Claimed(value) => claimed.push(value),
            Outcome::Dropped => gone.push(id_value(id)),
            Outcome::Left => continue,
        }
        count -= 1;
    }
    work.finish(call);
    let cursor = id_value(rest.next().unwrap_or(StreamId::MIN));
    let mut reply = vec![cursor, Value::Array(claimed)];
    if call.profile.at_least(7, 0) {
        reply.push(Value::Array(gone));
    }
    Ok(Value::Array(reply))
}

/// One claiming command at work.
struct Claiming<'a> {
    to: Recipient<'a>,
    options: Options,
    journal: Journal,
    /// What changed: the log names these, and no idle time, because reads of the history are not logged.
    touched: Vec<StreamId>,
    created: bool,
    moved: bool,
}

impl<'a> Claiming<'a> {
    fn begin(
        call: &mut Call<'_>,
        key: &'a Bytes,
        name: &'a Bytes,
        consumer: &'a Bytes,
        options: Options,
    ) -> Result<Self, Stop> {
        let journal = Journal::new(call.db);
        let to = Recipient { key, group: name, consumer, now_ms: call.at.ms() };
        let mut work = Self { to, options, journal, touched: Vec::new(), created: false, moved: false };
        let eager = call.profile.at_least(7, 2);
        let stream = group_of(call.db, call.at, key, name)?;
        if let Some(group) = stream.groups.get_mut(name) {
            if let Some(last) = work.options.last.filter(|last| *last > group.last) {
                group.last = last;
                work.moved = true;
                work.journal.note(|| Change::Group { key: key.clone(), group: name.clone(), at: Some(last) });
            }
            if eager {
                work.created = group.see(consumer, work.to.now_ms);
            }
        }
        Ok(work)
    }

    /// Claims an entry if it can be.
    fn attempt(&mut self, call: &mut Call<'_>, id: StreamId) -> Result<Outcome, Stop> {
        let drops = call.profile.at_least(7, 0);
        let stream = group_of(call.db, call.at, self.to.key, self.to.group)?;
        let outcome = self.attempt_in(stream, id, drops);
        if !matches!(outcome, Outcome::Left) {
            self.touched.push(id);
        }
        Ok(outcome)
    }

    fn attempt_in(&mut self, stream: &mut Stream, id: StreamId, drops: bool) -> Outcome {
        let fields = stream.entry(id).cloned();
        let Some(group) = stream.groups.get_mut(self.to.group) else { return Outcome::Left };
        if fields.is_none() && drops {
            let Some(dropped) = group.release(id) else { return Outcome::Left };
            let Recipient { key, group, .. } = self.to;
            self.journal.note(|| Change::Dropped {
                key: key.clone(),
                group: group.clone(),
                id,
                consumer: dropped.consumer,
            });
            return Outcome::Dropped;
        }
        let deliveries = match group.pending().get(&id) {
            Some(pending) => {
                let idle_ms = self.to.now_ms.saturating_sub(pending.delivered_ms);
                if self.options.idle_min_ms > 0 && idle_ms < self.options.idle_min_ms {
                    return Outcome::Left;
                }
                pending.deliveries
            }
            // Made anew it counts as delivered once, and then once more.
            None if self.options.force && fields.is_some() => 1,
            None => return Outcome::Left,
        };
        let more = u64::from(!self.options.only_ids);
        let deliveries = self.options.deliveries.unwrap_or_else(|| deliveries.saturating_add(more));
        let now_ms = self.to.now_ms;
        let delivered_ms = self.options.delivered_ms.filter(|ms| (0..=now_ms).contains(ms)).unwrap_or(now_ms);
        self.created |= group.see(self.to.consumer, now_ms);
        group.activate(self.to.consumer, now_ms);
        self.to.take(group, id, delivered_ms, deliveries, &mut self.journal);
        Outcome::Claimed(match fields {
            _ if self.options.only_ids => id_value(id),
            Some(fields) => entry(id, &fields),
            None => Value::Nil,
        })
    }

    fn finish(self, call: &mut Call<'_>) {
        let dirty = self.touched.len() as u64 + u64::from(self.created) + u64::from(self.moved);
        call.db.dirty += dirty;
        if dirty > 0 {
            call.log_as = Some(self.logged());
        }
        self.journal.report(call.db);
    }

    fn logged(&self) -> Vec<Bytes> {
        let Recipient { key, group, consumer, now_ms } = self.to;
        if self.touched.is_empty() && !self.moved {
            return words(&[b"XGROUP", b"CREATECONSUMER", key, group, consumer]);
        }
        let mut log = words(&[b"XCLAIM", key, group, consumer, b"0"]);
        if self.touched.is_empty() {
            // A position alone: of an entry that cannot be there.
            log.push(Bytes::from_static(b"0-0"));
        }
        log.extend(self.touched.iter().map(|id| Bytes::from(id.to_string())));
        let delivered_ms = self.options.delivered_ms.unwrap_or(now_ms);
        log.extend(words(&[b"TIME", delivered_ms.to_string().as_bytes()]));
        if let Some(deliveries) = self.options.deliveries {
            log.extend(words(&[b"RETRYCOUNT", deliveries.to_string().as_bytes()]));
        }
        for (given, option) in [(self.options.force, b"FORCE".as_slice()), (self.options.only_ids, b"JUSTID")] {
            log.extend(given.then(|| Bytes::copy_from_slice(option)));
        }
        if let Some(last) = self.options.last {
            log.extend(words(&[b"LASTID", last.to_string().as_bytes()]));
        }
        log
    }
}

fn claim_idle(call: &Call<'_>, command: &str) -> Result<i64, Stop> {
    match parse_int(call.word(4)?) {
        Some(idle_ms) => Ok(idle_ms.max(0)),
        None => Err(format!("ERR Invalid min-idle-time argument for {command}").into()),
    }
}

fn claim_options(call: &Call<'_>, from: usize, idle_min_ms: i64) -> Result<Options, Stop> {
    let mut options = Options { idle_min_ms, ..Options::default() };
    let mut place = from;
    while let Some(word) = call.args.get(place) {
        let more = place + 1 < call.args.len();
        if is(word, "FORCE") {
            options.force = true;
        } else if is(word, "JUSTID") {
            options.only_ids = true;
        } else if more && is(word, "IDLE") {
            place += 1;
            options.delivered_ms = Some(call.at.ms().saturating_sub(claim_number(call, place, "IDLE")?));
        } else if more && is(word, "TIME") {
            place += 1;
            options.delivered_ms = Some(claim_number(call, place, "TIME")?);
        } else if more && is(word, "RETRYCOUNT") {
            place += 1;
            options.deliveries = u64::try_from(claim_number(call, place, "RETRYCOUNT")?).ok();
        } else if more && is(word, "LASTID") {
            place += 1;
            options.last = Some(strict_id(call.word(place)?, 0)?);
        } else {
            return Err(format!("ERR Unrecognized XCLAIM option '{}'", super::shown(word)).into());
        }
        place += 1;
    }
    Ok(options)
}

fn claim_number(call: &Call<'_>, place: usize, option: &str) -> Result<i64, Stop> {
    parse_int(call.word(place)?).ok_or_else(|| format!("ERR Invalid {option} option argument for XCLAIM").into())
}

fn auto_claim_options(call: &Call<'_>) -> Result<(usize, bool), Stop> {
    let (mut count, mut only_ids) = (100, false);
    let mut place = 6;
    while let Some(word) = call.args.get(place) {
        if is(word, "COUNT") && place + 1 < call.args.len() {
            place += 1;
            let most = if call.profile.at_least(7, 0) { i64::MAX / 16 } else { i64::MAX };
            let number = parse_int(call.word(place)?).filter(|count| (1..=most).contains(count));
            count = number.and_then(|count| usize::try_from(count).ok()).ok_or("ERR COUNT must be > 0")?;
        } else if is(word, "JUSTID") {
            only_ids = true;
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    Ok((count, only_ids))
}
