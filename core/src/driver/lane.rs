//! One connection: its dial or stream, what is to be written, what has been read, and the window between them.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::Future;
use core::mem;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;

use super::net::{Net, Stream, closed_by};
use super::resp::{Limits, Scan, Writer};
use crate::command::Command;
use crate::id::ConnId;
use crate::output::{Closed, ClosedReason};
use crate::reply::Reply;

#[cfg(all(test, not(loom)))]
mod tests;

/// Bytes of commands written and not yet answered, at most. A server whose receive window closes costs both sides; this
/// also bounds what is ambiguous when a connection dies.
pub(super) const WINDOW: usize = 96 * 1024;
/// A full window is written into again when this much of it is answered.
const RESUME: usize = WINDOW / 4;
/// What one read asks for.
pub(super) const READ: usize = 64 * 1024;
/// Reads of one lane in one round: others want their turn.
const READS: usize = 16;
/// An empty buffer larger than this is given back.
const KEPT: usize = 1024 * 1024;

/// One connection, from the dial to the close.
pub(super) struct Lane<N: Net> {
    pub(super) conn: ConnId,
    phase: Phase<N>,
    output: Output,
    input: Vec<u8>,
    scan: Scan,
    /// Writing failed. What the server still said is read first: it may say why.
    broken: Option<Closed>,
    /// It stands in the driver's lists of lanes to write to, and to read from.
    pub(super) to_write: bool,
    pub(super) to_read: bool,
}

enum Phase<N: Net> {
    Dialling(N::Dial),
    Open(N::Stream),
}

/// What writing or reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing more for now; the waker is armed, or the other direction has to move first.
    Wait,
    /// There may be more: come back in the next round.
    Again,
    /// It is over.
    Closed(Closed),
}

impl<N: Net> Lane<N> {
    pub(super) fn new(conn: ConnId, dial: N::Dial) -> Self {
        Self {
            conn,
            phase: Phase::Dialling(dial),
            output: Output::default(),
            input: Vec::new(),
            scan: Scan::new(Limits::default()),
            broken: None,
            to_write: false,
            to_read: false,
        }
    }

    pub(super) fn is_dialling(&self) -> bool {
        matches!(self.phase, Phase::Dialling(_))
    }

    /// Drives the dial; ready once, when the stream is open or refused.
    pub(super) fn poll_dial(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let Phase::Dialling(dial) = &mut self.phase else { return Poll::Pending };
        match Pin::new(dial).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(stream)) => {
                self.phase = Phase::Open(stream);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(closed_by(&error))),
        }
    }

    /// Encodes a command behind those that wait.
    pub(super) fn send(&mut self, command: &Command) {
        self.output.push(command);
    }

    /// Whether a write would have something to do.
    pub(super) fn has_output(&self) -> bool {
        self.broken.is_none() && self.output.has_work()
    }

    /// Whether writing has failed: it is to be read to its end.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Writes what the window allows. `sent` is told after each write how many more commands are accepted whole.
    /// Says whether anything was taken.
    pub(super) fn write(&mut self, cx: &mut Context<'_>, mut sent: impl FnMut(u64)) -> bool {
        let Phase::Open(stream) = &mut self.phase else { return false };
        if self.broken.is_some() {
            return false;
        }
        let before = self.output.writable;
        if let Err(error) = self.output.write(stream, cx, &mut sent) {
            self.broken = Some(closed_by(&error));
        }
        self.output.writable < before
    }

    /// Whether a part of a reply has arrived.
    pub(super) fn is_midway(&self) -> bool {
        !self.input.is_empty()
    }

    /// Reads until a read is short. `spare` is a buffer that lanes share: only one in the middle of a reply keeps it.
    pub(super) fn read(&mut self, cx: &mut Context<'_>, spare: &mut Vec<u8>, mut heard: impl FnMut(Reply)) -> Next {
        let Phase::Open(stream) = &mut self.phase else { return Next::Wait };
        if self.input.capacity() == 0 {
            self.input = mem::take(spare);
        }
        let mut next = Next::Again;
        for _ in 0..READS {
            self.input.reserve(READ);
            let room = self.input.capacity() - self.input.len();
            let read = match stream.poll_read(cx, &mut self.input) {
                Poll::Pending => {
                    next = Next::Wait;
                    break;
                }
                Poll::Ready(Ok(0)) => {
                    next = Next::Closed(ended(&self.input));
                    break;
                }
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(error)) => {
                    next = Next::Closed(closed_by(&error));
                    break;
                }
            };
            if let Err(why) = hear(&mut self.scan, &mut self.input, &mut self.output, &mut heard) {
                next = Next::Closed(Closed { reason: ClosedReason::Protocol, detail: why });
                break;
            }
            // A short read has emptied the socket: it is asked again in the next round, which arms the waker.
            if read < room {
                break;
            }
        }
        if self.input.is_empty() {
            let used = mem::take(&mut self.input);
            if used.capacity() <= KEPT {
                *spare = used;
            }
        }
        match (&self.broken, next) {
            (Some(broken), Next::Wait) => Next::Closed(broken.clone()),
            (_, next) => next,
        }
    }
}

