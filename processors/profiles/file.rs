//! Reads the file of a profile, built in or a path that ends in `.toml`, and merges the options
//! over the profile that its key `base` names.

use super::known;
use super::options::{self, Environment, ShownOption};
use super::tables::Profile;
use super::written::WrittenProfile;
use domain::fault::{Fault, Result, StopName};
use policies::Entry;

pub fn load(name: &str) -> Result<Profile> {
    load_with(name, &Environment::new()).map(|loaded| loaded.profile)
}

/// A profile, with warnings to the operator about the environment.
pub struct Loaded {
    pub profile: Profile,
    pub warnings: Vec<String>,
}

/// Loads the profile with the variables that the policy's document names.
pub fn load_with(name: &str, environment: &Environment) -> Result<Loaded> {
    let Read { table, policy, warnings, .. } = read(name, environment)?;
    let written: WrittenProfile =
        serde_path_to_error::deserialize(table.clone()).map_err(|e| invalid(name, &e))?;
    let profile = written.checked(name, &table, policy).map_err(|why| invalid(name, &why))?;
    Ok(Loaded { profile, warnings })
}

/// Lists the options of the policy's document as this profile and the environment set them.
pub fn shown_options(name: &str, environment: &Environment) -> Result<Vec<ShownOption>> {
    let Read { own, table, policy, .. } = read(name, environment)?;
    Ok(options::shown(name, policy, &own, &table, environment))
}

struct Read {
    /// The file alone.
    own: toml::Table,
    /// The profile with its bases, and with the options of the document in their places.
    table: toml::Table,
    policy: &'static Entry,
    warnings: Vec<String>,
}

fn read(name: &str, environment: &Environment) -> Result<Read> {
    let text = match find(name, name)? {
        Some(built_in) => built_in.profile.to_owned(),
        None if name.ends_with(".toml") => {
            std::fs::read_to_string(name).map_err(|e| invalid(name, &e))?
        }
        None => {
            let known = known::names().join(", ");
            return Err(invalid(
                name,
                &format!("there is no such profile; known: {known}, or a path that ends in .toml"),
            ));
        }
    };
    let own: toml::Table = text.parse().map_err(|e| invalid(name, &e))?;
    let mut table = own.clone();
    if let Some(base) = table.remove("base") {
        table = over(based_on(name, &base)?, table);
    }
    let wanted = table.entry("policy").or_insert("keepsake".into());
    let policy = find(name, wanted.as_str().unwrap_or_default())?.ok_or_else(|| {
        let known = known::names().join(", ");
        invalid(name, &format!("there is no policy {wanted}; known: {known}"))
    })?;
    options::apply_table(&mut table, policy).map_err(|why| invalid(name, &why))?;
    let warnings = options::apply_environment(&mut table, policy, environment)
        .map_err(|why| invalid(name, &why))?;
    Ok(Read { own, table, policy, warnings })
}

/// Finds a policy that the profile `name` asks for.
fn find(name: &str, policy: &str) -> Result<Option<&'static Entry>> {
    known::find(policy).map_err(|why| invalid(name, &why))
}

fn invalid(name: &str, why: &dyn std::fmt::Display) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("profile \"{name}\": {why}"))
}

/// Reads the built-in profile that `base` names, merged over a further base if that names one.
fn based_on(name: &str, base: &toml::Value) -> Result<toml::Table> {
    let other = base.as_str().filter(|base| *base != name).unwrap_or_default();
    let built_in = find(name, other)?.ok_or_else(|| {
        invalid(name, &format!("base: {base} is not the name of another built-in profile"))
    })?;
    let mut table: toml::Table = built_in.profile.parse().map_err(|e| invalid(name, &e))?;
    match table.remove("base") {
        Some(next) => Ok(over(based_on(name, &next)?, table)),
        None => Ok(table),
    }
}

/// Replaces options of `base` by those of `profile`, key by key at every depth. Two kinds of table
/// are replaced as a whole: a `rule` that belongs to another policy, and a table that has a
/// `default`, such as half-lives by kind, since that default covers each kind that is left out.
fn over(mut base: toml::Table, profile: toml::Table) -> toml::Table {
    for (name, value) in profile {
        let value = match (base.remove(&name), value) {
            (Some(toml::Value::Table(before)), toml::Value::Table(options))
                if !options.contains_key("default")
                    && (name != "rule" || before.keys().eq(options.keys())) =>
            {
                toml::Value::Table(over(before, options))
            }
            (_, value) => value,
        };
        base.insert(name, value);
    }
    base
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
        let policy = known::find(table["policy"].as_str().expect("a name"))
            .expect("each build of the tests has it")
            .expect("it is known");
        written.checked("mine", &table, policy).map_err(|why| invalid("mine", &why))?;
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
        assert!(based_on("mine", &"nobody".into()).is_err());
        assert!(based_on("lynkr", &"lynkr".into()).is_err());
    }

    /// Each number of each table of each shipped profile, changed alone by a derived profile: no
    /// other number may change.
    #[test]
    fn a_table_in_a_profile_changes_only_the_keys_that_it_names() {
        fn numbers(path: &str, table: &toml::Table, into: &mut Vec<String>) {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match value {
                    toml::Value::Table(inner) => numbers(&path, inner, into),
                    toml::Value::Float(_) => into.push(path),
                    _ => {}
                }
            }
        }
        let mut seen = 0;
        for name in known::names() {
            let shipped = as_built_in(name);
            let mut paths = Vec::new();
            numbers("", &shipped, &mut paths);
            // Half-lives with a `default` of their own are the whole table.
            for path in paths.iter().filter(|path| !path.ends_with(".default")) {
                let mut own = toml::Table::new();
                settings::put(&mut own, path, 0.125.into());
                let mut expected = shipped.clone();
                settings::put(&mut expected, path, 0.125.into());
                assert_eq!(over(shipped.clone(), own), expected, "{name}: {path}");
                seen += 1;
            }
        }
        assert!(seen > 300, "{seen} numbers");
    }

    #[test]
    fn half_lives_with_a_default_of_their_own_are_the_whole_table() {
        let fade = |text: &str| {
            let own: toml::Table = text.parse().expect("the test's own TOML is valid");
            over(as_built_in("keepsake"), own)["fade"]["half_life_days"].as_table().cloned()
        };
        let whole = fade("[fade]\nhalf_life_days = { default = 30.0 }").expect("a table");
        assert_eq!(whole.len(), 1, "{whole:?}");
        let one = fade("[fade]\nhalf_life_days = { fact = 30.0 }").expect("a table");
        assert!(one.len() > 5 && one["fact"].as_float() == Some(30.0), "{one:?}");
    }
}
