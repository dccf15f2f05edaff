//! The paths that the clients of mem0's hosted service call when `host` names this gateway, so that
//! they work unchanged. `agent_id` and `app_id` are metadata fields, `run_id` is the session.
//!
//! Calls that need mem0's language model or its platform are refused with 501 and a name.

use crate::door::Gateway;
use crate::keys::{Caller, Right};
use crate::mem0::{self, Answer, Named, Shared};
use crate::own::idempotency_key;
use crate::refusal::{Refusal, Result};
use crate::tools::of;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::routing::{any, delete, get, post, put};
use axum::{Extension, Json, Router};
use domain::UserKey;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Memories of a search without `top_k`, and on a page without `page_size`, as in mem0.
const FOUND: u64 = 10;
const PAGE: usize = 100;
/// Memories of one user that a call reads to count, filter or erase them: a hundred requests.
const LISTED_MAX: usize = 10_000;
/// Memories in one batch, as in mem0.
const BATCH_MAX: usize = 1000;

pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/v1/ping/", get(ping))
        .route("/v3/memories/add/", post(add))
        .route("/v3/memories/", post(list))
        .route("/v3/memories/search/", post(search))
        .route("/v1/memories/", delete(delete_all))
        .route("/v1/memories/{id}/", get(read).put(update).delete(delete_one))
        .route("/v1/memories/{id}/history/", get(history))
        .route("/v1/batch/", put(update_batch).delete(delete_batch))
        .route("/v1/feedback/", post(feedback))
        .route("/v1/exports/", any(no_model))
        .route("/v1/exports/get/", any(no_model))
        .route("/v1/summary/", any(no_model))
        .route("/v2/entities/user/{name}/profile/", any(no_model))
        .route("/v2/profiles/{*rest}", any(no_model))
        .route("/api/v1/orgs/{*rest}", any(no_platform))
        .route("/api/v1/webhooks/{*rest}", any(no_webhooks))
}

async fn no_model() -> Refusal {
    Refusal::unsupported(
        "no_language_model",
        "exports by a schema, summaries and profiles are texts of mem0's language model; `keepsake \
         export` writes the memories as they are",
    )
}

async fn no_platform() -> Refusal {
    Refusal::unsupported(
        "no_platform",
        "organizations, projects and their settings are parts of mem0's platform; here a key has a \
         tenant, and the operator's profile decides what is remembered",
    )
}

async fn no_webhooks() -> Refusal {
    Refusal::unsupported(
        "no_webhooks",
        "the gateway calls nobody: read the memories topic, which has each change of a memory",
    )
}

/// The clients keep the organization and the project for the paths of the platform.
async fn ping(Extension(caller): Extension<Caller>) -> Json<Value> {
    let tenant = &caller.tenant;
    Json(json!({"status": "ok", "org_id": tenant, "project_id": tenant, "user_email": null}))
}

/// Refuses the options that are given and that Keepsake has no part for.
fn check_unsupported(given: &Map<String, Value>, names: &[(&str, &str)]) -> Result<()> {
    for (name, why) in names {
        let is_given = given.get(*name).is_some_and(|it| !it.is_null() && *it != json!(false));
        if is_given {
            let refusal = Refusal::unsupported("not_supported", format!("{name}: {why}"));
            return Err(Refusal { field: Some((*name).to_owned()), ..refusal });
        }
    }
    Ok(())
}

const MODEL: &str = "needs mem0's language model";

