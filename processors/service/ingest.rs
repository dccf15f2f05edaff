//! Applies events to shards: event → decode → redact → split → encode → score → decide → commit →
//! store → index → reply. The only writer of a shard.
//!
//!   prepare   decode, route, redact and split several records; encode their texts together
//!   apply     hand each event to the kernel, in order, over the shard's staged state
//!   publish   turn decisions, dead letters, forwarded events and replies into records
//!
//! Several lanes may do this at a time, each with the records of some shards (`ingest/lanes.rs`).
//!
//! `step` does no I/O besides reading shards and asking the encoder pool. The thread in
//! `run/ingesting.rs` commits the outputs, applies the writes and sends the replies.

mod batch;
pub mod breaker;
mod changes;
mod count;
pub mod erasures;
pub mod event_rate;
mod in_flight;
pub mod lanes;
mod prepare;
pub mod publish;
mod redaction;
pub mod sizes;
#[cfg(test)]
mod tests;
mod traced;
mod write;

use crate::ownership::ShardRegistry;
use batch::Batch;
use breaker::DeadLetterBreaker;
use broker::{OutgoingRecord, Record};
use contract::decode::{self, DecodeOptions, Hop};
use contract::reply::{self, DeadLetters, Freshness, Proposal};
use count::Count;
use domain::fault::{Fault, Reject, Result, StopName};
use domain::panics::{Panic, caught};
use domain::{
    Chatter, CosineScale, ForgetContinuation, ForwardReason, HandOver, HandOverStep, Position,
    Time, UserKey, Vector,
};
use event_rate::EventRate;
use in_flight::{Drafted, Ready, Route};
use kernel::{Action, ActiveRules, Event, Part, Settings};
use lanes::Lanes;
use metrics::Metrics;
use models::embedder::TokenCounter;
use models::embedder::pool::{Pending, Pool};
use parking_lot::Mutex;
use prepare::TextVector;
use profiles::Profiles;
use settings::quota::Limits;
use sizes::RecordSizes;
use spans::{Trace, Tracer};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use storage::changelog::{self, Destination, Meta, TopicId};
use storage::shard::Shard;
use text::Rarity;
use traced::{BatchTrace, EventSpans, with_traceparent};
use uuid::Uuid;
pub use write::Write;

/// Groups of records that the encoder has at a time: the one being encoded and the next.
const GROUPS_BEGUN: usize = 2;

/// Candidates of one turn. 64 KiB of one-line paragraphs exceed it; the rest is refused with that
/// reason.
pub const CANDIDATES_MAX: usize = 64;

#[derive(Clone, Debug)]
pub struct Options {
    pub events: Arc<str>,
    pub decisions: String,
    pub memories: String,
    /// `None` if every tenant's home is in every process: the only partition, or a test.
    pub tenants: Option<TenantsTopic>,
    /// The consumer group, for the meta records.
    pub group: String,
    /// The id under which the outputs are committed, for the meta records too. `None` in tests that
    /// commit nothing.
    pub transactional_id: Option<String>,
    /// The generation of the shards. Ends at the mark of a later one.
    pub generation: u32,
    pub dead_letters: DeadLetters,
    pub decode: DecodeOptions,
    pub with_text: bool,
    pub candidates_max: usize,
    pub limits: kernel::Limits,
    /// Partition and offset of records to put aside unread.
    pub skip: BTreeSet<(i32, i64)>,
    /// Live memories of a tenant on one partition.
    pub memories_max: Limits,
    pub erasures: erasures::Options,
    pub sizes: RecordSizes,
}

/// The topic by which other processes follow the tenants' memories.
#[derive(Clone, Debug)]
pub struct TenantsTopic {
    pub name: String,
    /// A topic that was made anew has another one.
    pub id: u128,
}

pub struct Ingest {
    pub options: Options,
    pub profiles: Profiles,
    pub shards: Arc<ShardRegistry>,
    pub encoder: Pool,
    pub tokens: TokenCounter,
    pub rarity: Rarity,
    /// Puts the encoder's cosines on the standard scale.
    pub spread: CosineScale,
    /// Tells chatter by the encoder's vectors; `None` if no weights were learned for this encoder.
    pub chatter: Option<Chatter>,
    pub breaker: Mutex<DeadLetterBreaker>,
    pub rate: Mutex<EventRate>,
    pub lanes: Lanes,
    pub metrics: Arc<Metrics>,
    pub tracer: Tracer,
}

