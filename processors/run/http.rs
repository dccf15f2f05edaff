//! The page for machines: /livez, /readyz, /metrics. Runs on a thread and a small runtime of its own.

use super::Shared;
use crate::fault::{Fault, Result, StopName};
use crate::ownership::Shards;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A thread that has not gone round for so long is stuck: longer than any batch, retry or compaction round.
const STUCK_MS: i64 = 120_000;

pub struct Page {
    listener: TcpListener,
}

pub fn listen(address: &str) -> Result<(SocketAddr, Page)> {
    let about = |e: std::io::Error| {
        Fault::stop(
            StopName::AddressTaken,
            format!("listens on {address}: {e}; set http.listen to another address, or port 0"),
        )
    };
    let listener = TcpListener::bind(address).map_err(about)?;
    listener.set_nonblocking(true).map_err(about)?;
    let bound = listener.local_addr().map_err(about)?;
    Ok((bound, Page { listener }))
}

impl Page {
    pub fn serve(self, shared: Arc<Shared>, shards: Arc<Shards>) -> Result<()> {
        let about = |e: std::io::Error| Fault::retry(format!("serves its page: {e}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(about)?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener).map_err(about)?;
            let (alive, ready, measured, stopping) =
                (shared.clone(), shared.clone(), shared.clone(), shared);
            let app = Router::new()
                .route("/livez", get(async move || livez(&alive)))
                .route("/readyz", get(async move || readyz(&ready, &shards)))
                .route("/metrics", get(async move || measured.metrics.page()));
            let until_stopped = async move {
                while !stopping.is_stopping() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::select! {
                served = async { axum::serve(listener, app).await } => served.map_err(about),
                () = until_stopped => Ok(()),
            }
        })
    }
}

/// Every loop has gone round lately.
fn livez(shared: &Shared) -> (StatusCode, String) {
    let now = shared.clock.steady_ms();
    let stuck: Vec<&str> = shared
        .turns
        .iter()
        .filter(|(_, at)| now - at.load(Ordering::Relaxed) > STUCK_MS)
        .map(|(name, _)| *name)
        .collect();
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("stuck: {}\n", stuck.join(", ")))
}

/// Owns partitions and has read each to its end once.
fn readyz(shared: &Shared, shards: &Shards) -> (StatusCode, String) {
    let restoring = shards.restoring();
    let restoring = restoring.iter().map(|(partition, share)| {
        format!("partition {partition} restoring, {:.0} % is here\n", 100.0 * share)
    });
    let lines: String = shards
        .all()
        .iter()
        .map(|shard| {
            let state = if shard.was_caught_up() { "ready" } else { "catching up" };
            format!(
                "partition {} {state}, offset {}, behind {}\n",
                shard.partition,
                shard.applied(),
                shard.behind()
            )
        })
        .chain(restoring)
        .collect();
    let status =
        if is_ready(shared, shards) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, if lines.is_empty() { "no partitions yet\n".into() } else { lines })
}

pub fn is_ready(shared: &Shared, shards: &Shards) -> bool {
    let all = shards.all();
    !shared.is_stopping()
        && !all.is_empty()
        && shards.restoring().is_empty()
        && all.iter().all(|shard| shard.was_caught_up())
}
