//! A profile: the options of each stage, one struct for each table of the file.

use kernel::Rules;
use policies::rank;
use serde::Deserialize;
use std::collections::BTreeSet;
use storage::index;
use text::redact::Rule;

/// The options of every stage, checked, for the tenants that use this profile.
#[derive(Clone)]
pub struct Profile {
    /// The part that the kernel follows.
    pub rules: Rules,
    pub redact: Vec<Rule>,
    pub retrieval: Retrieval,
    pub steps: Steps,
    pub fade: rank::Fade,
    /// The format of the prompt block, if the profile sets one.
    pub template: Option<rank::Template>,
    pub prune: Prune,
    pub summary: Summary,
    pub extract: Extract,
}

/// Numbers of the search for candidates, before a policy ranks them.
#[derive(Clone, Copy, Debug)]
pub struct Retrieval {
    pub words: index::Bm25,
    /// Share of the cosine in the choice of candidates; the rest is words.
    pub dense: f32,
    /// Encodes a question that names one speaker in the first person.
    pub first_person: bool,
}

/// Steps of a recall that a profile may switch off.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// A cross-encoder reorders the answer, if there is one and the policy uses one.
    pub rerank: bool,
    /// The prompt block is empty where no memory is relevant.
    pub abstain: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prune {
    #[serde(default)]
    pub action: PruneAction,
    pub age_days: f32,
    pub strength: f32,
    pub count_max: usize,
}

/// The end of a memory that is pruned.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PruneAction {
    #[default]
    Archive,
    /// Erases the memory, as a `forget` would.
    Delete,
    /// Nothing is pruned.
    Off,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    #[serde(default)]
    pub trigger: SummaryTrigger,
    pub idle_hours: f32,
    pub memories_min: usize,
    pub quotes_max: usize,
    /// For [`SummaryTrigger::Sessions`]: sessions of a user that stay as they are.
    #[serde(default)]
    pub sessions_max: usize,
    /// Sessions that are compressed together; half of `sessions_max` if left out.
    pub sessions_together: Option<usize>,
    /// Kinds of the memories that are compressed.
    #[serde(default)]
    pub kinds: BTreeSet<String>,
    /// The kind of the summary that stands for them.
    #[serde(default)]
    pub kind: String,
    /// A profile from before this key has the rules.
    #[serde(default)]
    pub by: Author,
    /// The instruction to the language model in the place of Keepsake's own words.
    pub prompt: Option<String>,
}

/// Facts that the language model extracts beside the rules. A profile from before this table has
/// the rules alone.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Extract {
    pub by: Author,
    pub idle_hours: f32,
    pub age_days: f32,
    pub turns_max: usize,
    pub facts_max: usize,
}

impl Default for Extract {
    fn default() -> Extract {
        let by = Author::Rules;
        Extract { by, idle_hours: 0.25, age_days: 7.0, turns_max: 20, facts_max: 8 }
    }
}

/// The writer of the texts that the compaction worker proposes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Author {
    #[default]
    Rules,
    /// The language model of `[llm]`. The rules write where there is no usable answer.
    Model,
}

/// The event that makes the worker summarise.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SummaryTrigger {
    /// The silence of a session. The summary stands beside its memories.
    #[default]
    Idle,
    /// The number of a user's sessions. The summary stands for its memories from then on.
    Sessions,
    /// Nothing is summarised.
    Off,
}

impl Summary {
    /// Sessions that are compressed together, at least one.
    pub fn together(&self) -> usize {
        self.sessions_together.unwrap_or(self.sessions_max / 2).max(1)
    }

    /// Fails if a key that the trigger needs is not set.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        if self.trigger != SummaryTrigger::Sessions {
            return Ok(());
        }
        let missing = [
            ("sessions_max", self.sessions_max == 0),
            ("kinds", self.kinds.is_empty()),
            ("kind", self.kind.is_empty()),
        ];
        match missing.iter().find(|(_, is_missing)| *is_missing) {
            Some((key, _)) => {
                Err(format!("summary.{key}: must be set where trigger is \"sessions\""))
            }
            None => Ok(()),
        }
    }
}