/// The results of a step, which the caller carries out. Order matters: outputs are acknowledged,
/// then shards change, then replies are sent.
#[derive(Default)]
pub struct Effects {
    /// Decisions, dead letters, forwarded records, the change feed.
    pub outputs: Vec<OutgoingRecord>,
    pub writes: Vec<Write>,
    pub replies: Vec<OutgoingRecord>,
    /// The newest event time of the batch.
    pub newest: Option<Time>,
    /// The time at which a tick starts a round of the compaction worker.
    pub compact_at: Option<Time>,
    /// Number of records that were applied.
    pub records: usize,
    pub trace: BatchTrace,
}

impl Effects {
    fn add(&mut self, mut other: Effects) {
        self.outputs.append(&mut other.outputs);
        self.writes.append(&mut other.writes);
        self.replies.append(&mut other.replies);
        self.newest = self.newest.max(other.newest);
        self.compact_at = self.compact_at.max(other.compact_at);
        self.records += other.records;
        self.trace.join(other.trace);
    }
}

/// Asked before each record, from every lane.
pub type GoesOn<'a> = &'a (dyn Fn() -> bool + Sync);

/// The lanes of a step have these in common.
struct Step<'a> {
    shards: &'a BTreeMap<i32, Arc<Shard>>,
    trace: Option<Trace>,
    goes_on: GoesOn<'a>,
}

/// Why a batch was given up early.
enum Halt {
    Fault(Fault),
    /// The kernel panicked on the record at this place of the batch.
    Panicked {
        at: usize,
        panic: Panic,
    },
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Halt {
        Halt::Fault(fault)
    }
}

impl Ingest {
    /// Applies records of owned partitions, in order. After a fault nothing is written and the
    /// records are read again.
    pub fn step(&self, records: Vec<Record>) -> Result<Effects> {
        self.step_while(records, &|| true)
    }

    /// Applies as many of the records as are begun while `goes_on`, but at least one.
    /// `Effects::records` counts them.
    pub fn step_while(&self, records: Vec<Record>, goes_on: GoesOn<'_>) -> Result<Effects> {
        let shards = self.shards_of(&records)?;
        let applied = shards.values().map(|shard| (shard.partition, shard.applied()));
        applied.for_each(|(partition, applied)| self.rate.lock().applied(partition, applied));
        let lanes = self.lanes.divided(records, |record| (record.partition, 1));
        let trace = BatchTrace::begin(&self.tracer);
        let step = Step { shards: &shards, trace: trace.trace(), goes_on };
        let mut effects = Effects { trace, ..Effects::default() };
        for of_lane in self.lanes.each(lanes, |records| self.decide_all(&records, &step)) {
            effects.add(of_lane?);
        }
        Ok(effects)
    }

    /// A panic of the kernel leaves the record staged in part, so all records are done again: up
    /// to this one, and in the next batch this one alone. If the kernel panics there too, the record
    /// is put aside. So is a record whose outputs are longer than their topic takes.
    fn decide_all(&self, records: &[Record], step: &Step<'_>) -> Result<Effects> {
        let mut until = records.len();
        let mut poison = None;
        loop {
            match self.try_batch(&records[..until], step, poison.as_ref()) {
                Ok(effects) => match self.options.sizes.refusal(&effects.outputs) {
                    // Too long outputs of one event: applied alone, that one is put aside.
                    Some(_) if effects.records > 1 => until = effects.records / 2,
                    Some(reject) if poison.is_none() => poison = Some(reject),
                    _ => return Ok(effects),
                },
                Err(Halt::Fault(fault)) => return Err(fault),
                Err(Halt::Panicked { at: 0, panic }) if poison.is_some() => {
                    return Err(Fault::stop(StopName::ThreadDied, panic.message));
                }
                Err(Halt::Panicked { at: 0, panic }) => {
                    let Record { partition, offset, .. } = records[0];
                    let Panic { message, stack } = panic;
                    tracing::error!(partition, offset, message, stack, "puts a record aside");
                    let what = format!("Keepsake panics when it applies this record: {message}");
                    poison = Some(Reject::poison(what, Some(stack)));
                }
                Err(Halt::Panicked { at, panic }) => {
                    let Record { partition, offset, .. } = records[at];
                    let message = panic.message;
                    tracing::warn!(partition, offset, message, "tries a record alone: it panicked");
                    until = at;
                }
            }
        }
    }

