//! Quality: bounds on the figures that the shipped configuration reaches with the real encoder on
//! the evaluation sets of `data/quality`.

use crate::support::program::{bare_command, parsed, run};
use crate::support::skips::skipped;
use crate::support::{root, scratch};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A bound of a figure.
#[derive(Clone, Copy, Debug)]
enum Must {
    Least(f64),
    Most(f64),
    /// The 95 % interval of the paired difference to a bare cosine reaches 0.
    NotBelowCosine,
}
use Must::{Least, Most, NotBelowCosine};

/// Evaluation set, figure and bound; shares are of 1.
///
/// Raise a bound when a change has improved the figure. Never lower a bound to let a change pass.
/// Vectors differ a little between machines, so a bound leaves room for a question or two (one
/// question of `plain-dev` is .004). A remark gives a goal that is not reached yet.
const MUSTS: &[(&str, &str, Must)] = &[
    ("plain-dev", "durable kept", Least(0.99)),
    ("plain-dev", "chatter kept", Most(0.34)),
    ("plain-dev", "durable archived by half the room", Most(0.20)),
    ("plain-dev", "chatter archived by half the room", Least(0.70)),
    ("plain-dev", "bytes a user", Most(7000.0)),
    ("plain-dev", "plain R@1", Least(0.58)),
    ("plain-dev", "plain R@3", Least(0.765)),
    ("plain-dev", "plain R@10", Least(0.93)),
    ("plain-dev", "R@1", NotBelowCosine),
    ("plain-dev", "R@3", NotBelowCosine),
    ("plain-dev", "plain questions with match none", Most(0.01)),
    ("plain-dev", "relevance: AUC of the best", Least(0.60)),
    ("plain-dev", "relevance: calibration error", Most(0.08)),
    ("plain-dev", "relevance: Brier skill", Least(0.20)),
    ("plain-dev", "relevance: answerable with some .5", Least(0.50)),
    ("minds-dev", "durable kept", Least(0.98)),
    ("minds-dev", "chatter kept", Most(0.36)),
    ("minds-dev", "R@1", NotBelowCosine),
    ("minds-dev", "R@3", NotBelowCosine),
    ("minds-dev", "newest first", Least(0.68)),
    ("minds-dev", "traps: with something outdated", Most(1.0 / 37.0)),
    ("minds-dev", "traps: still true, in the first five", Least(0.82)),
    ("minds-dev", "other turns superseding or revising", Most(0.06)),
    ("languages-dev", "durable kept: lang-de", Least(0.96)),
    ("languages-dev", "durable kept: lang-es", Least(0.96)),
    ("languages-dev", "durable kept: lang-fr", Least(0.96)),
    ("languages-dev", "durable kept: lang-pt", Least(0.96)),
    ("languages-dev", "durable kept: lang-zh", Least(0.96)),
    ("languages-dev", "durable kept: lang-ja", Least(0.96)),
    ("languages-dev", "R@1", NotBelowCosine),
    ("languages-dev", "R@3", NotBelowCosine),
    ("languages-dev", "plain R@3", Least(0.24)), // .74 with the multilingual encoder, see below
    ("parallel/en", "R@10", Least(0.99)),
    ("parallel/de", "R@10", Least(0.87)),
    ("parallel/fr", "R@10", Least(0.87)),
    ("parallel/ru", "R@10", Least(0.47)), // 1.00 with the multilingual encoder
    ("parallel/zh", "R@10", Least(0.58)), // 1.00 with the multilingual encoder
    // For each language 20 greetings, thanks and acknowledgements, and 10 statements that resemble
    // them.
    ("small-talk", "chatter kept: talk-de", Most(0.05)),
    ("small-talk", "durable kept: talk-de", Least(1.0)),
    ("small-talk", "chatter kept: talk-en", Most(0.05)),
    ("small-talk", "durable kept: talk-en", Least(1.0)),
    ("small-talk", "chatter kept: talk-es", Most(0.05)),
    ("small-talk", "durable kept: talk-es", Least(1.0)),
    ("small-talk", "chatter kept: talk-fr", Most(0.05)),
    ("small-talk", "durable kept: talk-fr", Least(1.0)),
    ("small-talk", "chatter kept: talk-it", Most(0.05)),
    ("small-talk", "durable kept: talk-it", Least(1.0)),
    ("small-talk", "chatter kept: talk-ja", Most(0.05)),
    ("small-talk", "durable kept: talk-ja", Least(1.0)),
    ("small-talk", "chatter kept: talk-pt", Most(0.05)),
    ("small-talk", "durable kept: talk-pt", Least(1.0)),
    ("small-talk", "chatter kept: talk-zh", Most(0.05)),
    ("small-talk", "durable kept: talk-zh", Least(1.0)),
    ("precision", "precision", Least(0.39)), // measured .407; the goal is .40, half a question more
    ("precision", "recall", Least(0.97)),
];

