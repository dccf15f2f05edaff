//! The real embedder: a directory with `model.onnx` and `tokenizer.json`, run by ONNX Runtime.
//! It does not know which model it is: inputs and outputs are found by name and shape.

use super::spread::Measured;
use super::{Embedder, Options, centred, unit};
use crate::domain::Spread;
use crate::fault::{Fault, Result, StopName};
use crate::ports::onnx::{self, Told, cannot};
use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokenizers::{ModelWrapper, PostProcessor, Tokenizer, TruncationDirection};
use uuid::Uuid;

/// all-MiniLM-L6-v2 as `deploy/model/setup.sh` makes it. Its spread is the standard one, so it needs no file that says so.
const STANDARD: &str = "model.onnx-d0d712210ad4";

pub struct Directory {
    file: PathBuf,
    vocabulary: PathBuf,
    name: Arc<str>,
    environment: Environment,
    tokenizer: Arc<Tokenizer>,
    tokens_max: usize,
    threads: usize,
    dimensions: usize,
    spread: Spread,
    /// Empty, or subtracted from every vector.
    centre: Arc<[f32]>,
    /// The session of the trial, for the first who asks: opening one takes 0.1 s.
    spare: Mutex<Option<Onnx>>,
}

impl Directory {
    /// Encodes a text of the greatest length before anything depends on it.
    pub fn open(path: &Path, options: &Options) -> Result<Directory> {
        let (file, tokenizer_file) = (path.join("model.onnx"), path.join("tokenizer.json"));
        let tokenizer_bytes = onnx::read(&tokenizer_file).map_err(unusable)?;
        let name = name_of(&onnx::read(&file).map_err(unusable)?, &tokenizer_bytes).into();
        let tokenizer = onnx::tokenizer(&tokenizer_bytes)
            .map_err(|error| unusable(cannot("read", &tokenizer_file, error)))?;
        let mut directory = Directory {
            name,
            file,
            vocabulary: path.join("vocab.txt"),
            tokenizer: Arc::new(tokenizer),
            environment: onnx::environment(path, options.library.as_deref()).map_err(unusable)?,
            tokens_max: options.tokens_max,
            threads: options.threads,
            dimensions: 0,
            spread: Spread::STANDARD,
            centre: Arc::default(),
            spare: Mutex::new(None),
        };
        let (mut first, tokens_max) = (directory.session()?, options.tokens_max);
        directory.dimensions = first.try_out().map_err(|fault| {
            fault.about(format!("tries {tokens_max} tokens on {}", directory.file.display()))
        })?;
        first.dimensions = directory.dimensions;
        directory.spare = Mutex::new(Some(first));
        Ok(directory)
    }

    /// With what was measured of the model, if `spread.json` lies beside it.
    pub fn measured(mut self, path: &Path) -> Result<Directory> {
        let Some(measured) = Measured::read(path, &self.name, self.dimensions)? else {
            if *self.name != *STANDARD {
                let cure = format!("keepsake model measure {}", path.display());
                tracing::warn!(
                    model = &*self.name,
                    cure,
                    "nobody measured how far apart this encoder puts unrelated texts: its cosines are taken for all-MiniLM-L6-v2's"
                );
            }
            return Ok(self);
        };
        self.spread = measured.spread();
        self.name = name_with(&self.name, &measured.centre).into();
        self.centre = measured.centre.into();
        Ok(self)
    }

