//! `flota-sim run`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flota_sim::invariants::{self, PANIC};
use flota_sim::oracle::Marks;
use flota_sim::scenario::Seldom;
use flota_sim::{Plan, Trial, draw};
use serde::Serialize;

use crate::args::RunArgs;
use crate::error::{End, Failure, Outcome};
use crate::output::{self, Style};
use crate::progress::{Progress, Watch};
use crate::{commit, plans, pool};

pub(crate) fn run(args: &RunArgs) -> Outcome {
    let stop = pool::interrupt();
    let mut all = Summary::new(args);
    match &args.what.plan {
        Some(path) => {
            let plan = plans::read(path, args.what.mutant)?;
            all.take(args, one(args, plan)?)?;
        }
        None => seeds(args, &stop, &mut all)?,
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let seldom = all.seldom(args);
    all.end(args, interrupted, &seldom)?;
    Ok(match (interrupted, all.failed) {
        (true, _) => End::Interrupted,
        (false, 0) if seldom.is_empty() => End::Holds,
        (false, _) => End::Fails,
    })
}

fn seeds(args: &RunArgs, stop: &AtomicBool, all: &mut Summary) -> Result<(), Failure> {
    let Some(scenario) = args.what.scenario else { return Err(Failure::usage("there is nothing to run")) };
    let range = match (&args.seeds, args.seed) {
        (Some(range), _) => range.clone(),
        (None, seed) => seed.unwrap_or(0)..seed.unwrap_or(0).saturating_add(1),
    };
    all.progress = Some(Progress::over(range.end - range.start, "seeds"));
    let work = |seed| one(args, plans::draw(scenario, seed, args.what.minutes, args.what.mutant));
    pool::run(range, args.jobs, stop, work, |run| all.take(args, run?))
}

/// A run, and how long it took.
struct Timed {
    trial: Trial,
    wall: Duration,
}

fn one(args: &RunArgs, plan: Plan) -> Result<Timed, Failure> {
    let watch = Watch::start();
    let trial = match &args.html {
        None => Trial::run(args.what.in_fidelity(plan)),
        Some(path) => {
            let (trial, page) = draw::run(args.what.in_fidelity(plan));
            output::file(path, &page)?;
            trial
        }
    };
    Ok(Timed { trial, wall: watch.elapsed() })
}

/// All runs together.
struct Summary {
    runs: u64,
    failed: u64,
    events: u64,
    simulated_us: u64,
    marks: Marks,
    since: Watch,
    progress: Option<Progress>,
    style: Style,
    saved: bool,
    /// How often each invariant failed first.
    invariants: BTreeMap<u8, u64>,
}

/// More failures than this are told in a line each.
const IN_FULL: u64 = 3;

impl Summary {
    fn new(args: &RunArgs) -> Self {
        let _ = args;
        Self {
            runs: 0,
            failed: 0,
            events: 0,
            simulated_us: 0,
            marks: Marks::default(),
            since: Watch::start(),
            progress: None,
            style: Style::for_stream(io::stdout().is_terminal()),
            saved: false,
            invariants: BTreeMap::new(),
        }
    }

    fn take(&mut self, args: &RunArgs, run: Timed) -> Result<(), Failure> {
        let report = &run.trial.report;
        self.runs += 1;
        self.events += report.events;
        self.simulated_us += report.simulated_us;
        self.marks.add(&report.marks);
        if let Some(progress) = &mut self.progress {
            progress.one(report.simulated_us);
        }
        let failed = run.trial.failed();
        if let Some(invariant) = failed {
            self.failed += 1;
            *self.invariants.entry(invariant).or_default() += 1;
        }
        self.save(args, &run.trial)?;
        if args.json {
            return self.above(|| output::json(&Line::of(&run)));
        }
        match failed {
            None => Ok(()),
            Some(_) if self.failed <= IN_FULL => {
                let text = failure_in_full(args, &run.trial, self.style);
                self.above(|| output::write(&text))
            }
            Some(invariant) => {
                let name = invariants::title(invariant);
                let text = format!("{} seed {}: {name}\n", self.style.bad("fails"), report.seed);
                self.above(|| output::write(&text))
            }
        }
    }

    fn save(&mut self, args: &RunArgs, trial: &Trial) -> Result<(), Failure> {
        let Some(path) = &args.save else { return Ok(()) };
        if self.saved || (args.seeds.is_some() && trial.failure().is_none()) {
            return Ok(());
        }
        self.saved = true;
        let comment = trial
            .failure()
            .map(|failure| format!("{} did not hold: {}", invariants::title(failure.invariant), failure.text));
        output::file(path, &plans::to_json(&trial.report.plan, comment.as_deref()))
    }

    fn above<R>(&self, write: impl FnOnce() -> R) -> R {
        match &self.progress {
            Some(progress) => progress.above(write),
            None => write(),
        }
    }

    /// What should have happened more often: in batches of the scenarios as they are.
    fn seldom(&self, args: &RunArgs) -> Vec<Seldom> {
        let what = &args.what;
        match what.scenario {
            Some(scenario) if !what.full && what.mutant.is_none() && what.minutes.is_none() => {
                scenario.seldom(self.runs, &self.marks)
            }
            _ => Vec::new(),
        }
    }

    fn end(&mut self, args: &RunArgs, interrupted: bool, seldom: &[Seldom]) -> Result<(), Failure> {
        if let Some(progress) = self.progress.take() {
            progress.end();
        }
        let wall = self.since.elapsed();
        if args.json {
            return output::json(&Last {
                seeds_run: self.runs,
                failed: self.failed,
                interrupted,
                events: self.events,
                simulated_ms: self.simulated_us / 1_000,
                wall_ms: wall.as_millis() as u64,
                marks: self.marks.iter().collect(),
                seldom: seldom.iter().map(|seldom| (seldom.mark, [seldom.hits, seldom.least])).collect(),
            });
        }
        let simulated = Duration::from_micros(self.simulated_us);
        let speed = simulated.as_secs_f64() / wall.as_secs_f64().max(0.001);
        let runs = if self.runs == 1 { "1 run".to_string() } else { format!("{} runs", self.runs) };
        let outcome = match self.failed {
            0 => self.style.good("everything held"),
            failed => self.style.bad(&format!("{failed} failed")),
        };
        let mut text = if interrupted { "interrupted: ".to_string() } else { String::new() };
        let _ = writeln!(
            text,
            "{runs}, {outcome}: {} simulated in {} ({speed:.0} times as fast), {} events",
            output::span(simulated),
            output::span(wall),
            self.events
        );
        for (invariant, times) in &self.invariants {
            let _ = writeln!(text, "{times:>9}  {}", invariants::title(*invariant));
        }
        if self.marks.iter().next().is_some() {
            let _ = writeln!(text, "{}", self.style.dim("     hits  what happens sometimes"));
        }
        for (name, hits) in self.marks.iter() {
            let _ = writeln!(text, "{hits:>9}  {name}");
        }
        for Seldom { mark, hits, least } in seldom {
            let _ = writeln!(text, "{}: {mark}: {hits} times, at least {least} were due", self.style.bad("too seldom"));
        }
        output::write(&text)
    }
}

/// Everything one needs to look into a failure.
fn failure_in_full(args: &RunArgs, trial: &Trial, style: Style) -> String {
    let report = &trial.report;
    let mut text = String::new();
    for (n, failure) in report.violations.iter().enumerate() {
        let begin = if n == 0 {
            format!("{} {} seed {}: ", style.bad("FAIL"), report.scenario, report.seed)
        } else {
            "also ".to_string()
        };
        let at = Duration::from_micros(failure.at).as_secs_f64();
        let _ = writeln!(text, "{begin}{}", invariants::title(failure.invariant));
        let _ = writeln!(text, "  at {at:.6} s, {}: {}", failure.host, failure.text);
    }
    let _ = writeln!(text, "{}", style.dim(&format!("  the last {} transitions:", report.tail.len())));
    for line in &report.tail {
        let _ = writeln!(text, "  {line}");
    }
    let plan = plans::named(&args.what, report.seed);
    let _ = writeln!(text, "  trace hash {:016x} after {} events", report.hash, report.events);
    let _ = writeln!(text, "  reproduce  flota-sim run {plan}");
    let _ = writeln!(text, "  shrink     flota-sim shrink {plan} --out small.json");
    let _ = writeln!(text, "  look at    flota-sim run {plan} --html run.html");
    let _ = writeln!(text, "  {}", commit::version());
    text
}

/// An invariant in JSON: its number, or `"panic"`.
#[derive(Serialize)]
#[serde(untagged)]
enum Name {
    Invariant(u8),
    Panic(&'static str),
}

#[derive(Serialize)]
struct Line<'a> {
    scenario: &'a str,
    seed: u64,
    ok: bool,
    hash: String,
    events: u64,
    simulated_ms: u64,
    wall_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    invariant: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn of(run: &'a Timed) -> Self {
        let report = &run.trial.report;
        let failure = run.trial.failure();
        Self {
            scenario: &report.scenario,
            seed: report.seed,
            ok: failure.is_none(),
            hash: format!("{:016x}", report.hash),
            events: report.events,
            simulated_ms: report.simulated_us / 1_000,
            wall_ms: run.wall.as_millis() as u64,
            invariant: failure.map(|failure| match failure.invariant {
                PANIC => Name::Panic("panic"),
                number => Name::Invariant(number),
            }),
            text: failure.map(|failure| failure.text.as_str()),
        }
    }
}

#[derive(Serialize)]
struct Last<'a> {
    seeds_run: u64,
    failed: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    events: u64,
    simulated_ms: u64,
    wall_ms: u64,
    marks: BTreeMap<&'a str, u64>,
    /// Hits, and how many there should have been at least.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    seldom: BTreeMap<&'a str, [u64; 2]>,
}
