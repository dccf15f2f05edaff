//! The service: three processors over the shards of this process, and the threads that run them.

// The processors and their assembly: events to memories, requests to replies, ticks to proposals.
pub mod assembly;
pub mod compact;
pub mod ingest;
pub mod open;
pub mod recall;

// The shards of this process, and the threads around them.
pub mod ownership;
pub mod run;

// Limits and traces.
pub mod quota;
mod trace;
