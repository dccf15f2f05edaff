//! The pages without a key: the OpenAPI document and its calls to read, liveness, readiness and metrics.

use crate::explorer;
use crate::state::Gateway;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// The OpenAPI document and the page of all calls, made when they are first asked for.
pub struct Pages(LazyLock<Documents, Box<dyn FnOnce() -> Documents + Send>>);

pub struct Documents {
    pub openapi: Value,
    /// The page of all calls.
    pub calls: Bytes,
}

impl Pages {
    pub fn new(make: impl FnOnce() -> Documents + Send + 'static) -> Arc<Pages> {
        Arc::new(Pages(LazyLock::new(Box::new(make))))
    }
}

pub async fn openapi(Extension(pages): Extension<Arc<Pages>>) -> Response {
    Json(&pages.0.openapi).into_response()
}

pub async fn docs(Extension(pages): Extension<Arc<Pages>>) -> Response {
    explorer::guarded(Html(pages.0.calls.clone()).into_response())
}

pub async fn livez(State(gateway): State<Arc<Gateway>>) -> (StatusCode, &'static str) {
    if gateway.calls.is_alive() {
        return (StatusCode::OK, "ok\n");
    }
    (StatusCode::SERVICE_UNAVAILABLE, "stuck: gateway-replies\n")
}

pub async fn readyz(State(gateway): State<Arc<Gateway>>) -> (StatusCode, &'static str) {
    if gateway.is_draining() {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
    }
    if gateway.keys.as_ref().is_some_and(|keys| !keys.are_known()) {
        return (StatusCode::SERVICE_UNAVAILABLE, "cannot read gateway.keys\n");
    }
    livez(State(gateway)).await
}

pub async fn metrics(State(gateway): State<Arc<Gateway>>) -> String {
    let families = gateway.registry.gather();
    prometheus::TextEncoder::new().encode_to_string(&families).unwrap_or_default()
}
