//! Makes the policy that a profile names. [`POLICIES`] lists the six policies, one per folder.
//!
//! To add a policy: a folder with an implementation of [`Policy`], a `mod` line here, and a line in
//! `POLICIES`.

mod alma;
pub mod keepsake;
mod lynkr;
mod memory_platform;
mod memory_spec;
pub mod shared;
mod talome;
#[cfg(test)]
mod tests;

use crate::memory::Policy;
use serde::de::DeserializeOwned;
use std::sync::Arc;

type Made = Result<Arc<dyn Policy>, String>;

/// Pairs a policy's name with the function that makes the policy from the tables of a profile.
pub type Entry = (&'static str, fn(&Tables) -> Made);

pub const POLICIES: &[Entry] = &[
    ("keepsake", |tables| Ok(Arc::new(keepsake::Keepsake::read(tables)?))),
    ("alma", |tables| Ok(Arc::new(alma::Alma::read(tables)?))),
    ("lynkr", |tables| Ok(Arc::new(lynkr::Lynkr::read(tables)?))),
    ("memory-spec", |tables| Ok(Arc::new(memory_spec::MemorySpec::read(tables)?))),
    ("memory-platform", |tables| Ok(Arc::new(memory_platform::MemoryPlatform::read(tables)?))),
    ("talome", |tables| Ok(Arc::new(talome::Talome::read(tables)?))),
];

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

/// Makes the policy with this name. Keepsake's own tables are checked under every policy, because
/// every profile inherits them and a misspelled option must be an error there too.
pub fn make(policies: &[Entry], name: &str, profile: &toml::Table) -> Made {
    let mut made = None;
    for (other, make) in policies {
        let tables = Tables { profile, name: other };
        if *other == name {
            made = Some(make(&tables)?);
        } else if *other == "keepsake" {
            make(&tables)?;
        }
    }
    let known: Vec<&str> = policies.iter().map(|(name, _)| *name).collect();
    made.ok_or_else(|| format!("there is no policy \"{name}\"; known: {}", known.join(", ")))
}
