//! The network: connections as two ordered streams of bytes, cut and glued anywhere, and what keeps them from flowing.
//!
//! What the bytes are is nobody's business here: a stream is a count of bytes written and of bytes arrived. Their
//! meaning travels beside it, as values (fast fidelity) or as bytes (full fidelity).
//!
//! Not modelled: congestion control, retransmission of single segments, path MTU, name resolution, TLS records.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use bytes::Bytes;
use flota_core::command::Command;
use flota_core::config::Endpoint;
use flota_core::reply::Reply;

use super::kernel::{Event, Kernel};
use crate::plan::Way;
use crate::seen::Line;

/// All connections of a run, and what is cut off at the moment.
#[derive(Default)]
pub(crate) struct Net {
    conns: Vec<Option<Conn>>,
    cuts: Vec<Cut>,
    /// Added to the plan's loss of datagrams while a fault lasts, in parts per million.
    pub(crate) extra_loss: u32,
}

/// One connection, from the dial to the moment when both ends have forgotten it.
pub(crate) struct Conn {
    pub(crate) service: u32,
    /// Who answers at the address; nobody where no broker ever was.
    pub(crate) broker: Option<u32>,
    pub(crate) broker_life: u32,
    pub(crate) client_open: bool,
    pub(crate) server_open: bool,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    pub(crate) cargo: Cargo,
    /// Commands that have arrived whole and wait for the broker.
    pub(crate) inbox: VecDeque<Vec<Bytes>>,
}

/// One direction.
#[derive(Default)]
pub(crate) struct Pipe {
    /// Bytes the sender's kernel has taken.
    pub(crate) written: u64,
    /// Bytes the receiver may read.
    pub(crate) arrived: u64,
    /// When the last of them arrives: nothing overtakes it.
    last_at: u64,
}

/// What the bytes mean.
pub(crate) enum Cargo {
    /// Values, each with the place of its last byte.
    Values { commands: VecDeque<(u64, Command)>, replies: VecDeque<(u64, Reply)> },
    /// Bytes, not yet taken by the receiver; and where each reply ends.
    Bytes { up: VecDeque<u8>, down: VecDeque<u8>, ends: VecDeque<u64>, requests: Box<crate::wire::Requests> },
}

impl Cargo {
    pub(crate) fn bytes() -> Self {
        Self::Bytes { up: VecDeque::new(), down: VecDeque::new(), ends: VecDeque::new(), requests: Box::default() }
    }
}

struct Cut {
    fault: u32,
    until: u64,
    services: Vec<u32>,
    brokers: Vec<u32>,
    way: Way,
}

/// A direction, for the one who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toward {
    Broker,
    Service,
}

impl Net {
    pub(crate) fn open(&mut self, conn: Conn) -> Line {
        let line = Line(u32::try_from(self.conns.len()).unwrap_or(u32::MAX));
        self.conns.push(Some(conn));
        line
    }

    pub(crate) fn get(&self, line: Line) -> Option<&Conn> {
        self.conns.get(line.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, line: Line) -> Option<&mut Conn> {
        self.conns.get_mut(line.0 as usize)?.as_mut()
    }

    /// Forgets a connection whose ends are both closed.
    pub(crate) fn sweep(&mut self, line: Line) {
        if let Some(slot) = self.conns.get_mut(line.0 as usize)
            && slot.as_ref().is_some_and(|conn| !conn.client_open && !conn.server_open)
        {
            *slot = None;
        }
    }

    /// Every connection that still exists, oldest first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Line, &Conn)> {
        self.conns.iter().zip(0u32..).filter_map(|(conn, line)| conn.as_ref().map(|conn| (Line(line), conn)))
    }

    pub(crate) fn cut(&mut self, fault: u32, until: u64, services: &[u32], brokers: &[u32], way: Way) {
        self.cuts.push(Cut { fault, until, services: services.to_vec(), brokers: brokers.to_vec(), way });
    }

    pub(crate) fn mend(&mut self, fault: u32) {
        self.cuts.retain(|cut| cut.fault != fault);
    }

