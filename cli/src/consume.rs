//! `flota consume`: messages of a topic, printed or given to a command.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use flota_core::driver::{Job, Subscription};
use flota_core::op::{Settled, Start};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::args::{ConsumeArgs, From};
use crate::error::{End, Failure, Outcome};
use crate::exec::{Exec, Exit};
use crate::fleet::{Addresses, CLOSE, Fleet};
use crate::output;
use crate::signal::Signals;

/// How long the brokers may take to hear what was settled last.
const SETTLE: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &ConsumeArgs) -> Outcome {
    if args.partitioned {
        return Err(Failure::usage("--partitioned: exclusive partitions are not there yet")
            .hint("without it any number of consumers share each partition, and messages of one key may overtake"));
    }
    let mut signals = Signals::new()?;
    let fleet = Fleet::connect(&args.fleet).await?;
    let jobs = subscribe(&fleet, args).await?;
    let mut consumer = Consumer {
        args,
        jobs,
        addresses: Addresses::of(&fleet.client),
        exec: args.exec.as_ref().map(|command| Arc::new(Exec::new(command, args.handler_timeout, args.json))),
        tasks: JoinSet::new(),
        taken: 0,
        quiet_since: Instant::now(),
    };
    let outcome = consumer.work(&fleet, &mut signals).await;
    let closed = consumer.close(&mut signals).await;
    let _ = fleet.client.close(CLOSE).await;
    let end = outcome?;
    Ok(closed?.unwrap_or(end))
}

async fn subscribe(fleet: &Fleet, args: &ConsumeArgs) -> Result<Subscription, Failure> {
    let start = match args.from {
        From::Start => Start::Oldest,
        From::Now => Start::Now,
    };
    // More than it may take would only be given back.
    let most = args.max.and_then(|max| u32::try_from(max).ok()).unwrap_or(u32::MAX);
    let group = fleet.client.topic(&args.topic).group(&args.group);
    let group = group
        .start(start)
        .in_flight(args.in_flight.min(most))
        .claim_after(args.claim_after)
        // A short silence is looked for as often as it may last.
        .claim_period(args.claim_after.min(CLAIM_PERIOD))
        .max_deliveries(args.max_deliveries);
    let subscribed = group.subscribe().await;
    subscribed
        .map_err(|why| Failure::new("subscribe", format!("cannot consume {} as {}: {why}", args.topic, args.group)))
}

const CLAIM_PERIOD: Duration = Duration::from_secs(5);

/// One member of the group.
struct Consumer<'a> {
    args: &'a ConsumeArgs,
    jobs: Subscription,
    addresses: Addresses,
    exec: Option<Arc<Exec>>,
    /// Commands that are running.
    tasks: JoinSet<Result<(), Failure>>,
    taken: u64,
    quiet_since: Instant,
}

