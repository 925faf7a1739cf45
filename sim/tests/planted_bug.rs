//! The example that finds a planted mistake finds it.

#[allow(dead_code, reason = "its `main` is for people")]
#[path = "../examples/planted_bug.rs"]
mod planted_bug;

use flota_sim::invariants::CHECK;
use flota_sim::sim::search;
use planted_bug::{careful, fleet, forgetful, hunt};

#[test]
fn a_memory_that_dies_with_its_process_is_found_out() {
    let found = hunt(20).expect("a seed");
    let failure = found.run.failure().expect("a failure");
    assert_eq!(failure.invariant, CHECK, "{found}");
    assert!(failure.text.contains("was charged 2 times"), "{found}");
    assert!(found.run.report.plan.faults.len() <= 8 && found.faults > 8, "{found}");
    let story = found.run.story(&failure.text);
    assert_eq!(story.iter().filter(|line| line.contains("the handler is called")).count(), 2, "{found}");
    // The seed and its faults are all it takes, and what they show is the handler's mistake.
    let seed = found.run.report.seed;
    let faults = found.run.report.plan.faults.clone();
    let again = fleet(seed, forgetful()).only_faults(faults.clone()).run();
    assert_eq!(again.report.hash, found.run.report.hash);
    assert!(fleet(seed, careful()).only_faults(faults).run().is_ok());
    // It holds with all the faults of all the seeds until then.
    let found = search(0..=seed, |seed| fleet(seed, careful()));
    assert!(found.is_none(), "{}", found.expect("just found"));
}
