//! Encodes texts by a model in ONNX: a directory with `model.onnx` and `tokenizer.json`.
//!
//! A directory may also have `fused.onnx`, the same function in less time.
//!
//! Any sentence encoder works: inputs are found by name, the output by name or place and by shape.
//! A text is encoded in five steps: tokenize, cut to `tokens_max`, run the graph, average over the
//! tokens if the graph does not, scale to unit length and subtract the centre.

use super::options::EncoderOptions;
use super::spread::Measured;
use super::vectors::{Embedder, centred, unit};
use crate::onnx::{self, Graph, LimitedTokenizer, ModelFiles, Signature};
use domain::CosineScale;
use domain::fault::{Fault, Result, StopName};
use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::{ModelWrapper, Tokenizer};
use uuid::Uuid;

/// Name of all-MiniLM-L6-v2 as made by `deploy/model/setup.sh`. The cosines of this model define
/// the standard scale, so no `spread.json` is needed.
const STANDARD: &str = "model.onnx-d0d712210ad4";

/// A second graph for the same weights, with operators that only ONNX Runtime has. `model.onnx`
/// names the model, whichever of them runs.
const FUSED: &str = "fused.onnx";
/// Least cosine of a vector of the two graphs: 1.0 where `setup.sh` was run. On another processor
/// the rounding of an activation can turn; .967 was the smallest cosine seen of that.
const FUSED_COSINE_MIN: f32 = 0.95;
/// Texts that both graphs encode at the start.
const COMPARED: [&str; 3] = [
    "ok",
    "I moved to Lisbon in 2019, and I am allergic to peanuts.",
    "My sister's dog is afraid of thunder; he sleeps under the stairs, which he may not.",
];

const ENCODER: Signature = Signature {
    model: "a text encoder",
    inputs: &["input_ids", "attention_mask", "token_type_ids", "position_ids"],
    output: "sentence_embedding",
};

pub struct EncoderDirectory {
    files: ModelFiles,
    vocabulary: PathBuf,
    name: Arc<str>,
    threads: usize,
    dimensions: usize,
    spread: CosineScale,
    /// Subtracted from every vector, unless empty.
    centre: Arc<[f32]>,
    /// The session that `open` tried out, for the first caller of `session`.
    spare: Mutex<Option<OnnxEncoder>>,
}

impl EncoderDirectory {
    /// Opens a model and encodes a text of maximum length, so that a model that fails at its limit
    /// fails at the start.
    pub fn open(path: &Path, options: &EncoderOptions) -> Result<EncoderDirectory> {
        let files = ModelFiles::open(path, options.library.as_deref(), options.tokens_max)
            .map_err(unusable)?;
        let graph = onnx::read(&files.graph).map_err(unusable)?;
        let tokenizer = onnx::read(&path.join("tokenizer.json")).map_err(unusable)?;
        let mut directory = EncoderDirectory {
            name: name_of(&graph, &tokenizer).into(),
            files,
            vocabulary: path.join("vocab.txt"),
            threads: options.threads,
            dimensions: 0,
            spread: CosineScale::STANDARD,
            centre: Arc::default(),
            spare: Mutex::new(None),
        };
        let mut first = directory.session()?;
        directory.dimensions = first.try_out().map_err(|fault| {
            let graph = directory.files.graph.display();
            fault.about(format!("tries {} tokens on {graph}", options.tokens_max))
        })?;
        first.dimensions = directory.dimensions;
        let fused = path.join(FUSED);
        if fused.is_file() {
            first = directory.fused(fused, first);
        }
        directory.spare = Mutex::new(Some(first));
        Ok(directory)
    }

    /// Changes to the fused graph, unless it fails or computes other vectors than the plain one.
    fn fused(&mut self, file: PathBuf, mut plain: OnnxEncoder) -> OnnxEncoder {
        let plain_file = std::mem::replace(&mut self.files.graph, file);
        let fused = self.session().map_err(onnx::Error::from);
        match fused.and_then(|fused| fused.compared(&mut plain)) {
            Ok(fused) => fused,
            Err(error) => {
                let cure = "run deploy/model/setup.sh, or remove the file";
                let file = self.files.graph.display();
                tracing::warn!(%file, %error, cure, "this graph is not used; model.onnx is");
                self.files.graph = plain_file;
                plain
            }
        }
    }

    /// Adds the measured spread and centre, if `spread.json` is in the directory.
    pub fn measured(mut self, path: &Path) -> Result<EncoderDirectory> {
        let Some(measured) = Measured::read(path, &self.name, self.dimensions)? else {
            if *self.name != *STANDARD {
                let cure = format!("keepsake model measure {}", path.display());
                tracing::warn!(
                    model = &*self.name,
                    cure,
                    "this encoder was not measured: \
                     its cosines are treated like those of all-MiniLM-L6-v2"
                );
            }
            return Ok(self);
        };
        self.spread = measured.spread();
        self.name = name_with(&self.name, &measured.centre).into();
        self.centre = measured.centre.into();
        Ok(self)
    }

    pub fn session(&self) -> Result<OnnxEncoder> {
        if let Some(spare) = self.spare.lock().take() {
            return Ok(OnnxEncoder {
                name: self.name.clone(),
                centre: self.centre.clone(),
                ..spare
            });
        }
        Ok(OnnxEncoder {
            name: self.name.clone(),
            tokenizer: self.files.tokenizer.clone(),
            dimensions: self.dimensions,
            centre: self.centre.clone(),
            graph: self.files.session(self.threads, &ENCODER).map_err(unusable)?,
        })
    }

    pub fn tokenizer(&self) -> Arc<Tokenizer> {
        self.files.tokenizer.tokenizer.clone()
    }

