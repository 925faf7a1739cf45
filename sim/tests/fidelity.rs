//! The same world with engines alone and with the real driver and client: both must lead to the same.

use flota_sim::oracle::Class;
use flota_sim::plan::{Fidelity, Trouble};
use flota_sim::scenario::Scenario;
use flota_sim::{Plan, Report, World, fidelity};

fn plan(scenario: &str, seed: u64, fidelity: Fidelity) -> Plan {
    let scenario = Scenario::named(scenario).expect("a scenario of that name");
    let mut plan = Plan { fidelity, ..scenario.draw(seed, FOR_MS) };
    // Brokers' clocks that are set back are judged in fast fidelity.
    plan.faults.retain(|fault| !matches!(fault.what, Trouble::BrokerStep { .. }));
    plan
}

/// Shorter than usual: every test of the workspace runs these.
const FOR_MS: u64 = 15_000;

fn run(scenario: &str, seed: u64, fidelity: Fidelity) -> Report {
    World::new(plan(scenario, seed, fidelity)).run()
}

/// Seeds from this on, so many: `FLOTA_SIM_SEEDS=100..140`.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FLOTA_SIM_SEEDS") else { return usual };
    let (from, to) = text.split_once("..").expect("FLOTA_SIM_SEEDS is FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

fn told(report: &Report) -> String {
    let violations: Vec<String> = report
        .violations
        .iter()
        .map(|v| format!("{} at {:.6} s, {}: {}", v.invariant, v.at as f64 / 1e6, v.host, v.text))
        .collect();
    format!("{} {}:\n{}\n{}", report.scenario, report.seed, violations.join("\n"), report.tail.join("\n"))
}

fn all_hold(scenario: &str, range: std::ops::Range<u64>) {
    let mut failed = Vec::new();
    for seed in seeds(range) {
        let report = run(scenario, seed, Fidelity::Full);
        if let Some(first) = report.violations.first() {
            failed.push(format!("seed {seed}: {} {}: {}", first.invariant, first.host, first.text));
        }
    }
    assert!(failed.is_empty(), "{scenario}, full fidelity:\n{}", failed.join("\n"));
}

#[test]
fn without_faults_both_fidelities_lead_to_the_same_outcomes() {
    let mut differ = Vec::new();
    for seed in seeds(0..40) {
        let compared = fidelity::compare(&fidelity::without_faults(plan("calm", seed, Fidelity::Fast)), |_| {});
        for report in [&compared.fast, &compared.full] {
            assert!(report.is_ok(), "{}", told(report));
        }
        let stored = compared.fast.outcomes.iter().filter(|outcome| outcome.done == Some(Class::Stored)).count();
        assert!(stored > 100, "calm {seed} sends next to nothing");
        differ.extend(compared.differences().into_iter().map(|difference| format!("calm {seed}: {difference:?}")));
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn the_same_seed_is_the_same_run() {
    for scenario in ["calm", "swarm", "crash"] {
        let hashes: Vec<u64> = (0..2).map(|_| run(scenario, 3, Fidelity::Full).hash).collect();
        assert_eq!(hashes[0], hashes[1], "{scenario} 3");
        assert_ne!(hashes[0], run(scenario, 4, Fidelity::Full).hash, "{scenario} 4 is another run");
    }
}

#[test]
fn everything_holds_in_the_swarm() {
    all_hold("swarm", 0..40);
}

#[test]
fn everything_holds_under_churn() {
    all_hold("churn", 0..40);
}

#[test]
fn everything_holds_when_processes_crash() {
    all_hold("crash", 0..40);
}

#[test]
fn everything_holds_through_partitions() {
    all_hold("partition", 0..40);
}

/// Reproduces: `FLOTA_SIM_SCENARIO=swarm FLOTA_SIM_SEEDS=7..8 cargo test … -- --ignored reproduce`.
#[test]
#[ignore = "a tool: runs the seeds it is told and says how fast"]
#[allow(clippy::disallowed_types, clippy::disallowed_methods, clippy::print_stdout, reason = "it measures")]
fn reproduce() {
    let scenario = std::env::var("FLOTA_SIM_SCENARIO").unwrap_or_else(|_| "calm".to_string());
    for seed in seeds(0..1) {
        for fidelity in [Fidelity::Full, Fidelity::Fast] {
            let began = std::time::Instant::now();
            let mut world = World::new(plan(&scenario, seed, fidelity));
            if let Ok(part) = std::env::var("FLOTA_SIM_TRACE") {
                world.watch(move |seen| {
                    let line = format!("{seen} {:?}", seen.what);
                    if line.contains(&part) {
                        println!("{line}");
                    }
                });
            }
            let report = world.run();
            let (wall, simulated) = (began.elapsed().as_secs_f64(), report.simulated_us as f64 / 1e6);
            println!(
                "{fidelity:?} {scenario} {seed}: hash {:016x}, {} events, {simulated:.1} s in {wall:.3} s: {:.0} times",
                report.hash,
                report.events,
                simulated / wall
            );
            if !report.is_ok() {
                println!("{}", told(&report));
            }
        }
    }
}
