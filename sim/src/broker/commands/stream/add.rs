//! What makes a stream longer or shorter: `XADD`, `XTRIM`, `XDEL`, `XSETID`.

use std::sync::Arc;

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::super::call::{Call, Reaction, SYNTAX, Stop};
use super::super::super::db::{Change, Why};
use super::super::super::stream::{Bound, Stream, Trim};
use super::super::super::{Profile, ServerTime, Value};
use super::super::is;
use super::{Journal, count_value, id_value, strict_id};

/// What approximate trimming removes at most when the command does not say: a hundred nodes.
const LIMIT: u64 = 100 * 100;
const EXHAUSTED: &str = "ERR The stream has exhausted the last possible ID, unable to add more items";
const TOO_SMALL: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";

/// Which id an entry shall have.
#[derive(Clone, Copy)]
enum Wanted {
    /// `*`: by the clock.
    Generated,
    /// `ms-*`: the next of this millisecond.
    Millisecond(u64),
    Given(StreamId),
}

/// Options of `XADD` and `XTRIM`, and where they end.
struct Options {
    trim: Option<Trim>,
    no_make: bool,
    end: usize,
}

pub(super) fn add(call: &mut Call<'_>) -> Reaction {
    let args = call.args;
    let options = options(call, true)?;
    let wanted = wanted(call, call.word(options.end)?)?;
    let fields = args.get(options.end + 1..).unwrap_or_default();
    if fields.is_empty() || fields.len() % 2 == 1 {
        let name = if call.profile.at_least(7, 0) { "'xadd' command" } else { "XADD" };
        return Err(format!("ERR wrong number of arguments for {name}").into());
    }
    if matches!(wanted, Wanted::Given(StreamId::MIN)) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let key = call.word(1)?;
    if options.no_make && call.db.stream(key, call.at)?.is_none() {
        return Ok(Value::Nil);
    }
    let stream = call.db.stream_or_new(key, call.at)?;
    let id = choose(stream, wanted, call.at, call.profile)?;
    let fields: Arc<[Bytes]> = fields.into();
    if !stream.add(id, fields.clone(), call.profile) {
        return Err(TOO_SMALL.into());
    }
    let gone = options.trim.map(|trim| stream.trim(trim, call.profile)).unwrap_or_default();
    call.db.record(|| Change::Added { key: key.clone(), id, fields: fields.to_vec() });
    record_trimmed(call, key, gone);
    call.db.changed(key);
    call.db.signal(key);
    Ok(id_value(id))
}

pub(super) fn trim(call: &mut Call<'_>) -> Reaction {
    let options = options(call, false)?;
    let key = call.word(1)?;
    let Some(trim) = options.trim else { return Err(SYNTAX.into()) };
    let Some(stream) = call.db.stream(key, call.at)? else { return Ok(Value::Int(0)) };
    let gone = stream.trim(trim, call.profile);
    let count = gone.len() as u64;
    if count > 0 {
        record_trimmed(call, key, gone);
        call.db.changed(key);
    }
    Ok(count_value(count))
}

pub(super) fn delete(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let mut journal = Journal::new(call.db);
    let Some(stream) = call.db.stream(key, call.at)? else { return Ok(Value::Int(0)) };
    let ids = call.args.iter().skip(2).map(|id| strict_id(id, 0)).collect::<Result<Vec<_>, _>>()?;
    let mut count = 0;
    for id in ids {
        if stream.delete(id) {
            count += 1;
            journal.note(|| Change::Removed { key: key.clone(), id, why: Why::Deleted });
        }
    }
    journal.report(call.db);
    if count > 0 {
        call.db.changed(key);
    }
    Ok(count_value(count))
}

