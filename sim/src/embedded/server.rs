//! The thread of a broker: sockets on one side, the model on the other, the log between a change and its answer.
//!
//! It works in turns. A turn takes what the sockets have, executes at most a few commands of each connection, hands the
//! changes to the log, and only then sends the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::clock::Clock;
use super::connection::{Connection, READ};
use super::log::Log;
use super::{Fsync, Options, Started, order};
use crate::broker::{Broker, ClientId, Out, Value};

/// Commands of one connection in a turn: others are not kept waiting by a long pipeline.
const COMMANDS_A_TURN: usize = 128;
/// A connection for which this much waits executes nothing before some of it has been sent.
const OUTPUT_PAUSE: usize = 1 << 20;
/// After the system refused to accept: it has no file descriptors left, which may pass.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How long a broker that is stopped waits for clients to take their last answers.
const LAST_WORDS: Duration = Duration::from_millis(200);

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// A broker and its sockets.
pub(super) struct Server {
    broker: Broker,
    log: Option<Log>,
    clock: Clock,
    poll: Poll,
    listener: TcpListener,
    orders: Arc<AtomicU8>,
    output_max: usize,
    connections: BTreeMap<ClientId, Connection>,
    next: u64,
    /// Connections that may have something to execute.
    ready: BTreeSet<ClientId>,
    /// Whose commands are executed now.
    serving: Option<ClientId>,
    /// Connections for which something may have to be sent, or that may have to be closed.
    touched: BTreeSet<ClientId>,
    out: Vec<Out>,
    scratch: Vec<u8>,
    accept: bool,
}

impl Server {
    /// Reads the log and listens.
    pub(super) fn open(options: Options, orders: Arc<AtomicU8>) -> io::Result<(Self, Started)> {
        let Options { address, dir, fsync, mut profile, output_max } = options;
        let clock = Clock::new();
        let poll = Poll::new()?;
        // First, so that two brokers that are given one address do not both read their logs for nothing.
        let mut listener = TcpListener::bind(address).map_err(|why| {
            let next = "is something else listening there?";
            io::Error::new(why.kind(), format!("cannot listen on {address}: {why}; {next}"))
        })?;
        let address = listener.local_addr()?;
        profile.port = address.port();
        profile.embedded = true;
        profile.appendonly = dir.is_some();
        profile.appendfsync = if fsync == Fsync::Always { "always" } else { "no" };
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let mut broker = Broker::new(profile, &run_id()?);
        let (mut log, mut replayed, mut torn) = (None, 0, 0);
        if let Some(dir) = dir {
            let (opened, found) = Log::open(&dir, fsync, |logged| broker.apply(logged))?;
            (log, replayed, torn) = (Some(opened), found.commands, found.torn);
            broker.keep_log(true);
        }
        let server = Self {
            broker,
            log,
            clock,
            poll,
            listener,
            orders,
            output_max,
            connections: BTreeMap::new(),
            next: 1,
            ready: BTreeSet::new(),
            serving: None,
            touched: BTreeSet::new(),
            out: Vec::new(),
            scratch: vec![0; READ],
            accept: true,
        };
        Ok((server, Started { address, replayed, torn, waker }))
    }

