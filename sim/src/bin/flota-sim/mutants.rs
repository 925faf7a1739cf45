//! `flota-sim mutants`: an oracle that nobody has ever seen fail is no evidence.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use flota_core::mutant::Mutant;
use flota_sim::invariants::PANIC;
use flota_sim::plan::{Fidelity, Plan};
use flota_sim::scenario::Scenario;
use flota_sim::{Report, Trial, World, fidelity, lease};
use serde::Serialize;

use crate::args::MutantArgs;
use crate::error::{End, Failure, Outcome};
use crate::output::{self, Style};
use crate::progress::Progress;
use crate::{plans, pool};

pub(crate) fn run(args: &MutantArgs) -> Outcome {
    if cfg!(not(feature = "mutants")) {
        return Err(Failure::usage("this build has no planted faults").hint("build it with the feature `mutants`"));
    }
    let all: Vec<Mutant> = if args.only.is_empty() { Mutant::ALL.to_vec() } else { args.only.clone() };
    let stop = pool::interrupt();
    let mut progress = Progress::over(all.len() as u64, "planted faults");
    let style = Style::for_stream(io::stdout().is_terminal());
    let (mut caught, mut missed) = (0, 0);
    if !args.json {
        output::write(&format!("{}\n", style.dim(HEADING)))?;
    }
    let work = |n: u64| all.get(n as usize).map(|mutant| hunt(*mutant, args.seeds, &stop));
    pool::run(0..all.len() as u64, args.jobs, &stop, work, |row| {
        let Some(row) = row else { return Ok(()) };
        progress.one(row.simulated_us);
        if row.caught {
            caught += 1
        } else {
            missed += 1
        }
        progress.above(|| if args.json { output::json(&row) } else { output::write(&row.line(style)) })
    })?;
    progress.end();
    let interrupted = stop.load(Ordering::Relaxed);
    if !args.json {
        output::write(&format!("{caught} caught, {missed} not caught\n"))?;
    }
    Ok(match (interrupted, missed) {
        (true, _) => End::Interrupted,
        (false, 0) => End::Holds,
        (false, _) => End::Fails,
    })
}

const HEADING: &str = "invariant  planted fault                 runs  scenario   seed  also broken";

/// A run that has broken something goes on for so many events, to see what else breaks: some faults spin.
const MOST_EVENTS: u64 = 600_000;

/// Half a minute of work and faults: many short runs see more than a few long ones.
const FOR_MS: u64 = 30_000;

/// Both fidelities agree where nothing goes wrong.
const AGREE: u8 = 44;

/// What came of one planted fault.
#[derive(Serialize)]
struct Row {
    invariant: u8,
    mutant: &'static str,
    what: &'static str,
    caught: bool,
    /// Runs until it was noticed, or in all.
    runs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    scenario: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Other invariants that did not hold, in the run that noticed it or in any.
    others: BTreeSet<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    panic: Option<String>,
    #[serde(skip)]
    simulated_us: u64,
}

/// Runs seeds until the invariant that a fault proves does not hold.
fn hunt(mutant: Mutant, seeds: u64, stop: &AtomicBool) -> Row {
    let target = mutant.invariants().first().copied().unwrap_or_default();
    let mut row = Row {
        invariant: target,
        mutant: mutant.name(),
        what: mutant.what(),
        caught: false,
        runs: 0,
        scenario: None,
        seed: None,
        others: BTreeSet::new(),
        panic: None,
        simulated_us: 0,
    };
    if mutant.is_in_lease() {
        return hunt_lease(mutant, row);
    }
    let fidelity = if mutant.is_in_driver() { Fidelity::Full } else { Fidelity::Fast };
    for scenario in scenarios(mutant) {
        for seed in 0..seeds {
            if stop.load(Ordering::Relaxed) {
                return row;
            }
            let plan = Plan { fidelity, ..plans::draw(scenario, seed, Some(FOR_MS), Some(mutant)) };
            let (report, broken) = if target == AGREE { in_both(plan) } else { in_one(plan) };
            row.runs += 1;
            row.simulated_us += report.simulated_us;
            if let Some(panic) = report.violations.iter().find(|violation| violation.invariant == PANIC) {
                row.panic.get_or_insert_with(|| panic.text.clone());
            }
            if broken.contains(&target) {
                row.caught = true;
                row.scenario = Some(scenario.name());
                row.seed = Some(seed);
                row.others = broken.into_iter().filter(|other| *other != target && *other != PANIC).collect();
                return row;
            }
            row.others.extend(broken.into_iter().filter(|other| *other != PANIC));
        }
    }
    row
}

