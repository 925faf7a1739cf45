//! What an engine owes to whoever drives it: the contract of waiting (38, 39), no spinning (40), honest books (41), and
//! that the same inputs have the same outputs (43).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use flota_core::time::Mono;

use super::{Oracle, Scene, Verdict};
use crate::seen::{Host, Line, Seen, What};

#[derive(Default)]
pub(crate) struct Driving {
    services: BTreeMap<u32, Drive>,
}

/// One process's engine as its driver sees it.
#[derive(Default)]
struct Drive {
    /// The deadline it named last; none before its first turn.
    wait: Option<Option<Mono>>,
    /// Among the inputs of the turn is one that may make something due at once: a refused datagram, whose report may be
    /// overdue, or an end without a grace.
    hastens: bool,
    /// The second in which timeouts that come to nothing are counted.
    idle_from: u64,
    idle_timeouts: u64,
    /// Commands that were given to a connection and not yet taken whole by its socket.
    unsent: BTreeMap<Line, u64>,
    /// Open connections.
    lines: u64,
    /// Members and open connections after the last turn: a turn may end them all.
    had: u64,
}

/// Timeouts that come to nothing, in one second: a fixed number, and so many for each member and connection, whose
/// timers are moved by being looked at when they fire.
const IDLE_TIMEOUTS: u64 = 60;
const IDLE_TIMEOUTS_EACH: u64 = 12;
/// Outputs of one turn: a fixed number, so many for each input and connection, and for each thing a turn can end at once.
const OUTPUTS: u64 = 200;
const OUTPUTS_EACH: u64 = 40;

impl Oracle for Driving {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Host::Service(service) = seen.host else { return };
        let host = seen.host;
        match &seen.what {
            What::Born(_) => {
                self.services.insert(service, Drive { idle_from: seen.at, ..Drive::default() });
            }
            What::Audited(Err(text)) => {
                verdict
                    .fail(41, seen.at, host, || format!("the engine counted itself, and it does not add up: {text}"));
            }
            What::Rerun { inputs, differs: Some((at, text)) } => verdict.fail(43, seen.at, host, || {
                format!("fed with the same {inputs} inputs, a fresh engine differs after input {at}: {text}")
            }),
            What::Rerun { differs: None, .. } => verdict.mark("recorded inputs gave the same outputs again"),
            what => {
                let drive = self.services.entry(service).or_default();
                drive.see(host, what, scene, verdict);
            }
        }
    }
}

impl Drive {
    fn see(&mut self, host: Host, what: &What, scene: &Scene<'_>, verdict: &mut Verdict) {
        match what {
            What::Heard { .. } | What::Unsubscribing(_) | What::Stopping { .. } => self.hastens = true,
            What::Dialled { .. } => self.lines += 1,
            What::Closed { line, .. } | What::HungUp(line) => {
                self.lines = self.lines.saturating_sub(1);
                self.unsent.remove(line);
            }
            What::Wrote { line, .. } => {
                *self.unsent.entry(*line).or_default() += 1;
            }
            What::Sent(line, commands) => {
                let left = self.unsent.get(line).map_or(0, |unsent| unsent.saturating_sub(*commands));
                if left == 0 {
                    self.unsent.remove(line);
                } else {
                    self.unsent.insert(*line, left);
                }
            }
            What::Early { wait, after, outputs } => {
                if *outputs > 0 || after != wait {
                    verdict.fail(38, scene.at, host, || {
                        format!("called before {wait:?}, with nothing due, it gave {outputs} outputs and waits until {after:?}; it must do nothing")
                    });
                }
                self.wait = Some(*after);
            }
            What::Turn { now, inputs, time_passed, outputs, wait } => {
                let turn =
                    Turn { now: now.mono, inputs: u64::from(*inputs), outputs: u64::from(*outputs), wait: *wait };
                self.check_wait(host, &turn, *time_passed, scene, verdict);
                self.check_spin(host, &turn, *time_passed, scene, verdict);
                if !self.unsent.is_empty() {
                    verdict.mark("short write");
                }
                self.wait = Some(*wait);
                self.hastens = false;
            }
            _ => {}
        }
    }

    /// After time has passed nothing is due any more. Any other input leaves what was due before, and nothing becomes due
    /// by it: it would be done at once.
    fn check_wait(&self, host: Host, turn: &Turn, time_passed: bool, scene: &Scene<'_>, verdict: &mut Verdict) {
        let now = turn.now;
        let Some(wait) = turn.wait.filter(|wait| *wait <= now) else { return };
        let text = if time_passed {
            "although time has passed until then"
        } else if !self.hastens && self.wait.is_some_and(|before| before.is_none_or(|before| before > now)) {
            "although nothing was due before its input"
        } else {
            return;
        };
        verdict.fail(39, scene.at, host, || {
            format!(
                "at {} us of its clock it wants to be called at {} us, {text}; it must do it at once or later",
                now.0, wait.0
            )
        });
    }

    fn check_spin(&mut self, host: Host, turn: &Turn, time_passed: bool, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Host::Service(service) = host else { return };
        let members = scene.ledger.services.get(service as usize).map_or(0, |state| state.fleet.len() as u64);
        let now = members + self.lines;
        let each = now.max(std::mem::replace(&mut self.had, now));
        if scene.at - self.idle_from >= 1_000_000 {
            self.idle_from = scene.at;
            self.idle_timeouts = 0;
        }
        if time_passed && turn.outputs == 0 {
            self.idle_timeouts += 1;
        }
        let most = IDLE_TIMEOUTS + IDLE_TIMEOUTS_EACH * each;
        if self.idle_timeouts > most {
            let idle = self.idle_timeouts;
            verdict.fail(40, scene.at, host, || {
                format!("{idle} times within a second it was called because it wanted to be and did nothing; {most} is the most")
            });
        }
        let held: u64 = scene
            .plan
            .services
            .get(service as usize)
            .map_or(0, |plan| plan.consumes.iter().map(|consume| u64::from(consume.in_flight)).sum());
        let work = scene.plan.work.len() as u64;
        let most = OUTPUTS + OUTPUTS_EACH * (turn.inputs + each + held) + 4 * work;
        if turn.outputs > most {
            let outputs = turn.outputs;
            verdict.fail(40, scene.at, host, || {
                format!("one turn with {} inputs gave {outputs} outputs; {most} is the most", turn.inputs)
            });
        }
    }
}

/// A turn, in the engine's time.
struct Turn {
    now: Mono,
    inputs: u64,
    outputs: u64,
    wait: Option<Mono>,
}
