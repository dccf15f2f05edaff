//! Takes requests in, and hands out the next one to be answered: fairly (`fair.rs`), and once it can
//! be. Keeps account of what is answered.
//!
//! Any number of threads may answer. Each asks for the next request ([`Inbox::next`]), answers it
//! without holding the inbox, and says when it is done ([`Inbox::done`]).

use super::RecallOptions;
use super::answer::Answered;
use super::fair::FairQueue;
use super::pending::{PendingRequest, refused};
use super::returned::Returned;
use super::traced::{RequestTrace, Stages};
use crate::ownership::ShardRegistry;
use crate::quota::Rate;
use broker::clock::Clock;
use broker::{OutgoingRecord, Record};
use contract::decode::{self, DecodeOptions, Decoded, Hop};
use contract::reply;
use domain::fault::{Reject, RejectCode};
use domain::{ForwardReason, Now, ReplyTo, Request, Time};
use metrics::Metrics;
use spans::Tracer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use storage::shard::Shard;

/// Requests that are read ahead, so that the next one to be answered is chosen in turn among tenants
/// and users: four seconds' work at 1 ms each. Beyond it the order of the log decides.
const READY_MAX: usize = 4096;
/// Bytes of the requests that are read ahead: eight of the largest.
const READY_BYTES_MAX: usize = 8 << 20;

pub struct Inbox {
    pub options: RecallOptions,
    pub shards: Arc<ShardRegistry>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) rate: Rate,
    pub(crate) tracer: Tracer,
    metrics: Arc<Metrics>,
    waiting: VecDeque<WaitingRequest>,
    /// Requests whose shard takes a batch: whoever answered one would only hold a thread.
    held: VecDeque<PendingRequest>,
    /// Time of the last look at the waiting requests.
    looked_ms: i64,
    ready: FairQueue<PendingRequest>,
    ready_bytes: usize,
    /// Partition and offset of the requests that are being answered, and since when.
    taken: BTreeMap<(i32, i64), i64>,
    /// The offset after the newest request read, by partition.
    read: BTreeMap<i32, i64>,
    returned: Returned,
}

/// The next step for a request whose turn it is.
pub enum Next {
    Answer(Box<Job>),
    /// A refusal.
    Send(Answered),
    /// It waits for its offset, or for its shard.
    Waits,
}

/// A request that can be answered now, by one thread.
pub struct Job {
    pub(super) pending: PendingRequest,
    pub(super) shard: Arc<Shard>,
}

/// A record that was read, before anything is decided about it.
pub struct Arrived {
    record: Record,
    decoded: Decoded<Request>,
    began: Instant,
}

impl Arrived {
    pub fn decoded(record: Record, options: &DecodeOptions) -> Arrived {
        let began = Instant::now();
        Arrived { decoded: decode::request(&record, options), record, began }
    }
}

