//! Holds the figures that the shipped configuration reaches with the real model on the project's own evaluation sets.

use crate::support::service::bare_command;
use crate::support::{kafka, root};
use serde_json::Value;
use std::io::Write;

/// Bound of a figure.
#[derive(Clone, Copy, Debug)]
enum Must {
    Least(f64),
    Most(f64),
    /// The 95 % interval of the paired difference to a bare cosine reaches 0.
    NotBelowCosine,
}
use Must::{Least, Most, NotBelowCosine};

/// Set, figure, what it must keep; shares are of 1. Raise a bound when a change has made the figure better, and never lower one to let a change
/// pass. Vectors differ a little between machines, so a bound leaves room for a question or two (one of `plain-dev` is .004). A remark gives the
/// bound that is wanted and not reached yet.
const MUSTS: &[(&str, &str, Must)] = &[
    ("plain-dev", "durable kept", Least(0.99)),
    ("plain-dev", "chatter kept", Most(0.38)),
    ("plain-dev", "durable archived by half the room", Most(0.20)),
    ("plain-dev", "chatter archived by half the room", Least(0.70)),
    ("plain-dev", "bytes a user", Most(7000.0)),
    ("plain-dev", "plain R@1", Least(0.57)),
    ("plain-dev", "plain R@3", Least(0.755)),
    ("plain-dev", "plain R@10", Least(0.91)),
    ("plain-dev", "R@1", NotBelowCosine),
    ("plain-dev", "R@3", NotBelowCosine),
    ("plain-dev", "plain questions with match none", Most(0.01)),
    ("plain-dev", "relevance: AUC of the best", Least(0.60)),
    ("plain-dev", "relevance: calibration error", Most(0.08)),
    ("plain-dev", "relevance: Brier skill", Least(0.20)),
    ("plain-dev", "relevance: answerable with some .5", Least(0.45)),
    ("minds-dev", "durable kept", Least(0.98)),
    ("minds-dev", "chatter kept", Most(0.44)),
    ("minds-dev", "R@1", NotBelowCosine),
    ("minds-dev", "R@3", NotBelowCosine),
    ("minds-dev", "newest first", Least(0.67)),
    ("minds-dev", "traps: with something outdated", Most(1.0 / 37.0)),
    ("minds-dev", "traps: still true, in the first five", Least(0.80)),
    ("minds-dev", "other turns superseding or revising", Most(0.06)),
    ("languages-dev", "durable kept: lang-de", Least(0.96)),
    ("languages-dev", "durable kept: lang-es", Least(0.96)),
    ("languages-dev", "durable kept: lang-fr", Least(0.96)),
    ("languages-dev", "durable kept: lang-pt", Least(0.96)),
    ("languages-dev", "durable kept: lang-zh", Least(0.96)),
    ("languages-dev", "durable kept: lang-ja", Least(0.96)),
    ("languages-dev", "R@1", NotBelowCosine),
    ("languages-dev", "R@3", NotBelowCosine),
    ("languages-dev", "plain R@3", Least(0.26)), // wanted: .65, with an encoder of many languages
    ("parallel/en", "R@10", Least(0.99)),
    ("parallel/de", "R@10", Least(0.87)),
    ("parallel/fr", "R@10", Least(0.87)),
    ("parallel/ru", "R@10", Least(0.47)),    // wanted: .90, with an encoder of many languages
    ("parallel/zh", "R@10", Least(0.58)),    // wanted: .85, with an encoder of many languages
    ("precision", "precision", Least(0.36)), // wanted: .40
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
