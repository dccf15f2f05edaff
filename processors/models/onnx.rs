//! Opens and runs models in ONNX Runtime: the shared library, the process's one environment, a
//! session for a graph, and the tokenizer of a model.
//!
//! The embedder and the cross-encoder share this module. Each describes its graph by a
//! [`Signature`], turns texts into tokens by a [`LimitedTokenizer`], and feeds a [`Graph`] with
//! named tensors. They decide on the meaning of the output and on the fault of a failure. `ort` is
//! used in no other module.

use ort::environment::Environment;
use ort::ep::CPU;
use ort::session::Session;
use ort::value::TensorRef;
use parking_lot::Mutex;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizers::{Encoding, PostProcessor, Tokenizer, TruncationDirection};

/// Limit: bytes of a text that are tokenized, for each token that counts. Prose has about 5 bytes a
/// token. Texts with more than 64 (keys, hashes, long runs of blanks) would take milliseconds to
/// tokenize, for tokens that are thrown away.
const BYTES_A_TOKEN_MAX: usize = 64;

pub type Result<T> = std::result::Result<T, Error>;
/// An error of the runtime, the tokenizer or the disk. The caller adds the fault and the remedy.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The files of a model, checked to exist: `model.onnx` and `tokenizer.json` in one directory.
pub struct ModelFiles {
    pub graph: PathBuf,
    pub tokenizer: LimitedTokenizer,
    environment: Environment,
}

impl ModelFiles {
    pub fn open(directory: &Path, library: Option<&Path>, tokens_max: usize) -> Result<ModelFiles> {
        let tokenizer_file = directory.join("tokenizer.json");
        let tokenizer_bytes = read(&tokenizer_file)?;
        let graph = directory.join("model.onnx");
        if !graph.is_file() {
            return Err(cannot("read", &graph, "there is no such file"));
        }
        let tokenizer = LimitedTokenizer::parse(&tokenizer_bytes, tokens_max)
            .map_err(|error| cannot("read", &tokenizer_file, error))?;
        Ok(ModelFiles { graph, tokenizer, environment: environment(directory, library)? })
    }

    /// Opens a session, which takes about 0.1 s. Each thread needs its own.
    pub fn session(&self, threads: usize, signature: &Signature) -> Result<Graph> {
        let session = session(&self.environment, &self.graph, threads)
            .map_err(|error| cannot("open", &self.graph, error))?;
        Graph::of(session, signature)
    }
}

/// The inputs that a caller can feed, and the output that is read.
pub struct Signature {
    /// For errors, such as "a text encoder".
    pub model: &'static str,
    pub inputs: &'static [&'static str],
    /// A graph without an output of this name gives its first one.
    pub output: &'static str,
}

/// A session with its graph. Owned by one thread.
pub struct Graph {
    session: Session,
    /// The inputs that the graph has, among those of the signature.
    inputs: Vec<&'static str>,
    output: usize,
}

impl Graph {
    fn of(session: Session, signature: &Signature) -> Result<Graph> {
        let mut inputs = Vec::new();
        for input in session.inputs() {
            let known = signature.inputs.iter().find(|name| **name == input.name());
            inputs.push(*known.ok_or_else(|| {
                format!(
                    "the model is not {}: it wants an input named {}",
                    signature.model,
                    input.name()
                )
            })?);
        }
        let output = session.outputs().iter().position(|output| output.name() == signature.output);
        Ok(Graph { session, inputs, output: output.unwrap_or(0) })
    }

    /// Runs the graph on a batch of `rows` texts of equal length. `values` holds the tensors by
    /// name; those that the graph has no input for are ignored. `read` gets the shape and the
    /// numbers of the output.
    pub fn run<T>(
        &mut self,
        rows: usize,
        values: &[(&str, Vec<i64>)],
        read: impl FnOnce(&[i64], &[f32]) -> Result<T>,
    ) -> Result<T> {
        let mut fed = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let (_, values) = values
                .iter()
                .find(|(name, _)| name == input)
                .ok_or_else(|| format!("there are no values for the input {input}"))?;
            let shape = [rows, values.len() / rows];
            fed.push((*input, TensorRef::from_array_view((shape, values.as_slice()))?));
        }
        let outputs = self.session.run(fed)?;
        let (shape, numbers) = outputs[self.output].try_extract_tensor::<f32>()?;
        read(shape, numbers)
    }
}

fn session(environment: &Environment, file: &Path, threads: usize) -> ort::Result<Session> {
    Session::builder(environment)?
        // Texts differ in length: an arena or a memory pattern would keep a block for every length
        // that occurred.
        .with_execution_providers([CPU::default().with_arena_allocator(false).build()])?
        .with_memory_pattern(false)?
        .with_intra_threads(threads.max(1))?
        .with_inter_threads(1)?
        // A waiting thread that spins would take a core from the other sessions.
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        // Add and LayerNormalization fused into one node take three times as long as apart: with
        // the fusion, a text of 32 tokens takes 3.1 ms instead of 2.5. Vectors differ by 1e-7, so
        // the name of a model does not depend on this setting.
        .with_disabled_optimizers("SkipLayerNormFusion")?
        .commit_from_file(file)
}

