//! Reads the file of a profile, built in or a path that ends in `.toml`, and merges it over the
//! profile that its key `base` names.

use super::options::{self, Environment, ShownOption};
use super::written::WrittenProfile;
use super::{Profile, retired};
use domain::fault::{Fault, Result, StopName};

pub fn load(name: &str) -> Result<Profile> {
    load_with(name, &Environment::new()).map(|loaded| loaded.profile)
}

/// A profile, with warnings to the operator about the environment.
pub struct Loaded {
    pub profile: Profile,
    pub warnings: Vec<String>,
}

/// Loads the profile with the variables that the document of its policy names.
pub fn load_with(name: &str, environment: &Environment) -> Result<Loaded> {
    let Read { table, warnings, .. } = read(name, environment)?;
    let written: WrittenProfile =
        serde_path_to_error::deserialize(table.clone()).map_err(|e| invalid(name, &e))?;
    let profile = written.checked(name, &table).map_err(|why| invalid(name, &why))?;
    Ok(Loaded { profile, warnings })
}

/// Lists the options of the policy's document as this profile and the environment set them.
pub fn shown_options(name: &str, environment: &Environment) -> Result<Vec<ShownOption>> {
    let Read { own, table, .. } = read(name, environment)?;
    let policy = table.get("policy").and_then(toml::Value::as_str).unwrap_or_default();
    Ok(options::shown(name, policy, &own, &table, environment))
}

struct Read {
    /// The file alone.
    own: toml::Table,
    /// The profile with its bases, and with the options of the document in their places.
    table: toml::Table,
    warnings: Vec<String>,
}

fn read(name: &str, environment: &Environment) -> Result<Read> {
    let text = match policies::built_in(name) {
        Some(text) => text.to_owned(),
        None if name.ends_with(".toml") => {
            std::fs::read_to_string(name).map_err(|e| invalid(name, &e))?
        }
        None => {
            let known = policies::names(policies::POLICIES);
            return Err(invalid(
                name,
                &format!(
                    "there is no such profile; known: {}, or a path that ends in .toml",
                    known.join(", ")
                ),
            ));
        }
    };
    let own: toml::Table = text.parse().map_err(|e| invalid(name, &e))?;
    let mut table = own.clone();
    if let Some(gone) = retired::found(&table) {
        return Err(invalid(name, &gone));
    }
    if let Some(base) = table.remove("base") {
        table = over(based_on(name, &base)?, table);
    }
    name_policy(&mut table);
    let policy = table.get("policy").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    options::apply_table(&mut table, &policy).map_err(|why| invalid(name, &why))?;
    let warnings = options::apply_environment(&mut table, &policy, environment)
        .map_err(|why| invalid(name, &why))?;
    Ok(Read { own, table, warnings })
}

/// Names the policy of a profile that was written before profiles named one: the owner of its rule.
fn name_policy(table: &mut toml::Table) {
    let rules = table.get("gate").and_then(|gate| gate.get("rule")).and_then(toml::Value::as_table);
    let owner = rules.and_then(|rules| rules.keys().next()).map_or("keepsake", String::as_str);
    let owner = toml::Value::from(owner);
    table.entry("policy").or_insert(owner);
}

fn invalid(name: &str, why: &dyn std::fmt::Display) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("profile \"{name}\": {why}"))
}

/// Reads the built-in profile that `base` names, merged over its own base if it has one.
fn based_on(name: &str, base: &toml::Value) -> Result<toml::Table> {
    let other = base.as_str().filter(|base| *base != name);
    let text = other.and_then(policies::built_in).ok_or_else(|| {
        invalid(name, &format!("base: {base} is not the name of another built-in profile"))
    })?;
    let mut table: toml::Table = text.parse().map_err(|e| invalid(name, &e))?;
    match table.remove("base") {
        Some(next) => Ok(over(based_on(name, &next)?, table)),
        None => Ok(table),
    }
}

/// Replaces options of `base` by those of `profile`, two levels deep and no deeper. A table that is
/// an option, such as half-lives by kind, is replaced as a whole.
fn over(mut base: toml::Table, profile: toml::Table) -> toml::Table {
    for (name, section) in profile {
        match (base.get_mut(&name), section) {
            (Some(toml::Value::Table(before)), toml::Value::Table(options)) => {
                for (option, value) in options {
                    let value = if option == "rule" {
                        same_rule(before.remove(&option), value)
                    } else {
                        value
                    };
                    before.insert(option, value);
                }
            }
            (_, section) => {
                base.insert(name, section);
            }
        }
    }
    base
}

/// Merges the numbers of a policy under `rule` if both tables name the same policy.
fn same_rule(before: Option<toml::Value>, rule: toml::Value) -> toml::Value {
    let (Some(toml::Value::Table(before)), toml::Value::Table(rule)) = (before, &rule) else {
        return rule;
    };
    if before.keys().eq(rule.keys()) {
        toml::Value::Table(over(before, rule.clone()))
    } else {
        toml::Value::Table(rule.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_template_names_the_file_and_the_line_of_the_template() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mine.toml");
        let load = |template: &str| {
            std::fs::write(&file, format!("base = \"keepsake\"\n[template]\n{template}"))
                .expect("a temporary file can be written");
            load(file.to_str().expect("the path is UTF-8"))
        };
        assert!(load("memory = '* {content}'").expect("a template").template.is_some());
        let error = load("memory = '* {contents}'")
            .err()
            .expect("an unknown placeholder is an error")
            .to_string();
        for part in [
            "mine.toml",
            "template: memory: there is no placeholder {contents}",
            "{content}",
            "config-invalid",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    fn as_built_in(name: &str) -> toml::Table {
        based_on("mine", &name.into()).expect("the profile is built in")
    }

    /// A profile with this text over the built-in profile of Lynkr.
    fn over_lynkr(text: &str) -> Result<toml::Table> {
        let table: toml::Table = text.parse().expect("the test's own TOML is valid");
        let table = over(based_on("mine", &"lynkr".into())?, table);
        let written: WrittenProfile = table.clone().try_into().map_err(|e| invalid("mine", &e))?;
        written.checked("mine", &table).map_err(|why| invalid("mine", &why))?;
        Ok(table["gate"]["rule"]["lynkr"].as_table().expect("a table").clone())
    }

    #[test]
    fn a_profile_contains_only_its_differences_from_its_base() {
        fn number(table: &toml::Table, name: &str) -> f64 {
            table[name].as_float().expect("a number")
        }
        let as_it_is = over_lynkr("").expect("built in");
        let stricter = over_lynkr("[gate.rule.lynkr]\nthreshold = 0.5").expect("one number");
        assert_eq!(number(&as_it_is, "threshold"), 0.3);
        assert_eq!(number(&stricter, "threshold"), 0.5);
        assert_eq!(number(&stricter, "novelty"), number(&as_it_is, "novelty"));
        let misspelled = over_lynkr("[gate.rule.lynkr]\nthreshhold = 0.5")
            .expect_err("an unknown key is an error");
        assert!(misspelled.to_string().contains("gate.rule.lynkr"), "{misspelled}");
        let unread = over_lynkr("policy = \"keepsake\"")
            .expect_err("numbers that no policy reads are an error");
        assert!(unread.to_string().contains("set policy = \"lynkr\""), "{unread}");
        let mut nameless = as_built_in("lynkr");
        nameless.remove("policy");
        name_policy(&mut nameless);
        assert_eq!(nameless["policy"].as_str(), Some("lynkr"));
        assert!(based_on("mine", &"nobody".into()).is_err());
        assert!(based_on("lynkr", &"lynkr".into()).is_err());
    }
}
