//! Says how probably two statements contradict each other, by a cross-encoder with an entailment head.

use super::Options;
use super::onnx::{CrossEncoder, Directory, unusable};
use crate::fault::Result;
use crate::ports::onnx::{self, Told, cannot};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Reads pairs of statements, the earlier one first.
pub trait Judge: Send {
    /// The probability of a contradiction for each pair, in their order.
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>>;
}

/// A model, checked by reading something with it. Opens sessions, one for each thread.
pub struct JudgeModel {
    directory: Directory,
    labels: usize,
    contradiction: usize,
}

impl JudgeModel {
    /// Which number of a pair is the contradiction's differs from model to model: `config.json` says it.
    pub fn open(options: &Options) -> Result<JudgeModel> {
        let (labels, contradiction) =
            labels(options).map_err(|error| unusable(options.option, error))?;
        Ok(JudgeModel { directory: Directory::open(options, labels)?, labels, contradiction })
    }

    pub fn session(&self) -> Result<Box<dyn Judge>> {
        Ok(Box::new(Session {
            model: self.directory.session()?,
            labels: self.labels,
            contradiction: self.contradiction,
        }))
    }
}

/// The fields of a model's `config.json` that a judge needs.
#[derive(Deserialize)]
struct ModelConfig {
    #[serde(default)]
    id2label: BTreeMap<String, String>,
}

/// How many labels there are, and which is the contradiction's.
fn labels(options: &Options) -> Told<(usize, usize)> {
    let file = options.model.join("config.json");
    let config: ModelConfig = serde_json::from_slice(&onnx::read(&file)?)
        .map_err(|error| cannot("read", &file, error))?;
    let of_contradiction =
        config.id2label.iter().find(|(_, label)| label.eq_ignore_ascii_case("contradiction"));
    let place = of_contradiction
        .and_then(|(id, _)| id.parse().ok())
        .filter(|place| *place < config.id2label.len());
    let named: Vec<&str> = config.id2label.values().map(String::as_str).collect();
    let no_label =
        || cannot("use", &file, format!("its id2label has no \"contradiction\", only {named:?}"));
    Ok((config.id2label.len(), place.ok_or_else(no_label)?))
}

/// One session; owned by one thread.
struct Session {
    model: CrossEncoder,
    labels: usize,
    contradiction: usize,
}

impl Judge for Session {
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        let rows = self.model.read(pairs)?;
        Ok(rows.chunks(self.labels).map(|row| share(row, self.contradiction)).collect())
    }
}

/// One part of the softmax.
fn share(row: &[f32], place: usize) -> f32 {
    let greatest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = row.iter().map(|logit| (logit - greatest).exp()).sum();
    (row[place] - greatest).exp() / sum
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

    /// The small model of the tests takes two places for a contradiction, and one place twice for an entailment.
    #[test]
    fn a_contradiction_is_found_whichever_number_is_its_own() {
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
    fn a_share_is_a_softmax_whatever_the_size_of_its_numbers() {
        assert_eq!(share(&[0.0, 0.0], 0), 0.5);
        assert_eq!(share(&[1_000.0, 0.0], 0), 1.0);
        assert!((share(&[1.0, 2.0, 3.0], 2) - 0.665_241).abs() < 1e-5);
    }

    #[test]
    fn a_model_that_does_not_say_which_number_is_the_contradiction_is_refused_with_the_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            option: "conflict.model",
            model: folder.path().to_owned(),
            library: None,
            tokens_max: 16,
        };
        let check_refused = |expected: &str| {
            let text = JudgeModel::open(&options).err().expect("must not open").to_string();
            for part in [expected, "conflict.model", "config.json", "model-unusable"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        };
        let config = |text: &str| {
            fs::write(folder.path().join("config.json"), text).expect("the folder is ours")
        };
        check_refused("cannot read");
        config(r#"{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}"#);
        check_refused(r#"no "contradiction", only ["LABEL_0", "LABEL_1"]"#);
        config(r#"{"id2label": {"7": "contradiction"}}"#);
        check_refused("id2label");
        config(r#"{"id2label": {"0": "neutral", "1": "CONTRADICTION"}}"#);
        check_refused("tokenizer.json");
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
        let text = JudgeModel::open(&Options { model, ..options })
            .err()
            .expect("must not open")
            .to_string();
        assert!(text.contains("not [2, 2] but [2, 3]"), "{text}");
    }
}
