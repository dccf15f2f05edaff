//! Listens: binds the address, serves each connection with bounds, and drains at the end.
//!
//! A connection has a place. One address may hold three quarters of them, which is generous because a
//! proxy is one address. Whoever comes beyond gets one of a few short places, that only liveness,
//! readiness and keys with the right `admin` may use; of these one address may hold half. A caller who
//! takes nothing of an answer for `gateway.idle_ms` is cut off.

use crate::Options;
use crate::admission::{IsShort, app};
use crate::budget::{Budget, Permit};
use crate::calls::Calls;
use crate::dialect::Dialect;
use crate::keys::Keys;
use crate::state::Gateway;
use axum::Router;
use axum::http::{HeaderValue, Request, header};
use axum::response::Response;
use domain::fault::{Fault, Result, StopName};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Bytes of the kernel's send buffer. The socket is writable again when a third is free, and the
/// caller's kernel announces room in steps of its own: measured on loopback, a write goes on after
/// each 190 KB that the caller reads. With 7 KB/s that is within `gateway.idle_ms`. 2,000 callers
/// who read nothing hold half a gigabyte of the kernel's memory at most, which counts for no
/// process.
const SEND_BUFFER: usize = 128 << 10;
/// Longest head, and bytes of answers that a connection holds until they can be sent.
const BUFFER_MAX: usize = 32 << 10;
/// Age from which on a connection ends with the next answer. A caller that opens another loses
/// milliseconds; a place that is held by dripping bytes comes back.
const AGE_MAX: Duration = Duration::from_secs(600);
/// Short places: each is free again after a few seconds. Of an address that would hold more than
/// half, further connections are closed at once: nobody waits for such an address.
const SHORT_PLACES: usize = 256;
/// Time in which a caller on a short place sends the head of a request, and takes the answer.
const SHORT: Duration = Duration::from_secs(2);
/// Places of one address, in multiples of the free ones: a lone address may hold three quarters of
/// all.
const PEER_TIMES: usize = 3;
/// The whole answer to a connection without any place.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\nconnection: close\r\n\
    content-length: 0\r\n\r\n";

/// A bound address, and the keys of its callers.
pub struct Bound {
    listener: TcpListener,
    pub address: SocketAddr,
    keys: Option<Keys>,
}

/// Reads the keys and binds the address. Without keys only loopback is allowed: everybody who reaches the gateway could
/// read and erase all memories.
pub fn bind(options: &Options) -> Result<Bound> {
    let wanted: SocketAddr = options.gateway.listen.parse().map_err(|e| {
        let what = format!("gateway.listen: {}: {e}", options.gateway.listen);
        Fault::stop(StopName::ConfigInvalid, what)
    })?;
    if !options.gateway.is_guarded() && !wanted.ip().is_loopback() {
        let what = format!(
            "gateway.listen: {wanted} is no loopback address and gateway.keys is empty: make a key \
             with `keepsake keys new` and set gateway.keys, set gateway.oauth.issuer, or listen on \
             127.0.0.1"
        );
        return Err(Fault::stop(StopName::ConfigInvalid, what));
    }
    let keys = options.gateway.keys_file().map(Keys::open).transpose()?;
    let bound = TcpListener::bind(wanted).and_then(|listener| {
        listener.set_nonblocking(true)?;
        // Connections inherit the size.
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)?;
        Ok(Bound { address: listener.local_addr()?, listener, keys })
    });
    bound.map_err(|error| {
        let what = format!("cannot listen on {wanted}: {error}; set gateway.listen to another");
        Fault::stop(StopName::AddressTaken, what)
    })
}

/// Serves until `stopped`, then finishes the requests that have begun, and returns the result of
/// `stopped`.
pub async fn run(
    bound: Bound,
    calls: Arc<Calls>,
    options: &Options,
    dialect: &'static Dialect,
    stopped: impl Future<Output = Result<()>>,
) -> Result<()> {
    let gateway = Gateway::new(calls.clone(), options, bound.address, bound.keys, dialect.beside)?;
    let listener = tokio::net::TcpListener::from_std(bound.listener)
        .map_err(|e| Fault::retry(format!("listen: {e}")))?;
    let prepared = gateway.clone();
    tokio::spawn(async move {
        if let Some(tokens) = &prepared.tokens {
            tokens.prepare().await;
        }
    });
    let app = app(gateway.clone(), dialect);
    let (drain, draining) = watch::channel(false);
    let connections = Connections::new(options);
    // Owns the listener, which is closed before the calls that have begun are finished.
    let accept = async {
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            };
            let Some((place, is_short)) = connections.place(peer.ip()) else {
                let _ = stream.try_write(FULL);
                continue;
            };
            let limits = Limits::of(options, is_short);
            let (app, draining) = (app.clone(), draining.clone());
            tokio::spawn(async move {
                serve(stream, app, limits, draining).await;
                drop(place);
            });
        }
    };
    let ended = tokio::select! {
        () = accept => Ok(()),
        ended = stopped => ended,
    };
    drop(listener);
    gateway.drain();
    let _ = drain.send(true);
    // The last of them is gone when nobody listens any more.
    drop(draining);
    let _ = tokio::time::timeout(options.drain_within, drain.closed()).await;
    calls.end();
    ended
}

