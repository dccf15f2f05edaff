//! The paths that the clients of mem0's hosted service call when `host` names this gateway, so that
//! they work unchanged. `agent_id` and `app_id` are metadata fields, `run_id` is the session.
//!
//! Calls that need mem0's language model or its platform are refused with 501 and a name.

use crate::entities;
use crate::filters::{Filters, check_unsupported, flatten, moment, taken};
use crate::listing::{self, Page};
use crate::owners::owners;
use crate::server::{self, Answer, Named, Shared};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use contract::decode::unknown_fields;
use gateway::bodies::{Noted, warned};
use gateway::keys::{Caller, Permission};
use gateway::refusal::{Refusal, Result};
use gateway::state::Gateway;
use gateway::tools::idempotency_key;
use gateway::tools::{By, of};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Memories of a search without `top_k`, as in mem0.
const FOUND: u64 = 10;
/// Memories in one batch, as in mem0.
const BATCH_MAX: usize = 1000;

pub(crate) async fn no_model() -> Refusal {
    Refusal::unsupported(
        "no_language_model",
        "exports by a schema, summaries and profiles are texts of mem0's language model; `keepsake \
         export` writes the memories as they are",
    )
}

pub(crate) async fn no_platform() -> Refusal {
    Refusal::unsupported(
        "no_platform",
        "organizations, projects and their settings are parts of mem0's platform; here a key has a \
         tenant, and the operator's profile decides what is remembered",
    )
}

pub(crate) async fn no_webhooks() -> Refusal {
    Refusal::unsupported(
        "no_webhooks",
        "the gateway calls nobody: read the memories topic, which has each change of a memory",
    )
}

/// The clients keep the organization and the project for the paths of the platform.
pub(crate) async fn ping(Extension(caller): Extension<Caller>) -> Json<Value> {
    let tenant = &caller.tenant;
    Json(json!({"status": "ok", "org_id": tenant, "project_id": tenant, "user_email": null}))
}

const MODEL: &str = "needs mem0's language model";

#[derive(Deserialize)]
pub(crate) struct NewMemories {
    messages: Value,
    #[serde(default)]
    filters: Map<String, Value>,
    user_id: Option<String>,
    agent_id: Option<String>,
    app_id: Option<String>,
    run_id: Option<String>,
    metadata: Option<Map<String, Value>>,
    infer: Option<bool>,
    timestamp: Option<Value>,
    expiration_date: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

pub(crate) async fn add(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<NewMemories>,
) -> Answer {
    let without = [
        ("custom_categories", MODEL),
        ("custom_instructions", MODEL),
        ("agent_custom_instructions", MODEL),
        ("structured_data_schema", MODEL),
        ("includes", MODEL),
        ("excludes", MODEL),
        ("immutable", "every memory can be changed"),
    ];
    let warnings = check_unsupported(body.others, &without)?;
    let mut names = Map::new();
    flatten(body.filters, &mut names)?;
    let user_id = taken(&mut names, "user_id", body.user_id);
    let agent_id = taken(&mut names, "agent_id", body.agent_id);
    let app_id = taken(&mut names, "app_id", body.app_id);
    let run_id = taken(&mut names, "run_id", body.run_id);
    if let Some((name, _)) = names.iter().next() {
        let what = format!("filters.{name}: add takes user_id, agent_id, app_id and run_id there");
        return Err(Refusal::invalid("filters", what));
    }
    let mut metadata = body.metadata.unwrap_or_default();
    if let Some(app) = app_id {
        metadata.insert("app_id".into(), app.into());
    }
    let infers = body.infer.unwrap_or(true);
    let at = body.timestamp.filter(|it| !it.is_null());
    let at = at.map(|it| moment("timestamp", &it, false)).transpose()?;
    let expires_at = body.expiration_date.filter(|it| !it.is_null());
    let expires_at = expires_at.map(|it| moment("expiration_date", &it, true)).transpose()?;
    if expires_at.is_some() && infers {
        let what = "only a memory that is stored as it is expires by a date: add infer: false";
        return Err(Refusal::invalid("expiration_date", what));
    }
    let added = server::Added {
        messages: body.messages,
        user_id,
        agent_id,
        run_id,
        metadata: Some(metadata),
        infer: Some(infers),
        key: idempotency_key(&headers).map(str::to_owned),
        at: json!(at.map(|at| at.to_string())),
        expires_at: json!(expires_at.map(|at| at.to_string())),
    };
    let mut results = server::store(&gateway, &caller, added).await?;
    for row in &mut results {
        row["data"] = json!({"memory": row["memory"]});
    }
    let message = "the memories are stored and can be read";
    let answer = json!({"message": message, "status": "SUCCEEDED", "results": results});
    Ok(warned(answer, warnings))
}

#[derive(Deserialize)]
pub(crate) struct Question {
    query: String,
    #[serde(default)]
    filters: Map<String, Value>,
    metadata: Option<Map<String, Value>>,
    top_k: Option<u64>,
    threshold: Option<f64>,
    fields: Option<Vec<String>>,
    latest_only: Option<bool>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

pub(crate) async fn search(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Json(body): Json<Question>,
) -> Answer {
    let without = [
        ("categories", MODEL),
        ("show_expired", "an expired memory is erased"),
        ("reference_date", "a question is read at the time it comes"),
    ];
    let warnings = check_unsupported(body.others, &without)?;
    let mut filters = Filters::read(body.filters)?;
    if let Some(metadata) = body.metadata {
        filters.add(Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]))?;
    }
    let searched = server::Searched {
        query: body.query,
        top_k: Some(body.top_k.unwrap_or(FOUND)),
        threshold: body.threshold,
        include_archived: body.latest_only == Some(false),
        ..server::Searched::default()
    };
    let rows = server::find(&gateway, &caller, &filters, searched).await?;
    let rows: Vec<Value> =
        rows.into_iter().map(|row| chosen(row, body.fields.as_deref())).collect();
    Ok(warned(json!({"results": rows}), warnings))
}