/// Bounds with the encoders of `deploy/model/setup.sh --multilingual`. Measured: .74 for `languages-dev`,
/// .98 for German, 1.00 for each other set.
const MULTILINGUAL_MUSTS: &[(&str, &str, Must)] = &[
    ("languages-dev", "plain R@3", Least(0.68)),
    ("languages-dev", "durable kept", Least(0.98)),
    ("languages-dev", "chatter kept", Most(0.27)),
    ("parallel/de", "R@10", Least(0.90)),
    ("parallel/fr", "R@10", Least(0.90)),
    ("parallel/ru", "R@10", Least(0.90)),
    ("parallel/zh", "R@10", Least(0.85)),
];

#[test]
fn the_bounds_hold_on_the_evaluation_sets() {
    match std::env::var("KEEPSAKE_TEST_MODEL") {
        Ok(model) => holds(&model, &root().join("tests/data/quality"), MUSTS),
        Err(_) => skipped(
            "quality::the_bounds_hold_on_the_evaluation_sets",
            "the quality of answers is not tested (KEEPSAKE_TEST_MODEL names no model directory)",
        ),
    }
}

#[test]
fn the_bounds_hold_with_the_multilingual_encoder() {
    match std::env::var("KEEPSAKE_TEST_MULTILINGUAL") {
        Ok(model) => holds(&model, &only_the_sets_of(MULTILINGUAL_MUSTS), MULTILINGUAL_MUSTS),
        Err(_) => skipped(
            "quality::the_bounds_hold_with_the_multilingual_encoder",
            "the multilingual encoder is not tested (`make test-all` sets \
             KEEPSAKE_TEST_MULTILINGUAL)",
        ),
    }
}

fn holds(model: &str, sets: &Path, musts: &[(&str, &str, Must)]) {
    let report = measured(model, sets);
    let failed: Vec<String> = musts
        .iter()
        .filter_map(|(set, figure, must)| {
            broken(&report["sets"][*set][*figure], *must)
                .map(|found| format!("{set}, {figure}: {must:?}, but {found}"))
        })
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} figures break their bound:\n{}",
        failed.len(),
        musts.len(),
        failed.join("\n")
    );
}

/// Makes a directory with the sets of these bounds only. To measure the others would take minutes.
fn only_the_sets_of(musts: &[(&str, &str, Must)]) -> PathBuf {
    let from = root().join("tests/data/quality");
    let to = scratch::dir("quality");
    for (set, ..) in musts {
        let (folder, name) = set.split_once('/').unwrap_or(("plain", set));
        std::fs::create_dir_all(to.join(folder)).expect("the scratch directory is writable");
        for end in [".jsonl", "-labels.json", "-kinds.json"] {
            let file = format!("{folder}/{name}{end}");
            if from.join(&file).is_file() {
                std::fs::copy(from.join(&file), to.join(&file))
                    .expect("the scratch directory is writable");
            }
        }
    }
    to
}

fn measured(model: &str, sets: &Path) -> Value {
    let mut command = bare_command(&scratch::dir("quality"));
    command
        .args(["eval", "all", "--json", "--dir"])
        .arg(sets)
        .arg("--set")
        .arg(format!("embedder.model={model}"));
    parsed(&run(&mut command))
}

/// The figure if it is missing or breaks the bound.
fn broken(figure: &Value, must: Must) -> Option<Value> {
    let holds = match must {
        Least(bound) => figure["value"].as_f64().is_some_and(|value| value >= bound),
        Most(bound) => figure["value"].as_f64().is_some_and(|value| value <= bound),
        NotBelowCosine => figure["minus_cosine"]["not_worse"] == true,
    };
    (!holds).then(|| figure.clone())
}
