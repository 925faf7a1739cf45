//! `flota demo`: brokers, announcers and workers as processes, faults while messages flow, and an account at the end.

mod board;
mod faults;
mod ledger;
mod processes;
mod queries;
mod sender;
mod servers;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use flota_sim::embedded::{Fsync, Options};
use flota_tokio::connect;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::board::Board;
use self::faults::{Facts, Stage};
use self::ledger::{Account, Ledger};
use self::sender::Pace;
pub(crate) use self::servers::Ports;
use self::servers::{Segment, Server};
use self::table::Screen;
use crate::error::{End, Failure, Outcome};
use crate::output;
use crate::signal::Signals;

/// The topic and the group of the demo.
const TOPIC: &str = "demo";
/// See [`TOPIC`].
const GROUP: &str = "demo";

/// The faults need this long: a worker's messages are claimed after some seconds, a silent broker expires after six.
const FLOW_WITH_FAULTS: Duration = Duration::from_secs(18);
/// Fewer messages make bursts too rare for the faults to fall into.
const FEWEST_WITH_FAULTS: usize = 1_000;
/// From the start of the processes to a fleet that is ready.
const GATHER: Duration = Duration::from_secs(10);
/// From the last send to the last message handled.
const DRAIN: Duration = Duration::from_secs(20);
/// For the processes to end by themselves.
const STOP: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(after_help = "\
Everything runs on 127.0.0.1, on free ports, in a temporary folder, and ends with the demo. While messages flow, a
worker is killed -9 with messages in hand, a broker is killed as a machine dies, server and announcer together, and
restarted with its data after its expiry was seen, and a broker is added. Exit status 0 means that every message was
handled and that each of these faults did happen.")]
pub(crate) struct DemoArgs {
    /// How many brokers to start with
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=50))]
    brokers: u16,
    /// How many workers to start with
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=50))]
    workers: u16,
    /// How many messages to send
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    messages: u32,
    /// The most messages a second; fewer when the faults would not fall into the flow
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Model brokers of this program's own instead of servers; also when no server is in PATH
    #[arg(long)]
    embedded: bool,
    /// Without faults
    #[arg(long)]
    calm: bool,
    /// Leave broker data, the ids sent and each worker's log in this folder, so that somebody else can count
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write the account as JSON; progress goes to standard error
    #[arg(long)]
    pub(crate) json: bool,
}

/// An embedded broker of a demo: for the demo only.
#[derive(Debug, Args)]
pub(crate) struct BrokerArgs {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    dir: PathBuf,
}

/// A worker of a demo: for the demo only.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    name: String,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    fleet: String,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    in_flight: u32,
    #[arg(long)]
    concurrency: u32,
    #[arg(long)]
    work_us: u64,
    #[arg(long)]
    claim_after_ms: u64,
}

