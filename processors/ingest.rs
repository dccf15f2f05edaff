//! The ingest processor: event → decode → redact → split → score → store → index → reply. The only writer of a shard.
//! A machine without I/O of its own: `step` reads shards and returns what is to be done; the thread in `run.rs` does it.

mod change;
mod conflicts;
mod drafts;
mod extraction;
mod facts;
mod first;
pub mod flood;
mod proposals;
mod redaction;
mod revisions;
mod seeds;
mod shadow;
mod tenant;
#[cfg(test)]
mod tests;
mod turn;
mod withheld;
mod work;

pub use turn::ECHO_COSINE;

use crate::domain::{Action, Event, Memory, Position, Spread, Time, UserKey, Vector};
use crate::fault::{Fault, Reject, RejectCode, Result, StopName};
use crate::metrics::Metrics;
use crate::ownership::Shards;
use crate::ports::broker::{Outgoing, Record};
use crate::ports::embedder::TokenCounter;
use crate::ports::embedder::pool::{Pending, Pool};
use crate::profile::{Profile, Profiles};
use crate::shard::Shard;
use crate::stages::decode::{self, Way};
use crate::stages::reply::{self, Freshness};
use crate::stages::score::Rarity;
use crate::stages::store::changelog::META;
use crate::stages::store::{Mark, Place};
use crate::text::Words;
use drafts::Draft;
use flood::Flood;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tenant::Part;
use work::Work;

#[derive(Clone, Debug)]
pub struct Options {
    pub events: Arc<str>,
    pub decisions: String,
    pub memories: String,
    /// Whether the memories topic is what shards are restored from, not only what others may follow.
    pub changelog: bool,
    pub dead_letters: String,
    pub decode: decode::Options,
    pub with_text: bool,
    pub candidates_max: usize,
    pub forget_query_max: usize,
    pub history_max: usize,
}

pub struct Ingest {
    pub options: Options,
    pub profiles: Profiles,
    pub shards: Arc<Shards>,
    pub encoder: Pool,
    pub tokens: TokenCounter,
    pub rarity: Rarity,
    /// Puts the encoder's cosines on the standard scale.
    pub spread: Spread,
    pub flood: Flood,
    pub metrics: Arc<Metrics>,
}

/// What one step wants done. Order matters: outputs are acknowledged, then shards change, then replies are sent.
#[derive(Default)]
pub struct Effects {
    /// Decisions, dead letters, forwarded records, the change feed.
    pub outputs: Vec<Outgoing>,
    pub writes: Vec<Write>,
    pub replies: Vec<Outgoing>,
    /// The newest time an event of this batch had.
    pub newest: Option<Time>,
    /// A tick asks the compaction worker for a round, at this time.
    pub compact_at: Option<Time>,
    /// How many of the records were decided.
    pub records: usize,
}

/// One shard's part of a batch, with the offset it brings the shard to.
pub struct Write {
    pub shard: Arc<Shard>,
    pub effects: crate::shard::Effects,
    pub decisions: Vec<crate::domain::Decision>,
    /// What another profile would have decided: the world hears it, and the shard does not keep it.
    pub shadows: Vec<crate::domain::Decision>,
    /// Which of the decisions a later event of the batch has forgotten: the world hears them, the shard does not keep them.
    pub forgotten: HashSet<usize>,
    pub applied: i64,
}

impl Write {
    /// With the place of its meta record, if there is a changelog.
    pub fn carry_out(self, changelog: Option<Place>) -> Result<Duration> {
        let took = self.shard.apply(self.effects, Mark { applied: self.applied, changelog })?;
        let decisions = self.decisions.into_iter().enumerate();
        self.shard.remember_decisions(
            decisions.filter(|(n, _)| !self.forgotten.contains(n)).map(|(_, decision)| decision),
        );
        Ok(took)
    }
}

impl Ingest {
    /// Records of owned partitions, in order, to everything they cause. A fault leaves all of them where they are: nothing is written yet.
    pub fn step(&mut self, records: Vec<Record>) -> Result<Effects> {
        self.step_while(records, &|| true)
    }

