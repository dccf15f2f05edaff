//! Assembles the processors of one process: for the service, the laboratory, the simulator and
//! tests, so that a new part of a processor is added here alone.

use crate::compact::{Compact, CompactOptions};
use crate::ingest::breaker::{self, DeadLetterBreaker};
use crate::ingest::event_rate::EventRate;
use crate::ingest::lanes::Lanes;
use crate::ingest::sizes::RecordSizes;
use crate::ingest::{self, Ingest};
use crate::ownership::ShardRegistry;
use crate::recall::answer::Answerer;
use crate::recall::inbox::Inbox;
use crate::recall::traced::Stages;
use crate::recall::{Recall, RecallOptions};
use broker::clock::SystemClock;
use deployment::{topic_settings, topics};
use domain::CosineScale;
use kafka::ClusterFacts;
use metrics::Metrics;
use models::embedder::pool::Pool;
use models::embedder::{Embedder, Model, TokenCounter};
use parking_lot::Mutex;
use profiles::Profiles;
use settings::Config;
use settings::quota::Quotas;
use spans::Tracer;
use std::sync::Arc;
use text::Rarity;

/// The parts that the processors share.
pub struct Assembly<'a> {
    pub config: &'a Config,
    pub profiles: &'a Profiles,
    pub shards: &'a Arc<ShardRegistry>,
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
        shards: &'a Arc<ShardRegistry>,
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
            options: ingest_options(self.config),
            profiles: self.profiles.clone(),
            shards: self.shards.clone(),
            encoder,
            tokens: self.tokens.clone(),
            rarity: words.map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words)),
            spread: self.spread,
            chatter: self.vocabulary.and_then(Model::chatter).cloned(),
            breaker: Mutex::new(DeadLetterBreaker::new(breaker_limits(&self.config.ingest))),
            rate: Mutex::new(EventRate::new(quotas(self.config).events_per_second)),
            lanes: Lanes::one(),
            metrics: self.metrics.clone(),
            tracer: self.tracer.clone(),
        }
    }

    /// Recall on one thread.
    pub fn recall(&self, encoder: Box<dyn Embedder>) -> Recall {
        Recall { inbox: self.inbox(), answerer: self.answerer(encoder) }
    }

    pub fn inbox(&self) -> Inbox {
        let options = RecallOptions::new(self.config);
        let clock = Arc::new(SystemClock);
        let mut inbox = Inbox::new(options, self.shards.clone(), self.metrics.clone(), clock);
        inbox.tracer = self.tracer.clone();
        inbox
    }

    pub fn answerer(&self, encoder: Box<dyn Embedder>) -> Answerer {
        Answerer {
            options: RecallOptions::new(self.config),
            profiles: self.profiles.clone(),
            shards: self.shards.clone(),
            encoder,
            spread: self.spread,
            tokens: self.tokens.clone(),
            metrics: self.metrics.clone(),
            clock: Arc::new(SystemClock),
            reranking: None,
            word_vectors: Arc::default(),
            stages: Stages::default(),
        }
    }

    pub fn compact(&self) -> Compact {
        let options = CompactOptions::new(self.config);
        let (profiles, shards) = (self.profiles.clone(), self.shards.clone());
        let mut compact = Compact::new(options, profiles, shards, self.metrics.clone());
        compact.chatter = self.vocabulary.and_then(Model::chatter).cloned();
        compact
    }
}

fn ingest_options(config: &Config) -> ingest::Options {
    ingest::Options {
        events: config.topics.events().into(),
        decisions: config.topics.decisions(),
        memories: config.topics.memories(),
        group: config.kafka.group_id.clone(),
        transactional_id: None,
        generation: config.kafka.generation,
        dead_letters: topics::dead_letters(config),
        decode: config.decoding(),
        with_text: config.decisions.text,
        candidates_max: ingest::CANDIDATES_MAX,
        tenants: None,
        limits: kernel::Limits::default(),
        skip: config.ingest.skipped().unwrap_or_default(),
        memories_max: quotas(config).memories_per_partition,
        erasures: ingest::erasures::Options {
            topic: config.topics.erasures(),
            places: ingest::erasures::places(config),
        },
        sizes: RecordSizes(topic_settings::record_sizes(config, &ClusterFacts::default())),
    }
}

fn breaker_limits(ingest: &settings::Ingest) -> breaker::Limits {
    breaker::Limits {
        in_a_row_max: ingest.dead_letters_in_a_row_max,
        share_max: ingest.dead_letters_share_max,
        window: breaker::WINDOW,
    }
}

/// The limits of tenants.
fn quotas(config: &Config) -> Quotas {
    config.quota.limits().unwrap_or_default()
}
