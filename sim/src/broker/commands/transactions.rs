//! Transactions.

use super::super::call::Reaction;
use super::super::client::Multi;
use super::super::{Broker, Value};
use super::flag::{COMPOUND, LOADING, NO_SCRIPT, NOT_QUEUED};
use super::{Ask, Command};

const FLAGS: u32 = NO_SCRIPT | LOADING;

pub(super) const TABLE: &[Command] = &[
    Command::server("MULTI", 1, FLAGS | NOT_QUEUED, multi),
    Command::server("EXEC", 1, FLAGS | NOT_QUEUED | COMPOUND, exec),
    Command::server("DISCARD", 1, FLAGS | NOT_QUEUED, discard),
    Command::server("WATCH", -2, FLAGS | NOT_QUEUED, watch),
    Command::server("UNWATCH", 1, FLAGS, unwatch),
];

fn multi(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    match broker.clients.get_mut(&ask.client) {
        Some(client) if client.multi.is_some() => Err("ERR MULTI calls can not be nested".into()),
        Some(client) => {
            client.multi = Some(Multi::default());
            Ok(Value::OK)
        }
        None => Ok(Value::OK),
    }
}

fn exec(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let Some(client) = broker.clients.get_mut(&ask.client) else { return Ok(Value::NilArray) };
    let Some(multi) = client.multi.take() else { return Err("ERR EXEC without MULTI".into()) };
    let changed = client.watches_changed(&broker.db, ask.at);
    broker.forget_watches(ask.client);
    if multi.spoiled {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if changed {
        return Ok(Value::NilArray);
    }
    Ok(broker.run_transaction(ask.at, ask.client, multi))
}

fn discard(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    let client = broker.clients.get_mut(&ask.client);
    if client.and_then(|client| client.multi.take()).is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    broker.forget_watches(ask.client);
    Ok(Value::OK)
}

fn watch(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    if broker.clients.get(&ask.client).is_some_and(|client| client.multi.is_some()) {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    for key in ask.args.iter().skip(1) {
        broker.watch(ask.at, ask.client, key);
    }
    Ok(Value::OK)
}

fn unwatch(broker: &mut Broker, ask: &Ask<'_>) -> Reaction {
    broker.forget_watches(ask.client);
    Ok(Value::OK)
}
