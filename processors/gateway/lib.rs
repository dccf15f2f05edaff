//! The gateway: HTTP and MCP for programs that do not speak Kafka. Publishes events and sends
//! requests like any other client, and holds no state that a restart would lose.
//!
//! `calls.rs` is the Kafka client, `door.rs` admits or refuses an HTTP request, `mem0.rs`, `hosted.rs`,
//! `own.rs`, `streams.rs` and `mcp.rs` translate, `explorer.rs` and `docs.rs` have the web pages, `budget.rs` hands out
//! places, `serve.rs` listens. No module here opens a shard or applies a policy.

mod backwards;
mod bodies;
mod budget;
pub mod calls;
mod docs;
mod door;
mod entities;
mod explorer;
mod filters;
mod hidden;
mod hosted;
mod import;
pub mod keys;
mod letters;
mod listing;
pub mod mcp;
mod mem0;
mod openapi;
mod outcome;
mod own;
mod owners;
mod pages;
mod past;
mod plain;
mod refusal;
pub mod routes;
pub mod serve;
mod shards;
mod streams;
mod tools;
mod users;

use client::letter::SourceTopics;
use client::rules::Rules;
use std::path::PathBuf;
use std::time::Duration;

/// The options of the gateway, as the configuration has them.
#[derive(Clone, Debug)]
pub struct Options {
    pub listen: String,
    pub keys: Option<PathBuf>,
    pub tenant: String,
    /// Names of profiles that a recall may ask for.
    pub profiles: Vec<String>,
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
    pub page_records_max: usize,
    pub followed_max: usize,
    pub redriven_max: usize,
    pub import_bytes_max: usize,
    /// The service's consumer group of the events topic.
    pub group: String,
    /// The topics that a dead letter is sent back to.
    pub sources: SourceTopics,
    /// By which the service accepts events and requests.
    pub rules: Rules,
    pub drain_within: Duration,
}
