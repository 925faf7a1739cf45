//! From the words of a command to its reply: what is refused before it runs, what is queued, what is logged.

use bytes::Bytes;

use super::call::{Block, Call, Reaction, SYNTAX, Stop};
use super::client::Multi;
use super::commands::{self, Ask, Command, Refusal, Run, flag};
use super::{Broker, ClientId, Logged, Out, ScriptState, ServerTime, Value};

/// Under which circumstances a command runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode<'a> {
    pub(super) may_block: bool,
    pub(super) in_script: bool,
    pub(super) ready: Option<&'a Bytes>,
}

const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READONLY: &str = "READONLY You can't write against a read only replica.";
const NOREPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
const LOADING: &str = "LOADING Redis is loading the dataset in memory";
const NOAUTH: &str = "NOAUTH Authentication required.";
const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
    Commands that may modify the data set are disabled, because this instance is configured to report errors during \
    writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details \
    about the RDB error.";

impl Broker {
    /// Executes one command of a connection. Replies are in the order in which the server would send them; a command
    /// that waits has no reply yet. Nothing happens for a connection that is not there, and one that
    /// [is blocked](Self::is_blocked) must not be given anything to execute.
    pub fn execute(&mut self, at: ServerTime, client: ClientId, args: &[Bytes], out: &mut Vec<Out>) {
        self.started.get_or_insert(at);
        let Some(state) = self.clients.get_mut(&client) else { return };
        if args.is_empty() {
            return;
        }
        if state.blocked.is_some() {
            self.gaps.push("a command of a connection that is blocked".into());
            return;
        }
        state.last_seen = at;
        let reply = self.process(at, client, args);
        out.append(&mut self.pending);
        if let Some(reply) = reply {
            out.push(Out::Reply(client, reply));
        }
        out.append(&mut self.after_reply);
        for closed in std::mem::take(&mut self.closing) {
            self.disconnect(at, closed);
            out.push(Out::Close(closed));
        }
        self.flush_effects(at);
        self.serve(at, out);
    }

    fn process(&mut self, at: ServerTime, client: ClientId, args: &[Bytes]) -> Option<Value> {
        let command = match self.lookup(args) {
            Ok(command) => command,
            Err(refusal) => return Some(self.refuse(client, None, refusal.text)),
        };
        self.commands_processed += 1;
        if let Err(text) = self.admit(client, command) {
            return Some(self.refuse(client, Some(command), text));
        }
        let state = self.clients.get_mut(&client)?;
        state.last_command = command.name;
        // 6.2 goes on to queue after a key that is watched has changed.
        let touched = self.profile.at_least(7, 0) && state.watches_touched(&self.db);
        let internal = state.internal;
        if let Some(multi) = &mut state.multi
            && !command.has(flag::NOT_QUEUED)
        {
            // What will not be executed is not kept.
            if !multi.spoiled && !touched {
                multi.flags |= command.flags;
                multi.queued.push((command, args.to_vec()));
            }
            return Some(Value::status("QUEUED"));
        }
        let mode = Mode { may_block: !internal, ..Mode::default() };
        match self.call(at, client, command, args, mode) {
            Ok(value) => Some(value),
            Err(Stop::Error(text)) => Some(Value::Error(text)),
            Err(Stop::Block(block)) => self.wait(at, client, command, block, mode),
        }
    }

    fn wait(
        &mut self,
        at: ServerTime,
        client: ClientId,
        command: &'static Command,
        block: Block,
        mode: Mode<'_>,
    ) -> Option<Value> {
        if !mode.may_block {
            return Some(block.otherwise);
        }
        self.park(at, client, command, block);
        None
    }

