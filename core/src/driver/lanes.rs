//! Every connection of a driver, and which of them have something to do.

use alloc::vec::Vec;
use core::mem;
use core::task::{Context, Poll, Waker};

use super::lane::{Lane, Next};
use super::net::Net;
use super::ready::ReadySet;
use crate::command::Command;
use crate::config::Endpoint;
use crate::engine::Engine;
use crate::id::{ConnId, Id};
use crate::mutant::Mutant;
use crate::time::Now;

/// The announcement socket's number in the ready set; connections follow it.
const PORT: u32 = 0;

pub(super) struct Lanes<N: Net> {
    /// By the index of their ids.
    slots: Vec<Slot<N>>,
    ready: ReadySet,
    flagged: Vec<u32>,
    to_write: Vec<u32>,
    to_read: Vec<u32>,
    /// The other half of `to_read`: one is gone through while the other is filled.
    reading: Vec<u32>,
    /// A read buffer for whichever lane reads.
    spare: Vec<u8>,
}

struct Slot<N: Net> {
    lane: Option<Lane<N>>,
    /// Made once for the slot, so that streams recognise it.
    waker: Waker,
}

impl<N: Net> Lanes<N> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            ready: ReadySet::new(),
            flagged: Vec::new(),
            to_write: Vec::new(),
            to_read: Vec::new(),
            reading: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The waker for the announcement socket.
    pub(super) fn port_waker(&self) -> Waker {
        self.ready.waker(PORT)
    }

    /// Sees who was woken, and arms `waker` for the next. Says whether the announcement socket was.
    pub(super) fn look(&mut self, waker: &Waker) -> bool {
        let mut flagged = mem::take(&mut self.flagged);
        self.ready.take(&mut flagged, waker);
        let mut port = false;
        for link in flagged.drain(..) {
            match link.checked_sub(PORT + 1) {
                None => port = true,
                Some(index) => self.woken(index),
            }
        }
        self.flagged = flagged;
        port
    }

    pub(super) fn dial(&mut self, net: &mut N, conn: ConnId, to: &Endpoint) {
        let index = conn.index();
        while self.slots.len() <= index as usize {
            let link = u32::try_from(self.slots.len()).unwrap_or(u32::MAX - 1) + PORT + 1;
            self.slots.push(Slot { lane: None, waker: self.ready.waker(link) });
        }
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.lane = Some(Lane::new(conn, net.dial(to)));
            self.woken(index);
        }
    }

    /// Encodes a command. One for a connection that is gone is dropped: the engine has been told, or will be.
    pub(super) fn send(&mut self, conn: ConnId, command: &Command) {
        if let Some(lane) = lane_of(&mut self.slots, conn) {
            lane.send(command);
            list_to_write(&mut self.to_write, lane, conn.index());
        }
    }

    pub(super) fn hang_up(&mut self, conn: ConnId) {
        if lane_of(&mut self.slots, conn).is_some()
            && let Some(slot) = self.slots.get_mut(conn.index() as usize)
        {
            slot.lane = None;
        }
    }

    /// Writes what waits. Says whether anything was taken.
    pub(super) fn write(&mut self, engine: &mut Engine, now: Now) -> bool {
        let mut wrote = false;
        let mut listed = mem::take(&mut self.to_write);
        for index in listed.drain(..) {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            let Some(lane) = &mut slot.lane else { continue };
            lane.to_write = false;
            let conn = lane.conn;
            let mut cx = Context::from_waker(&slot.waker);
            wrote |= lane.write(&mut cx, |commands| {
                if !engine.is_mutant(Mutant::DriverSentUnreported) {
                    engine.handle_sent(now, conn, commands);
                }
            });
            if lane.is_broken() {
                list_to_read(&mut self.to_read, lane, index);
            }
        }
        self.to_write = listed;
        wrote
    }

    /// Reads what has arrived and goes on with dials. Says whether anything came of it.
    pub(super) fn read(&mut self, engine: &mut Engine, now: Now) -> bool {
        let mut moved = false;
        let mut listed = mem::replace(&mut self.to_read, mem::take(&mut self.reading));
        for index in listed.drain(..) {
            moved |= self.read_one(engine, now, index);
        }
        self.reading = listed;
        moved
    }

    fn read_one(&mut self, engine: &mut Engine, now: Now, index: u32) -> bool {
        let Some(slot) = self.slots.get_mut(index as usize) else { return false };
        let Some(lane) = &mut slot.lane else { return false };
        lane.to_read = false;
        let conn = lane.conn;
        let mut cx = Context::from_waker(&slot.waker);
        if lane.is_dialling() {
            match lane.poll_dial(&mut cx) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) => {
                    list_to_read(&mut self.to_read, lane, index);
                    engine.handle_connected(now, conn);
                }
                Poll::Ready(Err(why)) => {
                    slot.lane = None;
                    engine.handle_closed(now, conn, why);
                }
            }
            return true;
        }
        let mut heard = false;
        let next = lane.read(&mut cx, &mut self.spare, |reply| {
            heard = true;
            engine.handle_reply(now, conn, reply);
        });
        // Answers may have opened the window.
        list_to_write(&mut self.to_write, lane, index);
        match next {
            Next::Wait => {
                if lane.is_midway() {
                    engine.handle_partial(now, conn);
                }
                heard
            }
            Next::Again => {
                list_to_read(&mut self.to_read, lane, index);
                true
            }
            Next::Closed(why) => {
                slot.lane = None;
                engine.handle_closed(now, conn, why);
                true
            }
        }
    }

    /// Every open lane is read in the next round, whether its waker said so or not.
    pub(super) fn read_all(&mut self) {
        for (slot, index) in self.slots.iter_mut().zip(0u32..) {
            if let Some(lane) = &mut slot.lane {
                list_to_read(&mut self.to_read, lane, index);
            }
        }
    }

    /// Whether a round would find something to write or to read.
    pub(super) fn have_work(&self) -> bool {
        !self.to_write.is_empty() || !self.to_read.is_empty()
    }

    fn woken(&mut self, index: u32) {
        if let Some(Slot { lane: Some(lane), .. }) = self.slots.get_mut(index as usize) {
            list_to_write(&mut self.to_write, lane, index);
            list_to_read(&mut self.to_read, lane, index);
        }
    }
}

fn lane_of<N: Net>(slots: &mut [Slot<N>], conn: ConnId) -> Option<&mut Lane<N>> {
    slots.get_mut(conn.index() as usize)?.lane.as_mut().filter(|lane| lane.conn == conn)
}

fn list_to_write<N: Net>(list: &mut Vec<u32>, lane: &mut Lane<N>, index: u32) {
    if lane.has_output() && !mem::replace(&mut lane.to_write, true) {
        list.push(index);
    }
}

fn list_to_read<N: Net>(list: &mut Vec<u32>, lane: &mut Lane<N>, index: u32) {
    if !mem::replace(&mut lane.to_read, true) {
        list.push(index);
    }
}
