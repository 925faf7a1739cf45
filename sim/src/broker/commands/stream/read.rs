//! `XREAD` and `XREADGROUP`.

mod deliver;

use bytes::Bytes;
use flota_core::reply::StreamId;

use super::super::super::call::{Block, Call, Reaction, SYNTAX, Stop, parse_int};
use super::super::super::db::{Object, WRONG_TYPE};
use super::super::super::stream::{Stream, before};
use super::super::super::{ServerTime, Value};
use super::super::is;
use super::{shown, strict_id, words};
use deliver::{Member, after_wrapping, deliver, history};

/// What a read asks for.
struct Request<'a> {
    name: &'a Bytes,
    /// Group and consumer.
    member: Option<(&'a Bytes, &'a Bytes)>,
    /// Entries per stream.
    count: usize,
    block_ms: Option<u64>,
    no_ack: bool,
    keys: &'a [Bytes],
    ids: &'a [Bytes],
}

/// From where a stream is read.
#[derive(Clone, Copy)]
enum Start {
    /// `>`: what the group was not given yet.
    New,
    After(StreamId),
}

pub(super) fn read(call: &mut Call<'_>, grouped: bool) -> Reaction {
    let request = request(call, grouped)?;
    if let Some(ready) = call.ready {
        if !call.profile.at_least(7, 2) {
            return read_ready(call, &request, ready);
        }
        if !grouped && !matches!(call.db.peek(ready, call.at).map(|item| &item.object), Some(Object::Stream(_))) {
            // Only a stream wakes a reader without a group.
            return Err(Stop::Block(request.block(&[])));
        }
    }
    let starts = starts(call, &request)?;
    let mut found = Vec::new();
    for (key, from) in request.keys.iter().zip(&starts) {
        if let Some(entries) = read_one(call, &request, key, *from)? {
            found.push((key.clone(), entries));
        }
    }
    set_log(call, &request, request.keys, request.ids);
    if !found.is_empty() {
        return Ok(assemble(call, found));
    }
    if request.block_ms.is_some() && call.may_block {
        return Err(Stop::Block(request.block(&starts)));
    }
    Ok(Value::NilArray)
}

/// Before 7.2 a waiting connection is given what came to the stream that woke it, and nothing else.
fn read_ready(call: &mut Call<'_>, request: &Request<'_>, ready: &Bytes) -> Reaction {
    let nothing = || Err(Stop::Block(request.block(&[])));
    let place = request.keys.iter().position(|key| key == ready);
    let Some((place, key)) = place.and_then(|place| Some((place, request.keys.get(place)?))) else {
        return nothing();
    };
    let Ok(Some(stream)) = call.db.stream(key, call.at) else {
        let told = request.member.is_some() && call.profile.at_least(7, 0);
        return if told { Err("UNBLOCKED the stream key no longer exists".into()) } else { nothing() };
    };
    let start = match request.member {
        None => strict_id(request.ids.get(place).map(|id| &id[..]).unwrap_or_default(), 0)?,
        Some((group, _)) => match stream.groups.get(group) {
            None => return Err("NOGROUP the consumer group this client was blocked on no longer exists".into()),
            Some(group) => group.last,
        },
    };
    // The highest id there ever was decides, so that the answer can be empty.
    if stream.last() <= start {
        return nothing();
    }
    let entries = match request.member(call.at, key) {
        None => entries_after(stream, start, request.count),
        Some(member) => {
            member.see(call);
            deliver(call, &member, start, request.count, request.no_ack)
        }
    };
    set_log(call, request, std::slice::from_ref(key), &[Bytes::from_static(b">")]);
    Ok(assemble(call, vec![(key.clone(), entries)]))
}