    pub fn session(&self) -> Result<Onnx> {
        if let Some(spare) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(Onnx { name: self.name.clone(), centre: self.centre.clone(), ..spare });
        }
        let session =
            onnx::session(&self.environment, &self.file, self.threads).map_err(unusable)?;
        let inputs = session
            .inputs()
            .iter()
            .map(|input| Input::named(input.name()))
            .collect::<Result<_>>()?;
        let output = session
            .outputs()
            .iter()
            .position(|output| output.name() == "sentence_embedding")
            .unwrap_or(0);
        Ok(Onnx {
            name: self.name.clone(),
            tokenizer: self.tokenizer.clone(),
            tokens_max: self.tokens_max,
            dimensions: self.dimensions,
            centre: self.centre.clone(),
            session,
            inputs,
            output,
        })
    }

    pub fn tokenizer(&self) -> Arc<Tokenizer> {
        self.tokenizer.clone()
    }

    /// Of a WordPiece model only: other vocabularies are not in order of frequency.
    pub fn vocabulary(&self) -> Option<Vec<String>> {
        let ModelWrapper::WordPiece(_) = self.tokenizer.get_model() else { return None };
        if let Ok(text) = fs::read_to_string(&self.vocabulary) {
            return Some(text.lines().map(str::to_owned).collect());
        }
        let mut ranked: Vec<(String, u32)> = self.tokenizer.get_vocab(false).into_iter().collect();
        ranked.sort_by_key(|(_, rank)| *rank);
        Some(ranked.into_iter().map(|(word, _)| word).collect())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn spread(&self) -> Spread {
        self.spread
    }

    pub fn dimensions(&self) -> usize {
        self.dimensions
    }
}

/// One session. Knows its tokens; owned by one thread.
pub struct Onnx {
    name: Arc<str>,
    tokenizer: Arc<Tokenizer>,
    tokens_max: usize,
    dimensions: usize,
    centre: Arc<[f32]>,
    session: Session,
    inputs: Vec<Input>,
    output: usize,
}

impl Embedder for Onnx {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        let vector = self.run(text).map(|vector| centred(unit(vector), &self.centre));
        vector.map_err(|error| {
            Fault::stop(StopName::ModelUnusable, format!("encodes a text: {error}"))
        })
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Onnx {
    /// The dimensions. A model that fails at its limit fails now, at the start, and not at the first long turn.
    fn try_out(&mut self) -> Result<usize> {
        let vector = self.run(&"a ".repeat(self.tokens_max)).map_err(unusable)?;
        if vector.is_empty() || vector.iter().any(|x| !x.is_finite()) {
            return Err(unusable("its output is not a vector of finite numbers"));
        }
        Ok(vector.len())
    }

    fn run(&mut self, text: &str) -> Told<Vec<f32>> {
        let tokens = self.tokens(text)?;
        let (ones, zeros) = (vec![1i64; tokens.len()], vec![0i64; tokens.len()]);
        let positions: Vec<i64> = (0..).take(tokens.len()).collect();
        let mut fed = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let (name, values) = match input {
                Input::Tokens => ("input_ids", &tokens),
                Input::Mask => ("attention_mask", &ones),
                Input::Types => ("token_type_ids", &zeros),
                Input::Positions => ("position_ids", &positions),
            };
            fed.push((name, TensorRef::from_array_view(([1, tokens.len()], values.as_slice()))?));
        }
        let outputs = self.session.run(fed)?;
        let (shape, values) = outputs[self.output].try_extract_tensor::<f32>()?;
        pooled(shape, values)
    }

    /// Cut before the special tokens are added, so that none of them is lost.
    fn tokens(&self, text: &str) -> Told<Vec<i64>> {
        let text = onnx::readable(text, self.tokens_max);
        let special =
            self.tokenizer.get_post_processor().map_or(0, |post| post.added_tokens(false));
        let mut encoding = self.tokenizer.encode_fast(text, false)?;
        encoding.truncate(
            self.tokens_max.saturating_sub(special).max(1),
            0,
            TruncationDirection::Right,
        );
        encoding.take_overflowing();
        let encoding = self.tokenizer.post_process(encoding, None, true)?;
        let tokens: Vec<i64> = encoding.get_ids().iter().map(|id| i64::from(*id)).collect();
        // A tokenizer without special tokens makes nothing of an empty text, and a model cannot read nothing.
        Ok(if tokens.is_empty() { vec![0] } else { tokens })
    }
}

#[derive(Clone, Copy)]
enum Input {
    Tokens,
    Mask,
    Types,
    Positions,
}

impl Input {
    fn named(name: &str) -> Result<Input> {
        match name {
            "input_ids" => Ok(Input::Tokens),
            "attention_mask" => Ok(Input::Mask),
            "token_type_ids" => Ok(Input::Types),
            "position_ids" => Ok(Input::Positions),
            _ => Err(unusable(format!(
                "the model is not a text encoder: it wants an input named {name}"
            ))),
        }
    }
}

