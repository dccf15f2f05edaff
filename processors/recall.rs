//! The recall processor: request → decode → index → store → rank → reply. Reads shards, changes nothing.
//! A machine without I/O of its own: `step` takes a request or a moment and returns what is to be sent.

mod ask;
mod hits;
pub mod rerank;
pub mod returned;
pub mod word_vectors;

use crate::domain::{Ask, Now, ReplyTo, Request, Spread, Time};
use crate::fault::{Reject, RejectCode};
use crate::metrics::Metrics;
use crate::ownership::Shards;
use crate::ports::broker::{Outgoing, Record};
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::embedder::{Embedder, TokenCounter};
use crate::profile::Profiles;
use crate::shard::Shard;
use crate::stages::decode::{self, Hop, Way};
use crate::stages::reply::{self, Answer, Freshness};
use rerank::Reranking;
use returned::Returned;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use word_vectors::WordVectors;

#[derive(Clone, Debug)]
pub struct Options {
    pub recalls: String,
    pub dead_letters: String,
    pub decode: decode::Options,
    pub candidates: usize,
    pub terms_max: usize,
    pub token_budget_max: usize,
    pub min_offset_ms: i64,
    pub waiting_max: usize,
    pub silence_ms: i64,
    pub returned: returned::Options,
    pub word_vectors: word_vectors::Options,
}

pub struct Recall {
    pub options: Options,
    pub profiles: Profiles,
    pub shards: Arc<Shards>,
    pub encoder: Box<dyn Embedder>,
    /// Puts the encoder's cosines on the standard scale. The standard one's unless `with_spread` gives another.
    pub spread: Spread,
    pub tokens: TokenCounter,
    pub metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    reranking: Option<Reranking>,
    word_vectors: WordVectors,
    waiting: VecDeque<Waiting>,
    /// The offset after the newest request read, by partition.
    read: BTreeMap<i32, i64>,
    returned: Returned,
}

/// A request, checked, with where it came from and where its answer goes.
struct Asked {
    request: Request,
    to: ReplyTo,
    partition: i32,
    offset: i64,
    began: Instant,
    misrouted: bool,
}

/// Waits for ingest to reach its offset, or for its shard to be restored.
struct Waiting {
    asked: Asked,
    until: Time,
    offset: i64,
}

impl Recall {
    pub fn new(
        options: Options,
        profiles: Profiles,
        shards: Arc<Shards>,
        encoder: Box<dyn Embedder>,
        tokens: TokenCounter,
        metrics: Arc<Metrics>,
    ) -> Recall {
        let (waiting, read) = (VecDeque::new(), BTreeMap::new());
        let (spread, reranking, returned) = (Spread::STANDARD, None, Returned::default());
        let word_vectors = WordVectors::new(options.word_vectors);
        Recall {
            options,
            profiles,
            shards,
            encoder,
            spread,
            tokens,
            metrics,
            clock: Arc::new(SystemClock),
            reranking,
            word_vectors,
            waiting,
            read,
            returned,
        }
    }

    pub fn with_spread(self, spread: Spread) -> Recall {
        Recall { spread, ..self }
    }

