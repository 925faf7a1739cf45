//! The network as a driver sees it: dials, streams that give and take any number of bytes, one socket, one alarm.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::BufMut;
use flota_core::config::Endpoint;
use flota_core::driver::net;
use flota_core::id::{ConnId, Id};
use flota_core::output::{Closed, ClosedReason};
use flota_core::time::{Mono, Now};

use super::super::broker::classify;
use super::super::fast::close_client_end;
use super::super::kernel::Event;
use super::super::net::{Cargo, Conn, Pipe, Toward, broker_at};
use super::outside::{Outside, State};
use crate::seen::{Line, What};
use crate::wire::Requests;

/// The process's end of a connection.
#[derive(Default)]
pub(super) struct End {
    pub(super) dial: Dialling,
    /// How the peer has ended it, once everything before that has arrived.
    pub(super) ended: Option<Ending>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    /// Bytes the driver has read.
    read: u64,
    /// The driver was told that it is over.
    told: bool,
    /// What it writes, to see which commands it completes.
    requests: Requests,
    /// Bytes written since the last whole command.
    partly: u64,
}

/// How far a dial has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dialling {
    #[default]
    UnderWay,
    Connected,
    Refused,
}

/// How a peer ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// After everything it has sent.
    Eof,
    /// At once: what lies unread is lost.
    Reset,
}

impl End {
    pub(super) fn wakers(&mut self) -> [Option<Waker>; 2] {
        [self.reader.take(), self.writer.take()]
    }
}

/// What a driver is given.
pub(super) struct SimNet(pub(super) Outside);

impl net::Net for SimNet {
    type Stream = SimStream;
    type Dial = SimDial;
    type Socket = SimSocket;
    type Alarm = SimAlarm;

    fn now(&self) -> Now {
        // A driver asks once in each of its rounds: what it told in the last comes before what it hears in this one.
        self.0.tell_fleet();
        let state = self.0.state();
        state.clock.now(state.k.at)
    }

    fn dial(&mut self, to: &Endpoint) -> SimDial {
        // What an engine says before it dials is seen before it dials.
        self.0.tell_fleet();
        let mut guard = self.0.state();
        let state = &mut *guard;
        let line = state.k.net.open(Conn {
            service: state.index,
            broker: broker_at(to, state.k.plan.brokers.len()),
            broker_life: 0,
            client_open: true,
            server_open: false,
            up: Pipe::default(),
            down: Pipe::default(),
            cargo: Cargo::bytes(),
            inbox: std::collections::VecDeque::new(),
        });
        state.ends.insert(line, End::default());
        // The driver's own name for it stays with the driver.
        state.see(What::Dialled { conn: ConnId::from_parts(line.0, 0), line, to: to.clone() });
        let us = state.k.latency() + state.k.latency();
        state.k.after(us, Event::Dial { line, tries: 0 });
        drop(guard);
        SimDial { outside: self.0.clone(), line: Some(line) }
    }
}

/// A connection to be.
pub(super) struct SimDial {
    outside: Outside,
    /// None when it has come to its end.
    line: Option<Line>,
}

impl Future for SimDial {
    type Output = io::Result<SimStream>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(line) = self.line else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let mut guard = self.outside.state();
        let state = &mut *guard;
        let dial = state.ends.get(&line).map_or(Dialling::Refused, |end| end.dial);
        if dial == Dialling::UnderWay {
            if let Some(end) = state.ends.get_mut(&line) {
                end.reader = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        if state.hesitates() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if dial == Dialling::Connected {
            state.see(What::Connected(line));
            drop(guard);
            self.line = None;
            return Poll::Ready(Ok(SimStream { outside: self.outside.clone(), line }));
        }
        state.tell_closed(line, ClosedReason::Refused, "connection refused");
        drop(guard);
        Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()))
    }
}

impl Drop for SimDial {
    fn drop(&mut self) {
        if let Some(line) = self.line {
            self.outside.let_go(line);
        }
    }
}

/// A connection.
pub(super) struct SimStream {
    outside: Outside,
    line: Line,
}

