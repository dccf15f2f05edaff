//! The messages of the contract. Times are RFC 3339 texts with an offset.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

pub type Metadata = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Turn {
    /// user, assistant, system or tool; user by default.
    pub role: Option<String>,
    pub speaker: Option<String>,
    pub session: Option<String>,
    pub kind: Option<String>,
    /// False: the turn is context only and never stored.
    pub remember: Option<bool>,
    pub metadata: Option<Metadata>,
    pub at: Option<String>,
    /// The same id again from the same user changes nothing. The client makes one otherwise.
    pub id: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Remember {
    pub kind: Option<String>,
    pub importance: Option<f32>,
    pub confidence: Option<f32>,
    /// user, session or tenant; user by default.
    pub scope: Option<String>,
    pub session: Option<String>,
    pub expires_at: Option<String>,
    pub metadata: Option<Metadata>,
    pub at: Option<String>,
    pub id: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Update {
    pub content: Option<String>,
    pub kind: Option<String>,
    pub importance: Option<f32>,
    pub confidence: Option<f32>,
    /// False: the memory is kept and in no recall until it is true again.
    pub enabled: Option<bool>,
    pub metadata: Option<Metadata>,
    pub id: Option<String>,
}

/// The memories to erase.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Forget {
    Memory(String),
    Session(String),
    Query(String),
    /// Only with `true`.
    Everything(bool),
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Recall {
    pub session: Option<String>,
    pub limit: Option<u32>,
    pub token_budget: Option<u32>,
    pub kinds: Option<Vec<String>>,
    /// Conditions: a text that must be equal, or operators such as `{"n": {"$gte": 3}}`.
    #[serde(rename = "where")]
    pub conditions: Option<Value>,
    pub min_relevance: Option<f32>,
    pub as_of: Option<String>,
    /// markdown, xml, compact, json, template or none.
    pub format: Option<String>,
    /// prompt: the application adds the memories to every prompt; tool: somebody asked.
    pub purpose: Option<String>,
    pub explain: Option<bool>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct List {
    pub session: Option<String>,
    pub kinds: Option<Vec<String>>,
    /// Conditions as those of [`Recall`].
    #[serde(rename = "where")]
    pub conditions: Option<Value>,
    pub limit: Option<u32>,
    pub offset: Option<u32>,
    pub after: Option<String>,
    pub everything: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Memory {
    pub id: String,
    pub kind: String,
    pub content: String,
    pub score: Option<f32>,
    pub relevance: Option<f32>,
    pub importance: f32,
    pub confidence: f32,
    pub created_at: String,
    pub valid_to: Option<String>,
    pub expires_at: Option<String>,
    pub session: Option<String>,
    pub speaker: Option<String>,
    #[serde(default)]
    pub metadata: Metadata,
    pub superseded_by: Option<String>,
    pub revised_by: Option<String>,
    pub note: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Decision {
    pub outcome: String,
    pub reason: String,
    pub memory: Option<String>,
    pub candidate: Option<String>,
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Applied {
    /// At least one.
    pub decisions: Vec<Decision>,
    pub partition: i32,
    pub offset: i64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Recalled {
    pub memories: Vec<Memory>,
    /// Wishes for every answer beside these.
    #[serde(default)]
    pub wishes: Vec<Memory>,
    /// good, weak or none.
    #[serde(rename = "match")]
    pub matches: Option<String>,
    pub prompt: String,
    pub tokens: usize,
    pub stale: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Listed {
    pub memories: Vec<Memory>,
    pub after: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Revision {
    pub content: String,
    pub until: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct OneMemory {
    pub memory: Memory,
    #[serde(default)]
    pub history: Vec<Revision>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Explained {
    pub decision: Decision,
    pub memory: Option<Memory>,
    pub since: Vec<Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Counts {
    pub total: u64,
    pub by_kind: BTreeMap<String, u64>,
    pub by_scope: BTreeMap<String, u64>,
    pub by_state: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Stats {
    pub memories: Counts,
    pub decisions: BTreeMap<String, u64>,
    pub oldest: Option<String>,
    pub bytes: u64,
}
