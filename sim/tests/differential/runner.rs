//! Runs a sequence on a real server and on a subject, command by command, and compares.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use crate::compare::{Known, Rule, times_in};
use crate::generator::{PASSWORD, Sequence, Step, Trouble, Word};
use crate::server::{Connection, NoReply, Server};
use crate::subject::{Sent, Subject, now_us};
use crate::wire::{Wire, readable};

/// The connection that looks on, watches nothing and never blocks.
pub(crate) const OBSERVER: usize = 0;

/// What was run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How often each command and option was run.
    pub(crate) names: BTreeMap<String, u64>,
    /// How often each was answered with an error.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Sequences.
    pub(crate) sequences: u64,
    /// Sequences in which some client was blocked.
    pub(crate) with_blocked: u64,
    /// Sequences that were given up because the server's clock went on within a transaction.
    pub(crate) ticked: u64,
    /// Commands.
    pub(crate) commands: u64,
}

/// The first difference in a sequence.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    /// The step at which it was seen; after the last one, the length.
    pub(crate) step: usize,
    /// What differs.
    pub(crate) what: String,
    /// What happened so far, a line each.
    pub(crate) history: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.history {
            writeln!(f, "    {line}")?;
        }
        let lines = self.what.lines().map(|line| line.chars().take(2_000).collect::<String>());
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

/// A real server and a subject beside it.
pub(crate) struct Bench<'a> {
    server: &'a Server,
    subject: &'a mut dyn Subject,
    observer: Connection,
    /// Takes no part: it only shows when the server has nothing more to do.
    sentinel: Connection,
    /// What the server is like now.
    trouble: Trouble,
    password: bool,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(server: &'a Server, subject: &'a mut dyn Subject) -> Self {
        let (observer, sentinel) = (server.connect(), server.connect());
        Self { server, subject, observer, sentinel, trouble: Trouble::None, password: false }
    }

    /// Something is wrong with both from now on.
    fn set_trouble(&mut self, trouble: Trouble) {
        if trouble != self.trouble {
            let memory = if trouble == Trouble::MemoryFull { "1" } else { "0" };
            self.sentinel.ask(&["CONFIG", "SET", "maxmemory", memory]);
            let replicas = if trouble == Trouble::NoReplicas { "1" } else { "0" };
            self.sentinel.ask(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
            self.trouble = trouble;
        }
        self.subject.set_trouble(trouble);
    }

    /// Runs a sequence on fresh connections and empty data. A panic of the subject is a difference, too.
    pub(crate) fn run(&mut self, sequence: &Sequence, tally: &mut Tally) -> Result<(), Difference> {
        let mut history = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| self.run_inner(sequence, tally, &mut history)));
        result.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
            let what = format!("panicked: {}", text.unwrap_or_default());
            Err(Difference { step: sequence.steps.len(), what, history })
        })
    }

    fn run_inner(
        &mut self,
        sequence: &Sequence,
        tally: &mut Tally,
        history: &mut Vec<String>,
    ) -> Result<(), Difference> {
        self.set_trouble(Trouble::None);
        for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
            let reply = self.observer.ask(command);
            assert_eq!(reply.bytes().map(Bytes::as_ref), Some(&b"OK"[..]), "{command:?} was answered with {reply:?}");
        }
        if self.password != sequence.password {
            self.password = sequence.password;
            self.sentinel.ask(&["CONFIG", "SET", "requirepass", if self.password { PASSWORD } else { "" }]);
        }
        self.subject.reset(sequence.password);
        let mut run = Run::new(self, sequence, history);
        let mut result = Ok(());
        let mut at = 0;
        while result.is_ok() && !run.ticked && at < sequence.steps.len() {
            result = run.step(&sequence.steps[at], tally);
            at += usize::from(result.is_ok());
        }
        let result = if run.ticked { result } else { result.and_then(|()| run.end()) };
        tally.ticked += u64::from(run.ticked);
        tally.sequences += 1;
        if sequence.password {
            *tally.names.entry("password".into()).or_default() += 1;
        }
        tally.with_blocked += u64::from(run.some_blocked);
        let result = result.map_err(|what| Difference { step: at, what, history: run.history.clone() });
        drop(run);
        // Nothing of this sequence's connections is left when the next one begins.
        self.sentinel.settle();
        result
    }
}

/// One sequence at work. Connection 0 is the observer.
pub(crate) struct Run<'b, 'a> {
    bench: &'b mut Bench<'a>,
    clients: Vec<Client>,
    known: Known,
    history: &'b mut Vec<String>,
    some_blocked: bool,
    /// It cannot be compared any further: the server's clock went on within a transaction.
    ticked: bool,
}

