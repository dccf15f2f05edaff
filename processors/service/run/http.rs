//! Serves `/livez`, `/readyz` and `/metrics`, on a thread with a small tokio runtime of its own.

use super::Shared;
use crate::ownership::Shards;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use domain::fault::{Fault, Result, StopName};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// ms after which a thread that did not go round its loop counts as stuck: longer than any batch,
/// retry or compaction round takes.
const STUCK_MS: i64 = 120_000;

pub struct Page {
    listener: TcpListener,
}

/// Binds the address before the threads start, so that an address in use stops the process early.
pub fn listen(address: &str) -> Result<(SocketAddr, Page)> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, Page { listener }))
    });
    bound.map_err(|error| {
        let what = format!(
            "cannot listen on {address}: {error}; set http.listen to another address, or to port 0"
        );
        Fault::stop(StopName::AddressTaken, what)
    })
}

impl Page {
    /// Blocks until the process stops.
    pub fn serve(self, shared: Arc<Shared>, shards: Arc<Shards>) -> Result<()> {
        let served = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| runtime.block_on(self.serve_until_stopped(shared, shards)));
        served.map_err(|error| Fault::retry(format!("cannot serve the HTTP page: {error}")))
    }

    async fn serve_until_stopped(
        self,
        shared: Arc<Shared>,
        shards: Arc<Shards>,
    ) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let alive = shared.clone();
        let ready = shared.clone();
        let measured = shared.clone();
        let app = Router::new()
            .route("/livez", get(async move || livez(&alive)))
            .route("/readyz", get(async move || readyz(&ready, &shards)))
            .route("/metrics", get(async move || measured.metrics.page()));
        // Open connections are dropped at the stop: a scrape is repeated anyway.
        tokio::select! {
            served = async { axum::serve(listener, app).await } => served,
            () = shared.until_stopped() => Ok(()),
        }
    }
}

/// OK if every loop went round within [`STUCK_MS`].
fn livez(shared: &Shared) -> (StatusCode, String) {
    let stuck = shared.stuck(STUCK_MS);
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("stuck: {}\n", stuck.join(", ")))
}

/// OK if [`is_ready`]. The body has a line for each owned partition.
fn readyz(shared: &Shared, shards: &Shards) -> (StatusCode, String) {
    let mut lines = String::new();
    for shard in shards.all() {
        let state = if shard.was_caught_up() { "ready" } else { "catching up" };
        lines += &format!(
            "partition {} {state}, offset {}, behind {}\n",
            shard.partition,
            shard.applied(),
            shard.behind()
        );
    }
    for (partition, share) in shards.restoring() {
        lines += &format!("partition {partition} restoring, {:.0} % is here\n", 100.0 * share);
    }
    if lines.is_empty() {
        lines += "no partitions yet\n";
    }
    let is_ready = is_ready(shared, shards);
    (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, lines)
}

/// Returns whether this process owns partitions, all of them are restored, and each has been read
/// to its end once.
pub fn is_ready(shared: &Shared, shards: &Shards) -> bool {
    let all = shards.all();
    !shared.is_stopping()
        && !all.is_empty()
        && shards.restoring().is_empty()
        && all.iter().all(|shard| shard.was_caught_up())
}
