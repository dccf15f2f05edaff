//! The table of routes: for each method and path the right that a key needs, the largest body, the
//! budget that the call draws on and the kind of answer.
//!
//! The router is built from this table, `door.rs` takes rights and body size from there before
//! reading a byte of the body, and the tests try each route with every kind of key.

use crate::dialect::Dialect;
use crate::door::{self, Gateway};
use crate::keys::Right;
use crate::{Options, explorer, import, letters, own, pages, past, shards, streams, users};
use axum::Router;
pub use axum::routing;
use std::sync::Arc;

/// The right that a key needs, checked before the names in body or query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No key.
    Nothing,
    /// Any key. An MCP call names the tool in the body, and each tool has a right.
    Key,
    Read,
    Write,
    Forget,
    Admin,
    /// `write` with a key for one user, whose memories these are; otherwise `admin`.
    Import,
}

/// The largest body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The body is not read.
    None,
    /// `gateway.body_bytes_max`
    Message,
    /// [`IMPORT_BYTES_MAX`](crate::IMPORT_BYTES_MAX)
    Lines,
}

/// The budget that a call draws on, besides the rate of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Answered from memory.
    Nothing,
    /// Waits for the service: `gateway.in_flight_max`.
    Call,
    /// Reads a topic to answer once.
    Reading,
    /// Is open until the caller leaves.
    Stream,
    /// Many events one after another: one import of a key at a time.
    Import,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The data read. Nothing is changed.
    Found,
    /// The receipt of an event, or an answer made of the receipt, only if the event took effect
    /// (`outcome.rs`).
    Receipt,
    /// The outcome of each line.
    Report,
    /// 501 with the name of the missing feature.
    Unsupported,
}

#[derive(Debug)]
pub struct Route {
    /// In lower case; `any` for all methods.
    pub method: &'static str,
    pub path: &'static str,
    pub needs: Needs,
    pub size: Size,
    pub budget: Budget,
    pub answer: Answer,
    pub add: fn(Router<Arc<Gateway>>) -> Router<Arc<Gateway>>,
}

/// Writes a table of routes: method, path, right, body, budget, answer and handler of each.
#[macro_export]
macro_rules! routes {
    ($($method:ident $path:literal $needs:ident $size:ident $budget:ident $answer:ident $to:path;)*) => {
        &[$($crate::routes::Route {
            method: stringify!($method),
            path: $path,
            needs: $crate::routes::Needs::$needs,
            size: $crate::routes::Size::$size,
            budget: $crate::routes::Budget::$budget,
            answer: $crate::routes::Answer::$answer,
            add: |router| router.route($path, $crate::routes::routing::$method($to)),
        }),*]
    };
}

