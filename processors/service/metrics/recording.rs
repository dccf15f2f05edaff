//! Records events and states: one function for each thing that is measured.

use super::{Lag, Metrics, Recalled};
use domain::{Decision, Match, Outcome};
use std::time::Duration;

impl Metrics {
    pub fn started(&self, wall_seconds: i64) {
        self.start_seconds.set(wall_seconds);
    }

    pub fn thread_turned(&self, thread: &str, wall_seconds: i64) {
        self.last_poll_seconds.with_label_values(&[thread]).set(wall_seconds);
    }

    pub fn event_read(&self, kind: &str) {
        self.events.with_label_values(&[kind]).inc();
    }

    pub fn lag(&self, partition: i32, lag: Lag) {
        let partition = partition.to_string();
        self.events_behind.with_label_values(&[&partition]).set(lag.events);
        self.oldest_event.with_label_values(&[&partition]).set(lag.oldest_seconds);
    }

    /// Removes the lag of a partition that this process has no open shard of.
    pub fn no_lag(&self, partition: i32) {
        let partition = partition.to_string();
        for gauge in [&self.events_behind, &self.oldest_event] {
            let _ = gauge.remove_label_values(&[&partition]);
        }
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

    pub fn proven(&self, proof: &str) {
        self.restores.with_label_values(&[proof]).inc();
    }

    pub fn scrubbed(&self, outcome: &str) {
        self.scrubs.with_label_values(&[outcome]).inc();
    }

    pub fn events_deleted(&self, outcome: &str) {
        self.event_deletions.with_label_values(&[outcome]).inc();
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

    /// Removes the gauges of a partition that another process may own from now on.
    pub fn shard_closed(&self, partition: i32) {
        let partition = partition.to_string();
        for gauge in
            [&self.applied_offset, &self.memories_tail, &self.store_bytes, &self.erased_pending]
        {
            let _ = gauge.remove_label_values(&[&partition]);
        }
    }

    pub fn broker_error(&self) {
        self.broker_errors.inc();
    }

    pub fn silence_broken(&self, remedy: &str) {
        self.silences.with_label_values(&[remedy]).inc();
    }

    pub fn decided(&self, decision: &Decision) {
        self.decisions.with_label_values(&[decision.outcome.as_str()]).inc();
        self.memory.decided(decision.key.tenant(), decision.outcome);
        if let Some(surprise) = &decision.surprise {
            self.surprise.observe(f64::from(surprise.total));
        }
    }

    /// Counts a candidate of a turn. `class` is the class of the reason, not its text.
    pub fn judged(&self, outcome: Outcome, class: &'static str) {
        self.judgements.with_label_values(&[outcome.as_str(), class]).inc();
    }

    pub fn shadowed(&self, outcome: Outcome, agrees: bool) {
        self.shadows
            .with_label_values(&[outcome.as_str(), if agrees { "yes" } else { "no" }])
            .inc();
    }

    /// Counts a dead letter of a record of `topic`; `tenant` if the record names one.
    pub fn dead_letter(&self, reason: &str, topic: &str, tenant: Option<&str>) {
        self.dead_letters.with_label_values(&[reason]).inc();
        self.memory.dead_letter(topic, tenant);
    }

    pub fn redacted(&self, rule: &str) {
        self.redacted.with_label_values(&[rule]).inc();
    }

    pub fn forwarded(&self, topic: &str) {
        self.misrouted.with_label_values(&[topic]).inc();
    }

    /// Counts a reply that could not be delivered unchanged: an error was sent instead, or
    /// the receipt moved to the replies topic.
    pub fn reply_replaced(&self, reason: &str) {
        self.replies_replaced.with_label_values(&[reason]).inc();
    }

    pub fn reply_dropped(&self, reason: &str) {
        self.replies_dropped.with_label_values(&[reason]).inc();
    }

    pub fn over_quota(&self, reason: &str) {
        self.over_quota.with_label_values(&[reason]).inc();
    }

    pub fn warned(&self, name: &str) {
        self.warnings.with_label_values(&[name]).inc();
    }

    pub fn cut(&self, what: &str, count: usize) {
        self.cut.with_label_values(&[what]).inc_by(count as u64);
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

    /// Counts a rerank. Unless the outcome is `done`, the reply keeps the order of the ranking.
    pub fn reranked(&self, outcome: &str, took: Duration) {
        self.reranks.with_label_values(&[outcome]).inc();
        self.rerank_seconds.observe(took.as_secs_f64());
    }

    pub fn recalled(&self, recalled: &Recalled<'_>) {
        let matched = recalled.matched.map_or("unknown", Match::as_str);
        self.matches.with_label_values(&[matched]).inc();
        self.recalled_memories.observe(recalled.memories as f64);
        self.prompt_tokens.observe(recalled.tokens as f64);
        self.memory.recalled(recalled.tenant, matched, recalled.relevance);
    }

    pub fn waiting(&self, requests: usize) {
        self.waiting_requests.set(requests as i64);
    }

    pub fn settled(&self, took: Duration) {
        self.settle_seconds.observe(took.as_secs_f64());
    }

    pub fn rewritten(&self, partition: i32, took: Duration) {
        self.rewrite_seconds.observe(took.as_secs_f64());
        self.erased_pending(partition, 0);
    }

    pub fn erased_pending(&self, partition: i32, seconds: i64) {
        self.erased_pending.with_label_values(&[&partition.to_string()]).set(seconds);
    }

    /// Takes the size of the vector cache, and its hits and misses since the process started.
    pub fn vector_cache(&self, bytes: u64, hits: u64, misses: u64) {
        self.vector_cache_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        for (counter, count) in
            [(&self.vector_cache_hits, hits), (&self.vector_cache_misses, misses)]
        {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    pub fn store_free(&self, bytes: u64) {
        self.store_free.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn store_size(&self, partition: i32, bytes: u64) {
        self.store_bytes.with_label_values(&[&partition.to_string()]).set(bytes as i64);
    }
}
