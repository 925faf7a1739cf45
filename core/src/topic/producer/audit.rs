//! Recounts what waits for a broker.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;

use super::{Pending, Producer, Sending};
use crate::audit::{holds, same, size, within};
use crate::config::Limits;
use crate::id::{BrokerId, OpId};
use crate::timers::TimerSlot;

impl Producer {
    /// Compares the accounts of the backlog with its queues and its limits.
    pub(crate) fn audit(&self, limits: &Limits) -> Result<(), String> {
        same("backlog", "operations", self.ops.len(), self.ops.keys().count())?;
        same("backlog", "waiting operations", self.waiting, self.queued().count())?;
        let bytes = self.queued().map(|(_, sending)| sending.bytes).sum();
        same("backlog", "waiting bytes", size(self.waiting_bytes), size(bytes))?;
        let mut listed = BTreeSet::new();
        let parked = self.brokers.iter().flat_map(|(_, contact)| &contact.registered).flat_map(|of| &of.parked);
        for op in self.again.iter().chain(&self.backlog).chain(parked).filter(|op| self.ops.contains(**op)) {
            holds("backlog", listed.insert(*op), || format!("{op:?} is listed twice"))?;
            holds("backlog", self.is_queued(*op), || format!("{op:?} is listed and does not wait"))?;
        }
        same("backlog", "listed operations that wait", listed.len(), self.waiting)?;
        for (at, op) in &self.deadlines {
            let is_its = matches!(self.ops.get(*op), Some(Pending::Send(of)) if of.queued && of.deadline == *at);
            holds("backlog", is_its, || format!("{op:?} has a deadline at {at:?}, and does not wait until then"))?;
        }
        self.audit_limits(limits)
    }

    /// What came back from a broker may exceed the limits: it was accepted once.
    fn audit_limits(&self, limits: &Limits) -> Result<(), String> {
        let new = || self.backlog.iter().filter_map(|op| self.queued_send(*op));
        within("backlog", "operations never placed", new().count(), limits.backlog_ops.max(1) as usize)?;
        // A single message is accepted whatever its size.
        if new().count() > 1 {
            let bytes = new().map(|sending| sending.bytes).sum();
            within("backlog", "bytes never placed", size(bytes), size(limits.backlog_bytes))?;
        }
        Ok(())
    }

    /// The brokers it has told of topics.
    pub(crate) fn contacts(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.brokers.iter().map(|(broker, _)| broker)
    }

    pub(crate) fn owns_timer(&self, slot: TimerSlot) -> bool {
        self.timer == slot
    }

    pub(crate) fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// How many operations wait for a broker, and their bytes.
    pub(crate) fn backlog(&self) -> (usize, u64) {
        (self.waiting, self.waiting_bytes)
    }

    fn queued(&self) -> impl Iterator<Item = (OpId, &Sending)> {
        self.ops.iter().filter_map(|(op, pending)| match pending {
            Pending::Send(sending) if sending.queued => Some((op, sending)),
            _ => None,
        })
    }

    fn queued_send(&self, op: OpId) -> Option<&Sending> {
        match self.ops.get(op) {
            Some(Pending::Send(sending)) if sending.queued => Some(sending),
            _ => None,
        }
    }

    fn is_queued(&self, op: OpId) -> bool {
        self.queued_send(op).is_some()
    }
}
