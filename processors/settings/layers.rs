//! Merges the four layers of the configuration, later ones over earlier ones:
//!
//! 1. the defaults, compiled in from `config/default.toml`;
//! 2. a file (`--config`), which needs only the options that differ;
//! 3. the environment (`KEEPSAKE__KAFKA__BOOTSTRAP_SERVERS`);
//! 4. flags of the command line ([`Layers::set`]).
//!
//! Every value keeps the origin, so that an error and `config show` can name the layer.

use super::check::check;
use super::config::{Config, DEFAULTS, invalid};
use super::derived::derived;
use super::endpoint;
use super::tables::{find, from_text, leaves, put};
use domain::fault::{Fault, Result};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Table;

const ENVIRONMENT_PREFIX: &str = "KEEPSAKE__";
/// The short name of `data.dir`, the one option that every command of a laptop's user may need.
const DATA_VARIABLE: &str = "KEEPSAKE_DATA";

/// The beginning of the variables that the document of a policy names (Lynkr's guide).
const DOCUMENT_PREFIX: &str = "MEMORY_";

/// The merged layers, with the origin of each value.
#[derive(Clone, Debug)]
pub struct Layers {
    merged: Table,
    origins: BTreeMap<String, String>,
    /// Variables that the document of some policy names. They count while a profile with that
    /// policy is chosen.
    of_documents: BTreeMap<String, String>,
}

impl Layers {
    pub fn defaults() -> Layers {
        let merged: Table =
            DEFAULTS.parse().expect("default.toml is compiled in, and a test parses it");
        let origins =
            leaves(&merged).into_iter().map(|(path, _)| (path, "default".to_owned())).collect();
        Layers { merged, origins, of_documents: BTreeMap::new() }
    }

    /// Merges defaults, file and environment. Flags follow through [`Layers::set`].
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Layers> {
        let mut layers = Layers::defaults();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|e| invalid(format!("cannot read {}: {e}", path.display())))?;
            let table: Table = text.parse().map_err(|e| not_toml(path, &text, &e))?;
            layers.merge(&table, &path.display().to_string());
        }
        for (name, value) in environment {
            if let Some(path) = name.strip_prefix(ENVIRONMENT_PREFIX) {
                layers.set(&environment_path(path), &value, &name)?;
            } else if name == DATA_VARIABLE {
                layers.set("data.dir", &value, &name)?;
            } else if name.starts_with(DOCUMENT_PREFIX) {
                layers.of_documents.insert(name, value);
            }
        }
        Ok(layers)
    }

    fn merge(&mut self, table: &Table, origin: &str) {
        for (path, value) in leaves(table) {
            put(&mut self.merged, &path, value);
            self.origins.insert(path, origin.to_owned());
        }
    }

    /// Sets one value from text. The type of the default decides how the text is read.
    pub fn set(&mut self, path: &str, text: &str, origin: &str) -> Result<()> {
        let value = from_text(find(&self.merged, path), text)
            .map_err(|wanted| invalid(format!("{path}: must be {wanted}, not \"{text}\"")))?;
        put(&mut self.merged, path, value);
        self.origins.insert(path.to_owned(), origin.to_owned());
        Ok(())
    }

    /// Reads the merged layers into a [`Config`] and checks the values.
    pub fn checked(&self) -> Result<Config> {
        let mut config: Config = serde_path_to_error::deserialize(derived(&self.merged)).map_err(
            |e: serde_path_to_error::Error<toml::de::Error>| {
                let path = e.path().to_string();
                let origin = self
                    .origins
                    .get(&path)
                    .map_or(String::new(), |origin| format!(" (from {origin})"));
                let what = if is_secret(&path) || endpoint::is_source(&path) {
                    "has the wrong type".to_owned()
                } else {
                    e.inner().message().to_owned()
                };
                invalid(if path == "." { what } else { format!("{path}: {what}{origin}") })
            },
        )?;
        config.of_documents = self.of_documents.clone();
        config.auth.read_files().map_err(invalid)?;
        config.kafka.read_files().map_err(invalid)?;
        check(&config).map_err(invalid)?;
        Ok(config.of_generation(config.kafka.generation))
    }

    /// Returns path, effective value and origin of every option, as `config show` prints them.
    pub fn shown(&self) -> Vec<(String, String, String)> {
        leaves(&derived(&self.merged))
            .into_iter()
            .map(|(path, value)| {
                let origin = self.origins.get(&path).cloned().unwrap_or_default();
                (path, value.to_string(), origin)
            })
            .collect()
    }
}

/// Names the line of a syntax error and leaves out its text, which may be a password.
fn not_toml(path: &Path, text: &str, error: &toml::de::Error) -> Fault {
    let before = text.get(..error.span().unwrap_or_default().start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    invalid(format!("{}, line {line}: {}", path.display(), error.message()))
}

/// Recognises options that hold a secret: passwords and keys for brokers, and those of signatures.
pub fn is_secret(path: &str) -> bool {
    const WORDS: [&str; 6] =
        ["password", "passphrase", "secret", "ssl.key", "private.key", "marks_key"];
    // The path of a file is none, and helps to find a wrong one; neither is the wish for a secret.
    let is_none = path.starts_with("kafka.librdkafka_files.") || path == "embedded.secret";
    !is_none && WORDS.iter().any(|word| path.contains(word))
}

/// Converts the rest of a variable's name to the path of its option: `KAFKA__BOOTSTRAP_SERVERS` to
/// `kafka.bootstrap_servers`. After `LIBRDKAFKA` and `LIBRDKAFKA_FILES`, a single underscore stands
/// for a dot as well: `SESSION_TIMEOUT_MS` is `session.timeout.ms`.
fn environment_path(name: &str) -> String {
    let lower = name.to_lowercase().replace("__", ".");
    for table in ["kafka.librdkafka.", "kafka.librdkafka_files."] {
        if let Some(option) = lower.strip_prefix(table) {
            return format!("{table}{}", option.replace('_', "."));
        }
    }
    lower
}
