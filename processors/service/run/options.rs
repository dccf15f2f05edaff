//! Maps the configuration to the options of each part. No other module reads [`Config`] for them.

use super::{replier, topic_settings, topics};
use crate::ingest::event_rate::EventRate;
use crate::{compact, ingest, recall};
use contract::reply::DeadLetters;
use domain::fault::{Fault, Result, StopName};
use kafka::ClusterFacts;
use models::cross_encoder;
use models::embedder::{self, ModelChoice, TOKENS_MAX};
use settings::quota::Quotas;
use settings::{Config, model_places};
use std::path::PathBuf;
use storage::restore::{self, Writers};
use storage::{index, shard, store};

/// Least size in bytes of a shard's cache of document ids, however many partitions share
/// `index.document_cache_bytes`: the ids of one user with 18,000 memories.
const DOCUMENT_CACHE_LEAST: usize = 1 << 19;

/// Word pieces read of a pair that is reranked; the rest is cut off. Half of the usual 512, since nearly
/// all memories are far shorter.
const RERANKED_TOKENS_MAX: usize = 256;
/// Word pieces read of a pair of statements that may contradict each other; the rest is cut off.
const JUDGED_TOKENS_MAX: usize = 128;

/// Options of the encoder. Fails if the configuration names none and none was found.
pub fn embedder(config: &Config) -> Result<embedder::Options> {
    let model = match config.embedder.model.as_str() {
        "hash" => ModelChoice::Hash,
        "" => return Err(no_model(config)),
        directory => ModelChoice::Directory(directory.into()),
    };
    Ok(embedder::Options { model, library: library(config), tokens_max: TOKENS_MAX, threads: 1 })
}

