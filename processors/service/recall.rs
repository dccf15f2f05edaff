//! Answers requests: recall, about, list, get, explain, stats, duplicates. Reads the shards of this
//! process and changes nothing.
//!
//! ```text
//! request -> decode -> forward?  wait?  -> ask.rs: encode -> hits.rs: index, store
//!         -> rank -> rerank.rs -> render -> reply
//! ```
//!
//! [`Recall::step`] takes a record, or only the time, and returns the records to send. The caller
//! polls and publishes.
//!
//! - A request on the wrong partition is forwarded once.
//! - Requests that are ready are answered one of each tenant and user in turn (`fair.rs`); a tenant
//!   over its `quota` is refused.
//! - A request with `keepsake-min-offset` waits until ingest has applied that offset, or until its
//!   partition is restored; at most `waiting_max` requests wait, and a share of them for each user
//!   and tenant.
//! - Past its deadline, a request gets an error, or a partial reply if some queries are answered.

mod about;
mod ask;
mod duplicates;
mod event;
mod fair;
pub(crate) mod hits;
pub mod rerank;
mod returned;
mod search;
mod traced;
pub mod word_vectors;

use crate::ownership::ShardRegistry;
use crate::quota::Rate;
use broker::clock::{Clock, SystemClock};
use broker::{OutgoingRecord, Record};
use contract::decode::{self, DecodeOptions, Hop};
use contract::reply::{self, Answer, DeadLetters, Freshness};
use deployment::topics::dead_letters;
use domain::fault::{Reject, RejectCode};
use domain::panics::{Panic, caught};
use domain::{
    CosineScale, ForwardReason, Match, Now, Purpose, ReplyTo, Request, RequestKind, Time,
};
use fair::FairQueue;
use metrics::{Metrics, Recalled};
use models::embedder::{Embedder, TokenCounter};
use profiles::Profiles;
use rerank::Reranking;
use returned::Returned;
use settings::Config;
use spans::Tracer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use storage::shard::Shard;
use traced::{RequestTrace, Stages};
use word_vectors::WordVectors;

/// Milliseconds without a poll after which recall stops answering for the shards, unless the session in
/// the group is shorter: another process may own them by then.
const POLL_AGE_MS_MAX: i64 = 45_000;
/// Milliseconds after which comparing ends a page of `duplicates`: the requests of others wait for it.
/// The next page goes on from there.
const DUPLICATES_MS: u64 = 200;
/// Requests that are read ahead, so that the next one to be answered is chosen in turn among tenants
/// and users: four seconds' work at 1 ms each. Beyond it the order of the log decides.
const READY_MAX: usize = 4096;
/// Bytes of the requests that are read ahead: eight of the largest.
const READY_BYTES_MAX: usize = 8 << 20;

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

pub struct Recall {
    pub options: RecallOptions,
    pub profiles: Profiles,
    pub shards: Arc<ShardRegistry>,
    pub encoder: Box<dyn Embedder>,
    /// Converts the encoder's cosines to the standard scale.
    pub spread: CosineScale,
    pub tokens: TokenCounter,
    pub metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    reranking: Option<Reranking>,
    word_vectors: WordVectors,
    waiting: VecDeque<WaitingRequest>,
    /// Time of the last look at the waiting requests.
    looked_ms: i64,
    ready: FairQueue<PendingRequest>,
    ready_bytes: usize,
    rate: Rate,
    /// The offset after the newest request read, by partition.
    read: BTreeMap<i32, i64>,
    returned: Returned,
    pub(crate) tracer: Tracer,
    stages: Stages,
}

/// A decoded request with the position and the address of the reply.
struct PendingRequest {
    request: Request,
    to: ReplyTo,
    partition: i32,
    offset: i64,
    bytes: usize,
    /// For the durations in metrics and replies. Deadlines use `Recall::clock`.
    began: Instant,
    misrouted: bool,
    trace: Option<RequestTrace>,
}

