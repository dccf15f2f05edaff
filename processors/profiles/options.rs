//! Sets options of a profile under the names of its policy's document: from the table `[options]`,
//! and from the environment where the document has variables. The environment wins.

use policies::Entry;
use policies::options::DocumentOption;
use settings::{find, from_text, put};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The table of a profile with the options under the names of the document.
const TABLE: &str = "options";

/// An option under the document's name, as printed by `config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownOption {
    pub name: String,
    pub value: String,
    pub origin: String,
}

/// Environment variables that some document names, by name.
pub type Environment = BTreeMap<String, String>;

/// Replaces the options of `[options]` by the keys that they stand for.
pub fn apply_table(profile: &mut Table, policy: &Entry) -> Result<(), String> {
    let Some(options) = profile.remove(TABLE) else { return Ok(()) };
    let Value::Table(options) = options else { return Err(format!("{TABLE}: must be a table")) };
    for (name, value) in options {
        let option = policy.options.named(&name).ok_or_else(|| {
            let (policy, known) = (policy.name, policy.options.names());
            format!("{TABLE}.{name}: the policy \"{policy}\" has no such option; known: {known}")
        })?;
        set(profile, option, &value);
    }
    Ok(())
}

/// Sets the options that the environment names. Returns a warning for each variable that begins
/// like an option of this policy's document and is none.
pub fn apply_environment(
    profile: &mut Table,
    policy: &Entry,
    environment: &Environment,
) -> Result<Vec<String>, String> {
    let document = &policy.options;
    let Some(prefix) = document.environment else { return Ok(Vec::new()) };
    let mut warnings = Vec::new();
    for (name, text) in environment.iter().filter(|(name, _)| name.starts_with(prefix)) {
        let Some(option) = document.named(name) else {
            let known = document.names();
            warnings
                .push(format!("{name} is no option of the policy {}; known: {known}", policy.name));
            continue;
        };
        let value = from_text(find(profile, option.paths[0]), text)
            .map_err(|wanted| format!("{name}: must be {wanted}, not \"{text}\""))?;
        set(profile, option, &value);
    }
    Ok(warnings)
}

fn set(profile: &mut Table, option: &DocumentOption, value: &Value) {
    option.paths.iter().for_each(|path| put(profile, path, value.clone()));
}

