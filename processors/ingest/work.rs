//! What a batch has done to one shard so far: an overlay that later events of the batch see, and that nobody else sees.

use super::tenant::Part;
use super::{Here, Write};
use crate::domain::{Decision, Event, Memory, MemoryId, Outcome, Spread, Time, UserKey, Vector};
use crate::fault::{Reject, Result};
use crate::ports::broker::{Outgoing, Record};
use crate::shard::{Effects, Shard};
use crate::stages::decode::Hop;
use crate::stages::index::Unseen;
use crate::stages::store::{Overlay, Reading, SeenBefore, Session};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub struct Work<'a> {
    pub shard: &'a Shard,
    /// Puts the encoder's cosines on the standard scale: `Work` gives out no others.
    pub spread: Spread,
    pub overlay: Overlay<'a>,
    pub decisions: Vec<Decision>,
    /// What another profile would have decided: told to the world, and otherwise of no consequence.
    pub shadows: Vec<Decision>,
    pub applied: i64,
    /// Dead letters and passed-on records. Decisions and states are added at the end.
    pub outputs: Vec<Outgoing>,
    pub replies: Vec<Outgoing>,
    pub newest: Option<Time>,
    pub compact_at: Option<Time>,
    /// The event just handled named a memory that is not there: its sender is told so.
    pub not_found: Option<Reject>,
    /// The record just handled became a dead letter.
    pub rejected: Option<Reject>,
    /// Vectors of this batch, which the index does not have yet.
    unseen: HashMap<UserKey, Unseen>,
    /// Places in `decisions` of those that must not be explained any more.
    forgotten: HashSet<usize>,
}

impl<'a> Work<'a> {
    pub fn on(shard: &'a Shard, spread: Spread) -> Work<'a> {
        let (overlay, applied) = (shard.store.overlay(), shard.applied());
        Work {
            shard,
            spread,
            overlay,
            decisions: Vec::new(),
            shadows: Vec::new(),
            applied,
            outputs: Vec::new(),
            replies: Vec::new(),
            newest: None,
            compact_at: None,
            not_found: None,
            rejected: None,
            unseen: HashMap::new(),
            forgotten: HashSet::new(),
        }
    }

    pub fn decide(&mut self, decision: Decision) {
        self.decisions.push(decision);
    }

    /// Remembers how far each source partition's forwarded records have come. False: this one has been here.
    pub fn first_time_via(&mut self, hop: &Hop) -> bool {
        match self.overlay.via(hop.via_partition) {
            Ok(Some(seen)) if seen >= hop.via_offset => false,
            _ => {
                self.overlay.set_via(hop.via_partition, hop.via_offset);
                true
            }
        }
    }

    pub fn remember_id_of(&mut self, event: &Event, record: &Record, decisions: &[Decision]) {
        if decisions.iter().all(|decision| decision.outcome != Outcome::Duplicate) {
            self.remember_id(
                event,
                record,
                decisions.iter().filter_map(|decision| decision.memory).collect(),
            );
        }
    }

    /// With the memories that the event made or will make.
    pub fn remember_id(&mut self, event: &Event, record: &Record, memories: Vec<MemoryId>) {
        if let Some(id) = &event.id {
            let seen = SeenBefore { source: event.source.clone(), memories };
            if let Err(fault) = self.overlay.put_seen(&event.key, id, &seen) {
                tracing::error!(%fault, offset = record.offset, "remembers a sender's id");
            }
        }
    }

    /// The user's memories nearest to a vector, best first and of equals the one with the smaller id, this batch's own included.
    /// With the standard cosine of each. Invariant: what it finds does not depend on where a batch ends.
    pub fn nearest(
        &self,
        key: &UserKey,
        vector: &Vector,
        limit: usize,
    ) -> Result<Vec<(MemoryId, f32)>> {
        let mut load = || self.shard.vectors(key);
        let none = Unseen::default();
        let mut near = self.shard.index.vectors.nearest(
            key,
            &mut load,
            vector,
            limit,
            self.unseen.get(key).unwrap_or(&none),
        )?;
        near.iter_mut().for_each(|(_, cosine)| *cosine = self.spread.standard(*cosine));
        Ok(near)
    }

    /// The encoder's own cosine to the centroid of the user's memories, this batch's own included; none where there is no memory yet.
    /// Invariant: as with `nearest`.
    pub fn nearness_to_all(&self, key: &UserKey, vector: &Vector) -> Result<Option<f32>> {
        let mut load = || self.shard.vectors(key);
        let none = Unseen::default();
        Ok(self
            .shard
            .index
            .vectors
            .sum(key, &mut load, self.unseen.get(key).unwrap_or(&none))?
            .cosine(vector))
    }

    pub fn put(&mut self, memory: Memory, vector: Option<Vector>) -> Result<()> {
        let Some(vector) = vector else { return self.overlay.put_memory(memory) };
        self.unseen.entry(memory.key.clone()).or_default().put(memory.id, &vector);
        self.overlay.put_memory_and_vector(memory, &vector);
        Ok(())
    }

    pub fn remove(&mut self, memory: &Memory) -> Result<()> {
        self.unseen.entry(memory.key.clone()).or_default().remove(memory.id);
        self.overlay.remove_memory(&memory.key, memory.id)
    }

    /// One more turn of a session.
    pub fn count_turn(&mut self, key: &UserKey, session: Option<&str>, at: Time) -> Result<()> {
        let Some(session) = session else { return Ok(()) };
        let known = self.overlay.session(key, session)?.unwrap_or(Session {
            turns: 0,
            first_at: at,
            last_at: at,
            summarised: 0,
        });
        let (turns, last_at) = (known.turns + 1, known.last_at.max(at));
        self.overlay.put_session(key, session, &Session { turns, last_at, ..known });
        Ok(())
    }

    /// What was decided stays published; it is no longer explained, whether it was decided long ago or in this batch.
    pub fn forget_decisions(&mut self, forgotten: impl Fn(&Decision) -> bool) {
        let own = self
            .decisions
            .iter()
            .enumerate()
            .filter(|(_, decision)| forgotten(decision))
            .map(|(n, _)| n);
        self.forgotten.extend(own);
        self.shard.forget_decisions(forgotten);
    }

    /// The memory that an event names: the user's own, or the tenant's that the user sees. In its turn the tenant's alone.
    pub fn meant(&self, here: &Here<'_>, id: MemoryId) -> Result<Option<Memory>> {
        let own =
            if here.part == Part::First { self.overlay.memory(here.key(), id)? } else { None };
        own.map_or_else(|| self.overlay.memory(&here.key().everyone(), id), |own| Ok(Some(own)))
    }

    pub fn finished(self, shard: Arc<Shard>) -> Write {
        Write {
            shard,
            effects: Effects::of(self.overlay),
            decisions: self.decisions,
            shadows: self.shadows,
            forgotten: self.forgotten,
            applied: self.applied,
        }
    }
}

/// A changed memory: one version on, marked with where.
pub fn touch(memory: &mut Memory, here: &Here<'_>) {
    memory.version += 1;
    memory.changed = here.offset();
}
