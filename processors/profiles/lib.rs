//! Loads profiles (a file, or that of a policy) into the options of each stage, and finds the
//! profile of a tenant. A profile is data: no code depends on the name of one.

mod file;
pub mod known;
pub mod options;
mod tables;
mod written;

pub use tables::{
    Author, Extract, Profile, Prune, PruneAction, Retrieval, Steps, Summary, SummaryTrigger,
};

use domain::fault::{Fault, Result, StopName};
use domain::{Role, UserKey};
use file::{load, load_with};
use kernel::rules::Treatment;
use options::ShownOption;
use policies::keepsake;
use settings::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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

    /// False if no profile that judges events reads vectors: then the service needs no encoder.
    pub fn read_vectors(&self) -> bool {
        let all = self.by_tenant.values().chain([&self.standard]).chain(&self.shadow);
        all.into_iter().any(|profile| profile.rules.policy.traits().reads_vectors)
    }

    /// False if turns of the chosen profile only prepare memories, or none is made but on request.
    pub fn keep_turns(&self) -> bool {
        let rules = &self.standard.rules;
        let is_context = rules.treatment(Role::User) == Treatment::Context;
        !is_context && !rules.policy.traits().decides_later
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

    pub fn with(&self, change: impl Fn(&mut Profile)) -> Profiles {
        let mut profiles = self.clone();
        let Profiles { standard, by_tenant, for_requests, shadow: _ } = &mut profiles;
        for profile in by_tenant.values_mut().chain(for_requests.values_mut()).chain([standard]) {
            change(Arc::make_mut(profile));
        }
        profiles
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
    let profile = load(name)?;
    let why = if tenants.values().chain([&config.profile]).all(|real| real == name) {
        "is already the profile of every tenant"
    } else if profile.rules.policy.traits().decides_later {
        "decides after it has stored several messages, and a shadow stores nothing"
    } else {
        return Ok(Some(Arc::new(profile)));
    };
    Err(Fault::stop(StopName::ConfigInvalid, format!("shadow.profile: \"{name}\" {why}")))
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
