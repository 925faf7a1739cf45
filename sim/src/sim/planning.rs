//! From what an author wants to a plan.

use std::time::Duration;

use bytes::Bytes;

use super::Sim;
use crate::plan::{BrokerPlan, Consume, Fate, Fault, Fidelity, Knobs, Network, Plan, ServicePlan, Trouble, Work};
use crate::rng::Rng;
use crate::scenario;
use crate::seen::Item;
use crate::world::app;

/// Long enough for work, short enough that everything runs out several times in half a minute.
pub(super) fn knobs() -> Knobs {
    Knobs {
        block_ms: 1_000,
        claim_idle_ms: 5_000,
        claim_period_ms: 1_000,
        max_deliveries: 10,
        handler_timeout_ms: 4_000,
        retry_base_ms: 200,
        retry_cap_ms: 5_000,
        backoff_cap_ms: 5_000,
        response_ms: 3_000,
        ..Knobs::default()
    }
}

/// The plan, the body of each message as it is stored, and the names of the topics by number.
pub(super) fn plan<S>(sim: &Sim<S>) -> (Plan, Vec<Bytes>, Vec<String>) {
    let (mut topics, mut groups) = (Names::default(), Names::default());
    let mut rng = Rng::new(sim.seed, "sim");
    let asked_ms = sim.faults.iter().map(Fault::until_ms).max().unwrap_or(0);
    let mut plan = Plan {
        scenario: "sim".to_string(),
        seed: sim.seed,
        knobs: sim.knobs.clone(),
        network: Network::default(),
        brokers: (0..sim.brokers).map(|_| broker(sim, &mut rng)).collect(),
        services: sim.services.iter().map(|service| consumers(service, &mut topics, &mut groups)).collect(),
        work: Vec::new(),
        faults: Vec::new(),
        warm_up_ms: sim.faults.iter().map(|fault| fault.at_ms).fold(WARM_UP_MS, u64::min),
        heal_at_ms: ms(sim.lasts).max(asked_ms + 1).max(WARM_UP_MS + 1_000),
        shuffled: rng.chance(500_000),
        fidelity: Fidelity::Fast,
    };
    let sender = plan.services.len() as u32;
    plan.services.push(ServicePlan { from_ms: 0, ..idle() });
    let bodies = work(sim, &mut plan, sender, &mut topics, &mut rng);
    faults(sim, &mut plan, sender);
    (plan, bodies, topics.0)
}

/// Faults that are drawn begin after it.
const WARM_UP_MS: u64 = 1_000;

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn broker<S>(sim: &Sim<S>, rng: &mut Rng) -> BrokerPlan {
    BrokerPlan {
        from_ms: rng.below(200),
        interval_ms: 1_000,
        offset_ms: 0,
        service_us: rng.between(5, 100),
        persistence: sim.persistence,
        memory_max: 0,
    }
}

fn idle() -> ServicePlan {
    ServicePlan { from_ms: 0, rate_ppm: 0, offset_ms: 0, consumes: Vec::new(), subscribe_loop_ms: 0 }
}

fn consumers<S>(service: &super::Service<S>, topics: &mut Names, groups: &mut Names) -> ServicePlan {
    let consumes = service.consumers.iter().map(|consumer| Consume {
        topic: topics.number(&consumer.topic),
        group: groups.number(&consumer.group),
        in_flight: consumer.in_flight,
        handler_us: u64::try_from(consumer.takes.as_micros()).unwrap_or(u64::MAX),
    });
    ServicePlan { consumes: consumes.collect(), ..idle() }
}

/// Spreads the messages over the run, and says what is stored of each.
fn work<S>(sim: &Sim<S>, plan: &mut Plan, sender: u32, topics: &mut Names, rng: &mut Rng) -> Vec<Bytes> {
    let mut sends: Vec<(u64, u8, &Bytes)> = Vec::new();
    for (topic, body) in &sim.sends {
        // Some time is left to handle the last ones while things still go wrong.
        let at_ms = rng.between(200, plan.heal_at_ms - plan.heal_at_ms / 8);
        sends.push((at_ms, topics.number(topic), body));
    }
    sends.sort_by_key(|(at_ms, ..)| *at_ms);
    let mut bodies = Vec::new();
    for ((at_ms, topic, body), number) in sends.into_iter().zip(0u32..) {
        let stored = [&app::tag(Item(number)), body.as_ref()].concat();
        plan.work.push(Work {
            at_ms,
            service: sender,
            topic,
            key: None,
            bytes: u32::try_from(stored.len()).unwrap_or(u32::MAX),
            at_most_once: false,
            cancel_after_us: None,
            delay_ms: None,
            // Any handler may hang or end its process: everything has more time to come right.
            fate: Fate::Slow(1),
        });
        bodies.push(Bytes::from(stored));
    }
    bodies
}

fn faults<S>(sim: &Sim<S>, plan: &mut Plan, sender: u32) {
    if sim.chaos {
        let mut rng = Rng::new(sim.seed, "chaos");
        plan.network = scenario::network(&mut rng, scenario::Scenario::Swarm);
        scenario::faults::chaos(&mut rng, plan);
        spare(&mut plan.faults, sender);
    }
    plan.faults.extend(sim.faults.iter().cloned());
    if let Some(only) = &sim.only {
        plan.faults.clone_from(only);
    }
    plan.faults.sort_by_key(|fault| fault.at_ms);
    for fault in &mut plan.faults {
        check(fault, sim.brokers, sender);
    }
}

/// What would end the sender ends somebody else.
fn spare(faults: &mut Vec<Fault>, sender: u32) {
    let ends = |what: &Trouble| matches!(what, Trouble::ServiceCrash { .. } | Trouble::ServiceStop { .. });
    faults.retain(|fault| sender > 0 || !ends(&fault.what));
    for fault in faults {
        let at_ms = fault.at_ms;
        if ends(&fault.what)
            && let Some(service) = fault.what.service_mut()
            && *service == sender
        {
            *service = (at_ms % u64::from(sender)) as u32;
        }
    }
}

fn check(fault: &mut Fault, brokers: u32, sender: u32) {
    let services = match &fault.what {
        Trouble::Partition { services, brokers: cut, .. } => {
            assert!(cut.iter().all(|broker| *broker < brokers), "no such broker: {fault:?}; there are {brokers}");
            services.clone()
        }
        _ => fault.what.service_mut().map(|service| *service).into_iter().collect(),
    };
    // The sender has a number, too: drawn faults may cut it off.
    assert!(services.iter().all(|service| *service <= sender), "no such service: {fault:?}; there are {sender}");
    let broker = fault.what.broker_mut().map(|broker| *broker);
    assert!(broker.is_none_or(|broker| broker < brokers), "no such broker: {fault:?}; there are {brokers}");
}

/// Names by number.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn number(&mut self, name: &str) -> u8 {
        let known = self.0.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.0.push(name.to_string());
            self.0.len() - 1
        });
        u8::try_from(number).expect("at most 256 topics and 256 groups")
    }
}
