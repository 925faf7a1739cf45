//! The same world with engines alone and with the real driver and client: both must lead to the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flota_sim::broker::Change;
use flota_sim::plan::{Fidelity, Trouble};
use flota_sim::scenario::Scenario;
use flota_sim::seen::{Given, Hand, Host, Item, Seen, What};
use flota_sim::world::item_in;
use flota_sim::{Plan, Report, World};

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

/// Everything that an application can know of a message when all is over.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    stored: bool,
    told_stored: bool,
    handled_by: BTreeSet<(u8, u8)>,
    dead: bool,
}

#[derive(Default)]
struct Watch {
    items: BTreeMap<Item, Outcome>,
    hands: BTreeMap<(Host, Hand), (Item, (u8, u8))>,
}

impl Watch {
    fn see(&mut self, seen: &Seen, plan: &Plan) {
        match (&seen.host, &seen.what) {
            (Host::Broker(_), What::Changed(change)) => {
                if let Change::Added { key, fields, .. } = change.as_ref()
                    && let Some(item) = item_in(fields)
                {
                    let outcome = self.items.entry(item).or_default();
                    if key.ends_with(b":dlq") { outcome.dead = true } else { outcome.stored = true }
                }
            }
            (_, What::Done { item, result }) => self.items.entry(*item).or_default().told_stored |= result.is_ok(),
            (Host::Service(service), What::Delivered(delivered)) => {
                let consume = &plan.services[*service as usize].consumes[delivered.sub as usize];
                if let Some(item) = delivered.item {
                    self.hands.insert((seen.host, delivered.hand), (item, (consume.topic, consume.group)));
                }
            }
            (host, What::Settled { hand, verdict: Given::Done, .. }) => {
                if let Some((item, group)) = self.hands.get(&(*host, *hand)) {
                    self.items.entry(*item).or_default().handled_by.insert(*group);
                }
            }
            _ => {}
        }
    }
}

fn outcomes(seed: u64, fidelity: Fidelity) -> BTreeMap<Item, Outcome> {
    let mut plan = plan("calm", seed, fidelity);
    // A link that is slower than what is sent, and senders that give up, are faults, too.
    plan.network.send_buffer = 64 << 10;
    plan.knobs.send_init_ms = 30_000;
    let watch = Rc::new(RefCell::new(Watch::default()));
    let mut world = World::new(plan.clone());
    let watcher = Rc::clone(&watch);
    world.watch(move |seen| watcher.borrow_mut().see(seen, &plan));
    let report = world.run();
    assert!(report.is_ok(), "{}", told(&report));
    std::mem::take(&mut watch.borrow_mut().items)
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
        let (fast, full) = (outcomes(seed, Fidelity::Fast), outcomes(seed, Fidelity::Full));
        assert!(fast.values().filter(|outcome| outcome.stored).count() > 100, "calm {seed} sends next to nothing");
        let items: BTreeSet<&Item> = fast.keys().chain(full.keys()).collect();
        for item in items.into_iter().filter(|item| fast.get(item) != full.get(item)) {
            differ.push(format!("calm {seed}, {item:?}:\n fast {:?}\n full {:?}", fast.get(item), full.get(item)));
        }
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
