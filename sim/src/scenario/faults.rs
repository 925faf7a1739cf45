//! Which faults a scenario draws, and when.

use super::Scenario;
use crate::plan::{Fault, FloodKind, Plan, Trouble, Way};
use crate::rng::Rng;

/// Draws one trouble of a kind.
pub(super) type Kind = fn(&mut Rng, &Plan) -> Trouble;

pub(super) fn draw(rng: &mut Rng, scenario: Scenario, plan: &mut Plan) {
    match scenario {
        Scenario::Calm | Scenario::Large => {}
        Scenario::Rolling => rolling(rng, plan),
        Scenario::Conditions => super::episodes::conditions(rng, plan),
        Scenario::Answers => super::episodes::answers(rng, plan),
        Scenario::Swarm => swarm(rng, plan),
        Scenario::Churn => sprinkle(rng, plan, BROKERS, 30),
        Scenario::Idle => sprinkle(rng, plan, &[broker_stop, announcer_silent], 20),
        Scenario::Crash => sprinkle(rng, plan, SERVICES, 40),
        Scenario::Partition => sprinkle(rng, plan, NETWORK, 25),
        Scenario::Flood => strangers(rng, plan),
        Scenario::Clocks => sprinkle(rng, plan, CLOCKS, 30),
        Scenario::Retries => sprinkle(rng, plan, &[service_crash, service_stop, broker_crash, broker_full], 12),
        Scenario::Poison => sprinkle(rng, plan, &[service_crash, service_pause], 6),
    }
    plan.faults.sort_by_key(|fault| fault.at_ms);
}

/// A random subset of all kinds; each at its own rate, often an extreme one.
fn swarm(rng: &mut Rng, plan: &mut Plan) {
    let all: Vec<Kind> =
        [BROKERS, SERVICES, NETWORK, STRANGERS, CLOCKS, CONDITIONS].into_iter().flatten().copied().collect();
    for kind in all {
        if rng.chance(300_000) {
            let times = *rng.pick(&[1, 1, 2, 5, 15]);
            sprinkle(rng, plan, &[kind], times);
        }
    }
}

/// As [`swarm`], without what no client can make up for: an operator who throws data away.
pub(crate) fn chaos(rng: &mut Rng, plan: &mut Plan) {
    swarm(rng, plan);
    plan.faults.retain(|fault| !matches!(fault.what, Trouble::FlushAll { .. }));
    plan.faults.sort_by_key(|fault| fault.at_ms);
}

fn sprinkle(rng: &mut Rng, plan: &mut Plan, kinds: &[Kind], times: u64) {
    let span = plan.heal_at_ms - plan.warm_up_ms;
    for _ in 0..rng.between(1, times) {
        let what = rng.pick(kinds)(rng, plan);
        let at_ms = plan.warm_up_ms + rng.below(span);
        let for_ms = match rng.below(4) {
            0 => rng.between(1, 300),
            1 | 2 => rng.between(300, 5_000),
            _ => rng.between(5_000, 20_000),
        };
        plan.faults.push(Fault { at_ms, for_ms, what });
    }
}

/// Strangers at drawn times, and two that are always there: newcomers, more than a small fleet can take, and what is
/// nearly right, which names hosts among other things.
fn strangers(rng: &mut Rng, plan: &mut Plan) {
    sprinkle(rng, plan, STRANGERS, 8);
    if rng.chance(700_000) {
        plan.knobs.fleet_max = plan.brokers.len() as u32 + rng.below(4) as u32;
    }
    let span = plan.heal_at_ms - plan.warm_up_ms;
    for kind in [FloodKind::Newcomers, FloodKind::NearlyRight] {
        let at_ms = plan.warm_up_ms + rng.below(span / 2);
        let what = Trouble::Flood { per_second: *rng.pick(&[20, 200]), kind };
        plan.faults.push(Fault { at_ms, for_ms: rng.between(2_000, 10_000), what });
    }
}

/// Every broker and service in turn, with time between.
fn rolling(rng: &mut Rng, plan: &mut Plan) {
    let hosts = plan.brokers.len() + plan.services.len();
    let step = (plan.heal_at_ms - plan.warm_up_ms) / (hosts as u64 + 1);
    let mut at_ms = plan.warm_up_ms;
    for broker in 0..plan.brokers.len() as u32 {
        let what = if rng.chance(700_000) {
            Trouble::BrokerStop { broker }
        } else {
            Trouble::BrokerCrash { broker, machine: rng.chance(500_000) }
        };
        plan.faults.push(Fault { at_ms, for_ms: rng.between(500, step.max(501) * 3 / 4), what });
        at_ms += step;
    }
    for service in 0..plan.services.len() as u32 {
        let what = Trouble::ServiceStop { service, grace_ms: rng.below(3_000) };
        plan.faults.push(Fault { at_ms, for_ms: rng.between(500, step.max(501) * 3 / 4), what });
        at_ms += step;
    }
}

