//! What the shipped configuration with the real model reaches on the project's own evaluation sets: figures that must not get worse.

use crate::support::service::bare_command;
use crate::support::{kafka, root};
use serde_json::Value;
use std::io::Write;

/// What a figure must keep.
#[derive(Clone, Copy, Debug)]
enum Must {
    Least(f64),
    Most(f64),
    /// The 95 % interval of the paired difference to a bare cosine reaches 0.
    NotBelowCosine,
}
use Must::{Least, Most, NotBelowCosine};

/// Set, figure, what it must keep. Shares are of 1. A figure is raised when a change has made it better, never lowered to let one pass.
const MUSTS: &[(&str, &str, Must)] = &[
    ("plain-dev", "durable kept", Least(0.99)),
    ("plain-dev", "chatter kept", Most(0.38)),
    ("plain-dev", "plain R@1", Least(0.31)),
    ("plain-dev", "plain R@3", Least(0.53)),
    ("plain-dev", "plain R@10", Least(0.68)),
    ("plain-dev", "plain questions with match none", Most(0.24)),
    ("plain-dev", "bytes a user", Most(7000.0)),
    ("minds-dev", "durable kept", Least(0.98)),
    ("minds-dev", "chatter kept", Most(0.38)),
    ("minds-dev", "newest first", Least(0.35)),
    ("minds-dev", "traps: with something outdated", Most(1.0 / 37.0)),
    ("minds-dev", "traps: still true, in the first five", Least(0.64)),
    ("minds-dev", "other turns superseding or revising", Most(0.06)),
    ("languages-dev", "durable kept: lang-de", Least(0.96)),
    ("languages-dev", "durable kept: lang-es", Least(0.96)),
    ("languages-dev", "durable kept: lang-fr", Least(0.96)),
    ("languages-dev", "durable kept: lang-pt", Least(0.96)),
    ("languages-dev", "durable kept: lang-zh", Least(0.92)),
    ("languages-dev", "durable kept: lang-ja", Least(0.86)),
    ("languages-dev", "plain R@1", NotBelowCosine),
    ("languages-dev", "plain R@3", NotBelowCosine),
    ("languages-dev", "plain R@3", Least(0.36)),
    ("parallel/en", "R@10", Least(0.99)),
    ("parallel/de", "R@10", Least(0.76)),
    ("parallel/fr", "R@10", Least(0.89)),
    ("parallel/ru", "R@10", Least(0.29)),
    ("parallel/zh", "R@10", Least(0.47)),
    ("precision", "precision", Least(0.08)),
    ("precision", "recall", Least(0.95)),
];

#[test]
fn quality_on_the_own_evaluation_sets_holds() {
    let Some(model) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, the quality of answers is NOT tested"
        );
        return;
    };
    let report = measured(&model.to_string_lossy());
    let failed: Vec<String> = MUSTS
        .iter()
        .filter_map(|(set, figure, must)| {
            broken(&report["sets"][*set][*figure], *must).map(|found| format!("{set}, {figure}: {must:?}, but {found}"))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} figures:\n{}", failed.len(), MUSTS.len(), failed.join("\n"));
}

fn measured(model: &str) -> Value {
    let dir = kafka::scratch().join(format!("quality{}", kafka::number()));
    std::fs::create_dir_all(&dir).expect("the scratch folder is ours");
    let sets = root().join("tests/data/quality").to_string_lossy().into_owned();
    let mut command = bare_command(&dir);
    command.args(["eval", "all", "--dir", &sets, "--json", "--set"]).arg(format!("embedder.model={model}"));
    let output = command.output().expect("the program was built with this test");
    let words = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {words}"))
}

/// The figure as it was found, if it is missing or does not keep to its bound.
fn broken(figure: &Value, must: Must) -> Option<Value> {
    let holds = match must {
        Least(bound) => figure["value"].as_f64().is_some_and(|value| value >= bound),
        Most(bound) => figure["value"].as_f64().is_some_and(|value| value <= bound),
        NotBelowCosine => figure["minus_cosine"]["not_worse"] == true,
    };
    (!holds).then(|| figure.clone())
}