pub(super) fn set_id(call: &mut Call<'_>) -> Reaction {
    let key = call.word(1)?;
    let last = strict_id(call.word(2)?, 0)?;
    let (mut added, mut deleted) = (None, None);
    if !call.profile.at_least(7, 0) && call.args.len() > 3 {
        return Err("ERR wrong number of arguments for 'xsetid' command".into());
    }
    let mut place = 3;
    while place < call.args.len() {
        let (option, more) = (call.word(place)?, place + 1 < call.args.len());
        if more && is(option, "ENTRIESADDED") {
            let number = call.int(place + 1)?;
            added = Some(u64::try_from(number).map_err(|_| "ERR entries_added must be positive")?);
        } else if more && is(option, "MAXDELETEDID") {
            let id = strict_id(call.word(place + 1)?, 0)?;
            if last < id {
                return Err("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into());
            }
            deleted = Some(id);
        } else {
            return Err(SYNTAX.into());
        }
        place += 2;
    }
    let Some(stream) = call.db.stream(key, call.at)? else { return Err("ERR no such key".into()) };
    if call.profile.at_least(7, 2) && last < stream.deleted_max() {
        return Err("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id".into());
    }
    if stream.last_present().is_some_and(|present| last < present) {
        return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
    }
    if added.is_some_and(|added| added < stream.len()) {
        return Err("ERR The entries_added specified in XSETID is smaller than the target stream length".into());
    }
    stream.set_id(last, added, deleted);
    call.db.dirty += 1;
    Ok(Value::OK)
}

fn record_trimmed(call: &mut Call<'_>, key: &Bytes, gone: Vec<StreamId>) {
    for id in gone {
        call.db.record(|| Change::Removed { key: key.clone(), id, why: Why::Trimmed });
    }
}

fn wanted(call: &Call<'_>, text: &[u8]) -> Result<Wanted, Stop> {
    if text == b"*" {
        return Ok(Wanted::Generated);
    }
    match text.strip_suffix(b"-*") {
        Some(ms) if call.profile.at_least(7, 0) && !ms.contains(&b'-') => Ok(Wanted::Millisecond(strict_id(ms, 0)?.ms)),
        _ => Ok(Wanted::Given(strict_id(text, 0)?)),
    }
}

fn choose(stream: &Stream, wanted: Wanted, at: ServerTime, profile: &Profile) -> Result<StreamId, Stop> {
    let last = stream.last();
    if last == StreamId::MAX {
        return Err(EXHAUSTED.into());
    }
    match wanted {
        Wanted::Given(id) if id <= last => Err(TOO_SMALL.into()),
        Wanted::Given(id) => Ok(id),
        Wanted::Generated => stream.next_id(at.ms()).ok_or_else(|| EXHAUSTED.into()),
        Wanted::Millisecond(ms) if ms > last.ms => Ok(StreamId { ms, seq: 0 }),
        Wanted::Millisecond(ms) if ms == last.ms => match last.seq.checked_add(1) {
            Some(seq) => Ok(StreamId { ms, seq }),
            None if profile.at_least(7, 2) => Err(TOO_SMALL.into()),
            // 7.0 answers with an error that is about something else.
            None => Err("ERR Elements are too large to be stored".into()),
        },
        Wanted::Millisecond(_) => Err(TOO_SMALL.into()),
    }
}

/// Reads options up to the id of `XADD`, or to the end of `XTRIM`.
fn options(call: &Call<'_>, adds: bool) -> Result<Options, Stop> {
    let mut bound = None;
    let mut approximate = false;
    let mut limit = None;
    let mut no_make = false;
    let mut place = 2;
    while let Some(word) = call.args.get(place) {
        let more = call.args.len() - 1 - place;
        if adds && word[..] == *b"*" {
            break;
        }
        if more > 0 && (is(word, "MAXLEN") || is(word, "MINID")) {
            if bound.is_some() {
                return Err("ERR syntax error, MAXLEN and MINID options at the same time are not compatible".into());
            }
            let sign = call.args.get(place + 1).filter(|sign| more > 1 && matches!(&sign[..], b"~" | b"="));
            approximate = sign.is_some_and(|sign| sign[..] == *b"~");
            place += 1 + usize::from(sign.is_some());
            bound = Some(read_bound(call, is(word, "MAXLEN"), place)?);
        } else if more > 0 && is(word, "LIMIT") {
            place += 1;
            limit = Some(u64::try_from(call.int(place)?).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
        } else if adds && is(word, "NOMKSTREAM") {
            no_make = true;
        } else if adds {
            wanted(call, word)?;
            break;
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    if bound.is_none() && limit.is_some_and(|limit| limit > 0) {
        return Err("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy".into());
    }
    if bound.is_none() && !adds {
        return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
    }
    if limit.is_some() && !approximate {
        return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
    }
    let limit = limit.unwrap_or(if approximate { LIMIT } else { 0 });
    Ok(Options { trim: bound.map(|bound| Trim { bound, approximate, limit }), no_make, end: place })
}

fn read_bound(call: &Call<'_>, is_len: bool, place: usize) -> Result<Bound, Stop> {
    if !is_len {
        return strict_id(call.word(place)?, 0).map(Bound::Id);
    }
    match u64::try_from(call.int(place)?) {
        Ok(len) => Ok(Bound::Len(len)),
        Err(_) => Err("ERR The MAXLEN argument must be >= 0.".into()),
    }
}
