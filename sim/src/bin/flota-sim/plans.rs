//! Plans: drawn, read, written.

use std::fmt::Write;
use std::path::Path;

use flota_core::mutant::Mutant;
use flota_sim::Plan;
use flota_sim::scenario::Scenario;
use serde::Serialize;

use crate::args::{PlanArgs, What};
use crate::error::{End, Failure, Outcome};
use crate::output;

/// `flota-sim plan`.
pub(crate) fn print(args: &PlanArgs) -> Outcome {
    output::write(&to_json(&draw(args.scenario, args.seed, args.minutes, args.mutant), None))?;
    Ok(End::Holds)
}

/// `flota-sim scenarios`.
pub(crate) fn scenarios() -> Outcome {
    let mut text = String::new();
    for scenario in Scenario::ALL {
        let minutes = scenario.usual_ms() as f64 / 60_000.0;
        let _ = writeln!(text, "{:<10} {} ({minutes:.1} min)", scenario.name(), scenario.what());
    }
    output::write(&text)?;
    Ok(End::Holds)
}

/// The plan of a seed.
pub(crate) fn draw(scenario: Scenario, seed: u64, for_ms: Option<u64>, mutant: Option<Mutant>) -> Plan {
    let mut plan = scenario.draw(seed, for_ms.unwrap_or(scenario.usual_ms()));
    plan.knobs.mutant = mutant.map(|mutant| mutant.name().to_string());
    plan
}

/// A saved plan; with a fault planted if one is named.
pub(crate) fn read(path: &Path, mutant: Option<Mutant>) -> Result<Plan, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::io(format!("cannot read {}", path.display()), &error))?;
    let mut plan: Plan = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("{} is no plan: {error}", path.display()))
            .hint("`flota-sim plan SCENARIO --seed N` prints one")
    })?;
    if let Some(mutant) = mutant {
        plan.knobs.mutant = Some(mutant.name().to_string());
    }
    if let Some(name) = &plan.knobs.mutant
        && (cfg!(not(feature = "mutants")) || name.parse::<Mutant>().is_err())
    {
        let text = format!("{} plants the fault {name}, which this build lacks", path.display());
        return Err(Failure::usage(text));
    }
    Ok(plan)
}

/// A plan as a file: with a sentence on what it found, if there is one.
pub(crate) fn to_json(plan: &Plan, comment: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Saved<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        comment: Option<&'a str>,
        #[serde(flatten)]
        plan: &'a Plan,
    }
    // A plan has numbers, text and lists, and always serializes.
    let mut text = serde_json::to_string_pretty(&Saved { comment, plan }).unwrap_or_default();
    text.push('\n');
    text
}

/// The rest of a command line that names the same plan.
pub(crate) fn named(what: &What, seed: u64) -> String {
    let mut words = match (&what.plan, what.scenario) {
        (Some(path), _) => format!("--plan {}", path.display()),
        (None, scenario) => format!("{} --seed {seed}", scenario.map_or("", Scenario::name)),
    };
    if let Some(ms) = what.minutes {
        let _ = write!(words, " --minutes {}", ms as f64 / 60_000.0);
    }
    if let Some(mutant) = what.mutant {
        let _ = write!(words, " --mutant {mutant}");
    }
    if what.full {
        words.push_str(" --full");
    }
    words
}
