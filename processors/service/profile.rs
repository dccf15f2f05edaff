//! Loads profiles (a file, or that of a policy) into the options of each stage, and finds the
//! profile of a tenant. A profile is data: no code depends on the name of one.

mod file;
pub(crate) mod known;
pub mod options;
mod written;

use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use file::{load, load_with};
use kernel::Rules;
use options::ShownOption;
use policies::{keepsake, rank};
use serde::Deserialize;
use settings::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::index;
use text::redact;

/// The options of every stage, checked, for the tenants that use this profile.
#[derive(Clone)]
pub struct Profile {
    /// The part that the kernel follows.
    pub rules: Rules,
    pub redact: redact::Options,
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
    fn check(&self) -> std::result::Result<(), String> {
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

/// The loaded profiles: the default, those of single tenants, and those that any request may name.
#[derive(Clone)]
pub struct Profiles {
    standard: Arc<Profile>,
    by_tenant: BTreeMap<String, Arc<Profile>>,
    for_requests: BTreeMap<String, Arc<Profile>>,
    /// Judges the same turns for comparison. Its judgements are published and not applied.
    shadow: Option<Arc<Profile>>,
}

impl Profiles {
    pub fn load(config: &Config) -> Result<Profiles> {
        let mut by_name = BTreeMap::new();
        let tenants = config.tenant_profiles();
        let requested = &config.recall.profiles;
        let chosen = load_with(&config.profile, &config.of_documents)?;
        for warning in chosen.warnings.into_iter().chain(lacking_for_requests(config)) {
            tracing::warn!("{warning}");
        }
        by_name.insert(config.profile.clone(), Arc::new(chosen.profile));
        // A lacking one on the list stops no process, because the list of the defaults has such
        // names: the operator is warned, and the request that names it is refused.
        let of_this_build = requested.iter().filter(|name| known::find(name).is_ok());
        for name in tenants.values().chain(of_this_build) {
            if !by_name.contains_key(name) {
                by_name.insert(name.clone(), Arc::new(load(name)?));
            }
        }
        let by_tenant =
            tenants.iter().map(|(tenant, name)| (tenant.clone(), by_name[name].clone())).collect();
        let shadow = shadow(config, &tenants)?;
        let standard = by_name[&config.profile].clone();
        by_name.retain(|name, _| requested.contains(name));
        Ok(Profiles { standard, by_tenant, for_requests: by_name, shadow })
    }

    /// The options of the chosen profile under the names of its policy's document.
    pub fn document_options(config: &Config) -> Result<Vec<ShownOption>> {
        file::shown_options(&config.profile, &config.of_documents)
    }

    /// Warnings to the operator about the environment of the chosen profile, and about the profiles
    /// for requests.
    pub fn warnings(config: &Config) -> Result<Vec<String>> {
        let chosen = load_with(&config.profile, &config.of_documents)?;
        Ok(chosen.warnings.into_iter().chain(lacking_for_requests(config)).collect())
    }

    /// Loads one profile for all tenants.
    pub fn only(name: &str) -> Result<Profiles> {
        let profile = Arc::new(load(name)?);
        Ok(Profiles {
            for_requests: BTreeMap::new(),
            standard: profile,
            by_tenant: BTreeMap::new(),
            shadow: None,
        })
    }

    pub fn of(&self, key: &UserKey) -> &Arc<Profile> {
        self.by_tenant.get(key.tenant()).unwrap_or(&self.standard)
    }

    /// Returns the shadow profile, or `None` if the tenant already uses it.
    pub fn shadow_of(&self, key: &UserKey) -> Option<&Profile> {
        self.shadow.as_deref().filter(|shadow| shadow.rules.name != self.of(key).rules.name)
    }

    /// Finds the profile that a request of this user names: one that every request may name, or
    /// the tenant's own.
    pub fn named(&self, key: &UserKey, name: &str) -> Option<&Arc<Profile>> {
        let own = self.of(key);
        if *own.rules.name == *name { Some(own) } else { self.for_requests.get(name) }
    }

    /// Returns why a request of this user may not name this profile, with the allowed ones.
    pub fn refusal(&self, key: &UserKey, name: &str) -> String {
        if let Err(why) = known::find(name) {
            return why;
        }
        let own: &str = &self.of(key).rules.name;
        let names = self.for_requests.keys().map(String::as_str).chain([own]);
        let allowed: Vec<&str> = names.collect::<BTreeSet<_>>().into_iter().collect();
        format!(
            "is not on the list of recall.profiles: \"{name}\"; allowed: {}",
            allowed.join(", ")
        )
    }

    /// Replaces every gate of Keepsake's own policy by one that keeps everything. Evaluations
    /// compare the gate with that.
    pub fn with_open_gate(&self) -> Profiles {
        self.with(|profile| {
            if let Some(own) = keepsake::own(&*profile.rules.policy) {
                profile.rules.policy = Arc::new(own.with_open_gate());
            }
        })
    }

    /// Sets another bound on a user's memories, so that an evaluation sees which are archived
    /// first.
    pub fn with_memories_max(&self, count: usize) -> Profiles {
        self.with(|profile| profile.prune.count_max = count)
    }

    pub(crate) fn with(&self, change: impl Fn(&mut Profile)) -> Profiles {
        let changed = |profile: &Arc<Profile>| {
            let mut profile = Profile::clone(profile);
            change(&mut profile);
            Arc::new(profile)
        };
        let all = |known: &BTreeMap<String, Arc<Profile>>| {
            known.iter().map(|(name, profile)| (name.clone(), changed(profile))).collect()
        };
        Profiles {
            standard: changed(&self.standard),
            by_tenant: all(&self.by_tenant),
            for_requests: all(&self.for_requests),
            shadow: self.shadow.clone(),
        }
    }
}

/// Names the profiles for requests whose policy this build lacks.
fn lacking_for_requests(config: &Config) -> impl Iterator<Item = String> {
    let lacking = config.recall.profiles.iter().filter_map(|name| known::find(name).err());
    lacking.map(|why| format!("recall.profiles: {why}"))
}

/// Loads the shadow profile, if the configuration names one.
fn shadow(config: &Config, tenants: &BTreeMap<String, String>) -> Result<Option<Arc<Profile>>> {
    let name = &config.shadow.profile;
    if name.is_empty() {
        return Ok(None);
    }
    let invalid = |why: &str| {
        Fault::stop(StopName::ConfigInvalid, format!("shadow.profile: \"{name}\" {why}"))
    };
    if tenants.values().chain([&config.profile]).all(|real| real == name) {
        return Err(invalid("is already the profile of every tenant"));
    }
    let profile = load(name)?;
    if profile.rules.policy.traits().decides_later {
        return Err(invalid(
            "decides after it has stored several messages, and a shadow stores nothing",
        ));
    }
    Ok(Some(Arc::new(profile)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    #[test]
    fn every_built_in_profile_is_valid() {
        for name in known::names() {
            load(name).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// A build without the published policies:
    /// `cargo test --no-default-features --lib this_build_lacks`.
    #[cfg(not(feature = "published-policies"))]
    #[test]
    fn what_names_a_policy_that_this_build_lacks_stops_or_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a temporary file can be written");
            path.to_str().expect("the path is UTF-8").to_owned()
        };
        let over = file("over.toml", "base = \"alma\"");
        let under = file("under.toml", "base = \"keepsake\"\npolicy = \"memory-spec\"");
        let options = file(
            "options.toml",
            "base = \"keepsake\"\npolicy = \"talome\"\n[options]\nrecencyWeight = 1.0",
        );
        let loaded = |option: &str, value: &str| {
            let mut layers = Layers::defaults();
            layers.set(option, value, "test").expect("an option");
            Profiles::load(&layers.checked().expect("valid"))
        };
        let why = "this build lacks `published-policies`";
        for name in ["lynkr", "memory-platform", &over, &under, &options] {
            for option in ["profile", "tenants.acme", "shadow.profile"] {
                let error = loaded(option, name).err().expect(name).to_string();
                assert!(error.contains(why) && error.contains("config-invalid"), "{error}");
            }
        }
        assert!(loaded("recall.profiles", &over).is_err_and(|e| e.to_string().contains(why)));
        let key = UserKey::new("acme", "ada").expect("valid names");
        // The list of the defaults names two of them.
        let config = Layers::defaults().checked().expect("valid");
        let warnings = Profiles::warnings(&config).expect("valid");
        assert_eq!(warnings.iter().filter(|warning| warning.contains(why)).count(), 2);
        let profiles = loaded("profile", "keepsake").expect("Keepsake's own");
        assert!(profiles.named(&key, "lynkr").is_none());
        assert!(profiles.refusal(&key, "lynkr").contains(why));
        assert!(profiles.refusal(&key, "lynker").contains("allowed: keepsake"));
    }

    #[test]
    fn an_unknown_profile_is_named_with_the_known_ones() {
        let mut layers = Layers::defaults();
        layers.set("profile", "keepsak", "test").expect("a string");
        let error =
            Profiles::load(&layers.checked().expect("valid")).err().expect("no such profile");
        assert!(error.to_string().contains("keepsake"), "{error}");
    }
}
