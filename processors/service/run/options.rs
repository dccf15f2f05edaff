//! Maps the configuration to the options of each part. No other module reads [`Config`] for them.

use super::{http, replier, reply_topics, topic_settings, topics};
use crate::ingest::event_rate::EventRate;
use crate::{compact, ingest, recall};
use domain::fault::{Fault, Result, StopName};
use kafka::ClusterFacts;
use log::reply::DeadLetters;
use memory::straggler::ForgetLimits;
use models::cross_encoder;
use models::embedder::{self, ModelChoice};
use models::language;
use settings::quota::Quotas;
use settings::{Config, model_places};
use std::path::PathBuf;
use std::time::Duration;
use storage::restore::{self, Writers};
use storage::{index, shard, store};

/// Least size in bytes of a shard's cache of document ids, however many partitions share
/// `index.document_cache_bytes`: the ids of one user with 18,000 memories.
const DOCUMENT_CACHE_LEAST: usize = 1 << 19;

/// Options of the encoder. Fails if the configuration names none and none was found.
pub fn embedder(config: &Config) -> Result<embedder::Options> {
    let model = match config.embedder.model.as_str() {
        "hash" => ModelChoice::Hash,
        "" => return Err(no_model(config)),
        directory => ModelChoice::Directory(directory.into()),
    };
    let (library, tokens_max) = (library(config), config.embedder.tokens_max);
    Ok(embedder::Options { model, library, tokens_max, threads: 1 })
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
    cross_encoder(config, "rerank.model", &config.rerank.model, config.rerank.tokens_max)
}

/// Options of the model that finds contradictions; `None` if `conflict.model` is empty.
pub fn judge(config: &Config) -> Option<cross_encoder::Options> {
    cross_encoder(config, "conflict.model", &config.conflict.model, config.conflict.tokens_max)
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
    let conflict = &config.conflict;
    compact::ConflictOptions {
        probability: conflict.probability,
        cosine: conflict.cosine,
        earlier_max: conflict.earlier_max,
        days: conflict.days,
        budget_ms: i64::try_from(conflict.budget_ms).unwrap_or(i64::MAX),
        compared_max: conflict.compared_max,
    }
}

/// Options of the language model; `None` if `llm.url` is empty.
pub fn language_model(config: &Config) -> Result<Option<language::Options>> {
    let llm = &config.llm;
    if !llm.is_on() {
        return Ok(None);
    }
    Ok(Some(language::Options {
        url: llm.url.clone(),
        model: llm.model.clone(),
        key: llm.key().map_err(|why| Fault::stop(StopName::ConfigInvalid, why))?,
        timeout: Duration::from_millis(llm.timeout_ms),
        tokens_max: llm.tokens_max,
        attempts: llm.attempts,
        back_off: Duration::from_millis(llm.back_off_ms),
        answer_bytes_max: llm.answer_bytes_max,
    }))
}

pub fn language(config: &Config) -> crate::language::Options {
    let llm = &config.llm;
    crate::language::Options {
        calls_per_day: llm.calls_per_day,
        question_bytes_max: llm.question_bytes_max,
        breaker_failures: llm.breaker_failures,
        breaker_ms: llm.breaker_ms,
    }
}

pub fn rerank(config: &Config) -> recall::rerank::Options {
    let budget_ms = i64::try_from(config.rerank.budget_ms).unwrap_or(i64::MAX);
    recall::rerank::Options { top: config.rerank.top, batch: config.rerank.batch, budget_ms }
}

pub fn shard(config: &Config, partitions: i32) -> shard::Options {
    shard::Options {
        store: store::Options {
            cache_bytes: config.store.cache_bytes,
            tails_max: config.store.tails_max,
            recalled_bytes_max: config.store.recalled_bytes_max / partitions.max(1) as usize,
            flush_every_ms: Some(config.store.flush_ms),
        },
        index: index::Options {
            writer_bytes: config.index.writer_bytes,
            tail_max: config.index.tail_max,
            documents_bytes_max: (config.index.document_cache_bytes / partitions.max(1) as usize)
                .max(DOCUMENT_CACHE_LEAST),
        },
        room: index::VectorBlocks::new(config.index.vector_cache_bytes),
        decisions_recent_max: config.limits.decisions_recent_max,
        replay_max: config.store.replay_max,
    }
}

pub fn restore(config: &Config) -> restore::Options {
    restore::Options {
        batch_max: config.store.restore_batch_max,
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
        candidates_max: config.limits.candidates_max,
        copied_bytes_max: config.ingest.copied_bytes_max,
        forget_query_max: config.limits.forget_query_max,
        forget_memories_max: config.limits.forget_memories_max,
        history_max: config.limits.history_max,
        skip: config.ingest.skipped().unwrap_or_default(),
        forget: ForgetLimits {
            remember_ms: i64::try_from(config.forget.remember_ms).unwrap_or(i64::MAX),
            remembered_max: config.forget.remembered_max,
        },
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
        window: config.ingest.dead_letters_window,
    }
}

pub fn recall(config: &Config) -> recall::Options {
    recall::Options {
        recalls: config.topics.recalls(),
        generation: config.kafka.generation,
        dead_letters: dead_letters(config),
        decode: config.decoding(),
        candidates: config.recall.candidates,
        terms_max: config.recall.terms_max,
        duplicates_max: config.recall.duplicates_max,
        duplicates_ms: config.recall.duplicates_ms,
        token_budget_max: config.recall.token_budget_max,
        min_offset_ms: config.recall.min_offset_ms,
        waiting_max: config.recall.waiting_max,
        waiting_user_max: config.recall.waiting_user_max,
        waiting_tenant_max: config.recall.waiting_tenant_max,
        ready_max: config.recall.ready_max,
        ready_bytes_max: config.recall.ready_bytes_max,
        rate: quotas(config).recalls_per_second,
        silence_ms: config.ingest.silence_ms.min(config.kafka.session_ms()),
        returned: recall::returned::Options {
            events: config.topics.events(),
            marks: config.signing_key(),
            wait_ms: config.recall.returned_ms,
            memories_max: config.recall.returned_max,
        },
        word_vectors: recall::word_vectors::Options {
            words_max: config.recall.words_encoded_max,
            kept_max: config.recall.word_vectors_max,
        },
    }
}

pub fn reply_topics(config: &Config) -> reply_topics::Options {
    reply_topics::Options {
        known_max: config.topics.reply_known_max,
        known_ms: config.topics.reply_known_ms,
    }
}

pub fn replier(config: &Config, when_missing: replier::WhenMissing) -> replier::Options {
    let topics = &config.topics;
    replier::Options {
        replies: topics.replies(),
        not_replies: vec![topics.events(), topics.recalls(), topics.dead_letters()],
        bytes_max: config.recall.reply_bytes_max,
        waiting_bytes_max: topics.reply_waiting_bytes_max,
        when_missing,
    }
}

pub fn http(config: &Config) -> http::Options {
    http::Options {
        listen: config.http.listen.clone(),
        connections_max: config.http.connections_max,
        connection_max: Duration::from_millis(config.http.connection_ms_max),
    }
}

pub fn compact(config: &Config) -> compact::Options {
    compact::Options {
        events: config.topics.events(),
        message_bytes_max: config.limits.message_bytes_max,
        marks: config.signing_key(),
        users_max: config.compact.users_max,
        proposals_max: config.compact.proposals_max,
        budget: Duration::from_millis(config.compact.budget_ms),
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
            (vec![("KEEPSAKE__INGEST__SILENCE_MS", "500")], 500),
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
