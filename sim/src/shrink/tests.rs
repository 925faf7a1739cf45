use super::*;
use crate::plan::Trouble;
use crate::scenario::Scenario;

/// A bug that needs a crash of broker 1 and, later, a pause of a service; and a message with a key.
fn two_faults_in_order(plan: &Plan) -> Option<u8> {
    let crash = plan
        .faults
        .iter()
        .position(|fault| matches!(fault.what, Trouble::BrokerCrash { .. }) && fault.for_ms >= 100)?;
    plan.faults[crash..].iter().find(|fault| matches!(fault.what, Trouble::ServicePause { .. }))?;
    plan.work.iter().find(|work| work.key.is_some())?;
    (!plan.brokers.is_empty() && !plan.services.is_empty()).then_some(9)
}

#[test]
fn what_does_not_matter_goes_and_what_does_stays() {
    let mut shrunk = 0;
    for seed in 0..2_000 {
        let plan = Scenario::Swarm.draw(seed, 60_000);
        if plan.items() < 200 || two_faults_in_order(&plan).is_none() {
            continue;
        }
        let small = shrink(plan.clone(), two_faults_in_order);
        assert_eq!(two_faults_in_order(&small), Some(9));
        let sizes = [small.brokers.len(), small.services.len(), small.work.len(), small.faults.len()];
        assert_eq!(sizes, [1, 1, 1, 2], "seed {seed}");
        assert!(small.faults[0].for_ms < 110 && small.faults[1].for_ms == 1, "{:?}", small.faults);
        assert!(!small.shuffled && small.network.jitter_us == 0 && small.network.cut == 0);
        shrunk += 1;
        if shrunk == 10 {
            return;
        }
    }
    panic!("too few plans that fail: {shrunk}");
}

#[test]
fn another_failure_is_not_the_same_failure() {
    // With its faults gone the plan fails, too, but differently.
    let fails = |plan: &Plan| if plan.faults.len() > 3 { Some(1) } else { Some(2) };
    let plan = (0..).map(|seed| Scenario::Swarm.draw(seed, 60_000)).find(|plan| plan.faults.len() > 10);
    let small = shrink(plan.expect("a plan with faults"), fails);
    assert_eq!(small.faults.len(), 4);
}

#[test]
fn a_plan_that_holds_is_left_alone() {
    let plan = Scenario::Calm.draw(3, 5_000);
    assert_eq!(shrink(plan.clone(), |_| None), plan);
}

#[test]
fn hosts_move_up_together_with_what_names_them() {
    let plan = (0..).map(|seed| Scenario::Partition.draw(seed, 60_000)).find(|plan| plan.brokers.len() == 5);
    let plan = plan.expect("a plan with five brokers");
    let last = plan.brokers[4].clone();
    // Only the last broker matters, and a fault that names it.
    let fails = |plan: &Plan| {
        let at = plan.brokers.iter().position(|broker| broker.service_us == last.service_us)? as u32;
        plan.faults
            .iter()
            .any(|fault| matches!(&fault.what, Trouble::Partition { brokers, .. } if brokers.contains(&at)))
            .then_some(5)
    };
    assert_eq!(fails(&plan), Some(5), "choose another seed");
    let small = shrink(plan, fails);
    assert_eq!((small.brokers.len(), small.services.len(), small.faults.len()), (1, 1, 1));
}

#[test]
fn a_message_is_timed_when_many_were_needed_to_be_on_time_by_chance() {
    // It takes a message on its way at the crash; and, unless they are timed, a dozen others.
    let fails = |plan: &Plan| {
        let crash = plan.faults.iter().find(|fault| matches!(fault.what, Trouble::BrokerCrash { .. }))?;
        let window = crash.at_ms.saturating_sub(45)..crash.at_ms.saturating_sub(20);
        let on_its_way = plan.work.iter().any(|work| window.contains(&work.at_ms));
        let together = plan.work.iter().all(|work| work.at_ms == plan.work[0].at_ms);
        (on_its_way && (together || plan.work.len() > 12)).then_some(3)
    };
    let plan = (0..).map(|seed| Scenario::Churn.draw(seed, 60_000)).find(|plan| fails(plan).is_some());
    let small = shrink(plan.expect("a plan that fails"), fails);
    assert_eq!((small.work.len(), small.faults.len()), (1, 1), "{small:?}");
}
