//! Scenarios of episodes, one after the other: a burst of messages, and what goes wrong while they are on their way.
//!
//! Faults at any time meet a message in flight by chance, and two that must follow each other hardly ever do. Here they
//! are timed to meet.

use super::faults::CONDITIONS;
use crate::plan::{Fault, Persistence, Plan, Trouble, Way};
use crate::rng::Rng;

/// What happens from some time on; says when it is over.
type Episode = fn(&mut Stage<'_>) -> u64;

/// A plan to which episodes are added.
struct Stage<'a> {
    rng: &'a mut Rng,
    plan: &'a mut Plan,
    at_ms: u64,
    /// The first message that belongs to no burst yet.
    next: usize,
}

/// Brokers fill up, refuse, stand still and are trimmed by an operator, while services send and stop.
pub(super) fn conditions(rng: &mut Rng, plan: &mut Plan) {
    keep_everything(plan);
    far(rng, plan, 5_000, 20_000);
    plan.knobs.send_init_ms = *rng.pick(&[500, 1_000, 2_000]);
    // Longer than a process that stops may take.
    plan.knobs.response_ms = rng.between(4_000, 5_000);
    plan.knobs.block_ms = rng.between(200, 500);
    // Slow enough that much is in hand, or not read yet, whenever something happens.
    for consume in plan.services.iter_mut().flat_map(|service| &mut service.consumes) {
        consume.in_flight = *rng.pick(&[1, 3, 16]);
        consume.handler_us = *rng.pick(&[20_000, 50_000, 200_000]);
    }
    play(rng, plan, &[fill, refuse, hiccup, stop_in_vain, trim, trouble]);
}

/// Connections end while answers are on their way, and nobody looks for what was lost but who lost it: surveys are rare.
pub(super) fn answers(rng: &mut Rng, plan: &mut Plan) {
    keep_everything(plan);
    far(rng, plan, 10_000, 40_000);
    plan.knobs.block_ms = rng.between(200, 400);
    plan.knobs.claim_idle_ms = rng.between(8_000, 12_000);
    plan.knobs.handler_timeout_ms = plan.knobs.claim_idle_ms * 4 / 5;
    plan.knobs.claim_period_ms = rng.between(15_000, 30_000);
    // What is retried over and over must come to its end, too.
    for consume in plan.services.iter_mut().flat_map(|service| &mut service.consumes) {
        consume.in_flight = *rng.pick(&[3, 16, 64]);
        consume.handler_us = *rng.pick(&[100, 5_000, 50_000]);
    }
    // Whoever subscribes anew leaves what it had to others, who find it.
    plan.services.iter_mut().for_each(|service| service.subscribe_loop_ms = 0);
    play(rng, plan, &[lose, lose_one, lose_one, unplug]);
}

/// What was lost with a connection is told from what a crash forgot.
fn keep_everything(plan: &mut Plan) {
    plan.brokers.iter_mut().for_each(|broker| broker.persistence = Persistence::Always);
}

/// So far apart that much is on its way at any time, and always equally far. Over a distance a small send buffer is a slow link, on which a long
/// message takes longer than an answer may.
fn far(rng: &mut Rng, plan: &mut Plan, least_us: u64, most_us: u64) {
    plan.network.latency_us = rng.between(least_us, most_us);
    (plan.network.spike, plan.network.spike_us) = (0, 0);
    plan.network.send_buffer = 64 << 10;
}

/// Every episode in turn, in an order of the seed, for as long as there is time.
fn play(rng: &mut Rng, plan: &mut Plan, episodes: &[Episode]) {
    let mut order = episodes.to_vec();
    rng.shuffle(&mut order);
    let (at_ms, end_ms) = (plan.warm_up_ms + rng.below(1_000), plan.heal_at_ms);
    let mut stage = Stage { rng, plan, at_ms, next: 0 };
    for episode in order.iter().cycle() {
        let over_ms = episode(&mut stage);
        stage.at_ms = over_ms + stage.rng.between(200, 1_000);
        if stage.at_ms >= end_ms {
            break;
        }
    }
    plan.work.sort_by_key(|work| work.at_ms);
}

impl Stage<'_> {
    /// So many messages from now on, within so many milliseconds.
    fn burst(&mut self, messages: usize, within_ms: u64) {
        let last_ms = self.plan.heal_at_ms - 1;
        for work in self.plan.work.iter_mut().skip(self.next).take(messages) {
            work.at_ms = (self.at_ms + self.rng.below(within_ms)).min(last_ms);
        }
        self.next += messages;
    }

    fn fault(&mut self, after_ms: u64, for_ms: u64, what: Trouble) {
        self.plan.faults.push(Fault { at_ms: self.at_ms + after_ms, for_ms, what });
    }

    fn brokers(&self) -> std::ops::Range<u32> {
        0..self.plan.brokers.len() as u32
    }

    fn broker(&mut self) -> u32 {
        self.rng.below(self.plan.brokers.len() as u64) as u32
    }

    fn service(&mut self) -> u32 {
        self.rng.below(self.plan.services.len() as u64) as u32
    }
}

// ---- conditions ----

