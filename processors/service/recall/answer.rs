//! Answers one request after another, on the thread that owns it: several may share an inbox.
//!
//! ```text
//! request -> ask.rs: encode -> hits.rs: index, store -> rank -> rerank.rs -> render -> reply
//! ```

use super::RecallOptions;
use super::ask;
use super::inbox::Job;
use super::pending::{PendingRequest, refused};
use super::rerank::Reranking;
use super::traced::Stages;
use super::word_vectors::WordVectors;
use crate::ownership::ShardRegistry;
use broker::OutgoingRecord;
use broker::clock::Clock;
use contract::reply::{self, Answer, Freshness};
use domain::fault::Reject;
use domain::panics::{Panic, caught};
use domain::{CosineScale, Match, MemoryId, Now, Purpose, Request, RequestKind, UserKey};
use metrics::{Metrics, Recalled};
use models::embedder::{Embedder, TokenCounter};
use profiles::Profiles;
use std::sync::Arc;
use std::time::Instant;
use storage::shard::Shard;

pub struct Answerer {
    pub options: RecallOptions,
    pub profiles: Profiles,
    pub shards: Arc<ShardRegistry>,
    pub encoder: Box<dyn Embedder>,
    /// Converts the encoder's cosines to the standard scale.
    pub spread: CosineScale,
    pub tokens: TokenCounter,
    pub metrics: Arc<Metrics>,
    pub clock: Arc<dyn Clock>,
    pub reranking: Option<Reranking>,
    pub word_vectors: Arc<WordVectors>,
    pub(crate) stages: Stages,
}

/// The reply to a job, and what the inbox is told about it.
pub struct Answered {
    pub reply: OutgoingRecord,
    pub key: UserKey,
    pub position: (i32, i64),
    /// Memories whose return counts as a use.
    pub returned: Vec<MemoryId>,
}

impl Answerer {
    pub fn answer(&mut self, now: Now, job: Box<Job>) -> Answered {
        let Job { pending, shard } = *job;
        let (mut returned, shard) = (Vec::new(), &*shard);
        let name = pending.request.ask.name();
        let clock = self.clock.clone();
        let at_start_ms = clock.steady_ms();
        let at_most_ms = pending.request.deadline.ms_since(now.wall);
        let left_ms = || at_most_ms - (clock.steady_ms() - at_start_ms);
        self.stages.begin(pending.trace.as_ref());
        // The view of a shard is not poisoned, and nothing of an answer is stored.
        let answered = caught(|| self.ask(now, shard, &pending.request, &left_ms));
        let reply = match answered.unwrap_or_else(|panic| Err(panicked(&pending, panic))) {
            Ok((answer, seen)) => {
                let freshness = Freshness {
                    applied_offset: seen.applied,
                    stale: seen.stale
                        || !self.shards.has_applied(shard, &pending.request.key, seen.applied),
                    took_us: pending.began.elapsed().as_micros() as u64,
                    partial: seen.partial,
                    misrouted: pending.misrouted,
                    warnings: pending.request.warnings.clone(),
                };
                if let Answer::Recalled { memories, tokens, matched, .. } = &answer {
                    let key = &pending.request.key;
                    let found = memories.iter().filter_map(|found| found.relevance);
                    self.stages.note("keepsake.memories", memories.len());
                    self.stages.note("keepsake.match", matched.map_or("unknown", Match::as_str));
                    self.stages.note("keepsake.tokens", *tokens);
                    self.metrics.recalled(&Recalled {
                        tenant: key.tenant(),
                        memories: memories.len(),
                        tokens: *tokens,
                        matched: *matched,
                        relevance: found.max_by(f32::total_cmp),
                    });
                    let rules = &self.profiles.of(key).rules;
                    let is_use = matches!(&pending.request.ask, RequestKind::Recall(asked)
                        if rules.policy.complete(asked).purpose == Purpose::Tool);
                    if is_use && rules.feedback.returned_counts() {
                        returned = memories.iter().map(|found| found.memory.id).collect();
                    }
                }
                self.metrics.answered(name, "ok", pending.began.elapsed());
                let began = Instant::now();
                let reply = reply::answer(&pending.to, &answer, &freshness);
                self.stages.ends("reply", began, &[("keepsake.reply.bytes", reply.bytes())]);
                self.stages.note("keepsake.stale", freshness.stale);
                self.stages.note("keepsake.partial", freshness.partial);
                pending.end_trace(std::mem::take(&mut self.stages), "ok", None);
                reply
            }
            Err(reject) => {
                let stages = std::mem::take(&mut self.stages);
                refused(&pending, &reject, &self.shards, &self.metrics, stages)
            }
        };
        let position = pending.position();
        Answered { reply, key: pending.request.key, position, returned }
    }

    /// Dispatches on the kind of request. `left_ms` returns the time until the deadline.
    fn ask(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        left_ms: &dyn Fn() -> i64,
    ) -> Result<(Answer, ask::ShardState), Reject> {
        match &request.ask {
            RequestKind::Recall(recall) => self.recall(now, shard, request, recall, left_ms),
            RequestKind::List(list) => self.list(now, shard, &request.key, list),
            RequestKind::Get { memory, history } => {
                self.get(now, shard, &request.key, *memory, *history)
            }
            RequestKind::Explain(explain) => self.explain(now, shard, &request.key, explain),
            RequestKind::Stats => self.stats(now, shard, &request.key),
            RequestKind::About(about) => self.about(now, shard, request, about, left_ms),
            RequestKind::Duplicates(duplicates) => {
                self.duplicates(now, shard, &request.key, duplicates, left_ms)
            }
        }
    }
}

/// Refuses a request on which Keepsake panics. A dead letter would not help: nothing is lost but
/// the answer.
fn panicked(pending: &PendingRequest, panic: Panic) -> Reject {
    let PendingRequest { partition, offset, .. } = pending;
    let Panic { message, stack } = panic;
    tracing::error!(partition, offset, stack, "Keepsake panicked on a request: {message}");
    Reject::poison(format!("Keepsake panics when it answers this request: {message}"), None)
}
