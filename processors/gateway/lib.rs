//! The gateway: HTTP and MCP for programs that do not speak Kafka. Publishes events and sends
//! requests like any other client, and holds no state that a restart would lose.
//!
//! `calls.rs` is the Kafka client, `door.rs` admits or refuses an HTTP request, `mem0.rs`, `hosted.rs`,
//! `own.rs`, `streams.rs` and `mcp.rs` translate, `serve.rs` listens. No module here knows shards or
//! policies.

pub mod calls;
mod door;
mod entities;
mod filters;
mod hosted;
pub mod keys;
mod listing;
pub mod mcp;
mod mem0;
mod openapi;
mod own;
mod owners;
mod pages;
mod refusal;
pub mod serve;
mod streams;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

/// The options of the gateway, as the configuration has them.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: String,
    pub keys: Option<PathBuf>,
    pub tenant: String,
    pub hosts: Vec<String>,
    pub connections_max: usize,
    pub in_flight_max: usize,
    pub body_bytes_max: usize,
    pub body_within: Duration,
    pub reply_within: Duration,
    pub idle_max: Duration,
    pub requests_per_second: f64,
    pub remembered_max: usize,
    pub listed_max: usize,
    pub streams_max: usize,
    pub drain_within: Duration,
}
