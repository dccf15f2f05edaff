//! Checks values that types alone cannot check: ranges, and options that depend on each other.

use super::{Config, DUPLICATE_NEIGHBOURS};
use domain::KEY_BYTES_MIN;
use std::net::SocketAddr;

const PARTITIONS_MAX: i32 = 1024;
/// "memories.g99" is as long as "dead-letters".
const GENERATION_MAX: u32 = 99;
/// Kafka's names have at most 249 characters, and "dead-letters" has 12.
const PREFIX_BYTES_MAX: usize = 237;
/// Least memory in bytes that tantivy accepts for a writer thread.
const WRITER_BYTES_MIN: usize = 15_000_000;

/// An hour: a shorter time is taken for a mistake in the unit, and would delete everything.
const EVENTS_KEEP_MS_MIN: i64 = 3_600_000;

/// Returns the first violated rule, with the path of the option.
pub fn check(config: &Config) -> Result<(), String> {
    let positive = [
        ("ingest.batch_records_max", config.ingest.batch_records_max),
        ("ingest.batch_bytes_max", config.ingest.batch_bytes_max),
        ("ingest.copied_bytes_max", config.ingest.copied_bytes_max),
        ("ingest.batch_work_ms", config.ingest.batch_work_ms as usize),
        ("ingest.aborts_max", config.ingest.aborts_max as usize),
        ("ingest.dead_letters_window", config.ingest.dead_letters_window),
        ("recall.limit", config.recall.limit),
        ("recall.limit_max", config.recall.limit_max),
        ("recall.token_budget", config.recall.token_budget),
        ("recall.list_limit", config.recall.list_limit),
        ("recall.reply_bytes_max", config.recall.reply_bytes_max),
        ("topics.reply_known_max", config.topics.reply_known_max),
        ("topics.reply_waiting_bytes_max", config.topics.reply_waiting_bytes_max),
        ("recall.candidates", config.recall.candidates),
        ("recall.queries_max", config.recall.queries_max),
        ("recall.terms_max", config.recall.terms_max),
        ("recall.kinds_max", config.recall.kinds_max),
        ("recall.conditions_max", config.recall.conditions_max),
        ("recall.conditions_depth_max", config.recall.conditions_depth_max),
        ("recall.waiting_max", config.recall.waiting_max),
        ("recall.waiting_user_max", config.recall.waiting_user_max),
        ("recall.waiting_tenant_max", config.recall.waiting_tenant_max),
        ("recall.ready_max", config.recall.ready_max),
        ("recall.ready_bytes_max", config.recall.ready_bytes_max),
        ("limits.feedback_max", config.limits.feedback_max),
        ("rerank.top", config.rerank.top),
        ("rerank.batch", config.rerank.batch),
        ("rerank.tokens_max", config.rerank.tokens_max),
        ("rerank.budget_ms", config.rerank.budget_ms as usize),
        ("store.restore_threads", config.store.restore_threads),
        ("store.restore_batch_max", config.store.restore_batch_max),
        ("store.replay_max", config.store.replay_max),
        ("store.standby_ms", config.store.standby_ms as usize),
        ("index.settle_max", config.index.settle_max),
        ("index.tail_max", config.index.tail_max),
        ("embedder.tokens_max", config.embedder.tokens_max),
        ("embedder.queue", config.embedder.queue),
        ("http.connections_max", config.http.connections_max),
        ("gateway.connections_max", config.gateway.connections_max),
        ("gateway.in_flight_max", config.gateway.in_flight_max),
        ("gateway.body_bytes_max", config.gateway.body_bytes_max),
        ("gateway.body_ms", config.gateway.body_ms as usize),
        ("gateway.reply_ms", config.gateway.reply_ms as usize),
        ("gateway.idle_ms", config.gateway.idle_ms as usize),
        ("gateway.remembered_max", config.gateway.remembered_max),
        ("gateway.listed_max", config.gateway.listed_max),
        ("gateway.streams_max", config.gateway.streams_max),
        ("gateway.page_records_max", config.gateway.page_records_max),
        ("gateway.followed_max", config.gateway.followed_max),
        ("gateway.redriven_max", config.gateway.redriven_max),
        ("gateway.import_bytes_max", config.gateway.import_bytes_max),
        ("metrics.lag_ms", config.metrics.lag_ms as usize),
        ("http.connection_ms_max", config.http.connection_ms_max as usize),
        ("limits.forget_memories_max", config.limits.forget_memories_max),
        ("limits.message_bytes_max", config.limits.message_bytes_max),
        ("limits.headers_bytes_max", config.limits.headers_bytes_max),
        ("limits.content_bytes_max", config.limits.content_bytes_max),
        ("limits.candidates_max", config.limits.candidates_max),
        ("forget.within_ms", config.forget.within_ms as usize),
        ("forget.remembered_max", config.forget.remembered_max),
        ("compact.users_max", config.compact.users_max),
        ("compact.proposals_max", config.compact.proposals_max),
        ("conflict.earlier_max", config.conflict.earlier_max),
        ("conflict.tokens_max", config.conflict.tokens_max),
        ("conflict.budget_ms", config.conflict.budget_ms as usize),
        ("conflict.compared_max", config.conflict.compared_max),
        ("llm.timeout_ms", config.llm.timeout_ms as usize),
        ("llm.tokens_max", config.llm.tokens_max as usize),
        ("llm.attempts", config.llm.attempts as usize),
        ("llm.answer_bytes_max", config.llm.answer_bytes_max as usize),
        ("llm.question_bytes_max", config.llm.question_bytes_max),
        ("llm.concurrency", config.llm.concurrency),
        ("llm.questions_max", config.llm.questions_max),
        ("llm.breaker_failures", config.llm.breaker_failures as usize),
        ("schemas.timeout_ms", config.schemas.timeout_ms as usize),
        ("schemas.kept_max", config.schemas.kept_max),
        ("schemas.bytes_max", config.schemas.bytes_max),
        ("schemas.references_max", config.schemas.references_max),
        ("schemas.depth_max", config.schemas.depth_max),
        ("tracing.links_max", config.tracing.links_max),
        ("tracing.spans_max", config.tracing.spans_max),
        ("tracing.batch_max", config.tracing.batch_max),
        ("tracing.every_ms", config.tracing.every_ms as usize),
        ("tracing.timeout_ms", config.tracing.timeout_ms as usize),
        ("mcp.idle_ms", config.mcp.idle_ms as usize),
    ];
    if let Some((path, _)) = positive.iter().find(|(_, value)| *value == 0) {
        return Err(format!("{path}: must be at least 1"));
    }
    if let Err(name) = config.ingest.skipped() {
        return Err(format!(
            "ingest.skip: \"{name}\" is no record; write partition:offset, for example \"3:1234\""
        ));
    }
    let quota = &config.quota;
    if let Err(path) = quota.limits() {
        return Err(format!(
            "{path}: is no quota; write [quota.tenants.NAME] with recalls_per_second, \
             events_per_second or memories_per_partition = a number"
        ));
    }
    for (path, value) in [
        ("quota.recalls_per_second", quota.recalls_per_second),
        ("quota.events_per_second", quota.events_per_second),
        ("quota.memories_per_partition", quota.memories_per_partition),
    ] {
        if !(0.0..).contains(&value) {
            return Err(format!("{path}: must be at least 0"));
        }
    }
    config.auth.keys()?;
    config.retain.rules()?;
    config.llm.checked()?;
    config.schemas.checked()?;
    config.tracing.checked()?;
    if config.llm.breaker_ms < 1 {
        return Err("llm.breaker_ms: must be at least 1".into());
    }
    if config.auth.age_ms_max < 1 {
        return Err("auth.age_ms_max: must be at least 1".into());
    }
    let share = config.ingest.dead_letters_share_max;
    if !(0.0..=1.0).contains(&share) {
        return Err(format!("ingest.dead_letters_share_max: must be 0 to 1, not {share}"));
    }
    let probability = config.conflict.probability;
    if !(0.0..=1.0).contains(&probability) {
        return Err(format!("conflict.probability: must be 0 to 1, not {probability}"));
    }
    if config.kafka.bootstrap_servers.trim().is_empty() {
        return Err("kafka.bootstrap_servers: is empty; give host:port or \"embedded\"".into());
    }
    for (setting, _) in config.kafka.client_options() {
        if let Some(reason) = kafka::reserved(&setting) {
            return Err(format!(
                "kafka.librdkafka.{setting}: is reserved, {reason}; remove this setting"
            ));
        }
    }
    if !(1..=PARTITIONS_MAX).contains(&config.topics.partitions) {
        return Err(format!(
            "topics.partitions: must be 1 to {PARTITIONS_MAX}, not {}",
            config.topics.partitions
        ));
    }
    if !(1..=GENERATION_MAX).contains(&config.kafka.generation) {
        return Err(format!(
            "kafka.generation: must be 1 to {GENERATION_MAX}, not {}",
            config.kafka.generation
        ));
    }
    let prefix = &config.topics.prefix;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if prefix.len() > PREFIX_BYTES_MAX || !prefix.chars().all(is_allowed) {
        return Err(format!(
            "topics.prefix: must be at most {PREFIX_BYTES_MAX} letters, digits, \".\", \"_\" and \
             \"-\", as Kafka's names of topics, not \"{prefix}\""
        ));
    }
    let key = config.topics.marks_key.len();
    if (1..KEY_BYTES_MIN).contains(&key) {
        return Err(format!(
            "topics.marks_key: has {key} characters and needs at least {KEY_BYTES_MIN}: take the \
             output of `openssl rand -hex 32`"
        ));
    }
    if config.topics.replication < 1 && config.topics.replication != -1 {
        return Err("topics.replication: must be at least 1, or -1 for the broker's default".into());
    }
    let keep_ms = config.events.keep_ms;
    if keep_ms != 0 && keep_ms < EVENTS_KEEP_MS_MIN {
        return Err(format!(
            "events.keep_ms: must be -1 for the default, 0 to keep all events, or at least {EVENTS_KEEP_MS_MIN}, an \
             hour, not {keep_ms}: nothing brings deleted events back"
        ));
    }
    config.embedded.address()?;
    if config.http.listen.parse::<SocketAddr>().is_err() {
        return Err(format!(
            "http.listen: must be address:port such as 127.0.0.1:9464, not \"{}\"",
            config.http.listen
        ));
    }
    if config.gateway.listen.parse::<SocketAddr>().is_err() {
        return Err(format!(
            "gateway.listen: must be address:port such as 127.0.0.1:8765, not \"{}\"",
            config.gateway.listen
        ));
    }
    if !(0.0..).contains(&config.gateway.requests_per_second) {
        return Err("gateway.requests_per_second: must be at least 0".into());
    }
    if config.recall.limit > config.recall.limit_max {
        return Err("recall.limit: is more than recall.limit_max".into());
    }
    if config.recall.duplicates_max < DUPLICATE_NEIGHBOURS {
        return Err(format!(
            "recall.duplicates_max: must be at least {DUPLICATE_NEIGHBOURS}, which is what one memory \
             may have"
        ));
    }
    if config.index.writer_bytes < WRITER_BYTES_MIN {
        return Err(format!("index.writer_bytes: tantivy needs at least {WRITER_BYTES_MIN}"));
    }
    Ok(())
}