#[derive(Deserialize)]
struct HostedMessages {
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

async fn add(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<HostedMessages>,
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
    check_unsupported(&body.others, &without)?;
    let mut names = Map::new();
    mem0::flatten(body.filters, &mut names)?;
    let mut taken = |name: &str, given| mem0::taken(&mut names, name, given);
    let (user_id, run_id) = (taken("user_id", body.user_id), taken("run_id", body.run_id));
    let (agent_id, app_id) = (taken("agent_id", body.agent_id), taken("app_id", body.app_id));
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
    let added = mem0::Added {
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
    let mut results = mem0::store(&gateway, &caller, added).await?;
    for row in &mut results {
        row["data"] = json!({"memory": row["memory"]});
    }
    let message = "the memories are stored and can be read";
    Ok(Json(json!({"message": message, "status": "SUCCEEDED", "results": results})))
}

/// Reads seconds since 1970, a date, or a time. A date means its end where it is an upper bound.
fn moment(name: &str, value: &Value, is_end: bool) -> Result<Timestamp> {
    let read = match value {
        Value::Number(seconds) => seconds
            .as_f64()
            .and_then(|seconds| Timestamp::from_millisecond((seconds * 1000.0) as i64).ok()),
        Value::String(text) => text.parse().ok().or_else(|| {
            let day: Date = text.parse().ok().filter(|_| text.len() == 10)?;
            let time = if is_end { day.at(23, 59, 59, 999_000_000) } else { day.at(0, 0, 0, 0) };
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        }),
        _ => None,
    };
    read.ok_or_else(|| {
        let what =
            format!("{name} is neither a date like 2026-01-31, nor an RFC 3339 time, nor seconds");
        Refusal::invalid(name, what)
    })
}

#[derive(Deserialize)]
struct HostedQuestion {
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

async fn search(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Json(body): Json<HostedQuestion>,
) -> Answer {
    let without = [
        ("categories", MODEL),
        ("show_expired", "an expired memory is erased"),
        ("reference_date", "a question is read at the time it comes"),
    ];
    check_unsupported(&body.others, &without)?;
    let mut filters = body.filters;
    if !take_dates(&mut filters)?.is_empty() {
        let what = "created_at chooses in the list of memories, not in a search";
        return Err(Refusal::unsupported("not_supported", what));
    }
    if let Some(metadata) = body.metadata {
        filters.insert("metadata".into(), Value::Object(metadata));
    }
    check_filters(&filters)?;
    let searched = mem0::Searched {
        query: body.query,
        filters,
        top_k: Some(body.top_k.unwrap_or(FOUND)),
        threshold: body.threshold,
        include_archived: body.latest_only == Some(false),
        ..mem0::Searched::default()
    };
    let rows = mem0::find(&gateway, &caller, searched).await?;
    let rows: Vec<Value> =
        rows.into_iter().map(|row| chosen(row, body.fields.as_deref())).collect();
    Ok(Json(json!({"results": rows})))
}

/// Refuses the names that stand for no metadata there, which an equality would never meet.
fn check_filters(filters: &Map<String, Value>) -> Result<()> {
    let names = ["updated_at", "timestamp", "categories", "keywords", "memory_ids", "feedback"];
    for (name, value) in filters {
        if names.contains(&name.as_str()) {
            let what = format!("filters.{name} is not supported");
            return Err(Refusal {
                field: Some("filters".into()),
                ..Refusal::unsupported("not_supported", what)
            });
        }
        for part in value.as_array().into_iter().flatten().filter_map(Value::as_object) {
            check_filters(part)?;
        }
    }
    Ok(())
}

fn chosen(mut row: Value, fields: Option<&[String]>) -> Value {
    row["categories"] = json!([]);
    if let (Some(fields), Some(row)) = (fields, row.as_object_mut()) {
        row.retain(|name, _| name == "id" || fields.contains(name));
    }
    row
}

/// A comparison of the time at which a memory was made.
type TimeBound = (String, Timestamp);

/// Takes the comparisons of `created_at` out of filters.
fn take_dates(filters: &mut Map<String, Value>) -> Result<Vec<TimeBound>> {
    let mut bounds = Vec::new();
    if let Some(test) = filters.remove("created_at") {
        let Some(test) = test.as_object() else {
            let what = "filters.created_at takes gt, gte, lt and lte";
            return Err(Refusal::invalid("filters", what));
        };
        for (name, value) in test {
            if !["gt", "gte", "lt", "lte"].contains(&name.as_str()) {
                let what = format!("filters.created_at takes gt, gte, lt and lte, not {name}");
                return Err(Refusal::invalid("filters", what));
            }
            let is_end = ["gt", "lte"].contains(&name.as_str());
            bounds.push((name.clone(), moment("filters", value, is_end)?));
        }
    }
    for part in filters.get_mut("AND").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(part) = part.as_object_mut() {
            bounds.extend(take_dates(part)?);
        }
    }
    Ok(bounds)
}

fn is_within(memory: &Value, bounds: &[TimeBound]) -> bool {
    let at = memory["created_at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    bounds.iter().all(|(test, bound)| {
        at.as_ref().is_some_and(|at| match test.as_str() {
            "gt" => at > bound,
            "gte" => at >= bound,
            "lt" => at < bound,
            _ => at <= bound,
        })
    })
}

#[derive(Deserialize)]
pub(crate) struct Page {
    page: Option<usize>,
    page_size: Option<usize>,
}

impl Page {
    /// The page of a list, with its neighbours as paths.
    pub fn of(&self, path: &str, rows: Vec<Value>) -> Value {
        let page = self.page.unwrap_or(1).max(1);
        let size = self.page_size.unwrap_or(PAGE).max(1);
        let count = rows.len();
        let link = |page: usize| format!("{path}?page={page}&page_size={size}");
        let next = (page.saturating_mul(size) < count).then(|| link(page + 1));
        let previous = (page > 1).then(|| link(page - 1));
        let skipped = (page - 1).saturating_mul(size);
        let results: Vec<Value> = rows.into_iter().skip(skipped).take(size).collect();
        json!({"count": count, "next": next, "previous": previous, "results": results})
    }
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    filters: Map<String, Value>,
    start_date: Option<Value>,
    end_date: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

async fn list(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(page): Query<Page>,
    Json(body): Json<Listed>,
) -> Answer {
    caller.may(Right::Read)?;
    let without = [("categories", MODEL), ("show_expired", "an expired memory is erased")];
    check_unsupported(&body.others, &without)?;
    let mut given = body.filters;
    let mut bounds = take_dates(&mut given)?;
    for (name, test, value) in
        [("start_date", "gte", body.start_date), ("end_date", "lte", body.end_date)]
    {
        if let Some(value) = value.filter(|it| !it.is_null()) {
            bounds.push((test.to_owned(), moment(name, &value, test == "lte")?));
        }
    }
    check_filters(&given)?;
    let mut filters = Map::new();
    mem0::flatten(given, &mut filters)?;
    let user = caller.user(mem0::taken(&mut filters, "user_id", None).as_deref())?;
    let session = mem0::taken(&mut filters, "run_id", None);
    let mut memories = all(&gateway, &user, session.as_deref(), &mem0::texts(filters)?).await?;
    memories.retain(|memory| is_within(memory, &bounds));
    let rows = memories.iter().map(|memory| chosen(mem0::row(&gateway, &user, memory), None));
    Ok(Json(page.of("/v3/memories/", rows.collect())))
}

/// Lists the memories of a user, or of a session, that have all the metadata.
pub(crate) async fn all(
    gateway: &Gateway,
    user: &UserKey,
    session: Option<&str>,
    metadata: &Map<String, Value>,
) -> Result<Vec<Value>> {
    let (mut found, mut read, mut after) = (Vec::new(), 0, Value::Null);
    loop {
        let limit = json!(PAGE);
        let fields = [("limit", &limit), ("session", &json!(session)), ("after", &after)];
        let mut reply = gateway.calls.ask(user, of("list", &fields)).await?;
        let Value::Array(memories) = reply["memories"].take() else { return Ok(found) };
        read += memories.len();
        found.extend(memories.into_iter().filter(|memory| {
            metadata.iter().all(|(name, value)| memory["metadata"].get(name) == Some(value))
        }));
        after = reply["after"].take();
        if after.is_null() {
            return Ok(found);
        }
        if read >= LISTED_MAX {
            let what = format!(
                "this user has more than {LISTED_MAX} memories: POST /v1/keepsake/list goes page by page"
            );
            let status = axum::http::StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Refusal::new(status, "too_large", what));
        }
    }
}

async fn read(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
) -> Answer {
    Ok(Json(one(&gateway, &caller, &named, &id).await?))
}

async fn one(gateway: &Arc<Gateway>, caller: &Caller, named: &Named, id: &str) -> Result<Value> {
    let (user, reply) = mem0::on(gateway, caller, named, "get_memory", json!({"id": id})).await?;
    let memory = &reply["memory"];
    let mut row = chosen(mem0::row(gateway, &user, memory), None);
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
    mem0::change(gateway, caller, named, id, body).await
}

async fn update(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
    Json(body): Json<Value>,
) -> Answer {
    change(&gateway, &caller, &named, &id, &body).await?;
    // A key without the right to read still changes.
    let row = match caller.may(Right::Read) {
        Ok(()) => one(&gateway, &caller, &named, &id).await?,
        Err(_) => json!({"id": id}),
    };
    Ok(Json(row))
}

#[derive(Deserialize)]
struct Deleted {
    delete_linked: Option<bool>,
}

async fn delete_one(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
    Query(deleted): Query<Deleted>,
) -> Answer {
    caller.may(Right::Forget)?;
    let mut left = vec![id];
    let mut erased = 0;
    while let Some(id) = left.pop() {
        let by_id = json!({"id": id});
        if deleted.delete_linked == Some(true) && erased < BATCH_MAX {
            let (_, reply) =
                mem0::on(&gateway, &caller, &named, "get_memory", by_id.clone()).await?;
            let older = reply["memory"]["supersedes"].as_array().cloned().unwrap_or_default();
            left.extend(older.iter().filter_map(|id| id.as_str().map(str::to_owned)));
        }
        let done = mem0::on(&gateway, &caller, &named, "delete_memory", by_id).await;
        // An older version may be erased already, with the newer one or before.
        if erased == 0 || done.as_ref().is_err_and(|refusal| refusal.code != "not_found") {
            done?;
        }
        erased += 1;
    }
    Ok(Json(json!({"message": "Memory deleted successfully!"})))
}

#[derive(Deserialize)]
struct Erased {
    user_id: Option<String>,
    agent_id: Option<String>,
    app_id: Option<String>,
    run_id: Option<String>,
    filters: Option<String>,
}

/// Erases what all the given names have in common.
async fn delete_all(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Erased>,
) -> Answer {
    caller.may(Right::Forget)?;
    if named.filters.is_some() {
        let what = "filters do not choose what is erased: give user_id, agent_id, app_id or run_id";
        return Err(Refusal::invalid("filters", what));
    }
    let names = [&named.user_id, &named.agent_id, &named.app_id, &named.run_id];
    if names.iter().any(|name| name.as_deref() == Some("*")) {
        let what = "* would erase everybody's memories: erase one user after another";
        return Err(Refusal::unsupported("not_supported", what));
    }
    let labels = [("agent_id", named.agent_id), ("app_id", named.app_id)];
    let labels = labels.into_iter().filter_map(|(name, value)| Some((name.into(), value?.into())));
    let labels: Map<String, Value> = labels.collect();
    let user = caller.user(named.user_id.as_deref())?;
    let calls = &gateway.calls;
    if labels.is_empty() {
        let event = match named.run_id {
            Some(session) => of("forget", &[("session", &session.into())]),
            None => of("forget", &[("everything", &true.into())]),
        };
        calls.publish(&user, event).await?;
    } else {
        for memory in all(&gateway, &user, named.run_id.as_deref(), &labels).await? {
            calls.publish(&user, of("forget", &[("memory", &memory["id"])])).await?;
        }
    }
    Ok(Json(json!({"message": "Memories deleted successfully!"})))
}

async fn history(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
) -> Answer {
    let (user, mut rows) = mem0::changes(&gateway, &caller, &named, &id).await?;
    for row in &mut rows {
        row["user_id"] = user.user().into();
        row["input"] = json!([]);
        row["categories"] = json!([]);
    }
    Ok(Json(Value::Array(rows)))
}

#[derive(Deserialize)]
struct Batch {
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
            let missing = || Refusal::invalid("memories", "each entry needs memory_id");
            found.push((memory["memory_id"].as_str().ok_or_else(missing)?, memory));
        }
        Ok(found)
    }
}

