//! Decides the proposals of the compaction worker for a user: erasures, prunes and summaries by a
//! plan, links by a model that finds contradictions, and texts of the language model. Knows one
//! user's memories at a time and no shard: `service/compact.rs` reads the shards and publishes the
//! proposals.

pub mod contradictions;
#[cfg_attr(not(feature = "llm"), path = "lacking/language.rs")]
pub mod language;
pub mod plan;
