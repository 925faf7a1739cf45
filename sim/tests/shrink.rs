//! Planted faults that first show in plans of hundreds of items, made small.

#![cfg(feature = "mutants")]

use flota_core::mutant::Mutant;
use flota_sim::plan::{Fault, Trouble, Way};
use flota_sim::scenario::Scenario;
use flota_sim::shrink::shrink;
use flota_sim::{Plan, Trial};

/// The first plan that fails, and what is left of it.
fn first_failure(mutant: Mutant, plans: impl Iterator<Item = Plan>) -> (Plan, Plan) {
    let target = mutant.invariants()[0];
    let planted = plans.map(|mut plan| {
        plan.knobs.mutant = Some(mutant.name().to_string());
        plan
    });
    let fails = |plan: &Plan| Trial::run(plan.clone()).failed();
    let plan = planted.filter(|plan| plan.items() >= 200).find(|plan| fails(plan) == Some(target));
    let plan = plan.unwrap_or_else(|| panic!("{mutant} was not noticed"));
    let mut runs = 0;
    let small = shrink(plan.clone(), |plan| {
        runs += 1;
        fails(plan)
    });
    println!("{mutant}: {} items, after {runs} runs {}", plan.items(), small.items());
    assert_eq!(fails(&small), Some(target), "the small plan fails in the same way");
    // What fails is what was planted, not something else.
    let mut sound = small.clone();
    sound.knobs.mutant = None;
    assert_eq!(fails(&sound), None, "{mutant}: the small plan holds without the fault");
    (plan, small)
}

#[test]
fn a_message_is_enough_to_see_it_acknowledged_too_early() {
    let (_, small) = first_failure(Mutant::AckAtDelivery, (0..20).map(|seed| Scenario::Swarm.draw(seed, 30_000)));
    assert!(small.items() <= 10, "{small:?}");
    assert!(small.faults.is_empty());
}

#[test]
fn a_fault_and_what_it_hits_are_enough() {
    let (_, small) = first_failure(Mutant::DownIgnored, (0..20).map(|seed| Scenario::Churn.draw(seed, 30_000)));
    assert!(small.items() <= 10, "{small:?}");
    assert_eq!(small.faults.len(), 1, "{:?}", small.faults);
}

/// A send is stored on one broker, and its answer does not come through; the other begins to refuse writes before anybody
/// notices. Then nobody is left until the send gives up.
#[test]
fn two_faults_in_order_are_found_and_kept() {
    let plans = (0..200).map(|seed| Scenario::Partition.draw(seed, 30_000)).filter(|plan| plan.brokers.len() == 2);
    let plans = plans.map(|mut plan| {
        plan.knobs.send_init_ms = 5_000;
        plan.knobs.response_ms = 1_500;
        let services: Vec<u32> = (0..plan.services.len() as u32).collect();
        for (at_ms, cut) in [(5_000, 0), (15_000, 1), (25_000, 0)] {
            let what = Trouble::Partition { services: services.clone(), brokers: vec![cut], way: Way::ToServices };
            plan.faults.push(Fault { at_ms, for_ms: 8_000, what });
            let what = Trouble::BrokerMisconf { broker: 1 - cut };
            plan.faults.push(Fault { at_ms: at_ms + 500, for_ms: 8_000, what });
        }
        plan.faults.sort_by_key(|fault| fault.at_ms);
        plan
    });
    let (_, small) = first_failure(Mutant::RefusalHidesDoubt, plans);
    assert!(small.items() <= 10, "{small:?}");
    let [first, second] = &small.faults[..] else { panic!("{:?}", small.faults) };
    assert!(matches!(first.what, Trouble::Partition { .. }), "{first:?}");
    assert!(matches!(second.what, Trouble::BrokerMisconf { .. }), "{second:?}");
    assert!(first.at_ms < second.at_ms, "{:?}", small.faults);
    for left_out in 0..2 {
        let mut one = small.clone();
        one.faults.remove(left_out);
        assert_eq!(Trial::run(one).failed(), None, "both faults are needed");
    }
}