/// Says how far a batch came: what is before the entry that fails is done.
fn in_batch(done: usize, refusal: Refusal) -> Refusal {
    let message = format!("entry {done}: {}; the {done} before are done", refusal.message);
    Refusal { message, ..refusal }
}

async fn update_batch(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    Json(batch): Json<Batch>,
) -> Answer {
    let memories = batch.checked()?;
    for (done, (id, memory)) in memories.iter().enumerate() {
        let changed = change(&gateway, &caller, &named, id, memory).await;
        changed.map_err(|refusal| in_batch(done, refusal))?;
    }
    Ok(Json(json!({"message": format!("Successfully updated {} memories", memories.len())})))
}

async fn delete_batch(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    Json(batch): Json<Batch>,
) -> Answer {
    let memories = batch.checked()?;
    for (done, (id, _)) in memories.iter().enumerate() {
        let by_id = json!({"id": id});
        let deleted = mem0::on(&gateway, &caller, &named, "delete_memory", by_id).await;
        deleted.map_err(|refusal| in_batch(done, refusal))?;
    }
    Ok(Json(json!({"message": format!("Successfully deleted {} memories", memories.len())})))
}

#[derive(Deserialize)]
struct Feedback {
    memory_id: String,
    feedback: Option<String>,
    feedback_reason: Option<String>,
}

async fn feedback(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    Json(body): Json<Feedback>,
) -> Answer {
    caller.may(Right::Write)?;
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
    let user = gateway.owners.of(&gateway.calls, &caller, named.user_id.as_deref(), id).await?;
    // The service answers feedback on a memory that is not there by a decision.
    gateway.calls.ask(&user, of("get", &[("memory", &json!(id))])).await?;
    let reason = body.feedback_reason.as_ref();
    let metadata = reason.map_or(Value::Null, |reason| json!({"reason": reason}));
    let fields = [("memory", &json!(id)), ("signal", &signal.into()), ("metadata", &metadata)];
    gateway.calls.publish(&user, of("feedback", &fields)).await?;
    Ok(Json(json!({"id": id, "feedback": body.feedback, "feedback_reason": body.feedback_reason})))
}