/// Every whole reply in the buffer.
fn hear(
    scan: &mut Scan,
    input: &mut Vec<u8>,
    output: &mut Output,
    heard: &mut impl FnMut(Reply),
) -> Result<(), String> {
    let mut at = 0;
    let result = loop {
        match scan.poll(input.get(at..).unwrap_or_default()) {
            Ok(Some((reply, taken))) => {
                at += taken;
                if !reply.is_push() {
                    output.answered();
                }
                heard(reply);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.to_string()),
        }
    };
    input.drain(..at);
    result
}

fn ended(rest: &[u8]) -> Closed {
    let detail = if rest.is_empty() { "the server closed the connection" } else { "it ended in the middle of a reply" };
    Closed { reason: ClosedReason::Eof, detail: detail.into() }
}

/// Encoded commands, from the encoder to the answer.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    /// Up to here `bytes` is written.
    at: usize,
    /// Sizes of the commands that are unanswered, oldest first.
    sizes: VecDeque<usize>,
    /// How many of them the window lets through, how many are written whole, and bytes of the one after those.
    admitted: usize,
    written: usize,
    partly: usize,
    /// Bytes admitted and unanswered, and bytes admitted and not yet written.
    unanswered: usize,
    writable: usize,
    /// The window was full and not enough of it is answered yet.
    full: bool,
    /// Bytes were written since the last complete flush.
    unflushed: bool,
}

impl Output {
    fn push(&mut self, command: &Command) {
        let before = self.bytes.len();
        let mut writer = Writer::new(&mut self.bytes);
        command.args(&mut writer);
        writer.finish();
        self.sizes.push_back(self.bytes.len() - before);
        self.admit();
    }

    fn has_work(&self) -> bool {
        self.writable > 0 || self.unflushed
    }

    /// Lets commands into the window while they fit. One that never fits goes alone.
    fn admit(&mut self) {
        if self.full {
            if WINDOW.saturating_sub(self.unanswered) < RESUME {
                return;
            }
            self.full = false;
        }
        while let Some(size) = self.sizes.get(self.admitted) {
            if self.unanswered > 0 && self.unanswered + size > WINDOW {
                self.full = true;
                return;
            }
            self.unanswered += size;
            self.writable += size;
            self.admitted += 1;
        }
    }

    /// The oldest written command is answered. A reply to nothing changes nothing: the engine judges it.
    fn answered(&mut self) {
        if self.written == 0 {
            return;
        }
        if let Some(size) = self.sizes.pop_front() {
            self.written -= 1;
            self.admitted -= 1;
            self.unanswered -= size;
        }
        self.admit();
    }

    fn write(&mut self, stream: &mut impl Stream, cx: &mut Context<'_>, sent: &mut impl FnMut(u64)) -> io::Result<()> {
        while self.writable > 0 {
            let from = self.bytes.get(self.at..self.at + self.writable).unwrap_or_default();
            match stream.poll_write(cx, from) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(n)) => {
                    // What a stream says is not ours to assert.
                    let commands = self.accepted(n.min(from.len()));
                    if commands > 0 {
                        sent(commands);
                    }
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = stream.poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
        }
        Ok(())
    }

    /// The stream has taken this many bytes. Returns how many commands that completes.
    fn accepted(&mut self, bytes: usize) -> u64 {
        self.at += bytes;
        self.writable -= bytes;
        self.partly += bytes;
        self.unflushed = true;
        let before = self.written;
        while let Some(size) = self.sizes.get(self.written)
            && self.partly >= *size
        {
            self.partly -= size;
            self.written += 1;
        }
        self.forget_written();
        (self.written - before) as u64
    }

    fn forget_written(&mut self) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
            if self.bytes.capacity() > KEPT {
                self.bytes = Vec::new();
            }
        } else if self.at >= WINDOW && self.at * 2 >= self.bytes.len() {
            // At most as many bytes are moved as were written since the last time.
            self.bytes.drain(..self.at);
            self.at = 0;
        }
    }
}
