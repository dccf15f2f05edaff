//! Opens the small models of `tests/data`.

use super::onnx::CrossEncoderOptions;
use std::io::{self, Write};
use std::path::Path;

/// Returns the options of a small model in `tests/data`, or `None` with a visible message if no
/// ONNX Runtime is available.
pub fn small(folder: &str, tokens_max: usize) -> Option<CrossEncoderOptions> {
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
    Some(CrossEncoderOptions { option: "rerank.model", model, library, tokens_max })
}
