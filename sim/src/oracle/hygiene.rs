//! What a process leaves behind and takes up: connections (37), and its end (42).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use flota_core::config::Endpoint;

use super::{Oracle, Scene, Verdict};
use crate::seen::{Host, Seen, What};

#[derive(Default)]
pub(crate) struct Housekeeping {
    processes: BTreeMap<u32, Process>,
    /// Those that were asked to stop and have not.
    stopping: BTreeSet<u32>,
}

#[derive(Default)]
struct Process {
    /// When it dialled each address within the last second, and how many connections it could have there then.
    dials: BTreeMap<Endpoint, VecDeque<(u64, usize)>>,
    /// The last subscription that ended, and when: its connections are closed in the same moment.
    ended_at: Option<u64>,
    stopping: Option<Stopping>,
    stopped: bool,
    /// The turn in which it stopped is over.
    silent: bool,
}

struct Stopping {
    since: u64,
    grace_us: u64,
    /// It must have stopped by then; later if it stood still.
    until: u64,
}

/// After the grace: how long the last verdicts and goodbyes may take.
const LAST_WORDS_US: u64 = 3_000_000;
/// What a loop that is late may add.
const LATE_US: u64 = 250_000;
/// A process's clock may run so much slower than true time, in percent.
const DRIFT: u64 = 2;
/// Dials of one address within a second, for each connection it may have: the backoff from its start gives five, and
/// fresh signs of life may add two, each of them after a start of its own.
const DIALS: usize = 10;

impl Oracle for Housekeeping {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        if let Host::Service(service) = seen.host {
            self.see_service(service, &seen.what, scene, verdict);
        }
        for service in &self.stopping {
            let paused = scene.ledger.services.get(*service as usize).is_some_and(|state| state.paused);
            if let Some(process) = self.processes.get(service) {
                process.check_end(*service, paused, scene, verdict);
            }
        }
    }
}

impl Housekeeping {
    fn see_service(&mut self, service: u32, what: &What, scene: &Scene<'_>, verdict: &mut Verdict) {
        match what {
            What::Born(_) => {
                self.processes.insert(service, Process::default());
                self.stopping.remove(&service);
            }
            What::Died(_) => {
                self.processes.remove(&service);
                self.stopping.remove(&service);
            }
            what => {
                let Some(process) = self.processes.get_mut(&service) else { return };
                process.see(service, what, scene, verdict);
                match what {
                    What::Stopping { .. } => drop(self.stopping.insert(service)),
                    What::Stopped => drop(self.stopping.remove(&service)),
                    _ => {}
                }
            }
        }
    }
}

impl Process {
    fn see(&mut self, service: u32, what: &What, scene: &Scene<'_>, verdict: &mut Verdict) {
        match what {
            What::Dialled { to, .. } => self.dial(service, to, scene, verdict),
            What::Unsubscribed(_) => self.ended_at = Some(scene.at),
            What::Stopping { grace_us } => {
                let until = scene.at + (grace_us + LAST_WORDS_US) * (100 + DRIFT) / 100 + LATE_US;
                self.stopping = Some(Stopping { since: scene.at, grace_us: *grace_us, until });
            }
            What::Resumed => {
                if let Some(stopping) = &mut self.stopping {
                    stopping.until = stopping.until.max(scene.at + LATE_US);
                }
            }
            What::Stopped => self.stop(service, scene, verdict),
            What::Turn { outputs, wait, .. } if self.stopped => {
                if wait.is_some() || (self.silent && *outputs > 0) {
                    verdict.fail(42, scene.at, Host::Service(service), || {
                        format!("it has stopped, and then it gave {outputs} outputs and waits until {wait:?}; it must be silent")
                    });
                }
                self.silent = true;
            }
            _ => {}
        }
    }

    fn dial(&mut self, service: u32, to: &Endpoint, scene: &Scene<'_>, verdict: &mut Verdict) {
        let open = scene.lines.to(service, to).count();
        // A connection of a subscription that ended in this moment is closed in this moment.
        let ending = usize::from(self.ended_at == Some(scene.at));
        let most = 1 + scene.ledger.hands.subscriptions(service) + ending;
        if open > most {
            verdict.fail(37, scene.at, Host::Service(service), || {
                format!("{open} connections to {to} at once; one for commands and one for each of its subscriptions make {most}")
            });
        }
        let dials = self.dials.entry(to.clone()).or_default();
        dials.push_back((scene.at, most));
        while dials.front().is_some_and(|(at, _)| scene.at - at > 1_000_000) {
            dials.pop_front();
        }
        // Subscriptions may have ended since they dialled.
        let most = DIALS * dials.iter().map(|(_, most)| *most).max().unwrap_or(most);
        let count = dials.len();
        if count > most {
            verdict.fail(37, scene.at, Host::Service(service), || {
                format!("{to} was dialled {count} times within a second; with backoff it is at most {most}")
            });
        }
    }

    fn stop(&mut self, service: u32, scene: &Scene<'_>, verdict: &mut Verdict) {
        self.stopped = true;
        let Some(stopping) = self.stopping.take() else { return };
        let passed = (scene.at - stopping.since) * (100 + DRIFT) / 100;
        if passed >= stopping.grace_us {
            return;
        }
        // The ledger has ended its subscriptions already: what they held is over since this moment.
        let consumers = scene.ledger.hands.consumers().filter(|(who, _)| who.service == service);
        let ended: Vec<_> = consumers
            .filter(|(_, state)| state.ended == Some(scene.at) && !state.unsubscribing)
            .map(|(who, _)| who)
            .collect();
        let hand = scene.ledger.hands.iter().find(|hand| ended.contains(&hand.who) && hand.verdict.is_none());
        if let Some(hand) = hand {
            verdict.fail(42, scene.at, Host::Service(service), || {
                let (grace, spot) = (stopping.grace_us, &hand.spot);
                format!("it stopped {passed} us after it was asked to, and a handler still had {spot}; its grace is {grace} us")
            });
        }
    }

    fn check_end(&self, service: u32, paused: bool, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(stopping) = &self.stopping else { return };
        if scene.at > stopping.until && !paused && !self.stopped {
            let (since, until) = (stopping.since, stopping.until);
            verdict.fail(42, scene.at, Host::Service(service), || {
                format!("it was asked to stop at {since} us and has not stopped; it must have by {until} us")
            });
        }
    }
}
