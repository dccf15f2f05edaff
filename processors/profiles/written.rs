//! Deserializes a profile table by table and converts each table into the options of a stage.

use super::tables::{Extract, Profile, Prune, Retrieval, Steps, Summary};
use domain::{Category, Role};
use kernel::Rules;
use kernel::rules::{Change, Feedback, Roles, TenantWriters};
use policies::{Entry, rank};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::collections::{BTreeMap, BTreeSet};
use storage::index;
use text::redact::Rule;
use text::split;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenProfile {
    policy: String,
    redact: Switches,
    split: WrittenSplit,
    roles: Roles,
    // The policy reads these tables.
    gate: toml::Table,
    #[serde(rename = "weights")]
    _weights: IgnoredAny,
    #[serde(rename = "merge")]
    _merge: IgnoredAny,
    rank: toml::Table,
    never: Switches,
    change: Change,
    fade: rank::Fade,
    template: Option<rank::Template>,
    prune: Prune,
    summary: Summary,
    #[serde(default)]
    extract: Extract,
    feedback: Feedback,
    #[serde(default)]
    tenant_memories: WrittenTenantMemories,
}

/// A table of switches by name.
type Switches = BTreeMap<String, bool>;

/// Returns those of `all` that are switched on. The table must name each of them, and no other.
fn switched_on<T: Copy>(
    table: &str,
    switches: &Switches,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>, String> {
    if let Some(unknown) = switches.keys().find(|key| all.iter().all(|one| name(*one) != **key)) {
        return Err(format!("{table}.{unknown}: unknown field"));
    }
    let mut on = Vec::new();
    for one in all {
        match switches.get(name(*one)) {
            Some(true) => on.push(*one),
            Some(false) => {}
            None => return Err(format!("{table}.{}: missing field", name(*one))),
        }
    }
    Ok(on)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSplit {
    tokens_min: usize,
    tokens_max: usize,
    #[serde(default)]
    statements: Vec<String>,
}

impl WrittenSplit {
    fn checked(self) -> Result<split::Options, String> {
        let roles = self.statements.iter().map(|role| {
            role.parse::<Role>()
                .map_err(|_| format!("split.statements: there is no role \"{role}\""))
        });
        Ok(split::Options {
            tokens_min: self.tokens_min,
            tokens_max: self.tokens_max.max(1),
            statements: roles.collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTenantMemories {
    writers: BTreeSet<String>,
}

/// A profile from before this table leaves everybody in.
impl Default for WrittenTenantMemories {
    fn default() -> Self {
        WrittenTenantMemories { writers: BTreeSet::from([EVERYBODY.to_owned()]) }
    }
}

const EVERYBODY: &str = "*";

impl WrittenTenantMemories {
    fn checked(self) -> TenantWriters {
        match self.writers.contains(EVERYBODY) {
            true => TenantWriters::Everybody,
            false => TenantWriters::Named(self.writers),
        }
    }
}

/// The keys of `[rank]` that retrieval reads. A missing optional key turns its part off.
#[derive(Deserialize)]
struct WrittenRetrieval {
    k1: f32,
    b: f32,
    dense: f32,
    #[serde(default)]
    previous: f32,
    #[serde(default)]
    short_words: f32,
    #[serde(default)]
    first_person: bool,
}

/// The keys of `[rank]` that switch steps of a recall. A profile from before them has both on.
#[derive(Deserialize)]
struct WrittenSteps {
    #[serde(default = "yes")]
    rerank: bool,
    #[serde(default = "yes")]
    abstain: bool,
}

fn yes() -> bool {
    true
}

impl WrittenRetrieval {
    fn checked(self) -> Retrieval {
        let WrittenRetrieval { k1, b, dense, previous, short_words, first_person } = self;
        let words = index::Bm25 { k1, b, previous, short_words };
        Retrieval { words, dense, first_person }
    }
}

/// Reads the keys of `[rank]` that `T` names.
fn of_rank<T: DeserializeOwned>(rank: &toml::Table) -> Result<T, String> {
    serde_path_to_error::deserialize(rank.clone())
        .map_err(|e| format!("rank.{}: {}", e.path(), e.inner()))
}

impl WrittenProfile {
    /// Checks every table and makes the policy. `table` is the whole profile.
    pub fn checked(
        self,
        name: &str,
        table: &toml::Table,
        policy: &Entry,
    ) -> Result<Profile, String> {
        self.check_owner_of_rules()?;
        let retrieval: WrittenRetrieval = of_rank(&self.rank)?;
        let WrittenSteps { rerank, abstain } = of_rank(&self.rank)?;
        self.summary.check()?;
        let rules = Rules {
            name: name.into(),
            policy: policy.make(table)?,
            roles: self.roles,
            never: switched_on("never", &self.never, &Category::ALL, Category::as_str)?,
            change: self.change,
            feedback: self.feedback,
            tenant_writers: self.tenant_memories.checked(),
            split: self.split.checked()?,
        };
        Ok(Profile {
            rules,
            redact: switched_on("redact", &self.redact, &Rule::ALL, Rule::as_str)?,
            retrieval: retrieval.checked(),
            steps: Steps { rerank, abstain },
            fade: self.fade,
            template: self.template,
            prune: self.prune,
            summary: self.summary,
            extract: self.extract,
        })
    }

    /// Fails on numbers of a policy that the profile does not name, because no code would read
    /// them.
    fn check_owner_of_rules(&self) -> Result<(), String> {
        let policy = &self.policy;
        for (table, numbers) in [("gate", &self.gate), ("rank", &self.rank)] {
            let rules = numbers.get("rule").and_then(toml::Value::as_table).into_iter();
            if let Some(other) = rules.flat_map(|rules| rules.keys()).find(|key| *key != policy) {
                return Err(format!(
                    "[{table}.rule.{other}] has numbers of the policy \"{other}\", and the policy \
                     of this profile is \"{policy}\": set policy = \"{other}\", or leave them out"
                ));
            }
        }
        Ok(())
    }
}
