//! Every metric: its name, its help, and one function per happening. Knows no Kafka and no store; never has a user's name in a label.

mod registered;

use crate::domain::{Decision, Match, Outcome};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    TextEncoder,
};
use registered::{
    COUNTS, POINTS, SECONDS, TOKENS, counter, counters, gauge, gauges, histogram, histograms,
};
use std::time::Duration;

pub struct Metrics {
    registry: Registry,
    // is it keeping up
    events: IntCounterVec,
    event_lag: IntGaugeVec,
    applied_offset: IntGaugeVec,
    batch_records: Histogram,
    batch_seconds: Histogram,
    apply_seconds: Histogram,
    transactions: IntCounterVec,
    transaction_seconds: Histogram,
    restoring_shards: IntGauge,
    restored_records: IntCounter,
    standby_records: IntCounterVec,
    encoded_texts: IntCounter,
    encode_seconds: Histogram,
    shards_owned: IntGauge,
    rebalances: IntCounterVec,
    broker_errors: IntCounter,
    last_poll_seconds: IntGaugeVec,
    // what is it deciding
    decisions: IntCounterVec,
    judgements: IntCounterVec,
    shadows: IntCounterVec,
    surprise: Histogram,
    dead_letters: IntCounterVec,
    redacted: IntCounterVec,
    misrouted: IntCounterVec,
    copies_skipped: IntCounter,
    batches_cut: IntCounter,
    proposals: IntCounterVec,
    conflicts: IntCounterVec,
    conflict_seconds: Histogram,
    compaction_seconds: Histogram,
    // how fast does it answer
    requests: IntCounterVec,
    recall_seconds: HistogramVec,
    reranks: IntCounterVec,
    rerank_seconds: Histogram,
    recalled_memories: Histogram,
    matches: IntCounterVec,
    prompt_tokens: Histogram,
    waiting_requests: IntGauge,
    // what does it hold
    memories_tail: IntGaugeVec,
    settle_seconds: Histogram,
    vector_cache: IntGaugeVec,
    store_bytes: IntGaugeVec,
    start_seconds: IntGauge,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let registry = Registry::new();
        // Fails only where there is no /proc, and then the page simply has no process metrics.
        let _ = registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()));
        let r = &registry;
        Metrics {
            events: counters(
                r,
                "keepsake_events_total",
                "Records read from the events topic, by type",
                &["type"],
            ),
            event_lag: gauges(
                r,
                "keepsake_events_behind",
                "Records fetched but not yet applied, by partition",
                &["partition"],
            ),
            applied_offset: gauges(
                r,
                "keepsake_applied_offset",
                "Newest event offset that recall sees, by partition",
                &["partition"],
            ),
            batch_records: histogram(
                r,
                "keepsake_batch_records",
                "Records applied together",
                COUNTS,
            ),
            batch_seconds: histogram(
                r,
                "keepsake_batch_seconds",
                "From the first record of a batch to its being applied",
                SECONDS,
            ),
            transactions: counters(
                r,
                "keepsake_transactions_total",
                "Transactions, by how they ended",
                &["outcome"],
            ),
            transaction_seconds: histogram(
                r,
                "keepsake_transaction_seconds",
                "From begin to a known end of a transaction",
                SECONDS,
            ),
            restoring_shards: gauge(
                r,
                "keepsake_restoring_shards",
                "Shards that are ours and still being restored",
            ),
            restored_records: counter(
                r,
                "keepsake_restored_records_total",
                "Records of the changelog read to restore shards",
            ),
            standby_records: counters(
                r,
                "keepsake_standby_records_total",
                "Records of the changelog read for shards that others own",
                &["partition"],
            ),
            apply_seconds: histogram(
                r,
                "keepsake_apply_seconds",
                "Holding the view lock to apply a batch",
                SECONDS,
            ),
            encoded_texts: counter(r, "keepsake_encoded_texts_total", "Texts encoded for ingest"),
            encode_seconds: histogram(
                r,
                "keepsake_encode_seconds",
                "Encoding texts of up to 256 records",
                SECONDS,
            ),
            shards_owned: gauge(r, "keepsake_shards_owned", "Partitions this process owns"),
            rebalances: counters(
                r,
                "keepsake_rebalances_total",
                "Partitions given to and taken from this process",
                &["change"],
            ),
            broker_errors: counter(
                r,
                "keepsake_broker_errors_total",
                "Errors of the broker client that were tried again",
            ),
            last_poll_seconds: gauges(
                r,
                "keepsake_last_turn_timestamp_seconds",
                "When a thread last went round its loop",
                &["thread"],
            ),
            decisions: counters(
                r,
                "keepsake_decisions_total",
                "Decisions, by outcome",
                &["outcome"],
            ),
            judgements: counters(
                r,
                "keepsake_judgements_total",
                "Candidates of turns, by what became of them and the sort of reason",
                &["outcome", "class"],
            ),
            shadows: counters(
                r,
                "keepsake_shadow_total",
                "Candidates of turns as the shadow profile would end them, and whether the real one keeps and drops the same",
                &["outcome", "agrees"],
            ),
            surprise: histogram(
                r,
                "keepsake_surprise_points",
                "Total surprise of turn candidates",
                POINTS,
            ),
            dead_letters: counters(
                r,
                "keepsake_dead_letters_total",
                "Records that could not be processed, by reason",
                &["reason"],
            ),
            redacted: counters(
                r,
                "keepsake_redacted_total",
                "Secrets taken out of texts, by rule",
                &["rule"],
            ),
            misrouted: counters(
                r,
                "keepsake_misrouted_total",
                "Records that came on a wrong partition and were forwarded",
                &["topic"],
            ),
            copies_skipped: counter(
                r,
                "keepsake_copies_skipped_total",
                "Forwarded records that had been applied before",
            ),
            batches_cut: counter(
                r,
                "keepsake_batches_cut_total",
                "Batches that ended early, as they took too long to decide",
            ),
            proposals: counters(
                r,
                "keepsake_proposals_total",
                "Events published by the compaction worker, by type",
                &["type"],
            ),
            conflicts: counters(
                r,
                "keepsake_conflict_total",
                "Compaction rounds in which conflict.model compared new memories with earlier ones, by outcome: done, slow, failed",
                &["outcome"],
            ),
            conflict_seconds: histogram(
                r,
                "keepsake_conflict_seconds",
                "Comparing by conflict.model in one round",
                SECONDS,
            ),
            compaction_seconds: histogram(
                r,
                "keepsake_compaction_seconds",
                "One round of the compaction worker",
                SECONDS,
            ),
            requests: counters(
                r,
                "keepsake_requests_total",
                "Requests answered, by type and status",
                &["type", "status"],
            ),
            recall_seconds: histograms(
                r,
                "keepsake_request_seconds",
                "From poll to reply handed to the client, by type",
                &["type"],
                SECONDS,
            ),
            reranks: counters(
                r,
                "keepsake_rerank_total",
                "Recalls whose best memories a cross-encoder was to read again, by outcome: done, slow, failed",
                &["outcome"],
            ),
            rerank_seconds: histogram(
                r,
                "keepsake_rerank_seconds",
                "A cross-encoder reading for one recall",
                SECONDS,
            ),
            recalled_memories: histogram(
                r,
                "keepsake_recalled_memories",
                "Memories in a recall's answer",
                COUNTS,
            ),
            matches: counters(
                r,
                "keepsake_recall_matches_total",
                "Answers of recall, by their match",
                &["match"],
            ),
            prompt_tokens: histogram(
                r,
                "keepsake_prompt_tokens",
                "Tokens of a recall's prompt block",
                TOKENS,
            ),
            waiting_requests: gauge(
                r,
                "keepsake_waiting_requests",
                "Requests waiting for their offset",
            ),
            memories_tail: gauges(
                r,
                "keepsake_index_tail_documents",
                "Documents searched in memory, not yet in a segment",
                &["partition"],
            ),
            settle_seconds: histogram(
                r,
                "keepsake_index_settle_seconds",
                "Moving words from memory into a segment",
                SECONDS,
            ),
            vector_cache: gauges(
                r,
                "keepsake_vector_cache",
                "Vector cache: bytes, hits and misses since start",
                &["what"],
            ),
            store_bytes: gauges(
                r,
                "keepsake_store_bytes",
                "Bytes of a shard's store on disk",
                &["partition"],
            ),
            start_seconds: gauge(
                r,
                "keepsake_start_timestamp_seconds",
                "When the process started serving",
            ),
            registry,
        }
    }

    /// The page of `GET /metrics`.
    pub fn page(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap_or_else(|e| format!("# cannot encode metrics: {e}\n"))
    }

    /// Every name with its help, for the documents that list them.
    pub fn names(&self) -> Vec<(String, String)> {
        let mut all: Vec<&dyn Collector> = vec![
            &self.events,
            &self.event_lag,
            &self.applied_offset,
            &self.batch_records,
            &self.batch_seconds,
            &self.apply_seconds,
            &self.transactions,
            &self.transaction_seconds,
            &self.restoring_shards,
            &self.restored_records,
            &self.standby_records,
            &self.encoded_texts,
            &self.encode_seconds,
            &self.shards_owned,
            &self.rebalances,
            &self.broker_errors,
            &self.last_poll_seconds,
        ];
        all.extend::<[&dyn Collector; 13]>([
            &self.decisions,
            &self.judgements,
            &self.shadows,
            &self.surprise,
            &self.dead_letters,
            &self.redacted,
            &self.misrouted,
            &self.copies_skipped,
            &self.batches_cut,
            &self.proposals,
            &self.conflicts,
            &self.conflict_seconds,
            &self.compaction_seconds,
        ]);
        all.extend::<[&dyn Collector; 8]>([
            &self.requests,
            &self.recall_seconds,
            &self.reranks,
            &self.rerank_seconds,
            &self.recalled_memories,
            &self.matches,
            &self.prompt_tokens,
            &self.waiting_requests,
        ]);
        all.extend::<[&dyn Collector; 5]>([
            &self.memories_tail,
            &self.settle_seconds,
            &self.vector_cache,
            &self.store_bytes,
            &self.start_seconds,
        ]);
        all.iter().flat_map(|c| c.desc()).map(|d| (d.fq_name.clone(), d.help.clone())).collect()
    }

    pub fn started(&self, wall_seconds: i64) {
        self.start_seconds.set(wall_seconds);
    }

    pub fn thread_turned(&self, thread: &str, wall_seconds: i64) {
        self.last_poll_seconds.with_label_values(&[thread]).set(wall_seconds);
    }

    pub fn event_read(&self, kind: &str) {
        self.events.with_label_values(&[kind]).inc();
    }

    pub fn behind(&self, partition: i32, records: i64) {
        self.event_lag.with_label_values(&[&partition.to_string()]).set(records);
    }

    pub fn batch_applied(&self, records: usize, took: Duration) {
        self.batch_records.observe(records as f64);
        self.batch_seconds.observe(took.as_secs_f64());
    }

    pub fn transaction(&self, outcome: &str, took: Duration) {
        self.transactions.with_label_values(&[outcome]).inc();
        self.transaction_seconds.observe(took.as_secs_f64());
    }

    pub fn restoring(&self, shards: usize) {
        self.restoring_shards.set(shards as i64);
    }

    pub fn restored(&self, records: u64) {
        self.restored_records.inc_by(records);
    }

    pub fn stood_by(&self, partition: i32, records: u64) {
        self.standby_records.with_label_values(&[&partition.to_string()]).inc_by(records);
    }

    pub fn shard_applied(&self, partition: i32, offset: i64, tail: usize, took: Duration) {
        let partition = partition.to_string();
        self.applied_offset.with_label_values(&[&partition]).set(offset);
        self.memories_tail.with_label_values(&[&partition]).set(tail as i64);
        self.apply_seconds.observe(took.as_secs_f64());
    }

    pub fn encoded(&self, texts: usize, took: Duration) {
        self.encoded_texts.inc_by(texts as u64);
        if texts > 0 {
            self.encode_seconds.observe(took.as_secs_f64());
        }
    }

    pub fn rebalanced(&self, change: &str, partitions: usize) {
        self.rebalances.with_label_values(&[change]).inc_by(partitions as u64);
    }

    pub fn shards_owned(&self, shards: usize) {
        self.shards_owned.set(shards as i64);
    }

    /// What is no longer ours must not be shown as if it were.
    pub fn shard_closed(&self, partition: i32) {
        let partition = partition.to_string();
        for gauge in [&self.event_lag, &self.applied_offset, &self.memories_tail, &self.store_bytes]
        {
            let _ = gauge.remove_label_values(&[&partition]);
        }
    }

    pub fn broker_error(&self) {
        self.broker_errors.inc();
    }

    pub fn decided(&self, decision: &Decision) {
        self.decisions.with_label_values(&[decision.outcome.as_str()]).inc();
        if let Some(surprise) = &decision.surprise {
            self.surprise.observe(f64::from(surprise.total));
        }
    }

    /// What became of a candidate of a turn; both labels are words of ours.
    pub fn judged(&self, outcome: Outcome, class: &'static str) {
        self.judgements.with_label_values(&[outcome.as_str(), class]).inc();
    }

    pub fn shadowed(&self, outcome: Outcome, agrees: bool) {
        self.shadows
            .with_label_values(&[outcome.as_str(), if agrees { "yes" } else { "no" }])
            .inc();
    }

    /// Decisions since start, for `stats`.
    pub fn decisions_of(&self, outcome: Outcome) -> u64 {
        self.decisions.with_label_values(&[outcome.as_str()]).get()
    }

    pub fn dead_letter(&self, reason: &str) {
        self.dead_letters.with_label_values(&[reason]).inc();
    }

    pub fn redacted(&self, rule: &str) {
        self.redacted.with_label_values(&[rule]).inc();
    }

    pub fn forwarded(&self, topic: &str) {
        self.misrouted.with_label_values(&[topic]).inc();
    }

    pub fn batch_cut(&self) {
        self.batches_cut.inc();
    }

    pub fn copy_skipped(&self) {
        self.copies_skipped.inc();
    }

    pub fn proposed(&self, kind: &str) {
        self.proposals.with_label_values(&[kind]).inc();
    }

    pub fn compared(&self, outcome: &str, took_ms: i64) {
        self.conflicts.with_label_values(&[outcome]).inc();
        self.conflict_seconds.observe(took_ms as f64 / 1_000.0);
    }

    pub fn compacted(&self, took: Duration) {
        self.compaction_seconds.observe(took.as_secs_f64());
    }

    pub fn answered(&self, kind: &str, status: &str, took: Duration) {
        self.requests.with_label_values(&[kind, status]).inc();
        self.recall_seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
    }

    /// Not done: the answer has the order that there was without.
    pub fn reranked(&self, outcome: &str, took: Duration) {
        self.reranks.with_label_values(&[outcome]).inc();
        self.rerank_seconds.observe(took.as_secs_f64());
    }

    /// `matched` is unknown where the policy knows no relevance.
    pub fn recalled(&self, memories: usize, tokens: usize, matched: Option<Match>) {
        self.matches.with_label_values(&[matched.map_or("unknown", Match::as_str)]).inc();
        self.recalled_memories.observe(memories as f64);
        self.prompt_tokens.observe(tokens as f64);
    }

    pub fn waiting(&self, requests: usize) {
        self.waiting_requests.set(requests as i64);
    }

    pub fn settled(&self, took: Duration) {
        self.settle_seconds.observe(took.as_secs_f64());
    }

    pub fn vector_cache(&self, bytes: u64, hits: u64, misses: u64) {
        for (what, value) in [("bytes", bytes), ("hits", hits), ("misses", misses)] {
            self.vector_cache.with_label_values(&[what]).set(value as i64);
        }
    }

    pub fn store_size(&self, partition: i32, bytes: u64) {
        self.store_bytes.with_label_values(&[&partition.to_string()]).set(bytes as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_registered_and_listed_once() {
        let metrics = Metrics::new();
        let names = metrics.names();
        let mut unique: Vec<_> = names.iter().map(|(name, _)| name).collect();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        metrics.event_read("turn");
        assert!(metrics.page().contains("keepsake_events_total{type=\"turn\"} 1"));
    }
}
