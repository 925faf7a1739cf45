//! Scripts: found, kept, run.

use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::super::call::{NOT_INT, Reaction, SYNTAX, parse_int};
use super::super::{Broker, Value, script};
use super::flag::{COMPOUND, NO_SCRIPT};
use super::{Ask, Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::server("EVAL", -3, NO_SCRIPT | COMPOUND, eval),
    Command::server("EVALSHA", -3, NO_SCRIPT | COMPOUND, evalsha),
    Command::container("SCRIPT"),
    Command::server("SCRIPT|LOAD", 3, NO_SCRIPT, load),
    Command::server("SCRIPT|EXISTS", -3, NO_SCRIPT, exists),
    Command::server("SCRIPT|FLUSH", -2, NO_SCRIPT, flush),
];

fn eval(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let body = ask.args.get(1).ok_or(SYNTAX)?.clone();
    let keys = key_count(ask)?;
    keep(broker, &body)?;
    run(broker, ask, &body, keys)
}

fn evalsha(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let keys = key_count(ask)?;
    let digest = ask.args.get(1).ok_or(SYNTAX)?.to_ascii_lowercase();
    let body = std::str::from_utf8(&digest).ok().and_then(|digest| broker.scripts.get(digest)).cloned();
    let advice = if broker.profile.valkey { "" } else { " Please use EVAL." };
    let body = body.ok_or_else(|| format!("NOSCRIPT No matching script.{advice}"))?;
    run(broker, ask, &body, keys)
}

/// How many of the words are keys.
fn key_count(ask: &Ask<'_>) -> Result<usize, super::super::Stop> {
    let count = ask.args.get(2).and_then(|count| parse_int(count)).ok_or(NOT_INT)?;
    let words = ask.args.len().saturating_sub(3);
    match usize::try_from(count) {
        Err(_) => Err("ERR Number of keys can't be negative".into()),
        Ok(count) if count > words => Err("ERR Number of keys can't be greater than number of args".into()),
        Ok(count) => Ok(count),
    }
}

fn run(broker: &mut Broker, ask: &Ask<'_>, body: &Bytes, keys: usize) -> Reaction {
    let words = ask.args.get(3..).unwrap_or_default();
    let (keys, argv) = words.split_at_checked(keys).ok_or(SYNTAX)?;
    broker.begin_script();
    Ok(script::run(broker, ask.at, ask.client, body, keys, argv))
}

/// Keeps a script and returns its name. What cannot be compiled is not kept.
fn keep(broker: &mut Broker, body: &Bytes) -> Result<String, String> {
    let digest = digest(body);
    if !broker.scripts.contains_key(&digest) {
        script::check(broker.profile(), body)?;
        broker.scripts.insert(digest.clone(), body.clone());
    }
    Ok(digest)
}

/// The SHA-1 of a text, in hexadecimal.
pub(in super::super) fn digest(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn load(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let body = ask.args.get(2).ok_or(SYNTAX)?;
    Ok(Value::bulk(keep(broker, body)?))
}

fn exists(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let known = |digest: &Bytes| {
        let digest = digest.to_ascii_lowercase();
        std::str::from_utf8(&digest).is_ok_and(|digest| broker.scripts.contains_key(digest))
    };
    Ok(Value::Array(ask.args.iter().skip(2).map(|digest| Value::Int(i64::from(known(digest)))).collect()))
}

fn flush(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    match ask.args.get(2) {
        None => {}
        Some(mode) if ask.args.len() == 3 && (is(mode, "ASYNC") || is(mode, "SYNC")) => {}
        Some(_) => return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into()),
    }
    broker.scripts.clear();
    Ok(Value::OK)
}
