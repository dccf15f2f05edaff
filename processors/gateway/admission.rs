//! Admits an HTTP request, or refuses one by name: path, host, origin, key, rate, right, and the size
//! and speed of the body, in this order. An admitted request has a [`Route`], a [`Caller`] and a whole
//! body.

use crate::bodies;
use crate::budget::{self, Permit};
use crate::calls::{TRACE, TRACEPARENT};
use crate::dialect::Dialect;
use crate::keys::{Caller, PREFIX, Permission};
use crate::pages::{Documents, Pages};
use crate::refusal::{Refusal, Result};
use crate::route::{Answer, Needs, Route, UNKNOWN};
use crate::state::Gateway;
use crate::tools::check_idempotency_key;
use crate::{docs, openapi, routes};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use domain::UserKey;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TENANT: &str = "x-keepsake-tenant";
const REQUEST_ID: &str = "x-request-id";
/// Headers of answers, which hold memories: no cache keeps them, no browser guesses their type, no
/// page of another site loads them. The explorer's files have their own.
const PRIVATE: [(&str, &str); 3] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
];
/// Paths that probes request: answered on a short place as well.
const PROBES: [&str; 4] = ["/livez", "/readyz", "/health", "/ready"];
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// Pause before the next refusal of a key that is refused again and again.
const SLOWED: Duration = Duration::from_millis(100);

impl Gateway {
    fn is_own_host(&self, authority: &str) -> bool {
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        let named =
            |name: &str| name.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(authority);
        if self.options.gateway.hosts.iter().any(|name| named(name)) {
            return true;
        }
        // Off loopback every call has a key, which no foreign page can send along.
        let is_open = !self.is_local && self.options.gateway.hosts.is_empty();
        is_open || LOOPBACK.iter().any(|name| named(name))
    }

