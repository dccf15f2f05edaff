//! The users, agents, apps and runs of a tenant, as the hosted clients of mem0 list and erase them.
//!
//! The service has no list of users, so each list reads the memories topic once (`owners.rs`).

use crate::hosted::check_no_key;
use crate::listing::Page;
use crate::owners::{HeldMemory, owners};
use crate::server::{Answer, Shared};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use gateway::keys::{Caller, Permission};
use gateway::refusal::{Refusal, Result};
use gateway::state::Gateway;
use gateway::tools::idempotency_key;
use gateway::tools::{By, of};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

fn names(memory: &HeldMemory) -> impl Iterator<Item = (&'static str, &str)> {
    let others = [("agent", &memory.agent), ("app", &memory.app), ("run", &memory.run)];
    let others = others.into_iter().filter_map(|(kind, name)| Some((kind, name.as_deref()?)));
    std::iter::once(("user", memory.user.as_str())).chain(others)
}

pub(crate) async fn list(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(page): Query<Page>,
) -> Answer {
    let memories = owners(&gateway).held(&gateway.calls, &caller).await?;
    let mut found: BTreeMap<(&str, &str), (usize, &str, &str)> = BTreeMap::new();
    for memory in memories.iter().filter(|memory| memory.is_active) {
        let (made, changed) = (memory.created_at.as_str(), memory.changed_at.as_str());
        for entity in names(memory) {
            let (count, first, last) = found.entry(entity).or_insert((0, made, changed));
            *count += 1;
            *first = made.min(first);
            *last = changed.max(last);
        }
    }
    let mut rows = Vec::new();
    for ((kind, name), (count, first, last)) in found {
        rows.push(json!({"id": name, "name": name, "type": kind, "total_memories": count,
            "owner": caller.tenant, "created_at": first, "updated_at": last, "metadata": null}));
    }
    let count = rows.len();
    let rows = rows.into_iter().skip(page.skipped()).take(page.size()).collect();
    Ok(Json(page.of("/v1/entities/", count, rows)))
}

pub(crate) async fn erase(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path((kind, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    erase_everywhere(&gateway, &caller, &kind, &name, idempotency_key(&headers)).await?;
    Ok(Json(json!({"message": "Entity deleted successfully!"})))
}

/// Erases an entity in all users that the caller may change. A run is erased as a whole, also the
/// turns that made no memory. Erasing the memories of all users needs the right `admin`.
pub(crate) async fn erase_everywhere(
    gateway: &Gateway,
    caller: &Caller,
    kind: &str,
    name: &str,
    key: Option<&str>,
) -> Result<()> {
    let calls = &gateway.calls;
    match kind {
        "user" => {
            let event = of("forget", &[("everything", &json!(true))]);
            let user = caller.user(Some(name))?;
            By { calls, caller, user: &user, key }.publish(event).await?;
            return Ok(());
        }
        "agent" | "app" | "run" => {}
        _ => {
            let what = "an entity is a user, an agent, an app or a run";
            return Err(Refusal::invalid("type", what));
        }
    }
    if caller.user.is_none() {
        caller.may(Permission::Admin)?;
    }
    check_no_key(key)?;
    let memories = owners(gateway).held(calls, caller).await?;
    let mut erased = BTreeSet::new();
    for memory in memories.iter().filter(|memory| names(memory).any(|it| it == (kind, name))) {
        let value = if kind == "run" { name } else { memory.id.as_str() };
        erased.insert((memory.user.as_str(), value));
    }
    if erased.is_empty() {
        return Err(Refusal::not_found(format!("no memory is of the {kind} {name}")));
    }
    let field = if kind == "run" { "session" } else { "memory" };
    for (user, value) in erased {
        let event = of("forget", &[(field, &value.into())]);
        let user = caller.user(Some(user))?;
        By { calls, caller, user: &user, key: None }.publish(event).await?;
    }
    Ok(())
}