    /// `poison`: why the first record is put aside, if so.
    fn try_batch(
        &self,
        records: &[Record],
        step: &Step<'_>,
        poison: Option<&Reject>,
    ) -> std::result::Result<Effects, Halt> {
        let mut batches: BTreeMap<i32, Batch<'_>> = BTreeMap::new();
        for Record { partition, .. } in records {
            batches.entry(*partition).or_insert_with(|| {
                let spans = EventSpans::of(&self.tracer, step.trace);
                Batch::of(&step.shards[partition], spans)
            });
        }
        let records = self.apply_records(records, &mut batches, step, poison)?;
        let mut effects = Effects { records, ..Effects::default() };
        for (partition, batch) in batches {
            self.finish(&mut effects, batch, step.shards[&partition].clone())?;
        }
        Ok(effects)
    }

    fn shards_of(&self, records: &[Record]) -> Result<BTreeMap<i32, Arc<Shard>>> {
        let mut found = BTreeMap::new();
        for record in records {
            if let Entry::Vacant(vacant) = found.entry(record.partition) {
                let shard = self.shards.get(record.partition).ok_or_else(|| {
                    let partition = record.partition;
                    let what = format!("a record of partition {partition} came without its shard");
                    Fault::stop(StopName::ThreadDied, what)
                })?;
                vacant.insert(shard);
            }
        }
        Ok(found)
    }

    /// Returns the number of records that were applied. While one group of records is applied, the
    /// texts of the next are encoded.
    fn apply_records(
        &self,
        records: &[Record],
        batches: &mut BTreeMap<i32, Batch<'_>>,
        step: &Step<'_>,
        poison: Option<&Reject>,
    ) -> std::result::Result<usize, Halt> {
        let goes_on = step.goes_on;
        let mut records = records.iter();
        let mut applied = 0;
        let mut begun = VecDeque::from_iter(self.begin_group(&mut records)?);
        loop {
            // Order matters: the next group goes to the encoder before this one is waited for.
            while begun.len() < GROUPS_BEGUN
                && goes_on()
                && let Some(next) = self.begin_group(&mut records)?
            {
                begun.push_back(next);
            }
            let Some((drafts, texts)) = begun.pop_front() else { break };
            let mut vectors = self.encoded(texts)?.into_iter();
            for draft in drafts {
                let batch = batches.get_mut(&draft.record.partition);
                let batch = batch.expect("each record's shard was found above");
                if applied > 0 && !goes_on() {
                    return Ok(applied);
                }
                let draft = match poison {
                    Some(reject) if applied == 0 => draft.poisoned(reject.clone()),
                    _ => draft,
                };
                caught(|| self.apply_record(batch, draft, &mut vectors))
                    .map_err(|panic| Halt::Panicked { at: applied, panic })??;
                applied += 1;
            }
        }
        Ok(applied)
    }

