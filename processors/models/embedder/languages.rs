//! Encodes texts in English with one encoder, and all others with a second one whose vectors lie in
//! the same space: the directory `languages` inside the directory of the first.
//!
//! A question in one language finds what was said in another, and nothing changes in English. Both
//! encoders are separate exports; `deploy/model/mapping.py` makes the second one comparable.
//!
//! Limit: the sessions of a process share one session of the second encoder, which takes 120 MB.

use super::onnx::{EncoderDirectory, OnnxEncoder};
use super::options::{EncoderOptions, ModelChoice};
use super::vectors::Embedder;
use domain::fault::{Fault, Result, StopName};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// The directory inside that of the encoder.
const DIRECTORY: &str = "languages";

/// The second encoder, with the name of both.
#[derive(Clone)]
pub struct Languages {
    encoder: Arc<Mutex<OnnxEncoder>>,
    pair: Arc<str>,
}

impl Languages {
    /// Opens the second encoder, if there is one.
    pub fn open(
        path: &Path,
        first: &EncoderDirectory,
        options: &EncoderOptions,
    ) -> Result<Option<Languages>> {
        let path = path.join(DIRECTORY);
        if !path.is_dir() {
            return Ok(None);
        }
        let model = ModelChoice::Directory(path.clone());
        let second = EncoderDirectory::open(&path, &EncoderOptions { model, ..options.clone() })?;
        if second.dimensions() != first.dimensions() {
            return Err(Fault::stop(
                StopName::ModelUnusable,
                format!(
                    "{} makes vectors of {} dimensions, and the encoder around it {}: run \
                     deploy/model/setup.sh --multilingual, or remove the directory",
                    path.display(),
                    second.dimensions(),
                    first.dimensions()
                ),
            ));
        }
        let pair = format!("{}+{}", first.name(), second.name()).into();
        Ok(Some(Languages { encoder: Arc::new(Mutex::new(second.session()?)), pair }))
    }

    pub fn name(&self) -> &str {
        &self.pair
    }

    /// Joins a session of the first encoder with the second one.
    pub fn beside(&self, english: OnnxEncoder) -> EncoderPair {
        EncoderPair { english, others: self.clone() }
    }
}

pub struct EncoderPair {
    english: OnnxEncoder,
    others: Languages,
}

impl Embedder for EncoderPair {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        self.encode_part(text, text::is_english(text))
    }

    fn encode_part(&mut self, part: &str, is_english: bool) -> Result<Vec<f32>> {
        if is_english { self.english.encode(part) } else { self.others.encoder.lock().encode(part) }
    }

    fn dimensions(&self) -> usize {
        self.english.dimensions()
    }

    fn name(&self) -> &str {
        self.others.name()
    }
}
