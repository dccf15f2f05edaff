//! Keepsake's own calls: `POST /v1/keepsake/{type}` takes a message of the contract as the body,
//! without `type` and `tenant`, and returns the reply of the service unchanged.

use crate::door::Gateway;
use crate::keys::{Caller, Right};
use crate::refusal::{Refusal, Result};
use crate::tools::By;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde_json::{Value, json};
use std::sync::Arc;

pub async fn call(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Path(kind): Path<String>,
    headers: HeaderMap,
    Json(mut message): Json<Value>,
) -> Result<Json<Value>> {
    if !message.is_object() {
        return Err(Refusal::invalid("body", "the body must be a JSON object"));
    }
    let (right, is_event) = match kind.as_str() {
        "turn" | "remember" | "update" | "feedback" => (Right::Write, true),
        "forget" => (Right::Forget, true),
        "recall" | "list" | "get" | "explain" | "stats" | "duplicates" => (Right::Read, false),
        _ => return Err(Refusal::not_found(format!("no call is named {kind}"))),
    };
    caller.may(right)?;
    // A memory of the tenant is seen by users that a key for one user does not speak for.
    if caller.user.is_some() && message["scope"] == "tenant" {
        return Err(Refusal::forbidden("a key for one user writes no memory of the whole tenant"));
    }
    let user = caller.user_in("user", message["user"].as_str())?;
    if caller.user.is_some() && is_event {
        let by = By { calls: &gateway.calls, caller: &caller, user: &user, key: None };
        check_scopes(&by, &message, gateway.options.listed_max).await?;
    }
    message["type"] = kind.into();
    if is_event
        && message["id"].is_null()
        && let Some(key) = idempotency_key(&headers)
    {
        message["id"] = key.into();
    }
    let calls = &gateway.calls;
    let reply = if is_event {
        calls.publish(&user, message).await
    } else {
        calls.ask(&user, message).await
    };
    Ok(Json(reply?))
}

/// Refuses an event about a memory of the whole tenant. What else is wrong with the memories is the
/// service's to say.
async fn check_scopes(by: &By<'_>, message: &Value, max: usize) -> Result<()> {
    let several = message["memories"].as_array().map(Vec::as_slice).unwrap_or_default();
    if several.len() > max {
        let what = format!("memories: {} are more than gateway.listed_max of {max}", several.len());
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what));
    }
    for memory in several.iter().chain([&message["memory"]]).filter(|memory| !memory.is_null()) {
        match by.check(memory).await {
            Err(refusal) if !["not_found", "invalid"].contains(&refusal.code.as_str()) => {
                return Err(refusal);
            }
            _ => {}
        }
    }
    Ok(())
}

/// `GET /v1/keepsake/session`: who the caller is, and what the caller may do. Any key may ask.
pub async fn session(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
) -> Json<Value> {
    Json(json!({
        "tenant": caller.tenant,
        "user": caller.user,
        "rights": caller.rights,
        "keys": gateway.keys.is_some(),
        "profiles": gateway.options.profiles,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// The key of a call that may come twice. It becomes the id of the event, and an event with an id that
/// was applied is a `duplicate`.
pub fn idempotency_key(headers: &HeaderMap) -> Option<&str> {
    headers.get("idempotency-key")?.to_str().ok()
}
