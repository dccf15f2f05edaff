//! ONNX Runtime: the library, its one environment, a session for a graph; and the tokenizer that belongs to one. What a graph is for is
//! known by the ports that use this, and so is what to do when it cannot be had.

use ort::environment::Environment;
use ort::ep::CPU;
use ort::session::Session;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tokenizers::Tokenizer;

/// Limit: only so much of a text is looked at for each token that counts. Prose has about 5 bytes a token; what has more than 64
/// (keys, hashes, long runs of blanks) would be tokenized for milliseconds and then thrown away.
const BYTES_A_TOKEN_MAX: usize = 64;

/// Whatever the runtime, the tokenizer and the disk say, before it is known what it was about.
pub type Told<T> = std::result::Result<T, Trouble>;
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;

pub fn session(environment: &Environment, file: &Path, threads: usize) -> Told<Session> {
    session_of(environment, file, threads).map_err(|error| cannot("open", file, error))
}

fn session_of(environment: &Environment, file: &Path, threads: usize) -> ort::Result<Session> {
    Session::builder(environment)?
        // Texts differ in length: an arena or a memory pattern keeps a block for every length it has seen.
        .with_execution_providers([CPU::default().with_arena_allocator(false).build()])?
        .with_memory_pattern(false)?
        .with_intra_threads(threads.max(1))?
        .with_inter_threads(1)?
        // A waiting thread that spins would take a core from the other sessions.
        .with_intra_op_spinning(false)?
        .with_inter_op_spinning(false)?
        // Add and LayerNormalization fused into one node take three times as long as apart: a text of 32 tokens 3.1 ms, not 2.5.
        // Vectors differ by 1e-7, so this is not in a model's name.
        .with_disabled_optimizers("SkipLayerNormFusion")?
        .commit_from_file(file)
}

/// The shipped one pads every text to 128 tokens and cuts it there: 10 ms for a text that needs one.
pub fn tokenizer(bytes: &[u8]) -> Told<Tokenizer> {
    let mut tokenizer = Tokenizer::from_bytes(bytes)?;
    tokenizer.with_padding(None).with_truncation(None)?;
    Ok(tokenizer)
}

/// As much of a text as so many tokens can come from.
pub fn readable(text: &str, tokens: usize) -> &str {
    &text[..text.floor_char_boundary(tokens.saturating_mul(BYTES_A_TOKEN_MAX))]
}

/// ONNX Runtime has one environment in a process, and once dropped there is no second one: so it is kept for good.
static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);

/// With the library that is named, that the process's environment names, or that lies beside the model.
pub fn environment(directory: &Path, named: Option<&Path>) -> Told<Environment> {
    let mut kept = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    // A second model needs no library beside it: the first one's is loaded, and one process has but one.
    if let Some(environment) = &*kept {
        return Ok(environment.clone());
    }
    let library = library(directory, named)?;
    let builder = ort::init_from(&library).map_err(|error| cannot("load", &library, error))?;
    let environment =
        builder.with_telemetry(false).build().map_err(|error| cannot("start", &library, error))?;
    Ok(kept.insert(environment).clone())
}

/// Looked for before it is loaded, because a missing one that is named must not be replaced by another that is found.
fn library(directory: &Path, named: Option<&Path>) -> Told<PathBuf> {
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
        cannot("find", &directory.join(&file), "nor is it in a system folder or in ORT_DYLIB_PATH")
    })?;
    fs::canonicalize(&path).map_err(|error| cannot("find", &path, error))
}

pub fn read(file: &Path) -> Told<Vec<u8>> {
    fs::read(file).map_err(|error| cannot("read", file, error))
}

pub fn cannot(verb: &str, path: &Path, error: impl std::fmt::Display) -> Trouble {
    format!("cannot {verb} {}: {error}", path.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_named_but_missing_is_not_replaced_by_another() {
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
