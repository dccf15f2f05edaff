//! An event at its place in a shard's partition, with the profile of its tenant: the part of the
//! input that all handlers share. Makes the memories and decisions that follow from the event
//! alone.

use super::prepared::{Event, Part, Sent};
use super::reads::Reads;
use super::staged::Staged;
use crate::policy::Policy;
use crate::rules::{Change, Feedback, Roles, TenantWriters, Treatment};
use domain::fault::{Reject, RejectCode, Result};
use domain::{
    Category, Chatter, CosineScale, Decision, Kind, Memory, MemoryId, NeighbourTurns, Outcome,
    Position, Role, Scope, SigningKey, Time, UserKey, Vector,
};
use std::sync::Arc;
use text::Rarity;
use text::split;

/// Limits of what one event erases and one user keeps. Tests set smaller ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memories that a `forget` with a query erases in its own event. The service erases the rest in
    /// events of 256 memories that it writes to itself, so that no single event takes long.
    pub forget_query_max: usize,
    /// Memories that any other `forget` erases in its own event, and each event of its rest; of
    /// everything as many sessions too. Others are served in between. The receipt and the decision
    /// name each memory: 10,000 take 1.5 MB.
    pub forget_memories_max: usize,
    /// Milliseconds for which a `forget` is remembered, by its own time, so that what was said before
    /// it and comes later is forgotten too: as long as dead letters are kept, the last to come.
    pub remember_ms: i64,
    /// Forgets that are remembered for one user, in some hundred bytes each; of more, the oldest goes.
    pub remembered_max: usize,
    /// Earlier contents kept of one memory.
    pub history_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            forget_query_max: 20,
            forget_memories_max: 10_000,
            remember_ms: 30 * 86_400_000,
            remembered_max: 32,
            history_max: 20,
        }
    }
}

/// Settings of the kernel that do not depend on the event.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    pub rarity: &'a Rarity,
    /// Puts the encoder's cosines on the standard scale.
    pub spread: CosineScale,
    /// Tells chatter by the encoder's vectors; `None` if no weights were learned for this encoder.
    pub chatter: Option<&'a Chatter>,
    pub partitions: i32,
    pub limits: Limits,
    /// Bytes of the earlier contents of one memory.
    pub history_bytes_max: usize,
    /// Live memories that the tenant may have on this shard, if they are limited.
    pub memories_max: Option<u64>,
    /// Key of the digests by which a `forget` is remembered.
    pub signing_key: &'a SigningKey,
    /// Milliseconds by which the time of an event may be after that of its record.
    pub at_ahead_ms_max: i64,
}

#[derive(Clone)]
pub struct Rules {
    /// The name of the profile, which every memory and decision carries.
    pub name: Arc<str>,
    pub policy: Arc<dyn Policy>,
    pub roles: Roles,
    /// Categories that are never kept, whoever speaks.
    pub never: Vec<Category>,
    pub change: Change,
    pub feedback: Feedback,
    pub tenant_writers: TenantWriters,
    /// How a text becomes statements.
    pub split: split::Options,
}

impl Rules {
    pub fn treatment(&self, role: Role) -> Treatment {
        self.roles.treatment(role)
    }

    /// Returns true if both give every candidate the same total. A shadow can use the
    /// user's totals for its threshold only then.
    pub fn weighs_as(&self, other: &Rules) -> bool {
        let totals = &self.policy.traits().totals;
        let is_same = *totals == other.policy.traits().totals;
        totals.is_some() && is_same && self.roles == other.roles
    }
}

#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub settings: Settings<'a>,
    pub event: &'a Event,
    pub rules: &'a Rules,
    /// Partition and offset at which this shard reads the event. The source of a forwarded event is
    /// elsewhere.
    pub partition: i32,
    pub offset: i64,
    pub part: Part,
    pub sent: Sent,
}

