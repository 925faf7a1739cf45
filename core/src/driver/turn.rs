//! The driver: one future that owns an engine and everything it talks through.
//!
//! A turn is a few rounds, each in the same order: take the inbox whole, hear announcements, tell the engine, encode
//! what it says, write, read, tell the engine, hand out results. Rounds repeat until nothing moves. One task owning
//! everything needs no lock, no queue between its parts, and answers "who runs first" by the order of the calls.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use super::client::{BACKGROUND_GRACE, Client};
use super::front::Front;
use super::lanes::Lanes;
use super::net::{Alarm, Net};
use super::port::Port;
use super::sockets::Gauge;
use crate::config::{Config, ConfigError};
use crate::engine::{Engine, Incarnation};
use crate::output::Output;
use crate::rng::Seed;
use crate::time::{Mono, Now};

#[cfg(all(test, not(loom)))]
mod tests;

/// So far past its deadline the process was not just busy: what its sockets hold is read before time passes, whether
/// their wakers have said so or not.
const SUSPENDED: Duration = Duration::from_millis(250);
/// Rounds of one turn. Then other tasks run, even if there is more to do.
const ROUNDS: usize = 16;

/// What a driver starts with.
#[allow(missing_debug_implementations, reason = "runtimes need not be printable")]
pub struct Setup<N: Net> {
    /// What the application decided.
    pub config: Config,
    /// The runtime.
    pub net: N,
    /// Where announcements arrive; `None` without discovery and announcing.
    pub socket: Option<N::Socket>,
    /// What the system says about that socket.
    pub gauge: Option<Gauge>,
    /// An alarm, not yet set.
    pub alarm: N::Alarm,
    /// Unique for each start of a process.
    pub incarnation: Incarnation,
    /// From the operating system's generator.
    pub seed: Seed,
}

/// The future that keeps a client going. Spawn it; it ends when its client was closed, or when the last handle is gone
/// and what was under way has finished. Dropped earlier, everybody who waits for it is told.
#[must_use = "without its driver a client waits for ever"]
pub struct Driver<N: Net> {
    net: N,
    engine: Engine,
    lanes: Lanes<N>,
    port: Option<Port<N::Socket>>,
    alarm: N::Alarm,
    /// What the engine, or a handle, wants to be woken for.
    deadline: Option<Mono>,
    pace: Pace,
    // Last: its drop tells everybody, when the rest is gone.
    front: Front,
}

enum Round {
    /// There may be more.
    Moved,
    /// Others run first.
    Yielded,
    /// Everything waits, and every waker is armed.
    Idle,
    /// It is over.
    Stopped,
}

impl<N: Net> Driver<N> {
    /// A driver and the first handle of its client.
    ///
    /// # Errors
    ///
    /// When the configuration cannot work.
    pub fn new(setup: Setup<N>) -> Result<(Self, Client), ConfigError> {
        let Setup { config, net, socket, gauge, alarm, incarnation, seed } = setup;
        let client = Client::new(&config);
        let front = Front::new(&client);
        let engine = Engine::new(config, incarnation, seed, net.now())?;
        let lanes = Lanes::new();
        let port = socket.map(|socket| Port::new(socket, gauge, lanes.port_waker()));
        let pace = Pace::default();
        Ok((Self { net, engine, lanes, port, alarm, deadline: None, pace, front }, client))
    }

