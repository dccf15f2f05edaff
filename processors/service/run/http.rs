//! Serves `/livez` (also `/health`), `/readyz` (also `/ready`) and `/metrics`, on a thread with a
//! small tokio runtime of its own.

use super::Shared;
use crate::ownership::ShardRegistry;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use domain::fault::{Fault, Result, StopName};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// ms after which a thread that did not go round its loop counts as stuck: longer than any batch,
/// retry or compaction round takes.
const STUCK_MS: i64 = 120_000;
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Connections served at once; a further one waits until one ends. A scrape and two probes need three,
/// and a process that accepts without limit has no files left for its index.
const CONNECTIONS_MAX: usize = 64;
/// Time after which a connection is closed, whatever it is doing: each answers one request, which takes
/// some milliseconds. A caller that sends nothing holds its place no longer.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

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
    pub fn serve(self, shared: Arc<Shared>, shards: Arc<ShardRegistry>) -> Result<()> {
        let served = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| runtime.block_on(self.serve_until_stopped(shared, shards)));
        served.map_err(|error| Fault::retry(format!("cannot serve the HTTP page: {error}")))
    }

    async fn serve_until_stopped(
        self,
        shared: Arc<Shared>,
        shards: Arc<ShardRegistry>,
    ) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let alive = shared.clone();
        let ready = shared.clone();
        let measured = shared.clone();
        let live = get(async move || livez(&alive));
        let readiness = get(async move || readyz(&ready, &shards));
        let app = Router::new()
            .route("/livez", live.clone())
            .route("/health", live)
            .route("/readyz", readiness.clone())
            .route("/ready", readiness)
            .route("/metrics", get(async move || measured.metrics.page()));
        // Open connections are dropped at the stop: a scrape is repeated anyway.
        tokio::select! {
            () = serve_each(&listener, app) => Ok(()),
            () = shared.until_stopped() => Ok(()),
        }
    }
}

/// Answers one request on each connection. A connection that cannot be accepted, for want of files
/// for example, is tried again.
async fn serve_each(listener: &tokio::net::TcpListener, app: Router) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = permits.clone().acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let answer = TowerToHyperService::new(app.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let mut http = http1::Builder::new();
            let connection = http.keep_alive(false).serve_connection(TokioIo::new(stream), answer);
            // An error is the caller's: it sent no HTTP, or went away.
            let _ = tokio::time::timeout(CONNECTION_MAX, connection).await;
        });
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
fn readyz(shared: &Shared, shards: &ShardRegistry) -> (StatusCode, String) {
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
    if !shards.has_tenants() {
        lines += "reading the memories of tenants of other processes\n";
    }
    if lines.is_empty() {
        lines += "no partitions yet\n";
    }
    let is_ready = is_ready(shared, shards);
    (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, lines)
}

/// Returns whether this process owns partitions, all of them are restored, each has been read to
/// its end once, and tenants' memories can be read.
pub fn is_ready(shared: &Shared, shards: &ShardRegistry) -> bool {
    let all = shards.all();
    !shared.is_stopping()
        && !all.is_empty()
        && shards.restoring().is_empty()
        && shards.has_tenants()
        && all.iter().all(|shard| shard.was_caught_up())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn get(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).expect("the page listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    }

    #[test]
    fn law_bounded_for_connections_that_send_nothing() {
        let (address, page) = listen("127.0.0.1:0").expect("a free port");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("the system has a timer");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(page.listener).expect("bound");
                let app = Router::new().route("/", get_route());
                serve_each(&listener, app).await;
            });
        });
        assert!(get(address).ends_with("ok"));
        let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX + 4)
            .map(|_| TcpStream::connect(address).expect("the system holds it in a queue"))
            .collect();
        assert!(get(address).ends_with("ok"), "answered after those that say nothing were closed");
        for stream in &mut silent {
            assert_eq!(stream.read(&mut [0; 1]).expect("closed by the page"), 0);
        }
    }

    fn get_route() -> axum::routing::MethodRouter {
        axum::routing::get(async || "ok")
    }
}