fn chosen(mut row: Value, fields: Option<&[String]>) -> Value {
    row["categories"] = json!([]);
    if let (Some(fields), Some(row)) = (fields, row.as_object_mut()) {
        row.retain(|name, _| name == "id" || fields.contains(name));
    }
    row
}

#[derive(Deserialize)]
pub(crate) struct Listing {
    #[serde(default)]
    filters: Map<String, Value>,
    start_date: Option<Value>,
    end_date: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

pub(crate) async fn list(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(page): Query<Page>,
    Json(body): Json<Listing>,
) -> Answer {
    let without = [
        ("categories", MODEL),
        ("show_expired", "an expired memory is erased"),
        ("latest_only", "the list has every version of a memory, a search the latest"),
    ];
    let warnings = check_unsupported(body.others, &without)?;
    let mut filters = Filters::read(body.filters)?;
    for (name, test, value) in
        [("start_date", "$gte", body.start_date), ("end_date", "$lte", body.end_date)]
    {
        if let Some(value) = value.filter(|it| !it.is_null()) {
            filters.made(test, moment(name, &value, test == "$lte")?);
        }
    }
    let user = caller.user(filters.user.as_deref())?;
    let (rows, count) =
        server::listed(&gateway, &user, &filters, page.skipped(), page.size()).await?;
    let rows = rows.into_iter().map(|row| chosen(row, None)).collect();
    Ok(warned(page.of("/v3/memories/", count, rows), warnings))
}

pub(crate) async fn read(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
) -> Answer {
    Ok(Json(one(&gateway, &caller, &named, &id).await?))
}

async fn one(gateway: &Arc<Gateway>, caller: &Caller, named: &Named, id: &str) -> Result<Value> {
    let (user, reply) = server::on(gateway, caller, named, "get_memory", json!({"id": id})).await?;
    let memory = &reply["memory"];
    let mut row = chosen(server::row(gateway, &user, memory), None);
    row["expiration_date"] = memory["expires_at"].clone();
    Ok(row)
}

async fn change(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    named: &Named,
    id: &str,
    body: &Value,
) -> Result<()> {
    for name in ["timestamp", "expiration_date"] {
        if body.get(name).is_some() {
            let what = format!("{name} of a memory cannot be changed: erase and add the memory");
            let refusal = Refusal::unsupported("not_supported", what);
            return Err(Refusal { field: Some(name.to_owned()), ..refusal });
        }
    }
    server::change(gateway, caller, named, id, body).await
}

pub(crate) async fn update(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Answer {
    let named = named.with_key(&headers);
    change(&gateway, &caller, &named, &id, &body).await?;
    // A key without the right to read still changes.
    let row = match caller.may(Permission::Read) {
        Ok(()) => one(&gateway, &caller, &named, &id).await?,
        Err(_) => json!({"id": id}),
    };
    Ok(warned(row, unknown_fields(&body, &[&server::TEXTS, &["metadata"]])))
}

#[derive(Deserialize)]
pub(crate) struct Linked {
    delete_linked: Option<bool>,
}

pub(crate) async fn delete_one(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
    Query(linked): Query<Linked>,
    headers: HeaderMap,
) -> Answer {
    let named = named.with_key(&headers);
    let mut versions = vec![id];
    let mut next = 0;
    while linked.delete_linked == Some(true) && next < versions.len() {
        for older in replaced(&gateway, &caller, &named, &versions[next]).await? {
            if !versions.contains(&older) {
                versions.push(older);
            }
        }
        next += 1;
    }
    // Order matters: while the named memory is there, a repeated call finds the older versions.
    for id in versions.drain(1..).rev() {
        let mut unkeyed = named.clone();
        unkeyed.key = None;
        match server::on(&gateway, &caller, &unkeyed, "delete_memory", json!({"id": id})).await {
            // An older version may be erased already.
            Err(refusal) if refusal.code != "not_found" => return Err(refusal),
            _ => {}
        }
    }
    server::on(&gateway, &caller, &named, "delete_memory", json!({"id": versions[0]})).await?;
    Ok(Json(json!({"message": "Memory deleted successfully!"})))
}

/// The older versions of a memory; none if the memory is gone.
async fn replaced(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    named: &Named,
    id: &str,
) -> Result<Vec<String>> {
    let memory = match server::on(gateway, caller, named, "get_memory", json!({"id": id})).await {
        Ok((_, mut reply)) => reply["memory"].take(),
        Err(refusal) if refusal.code == "not_found" => Value::Null,
        Err(refusal) => return Err(refusal),
    };
    let older = memory["supersedes"].as_array().into_iter().flatten();
    Ok(older.filter_map(|id| id.as_str().map(str::to_owned)).collect())
}

/// Refuses the key where an erasure is one event for each memory: a repeated call would also erase
/// the memories that were made since.
pub(crate) fn check_no_key(key: Option<&str>) -> Result<()> {
    if key.is_none() {
        return Ok(());
    }
    let what = "Idempotency-Key: only the erasure of a user, of a user's run or of single memories \
                can be repeated safely";
    Err(Refusal::invalid("Idempotency-Key", what))
}

#[derive(Deserialize)]
pub(crate) struct ErasedNames {
    user_id: Option<String>,
    agent_id: Option<String>,
    app_id: Option<String>,
    run_id: Option<String>,
    filters: Option<String>,
}

/// Erases the memories that all the given names have in common.
pub(crate) async fn delete_all(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<ErasedNames>,
    headers: HeaderMap,
) -> Answer {
    if named.filters.is_some() {
        let what = "filters do not choose what is erased: give user_id, agent_id, app_id or run_id";
        return Err(Refusal::invalid("filters", what));
    }
    let names = [&named.user_id, &named.agent_id, &named.app_id, &named.run_id];
    if names.iter().any(|name| name.as_deref() == Some("*")) {
        let what = "* would erase everybody's memories: erase one user after another";
        return Err(Refusal::unsupported("not_supported", what));
    }
    if named.user_id.is_none() && caller.user.is_none() {
        let kinds = ["user", "agent", "app", "run"];
        let mut given =
            kinds.iter().zip(names).filter_map(|(kind, name)| Some((kind, name.as_ref()?)));
        if let (Some((kind, name)), None) = (given.next(), given.next()) {
            let key = idempotency_key(&headers);
            entities::erase_everywhere(&gateway, &caller, kind, name, key).await?;
            return Ok(Json(json!({"message": "Memories deleted successfully!"})));
        }
    }
    let user = caller.user(named.user_id.as_deref())?;
    let by =
        By { calls: &gateway.calls, caller: &caller, user: &user, key: idempotency_key(&headers) };
    if named.agent_id.is_some() || named.app_id.is_some() {
        check_no_key(by.key)?;
        let mut filters = Filters::default();
        filters.of_run(named.run_id);
        filters.labelled("agent_id", named.agent_id);
        filters.labelled("app_id", named.app_id);
        for memory in listing::everything(&gateway, &user, &filters.conditions()).await? {
            by.erase_if_there(&memory["id"]).await?;
        }
    } else {
        let event = match named.run_id {
            Some(session) => of("forget", &[("session", &session.into())]),
            None => of("forget", &[("everything", &true.into())]),
        };
        by.publish(event).await?;
    }
    Ok(Json(json!({"message": "Memories deleted successfully!"})))
}

pub(crate) async fn history(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
) -> Answer {
    let (user, mut rows) = server::changes(&gateway, &caller, &named, &id).await?;
    for row in &mut rows {
        row["user_id"] = user.user().into();
        row["input"] = json!([]);
        row["categories"] = json!([]);
    }
    Ok(Json(Value::Array(rows)))
}

#[derive(Deserialize)]
pub(crate) struct Batch {
    memories: Vec<Value>,
}

impl Batch {
    /// The memories with their ids.
    fn checked(&self) -> Result<Vec<(&str, &Value)>> {
        if self.memories.len() > BATCH_MAX {
            let what = format!("memories has more than {BATCH_MAX} entries");
            return Err(Refusal::invalid("memories", what));
        }
        let mut found = Vec::new();
        for memory in &self.memories {
            let Some(id) = memory["memory_id"].as_str() else {
                return Err(Refusal::invalid("memories", "each entry needs memory_id"));
            };
            found.push((id, memory));
        }
        Ok(found)
    }
}

/// Adds to a refusal how far the batch came: all entries before the one that fails are done.
fn in_batch(done: usize, refusal: Refusal) -> Refusal {
    let message = format!("entry {done}: {}; the {done} before are done", refusal.message);
    Refusal { message, ..refusal }
}

pub(crate) async fn update_batch(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Noted(batch, warnings): Noted<Batch>,
) -> Answer {
    let (memories, named) = (batch.checked()?, named.with_key(&headers));
    for (done, (id, memory)) in memories.iter().enumerate() {
        let changed = change(&gateway, &caller, &named.of_entry(done), id, memory).await;
        changed.map_err(|refusal| in_batch(done, refusal))?;
    }
    let message = format!("Successfully updated {} memories", memories.len());
    Ok(warned(json!({"message": message}), warnings))
}

pub(crate) async fn delete_batch(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Noted(batch, warnings): Noted<Batch>,
) -> Answer {
    let (memories, named) = (batch.checked()?, named.with_key(&headers));
    for (done, (id, _)) in memories.iter().enumerate() {
        let by_id = json!({"id": id});
        let named = named.of_entry(done);
        let deleted = server::on(&gateway, &caller, &named, "delete_memory", by_id).await;
        deleted.map_err(|refusal| in_batch(done, refusal))?;
    }
    let message = format!("Successfully deleted {} memories", memories.len());
    Ok(warned(json!({"message": message}), warnings))
}

#[derive(Deserialize)]
pub(crate) struct Judgement {
    memory_id: String,
    feedback: Option<String>,
    feedback_reason: Option<String>,
}

pub(crate) async fn feedback(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Noted(body, warnings): Noted<Judgement>,
) -> Answer {
    let signal = match body.feedback.as_deref() {
        Some("POSITIVE") => "confirmed",
        Some("NEGATIVE") => "irrelevant",
        Some("VERY_NEGATIVE") => "wrong",
        Some(_) => {
            let what = "feedback is POSITIVE, NEGATIVE or VERY_NEGATIVE";
            return Err(Refusal::invalid("feedback", what));
        }
        None => {
            let what = "feedback that was given cannot be taken back: give the opposite";
            return Err(Refusal::unsupported("not_supported", what));
        }
    };
    let id = &body.memory_id;
    let user = owners(&gateway).of(&gateway.calls, &caller, named.user_id.as_deref(), id).await?;
    let reason = body.feedback_reason.as_ref();
    let metadata = reason.map_or(Value::Null, |reason| json!({"reason": reason}));
    let fields = [("memory", &json!(id)), ("signal", &signal.into()), ("metadata", &metadata)];
    let key = idempotency_key(&headers);
    let by = By { calls: &gateway.calls, caller: &caller, user: &user, key };
    by.change(&json!(id), of("feedback", &fields)).await?;
    let answer =
        json!({"id": id, "feedback": body.feedback, "feedback_reason": body.feedback_reason});
    Ok(warned(answer, warnings))
}
