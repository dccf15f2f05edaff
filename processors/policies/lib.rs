//! Keepsake's own policy, the scores and the ranking that others may use, and the entry of a policy
//! in the table of a build ([`Entry`]).

pub mod keepsake;
pub mod options;
pub mod rank;
pub mod score;

use kernel::Policy;
use options::DocumentOptions;
use serde::de::DeserializeOwned;
use std::sync::Arc;

pub type Made = Result<Arc<dyn Policy>, String>;

/// A policy: the name under which profiles choose it, its built-in profile, the options of its
/// document, and the function that makes the policy from the tables of a profile.
pub struct Entry {
    pub name: &'static str,
    pub profile: &'static str,
    pub options: DocumentOptions,
    read: fn(&Tables) -> Made,
}

pub static KEEPSAKE: Entry = Entry::new(
    "keepsake",
    include_str!("keepsake/profile.toml"),
    DocumentOptions::NONE,
    |tables| Ok(Arc::new(keepsake::Keepsake::read(tables)?)),
);

impl Entry {
    pub const fn new(
        name: &'static str,
        profile: &'static str,
        options: DocumentOptions,
        read: fn(&Tables) -> Made,
    ) -> Entry {
        Entry { name, profile, options, read }
    }

    /// Makes the policy. Keepsake's own tables are checked under every policy, because every profile
    /// inherits them and a misspelled option must be an error there too.
    pub fn make(&self, profile: &toml::Table) -> Made {
        if self.name != KEEPSAKE.name {
            (KEEPSAKE.read)(&Tables { profile, name: KEEPSAKE.name })?;
        }
        (self.read)(&Tables { profile, name: self.name })
    }
}

/// The tables of a profile from which a policy reads its numbers.
pub struct Tables<'t> {
    pub profile: &'t toml::Table,
    /// The policy's name: the last key of `[gate.rule.NAME]` and `[rank.rule.NAME]`.
    pub name: &'t str,
}

impl Tables<'_> {
    /// Reads `[gate.rule.NAME]`, the numbers of this policy's gate.
    pub fn gate<T: DeserializeOwned>(&self) -> Result<T, String> {
        self.read(&["gate", "rule", self.name])
    }

    /// Reads `[rank.rule.NAME]`, the numbers of this policy's ranking.
    pub fn rank<T: DeserializeOwned>(&self) -> Result<T, String> {
        self.read(&["rank", "rule", self.name])
    }

    /// Reads the table at a path. An error names the option with its whole path.
    pub fn read<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, String> {
        self.read_without(path, &[])
    }

    /// Reads the table at a path without the keys `left_out`, which belong to other readers.
    pub fn read_without<T: DeserializeOwned>(
        &self,
        path: &[&str],
        left_out: &[&str],
    ) -> Result<T, String> {
        let mut table = self.profile;
        for key in path {
            let next = table.get(*key).and_then(toml::Value::as_table);
            table = next.ok_or_else(|| format!("there is no table [{}]", path.join(".")))?;
        }
        let mut table = table.clone();
        table.retain(|key, _| !left_out.contains(&key));
        serde_path_to_error::deserialize(table).map_err(|e| match e.path().to_string().as_str() {
            "." => format!("{}: {}", path.join("."), e.inner()),
            inner => format!("{}.{inner}: {}", path.join("."), e.inner()),
        })
    }
}
