//! Lets the language model of `[llm]` write summaries and extract facts, in the place of the rules.
//!
//! A call blocks up to `llm.timeout_ms`, so neither ingest nor an answering thread asks. The compaction
//! worker asks through an [`Asking`], which has separate threads.

mod asker;
mod asking;
mod extracting;
mod model;
mod writing;

pub use asking::Asking;
pub use model::{Language, LanguageLimits};

use broker::clock::Clock;
use domain::fault::{Fault, Result, StopName};
use llm::ChatModel;
use metrics::Metrics;
use settings::Config;
use std::sync::Arc;
use std::time::Duration;

/// The reason why the rules write a summary that the profile leaves to the model.
pub const NO_MODEL: &str = "llm.url names no endpoint";

/// Questions asked of the language model at the same time. A model on the same machine answers one
/// after the other.
const THREADS: usize = 2;
/// Questions that may wait for an answer. Further ones wait for the next round of compaction.
const QUESTIONS_MAX: usize = 32;

/// Returns the worker's access to the model of the configuration; `None` if `llm.url` is empty.
pub fn asking(
    config: &Config,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> Result<Option<Asking>> {
    let llm = &config.llm;
    if !llm.is_on() {
        return Ok(None);
    }
    let model = ChatModel::new(llm::ChatOptions {
        url: llm.url.clone(),
        model: llm.model.clone(),
        key: llm.key().map_err(|why| Fault::stop(StopName::ConfigInvalid, why))?,
        timeout: Duration::from_millis(llm.timeout_ms),
        tokens_max: llm.tokens_max,
        ..llm::ChatOptions::default()
    });
    let limits = LanguageLimits { calls_per_day: llm.calls_per_day, ..LanguageLimits::default() };
    let language = Language::new(Box::new(model), limits, clock.clone(), metrics.clone());
    Asking::with_threads(Arc::new(language), THREADS, QUESTIONS_MAX).map(Some)
}
