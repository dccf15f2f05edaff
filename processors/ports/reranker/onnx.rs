//! The real reranker: a cross-encoder as `model.onnx` with its `tokenizer.json`. Takes `input_ids`, `attention_mask` and, if the graph
//! names it, `token_type_ids`; gives `logits`, one for each pair.

use super::{Options, Reranker};
use crate::fault::{Fault, Result, StopName};
use crate::ports::onnx::{self, Told, cannot};
use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;
use std::path::PathBuf;
use std::sync::Arc;
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationDirection};

pub struct Directory {
    file: PathBuf,
    environment: Environment,
    tokenizer: Arc<Tokenizer>,
    tokens_max: usize,
}

impl Directory {
    /// Reads a pair of the greatest length beside a short one before anything depends on it.
    pub fn open(options: &Options) -> Result<Directory> {
        let (file, tokenizer_file) = (options.model.join("model.onnx"), options.model.join("tokenizer.json"));
        let bytes = onnx::read(&tokenizer_file).map_err(unusable)?;
        let tokenizer = onnx::tokenizer(&bytes).map_err(|error| unusable(cannot("read", &tokenizer_file, error)))?;
        if !file.is_file() {
            return Err(unusable(cannot("read", &file, "there is no such file")));
        }
        let environment = onnx::environment(&options.model, options.library.as_deref()).map_err(unusable)?;
        let directory = Directory { file, environment, tokenizer: Arc::new(tokenizer), tokens_max: options.tokens_max };
        let long = "a ".repeat(options.tokens_max);
        let tried = directory.session()?.run(&[(&long, &long), ("a", "a")]);
        tried.map_err(|error| unusable(format!("tries {}: {error}", directory.file.display())))?;
        Ok(directory)
    }

    pub fn session(&self) -> Result<CrossEncoder> {
        // One thread: recall's own, so that a slow pair delays no encoder.
        let session = onnx::session(&self.environment, &self.file, 1).map_err(unusable)?;
        let inputs = session.inputs().iter().map(|input| Input::named(input.name())).collect::<Result<_>>()?;
        let output = session.outputs().iter().position(|output| output.name() == "logits").unwrap_or(0);
        Ok(CrossEncoder { tokenizer: self.tokenizer.clone(), tokens_max: self.tokens_max, session, inputs, output })
    }
}

/// One session; owned by one thread.
pub struct CrossEncoder {
    tokenizer: Arc<Tokenizer>,
    tokens_max: usize,
    session: Session,
    inputs: Vec<Input>,
    output: usize,
}

impl Reranker for CrossEncoder {
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        self.run(pairs).map_err(|error| Fault::stop(StopName::ModelUnusable, format!("reads {} pairs: {error}", pairs.len())))
    }
}

