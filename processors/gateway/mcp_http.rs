//! MCP over HTTP: binds a call to the user that the path or a header names, and counts refused calls.

use crate::keys::Caller;
use crate::mcp;
use crate::refusal::INSUFFICIENT_SCOPE;
use crate::state::Gateway;
use axum::body::{HttpBody, to_bytes};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

const USER: &str = "x-keepsake-user";
/// The longest answer over MCP that may be a refusal.
const REFUSAL_BYTES: u64 = 16 << 10;

pub async fn mcp_by_header(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let user = request.headers().get(USER).and_then(|user| str::from_utf8(user.as_bytes()).ok());
    let user = user.map(str::to_owned);
    mcp_of(gateway, user, request).await
}

pub async fn mcp_by_path(
    State(gateway): State<Arc<Gateway>>,
    Path(user): Path<String>,
    request: Request,
) -> Response {
    mcp_of(gateway, Some(user), request).await
}

async fn mcp_of(gateway: Arc<Gateway>, user: Option<String>, mut request: Request) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let caller = caller.unwrap_or_else(|| Caller::local(&gateway.options.gateway.tenant));
    let key = caller.key.clone();
    match caller.user(user.as_deref()) {
        Ok(user) => request.extensions_mut().insert(mcp::Bound { caller, user }),
        Err(refusal) => return refusal.into_response(),
    };
    let response = gateway.mcp.handle(request).await.into_response();
    if response.body().size_hint().exact().is_none_or(|bytes| bytes > REFUSAL_BYTES) {
        return response;
    }
    // MCP answers refused calls with HTTP 200.
    let (parts, body) = response.into_parts();
    let answer = to_bytes(body, REFUSAL_BYTES as usize).await.unwrap_or_default();
    if let Some(refusal) = mcp::refused(&answer) {
        gateway.budgets.refusals.count(&key, refusal.status);
        // A client asks its user for a further scope only after a 403.
        if refusal.code == INSUFFICIENT_SCOPE {
            return refusal.into_response();
        }
    }
    Response::from_parts(parts, answer.into())
}
