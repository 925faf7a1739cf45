//! Your own handlers in a simulated fleet: killed, cut off and delivered to twice, the same way for the same seed.
//!
//! [`Sim`] builds a fleet of brokers, puts your handlers into services, sends your messages, lets things go wrong, and
//! checks what you say must hold; that Flota keeps its own promises is checked, too. [`search`] runs many seeds until
//! one fails, and leaves out of it every fault that is not needed for that.
//!
//! A handler has two kinds of memory, and mistakes are about taking one for the other:
//!
//! | What | Where | When a process dies |
//! |---|---|---|
//! | The state `S` of [`Sim::new`] | outside: your database, a payment provider | stays |
//! | What a handler's closure owns | in the process | is gone: each start has a fresh clone |
//!
//! A handler is called at a moment drawn between the start of its work and its verdict. A crash comes before that, and
//! nothing was done; or after it, and all was done, but nobody was told.

mod application;
mod notes;
mod planning;
mod run;
mod search;
mod service;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;

pub use run::{Message, Run};
pub use search::{Found, search};
pub use service::{Job, Service, Verdict};

use crate::invariants::CHECK;
use crate::oracle::Violation;
use crate::plan::{Fault, Knobs, Persistence, Trouble, Way};
use crate::seen::Host;
use crate::trial::{Trial, text_of};
use application::Hosted;
use notes::Notes;

/// Looks at the state outside, while the run goes on.
type Always<S> = Box<dyn Fn(&S) -> Result<(), String>>;
/// Looks at the state outside, and at what became of each message, at the end.
type Check<S> = Box<dyn FnOnce(&S, &[Message]) -> Result<(), String>>;

/// A run to be, see the [module](self). `S` is what outlives processes.
///
/// Messages come from a service of their own, which is never killed. Times are of the simulated world: a run of
/// [30 seconds](Sim::lasts) takes milliseconds. After it everything heals, and the run goes on until every message is
/// handled or a dead letter; then everybody stops in order.
pub struct Sim<S> {
    seed: u64,
    state: S,
    brokers: u32,
    persistence: Persistence,
    services: Vec<Service<S>>,
    sends: Vec<(String, Bytes)>,
    faults: Vec<Fault>,
    chaos: bool,
    only: Option<Vec<Fault>>,
    lasts: Duration,
    knobs: Knobs,
    always: Vec<Always<S>>,
    checks: Vec<Check<S>>,
}

