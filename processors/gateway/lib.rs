//! The gateway: HTTP and MCP for programs that do not speak Kafka. Publishes events and sends
//! requests like any other client, and holds no state that a restart would lose.
//!
//! `calls.rs` is the Kafka client, `admission.rs` admits or refuses an HTTP request by a key of `keys.rs` or a
//! token of `oauth.rs`, `native.rs`,
//! `streams.rs`, `mcp.rs` and the crate of a [`dialect`] translate, `explorer.rs` and `docs.rs` have the web
//! pages, `budget.rs` hands out permits, `serve.rs` listens. `state.rs` is what all handlers share;
//! `routes.rs` names them. No module here opens a shard or applies a policy.

#[macro_use]
pub mod route;

pub mod admission;
pub mod bodies;
pub mod budget;
pub mod calls;
mod dead_letters;
mod decisions;
pub mod dialect;
pub mod docs;
mod explorer;
mod followed_users;
mod hidden;
mod history;
mod import;
#[cfg(feature = "oauth")]
mod jwks;
pub mod keys;
pub mod mcp;
mod mcp_http;
mod native;
#[cfg_attr(not(feature = "oauth"), path = "lacking/oauth.rs")]
mod oauth;
pub mod openapi;
mod origins;
mod outcome;
mod pages;
mod plain;
pub mod refusal;
mod reverse_reader;
pub mod routes;
pub mod serve;
mod shards;
pub mod state;
mod streams;
pub mod tools;
mod users;

use client::letter::SourceTopics;
use client::rules::Rules;
use std::num::NonZeroUsize;
use std::time::Duration;

/// Users of whom the gateway remembers the offset it wrote last, so that they read their own writes; and
/// ids of memories of which it remembers the user. 100,000 of both take 30 MB. Also the most memories of a
/// tenant that a list or an erasure of agents, apps and runs holds while it reads the topic: 30 MB more.
pub const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("not zero");
/// Memories of one user that one call reads to list them on a page, or to erase them by agent or app: a
/// hundred requests, one after another, in which the caller waits.
pub const LISTED_MAX: usize = 10_000;
/// Records that one page of past decisions or of dead letters reads, over all partitions. A page may have
/// fewer rows than were asked for, and a cursor. 5,000 of 1 KiB are 5 MiB, some 100 ms; of long records a
/// page reads some 64 MB and keeps 8.
const PAGE_RECORDS_MAX: usize = 5000;
/// Rows of a page that names no limit, and the most that a page has.
const ROWS: usize = 50;
const ROWS_MAX: usize = 500;
/// Dead letters that one call sends again. Each is read by itself, a few ms.
const REDRIVEN_MAX: usize = 100;
/// Bytes of the body of an import, some 12,000 memories of 700 bytes. The body is held in memory, and its
/// events once more; larger files are for `keepsake import`, which reads user by user.
const IMPORT_BYTES_MAX: usize = 8 << 20;

/// The options of the gateway, and what it needs of the service's.
#[derive(Clone, Debug)]
pub struct Options {
    pub gateway: settings::Gateway,
    /// Names of profiles that a recall may ask for.
    pub profiles: Vec<String>,
    /// The service's consumer group of the events topic.
    pub group: String,
    /// The topics that a dead letter is sent back to.
    pub sources: SourceTopics,
    /// By which the service accepts events and requests.
    pub rules: Rules,
    pub drain_within: Duration,
}