/// What a stream has for this request; none if nothing.
fn read_one(call: &mut Call<'_>, request: &Request<'_>, key: &Bytes, from: Start) -> Result<Option<Vec<Value>>, Stop> {
    let Some(member) = request.member(call.at, key) else {
        let Start::After(id) = from else { return Ok(None) };
        let stream = call.db.stream(key, call.at)?;
        let stream = stream.filter(|stream| stream.last_present().is_some_and(|last| last > id));
        return Ok(stream.map(|stream| entries_after(stream, id, request.count)));
    };
    let Some(stream) = call.db.stream(key, call.at)? else { return Ok(None) };
    let last = stream.groups.get(member.group).map(|group| group.last).unwrap_or_default();
    let more = stream.last_present().is_some_and(|present| present > last);
    let served = matches!(from, Start::After(_)) || more;
    if served || call.profile.at_least(7, 2) {
        member.see(call);
    }
    Ok(served.then(|| match from {
        Start::New => deliver(call, &member, last, request.count, request.no_ack),
        Start::After(id) => history(call, &member, after_wrapping(id), request.count),
    }))
}

fn entries_after(stream: &Stream, id: StreamId, count: usize) -> Vec<Value> {
    let range = stream.range(after_wrapping(id), StreamId::MAX);
    range.take(count).map(|(id, fields)| super::entry(id, fields)).collect()
}

fn assemble(call: &Call<'_>, found: Vec<(Bytes, Vec<Value>)>) -> Value {
    let pairs = found.into_iter().map(|(key, entries)| (Value::Bulk(key), Value::Array(entries)));
    if call.resp == 3 {
        Value::Map(pairs.collect())
    } else {
        Value::Array(pairs.map(|(key, entries)| Value::Array(vec![key, entries])).collect())
    }
}

/// The log has the form that does not wait, for the streams that were looked at.
fn set_log(call: &mut Call<'_>, request: &Request<'_>, keys: &[Bytes], ids: &[Bytes]) {
    let Some((group, consumer)) = request.member else { return };
    let mut log = words(&[b"XREADGROUP", b"GROUP", group, consumer]);
    if request.count < usize::MAX {
        log.extend(words(&[b"COUNT", request.count.to_string().as_bytes()]));
    }
    if request.no_ack {
        log.push(Bytes::from_static(b"NOACK"));
    }
    log.push(Bytes::from_static(b"STREAMS"));
    log.extend(keys.iter().chain(ids).cloned());
    call.log_as = Some(log);
}

impl Request<'_> {
    fn member<'b>(&'b self, at: ServerTime, key: &'b Bytes) -> Option<Member<'b>> {
        let (group, consumer) = self.member?;
        Some(Member { key, group, consumer, now_ms: at.ms() })
    }

    /// The wait for these streams, from where each is to be read.
    fn block(&self, starts: &[Start]) -> Block {
        let mut args = vec![self.name.clone()];
        if let Some((group, consumer)) = self.member {
            args.extend(words(&[b"GROUP", group, consumer]));
        }
        if self.count < usize::MAX {
            args.extend(words(&[b"COUNT", self.count.to_string().as_bytes()]));
        }
        let timeout_ms = self.block_ms.unwrap_or_default();
        args.extend(words(&[b"BLOCK", timeout_ms.to_string().as_bytes()]));
        if self.no_ack {
            args.push(Bytes::from_static(b"NOACK"));
        }
        args.push(Bytes::from_static(b"STREAMS"));
        args.extend(self.keys.iter().cloned());
        args.extend(starts.iter().map(|from| match from {
            Start::New => Bytes::from_static(b">"),
            Start::After(id) => Bytes::from(id.to_string()),
        }));
        Block { keys: self.keys.to_vec(), timeout_ms, args, otherwise: Value::NilArray }
    }
}

