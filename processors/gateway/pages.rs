//! The pages without a key: the OpenAPI document and its calls to read, liveness, readiness and metrics.

use crate::dialect::Dialect;
use crate::door::Gateway;
use crate::{docs, explorer, openapi};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The OpenAPI document and the page of all calls, made when they are first asked for.
pub struct Pages {
    dialect: &'static Dialect,
    document: OnceLock<Value>,
    calls: OnceLock<String>,
}

impl Pages {
    pub fn new(dialect: &'static Dialect) -> Pages {
        Pages { dialect, document: OnceLock::new(), calls: OnceLock::new() }
    }

    fn document(&self) -> &Value {
        self.document.get_or_init(|| openapi::document(self.dialect))
    }
}

pub async fn openapi(State(gateway): State<Arc<Gateway>>) -> Response {
    Json(gateway.pages.document()).into_response()
}

pub async fn docs(State(gateway): State<Arc<Gateway>>) -> Response {
    let Pages { dialect, calls, .. } = &gateway.pages;
    let page = calls.get_or_init(|| docs::page(gateway.pages.document(), dialect));
    explorer::guarded(Html(page.clone()).into_response())
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
