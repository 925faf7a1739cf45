//! Departed brokers: out of the send rotation, still read, given up when they hold nothing any more.
//!
//! A `down` may be forged and an announcement lost, so departure stops sends and nothing else.

use core::time::Duration;

use crate::effect::{Cx, Effect, Timer};
use crate::id::{BrokerId, Table};
use crate::time::Mono;
use crate::timers::TimerSlot;

/// How often a departed broker is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The departed brokers.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    brokers: Table<BrokerId, Departure>,
}

#[derive(Debug)]
struct Departure {
    timer: TimerSlot,
    /// Since when nothing is known to be left there.
    empty_since: Option<Mono>,
    /// Since when it cannot be reached although something is left.
    closed_since: Option<Mono>,
}

/// What the engine knows about a departed broker when it looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) connected: bool,
    /// Nothing to read, nothing in hand, nothing unanswered.
    pub(crate) empty: bool,
}

impl Departures {
    pub(crate) fn leave(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        if self.brokers.get(broker).is_none() {
            let timer = cx.timers.register(Timer::Departure(broker));
            cx.timers.arm(timer, cx.now.mono + LOOK);
            self.brokers.insert(broker, Departure { timer, empty_since: None, closed_since: None });
        }
    }

    pub(crate) fn return_or_forget(&mut self, broker: BrokerId, cx: &mut Cx<'_>) {
        if let Some(departure) = self.brokers.remove(broker) {
            cx.timers.remove(departure.timer);
        }
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn owns_timer(&self, broker: BrokerId, slot: TimerSlot) -> bool {
        self.brokers.get(broker).is_some_and(|departure| departure.timer == slot)
    }

    #[cfg(any(test, feature = "mutants"))]
    pub(crate) fn brokers(&self) -> impl Iterator<Item = BrokerId> + '_ {
        self.brokers.iter().map(|(broker, _)| broker)
    }

    pub(crate) fn look(&mut self, broker: BrokerId, look: Look, cx: &mut Cx<'_>) {
        let Some(departure) = self.brokers.get_mut(broker) else { return };
        let now = cx.now.mono;
        cx.timers.arm(departure.timer, now + LOOK);
        let timing = &cx.config.timing;
        let done = match (look.connected, look.empty) {
            (true, true) => now.since(*departure.empty_since.get_or_insert(now)) >= timing.drain,
            (true, false) => {
                departure.empty_since = None;
                departure.closed_since = None;
                false
            }
            (false, true) => true,
            (false, false) => now.since(*departure.closed_since.get_or_insert(now)) >= timing.forget,
        };
        if done {
            cx.effect(Effect::Forget(broker));
        }
    }
}
