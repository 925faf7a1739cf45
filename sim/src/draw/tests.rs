use super::*;
use crate::plan::{Fault, Trouble};
use crate::scenario::Scenario;

#[test]
fn a_page_stands_alone_and_says_what_happened() {
    let mut plan = Scenario::Calm.draw(7, 3_000);
    plan.faults.push(Fault { at_ms: 3_100, for_ms: 500, what: Trouble::BrokerPause { broker: 0 } });
    let (trial, page) = run(plan, Fidelity::Fast);
    assert!(page.contains(&format!("{:016x}", trial.report.hash)));
    for word in ["broker 0", "service 0", ">pause<", "Last transitions", "class=\"sent\"", "class=\"ready\""] {
        assert!(page.contains(word), "no {word}");
    }
    assert!(!page.contains("http") && !page.contains("<script") && !page.contains("url("));
    // Every element that is opened is closed.
    for element in ["svg", "table", "pre", "div", "text"] {
        let opened = page.matches(&format!("<{element} ")).count() + page.matches(&format!("<{element}>")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
}

#[test]
fn watching_changes_nothing() {
    let plan = Scenario::Churn.draw(5, 4_000);
    assert_eq!(run(plan.clone(), Fidelity::Fast).0.report.hash, Trial::run(plan).report.hash);
}

#[test]
fn what_a_run_says_cannot_leave_its_place_in_the_page() {
    assert_eq!(text::escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
}