    fn round(&mut self, cx: &mut Context<'_>) -> Round {
        let now = self.net.now();
        // Something is due. It fires at the end of the round, when what has arrived was read: a process that was suspended
        // must not give up connections whose answers wait in their sockets, nor members whose announcements do.
        let late = self.deadline.is_some_and(|at| at <= now.mono);
        let taken = self.front.take(cx.waker());
        if self.deadline.is_some_and(|at| now.mono.since(at) >= SUSPENDED) {
            self.lanes.read_all();
        }
        if self.lanes.look(cx.waker())
            && let Some(port) = &mut self.port
        {
            port.flag();
        }
        // First of all: an announcement that has arrived must not come after the end of its member's patience.
        let mut moved = self.hear_announcements(now, late);
        self.front.obey(&mut self.engine, now, self.port.as_ref().and_then(Port::gauge));
        self.front.ring(now.mono);
        if taken.last_handle_gone {
            self.front.abandoned(BACKGROUND_GRACE);
        }
        self.drain(now);
        if self.front.shut_down(&mut self.engine, now) {
            self.drain(now);
        }
        if self.pace.yields(taken.messages) {
            return Round::Yielded;
        }
        let wrote = self.lanes.write(&mut self.engine, now);
        if wrote {
            self.pace.wrote();
        }
        moved |= wrote | self.lanes.read(&mut self.engine, now);
        self.drain(now);
        if late {
            self.engine.handle_timeout(now);
            self.drain(now);
            moved = true;
        }
        let completed = self.front.publish(&self.engine);
        self.pace.completed(completed);
        if self.front.is_stopped() {
            return Round::Stopped;
        }
        if moved || taken.messages > 0 || completed > 0 || self.lanes.have_work() {
            return Round::Moved;
        }
        self.wait(cx)
    }

    /// Nothing moves: either something is due, or the turn is over.
    fn wait(&mut self, cx: &mut Context<'_>) -> Round {
        match self.deadline {
            Some(at) if self.alarm.poll_at(cx, at).is_ready() => {
                let now = self.net.now();
                if let Some(port) = &mut self.port {
                    port.hear(&mut self.engine, now);
                }
                self.engine.handle_timeout(now);
                self.drain(now);
                Round::Moved
            }
            _ => Round::Idle,
        }
    }

    fn hear_announcements(&mut self, now: Now, late: bool) -> bool {
        let Some(port) = &mut self.port else { return false };
        if late {
            // Time is about to pass: what nobody has told us of yet counts, too.
            port.hear(&mut self.engine, now)
        } else {
            port.hear_if_flagged(&mut self.engine, now)
        }
    }

    /// Carries out what the engine says until it has nothing more to say.
    fn drain(&mut self, now: Now) {
        loop {
            match self.engine.poll_output() {
                Output::Send { conn, command } => self.lanes.send(conn, &command),
                Output::Event(event) => self.front.event(&mut self.engine, now, event),
                Output::Dial { conn, to } => self.lanes.dial(&mut self.net, conn, &to),
                Output::Hangup(conn) => self.lanes.hang_up(conn),
                Output::Datagram { to, payload } => {
                    if let Some(port) = &mut self.port {
                        port.send(to, payload);
                    }
                }
                Output::Wait(deadline) => {
                    self.deadline = match (deadline, self.front.next_timer()) {
                        (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
                        (ours, theirs) => ours.or(theirs),
                    };
                    break;
                }
            }
        }
        if let Some(port) = &mut self.port {
            port.flush();
        }
    }
}

impl<N: Net> Future for Driver<N> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = self.get_mut();
        for _ in 0..ROUNDS {
            match driver.round(cx) {
                Round::Moved => {}
                Round::Yielded => break,
                Round::Idle => return Poll::Pending,
                Round::Stopped => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

// Nothing in it is pinned: dials, streams, sockets and alarms are `Unpin`.
impl<N: Net> Unpin for Driver<N> {}

impl<N: Net> core::fmt::Debug for Driver<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Driver").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// When to let others run before the first write.
///
/// A runtime that runs a just-woken task next lets the first of many senders wake the driver, and the others only after
/// it: without a yield each message is a write of its own, four times as slow. With a lone sender the yield would only
/// add its delay, so it is made only when more than one message is about.
#[derive(Debug, Default)]
struct Pace {
    /// Messages taken since the last write, and before it.
    taken: usize,
    taken_before: usize,
    /// Results handed out since the last write: their receivers are about to send again.
    completed: usize,
    yielded: bool,
}

impl Pace {
    /// Asked after each look into the inbox, with what was taken.
    fn yields(&mut self, taken: usize) -> bool {
        self.taken += taken;
        let busy = self.taken.max(self.taken_before).max(self.completed) > 1;
        self.yielded = taken > 0 && busy && !self.yielded;
        self.yielded
    }

    fn wrote(&mut self) {
        self.taken_before = core::mem::take(&mut self.taken);
        self.completed = 0;
    }

    fn completed(&mut self, results: usize) {
        self.completed += results;
    }
}