    /// Refuses names that are not the gateway's, against DNS rebinding, and pages of other sites.
    fn check_names(&self, uri: &Uri, headers: &HeaderMap) -> Result<()> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
        let is_one = hosts.next().is_none() && uri.authority().is_none_or(|it| it.as_str() == host);
        if host.is_empty() || !is_one || !self.is_own_host(host) {
            return Err(Refusal::new(
                StatusCode::MISDIRECTED_REQUEST,
                "host_refused",
                "the Host header names another host: call the gateway by its own name, or add the \
                 name to gateway.hosts",
            ));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            if authority.is_none_or(|authority| authority != host) {
                return Err(origin_refused());
            }
        }
        Ok(())
    }

    async fn caller(&self, headers: &HeaderMap) -> Result<Caller> {
        // `HeaderValue::to_str` reads no name beyond ASCII.
        let named =
            headers.get(TENANT).map(|tenant| str::from_utf8(tenant.as_bytes()).unwrap_or_default());
        if !self.is_guarded() {
            let tenant = named.unwrap_or(&self.options.gateway.tenant);
            UserKey::new(tenant, "any")
                .map_err(|e| Refusal::invalid(TENANT, format!("{TENANT} {}", e.why)))?;
            return Ok(Caller::local(tenant));
        }
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            // The clients of mem0 write `Token`.
            let is_known = ["bearer", "token"].iter().any(|it| it.eq_ignore_ascii_case(scheme));
            is_known.then(|| key.trim())
        });
        let header = headers.get("x-api-key").and_then(|value| value.to_str().ok());
        let caller = match (&self.tokens, bearer, &self.keys, bearer.or(header)) {
            (Some(tokens), Some(token), ..) if !token.starts_with(PREFIX) => {
                tokens.caller(token).await?
            }
            (_, _, Some(keys), Some(key)) => keys.caller(key)?,
            (None, ..) => {
                return Err(unauthorized(
                    "a key is missing: send Authorization: Bearer KEY or X-API-Key: KEY",
                ));
            }
            _ => return Err(unauthorized("a token is missing: send Authorization: Bearer TOKEN")),
        };
        if named.is_some_and(|named| named != caller.tenant) {
            return Err(Refusal::forbidden(
                "this key or token is for one tenant, and the call names another",
            ));
        }
        Ok(caller)
    }

    /// Takes one of the requests of a key, which come back with time. A second's worth may come at
    /// once.
    fn take_turn(&self, key: &str) -> Result<()> {
        let rate = self.options.gateway.requests_per_second;
        if rate == 0.0 {
            return Ok(());
        }
        let now = Instant::now();
        let mut left = self.left.lock();
        let (tokens, at) = left.get_or_insert_mut(key.to_owned(), || (rate.max(1.0), now));
        *tokens = (*tokens + now.duration_since(*at).as_secs_f64() * rate).min(rate.max(1.0));
        *at = now;
        if *tokens < 1.0 {
            let what =
                "this key sends more than gateway.requests_per_second: send fewer, or raise it";
            return Err(Refusal::overloaded(what).after((1.0 - *tokens) / rate));
        }
        *tokens -= 1.0;
        Ok(())
    }

    async fn admitted(&self, request: Request, route: &'static Route) -> Result<Admitted> {
        check_path(request.uri().path())?;
        let (mut parts, body) = request.into_parts();
        self.check_names(&parts.uri, &parts.headers)?;
        parts.extensions.insert(route);
        let is_open = route.needs == Needs::Nothing;
        let is_short = parts.extensions.get::<IsShort>().is_some();
        let is_probe = PROBES.contains(&parts.uri.path());
        if is_short && !is_probe && (!self.is_guarded() || is_open) {
            return Err(no_connection());
        }
        if is_open {
            let request = Request::from_parts(parts, Body::empty());
            return Ok(Admitted { request, _body: None });
        }
        check_site(&parts.headers)?;
        let caller = self.caller(&parts.headers).await?;
        if is_short {
            caller.may(Permission::Admin).map_err(|_| no_connection())?;
        }
        if let Err(refusal) = self.budgets.refusals.check(&caller.key) {
            // A caller that repeats at once would keep the gateway busy with refusals.
            tokio::time::sleep(SLOWED).await;
            return Err(refusal);
        }
        self.take_turn(&caller.key)?;
        let entitled = async {
            if let Some(right) = route.right(caller.user.is_some()) {
                caller.may(right)?;
            }
            check_idempotency_key(&parts.headers)?;
            match route.body_bytes_max(&self.options) {
                0 => Ok((Body::empty(), None)),
                max => {
                    let mut place = self.budgets.bodies.take(&caller, 0)?;
                    let bytes = bodies::read(&mut place, body, max).await?;
                    Ok((Body::from(bytes), Some(place)))
                }
            }
        };
        let (body, place) = entitled.await.inspect_err(|refusal: &Refusal| {
            self.budgets.refusals.count(&caller.key, refusal.status);
        })?;
        parts.extensions.insert(caller);
        Ok(Admitted { request: Request::from_parts(parts, body), _body: place })
    }
}

/// A request with the whole body, which counts in the budget until the answer is made.
struct Admitted {
    request: Request,
    _body: Option<Permit>,
}

/// Refuses calls that a page of another site makes a browser send: a GET has no `Origin`.
fn check_site(headers: &HeaderMap) -> Result<()> {
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Err(origin_refused());
    }
    Ok(())
}

fn unauthorized(what: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", what)
}

fn origin_refused() -> Refusal {
    let what = "pages of another origin may not call the gateway";
    Refusal::new(StatusCode::FORBIDDEN, "origin_refused", what)
}

fn no_connection() -> Refusal {
    Refusal::overloaded(
        "there is no place for a further connection, or this address holds three quarters of \
         gateway.connections_max: close some, then try again",
    )
}

/// Refuses paths that a proxy and the gateway could read differently.
fn check_path(path: &str) -> Result<()> {
    let lower = path.to_ascii_lowercase();
    let tricks = ["//", "\\", "%2f", "%5c", "%00", "%2e", "/../", "/./", ";"];
    if tricks.iter().any(|trick| lower.contains(trick)) || lower.ends_with("/..") {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "path_refused",
            "the path has empty, dotted or encoded parts: write it plainly",
        ));
    }
    Ok(())
}