impl CrossEncoder {
    fn run(&mut self, pairs: &[(&str, &str)]) -> Told<Vec<f32>> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let encodings = pairs.iter().map(|(question, text)| self.pair(question, text)).collect::<Told<Vec<_>>>()?;
        let length = encodings.iter().map(Encoding::len).max().unwrap_or(0).max(1);
        // The mask hides what fills a short pair up.
        let filled = |of: fn(&Encoding) -> &[u32]| -> Vec<i64> {
            let row = |encoding| of(encoding).iter().map(|value| i64::from(*value)).chain(std::iter::repeat(0)).take(length);
            encodings.iter().flat_map(row).collect()
        };
        let (tokens, mask, types) =
            (filled(Encoding::get_ids), filled(Encoding::get_attention_mask), filled(Encoding::get_type_ids));
        let mut fed = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let (name, values) = match input {
                Input::Tokens => ("input_ids", &tokens),
                Input::Mask => ("attention_mask", &mask),
                Input::Types => ("token_type_ids", &types),
            };
            fed.push((name, TensorRef::from_array_view(([pairs.len(), length], values.as_slice()))?));
        }
        let outputs = self.session.run(fed)?;
        let (shape, values) = outputs[self.output].try_extract_tensor::<f32>()?;
        scores(shape, values, pairs.len())
    }

    /// Cut before the special tokens are added: the longer of the two first, so that a short question is read whole.
    fn pair(&self, question: &str, text: &str) -> Told<Encoding> {
        let special = self.tokenizer.get_post_processor().map_or(0, |post| post.added_tokens(true));
        let room = self.tokens_max.saturating_sub(special).max(2);
        let part = |text: &str| self.tokenizer.encode_fast(onnx::readable(text, self.tokens_max), false);
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

fn scores(shape: &[i64], values: &[f32], pairs: usize) -> Told<Vec<f32>> {
    let is_one_each = matches!(*shape, [rows] | [rows, 1] if rows == pairs as i64);
    if !is_one_each {
        return Err(
            format!("of {pairs} pairs the model's output is not [{pairs}, 1] but {shape:?}: it is no cross-encoder").into()
        );
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
    fn named(name: &str) -> Result<Input> {
        match name {
            "input_ids" => Ok(Input::Tokens),
            "attention_mask" => Ok(Input::Mask),
            "token_type_ids" => Ok(Input::Types),
            _ => Err(unusable(format!("the model is no cross-encoder: it wants an input named {name}"))),
        }
    }
}

fn unusable(what: impl std::fmt::Display) -> Fault {
    let what = what.to_string();
    let cure =
        "put model.onnx and tokenizer.json of a cross-encoder into the directory of rerank.model, or set rerank.model = \"\"";
    Fault::stop(StopName::ModelUnusable, format!("{}; {cure}", what.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::Model;
    use super::*;
    use std::fs;
    use std::io::{self, Write};
    use std::path::Path;

    /// One of the two small models of the tests, whose scores a reader can work out; none, and a line that cannot be missed, where no
    /// runtime is at hand.
    fn small(name: &str, tokens_max: usize) -> Option<Box<dyn Reranker>> {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
            let _ =
                writeln!(io::stderr(), "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, the cross-encoder is NOT tested");
            return None;
        };
        let library = Some(Path::new(&directory).join("libonnxruntime.so")).filter(|file| file.is_file());
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rerank").join(name);
        let model = Model::open(&Options { model, library, tokens_max }).expect("the small model opens");
        Some(model.session().expect("a session opens"))
    }

    fn check(model: &mut dyn Reranker, pairs: &[(&str, &str)], expected: &[f32]) {
        assert_eq!(model.score(pairs).expect("they are read"), expected, "{pairs:?}");
        for (pair, expected) in pairs.iter().zip(expected) {
            assert_eq!(model.score(&[*pair]).expect("it is read"), [*expected], "alone as among others: {pair:?}");
        }
    }

    #[test]
    fn a_pair_is_read_as_question_and_text_whatever_stands_beside_it() {
        let Some(mut model) = small("typed", 256) else { return };
        let pairs = [
            ("the boat in the harbour", "my ship is in the harbour, and what a long story that is"),
            ("the boat", "Anna's ship"),
            ("", ""),
            ("boat boat", "tea"),
        ];
        check(model.as_mut(), &pairs, &[6.0, 2.0, -2.0, -2.0]);
        assert!(model.score(&[]).expect("nothing to read").is_empty());
    }

    #[test]
    fn a_model_that_does_not_tell_the_two_apart_is_fed_without() {
        let Some(mut model) = small("untyped", 256) else { return };
        check(model.as_mut(), &[("the boat", "a ship"), ("boat boat", "tea"), ("tea", "tea a tea")], &[2.0, 2.0, 10.0]);
    }

    #[test]
    fn what_follows_the_longest_pair_is_not_read() {
        let Some(mut model) = small("typed", 11) else { return };
        let long = format!("one two three four five six seven {}", "boat ".repeat(1_000));
        check(
            model.as_mut(),
            &[("boat boat", &long), ("boat boat", "1 2 3 4 5 boat"), ("boat boat", "1 2 3 4 5 6 boat")],
            &[-2.0, 6.0, -2.0],
        );
        check(model.as_mut(), &[(&long, "boat"), (&format!("boat {long}"), "ship")], &[-2.0, 2.0]);
    }

    #[test]
    fn each_has_half_of_the_room_and_what_the_other_leaves() {
        for (question, text, expected) in
            [(2, 3, (2, 3)), (2, 100, (2, 8)), (100, 2, (8, 2)), (100, 100, (5, 5)), (0, 100, (0, 10)), (6, 6, (5, 5))]
        {
            assert_eq!(shares(10, question, text), expected, "{question} {text}");
        }
    }

    #[test]
    fn one_finite_number_a_pair_and_nothing_else_is_a_score() {
        assert_eq!(scores(&[2, 1], &[0.5, 1.5], 2).expect("scores"), [0.5, 1.5]);
        assert_eq!(scores(&[2], &[0.5, 1.5], 2).expect("scores"), [0.5, 1.5]);
        for (shape, values) in [(vec![2, 2], [0.0; 4]), (vec![4, 1], [0.0; 4]), (vec![2, 1], [f32::NAN; 4])] {
            assert!(scores(&shape, &values, 2).is_err(), "{shape:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named_together_with_the_cure() {
        let directory = tempfile::tempdir().expect("a folder");
        let check_refused = |expected: &str| {
            let options = Options { model: directory.path().to_owned(), library: None, tokens_max: 16 };
            let text = Directory::open(&options).err().expect("must not open").to_string();
            for part in [expected, "rerank.model", "model-unusable"] {
                assert!(text.contains(part), "{part}: {text}");
            }
        };
        check_refused("tokenizer.json");
        let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rerank/typed/tokenizer.json");
        fs::copy(tokenizer, directory.path().join("tokenizer.json")).expect("copies it");
        check_refused("model.onnx");
    }
}
