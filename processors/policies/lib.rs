//! Makes the policy that a profile names. [`POLICIES`] lists the six policies, one per folder.
//!
//! To add a policy: a folder with an implementation of [`Policy`] and a profile, a `mod` line here,
//! and a line in `POLICIES`.

mod alma;
pub mod keepsake;
mod lynkr;
mod memory_platform;
mod memory_spec;
pub mod options;
pub mod rank;
pub mod score;
pub mod shared;
mod talome;
#[cfg(test)]
mod tests;

use memory::Policy;
use serde::de::DeserializeOwned;
use std::sync::Arc;

type Made = Result<Arc<dyn Policy>, String>;

/// A policy's name, its built-in profile, and the function that makes the policy from the tables of
/// a profile.
pub type Entry = (&'static str, &'static str, fn(&Tables) -> Made);

#[rustfmt::skip] // one line for each policy
pub const POLICIES: &[Entry] = &[
    ("keepsake", include_str!("keepsake/profile.toml"), |tables| Ok(Arc::new(keepsake::Keepsake::read(tables)?))),
    ("alma", include_str!("alma/profile.toml"), |tables| Ok(Arc::new(alma::Alma::read(tables)?))),
    ("lynkr", include_str!("lynkr/profile.toml"), |tables| Ok(Arc::new(lynkr::Lynkr::read(tables)?))),
    ("memory-spec", include_str!("memory_spec/profile.toml"), |tables| Ok(Arc::new(memory_spec::MemorySpec::read(tables)?))),
    ("memory-platform", include_str!("memory_platform/profile.toml"), |tables| Ok(Arc::new(memory_platform::MemoryPlatform::read(tables)?))),
    ("talome", include_str!("talome/profile.toml"), |tables| Ok(Arc::new(talome::Talome::read(tables)?))),
];

/// The text of the built-in profile with this name.
pub fn built_in(name: &str) -> Option<&'static str> {
    POLICIES.iter().find(|(known, ..)| *known == name).map(|(_, profile, _)| *profile)
}

/// The names of the policies, and of their built-in profiles.
pub fn names(policies: &[Entry]) -> Vec<&'static str> {
    policies.iter().map(|(name, ..)| *name).collect()
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

/// Makes the policy with this name. Keepsake's own tables are checked under every policy, because
/// every profile inherits them and a misspelled option must be an error there too.
pub fn make(policies: &[Entry], name: &str, profile: &toml::Table) -> Made {
    let mut made = None;
    for (other, _, make) in policies {
        let tables = Tables { profile, name: other };
        if *other == name {
            made = Some(make(&tables)?);
        } else if *other == "keepsake" {
            make(&tables)?;
        }
    }
    made.ok_or_else(|| {
        format!("there is no policy \"{name}\"; known: {}", names(policies).join(", "))
    })
}
