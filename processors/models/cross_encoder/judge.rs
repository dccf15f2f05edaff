//! The judge: a cross-encoder that was trained for memories (`deploy/judge`). Estimates the
//! probability that a later statement changes an earlier one, and that a sentence is a wish for
//! every later answer.
//!
//! The first is the sum of a softmax over [`RELATIONS`] at "replaces" and "ends", the second a
//! softmax over [`WISHES`] at "standing".

use super::onnx::{CrossEncoder, CrossEncoderDirectory, CrossEncoderOptions, unusable};
use crate::onnx::{self, cannot};
use domain::fault::Result;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Judges statements.
pub trait Judge: Send {
    /// Returns the probability of a change for each pair, in their order. The earlier statement
    /// comes first, and both with speaker and day.
    fn changes(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>>;

    /// Returns the probability that a sentence is a wish for every later answer. `None` if the
    /// model cannot tell.
    fn standing(&mut self, sentence: &str) -> Result<Option<f32>>;
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

    pub fn session(&self) -> Result<Box<dyn Judge>> {
        Ok(Box::new(JudgeSession { model: self.directory.session()?, labels: self.labels.clone() }))
    }
}

/// The fields of a model's `config.json` that a judge needs.
#[derive(Deserialize)]
struct ModelConfig {
    #[serde(default)]
    id2label: BTreeMap<String, String>,
}

const RELATIONS: [&str; 5] = ["replaces", "ends", "adds", "same", "unrelated"];
/// The first of [`RELATIONS`], after which the earlier statement no longer holds.
const CHANGES: usize = 2;
const WISHES: [&str; 4] = ["standing", "one_off", "quoted", "none"];

/// The number of labels, and the places of [`RELATIONS`] and, if the model has them, of [`WISHES`].
#[derive(Clone)]
struct Labels {
    count: usize,
    relations: Vec<usize>,
    wishes: Option<Vec<usize>>,
}

fn labels(options: &CrossEncoderOptions) -> onnx::Result<Labels> {
    let file = options.model.join("config.json");
    let config: ModelConfig = serde_json::from_slice(&onnx::read(&file)?)
        .map_err(|error| cannot("read", &file, error))?;
    let count = config.id2label.len();
    let place = |name: &&str| {
        let mut named =
            config.id2label.iter().filter(|(_, label)| label.eq_ignore_ascii_case(name));
        named.find_map(|(id, _)| id.parse().ok().filter(|place: &usize| *place < count))
    };
    match RELATIONS.iter().map(place).collect() {
        Some(relations) => {
            Ok(Labels { count, relations, wishes: WISHES.iter().map(place).collect() })
        }
        None => {
            let labels: Vec<&str> = config.id2label.values().map(String::as_str).collect();
            let why = format!("its id2label has not all of {RELATIONS:?}, but {labels:?}");
            Err(cannot("use", &file, why))
        }
    }
}

/// One session. Owned by one thread.
struct JudgeSession {
    model: CrossEncoder,
    labels: Labels,
}

impl Judge for JudgeSession {
    fn changes(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        // One pair at a time: weights in 8 bits are scaled by the batch, so that a neighbour would
        // change the probability.
        let rows = pairs.iter().map(|pair| self.model.read(std::slice::from_ref(pair)));
        rows.map(|row| Ok(softmax(&row?, &self.labels.relations)[..CHANGES].iter().sum())).collect()
    }

    fn standing(&mut self, sentence: &str) -> Result<Option<f32>> {
        let Some(places) = &self.labels.wishes else { return Ok(None) };
        Ok(softmax(&self.model.read_alone(sentence)?, places).first().copied())
    }
}

/// Returns the softmax over some places. The greatest logit is subtracted first, so that no
/// exponential overflows.
fn softmax(row: &[f32], places: &[usize]) -> Vec<f32> {
    let logits = || places.iter().map(|place| row[*place]);
    let greatest = logits().fold(f32::NEG_INFINITY, f32::max);
    let power = |logit: f32| (logit - greatest).exp();
    let sum: f32 = logits().map(power).sum();
    logits().map(|logit| power(logit) / sum).collect()
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

    /// For the small model of the tests a second location changes the first, and a location that is
    /// named twice changes nothing.
    #[test]
    fn a_change_is_found_at_any_place_of_the_labels() {
        for name in ["changes-first", "changes-last"] {
            let Some(options) = samples::small(&format!("conflict/{name}"), 64) else { return };
            let mut model = JudgeModel::open(&options)
                .expect("the small model opens")
                .session()
                .expect("a session opens");
            let found = model.changes(&PAIRS).expect("they are read");
            assert!(
                found[0] > 0.9 && found[1..].iter().all(|probability| *probability < 0.1),
                "{name}: {found:?}"
            );
            assert!(model.changes(&[]).expect("nothing to read").is_empty());
            assert_eq!(model.standing("Always tea.").expect("not read"), None, "it has no label");
        }
    }

    #[test]
    fn the_softmax_is_stable_for_large_logits() {
        assert_eq!(softmax(&[0.0, 0.0], &[0, 1]), [0.5, 0.5]);
        assert_eq!(softmax(&[1_000.0, 0.0], &[1, 0]), [0.0, 1.0]);
        assert_eq!(softmax(&[1.0, 900.0, 1.0], &[2, 0]), [0.5, 0.5], "of these places only");
        assert!((softmax(&[1.0, 2.0, 3.0], &[2, 0, 1])[0] - 0.665_241).abs() < 1e-5);
    }

    #[test]
    fn a_model_without_the_labels_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        check_refused(folder.path(), None, "cannot read");
        for (config, expected) in [
            (r#"{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}"#, r#"but ["LABEL_0", "LABEL_1"]"#),
            (
                r#"{"id2label": {"0": "replaces", "1": "ends", "2": "contradiction"}}"#,
                "has not all",
            ),
            (
                r#"{"id2label": {"0": "ends", "1": "adds", "2": "SAME", "3": "unrelated", "9": "replaces"}}"#,
                "id2label",
            ),
            (
                r#"{"id2label": {"0": "ends", "1": "adds", "2": "SAME", "3": "unrelated", "4": "replaces"}}"#,
                "tokenizer.json",
            ),
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
        for part in [expected, "conflict.model = \"off\"", "config.json", "model-unusable"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_model_with_another_number_of_labels_is_refused() {
        let Some(options) = samples::small("conflict/changes-first", 64) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["model.onnx", "tokenizer.json"] {
            fs::copy(options.model.join(file), folder.path().join(file)).expect("copies it");
        }
        fs::write(
            folder.path().join("config.json"),
            r#"{"id2label": {"0": "ends", "1": "adds", "2": "same", "3": "unrelated", "4": "replaces", "5": "more"}}"#,
        )
        .expect("ours");
        let model = Path::new(folder.path()).to_owned();
        let text = JudgeModel::open(&CrossEncoderOptions { model, ..options })
            .err()
            .expect("must not open")
            .to_string();
        assert!(text.contains("not [2, 6] but [2, 5]"), "{text}");
    }
}