impl Consumer<'_> {
    /// Until it is stopped, or has had enough.
    async fn work(&mut self, fleet: &Fleet, signals: &mut Signals) -> Outcome {
        let mut alone = Some(Instant::now() + fleet.wait());
        loop {
            let enough = self.args.max.is_some_and(|max| self.taken >= max);
            let room = !enough && self.tasks.len() < usize::try_from(self.args.concurrency).unwrap_or(usize::MAX);
            let busy = !self.tasks.is_empty();
            if enough && !busy {
                return Ok(End::Done);
            }
            let idle = self.args.idle.filter(|_| !busy).map(|idle| self.quiet_since + idle);
            tokio::select! {
                end = signals.next() => return Ok(end),
                job = self.jobs.next(), if room => match job {
                    Some(job) => self.take(job)?,
                    None => return Err(flota_tokio::Stopped.into()),
                },
                Some(ended) = self.tasks.join_next(), if busy => {
                    self.quiet_since = Instant::now();
                    ended.map_err(|error| Failure::new("internal", error.to_string()))??;
                }
                // Silence means nothing where nobody could have spoken.
                () = at(idle) => return if self.anybody(fleet) { Ok(End::Done) } else { Err(fleet.nobody().await?) },
                () = at(alone) => {
                    alone = None;
                    if !self.anybody(fleet) {
                        tracing::warn!("still waiting: {}", fleet.nobody().await?.in_one_line());
                    }
                }
            }
        }
    }

    fn anybody(&self, fleet: &Fleet) -> bool {
        fleet.client.fleet().iter().any(|broker| broker.ready)
    }

    fn take(&mut self, job: Job) -> Result<(), Failure> {
        self.taken += 1;
        self.quiet_since = Instant::now();
        let broker = self.addresses.of_broker(job.broker());
        match &self.exec {
            Some(exec) => {
                drop(self.tasks.spawn(handle(job, broker, Arc::clone(exec), self.args.max_deliveries, self.args.json)));
                Ok(())
            }
            None => {
                let printed = if self.args.json { output::json(&Line::new(&job, &broker)) } else { print(job.body()) };
                match printed {
                    // Nobody waits for the answer: the closing does.
                    Ok(()) => drop(job.done()),
                    Err(_) => drop(job.release()),
                }
                printed
            }
        }
    }

    /// Gives back what was not begun and lets what runs finish, unless a second signal says that there is no time.
    async fn close(self, signals: &mut Signals) -> Result<Option<End>, Failure> {
        let Self { args, jobs, mut tasks, .. } = self;
        let grace = if tasks.is_empty() { SETTLE } else { args.handler_timeout + SETTLE };
        let stopped = tokio::select! {
            _ = signals.next() => Ok(Some(End::Interrupted)),
            // Everything is settled, and the brokers have heard it.
            closed = jobs.close(grace) => closed.map(|()| None).map_err(Failure::from),
        };
        // What still runs is killed.
        tasks.shutdown().await;
        stopped
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}

fn print(body: &[u8]) -> Result<(), Failure> {
    let mut line = Vec::with_capacity(body.len() + 1);
    line.extend_from_slice(body);
    line.push(b'\n');
    output::write(&line)
}

/// Runs the command for one message and settles it.
async fn handle(job: Job, broker: String, exec: Arc<Exec>, max_deliveries: u32, json: bool) -> Result<(), Failure> {
    let exit = exec.run(&job, &broker).await;
    // Said before it is settled: a line too many is a smaller fault than one that is missing.
    let said = if json { output::json(&Line { exit: exit.code(), ..Line::new(&job, &broker) }) } else { Ok(()) };
    let id = job.id().to_string();
    let receipt = match exit {
        Exit::Done => job.done(),
        Exit::Failed { reason, .. } => {
            if job.attempt() < max_deliveries {
                tracing::warn!("{id} will be tried again: {reason}");
            } else {
                let topic = job.topic().to_string();
                tracing::warn!(
                    "{id} is a dead letter after {max_deliveries} deliveries: {reason}; see flota dlq show {topic} {id}"
                );
            }
            job.retry(reason)
        }
    };
    match receipt.await {
        Ok(Settled::Ok) => {}
        Ok(Settled::Fenced) => tracing::warn!("{id} was taken over by another consumer while it was handled here"),
        Ok(Settled::Lost(why)) => tracing::warn!("{id} is no longer there to be settled: {why}"),
        Err(_) => tracing::warn!("{id} was handled, but this could not be said to its broker: it may come again"),
    }
    said
}

/// A message, as programs read it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: &'a str,
    entry: String,
    body: output::Bytes<'a>,
    topic: &'a str,
    group: &'a str,
    broker: &'a str,
    partition: u32,
    attempt: u32,
    deliveries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<output::Bytes<'a>>,
    headers: BTreeMap<&'a str, output::Bytes<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<i32>,
}

impl<'a> Line<'a> {
    fn new(job: &'a Job, broker: &'a str) -> Self {
        let mut headers = BTreeMap::new();
        for (name, value) in job.headers() {
            headers.entry(name).or_insert(output::Bytes(value));
        }
        Self {
            id: job.id(),
            entry: job.entry().to_string(),
            body: output::Bytes(job.body()),
            topic: job.topic(),
            group: job.group(),
            broker,
            partition: job.partition(),
            attempt: job.attempt(),
            deliveries: job.deliveries(),
            key: job.key().map(output::Bytes),
            headers,
            exit: None,
        }
    }
}