    /// Until when nothing passes from one to the other; none when it does.
    pub(crate) fn cut_until(&self, service: u32, broker: u32, toward: Toward) -> Option<u64> {
        let bars = |way: Way| match way {
            Way::Both => true,
            Way::ToBrokers => toward == Toward::Broker,
            Way::ToServices => toward == Toward::Service,
        };
        self.cuts
            .iter()
            .filter(|cut| bars(cut.way) && cut.services.contains(&service) && cut.brokers.contains(&broker))
            .map(|cut| cut.until)
            .max()
    }
}

impl Kernel {
    /// One way through the network, in microseconds.
    pub(crate) fn latency(&mut self) -> u64 {
        let net = &self.plan.network;
        let (base, jitter, spike, spike_us) = (net.latency_us, net.jitter_us, net.spike, net.spike_us);
        let mut us = base + self.network.exponential(jitter);
        if self.network.chance(spike) {
            us += self.network.exponential(spike_us);
        }
        us
    }

    /// Sends so many bytes on their way, whole or in two pieces. What they mean must be in the cargo already.
    pub(crate) fn ship(&mut self, line: Line, toward: Toward, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (first, second) = (self.latency(), self.network.exponential(self.plan.network.jitter_us));
        let cut = self.plan.network.cut;
        let piece = if bytes > 1 && self.network.chance(cut) { 1 + self.network.below(bytes - 1) } else { bytes };
        let (now, latency) = (self.at, self.plan.network.latency_us);
        let Some(conn) = self.net.get(line) else { return };
        let barred = conn.broker.and_then(|broker| self.net.cut_until(conn.service, broker, toward));
        let Some(conn) = self.net.get_mut(line) else { return };
        let pipe = conn.pipe(toward);
        let begin = pipe.written;
        pipe.written += bytes;
        let at = (now + first).max(pipe.last_at).max(barred.map_or(0, |until| until + latency));
        let end = if piece < bytes { at + second } else { at };
        pipe.last_at = end;
        let arrive = |upto| match toward {
            Toward::Broker => Event::ToBroker { line, upto },
            Toward::Service => Event::ToService { line, upto },
        };
        self.at(at, arrive(begin + piece));
        if piece < bytes {
            self.at(end, arrive(begin + bytes));
        }
    }

    /// The other end learns that this one is closed: after everything written before, or, by a reset, at once.
    pub(crate) fn part(&mut self, line: Line, toward: Toward, reset: bool) {
        let latency = self.latency();
        let now = self.at;
        let Some(conn) = self.net.get(line) else { return };
        let barred = conn.broker.and_then(|broker| self.net.cut_until(conn.service, broker, toward));
        let Some(conn) = self.net.get_mut(line) else { return };
        let mut at = (now + latency).max(barred.map_or(0, |until| until + latency));
        if !reset {
            at = at.max(conn.pipe(toward).last_at);
        }
        self.at(
            at,
            match toward {
                Toward::Broker => Event::BrokerLearns(line),
                Toward::Service => Event::ServiceLearns { line, reset },
            },
        );
    }
}

impl Conn {
    pub(crate) fn pipe(&mut self, toward: Toward) -> &mut Pipe {
        match toward {
            Toward::Broker => &mut self.up,
            Toward::Service => &mut self.down,
        }
    }

    /// Bytes the service's kernel still takes.
    pub(crate) fn room(&self, send_buffer: u64) -> u64 {
        send_buffer.saturating_sub(self.up.written - self.up.arrived)
    }
}

/// A broker's address; its second one, where it has moved.
#[must_use]
pub fn broker_address(broker: u32, moved: bool) -> SocketAddr {
    let [_, _, high, low] = broker.to_be_bytes();
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, if moved { 2 } else { 1 }, high, low), 6379))
}

/// A service's address: where its datagrams come from.
#[must_use]
pub fn service_address(service: u32) -> SocketAddr {
    let [_, _, high, low] = service.to_be_bytes();
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(10, 0, high, low), 40_000))
}

/// The broker at an address, where the plan may have one.
#[must_use]
pub fn broker_at(address: &Endpoint, brokers: usize) -> Option<u32> {
    let Endpoint::Ip(SocketAddr::V4(v4)) = address else { return None };
    let [ten, net, high, low] = v4.ip().octets();
    let broker = u32::from_be_bytes([0, 0, high, low]);
    (ten == 10 && (net == 1 || net == 2) && v4.port() == 6379 && (broker as usize) < brokers).then_some(broker)
}