/// A connection on the real side, and what is known of it.
struct Client {
    /// None for the observer, which outlives sequences.
    connection: Option<Connection>,
    numbers: (i64, i64),
    /// How to compare the reply that a blocked command has yet to give.
    awaited: Rule,
    /// How to compare the replies of what is queued.
    queued: Vec<Rule>,
    /// A transaction has begun.
    multi: bool,
    /// It has subscribed to something since it was opened.
    subscribed: bool,
    /// Keys that expire as soon as what is queued has been run.
    short_lived: Vec<Bytes>,
    early: VecDeque<Wire>,
}

impl Client {
    fn new(connection: Option<Connection>, numbers: (i64, i64)) -> Self {
        let (queued, short_lived, early) = Default::default();
        Self { connection, numbers, awaited: Rule::Exact, queued, multi: false, subscribed: false, short_lived, early }
    }
}

impl<'b, 'a> Run<'b, 'a> {
    fn new(bench: &'b mut Bench<'a>, sequence: &Sequence, history: &'b mut Vec<String>) -> Self {
        let mut run =
            Self { bench, clients: Vec::new(), known: Known::default(), history, some_blocked: false, ticked: false };
        run.connect(OBSERVER);
        for (at, protocol) in sequence.protocols.iter().enumerate() {
            run.connect(at + 1);
            if *protocol == 3 {
                let args = [Bytes::from("HELLO"), Bytes::from("3")];
                run.connection(at + 1).send(&args);
                run.connection(at + 1).read().expect("a reply to HELLO");
                run.bench.subject.execute(now_us(), at + 1, &args);
            }
        }
        run
    }

    fn connect(&mut self, at: usize) {
        let mut connection = (at != OBSERVER).then(|| self.bench.server.connect());
        let asks = connection.as_mut().unwrap_or(&mut self.bench.observer);
        if self.bench.password && at != OBSERVER {
            asks.ask(&["AUTH", PASSWORD]);
        }
        let asked = asks.ask(&["CLIENT", "ID"]);
        if self.bench.password && at != OBSERVER {
            // It has to log in like everybody.
            asks.ask(&["RESET"]);
        }
        let Wire::Int(real) = asked else { panic!("CLIENT ID was answered with {asked:?}") };
        let model = self.bench.subject.connect(at);
        self.known.numbers.insert(real, model);
        let client = Client::new(connection, (real, model));
        if at < self.clients.len() {
            self.clients[at] = client;
        } else {
            self.clients.push(client);
        }
    }

    fn connection(&mut self, at: usize) -> &mut Connection {
        self.clients[at].connection.as_mut().unwrap_or(&mut self.bench.observer)
    }

    fn step(&mut self, step: &Step, tally: &mut Tally) -> Result<(), String> {
        let client = self.somebody_free(step.client)?;
        let Client { multi, subscribed, .. } = self.clients[client];
        if multi && is_one_of(&step.words, &["SUBSCRIBE", "UNSUBSCRIBE", "HELLO"])
            || multi && subscribed && is_one_of(&step.words, &["PUBLISH", "EVAL", "EVALSHA"])
        {
            return Ok(());
        }
        if self.bench.password && step.words.len() > 10 {
            // Longer commands of who has not logged in are refused before they are commands.
            return Ok(());
        }
        self.clients[client].subscribed |= is_one_of(&step.words, &["SUBSCRIBE"]);
        if let Some(trouble) = step.trouble {
            self.begin_trouble(trouble)?;
        }
        for name in &step.names {
            *tally.names.entry(name.clone()).or_default() += 1;
        }
        tally.commands += 1;
        let real = self.words(&step.words, |(real, _)| real, |(real, _)| real);
        let model = self.words(&step.words, |(_, model)| model, |(_, model)| model);
        self.command(client, &real, &model)?;
        let is_error =
            |line: &String| line.split_once("< -").is_some_and(|(_, text)| text.starts_with(char::is_uppercase));
        if self.history.last().is_some_and(is_error) {
            for name in &step.names {
                *tally.refused.entry(name.clone()).or_default() += 1;
            }
        }
        if self.bench.subject.is_blocked(client) {
            self.some_blocked = true;
            if step.timed {
                let sent = self.bench.subject.wait(now_us(), client);
                self.settle(client, Rule::Exact, sent)?;
            } else {
                self.expect_silence(client)?;
            }
        }
        self.let_expire(client, step)
    }

    fn begin_trouble(&mut self, trouble: Trouble) -> Result<(), String> {
        if trouble == Trouble::MemoryFull {
            // The model counts data only, so there has to be some.
            let args = ["SET", "ballast", "x"].map(|word| Bytes::from_static(word.as_bytes()));
            self.command(OBSERVER, &args, &args)?;
        }
        self.history.push(format!("trouble from here on: {trouble:?}"));
        self.bench.set_trouble(trouble);
        Ok(())
    }