/// A tokenizer that cuts every text to a number of tokens, special tokens included.
#[derive(Clone)]
pub struct LimitedTokenizer {
    pub tokenizer: Arc<Tokenizer>,
    pub tokens_max: usize,
}

impl LimitedTokenizer {
    /// Switches off the padding and truncation of the file. The tokenizer that ships with
    /// all-MiniLM-L6-v2 pads or cuts every text to 128 tokens: 10 ms for a text that needs one.
    fn parse(bytes: &[u8], tokens_max: usize) -> Result<LimitedTokenizer> {
        let mut tokenizer = Tokenizer::from_bytes(bytes)?;
        tokenizer.with_padding(None).with_truncation(None)?;
        Ok(LimitedTokenizer { tokenizer: Arc::new(tokenizer), tokens_max })
    }

    /// Tokens that a text, or a pair of texts, may have besides the special tokens.
    pub fn room(&self, is_pair: bool) -> usize {
        let special =
            self.tokenizer.get_post_processor().map_or(0, |post| post.added_tokens(is_pair));
        self.tokens_max.saturating_sub(special)
    }

    /// Tokenizes the beginning of a text, without special tokens.
    pub fn encode(&self, text: &str) -> Result<Encoding> {
        let bytes_max = self.tokens_max.saturating_mul(BYTES_A_TOKEN_MAX);
        self.tokenizer.encode_fast(&text[..text.floor_char_boundary(bytes_max)], false)
    }

    /// Adds the special tokens. Order matters: the texts are cut before, so that none of them is
    /// lost.
    pub fn complete(&self, text: Encoding, second: Option<Encoding>) -> Result<Encoding> {
        self.tokenizer.post_process(text, second, true)
    }
}

/// Cuts a text to its first `tokens` tokens.
pub fn truncate(text: &mut Encoding, tokens: usize) {
    text.truncate(tokens, 0, TruncationDirection::Right);
    text.take_overflowing();
}

/// Never dropped, because a process can create the environment of ONNX Runtime only once.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// Returns the environment of this process. The first call loads the library: the named one, that
/// of `ORT_DYLIB_PATH`, or one found beside the model or in a system directory.
fn environment(directory: &Path, named: Option<&Path>) -> Result<Environment> {
    let mut created = ENVIRONMENT.lock();
    // A second model needs no library: the first one's is loaded, and a process has only one.
    if let Some(environment) = &*created {
        return Ok(environment.clone());
    }
    let library = library(directory, named)?;
    let builder = ort::init_from(&library).map_err(|error| cannot("load", &library, error))?;
    let environment =
        builder.with_telemetry(false).build().map_err(|error| cannot("start", &library, error))?;
    Ok(created.insert(environment).clone())
}

/// Finds the library before loading. Invariant: a named library that is missing is an error and is
/// not replaced by another that is found.
fn library(directory: &Path, named: Option<&Path>) -> Result<PathBuf> {
    let named =
        named.map(Path::to_owned).or_else(|| std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from));
    if let Some(path) = named {
        let path = fs::canonicalize(&path).map_err(|error| cannot("find", &path, error))?;
        return if path.is_file() { Ok(path) } else { Err(cannot("load", &path, "not a file")) };
    }
    let file =
        format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let system = [
        "/usr/local/lib",
        "/usr/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/opt/onnxruntime/lib",
    ];
    let found = std::iter::once(directory)
        .chain(system.iter().map(Path::new))
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file());
    let path = found.ok_or_else(|| {
        let why = "and it is neither in a system directory nor in ORT_DYLIB_PATH";
        cannot("find", &directory.join(&file), why)
    })?;
    fs::canonicalize(&path).map_err(|error| cannot("find", &path, error))
}

pub fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|error| cannot("read", file, error))
}

pub fn cannot(verb: &str, path: &Path, error: impl std::fmt::Display) -> Error {
    format!("cannot {verb} {}: {error}", path.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_that_is_missing_is_not_replaced_by_another() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing.so");
        let fault = library(directory.path(), Some(&missing)).expect_err("missing");
        assert!(fault.to_string().contains("missing.so"));
        let beside = directory.path().join(format!(
            "{}onnxruntime{}",
            std::env::consts::DLL_PREFIX,
            std::env::consts::DLL_SUFFIX
        ));
        fs::write(&beside, "not a library").unwrap();
        assert!(library(directory.path(), Some(&missing)).is_err());
    }
}
