//! Who is in a fleet, and what may be dialled: invariants 9 to 15.
//!
//! Each process's events are compared with a reference [`Model`] of what it heard. What the model cannot know, and takes
//! from the engine without judging it, its own documentation says.

mod model;
#[cfg(test)]
mod tests;

use flota_core::config::Endpoint;
use flota_core::id::BrokerId;
use flota_core::output::{BrokerChange, NotAdmitted};

use super::track::{News, TURN_US, mono_us, seconds};
use super::{Oracle, Scene, Verdict};
use crate::plan::{Fidelity, Plan};
use crate::seen::{Host, Line, Seen, What, Word};
use crate::world::{broker_address, broker_at};
use model::{Expiry, Late, Model, Overdue, Owed, Rules, State, Taken};

pub(super) struct Fleet {
    rules: Rules,
    configured: Vec<Endpoint>,
    services: Vec<Listener>,
}

/// A process that listens.
#[derive(Default)]
struct Listener {
    /// None while none runs.
    model: Option<Model>,
    /// Subscriptions that have not ended.
    subs: u64,
    /// Connections that are not closed.
    lines: u64,
    /// What the last datagram was refused for.
    refused: Option<NotAdmitted>,
    /// Some were refused in this turn, for such addresses.
    refused_now: Vec<(NotAdmitted, String)>,
    /// Own clock, of the last refused one.
    refused_us: Option<u64>,
    paused: bool,
    resumed_at: u64,
}

impl Fleet {
    pub(super) fn new(plan: &Plan) -> Self {
        let fixed = plan.brokers.iter().zip(0u32..).filter(|(broker, _)| broker.interval_ms == 0);
        Self {
            rules: Rules::new(&plan.knobs, plan.brokers.len()),
            configured: fixed.map(|(_, index)| Endpoint::Ip(broker_address(index, false))).collect(),
            services: plan.services.iter().map(|_| Listener::default()).collect(),
        }
    }
}

impl Oracle for Fleet {
    fn see(&mut self, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Host::Service(service) = seen.host else { return };
        let Some(listener) = self.services.get_mut(service as usize) else { return };
        match scene.lines.news() {
            // In full fidelity it is written a moment after it was placed: a goodbye may come between.
            News::Wrote(_, Word::Add(_)) if scene.plan.fidelity == Fidelity::Full => {}
            News::Wrote(line, word) => listener.wrote(service, *line, *word, &self.rules, seen, scene, verdict),
            News::Gone(_) => listener.lines = listener.lines.saturating_sub(1),
            News::Answered(..) | News::Nothing => {}
        }
        match &seen.what {
            What::Born(_) => {
                *listener =
                    Listener { model: Some(Model::new(self.configured.iter().cloned())), ..Listener::default() };
            }
            What::Died(_) | What::Stopped => listener.model = None,
            What::Paused => listener.paused = true,
            What::Resumed => (listener.paused, listener.resumed_at) = (false, seen.at),
            What::Subscribed(_) => listener.subs += 1,
            What::Unsubscribed(_) => listener.subs = listener.subs.saturating_sub(1),
            What::Heard { from, datagram } => {
                let now_us = mono_us(scene.plan, service, seen.at);
                listener.hear(now_us, from.ip(), datagram, &self.rules, scene, verdict);
            }
            What::Looked { before, after } if before != after => {
                if let Some(why) = listener.refused.filter(|_| listener.model.is_some()) {
                    verdict.fail(13, seen.at, seen.host, || {
                        format!("a datagram that is refused ({why}) changed the fleet; it may change counters only")
                    });
                }
            }
            What::Fleet { id, address, change } => {
                listener.told(service, *id, address, change, &self.rules, seen, scene, verdict);
            }
            What::Dialled { to, .. } => {
                let dials = scene.lines.to(service, to).filter(|wire| !wire.connected).count();
                if dials > 1 {
                    verdict.mark("two dials of one address raced");
                }
                listener.dialled(to, &self.rules, seen, scene, verdict);
            }
            What::Turn { time_passed, .. } => listener.turn(service, *time_passed, seen, scene, verdict),
            _ => {}
        }
    }
}

