//! Registers every metric. `recording.rs` has one function for each thing that is measured.
//!
//! A function records all metrics of one event with the same labels, so that callers cannot let
//! them drift apart. Alerts and dashboards in `deploy/` use the names and labels, so a change here
//! is a line in the changelog. The last word of a name is its unit or `total`, as in
//! <https://prometheus.io/docs/practices/naming/>.
//!
//! Invariant: no label holds a user, a session or any other text of a record. Every label is a
//! partition number, a configured topic or tenant, or a word from this code, so time series are
//! bounded.
//!
//! A counter with a label begins at 0 for every value that is an outcome, a reason or a kind of
//! this code: Prometheus computes no increase of a series that appears with its first occurrence.

mod language;
mod memory;
mod recording;
mod registered;
mod trace;

use domain::fault::RejectCode;
use domain::{Match, Outcome};
use language::LanguageMetrics;
use memory::MemoryMetrics;
pub use memory::{Changes, Recalled};
use prometheus::TextEncoder;
use registered::{COUNTS, POINTS, RATIOS, Registered, SECONDS, TOKENS, families, from_zero};
use trace::SpanMetrics;

/// The distance of a shard from the end of its events partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Offsets from the applied one to the end.
    pub events: i64,
    /// Seconds since the time of the oldest event that is not applied; 0 if there is none.
    pub oldest_seconds: i64,
}

