//! Model brokers behind real sockets: a fleet for tests and for development, without a server to install.
//!
//! An [`Embedded`] is one broker, on a thread of its own, at a TCP address of this machine. It speaks RESP2 and RESP3 and
//! presents itself as Redis 7.0.15, with `flota_embedded:1` in `INFO server`; a stock client can talk to it. Its data is
//! in memory; with a folder ([`Options::dir`]) each change is also in a [command log](FILE) before it is answered,
//! and a broker that is started on the folder again has its data back.
//!
//! It is not a server for production: nothing is evicted, the log is never rewritten, and what it lacks of Redis is
//! answered as an unknown command.
#![cfg_attr(
    feature = "tokio",
    doc = "\nWith the feature `tokio`, [`client`] is a fleet of one and its client, in one line."
)]

mod clock;
mod connection;
#[cfg(feature = "tokio")]
mod fleet;
mod log;
mod server;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use mio::Waker;

#[cfg(feature = "tokio")]
pub use fleet::{Fleet, OwnedClient, StartError, client};
pub use log::{FILE, MAGIC};

use crate::broker::Profile;
use server::Server;

/// How a broker is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 is a free one.
    pub address: SocketAddr,
    /// Where its command log is; made if it is not there. Without one, data ends with the broker.
    pub dir: Option<PathBuf>,
    /// When changes are on the disk.
    pub fsync: Fsync,
    /// Which server it presents itself as.
    pub profile: Profile,
    /// A connection that does not read what it is sent is closed once this many bytes wait for it. One reply may be
    /// larger.
    pub output_max: usize,
}

/// When changes are on the disk. They are with the system, and so survive the end of the process, in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// When the system sees fit: a machine that dies may take the last seconds with it.
    #[default]
    No,
    /// Before they are answered.
    Always,
}

impl Default for Options {
    /// A free port on loopback, in memory.
    fn default() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            dir: None,
            fsync: Fsync::No,
            profile: Profile::redis_7_0(),
            output_max: 32 << 20,
        }
    }
}

/// A running broker. Dropped, it stops.
#[derive(Debug)]
pub struct Embedded {
    address: SocketAddr,
    replayed: u64,
    torn: u64,
    orders: Arc<AtomicU8>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What the thread is told.
mod order {
    pub(super) const RUN: u8 = 0;
    pub(super) const STOP: u8 = 1;
    pub(super) const KILL: u8 = 2;
}

/// What the thread says once it listens.
struct Started {
    address: SocketAddr,
    replayed: u64,
    torn: u64,
    waker: Arc<Waker>,
}

impl Embedded {
    /// Starts a broker; returns when it has its data and listens.
    ///
    /// # Errors
    ///
    /// The address cannot be had; the folder cannot be used or another broker uses it; the log is damaged. The error says
    /// what to do.
    pub fn start(options: Options) -> io::Result<Self> {
        let orders = Arc::new(AtomicU8::new(order::RUN));
        let (started, start) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&orders);
        // The broker is made where it stays: its scripts cannot be moved between threads.
        let thread = thread::Builder::new().name("flota-broker".to_string()).spawn(move || {
            match Server::open(options, theirs) {
                Ok((server, news)) => {
                    // Nobody waits for it only if `start` has panicked.
                    let _ = started.send(Ok(news));
                    server.run()
                }
                Err(why) => {
                    let _ = started.send(Err(why));
                    Ok(())
                }
            }
        })?;
        let news =
            start.recv().unwrap_or_else(|_| Err(io::Error::other("the broker's thread has ended at its start")))?;
        let Started { address, replayed, torn, waker } = news;
        Ok(Self { address, replayed, torn, orders, waker, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many commands it has read from its log at the start.
    #[must_use]
    pub fn replayed(&self) -> u64 {
        self.replayed
    }

    /// How many bytes at the end of its log were an unfinished record, which was cut off at the start. No answer had been
    /// given to it.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Whether it still runs. It ends by itself when its log cannot be written; [`stop`](Self::stop) then says why.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it as a kill -9 would: connections break, and what was not sent or written never is.
    pub fn kill(mut self) {
        // It does not matter any more why it ended.
        let _ = self.end(order::KILL);
    }

    /// Ends it: what it was about to send is sent, and its log is on the disk.
    ///
    /// # Errors
    ///
    /// What had ended it before, or the log cannot be put on the disk.
    pub fn stop(mut self) -> io::Result<()> {
        self.end(order::STOP)
    }

    fn end(&mut self, order: u8) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.orders.store(order, Ordering::Release);
        self.waker.wake()?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the broker's thread has panicked: please report it")))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.end(order::STOP);
    }
}
