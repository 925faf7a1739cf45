//! The stage: processes come, die and come back while messages flow.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flota_tokio::Client;
use flota_tokio::topic::MessageId;
use tokio::time::{sleep, sleep_until};

use super::board::Board;
use super::processes::{Process, this_program};
use super::sender::Workload;
use super::servers::{Broker, Ports, Segment, Server, data_folder};
use super::{Failure, fail, millis, queries};

/// After the start of the flow: when a worker is killed, and when a broker is added.
const KILL_WORKER: Duration = Duration::from_secs(2);
/// See [`KILL_WORKER`].
const ADD_BROKER: Duration = Duration::from_millis(3_500);
/// After the start of the flow: a broker dies once the killed worker's messages are in other hands, so that none of them
/// lies on it, but not later than this.
const KILL_BROKER_BY: Duration = Duration::from_secs(8);
/// A worker is killed with at least this many messages in hand.
const HELD: u64 = 10;
/// Looking for such a worker ends after this time.
const LOOK_FOR_HELD: Duration = Duration::from_secs(5);
/// What a frozen worker had written before is with the brokers after this time.
const SETTLE: Duration = Duration::from_millis(20);
/// Workers claim the messages of one that has been silent this long.
const CLAIM_AFTER: Duration = Duration::from_secs(2);
/// From an announcer's start to the first message on its broker; more is a failure.
const JOIN: Duration = Duration::from_secs(5);
/// From a broker's death to its expiry; more is a failure.
const EXPIRE: Duration = Duration::from_secs(10);
/// From a worker's death to the last of its messages handled by another; more is a failure.
const RECOVER: Duration = Duration::from_secs(15);

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) brokers_killed: usize,
    pub(crate) brokers_restarted: usize,
    pub(crate) brokers_added: usize,
    pub(crate) workers_killed: usize,
    /// Messages the killed worker had in hand.
    pub(crate) held: usize,
    /// From the start of the added broker's announcer to the first message placed on it.
    pub(crate) joined: Option<Duration>,
    /// From the killed broker's last announcement to its expiry.
    pub(crate) evicted_ms: Option<u64>,
    /// From the start of the restarted broker's announcer to the next message placed on it.
    pub(crate) returned: Option<Duration>,
    /// From the kill of the worker to the last of its messages handled by another.
    pub(crate) recovered: Option<Duration>,
}

impl Facts {
    /// What was to happen and did not.
    pub(crate) fn missing(&self, calm: bool) -> Vec<String> {
        let faults = [
            (self.workers_killed > 0, "no worker was killed with enough messages in hand"),
            (self.recovered.is_some(), "other workers did not handle all that the killed one had in hand"),
            (self.joined.is_some(), "no message was placed on the broker that was added"),
            (self.evicted_ms.is_some(), "the expiry of the killed broker was not seen"),
            (self.returned.is_some(), "no message was placed on the broker that was restarted"),
        ];
        let missing = faults.iter().filter(|(happened, _)| !calm && !happened);
        missing.map(|(_, what)| (*what).to_string()).collect()
    }

    /// The faults, a line each.
    pub(crate) fn story(&self) -> Vec<String> {
        let mut story = Vec::new();
        if let Some(after) = self.recovered {
            let (held, after) = (self.held, millis(after));
            story.push(format!(
                "a worker was killed with {held} messages in hand: others had handled all after {after} ms"
            ));
        }
        if let Some(silent) = self.evicted_ms {
            story.push(format!("a broker died, server and announcer: evicted after {silent} ms of silence"));
        }
        if let Some(after) = self.returned {
            story.push(format!("it came back with its data: the next message lay there after {} ms", millis(after)));
        }
        if let Some(after) = self.joined {
            story.push(format!("a broker was added: the first message lay there after {} ms", millis(after)));
        }
        story
    }
}

/// The processes, and what is needed to start more.
pub(crate) struct Stage<'a> {
    board: Arc<Board>,
    client: Client,
    server: Server,
    folder: &'a Path,
    segment: Segment,
    ports: Ports,
    workload: Workload,
    brokers: Vec<Broker>,
    workers: Vec<Worker>,
}

struct Worker {
    number: usize,
    process: Process,
}