    /// Returns the vocabulary of a WordPiece model. Those of other models are not in order of
    /// frequency.
    pub fn vocabulary(&self) -> Option<Vec<String>> {
        let tokenizer = &self.files.tokenizer.tokenizer;
        let ModelWrapper::WordPiece(_) = tokenizer.get_model() else { return None };
        if let Ok(text) = fs::read_to_string(&self.vocabulary) {
            return Some(text.lines().map(str::to_owned).collect());
        }
        let mut ranked: Vec<(String, u32)> = tokenizer.get_vocab(false).into_iter().collect();
        ranked.sort_by_key(|(_, rank)| *rank);
        Some(ranked.into_iter().map(|(word, _)| word).collect())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn spread(&self) -> CosineScale {
        self.spread
    }

    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    #[cfg(test)]
    pub fn is_fused(&self) -> bool {
        self.files.graph.ends_with(FUSED)
    }
}

/// One session of an encoder. Owned by one thread.
pub struct OnnxEncoder {
    name: Arc<str>,
    tokenizer: LimitedTokenizer,
    dimensions: usize,
    centre: Arc<[f32]>,
    graph: Graph,
}

impl Embedder for OnnxEncoder {
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

impl OnnxEncoder {
    /// Encodes a text of maximum length and returns the number of dimensions.
    fn try_out(&mut self) -> Result<usize> {
        let vector = self.run(&"a ".repeat(self.tokenizer.tokens_max)).map_err(unusable)?;
        if vector.is_empty() || vector.iter().any(|x| !x.is_finite()) {
            return Err(unusable("its output is not a vector of finite numbers"));
        }
        Ok(vector.len())
    }

    /// Fails if the vectors are not those of `plain`.
    fn compared(mut self, plain: &mut OnnxEncoder) -> onnx::Result<OnnxEncoder> {
        for text in COMPARED {
            let (here, there) = (unit(self.run(text)?), unit(plain.run(text)?));
            let cosine: f32 = here.iter().zip(&there).map(|(here, there)| here * there).sum();
            if here.len() != there.len() || cosine < FUSED_COSINE_MIN {
                return Err(format!(
                    "its vector of {text:?} has a cosine of {cosine:.3} to that of model.onnx, \
                     and must have {FUSED_COSINE_MIN}"
                )
                .into());
            }
        }
        Ok(self)
    }

    fn run(&mut self, text: &str) -> onnx::Result<Vec<f32>> {
        let tokens = self.tokens(text)?;
        let length = tokens.len();
        let values = [
            ("input_ids", tokens),
            ("attention_mask", vec![1; length]),
            ("token_type_ids", vec![0; length]),
            ("position_ids", (0..).take(length).collect()),
        ];
        self.graph.run(1, &values, pooled)
    }

    fn tokens(&self, text: &str) -> onnx::Result<Vec<i64>> {
        let mut encoding = self.tokenizer.encode(text)?;
        onnx::truncate(&mut encoding, self.tokenizer.room(false).max(1));
        let encoding = self.tokenizer.complete(encoding, None)?;
        let tokens: Vec<i64> = encoding.get_ids().iter().map(|id| i64::from(*id)).collect();
        // A tokenizer without special tokens makes no token of an empty text, and a graph needs
        // one.
        Ok(if tokens.is_empty() { vec![0] } else { tokens })
    }
}

/// Returns an output `[1, dimensions]` unchanged, and averages an output `[1, tokens, dimensions]`
/// over the tokens ([mean pooling](https://arxiv.org/abs/1908.10084)). A batch of one text has no
/// padding to be left out.
fn pooled(shape: &[i64], values: &[f32]) -> onnx::Result<Vec<f32>> {
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
        _ => Err(format!(
            "the model's output is neither [1, dimensions] nor [1, tokens, dimensions] \
             but {shape:?}"
        )
        .into()),
    }
}

/// Names a model by the content of its graph and tokenizer, since both change the vectors.
fn name_of(model: &[u8], tokenizer: &[u8]) -> String {
    let content = Uuid::new_v5(&Uuid::new_v5(&Uuid::NAMESPACE_OID, model), tokenizer);
    format!("model.onnx-{}", &content.simple().to_string()[..12])
}

/// Adds the centre to the name of a model, since centred vectors cannot be compared with others.
/// The spread changes no vector.
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
    use super::super::options::ModelChoice;
    use super::*;

    fn options(directory: &Path, library: Option<&Path>) -> EncoderOptions {
        let model = ModelChoice::Directory(directory.to_owned());
        EncoderOptions { model, library: library.map(Path::to_owned), tokens_max: 16, threads: 1 }
    }

    fn check_refused(directory: &Path, library: Option<&Path>, expected: &str) {
        let fault = EncoderDirectory::open(directory, &options(directory, library))
            .err()
            .expect("must not open");
        let text = fault.to_string();
        assert!(
            text.contains(expected)
                && text.contains("run deploy/model/setup.sh")
                && text.contains("model-unusable"),
            "{text}"
        );
    }

    #[test]
    fn errors_name_the_missing_file_and_the_remedy() {
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
    fn a_model_or_tokenizer_with_other_content_has_another_name() {
        let name = name_of(b"model", b"tokenizer");
        assert_eq!(name.len(), "model.onnx-".len() + 12);
        assert_ne!(name, name_of(b"model 2", b"tokenizer"));
        assert_ne!(name, name_of(b"model", b"tokenizer 2"));
    }

    #[test]
    fn a_centre_changes_the_name_and_no_centre_keeps_it() {
        assert_eq!(name_with("tiny", &[]), "tiny");
        assert_ne!(name_with("tiny", &[0.5, 0.0]), name_with("tiny", &[0.0, 0.5]));
    }
}
