//! One client's connection: bytes in, requests out of them, replies waiting to leave.

use std::io::{self, Read, Write};

use bytes::Bytes;
use mio::net::TcpStream;

use crate::broker::Value;
use crate::wire::{self, Requests};

/// As many bytes are read at once.
pub(super) const READ: usize = 64 << 10;
/// Requests beyond this wait in the system, and so with the sender.
const UNREAD_MAX: usize = 1 << 20;
/// A buffer that has grown beyond this is given back once it is empty.
const KEEP: usize = 256 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    requests: Requests,
    /// Bytes fed to `requests` since it last had no whole one.
    unread: usize,
    output: Vec<u8>,
    sent: usize,
    /// The system may have bytes of the client.
    readable: bool,
    /// The system may take bytes for the client.
    writable: bool,
    /// The client has said that it sends no more, or the connection is broken.
    hung_up: bool,
    /// The client's end was read.
    ended: bool,
    /// Nothing more is executed; it is closed once everything has been sent.
    pub(super) closing: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            requests: Requests::default(),
            unread: 0,
            output: Vec::new(),
            sent: 0,
            readable: true,
            writable: true,
            hung_up: false,
            ended: false,
            closing: false,
        }
    }

    /// The system has news of it.
    pub(super) fn note(&mut self, readable: bool, writable: bool, hung_up: bool) {
        self.readable |= readable || hung_up;
        self.writable |= writable;
        self.hung_up |= hung_up;
    }

    /// The next request, out of what has been read.
    ///
    /// # Errors
    ///
    /// What is to be answered to bytes that are no request, before the connection is closed.
    pub(super) fn request(&mut self) -> Result<Option<Vec<Bytes>>, String> {
        let request = self.requests.next().map_err(String::from);
        if matches!(request, Ok(None)) {
            self.unread = 0;
        }
        request
    }

    /// Reads what there is. False when that is nothing new.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> bool {
        while self.readable && !self.ended && self.unread < UNREAD_MAX {
            match self.stream.read(scratch) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    // Less than there was room for is all there was, unless the client's end comes behind it.
                    self.readable = n == scratch.len() || self.hung_up;
                    self.unread += n;
                    self.requests.feed(scratch.get(..n).unwrap_or_default());
                    return true;
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.ended = true,
            }
        }
        false
    }

    /// Whether the client will send no more than it has sent.
    pub(super) fn has_ended(&self) -> bool {
        // The end that comes behind more than is read ahead is not read, only told of.
        self.ended || (self.hung_up && self.unread >= UNREAD_MAX)
    }

    /// Adds a reply to what leaves with the next [`write`](Self::write).
    pub(super) fn answer(&mut self, value: &Value, resp: u8) {
        wire::encode(value, resp, &mut self.output);
    }

    /// How many bytes wait to leave.
    pub(super) fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends as much as the system takes.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while self.writable && self.sent < self.output.len() {
            match self.stream.write(self.output.get(self.sent..).unwrap_or_default()) {
                Ok(n) => self.sent += n,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.output.shrink_to(KEEP);
            self.sent = 0;
        }
        Ok(())
    }
}