/// Becomes another program that ends with the demo: for the demo only.
#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    parent: u32,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The account, as `--json` writes it.
#[derive(Debug, Serialize)]
struct Report {
    sent: usize,
    handled: usize,
    lost: usize,
    redelivered: usize,
    brokers: BrokerCounts,
    workers: WorkerCounts,
    joined_ms: Option<u64>,
    evicted_ms: Option<u64>,
    recovered_ms: Option<u64>,
    seconds: f64,
    messages_per_second: f64,
    /// What serves the brokers: the name of a program, or `embedded`.
    server: String,
    /// What the killed worker had in hand.
    held: usize,
    /// From the start of the restarted broker's announcer to the next message placed on it.
    returned_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct BrokerCounts {
    started: usize,
    killed: usize,
    restarted: usize,
    added: usize,
}

#[derive(Debug, Serialize)]
struct WorkerCounts {
    started: usize,
    killed: usize,
}

/// Runs the demo.
pub(crate) async fn run(args: &DemoArgs) -> Outcome {
    let mut signals = Signals::new()?;
    if !args.calm && (args.messages as usize) < FEWEST_WITH_FAULTS {
        let few = format!("--messages {}: at least {FEWEST_WITH_FAULTS}, or the faults miss the flow", args.messages);
        return Err(Failure::usage(few).hint("add --calm for a small demo without faults"));
    }
    // Dropped last, when every child is gone.
    let folder = Folder::make(args.keep.as_deref())?;
    tokio::select! {
        result = show(args, &folder.path) => result.map(|()| End::Done),
        _ = signals.next() => Ok(End::Interrupted),
    }
}

/// An embedded broker of a demo.
pub(crate) async fn broker(args: &BrokerArgs) -> Outcome {
    let (address, dir) = (args.listen, Some(args.dir.clone()));
    crate::dev::one(Options { address, dir, fsync: Fsync::Always, ..Options::default() }).await
}

/// A worker of a demo.
pub(crate) async fn worker(args: &WorkerArgs) -> Outcome {
    let work = processes::Work {
        name: args.name.clone(),
        listen: args.listen,
        fleet: args.fleet.clone(),
        log: args.log.clone(),
        in_flight: args.in_flight,
        concurrency: args.concurrency,
        work: Duration::from_micros(args.work_us),
        claim_after: Duration::from_millis(args.claim_after_ms),
    };
    processes::work(work).await.map(|()| End::Done)
}

/// Becomes another program.
pub(crate) fn guard(args: &GuardArgs) -> Outcome {
    processes::guard(args.parent, &args.words).map(|never| match never {})
}

async fn show(args: &DemoArgs, folder: &Path) -> Result<(), Failure> {
    let messages = args.messages as usize;
    let server = Server::pick(args.embedded);
    let sent_log = folder.join("sent.log");
    let ledger = Ledger::new(&sent_log).map_err(|why| fail(format!("cannot write {}: {why}", sent_log.display())))?;
    let board = Board::new(ledger, messages);
    if matches!(server, Server::Embedded) && !args.embedded {
        board.say("neither redis-server nor valkey-server is in PATH: the brokers are embedded ones");
    }
    let mut ports = Ports::new();
    let segment = Segment::pick(&mut ports)?;
    let client = connect(processes::config(segment.listen, &segment.name, "demo-sender")).await?;
    let pace = Pace::new(messages, args.rate, flow(args), args.workers);
    let mut stage = Stage::new(board.clone(), client.clone(), server.clone(), folder, segment, ports, pace.workload());

    let screen = Screen::new(board.clone(), args.json, Instant::now());
    let curtain = Arc::new(Notify::new());
    let watch = Task(tokio::spawn(board::watch(board.clone(), client.clone(), client.events())));
    let pending = Task(tokio::spawn(board::watch_pending(board.clone(), client.clone())));
    let mut shown = Task(tokio::spawn(screen.show(Arc::clone(&curtain))));
    stage.gather(args.brokers, args.workers, Instant::now() + GATHER).await?;

    let start = Instant::now();
    let mut sending = Task(tokio::spawn(sender::send(board.clone(), client.topic(TOPIC), messages, pace)));
    let facts = if args.calm { Facts::default() } else { stage.faults(start).await? };
    sent(&mut sending, pace.length()).await?;
    let sent_at = Instant::now();
    let drained = board.until(sent_at + DRAIN, |state| state.is_drained().then_some(())).await;
    if drained.is_some() {
        stage.stop_workers(Instant::now() + STOP).await;
    }
    let dead = stage.count_dead().await;
    drop((watch, pending));
    let report = report(&server, &board, &stage, &facts, start);
    stage.stop_brokers(Instant::now() + STOP).await;
    drop(stage);
    curtain.notify_one();
    // The table is for looking at: without it the account still counts.
    let _ = (&mut shown.0).await;
    tell(args, &report, &facts)?;
    let mut wrong = facts.missing(args.calm);
    wrong.extend(complaints(&board, messages, drained.is_some(), dead));
    judge(wrong, args.keep.as_deref())
}

/// How long to send.
fn flow(args: &DemoArgs) -> Duration {
    let quick = Duration::from_secs_f64(f64::from(args.messages) / f64::from(args.rate));
    if args.calm { quick } else { quick.max(FLOW_WITH_FAULTS) }
}

/// Waits for the sender. Sends wait half a minute for a broker; after that the demo has failed anyway.
async fn sent(sending: &mut Task, length: Duration) -> Result<(), Failure> {
    const PATIENCE: Duration = Duration::from_secs(35);
    match tokio::time::timeout(length + PATIENCE, &mut sending.0).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(fail(format!("the sender has failed: {why}"))),
        Err(_) => Err(fail("the sender has not finished in time")),
    }
}

