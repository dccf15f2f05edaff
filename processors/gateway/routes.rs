//! The table of routes. The router is built from it, `admission.rs` takes rights and body size from it
//! before reading a byte of the body, and the tests try each route with every kind of key.

use crate::dialect::Dialect;
use crate::route::Route;
use crate::state::Gateway;
use crate::{
    dead_letters, explorer, history, import, mcp_http, native, oauth, pages, shards, streams, users,
};
use axum::Router;
use std::sync::Arc;

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
    get    "/.well-known/oauth-protected-resource" Nothing None Nothing Found     oauth::metadata;
    get    "/.well-known/oauth-protected-resource/{*path}" Nothing None Nothing Found oauth::metadata;
    get    "/metrics"                         Nothing None    Nothing Found       pages::metrics;

    any    "/mcp"                             Key     Message Call    Receipt     mcp_http::mcp_by_header;
    any    "/mcp/"                            Key     Message Call    Receipt     mcp_http::mcp_by_header;
    any    "/mcp/{user}"                      Key     Message Call    Receipt     mcp_http::mcp_by_path;
    any    "/mcp/{user}/"                     Key     Message Call    Receipt     mcp_http::mcp_by_path;

    post   "/v1/keepsake/turn"                Write   Message Call    Receipt     native::event;
    post   "/v1/keepsake/remember"            Write   Message Call    Receipt     native::event;
    post   "/v1/keepsake/update"              Write   Message Call    Receipt     native::event;
    post   "/v1/keepsake/feedback"            Write   Message Call    Receipt     native::event;
    post   "/v1/keepsake/forget"              Forget  Message Call    Receipt     native::event;
    post   "/v1/keepsake/recall"              Read    Message Call    Found       native::request;
    post   "/v1/keepsake/about"               Read    Message Call    Found       native::request;
    post   "/v1/keepsake/list"                Read    Message Call    Found       native::request;
    post   "/v1/keepsake/get"                 Read    Message Call    Found       native::request;
    post   "/v1/keepsake/explain"             Read    Message Call    Found       native::request;
    post   "/v1/keepsake/stats"               Read    Message Call    Found       native::request;
    post   "/v1/keepsake/duplicates"          Read    Message Call    Found       native::request;
    post   "/v1/keepsake/import"              Import  Lines   Import  Report      import::import;
    get    "/v1/keepsake/session"             Key     None    Nothing Found       native::session;
    get    "/v1/keepsake/decisions"           Read    None    Stream  Found       streams::decisions;
    get    "/v1/keepsake/export"              Read    None    Stream  Found       streams::export;
    get    "/v1/keepsake/erasures"            Read    None    Reading Found       streams::erasures;
    get    "/v1/keepsake/decisions/past"      Read    None    Reading Found       history::decisions;
    get    "/v1/keepsake/event"               Admin   None    Reading Found       history::event;
    get    "/v1/keepsake/users"               Read    None    Reading Found       users::list;
    get    "/v1/keepsake/tenants"             Read    None    Reading Found       users::tenants;
    get    "/v1/keepsake/shards"              Admin   None    Reading Found       shards::list;
    get    "/v1/keepsake/shards/answers"      Admin   None    Reading Found       shards::answers;
    get    "/v1/keepsake/dead-letters"        Admin   None    Reading Found       dead_letters::list;
    post   "/v1/keepsake/dead-letters/redrive" Admin  Message Reading Report      dead_letters::redrive;
};

/// Finds the route of a method and of the path as the router matched it. HEAD is answered as GET.
pub fn find(dialect: &Dialect, method: &str, path: &str) -> Option<&'static Route> {
    all(dialect).find(|route| {
        let is_head = route.method == "get" && method == "HEAD";
        route.path == path
            && (route.method == "any" || is_head || route.method.eq_ignore_ascii_case(method))
    })
}

/// Returns the routes of the gateway and of the dialect.
pub fn all(dialect: &Dialect) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(dialect.routes)
}

pub fn router(dialect: &Dialect) -> Router<Arc<Gateway>> {
    all(dialect).fold(Router::new(), |router, route| (route.add)(router))
}
