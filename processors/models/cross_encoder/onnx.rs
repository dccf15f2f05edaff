//! Runs a cross-encoder in ONNX: a directory with `model.onnx` and `tokenizer.json`.
//!
//! The graph takes `input_ids`, `attention_mask` and, if there is such an input, `token_type_ids`.
//! Its output is `logits`, a row for each pair. Pairs are cut to `tokens_max`, the longer text
//! first, and filled up to the longest pair of the batch; the mask excludes the filling.

use crate::onnx::{self, Graph, LimitedTokenizer, ModelFiles, Signature, cannot, truncate};
use domain::fault::{Fault, Result, StopName};
use std::path::PathBuf;
use tokenizers::Encoding;

const CROSS_ENCODER: Signature = Signature {
    model: "a cross-encoder",
    inputs: &["input_ids", "attention_mask", "token_type_ids"],
    output: "logits",
};

#[derive(Clone, Debug)]
pub struct CrossEncoderOptions {
    /// The configuration option that names the model. Part of every error.
    pub option: &'static str,
    /// The directory with `model.onnx` and `tokenizer.json`.
    pub model: PathBuf,
    /// The shared library of ONNX Runtime, if the library is not in the model's directory.
    pub library: Option<PathBuf>,
    /// Limits the tokens of a pair, special tokens included. The longer text is cut.
    pub tokens_max: usize,
}

pub struct CrossEncoderDirectory {
    option: &'static str,
    files: ModelFiles,
    columns: usize,
}

impl CrossEncoderDirectory {
    /// Opens a model that gives `columns` numbers for each pair. Reads a pair of maximum length
    /// beside a short one, so that a model that fails at its limit fails at the start.
    pub fn open(options: &CrossEncoderOptions, columns: usize) -> Result<CrossEncoderDirectory> {
        let option = options.option;
        let files =
            ModelFiles::open(&options.model, options.library.as_deref(), options.tokens_max)
                .map_err(|error| unusable(option, error))?;
        let directory = CrossEncoderDirectory { option, files, columns };
        let long = "a ".repeat(options.tokens_max);
        directory
            .session()?
            .run(&[(&long, &long), ("a", "a")])
            .map_err(|error| unusable(option, cannot("use", &directory.files.graph, error)))?;
        Ok(directory)
    }

    /// Opens a session with one thread, the caller's own, so that a slow pair delays no encoder.
    pub fn session(&self) -> Result<CrossEncoder> {
        Ok(CrossEncoder {
            tokenizer: self.files.tokenizer.clone(),
            columns: self.columns,
            graph: self
                .files
                .session(1, &CROSS_ENCODER)
                .map_err(|error| unusable(self.option, error))?,
        })
    }
}

/// One session. Owned by one thread.
pub struct CrossEncoder {
    tokenizer: LimitedTokenizer,
    columns: usize,
    graph: Graph,
}

impl CrossEncoder {
    /// Returns the rows of all pairs, one after the other.
    pub fn read(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        self.run(pairs).map_err(|error| {
            Fault::stop(StopName::ModelUnusable, format!("reads {} pairs: {error}", pairs.len()))
        })
    }

    /// Returns the row of a text that is no pair.
    pub fn read_alone(&mut self, text: &str) -> Result<Vec<f32>> {
        let encoding = self.tokenizer.encode(text).and_then(|mut encoding| {
            truncate(&mut encoding, self.tokenizer.room(false));
            self.tokenizer.complete(encoding, None)
        });
        encoding
            .and_then(|encoding| self.rows(&[encoding]))
            .map_err(|error| Fault::stop(StopName::ModelUnusable, format!("reads a text: {error}")))
    }

    fn run(&mut self, pairs: &[(&str, &str)]) -> onnx::Result<Vec<f32>> {
        let encodings = pairs.iter().map(|(question, text)| self.pair(question, text));
        let encodings: Vec<Encoding> = encodings.collect::<onnx::Result<_>>()?;
        if encodings.is_empty() { Ok(Vec::new()) } else { self.rows(&encodings) }
    }

    fn rows(&mut self, encodings: &[Encoding]) -> onnx::Result<Vec<f32>> {
        let values = [
            ("input_ids", filled(encodings, Encoding::get_ids)),
            ("attention_mask", filled(encodings, Encoding::get_attention_mask)),
            ("token_type_ids", filled(encodings, Encoding::get_type_ids)),
        ];
        let (count, columns) = (encodings.len(), self.columns);
        self.graph.run(count, &values, |shape, values| rows(shape, values, (count, columns)))
    }

