//! What a server says about itself.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::super::call::{Call, Reaction};
use super::super::{Broker, Value};
use super::flag::{LOADING, NO_SCRIPT};
use super::keys::matches_glob;
use super::{Ask, Command, is};

pub(super) const TABLE: &[Command] = &[
    Command::data("TIME", 1, LOADING, time),
    Command::server("INFO", -1, LOADING, info),
    Command::container("CONFIG"),
    Command::server("CONFIG|GET", -3, NO_SCRIPT | LOADING, config),
    Command::data("COMMAND", -1, LOADING, command),
];

fn time(call: &mut Call<'_>) -> Reaction {
    let parts = [call.at.0 / 1_000_000, call.at.0 % 1_000_000];
    Ok(Value::Array(parts.map(|part| Value::bulk(part.to_string())).into()))
}

/// Clients ask for the table when they start; none of ours acts on it.
fn command(call: &mut Call<'_>) -> Reaction {
    match call.args.get(1) {
        Some(word) if is(word, "COUNT") => Ok(Value::Int(i64::try_from(super::BY_NAME.len()).unwrap_or(0))),
        Some(word) if is(word, "DOCS") => Ok(Value::Map(Vec::new())),
        _ => Ok(Value::Array(Vec::new())),
    }
}

fn config(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let profile = &broker.profile;
    let settings = [
        ("appendfsync", profile.appendfsync.to_string()),
        ("appendonly", yes(profile.appendonly)),
        ("databases", "16".to_string()),
        ("hz", (1_000_000 / profile.tick_us.max(1)).to_string()),
        ("maxclients", profile.clients_max.to_string()),
        ("maxmemory", profile.memory.max.to_string()),
        ("maxmemory-policy", profile.memory.policy.to_string()),
        ("requirepass", profile.password.clone().unwrap_or_default()),
        ("save", String::new()),
        ("stream-node-max-entries", "100".to_string()),
        ("timeout", "0".to_string()),
    ];
    let wanted: Vec<_> = ask.args.iter().skip(2).map(|pattern| pattern.to_ascii_lowercase()).collect();
    let mut pairs = Vec::new();
    for (name, value) in settings {
        if wanted.iter().any(|pattern| matches_glob(pattern, name.as_bytes())) {
            pairs.push((Value::bulk(name), Value::bulk(value)));
        }
    }
    let known = |pattern: &Vec<u8>| settings_match(pattern, &pairs);
    let missing = wanted.iter().find(|pattern| !pattern.contains(&b'*') && !known(pattern));
    if let Some(name) = missing {
        broker.gaps.push(format!("CONFIG GET {}", String::from_utf8_lossy(name)));
    }
    Ok(Value::Map(pairs))
}

fn settings_match(pattern: &[u8], pairs: &[(Value, Value)]) -> bool {
    pairs.iter().any(|(name, _)| matches!(name, Value::Bulk(name) if name == pattern))
}

fn yes(on: bool) -> String {
    if on { "yes".into() } else { "no".into() }
}

/// Writes one section.
type Section = fn(&mut Broker, &Ask<'_>, &mut String) -> std::fmt::Result;

fn info(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let sections: [(&str, Section); 7] = [
        ("Server", server),
        ("Clients", clients),
        ("Memory", memory),
        ("Persistence", persistence),
        ("Stats", stats),
        ("Replication", replication),
        ("Keyspace", keyspace),
    ];
    let wanted = ask.args.get(1..).unwrap_or_default();
    let all = |word: &bytes::Bytes| is(word, "all") || is(word, "everything") || is(word, "default");
    let mut text = String::new();
    for (name, write) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| is(word, name) || all(word)) {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}# {name}\r\n");
            let _ = write(broker, ask, &mut text);
        }
    }
    Ok(Value::Verbatim(text.into()))
}

fn server(broker: &mut Broker, ask: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let profile = &broker.profile;
    let up = ask.at.0.saturating_sub(broker.started.unwrap_or(ask.at).0) / 1_000_000;
    let [major, minor, patch] = profile.version;
    write!(text, "redis_version:{major}.{minor}.{patch}\r\n")?;
    if profile.embedded {
        write!(text, "flota_embedded:1\r\n")?;
    }
    if profile.valkey {
        write!(text, "server_name:valkey\r\nvalkey_version:8.1.8\r\n")?;
    }
    write!(
        text,
        "{}_mode:standalone\r\nprocess_id:{}\r\nrun_id:{}\r\ntcp_port:{}\r\nserver_time_usec:{}\r\n\
         uptime_in_seconds:{up}\r\nuptime_in_days:{}\r\nhz:{}\r\n",
        if profile.valkey { "server" } else { "redis" },
        process_id(&broker.run_id),
        broker.run_id,
        profile.port,
        ask.at.0,
        up / 86_400,
        1_000_000 / profile.tick_us.max(1),
    )
}

/// A process number that changes with the process.
fn process_id(run_id: &str) -> u32 {
    run_id.bytes().fold(1, |sum: u32, byte| (sum * 31 + u32::from(byte)) % 32_768)
}

fn clients(broker: &mut Broker, _: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let connected = broker.connected();
    let blocked = broker.waiting.values().flatten().collect::<BTreeSet<_>>().len();
    let limit = broker.profile.clients_max;
    write!(text, "connected_clients:{connected}\r\nmaxclients:{limit}\r\nblocked_clients:{blocked}\r\n")
}

fn memory(broker: &mut Broker, _: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let used = broker.used_memory();
    let limit = &broker.profile.memory;
    write!(text, "used_memory:{used}\r\nmaxmemory:{}\r\nmaxmemory_policy:{}\r\n", limit.max, limit.policy)
}

fn persistence(broker: &mut Broker, _: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let (loading, aof) = (u8::from(broker.condition.loading), u8::from(broker.profile.appendonly));
    let saved = if broker.condition.misconf { "err" } else { "ok" };
    write!(text, "loading:{loading}\r\nrdb_last_bgsave_status:{saved}\r\naof_enabled:{aof}\r\n")
}

fn stats(broker: &mut Broker, _: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let channels = broker.channels.len();
    write!(
        text,
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nexpired_keys:{}\r\nevicted_keys:0\r\n\
         pubsub_channels:{channels}\r\n",
        broker.connections_received, broker.commands_processed, broker.db.expired,
    )
}

fn replication(broker: &mut Broker, _: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let role = if broker.condition.read_only { "slave" } else { "master" };
    write!(text, "role:{role}\r\nconnected_slaves:0\r\n")
}

fn keyspace(broker: &mut Broker, ask: &Ask<'_>, text: &mut String) -> std::fmt::Result {
    let (mut keys, mut expires) = (0, 0);
    for (_, item) in broker.db.live(ask.at) {
        keys += 1;
        expires += u64::from(item.expires_ms.is_some());
    }
    if keys > 0 {
        write!(text, "db0:keys={keys},expires={expires},avg_ttl=0\r\n")?;
    }
    Ok(())
}
