//! Keepsake's own calls: `POST /v1/keepsake/{type}` takes a message of the contract as the body,
//! without `type` and `tenant`, and returns the reply of the service unchanged.

use crate::LISTED_MAX;
use crate::keys::Caller;
use crate::refusal::{Refusal, Result};
use crate::route::Route;
use crate::state::Gateway;
use crate::tools::{By, idempotency_key};
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
        "keys": gateway.is_guarded(),
        "profiles": gateway.options.profiles,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}
