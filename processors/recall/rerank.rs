//! The best of each question's order read again by a cross-encoder, within a budget of time. Too slow, or in trouble: the order that there
//! was is the answer, and the metrics say so.

use super::Recall;
use crate::fault::Result;
use crate::metrics::Metrics;
use crate::ports::clock::Clock;
use crate::ports::cross_encoder::Reranker;
use crate::stages::rank::{self, Ranked};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memories of each order that are read.
    pub top: usize,
    /// Pairs read together.
    pub batch: usize,
    pub budget_ms: i64,
}

/// Recall's own model, and what it may take.
pub struct Reranking {
    pub model: Box<dyn Reranker>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
}

/// A question as it was searched, and its order.
pub struct Order {
    pub question: String,
    pub ranked: Vec<Ranked>,
}

/// How it ended.
enum Outcome {
    Done(Vec<Vec<f32>>),
    Slow,
    Failed,
}

impl Recall {
    /// With a cross-encoder that reads the best of every order again.
    pub fn with_reranking(mut self, reranking: Option<Reranking>) -> Recall {
        self.reranking = reranking;
        self
    }

    pub(super) fn is_reranking(&self) -> bool {
        self.reranking.is_some()
    }

    /// How many memories an order needs to have for an answer of so many.
    pub(super) fn reranked_of(&self, limit: usize) -> usize {
        self.reranking.as_ref().map_or(limit, |reranking| limit.max(reranking.options.top))
    }

    /// All orders or none: a score of the one kind cannot be compared with one of the other.
    pub(super) fn rerank(
        &mut self,
        orders: Vec<Order>,
        superseded: f32,
        left_ms: i64,
    ) -> Vec<Vec<Ranked>> {
        let scores = self
            .reranking
            .as_mut()
            .and_then(|reranking| reranking.scores(&orders, left_ms, &self.metrics));
        let Some(scores) = scores else {
            return orders.into_iter().map(|order| order.ranked).collect();
        };
        let ranked = orders.into_iter().zip(scores);
        ranked.map(|(order, logits)| rank::reranked(order.ranked, &logits, superseded)).collect()
    }
}

impl Reranking {
    fn scores(
        &mut self,
        orders: &[Order],
        left_ms: i64,
        metrics: &Metrics,
    ) -> Option<Vec<Vec<f32>>> {
        let pairs = self.pairs(orders);
        // Of one memory there is but one order.
        if pairs.len() < 2 {
            return None;
        }
        let began = self.clock.steady_ms();
        let outcome = self.read(orders, &pairs, left_ms).unwrap_or_else(|fault| {
            tracing::error!(%fault, "answers without reranking");
            Outcome::Failed
        });
        let took =
            Duration::from_millis(u64::try_from(self.clock.steady_ms() - began).unwrap_or(0));
        let (word, scores) = match outcome {
            Outcome::Done(scores) => ("done", Some(scores)),
            Outcome::Slow => ("slow", None),
            Outcome::Failed => ("failed", None),
        };
        metrics.reranked(word, took);
        scores
    }

    /// Places in the orders, short texts first: a batch is filled up to its longest, and what the first ones take is the least that the rest will.
    fn pairs(&self, orders: &[Order]) -> Vec<(usize, usize)> {
        let of_order = |(number, order): (usize, &Order)| {
            (0..order.ranked.len().min(self.options.top)).map(move |place| (number, place))
        };
        let mut pairs: Vec<(usize, usize)> = orders.iter().enumerate().flat_map(of_order).collect();
        pairs.sort_by_key(|(number, place)| {
            (orders[*number].ranked[*place].memory.content.len(), *number, *place)
        });
        pairs
    }

    fn read(
        &mut self,
        orders: &[Order],
        pairs: &[(usize, usize)],
        left_ms: i64,
    ) -> Result<Outcome> {
        let (began, budget_ms) = (self.clock.steady_ms(), self.options.budget_ms.min(left_ms));
        let mut scores: Vec<Vec<f32>> = orders
            .iter()
            .map(|order| vec![0.0; order.ranked.len().min(self.options.top)])
            .collect();
        if budget_ms <= 0 {
            return Ok(Outcome::Slow);
        }
        let mut count = 0;
        for batch in pairs.chunks(self.options.batch) {
            let texts: Vec<(&str, String)> =
                batch.iter().map(|(number, place)| orders[*number].pair(*place)).collect();
            let texts: Vec<(&str, &str)> =
                texts.iter().map(|(question, text)| (*question, text.as_str())).collect();
            for ((number, place), score) in batch.iter().zip(self.model.score(&texts)?) {
                scores[*number][*place] = score;
            }
            count += batch.len();
            // The whole as it will be at this speed, so that a model that is always too slow takes one batch of a recall and not the budget.
            let whole_ms = (self.clock.steady_ms() - began) * pairs.len() as i64 / count as i64;
            if count < pairs.len() && whole_ms > budget_ms {
                return Ok(Outcome::Slow);
            }
        }
        Ok(Outcome::Done(scores))
    }
}

impl Order {
    /// With who said it: to the model an "I" is anybody.
    fn pair(&self, place: usize) -> (&str, String) {
        let memory = &self.ranked[place].memory;
        let text = match &memory.speaker {
            Some(speaker) => format!("{speaker}: {}", memory.content),
            None => memory.content.clone(),
        };
        (&self.question, text)
    }
}
