//! Reranks the best memories of each query with a cross-encoder, within a time budget.
//!
//! 1. Collect the pairs of query and memory, up to `top` for each query, short texts first.
//! 2. Score them in batches. After each batch, extrapolate the total time; beyond the budget, stop.
//! 3. If all pairs are scored, `policies/rank/rerank.rs` reorders; else each query keeps its order.
//!
//! The metric `keepsake_rerank_total` counts the outcomes `done`, `slow` and `failed`.

use broker::clock::Clock;
use domain::fault::Result;
use kernel::ranking::Ranked;
use metrics::Metrics;
use models::cross_encoder::Reranker;
use policies::rank;
use std::sync::Arc;
use std::time::Duration;

/// Memories of each query, from the best one on, that the cross-encoder orders again. The time grows
/// with the number.
const TOP: usize = 50;
/// Pairs in one call of the model. Larger batches share the work and are padded to their longest pair.
const BATCH: usize = 8;

/// The cross-encoder session of an answering thread, with the limits.
pub struct Reranking {
    pub model: Box<dyn Reranker>,
    pub clock: Arc<dyn Clock>,
    /// Memories of each query that are scored.
    pub top: usize,
    /// Pairs that are scored together.
    pub batch: usize,
    pub budget_ms: i64,
}

impl Reranking {
    pub fn new(
        model: Box<dyn Reranker>,
        clock: Arc<dyn Clock>,
        settings: &settings::Rerank,
    ) -> Reranking {
        let budget_ms = i64::try_from(settings.budget_ms).unwrap_or(i64::MAX);
        Reranking { model, clock, top: TOP, batch: BATCH, budget_ms }
    }
}

/// A query in the form that was searched, and the ranked memories.
pub struct QueryResult {
    pub question: String,
    pub ranked: Vec<Ranked>,
}

enum RerankOutcome {
    Done(Vec<Vec<f32>>),
    Slow,
    Failed,
}

impl Reranking {
    /// Reranks all queries or none: scores before and after a rerank cannot be compared.
    pub fn rerank(
        &mut self,
        orders: Vec<QueryResult>,
        superseded: f32,
        left_ms: i64,
        metrics: &Metrics,
    ) -> Vec<Vec<Ranked>> {
        let Some(scores) = self.scores(&orders, left_ms, metrics) else {
            return orders.into_iter().map(|order| order.ranked).collect();
        };
        let ranked = orders.into_iter().zip(scores);
        ranked.map(|(order, logits)| rank::reranked(order.ranked, &logits, superseded)).collect()
    }

    fn scores(
        &mut self,
        orders: &[QueryResult],
        left_ms: i64,
        metrics: &Metrics,
    ) -> Option<Vec<Vec<f32>>> {
        let pairs = self.pairs(orders);
        // A single memory needs no order.
        if pairs.len() < 2 {
            return None;
        }
        let began = self.clock.steady_ms();
        let outcome = self.read(orders, &pairs, left_ms).unwrap_or_else(|fault| {
            tracing::error!(%fault, "answers without reranking");
            RerankOutcome::Failed
        });
        let took =
            Duration::from_millis(u64::try_from(self.clock.steady_ms() - began).unwrap_or(0));
        let (word, scores) = match outcome {
            RerankOutcome::Done(scores) => ("done", Some(scores)),
            RerankOutcome::Slow => ("slow", None),
            RerankOutcome::Failed => ("failed", None),
        };
        metrics.reranked(word, took);
        scores
    }

    /// Returns the pairs by query and position, short texts first: the model pads a batch to its
    /// longest text, and the time of the first batches is then a lower bound for the others.
    fn pairs(&self, orders: &[QueryResult]) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (number, order) in orders.iter().enumerate() {
            let count = order.ranked.len().min(self.top);
            pairs.extend((0..count).map(|position| (number, position)));
        }
        pairs.sort_by_key(|(number, position)| {
            (orders[*number].ranked[*position].memory.content.len(), *number, *position)
        });
        pairs
    }

    fn read(
        &mut self,
        orders: &[QueryResult],
        pairs: &[(usize, usize)],
        left_ms: i64,
    ) -> Result<RerankOutcome> {
        let began = self.clock.steady_ms();
        let budget_ms = self.budget_ms.min(left_ms);
        let mut scores: Vec<Vec<f32>> =
            orders.iter().map(|order| vec![0.0; order.ranked.len().min(self.top)]).collect();
        if budget_ms <= 0 {
            return Ok(RerankOutcome::Slow);
        }
        let mut count = 0;
        for batch in pairs.chunks(self.batch) {
            let texts: Vec<(&str, String)> =
                batch.iter().map(|(number, position)| orders[*number].pair(*position)).collect();
            let texts: Vec<(&str, &str)> =
                texts.iter().map(|(question, text)| (*question, text.as_str())).collect();
            for ((number, position), score) in batch.iter().zip(self.model.score(&texts)?) {
                scores[*number][*position] = score;
            }
            count += batch.len();
            // The total time at this speed. A model that is always too slow then costs a recall one
            // batch instead of the whole budget.
            let whole_ms = (self.clock.steady_ms() - began) * pairs.len() as i64 / count as i64;
            if count < pairs.len() && whole_ms > budget_ms {
                return Ok(RerankOutcome::Slow);
            }
        }
        Ok(RerankOutcome::Done(scores))
    }
}

impl QueryResult {
    /// Returns the query and the memory's text after the speaker's name, without which an "I" could
    /// be anybody.
    fn pair(&self, position: usize) -> (&str, String) {
        let memory = &self.ranked[position].memory;
        let text = match &memory.speaker {
            Some(speaker) => format!("{speaker}: {}", memory.content),
            None => memory.content.clone(),
        };
        (&self.question, text)
    }
}
