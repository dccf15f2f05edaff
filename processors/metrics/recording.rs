//! Records events and states: one function for each thing that is measured.

use super::{Lag, Metrics, Recalled};
use domain::{Decision, Match, Outcome};
use std::time::Duration;

impl Metrics {
    pub fn started(&self, wall_seconds: i64) {
        self.families.start_seconds.set(wall_seconds);
    }

    pub fn thread_turned(&self, thread: &str, wall_seconds: i64) {
        self.families.last_poll_seconds.with_label_values(&[thread]).set(wall_seconds);
    }

    pub fn event_read(&self, kind: &str) {
        self.families.events.with_label_values(&[kind]).inc();
    }

    pub fn lag(&self, partition: i32, lag: Lag) {
        let partition = partition.to_string();
        self.families.events_behind.with_label_values(&[&partition]).set(lag.events);
        self.families.oldest_event.with_label_values(&[&partition]).set(lag.oldest_seconds);
    }

    /// Removes the lag of a partition that this process has no open shard of.
    pub fn no_lag(&self, partition: i32) {
        let partition = partition.to_string();
        for gauge in [&self.families.events_behind, &self.families.oldest_event] {
            let _ = gauge.remove_label_values(&[&partition]);
        }
    }

    pub fn batch_applied(&self, records: usize, took: Duration) {
        self.families.batch_records.observe(records as f64);
        self.families.batch_seconds.observe(took.as_secs_f64());
    }

    pub fn transaction(&self, outcome: &str, took: Duration) {
        self.families.transactions.with_label_values(&[outcome]).inc();
        self.families.transaction_seconds.observe(took.as_secs_f64());
    }

    pub fn restoring(&self, shards: usize) {
        self.families.restoring_shards.set(shards as i64);
    }

    pub fn restored(&self, records: u64) {
        self.families.restored_records.inc_by(records);
    }

    pub fn stood_by(&self, partition: i32, records: u64) {
        self.families.standby_records.with_label_values(&[&partition.to_string()]).inc_by(records);
    }

    pub fn proven(&self, proof: &str) {
        self.families.restores.with_label_values(&[proof]).inc();
    }

    pub fn scrubbed(&self, outcome: &str) {
        self.families.scrubs.with_label_values(&[outcome]).inc();
    }

    pub fn events_deleted(&self, outcome: &str) {
        self.families.event_deletions.with_label_values(&[outcome]).inc();
    }

    pub fn shard_applied(&self, partition: i32, offset: i64, unflushed: usize, took: Duration) {
        let partition = partition.to_string();
        self.families.applied_offset.with_label_values(&[&partition]).set(offset);
        self.families.unflushed.with_label_values(&[&partition]).set(unflushed as i64);
        self.families.apply_seconds.observe(took.as_secs_f64());
    }

    pub fn encoded(&self, texts: usize, took: Duration) {
        self.families.encoded_texts.inc_by(texts as u64);
        if texts > 0 {
            self.families.encode_seconds.observe(took.as_secs_f64());
        }
    }

    pub fn rebalanced(&self, change: &str, partitions: usize) {
        self.families.rebalances.with_label_values(&[change]).inc_by(partitions as u64);
    }

    pub fn shards_owned(&self, shards: usize) {
        self.families.shards_owned.set(shards as i64);
    }

    /// Removes the gauges of a partition that another process may own from now on.
    pub fn shard_closed(&self, partition: i32) {
        let partition = partition.to_string();
        for gauge in [
            &self.families.applied_offset,
            &self.families.unflushed,
            &self.families.store_bytes,
            &self.families.erased_pending,
            &self.families.walked,
        ] {
            let _ = gauge.remove_label_values(&[&partition]);
        }
    }

    pub fn broker_error(&self) {
        self.families.broker_errors.inc();
    }

    pub fn stall_remedied(&self, remedy: &str) {
        self.families.silences.with_label_values(&[remedy]).inc();
    }

    pub fn decided(&self, decision: &Decision) {
        self.families.decisions.with_label_values(&[decision.outcome.as_str()]).inc();
        self.memory.decided(decision.key.tenant(), decision.outcome);
        if let Some(surprise) = &decision.surprise {
            self.families.surprise.observe(f64::from(surprise.total));
            for (factor, share) in [
                ("novelty", surprise.novelty),
                ("contradiction", surprise.contradiction),
                ("specificity", surprise.specificity),
                ("emphasis", surprise.emphasis),
                ("context_switch", surprise.context_switch),
            ] {
                self.families.factors.with_label_values(&[factor]).observe(f64::from(share));
            }
        }
    }

    pub fn faded_to(&self, strength: f32) {
        self.families.strength.observe(f64::from(strength));
    }

    /// Counts a candidate of a turn. `class` is the class of the reason, not its text.
    pub fn judged(&self, outcome: Outcome, class: &'static str) {
        self.families.judgements.with_label_values(&[outcome.as_str(), class]).inc();
    }