fn library(config: &Config) -> Option<PathBuf> {
    Some(config.embedder.library.as_str()).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn no_model(config: &Config) -> Fault {
    let places = model_places(&config.data.dir);
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let what = format!(
        "no encoder is in {}: the packages of keepsake-recall bring one; after cargo install run \
         deploy/model/setup.sh in the checkout and copy its .keepsake/model to {}, or name a \
         directory with --set embedder.model=DIR; --set embedder.model=hash needs none and compares \
         words only",
        looked.join(", "),
        config.data.dir.join("model").display()
    );
    Fault::stop(StopName::ModelUnusable, what)
}

/// Options of the model that reranks the best memories; `None` if `rerank.model` is empty.
pub fn reranker(config: &Config) -> Option<cross_encoder::Options> {
    cross_encoder(config, "rerank.model", &config.rerank.model, RERANKED_TOKENS_MAX)
}

/// Options of the model that finds contradictions; `None` if `conflict.model` is empty.
pub fn judge(config: &Config) -> Option<cross_encoder::Options> {
    cross_encoder(config, "conflict.model", &config.conflict.model, JUDGED_TOKENS_MAX)
}

fn cross_encoder(
    config: &Config,
    option: &'static str,
    model: &str,
    tokens_max: usize,
) -> Option<cross_encoder::Options> {
    let library = library(config);
    (!model.is_empty()).then(|| cross_encoder::Options {
        option,
        model: model.into(),
        library,
        tokens_max,
    })
}

pub fn judging(config: &Config) -> compact::ConflictOptions {
    compact::ConflictOptions { probability: config.conflict.probability, ..Default::default() }
}

pub fn rerank(config: &Config) -> recall::rerank::Options {
    let budget_ms = i64::try_from(config.rerank.budget_ms).unwrap_or(i64::MAX);
    recall::rerank::Options { top: recall::rerank::TOP, batch: recall::rerank::BATCH, budget_ms }
}

pub fn shard(config: &Config, partitions: i32) -> shard::Options {
    shard::Options {
        store: store::Options {
            cache_bytes: config.store.cache_bytes,
            recalled_bytes_max: config.store.recalled_bytes_max / partitions.max(1) as usize,
            ..store::Options::default()
        },
        index: index::Options {
            documents_bytes_max: (config.index.document_cache_bytes / partitions.max(1) as usize)
                .max(DOCUMENT_CACHE_LEAST),
            ..index::Options::default()
        },
        room: index::VectorBlocks::new(config.index.vector_cache_bytes),
        replay_max: config.store.replay_max,
    }
}

pub fn restore(config: &Config) -> restore::Options {
    restore::Options {
        batch_max: restore::BATCH_MAX,
        away_ms_max: config.topics.tombstones_ms / 2,
        until: None,
        writers: Writers {
            group: Some(config.kafka.group_id.as_str().into()),
            former_groups: config.kafka.former_group_ids.as_slice().into(),
        },
        accept_incomplete: config.store.accept_incomplete,
        take_over: None,
        tombstones_gone: None,
    }
}

fn dead_letters(config: &Config) -> DeadLetters {
    DeadLetters {
        topic: config.topics.dead_letters(),
        bytes_max: topics::dead_letter_bytes_max(config) - topics::BATCH_BYTES,
    }
}

pub fn ingest(config: &Config) -> ingest::Options {
    ingest::Options {
        events: config.topics.events().into(),
        decisions: config.topics.decisions(),
        memories: config.topics.memories(),
        group: config.kafka.group_id.clone(),
        transactional_id: None,
        generation: config.kafka.generation,
        dead_letters: dead_letters(config),
        decode: config.decoding(),
        with_text: config.decisions.text,
        candidates_max: ingest::CANDIDATES_MAX,
        copied_bytes_max: ingest::COPIED_BYTES_MAX,
        limits: kernel::Limits::default(),
        skip: config.ingest.skipped().unwrap_or_default(),
        memories_max: quotas(config).memories_per_partition,
        erasures: ingest::erasures::Options {
            topic: config.topics.erasures(),
            places: ingest::erasures::places(config),
        },
        sizes: topic_settings::record_sizes(config, &ClusterFacts::default()),
    }
}

/// The limits of tenants.
fn quotas(config: &Config) -> Quotas {
    config.quota.limits().unwrap_or_default()
}

pub fn event_rate(config: &Config) -> EventRate {
    EventRate::new(quotas(config).events_per_second)
}

pub fn breaker(config: &Config) -> ingest::breaker::Limits {
    ingest::breaker::Limits {
        in_a_row_max: config.ingest.dead_letters_in_a_row_max,
        share_max: config.ingest.dead_letters_share_max,
        window: ingest::breaker::WINDOW,
    }
}

pub fn recall(config: &Config) -> recall::Options {
    recall::Options {
        recalls: config.topics.recalls(),
        generation: config.kafka.generation,
        dead_letters: dead_letters(config),
        decode: config.decoding(),
        candidates: config.recall.candidates,
        duplicates_ms: recall::DUPLICATES_MS,
        min_offset_ms: config.recall.min_offset_ms,
        waiting_max: config.recall.waiting_max,
        rate: quotas(config).recalls_per_second,
        silence_ms: recall::SILENCE_MS_MAX.min(config.kafka.session_ms()),
        returned: recall::returned::Options {
            events: config.topics.events(),
            marks: config.signing_key(),
        },
    }
}

pub fn replier(config: &Config, when_missing: replier::WhenMissing) -> replier::Options {
    let topics = &config.topics;
    replier::Options {
        replies: topics.replies(),
        not_replies: vec![topics.events(), topics.recalls(), topics.dead_letters()],
        bytes_max: config.recall.reply_bytes_max,
        when_missing,
    }
}

pub fn compact(config: &Config) -> compact::Options {
    compact::Options {
        events: config.topics.events(),
        message_bytes_max: config.limits.message_bytes_max,
        marks: config.signing_key(),
        proposals_max: compact::PROPOSALS_MAX,
        budget: compact::BUDGET,
        retain: config.retain.rules().expect("the configuration was checked"),
    }
}

#[cfg(test)]
mod tests {
    use settings::Layers;

    /// Otherwise two processes would answer for one shard.
    #[test]
    fn recall_stops_answering_when_the_session_of_its_process_is_over() {
        let session = "KEEPSAKE__KAFKA__LIBRDKAFKA__SESSION_TIMEOUT_MS";
        for (set, expected) in [
            (vec![], 6000),
            (vec![(session, "3000")], 3000),
            (vec![(session, "60000")], 45_000),
            (vec![("KEEPSAKE__KAFKA__STATIC_MEMBERSHIP", "true")], 45_000),
            (vec![("KEEPSAKE__KAFKA__LIBRDKAFKA__GROUP_INSTANCE_ID", "one")], 45_000),
        ] {
            let set = set
                .iter()
                .map(|(name, value): &(&str, &str)| (name.to_string(), value.to_string()));
            let layers = Layers::load(None, set.clone()).expect("every option exists");
            let config = layers.checked().expect("every value is valid");
            assert_eq!(
                super::recall(&config).silence_ms,
                expected,
                "{:?}",
                set.collect::<Vec<_>>()
            );
        }
    }
}
