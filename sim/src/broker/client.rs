//! A connection as the server sees it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::call::Block;
use super::commands::Command;
use super::{Broker, ClientId, Db, ServerTime};

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// `CLIENT ID`.
    pub(super) number: i64,
    /// The peer.
    pub(super) address: String,
    /// `CLIENT SETNAME`.
    pub(super) name: Bytes,
    /// 2 or 3.
    pub(super) resp: u8,
    pub(super) authenticated: bool,
    /// Replays a log: no condition holds it up, and `CLIENT LIST` does not show it.
    pub(super) internal: bool,
    pub(super) connected: ServerTime,
    pub(super) last_seen: ServerTime,
    pub(super) last_command: &'static str,
    pub(super) blocked: Option<Blocked>,
    pub(super) multi: Option<Multi>,
    /// How many commands there are in the transaction that is being executed.
    pub(super) executing: Option<usize>,
    pub(super) watches: BTreeMap<Bytes, Watch>,
    pub(super) channels: BTreeSet<Bytes>,
    pub(super) patterns: BTreeSet<Bytes>,
}

/// A command that waits.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    pub(super) command: &'static Command,
    pub(super) block: Block,
    /// When it is over, in microseconds of the server's clock: when the server looks, not when the time is up.
    pub(super) due_us: Option<u64>,
}

/// A transaction that is being queued.
#[derive(Clone, Debug, Default)]
pub(super) struct Multi {
    pub(super) queued: Vec<(&'static Command, Vec<Bytes>)>,
    /// What any of its commands is.
    pub(super) flags: u32,
    /// A command was refused: `EXEC` will be, too.
    pub(super) spoiled: bool,
}

/// A key as it was when a connection began to watch it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    version: u64,
}

impl Client {
    pub(super) fn new(at: ServerTime, number: i64, address: &str, authenticated: bool) -> Self {
        Self {
            number,
            address: address.to_string(),
            name: Bytes::new(),
            resp: 2,
            authenticated,
            internal: false,
            connected: at,
            last_seen: at,
            last_command: "NULL",
            blocked: None,
            multi: None,
            executing: None,
            watches: BTreeMap::new(),
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
        }
    }

    /// Channels and patterns together: a connection of RESP2 that has any may do little else.
    pub(super) fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Whether anything it watches has changed.
    pub(super) fn watches_changed(&self, db: &Db, at: ServerTime) -> bool {
        let expired = |key| db.items.get(key).is_some_and(|item| item.is_expired(at));
        self.watches_touched(db) || self.watches.keys().any(expired)
    }

    /// Whether a change of anything it watches has been noticed, which that of a key whose time is over need not be.
    pub(super) fn watches_touched(&self, db: &Db) -> bool {
        let version = |key| db.watched.get(key).map(|watched| watched.version);
        self.watches.iter().any(|(key, watch)| version(key) != Some(watch.version))
    }
}

impl Broker {
    /// `WATCH` of one key.
    pub(super) fn watch(&mut self, at: ServerTime, client: ClientId, key: &Bytes) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        if state.watches.contains_key(key) {
            return;
        }
        // That a key goes whose time was over before is no change.
        self.db.expire(key, at);
        let watched = self.db.watched.entry(key.clone()).or_default();
        watched.watchers += 1;
        state.watches.insert(key.clone(), Watch { version: watched.version });
    }

    /// `UNWATCH`, and the end of every transaction.
    pub(super) fn forget_watches(&mut self, client: ClientId) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        for key in std::mem::take(&mut state.watches).into_keys() {
            if let Some(watched) = self.db.watched.get_mut(&key) {
                watched.watchers -= 1;
                if watched.watchers == 0 {
                    self.db.watched.remove(&key);
                }
            }
        }
    }
}