/// Marks a request that came on a short place.
#[derive(Clone, Copy)]
pub struct IsShort;

/// All paths behind the admission.
pub fn app(gateway: Arc<Gateway>, dialect: &'static Dialect) -> Router {
    let pages = Pages::new(|| {
        let openapi = openapi::document(dialect);
        let calls = docs::page(&openapi, dialect).into();
        Documents { openapi, calls }
    });
    routes::router(dialect)
        .fallback(async || Refusal::not_found("no such path: GET /docs lists all calls"))
        .method_not_allowed_fallback(async || {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Refusal::new(status, "method_refused", "this path takes other methods")
        })
        // The admission has bounded the body.
        .layer(DefaultBodyLimit::disable())
        .layer(Extension(pages))
        .layer(from_fn_with_state((gateway.clone(), dialect), enter))
        .with_state(gateway)
}

async fn enter(
    State((gateway, dialect)): State<(Arc<Gateway>, &'static Dialect)>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let route = routes::find(dialect, request.method().as_str(), path).unwrap_or(&UNKNOWN);
    let door = match request.uri().path() {
        path if path.starts_with("/mcp") => "mcp",
        path if path.starts_with("/v1/keepsake/") => "keepsake",
        _ if route.needs == Needs::Nothing => "pages",
        _ => "mem0",
    };
    let id = request.headers().get(REQUEST_ID).filter(|id| id.len() <= 128).cloned();
    let made = uuid::Uuid::new_v4().to_string();
    let id = id.or_else(|| HeaderValue::from_str(&made).ok());
    let trace = request.headers().get(TRACEPARENT).map(|trace| trace.as_bytes().to_vec());
    let mut response = match gateway.admitted(request, route).await {
        Ok(Admitted { request, _body }) => {
            let caller = request.extensions().get::<Caller>().cloned();
            let answer = async { named(next.run(request).await, door).await };
            let only_reads = route.answer == Answer::Found;
            let answer = budget::answered(&gateway.budgets, caller.as_ref(), only_reads, answer);
            TRACE.scope(trace, answer).await
        }
        Err(refusal) => refusal.into_response(),
    };
    if let Some(tokens) = &gateway.tokens {
        tokens.challenge(&mut response);
    }
    let headers = response.headers_mut();
    if let Some(id) = id {
        headers.insert(REQUEST_ID, id);
    }
    for (name, value) in PRIVATE {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    let status = response.status().as_u16().to_string();
    gateway.requests.with_label_values(&[door, &status]).inc();
    gateway.seconds.with_label_values(&[door]).observe(began.elapsed().as_secs_f64());
    response
}

/// Gives the framework's own refusals of a body or a query the form of all others.
async fn named(response: Response, door: &str) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    // The library of MCP names no type.
    if door == "pages" || !status.is_client_error() || !(is_text || door == "mcp") {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, 64 * 1024).await.unwrap_or_default();
    if door == "mcp" {
        return of_mcp(parts, text);
    }
    Refusal::of_framework(status, &String::from_utf8_lossy(&text)).into_response()
}

/// Answers a body that is no message as
/// [JSON-RPC](https://www.jsonrpc.org/specification#error_object) asks for. Other refusals of the
/// MCP library, such as of a wrong `Accept` header, explain themselves.
fn of_mcp(parts: Parts, text: Bytes) -> Response {
    if !text.starts_with(b"fail to deserialize") {
        return Response::from_parts(parts, Body::from(text));
    }
    let message = "the body is no message of JSON-RPC 2.0";
    let error =
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": message}});
    (StatusCode::BAD_REQUEST, Json(error)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_tricks_are_refused() {
        for path in ["/a/../b", "//a", "/a%2fb", "/a%2E%2e/b", "/a/..", "/a\\b", "/a;b", "/%00"] {
            assert_eq!(check_path(path).expect_err(path).code, "path_refused", "{path}");
        }
        for path in ["/", "/mcp/ada/", "/memories/1-2", "/mcp/ada%40x.org/", "/mcp/a.b/"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
    }
}
