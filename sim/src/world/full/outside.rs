//! What the futures of a process reach of the world: its kernel while they are polled, sockets, clocks, timers.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use flota_core::config::Endpoint;
use flota_core::driver::{FleetEvent, FleetEvents};
use flota_core::id::BrokerId;

use super::super::kernel::{AppEvent, Event, Kernel};
use super::super::net::broker_at;
use super::net::End;
use crate::clock::HostClock;
use crate::plan::ServicePlan;
use crate::seen::{Host, Item, Line, What};

/// A task to be.
pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Shared by a process's futures; they are polled one at a time.
#[derive(Clone)]
pub(super) struct Outside(Rc<RefCell<State>>);

pub(super) struct State {
    /// The world's while a future is polled, a stand-in otherwise.
    pub(super) k: Kernel,
    pub(super) clock: HostClock,
    pub(super) index: u32,
    pub(super) life: u32,
    pub(super) plan: ServicePlan,
    /// Connections, from the dial to the moment when the driver lets go of them.
    pub(super) ends: BTreeMap<Line, End>,
    /// What lies in the announcement socket.
    pub(super) datagrams: VecDeque<(SocketAddr, Bytes)>,
    pub(super) port: Option<Waker>,
    /// True time for which the driver wants to be woken.
    pub(super) alarm_at: Option<u64>,
    pub(super) alarm: Option<Waker>,
    /// The driver has let time pass for its engine since the last turn that was seen.
    pub(super) time_passed: bool,
    /// A call in so many millions comes to nothing at first, or moves less than it could.
    pub(super) whims: u32,
    pub(super) spawned: Vec<Task>,
    /// Senders and handlers that have not finished.
    pub(super) under_way: u32,
    /// The application wants to end; the driver has ended; the process is gone.
    pub(super) stopping: bool,
    pub(super) driver_ended: bool,
    pub(super) dead: bool,
    /// A handler has ended the process.
    pub(super) crashed: bool,
    /// What was given back once is handled the next time.
    pub(super) released: BTreeSet<Item>,
    pub(super) next_hand: u64,
    pub(super) events: Option<FleetEvents>,
    /// Where each member is, by the address it was known at.
    places: BTreeMap<BrokerId, u32>,
    timers: BTreeMap<u64, Timer>,
    next_timer: u64,
}

#[derive(Default)]
struct Timer {
    rung: bool,
    waker: Option<Waker>,
}

impl Outside {
    pub(super) fn new(index: u32, life: u32, clock: &HostClock, k: &mut Kernel, plan: ServicePlan) -> Self {
        let whims = *k.hosts.pick(&[0, 10_000, 200_000]);
        Self(Rc::new(RefCell::new(State {
            k: k.stand_in(),
            clock: clock.clone(),
            index,
            life,
            plan,
            ends: BTreeMap::new(),
            datagrams: VecDeque::new(),
            port: None,
            alarm_at: None,
            alarm: None,
            time_passed: false,
            whims,
            spawned: Vec::new(),
            under_way: 0,
            stopping: false,
            driver_ended: false,
            dead: false,
            crashed: false,
            released: BTreeSet::new(),
            next_hand: 0,
            events: None,
            places: BTreeMap::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
        })))
    }

    /// For a few lines that call nobody: wakers and futures come back here.
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// Lends the world to the futures that `act` polls.
    pub(super) fn lend<R>(&self, k: &mut Kernel, clock: &HostClock, act: impl FnOnce() -> R) -> R {
        {
            let mut state = self.state();
            std::mem::swap(&mut state.k, k);
            state.clock = clock.clone();
        }
        // Also when a panic passes through: what was seen until then is still wanted.
        let _back = Back { outside: self, k };
        act()
    }

    pub(super) fn see(&self, what: What) {
        self.state().see(what);
    }

    /// What the driver told of its fleet is seen before anybody else acts on it.
    pub(super) fn tell_fleet(&self) {
        let Some(mut events) = self.state().events.take() else { return };
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = pin!(events.next()).poll(&mut cx) {
            self.state().told(event);
        }
        self.state().events = Some(events);
    }

    /// Waits for so long, in microseconds of true time.
    pub(super) fn sleep(&self, us: u64) -> Sleep {
        Sleep { outside: self.clone(), us, number: None }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.state().spawned.push(Box::pin(task));
    }
}

/// Gives the world back.
struct Back<'a> {
    outside: &'a Outside,
    k: &'a mut Kernel,
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.outside.0.try_borrow_mut() {
            std::mem::swap(&mut state.k, self.k);
        }
    }
}

impl State {
    pub(super) fn see(&mut self, what: What) {
        self.k.see(Host::Service(self.index), what);
    }

    fn told(&mut self, event: FleetEvent) {
        match event {
            FleetEvent::Broker(event) => {
                self.learn_place(event.broker, &event.address);
                let (id, address, change) = (event.broker, event.address.clone(), event.change.clone());
                self.see(What::Fleet { id, address, change });
            }
            FleetEvent::Warning(warning) => self.see(What::Warned(Box::new((*warning).clone()))),
            FleetEvent::Skipped(events) => {
                self.see(What::Gap(format!("room for {events} events of a fleet that nobody was slow to read")));
            }
        }
    }

    /// Whether a call comes to nothing now, for no reason. Never when time is about to pass: a driver may take that a
    /// socket which says so is empty.
    pub(super) fn hesitates(&mut self) -> bool {
        let due = self.alarm_at.is_some_and(|at| at <= self.k.at);
        !due && self.k.hosts.chance(self.whims)
    }

    /// How much of so much is moved now: at least one.
    pub(super) fn some_of(&mut self, most: usize) -> usize {
        if most > 1 && self.k.hosts.chance(self.k.plan.network.cut) {
            1 + self.k.hosts.below(most as u64 - 1) as usize
        } else {
            most
        }
    }

    /// How long a handler waits for its turn, in microseconds.
    pub(super) fn lag_us(&mut self) -> u64 {
        if self.k.hosts.chance(200_000) { self.k.hosts.below(50_000) } else { 0 }
    }

    /// How long handlers may go on when their consumer ends.
    pub(super) fn grace(&mut self) -> Duration {
        Duration::from_millis(self.k.hosts.below(2_000))
    }

    fn learn_place(&mut self, id: BrokerId, address: &Endpoint) {
        if let Some(place) = broker_at(address, self.k.plan.brokers.len()) {
            self.places.insert(id, place);
        }
    }

    pub(super) fn place(&self, id: BrokerId) -> Option<u32> {
        self.places.get(&id).copied()
    }

    /// A timer's time has come.
    pub(super) fn ring(&mut self, number: u64) -> Option<Waker> {
        let timer = self.timers.get_mut(&number)?;
        timer.rung = true;
        timer.waker.take()
    }
}

/// See [`Outside::sleep`].
pub(super) struct Sleep {
    outside: Outside,
    us: u64,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (us, known) = (self.us, self.number);
        let mut guard = self.outside.state();
        let state = &mut *guard;
        let number = match known {
            Some(number) => number,
            None => {
                let number = state.next_timer;
                state.next_timer += 1;
                state.timers.insert(number, Timer::default());
                let (service, life) = (state.index, state.life);
                state.k.after(us, Event::App(service, life, AppEvent::Timer(number)));
                number
            }
        };
        let rung = match state.timers.get_mut(&number) {
            Some(timer) if !timer.rung => {
                timer.waker = Some(cx.waker().clone());
                false
            }
            _ => true,
        };
        drop(guard);
        self.number = Some(number);
        if rung { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let timer = self.outside.state().timers.remove(&number);
            drop(timer);
        }
    }
}
