//! A network in memory for tests: what is written, how much of it at a time, and what comes back, all by script.

#![allow(clippy::unwrap_used, reason = "a test")]

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::{Ready, ready};
use core::net::SocketAddr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::io;
use std::sync::{Mutex, MutexGuard};

use bytes::BufMut;

use super::net;
use crate::config::Endpoint;
use crate::time::{Mono, Now, Wall};

/// Everything outside of a driver. Clones are the same.
#[derive(Clone)]
pub(super) struct World(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    now: Now,
    /// Every connection so far, oldest first.
    pub(super) wires: Vec<Wire>,
    /// Dials fail with this.
    pub(super) refuse: Option<io::ErrorKind>,
    arrived: VecDeque<(Vec<u8>, SocketAddr)>,
    pub(super) sent: Vec<(SocketAddr, Vec<u8>)>,
    port: Option<Waker>,
    alarm: Option<(Mono, Waker)>,
}

impl World {
    pub(super) fn new() -> Self {
        let state = State { now: Now { mono: Mono(1_000_000), wall: Wall(1_700_000_000_000) }, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(super) fn wires(&self) -> Vec<Wire> {
        self.state().wires.clone()
    }

    pub(super) fn announce(&self, datagram: &[u8], from: SocketAddr) {
        let mut state = self.state();
        state.arrived.push_back((datagram.to_vec(), from));
        let waker = state.port.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Lets time pass, and rings the alarm if it is due.
    pub(super) fn pass(&self, by: Duration) {
        let mut state = self.state();
        state.now.mono = state.now.mono + by;
        let mono = state.now.mono;
        let due = state.alarm.take_if(|(at, _)| *at <= mono);
        drop(state);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Lets exactly as much time pass as the driver waits for.
    pub(super) fn pass_to_the_alarm(&self) {
        let wait = {
            let state = self.state();
            let (at, _) = state.alarm.as_ref().expect("an alarm is set");
            at.since(state.now.mono)
        };
        self.pass(wait);
    }
}

impl net::Net for World {
    type Stream = Wire;
    type Dial = Ready<io::Result<Wire>>;
    type Socket = Self;
    type Alarm = Self;

    fn now(&self) -> Now {
        self.state().now
    }

    fn dial(&mut self, to: &Endpoint) -> Self::Dial {
        let mut state = self.state();
        if let Some(kind) = state.refuse {
            return ready(Err(kind.into()));
        }
        let wire = Wire::new(to);
        state.wires.push(wire.clone());
        ready(Ok(wire))
    }
}

impl net::Socket for World {
    fn poll_recv(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut state = self.state();
        match state.arrived.pop_front() {
            Some((datagram, from)) => {
                into[..datagram.len()].copy_from_slice(&datagram);
                Poll::Ready(Ok((datagram.len(), from)))
            }
            None => {
                state.port = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_send(&mut self, _: &mut Context<'_>, payload: &[u8], to: SocketAddr) -> Poll<io::Result<usize>> {
        self.state().sent.push((to, payload.to_vec()));
        Poll::Ready(Ok(payload.len()))
    }
}

impl net::Alarm for World {
    fn poll_at(&mut self, cx: &mut Context<'_>, at: Mono) -> Poll<()> {
        let mut state = self.state();
        if at <= state.now.mono {
            return Poll::Ready(());
        }
        state.alarm = Some((at, cx.waker().clone()));
        Poll::Pending
    }
}

/// One connection, seen from both ends. Clones are the same.
#[derive(Clone)]
pub(super) struct Wire(Arc<Mutex<Ends>>);

#[derive(Default)]
pub(super) struct Ends {
    /// Where it leads.
    pub(super) to: String,
    /// What reads find: one piece each.
    inbound: VecDeque<Vec<u8>>,
    ended: bool,
    /// What was written, each write for itself.
    pub(super) written: Vec<Vec<u8>>,
    /// How many bytes the next writes take; then, any number.
    pub(super) takes: VecDeque<usize>,
    /// After those, none.
    pub(super) stuck: bool,
    pub(super) write_error: Option<io::ErrorKind>,
    /// How often it was asked for bytes.
    pub(super) reads: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Written and not yet seen by [`Wire::commands`].
    unseen: Vec<u8>,
}

impl Wire {
    fn new(to: &Endpoint) -> Self {
        Self(Arc::new(Mutex::new(Ends { to: to.to_string(), ..Ends::default() })))
    }

    pub(super) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap()
    }

    /// The server says something, which arrives in one piece.
    pub(super) fn say(&self, bytes: impl AsRef<[u8]>) {
        let mut ends = self.ends();
        ends.inbound.push_back(bytes.as_ref().to_vec());
        let waker = ends.reader.take();
        drop(ends);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The server closes; what it has said before is still read.
    pub(super) fn end(&self) {
        let mut ends = self.ends();
        ends.ended = true;
        let waker = ends.reader.take();
        drop(ends);
        waker.into_iter().for_each(Waker::wake);
    }

    /// It takes bytes again.
    pub(super) fn unstick(&self) {
        let mut ends = self.ends();
        ends.stuck = false;
        let waker = ends.writer.take();
        drop(ends);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The commands that have arrived whole since the last call.
    pub(super) fn commands(&self) -> Vec<Vec<String>> {
        let mut ends = self.ends();
        let mut commands = Vec::new();
        while let Some((command, taken)) = parse(&ends.unseen) {
            ends.unseen.drain(..taken);
            commands.push(command);
        }
        commands
    }
}

fn parse(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let line = |at: usize| {
        let length = bytes.get(at..)?.windows(2).position(|w| w == b"\r\n")?;
        let number = core::str::from_utf8(&bytes[at + 1..at + length]).unwrap().parse::<usize>().unwrap();
        Some((number, at + length + 2))
    };
    let (count, mut at) = line(0)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, start) = line(at)?;
        words.push(String::from_utf8_lossy(bytes.get(start..start + length)?).into_owned());
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

impl net::Stream for Wire {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut impl BufMut) -> Poll<io::Result<usize>> {
        let mut ends = self.ends();
        ends.reads += 1;
        let Some(mut piece) = ends.inbound.pop_front() else {
            if ends.ended {
                return Poll::Ready(Ok(0));
            }
            ends.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let room = into.chunk_mut().len().min(piece.len());
        into.put_slice(&piece[..room]);
        if room < piece.len() {
            ends.inbound.push_front(piece.split_off(room));
        }
        Poll::Ready(Ok(room))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let mut ends = self.ends();
        if let Some(kind) = ends.write_error {
            return Poll::Ready(Err(kind.into()));
        }
        let takes = match ends.takes.pop_front() {
            Some(takes) => takes.min(from.len()),
            None if ends.stuck => 0,
            None => from.len(),
        };
        if takes == 0 {
            ends.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        ends.written.push(from[..takes].to_vec());
        ends.unseen.extend_from_slice(&from[..takes]);
        Poll::Ready(Ok(takes))
    }
}

/// A waker that counts.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wakes {
    pub(super) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self::default());
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    /// How often it was woken since the last call.
    pub(super) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
