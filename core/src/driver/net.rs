//! What a runtime gives the driver: a clock, dials, streams, one datagram socket, one alarm.
//!
//! Everything is polled. Of two wakers given to one object for one direction the later counts, and an object that
//! returned `Pending` wakes once it may have something. Nothing here blocks.

use alloc::string::String;
use core::fmt;
use core::future::Future;
use core::net::SocketAddr;
use core::task::{Context, Poll};
use std::io;

use bytes::BufMut;

use crate::config::Endpoint;
use crate::output::{Closed, ClosedReason};
use crate::time::{Mono, Now};

/// A runtime, as far as the driver needs one.
pub trait Net {
    /// A connection.
    type Stream: Stream;
    /// A connection to be. Dropped, it gives up.
    type Dial: Future<Output = io::Result<Self::Stream>> + Unpin;
    /// Where announcements arrive and leave.
    type Socket: Socket;
    /// What wakes the driver when something is due.
    type Alarm: Alarm;

    /// Both clocks, read together. The monotonic one goes on while the machine sleeps, where that can be had.
    fn now(&self) -> Now;

    /// Begins to connect. A host name is resolved at every dial; [`DialError`] names what has no `io::ErrorKind`.
    fn dial(&mut self, to: &Endpoint) -> Self::Dial;
}

/// One connection.
pub trait Stream: Unpin {
    /// Appends what has arrived, at most what `into.chunk_mut()` has room for, and says how many bytes; zero is the end.
    ///
    /// Fewer bytes than there was room for mean that nothing more is there for now; the driver asks once more before it
    /// sleeps.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut impl BufMut) -> Poll<io::Result<usize>>;

    /// Takes bytes from the beginning of `from` and says how many.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>>;

    /// Pushes out what a layer in between holds back. A plain socket holds nothing back.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }
}

/// The announcement socket.
pub trait Socket: Unpin {
    /// One datagram and its sender. What does not fit is cut off. `Pending` says that none is there: the driver lets
    /// time pass then, so a runtime must not say it for other reasons, as to be fair to other tasks.
    ///
    /// # Errors
    ///
    /// When the socket has something to complain about; the next call may succeed.
    fn poll_recv(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>>;

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// When it cannot be sent there.
    fn poll_send(&mut self, cx: &mut Context<'_>, payload: &[u8], to: SocketAddr) -> Poll<io::Result<usize>>;
}

/// One alarm, set anew with every poll.
pub trait Alarm: Unpin {
    /// Ready at `at` or later, never earlier: the driver would spin.
    fn poll_at(&mut self, cx: &mut Context<'_>, at: Mono) -> Poll<()>;
}

/// What can go wrong in a dial besides the socket: carried inside of an `io::Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The name does not resolve; the resolver's words.
    Unresolved(String),
    /// The TLS handshake failed; the TLS layer's words.
    Tls(String),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved(why) => write!(f, "the host name does not resolve: {why}"),
            Self::Tls(why) => write!(f, "the TLS handshake failed: {why}"),
        }
    }
}

impl core::error::Error for DialError {}

impl From<DialError> for io::Error {
    fn from(error: DialError) -> Self {
        Self::other(error)
    }
}

/// What the engine is told about a failed dial or a broken connection.
pub(super) fn closed_by(error: &io::Error) -> Closed {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let reason = match (inner, error.kind()) {
        (Some(DialError::Unresolved(_)), _) => ClosedReason::Unresolved,
        (Some(DialError::Tls(_)), _) => ClosedReason::Tls,
        (
            None,
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable,
        ) => ClosedReason::Refused,
        (None, _) => ClosedReason::Io,
    };
    Closed { reason, detail: alloc::format!("{error}") }
}