    /// The same for as many of the records as are begun while `goes_on`, but at least one. `Effects::records` says how many.
    pub fn step_while(
        &mut self,
        records: Vec<Record>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Effects> {
        let shards = self.shards_of(&records)?;
        let mut work: BTreeMap<i32, Work<'_>> = shards
            .iter()
            .map(|(partition, shard)| (*partition, Work::on(shard, self.spread)))
            .collect();
        let records = Words::remembering(|| self.decide_all(records, &mut work, goes_on))?;

        let mut effects = Effects { records, ..Effects::default() };

        for (partition, work) in work {
            self.finish(&mut effects, work, shards[&partition].clone());
        }
        Ok(effects)
    }

    /// How many of the records were decided.
    fn decide_all(
        &mut self,
        records: Vec<Record>,
        work: &mut BTreeMap<i32, Work<'_>>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<usize> {
        let (mut records, mut decided) = (records.into_iter(), 0);
        let mut next = self.begin(&mut records)?;
        while let Some((drafts, texts)) = next {
            let vectors = self.encoded(texts)?;
            // The next texts are encoded while these records are decided.
            next = if goes_on() { self.begin(&mut records)? } else { None };
            for draft in drafts {
                if decided > 0 && !goes_on() {
                    return Ok(decided);
                }
                let work = work
                    .get_mut(&draft.record.partition)
                    .expect("a shard was found for every record above");
                self.take(work, draft, &vectors)?;
                decided += 1;
            }
        }
        Ok(decided)
    }

    fn take(&mut self, work: &mut Work<'_>, draft: Draft, vectors: &[Vector]) -> Result<()> {
        let (partition, offset) = (draft.record.partition, draft.record.offset);
        if offset <= work.applied {
            return Ok(()); // it came again after a rebalance: done already
        }
        work.applied = offset;
        self.decide(work, draft, vectors)?;
        let rejected = work.rejected.take();
        // What was told long ago is read again in silence: nothing of it is put aside now.
        if offset >= work.shard.told_until() {
            self.flood.saw(partition, offset, rejected.as_ref())?;
        }
        Ok(())
    }

    fn shards_of(&self, records: &[Record]) -> Result<BTreeMap<i32, Arc<Shard>>> {
        let mut found = BTreeMap::new();
        for record in records {
            if let Entry::Vacant(place) = found.entry(record.partition) {
                let missing =
                    || format!("a record of partition {} came without its shard", record.partition);
                place.insert(
                    self.shards
                        .get(record.partition)
                        .ok_or_else(|| Fault::stop(StopName::ThreadDied, missing()))?,
                );
            }
        }
        Ok(found)
    }

    /// Drafts the next records and begins to encode their texts.
    fn begin(
        &self,
        records: &mut impl Iterator<Item = Record>,
    ) -> Result<Option<(Vec<Draft>, Pending)>> {
        let (drafts, texts) = self.draft(records);
        if drafts.is_empty() {
            return Ok(None);
        }
        Ok(Some((drafts, self.encoder.begin(texts)?)))
    }

    fn encoded(&self, texts: Pending) -> Result<Vec<Vector>> {
        let (vectors, took) = self.encoder.finish(texts)?;
        self.metrics.encoded(vectors.len(), took);
        Ok(vectors.iter().map(|vector| Vector::of(vector)).collect())
    }

    fn belongs_here(&self, event: &Event, record: &Record) -> bool {
        matches!(event.action, Action::Tick)
            || event.key.partition(self.shards.partitions()) == record.partition
    }

    /// One record, in order, to its effects: rejected, forwarded, seen before, or decided.
    fn decide(&self, work: &mut Work<'_>, draft: Draft, vectors: &[Vector]) -> Result<()> {
        let event = match &draft.event {
            Ok(event) => event,
            Err(reject) => return self.reject(work, &draft, reject),
        };
        if let Some(hop) = &draft.hop
            && !work.first_time_via(hop)
        {
            self.metrics.copy_skipped();
            return Ok(()); // a torn copy of what has been done already
        }
        let lost = decode::may_be_forwarded(&draft.record).err().filter(|_| draft.hop.is_none());
        if let Some(reject) = lost {
            return self.reject(work, &draft, &reject);
        }
        let is_home = match draft.hop.as_ref().map(|hop| hop.way) {
            None | Some(Way::ToUser) => self.belongs_here(event, &draft.record),
            Some(Way::ToOrder) => self.gives_order(&event.key, draft.record.partition),
            Some(Way::InOrder) => true,
        };
        if !is_home {
            return self.forward(work, &draft, event);
        }

        work.newest = work.newest.max(Some(event.at));
        let begin = work.decisions.len();
        let profile = self.profiles.of(&event.key);
        let here = Here {
            event,
            profile,
            draft: &draft,
            part: draft.part(),
            vectors: &vectors[draft.texts.clone()],
        };
        self.carry_out(work, &here)?;
        self.conclude(work, &here, begin)
    }

    /// To its user's partition, once.
    fn forward(&self, work: &mut Work<'_>, draft: &Draft, event: &Event) -> Result<()> {
        if draft.hop.is_some() {
            let reject =
                Reject::new(RejectCode::Misrouted, "still on a wrong partition after one hop");
            return self.reject(work, draft, &reject);
        }
        self.metrics.forwarded(&self.options.events);
        let home = event.key.partition(self.shards.partitions());
        work.outputs.push(decode::forwarded(
            &draft.record,
            home,
            Way::ToUser,
            &self.options.decode,
        ));
        Ok(())
    }

    fn carry_out(&self, work: &mut Work<'_>, here: &Here<'_>) -> Result<()> {
        // The partition of its user has judged it before it gave it an order.
        if here.part == Part::First && self.seen_before(work, here)? {
            return Ok(());
        }
        let is_proposal = matches!(
            here.event.action,
            Action::Prune { .. } | Action::Summary { .. } | Action::Revise(_)
        );
        let is_ordered_here = here.draft.hop.as_ref().is_some_and(|hop| hop.way == Way::ToOrder);
        if is_ordered_here || (here.part == Part::First && is_proposal && here.key().is_everyone())
        {
            self.copy_to_all(work, here);
        }
        match &here.event.action {
            Action::Turn(turn) => self.turn(work, here, turn)?,
            Action::Remember(remember) => self.remember(work, here, remember)?,
            Action::Update(update) => self.update(work, here, update)?,
            Action::Forget(forget) => self.forget(work, here, forget)?,
            Action::Feedback { memories, signal } => {
                self.feedback(work, here, memories, *signal)?
            }
            Action::Prune { memories, reason } => self.prune(work, here, memories, reason)?,
            Action::Summary { content, covers } => self.summary(work, here, content, covers)?,
            Action::Revise(revise) => self.revise_as_proposed(work, here, revise)?,
            Action::Tick => {
                work.compact_at = work.compact_at.max(Some(here.event.at));
                work.decide(here.decision(
                    crate::domain::Outcome::Noted,
                    "the compaction worker is awake".into(),
                ));
            }
        }
        Ok(())
    }

    /// Decisions out, the sender answered, the id remembered: by the partition of its user alone, and only once something is decided.
    fn conclude(&self, work: &mut Work<'_>, here: &Here<'_>, begin: usize) -> Result<()> {
        let (event, draft, not_found) = (here.event, here.draft, work.not_found.take());
        let decisions = work.decisions.split_off(begin);
        if !self.belongs_here(event, &draft.record) {
            return Ok(());
        }
        if here.part == Part::InOrder {
            work.overlay.end_awaited(&event.key, &event.source)?;
        }
        if decisions.is_empty() {
            return Ok(()); // on its way, or told when it came first
        }
        if here.part == Part::First {
            work.remember_id_of(event, &draft.record, &decisions);
        }
        for decision in &decisions {
            self.metrics.decided(decision);
        }
        if let Some(to) = &draft.reply {
            let freshness = Freshness {
                applied_offset: draft.record.offset,
                misrouted: here.is_misrouted(),
                ..Freshness::default()
            };
            let reply = match not_found {
                Some(reject) => reply::refusal(to, &reject, Some(&freshness)),
                None => reply::applied(
                    to,
                    &decisions,
                    draft.record.partition,
                    draft.record.offset,
                    &freshness,
                ),
            };
            work.replies.push(reply);
        }
        work.decisions.extend(decisions);
        Ok(())
    }

    fn reject(&self, work: &mut Work<'_>, draft: &Draft, reject: &Reject) -> Result<()> {
        self.metrics.dead_letter(reject.code.as_str());
        work.outputs.push(reply::dead_letter(
            &draft.record,
            reject,
            "ingest",
            &self.options.dead_letters,
        ));
        if let Some(to) = &draft.reply {
            work.replies.push(reply::refusal(to, reject, None));
        }
        work.rejected = Some(reject.clone());
        Ok(())
    }

    fn finish(&self, effects: &mut Effects, mut work: Work<'_>, shard: Arc<Shard>) {
        let partition = shard.partition;
        // A shard that lost its store reads the log again. The world heard all this the first time.
        let told_before = work.applied < shard.told_until();
        let (outputs, replies) =
            (std::mem::take(&mut work.outputs), std::mem::take(&mut work.replies));
        effects.newest = effects.newest.max(work.newest);
        effects.compact_at = effects.compact_at.max(work.compact_at);
        let write = work.finished(shard);
        if !told_before {
            effects.outputs.extend(outputs);
            effects.outputs.extend(self.outputs(&write, partition));
            effects.replies.extend(replies);
        }
        effects.writes.push(write);
    }

    /// What the world hears of a shard's changes: every decision, and the latest state of each memory.
    fn outputs(&self, write: &Write, partition: i32) -> Vec<Outgoing> {
        let touched = &write.effects.touched;
        let (decided, with_text) = (self.options.decisions.as_str(), self.options.with_text);
        let decisions =
            write.decisions.iter().map(|decision| reply::decision(decision, decided, with_text));
        let shadows =
            write.shadows.iter().map(|decision| reply::shadow(decision, decided, with_text));
        let topic = self.options.memories.as_str();
        let state = |memory: &Memory| {
            let state = write
                .effects
                .batch
                .memory(&memory.key, memory.id)
                .filter(|_| self.options.changelog);
            reply::memory_state(memory, state, topic, partition)
        };
        let gone =
            touched.removed.iter().map(|(key, id)| reply::memory_gone(key, *id, topic, partition));
        let upserted = touched.upserted.iter().map(|upserted| state(&upserted.memory));
        let mut outputs: Vec<Outgoing> =
            decisions.chain(shadows).chain(upserted).chain(gone).collect();
        if self.options.changelog {
            let states = write.effects.batch.states();
            outputs.extend(
                states.map(|(name, state)| reply::shard_state(name, state, topic, partition)),
            );
            // Order matters: whoever restores up to here has everything before it.
            outputs.push(reply::shard_meta(
                META,
                write.shard.store.meta(write.applied),
                topic,
                partition,
            ));
        }
        outputs
    }
}

/// One event at its place, with its vectors: what the handlers in `turn.rs` and `change.rs` share.
#[derive(Clone, Copy)]
struct Here<'a> {
    event: &'a Event,
    profile: &'a Profile,
    draft: &'a Draft,
    part: Part,
    vectors: &'a [Vector],
}

impl Here<'_> {
    fn key(&self) -> &UserKey {
        &self.event.key
    }

    fn source(&self) -> &Position {
        &self.event.source
    }

    /// Whether the sender put the event on a partition other than the user's. Valid on the user's partition, the only one that answers.
    fn is_misrouted(&self) -> bool {
        self.event.source.partition != self.draft.record.partition
    }

    /// The offset on this shard, which a forwarded event's source is not.
    fn offset(&self) -> i64 {
        self.draft.record.offset
    }
}
