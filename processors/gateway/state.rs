//! Holds the state that the handlers of all calls share: the client of Kafka, the keys, the
//! budgets, the followed topics and the metrics.

use crate::budget::{Budgets, Imports, Permit};
use crate::calls::Calls;
use crate::decisions::Decisions;
use crate::followed_users::Users;
use crate::hidden::Hidden;
use crate::keys::{Caller, Keys};
use crate::mcp;
use crate::oauth::Tokens;
use crate::origins::LetterCount;
use crate::refusal::Result;
use crate::{Options, REMEMBERED_MAX};
use axum::http::Extensions;
use domain::fault;
use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec, Registry};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

type Mcp = StreamableHttpService<mcp::Server, NeverSessionManager>;

pub struct Gateway {
    pub calls: Arc<Calls>,
    /// State of the dialect's handlers, by its type.
    pub beside: Extensions,
    pub registry: Registry,
    pub options: Options,
    /// The gateway listens on loopback, where the pages of a browser on this machine can reach it.
    pub is_local: bool,
    pub keys: Option<Keys>,
    pub tokens: Option<Tokens>,
    pub mcp: Mcp,
    /// Requests that each key may still send, and when that was so.
    pub left: Mutex<LruCache<String, (f64, Instant)>>,
    pub imports: Imports,
    pub decisions: Decisions,
    pub hidden: Arc<Hidden>,
    pub users: Users,
    pub budgets: Budgets,
    pub letters: LetterCount,
    pub draining: watch::Sender<bool>,
    pub requests: IntCounterVec,
    pub seconds: HistogramVec,
}

impl Gateway {
    pub fn new(
        calls: Arc<Calls>,
        options: &Options,
        address: SocketAddr,
        keys: Option<Keys>,
        beside: fn(&Budgets) -> Extensions,
    ) -> fault::Result<Arc<Gateway>> {
        let about = |e: prometheus::Error| fault::Fault::retry(format!("make a metric: {e}"));
        let registry = Registry::new();
        let requests = IntCounterVec::new(
            prometheus::opts!("keepsake_gateway_requests_total", "Requests by door and status."),
            &["door", "status"],
        )
        .map_err(about)?;
        let seconds = HistogramVec::new(
            prometheus::histogram_opts!("keepsake_gateway_seconds", "Time of a request by door."),
            &["door"],
        )
        .map_err(about)?;
        let outcomes = IntCounterVec::new(
            prometheus::opts!(
                "keepsake_gateway_tokens_total",
                "Calls with a token of gateway.oauth.issuer by outcome: accepted, or the refusal's name."
            ),
            &["outcome"],
        )
        .map_err(about)?;
        registry.register(Box::new(outcomes.clone())).map_err(about)?;
        registry.register(Box::new(requests.clone())).map_err(about)?;
        registry.register(Box::new(seconds.clone())).map_err(about)?;
        let server =
            mcp::Server { client: Arc::new(mcp::Client::Connected(calls.clone())), bound: None };
        // Without sessions, any gateway answers any request. The door has checked the host.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(options.gateway.body_bytes_max)
            .disable_allowed_hosts();
        let budgets = Budgets::new(options);
        Ok(Arc::new(Gateway {
            calls,
            beside: beside(&budgets),
            registry,
            is_local: address.ip().is_loopback(),
            keys,
            tokens: Tokens::of(&options.gateway, outcomes),
            mcp: Mcp::new(move || Ok(server.clone()), Arc::default(), config),
            left: Mutex::new(LruCache::new(REMEMBERED_MAX)),
            imports: Imports::default(),
            decisions: Decisions::default(),
            hidden: Arc::default(),
            users: Users::default(),
            budgets,
            letters: LetterCount::default(),
            draining: watch::Sender::new(false),
            requests,
            seconds,
            options: options.clone(),
        }))
    }

    /// True if a caller is who a key or a token says. Otherwise everybody on this machine has all rights.
    pub fn is_guarded(&self) -> bool {
        self.keys.is_some() || self.tokens.is_some()
    }

    /// False once the caller's key was revoked or changed, or the token has expired.
    pub fn still_admits(&self, caller: &Caller) -> bool {
        if let Some(token) = &caller.token {
            return Timestamp::now().as_second() < token.until;
        }
        self.keys.as_ref().is_none_or(|keys| keys.still_has(caller))
    }

    /// A place among the calls that read topics, held until the call or the stream ends.
    pub fn permit(&self, caller: &Caller) -> Result<Permit> {
        self.budgets.streams.take(caller, 1)
    }

    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    pub fn drain(&self) {
        self.draining.send_replace(true);
    }
}