impl net::Stream for SimStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut impl BufMut) -> Poll<io::Result<usize>> {
        let mut guard = self.outside.state();
        let state = &mut *guard;
        let Some(end) = state.ends.get(&self.line) else { return Poll::Ready(Ok(0)) };
        let (ended, read) = (end.ended, end.read);
        if ended == Some(Ending::Reset) {
            state.tell_closed(self.line, ClosedReason::Io, "connection reset by peer");
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let arrived = state.k.net.get(self.line).map_or(0, |conn| conn.down.arrived);
        let room = into.chunk_mut().len();
        let most = usize::try_from(arrived.saturating_sub(read)).unwrap_or(usize::MAX).min(room);
        if most == 0 {
            if ended == Some(Ending::Eof) {
                state.tell_closed(self.line, ClosedReason::Eof, "the peer closed the connection");
                return Poll::Ready(Ok(0));
            }
            if let Some(end) = state.ends.get_mut(&self.line) {
                end.reader = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        if state.hesitates() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = state.some_of(most);
        let read = state.take(self.line, taken, into);
        Poll::Ready(Ok(read))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let mut guard = self.outside.state();
        let state = &mut *guard;
        let ended = state.ends.get(&self.line).map(|end| end.ended);
        if ended.is_none_or(|ended| ended == Some(Ending::Reset)) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let buffer = state.k.plan.network.send_buffer;
        let room = state.k.net.get(self.line).map_or(0, |conn| conn.room(buffer));
        let most = usize::try_from(room).unwrap_or(usize::MAX).min(from.len());
        if most == 0 {
            if let Some(end) = state.ends.get_mut(&self.line) {
                end.writer = Some(cx.waker().clone());
            }
            state.see(What::Stuck(self.line));
            return Poll::Pending;
        }
        if state.hesitates() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let taken = state.some_of(most);
        state.give(self.line, from.get(..taken).unwrap_or_default());
        Poll::Ready(Ok(taken))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.outside.let_go(self.line);
    }
}

impl State {
    /// Moves bytes that have arrived to the driver.
    fn take(&mut self, line: Line, count: usize, into: &mut impl BufMut) -> usize {
        let mut replies = 0;
        let mut bytes: Vec<u8> = Vec::new();
        let Some(end) = self.ends.get_mut(&line) else { return 0 };
        if let Some(Conn { cargo: Cargo::Bytes { down, ends, .. }, .. }) = self.k.net.get_mut(line) {
            bytes.extend(down.drain(..count.min(down.len())));
            end.read += bytes.len() as u64;
            while ends.front().is_some_and(|at| *at <= end.read) {
                ends.pop_front();
                replies += 1;
            }
        }
        into.put_slice(&bytes);
        (0..replies).for_each(|_| self.see(What::Replied(line)));
        bytes.len()
    }

    /// Takes bytes from the driver and sends them on their way.
    fn give(&mut self, line: Line, bytes: &[u8]) {
        let Some(end) = self.ends.get_mut(&line) else { return };
        end.requests.feed(bytes);
        end.partly += bytes.len() as u64;
        let mut commands = Vec::new();
        while let Ok(Some(words)) = end.requests.next() {
            // What follows it in this write is counted with it: nobody needs to know better.
            commands.push((classify(&words), std::mem::take(&mut end.partly)));
        }
        if let Some(Conn { cargo: Cargo::Bytes { up, .. }, .. }) = self.k.net.get_mut(line) {
            up.extend(bytes);
        }
        for (command, bytes) in commands {
            self.see(What::Wrote { line, command, bytes });
            self.see(What::Sent(line, 1));
        }
        self.k.ship(line, Toward::Broker, bytes.len() as u64);
    }

    /// The driver hears that a connection is over, or never came about.
    fn tell_closed(&mut self, line: Line, reason: ClosedReason, detail: &str) {
        let Some(end) = self.ends.get_mut(&line) else { return };
        if !std::mem::replace(&mut end.told, true) {
            self.see(What::Closed { line, why: Closed { reason, detail: detail.to_string() } });
        }
    }
}

impl Outside {
    /// The driver drops a connection.
    fn let_go(&self, line: Line) {
        if self.state().dead {
            return;
        }
        self.tell_fleet();
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(end) = state.ends.remove(&line) else { return };
        if !end.told {
            state.see(What::HungUp(line));
        }
        close_client_end(&mut state.k, line, false);
    }
}

/// Where announcements arrive.
pub(super) struct SimSocket(pub(super) Outside);

impl net::Socket for SimSocket {
    fn poll_recv(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let Some((from, datagram)) = state.datagrams.pop_front() else {
            state.port = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let length = datagram.len().min(into.len());
        if let (Some(into), Some(datagram)) = (into.get_mut(..length), datagram.get(..length)) {
            into.copy_from_slice(datagram);
        }
        state.see(What::Heard { from, datagram });
        Poll::Ready(Ok((length, from)))
    }

    fn poll_send(&mut self, _: &mut Context<'_>, payload: &[u8], _: SocketAddr) -> Poll<io::Result<usize>> {
        // Only announcers send any, and none runs in a process here.
        Poll::Ready(Ok(payload.len()))
    }
}

/// What wakes the driver, by its machine's clock.
pub(super) struct SimAlarm(pub(super) Outside);

impl net::Alarm for SimAlarm {
    fn poll_at(&mut self, cx: &mut Context<'_>, at: Mono) -> Poll<()> {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let when = state.clock.when(at);
        if when <= state.k.at {
            state.time_passed = true;
            return Poll::Ready(());
        }
        state.alarm = Some(cx.waker().clone());
        if state.alarm_at != Some(when) {
            state.alarm_at = Some(when);
            let (service, life) = (state.index, state.life);
            state.k.at(when, Event::Wake { service, life, at: when });
        }
        Poll::Pending
    }
}
