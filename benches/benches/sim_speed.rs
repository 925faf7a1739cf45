//! How much faster than time the simulator is: a slow one is one that nobody runs.
//!
//! ```sh
//! cargo bench -p flota-benches --bench sim_speed
//! ```
//!
//! Every run is judged by all oracles, as always. What counts is the time on the processor, whatever else it does. Each
//! line has a floor, an order of magnitude below what a machine of 2025 does, and missing one is a failure: on any
//! machine that means that something grows where it should not.
//! A word after `--` chooses the lines that contain it. `FLOTA_LARGE=1` adds a thousand brokers and two thousand services:
//! they take more than four minutes and several gigabytes, and their floor is a guess.

use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use flota_sim::plan::{BrokerPlan, Consume, Fate, Fidelity, Knobs, Network, Persistence, Plan, ServicePlan, Work};
use flota_sim::scenario::Scenario;
use flota_sim::seen::What;
use flota_sim::{Report, World};

struct Case {
    name: &'static str,
    plan: Plan,
    /// Simulated seconds per second, at least.
    floor: f64,
}

fn main() -> ExitCode {
    let mut cases = vec![
        Case { name: "ten brokers come and go, idle", plan: Scenario::Idle.draw(0, 1_800_000), floor: 400.0 },
        Case { name: "200 commands a second", plan: steady(Fidelity::Fast), floor: 40.0 },
        Case { name: "the same, driver and client real", plan: steady(Fidelity::Full), floor: 8.0 },
        Case { name: "100 brokers, 200 services", plan: part_of_large(100, 200), floor: 0.4 },
    ];
    if std::env::var_os("FLOTA_LARGE").is_some() {
        cases.push(Case { name: "1,000 brokers, 2,000 services", plan: part_of_large(1_000, 2_000), floor: 0.004 });
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    cases.retain(|case| wanted.is_empty() || wanted.iter().any(|word| case.name.contains(word.as_str())));
    println!("{:34} {:>10} {:>9} {:>12} {:>11} {:>9}", "", "simulated", "took", "commands/sim", "events/s", "ratio");
    let mut slow = false;
    for case in cases {
        slow |= !measure(case);
    }
    if slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one case and prints its line. Whether it was fast enough.
#[allow(clippy::cast_precision_loss, reason = "counts of a minute")]
fn measure(case: Case) -> bool {
    let (report, commands, took) = run(case.plan);
    let simulated = report.simulated_us as f64 / 1e6;
    let ratio = simulated / took;
    println!(
        "{:34} {simulated:8.0} s {took:7.2} s {:10.0} /s {:11.0} {ratio:7.1} ×{}",
        case.name,
        commands as f64 / simulated,
        report.events as f64 / took,
        if ratio < case.floor { format!("  too slow: at least {} ×", case.floor) } else { String::new() }
    );
    for violation in &report.violations {
        println!("    invariant {}: {}", violation.invariant, violation.text);
    }
    ratio >= case.floor && report.is_ok()
}

fn run(plan: Plan) -> (Report, u64, f64) {
    let commands = Rc::new(Cell::new(0));
    let count = Rc::clone(&commands);
    let mut world = World::new(plan);
    world.watch(move |seen| {
        if matches!(seen.what, What::Executed { .. }) {
            count.set(count.get() + 1);
        }
    });
    let began = processor_time();
    let report = world.run();
    (report, commands.get(), (processor_time() - began).as_secs_f64())
}

/// What this thread has used so far.
fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// Three brokers and four services that send and consume: some 200 commands in each simulated second, for ten minutes.
fn steady(fidelity: Fidelity) -> Plan {
    const MS: u64 = 600_000;
    let consume = Consume { topic: 0, group: 0, in_flight: 64, handler_us: 5_000 };
    let broker = BrokerPlan {
        from_ms: 0,
        interval_ms: 1_000,
        offset_ms: 0,
        service_us: 20,
        persistence: Persistence::Always,
        memory_max: 0,
    };
    let service = ServicePlan { from_ms: 0, rate_ppm: 0, offset_ms: 0, consumes: vec![consume], subscribe_loop_ms: 0 };
    let work = |n: u64| Work {
        at_ms: 1_000 + n * 16,
        service: (n % 4) as u32,
        topic: 0,
        key: None,
        bytes: 64,
        at_most_once: false,
        cancel_after_us: None,
        delay_ms: None,
        fate: Fate::Done,
    };
    Plan {
        scenario: "steady".to_string(),
        seed: 1,
        knobs: Knobs::default(),
        network: Network { batch: 0, ..Network::default() },
        brokers: vec![broker; 3],
        services: vec![service; 4],
        work: (0..MS / 16).map(work).collect(),
        faults: Vec::new(),
        warm_up_ms: 1_000,
        heal_at_ms: 1_000 + MS,
        shuffled: false,
        fidelity,
    }
}

/// The scenario `large`, with fewer hosts.
fn part_of_large(brokers: usize, services: usize) -> Plan {
    let mut plan = Scenario::Large.draw(0, 20_000);
    plan.brokers.truncate(brokers);
    plan.services.truncate(services);
    plan.work.iter_mut().for_each(|work| work.service %= services as u32);
    plan.faults.clear();
    plan
}