families! {
    struct Families {
        // Keeping up with the log
        events: counters(
            "keepsake_events_total",
            "Records read from the events topic, by type",
            &["type"],
        );
        events_behind: gauges(
            "keepsake_events_behind",
            "Offsets from the last event that is applied to the end of the committed records, by \
             partition; 0 if no event is between them. Looked up every metrics.lag_ms",
            &["partition"],
        );
        oldest_event: gauges(
            "keepsake_oldest_event_seconds",
            "Age of the oldest event that is not applied, by the time of its record, by \
             partition; 0 if there is none",
            &["partition"],
        );
        applied_offset: gauges(
            "keepsake_applied_offset",
            "Newest event offset visible to recall, by partition",
            &["partition"],
        );
        batch_records: histogram("keepsake_batch_records", "Records in one applied batch", COUNTS);
        batch_seconds: histogram(
            "keepsake_batch_seconds",
            "Time from polling for the first record of a batch until recall sees the batch",
            SECONDS,
        );
        transactions: counters(
            "keepsake_transactions_total",
            "Kafka transactions, by outcome",
            &["outcome"],
        );
        transaction_seconds: histogram(
            "keepsake_transaction_seconds",
            "Duration of one Kafka transaction, from begin to a known outcome",
            SECONDS,
        );
        restoring_shards: gauge(
            "keepsake_restoring_shards",
            "Owned shards that are still being restored",
        );
        restored_records: counter(
            "keepsake_restored_records_total",
            "Changelog records read to restore owned shards",
        );
        standby_records: counters(
            "keepsake_standby_records_total",
            "Changelog records read for stand-by copies of shards that other processes own, by \
             partition",
            &["partition"],
        );
        restores: counters(
            "keepsake_restores_total",
            "Shards opened from the changelog, stand-by copies included, by how they \
             compare with the digest of their writer: equal; none: nothing was read, or an older \
             version wrote it; replaced: equal after a restore from the beginning; accepted: \
             different, and store.accept_incomplete is set",
            &["proof"],
        );
        scrubs: counters(
            "keepsake_scrubs_total",
            "Open shards whose records were all read and compared with the digest that the \
             batches keep up, by outcome: equal or different",
            &["outcome"],
        );
        event_deletions: counters(
            "keepsake_event_deletions_total",
            "Deletions of events older than events.keep_ms, one for each partition and round, by \
             outcome: done or failed",
            &["outcome"],
        );
        apply_seconds: histogram(
            "keepsake_apply_seconds",
            "Time under the view lock to apply one batch to a shard",
            SECONDS,
        );
        encoded_texts: counter("keepsake_encoded_texts_total", "Texts encoded for ingest");
        encode_seconds: histogram(
            "keepsake_encode_seconds",
            "Time to encode the texts of up to 256 records",
            SECONDS,
        );
        shards_owned: gauge("keepsake_shards_owned", "Shards open in this process");
        rebalances: counters(
            "keepsake_rebalances_total",
            "Partitions assigned to and revoked from this process, by change",
            &["change"],
        );
        broker_errors: counter(
            "keepsake_broker_errors_total",
            "Calls to Kafka that failed and are repeated",
        );
        silences: counters(
            "keepsake_silences_total",
            "Times that the Kafka client delivered nothing of a partition whose log held events \
             or requests, or that a partition had no owner, by remedy",
            &["remedy"],
        );
        last_poll_seconds: gauges(
            "keepsake_last_turn_timestamp_seconds",
            "Unix time of the last loop iteration of a thread, by thread",
            &["thread"],
        );
        // Decisions
        decisions: counters("keepsake_decisions_total", "Decisions, by outcome", &["outcome"]);
        judgements: counters(
            "keepsake_judgements_total",
            "Candidates of turns, by outcome and class of reason",
            &["outcome", "class"],
        );
        shadows: counters(
            "keepsake_shadow_total",
            "Candidates of turns judged by the shadow profile, by outcome and by agreement with \
             the real profile",
            &["outcome", "agrees"],
        );
        surprise: histogram(
            "keepsake_surprise_points",
            "Total surprise of the candidates of turns",
            POINTS,
        );
        factors: histograms(
            "keepsake_surprise_factor_ratio",
            "The five factors of surprise of the candidates of turns, each from 0 to 1, by factor",
            &["factor"],
            RATIOS,
        );
        strength: histogram(
            "keepsake_memory_strength_ratio",
            "Strength of the memories that a compaction round has looked at, 0 to 1: what fades below \
             the profile's bound is archived",
            RATIOS,
        );
        dead_letters: counters(
            "keepsake_dead_letters_total",
            "Records written to the dead-letter topic, by reason",
            &["reason"],
        );
        redacted: counters(
            "keepsake_redacted_total",
            "Secrets removed from texts, by redaction rule",
            &["rule"],
        );
        misrouted: counters(
            "keepsake_misrouted_total",
            "Records that arrived on the wrong partition and were forwarded, by topic",
            &["topic"],
        );
        replies_replaced: counters(
            "keepsake_replies_replaced_total",
            "Replies that could not be delivered as they were: an error was sent instead, or the \
             receipt moved to the replies topic, by reason",
            &["reason"],
        );
        replies_dropped: counters(
            "keepsake_replies_dropped_total",
            "Replies dropped because too many waited for their broker, by reason",
            &["reason"],
        );
        copies_skipped: counter(
            "keepsake_copies_skipped_total",
            "Forwarded records skipped because they were already applied",
        );
        batches_cut: counter(
            "keepsake_batches_cut_total",
            "Batches cut short because deciding them took too long, or their copies were too many",
        );
        proposals: counters(
            "keepsake_proposals_total",
            "Proposals of the compaction worker that are in the events topic, by type",
            &["type"],
        );
        conflicts: counters(
            "keepsake_conflict_total",
            "Compaction rounds in which conflict.model compared new memories with earlier ones, \
             by outcome: done, slow, failed",
            &["outcome"],
        );
        conflict_seconds: histogram(
            "keepsake_conflict_seconds",
            "Time that conflict.model spent in one compaction round",
            SECONDS,
        );
        compaction_seconds: histogram(
            "keepsake_compaction_seconds",
            "Duration of one compaction round",
            SECONDS,
        );
        compaction_rounds: counters(
            "keepsake_compaction_rounds_total",
            "Compaction rounds, by end: whole, all users of the open shards were looked at; users, \
             proposals or time, the limit after which the next round goes on",
            &["end"],
        );
        walked: gauges(
            "keepsake_compaction_walked_timestamp_seconds",
            "Unix time at which compaction last had looked at all users of a shard, or began to, by \
             partition",
            &["partition"],
        );
        // Requests
        requests: counters(
            "keepsake_requests_total",
            "Requests answered, by type and status",
            &["type", "status"],
        );
        recall_seconds: histograms(
            "keepsake_request_seconds",
            "Time to answer a request, from poll to the reply's hand-over to the Kafka client, by \
             type",
            &["type"], SECONDS,
        );
        reranks: counters(
            "keepsake_rerank_total",
            "Recalls sent to the cross-encoder for reranking, by outcome: done, slow, failed",
            &["outcome"],
        );
        rerank_seconds: histogram(
            "keepsake_rerank_seconds",
            "Time that the cross-encoder spent on one recall",
            SECONDS,
        );
        recalled_memories: histogram(
            "keepsake_recalled_memories",
            "Memories returned by one recall",
            COUNTS,
        );
        matches: counters(
            "keepsake_recall_matches_total",
            "Replies to recalls, by match: good, weak or none; unknown if the policy computes no \
             relevance",
            &["match"],
        );
        prompt_tokens: histogram(
            "keepsake_prompt_tokens",
            "Tokens in the prompt block of one recall",
            TOKENS,
        );
        waiting_requests: gauge(
            "keepsake_waiting_requests",
            "Requests waiting for their minimum offset",
        );
        over_quota: counters(
            "keepsake_over_quota_total",
            "Requests, events and memories refused because their tenant or user has its share: \
             recalls-per-second, waiting, events-per-second or memories-per-partition, by reason",
            &["reason"],
        );
        warnings: counters(
            "keepsake_warnings_total",
            "Events and requests with an unknown field, which is ignored, or with a time too far \
             ahead, by type: the receipt, the decision and the reply name them",
            &["type"],
        );
        cut: counters(
            "keepsake_cut_total",
            "Entries left out of a record that would be longer than its topic takes: links of a \
             memory, covers of a summary, by kind",
            &["what"],
        );
        // Storage
        unflushed: gauges(
            "keepsake_index_tail_documents",
            "Changes in the in-memory segment of the text index, not flushed yet, by partition",
            &["partition"],
        );
        flush_seconds: histogram(
            "keepsake_index_settle_seconds",
            "Time to flush the in-memory segment of the text index",
            SECONDS,
        );
        rewrite_seconds: histogram(
            "keepsake_store_rewrite_seconds",
            "Time to write a shard anew without the bytes of what was forgotten",
            SECONDS,
        );
        erased_pending: gauges(
            "keepsake_erased_pending_seconds",
            "Time since the first forget whose bytes may still be in a shard's files, by \
             partition; 0 if there are none",
            &["partition"],
        );
        vector_cache_bytes: gauge("keepsake_vector_cache_bytes", "Size of the vector cache");
        vector_cache_hits: counter(
            "keepsake_vector_cache_hits_total",
            "Reads of a user's vectors that the vector cache answered",
        );
        vector_cache_misses: counter(
            "keepsake_vector_cache_misses_total",
            "Reads of a user's vectors that went to the store",
        );
        store_bytes: gauges(
            "keepsake_store_bytes",
            "Size of a shard's store on disk in bytes, by partition",
            &["partition"],
        );
        store_free: gauge(
            "keepsake_store_free_bytes",
            "Bytes that are free on the file system of store.dir",
        );
        start_seconds: gauge(
            "keepsake_start_timestamp_seconds",
            "Unix time at which the process began to serve",
        );
    }
}