/// `[1, dimensions]` is taken as it is, `[1, tokens, dimensions]` is averaged over the tokens: alone in its batch, none is padding.
fn pooled(shape: &[i64], values: &[f32]) -> Told<Vec<f32>> {
    match *shape {
        [1, _] => Ok(values.to_vec()),
        [1, tokens, dimensions] if tokens > 0 && dimensions > 0 => {
            let mut sum = vec![0f32; dimensions as usize];
            for token in values.chunks_exact(dimensions as usize) {
                sum.iter_mut().zip(token).for_each(|(sum, x)| *sum += x);
            }
            sum.iter_mut().for_each(|x| *x /= tokens as f32);
            Ok(sum)
        }
        _ => Err(format!("the model's output is neither [1, dimensions] nor [1, tokens, dimensions] but {shape:?}").into()),
    }
}

/// Another tokenizer makes other vectors of the same model, so both are in the name.
fn name_of(model: &[u8], tokenizer: &[u8]) -> String {
    let content = Uuid::new_v5(&Uuid::new_v5(&Uuid::NAMESPACE_OID, model), tokenizer);
    format!("model.onnx-{}", &content.simple().to_string()[..12])
}

/// Vectors without a centre cannot be compared with those that have it. The spread changes no vector.
fn name_with(name: &str, centre: &[f32]) -> String {
    if centre.is_empty() {
        return name.to_owned();
    }
    let bytes: Vec<u8> = centre.iter().flat_map(|x| x.to_le_bytes()).collect();
    format!("{name}-{}", &Uuid::new_v5(&Uuid::NAMESPACE_OID, &bytes).simple().to_string()[..8])
}

fn unusable(what: impl std::fmt::Display) -> Fault {
    let what = what.to_string();
    Fault::stop(
        StopName::ModelUnusable,
        format!("{}; run deploy/model/setup.sh or set embedder.model = \"hash\"", what.trim_end()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::ModelChoice;
    use super::*;

    fn options(directory: &Path, library: Option<&Path>) -> Options {
        let model = ModelChoice::Directory(directory.to_owned());
        Options { model, library: library.map(Path::to_owned), tokens_max: 16, threads: 1 }
    }

    fn check_refused(directory: &Path, library: Option<&Path>, expected: &str) {
        let fault =
            Directory::open(directory, &options(directory, library)).err().expect("must not open");
        let text = fault.to_string();
        assert!(
            text.contains(expected)
                && text.contains("run deploy/model/setup.sh")
                && text.contains("model-unusable"),
            "{text}"
        );
    }

    #[test]
    fn what_is_missing_is_named_together_with_the_cure() {
        let empty = tempfile::tempdir().unwrap();
        check_refused(empty.path(), None, "tokenizer.json");
        fs::write(empty.path().join("tokenizer.json"), "{}").unwrap();
        check_refused(empty.path(), None, "model.onnx");
        fs::write(empty.path().join("model.onnx"), "not a model").unwrap();
        check_refused(empty.path(), None, "cannot read");
    }

    #[test]
    fn outputs_are_pooled_by_their_shape() {
        assert_eq!(pooled(&[1, 2], &[3.0, 4.0]).unwrap(), [3.0, 4.0]);
        assert_eq!(pooled(&[1, 2, 2], &[1.0, 2.0, 3.0, 6.0]).unwrap(), [2.0, 4.0]);
        assert!(pooled(&[1, 0, 2], &[]).is_err());
        assert!(pooled(&[2], &[1.0, 2.0]).is_err());
        assert!(pooled(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).is_err());
    }

    #[test]
    fn another_model_or_another_tokenizer_is_another_name() {
        let name = name_of(b"model", b"tokenizer");
        assert_eq!(name.len(), "model.onnx-".len() + 12);
        assert_ne!(name, name_of(b"model 2", b"tokenizer"));
        assert_ne!(name, name_of(b"model", b"tokenizer 2"));
    }

    #[test]
    fn another_centre_is_another_name_and_none_is_the_models_own() {
        assert_eq!(name_with("tiny", &[]), "tiny");
        assert_ne!(name_with("tiny", &[0.5, 0.0]), name_with("tiny", &[0.0, 0.5]));
    }
}