    /// Runs until it is told to stop.
    ///
    /// # Errors
    ///
    /// The log cannot be written: nothing is answered any more.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            let wait = self.wait();
            match self.poll.poll(&mut events, wait) {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => return Err(why),
                _ => {}
            }
            match self.orders.load(Ordering::Acquire) {
                order::STOP => return self.finish(),
                order::KILL => return Ok(()),
                _ => {}
            }
            events.iter().for_each(|event| self.note(event));
            self.accept();
            self.turn()?;
        }
    }

    fn wait(&mut self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let now = self.clock.now();
        // Rounded up by the microsecond it has begun: a look that is too early would be followed by many.
        let tick = self.broker.next_tick().map(|at| Duration::from_micros(at.0.saturating_sub(now.0)));
        let again = self.accept.then_some(ACCEPT_AGAIN);
        tick.into_iter().chain(again).min()
    }

    fn note(&mut self, event: &Event) {
        match event.token() {
            LISTENER => self.accept = true,
            WAKER => {}
            Token(token) => {
                let client = ClientId(token as u64);
                if let Some(connection) = self.connections.get_mut(&client) {
                    let hung_up = event.is_read_closed() || event.is_error();
                    connection.note(event.is_readable(), event.is_writable(), hung_up);
                    self.ready.insert(client);
                    self.touched.insert(client);
                }
            }
        }
    }

    fn accept(&mut self) {
        while self.accept {
            match self.listener.accept() {
                Ok((stream, peer)) => self.welcome(stream, peer),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => self.accept = false,
                // The connection was gone before it was accepted.
                Err(why) if why.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => return,
            }
        }
    }

    fn welcome(&mut self, mut stream: TcpStream, peer: std::net::SocketAddr) {
        let client = ClientId(self.next);
        self.next += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(usize::try_from(client.0).unwrap_or(0));
        // A connection that cannot be watched is closed.
        if self.poll.registry().register(&mut stream, token, interest).is_err() {
            return;
        }
        // Without it answers are late, and still right.
        let _ = stream.set_nodelay(true);
        let mut connection = Connection::new(stream);
        if let Some(refusal) = self.broker.connect(self.clock.now(), client, &peer.to_string()) {
            connection.answer(&refusal, 2);
            connection.closing = true;
            self.touched.insert(client);
        }
        self.connections.insert(client, connection);
        self.ready.insert(client);
    }

    /// Executes what there is, logs it, and then answers.
    fn turn(&mut self) -> io::Result<()> {
        let at = self.clock.now();
        if self.broker.next_tick().is_some_and(|tick| tick <= at) {
            self.broker.tick(at, &mut self.out);
            self.carry();
        }
        for client in mem::take(&mut self.ready) {
            self.serving = Some(client);
            self.serve(client);
        }
        self.serving = None;
        // Who asks for what is not there has been told so; kept, it would fill the memory.
        self.broker.take_gaps();
        if let Some(log) = &mut self.log {
            log.write()?;
        }
        if self.orders.load(Ordering::Acquire) != order::KILL {
            self.flush();
        }
        Ok(())
    }

    /// Executes some commands of a connection.
    fn serve(&mut self, client: ClientId) {
        for _ in 0..COMMANDS_A_TURN {
            let Some(connection) = self.connections.get_mut(&client) else { return };
            if connection.closing {
                return;
            }
            if self.broker.is_blocked(client) {
                // Whoever waits and goes away must not be given anything.
                while connection.read(&mut self.scratch) {}
                if connection.has_ended() {
                    self.close(client);
                }
                return;
            }
            if connection.waiting() > OUTPUT_PAUSE {
                // `flush` brings it back.
                return;
            }
            match connection.request() {
                Ok(Some(args)) => {
                    let at = self.clock.now();
                    self.broker.execute(at, client, &args, &mut self.out);
                    self.carry();
                }
                Ok(None) if connection.read(&mut self.scratch) => {}
                Ok(None) => {
                    if connection.has_ended() {
                        connection.closing = true;
                        self.touched.insert(client);
                    }
                    return;
                }
                Err(text) => {
                    connection.answer(&Value::Error(text), 2);
                    connection.closing = true;
                    self.touched.insert(client);
                    return;
                }
            }
        }
        self.ready.insert(client);
    }

    /// Carries what the broker has said to the connections, and what it has changed to the log.
    fn carry(&mut self) {
        for logged in self.broker.take_log() {
            if let Some(log) = &mut self.log {
                log.append(logged);
            }
        }
        for out in mem::take(&mut self.out) {
            match out {
                Out::Reply(client, value) => {
                    let resp = self.broker.resp(client);
                    if let Some(connection) = self.connections.get_mut(&client) {
                        // What piles up is not read; what is large is one reply.
                        if connection.waiting() > self.output_max {
                            self.close(client);
                            continue;
                        }
                        connection.answer(&value, resp);
                        self.touched.insert(client);
                        // It may have been waiting for this, with more commands behind.
                        if self.serving != Some(client) {
                            self.ready.insert(client);
                        }
                    }
                }
                Out::Close(client) => {
                    if let Some(connection) = self.connections.get_mut(&client) {
                        connection.closing = true;
                        self.touched.insert(client);
                    }
                }
            }
        }
    }

    fn flush(&mut self) {
        for client in mem::take(&mut self.touched) {
            let Some(connection) = self.connections.get_mut(&client) else { continue };
            let paused = connection.waiting() > OUTPUT_PAUSE;
            let broken = connection.write().is_err();
            let waiting = connection.waiting();
            if broken || (connection.closing && waiting == 0) {
                self.close(client);
            } else if paused && waiting <= OUTPUT_PAUSE {
                self.ready.insert(client);
            }
        }
    }

    fn close(&mut self, client: ClientId) {
        self.connections.remove(&client);
        self.ready.remove(&client);
        self.broker.disconnect(self.clock.now(), client);
    }

    /// The last answers leave, and the log is on the disk.
    fn finish(mut self) -> io::Result<()> {
        self.touched.extend(self.connections.keys());
        self.flush();
        let mut events = Events::with_capacity(256);
        let until = self.clock.now().0 + u64::try_from(LAST_WORDS.as_micros()).unwrap_or(0);
        while self.connections.values().any(|connection| connection.waiting() > 0) {
            let left = until.saturating_sub(self.clock.now().0);
            if left == 0 {
                break;
            }
            match self.poll.poll(&mut events, Some(Duration::from_micros(left))) {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => return Err(why),
                _ => {}
            }
            events.iter().for_each(|event| self.note(event));
            self.flush();
        }
        self.log.map_or(Ok(()), |log| log.sync())
    }
}

/// One per start, as `INFO` shows it: who comes back on an address is told from who was there before.
fn run_id() -> io::Result<String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|why| io::Error::other(format!("cannot draw a run id: {why}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