    /// The client that a step is for, or the next one that is not blocked. When all are, the first is released.
    fn somebody_free(&mut self, wanted: usize) -> Result<usize, String> {
        let clients = self.clients.len() - 1;
        let order = (0..clients).map(|at| 1 + (wanted + at) % clients);
        let free = order.into_iter().find(|client| !self.bench.subject.is_blocked(*client));
        if let Some(client) = free {
            return Ok(client);
        }
        let client = 1 + wanted % clients;
        self.unblock(client)?;
        Ok(client)
    }

    fn unblock(&mut self, client: usize) -> Result<(), String> {
        let (real, model) = self.clients[client].numbers;
        let args = |number: i64| ["CLIENT", "UNBLOCK", &number.to_string()].map(|word| Bytes::from(word.to_string()));
        self.command(OBSERVER, &args(real), &args(model))
    }

    /// One side's words of a command.
    fn words(&self, words: &[Word], id: fn(&(String, String)) -> &String, number: fn((i64, i64)) -> i64) -> Vec<Bytes> {
        let words = words.iter().map(|word| match word {
            Word::Text(text) => text.clone(),
            Word::Id { nth, before, otherwise } => {
                let seen = &self.known.seen;
                let text = if seen.is_empty() { otherwise } else { id(&seen[nth % seen.len()]).as_str() };
                Bytes::from(format!("{before}{text}"))
            }
            Word::Client(client) => {
                let clients = self.clients.len() - 1;
                Bytes::from(number(self.clients[1 + client % clients].numbers).to_string())
            }
        });
        words.collect()
    }

    /// One command on both sides, and all that it leads to.
    pub(crate) fn command(&mut self, client: usize, real: &[Bytes], model: &[Bytes]) -> Result<(), String> {
        let words: Vec<_> = real.iter().map(|word| readable(&shortened(word))).collect();
        self.history.push(format!("{client}> {}", words.join(" ")));
        let rule = Rule::of(real);
        let mut at_us = now_us();
        self.connection(client).send(real);
        if takes_time_into_data(real) {
            // The server goes first, so that the subject can be told what its clock said.
            let reply = self.read(client)?;
            let times = times_in(&reply, at_us / 1000..=now_us() / 1000);
            if let Some(ms) = times.first() {
                at_us = at_us.max(ms * 1000).min(ms * 1000 + 999);
            }
            if times.len() > 1 {
                // Its clock went on within one transaction, as it may until 7.2; the model has one time for each.
                self.ticked = true;
                return Ok(());
            }
            self.clients[client].early.push_back(reply);
        }
        let sent = self.bench.subject.execute(at_us, client, model);
        if self.bench.subject.is_blocked(client) {
            self.clients[client].awaited = rule.clone();
        }
        self.settle(client, rule, sent)
    }

    /// Compares what the subject sent with what the server does.
    fn settle(&mut self, asked: usize, rule: Rule, sent: Vec<Sent>) -> Result<(), String> {
        for sent in sent {
            match sent {
                Sent::Close(at) => {
                    match self.read(at) {
                        Err(NoReply::Closed) => self.connect(at),
                        other => return Err(format!("connection {at}: server: {other:?}\n  model: closed")),
                    }
                    self.history.push(format!("{at}: closed and connected again"));
                }
                Sent::Reply(at, model) => {
                    let real = match self.clients[at].early.pop_front() {
                        Some(early) => early,
                        None => match self.read(at) {
                            Ok(real) => real,
                            Err(error) => {
                                return Err(format!("connection {at}: server: {error:?}\n  model: {model:?}"));
                            }
                        },
                    };
                    let rule = match &model {
                        Wire::Push(_) => Rule::Exact,
                        _ if at == asked => self.rule_now(at, &rule, &model),
                        _ => self.clients[at].awaited.clone(),
                    };
                    self.history.push(format!("{at}< {}", shortened_text(&format!("{real:?}"))));
                    if !rule.same(&real, &model, &mut self.known) {
                        let essence = rule.essence(&real, &model, &self.known);
                        return Err(format!(
                            "connection {at}, compared by {rule:?}\n  server: {real:?}\n  model:  {model:?}{essence}"
                        ));
                    }
                }
            }
        }
        if let Some(extra) = self.clients[asked].early.pop_front() {
            return Err(format!("connection {asked}: server: {extra:?}\n  model: nothing"));
        }
        Ok(())
    }