/// A request whose fields are not read yet.
struct Arrived {
    record: Record,
    to: ReplyTo,
    began: Instant,
    trace: Option<RequestTrace>,
}

/// A request that waits for ingest to apply `offset`, or for its shard to be restored.
struct WaitingRequest {
    pending: PendingRequest,
    until: Time,
    offset: i64,
}

impl Recall {
    pub fn new(
        options: RecallOptions,
        profiles: Profiles,
        shards: Arc<ShardRegistry>,
        encoder: Box<dyn Embedder>,
        tokens: TokenCounter,
        metrics: Arc<Metrics>,
    ) -> Recall {
        let rate = Rate::new(options.rate.clone());
        Recall {
            options,
            profiles,
            shards,
            encoder,
            spread: CosineScale::STANDARD,
            tokens,
            metrics,
            clock: Arc::new(SystemClock),
            reranking: None,
            word_vectors: WordVectors::default(),
            waiting: VecDeque::new(),
            looked_ms: i64::MIN,
            ready: FairQueue::default(),
            ready_bytes: 0,
            rate,
            read: BTreeMap::new(),
            returned: Returned::default(),
            tracer: Tracer::off(),
            stages: Stages::default(),
        }
    }

    /// Adds a cross-encoder that reranks every recall.
    pub fn with_reranking(self, reranking: Option<Reranking>) -> Recall {
        Recall { reranking, ..self }
    }

