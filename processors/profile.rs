//! A profile as written (`config/profiles/*.toml`) → the options of each stage. A profile is data: nothing asks for its name.

use crate::config::Config;
use crate::domain::{Role, Signal, UserKey};
use crate::fault::{Fault, Result, StopName};
use crate::stages::{index, rank, score, split};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

const BUILT_IN: &[(&str, &str)] = &[("keepsake", include_str!("../config/profiles/keepsake.toml"))];

/// How each stage decides, for the tenants that use it.
#[derive(Clone)]
pub struct Profile {
    pub name: Arc<str>,
    pub split: split::Options,
    pub roles: Roles,
    pub gate: score::Gate,
    pub weights: score::Weights,
    pub merge: Merge,
    pub words: index::Bm25,
    /// A question that names one speaker is encoded as that speaker would put it.
    pub first_person: bool,
    pub rank: rank::Weights,
    pub prune: Prune,
    pub summary: Summary,
    feedback: Feedback,
}

impl Profile {
    pub fn treatment(&self, role: Role) -> Treatment {
        match role {
            Role::User => self.roles.user,
            Role::Assistant => self.roles.assistant,
            Role::System => self.roles.system,
            Role::Tool => self.roles.tool,
        }
    }

    pub fn effect(&self, signal: Signal) -> Effect {
        match signal {
            Signal::Used => self.feedback.used,
            Signal::Confirmed => self.feedback.confirmed,
            Signal::Wrong => self.feedback.wrong,
            Signal::Irrelevant => self.feedback.irrelevant,
            Signal::Returned => Effect::default(),
        }
    }

    pub fn returned_counts(&self) -> bool {
        self.feedback.returned_counts
    }
}

/// What becomes of the turns of a role.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    Keep,
    Gate,
    Context,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roles {
    user: Treatment,
    assistant: Treatment,
    system: Treatment,
    tool: Treatment,
}

/// When a candidate is the same statement again.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    pub cosine: f32,
    pub overlap: f32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prune {
    pub age_days: f32,
    pub strength: f32,
    pub count_max: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub idle_hours: f32,
    pub memories_min: usize,
    pub quotes_max: usize,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    pub importance: f32,
    pub confidence: f32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Feedback {
    used: Effect,
    confirmed: Effect,
    wrong: Effect,
    irrelevant: Effect,
    returned_counts: bool,
}

/// Which profile a tenant has.
#[derive(Clone)]
pub struct Profiles {
    standard: Arc<Profile>,
    by_tenant: BTreeMap<String, Arc<Profile>>,
    by_name: BTreeMap<String, Arc<Profile>>,
}

impl Profiles {
    pub fn load(config: &Config) -> Result<Profiles> {
        let mut by_name = BTreeMap::new();
        let tenants = config.tenant_profiles();
        for name in [&config.profile].into_iter().chain(tenants.values()) {
            if !by_name.contains_key(name) {
                by_name.insert(name.clone(), Arc::new(load(name)?));
            }
        }
        for (name, _) in BUILT_IN {
            by_name.entry((*name).to_owned()).or_insert(Arc::new(load(name)?));
        }
        let of = |name: &String| by_name[name].clone();
        let by_tenant = tenants.iter().map(|(tenant, name)| (tenant.clone(), of(name))).collect();
        Ok(Profiles { standard: of(&config.profile), by_tenant, by_name })
    }

    pub fn of(&self, key: &UserKey) -> &Arc<Profile> {
        self.by_tenant.get(key.tenant()).unwrap_or(&self.standard)
    }

    /// By the name a request gives.
    pub fn named(&self, name: &str) -> Option<&Arc<Profile>> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// The same with a gate that keeps everything: what an evaluation compares the gate with.
    pub fn with_open_gate(&self) -> Profiles {
        let open = |profile: &Arc<Profile>| {
            let gate = score::Gate { fixed: f32::MIN, ..profile.gate.clone() };
            Arc::new(Profile { gate, ..Profile::clone(profile) })
        };
        let all =
            |known: &BTreeMap<String, Arc<Profile>>| known.iter().map(|(name, profile)| (name.clone(), open(profile))).collect();
        Profiles { standard: open(&self.standard), by_tenant: all(&self.by_tenant), by_name: all(&self.by_name) }
    }
}

fn load(name: &str) -> Result<Profile> {
    let text = match BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        Some((_, text)) => (*text).to_owned(),
        None if name.ends_with(".toml") => std::fs::read_to_string(name).map_err(|e| invalid(name, &e))?,
        None => {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            return Err(invalid(
                name,
                &format!("there is no such profile; known: {}, or a path that ends in .toml", known.join(", ")),
            ));
        }
    };
    let table: toml::Table = text.parse().map_err(|e| invalid(name, &e))?;
    let written: Written = serde_path_to_error::deserialize(table).map_err(|e| invalid(name, &e))?;
    Ok(written.checked(name))
}

