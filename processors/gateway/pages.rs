//! The pages without a key: the OpenAPI document, liveness, readiness and metrics.

use crate::door::Gateway;
use crate::openapi;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;
use std::sync::Arc;

pub async fn openapi() -> Json<&'static Value> {
    Json(&openapi::DOCUMENT)
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
