//! Lists the users of a tenant, and the tenants that a caller may choose.

use crate::followed_users::UsersQuery;
use crate::keys::{Caller, Permission};
use crate::refusal::{Result, unavailable};
use crate::state::Gateway;
use crate::{ROWS, ROWS_MAX};
use axum::extract::{Query, State};
use axum::{Extension, Json};
use domain::fault::Fault;
use serde_json::{Value, json};
use std::sync::Arc;

/// `GET /v1/keepsake/users`: the users of the caller's tenant by name.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<UsersQuery>,
) -> Result<Json<Value>> {
    caller.may(Permission::Read)?;
    let limit = query.limit.unwrap_or(ROWS * 2).clamp(1, ROWS_MAX);
    let place = gateway.budgets.lookups.take(&caller, 1)?;
    let listed = tokio::task::spawn_blocking(move || {
        let _place = place;
        let followed =
            gateway.users.followed(&gateway.calls, gateway.options.gateway.followed_max)?;
        Ok(followed.page(&caller, &query, limit))
    });
    listed.await.unwrap_or_else(|e| Err(unavailable(&Fault::retry(e.to_string())))).map(Json)
}

/// `GET /v1/keepsake/tenants`: the tenants that the caller may choose. A key has one.
pub async fn tenants(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>> {
    caller.may(Permission::Read)?;
    if gateway.is_guarded() {
        return Ok(Json(json!({"tenants": [caller.tenant]})));
    }
    let place = gateway.budgets.lookups.take(&caller, 1)?;
    let listed = tokio::task::spawn_blocking(move || {
        let _place = place;
        let followed =
            gateway.users.followed(&gateway.calls, gateway.options.gateway.followed_max)?;
        let mut tenants = followed.tenants(ROWS_MAX);
        tenants.extend([caller.tenant, gateway.options.gateway.tenant.clone()]);
        Ok(json!({"tenants": tenants}))
    });
    listed.await.unwrap_or_else(|e| Err(unavailable(&Fault::retry(e.to_string())))).map(Json)
}