    /// Measures the time that a request has left by this clock instead of the system's.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Recall {
        Recall { clock, ..self }
    }

    /// Takes a request, if there is one, and answers the next of those that are ready.
    pub fn step(&mut self, now: Now, record: Option<Record>) -> Vec<OutgoingRecord> {
        let mut out = self.wake(now);
        out.extend(record.into_iter().flat_map(|record| self.read(record)));
        if let Some(pending) = self.ready.pop() {
            self.ready_bytes -= pending.bytes;
            out.extend(self.answer_or_wait(now, pending));
        }
        self.metrics.waiting(self.waiting.len());
        out.extend(self.returned.due(now.wall, &self.options));
        out
    }

    /// Takes a request, to be answered in a later step. Returns the reply to a refused request, or
    /// the copy of a misrouted one.
    pub fn read(&mut self, record: Record) -> Vec<OutgoingRecord> {
        self.read.insert(record.partition, record.offset + 1);
        self.take(record)
    }

    pub fn has_ready(&self) -> bool {
        self.ready.len() > 0
    }

    /// True if no more requests must be read before some are answered.
    pub fn is_full(&self) -> bool {
        self.ready.len() >= READY_MAX || self.ready_bytes >= READY_BYTES_MAX
    }

    /// Returns the records that later steps would have sent. Called once, at shutdown.
    pub fn drain(&mut self) -> Vec<OutgoingRecord> {
        self.returned.all(&self.options)
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns for each partition the offset before which every request is answered: the consumer
    /// may commit up to here.
    pub fn answered(&self) -> Vec<(i32, i64)> {
        let mut answered = self.read.clone();
        let waiting = self.waiting.iter().map(|waiting| &waiting.pending);
        for pending in waiting.chain(self.ready.iter()) {
            answered
                .entry(pending.partition)
                .and_modify(|offset| *offset = pending.offset.min(*offset));
        }
        answered.into_iter().collect()
    }

    /// Drops the requests of partitions that were revoked: their next owner answers them.
    pub fn give_up(&mut self, partitions: &[i32]) {
        self.waiting.retain(|waiting| !partitions.contains(&waiting.pending.partition));
        self.read.retain(|partition, _| !partitions.contains(partition));
        let mut ready = std::mem::take(&mut self.ready);
        self.ready_bytes = 0;
        while let Some(pending) = ready.pop() {
            if !partitions.contains(&pending.partition) {
                self.make_ready(pending);
            }
        }
    }

    fn make_ready(&mut self, pending: PendingRequest) {
        self.ready_bytes += pending.bytes;
        let key = pending.request.key.clone();
        self.ready.push(&key, pending);
    }

    fn take(&mut self, record: Record) -> Vec<OutgoingRecord> {
        let began = Instant::now();
        let decoded = decode::request(&record, &self.options.decode);
        let mut to = decoded.reply.unwrap_or_default();
        let trace = RequestTrace::begin(&self.tracer, &record, &mut to);
        let arrived = Arrived { record, to, began, trace };
        let request = match decoded.outcome {
            Ok(request) => request,
            Err(reject) => return self.reject(&arrived, &reject),
        };
        if request.key.partition(self.shards.partitions()) != arrived.record.partition {
            return self.forward(&arrived, decoded.hop.as_ref(), &request);
        }
        if !request.warnings.is_empty() {
            self.metrics.warned(request.ask.name());
        }
        let Arrived { record, to, began, trace } = arrived;
        let pending = PendingRequest {
            request,
            to,
            partition: record.partition,
            offset: record.offset,
            bytes: record.bytes(),
            began,
            misrouted: decoded.hop.is_some(),
            trace,
        };
        let tenant = pending.request.key.tenant();
        if let Err(wait_ms) = self.rate.take(tenant, self.clock.steady_ms()) {
            let what = format!(
                "the tenant asks more than {} times a second (quota.recalls_per_second): ask \
                 again in {wait_ms} ms",
                self.rate.limit(tenant).unwrap_or_default()
            );
            self.metrics.over_quota("recalls-per-second");
            return vec![self.refuse(&pending, &Reject::new(RejectCode::Overloaded, what))];
        }
        self.make_ready(pending);
        Vec::new()
    }

    fn reject(&mut self, arrived: &Arrived, reject: &Reject) -> Vec<OutgoingRecord> {
        let Arrived { record, to, began, trace } = arrived;
        self.metrics.answered("unreadable", reject.code.status(), began.elapsed());
        let code = Some(reject.code.as_str());
        if let Some(trace) = trace {
            trace.end_unread(*began, reject.code.status(), code);
        }
        let refusal = reply::refusal(to, reject, None);
        if reject.code == RejectCode::ForbiddenReply {
            return vec![refusal];
        }
        let tenant = reply::tenant_of(record);
        self.metrics.dead_letter(
            reject.code.as_str(),
            &self.options.topics.recalls(),
            tenant.as_deref(),
        );
        vec![reply::dead_request(record, reject, &self.options.dead_letters), refusal]
    }

    fn forward(
        &mut self,
        arrived: &Arrived,
        hop: Option<&Hop>,
        request: &Request,
    ) -> Vec<OutgoingRecord> {
        let Arrived { record, began, trace, .. } = arrived;
        // A record that an earlier generation forwarded may need one hop more.
        let is_of_before =
            self.options.topics.generation > 1 && decode::may_be_forwarded(record).is_ok();
        if hop.is_some() && !is_of_before {
            let reject =
                Reject::new(RejectCode::Misrouted, "still on the wrong partition after one hop");
            return self.reject(arrived, &reject);
        }
        if let Err(reject) = decode::may_be_forwarded(record) {
            return self.reject(arrived, &reject);
        }
        self.metrics.forwarded(&self.options.topics.recalls());
        let (home, options) =
            (request.key.partition(self.shards.partitions()), &self.options.decode);
        let copy = decode::forwarded(record, home, ForwardReason::ToUser, options);
        vec![match trace {
            Some(trace) => {
                trace.end_unread(*began, "forwarded", None);
                trace.carried(copy, options)
            }
            None => copy,
        }]
    }

    fn answer_or_wait(&mut self, now: Now, pending: PendingRequest) -> Option<OutgoingRecord> {
        if now.wall > pending.request.deadline {
            return Some(self.refuse(
                &pending,
                &Reject::new(RejectCode::Expired, "the deadline had passed before work began"),
            ));
        }
        let Some(shard) = self.shard(pending.partition) else {
            if self.shards.restoring().contains_key(&pending.partition) {
                let offset = pending.request.min_offset.unwrap_or(-1);
                return self.wait(now, pending, offset);
            }
            return Some(self.refuse(&pending, &self.unavailable(pending.partition)));
        };
        match pending.request.min_offset {
            Some(offset) if !shard.has_applied(&pending.request.key, offset) => {
                self.wait(now, pending, offset)
            }
            _ => Some(self.answer(now, &shard, pending)),
        }
    }

    fn wait(&mut self, now: Now, pending: PendingRequest, offset: i64) -> Option<OutgoingRecord> {
        if let Some(reject) = self.no_room_to_wait(&pending) {
            return Some(self.refuse(&pending, &reject));
        }
        let until =
            now.wall.plus_ms(self.options.settings.min_offset_ms).min(pending.request.deadline);
        self.waiting.push_back(WaitingRequest { pending, until, offset });
        None
    }

    /// The limit that another waiting request would exceed.
    fn no_room_to_wait(&self, pending: &PendingRequest) -> Option<Reject> {
        let key = &pending.request.key;
        let waiting = || self.waiting.iter().map(|waiting| &waiting.pending.request.key);
        let of_user = waiting().filter(|other| *other == key).count();
        let of_tenant = waiting().filter(|other| other.tenant() == key.tenant()).count();
        let max = self.options.settings.waiting_max;
        // One user rarely waits for more than a few offsets at a time, and a tenant that waits for
        // offsets which never come leaves others a fifth of the places.
        let (user_max, tenant_max) = (max.div_ceil(10), (max * 4).div_ceil(5));
        let (who, count, share) = if of_user >= user_max {
            ("of this user ", of_user, "a tenth of ")
        } else if of_tenant >= tenant_max {
            ("of this tenant ", of_tenant, "four fifths of ")
        } else if self.waiting.len() >= max {
            ("", self.waiting.len(), "")
        } else {
            return None;
        };
        self.metrics.over_quota("waiting");
        let what = format!(
            "{count} requests {who}already wait for their offset ({share}recall.waiting_max): ask again in {} ms",
            self.options.settings.min_offset_ms
        );
        Some(Reject::new(RejectCode::Overloaded, what))
    }

    fn unavailable(&self, partition: i32) -> Reject {
        let message = match self.shards.restoring().get(&partition) {
            Some(share) => format!(
                "partition {partition} is being restored, {:.0} % done: ask again",
                100.0 * share
            ),
            None => format!("partition {partition} is moving to another process: ask again"),
        };
        Reject::new(RejectCode::Unavailable, message)
    }

    /// Makes the waiting requests ready that can go on, and refuses those that have waited too
    /// long, in the order of their arrival. While others are ready, looks once in a millisecond.
    fn wake(&mut self, now: Now) -> Vec<OutgoingRecord> {
        let mut out = Vec::new();
        let at_ms = self.clock.steady_ms();
        if self.has_ready() && at_ms == self.looked_ms {
            return out;
        }
        self.looked_ms = at_ms;
        for WaitingRequest { pending, until, offset } in std::mem::take(&mut self.waiting) {
            match self.shard(pending.partition) {
                Some(shard) if shard.has_applied(&pending.request.key, offset) => {
                    self.make_ready(pending)
                }
                Some(shard) if now.wall >= until => {
                    let message = not_applied(offset, &shard, self.options.topics.generation);
                    out.push(self.refuse(&pending, &Reject::new(RejectCode::Stale, message)));
                }
                None if now.wall >= until => {
                    let reject = self.unavailable(pending.partition);
                    out.push(self.refuse(&pending, &reject));
                }
                _ => self.waiting.push_back(WaitingRequest { pending, until, offset }),
            }
        }
        out
    }

    /// Returns the shard while ingest polls. After `poll_age_ms_max` without a poll, another process may
    /// own the partition and have newer state.
    fn shard(&self, partition: i32) -> Option<Arc<Shard>> {
        if self.shards.poll_age_ms() > self.options.poll_age_ms_max {
            return None;
        }
        self.shards.get(partition)
    }

    fn answer(&mut self, now: Now, shard: &Shard, pending: PendingRequest) -> OutgoingRecord {
        let name = pending.request.ask.name();
        let clock = self.clock.clone();
        let at_start_ms = clock.steady_ms();
        let at_most_ms = pending.request.deadline.ms_since(now.wall);
        let left_ms = || at_most_ms - (clock.steady_ms() - at_start_ms);
        self.stages.begin(pending.trace.as_ref());
        // The view of a shard is not poisoned, and nothing of an answer is stored.
        let answered = caught(|| self.ask(now, shard, &pending.request, &left_ms));
        match answered.unwrap_or_else(|panic| Err(panicked(&pending, panic))) {
            Ok((answer, seen)) => {
                let freshness = Freshness {
                    applied_offset: seen.applied,
                    stale: seen.stale || !shard.has_applied(&pending.request.key, seen.applied),
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
                        let ids = memories.iter().map(|found| found.memory.id);
                        let position = (pending.partition, pending.offset);
                        self.returned.count(key, position, now.events, ids);
                    }
                }
                self.metrics.answered(name, "ok", pending.began.elapsed());
                let began = Instant::now();
                let reply = reply::answer(&pending.to, &answer, &freshness);
                self.stages.ends("reply", began, &[("keepsake.reply.bytes", reply.bytes())]);
                self.stages.note("keepsake.stale", freshness.stale);
                self.stages.note("keepsake.partial", freshness.partial);
                self.end_trace(&pending, "ok", None);
                reply
            }
            Err(reject) => self.refuse(&pending, &reject),
        }
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

    fn end_trace(
        &mut self,
        pending: &PendingRequest,
        status: &'static str,
        error: Option<&'static str>,
    ) {
        if let Some(trace) = &pending.trace {
            let stages = std::mem::take(&mut self.stages);
            trace.end(&pending.request, pending.began, stages, status, error);
        }
    }

    fn refuse(&mut self, pending: &PendingRequest, reject: &Reject) -> OutgoingRecord {
        let status = reject.code.status();
        self.metrics.answered(pending.request.ask.name(), status, pending.began.elapsed());
        self.end_trace(pending, status, Some(reject.code.as_str()));
        let freshness = self.shards.get(pending.partition).map(|shard| Freshness {
            applied_offset: shard.applied(),
            stale: shard.is_stale(),
            took_us: pending.began.elapsed().as_micros() as u64,
            partial: false,
            misrouted: pending.misrouted,
            warnings: pending.request.warnings.clone(),
        });
        reply::refusal(&pending.to, reject, freshness.as_ref())
    }
}

/// Why a request is `stale`. Around a hand-over the offset may be of another partition.
fn not_applied(offset: i64, shard: &Shard, generation: u32) -> String {
    let about = match shard.closed() {
        Some(next) => format!(": generation {} takes over", next.generation),
        None if generation > 1 => format!(
            "; if it is of before generation {generation}, it is of another partition: leave \
             keepsake-min-offset out"
        ),
        None => String::new(),
    };
    format!("offset {offset} was not applied in time{about}")
}

/// Refuses a request on which Keepsake panics. A dead letter would not help: nothing is lost but
/// the answer.
fn panicked(pending: &PendingRequest, panic: Panic) -> Reject {
    let PendingRequest { partition, offset, .. } = pending;
    let Panic { message, stack } = panic;
    tracing::error!(partition, offset, stack, "Keepsake panicked on a request: {message}");
    Reject::poison(format!("Keepsake panics when it answers this request: {message}"), None)
}

#[cfg(test)]
mod tests;
