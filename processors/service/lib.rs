//! The service: three processors over the shards of this process, and the threads that run them.

// The processors and their assembly: events to memories, requests to replies, ticks to proposals.
pub mod assembly;
pub mod compact;
pub mod ingest;
#[cfg_attr(not(feature = "llm"), path = "lacking/language.rs")]
pub mod language;
pub mod open;
pub mod recall;

// The shards of this process, and the threads around them.
pub mod ownership;
pub mod run;

// Measurements, profiles and limits.
pub mod acls;
pub mod metrics;
pub mod profile;
pub mod quota;
mod trace;