    /// The command these words name; a name that is not known is kept as a gap.
    fn lookup(&mut self, args: &[Bytes]) -> Result<&'static Command, Refusal> {
        commands::lookup(args, &self.profile).inspect_err(|refusal| {
            if refusal.unknown {
                let words: Vec<_> = args.iter().take(2).map(|word| String::from_utf8_lossy(word)).collect();
                self.gaps.push(words.join(" "));
            }
        })
    }

    /// A command does not run: what that means for the transaction it belongs to.
    fn refuse(&mut self, client: ClientId, command: Option<&'static Command>, text: String) -> Value {
        let Some(state) = self.clients.get_mut(&client) else { return Value::Error(text) };
        if command.is_some_and(|command| command.name == "EXEC") {
            state.multi = None;
            self.forget_watches(client);
            let text = text.strip_prefix("ERR ").unwrap_or(&text);
            return Value::Error(format!("EXECABORT Transaction discarded because of: {text}"));
        }
        if let Some(multi) = &mut state.multi {
            multi.spoiled = true;
            if self.profile.valkey {
                multi.queued.clear();
                multi.flags = 0;
            }
        }
        Value::Error(text)
    }

    /// Whether the command may run or be queued now.
    fn admit(&mut self, client: ClientId, command: &'static Command) -> Result<(), String> {
        let Some(state) = self.clients.get(&client) else { return Ok(()) };
        if state.internal || command.name == "QUIT" {
            return Ok(());
        }
        let old = !self.profile.at_least(7, 0);
        // 6.2 resets only who has logged in.
        if !state.authenticated && (!command.has(flag::NO_AUTH) || old && command.name == "RESET") {
            return Err(NOAUTH.into());
        }
        let (in_multi, resp, subscribed) = (state.multi.is_some(), state.resp, state.subscriptions() > 0);
        let queued = state.multi.as_ref().filter(|_| command.name == "EXEC").map_or(0, |multi| multi.flags);
        let flags = command.flags | queued;
        // Before 7.2 a transaction was refused as a whole.
        let begun = in_multi && !self.profile.at_least(7, 2);
        let grows = self.may_grow(command, flags) || begun && !matches!(command.name, "EXEC" | "DISCARD" | "RESET");
        if grows && self.is_out_of_memory() {
            return Err(OOM.into());
        }
        self.admit_write(flags, command.name == "PING")?;
        if subscribed && resp == 2 && !command.has(flag::SUBSCRIBED) {
            return Err(self.only_subscribed(command));
        }
        if in_multi && self.profile.at_least(7, 2) && matches!(command.name, "MULTI" | "WATCH") {
            return Err("ERR Command not allowed inside a transaction".into());
        }
        if self.condition.loading && !command.has(flag::LOADING) {
            return Err(self.own_name(LOADING));
        }
        Ok(())
    }

    /// Whether a command is refused when the memory is full. In 6.2 all of `XGROUP` is.
    fn may_grow(&self, command: &Command, flags: u32) -> bool {
        flags & flag::DENY_OOM != 0 || !self.profile.at_least(7, 0) && command.name.starts_with("XGROUP|")
    }

    fn only_subscribed(&self, command: &Command) -> String {
        let name = command.name.to_ascii_lowercase();
        let (name, kinds) = match name.split_once('|') {
            _ if self.profile.at_least(7, 0) => (name.as_str(), "P|S"),
            Some((container, _)) => (container, "P"),
            None => (name.as_str(), "P"),
        };
        format!(
            "ERR Can't execute '{name}': only ({kinds})SUBSCRIBE / ({kinds})UNSUBSCRIBE / PING / QUIT / RESET are \
             allowed in this context"
        )
    }

    fn admit_write(&self, flags: u32, is_ping: bool) -> Result<(), String> {
        let write = flags & flag::WRITE != 0;
        match self.condition {
            condition if condition.misconf && !condition.read_only && (write || is_ping) => Err(self.own_name(MISCONF)),
            condition if condition.no_replicas && !condition.read_only && write => Err(NOREPLICAS.into()),
            condition if condition.read_only && write => Err(READONLY.into()),
            _ => Ok(()),
        }
    }

    /// A text that a Valkey server says with its own name.
    fn own_name(&self, text: &str) -> String {
        if self.profile.valkey { text.replace("Redis", "Valkey") } else { text.into() }
    }

    /// Whether the data is larger than allowed.
    pub(super) fn is_out_of_memory(&mut self) -> bool {
        let memory = &self.profile.memory;
        if memory.max == 0 || memory.policy != "noeviction" {
            return false;
        }
        let max = memory.max;
        self.used_memory() > max
    }

    /// The size of the data in bytes, counted anew only after a change.
    pub(super) fn used_memory(&mut self) -> u64 {
        match self.measured {
            Some((dirty, bytes)) if dirty == self.db.dirty => bytes,
            _ => {
                let bytes = self.db.memory();
                self.measured = Some((self.db.dirty, bytes));
                bytes
            }
        }
    }

    /// Runs a command and notes for the log what it changed.
    pub(super) fn call(
        &mut self,
        at: ServerTime,
        client: ClientId,
        command: &'static Command,
        args: &[Bytes],
        mode: Mode<'_>,
    ) -> Reaction {
        let before = self.db.dirty;
        let (reaction, log_as) = match command.run {
            Run::Data(run) => {
                let resp = if mode.in_script { 2 } else { self.resp(client) };
                let mut call = Call {
                    args,
                    at,
                    db: &mut self.db,
                    profile: &self.profile,
                    client,
                    resp,
                    may_block: mode.may_block,
                    in_script: mode.in_script,
                    ready: mode.ready,
                    log_as: None,
                    gaps: &mut self.gaps,
                };
                let reaction = run(&mut call);
                (reaction, call.log_as)
            }
            Run::Container => (Err(SYNTAX.into()), None),
            Run::Server(run) => (run(self, &Ask { at, client, args }), None),
        };
        if self.db.dirty != before && self.log.is_some() && !command.has(flag::COMPOUND) {
            self.effects.push(log_as.unwrap_or_else(|| args.to_vec()));
        }
        reaction
    }

    /// Logs what the command, script or transaction that just ended has changed.
    pub(super) fn flush_effects(&mut self, at: ServerTime) {
        if self.effects.is_empty() {
            return;
        }
        let effects = std::mem::take(&mut self.effects);
        let Some(log) = &mut self.log else { return };
        let whole = effects.len() > 1;
        let word = |word: &'static str| Logged { at, args: vec![Bytes::from_static(word.as_bytes())] };
        if whole {
            log.push(word("MULTI"));
        }
        log.extend(effects.into_iter().map(|args| Logged { at, args }));
        if whole {
            log.push(word("EXEC"));
        }
    }

    /// `EXEC`, once it is known that it may: every command in turn, nobody else in between.
    pub(super) fn run_transaction(&mut self, at: ServerTime, client: ClientId, multi: Multi) -> Value {
        let executing = |broker: &mut Self, commands| {
            if let Some(state) = broker.clients.get_mut(&client) {
                state.executing = commands;
            }
        };
        executing(self, Some(multi.queued.len()));
        let mut replies = Vec::with_capacity(multi.queued.len());
        for (command, args) in multi.queued {
            let reply = match self.call(at, client, command, &args, Mode::default()) {
                Ok(value) => value,
                Err(Stop::Error(text)) => Value::Error(text),
                Err(Stop::Block(block)) => block.otherwise,
            };
            replies.push(reply);
        }
        executing(self, None);
        Value::Array(replies)
    }

    /// Before a script runs: what it may do is decided now.
    pub(super) fn begin_script(&mut self) {
        self.script = ScriptState { out_of_memory: self.is_out_of_memory(), wrote: false };
    }

    /// A command of a script. Refusals are what `redis.pcall` would see.
    pub(super) fn call_from_script(&mut self, at: ServerTime, client: ClientId, args: &[Bytes]) -> Value {
        if args.is_empty() {
            return Value::error("ERR Please specify at least one argument for this redis lib call");
        }
        let command = match self.lookup(args) {
            Ok(command) => command,
            Err(refusal) if refusal.unknown => return Value::error("ERR Unknown Redis command called from script"),
            Err(_) => return Value::error("ERR Wrong number of args calling Redis command from script"),
        };
        // Since 7.2 the blocking commands on lists answer there as if their time was over.
        if command.has(flag::NO_SCRIPT) && !(self.profile.at_least(7, 2) && command.has(flag::WRITE)) {
            return Value::error("ERR This Redis command is not allowed from script");
        }
        if let Err(text) = self.admit_in_script(client, command) {
            return Value::Error(text);
        }
        self.script.wrote |= command.has(flag::WRITE);
        let reaction = self.call(at, client, command, args, Mode { in_script: true, ..Mode::default() });
        match reaction {
            Ok(value) => value,
            Err(Stop::Error(text)) => Value::Error(text),
            Err(Stop::Block(block)) => block.otherwise,
        }
    }

    fn admit_in_script(&self, client: ClientId, command: &'static Command) -> Result<(), String> {
        if self.clients.get(&client).is_some_and(|state| state.internal) {
            return Ok(());
        }
        // 6.2 does not count its replicas for a script.
        let uncounted = self.condition.no_replicas && !self.condition.misconf && !self.profile.at_least(7, 0);
        if !uncounted || self.condition.read_only {
            self.admit_write(command.flags, false)?;
        }
        if self.script.out_of_memory && !self.script.wrote && self.may_grow(command, command.flags) {
            return Err(OOM.into());
        }
        Ok(())
    }
}
