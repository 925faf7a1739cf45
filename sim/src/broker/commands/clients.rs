//! `CLIENT`: connections about connections.

use bytes::Bytes;

use super::super::call::{NOT_INT, Reaction, SYNTAX, parse_int};
use super::super::client::Client;
use super::super::{Broker, ClientId, Db, Out, Profile, ServerTime, Value};
use super::connection::set_name;
use super::flag::{LOADING, NO_SCRIPT};
use super::{Ask, Command, is};

const FLAGS: u32 = NO_SCRIPT | LOADING;

pub(super) const TABLE: &[Command] = &[
    Command::container("CLIENT"),
    Command::server("CLIENT|ID", 2, FLAGS, id),
    Command::server("CLIENT|GETNAME", 2, FLAGS, name),
    Command::server("CLIENT|SETNAME", 3, FLAGS, set_name),
    Command::server("CLIENT|INFO", 2, FLAGS, info),
    Command::server("CLIENT|LIST", -2, FLAGS, list),
    Command::server("CLIENT|KILL", -3, FLAGS, kill),
    Command::server("CLIENT|UNBLOCK", -3, FLAGS, unblock),
    Command::server("CLIENT|NO-EVICT", 3, FLAGS, switch).since(7, 0),
    Command::server("CLIENT|NO-TOUCH", 3, FLAGS, switch).since(7, 2),
    Command::server("CLIENT|SETINFO", 4, FLAGS, |_, _| Ok(Value::OK)).since(7, 2),
];

fn id(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    Ok(Value::Int(broker.clients.get(&ask.client).map_or(0, |client| client.number)))
}

fn name(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let name = broker.clients.get(&ask.client).map(|client| client.name.clone()).filter(|name| !name.is_empty());
    Ok(name.map_or(Value::Nil, Value::Bulk))
}

fn switch(_: &mut Broker, ask: &Ask<'_>) -> Reaction {
    match ask.args.get(2) {
        Some(word) if is(word, "ON") || is(word, "OFF") => Ok(Value::OK),
        _ => Err(SYNTAX.into()),
    }
}

fn info(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let line = broker.clients.get(&ask.client).map(|client| line(client, &broker.db, ask.at)).unwrap_or_default();
    Ok(Value::Verbatim(line.into()))
}

fn list(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let mut only = None;
    match ask.args.get(2..).unwrap_or_default() {
        [] => {}
        [option, kind] if is(option, "TYPE") => {
            if is(kind, "MASTER") || is(kind, "REPLICA") || is(kind, "SLAVE") {
                only = Some(Vec::new());
            } else if !is(kind, "NORMAL") && !is(kind, "PUBSUB") {
                let kind = super::text(kind, 128);
                return Err(format!("ERR Unknown client type '{kind}'").into());
            } else if is(kind, "PUBSUB") {
                let subscribed = broker.clients.values().filter(|client| client.subscriptions() > 0);
                only = Some(subscribed.map(|client| client.number).collect());
            }
        }
        [option, numbers @ ..] if is(option, "ID") && !numbers.is_empty() => {
            let numbers: Option<Vec<i64>> = numbers.iter().map(|number| parse_int(number)).collect();
            only = Some(numbers.ok_or("ERR Invalid client ID")?);
        }
        _ => return Err(SYNTAX.into()),
    }
    let mut shown: Vec<&Client> = broker.clients.values().filter(|client| !client.internal).collect();
    shown.retain(|client| only.as_ref().is_none_or(|only| only.contains(&client.number)));
    shown.sort_unstable_by_key(|client| client.number);
    let text: String = shown.into_iter().map(|client| line(client, &broker.db, ask.at)).collect();
    Ok(Value::Verbatim(text.into()))
}

/// A connection's line, newline included.
fn line(client: &Client, db: &Db, at: ServerTime) -> String {
    let seconds = |since: ServerTime| at.0.saturating_sub(since.0) / 1_000_000;
    let queued = client.executing.or(client.multi.as_ref().map(|multi| multi.queued.len()));
    let flags = [
        ('P', client.subscriptions() > 0),
        ('x', queued.is_some()),
        ('b', client.blocked.is_some()),
        ('d', client.watches_touched(db)),
    ];
    let flags: String = flags.into_iter().filter(|(_, is)| *is).map(|(flag, _)| flag).collect();
    let flags = if flags.is_empty() { "N".to_string() } else { flags };
    let queued = queued.map_or(-1, |queued| i64::try_from(queued).unwrap_or(i64::MAX));
    format!(
        "id={} addr={} laddr=127.0.0.1:6379 fd=8 name={} age={} idle={} flags={flags} db=0 sub={} psub={} ssub=0 \
         multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=1024 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 \
         events=r cmd={} user=default redir=-1 resp={}\n",
        client.number,
        client.address,
        String::from_utf8_lossy(&client.name),
        seconds(client.connected),
        seconds(client.last_seen),
        client.channels.len(),
        client.patterns.len(),
        client.last_command.to_ascii_lowercase(),
        client.resp,
    )
}

