//! A cross-encoder as `model.onnx` with its `tokenizer.json`. Takes `input_ids`, `attention_mask` and, if the graph names it,
//! `token_type_ids`; gives `logits`, a row for each pair.

use super::Options;
use crate::fault::{Fault, Result, StopName};
use crate::ports::onnx::{self, Told, Trouble, cannot};
use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;
use std::path::PathBuf;
use std::sync::Arc;
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationDirection};

pub struct Directory {
    option: &'static str,
    file: PathBuf,
    environment: Environment,
    tokenizer: Arc<Tokenizer>,
    tokens_max: usize,
    columns: usize,
}

impl Directory {
    /// Reads a pair of the greatest length beside a short one before anything depends on it. `columns`: numbers that a pair must get.
    pub fn open(options: &Options, columns: usize) -> Result<Directory> {
        let unusable = |what: Trouble| unusable(options.option, what);
        let (file, tokenizer_file) =
            (options.model.join("model.onnx"), options.model.join("tokenizer.json"));
        let bytes = onnx::read(&tokenizer_file).map_err(unusable)?;
        let tokenizer = onnx::tokenizer(&bytes)
            .map_err(|error| unusable(cannot("read", &tokenizer_file, error)))?;
        if !file.is_file() {
            return Err(unusable(cannot("read", &file, "there is no such file")));
        }
        let environment =
            onnx::environment(&options.model, options.library.as_deref()).map_err(unusable)?;
        let (option, tokenizer, tokens_max) =
            (options.option, Arc::new(tokenizer), options.tokens_max);
        let directory = Directory { option, file, environment, tokenizer, tokens_max, columns };
        let long = "a ".repeat(options.tokens_max);
        let tried = directory.session()?.run(&[(&long, &long), ("a", "a")]);
        tried.map_err(|error| unusable(cannot("use", &directory.file, error)))?;
        Ok(directory)
    }

    pub fn session(&self) -> Result<CrossEncoder> {
        let unusable = |what: Trouble| unusable(self.option, what);
        // One thread: its caller's own, so that a slow pair delays no encoder.
        let session = onnx::session(&self.environment, &self.file, 1).map_err(unusable)?;
        let inputs = session
            .inputs()
            .iter()
            .map(|input| Input::named(input.name()))
            .collect::<Told<_>>()
            .map_err(unusable)?;
        let output =
            session.outputs().iter().position(|output| output.name() == "logits").unwrap_or(0);
        let (tokenizer, tokens_max, columns) =
            (self.tokenizer.clone(), self.tokens_max, self.columns);
        Ok(CrossEncoder { tokenizer, tokens_max, columns, session, inputs, output })
    }
}

/// One session; owned by one thread.
pub struct CrossEncoder {
    tokenizer: Arc<Tokenizer>,
    tokens_max: usize,
    columns: usize,
    session: Session,
    inputs: Vec<Input>,
    output: usize,
}

impl CrossEncoder {
    /// The rows of all pairs, one after the other.
    pub fn read(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        self.run(pairs).map_err(|error| {
            Fault::stop(StopName::ModelUnusable, format!("reads {} pairs: {error}", pairs.len()))
        })
    }

    fn run(&mut self, pairs: &[(&str, &str)]) -> Told<Vec<f32>> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let encodings = pairs
            .iter()
            .map(|(question, text)| self.pair(question, text))
            .collect::<Told<Vec<_>>>()?;
        let length = encodings.iter().map(Encoding::len).max().unwrap_or(0).max(1);
        // The mask hides what fills a short pair up.
        let filled = |of: fn(&Encoding) -> &[u32]| -> Vec<i64> {
            let row = |encoding| {
                of(encoding)
                    .iter()
                    .map(|value| i64::from(*value))
                    .chain(std::iter::repeat(0))
                    .take(length)
            };
            encodings.iter().flat_map(row).collect()
        };
        let (tokens, mask, types) = (
            filled(Encoding::get_ids),
            filled(Encoding::get_attention_mask),
            filled(Encoding::get_type_ids),
        );
        let mut fed = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let (name, values) = match input {
                Input::Tokens => ("input_ids", &tokens),
                Input::Mask => ("attention_mask", &mask),
                Input::Types => ("token_type_ids", &types),
            };
            fed.push((
                name,
                TensorRef::from_array_view(([pairs.len(), length], values.as_slice()))?,
            ));
        }
        let outputs = self.session.run(fed)?;
        let (shape, values) = outputs[self.output].try_extract_tensor::<f32>()?;
        rows(shape, values, (pairs.len(), self.columns))
    }

    /// Cut before the special tokens are added: the longer of the two first, so that a short question is read whole.
    fn pair(&self, question: &str, text: &str) -> Told<Encoding> {
        let special = self.tokenizer.get_post_processor().map_or(0, |post| post.added_tokens(true));
        let room = self.tokens_max.saturating_sub(special).max(2);
        let part =
            |text: &str| self.tokenizer.encode_fast(onnx::readable(text, self.tokens_max), false);
        let (mut question, mut text) = (part(question)?, part(text)?);
        let (of_question, of_text) = shares(room, question.len(), text.len());
        for (part, tokens) in [(&mut question, of_question), (&mut text, of_text)] {
            part.truncate(tokens, 0, TruncationDirection::Right);
            part.take_overflowing();
        }
        // What tells the two apart where the tokenizer itself does not.
        text.set_type_ids(vec![1; text.len()]);
        self.tokenizer.post_process(question, Some(text), true)
    }
}

/// Each has half of the room for sure, and what the other one leaves.
fn shares(room: usize, question: usize, text: usize) -> (usize, usize) {
    let question = question.min(room - text.min(room / 2));
    (question, text.min(room - question))
}

fn rows(shape: &[i64], values: &[f32], (pairs, columns): (usize, usize)) -> Told<Vec<f32>> {
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

#[derive(Clone, Copy)]
enum Input {
    Tokens,
    Mask,
    Types,
}

impl Input {
    fn named(name: &str) -> Told<Input> {
        match name {
            "input_ids" => Ok(Input::Tokens),
            "attention_mask" => Ok(Input::Mask),
            "token_type_ids" => Ok(Input::Types),
            _ => {
                Err(format!("the model is no cross-encoder: it wants an input named {name}").into())
            }
        }
    }
}

pub fn unusable(option: &str, what: impl std::fmt::Display) -> Fault {
    let what = what.to_string();
    let files = if option == "conflict.model" {
        "model.onnx, tokenizer.json and config.json"
    } else {
        "model.onnx and tokenizer.json"
    };
    let cure = format!(
        "put {files} of a cross-encoder into the directory of {option}, or set {option} = \"\""
    );
    Fault::stop(StopName::ModelUnusable, format!("{}; {cure}", what.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn each_has_half_of_the_room_and_what_the_other_leaves() {
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
    fn a_row_of_finite_numbers_a_pair_and_nothing_else_is_read() {
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
    fn what_is_missing_is_named_together_with_the_cure() {
        let directory = tempfile::tempdir().expect("a folder");
        let check_refused = |expected: &str| {
            let options = Options {
                option: "rerank.model",
                model: directory.path().to_owned(),
                library: None,
                tokens_max: 16,
            };
            let text = Directory::open(&options, 1).err().expect("must not open").to_string();
            for part in [expected, "rerank.model", "model-unusable"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        };
        check_refused("tokenizer.json");
        let tokenizer =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rerank/typed/tokenizer.json");
        fs::copy(tokenizer, directory.path().join("tokenizer.json")).expect("copies it");
        check_refused("model.onnx");
    }
}