pub struct Metrics {
    registered: Registered,
    families: Families,
    pub language: LanguageMetrics,
    pub memory: MemoryMetrics,
    pub spans: SpanMetrics,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics::with_tenants(&[])
    }

    /// `tenants`: the tenants that are a label of their own.
    pub fn with_tenants(tenants: &[String]) -> Metrics {
        let mut r = Registered::default();
        // Fails only on a system without /proc; the page then has no process metrics.
        let _ = r
            .registry()
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()));
        let metrics = Metrics {
            families: Families::new(&mut r),
            language: LanguageMetrics::new(&mut r),
            memory: MemoryMetrics::new(&mut r, tenants),
            spans: SpanMetrics::new(&mut r),
            registered: r,
        };
        metrics.begin();
        metrics
    }

    /// Creates the series of all known labels.
    fn begin(&self) {
        from_zero(&self.families.decisions, Outcome::ALL.map(Outcome::as_str));
        from_zero(&self.families.dead_letters, RejectCode::ALL.map(RejectCode::as_str));
        from_zero(&self.families.silences, ["read_again", "join_again", "wake_group"]);
        from_zero(
            &self.families.transactions,
            ["committed", "aborted", "unknown", "fenced", "fault"],
        );
        let matches = Match::ALL.map(Match::as_str).into_iter().chain(["unknown"]);
        from_zero(&self.families.matches, matches);
        for asked in ["recall", "list", "get", "explain", "stats", "unreadable"] {
            for status in RejectCode::ALL.map(RejectCode::status).into_iter().chain(["ok"]) {
                self.families.requests.with_label_values(&[asked, status]);
            }
        }
        from_zero(&self.families.proposals, ["erase", "extracted", "prune", "revise", "summary"]);
    }

    /// Renders the page of `GET /metrics`.
    pub fn page(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.registered.registry().gather())
            .unwrap_or_else(|e| format!("# cannot encode metrics: {e}\n"))
    }

    /// Returns the name and the help text of every metric.
    pub fn names(&self) -> Vec<(String, String)> {
        self.registered.names().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_metric_is_listed_once_with_a_help_text() {
        let metrics = Metrics::new();
        let names = metrics.names();
        let unique: BTreeSet<&String> = names.iter().map(|(name, _)| name).collect();
        assert_eq!(unique.len(), names.len());
        assert!(names.iter().all(|(_, help)| !help.is_empty() && !help.contains("  ")));
        metrics.event_read("turn");
        assert!(metrics.page().contains("keepsake_events_total{type=\"turn\"} 1"));
    }

    /// <https://prometheus.io/docs/practices/naming/>
    #[test]
    fn a_counter_ends_in_total_and_everything_else_in_its_unit() {
        // Things that are counted one by one are a unit, too. An offset is a position, not a quantity.
        const UNITS: [&str; 12] = [
            "seconds",
            "bytes",
            "ratio",
            "records",
            "points",
            "memories",
            "tokens",
            "documents",
            "shards",
            "requests",
            "owned",
            "behind",
        ];
        for (name, kind) in Metrics::new().registered.kinds() {
            let last = name.rsplit('_').next().unwrap_or_default();
            match kind {
                "counter" => assert_eq!(last, "total", "{name}"),
                _ => assert!(
                    UNITS.contains(&last) || name == "keepsake_applied_offset",
                    "{name} is a {kind} and does not name its unit"
                ),
            }
        }
    }

    #[test]
    fn what_happens_for_the_first_time_is_an_increase() {
        let page = Metrics::new().page();
        for series in [
            "keepsake_decisions_total{outcome=\"outdated\"} 0",
            "keepsake_dead_letters_total{reason=\"not-json\"} 0",
            "keepsake_recall_matches_total{match=\"none\"} 0",
            "keepsake_requests_total{status=\"stale\",type=\"recall\"} 0",
            "keepsake_transactions_total{outcome=\"aborted\"} 0",
            "keepsake_links_total{kind=\"revises\"} 0",
            "keepsake_feedback_total{signal=\"wrong\"} 0",
        ] {
            assert!(page.contains(series), "{series}\n{page}");
        }
    }

    #[test]
    fn the_counters_of_the_vector_cache_follow_its_counts_and_never_fall() {
        let metrics = Metrics::new();
        for (hits, misses) in [(7, 2), (9, 2), (9, 2)] {
            metrics.vector_cache(1000, hits, misses);
        }
        let page = metrics.page();
        for line in [
            "keepsake_vector_cache_bytes 1000",
            "keepsake_vector_cache_hits_total 9",
            "keepsake_vector_cache_misses_total 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        metrics.vector_cache(0, 1, 0);
        assert!(metrics.page().contains("keepsake_vector_cache_hits_total 9\n"));
    }
}
