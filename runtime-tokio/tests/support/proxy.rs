//! Between a client and its server: forwards, until it is told to misbehave.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy in front of one server. Its connections end with this value.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    ended: AtomicBool,
    cut: Mutex<Option<Cut>>,
    /// How long the replies of reads were, cut or not.
    replies: Mutex<Vec<usize>>,
    connections: Mutex<Vec<Arc<Connection>>>,
}

/// Where to end a connection, by how many bytes of answers are to pass before.
#[derive(Clone, Copy)]
enum Cut {
    /// In the next reply that brings messages.
    Read(usize),
    /// In whatever else is answered from now on.
    Answers(usize),
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    reads: AtomicBool,
    frozen: AtomicBool,
}

impl Connection {
    fn close(&self) {
        // Either side may have closed it first.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, super::free_tcp_port())).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            ended: AtomicBool::new(false),
            cut: Mutex::new(None),
            replies: Mutex::new(Vec::new()),
            connections: Mutex::new(Vec::new()),
        });
        thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                while let Ok((client, _)) = listener.accept() {
                    if shared.ended.load(Ordering::SeqCst) {
                        return;
                    }
                    shared.forward(client, server);
                }
            }
        });
        Self { address, shared }
    }

    /// Cuts the connection of the next reply that brings messages after this many bytes of it.
    pub(crate) fn cut_next_read(&self, after: usize) {
        *self.shared.cut.lock().unwrap() = Some(Cut::Read(after));
    }

    /// Cuts a command connection after this many bytes of its answers from now on.
    pub(crate) fn cut_answers(&self, after: usize) {
        *self.shared.cut.lock().unwrap() = Some(Cut::Answers(after));
    }

    /// Whether the cut that was asked for has been made.
    pub(crate) fn has_cut(&self) -> bool {
        self.shared.cut.lock().unwrap().is_none()
    }

    /// The lengths of the replies that brought messages since the last time.
    pub(crate) fn replies(&self) -> Vec<usize> {
        std::mem::take(&mut self.shared.replies.lock().unwrap())
    }

    /// From now on nothing comes through the connections there are, and nobody is told. New ones are not affected.
    pub(crate) fn freeze(&self) {
        self.shared.connections.lock().unwrap().iter().for_each(|c| c.frozen.store(true, Ordering::SeqCst));
    }

    /// The same for those connections alone that have brought messages.
    pub(crate) fn freeze_readers(&self) {
        let connections = self.shared.connections.lock().unwrap();
        connections
            .iter()
            .filter(|c| c.reads.load(Ordering::SeqCst))
            .for_each(|c| c.frozen.store(true, Ordering::SeqCst));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the one that accepts.
        let _ = TcpStream::connect(self.address);
        self.shared.connections.lock().unwrap().iter().for_each(|connection| connection.close());
    }
}

impl Shared {
    fn forward(self: &Arc<Self>, client: TcpStream, server: SocketAddr) {
        // A server that is not there is a connection that closes at once.
        let Ok(server) = TcpStream::connect(server) else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let connection =
            Arc::new(Connection { client, server, reads: AtomicBool::new(false), frozen: AtomicBool::new(false) });
        self.connections.lock().unwrap().push(Arc::clone(&connection));
        for answers in [false, true] {
            let (shared, connection) = (Arc::clone(self), Arc::clone(&connection));
            thread::spawn(move || {
                shared.pump(&connection, answers);
                if !connection.frozen.load(Ordering::SeqCst) {
                    connection.close();
                }
                shared.connections.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &connection));
            });
        }
    }

    fn pump(&self, connection: &Connection, answers: bool) {
        let (mut from, mut to) = (&connection.client, &connection.server);
        if answers {
            std::mem::swap(&mut from, &mut to);
        }
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            if connection.frozen.load(Ordering::SeqCst) {
                continue;
            }
            let chunk = &buffer[..bytes];
            let cut = if answers { self.cut_within(connection, chunk) } else { None };
            let forwarded = to.write_all(&chunk[..cut.unwrap_or(bytes)]);
            if forwarded.is_err() || cut.is_some() {
                return;
            }
        }
    }

    /// How much of this chunk of answers is to pass, if the connection is to end in it.
    fn cut_within(&self, connection: &Connection, chunk: &[u8]) -> Option<usize> {
        let mut cut = self.cut.lock().unwrap();
        if brings_messages(chunk) {
            connection.reads.store(true, Ordering::SeqCst);
            self.replies.lock().unwrap().push(chunk.len());
        }
        match *cut {
            Some(Cut::Read(after)) if brings_messages(chunk) => {
                *cut = None;
                Some(after.min(chunk.len()))
            }
            Some(Cut::Answers(after)) if !connection.reads.load(Ordering::SeqCst) => {
                *cut = after.checked_sub(chunk.len()).map(Cut::Answers);
                if cut.is_none() { Some(after) } else { None }
            }
            _ => None,
        }
    }
}

/// The reply to a read: a map (an array in RESP2) from streams to their entries.
fn brings_messages(chunk: &[u8]) -> bool {
    let head = &chunk[..chunk.len().min(32)];
    (head.starts_with(b"%1\r\n$") || head.starts_with(b"*1\r\n*2\r\n$"))
        && head.windows(13).any(|w| w == b"stream:topic:")
}