    pub fn shadowed(&self, outcome: Outcome, agrees: bool) {
        self.families
            .shadows
            .with_label_values(&[outcome.as_str(), if agrees { "yes" } else { "no" }])
            .inc();
    }

    /// Counts a dead letter of a record of `topic`; `tenant` if the record names one.
    pub fn dead_letter(&self, reason: &str, topic: &str, tenant: Option<&str>) {
        self.families.dead_letters.with_label_values(&[reason]).inc();
        self.memory.dead_letter(topic, tenant);
    }

    pub fn redacted(&self, rule: &str) {
        self.families.redacted.with_label_values(&[rule]).inc();
    }

    pub fn forwarded(&self, topic: &str) {
        self.families.misrouted.with_label_values(&[topic]).inc();
    }

    /// Counts a reply that could not be delivered unchanged: an error was sent instead, or
    /// the receipt moved to the replies topic.
    pub fn reply_replaced(&self, reason: &str) {
        self.families.replies_replaced.with_label_values(&[reason]).inc();
    }

    pub fn reply_dropped(&self, reason: &str) {
        self.families.replies_dropped.with_label_values(&[reason]).inc();
    }

    pub fn over_quota(&self, reason: &str) {
        self.families.over_quota.with_label_values(&[reason]).inc();
    }

    pub fn warned(&self, name: &str) {
        self.families.warnings.with_label_values(&[name]).inc();
    }

    pub fn cut(&self, what: &str, count: usize) {
        self.families.cut.with_label_values(&[what]).inc_by(count as u64);
    }

    pub fn batch_cut(&self) {
        self.families.batches_cut.inc();
    }

    pub fn copy_skipped(&self) {
        self.families.copies_skipped.inc();
    }

    pub fn proposed(&self, kind: &str) {
        self.families.proposals.with_label_values(&[kind]).inc();
    }

    pub fn compared(&self, outcome: &str, took_ms: i64) {
        self.families.conflicts.with_label_values(&[outcome]).inc();
        self.families.conflict_seconds.observe(took_ms as f64 / 1_000.0);
    }

    /// Counts a round of compaction by what ended it.
    pub fn compacted(&self, end: &str, took: Duration) {
        self.families.compaction_rounds.with_label_values(&[end]).inc();
        self.families.compaction_seconds.observe(took.as_secs_f64());
    }

    /// Notes that compaction has looked at all users of a shard; if not, at least since when it
    /// has been at it.
    pub fn walked(&self, partition: i32, all: bool, wall_seconds: i64) {
        let walked = self.families.walked.with_label_values(&[&partition.to_string()]);
        if all || walked.get() == 0 {
            walked.set(wall_seconds);
        }
    }

    pub fn answered(&self, kind: &str, status: &str, took: Duration) {
        self.families.requests.with_label_values(&[kind, status]).inc();
        self.families.recall_seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
    }

    /// Counts a rerank. Unless the outcome is `done`, the reply keeps the order of the ranking.
    pub fn reranked(&self, outcome: &str, took: Duration) {
        self.families.reranks.with_label_values(&[outcome]).inc();
        self.families.rerank_seconds.observe(took.as_secs_f64());
    }

    pub fn recalled(&self, recalled: &Recalled<'_>) {
        let matched = recalled.matched.map_or("unknown", Match::as_str);
        self.families.matches.with_label_values(&[matched]).inc();
        self.families.recalled_memories.observe(recalled.memories as f64);
        self.families.prompt_tokens.observe(recalled.tokens as f64);
        self.memory.recalled(recalled.tenant, matched, recalled.relevance);
    }

    pub fn waiting(&self, requests: usize) {
        self.families.waiting_requests.set(requests as i64);
    }

    pub fn flushed(&self, took: Duration) {
        self.families.flush_seconds.observe(took.as_secs_f64());
    }

    pub fn rewritten(&self, partition: i32, took: Duration) {
        self.families.rewrite_seconds.observe(took.as_secs_f64());
        self.erased_pending(partition, 0);
    }

    pub fn erased_pending(&self, partition: i32, seconds: i64) {
        self.families.erased_pending.with_label_values(&[&partition.to_string()]).set(seconds);
    }

    /// Takes the size of the vector cache, and its hits and misses since the process started.
    pub fn vector_cache(&self, bytes: u64, hits: u64, misses: u64) {
        self.families.vector_cache_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        for (counter, count) in
            [(&self.families.vector_cache_hits, hits), (&self.families.vector_cache_misses, misses)]
        {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    pub fn store_free(&self, bytes: u64) {
        self.families.store_free.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn store_size(&self, partition: i32, bytes: u64) {
        self.families.store_bytes.with_label_values(&[&partition.to_string()]).set(bytes as i64);
    }
}