    fn begin_group<'r>(
        &self,
        records: &mut impl Iterator<Item = &'r Record>,
    ) -> Result<Option<(Vec<Drafted<'r>>, Pending)>> {
        let (drafts, texts) = self.draft_group(records);
        if drafts.is_empty() {
            return Ok(None);
        }
        Ok(Some((drafts, self.encoder.begin(texts)?)))
    }

    fn encoded(&self, texts: Pending) -> Result<Vec<TextVector>> {
        let (vectors, took) = self.encoder.finish(texts)?;
        self.metrics.encoded(vectors.len(), took);
        Ok(vectors.into_iter().map(|vector| vector.map(|vector| Vector::of(&vector))).collect())
    }

    /// Applies one record: ignored, rejected, forwarded, or handed to the kernel.
    fn apply_record(
        &self,
        batch: &mut Batch<'_>,
        draft: Drafted<'_>,
        vectors: &mut impl Iterator<Item = TextVector>,
    ) -> Result<()> {
        let partition = draft.record.partition;
        let offset = draft.record.offset;
        let draft = draft.with_vectors(vectors);
        if offset <= batch.applied || batch.is_closed {
            // The record came again after a rebalance, or belongs to the next generation.
            return Ok(());
        }
        batch.applied = offset;
        batch.counts.extend(draft.counts.iter().cloned());
        batch.spans.begin(&draft);
        let by_kernel;
        let rejected = match &draft.route {
            // The original was forwarded twice, and the first copy is applied already.
            _ if !batch.is_first_copy(draft.hop.as_ref())? => {
                batch.counts.push(Count::CopySkipped);
                None
            }
            Route::Reject(reject) => {
                self.reject(batch, &draft, reject);
                Some(reject)
            }
            Route::Forward(home, way) => {
                batch.counts.push(Count::Forwarded(self.options.events.clone()));
                batch.spans.forwarded();
                batch.outputs.push(self.copy(batch, draft.record, *home, *way));
                None
            }
            Route::Apply(prepared) => {
                by_kernel = self.decide(batch, &draft, prepared)?;
                if let Some(next) = self.closing_mark(draft.record, prepared) {
                    batch.close(next.generation, next.partitions);
                }
                by_kernel.as_ref()
            }
        };
        batch.spans.end(rejected);
        self.breaker.lock().saw(partition, offset, rejected)
    }

    /// The copy of a record for another partition.
    fn copy(
        &self,
        batch: &Batch<'_>,
        record: &Record,
        partition: i32,
        way: ForwardReason,
    ) -> OutgoingRecord {
        let options = &self.options.decode;
        batch.spans.carried(decode::forwarded(record, partition, way, options), options)
    }

    /// The mark by which a later generation takes the further events of this partition.
    fn closing_mark(&self, record: &Record, prepared: &kernel::Prepared) -> Option<HandOver> {
        let mark = matches!(prepared.event.action, Action::Tick)
            .then(|| decode::hand_over(record, &self.options.decode))??;
        let is_ours = mark.step == HandOverStep::Close;
        (is_ours && mark.generation > self.options.generation).then_some(mark)
    }

    /// Hands an event to the kernel and collects the outputs, replies and changes. Returns the
    /// reason if the kernel rejects the event.
    fn decide(
        &self,
        batch: &mut Batch<'_>,
        draft: &Ready<'_>,
        prepared: &kernel::Prepared,
    ) -> Result<Option<Reject>> {
        let event: &Event = &prepared.event;
        batch.newest = batch.newest.max(Some(event.at));
        let judges = ActiveRules {
            rules: &self.profiles.of(&event.key).rules,
            shadow: self.profiles.shadow_of(&event.key).map(|shadow| &shadow.rules),
        };
        let settings = self.settings(event.key.tenant());
        let handled = kernel::apply(settings, judges, &mut batch.staged, prepared)?;
        if let Some(reject) = handled.rejected {
            self.reject(batch, draft, &reject);
            return Ok(Some(reject));
        }
        batch.spans.decided(&event.key, &event.source, &handled);
        if let Some(way) = handled.onward {
            let home = event.key.tenant_key().partition(self.shards.partitions());
            batch.outputs.push(self.copy(batch, draft.record, home, way));
        }
        for (n, rest) in handled.rest.iter().enumerate() {
            batch.outputs.push(self.rest_of_forget(event, draft.record.partition, n, rest));
        }
        let is_answered = prepared.part == Part::Rest || handled.decisions.is_empty();
        if let Some(to) = draft.reply.as_ref().filter(|_| !is_answered) {
            let to = &*batch.spans.address(to);
            // Readers wait for the offset of the user's partition, also for what the home decides.
            let (partition, offset) = match draft.hop.as_ref() {
                Some(hop) if prepared.part == Part::Home => self.users_place(&event.key, hop),
                _ => (draft.record.partition, draft.record.offset),
            };
            let freshness = Freshness {
                applied_offset: offset,
                misrouted: event.source.partition != partition,
                warnings: event.warnings.clone(),
                ..Freshness::default()
            };
            batch.replies.push(match &handled.not_found {
                Some(reject) => reply::refusal(to, reject, Some(&freshness)),
                None => {
                    let decisions = &handled.decisions;
                    reply::applied(to, decisions, partition, offset, &freshness)
                }
            });
        }
        if let Action::Feedback { signal, .. } = &event.action
            && !handled.decisions.is_empty()
        {
            batch.counts.push(Count::Feedback(*signal));
        }
        batch.add(handled);
        Ok(None)
    }

    /// Where the user's partition has an event that was sent on.
    fn users_place(&self, key: &UserKey, hop: &Hop) -> (i32, i64) {
        let Hop { origin, via_partition, via_offset, .. } = hop;
        match origin.partition == key.partition(self.shards.partitions()) {
            true => (origin.partition, origin.offset),
            false => (*via_partition, *via_offset),
        }
    }

    /// The event that erases a part of the rest of a `forget`. Its id follows from the place of the
    /// `forget`, so that a part that is written twice is applied once.
    fn rest_of_forget(
        &self,
        event: &Event,
        partition: i32,
        n: usize,
        rest: &ForgetContinuation,
    ) -> OutgoingRecord {
        let Position { topic, partition: first, offset } = &rest.continues;
        let name = format!("{topic}/{first}/{offset}/{n}");
        let id = format!("forget-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()));
        let proposal = Proposal {
            topic: &self.options.events,
            partition,
            key: &event.key,
            id: &id,
            at: event.at,
            signing_key: &self.options.decode.signing_key,
        };
        reply::forget_continuation(&proposal, rest)
    }

    fn settings(&self, tenant: &str) -> Settings<'_> {
        Settings {
            rarity: &self.rarity,
            spread: self.spread,
            chatter: self.chatter.as_ref(),
            partitions: self.shards.partitions(),
            limits: self.options.limits,
            // Beside it, the record of the memory holds its text twice.
            history_bytes_max: self.options.decode.message_bytes_max / 2,
            memories_max: self.options.memories_max.of(tenant).map(|max| max as u64),
            signing_key: &self.options.decode.signing_key,
            at_ahead_ms_max: self.options.decode.at_ahead_ms_max,
        }
    }

    fn reject(&self, batch: &mut Batch<'_>, draft: &Ready<'_>, reject: &Reject) {
        batch.counts.push(Count::DeadLetter {
            code: reject.code,
            topic: self.options.events.clone(),
            tenant: reply::tenant_of(draft.record),
        });
        let dead_letters = &self.options.dead_letters;
        batch.outputs.push(reply::dead_letter(draft.record, reject, "ingest", dead_letters));
        // The rest of an event was answered by the user's partition.
        let is_rest = draft.hop.as_ref().is_some_and(|hop| hop.way == ForwardReason::RestToTenant);
        if let Some(to) = draft.reply.as_ref().filter(|_| !is_rest) {
            let to = batch.spans.address(to);
            batch.replies.push(reply::refusal(&to, reject, None));
        }
    }

    /// Encodes a batch for the store and adds the records to publish.
    fn finish(&self, effects: &mut Effects, mut batch: Batch<'_>, shard: Arc<Shard>) -> Result<()> {
        effects.outputs.append(&mut batch.outputs);
        effects.replies.append(&mut batch.replies);
        effects.newest = effects.newest.max(batch.newest);
        effects.compact_at = effects.compact_at.max(batch.compact_at);
        effects.trace.add(&mut batch.spans);
        let mut write = batch.into_write(shard, self.metrics.clone())?;
        let outputs = self.outputs(&write);
        let memories = &self.options.memories;
        write.logged = outputs.iter().filter(|it| it.topic == *memories).count() as i64;
        effects.outputs.extend(outputs);
        effects.writes.push(write);
        Ok(())
    }

    /// The records that a batch publishes: every decision, and the new state of each memory and of
    /// every other record.
    fn outputs(&self, write: &Write) -> Vec<OutgoingRecord> {
        let Options { decisions: decided, with_text, sizes, erasures, .. } = &self.options;
        let mut outputs = Vec::new();
        for decision in &write.decisions {
            let record = sizes.decision(
                decision,
                |decision: &_, with_text| reply::decision(decision, decided, with_text),
                *with_text,
            );
            outputs.push(with_traceparent(record, &write.traceparents, &decision.event));
        }
        for shadow in &write.shadows {
            let record = sizes.decision(
                shadow,
                |decision: &_, with_text| reply::shadow(decision, decided, with_text),
                *with_text,
            );
            outputs.push(with_traceparent(record, &write.traceparents, &shadow.event));
        }
        for erasure in &write.erasures {
            outputs.push(sizes.erasure(erasure, &erasures.places, &erasures.topic));
        }
        let shard = &write.shard;
        let to = Destination { topic: &self.options.memories, partition: shard.partition };
        let meta = Meta {
            applied: write.applied,
            group: Some(self.options.group.clone()),
            epoch: Some(shard.epoch),
            digest: write.effects.digest,
            build: None,
            transactional_id: self.options.transactional_id.clone(),
            tenants: write.published.map(TopicId),
        };
        outputs.extend(changelog::records(&write.effects, to, (shard.store.identity(), &meta)));
        if let Some(topic) = &self.options.tenants {
            let home = write.is_sent_on.then_some(shard.partition);
            outputs.extend(changelog::tenants::of_batch(&write.effects, &topic.name, home));
        }
        outputs
    }
}