/// The lease machine runs by itself, in short schedules of its own.
fn hunt_lease(mutant: Mutant, row: Row) -> Row {
    const SEEDS: u64 = 300;
    let hunt = lease::hunt(mutant, SEEDS);
    Row {
        caught: hunt.found.is_some(),
        runs: hunt.runs,
        scenario: hunt.found.map(|_| "leases"),
        seed: hunt.found.map(|(_, seed)| seed),
        others: hunt.others,
        simulated_us: hunt.simulated_us,
        ..row
    }
}

/// Everything that a run breaks.
fn in_one(plan: Plan) -> (Report, BTreeSet<u8>) {
    let report = Trial::with(plan, to_the_end).report;
    let broken = report.violations.iter().map(|violation| violation.invariant).collect();
    (report, broken)
}

/// … and whether it comes out differently with engines alone.
fn in_both(plan: Plan) -> (Report, BTreeSet<u8>) {
    let compared = fidelity::compare(&fidelity::without_faults(plan), to_the_end);
    let differs = compared.fast.is_ok() && !compared.differences().is_empty();
    let report = compared.full;
    // What is cut off has not come out at all.
    let differs = differs && report.events < MOST_EVENTS;
    let broken = report.violations.iter().map(|violation| violation.invariant);
    let broken = broken.chain(differs.then_some(AGREE)).collect();
    (report, broken)
}

fn to_the_end(world: &mut World) {
    world.exhaust();
    world.limit_events(MOST_EVENTS);
}

/// Where a fault is most likely to show, then everywhere else that runs fast.
fn scenarios(mutant: Mutant) -> Vec<Scenario> {
    if mutant.invariants().first() == Some(&AGREE) {
        return vec![Scenario::Calm];
    }
    let first: &[Scenario] = match mutant {
        Mutant::GlobalCounter | Mutant::FiresEarly => &[Scenario::Calm],
        Mutant::DeadlineEarly => &[Scenario::Churn],
        Mutant::GiveUpForgetsDoubt => &[Scenario::Partition],
        Mutant::RefusalHidesDoubt
        | Mutant::DeadlineUnarmed
        | Mutant::ErrorKeepsSlot
        | Mutant::OomStopsReads
        | Mutant::StopNever => &[Scenario::Conditions],
        Mutant::OrphansForgotten | Mutant::ReadLossForgotten | Mutant::RetryOrphanDropped => &[Scenario::Answers],
        Mutant::LimitOffByOne
        | Mutant::BackoffHalved
        | Mutant::RetryNotDue
        | Mutant::RetryNever
        | Mutant::RetryStreamUnread
        | Mutant::AttemptForgotten
        | Mutant::RetryForAll => &[Scenario::Poison],
        Mutant::ScheduledAtOnce | Mutant::ScheduledUnmoved => &[Scenario::Retries],
        Mutant::FullTableGrows | Mutant::NetworkUnchecked | Mutant::HostNameDialled => &[Scenario::Flood],
        _ => &[Scenario::Swarm],
    };
    let rest = [
        Scenario::Swarm,
        Scenario::Churn,
        Scenario::Crash,
        Scenario::Partition,
        Scenario::Flood,
        Scenario::Poison,
        Scenario::Retries,
        Scenario::Conditions,
        Scenario::Answers,
        Scenario::Rolling,
        Scenario::Clocks,
        Scenario::Calm,
    ];
    let mut all = first.to_vec();
    all.extend(rest.into_iter().filter(|scenario| !first.contains(scenario)));
    all
}

impl Row {
    fn line(&self, style: Style) -> String {
        let mut text = format!("{:>9}  {:<28}", self.invariant, self.mutant);
        let others: Vec<String> = self.others.iter().map(u8::to_string).collect();
        let seed = self.seed.map_or(String::new(), |seed| seed.to_string());
        let _ = if self.caught {
            let scenario = self.scenario.unwrap_or_default();
            write!(text, "  {:>4}  {scenario:<9}  {seed:>4}  {}", self.runs, others.join(" "))
        } else {
            let missed = style.bad(&format!("{:<15}", "not caught"));
            write!(text, "  {:>4}  {missed}  {}", self.runs, others.join(" "))
        };
        if let Some(panic) = &self.panic {
            let _ = write!(text, "  ({panic})");
        }
        format!("{}\n", text.trim_end())
    }
}