/// Paths of the gateway itself. A [`Dialect`] has further ones.
pub static ROUTES: &[Route] = routes! {
    get    "/"                                Nothing None    Nothing Found       explorer::root;
    get    "/explorer/{*path}"                Nothing None    Nothing Found       explorer::below;
    get    "/openapi.json"                    Nothing None    Nothing Found       pages::openapi;
    get    "/docs"                            Nothing None    Nothing Found       pages::docs;
    get    "/livez"                           Nothing None    Nothing Found       pages::livez;
    get    "/readyz"                          Nothing None    Nothing Found       pages::readyz;
    get    "/health"                          Nothing None    Nothing Found       pages::livez;
    get    "/ready"                           Nothing None    Nothing Found       pages::readyz;
    get    "/metrics"                         Nothing None    Nothing Found       pages::metrics;

    any    "/mcp"                             Key     Message Call    Receipt     door::mcp_by_header;
    any    "/mcp/"                            Key     Message Call    Receipt     door::mcp_by_header;
    any    "/mcp/{user}"                      Key     Message Call    Receipt     door::mcp_by_path;
    any    "/mcp/{user}/"                     Key     Message Call    Receipt     door::mcp_by_path;

    post   "/v1/keepsake/turn"                Write   Message Call    Receipt     own::event;
    post   "/v1/keepsake/remember"            Write   Message Call    Receipt     own::event;
    post   "/v1/keepsake/update"              Write   Message Call    Receipt     own::event;
    post   "/v1/keepsake/feedback"            Write   Message Call    Receipt     own::event;
    post   "/v1/keepsake/forget"              Forget  Message Call    Receipt     own::event;
    post   "/v1/keepsake/recall"              Read    Message Call    Found       own::request;
    post   "/v1/keepsake/list"                Read    Message Call    Found       own::request;
    post   "/v1/keepsake/get"                 Read    Message Call    Found       own::request;
    post   "/v1/keepsake/explain"             Read    Message Call    Found       own::request;
    post   "/v1/keepsake/stats"               Read    Message Call    Found       own::request;
    post   "/v1/keepsake/duplicates"          Read    Message Call    Found       own::request;
    post   "/v1/keepsake/import"              Import  Lines   Import  Report      import::import;
    get    "/v1/keepsake/session"             Key     None    Nothing Found       own::session;
    get    "/v1/keepsake/decisions"           Read    None    Stream  Found       streams::decisions;
    get    "/v1/keepsake/export"              Read    None    Stream  Found       streams::export;
    get    "/v1/keepsake/erasures"            Read    None    Reading Found       streams::erasures;
    get    "/v1/keepsake/decisions/past"      Read    None    Reading Found       past::decisions;
    get    "/v1/keepsake/event"               Admin   None    Reading Found       past::event;
    get    "/v1/keepsake/users"               Read    None    Reading Found       users::list;
    get    "/v1/keepsake/tenants"             Read    None    Reading Found       users::tenants;
    get    "/v1/keepsake/shards"              Admin   None    Reading Found       shards::list;
    get    "/v1/keepsake/shards/answers"      Admin   None    Reading Found       shards::answers;
    get    "/v1/keepsake/dead-letters"        Admin   None    Reading Found       letters::list;
    post   "/v1/keepsake/dead-letters/redrive" Admin  Message Reading Report      letters::redrive;
};

/// For a path that is not in the table: a key without knowledge of the paths learns none.
pub static UNKNOWN: Route = Route {
    method: "any",
    path: "",
    needs: Needs::Key,
    size: Size::None,
    budget: Budget::Nothing,
    answer: Answer::Found,
    add: |router| router,
};

/// Finds the route of a method and of the path as the router matched it. HEAD is answered as GET.
pub fn find(dialect: &Dialect, method: &str, path: &str) -> Option<&'static Route> {
    let is_of = |route: &&Route| {
        let is_head = route.method == "get" && method == "HEAD";
        route.path == path
            && (route.method == "any" || is_head || route.method.eq_ignore_ascii_case(method))
    };
    all(dialect).find(is_of)
}

/// Returns the routes of the gateway and of the dialect.
pub fn all(dialect: &Dialect) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(dialect.routes)
}

pub fn router(dialect: &Dialect) -> Router<Arc<Gateway>> {
    all(dialect).fold(Router::new(), |router, route| (route.add)(router))
}

impl Route {
    /// The last part of the path: for Keepsake's own calls the type of the message.
    pub fn kind(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The right that a key needs, which may depend on whether the key is for one user.
    pub fn right(&self, is_for_one_user: bool) -> Option<Right> {
        match self.needs {
            Needs::Nothing | Needs::Key => None,
            Needs::Read => Some(Right::Read),
            Needs::Write => Some(Right::Write),
            Needs::Forget => Some(Right::Forget),
            Needs::Admin => Some(Right::Admin),
            Needs::Import if is_for_one_user => Some(Right::Write),
            Needs::Import => Some(Right::Admin),
        }
    }

    pub fn body_bytes_max(&self, options: &Options) -> usize {
        match self.size {
            Size::None => 0,
            Size::Message => options.body_bytes_max,
            Size::Lines => crate::IMPORT_BYTES_MAX,
        }
    }
}