/// Lists the options of the document with their values and origins. `own` is the profile's file as
/// written, `whole` the profile with its bases and the environment.
pub fn shown(
    name: &str,
    policy: &Entry,
    own: &Table,
    whole: &Table,
    environment: &Environment,
) -> Vec<ShownOption> {
    let document = &policy.options;
    let sets = |option: &DocumentOption| {
        let named = own.get(TABLE).and_then(Value::as_table);
        let by_name = named
            .is_some_and(|table| table.keys().any(|key| key.eq_ignore_ascii_case(option.name)));
        by_name || option.paths.iter().any(|path| find(own, path).is_some())
    };
    let options = document.options.iter().map(|option| {
        let is_in_environment =
            document.environment.is_some() && environment.contains_key(option.name);
        let origin = match () {
            () if is_in_environment => option.name.to_owned(),
            () if sets(option) => format!("profile {name}"),
            () => format!("profile {}", policy.name),
        };
        let value = find(whole, option.paths[0]).map_or("unset".to_owned(), Value::to_string);
        ShownOption { name: option.name.to_owned(), value, origin }
    });
    options.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{load_with, shown_options};

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// The path of a profile file with this text. The directory keeps the file.
    fn file(text: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine.toml");
        std::fs::write(&path, text).expect("a temporary file can be written");
        let path = path.to_str().expect("the path is UTF-8").to_owned();
        (folder, path)
    }

    #[test]
    fn every_option_of_a_document_stands_for_a_key_of_the_profile() {
        for (policy, values) in [
            (
                "lynkr",
                "MEMORY_ENABLED = false\nMEMORY_RETRIEVAL_LIMIT = 10\n\
                 MEMORY_SURPRISE_THRESHOLD = 0.2\nMEMORY_MAX_AGE_DAYS = 60\n\
                 MEMORY_MAX_COUNT = 5000\nMEMORY_DECAY_ENABLED = false\n\
                 MEMORY_DECAY_HALF_LIFE = 7\nMEMORY_INCLUDE_GLOBAL = false\n\
                 MEMORY_INJECTION_FORMAT = \"assistant_preamble\"\n\
                 MEMORY_EXTRACTION_ENABLED = false\nMEMORY_FORMAT = \"detailed\"\n\
                 MEMORY_DEDUP_ENABLED = false\nMEMORY_DEDUP_LOOKBACK = 9",
            ),
            (
                "memory-spec",
                "MIN_CHUNK_TOKENS = 20\nMAX_CHUNK_TOKENS = 200\ntop_k = 7\n\
                 top_k_candidates = 40\ntoken_budget = 900\nreranker_enabled = true\n\
                 compression_threshold = 8\nsessions_to_compress = 3",
            ),
        ] {
            let (_folder, path) = file(&format!("base = \"{policy}\"\n[options]\n{values}"));
            let all = shown_options(&path, &Environment::new()).expect("every option is known");
            let set: BTreeMap<&str, &str> = values
                .split('\n')
                .map(|line| line.trim().split_once(" = ").expect("name and value"))
                .collect();
            assert_eq!(all.len(), set.len(), "the test sets every option of {policy}");
            for option in all {
                assert_eq!(option.value, set[option.name.as_str()], "{}", option.name);
                assert_eq!(option.origin, format!("profile {path}"));
            }
            let unset = shown_options(policy, &Environment::new()).expect("built in");
            assert!(unset.iter().all(|option| option.origin == format!("profile {}", policy)));
        }
    }

    #[test]
    fn an_unknown_option_in_a_profile_is_an_error_that_lists_the_known_ones() {
        for text in [
            "base = \"lynkr\"\n[options]\nMEMORY_MAX_AGE = 60",
            "base = \"keepsake\"\n[options]\nMEMORY_MAX_AGE_DAYS = 60",
            "base = \"lynkr\"\n[options]\nMEMORY_RETRIEVAL_LIMIT = 50",
        ] {
            let (_folder, path) = file(text);
            let error = load_with(&path, &Environment::new()).err().expect(text).to_string();
            let part = if text.contains("50") { "must be 1 to 20, not 50" } else { "known: " };
            assert!(error.contains(part) && error.contains("config-invalid"), "{error}");
        }
    }

    #[test]
    fn variables_of_the_chosen_policys_document_win_and_others_are_ignored() {
        let set = environment(&[("MEMORY_MAX_AGE_DAYS", "45"), ("MEMORY_FORMAT", "detailed")]);
        assert_eq!(load_with("lynkr", &set).expect("valid").profile.prune.age_days, 45.0);
        let keepsake = load_with("keepsake", &set).expect("no document names them here");
        assert_eq!((keepsake.profile.prune.age_days, keepsake.warnings.len()), (90.0, 0));
        let shown = shown_options("lynkr", &set).expect("valid");
        let age = shown.iter().find(|option| option.name == "MEMORY_MAX_AGE_DAYS");
        let age = age.expect("an option of the guide");
        assert_eq!((age.value.as_str(), age.origin.as_str()), ("45.0", "MEMORY_MAX_AGE_DAYS"));
        let unknown = environment(&[("MEMORY_MAX_AGES", "45")]);
        let warnings = load_with("lynkr", &unknown).expect("a warning is no error").warnings;
        assert!(warnings[0].starts_with("MEMORY_MAX_AGES is no option"), "{warnings:?}");
        for (name, value) in [("MEMORY_MAX_COUNT", "many"), ("MEMORY_FORMAT", "long")] {
            assert!(load_with("lynkr", &environment(&[(name, value)])).is_err(), "{name}={value}");
        }
    }
}
