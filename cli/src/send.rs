//! `flota send`: messages to a topic.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;
use flota_core::op::{NotSent, OpError, Stored};
use flota_core::topic::Message;
use flota_tokio::Error;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::args::SendArgs;
use crate::error::{End, Failure, Outcome};
use crate::fleet::{Addresses, CLOSE, Fleet};
use crate::output::{self, Progress};
use crate::signal::Signals;

/// Lines that are read ahead of those being sent.
const LINES_AHEAD: usize = 1_024;
/// Lines are sent together as they come, up to this many bytes at a time.
const BATCH_BYTES: usize = 4 << 20;

pub(crate) async fn run(args: &SendArgs) -> Outcome {
    let mut signals = Signals::new()?;
    let mut bodies = bodies(args);
    let fleet = Fleet::connect(&args.fleet).await?;
    let topic = fleet.client.topic(&args.topic);
    let topic = args.partitions.map_or(topic.clone(), |partitions| topic.partitions(partitions));
    let mut tally = Tally::new(&fleet);
    if args.body.is_none() {
        // Many lines: the first broker that is ready must not get them all.
        tokio::select! {
            _ = signals.next() => return Ok(End::Interrupted),
            gathered = fleet.gathered() => gathered?,
        }
    }

    let mut progress = Progress::new();
    let end = loop {
        tokio::select! {
            biased;
            _ = signals.next() => break End::Interrupted,
            batch = next_batch(&mut bodies) => {
                let batch: Vec<Message> = batch?.into_iter().map(|body| message(args, body)).collect();
                if batch.is_empty() {
                    break End::Done;
                }
                let results = tokio::select! {
                    _ = signals.next() => break End::Interrupted,
                    results = topic.send_all(batch) => results,
                };
                results.into_iter().for_each(|result| tally.count(result));
                progress.say(format_args!("{} sent", tally.sent));
                // The next would wait as long, for the same.
                if tally.nobody {
                    break End::Done;
                }
            },
        }
    };
    drop(progress);
    let failure = tally.failure(&fleet, args).await?;
    fleet.client.close(CLOSE).await?;
    tally.summary(args)?;
    match failure {
        Some(failure) if end == End::Done => Err(failure),
        _ => Ok(end),
    }
}

fn message(args: &SendArgs, body: Bytes) -> Message {
    let mut message = Message::new(body);
    if let Some(key) = &args.key {
        message = message.key(key.clone());
    }
    if let Some(delay) = args.delay {
        message = message.delay(delay);
    }
    for (name, value) in &args.headers {
        message = message.header(name.clone(), value.clone());
    }
    message
}

/// The bodies as they come, from a thread: reading standard input cannot be interrupted.
fn bodies(args: &SendArgs) -> mpsc::Receiver<Result<Bytes, Failure>> {
    let (bodies, receiver) = mpsc::channel(LINES_AHEAD);
    match args.body.as_deref().map(OsStrExt::as_bytes) {
        Some(b"-") => drop(std::thread::spawn(move || bodies.blocking_send(all_of_stdin()))),
        Some(body) => {
            let body = Bytes::copy_from_slice(body);
            // It is empty: one message has room.
            let _ = bodies.try_send(Ok(body));
        }
        None => drop(std::thread::spawn(move || lines_of_stdin(&bodies))),
    }
    receiver
}

fn all_of_stdin() -> Result<Bytes, Failure> {
    let mut all = Vec::new();
    io::stdin().lock().read_to_end(&mut all).map_err(|error| unreadable(&error))?;
    Ok(all.into())
}

fn lines_of_stdin(bodies: &mpsc::Sender<Result<Bytes, Failure>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let body = match input.read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                Ok(line.into())
            }
            Err(error) => Err(unreadable(&error)),
        };
        let last = body.is_err();
        // Nobody takes them any more when the sending has ended.
        if bodies.blocking_send(body).is_err() || last {
            return;
        }
    }
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::io("cannot read standard input", error)
}

/// Waits for a body, and takes what has come meanwhile with it. Empty at the end.
async fn next_batch(bodies: &mut mpsc::Receiver<Result<Bytes, Failure>>) -> Result<Vec<Bytes>, Failure> {
    let mut batch = Vec::new();
    let Some(first) = bodies.recv().await else { return Ok(batch) };
    let mut bytes = 0;
    let mut next = Ok(first);
    while let Ok(body) = next {
        let body = body?;
        bytes += body.len();
        batch.push(body);
        if bytes >= BATCH_BYTES || batch.len() >= LINES_AHEAD {
            break;
        }
        next = bodies.try_recv();
    }
    Ok(batch)
}

/// What came of the messages so far.
struct Tally {
    addresses: Addresses,
    sent: u64,
    failed: u64,
    by_broker: BTreeMap<String, u64>,
    /// The first of each kind, and how many of it.
    errors: BTreeMap<String, u64>,
    nobody: bool,
}

impl Tally {
    fn new(fleet: &Fleet) -> Self {
        Self {
            addresses: Addresses::of(&fleet.client),
            sent: 0,
            failed: 0,
            by_broker: BTreeMap::new(),
            errors: BTreeMap::new(),
            nobody: false,
        }
    }

    fn count(&mut self, result: Result<Stored, Error>) {
        match result {
            Ok(stored) => {
                self.sent += 1;
                *self.by_broker.entry(self.addresses.of_broker(stored.broker)).or_default() += 1;
            }
            Err(error) => {
                self.failed += 1;
                self.nobody |= matches!(error, Error::Op(OpError::NotSent(NotSent::NoBroker)));
                *self.errors.entry(error.to_string()).or_default() += 1;
            }
        }
    }

    async fn failure(&self, fleet: &Fleet, args: &SendArgs) -> Result<Option<Failure>, Failure> {
        if self.failed == 0 {
            return Ok(None);
        }
        let sum = format!("{} of {} messages to {} were not sent", self.failed, self.failed + self.sent, args.topic);
        if self.nobody {
            return Ok(Some(fleet.nobody().await?.detail(sum)));
        }
        let mut failure = Failure::new("not_sent", sum);
        for (error, count) in &self.errors {
            failure = failure.detail(format!("{count}: {error}"));
        }
        Ok(Some(failure.hint("what was sent stays sent; send the others again when the cause is gone")))
    }

    fn summary(&self, args: &SendArgs) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Summary<'a> {
            sent: u64,
            failed: u64,
            by_broker: &'a BTreeMap<String, u64>,
        }
        if args.json {
            return output::json(&Summary { sent: self.sent, failed: self.failed, by_broker: &self.by_broker });
        }
        let plural = if self.sent == 1 { "" } else { "s" };
        let places: Vec<String> =
            self.by_broker.iter().map(|(address, count)| format!("{count} to {address}")).collect();
        let colon = if places.is_empty() { "" } else { ": " };
        output::line(&format!("sent {} message{plural}{colon}{}", self.sent, places.join(", ")))
    }
}