impl<S: 'static> Sim<S> {
    /// A fleet of three brokers that keep what they have answered, without services. The same seed is the same run;
    /// `state` is what outlives processes: your database.
    #[must_use]
    pub fn new(seed: u64, state: S) -> Self {
        Self {
            seed,
            state,
            brokers: 3,
            persistence: Persistence::Always,
            services: Vec::new(),
            sends: Vec::new(),
            faults: Vec::new(),
            chaos: false,
            only: None,
            lasts: Duration::from_secs(30),
            knobs: planning::knobs(),
            always: Vec::new(),
            checks: Vec::new(),
        }
    }

    // ---- who is there ----

    /// So many brokers; at least one.
    #[must_use]
    pub fn brokers(mut self, brokers: u32) -> Self {
        self.brokers = brokers.max(1);
        self
    }

    /// What brokers keep when they crash: [`Persistence::Always`] unless it is said. With less, stored messages get lost.
    #[must_use]
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// One more service; the first is service 0.
    #[must_use]
    pub fn service(self, build: impl FnOnce(Service<S>) -> Service<S>) -> Self {
        self.services(1, build)
    }

    /// So many more services, all alike: each is a process with handlers of its own.
    #[must_use]
    pub fn services(mut self, services: u32, build: impl FnOnce(Service<S>) -> Service<S>) -> Self {
        let service = build(Service::default());
        self.services.extend((0..services).map(|_| service.clone()));
        self
    }

    /// Sends so many messages to a topic, spread over the run. `body` is called with 0, 1, 2, …
    #[must_use]
    pub fn send<B: Into<Vec<u8>>>(mut self, topic: &str, messages: u32, body: impl FnMut(u32) -> B) -> Self {
        let bodies = (0..messages).map(body).map(|body| (topic.to_string(), Bytes::from(body.into())));
        self.sends.extend(bodies);
        self
    }

    /// For how long messages are sent and things go wrong: 30 s unless it is said.
    #[must_use]
    pub fn lasts(mut self, lasts: Duration) -> Self {
        self.lasts = lasts;
        self
    }

    /// Changes how clients are configured: timeouts, retries, how often a message is delivered at most. They are shorter
    /// than Flota's defaults, so that more of them happens within a run.
    #[must_use]
    pub fn knobs(mut self, change: impl FnOnce(&mut Knobs)) -> Self {
        change(&mut self.knobs);
        self
    }

    // ---- what goes wrong ----

    /// Kills a service's process at that time, and starts it again so much later.
    #[must_use]
    pub fn kill_service(self, service: u32, at: Duration, off: Duration) -> Self {
        self.fault(at, off, Trouble::ServiceCrash { service, machine: false })
    }

    /// Stops a service in order, with a second of grace, and starts it again so much later.
    #[must_use]
    pub fn stop_service(self, service: u32, at: Duration, off: Duration) -> Self {
        self.fault(at, off, Trouble::ServiceStop { service, grace_ms: 1_000 })
    }

    /// Lets a service's process stand still for so long; others may take its messages meanwhile.
    #[must_use]
    pub fn pause_service(self, service: u32, at: Duration, off: Duration) -> Self {
        self.fault(at, off, Trouble::ServicePause { service })
    }

    /// Kills a broker's process at that time, and starts it again so much later.
    #[must_use]
    pub fn crash_broker(self, broker: u32, at: Duration, off: Duration) -> Self {
        self.fault(at, off, Trouble::BrokerCrash { broker, machine: false })
    }

    /// Lets nothing pass between a service and a broker, for so long.
    #[must_use]
    pub fn cut(self, service: u32, broker: u32, at: Duration, off: Duration) -> Self {
        self.fault(at, off, Trouble::Partition { services: vec![service], brokers: vec![broker], way: Way::Both })
    }

    /// Anything else that can go wrong, at that time and for so long.
    #[must_use]
    pub fn fault(mut self, at: Duration, off: Duration, what: Trouble) -> Self {
        self.faults.push(Fault { at_ms: planning::ms(at), for_ms: planning::ms(off), what });
        self
    }

    /// Draws faults from the seed, of any kind and number, and a network that misbehaves. Left out is what no client can
    /// make up for: an operator who throws data away.
    #[must_use]
    pub fn chaos(mut self) -> Self {
        self.chaos = true;
        self
    }

    /// These faults and no others, whatever else was asked for: to see which ones matter.
    #[must_use]
    pub fn only_faults(mut self, faults: Vec<Fault>) -> Self {
        self.only = Some(faults);
        self
    }

    // ---- what must hold ----

    /// Must hold after each call of a handler; the run ends when it does not.
    #[must_use]
    pub fn always(mut self, holds: impl Fn(&S) -> Result<(), String> + 'static) -> Self {
        self.always.push(Box::new(holds));
        self
    }

    /// Must hold at the end, when everything has come right. It may panic, as `assert!` does; so may handlers.
    #[must_use]
    pub fn check(mut self, holds: impl FnOnce(&S, &[Message]) -> Result<(), String> + 'static) -> Self {
        self.checks.push(Box::new(holds));
        self
    }

    /// Runs it to its end, or until something does not hold: what you want, or what Flota promises.
    ///
    /// # Panics
    ///
    /// When a fault names a service or a broker that is not there, or there are more than 256 topics or groups.
    #[must_use]
    pub fn run(self) -> Run<S> {
        let (plan, bodies, topics) = planning::plan(&self);
        let notes = Rc::new(RefCell::new(Notes::new(&plan, &bodies)));
        let hosted = Hosted::new(self.state, self.services, bodies, self.always, Rc::clone(&notes));
        let hosted = Rc::new(RefCell::new(hosted));
        let trial = Trial::with(plan, |world| {
            world.host(hosted.clone());
            let notes = Rc::clone(&notes);
            world.watch(move |seen| notes.borrow_mut().see(seen));
        });
        let hosted = Rc::into_inner(hosted).expect("the world is gone").into_inner();
        let (state, bodies) = hosted.into_parts();
        let notes = Rc::into_inner(notes).expect("the world is gone").into_inner();
        let (messages, story) = notes.into_parts(&trial.report.plan, &topics, &bodies);
        let mut report = trial.report;
        for check in self.checks {
            if !report.is_ok() {
                break;
            }
            if let Err(text) = outcome(|| check(&state, &messages)) {
                let at = report.simulated_us;
                report.violations.push(Violation { invariant: CHECK, at, host: Host::World, text });
            }
        }
        Run { state, messages, report, story }
    }
}

/// What a check says; a panic is a no.
fn outcome(check: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| Err(text_of(&*panic)))
}

#[cfg(test)]
mod tests;
