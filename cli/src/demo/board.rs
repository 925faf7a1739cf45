//! What the demo knows at this moment: from its own client's events, from the workers' logs, and from the brokers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flota_core::id::BrokerId;
use flota_tokio::config::Endpoint;
use flota_tokio::op::Stored;
use flota_tokio::output::{BrokerChange, BrokerEvent, Warning};
use flota_tokio::{BrokerInfo, Client, FleetEvent, FleetEvents};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, timeout_at};

use super::ledger::{Ledger, Tail};
use super::queries;

/// How often logs are read: the resolution of what is timed by them.
const LOGS_EVERY: Duration = Duration::from_millis(10);
/// How often brokers are asked what is pending.
const PENDING_EVERY: Duration = Duration::from_millis(200);

/// Shared by the flow, the sender and the screen.
#[derive(Debug)]
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Notify,
}

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct State {
    /// The books.
    pub(crate) ledger: Ledger,
    /// One row a broker, in the order of their starts.
    pub(crate) brokers: Vec<BrokerRow>,
    /// One row a worker, in the order of their starts.
    pub(crate) workers: Vec<WorkerRow>,
    /// What to send.
    pub(crate) messages: usize,
    /// The first thing that went wrong with files or sends.
    pub(crate) trouble: Option<String>,
    /// What happened and has not been shown yet.
    pub(crate) news: VecDeque<(Instant, String)>,
    placed: BTreeMap<BrokerId, Placed>,
    addresses: BTreeMap<BrokerId, SocketAddr>,
}

/// A broker as the sending process sees it.
#[derive(Debug)]
pub(crate) struct BrokerRow {
    /// From 1.
    pub(crate) number: usize,
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// Messages may be sent there.
    pub(crate) ready: bool,
    /// In words.
    pub(crate) state: String,
    /// Its processes were killed and not started again.
    pub(crate) killed: bool,
    /// When its last expiry was seen, and after how many milliseconds of silence.
    pub(crate) expired: Option<(Instant, u64)>,
    /// Messages delivered and not acknowledged, when it was last asked.
    pub(crate) pending: Option<u64>,
}

/// A worker as its log shows it.
#[derive(Debug)]
pub(crate) struct WorkerRow {
    /// From 1.
    pub(crate) number: usize,
    /// Its process.
    pub(crate) pid: u32,
    /// Lines in its log.
    pub(crate) handled: u64,
    /// In words.
    pub(crate) state: &'static str,
    tail: Tail,
}

/// Messages placed on one broker, under one of its ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// How many.
    pub(crate) count: u64,
    /// When the first was answered for.
    pub(crate) first: Instant,
    /// When the last was.
    pub(crate) last: Instant,
}

impl Board {
    pub(crate) fn new(ledger: Ledger, messages: usize) -> Arc<Self> {
        let state = State {
            ledger,
            brokers: Vec::new(),
            workers: Vec::new(),
            messages,
            trouble: None,
            news: VecDeque::new(),
            placed: BTreeMap::new(),
            addresses: BTreeMap::new(),
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new() })
    }

    /// A look, or a change that nobody waits for.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_waiters();
        result
    }

    /// Something worth a line.
    pub(crate) fn say(&self, news: impl Into<String>) {
        let news = news.into();
        self.update(|state| state.news.push_back((Instant::now(), news)));
    }

    /// Waits until `look` finds what it looks for; `None` when it has not by the deadline.
    pub(crate) async fn until<T>(&self, deadline: Instant, look: impl Fn(&State) -> Option<T>) -> Option<T> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look(&self.lock()) {
                return Some(found);
            }
            if timeout_at(deadline.into(), changed).await.is_err() {
                return look(&self.lock());
            }
        }
    }
}

impl State {
    pub(crate) fn add_broker(&mut self, number: usize, address: SocketAddr) {
        self.brokers.push(BrokerRow {
            number,
            address,
            ready: false,
            state: "starting".into(),
            killed: false,
            expired: None,
            pending: None,
        });
    }

    pub(crate) fn add_worker(&mut self, number: usize, pid: u32, log: &Path) -> io::Result<()> {
        let tail = Tail::new(log)?;
        self.workers.push(WorkerRow { number, pid, handled: 0, state: "running", tail });
        Ok(())
    }

    pub(crate) fn broker_mut(&mut self, address: SocketAddr) -> Option<&mut BrokerRow> {
        self.brokers.iter_mut().find(|row| row.address == address)
    }

    pub(crate) fn worker_mut(&mut self, number: usize) -> Option<&mut WorkerRow> {
        self.workers.iter_mut().find(|row| row.number == number)
    }

    /// Where and when a message was stored.
    pub(crate) fn stored(&mut self, stored: &Stored, now: Instant) {
        let placed = self.placed.entry(stored.broker).or_insert(Placed { count: 0, first: now, last: now });
        placed.count += 1;
        placed.last = now;
        if let Err(why) = self.ledger.sent(stored.id) {
            self.trouble(format!("cannot write the ids sent: {why}"));
        }
    }

