//! The hash of a run is that of what happened: the same plan gives the same, and a constant of the engine that changes by
//! a thousandth gives another.

use flota_sim::scenario::Scenario;
use flota_sim::{Plan, World};

/// Short, since these are many; the services consume and nothing else goes wrong than what a seed draws.
fn plan(scenario: Scenario, seed: u64) -> Plan {
    scenario.draw(seed, 2_000)
}

fn hash(plan: &Plan) -> u64 {
    World::new(plan.clone()).run().hash
}

/// How many seeds' hashes a change of their plans changes.
fn changed(seeds: u64, change: impl Fn(&mut Plan)) -> u64 {
    let differs = |seed: &u64| {
        let scenario = if seed.is_multiple_of(2) { Scenario::Crash } else { Scenario::Churn };
        let before = plan(scenario, *seed);
        let mut after = before.clone();
        change(&mut after);
        hash(&before) != hash(&after)
    };
    (0..seeds).filter(differs).count() as u64
}

#[test]
fn the_same_plan_has_the_same_hash() {
    assert_eq!(changed(4, |_| {}), 0);
}

#[test]
fn an_answer_that_is_awaited_a_millisecond_longer_shows() {
    assert!(changed(10, |plan| plan.knobs.response_ms += 1) >= 9);
}

#[test]
fn a_survey_that_comes_a_millisecond_later_shows() {
    assert!(changed(10, |plan| plan.knobs.claim_period_ms += 1) >= 9);
}