    /// Tokenizes a pair. The longer text is cut first, so that a short question is read whole.
    fn pair(&self, question: &str, text: &str) -> onnx::Result<Encoding> {
        let mut question = self.tokenizer.encode(question)?;
        let mut text = self.tokenizer.encode(text)?;
        let room = self.tokenizer.room(true).max(2);
        let (of_question, of_text) = shares(room, question.len(), text.len());
        truncate(&mut question, of_question);
        truncate(&mut text, of_text);
        // Not every tokenizer marks the second text by itself.
        text.set_type_ids(vec![1; text.len()]);
        self.tokenizer.complete(question, Some(text))
    }
}

/// Lays the rows of a batch one after the other, each filled with 0 up to the longest.
fn filled(encodings: &[Encoding], row: fn(&Encoding) -> &[u32]) -> Vec<i64> {
    let length = encodings.iter().map(Encoding::len).max().unwrap_or(0).max(1);
    let mut values = Vec::with_capacity(encodings.len() * length);
    for encoding in encodings {
        let end = values.len() + length;
        values.extend(row(encoding).iter().map(|value| i64::from(*value)));
        values.resize(end, 0);
    }
    values
}

/// Divides the tokens of a pair: each text has half of the room, and the part that the other
/// leaves.
fn shares(room: usize, question: usize, text: usize) -> (usize, usize) {
    let question = question.min(room - text.min(room / 2));
    (question, text.min(room - question))
}

/// Checks the output: one row of `columns` finite numbers for each pair.
fn rows(shape: &[i64], values: &[f32], (pairs, columns): (usize, usize)) -> onnx::Result<Vec<f32>> {
    let (rows, of_each) = match *shape {
        [rows] => (rows, 1),
        [rows, of_each] => (rows, of_each),
        _ => (0, 0),
    };
    if rows != pairs as i64 || of_each != columns as i64 {
        return Err(format!(
            "of {pairs} pairs its output is not [{pairs}, {columns}] but {shape:?}"
        )
        .into());
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err("its output is not finite".into());
    }
    Ok(values.to_vec())
}

/// Adds the remedy to an error: which files belong in the directory of `option`.
pub fn unusable(option: &str, what: impl std::fmt::Display) -> Fault {
    let what = what.to_string();
    // Empty names the judge beside the encoder.
    let (files, none) = if option == "conflict.model" {
        ("model.onnx, tokenizer.json and config.json", "off")
    } else {
        ("model.onnx and tokenizer.json", "")
    };
    let cure = format!(
        "put {files} of a cross-encoder into the directory of {option}, or set {option} = \"{none}\""
    );
    Fault::stop(StopName::ModelUnusable, format!("{}; {cure}", what.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn each_text_has_half_of_the_room_and_the_rest_of_the_other() {
        for (question, text, expected) in [
            (2, 3, (2, 3)),
            (2, 100, (2, 8)),
            (100, 2, (8, 2)),
            (100, 100, (5, 5)),
            (0, 100, (0, 10)),
            (6, 6, (5, 5)),
        ] {
            assert_eq!(shares(10, question, text), expected, "{question} {text}");
        }
    }

    #[test]
    fn only_one_row_of_finite_numbers_for_each_pair_is_accepted() {
        assert_eq!(rows(&[2, 1], &[0.5, 1.5], (2, 1)).expect("a number each"), [0.5, 1.5]);
        assert_eq!(rows(&[2], &[0.5, 1.5], (2, 1)).expect("a number each"), [0.5, 1.5]);
        assert_eq!(rows(&[1, 3], &[0.5, 1.5, 2.5], (1, 3)).expect("three"), [0.5, 1.5, 2.5]);
        for (shape, values) in [
            (vec![2, 2], [0.0; 4]),
            (vec![4, 1], [0.0; 4]),
            (vec![2, 1], [f32::NAN; 4]),
            (vec![], [0.0; 4]),
        ] {
            assert!(rows(&shape, &values, (2, 1)).is_err(), "{shape:?}");
        }
    }

    #[test]
    fn errors_name_the_missing_file_and_the_remedy() {
        let directory = tempfile::tempdir().expect("a folder");
        check_refused(directory.path(), "tokenizer.json");
        let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data/rerank/typed/tokenizer.json");
        fs::copy(tokenizer, directory.path().join("tokenizer.json")).expect("copies it");
        check_refused(directory.path(), "model.onnx");
    }

    fn check_refused(directory: &Path, expected: &str) {
        let options = CrossEncoderOptions {
            option: "rerank.model",
            model: directory.to_owned(),
            library: None,
            tokens_max: 16,
        };
        let fault = CrossEncoderDirectory::open(&options, 1).err().expect("must not open");
        let text = fault.to_string();
        for part in [expected, "rerank.model", "model-unusable"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
