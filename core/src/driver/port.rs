//! The announcement socket: what arrives goes to the engine, what leaves waits here when it must.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::net::Socket;
use super::sockets::Gauge;
use crate::engine::Engine;
use crate::time::Now;

/// Datagrams taken in one go. Within it, no time passes for the engine before the socket is empty.
const BUDGET: usize = 512;
/// The longest datagram there is.
const LONGEST: usize = 65_535;
/// Datagrams that may wait for the socket. An announcement that waits longer is better replaced by the next.
const WAITING: usize = 64;

pub(super) struct Port<S> {
    socket: S,
    gauge: Option<Gauge>,
    waker: Waker,
    buffer: Vec<u8>,
    outbox: VecDeque<(SocketAddr, Bytes)>,
    /// It may have something.
    flagged: bool,
}

impl<S: Socket> Port<S> {
    /// `waker` is the one of its own, which leads to [`flag`](Self::flag).
    pub(super) fn new(socket: S, gauge: Option<Gauge>, waker: Waker) -> Self {
        Self { socket, gauge, waker, buffer: alloc::vec![0; LONGEST], outbox: VecDeque::new(), flagged: true }
    }

    pub(super) fn gauge(&self) -> Option<&Gauge> {
        self.gauge.as_ref()
    }

    /// It was woken.
    pub(super) fn flag(&mut self) {
        self.flagged = true;
    }

    /// Reads until it is empty or the budget is used. Says whether anything was there.
    pub(super) fn hear(&mut self, engine: &mut Engine, now: Now) -> bool {
        let mut cx = Context::from_waker(&self.waker);
        let mut heard = false;
        for _ in 0..BUDGET {
            match self.socket.poll_recv(&mut cx, &mut self.buffer) {
                Poll::Pending => {
                    self.flagged = false;
                    return heard;
                }
                Poll::Ready(Ok((length, from))) => {
                    engine.handle_datagram(now, from, self.buffer.get(..length).unwrap_or_default());
                }
                // An answer to something that was sent, as "port unreachable": nothing to do about it.
                Poll::Ready(Err(_)) => {}
            }
            heard = true;
        }
        heard
    }

    /// Like [`hear`](Self::hear), if it was woken since it was last empty.
    pub(super) fn hear_if_flagged(&mut self, engine: &mut Engine, now: Now) -> bool {
        self.flagged && self.hear(engine, now)
    }

    /// Queues a datagram; the oldest gives way when too many wait.
    pub(super) fn send(&mut self, to: SocketAddr, payload: Bytes) {
        if self.outbox.len() >= WAITING {
            self.outbox.pop_front();
        }
        self.outbox.push_back((to, payload));
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        let mut cx = Context::from_waker(&self.waker);
        while let Some((to, payload)) = self.outbox.front() {
            // Where one destination fails the others still hear.
            if self.socket.poll_send(&mut cx, payload, *to).is_pending() {
                return;
            }
            self.outbox.pop_front();
        }
    }
}