    /// The rule for a reply of a client that may be in a transaction.
    fn rule_now(&mut self, at: usize, rule: &Rule, model: &Wire) -> Rule {
        let (begins, ends) = (self.last_command_is(&["MULTI"]), self.last_command_is(&["EXEC", "DISCARD", "RESET"]));
        let client = &mut self.clients[at];
        client.multi = (client.multi || begins && *model == Wire::Status(Bytes::from_static(b"OK"))) && !ends;
        match model {
            Wire::Status(text) if text == "QUEUED" => {
                client.queued.push(rule.clone());
                Rule::Exact
            }
            Wire::Array(replies) if ends && replies.len() == client.queued.len() => {
                Rule::Each(std::mem::take(&mut client.queued))
            }
            _ => {
                if ends {
                    client.queued.clear();
                }
                rule.clone()
            }
        }
    }

    fn last_command_is(&self, names: &[&str]) -> bool {
        let command = self.history.iter().rev().find_map(|line| line.split_once("> "));
        command.is_some_and(|(_, words)| names.contains(&words))
    }

    /// The next reply of the server. Silence is certain: the server has had nothing more to do.
    fn read(&mut self, at: usize) -> Result<Wire, NoReply> {
        match self.connection(at).read_soon() {
            Err(NoReply::Silent) if at != OBSERVER => {
                self.bench.sentinel.settle();
                self.connection(at).read_now()
            }
            reply => reply,
        }
    }

    fn expect_silence(&mut self, at: usize) -> Result<(), String> {
        self.bench.sentinel.settle();
        match self.connection(at).read_now() {
            Err(NoReply::Silent) => Ok(()),
            other => Err(format!("connection {at}: server: {other:?}\n  model: blocked")),
        }
    }

    /// After a key got a time to live of a millisecond, it expires on both sides before anything else happens.
    fn let_expire(&mut self, client: usize, step: &Step) -> Result<(), String> {
        if step.names.iter().any(|name| name.ends_with("PX 1") || name.ends_with("PEXPIRE 1")) {
            let key = self.words(&step.words[1..2], |(real, _)| real, |(real, _)| real).remove(0);
            self.clients[client].short_lived.push(key);
        }
        if !self.clients[client].queued.is_empty() {
            return Ok(());
        }
        for key in std::mem::take(&mut self.clients[client].short_lived) {
            let args = [Bytes::from("PTTL"), key.clone()];
            let until = now_us() + 3_000;
            while now_us() < until {
                std::thread::yield_now();
            }
            self.command(OBSERVER, &args, &args)?;
        }
        Ok(())
    }

    /// Releases who is blocked and compares all data.
    fn end(&mut self) -> Result<(), String> {
        self.bench.set_trouble(Trouble::None);
        for client in 1..self.clients.len() {
            if self.bench.subject.is_blocked(client) {
                self.unblock(client)?;
            }
        }
        for client in 1..self.clients.len() {
            self.expect_silence(client)?;
        }
        let gaps = self.bench.subject.gaps();
        let asked = |gap: &&String| !gap.to_lowercase().contains("bogus");
        if let Some(gap) = gaps.iter().find(asked) {
            return Err(format!("not modelled: {gap}"));
        }
        crate::dump::compare(self)
    }

    /// One command of the observer on both sides. Returns what the server said.
    pub(crate) fn observe(&mut self, args: &[Bytes]) -> Result<Wire, String> {
        let rule = Rule::of(args);
        self.bench.observer.send(args);
        let real = self.bench.observer.read().map_err(|error| format!("the observer's connection: {error:?}"))?;
        let sent = self.bench.subject.execute(now_us(), OBSERVER, args);
        let [Sent::Reply(OBSERVER, model)] = sent.as_slice() else {
            return Err(format!("{args:?} was answered by the model with {sent:?}"));
        };
        if rule.same(&real, model, &mut self.known) {
            return Ok(real);
        }
        Err(format!(
            "afterwards, {args:?}\n  server: {real:?}\n  model:  {model:?}{}",
            rule.essence(&real, model, &self.known)
        ))
    }
}

impl From<NoReply> for String {
    fn from(error: NoReply) -> Self {
        format!("no reply: {error:?}")
    }
}

/// Whether the server's clock decides what ids the data gets. None of these commands blocks.
fn takes_time_into_data(args: &[Bytes]) -> bool {
    let name = args.first().map(|name| name.to_ascii_uppercase()).unwrap_or_default();
    matches!(name.as_slice(), b"XADD" | b"EVAL" | b"EVALSHA" | b"EXEC")
}

/// Whether a command is one of these. Transactions are spared what has more or fewer replies than one, what changes the
/// protocol, and what a subscriber publishes, which older servers write into the middle of the reply.
fn is_one_of(words: &[Word], names: &[&str]) -> bool {
    let Some(Word::Text(name)) = words.first() else { return false };
    names.iter().any(|other| name == other)
}

fn shortened(word: &Bytes) -> Bytes {
    if word.len() <= 160 { word.clone() } else { word.slice(..160) }
}

fn shortened_text(text: &str) -> String {
    text.chars().take(400).collect()
}