fn invalid(name: &str, why: &dyn std::fmt::Display) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("profile \"{name}\": {why}"))
}

// ---------------------------------------------------------------- as written

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    split: WrittenSplit,
    roles: Roles,
    gate: WrittenGate,
    weights: WrittenWeights,
    merge: Merge,
    rank: WrittenRank,
    fade: WrittenFade,
    prune: Prune,
    summary: Summary,
    feedback: Feedback,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSplit {
    tokens_min: usize,
    tokens_max: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGate {
    fixed: f32,
    keep_share: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenWeights {
    specificity: f32,
    novelty: f32,
    contradiction: f32,
    emphasis: f32,
    context_switch: f32,
    fact: f32,
    mine: f32,
    time: f32,
    number: f32,
    name: f32,
    decision: f32,
    correction: f32,
    never: f32,
    instruction: f32,
    answer: f32,
    about_other: f32,
    greeting: f32,
    question_only: f32,
    short: f32,
    repetition: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRank {
    dense: f32,
    k1: f32,
    b: f32,
    // What is not written adds nothing: a profile that ranks by less says less.
    #[serde(default)]
    previous: f32,
    #[serde(default)]
    short_words: f32,
    #[serde(default)]
    first_person: bool,
    #[serde(default)]
    answer: f32,
    #[serde(default)]
    neighbour: f32,
    #[serde(default)]
    speaker: f32,
    #[serde(default)]
    when: f32,
    #[serde(default)]
    question: f32,
    #[serde(default)]
    month: f32,
    #[serde(default)]
    specificity: f32,
    assistant: f32,
    bound: f32,
    floor: f32,
    floor_cosine: f32,
    superseded: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFade {
    half_life_days: BTreeMap<String, f32>,
    exempt: Vec<String>,
}

/// Recent totals the running quantile is taken over: 50 and 400 differ by two points of the share stored.
pub const GATE_WINDOW: usize = 200;

impl Written {
    fn checked(self, name: &str) -> Profile {
        let w = self.weights;
        let standard_half_life = self.fade.half_life_days.get("default").copied().unwrap_or(60.0);
        Profile {
            name: name.into(),
            split: split::Options { tokens_min: self.split.tokens_min, tokens_max: self.split.tokens_max.max(1) },
            roles: self.roles,
            gate: score::Gate { fixed: self.gate.fixed, keep_share: self.gate.keep_share, window: GATE_WINDOW },
            weights: score::Weights {
                specificity: w.specificity,
                novelty: w.novelty,
                contradiction: w.contradiction,
                emphasis: w.emphasis,
                context_switch: w.context_switch,
                fact: w.fact,
                mine: w.mine,
                time: w.time,
                number: w.number,
                name: w.name,
                decision: w.decision,
                correction: w.correction,
                never: w.never,
                instruction: w.instruction,
                answer: w.answer,
                about_other: w.about_other,
                greeting: w.greeting,
                question_only: w.question_only,
                short: w.short,
                repetition: w.repetition,
            },
            merge: self.merge,
            words: index::Bm25 {
                k1: self.rank.k1,
                b: self.rank.b,
                previous: self.rank.previous,
                short_words: self.rank.short_words,
            },
            first_person: self.rank.first_person,
            rank: rank::Weights {
                dense: self.rank.dense,
                answer: self.rank.answer,
                neighbour: self.rank.neighbour,
                speaker: self.rank.speaker,
                when: self.rank.when,
                question: self.rank.question,
                month: self.rank.month,
                specificity: self.rank.specificity,
                assistant: self.rank.assistant,
                bound: self.rank.bound,
                floor: self.rank.floor,
                fade: rank::Fade {
                    half_life_days: standard_half_life,
                    half_life_days_by_kind: self.fade.half_life_days,
                    shape: rank::Shape::PowerLaw,
                    exempt: self.fade.exempt.into_iter().collect(),
                },
                floor_cosine: self.rank.floor_cosine,
                superseded: self.rank.superseded,
            },
            prune: self.prune,
            summary: self.summary,
            feedback: self.feedback,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Layers;

    #[test]
    fn every_built_in_profile_is_valid() {
        for (name, _) in BUILT_IN {
            load(name).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn an_unknown_profile_is_named_with_the_known_ones() {
        let mut layers = Layers::defaults();
        layers.set("profile", "keepsak", "test").expect("a string");
        let error = Profiles::load(&layers.checked().expect("valid")).err().expect("no such profile");
        assert!(error.to_string().contains("keepsake"), "{error}");
    }
}
