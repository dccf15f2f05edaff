//! The dialects of mem0: the paths of its open-source server and of its hosted service over the calls of the
//! gateway, so that their clients work unchanged.

mod documented;
mod entities;
mod filters;
mod hosted;
mod listing;
mod owners;
mod server;

use axum::http::Extensions;
use gateway::dialect::Dialect;
use gateway::routes;
use owners::Owners;
use std::sync::Arc;

pub static DIALECT: Dialect = Dialect {
    routes: routes! {
        post   "/memories"                        Write   Message Call    Receipt     server::add;
        get    "/memories"                        Read    None    Call    Found       server::list;
        delete "/memories"                        Forget  None    Call    Receipt     server::delete_all;
        post   "/memories/"                       Write   Message Call    Receipt     server::add;
        get    "/memories/"                       Read    None    Call    Found       server::list;
        delete "/memories/"                       Forget  None    Call    Receipt     server::delete_all;
        post   "/search"                          Read    Message Call    Found       server::search;
        get    "/memories/{id}"                   Read    None    Reading Found       server::read;
        put    "/memories/{id}"                   Write   Message Reading Receipt     server::update;
        delete "/memories/{id}"                   Forget  None    Reading Receipt     server::delete;
        get    "/memories/{id}/"                  Read    None    Reading Found       server::read;
        put    "/memories/{id}/"                  Write   Message Reading Receipt     server::update;
        delete "/memories/{id}/"                  Forget  None    Reading Receipt     server::delete;
        get    "/memories/{id}/history"           Read    None    Reading Found       server::history;
        get    "/memories/{id}/history/"          Read    None    Reading Found       server::history;

        get    "/v1/ping/"                        Key     None    Nothing Found       hosted::ping;
        post   "/v3/memories/add/"                Write   Message Call    Receipt     hosted::add;
        post   "/v3/memories/"                    Read    Message Call    Found       hosted::list;
        post   "/v3/memories/search/"             Read    Message Call    Found       hosted::search;
        delete "/v1/memories/"                    Forget  None    Call    Receipt     hosted::delete_all;
        delete "/v1/memories"                     Forget  None    Call    Receipt     hosted::delete_all;
        get    "/v1/memories/{id}/"               Read    None    Reading Found       hosted::read;
        put    "/v1/memories/{id}/"               Write   Message Reading Receipt     hosted::update;
        delete "/v1/memories/{id}/"               Forget  None    Reading Receipt     hosted::delete_one;
        get    "/v1/memories/{id}/history/"       Read    None    Reading Found       hosted::history;
        put    "/v1/batch/"                       Write   Message Reading Receipt     hosted::update_batch;
        delete "/v1/batch/"                       Forget  Message Reading Receipt     hosted::delete_batch;
        post   "/v1/feedback/"                    Write   Message Reading Receipt     hosted::feedback;
        get    "/v1/entities/"                    Read    None    Reading Found       entities::list;
        delete "/v1/entities/{kind}/{name}/"      Forget  None    Reading Receipt     entities::erase;
        delete "/v2/entities/{kind}/{name}/"      Forget  None    Reading Receipt     entities::erase;
        any    "/v1/exports/"                     Key     None    Nothing Unsupported hosted::no_model;
        any    "/v1/exports/get/"                 Key     None    Nothing Unsupported hosted::no_model;
        any    "/v1/summary/"                     Key     None    Nothing Unsupported hosted::no_model;
        any    "/v2/entities/user/{name}/profile/" Key    None    Nothing Unsupported hosted::no_model;
        any    "/v2/profiles/{*rest}"             Key     None    Nothing Unsupported hosted::no_model;
        any    "/api/v1/orgs/{*rest}"             Key     None    Nothing Unsupported hosted::no_platform;
        any    "/api/v1/webhooks/{*rest}"         Key     None    Nothing Unsupported hosted::no_webhooks;
    },
    calls: documented::CALLS,
    headings: documented::HEADINGS,
    beside: |budgets| {
        let mut beside = Extensions::new();
        let owners = Owners::new(budgets.lookups.clone());
        beside.insert(Arc::new(owners));
        beside
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::route::{Answer, Needs, Route};
    use gateway::{docs, openapi};

    /// A path with and without a slash at its end is one; so is the older path of an entity.
    fn is_another_spelling(route: &Route) -> bool {
        let plain = route.path.trim_end_matches('/');
        plain != route.path && routes::all(&DIALECT).any(|other| other.path == plain)
            || route.path.starts_with("/v1/entities/{kind}")
    }

    #[test]
    fn the_document_has_the_calls_of_the_table() {
        let document = openapi::document(&DIALECT);
        let of = |route: &Route| &document["paths"][openapi::named(route)];
        for route in routes::all(&DIALECT) {
            let is_told = route.needs != Needs::Nothing
                && route.answer != Answer::Unsupported
                && !route.path.starts_with("/mcp")
                && !is_another_spelling(route);
            let call = &of(route)[route.method];
            assert!(!is_told || call["description"].is_string(), "{} {}", route.method, route.path);
        }
        for (path, calls) in document["paths"].as_object().expect("paths") {
            for method in calls.as_object().expect("methods").keys() {
                let is_there = routes::all(&DIALECT).any(|route| {
                    openapi::named(route) == *path
                        && (route.method == method || route.method == "any")
                });
                assert!(is_there, "{method} {path}");
            }
        }
    }

    #[test]
    fn the_page_has_every_call_once() {
        let document = openapi::document(&DIALECT);
        let page = docs::page(&document, &DIALECT);
        for (path, calls) in document["paths"].as_object().expect("paths") {
            for method in calls.as_object().expect("methods").keys() {
                let name = format!("<code>{} {path}</code>", method.to_uppercase());
                assert_eq!(page.matches(&name).count(), 1, "{name}");
            }
        }
    }
}
