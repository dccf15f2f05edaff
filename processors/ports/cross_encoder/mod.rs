//! Models that read two texts together: one says how well a text answers a question, one whether two statements contradict each other.
//! Traits, and what opens the real ones. They know nothing of memories and of time; who calls them decides what is worth reading.

mod judge;
mod onnx;
mod reranker;

pub use judge::{Judge, JudgeModel};
pub use reranker::{Reranker, RerankerModel};

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration option that names the model, for errors.
    pub option: &'static str,
    /// Holds `model.onnx` and `tokenizer.json`.
    pub model: PathBuf,
    /// ONNX Runtime's shared library, if it is not beside the model.
    pub library: Option<PathBuf>,
    /// Limits the tokens of a pair, special ones included; the longer of the two texts is cut.
    pub tokens_max: usize,
}

#[cfg(test)]
mod samples {
    use super::Options;
    use std::io::{self, Write};
    use std::path::Path;

    /// The options of a small model in tests/data; none, and a line that cannot be missed, where no runtime is at hand.
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
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder);
        Some(Options { option: "rerank.model", model, library, tokens_max })
    }
}
