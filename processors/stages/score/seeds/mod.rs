//! The gates of published memory systems, each as its document has it. A profile chooses one; without one Keepsake's own decides.
//! Pure: what the user's memories are comes as an argument.

pub mod alma;
pub mod lynkr;
pub mod memory_platform;
pub mod memory_spec;
#[cfg(test)]
pub mod samples;
pub mod talome;
mod wording;

use super::Rarity;
use crate::domain::{Kind, Memory, MemoryId, Role, SaidBefore, Surprise};
use serde::Deserialize;

/// A system's numbers, under its name: `[gate.rule.lynkr]` in a profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    Lynkr(lynkr::Gate),
    MemorySpec(memory_spec::Gate),
    Talome(talome::Gate),
    MemoryPlatform(memory_platform::Gate),
    Alma(alma::Gate),
}

/// What a candidate is judged on.
pub struct Ground<'a> {
    /// The user's, without those in the archive, oldest first.
    pub memories: &'a [Memory],
    /// The last turns of this session, oldest first.
    pub recent: &'a [SaidBefore],
    /// The cosine to the centroid of the user's memories; none where there is no memory.
    pub nearness_to_all: Option<f32>,
    pub rarity: &'a Rarity,
    pub role: Role,
    /// The sender's word for the kind, which wins.
    pub hint: Option<&'a Kind>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub surprise: Surprise,
    pub threshold: f32,
    pub keep: bool,
    pub reason: String,
    pub kind: Kind,
    pub importance: f32,
    pub confidence: f32,
    /// The memory that says the same already: confirmed instead of said twice.
    pub same: Option<MemoryId>,
    /// Kept in the archive, until a look at the whole conversation decides.
    pub waits: bool,
}

/// What an explicit wish to remember is taken for, where the sender does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub kind: Kind,
    pub confidence: f32,
    /// Nearly the same in other words, which takes the new ones.
    pub same: Option<Memory>,
}

impl Rule {
    /// Whether it judges on the user's memories, which must be read for it.
    pub fn reads_memories(&self) -> bool {
        matches!(self, Rule::Lynkr(_) | Rule::MemoryPlatform(_))
    }

    pub fn reads_centroid(&self) -> bool {
        matches!(self, Rule::MemorySpec(_))
    }

    /// Whether it puts candidates aside until it reads several at once.
    pub fn decides_later(&self) -> bool {
        matches!(self, Rule::Alma(_))
    }

    pub fn told(&self, content: &str, hint: Option<&Kind>, memories: &[Memory]) -> Told {
        let kind_or = |standard: &dyn Fn() -> Kind| hint.cloned().unwrap_or_else(standard);
        let sure = |kind: Kind| Told { kind, confidence: 1.0, same: None };
        match self {
            Rule::Lynkr(_) => sure(kind_or(&|| Kind::new("fact"))),
            Rule::MemorySpec(_) => sure(kind_or(&|| memory_spec::kind(content))),
            Rule::MemoryPlatform(_) => {
                sure(kind_or(&|| Kind::new(memory_platform::kind(content).unwrap_or("fact"))))
            }
            Rule::Alma(_) => {
                sure(kind_or(&|| Kind::new(alma::category(content).unwrap_or("fact"))))
            }
            Rule::Talome(gate) => {
                talome::told(gate, content, kind_or(&|| talome::kind(content)), memories)
            }
        }
    }
}

pub fn judge(rule: &Rule, text: &str, ground: &Ground<'_>) -> Judged {
    match rule {
        Rule::Lynkr(gate) => lynkr::judge(gate, text, ground),
        Rule::MemorySpec(gate) => memory_spec::judge(gate, text, ground),
        Rule::Talome(_) => talome::judge(text, ground),
        Rule::MemoryPlatform(gate) => memory_platform::judge(gate, text, ground),
        Rule::Alma(_) => alma::judge(ground),
    }
}

/// What somebody says of themselves is sure, what is concluded for them less so.
fn confidence(role: Role) -> f32 {
    if role == Role::User { 1.0 } else { 0.7 }
}

fn held(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

/// "novelty .40, emphasis .10": what made the total, the most first.
fn told(points: &[(&'static str, f32)]) -> String {
    let mut parts: Vec<_> = points.iter().filter(|point| point.1 != 0.0).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = parts
        .iter()
        .map(|(name, points)| format!("{name} {points:.2}").replacen("0.", ".", 1))
        .collect();
    if parts.is_empty() { "nothing in it".to_owned() } else { parts.join(", ") }
}