/// The places of connections.
struct Connections {
    places: Arc<Budget>,
    short: Arc<Budget>,
}

impl Connections {
    fn new(options: &Options) -> Connections {
        let places =
            Budget::new("connections (gateway.connections_max)", options.gateway.connections_max);
        Connections { places, short: Budget::new("short connections", SHORT_PLACES) }
    }

    /// Returns a place, and whether it is a short one.
    fn place(&self, peer: IpAddr) -> Option<(Permit, bool)> {
        let peer = network(peer);
        let place = self.places.take_for(peer, PEER_TIMES).map(|place| (place, false));
        place.or_else(|| self.short.take_for(peer, 1).map(|place| (place, true)))
    }
}

/// The part of an address that one caller cannot choose: of an IPv6 address the first 64 bits.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[derive(Clone, Copy)]
struct Limits {
    is_short: bool,
    /// Longest wait for a head, and for progress of a write.
    idle: Duration,
    /// Age at which the next answer is the last one.
    age: Duration,
    /// Age at which a connection ends that sends no stream.
    end: Duration,
}

impl Limits {
    fn of(options: &Options, is_short: bool) -> Limits {
        match is_short {
            true => {
                let (age, end) = (Duration::ZERO, options.gateway.reply_within() + 2 * SHORT);
                Limits { is_short, idle: SHORT.min(options.gateway.idle_max()), age, end }
            }
            false => Limits {
                is_short,
                idle: options.gateway.idle_max(),
                age: AGE_MAX,
                end: 2 * AGE_MAX,
            },
        }
    }
}

async fn serve(
    stream: TcpStream,
    app: Router,
    limits: Limits,
    mut draining: watch::Receiver<bool>,
) {
    // Small replies go out at once.
    let _ = stream.set_nodelay(true);
    let began = Instant::now();
    let is_stream = Arc::new(AtomicBool::new(false));
    let answering = Answering {
        inner: TowerToHyperService::new(app),
        limits,
        began,
        is_stream: is_stream.clone(),
    };
    let mut http = http1::Builder::new();
    // Bounds both a slow head and the pause between two requests.
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER_MAX);
    let io = TokioIo::new(Hasty { stream, within: limits.idle, until: None });
    let mut connection = pin!(http.serve_connection(io, answering));
    let mut end = pin!(sleep_until(began + limits.end));
    let mut is_draining = false;
    loop {
        tokio::select! {
            _ = &mut connection => return,
            _ = draining.wait_for(|is_draining| *is_draining), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut end => {
                if !is_stream.load(Ordering::Relaxed) {
                    return;
                }
                end.as_mut().reset(Instant::now() + limits.idle);
            }
        }
    }
}

/// The paths as one connection reaches them.
struct Answering {
    inner: TowerToHyperService<Router>,
    limits: Limits,
    began: Instant,
    /// The answer that is sent now has no known length.
    is_stream: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Answering {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if self.limits.is_short {
            request.extensions_mut().insert(IsShort);
        }
        let (answer, is_stream) = (self.inner.call(request), self.is_stream.clone());
        let (began, age) = (self.began, self.limits.age);
        Box::pin(async move {
            let mut response = answer.await?;
            if began.elapsed() >= age {
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            is_stream.store(response.body().size_hint().exact().is_none(), Ordering::Relaxed);
            Ok(response)
        })
    }
}

/// A socket whose writes fail when the other side takes nothing for some time.
struct Hasty {
    stream: TcpStream,
    within: Duration,
    /// The end of the wait, while a write waits.
    until: Option<Pin<Box<Sleep>>>,
}

impl Hasty {
    fn checked(
        &mut self,
        written: Poll<std::io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<usize>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let within = self.within;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(within)));
        until.as_mut().poll(context).map(|()| Err(std::io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Hasty {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Hasty {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.checked(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.checked(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
