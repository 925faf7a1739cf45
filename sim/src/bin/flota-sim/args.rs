//! The command line, as it is declared.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use flota_core::mutant::Mutant;
use flota_sim::plan::{Fidelity, Plan};
use flota_sim::scenario::Scenario;

/// A deterministic simulator for Flota: the same seed is the same run.
#[derive(Debug, Parser)]
#[command(name = "flota-sim", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit codes: 0 everything held, 1 something did not, 2 wrong usage, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Every subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run seeds of a scenario, or a saved plan
    Run(RunArgs),
    /// Print the plan of a seed as JSON
    Plan(PlanArgs),
    /// Make a failing plan small
    Shrink(ShrinkArgs),
    /// Plant each fault there is and see that the invariant it breaks is noticed
    Mutants(MutantArgs),
    /// List the scenarios
    Scenarios,
}

/// What to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct What {
    /// A scenario: see `flota-sim scenarios`
    #[arg(value_parser = scenario, required_unless_present = "plan")]
    pub(crate) scenario: Option<Scenario>,
    /// A saved plan instead of a scenario
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "minutes"])]
    pub(crate) plan: Option<PathBuf>,
    /// Minutes of work and faults, simulated; each scenario has its usual ones
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub(crate) minutes: Option<u64>,
    /// Plant a fault: see `flota-sim mutants`
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    pub(crate) mutant: Option<Mutant>,
    /// Run the real driver and client, not the engine alone
    #[arg(long)]
    pub(crate) full: bool,
}

impl What {
    /// The plan in the fidelity that is wanted; a saved plan may want full by itself.
    pub(crate) fn in_fidelity(&self, plan: Plan) -> Plan {
        if self.full { Plan { fidelity: Fidelity::Full, ..plan } } else { plan }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "With --json there is a line per seed, in the order of the seeds, and a last one that sums up.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) what: What,
    /// One seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "plan"], required_unless_present_any = ["seeds", "plan"])]
    pub(crate) seed: Option<u64>,
    /// Seeds from A up to, but without, B
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "plan")]
    pub(crate) seeds: Option<Range<u64>>,
    /// Write a line of JSON per seed, and a last one
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the run as a page; for one seed
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub(crate) html: Option<PathBuf>,
    /// Save the plan; of several seeds, that of the first that fails
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// How many runs at a time; as many as there are cores unless given
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A scenario: see `flota-sim scenarios`
    #[arg(value_parser = scenario)]
    pub(crate) scenario: Scenario,
    /// Its seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: u64,
    /// Minutes of work and faults, simulated
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    pub(crate) minutes: Option<u64>,
    /// Plant a fault
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    pub(crate) mutant: Option<Mutant>,
}

#[derive(Debug, Args)]
#[command(after_help = "An interrupt ends it early: what was reached by then is saved.")]
pub(crate) struct ShrinkArgs {
    #[command(flatten)]
    pub(crate) what: What,
    /// The seed that fails
    #[arg(long, value_name = "N", conflicts_with = "plan", required_unless_present = "plan")]
    pub(crate) seed: Option<u64>,
    /// Where to save the small plan; standard output unless given
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// A sentence to save with it: what it found
    #[arg(long, value_name = "TEXT")]
    pub(crate) comment: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each fault is caught when the first of its invariants does not hold; a panic alone does not count. Runs are of half a
minute: `flota-sim run SCENARIO --seed N --minutes 0.5 --mutant NAME` is the run that the table names.")]
pub(crate) struct MutantArgs {
    /// Seeds of each scenario that are tried until the fault is noticed
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) seeds: u64,
    /// Only this one; may be repeated
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    pub(crate) only: Vec<Mutant>,
    /// Write a line of JSON per fault
    #[arg(long)]
    pub(crate) json: bool,
    /// How many at a time; as many as there are cores unless given
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::named(name).ok_or_else(|| {
        let names: Vec<&str> = Scenario::ALL.iter().map(|scenario| scenario.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn mutant(name: &str) -> Result<Mutant, String> {
    if cfg!(not(feature = "mutants")) {
        return Err("this build has no planted faults: build it with the feature `mutants`".to_string());
    }
    name.parse().map_err(|error: flota_core::mutant::NoSuchMutant| error.to_string())
}

/// `3..17`: without its end.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || "expected two numbers, like 0..200; the second is not run itself".to_string();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let range = from.parse().map_err(|_| wrong())?..to.parse().map_err(|_| wrong())?;
    if range.is_empty() { Err("that is no seed at all".to_string()) } else { Ok(range) }
}

/// Minutes, with decimals; in milliseconds.
fn minutes(text: &str) -> Result<u64, String> {
    let minutes: f64 = text.parse().map_err(|_| "expected a number of minutes".to_string())?;
    if (0.05..=10_000.0).contains(&minutes) {
        return Ok((minutes * 60_000.0).round() as u64);
    }
    Err("expected something from 0.05 to 10000 minutes".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seeds_are_half_open_and_not_empty() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        assert!(seeds("7..7").is_err() && seeds("7").is_err() && seeds("a..b").is_err());
    }

    #[test]
    fn minutes_have_decimals() {
        assert_eq!(minutes("0.5"), Ok(30_000));
        assert!(minutes("0").is_err() && minutes("-1").is_err() && minutes("NaN").is_err());
    }
}