    /// What was placed on the broker there, under all ids it has had.
    pub(crate) fn placed_at(&self, address: SocketAddr) -> Option<Placed> {
        let here =
            self.placed.iter().filter(|(id, _)| self.addresses.get(id) == Some(&address)).map(|(_, placed)| *placed);
        here.reduce(|a, b| Placed { count: a.count + b.count, first: a.first.min(b.first), last: a.last.max(b.last) })
    }

    /// Messages delivered and not acknowledged, on all brokers; `None` while one cannot be asked.
    pub(crate) fn pending(&self) -> Option<u64> {
        self.brokers.iter().map(|row| row.pending.filter(|_| row.ready)).sum()
    }

    /// Whether everything sent was handled and acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.ledger.is_settled() && self.pending() == Some(0)
    }

    pub(crate) fn send_failed(&mut self, why: String) {
        self.trouble(format!("a message was not sent: {why}"));
    }

    fn trouble(&mut self, why: String) {
        self.trouble.get_or_insert(why);
    }

    fn read_logs(&mut self, now: Instant) {
        for worker in &mut self.workers {
            match worker.tail.ids() {
                Ok(ids) => {
                    worker.handled += ids.len() as u64;
                    ids.into_iter().for_each(|id| self.ledger.handled(id, worker.number, now));
                }
                Err(why) => {
                    self.trouble.get_or_insert(format!("cannot read the log of worker {}: {why}", worker.number));
                }
            }
        }
    }

    fn fleet(&mut self, fleet: &[BrokerInfo]) {
        for row in &mut self.brokers {
            let info = fleet.iter().filter(|info| info.address == Endpoint::Ip(row.address));
            // A broker that came back may be there a second time while its former self is forgotten.
            let Some(info) = info.max_by_key(|info| (info.ready, !info.leaving)) else {
                row.ready = false;
                continue;
            };
            row.ready = info.ready && !info.leaving;
            row.state = match (&info.unready, info.leaving) {
                (_, true) => "expired".into(),
                (_, false) if info.ready => "ready".into(),
                (Some(unready), false) => unready.reason.to_string(),
                (None, false) => "connecting".into(),
            };
        }
        for info in fleet {
            if let Endpoint::Ip(address) = info.address {
                self.addresses.insert(info.id, address);
            }
        }
    }

    fn event(&mut self, event: &BrokerEvent, now: Instant) {
        let Endpoint::Ip(address) = event.address else { return };
        self.addresses.insert(event.broker, address);
        let Some(row) = self.broker_mut(address) else { return };
        let number = row.number;
        let what = match &event.change {
            BrokerChange::Expired { silent_ms } => {
                row.expired = Some((now, *silent_ms));
                format!("expired: silent for {silent_ms} ms")
            }
            BrokerChange::Announced => "announced".into(),
            BrokerChange::Ready => "ready".into(),
            BrokerChange::Unready(why) => format!("unready: {} ({})", why.reason, why.detail),
            BrokerChange::Withdrawn => "said goodbye".into(),
            BrokerChange::Restarted => "restarted".into(),
            BrokerChange::Forgotten => "forgotten".into(),
        };
        self.news.push_back((now, format!("broker {number} {what}")));
    }
}

/// Keeps the board up to date. It does not end.
pub(crate) async fn watch(board: Arc<Board>, client: Client, mut events: FleetEvents) {
    let mut logs = ticks(LOGS_EVERY);
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(FleetEvent::Broker(event)) => board.update(|state| {
                    state.event(&event, Instant::now());
                    state.fleet(&client.fleet());
                }),
                Some(FleetEvent::Warning(warning)) => board.say(warn(&warning)),
                Some(FleetEvent::Skipped(_)) => {}
                None => return,
            },
            _ = logs.tick() => board.update(|state| {
                state.read_logs(Instant::now());
                state.fleet(&client.fleet());
            }),
        }
    }
}

/// Keeps asking the brokers what is pending. It does not end.
pub(crate) async fn watch_pending(board: Arc<Board>, client: Client) {
    let mut ask = ticks(PENDING_EVERY);
    loop {
        ask.tick().await;
        for info in client.fleet().iter().filter(|info| info.ready) {
            let Endpoint::Ip(address) = info.address else { continue };
            let pending = queries::pending(&client, info.id).await.map(|by_consumer| by_consumer.values().sum());
            board.update(|state| {
                if let Some(row) = state.broker_mut(address) {
                    row.pending = pending;
                }
            });
        }
    }
}

fn warn(warning: &Warning) -> String {
    match warning {
        Warning::Refused { broker, what, error } => format!("warning: {broker} refused {what}: {error}"),
        Warning::Risky { broker, what } => format!("warning: {broker}: {what}"),
        // The rest is about consumers, which this process has none of, and about other fleets.
        other => format!("warning: {other:?}"),
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
