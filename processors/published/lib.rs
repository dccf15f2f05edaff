//! The policies of five published memory systems, one in each folder, with the document's
//! statements, its verdicts (`conformance.tsv`) and its profile.
//!
//! To add a policy: a folder with an implementation of `Policy` and a profile, a `mod` line here, and
//! a line in [`POLICIES`].

mod alma;
mod lynkr;
mod memory_platform;
mod memory_spec;
mod options;
mod shared;
mod talome;
#[cfg(test)]
mod tests;

use policies::Entry;
use std::sync::Arc;

#[rustfmt::skip] // one line for each policy
pub static POLICIES: [Entry; 5] = [
    Entry::new("alma", include_str!("alma/profile.toml"), options::ALMA, |tables| Ok(Arc::new(alma::Alma::read(tables)?))),
    Entry::new("lynkr", include_str!("lynkr/profile.toml"), options::LYNKR, |tables| Ok(Arc::new(lynkr::Lynkr::read(tables)?))),
    Entry::new("memory-spec", include_str!("memory_spec/profile.toml"), options::MEMORY_SPEC, |tables| Ok(Arc::new(memory_spec::MemorySpec::read(tables)?))),
    Entry::new("memory-platform", include_str!("memory_platform/profile.toml"), options::MEMORY_PLATFORM, |tables| Ok(Arc::new(memory_platform::MemoryPlatform::read(tables)?))),
    Entry::new("talome", include_str!("talome/profile.toml"), options::TALOME, |tables| Ok(Arc::new(talome::Talome::read(tables)?))),
];
