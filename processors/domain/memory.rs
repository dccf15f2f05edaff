//! Memories: the stored record, the id, and the neighbouring turns by which a memory is also found.

use super::{Position, Role, Surprise, Time, UserKey, Vector};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use strum::{EnumString, IntoStaticStr, VariantNames};
use uuid::Uuid;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(pub Uuid);

impl MemoryId {
    /// Derives the id from the event's place in the log ([UUID version
    /// 5](https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-5)), never from randomness or a
    /// clock, so that a replay makes the same id.
    ///
    /// `span` numbers the candidates of one event.
    pub fn of(source: &Position, span: u32) -> MemoryId {
        let name = format!("{}/{}/{}/{}", source.topic, source.partition, source.offset, span);
        MemoryId(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    pub fn parse(text: &str) -> Option<MemoryId> {
        Uuid::parse_str(text).ok().map(MemoryId)
    }
}

impl fmt::Debug for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The last memory of a page of a list; the next page holds older memories. The cursor stays valid
/// when that memory is forgotten meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub created_at: Time,
    pub id: MemoryId,
}

/// Returns the message about an id that no memory of the user has. The nil id stands for a text
/// that is no UUID.
pub fn unknown_memory(id: MemoryId) -> String {
    if id.0.is_nil() {
        return "this user has no memory with the id that was sent, which is no UUID".to_owned();
    }
    format!("this user has no memory {id}")
}

/// The kind of a memory, an open word: a profile lists the kinds in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub Arc<str>);

impl Kind {
    pub fn new(word: &str) -> Kind {
        Kind(word.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Readers of a memory besides its own session.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, IntoStaticStr, EnumString, VariantNames,
)]
#[strum(serialize_all = "lowercase")]
pub enum Scope {
    #[default]
    User,
    Session,
    Tenant,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

pub type Metadata = BTreeMap<String, String>;

/// A link to an earlier memory, which is a guess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbableLink {
    pub memory: MemoryId,
    pub probability: f32,
}

/// A memory as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub id: MemoryId,
    pub key: UserKey,
    /// The user who created a tenant memory. `None` for a user's own memory.
    pub author: Option<String>,
    pub scope: Scope,
    pub session: Option<String>,
    pub kind: Kind,
    pub content: String,
    pub role: Role,
    pub speaker: Option<String>,
    pub importance: f32,
    pub confidence: f32,
    pub created_at: Time,
    pub valid_from: Time,
    /// When a newer value of the same slot replaced this one.
    pub valid_to: Option<Time>,
    /// From this time on no answer has the memory, and the compaction worker erases the memory. A
    /// memory that expires stands alone: see [`Memory::stands_alone`].
    pub expires_at: Option<Time>,
    pub source: Position,
    pub event_id: Option<String>,
    pub metadata: Metadata,
    pub supersedes: Vec<MemoryId>,
    pub superseded_by: Option<MemoryId>,
    /// Earlier memories that this one probably revises. They stay valid and are ranked behind this
    /// one.
    pub revises: Vec<ProbableLink>,
    /// The newest memory that probably revises this one.
    pub revised_by: Option<MemoryId>,
    pub conflicts_with: Vec<MemoryId>,
    pub archived: bool,
    /// Number of changes. A proposal names the version on which the proposal is based, see
    /// [`super::MemoryVersion`].
    pub version: u32,
    /// The offset of the event on this shard that last changed the memory. The index compares its
    /// own checkpoint with this offset.
    pub changed: i64,
    pub uses: u32,
    pub confirmed: u32,
    /// When the memory was last used or confirmed. The fade is counted from here; fading itself
    /// never rewrites the memory.
    pub fresh_at: Time,
    pub surprise: Option<Surprise>,
    pub threshold: Option<f32>,
    pub reason: String,
    pub profile: Arc<str>,
    /// For a summary: the summarised memories.
    pub covers: Vec<MemoryId>,
    /// The summary that stands for this memory in an answer. The memory stays, and is found where
    /// the recall asks for compressed memories.
    pub compressed_by: Option<MemoryId>,
    /// Switched off by the user: kept, and in no answer unless the request asks for disabled
    /// memories.
    pub disabled: bool,
    /// How lasting the statement is, from 0 to 1. `None` where the policy has no such score.
    pub stability: Option<f32>,
    /// The turns that the memory was extracted from, oldest first. Empty for a memory made of its
    /// own event alone. Bounded in number by whoever extracts.
    pub sources: Vec<Position>,
    /// Earlier contents, oldest first. Bounded in number.
    pub history: Vec<Revision>,
    /// Neighbours of the turn that became this memory. Empty for a memory without a turn.
    pub around: NeighbourTurns,
}

impl Memory {
    /// Returns the earlier content that was valid at `time`. `None` if the present one was. Limit:
    /// the oldest contents leave the history, and the oldest one kept stands for those.
    pub fn earlier_content(&self, time: Time) -> Option<&str> {
        let revision = self.history.iter().find(|revision| revision.until > time)?;
        Some(&revision.content)
    }

