//! Estimates the probability that a later statement changes an earlier one, by a cross-encoder: one
//! trained for it, or one with an entailment head
//! ([natural language inference](https://arxiv.org/abs/1508.05326)).
//!
//! The probability is the sum of the softmax of the model's logits at the labels "replaces" and
//! "ends", or else at "contradiction".

use super::onnx::{CrossEncoder, CrossEncoderDirectory, CrossEncoderOptions, unusable};
use crate::onnx::{self, cannot};
use domain::fault::Result;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Judges pairs of statements, the earlier one first.
pub trait ContradictionJudge: Send {
    /// Returns the probability of a contradiction for each pair, in their order.
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>>;

    /// True for a judge of changes: it reads who said a statement and when, and the order matters.
    fn knows_changes(&self) -> bool {
        false
    }
}

/// A loaded model that has read a pair of maximum length. Opens a session for each thread.
pub struct JudgeModel {
    directory: CrossEncoderDirectory,
    labels: Labels,
}

impl JudgeModel {
    /// Opens a model. The places of the labels differ between models and are read from
    /// `config.json`.
    pub fn open(options: &CrossEncoderOptions) -> Result<JudgeModel> {
        let labels = labels(options).map_err(|error| unusable(options.option, error))?;
        let directory = CrossEncoderDirectory::open(options, labels.count)?;
        Ok(JudgeModel { directory, labels })
    }

    pub fn session(&self) -> Result<Box<dyn ContradictionJudge>> {
        Ok(Box::new(JudgeSession { model: self.directory.session()?, labels: self.labels.clone() }))
    }
}

/// The fields of a model's `config.json` that a judge needs.
#[derive(Deserialize)]
struct ModelConfig {
    #[serde(default)]
    id2label: BTreeMap<String, String>,
}

/// The number of labels, and the places of those that say that the earlier statement no longer holds.
#[derive(Clone)]
struct Labels {
    count: usize,
    changes: Vec<usize>,
    knows_changes: bool,
}

const CHANGES: [&str; 2] = ["replaces", "ends"];

fn labels(options: &CrossEncoderOptions) -> onnx::Result<Labels> {
    let file = options.model.join("config.json");
    let config: ModelConfig = serde_json::from_slice(&onnx::read(&file)?)
        .map_err(|error| cannot("read", &file, error))?;
    let count = config.id2label.len();
    let place = |name: &str| {
        let mut named =
            config.id2label.iter().filter(|(_, label)| label.eq_ignore_ascii_case(name));
        named.find_map(|(id, _)| id.parse().ok().filter(|place: &usize| *place < count))
    };
    let changes: Vec<usize> = CHANGES.into_iter().filter_map(place).collect();
    if changes.len() == CHANGES.len() {
        return Ok(Labels { count, changes, knows_changes: true });
    }
    match place("contradiction") {
        Some(place) => Ok(Labels { count, changes: vec![place], knows_changes: false }),
        None => {
            let labels: Vec<&str> = config.id2label.values().map(String::as_str).collect();
            let why = format!(
                "its id2label has neither {CHANGES:?} nor \"contradiction\", only {labels:?}"
            );
            Err(cannot("use", &file, why))
        }
    }
}

/// One session. Owned by one thread.
struct JudgeSession {
    model: CrossEncoder,
    labels: Labels,
}

impl ContradictionJudge for JudgeSession {
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        // One pair at a time: weights in 8 bits are scaled by the batch, so that a neighbour would
        // change the probability.
        let rows = pairs.iter().map(|pair| self.model.read(std::slice::from_ref(pair)));
        rows.map(|row| Ok(softmax_at(&row?, &self.labels.changes))).collect()
    }

    fn knows_changes(&self) -> bool {
        self.labels.knows_changes
    }
}

/// Returns the sum of some values of the softmax. The greatest logit is subtracted first, so that no
/// exponential overflows.
fn softmax_at(row: &[f32], places: &[usize]) -> f32 {
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let power = |logit: f32| (logit - greatest).exp();
    let sum: f32 = row.iter().copied().map(power).sum();
    places.iter().map(|place| power(row[*place])).sum::<f32>() / sum
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use std::fs;
    use std::path::Path;

    const PAIRS: [(&str, &str); 4] = [
        ("I live in Lisbon.", "I moved to Porto."),
        ("I live in Lisbon.", "I live in Lisbon, by the river."),
        ("I drink tea.", "I moved to Porto."),
        ("", ""),
    ];

    /// The small model of the tests takes two locations for a contradiction, and one location twice
    /// for an entailment.
    #[test]
    fn a_contradiction_is_found_at_any_place_of_the_label() {
        for name in ["contradiction-first", "contradiction-last"] {
            let Some(options) = samples::small(&format!("conflict/{name}"), 64) else { return };
            let mut model = JudgeModel::open(&options)
                .expect("the small model opens")
                .session()
                .expect("a session opens");
            let found = model.contradiction(&PAIRS).expect("they are read");
            assert!(
                found[0] > 0.9 && found[1..].iter().all(|probability| *probability < 0.1),
                "{name}: {found:?}"
            );
            assert!(model.contradiction(&[]).expect("nothing to read").is_empty());
        }
    }

    #[test]
    fn the_softmax_is_stable_for_large_logits() {
        assert_eq!(softmax_at(&[0.0, 0.0], &[0]), 0.5);
        assert_eq!(softmax_at(&[1_000.0, 0.0], &[0]), 1.0);
        assert!((softmax_at(&[1.0, 2.0, 3.0], &[2]) - 0.665_241).abs() < 1e-5);
        assert!((softmax_at(&[1.0, 2.0, 3.0], &[1, 2]) - 0.909_969).abs() < 1e-5);
    }

    #[test]
    fn a_model_without_a_contradiction_label_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        check_refused(folder.path(), None, "cannot read");
        for (config, expected) in [
            (
                r#"{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}"#,
                r#"nor "contradiction", only ["LABEL_0", "LABEL_1"]"#,
            ),
            (r#"{"id2label": {"7": "contradiction"}}"#, "id2label"),
            (r#"{"id2label": {"0": "neutral", "1": "CONTRADICTION"}}"#, "tokenizer.json"),
        ] {
            check_refused(folder.path(), Some(config), expected);
        }
    }

    fn check_refused(folder: &Path, config: Option<&str>, expected: &str) {
        if let Some(config) = config {
            fs::write(folder.join("config.json"), config).expect("the folder is ours");
        }
        let options = CrossEncoderOptions {
            option: "conflict.model",
            model: folder.to_owned(),
            library: None,
            tokens_max: 16,
        };
        let text = JudgeModel::open(&options).err().expect("must not open").to_string();
        for part in [expected, "conflict.model", "config.json", "model-unusable"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_model_with_another_number_of_labels_is_refused() {
        let Some(options) = samples::small("conflict/contradiction-first", 64) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["model.onnx", "tokenizer.json"] {
            fs::copy(options.model.join(file), folder.path().join(file)).expect("copies it");
        }
        fs::write(
            folder.path().join("config.json"),
            r#"{"id2label": {"0": "contradiction", "1": "entailment"}}"#,
        )
        .expect("ours");
        let model = Path::new(folder.path()).to_owned();
        let text = JudgeModel::open(&CrossEncoderOptions { model, ..options })
            .err()
            .expect("must not open")
            .to_string();
        assert!(text.contains("not [2, 2] but [2, 3]"), "{text}");
    }
}