/// A request whose fields are not read yet.
struct Unread {
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

impl Inbox {
    pub fn new(
        options: RecallOptions,
        shards: Arc<ShardRegistry>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Inbox {
        let rate = Rate::new(options.rate.clone());
        Inbox {
            options,
            shards,
            clock,
            rate,
            tracer: Tracer::off(),
            metrics,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            looked_ms: i64::MIN,
            ready: FairQueue::default(),
            ready_bytes: 0,
            taken: BTreeMap::new(),
            read: BTreeMap::new(),
            returned: Returned::default(),
        }
    }

    /// Takes a request, to be answered in a later step. Returns the reply to a refused request, or
    /// the copy of a misrouted one.
    pub fn read(&mut self, record: Record) -> Vec<OutgoingRecord> {
        self.take(Arrived::decoded(record, &self.options.decode))
    }

    /// Returns the request whose turn it is. Whoever gets a job or a refusal sends the reply, and
    /// then says that it is done.
    pub fn next(&mut self, now: Now) -> Option<Next> {
        self.release_held();
        let pending = self.ready.pop()?;
        self.ready_bytes -= pending.bytes;
        let (key, position) = (pending.request.key.clone(), pending.position());
        let next = self.answer_or_wait(now, pending);
        match &next {
            Next::Answer(_) | Next::Send(_) => {
                self.taken.insert(position, self.clock.steady_ms());
            }
            Next::Waits => self.ready.done(&key),
        }
        Some(next)
    }

    /// The reply to a request is sent.
    pub fn done(&mut self, now: Now, answered: &Answered) {
        let Answered { key, position, returned, .. } = answered;
        self.taken.remove(position);
        self.ready.done(key);
        if !returned.is_empty() {
            self.returned.count(key, *position, now.events, returned.iter().copied());
        }
    }

    /// Returns what is due besides answers: the reports of returned memories.
    pub fn due(&mut self, now: Now) -> Vec<OutgoingRecord> {
        self.metrics.waiting(self.waiting.len());
        self.returned.due(now.wall, &self.options)
    }

    /// True if a request can be handed out.
    pub fn has_ready(&self) -> bool {
        self.ready.has_next()
    }

    /// True if every request is answered, or waits for its offset.
    pub fn is_empty(&self) -> bool {
        self.ready.len() == 0 && self.held.is_empty() && self.taken.is_empty()
    }

    /// True if no more requests must be read before some are answered.
    pub fn is_full(&self) -> bool {
        self.ready.len() + self.held.len() >= READY_MAX || self.ready_bytes >= READY_BYTES_MAX
    }

    /// Returns the records that later steps would have sent. Called once, at shutdown.
    pub fn drain(&mut self) -> Vec<OutgoingRecord> {
        self.returned.all(&self.options)
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if a request waits until its shard has taken a batch. Whoever asks for the next one finds
    /// out when that is over.
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// True while a request is being answered.
    pub fn is_answering(&self) -> bool {
        !self.taken.is_empty()
    }

    /// The time for which the oldest of these requests is being answered.
    pub fn oldest_taken_ms(&self) -> Option<i64> {
        self.taken.values().min().map(|since| self.clock.steady_ms() - since)
    }

    /// Returns for each partition the offset before which every request is answered: the consumer
    /// may commit up to here.
    pub fn answered(&self) -> Vec<(i32, i64)> {
        let mut answered = self.read.clone();
        let waiting = self.waiting.iter().map(|waiting| &waiting.pending);
        let positions =
            waiting.chain(self.ready.iter()).chain(&self.held).map(PendingRequest::position);
        for (partition, offset) in positions.chain(self.taken.keys().copied()) {
            answered.entry(partition).and_modify(|before| *before = offset.min(*before));
        }
        answered.into_iter().collect()
    }

    /// Drops the requests of partitions that were revoked: their next owner answers them.
    pub fn give_up(&mut self, partitions: &[i32]) {
        self.waiting.retain(|waiting| !partitions.contains(&waiting.pending.partition));
        self.read.retain(|partition, _| !partitions.contains(partition));
        self.ready.retain(|pending| !partitions.contains(&pending.partition));
        self.held.retain(|pending| !partitions.contains(&pending.partition));
        self.ready_bytes = self.ready.iter().map(|pending| pending.bytes).sum();
    }

    fn make_ready(&mut self, pending: PendingRequest) {
        self.ready_bytes += pending.bytes;
        let key = pending.request.key.clone();
        self.ready.push(&key, pending);
    }

    /// As `read`, of a record that is decoded.
    pub fn take(&mut self, arrived: Arrived) -> Vec<OutgoingRecord> {
        let Arrived { record, decoded, began } = arrived;
        self.read.insert(record.partition, record.offset + 1);
        let mut to = decoded.reply.unwrap_or_default();
        let trace = RequestTrace::begin(&self.tracer, &record, &mut to);
        let arrived = Unread { record, to, began, trace };
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
        let Unread { record, to, began, trace } = arrived;
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
            return vec![self.refusal(&pending, &Reject::new(RejectCode::Overloaded, what))];
        }
        self.make_ready(pending);
        Vec::new()
    }

    fn reject(&mut self, arrived: &Unread, reject: &Reject) -> Vec<OutgoingRecord> {
        let Unread { record, to, began, trace } = arrived;
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
        arrived: &Unread,
        hop: Option<&Hop>,
        request: &Request,
    ) -> Vec<OutgoingRecord> {
        let Unread { record, began, trace, .. } = arrived;
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

    fn answer_or_wait(&mut self, now: Now, pending: PendingRequest) -> Next {
        if now.wall > pending.request.deadline {
            let what = "the deadline had passed before work began";
            return self.refuse(&pending, &Reject::new(RejectCode::Expired, what));
        }
        let Some(shard) = self.shard(pending.partition) else {
            if self.shards.restoring().contains_key(&pending.partition) {
                let offset = pending.request.min_offset.unwrap_or(-1);
                return self.wait(now, pending, offset);
            }
            return self.refuse(&pending, &self.unavailable(pending.partition));
        };
        match pending.request.min_offset {
            Some(offset) if !self.shards.has_applied(&shard, &pending.request.key, offset) => {
                self.wait(now, pending, offset)
            }
            _ if shard.is_applying() => {
                self.held.push_back(pending);
                Next::Waits
            }
            _ => Next::Answer(Box::new(Job { pending, shard })),
        }
    }

    fn wait(&mut self, now: Now, pending: PendingRequest, offset: i64) -> Next {
        if let Some(reject) = self.no_room_to_wait(&pending) {
            return self.refuse(&pending, &reject);
        }
        let until =
            now.wall.plus_ms(self.options.settings.min_offset_ms).min(pending.request.deadline);
        self.waiting.push_back(WaitingRequest { pending, until, offset });
        Next::Waits
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
    pub fn wake(&mut self, now: Now) -> Vec<OutgoingRecord> {
        let mut out = Vec::new();
        let at_ms = self.clock.steady_ms();
        if self.has_ready() && at_ms == self.looked_ms {
            return out;
        }
        self.looked_ms = at_ms;
        for WaitingRequest { pending, until, offset } in std::mem::take(&mut self.waiting) {
            match self.shard(pending.partition) {
                Some(shard) if self.shards.has_applied(&shard, &pending.request.key, offset) => {
                    self.make_ready(pending)
                }
                Some(shard) if now.wall >= until => {
                    let message = not_applied(offset, &shard, self.options.topics.generation);
                    let reject = Reject::new(RejectCode::Stale, message);
                    out.push(self.refusal(&pending, &reject));
                }
                None if now.wall >= until => {
                    let reject = self.unavailable(pending.partition);
                    out.push(self.refusal(&pending, &reject));
                }
                _ => self.waiting.push_back(WaitingRequest { pending, until, offset }),
            }
        }
        out
    }

    fn release_held(&mut self) {
        for pending in std::mem::take(&mut self.held) {
            match self.shard(pending.partition) {
                Some(shard) if shard.is_applying() => self.held.push_back(pending),
                _ => self.make_ready(pending),
            }
        }
    }

    /// Returns the shard while ingest polls. After `poll_age_ms_max` without a poll, another process may
    /// own the partition and have newer state.
    fn shard(&self, partition: i32) -> Option<Arc<Shard>> {
        if self.shards.poll_age_ms() > self.options.poll_age_ms_max {
            return None;
        }
        self.shards.get(partition)
    }

    fn refuse(&self, pending: &PendingRequest, reject: &Reject) -> Next {
        let reply = self.refusal(pending, reject);
        let (key, position) = (pending.request.key.clone(), pending.position());
        Next::Send(Answered { reply, key, position, returned: Vec::new() })
    }

    fn refusal(&self, pending: &PendingRequest, reject: &Reject) -> OutgoingRecord {
        refused(pending, reject, &self.shards, &self.metrics, Stages::default())
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
