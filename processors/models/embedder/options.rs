//! Which encoder is used, and how much of a text is read.

use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelChoice {
    /// A directory with `model.onnx`, `tokenizer.json` and, optionally, `vocab.txt` and
    /// `spread.json`.
    Directory(PathBuf),
    /// The stand-in without a model: texts are similar if they share words.
    Hash,
}

/// Word pieces read of a text; the rest is cut off. The default model was trained with 256, and a
/// candidate has at most 230.
pub const TOKENS_MAX: usize = 256;

#[derive(Clone, Debug)]
pub struct EncoderOptions {
    pub model: ModelChoice,
    /// The shared library of ONNX Runtime, if the library is not in the model's directory.
    pub library: Option<PathBuf>,
    /// Limits the tokens of a text, special tokens included. The rest of the text is not encoded.
    pub tokens_max: usize,
    /// Threads of one session, which encodes one text.
    pub threads: usize,
}