/// A worker that was killed.
struct Killed {
    worker: usize,
    at: Instant,
    held: Vec<MessageId>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        board: Arc<Board>,
        client: Client,
        server: Server,
        folder: &'a Path,
        segment: Segment,
        ports: Ports,
        workload: Workload,
    ) -> Self {
        Self { board, client, server, folder, segment, ports, workload, brokers: Vec::new(), workers: Vec::new() }
    }

    pub(crate) fn brokers_started(&self) -> usize {
        self.brokers.len()
    }

    pub(crate) fn workers_started(&self) -> usize {
        self.workers.len()
    }

    /// Starts the first brokers and workers, and waits until the sending process can use every broker.
    pub(crate) async fn gather(&mut self, brokers: u16, workers: u16, deadline: Instant) -> Result<(), Failure> {
        for _ in 0..brokers {
            let broker = self.add_broker().await?;
            broker.announce()?;
        }
        for _ in 0..workers {
            self.add_worker()?;
        }
        let ready = self.board.until(deadline, |state| state.brokers.iter().all(|row| row.ready).then_some(())).await;
        ready.ok_or_else(|| {
            let state = self.board.lock();
            let rows = state.brokers.iter().filter(|row| !row.ready);
            let failure = fail("not every broker is ready in time");
            rows.fold(failure, |f, row| f.detail(format!("broker {} at {}: {}", row.number, row.address, row.state)))
                .hint("was a packet filter told to drop UDP on loopback? The demo announces to 127.255.255.255")
        })
    }

    /// The faults, one after another. A fault that fails to happen is missing in the facts.
    pub(crate) async fn faults(&mut self, start: Instant) -> Result<Facts, Failure> {
        let mut facts = Facts::default();
        sleep_until((start + KILL_WORKER).into()).await;
        let killed = self.kill_worker(&mut facts).await?;
        sleep_until((start + ADD_BROKER).into()).await;
        self.join_broker(&mut facts).await?;
        if let Some(killed) = &killed {
            self.recovered(killed, start + KILL_BROKER_BY, &mut facts).await;
        }
        self.kill_broker(&mut facts).await?;
        if let Some(killed) = &killed {
            self.recovered(killed, killed.at + RECOVER, &mut facts).await;
        }
        Ok(facts)
    }

    /// Tells the workers to stop, and waits.
    pub(crate) async fn stop_workers(&mut self, deadline: Instant) {
        self.workers.iter_mut().for_each(|worker| worker.process.close_input());
        for worker in &mut self.workers {
            worker.process.end_by(deadline).await;
        }
    }

    /// Ends the brokers.
    pub(crate) async fn stop_brokers(&mut self, deadline: Instant) {
        for broker in &mut self.brokers {
            broker.stop(deadline).await;
        }
    }

    /// Looks through all dead letters and enters them in the books. Answers how many there are.
    pub(crate) async fn count_dead(&self) -> Result<usize, String> {
        let mut count = 0;
        for broker in &self.brokers {
            let fleet = self.client.fleet();
            let info = fleet.iter().find(|info| info.ready && info.address == broker.address.into());
            let dead = match info {
                Some(info) => queries::dead(&self.client, info.id).await,
                None => None,
            };
            let dead = dead.ok_or_else(|| format!("the dead letters of {broker} cannot be read"))?;
            count += dead.len();
            self.board.update(|state| dead.into_iter().for_each(|id| state.ledger.dead(id)));
        }
        Ok(count)
    }

    async fn kill_worker(&mut self, facts: &mut Facts) -> Result<Option<Killed>, Failure> {
        let deadline = Instant::now() + LOOK_FOR_HELD;
        let mut next = 0;
        let index = loop {
            if Instant::now() > deadline {
                return Ok(None);
            }
            next = (next + 1) % self.workers.len();
            if self.holds_enough(next).await? {
                break next;
            }
        };
        let Some(worker) = self.workers.get_mut(index) else { return Ok(None) };
        let number = worker.number;
        worker.process.kill()?;
        let at = Instant::now();
        let held = queries::held(&self.client, &name(number)).await;
        facts.workers_killed += 1;
        facts.held = held.len();
        self.board.update(|state| {
            if let Some(row) = state.worker_mut(number) {
                row.state = "killed";
            }
        });
        self.board.say(format!("worker {number} killed -9 with {} messages in hand", held.len()));
        self.add_worker()?;
        Ok(Some(Killed { worker: number, at, held }))
    }

    /// Freezes the worker to count what it holds. If that is enough it stays frozen.
    async fn holds_enough(&mut self, index: usize) -> Result<bool, Failure> {
        let Some(worker) = self.workers.get_mut(index) else { return Ok(false) };
        let name = name(worker.number);
        if queries::held_count(&self.client, &name).await < HELD {
            return Ok(false);
        }
        worker.process.freeze()?;
        sleep(SETTLE).await;
        if queries::held_count(&self.client, &name).await >= HELD {
            return Ok(true);
        }
        worker.process.resume()?;
        Ok(false)
    }

    async fn recovered(&self, killed: &Killed, deadline: Instant, facts: &mut Facts) {
        if facts.recovered.is_some() {
            return;
        }
        let last = self.board.until(deadline, |state| state.ledger.taken_over(&killed.held, killed.worker, killed.at));
        if let Some(last) = last.await {
            let after = last.saturating_duration_since(killed.at);
            facts.recovered = Some(after);
            self.board.say(format!(
                "others have handled what worker {} had in hand: {} ms",
                killed.worker,
                millis(after)
            ));
        }
    }

    async fn join_broker(&mut self, facts: &mut Facts) -> Result<(), Failure> {
        let broker = self.add_broker().await?;
        let (number, address) = (broker.number, broker.address);
        let announced = Instant::now();
        broker.announce()?;
        facts.brokers_added += 1;
        self.board.say(format!("broker {number} added"));
        let first = self.board.until(announced + JOIN, |state| state.placed_at(address)).await;
        if let Some(placed) = first {
            let after = placed.first.saturating_duration_since(announced);
            facts.joined = Some(after);
            self.board.say(format!("broker {number} has its first message after {} ms", millis(after)));
        }
        Ok(())
    }

    /// A broker dies as a machine does, is missed, and comes back with its data.
    async fn kill_broker(&mut self, facts: &mut Facts) -> Result<(), Failure> {
        let Some(broker) = self.brokers.first_mut() else { return Ok(()) };
        let (number, address) = (broker.number, broker.address);
        broker.die()?;
        let died = Instant::now();
        facts.brokers_killed += 1;
        self.mark_killed(number, true);
        self.board.say(format!("broker {number} killed -9, server and announcer"));
        let expired = self.board.until(died + EXPIRE, |state| {
            let row = state.brokers.iter().find(|row| row.number == number)?;
            row.expired.filter(|(at, _)| *at > died)
        });
        facts.evicted_ms = expired.await.map(|(_, silent_ms)| silent_ms);

        let Some(broker) = self.brokers.first_mut() else { return Ok(()) };
        broker.serve().await?;
        let announced = Instant::now();
        broker.announce()?;
        facts.brokers_restarted += 1;
        self.mark_killed(number, false);
        self.board.say(format!("broker {number} restarted with its data"));
        let again = self
            .board
            .until(announced + JOIN, |state| state.placed_at(address).filter(|placed| placed.last > announced));
        if let Some(placed) = again.await {
            facts.returned = Some(placed.last.saturating_duration_since(announced));
        }
        Ok(())
    }

    fn mark_killed(&self, number: usize, killed: bool) {
        self.board.update(|state| {
            if let Some(row) = state.brokers.iter_mut().find(|row| row.number == number) {
                row.killed = killed;
            }
        });
    }

    /// A server, not announced yet.
    async fn add_broker(&mut self) -> Result<&mut Broker, Failure> {
        let number = self.brokers.len() + 1;
        let broker = Broker::start(number, &self.server, self.folder, &self.segment, &mut self.ports).await?;
        self.write_address(&broker)?;
        self.board.update(|state| state.add_broker(number, broker.address));
        self.brokers.push(broker);
        self.brokers.last_mut().ok_or_else(|| fail("no broker was started"))
    }

    /// For whoever counts later.
    fn write_address(&self, broker: &Broker) -> Result<(), Failure> {
        let path = self.folder.join("brokers.tsv");
        let file = fs::File::options().create(true).append(true).open(&path);
        file.and_then(|mut file| writeln!(file, "{}\t{}", broker.address, data_folder(broker.number)))
            .map_err(|why| fail(format!("cannot write {}: {why}", path.display())))
    }

    fn add_worker(&mut self) -> Result<(), Failure> {
        let number = self.workers.len() + 1;
        let log = self.folder.join(format!("worker-{number}.log"));
        let Workload { work, concurrency, in_flight } = self.workload;
        let words = [
            ("--name", name(number)),
            ("--listen", self.segment.listen.to_string()),
            ("--fleet", self.segment.name.clone()),
            ("--log", log.display().to_string()),
            ("--in-flight", in_flight.to_string()),
            ("--concurrency", concurrency.to_string()),
            ("--work-us", work.as_micros().to_string()),
            ("--claim-after-ms", CLAIM_AFTER.as_millis().to_string()),
        ];
        let words = words.into_iter().flat_map(|(flag, value)| [flag.to_string(), value]);
        let args: Vec<String> = ["demo-worker".to_string()].into_iter().chain(words).collect();
        let output = self.folder.join(format!("worker-{number}.err"));
        let process = Process::start(&format!("worker {number}"), &this_program()?, &args, &[], &output)?;
        let row = self.board.update(|state| state.add_worker(number, process.id(), &log));
        row.map_err(|why| fail(format!("cannot read {}: {why}", log.display())))?;
        self.workers.push(Worker { number, process });
        Ok(())
    }
}

/// What a worker's consumers are named for.
fn name(number: usize) -> String {
    format!("demo-worker-{number}")
}
