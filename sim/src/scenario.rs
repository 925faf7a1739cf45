//! Scenarios: how plans are drawn. Everything random about a run's shape is decided here, before it begins.

mod episodes;
pub(crate) mod faults;
mod sometimes;

pub use sometimes::{SEEDS, Seldom};

use crate::plan::{BrokerPlan, Consume, Fate, Fidelity, Knobs, Network, Persistence, Plan, ServicePlan, Work};
use crate::rng::Rng;

/// A way to draw plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Any subset of the faults, each at its own rate, often an extreme one.
    Swarm,
    /// Brokers join, leave, crash and restart.
    Churn,
    /// Workers die at every step.
    Crash,
    /// The network is cut.
    Partition,
    /// Strangers send datagrams.
    Flood,
    /// Clocks drift and are stepped.
    Clocks,
    /// Messages that nobody can handle.
    Poison,
    /// Retries and scheduled messages, of two groups of which one fails often.
    Retries,
    /// Every broker and service is restarted, one by one.
    Rolling,
    /// Brokers fill up, refuse, stand still and are trimmed.
    Conditions,
    /// Connections end while answers are on their way.
    Answers,
    /// A thousand brokers, two thousand services: discovery and routing.
    Large,
    /// Nothing goes wrong.
    Calm,
    /// Ten brokers come and go, and nothing else: how fast time can pass.
    Idle,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Swarm,
        Self::Churn,
        Self::Crash,
        Self::Partition,
        Self::Flood,
        Self::Clocks,
        Self::Poison,
        Self::Retries,
        Self::Rolling,
        Self::Conditions,
        Self::Answers,
        Self::Large,
        Self::Calm,
        Self::Idle,
    ];

    /// As the command line names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Swarm => "swarm",
            Self::Churn => "churn",
            Self::Crash => "crash",
            Self::Partition => "partition",
            Self::Flood => "flood",
            Self::Clocks => "clocks",
            Self::Poison => "poison",
            Self::Retries => "retries",
            Self::Rolling => "rolling",
            Self::Conditions => "conditions",
            Self::Answers => "answers",
            Self::Large => "large",
            Self::Calm => "calm",
            Self::Idle => "idle",
        }
    }

    /// The scenario of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }

    /// What it is about, in a line.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::Swarm => "a random subset of all faults, each at a rate of its own",
            Self::Churn => "brokers join, leave, crash and restart at the same address",
            Self::Crash => "workers die at every step",
            Self::Partition => "the network is cut, in one direction or both",
            Self::Flood => "strangers send noise, forgeries and newcomers",
            Self::Clocks => "clocks drift and are stepped",
            Self::Poison => "messages that nobody can handle",
            Self::Retries => "retries and scheduled messages, while workers die and brokers fill up and restart",
            Self::Rolling => "every broker and service is restarted, one by one",
            Self::Conditions => "brokers fill up, refuse, stand still and are trimmed",
            Self::Answers => "connections end while answers are on their way",
            Self::Large => "1,000 brokers and 2,000 services: discovery and routing",
            Self::Calm => "nothing goes wrong",
            Self::Idle => "ten brokers come and go, and nothing is sent",
        }
    }

    /// How long faults and work last unless asked otherwise, in simulated milliseconds.
    #[must_use]
    pub fn usual_ms(self) -> u64 {
        match self {
            Self::Large => 20_000,
            Self::Calm => 20_000,
            Self::Rolling | Self::Idle => 120_000,
            _ => 60_000,
        }
    }

    /// Draws the plan of a seed: work and faults for so long.
    #[must_use]
    pub fn draw(self, seed: u64, for_ms: u64) -> Plan {
        let mut rng = Rng::new(seed, self.name());
        let mut plan = Plan {
            scenario: self.name().to_string(),
            seed,
            knobs: knobs(&mut rng),
            network: network(&mut rng, self),
            brokers: Vec::new(),
            services: Vec::new(),
            work: Vec::new(),
            faults: Vec::new(),
            warm_up_ms: 3_000,
            heal_at_ms: 3_000 + for_ms,
            shuffled: rng.chance(500_000),
            fidelity: Fidelity::default(),
        };
        hosts(&mut rng, self, &mut plan);
        work(&mut rng, self, &mut plan);
        faults::draw(&mut rng, self, &mut plan);
        plan
    }
}

