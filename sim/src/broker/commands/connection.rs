//! What a connection says about itself: who it is, which protocol it speaks.

use bytes::Bytes;

use super::super::call::{Call, NOT_INT, Reaction, parse_int};
use super::super::{Broker, Value};
use super::flag::{LOADING, NO_AUTH, NO_SCRIPT, NOT_QUEUED, SUBSCRIBED};
use super::{Ask, Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::server("PING", -1, SUBSCRIBED, ping),
    Command::data("ECHO", 2, LOADING, echo),
    Command::server("HELLO", -1, NO_SCRIPT | LOADING | NO_AUTH, hello),
    Command::server("AUTH", -2, NO_SCRIPT | LOADING | NO_AUTH, auth),
    Command::data("SELECT", 2, LOADING, select),
    Command::server("QUIT", -1, NO_SCRIPT | LOADING | NO_AUTH | SUBSCRIBED | NOT_QUEUED, quit),
    Command::server("RESET", 1, NO_SCRIPT | LOADING | NO_AUTH | SUBSCRIBED | NOT_QUEUED, reset),
];

const WRONGPASS: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NAME_REFUSED: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn ping(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    if ask.args.len() > 2 {
        return Err("ERR wrong number of arguments for 'ping' command".into());
    }
    let client = broker.clients.get(&ask.client);
    let subscribed = client.is_some_and(|client| client.resp == 2 && client.subscriptions() > 0);
    Ok(match ask.args.get(1) {
        word if subscribed => Value::Array(vec![Value::bulk("pong"), Value::Bulk(word.cloned().unwrap_or_default())]),
        Some(word) => Value::Bulk(word.clone()),
        None => Value::status("PONG"),
    })
}

fn echo(call: &mut Call<'_>) -> Reaction {
    Ok(Value::Bulk(call.word(1)?.clone()))
}

fn select(call: &mut Call<'_>) -> Reaction {
    match call.int(1)? {
        0 => Ok(Value::OK),
        1..16 => {
            call.gaps.push("SELECT of another database than 0".into());
            Err("ERR only database 0 is modelled".into())
        }
        _ => Err("ERR DB index is out of range".into()),
    }
}

fn hello(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let args = ask.args;
    let version = match args.get(1).map(|word| parse_int(word)) {
        None => None,
        Some(None) => return Err("ERR Protocol version is not an integer or out of range".into()),
        Some(Some(2)) => Some(2),
        Some(Some(3)) => Some(3),
        Some(Some(_)) => return Err("NOPROTO unsupported protocol version".into()),
    };
    let (mut credentials, mut name) = (None, None);
    // Before 7.2 each option took effect before the next was looked at.
    let at_once = !broker.profile.at_least(7, 2);
    let mut place = 2;
    while let Some(option) = args.get(place) {
        match (args.get(place + 1), args.get(place + 2)) {
            (Some(user), Some(password)) if is(option, "AUTH") => {
                if at_once {
                    authenticate(broker, ask, user, password)?;
                }
                credentials = Some((user, password));
                place += 3;
            }
            (Some(wanted), _) if is(option, "SETNAME") => {
                if !is_name(wanted) {
                    return Err(NAME_REFUSED.into());
                }
                if at_once && let Some(client) = broker.clients.get_mut(&ask.client) {
                    client.name = wanted.clone();
                }
                name = Some(wanted.clone());
                place += 2;
            }
            _ => return Err(format!("ERR Syntax error in HELLO option '{}'", super::text(option, 128)).into()),
        }
    }
    if let Some((user, password)) = credentials.filter(|_| !at_once) {
        authenticate(broker, ask, user, password)?;
    }
    let Some(client) = broker.clients.get_mut(&ask.client) else { return Ok(Value::Nil) };
    if !client.authenticated {
        let form = if at_once { "HELLO AUTH" } else { "HELLO <proto> AUTH" };
        return Err(format!(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the {form} <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time"
        )
        .into());
    }
    if let Some(name) = name {
        client.name = name;
    }
    if let Some(version) = version {
        client.resp = version;
    }
    let (resp, number) = (client.resp, client.number);
    Ok(greeting(broker, resp, number))
}

fn greeting(broker: &Broker, resp: u8, number: i64) -> Value {
    let profile = broker.profile();
    let role = if broker.condition.read_only { "replica" } else { "master" };
    let (server, version) = if profile.valkey {
        ("valkey", "8.1.8".to_string())
    } else {
        ("redis", profile.version.map(|part| part.to_string()).join("."))
    };
    let pairs = [
        ("server", Value::bulk(server)),
        ("version", Value::bulk(version)),
        ("proto", Value::Int(i64::from(resp))),
        ("id", Value::Int(number)),
        ("mode", Value::bulk("standalone")),
        ("role", Value::bulk(role)),
        ("modules", Value::Array(Vec::new())),
    ];
    Value::Map(pairs.into_iter().map(|(name, value)| (Value::bulk(name), value)).collect())
}

fn auth(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    match ask.args {
        [_, _] if broker.profile.password.is_none() => Err("ERR AUTH <password> called without any password \
            configured for the default user. Are you sure your configuration is correct?"
            .into()),
        [_, password] => authenticate(broker, ask, b"default", password),
        [_, user, password] => authenticate(broker, ask, user, password),
        _ => Err(super::super::call::SYNTAX.into()),
    }
}

fn authenticate(broker: &mut Broker, ask: &Ask<'_>, user: &[u8], password: &[u8]) -> Reaction {
    // Without a password the default user is let in with any.
    let right = broker.profile.password.as_ref().is_none_or(|expected| expected.as_bytes() == password);
    if user != b"default" || !right {
        return Err(WRONGPASS.into());
    }
    if let Some(client) = broker.clients.get_mut(&ask.client) {
        client.authenticated = true;
    }
    Ok(Value::OK)
}

fn quit(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    broker.closing.push(ask.client);
    Ok(Value::OK)
}

fn reset(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    broker.forget_watches(ask.client);
    broker.forget_subscriptions(ask.client);
    let authenticated = broker.profile.password.is_none();
    if let Some(client) = broker.clients.get_mut(&ask.client) {
        client.multi = None;
        client.resp = 2;
        client.name = Bytes::new();
        client.authenticated = authenticated;
    }
    Ok(Value::status("RESET"))
}

/// `CLIENT SETNAME`: printable ASCII without spaces.
pub(super) fn set_name(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let name = ask.args.get(2).ok_or(NOT_INT)?;
    if !is_name(name) {
        return Err(NAME_REFUSED.into());
    }
    if let Some(client) = broker.clients.get_mut(&ask.client) {
        client.name = name.clone();
    }
    Ok(Value::OK)
}

fn is_name(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}