fn report(server: &Server, board: &Board, stage: &Stage<'_>, facts: &Facts, start: Instant) -> Report {
    let state = board.lock();
    let Account { sent, handled, lost, redelivered } = state.ledger.account();
    let end = state.ledger.last_handled().unwrap_or(start);
    let seconds = end.saturating_duration_since(start).as_secs_f64();
    Report {
        sent,
        handled,
        lost,
        redelivered,
        brokers: BrokerCounts {
            started: stage.brokers_started(),
            killed: facts.brokers_killed,
            restarted: facts.brokers_restarted,
            added: facts.brokers_added,
        },
        workers: WorkerCounts { started: stage.workers_started(), killed: facts.workers_killed },
        joined_ms: facts.joined.map(millis),
        evicted_ms: facts.evicted_ms,
        recovered_ms: facts.recovered.map(millis),
        seconds: (seconds * 1e3).round() / 1e3,
        messages_per_second: if seconds > 0.0 { (handled as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 },
        server: server.name(),
        held: facts.held,
        returned_ms: facts.returned.map(millis),
    }
}

fn tell(args: &DemoArgs, report: &Report, facts: &Facts) -> Result<(), Failure> {
    if args.json {
        return output::json(report);
    }
    let Report { sent, handled, lost, redelivered, seconds, messages_per_second, .. } = report;
    output::line("")?;
    output::line(&format!("{sent} sent, {handled} handled, {lost} lost; {redelivered} were handled more than once"))?;
    output::line(&format!("{seconds} s, {messages_per_second} messages a second"))?;
    for line in facts.story() {
        output::line(&line)?;
    }
    if let Some(folder) = &args.keep {
        output::line(&format!(
            "kept in {}: sent.log, worker-N.log, brokers.tsv and the brokers' data",
            folder.display()
        ))?;
    }
    Ok(())
}

/// What is wrong besides the faults, in words.
fn complaints(board: &Board, messages: usize, drained: bool, dead: Result<usize, String>) -> Vec<String> {
    let state = board.lock();
    let account = state.ledger.account();
    let mut wrong = Vec::new();
    if account.lost > 0 {
        wrong.push(format!("{} messages were not handled", account.lost));
    }
    if account.sent < messages {
        wrong.push(format!("{} of {messages} messages were not sent", messages - account.sent));
    }
    match dead {
        Ok(0) => {}
        Ok(count) => wrong.push(format!("{count} messages became dead letters")),
        Err(why) => wrong.push(why),
    }
    if !drained && account.lost == 0 {
        wrong.push(format!("after {DRAIN:?} messages are still pending, or a broker is not back"));
    }
    if state.ledger.strangers() > 0 {
        wrong.push(format!("workers handled {} messages that were not sent", state.ledger.strangers()));
    }
    wrong.extend(state.trouble.clone());
    wrong
}

fn judge(wrong: Vec<String>, kept: Option<&Path>) -> Result<(), Failure> {
    if wrong.is_empty() {
        return Ok(());
    }
    let failure = wrong.into_iter().fold(fail("the demo did not go as it should"), Failure::detail);
    Err(match kept {
        Some(folder) => failure.hint(format!("the logs in {} say more", folder.display())),
        None => failure.hint("run it again with --keep DIR: the logs there say more"),
    })
}

fn fail(message: impl ToString) -> Failure {
    Failure::new("demo", message.to_string())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A task that ends with whoever holds it.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Where the demo's files are; removed at the end unless they are to be kept.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    fn make(keep: Option<&Path>) -> Result<Self, Failure> {
        let path = match keep {
            Some(path) => path.to_path_buf(),
            None => std::env::temp_dir().join(format!("flota-demo-{}", std::process::id())),
        };
        let failed = |why| Failure::io(format!("cannot make the folder {}", path.display()), &why);
        fs::create_dir_all(&path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        if fs::read_dir(&path).map_err(failed)?.next().is_some() {
            return Err(Failure::usage(format!("{} is not empty", path.display())).hint("name a new folder"));
        }
        Ok(Self { path, keep: keep.is_some() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // A demo that has ended well does not fail over its temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
