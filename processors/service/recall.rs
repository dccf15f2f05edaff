//! Answers requests: recall, about, list, get, explain, stats, duplicates. Reads the shards of this
//! process and changes nothing.
//!
//! ```text
//! inbox.rs:  request -> decode -> forward?  wait?  -> the next in turn
//! answer.rs: encode -> hits.rs: index, store -> rank -> rerank.rs -> render -> reply
//! ```
//!
//! A service has one [`Inbox`] and several threads with an [`Answerer`] each (`run/recalling.rs`).
//! [`Recall::step`] does the work of all on one thread: takes a record, or only the time, and
//! returns the records to send. The caller polls and publishes.
//!
//! - A request on the wrong partition is forwarded once.
//! - Requests that are ready are answered one of each tenant and user in turn (`fair.rs`); a tenant
//!   over its `quota` is refused.
//! - A request with `keepsake-min-offset` waits until ingest has applied that offset, or until its
//!   partition is restored; at most `waiting_max` requests wait, and a share of them for each user
//!   and tenant.
//! - Past its deadline, a request gets an error, or a partial reply if some queries are answered.

mod about;
pub mod answer;
mod ask;
mod duplicates;
mod event;
mod fair;
pub(crate) mod hits;
pub mod inbox;
mod pending;
pub mod rerank;
mod returned;
mod search;
pub(crate) mod traced;
pub mod word_vectors;

use answer::Answerer;
use broker::clock::Clock;
use broker::{OutgoingRecord, Record};
use contract::decode::DecodeOptions;
use contract::reply::DeadLetters;
use deployment::topics::dead_letters;
use domain::Now;
use inbox::{Inbox, Next};
use rerank::Reranking;
use settings::Config;
use std::sync::Arc;

/// Milliseconds without a poll after which recall stops answering for the shards, unless the session in
/// the group is shorter: another process may own them by then.
const POLL_AGE_MS_MAX: i64 = 45_000;
/// Milliseconds after which comparing ends a page of `duplicates`: the requests of others wait for it.
/// The next page goes on from there.
const DUPLICATES_MS: u64 = 200;

#[derive(Clone, Debug)]
pub struct RecallOptions {
    pub topics: settings::Topics,
    pub settings: settings::Recall,
    pub dead_letters: DeadLetters,
    pub decode: DecodeOptions,
    /// Time of comparing for one answer to `duplicates`.
    pub duplicates_ms: u64,
    /// Requests of a tenant in a second.
    pub rate: settings::quota::Limits,
    pub poll_age_ms_max: i64,
}

impl RecallOptions {
    pub fn new(config: &Config) -> RecallOptions {
        RecallOptions {
            topics: config.topics.clone(),
            settings: config.recall.clone(),
            dead_letters: dead_letters(config),
            decode: config.decoding(),
            duplicates_ms: DUPLICATES_MS,
            rate: config.quota.limits().unwrap_or_default().recalls_per_second,
            poll_age_ms_max: POLL_AGE_MS_MAX.min(config.kafka.session_ms()),
        }
    }
}

/// All of recall on one thread.
pub struct Recall {
    pub inbox: Inbox,
    pub answerer: Answerer,
}

impl Recall {
    /// Adds a cross-encoder that reranks every recall.
    pub fn with_reranking(mut self, reranking: Option<Reranking>) -> Recall {
        self.answerer.reranking = reranking;
        self
    }

    /// Measures the time that a request has left by this clock instead of the system's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Recall {
        (self.inbox.clock, self.answerer.clock) = (clock.clone(), clock);
        self
    }

    /// Takes a request, if there is one, and answers the next of those that are ready.
    pub fn step(&mut self, now: Now, record: Option<Record>) -> Vec<OutgoingRecord> {
        let mut out = self.inbox.wake(now);
        out.extend(record.into_iter().flat_map(|record| self.inbox.read(record)));
        let answered = match self.inbox.next(now) {
            Some(Next::Answer(job)) => Some(self.answerer.answer(now, job)),
            Some(Next::Send(refused)) => Some(refused),
            Some(Next::Waits) | None => None,
        };
        if let Some(answered) = answered {
            self.inbox.done(now, &answered);
            out.push(answered.reply);
        }
        out.extend(self.inbox.due(now));
        out
    }
}

#[cfg(test)]
mod tests;
