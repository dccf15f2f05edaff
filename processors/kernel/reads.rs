//! The records of a shard as the kernel reads them: typed, and always of one user. `Reads` is
//! implemented by the store and by `Staged`, so a handler sees the changes of the current batch as
//! if they were stored. `Neighbours` is implemented by the vector index.

use domain::fault::Result;
use domain::{
    ContextTurn, Memory, MemoryId, Position, Role, Time, UserKey, UserWordCounts, Vector,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Progress of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub turns: u32,
    pub first_at: Time,
    pub last_at: Time,
    /// Turns covered by the last summary.
    pub summarised: u32,
}

/// The event that a sender's id first came with, and the memories made from that event. Holds no
/// text, because this record outlives `forget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenBefore {
    pub source: Position,
    pub memories: Vec<MemoryId>,
    /// Type and target of the event (`kernel/seen.rs`).
    pub tag: u32,
}

/// A `forget` as a user's shard keeps it, without a word of the forgotten text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgetRecord {
    /// When the `forget` was sent.
    pub at: Time,
    pub forgot: Forgot,
}

/// The extent of a `forget`, in keyed digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgot {
    Everything,
    /// The name of the session.
    Session(u64),
    /// The stems of the query, for each language.
    Query(Vec<Vec<u64>>),
    /// The words of an erased memory.
    Text(u64),
}

/// Speaker and vector of a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Spoken {
    pub role: Role,
    pub speaker: Option<String>,
    pub vector: Option<Vector>,
}

/// The memory that holds the current value of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHolder {
    pub memory: MemoryId,
    pub value: String,
}

/// The context window of a session: the last turns, oldest first, and the number of the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextWindow {
    pub said: Vec<ContextTurn>,
    pub next: u64,
}

impl ContextWindow {
    pub fn push(&mut self, said: ContextTurn) {
        if self.said.len() as u64 == CONTEXT_TURNS {
            self.said.remove(0);
        }
        self.said.push(said);
        self.next += 1;
    }
}

/// The gate's state of a user, besides sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateState {
    /// Number of the next id. Ids are numbered, so that the oldest can be removed.
    pub ids: u64,
    /// The last totals, oldest first, in whole thousandths: the same wherever a batch ended.
    pub thousandths: Vec<i16>,
    pub words: Arc<UserWordCounts>,
    /// The latest time at which an event of the user was signed, if the tenant has a key. Survives
    /// `forget`.
    pub signed: Option<Time>,
}

impl GateState {
    /// A cast from float to integer saturates, so a total beyond the scale stays the largest.
    pub fn push(&mut self, score: f32) {
        self.thousandths.push((score * 1000.0).round() as i16);
        self.thousandths.drain(..self.thousandths.len().saturating_sub(SCORES_WINDOW));
    }

    pub fn scores(&self) -> impl Iterator<Item = f32> {
        self.thousandths.iter().map(|score| f32::from(*score) / 1000.0)
    }
}

/// Turns in a context window.
pub const CONTEXT_TURNS: u64 = 6;

/// Totals that the gate compares a new one with.
pub const SCORES_WINDOW: usize = 200;

/// Ids of a user that are recognised when they come again, at least.
pub const SEEN_IDS: u64 = 1000;

/// Ids that are removed together. A sweep reads all ids of the user; to remove one at a time would
/// cost three more records each.
pub const SEEN_IDS_SWEPT: u64 = 250;

/// Slots by name, in the order of their names.
pub type Slots = Vec<(String, SlotHolder)>;

pub trait Reads {
    fn memory(&self, key: &UserKey, id: MemoryId) -> Result<Option<Memory>>;

    /// Visits the user's memories in the order of their ids until `visit` returns false.
    fn memories(&self, key: &UserKey, visit: &mut dyn FnMut(Memory) -> bool) -> Result<()>;

    /// The same without decoding the memories.
    fn memory_ids(&self, key: &UserKey) -> Result<Vec<MemoryId>>;

    fn vector(&self, key: &UserKey, id: MemoryId) -> Result<Option<Vector>>;

    /// Speaker and vector of a memory, without decoding the rest.
    fn spoken(&self, key: &UserKey, id: MemoryId) -> Result<Option<Spoken>>;

    /// The number of the tenant's memories on this shard that no newer value has superseded. May
    /// read all of them when first called.
    fn stored_live_memories(&self, tenant: &str) -> Result<u64>;

    /// Turns without a session share one context window.
    fn window(&self, key: &UserKey, session: Option<&str>) -> Result<Arc<ContextWindow>>;

    /// Every context window of the user by session, "" for turns without one.
    fn windows(&self, key: &UserKey) -> Result<Vec<(String, Arc<ContextWindow>)>>;

    /// The sessions of these windows, without decoding a turn.
    fn window_names(&self, key: &UserKey) -> Result<BTreeSet<String>>;

    fn session(&self, key: &UserKey, session: &str) -> Result<Option<Session>>;

    fn sessions(&self, key: &UserKey) -> Result<Vec<(String, Session)>>;

    fn gate(&self, key: &UserKey) -> Result<Arc<GateState>>;

    /// The number of a sender's id, and the event.
    fn numbered(&self, key: &UserKey, id: &str) -> Result<Option<(u64, SeenBefore)>>;

    /// The sender's ids with a number below `oldest_kept`.
    fn ids_before(&self, key: &UserKey, oldest_kept: u64) -> Result<Vec<String>>;

    fn slot(&self, key: &UserKey, name: &str) -> Result<Option<SlotHolder>>;

    fn slots(&self, key: &UserKey) -> Result<Slots>;

    /// The first `limit` slots whose name begins with `beginning`.
    fn slots_under(&self, key: &UserKey, beginning: &str, limit: usize) -> Result<Arc<Slots>>;

    /// The highest offset of that partition from which a record was forwarded to this shard.
    fn via(&self, source_partition: i32) -> Result<Option<i64>>;

    /// Partition and offset of the last event of this user that was sent on to the tenant's home, on
    /// the user's partition of that time. `None` if there never was one, so the user has shared
    /// nothing with the tenant.
    fn sent_on(&self, key: &UserKey) -> Result<Option<(i32, i64)>>;

    /// The recent `forget`s of this user, oldest first.
    fn forget_records(&self, key: &UserKey) -> Result<Vec<ForgetRecord>>;

    /// The last totals of the gate, oldest first.
    fn scores(&self, key: &UserKey) -> Result<Vec<f32>> {
        Ok(self.gate(key)?.scores().collect())
    }

    fn seen(&self, key: &UserKey, id: &str) -> Result<Option<SeenBefore>> {
        Ok(self.numbered(key, id)?.map(|(_, seen)| seen))
    }
}

/// Vectors of one user that a batch has put, or `None` where it removed one.
pub type StagedVectors = BTreeMap<MemoryId, Option<Vector>>;

/// Finds memories by their vectors. Invariant: a result is the same wherever a batch ends, so the
/// staged vectors are compared with the same arithmetic as the stored ones.
pub trait Neighbours {
    /// Memories by falling cosine, of equals the one with the smaller id first.
    fn nearest(
        &self,
        key: &UserKey,
        query: &Vector,
        limit: usize,
        staged: &StagedVectors,
    ) -> Result<Vec<(MemoryId, f32)>>;

    /// The cosine to the centroid of the user's memories, `None` where there is no memory.
    fn cosine_to_all(
        &self,
        key: &UserKey,
        query: &Vector,
        staged: &StagedVectors,
    ) -> Result<Option<f32>>;
}