fn request<'a>(call: &Call<'a>, grouped: bool) -> Result<Request<'a>, Stop> {
    let args = call.args;
    let name = args.first().ok_or(SYNTAX)?;
    let (mut member, mut count, mut block_ms, mut no_ack) = (None, usize::MAX, None, false);
    let mut place = 1;
    while let Some(word) = args.get(place) {
        let more = args.len() - 1 - place;
        if more > 0 && is(word, "BLOCK") {
            if call.in_script && !call.profile.at_least(7, 2) {
                return Err(format!("ERR {} command is not allowed with BLOCK option from scripts", shown(name)).into());
            }
            place += 1;
            block_ms = Some(timeout(call, place)?);
        } else if more > 0 && is(word, "COUNT") {
            place += 1;
            count = usize::try_from(call.int(place)?).ok().filter(|count| *count > 0).unwrap_or(usize::MAX);
        } else if more > 0 && is(word, "STREAMS") {
            let rest = args.get(place + 1..).unwrap_or_default();
            if rest.len() % 2 != 0 {
                return Err(unbalanced(call, name, grouped));
            }
            let (keys, ids) = rest.split_at(rest.len() / 2);
            if grouped && member.is_none() {
                return Err("ERR Missing GROUP option for XREADGROUP".into());
            }
            return Ok(Request { name, member, count, block_ms, no_ack, keys, ids });
        } else if more > 1 && is(word, "GROUP") {
            if !grouped {
                return Err("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into());
            }
            member = args.get(place + 1).zip(args.get(place + 2));
            place += 2;
        } else if is(word, "NOACK") {
            if !grouped {
                return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
            }
            no_ack = true;
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    Err(SYNTAX.into())
}

fn unbalanced(call: &Call<'_>, name: &[u8], grouped: bool) -> Stop {
    let (list, sign) = match call.profile.at_least(7, 2) {
        true => (format!("'{}'", shown(name).to_ascii_lowercase()), if grouped { '>' } else { '$' }),
        false => ("XREAD".to_string(), '$'),
    };
    format!("ERR Unbalanced {list} list of streams: for each stream key an ID or '{sign}' must be specified.").into()
}

fn timeout(call: &Call<'_>, place: usize) -> Result<u64, Stop> {
    let ms = parse_int(call.word(place)?).ok_or("ERR timeout is not an integer or out of range")?;
    if call.profile.at_least(7, 0) && ms > i64::MAX - call.at.ms() {
        return Err("ERR timeout is out of range".into());
    }
    u64::try_from(ms).map_err(|_| "ERR timeout is negative".into())
}

/// From where each stream is to be read. What is wrong with any of them fails the whole command.
fn starts(call: &mut Call<'_>, request: &Request<'_>) -> Result<Vec<Start>, Stop> {
    let mut starts = Vec::with_capacity(request.keys.len());
    for (key, id) in request.keys.iter().zip(request.ids) {
        starts.push(start(call, request, key, id)?);
    }
    Ok(starts)
}

fn start(call: &mut Call<'_>, request: &Request<'_>, key: &Bytes, id: &[u8]) -> Result<Start, Stop> {
    let item = call.db.item(key, call.at);
    let stream = match item.map(|item| &item.object) {
        None => None,
        Some(Object::Stream(stream)) => Some(stream),
        Some(_) => return Err(WRONG_TYPE.into()),
    };
    if let Some((group, _)) = request.member
        && !stream.is_some_and(|stream| stream.groups.contains_key(group))
    {
        let (key, group) = (shown(key), shown(group));
        return Err(
            format!("NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option").into()
        );
    }
    let last = stream.map(Stream::last).unwrap_or_default();
    let knows_plus = call.profile.valkey || call.profile.at_least(7, 4);
    match id {
        b"$" | b"+" if request.member.is_some() && (id == b"$" || knows_plus) => Err(meaningless(id)),
        b"$" => Ok(Start::After(last)),
        b"+" if knows_plus => Ok(Start::After(before(last).unwrap_or_default())),
        b">" if request.member.is_some() => Ok(Start::New),
        b">" => Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> \
            option."
            .into()),
        id => match strict_id(id, 0)? {
            // The highest id is how servers write `>` down.
            StreamId::MAX if request.member.is_some() => Ok(Start::New),
            id => Ok(Start::After(id)),
        },
    }
}

fn meaningless(id: &[u8]) -> Stop {
    let sign = shown(id);
    format!(
        "ERR The {sign} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer \
         by specifying a proper ID, or use the > ID to get new messages. The {sign} ID would just return an empty \
         result set."
    )
    .into()
}
