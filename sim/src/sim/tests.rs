use std::collections::BTreeMap;

use super::*;

type Counts = BTreeMap<String, u32>;

fn count(counts: &mut Counts, job: &Job) -> Verdict {
    *counts.entry(job.text().into_owned()).or_default() += 1;
    Verdict::Done
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn every_message_is_handled_once_when_nothing_goes_wrong() {
    let run = Sim::new(1, Counts::new())
        .services(2, |service| service.consume("orders", "billing", count))
        .send("orders", 50, |n| format!("order {n}"))
        .run()
        .expect_ok();
    assert_eq!(run.state.len(), 50);
    assert!(run.state.values().all(|times| *times == 1), "{:?}", run.state);
    let as_it_should = |message: &Message| message.is_stored() && message.calls == 1 && message.done == 1;
    assert!(run.messages.iter().all(as_it_should), "{:?}", run.messages);
    assert!(run.messages.iter().all(|message| message.topic == "orders" && !message.dead));
}

#[test]
fn each_group_has_every_message() {
    let run = Sim::new(2, Counts::new())
        .service(|service| service.consume("orders", "billing", count).consume("orders", "mail", count))
        .service(|service| service.consume("other", "billing", count))
        .send("orders", 20, |n| format!("order {n}"))
        .run()
        .expect_ok();
    assert!(run.state.len() == 20 && run.state.values().all(|times| *times == 2), "{:?}", run.state);
}

#[test]
fn what_a_closure_owns_dies_with_its_process_and_the_state_does_not() {
    let mut in_process = 0;
    let run = Sim::new(3, Vec::<(u32, u32)>::new())
        .service(|service| {
            service.consume("orders", "billing", move |calls: &mut Vec<(u32, u32)>, job| {
                in_process += 1;
                calls.push((job.life(), in_process));
                Verdict::Done
            })
        })
        .send("orders", 60, |n| format!("order {n}"))
        .kill_service(0, seconds(10), seconds(1))
        .kill_service(0, seconds(20), seconds(1))
        .run()
        .expect_ok();
    let mut expected = 0;
    let mut life = 0;
    for (of, number) in &run.state {
        expected = if *of == life { expected + 1 } else { 1 };
        life = *of;
        assert_eq!(*number, expected, "in process {of}");
    }
    assert_eq!(life, 3);
}

#[test]
fn verdicts_have_their_effect() {
    let handler = |counts: &mut Counts, job: &Job| {
        count(counts, job);
        match (job.body(), job.deliveries()) {
            (b"retry", 1) => Verdict::Retry,
            (b"crash", 1) => Verdict::Crash,
            (b"hang", 1) => Verdict::Hang,
            (b"reject", _) => Verdict::Reject,
            _ => Verdict::Done,
        }
    };
    let kinds = ["done", "retry", "crash", "hang", "reject"];
    let run = Sim::new(4, Counts::new())
        .service(|service| service.consume("orders", "billing", handler))
        .send("orders", 5, |n| kinds[n as usize])
        .run()
        .expect_ok();
    let of = |kind: &str| run.messages.iter().find(|message| message.text() == kind).expect("a message");
    assert_eq!((of("done").calls, of("done").dead), (1, false));
    assert_eq!((of("reject").calls, of("reject").dead), (1, true));
    for kind in ["retry", "crash", "hang"] {
        assert_eq!((of(kind).calls, of(kind).done, of(kind).dead), (2, 1, false), "{kind}");
    }
}

#[test]
fn a_seed_is_a_run() {
    let run = |seed| {
        let sim = Sim::new(seed, Counts::new()).services(3, |service| service.consume("orders", "billing", count));
        sim.send("orders", 50, |n| format!("order {n}")).chaos().run().report.hash
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn what_does_not_hold_ends_the_run_and_says_how_it_came_about() {
    let run = Sim::new(6, Counts::new())
        .service(|service| service.consume("orders", "billing", count))
        .send("orders", 20, |n| format!("order {n}"))
        .always(|counts| counts.get("order 7").map_or(Ok(()), |_| Err("order 7 must not be handled".to_string())))
        .run();
    let failure = run.failure().expect("a failure");
    assert_eq!((failure.invariant, failure.text.as_str()), (CHECK, "order 7 must not be handled"));
    let shown = run.to_string();
    assert!(shown.contains("seed 6: your check: order 7 must not be handled"), "{shown}");
    assert!(shown.contains("the handler is called with \"order 7\""), "{shown}");
    assert!(!shown.contains("\"order 1\"") && !shown.contains("\"order 17\""), "{shown}");
}

#[test]
fn checks_and_handlers_may_panic() {
    let sim = || Sim::new(7, Counts::new()).send("orders", 5, |n| format!("order {n}"));
    let run = sim().service(|service| service.consume("orders", "billing", count)).check(|counts, _| {
        assert!(counts.is_empty(), "somebody has handled something");
        Ok(())
    });
    let run = run.run();
    let failure = run.failure().expect("a failure");
    assert_eq!(failure.invariant, CHECK);
    assert!(failure.text.contains("somebody has handled something"), "{}", failure.text);
    let run = sim().service(|service| service.consume("orders", "billing", |_, job| panic!("what is {}", job.text())));
    let run = run.run();
    let failure = run.failure().expect("a failure");
    assert_eq!(failure.invariant, crate::invariants::PANIC);
    assert!(failure.text.contains("what is order"), "{}", failure.text);
}

#[test]
#[should_panic(expected = "no such service")]
fn a_fault_of_nobody_is_a_mistake() {
    let sim = Sim::new(8, ()).service(|service| service.consume("orders", "billing", |_, _| Verdict::Done));
    let _ = sim.kill_service(2, seconds(1), seconds(1)).run();
}

/// Nothing that is stored gets lost, whatever goes wrong: or handlers could not be blamed for anything.
#[test]
fn chaos_loses_nothing() {
    for seed in 0..12 {
        let run = Sim::new(seed, Counts::new())
            .services(3, |service| service.consume("orders", "billing", count))
            .send("orders", 100, |n| format!("order {n}"))
            .chaos()
            .check(|_, messages| {
                let lost = messages.iter().find(|message| message.is_stored() && message.done == 0 && !message.dead);
                lost.map_or(Ok(()), |lost| Err(format!("{} was stored and never handled", lost.text())))
            })
            .run();
        // What else Flota promises is for its own scenarios to judge.
        assert!(run.failure().is_none_or(|failure| failure.invariant != CHECK), "{run}");
    }
}
