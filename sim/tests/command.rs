//! The command as people and programs call it.

#![cfg(feature = "cli")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn flota_sim(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flota-sim"));
    command.args(words.split_whitespace()).env("NO_COLOR", "1").output().expect("the command runs")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

/// A file of this test's own.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn seeds_have_a_line_each_in_order_and_a_last_one() {
    let output = flota_sim("run calm --seeds 3..7 --minutes 0.1 --json");
    let lines = lines(&output);
    assert_eq!(code(&output), 0, "{lines:?}");
    let seeds: Vec<u64> = lines.iter().filter_map(|line| line["seed"].as_u64()).collect();
    assert_eq!(seeds, [3, 4, 5, 6]);
    let first = &lines[0];
    assert_eq!(first["scenario"], "calm");
    assert_eq!(first["ok"], true);
    assert_eq!(first["hash"].as_str().map(str::len), Some(16));
    assert!(first["events"].as_u64() > Some(0) && first["simulated_ms"].as_u64() > Some(6_000), "{first}");
    assert!(first["wall_ms"].is_u64() && first.get("invariant").is_none(), "{first}");
    let last = &lines[4];
    assert_eq!((last["seeds_run"].as_u64(), last["failed"].as_u64()), (Some(4), Some(0)));
    assert!(last["marks"].is_object());
}

#[test]
fn the_same_seed_is_the_same_run() {
    let hash = || lines(&flota_sim("run churn --seed 2 --minutes 0.1 --json"))[0]["hash"].clone();
    assert_eq!(hash(), hash());
}

#[test]
fn the_driver_runs_as_well() {
    let output = flota_sim("run calm --seed 1 --minutes 0.1 --full --json");
    assert_eq!((code(&output), lines(&output)[0]["ok"].as_bool()), (0, Some(true)));
    assert_ne!(lines(&output)[0]["hash"], lines(&flota_sim("run calm --seed 1 --minutes 0.1 --json"))[0]["hash"]);
}

#[test]
fn a_saved_plan_is_the_same_run() {
    let path = file("plan.json");
    let path = path.to_str().expect("a path in UTF-8");
    let drawn = flota_sim(&format!("run crash --seed 5 --minutes 0.1 --json --save {path}"));
    let read = flota_sim(&format!("run --plan {path} --json"));
    assert_eq!(lines(&drawn)[0]["hash"], lines(&read)[0]["hash"]);
    let printed = flota_sim("plan crash --seed 5 --minutes 0.1");
    assert_eq!(code(&printed), 0);
    let [printed, saved]: [Value; 2] = [
        serde_json::from_slice(&printed.stdout).expect("JSON"),
        serde_json::from_slice(&std::fs::read(path).expect("the saved plan")).expect("JSON"),
    ];
    assert_eq!(printed["work"], saved["work"]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_failure_says_how_to_reproduce_it_and_that_does() {
    let output = flota_sim("run calm --seeds 0..2 --minutes 0.1 --mutant ack-at-delivery");
    assert_eq!(code(&output), 1);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("FAIL calm seed 0: invariant 21"), "{text}");
    let after = |word: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(word)).unwrap_or_else(|| panic!("{text}"));
        line.trim().to_string()
    };
    let hash = after("trace hash")[..16].to_string();
    let command = after("reproduce");
    let again = flota_sim(&format!("{} --json", command.strip_prefix("flota-sim").expect("the command's name")));
    let again = &lines(&again)[0];
    assert_eq!((again["hash"].as_str(), again["invariant"].as_u64()), (Some(hash.as_str()), Some(21)));

    let small = file("small.json");
    let small = small.to_str().expect("a path in UTF-8");
    let shrink = after("shrink").replace("small.json", small);
    assert_eq!(code(&flota_sim(shrink.strip_prefix("flota-sim").expect("the command's name"))), 1);
    let plan: Value = serde_json::from_slice(&std::fs::read(small).expect("the small plan")).expect("JSON");
    assert_eq!(plan["work"].as_array().map(Vec::len), Some(1), "{plan}");
    assert!(plan["comment"].as_str().is_some_and(|comment| comment.contains("invariant 21")));
    let again = flota_sim(&format!("run --plan {small} --json"));
    assert_eq!((code(&again), lines(&again)[0]["invariant"].as_u64()), (1, Some(21)));
}

#[cfg(feature = "mutants")]
#[test]
fn a_planted_fault_is_hunted_until_it_is_noticed() {
    let output = flota_sim("mutants --only ack-at-delivery --seeds 2 --json");
    assert_eq!(code(&output), 0);
    let row = &lines(&output)[0];
    assert_eq!((row["caught"].as_bool(), row["invariant"].as_u64()), (Some(true), Some(21)), "{row}");
}

#[test]
fn a_run_is_drawn_as_a_page() {
    let path = file("run.html");
    let output = flota_sim(&format!("run calm --seed 1 --minutes 0.1 --html {}", path.display()));
    assert_eq!(code(&output), 0);
    let page = std::fs::read_to_string(path).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.contains("broker 0"));
}

#[test]
fn wrong_usage_says_so() {
    for words in [
        "",
        "run",
        "run calm",
        "run nothing --seed 1",
        "run calm --seeds 5..5",
        "run calm --seed 1 --seeds 0..3",
        "run calm --seed 1 --mutant nothing",
        "run calm --seed 1 --plan x.json",
        "shrink calm",
    ] {
        let output = flota_sim(words);
        assert_eq!(code(&output), 2, "{words}");
        assert!(!output.stderr.is_empty(), "{words}");
    }
    assert_eq!(code(&flota_sim("run --plan /nowhere/plan.json")), 1);
}