/// Which connections a `CLIENT KILL` means.
#[derive(Default)]
struct Filter<'a> {
    number: Option<i64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    /// Whether only those that subscribe, or only those that do not.
    subscribed: Option<bool>,
    no_such_kind: bool,
    spare_me: bool,
}

fn kill(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let old_form = ask.args.len() == 3;
    let filter = match ask.args {
        [_, _, address] => Filter { address: Some(address), ..Filter::default() },
        _ => kill_filter(broker, ask)?,
    };
    let hit = |id: ClientId, client: &Client| {
        let spared = client.internal || filter.no_such_kind || filter.spare_me && id == ask.client;
        !spared
            && filter.number.is_none_or(|number| number == client.number)
            && filter.address.is_none_or(|address| address == client.address.as_bytes())
            && filter.local_address.is_none_or(|address| address == b"127.0.0.1:6379")
            && filter.subscribed.is_none_or(|subscribed| subscribed == (client.subscriptions() > 0))
    };
    let hits: Vec<ClientId> = broker.clients.iter().filter(|(id, c)| hit(**id, c)).map(|(id, _)| *id).collect();
    for client in &hits {
        if *client == ask.client {
            broker.closing.push(*client);
        } else {
            broker.disconnect(ask.at, *client);
            // What it was going to be sent has not left yet.
            broker.pending.retain(|out| !matches!(out, Out::Reply(to, _) if to == client));
            broker.pending.push(Out::Close(*client));
        }
    }
    match hits.len() {
        0 if old_form => Err("ERR No such client".into()),
        _ if old_form => Ok(Value::OK),
        killed => Ok(Value::Int(i64::try_from(killed).unwrap_or(i64::MAX))),
    }
}

fn kill_filter<'a>(broker: &mut Broker, ask: &Ask<'a>) -> Result<Filter<'a>, super::super::Stop> {
    let mut filter = Filter { spare_me: true, ..Filter::default() };
    for pair in ask.args.get(2..).unwrap_or_default().chunks(2) {
        let [option, value] = pair else { return Err(SYNTAX.into()) };
        if is(option, "ID") {
            filter.number = Some(kill_number(value, broker.profile())?);
        } else if is(option, "ADDR") {
            filter.address = Some(value);
        } else if is(option, "LADDR") {
            filter.local_address = Some(value);
        } else if is(option, "TYPE") {
            if is(value, "PUBSUB") || is(value, "NORMAL") {
                filter.subscribed = Some(is(value, "PUBSUB"));
            } else if is(value, "MASTER") || is(value, "REPLICA") || is(value, "SLAVE") {
                filter.no_such_kind = true;
            } else {
                return Err(format!("ERR Unknown client type '{}'", super::text(value, 128)).into());
            }
        } else if is(option, "SKIPME") && (is(value, "YES") || is(value, "NO")) {
            filter.spare_me = is(value, "YES");
        } else if is(option, "USER") {
            broker.gaps.push("CLIENT KILL USER".into());
            return Err(SYNTAX.into());
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(filter)
}

fn kill_number(word: &[u8], profile: &Profile) -> Result<i64, &'static str> {
    match parse_int(word) {
        Some(number) if number >= 1 || !profile.at_least(7, 0) => Ok(number),
        None if !profile.at_least(7, 0) => Err(NOT_INT),
        None if profile.valkey => Err(SYNTAX),
        _ => Err("ERR client-id should be greater than 0"),
    }
}

fn unblock(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let by_error = match ask.args.get(3..).unwrap_or_default() {
        [] => false,
        [how] if is(how, "TIMEOUT") => false,
        [how] if is(how, "ERROR") => true,
        _ => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    let number = ask.args.get(2).and_then(|number: &Bytes| parse_int(number)).ok_or(NOT_INT)?;
    let found = broker.clients.iter().find(|(_, client)| client.number == number).map(|(id, _)| *id);
    let Some((client, blocked)) = found.and_then(|client| Some((client, broker.unpark(client)?))) else {
        return Ok(Value::Int(0));
    };
    let reply =
        if by_error { Value::error("UNBLOCKED client unblocked via CLIENT UNBLOCK") } else { blocked.block.otherwise };
    broker.pending.push(Out::Reply(client, reply));
    Ok(Value::Int(1))
}