/// A broker's memory is full for long; what it has goes on being consumed.
fn fill(stage: &mut Stage<'_>) -> u64 {
    stage.burst(100, 300);
    let (broker, for_ms) = (stage.broker(), stage.rng.between(8_000, 11_000));
    let after_ms = stage.rng.between(100, 250);
    stage.fault(after_ms, for_ms, Trouble::BrokerFull { broker });
    stage.at_ms + after_ms + for_ms
}

/// Answers are lost, and then every broker refuses until senders give up.
fn refuse(stage: &mut Stage<'_>) -> u64 {
    stage.burst(100, 200);
    let for_ms = stage.plan.knobs.send_init_ms + stage.rng.between(1_000, 2_500);
    let parted_ms = stage.rng.between(50, 180);
    // What reaches a broker before it hears of the reset is executed, and answered to nobody.
    let refuses_ms = parted_ms + stage.plan.network.latency_us / 1_000 + 1;
    for broker in stage.brokers() {
        for service in 0..stage.plan.services.len() as u32 {
            stage.fault(parted_ms, 1, Trouble::Reset { service, broker });
        }
        let what = match stage.rng.below(6) {
            0 => Trouble::BrokerMisconf { broker },
            1 => Trouble::BrokerReplica { broker },
            _ => Trouble::BrokerFull { broker },
        };
        stage.fault(refuses_ms, for_ms, what);
    }
    stage.at_ms + refuses_ms + for_ms
}

/// Memory is full for a moment only: of what is on its way together, some is refused and what follows is not.
fn hiccup(stage: &mut Stage<'_>) -> u64 {
    stage.burst(60, 60);
    for broker in stage.brokers() {
        let (after_ms, for_ms) = (stage.rng.between(15, 50), stage.rng.between(5, 15));
        stage.fault(after_ms, for_ms, Trouble::BrokerFull { broker });
    }
    stage.at_ms + 500
}

/// Services are to stop while no broker answers.
fn stop_in_vain(stage: &mut Stage<'_>) -> u64 {
    stage.burst(40, 200);
    let for_ms = stage.rng.between(4_500, 6_000);
    for broker in stage.brokers() {
        stage.fault(100, for_ms, Trouble::BrokerPause { broker });
    }
    let (service, grace_ms) = (stage.service(), stage.rng.below(400));
    stage.fault(210, for_ms, Trouble::ServiceStop { service, grace_ms });
    stage.at_ms + 210 + for_ms
}

/// An operator cuts streams short whose entries are in hand, or wait for a retry.
fn trim(stage: &mut Stage<'_>) -> u64 {
    stage.burst(40, 300);
    for broker in stage.brokers() {
        let (after_ms, keep) = (stage.rng.between(50, 1_000), *stage.rng.pick(&[0, 0, 1, 5]));
        stage.fault(after_ms, 1, Trouble::Trim { broker, keep });
    }
    stage.at_ms + 1_000
}

/// Whatever else a broker may be in.
fn trouble(stage: &mut Stage<'_>) -> u64 {
    stage.burst(20, 300);
    for _ in 0..stage.rng.between(1, 3) {
        let what = stage.rng.pick(CONDITIONS)(stage.rng, stage.plan);
        if !matches!(what, Trouble::FlushAll { .. }) {
            let (after_ms, for_ms) = (stage.rng.below(500), stage.rng.between(100, 2_000));
            stage.fault(after_ms, for_ms, what);
        }
    }
    stage.at_ms + 2_500
}

// ---- answers ----

/// Connections end while a burst is handled.
fn lose(stage: &mut Stage<'_>) -> u64 {
    stage.burst(40, 400);
    for _ in 0..stage.rng.between(1, 3) {
        let (service, broker, after_ms) = (stage.service(), stage.broker(), stage.rng.between(20, 600));
        let whole = stage.rng.chance(500_000);
        stage.fault(
            after_ms,
            1,
            if whole { Trouble::KillClients { broker } } else { Trouble::Reset { service, broker } },
        );
    }
    stage.at_ms + stage.rng.between(1_000, 3_000)
}

/// Between each two one connection ends: what is read goes on, and what is said does not, or the other way round.
fn lose_one(stage: &mut Stage<'_>) -> u64 {
    stage.burst(40, 400);
    for broker in stage.brokers() {
        for service in 0..stage.plan.services.len() as u32 {
            let (after_ms, nth) = (stage.rng.between(50, 800), stage.rng.below(3) as u32);
            stage.fault(after_ms, 1, Trouble::ResetOne { service, broker, nth });
        }
    }
    // Quiet for long enough that what nobody looks for is missed.
    stage.at_ms + stage.rng.between(5_000, 6_500)
}

/// Answers do not come for so long that connections are given up.
fn unplug(stage: &mut Stage<'_>) -> u64 {
    stage.burst(40, 400);
    let (services, brokers) = (vec![stage.service()], vec![stage.broker()]);
    let (after_ms, for_ms) = (stage.rng.between(20, 600), stage.plan.knobs.response_ms + 1_000);
    stage.fault(after_ms, for_ms, Trouble::Partition { services, brokers, way: Way::ToServices });
    stage.at_ms + after_ms + for_ms
}
