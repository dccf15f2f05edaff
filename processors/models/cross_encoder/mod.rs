//! Runs models that read two texts together: a [`Reranker`] scores how well a text answers a
//! question, a [`ContradictionJudge`] whether two statements contradict each other.
//!
//! Both are one kind of model, opened by `onnx.rs`. No module here knows memories or time; the
//! caller decides which pairs are worth reading.

mod judge;
mod onnx;
mod reranker;

pub use judge::{ContradictionJudge, JudgeModel};
pub use reranker::{Reranker, RerankerModel};

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration option that names the model. Part of every error.
    pub option: &'static str,
    /// The directory with `model.onnx` and `tokenizer.json`.
    pub model: PathBuf,
    /// The shared library of ONNX Runtime, if the library is not in the model's directory.
    pub library: Option<PathBuf>,
    /// Limits the tokens of a pair, special tokens included. The longer text is cut.
    pub tokens_max: usize,
}

#[cfg(test)]
mod samples {
    use super::Options;
    use std::io::{self, Write};
    use std::path::Path;

    /// Returns the options of a small model in `tests/data`, or `None` with a visible message if no
    /// ONNX Runtime is available.
    pub fn small(folder: &str, tokens_max: usize) -> Option<Options> {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, {folder} is NOT tested"
            );
            return None;
        };
        let library =
            Some(Path::new(&directory).join("libonnxruntime.so")).filter(|file| file.is_file());
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(folder);
        Some(Options { option: "rerank.model", model, library, tokens_max })
    }
}