const BROKERS: &[Kind] = &[
    broker_crash,
    broker_crash,
    broker_stop,
    announcer_silent,
    announcer_down,
    announcer_two,
    announcer_interval,
    readdressed,
];
const SERVICES: &[Kind] = &[service_crash, service_crash, service_stop, service_pause];
const NETWORK: &[Kind] = &[partition, partition, reset, kill_clients, udp_loss];
const STRANGERS: &[Kind] = &[flood, flood, forged_down, announcer_two];
const CLOCKS: &[Kind] = &[service_step, broker_step, service_pause];
pub(super) const CONDITIONS: &[Kind] = &[
    broker_pause,
    broker_slow,
    broker_loading,
    broker_full,
    broker_replica,
    broker_misconf,
    broker_crowded,
    script_flush,
    flush_all,
];

fn broker(rng: &mut Rng, plan: &Plan) -> u32 {
    rng.below(plan.brokers.len() as u64) as u32
}

fn service(rng: &mut Rng, plan: &Plan) -> u32 {
    rng.below(plan.services.len() as u64) as u32
}

fn broker_crash(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerCrash { broker: broker(rng, plan), machine: rng.chance(500_000) }
}

fn broker_stop(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerStop { broker: broker(rng, plan) }
}

fn broker_pause(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerPause { broker: broker(rng, plan) }
}

fn broker_slow(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerSlow { broker: broker(rng, plan), times: rng.between(10, 2_000) as u32 }
}

fn broker_loading(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerLoading { broker: broker(rng, plan) }
}

fn broker_full(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerFull { broker: broker(rng, plan) }
}

fn broker_replica(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerReplica { broker: broker(rng, plan) }
}

fn broker_misconf(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerMisconf { broker: broker(rng, plan) }
}

fn broker_crowded(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerCrowded { broker: broker(rng, plan) }
}

fn broker_step(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::BrokerStep { broker: broker(rng, plan), by_ms: step(rng) }
}

fn script_flush(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::ScriptFlush { broker: broker(rng, plan) }
}

fn flush_all(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::FlushAll { broker: broker(rng, plan) }
}

fn kill_clients(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::KillClients { broker: broker(rng, plan) }
}

fn announcer_silent(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::AnnouncerSilent { broker: broker(rng, plan) }
}

fn announcer_down(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::AnnouncerDown { broker: broker(rng, plan) }
}

fn announcer_two(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::AnnouncerTwo { broker: broker(rng, plan) }
}

fn announcer_interval(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::AnnouncerInterval { broker: broker(rng, plan), interval_ms: *rng.pick(&[100, 2_000, 7_000, 90_000]) }
}

fn readdressed(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::Readdressed { broker: broker(rng, plan) }
}

fn forged_down(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::ForgedDown { broker: broker(rng, plan) }
}

fn service_crash(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::ServiceCrash { service: service(rng, plan), machine: rng.chance(400_000) }
}

fn service_stop(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::ServiceStop { service: service(rng, plan), grace_ms: rng.below(4_000) }
}

fn service_pause(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::ServicePause { service: service(rng, plan) }
}

fn service_step(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::ServiceStep { service: service(rng, plan), by_ms: step(rng) }
}

/// An hour, now and then: what a clock was set back by, everything that is measured by it waits for.
fn step(rng: &mut Rng) -> i64 {
    let by = if rng.chance(60_000) { 3_600_000 } else { *rng.pick(&[10, 1_000, 10_000, 60_000, 60_000]) };
    if rng.chance(500_000) { by } else { -by }
}

fn partition(rng: &mut Rng, plan: &Plan) -> Trouble {
    let mut some = |n: usize| -> Vec<u32> {
        let one = rng.below(n as u64) as u32;
        (0..n as u32).filter(|host| *host == one || rng.chance(400_000)).collect()
    };
    let (services, brokers) = (some(plan.services.len()), some(plan.brokers.len()));
    Trouble::Partition { services, brokers, way: *rng.pick(&[Way::Both, Way::Both, Way::ToBrokers, Way::ToServices]) }
}

fn reset(rng: &mut Rng, plan: &Plan) -> Trouble {
    Trouble::Reset { service: service(rng, plan), broker: broker(rng, plan) }
}

fn udp_loss(rng: &mut Rng, _: &Plan) -> Trouble {
    Trouble::UdpLoss { parts: *rng.pick(&[300_000, 900_000, 1_000_000]) }
}

fn flood(rng: &mut Rng, _: &Plan) -> Trouble {
    let kinds =
        [FloodKind::Noise, FloodKind::NearlyRight, FloodKind::Newcomers, FloodKind::Outside, FloodKind::Aliases];
    Trouble::Flood { per_second: *rng.pick(&[20, 200]), kind: *rng.pick(&kinds) }
}