impl Listener {
    fn hear(
        &mut self,
        now_us: u64,
        from: std::net::IpAddr,
        datagram: &[u8],
        rules: &Rules,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        let Some(model) = &mut self.model else { return };
        let admitted = rules.admit(datagram);
        let place = admitted.as_ref().ok().map(|(_, address)| address.clone());
        let heard = admitted.and_then(|(said, address)| model.hear(now_us, from, &said, address, rules));
        self.refused = heard.as_ref().err().copied();
        match heard {
            Err(why) => {
                if why == NotAdmitted::FleetFull {
                    verdict.mark("a full fleet refused a newcomer");
                }
                self.refused_us = Some(now_us);
                self.refused_now.push((why, String::from_utf8_lossy(datagram).into_owned()));
            }
            Ok(taken) => {
                let speaker = broker_at(&Endpoint::Ip((from, 6379).into()), scene.plan.brokers.len());
                let is_own = place.is_some_and(|place| matches!(place, Endpoint::Ip(at) if at.ip() == from));
                if speaker.is_some() && !is_own {
                    verdict.mark("a damaged datagram was admitted");
                }
                match taken {
                    Taken::Alias => verdict.mark("another GUID spoke for a known address"),
                    Taken::Alternative => verdict.mark("a known GUID spoke for another address"),
                    Taken::Rejoined(Some(gone_us)) if gone_us < 1_000_000 => {
                        verdict.mark("a broker said goodbye and was back within a second");
                    }
                    Taken::Known | Taken::Joined | Taken::Rejoined(_) | Taken::Withdrawn => {}
                }
            }
        }
    }

    /// 9, 12, 13 and 15: what it says of its fleet.
    #[allow(clippy::too_many_arguments, reason = "an event, and everything it is judged by")]
    fn told(
        &mut self,
        service: u32,
        id: BrokerId,
        address: &Endpoint,
        change: &BrokerChange,
        rules: &Rules,
        seen: &Seen,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        let Some(model) = &mut self.model else { return };
        let now_us = mono_us(scene.plan, service, seen.at);
        let wrong = match change {
            BrokerChange::Announced => model.announced(id, address),
            BrokerChange::Withdrawn => model.withdrawn(id),
            BrokerChange::Forgotten => model.forgotten(id, rules),
            BrokerChange::Expired { .. } => match model.expired(id, now_us) {
                Expiry::Right => {
                    let sends = |word: &Word| matches!(word, Word::Add(Some(_)));
                    if scene.lines.to(service, address).any(|wire| wire.unanswered.iter().any(sends)) {
                        verdict.mark("a broker expired with sends in flight");
                    }
                    Ok(())
                }
                Expiry::Wrong(why) => Err(why),
                Expiry::Early(us, true) => {
                    verdict.fail(9, seen.at, seen.host, || {
                        format!(
                            "{address} expires {} before its time by this service's own clock; silence counts from the \
                             interval of its last announcement plus 5.001 s",
                            seconds(us)
                        )
                    });
                    Ok(())
                }
                Expiry::Early(_, false) => Err("another address of it is alive, where it should go on"),
            },
            BrokerChange::Ready | BrokerChange::Unready(_) | BrokerChange::Restarted => Ok(()),
        };
        // Which of two addresses a server is known by follows from the order of what an engine says and does in a turn,
        // and a driver shows it in parts.
        if let Err(why) = wrong
            && scene.plan.fidelity == Fidelity::Fast
        {
            let text = address.to_string();
            let refused = self.refused_now.iter().find(|(_, datagram)| datagram.contains(&text));
            let invariant = if refused.is_some() { 13 } else { 12 };
            verdict.fail(invariant, seen.at, seen.host, || match refused {
                Some((reason, _)) => {
                    format!("{address}: {change:?}, after a datagram for it that is refused ({reason}): {why}")
                }
                None => format!("{address}: {change:?}, and {why}"),
            });
        }
        let members = scene.ledger.services.get(service as usize).map_or(0, |state| state.fleet.len());
        let most = (scene.plan.knobs.fleet_max as usize).max(scene.plan.brokers.len());
        if members > most {
            verdict.fail(15, seen.at, seen.host, || format!("the fleet has {members} members; its limit is {most}"));
        }
    }

