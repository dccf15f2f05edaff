//! Keepsake: long-term memory for chat and agent applications, as a stream processor on Apache Kafka.
//! Modules in reading order: who runs what, the three processors, their stages, the outside world, and the words they share.

pub mod cli;
pub mod run;

pub mod ingest;

pub mod recall;

pub mod compact;

pub mod memory;
pub mod policies;

pub mod restore;

pub mod home;
pub mod ownership;
pub mod profile;
pub mod shard;

pub mod ports;
pub mod stages;

pub mod config;
pub mod domain;
pub mod fault;
pub mod metrics;
pub mod text;
pub mod wire;
