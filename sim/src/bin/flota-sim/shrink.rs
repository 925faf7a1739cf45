//! `flota-sim shrink`.

use std::sync::atomic::Ordering;

use flota_sim::invariants;
use flota_sim::shrink::shrink;
use flota_sim::{Plan, Trial};

use crate::args::ShrinkArgs;
use crate::error::{End, Failure, Outcome};
use crate::progress::{Progress, Watch};
use crate::{output, plans, pool};

pub(crate) fn run(args: &ShrinkArgs) -> Outcome {
    let plan = match (&args.what.plan, args.what.scenario) {
        (Some(path), _) => plans::read(path, args.what.mutant)?,
        (None, Some(scenario)) => {
            plans::draw(scenario, args.seed.unwrap_or_default(), args.what.minutes, args.what.mutant)
        }
        (None, None) => return Err(Failure::usage("there is nothing to shrink")),
    };
    // Saved with it: the small plan fails only so.
    let plan = args.what.in_fidelity(plan);
    let run = |plan: &Plan| Trial::run(plan.clone());
    let Some(target) = run(&plan).failed() else {
        eprintln!("every invariant holds in this plan: there is nothing to shrink");
        return Ok(End::Holds);
    };
    let stop = pool::interrupt();
    let (progress, since) = (Progress::endless(), Watch::start());
    let (mut runs, mut best, before) = (0u64, plan.items(), Sizes::of(&plan));
    let small = shrink(plan, |candidate| {
        // What is reached by an interrupt is kept: nothing fails any more after it, once the first run has.
        if runs > 0 && stop.load(Ordering::Relaxed) {
            return None;
        }
        runs += 1;
        let failed = run(candidate).failed();
        if failed == Some(target) {
            best = candidate.items();
        }
        progress.say(format!("{}: {best} items after {runs} runs", invariants::title(target)));
        failed
    });
    progress.end();
    let trial = run(&small);
    let text = trial.failure().map_or("", |failure| failure.text.as_str());
    eprintln!("{} still does not hold: {text}", invariants::title(target));
    eprintln!("before  {before}");
    eprintln!("after   {}", Sizes::of(&small));
    eprintln!("{runs} runs in {}", output::span(since.elapsed()));
    let comment = args.comment.clone().unwrap_or_else(|| format!("{}: {text}", invariants::title(target)));
    let json = plans::to_json(&small, Some(&comment));
    match &args.out {
        None => output::write(&json)?,
        Some(path) => {
            output::file(path, &json)?;
            eprintln!("reproduce  flota-sim run --plan {}", path.display());
        }
    }
    Ok(if stop.load(Ordering::Relaxed) { End::Interrupted } else { End::Fails })
}

/// How many of what a plan has.
struct Sizes {
    all: usize,
    brokers: usize,
    services: usize,
    work: usize,
    faults: usize,
    ms: u64,
}

impl Sizes {
    fn of(plan: &Plan) -> Self {
        Self {
            all: plan.items(),
            brokers: plan.brokers.len(),
            services: plan.services.len(),
            work: plan.work.len(),
            faults: plan.faults.len(),
            ms: plan.heal_at_ms,
        }
    }
}

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { all, brokers, services, work, faults, ms } = self;
        write!(f, "{all} items: {brokers} brokers, {services} services, {work} messages, {faults} faults; {ms} ms")
    }
}