    /// Returns the probability that this memory revises an earlier one; `None` without a link.
    pub fn revises(&self, earlier: MemoryId) -> Option<f32> {
        let link = self.revises.iter().find(|link| link.memory == earlier);
        link.map(|link| link.probability)
    }

    pub fn cursor(&self) -> Cursor {
        Cursor { created_at: self.created_at, id: self.id }
    }

    pub fn is_expired(&self, at: Time) -> bool {
        self.expires_at.is_some_and(|end| end <= at)
    }

    /// True for a memory that expires. Such a memory absorbs, closes and revises no other memory,
    /// and no summary quotes it: nothing else must go when the memory expires.
    pub fn stands_alone(&self) -> bool {
        self.expires_at.is_some()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    pub content: String,
    pub until: Time,
}

/// The turns next to a memory's own, whether they were kept or not. They are part of the search
/// document: an answer is also found by the words of a question that was dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeighbourTurns {
    pub before: Option<NeighbourTurn>,
    /// The turn before `before`, without the vector.
    pub earlier: Option<NeighbourTurn>,
    /// Set only if the next turn became no memory. A memory of that turn would hold this one as its
    /// own `before`.
    pub after: Option<NeighbourTurn>,
}

impl NeighbourTurns {
    pub fn all(&self) -> impl Iterator<Item = &NeighbourTurn> {
        self.before.iter().chain(&self.earlier).chain(&self.after)
    }

    /// Removes the neighbours that `matches` selects. Returns false if there were none.
    pub fn forget(&mut self, matches: impl Fn(&NeighbourTurn) -> bool) -> bool {
        let before = self.all().count();
        for neighbour in [&mut self.before, &mut self.earlier, &mut self.after] {
            neighbour.take_if(|neighbour| matches(neighbour));
        }
        self.all().count() < before
    }
}

/// A turn in the form that the neighbouring memories store.
#[derive(Clone, Debug, PartialEq)]
pub struct NeighbourTurn {
    pub source: Position,
    pub speaker: Arc<str>,
    /// The first words of the turn.
    pub words: Arc<str>,
    pub vector: Vector,
    /// Share of the turn that is a question: 1 for a short question, less the more other text the
    /// turn holds.
    pub question: f32,
}

/// A turn of the context window: the next turn of the session is compared with these to find out
/// whether it is new, an answer, or a change of subject.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextTurn {
    pub speaker: Arc<str>,
    /// `User` for turns stored by a version that did not store the role.
    pub role: Role,
    pub content: Arc<str>,
    pub vector: Vector,
    /// `None` for turns stored by a version that did not store the source.
    pub source: Option<Position>,
    pub question: f32,
    /// The last memory that was made of this turn.
    pub memory: Option<MemoryId>,
}