    /// Measures the time that a request has left by this clock instead of the system's.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Recall {
        Recall { clock, ..self }
    }

    /// A request, or a moment in which those that wait may go on.
    pub fn step(&mut self, now: Now, record: Option<Record>) -> Vec<Outgoing> {
        let mut out = self.wake(now);
        if let Some(record) = record {
            self.read.insert(record.partition, record.offset + 1);
            out.extend(self.take(now, record));
        }
        self.metrics.waiting(self.waiting.len());
        out.extend(self.returned.due(now.wall, &self.options.returned));
        out
    }

    /// What would be told later: nobody steps any more.
    pub fn last_words(&mut self) -> Vec<Outgoing> {
        self.returned.all(&self.options.returned)
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The offsets before which every request has its answer.
    pub fn answered(&self) -> Vec<(i32, i64)> {
        let first_waiting = |partition: i32| {
            self.waiting
                .iter()
                .filter(|waiting| waiting.asked.partition == partition)
                .map(|waiting| waiting.asked.offset)
                .min()
        };
        self.read
            .iter()
            .map(|(partition, next)| (*partition, first_waiting(*partition).unwrap_or(*next)))
            .collect()
    }

    /// Partitions that are no longer ours: their next owner answers what waits.
    pub fn give_up(&mut self, partitions: &[i32]) {
        self.waiting.retain(|waiting| !partitions.contains(&waiting.asked.partition));
        self.read.retain(|partition, _| !partitions.contains(partition));
    }

    fn take(&mut self, now: Now, record: Record) -> Vec<Outgoing> {
        let began = Instant::now();
        let decoded = decode::request(&record, &self.options.decode);
        let to = decoded.reply.unwrap_or_default();
        let request = match decoded.outcome {
            Ok(request) => request,
            Err(reject) => return self.reject(&record, &to, &reject, began),
        };
        if request.key.partition(self.shards.partitions()) != record.partition {
            return self.forward(&record, &to, decoded.hop.as_ref(), &request, began);
        }
        let misrouted = decoded.hop.is_some();
        let asked = Asked {
            request,
            to,
            partition: record.partition,
            offset: record.offset,
            began,
            misrouted,
        };
        self.answer_or_wait(now, asked).into_iter().collect()
    }

    fn reject(
        &mut self,
        record: &Record,
        to: &ReplyTo,
        reject: &Reject,
        began: Instant,
    ) -> Vec<Outgoing> {
        self.metrics.answered("unreadable", reject.code.status(), began.elapsed());
        let refusal = reply::refusal(to, reject, None);
        if reject.code == RejectCode::ForbiddenReply {
            return vec![refusal];
        }
        self.metrics.dead_letter(reject.code.as_str());
        vec![reply::dead_letter(record, reject, "recall", &self.options.dead_letters), refusal]
    }

    fn forward(
        &mut self,
        record: &Record,
        to: &ReplyTo,
        hop: Option<&Hop>,
        request: &Request,
        began: Instant,
    ) -> Vec<Outgoing> {
        if hop.is_some() {
            let reject =
                Reject::new(RejectCode::Misrouted, "still on a wrong partition after one hop");
            return self.reject(record, to, &reject, began);
        }
        if let Err(reject) = decode::may_be_forwarded(record) {
            return self.reject(record, to, &reject, began);
        }
        self.metrics.forwarded(&self.options.recalls);
        vec![decode::forwarded(
            record,
            request.key.partition(self.shards.partitions()),
            Way::ToUser,
            &self.options.decode,
        )]
    }

    fn answer_or_wait(&mut self, now: Now, asked: Asked) -> Option<Outgoing> {
        if now.wall > asked.request.deadline {
            return Some(self.refuse(
                &asked,
                &Reject::new(RejectCode::Expired, "its deadline had passed before work began"),
            ));
        }
        let Some(shard) = self.shard(asked.partition) else {
            if self.shards.restoring().contains_key(&asked.partition) {
                let offset = asked.request.min_offset.unwrap_or(-1);
                return self.wait(now, asked, offset);
            }
            return Some(self.refuse(&asked, &self.unavailable(asked.partition)));
        };
        match asked.request.min_offset {
            Some(offset) if !shard.has_applied(&asked.request.key, offset) => {
                self.wait(now, asked, offset)
            }
            _ => Some(self.answer(now, &shard, asked)),
        }
    }

    fn wait(&mut self, now: Now, asked: Asked, offset: i64) -> Option<Outgoing> {
        if self.waiting.len() >= self.options.waiting_max {
            let reject = Reject::new(
                RejectCode::Overloaded,
                format!("{} requests wait for their offset already", self.waiting.len()),
            );
            return Some(self.refuse(&asked, &reject));
        }
        let until = now.wall.plus_ms(self.options.min_offset_ms).min(asked.request.deadline);
        self.waiting.push_back(Waiting { asked, until, offset });
        None
    }

    fn unavailable(&self, partition: i32) -> Reject {
        let message = match self.shards.restoring().get(&partition) {
            Some(share) => format!(
                "partition {partition} is being restored, {:.0} % is here: ask again",
                100.0 * share
            ),
            None => format!("partition {partition} is changing hands: ask again"),
        };
        Reject::new(RejectCode::Unavailable, message)
    }

    /// Answers what waited long enough, in the order it came.
    fn wake(&mut self, now: Now) -> Vec<Outgoing> {
        let mut out = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let shard = self.shard(waiting.asked.partition);
            match shard {
                Some(shard) if shard.has_applied(&waiting.asked.request.key, waiting.offset) => {
                    out.push(self.answer(now, &shard, waiting.asked))
                }
                Some(_) if now.wall >= waiting.until => {
                    let message = format!("offset {} was not reached in time", waiting.offset);
                    out.push(self.refuse(&waiting.asked, &Reject::new(RejectCode::Stale, message)));
                }
                None if now.wall >= waiting.until => {
                    let reject = self.unavailable(waiting.asked.partition);
                    out.push(self.refuse(&waiting.asked, &reject));
                }
                _ => self.waiting.push_back(waiting),
            }
        }
        out
    }

    /// Only while ingest polls: past that, another process may own the partition and know better.
    fn shard(&self, partition: i32) -> Option<Arc<Shard>> {
        if self.shards.silent_ms() > self.options.silence_ms {
            return None;
        }
        self.shards.get(partition)
    }

    fn answer(&mut self, now: Now, shard: &Shard, asked: Asked) -> Outgoing {
        let name = asked.request.ask.name();
        let clock = self.clock.clone();
        let at_start_ms = clock.steady_ms();
        let at_most_ms = asked.request.deadline.ms_since(now.wall);
        let left_ms = || at_most_ms - (clock.steady_ms() - at_start_ms);
        match self.ask(now, shard, &asked.request, &left_ms) {
            Ok((answer, seen)) => {
                let freshness = Freshness {
                    applied_offset: seen.applied,
                    stale: seen.stale || !shard.has_applied(&asked.request.key, seen.applied),
                    took_us: asked.began.elapsed().as_micros() as u64,
                    partial: seen.partial,
                    misrouted: asked.misrouted,
                };
                if let Answer::Recalled { memories, tokens, matched, .. } = &answer {
                    self.metrics.recalled(memories.len(), *tokens, *matched);
                    let key = &asked.request.key;
                    if self.profiles.of(key).returned_counts() {
                        let ids = memories.iter().map(|found| found.memory.id);
                        self.returned.count(key, (asked.partition, asked.offset), now.events, ids);
                    }
                }
                self.metrics.answered(name, "ok", asked.began.elapsed());
                reply::answer(&asked.to, &answer, &freshness)
            }
            Err(reject) => self.refuse(&asked, &reject),
        }
    }

    /// index → store → rank, by what was asked.
    fn ask(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        left_ms: &dyn Fn() -> i64,
    ) -> Result<(Answer, ask::Seen), Reject> {
        match &request.ask {
            Ask::Recall(recall) => self.recall(now, shard, request, recall, left_ms),
            Ask::List(list) => self.list(shard, &request.key, list),
            Ask::Get { memory, history } => self.get(shard, &request.key, *memory, *history),
            Ask::Explain(explain) => self.explain(shard, &request.key, explain),
            Ask::Stats => self.stats(shard, &request.key),
        }
    }

    fn refuse(&self, asked: &Asked, reject: &Reject) -> Outgoing {
        self.metrics.answered(
            asked.request.ask.name(),
            reject.code.status(),
            asked.began.elapsed(),
        );
        let freshness = self.shards.get(asked.partition).map(|shard| Freshness {
            applied_offset: shard.applied(),
            stale: shard.is_stale(),
            took_us: asked.began.elapsed().as_micros() as u64,
            partial: false,
            misrouted: asked.misrouted,
        });
        reply::refusal(&asked.to, reject, freshness.as_ref())
    }
}

#[cfg(test)]
mod tests;