/// Short enough that several of each can happen within a run; sometimes the defaults.
fn knobs(rng: &mut Rng) -> Knobs {
    if rng.chance(200_000) {
        return Knobs { claim_idle_ms: 10_000, handler_timeout_ms: 8_000, retry_cap_ms: 20_000, ..Knobs::default() };
    }
    let claim_idle_ms = rng.between(2_000, 8_000);
    Knobs {
        block_ms: rng.between(200, 2_000),
        claim_idle_ms,
        claim_period_ms: rng.between(500, 3_000),
        max_deliveries: rng.between(2, 6) as u32,
        handler_timeout_ms: claim_idle_ms * 4 / 5,
        retry_base_ms: rng.between(50, 1_000),
        retry_cap_ms: rng.between(1_000, 8_000),
        send_init_ms: *rng.pick(&[500, 5_000, 30_000]),
        backoff_cap_ms: rng.between(1_000, 10_000),
        response_ms: rng.between(1_500, 5_000),
        pipeline: *rng.pick(&[4, 64, 16_384]),
        fleet_max: *rng.pick(&[16, 64, 10_000]),
        backlog_ops: *rng.pick(&[20, 65_536]),
        ..Knobs::default()
    }
}

pub(crate) fn network(rng: &mut Rng, scenario: Scenario) -> Network {
    if matches!(scenario, Scenario::Large | Scenario::Idle) {
        return Network { batch: 0, ..Network::default() };
    }
    let calm = scenario == Scenario::Calm;
    let swarm = |rng: &mut Rng, parts: &[u32]| if calm || rng.chance(500_000) { 0 } else { *rng.pick(parts) };
    Network {
        latency_us: rng.between(20, 2_000),
        jitter_us: rng.between(10, 2_000),
        spike: swarm(rng, &[100, 10_000]),
        spike_us: rng.between(1_000, 300_000),
        cut: *rng.pick(&[0, 100_000, 900_000]),
        send_buffer: *rng.pick(&[300, 4_096, 64 << 10]),
        udp_loss: swarm(rng, &[10_000, 200_000]),
        udp_twice: swarm(rng, &[10_000, 300_000]),
        udp_damage: swarm(rng, &[1_000, 50_000]),
        batch: *rng.pick(&[0, 100_000, 700_000]),
    }
}

fn hosts(rng: &mut Rng, scenario: Scenario, plan: &mut Plan) {
    let (brokers, services) = match scenario {
        Scenario::Large => (1_000, 2_000),
        Scenario::Idle => (10, 3),
        Scenario::Rolling => (rng.between(2, 4), rng.between(2, 4)),
        Scenario::Retries => (rng.between(1, 3), rng.between(2, 5)),
        Scenario::Answers => (rng.between(1, 3), rng.between(2, 3)),
        _ => (rng.between(1, 5), rng.between(1, 5)),
    };
    let fixed = scenario != Scenario::Large && rng.chance(100_000);
    // So many brokers are told to speak seldom: a thousand words a second, to each of two thousand ears, is a lot of noise.
    let intervals: &[u64] = if scenario == Scenario::Large { &[5_000, 10_000] } else { &[1_000, 1_000, 500, 3_000] };
    for _ in 0..brokers {
        plan.brokers.push(BrokerPlan {
            from_ms: if rng.chance(700_000) { rng.below(500) } else { rng.below(plan.heal_at_ms / 2) },
            interval_ms: if fixed { 0 } else { *rng.pick(intervals) },
            offset_ms: if rng.chance(300_000) { rng.between(0, 7_200_000) as i64 - 3_600_000 } else { 0 },
            service_us: rng.between(5, 100),
            persistence: *rng.pick(&[
                Persistence::Always,
                Persistence::Always,
                Persistence::EverySecond,
                Persistence::Never,
            ]),
            memory_max: 0,
        });
    }
    if let Some(first) = plan.brokers.first_mut() {
        first.from_ms = first.from_ms.min(500);
    }
    for index in 0..services {
        let consumes = if matches!(scenario, Scenario::Large | Scenario::Idle) || (index > 0 && rng.chance(200_000)) {
            Vec::new()
        } else if scenario == Scenario::Retries {
            // Two groups of each topic.
            let group = (index % 2) as u8;
            consumes(rng).into_iter().map(|consume| Consume { group, ..consume }).collect()
        } else {
            consumes(rng)
        };
        let clocks = scenario == Scenario::Clocks;
        plan.services.push(ServicePlan {
            from_ms: if rng.chance(700_000) { rng.below(500) } else { rng.below(10_000) },
            rate_ppm: if clocks { rng.between(0, 20_000) as i64 - 10_000 } else { rng.between(0, 400) as i64 - 200 },
            offset_ms: if clocks { rng.between(0, 7_200_000) as i64 - 3_600_000 } else { 0 },
            consumes,
            subscribe_loop_ms: if rng.chance(150_000) { rng.between(2_000, 10_000) } else { 0 },
        });
    }
}

