//! Keepsake's own calls: `POST /v1/keepsake/{type}` takes a message of the contract as the body,
//! without `type` and `tenant`, and returns the reply of the service unchanged.

use crate::LISTED_MAX;
use crate::door::Gateway;
use crate::keys::Caller;
use crate::refusal::{Refusal, Result};
use crate::routes::Route;
use crate::tools::By;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use domain::UserKey;
use serde_json::{Value, json};
use std::sync::Arc;

/// Publishes an event and returns the receipt.
pub async fn event(
    State(gateway): State<Arc<Gateway>>,
    Extension(route): Extension<&'static Route>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Result<Json<Value>> {
    let (user, message) = of_caller(route, &caller, message)?;
    let key = idempotency_key(&headers);
    let by = By { calls: &gateway.calls, caller: &caller, user: &user, key };
    // A memory of the tenant is seen by users that a key for one user does not speak for.
    if caller.user.is_some() {
        if message["scope"] == "tenant" {
            let what = "a key for one user writes no memory of the whole tenant";
            return Err(Refusal::forbidden(what));
        }
        check_scopes(&by, &message).await?;
    }
    Ok(Json(by.publish(message).await?))
}

/// Sends a request and returns the reply.
pub async fn request(
    State(gateway): State<Arc<Gateway>>,
    Extension(route): Extension<&'static Route>,
    Extension(caller): Extension<Caller>,
    Json(message): Json<Value>,
) -> Result<Json<Value>> {
    let (user, message) = of_caller(route, &caller, message)?;
    Ok(Json(gateway.calls.ask(&user, message).await?))
}

/// The user that a message is about, and the message with the type that the path names.
fn of_caller(route: &Route, caller: &Caller, mut message: Value) -> Result<(UserKey, Value)> {
    if !message.is_object() {
        return Err(Refusal::invalid("body", "the body must be a JSON object"));
    }
    let user = caller.user_in("user", message["user"].as_str())?;
    message["type"] = route.kind().into();
    Ok((user, message))
}

/// Refuses an event about a memory of the whole tenant. What else is wrong with the memories is the
/// service's to say.
async fn check_scopes(by: &By<'_>, message: &Value) -> Result<()> {
    let several = message["memories"].as_array().map(Vec::as_slice).unwrap_or_default();
    if several.len() > LISTED_MAX {
        let what =
            format!("memories: {} are more than {LISTED_MAX}, the most of one call", several.len());
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

/// `GET /v1/keepsake/session`: who the caller is, and the caller's rights. Any key may ask.
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

/// The key of a call that may come twice. The key becomes the id of the event, and an event with an
/// id that was applied is a `duplicate`.
pub fn idempotency_key(headers: &HeaderMap) -> Option<&str> {
    headers.get("idempotency-key")?.to_str().ok()
}

/// Refuses a key that could not become the id of an event: without one, a repeated call would have a
/// second effect.
pub fn check_key(headers: &HeaderMap) -> Result<()> {
    match headers.get("idempotency-key").map(|key| key.to_str()) {
        Some(Err(_)) => {
            Err(Refusal::invalid("Idempotency-Key", "Idempotency-Key has letters beyond ASCII"))
        }
        Some(Ok("")) => Err(Refusal::invalid("Idempotency-Key", "Idempotency-Key is empty")),
        _ => Ok(()),
    }
}
