//! The parts of replies that other crates fill in.

use domain::{Memory, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The offset that the shard had applied, and how long the reply took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// -1 if nothing was applied, or if no shard was read.
    pub applied_offset: i64,
    pub stale: bool,
    pub took_us: u64,
    /// The deadline ended the work early.
    pub partial: bool,
    /// The record came to a partition that is not its user's.
    pub misrouted: bool,
    /// Warnings for the sender: fields that were ignored, values that were corrected.
    pub warnings: Vec<String>,
}

impl Default for Freshness {
    fn default() -> Freshness {
        Freshness {
            applied_offset: -1,
            stale: false,
            took_us: 0,
            partial: false,
            misrouted: false,
            warnings: Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct RecalledMemory {
    pub memory: Arc<Memory>,
    pub score: f32,
    /// The probability that the memory answers the question, if the policy estimates one.
    pub relevance: Option<f32>,
    /// The terms of the score, in the order in which a reply shows them.
    pub terms: Vec<(&'static str, f32)>,
    /// For a revised memory: the day and the words of the revision.
    pub note: Option<String>,
}

/// Two memories that probably say the same.
#[derive(Clone, Debug)]
pub struct DuplicatePair {
    pub newer: Memory,
    pub older: Memory,
    /// On the scale of the standard encoder.
    pub cosine: f32,
}

/// The loss of strength of a memory with time.
#[derive(Clone, Debug, PartialEq)]
pub struct FadeCurve {
    pub at: Time,
    pub strength: f32,
    /// power-law, exponential or none.
    pub shape: &'static str,
    pub half_life_days: Option<f32>,
    /// The strength below which the memory is pruned, and the age in days from which on.
    pub prune: Option<(f32, f32)>,
    pub points: Vec<(Time, f32)>,
}

/// What is known of a user.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    pub lines: Vec<PictureLine>,
    pub prompt: String,
    pub tokens: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PictureLine {
    pub section: &'static str,
    pub memory: Arc<Memory>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    pub memories: u64,
    /// Memories that were made in a session.
    pub in_sessions: u64,
    pub by_kind: BTreeMap<String, u64>,
    pub by_scope: BTreeMap<String, u64>,
    pub by_state: BTreeMap<String, u64>,
    pub average_importance: f32,
    pub oldest: Option<Time>,
    pub bytes: u64,
    pub decisions: BTreeMap<String, u64>,
    /// The latest sessions with their turns and the last one's time, and the number of all.
    pub latest_sessions: Vec<(String, u32, Time)>,
    pub sessions: usize,
}