fn consumes(rng: &mut Rng) -> Vec<Consume> {
    let mut consume = |topic| Consume {
        topic,
        group: u8::from(rng.chance(200_000)),
        in_flight: *rng.pick(&[1, 3, 16, 64]),
        handler_us: *rng.pick(&[100, 5_000, 50_000, 400_000]),
    };
    let mut all = vec![consume(0)];
    all.push(consume(1));
    all
}

fn work(rng: &mut Rng, scenario: Scenario, plan: &mut Plan) {
    let until = plan.heal_at_ms;
    let messages = match scenario {
        Scenario::Idle => 0,
        Scenario::Large => 2_000,
        Scenario::Calm => 200,
        Scenario::Conditions | Scenario::Answers => 600,
        _ => *rng.pick(&[50, 200, 400]),
    };
    for _ in 0..messages {
        let fate = fate(rng, scenario);
        let delayed = match scenario {
            Scenario::Retries => 400_000,
            Scenario::Swarm | Scenario::Crash | Scenario::Churn | Scenario::Calm | Scenario::Clocks => 60_000,
            _ => 0,
        };
        plan.work.push(Work {
            at_ms: 500 + rng.below(until - 500),
            service: rng.below(plan.services.len() as u64) as u32,
            topic: u8::from(rng.chance(300_000)),
            key: rng.chance(150_000).then(|| rng.below(6) as u8),
            bytes: if rng.chance(20_000) { rng.between(1_000, 70_000) as u32 } else { rng.between(12, 300) as u32 },
            at_most_once: rng.chance(100_000),
            cancel_after_us: (scenario != Scenario::Calm && rng.chance(50_000)).then(|| rng.below(5_000)),
            delay_ms: rng.chance(delayed).then(|| rng.between(1, 10_000)),
            fate,
        });
    }
    plan.work.sort_by_key(|work| work.at_ms);
}

fn fate(rng: &mut Rng, scenario: Scenario) -> Fate {
    let odd = match scenario {
        Scenario::Calm | Scenario::Large => 0,
        Scenario::Poison | Scenario::Conditions => 300_000,
        Scenario::Answers => 700_000,
        Scenario::Retries => 500_000,
        _ => 60_000,
    };
    if !rng.chance(odd) {
        return Fate::Done;
    }
    match scenario {
        // Nothing that takes long: what is in nobody's hand shows when all is quiet.
        Scenario::Answers => {
            return *rng.pick(&[Fate::Retry(1), Fate::Retry(2), Fate::Retry(3), Fate::Twice, Fate::Release]);
        }
        Scenario::Retries => {
            let fails = rng.below(2) as u8;
            return *rng.pick(&[Fate::Fails(fails), Fate::Retry(1), Fate::Retry(7), Fate::Reject, Fate::Crash(1)]);
        }
        // Nothing that ends a process: its broker's condition is what matters.
        Scenario::Conditions => {
            return *rng.pick(&[
                Fate::Retry(1),
                Fate::Retry(4),
                Fate::Reject,
                Fate::Slow(3),
                Fate::Twice,
                Fate::Release,
            ]);
        }
        _ => {}
    }
    match rng.below(8) {
        0 | 1 => Fate::Retry(rng.between(1, 8) as u8),
        2 => Fate::Reject,
        3 => Fate::Crash(rng.between(1, 9) as u8),
        4 => Fate::Hang,
        5 => Fate::Slow(rng.between(3, 40) as u8),
        6 => Fate::Twice,
        _ => Fate::Release,
    }
}
