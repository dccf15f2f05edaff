//! Assembles the processors of one process: for the service, the laboratory, the simulator and
//! tests, so that a new part of a processor is added here alone.

use crate::compact::Compact;
use crate::ingest::Ingest;
use crate::ingest::breaker::DeadLetterBreaker;
use crate::metrics::Metrics;
use crate::ownership::Shards;
use crate::profile::Profiles;
use crate::recall::Recall;
use crate::run::options;
use domain::CosineScale;
use models::embedder::pool::Pool;
use models::embedder::{Embedder, Model, TokenCounter};
use settings::Config;
use spans::Tracer;
use std::sync::Arc;
use text::Rarity;

/// The parts that the processors share.
pub struct Assembly<'a> {
    pub config: &'a Config,
    pub profiles: &'a Profiles,
    pub shards: &'a Arc<Shards>,
    pub metrics: &'a Arc<Metrics>,
    pub tokens: TokenCounter,
    /// The encoder whose vocabulary gives the rarity of words. Without one, all are equally rare.
    pub vocabulary: Option<&'a Model>,
    /// Puts the encoder's cosines on the standard scale.
    pub spread: CosineScale,
    pub tracer: Tracer,
}

impl<'a> Assembly<'a> {
    /// Estimates tokens, takes all words for equally rare and cosines as they are, and traces
    /// nothing.
    pub fn new(
        config: &'a Config,
        profiles: &'a Profiles,
        shards: &'a Arc<Shards>,
        metrics: &'a Arc<Metrics>,
    ) -> Assembly<'a> {
        Assembly {
            config,
            profiles,
            shards,
            metrics,
            tokens: TokenCounter::estimate(),
            vocabulary: None,
            spread: CosineScale::STANDARD,
            tracer: Tracer::off(),
        }
    }

    /// Counts tokens, weighs words and scales cosines as this encoder does.
    pub fn with_model(self, model: &'a Model) -> Assembly<'a> {
        Assembly { tokens: model.tokens(), vocabulary: Some(model), spread: model.spread(), ..self }
    }

    pub fn ingest(&self, encoder: Pool) -> Ingest {
        let words = self.vocabulary.and_then(Model::vocabulary);
        Ingest {
            options: options::ingest(self.config),
            profiles: self.profiles.clone(),
            shards: self.shards.clone(),
            encoder,
            tokens: self.tokens.clone(),
            rarity: words.map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words)),
            spread: self.spread,
            breaker: DeadLetterBreaker::new(options::breaker(self.config)),
            rate: options::event_rate(self.config),
            metrics: self.metrics.clone(),
            tracer: self.tracer.clone(),
        }
    }

    pub fn recall(&self, encoder: Box<dyn Embedder>) -> Recall {
        Recall::new(
            options::recall(self.config),
            self.profiles.clone(),
            self.shards.clone(),
            encoder,
            self.tokens.clone(),
            self.metrics.clone(),
        )
        .with_spread(self.spread)
        .with_tracer(self.tracer.clone())
    }

    pub fn compact(&self) -> Compact {
        let options = options::compact(self.config);
        Compact::new(options, self.profiles.clone(), self.shards.clone(), self.metrics.clone())
    }
}
