//! The users, agents, apps and runs of a tenant, as the hosted clients of mem0 list and erase them.
//!
//! The service has no list of users, so each list reads the memories topic once (`owners.rs`).

use crate::door::Gateway;
use crate::hosted::Page;
use crate::keys::{Caller, Right};
use crate::mem0::{Answer, Shared};
use crate::owners::HeldMemory;
use crate::refusal::Refusal;
use crate::tools::of;
use axum::extract::{Path, Query, State};
use axum::routing::{delete, get};
use axum::{Extension, Json, Router};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/entities/", get(list))
        .route("/v1/entities/{kind}/{name}/", delete(erase))
        .route("/v2/entities/{kind}/{name}/", delete(erase))
}

fn names(memory: &HeldMemory) -> impl Iterator<Item = (&'static str, &str)> {
    let others = [("agent", &memory.agent), ("app", &memory.app), ("run", &memory.run)];
    let others = others.into_iter().filter_map(|(kind, name)| Some((kind, name.as_deref()?)));
    std::iter::once(("user", memory.user.as_str())).chain(others)
}

async fn list(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(page): Query<Page>,
) -> Answer {
    caller.may(Right::Read)?;
    let memories = gateway.owners.held(&gateway.calls, &caller).await?;
    let mut found: BTreeMap<(&str, &str), (usize, &str, &str)> = BTreeMap::new();
    for memory in &memories {
        let (made, changed) = (memory.created_at.as_str(), memory.changed_at.as_str());
        for entity in names(memory) {
            let (count, first, last) = found.entry(entity).or_insert((0, made, changed));
            *count += 1;
            *first = made.min(first);
            *last = changed.max(last);
        }
    }
    let row = |((kind, name), (count, first, last)): (_, (usize, _, _))| {
        json!({"id": name, "name": name, "type": kind, "total_memories": count, "owner": caller.tenant,
            "created_at": first, "updated_at": last, "metadata": null})
    };
    Ok(Json(page.of("/v1/entities/", found.into_iter().map(row).collect())))
}

async fn erase(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path((kind, name)): Path<(String, String)>,
) -> Answer {
    caller.may(Right::Forget)?;
    if !["user", "agent", "app", "run"].contains(&kind.as_str()) {
        return Err(Refusal::invalid("type", "an entity is a user, an agent, an app or a run"));
    }
    let calls = &gateway.calls;
    if kind == "user" {
        let user = caller.user(Some(&name))?;
        calls.publish(&user, of("forget", &[("everything", &json!(true))])).await?;
    } else {
        let memories = gateway.owners.held(calls, &caller).await?;
        let has_name = |memory: &&HeldMemory| names(memory).any(|it| it == (&kind, &name));
        // A run is erased as a whole in each user, also its turns that made no memory.
        let field = if kind == "run" { "session" } else { "memory" };
        let erased: BTreeSet<(&str, &str)> = memories
            .iter()
            .filter(has_name)
            .map(|it| {
                (it.user.as_str(), if kind == "run" { name.as_str() } else { it.id.as_str() })
            })
            .collect();
        if erased.is_empty() {
            return Err(Refusal::not_found(format!("no memory is of the {kind} {name}")));
        }
        for (user, value) in erased {
            let event = of("forget", &[(field, &value.into())]);
            calls.publish(&caller.user(Some(user))?, event).await?;
        }
    }
    Ok(Json(json!({"message": "Entity deleted successfully!"})))
}
