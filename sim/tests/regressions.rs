//! Plans that once found something: all of them hold now.

use std::fs;
use std::path::{Path, PathBuf};

use flota_sim::{Plan, Trial};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let entries = fs::read_dir(&folder).expect("the folder of saved plans");
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    files.sort();
    files
}

#[test]
fn every_saved_plan_holds() {
    let files = files();
    assert!(!files.is_empty(), "no plan is saved");
    let mut failed = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a readable file");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(json["comment"].as_str().is_some_and(|comment| !comment.is_empty()), "{}: no comment", path.display());
        let plan: Plan = serde_json::from_value(json).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(plan.knobs.mutant, None, "{}: a fault is planted", path.display());
        let trial = Trial::run(plan.clone());
        if let Some(failure) = trial.failure() {
            failed.push(format!("{}: invariant {}: {}", path.display(), failure.invariant, failure.text));
        }
        assert_eq!(Trial::run(plan).report.hash, trial.report.hash, "{}: not the same run twice", path.display());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
