//! How well a text answers a question, by a model that reads both together: the trait and what opens the real one.
//! Knows nothing of memories and of time; who calls it decides what is worth reading and for how long.

mod onnx;

use crate::fault::Result;
use std::path::PathBuf;

/// Reads (question, text) pairs.
pub trait Reranker: Send {
    /// One finite number for each pair, in their order; a better answer has a greater one. Numbers of different questions compare too.
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>>;
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Holds `model.onnx` and `tokenizer.json`.
    pub model: PathBuf,
    /// ONNX Runtime's shared library, if it is not beside the model.
    pub library: Option<PathBuf>,
    /// Of a pair; what follows in the longer of the two is not read. Special tokens count.
    pub tokens_max: usize,
}

/// A model, checked by reading something with it. Opens sessions, one for each thread.
pub struct Model {
    directory: onnx::Directory,
}

impl Model {
    pub fn open(options: &Options) -> Result<Model> {
        Ok(Model { directory: onnx::Directory::open(options)? })
    }

    pub fn session(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(self.directory.session()?))
    }
}