    /// 13 and 14: whom it dials.
    fn dialled(&mut self, to: &Endpoint, rules: &Rules, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        self.lines += 1;
        let Some(model) = &mut self.model else { return };
        if !rules.allows(to) {
            verdict.fail(14, seen.at, seen.host, || format!("it dials {to}, which is outside of the allowed networks"));
        }
        if !model.dialled(to) && scene.plan.fidelity == Fidelity::Fast {
            let text = to.to_string();
            let refused = self.refused_now.iter().any(|(_, datagram)| datagram.contains(&text));
            verdict.fail(if refused { 13 } else { 12 }, seen.at, seen.host, || {
                format!("it dials {to}, which is no address of any member; nothing that was admitted announced it")
            });
        }
    }

    /// 11 and 14: what it writes.
    #[allow(clippy::too_many_arguments, reason = "a command, and everything it is judged by")]
    fn wrote(
        &mut self,
        service: u32,
        line: Line,
        word: Word,
        rules: &Rules,
        seen: &Seen,
        scene: &Scene<'_>,
        verdict: &mut Verdict,
    ) {
        let Some(wire) = scene.lines.get(service, line) else { return };
        if word == Word::Auth && !rules.allows(&wire.to) {
            verdict.fail(14, seen.at, seen.host, || {
                format!("credentials go to {}, outside of the allowed networks", wire.to)
            });
        }
        let Word::Add(Some(item)) = word else { return };
        let Some(member) = self.model.as_ref().and_then(|model| model.member_at(&wire.to)) else { return };
        if member.state == State::Withdrawn {
            verdict.fail(11, seen.at, seen.host, || {
                format!("{item} is sent to {}, which has said goodbye and has not been announced since", wire.to)
            });
        }
    }

    /// 10, 12 and 15: what must be so when a turn ends.
    fn turn(&mut self, service: u32, time_passed: bool, seen: &Seen, scene: &Scene<'_>, verdict: &mut Verdict) {
        let Some(model) = &mut self.model else { return };
        let now_us = mono_us(scene.plan, service, seen.at);
        if let Some((what, address)) = model.unpaid() {
            verdict.fail(12, seen.at, seen.host, || match what {
                Owed::Announced => {
                    format!("{address} was announced or configured, and the turn ends without a word of it")
                }
                Owed::Withdrawn => format!("{address} said goodbye, and the turn ends without a word of it"),
            });
        }
        if let Some(address) = model.unexplained() {
            verdict.fail(12, seen.at, seen.host, || {
                format!("{address} had left and is a member again, and nothing that was admitted announced it")
            });
        }
        let just_resumed = self.paused || (self.resumed_at > 0 && seen.at <= self.resumed_at + TURN_US);
        let late = if time_passed {
            model.lapse(now_us)
        } else if just_resumed {
            None
        } else {
            model.overdue(now_us, TURN_US).map(Late::Alive)
        };
        match late {
            Some(Late::Alive(overdue)) => self.expired_late(&overdue, now_us, seen, verdict),
            Some(Late::Unmoved(address)) => verdict.fail(12, seen.at, seen.host, || {
                format!("{address} has lapsed; its member is alive at another address and should go on there")
            }),
            None => {}
        }
        self.refused_now.clear();
        let members = scene.ledger.services.get(service as usize).map_or(0, |state| state.fleet.len()) as u64;
        let most = members * (1 + self.subs);
        if self.lines > most {
            let (lines, subs) = (self.lines, self.subs);
            verdict.fail(15, seen.at, seen.host, || {
                format!(
                    "{lines} connections are open to {members} brokers with {subs} subscriptions; each broker has one, and \
                     one more for each subscription"
                )
            });
        }
    }

    fn expired_late(&self, overdue: &Overdue, now_us: u64, seen: &Seen, verdict: &mut Verdict) {
        let text = || {
            format!(
                "{} should have expired {} ago by this service's own clock, and is still a member",
                overdue.address,
                seconds(overdue.late_us)
            )
        };
        verdict.fail(10, seen.at, seen.host, text);
        // What should have been ignored may have kept it alive.
        if let Some(refused) = self.refused_us.filter(|refused| *refused >= overdue.last_up_us) {
            verdict.fail(13, seen.at, seen.host, || {
                format!(
                    "{}; a datagram that is refused was heard {} ago and may have prolonged it",
                    text(),
                    seconds(now_us - refused)
                )
            });
        }
    }
}
