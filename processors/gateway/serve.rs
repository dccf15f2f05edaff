//! Listens: binds the address, serves each connection with bounds, and drains at the end.

use crate::Options;
use crate::calls::Calls;
use crate::door::{Gateway, app};
use domain::fault::{Fault, Result, StopName};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A bound address.
pub struct Bound {
    listener: TcpListener,
    pub address: SocketAddr,
}

/// Binds the address. Without keys only loopback is allowed: everybody who reaches the gateway could
/// read and erase all memories.
pub fn bind(options: &Options) -> Result<Bound> {
    let wanted: SocketAddr = options.listen.parse().map_err(|e| {
        let what = format!("gateway.listen: {}: {e}", options.listen);
        Fault::stop(StopName::ConfigInvalid, what)
    })?;
    if options.keys.is_none() && !wanted.ip().is_loopback() {
        let what = format!(
            "gateway.listen: {wanted} is no loopback address and gateway.keys is empty: make a key \
             with `keepsake keys new` and set gateway.keys, or listen on 127.0.0.1"
        );
        return Err(Fault::stop(StopName::ConfigInvalid, what));
    }
    let bound = TcpListener::bind(wanted).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(Bound { address: listener.local_addr()?, listener })
    });
    bound.map_err(|error| {
        let what = format!("cannot listen on {wanted}: {error}; set gateway.listen to another");
        Fault::stop(StopName::AddressTaken, what)
    })
}

/// Serves until `stopped`, then finishes the requests that have begun.
pub async fn run(
    bound: Bound,
    calls: Arc<Calls>,
    options: &Options,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    let gateway = Gateway::new(calls.clone(), options, bound.address)?;
    let listener = tokio::net::TcpListener::from_std(bound.listener)
        .map_err(|e| Fault::retry(format!("listen: {e}")))?;
    let app = app(gateway.clone());
    let (drain, draining) = watch::channel(false);
    let places = Arc::new(Semaphore::new(options.connections_max));
    let open = places.clone();
    // Owns the listener, which is closed before the calls that have begun are finished.
    let accept = async move {
        loop {
            let Ok(place) = open.clone().acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            // Small replies go out at once.
            let _ = stream.set_nodelay(true);
            let service = TowerToHyperService::new(app.clone());
            let mut draining = draining.clone();
            let idle_max = options.idle_max;
            tokio::spawn(async move {
                let _place = place;
                let mut http = http1::Builder::new();
                // Bounds both a slow head and the pause between two requests.
                http.timer(TokioTimer::new()).header_read_timeout(idle_max);
                let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
                tokio::select! {
                    _ = &mut connection => return,
                    _ = draining.wait_for(|is_draining| *is_draining) => {}
                }
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = stopped => {}
    }
    gateway.drain();
    let _ = drain.send(true);
    let all = u32::try_from(options.connections_max).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(options.drain_within, places.acquire_many(all)).await;
    calls.stop();
    Ok(())
}
