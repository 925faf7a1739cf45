//! The author's handlers in the place of the plan's.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;

use super::notes::Notes;
use super::service::{Handler, Job, Service};
use super::{Always, outcome};
use crate::seen::Item;
use crate::world::app::{self, Application, Call, Deed};

/// The state outside, and the processes that have it in their hands.
pub(super) struct Hosted<S> {
    state: S,
    services: Vec<Service<S>>,
    processes: Vec<Process<S>>,
    /// By message, as they are stored.
    bodies: Vec<Bytes>,
    always: Vec<Always<S>>,
    complaint: Option<String>,
    notes: Rc<RefCell<Notes>>,
}

/// The memory of a process.
struct Process<S> {
    life: u32,
    /// By consumer.
    handlers: Vec<Handler<S>>,
}

impl<S> Hosted<S> {
    pub(super) fn new(
        state: S,
        services: Vec<Service<S>>,
        bodies: Vec<Bytes>,
        always: Vec<Always<S>>,
        notes: Rc<RefCell<Notes>>,
    ) -> Self {
        let processes = services.iter().map(|_| Process { life: 0, handlers: Vec::new() }).collect();
        Self { state, services, processes, bodies, always, complaint: None, notes }
    }

    /// The state, and the bodies as they were stored.
    pub(super) fn into_parts(self) -> (S, Vec<Bytes>) {
        (self.state, self.bodies)
    }
}

impl<S> Application for Hosted<S> {
    fn body(&self, item: Item) -> Option<Bytes> {
        self.bodies.get(item.0 as usize).cloned()
    }

    fn act(&mut self, call: &Call, body: &Bytes) -> Deed {
        let at = call.service as usize;
        let (Some(service), Some(process)) = (self.services.get(at), self.processes.get_mut(at)) else {
            return Deed::Hang;
        };
        if process.life != call.life {
            // What the dead process knew is gone.
            process.life = call.life;
            process.handlers = service.consumers.iter().map(|consumer| (consumer.fresh)()).collect();
        }
        let sub = call.sub as usize;
        let (Some(consumer), Some(handler)) = (service.consumers.get(sub), process.handlers.get_mut(sub)) else {
            return Deed::Hang;
        };
        let job = Job {
            body: body.slice(app::TAG.min(body.len())..),
            topic: Rc::clone(&consumer.topic),
            deliveries: call.attempt,
            at: call.at,
            service: call.service,
            life: call.life,
        };
        let verdict = handler(&mut self.state, &job);
        self.notes.borrow_mut().called(call, verdict);
        if self.complaint.is_none() {
            let state = &self.state;
            self.complaint = self.always.iter().find_map(|holds| outcome(|| holds(state)).err());
        }
        verdict.deed()
    }

    fn complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }
}
