//! Keepsake: long-term memory for chat and agent applications, as a stream processor on Apache
//! Kafka.
//!
//! The modules follow the path of a record, from the outside in. `processors/README.md` is the map.

// The program: its commands, and the service with its threads.
pub mod cli;
pub mod run;

// The processors: events to memories, requests to replies, ticks to proposals, changelog to store.
pub mod compact;
pub mod ingest;
pub mod recall;
pub mod restore;

// The kernel, which decides without I/O, and the six policies behind its trait.
pub mod memory;
pub mod policies;

// State that the processors share: the shards of this process, and the profile of each tenant.
pub mod home;
pub mod ownership;
pub mod profile;
pub mod shard;

// Pure steps of a processor, and the outside world behind traits.
pub mod ports;
pub mod stages;

// Vocabulary and services that every module may use.
pub mod config;
pub mod domain;
pub mod fault;
pub mod metrics;
pub mod text;
pub mod wire;