impl<'a> Context<'a> {
    pub fn key(&self) -> &'a UserKey {
        &self.event.key
    }

    pub fn source(&self) -> &'a Position {
        &self.event.source
    }

    pub fn session(&self) -> Option<&'a str> {
        self.event.session.as_deref()
    }

    /// True if the sender put the event on a partition other than the user's.
    pub fn is_misrouted(&self) -> bool {
        let users = match self.part {
            // A tick is on every partition at home.
            Part::First => self.partition,
            Part::Home | Part::Rest => self.key().partition(self.settings.partitions),
        };
        self.event.source.partition != users
    }

    /// True if no event before this one can have been of that time: the clock of a producer, which
    /// sets the time of a record, may be wrong. Such a memory is not the latest word on a fact.
    pub fn is_false_time(&self, time: Time) -> bool {
        let recorded = self.sent.at;
        recorded.0 > 0 && time.ms_since(recorded) > self.settings.at_ahead_ms_max
    }

    /// True if the tenant's memories are in this shard.
    pub fn is_home_of_tenant(&self) -> bool {
        self.key().tenant_key().partition(self.settings.partitions) == self.partition
    }

    /// The memories nearest to a vector, best first, with their standard cosines.
    pub fn nearest(
        &self,
        staged: &Staged<'_>,
        vector: &Vector,
        limit: usize,
    ) -> Result<Vec<(MemoryId, f32)>> {
        let mut near = staged.nearest(self.key(), vector, limit)?;
        near.iter_mut().for_each(|(_, cosine)| *cosine = self.settings.spread.standard(*cosine));
        Ok(near)
    }

    /// Like `nearest`, without the expiring memories before the first that lasts: a text that repeats
    /// one of these is new. Reads one memory more in nearly all cases.
    pub fn nearest_lasting(
        &self,
        staged: &Staged<'_>,
        vector: &Vector,
        limit: usize,
    ) -> Result<Vec<(MemoryId, f32)>> {
        let mut near = self.nearest(staged, vector, limit)?;
        let mut expiring = 0;
        for (id, _) in &near {
            let memory = staged.memory(self.key(), *id)?;
            if memory.is_some_and(|memory| !memory.stands_alone()) {
                break;
            }
            expiring += 1;
        }
        near.drain(..expiring);
        Ok(near)
    }

    /// The memory that the event names: the user's own, or one of the tenant if this is its home.
    pub fn named(&self, staged: &Staged<'_>, id: MemoryId) -> Result<Option<Memory>> {
        let is_first = self.part == Part::First;
        let own = if is_first { staged.memory(self.key(), id)? } else { None };
        match own {
            Some(own) => Ok(Some(own)),
            None if !self.is_home_of_tenant() => Ok(None),
            None => staged.memory(&self.key().tenant_key(), id),
        }
    }

    /// Marks a memory as changed by this event: one version on.
    pub fn touch(&self, memory: &mut Memory) {
        memory.version += 1;
        memory.changed = self.offset;
    }

    /// A memory with everything that follows from the event alone.
    pub fn memory(&self, span: u32, content: &str, kind: Kind) -> Memory {
        let event = self.event;
        Memory {
            id: MemoryId::of(self.source(), span),
            key: event.key.clone(),
            author: None,
            scope: Scope::User,
            session: event.session.clone(),
            kind,
            content: content.to_owned(),
            role: Role::User,
            speaker: None,
            importance: 1.0,
            confidence: 1.0,
            created_at: event.at,
            valid_from: event.at,
            valid_to: None,
            expires_at: None,
            source: event.source.clone(),
            event_id: event.id.clone(),
            metadata: event.metadata.clone(),
            supersedes: Vec::new(),
            superseded_by: None,
            revises: Vec::new(),
            revised_by: None,
            conflicts_with: Vec::new(),
            archived: false,
            version: 1,
            changed: self.offset,
            uses: 0,
            confirmed: 0,
            fresh_at: match self.rules.policy.traits().prune_share {
                Some(_) => event.at.max(self.sent.at),
                None => event.at,
            },
            surprise: None,
            threshold: None,
            reason: String::new(),
            profile: self.rules.name.clone(),
            covers: Vec::new(),
            compressed_by: None,
            disabled: false,
            stability: None,
            sources: Vec::new(),
            history: Vec::new(),
            around: NeighbourTurns::default(),
        }
    }

    /// A decision about this event of which only the outcome is known.
    pub fn decision(&self, outcome: Outcome, reason: impl Into<String>) -> Decision {
        let event = self.event;
        Decision {
            outcome,
            reason: reason.into(),
            event: event.source.clone(),
            event_id: event.id.clone(),
            key: event.key.clone(),
            session: event.session.clone(),
            candidate: None,
            kind: None,
            surprise: None,
            threshold: None,
            memory: None,
            related: Vec::new(),
            left: None,
            of_other_event: false,
            salt: None,
            profile: self.rules.name.clone(),
            at: event.at,
            misrouted: self.is_misrouted(),
            warnings: event.warnings.clone(),
            withheld: false,
        }
    }

    /// A decision about an event whose words must not be shown.
    pub fn withholding(&self, outcome: Outcome, reason: impl Into<String>) -> Decision {
        Decision { withheld: true, ..self.decision(outcome, reason) }
    }

    /// A decision about this event and one memory.
    pub fn decision_about(
        &self,
        memory: &Memory,
        outcome: Outcome,
        reason: impl Into<String>,
    ) -> Decision {
        Decision {
            memory: Some(memory.id),
            kind: Some(memory.kind.clone()),
            ..self.decision(outcome, reason)
        }
    }
}

/// Refuses an event that names a memory of nobody.
pub fn no_such_memory(id: MemoryId) -> Reject {
    Reject {
        field: Some("memory".into()),
        ..Reject::new(RejectCode::NotFound, domain::unknown_memory(id))
    }
}
