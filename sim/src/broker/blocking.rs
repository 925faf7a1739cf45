//! Connections that wait for keys: parked, served in the order they came, timed out.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::call::{Block, Stop};
use super::client::Blocked;
use super::commands::Command;
use super::execute::Mode;
use super::{Broker, ClientId, Out, ServerTime, Value};

impl Broker {
    /// Ends the waits whose time is over.
    pub fn tick(&mut self, at: ServerTime, out: &mut Vec<Out>) {
        out.append(&mut self.pending);
        let over: Vec<ClientId> =
            self.deadlines.range(..=(at.0, ClientId(u64::MAX))).map(|(_, client)| *client).collect();
        for client in over {
            if let Some(blocked) = self.unpark(client) {
                out.push(Out::Reply(client, blocked.block.otherwise));
            }
        }
    }

    /// When [`Self::tick`] has something to do: the earliest end of a wait, rounded up to the server's own rhythm;
    /// a time long past when it has something to say at once.
    #[must_use]
    pub fn next_tick(&self) -> Option<ServerTime> {
        if !self.pending.is_empty() {
            return Some(ServerTime(0));
        }
        self.deadlines.first().map(|(due_us, _)| ServerTime(*due_us))
    }

    /// A command has to wait.
    pub(super) fn park(&mut self, at: ServerTime, client: ClientId, command: &'static Command, block: Block) {
        let Some(state) = self.clients.get_mut(&client) else { return };
        for key in block.keys.iter().collect::<BTreeSet<_>>() {
            self.waiting.entry(key.clone()).or_default().push_back(client);
        }
        let due_us = (block.timeout_ms > 0).then(|| {
            let end_us = at.0.saturating_add(block.timeout_ms.saturating_mul(1_000));
            end_us.div_ceil(self.profile.tick_us.max(1)).saturating_mul(self.profile.tick_us.max(1))
        });
        state.blocked = Some(Blocked { command, block, due_us });
        self.deadlines.extend(due_us.map(|due_us| (due_us, client)));
    }

    /// A wait ends, whatever the reason.
    pub(super) fn unpark(&mut self, client: ClientId) -> Option<Blocked> {
        let blocked = self.clients.get_mut(&client)?.blocked.take()?;
        if let Some(due_us) = blocked.due_us {
            self.deadlines.remove(&(due_us, client));
        }
        for key in &blocked.block.keys {
            if let Some(queue) = self.waiting.get_mut(key) {
                queue.retain(|other| *other != client);
                if queue.is_empty() {
                    self.waiting.remove(key);
                }
            }
        }
        Some(blocked)
    }

    /// Serves whoever waits for keys that became ready, in the order in which they did. Serving one may make others
    /// ready.
    pub(super) fn serve(&mut self, at: ServerTime, out: &mut Vec<Out>) {
        while !self.db.ready.is_empty() {
            if self.waiting.is_empty() {
                self.db.ready.clear();
                return;
            }
            let mut seen = BTreeSet::new();
            for key in std::mem::take(&mut self.db.ready) {
                if seen.insert(key.clone()) {
                    self.serve_key(at, &key, out);
                }
            }
        }
    }

    fn serve_key(&mut self, at: ServerTime, key: &Bytes, out: &mut Vec<Out>) {
        let Some(queue) = self.waiting.get(key) else { return };
        for client in queue.clone() {
            let Some(Blocked { command, block, due_us }) =
                self.clients.get_mut(&client).and_then(|state| state.blocked.take())
            else {
                continue;
            };
            let mode = Mode { may_block: true, in_script: false, ready: Some(key) };
            let reaction = self.call(at, client, command, &block.args, mode);
            self.flush_effects(at);
            let restored = Blocked { command, block, due_us };
            if let Some(state) = self.clients.get_mut(&client) {
                state.blocked = Some(restored);
            }
            let reply = match reaction {
                // Nothing for this one. It keeps its place.
                Err(Stop::Block(_)) => continue,
                Ok(value) => value,
                Err(Stop::Error(text)) => Value::Error(text),
            };
            self.unpark(client);
            out.append(&mut self.pending);
            out.push(Out::Reply(client, reply));
        }
    }
}
