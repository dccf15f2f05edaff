//! The paths of mem0's open-source server, so that mem0's clients work against Keepsake. `run_id`
//! is the session, `agent_id` a metadata field, `score` the relevance.

use crate::filters::{Filters, texts};
use crate::listing;
use crate::owners::owners;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use contract::decode::unknown_fields;
use domain::UserKey;
use gateway::bodies::{Noted, warned};
use gateway::keys::Caller;
use gateway::refusal::{Refusal, Result};
use gateway::state::Gateway;
use gateway::tools::idempotency_key;
use gateway::tools::{By, Tool, of};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

pub(crate) type Shared = State<Arc<Gateway>>;
pub(crate) type Answer = Result<Json<Value>>;

/// Memories in one answer of `GET /memories` without `top_k`, as in mem0.
const LISTED: usize = 100;

/// Names of the text of a memory: versions of mem0 differ.
pub(crate) const TEXTS: [&str; 4] = ["text", "memory", "data", "content"];

#[derive(Clone, Default, Deserialize)]
pub(crate) struct Named {
    pub user_id: Option<String>,
    agent_id: Option<String>,
    app_id: Option<String>,
    run_id: Option<String>,
    top_k: Option<usize>,
    limit: Option<usize>,
    /// The key of a call that may come twice.
    #[serde(skip)]
    pub key: Option<String>,
}

impl Named {
    pub fn with_key(self, headers: &HeaderMap) -> Named {
        Named { key: idempotency_key(headers).map(str::to_owned), ..self }
    }

    /// The same for one entry of a batch, each of which is an event with its own id.
    pub fn of_entry(&self, n: usize) -> Named {
        Named { key: self.key.as_ref().map(|key| format!("{key}/{n}")), ..self.clone() }
    }
}

#[derive(Default, Deserialize)]
pub(crate) struct Added {
    pub messages: Value,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    pub run_id: Option<String>,
    pub metadata: Option<Map<String, Value>>,
    pub infer: Option<bool>,
    /// The key of a call that may come twice.
    #[serde(skip)]
    pub key: Option<String>,
    /// Time of the messages, and end of their validity. mem0's server has neither.
    #[serde(skip)]
    pub at: Value,
    #[serde(skip)]
    pub expires_at: Value,
}

#[derive(Default, Deserialize)]
pub(crate) struct Searched {
    pub query: String,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    pub run_id: Option<String>,
    #[serde(default)]
    pub filters: Map<String, Value>,
    #[serde(alias = "limit")]
    pub top_k: Option<u64>,
    pub threshold: Option<f64>,
    #[serde(skip)]
    pub include_archived: bool,
}

pub(crate) async fn add(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Noted(body, warnings): Noted<Added>,
) -> Answer {
    let key = idempotency_key(&headers).map(str::to_owned);
    let results = store(&gateway, &caller, Added { key, ..body }).await?;
    Ok(warned(json!({"results": results}), warnings))
}

/// Publishes messages and returns a row for each memory that they made or changed.
pub(crate) async fn store(gateway: &Gateway, caller: &Caller, body: Added) -> Result<Vec<Value>> {
    let user = caller.user(body.user_id.as_deref())?;
    let mut metadata = texts(body.metadata.unwrap_or_default())?;
    if let Some(agent) = body.agent_id {
        metadata.insert("agent_id".into(), agent.into());
    }
    let metadata = if metadata.is_empty() { Value::Null } else { Value::Object(metadata) };
    let session = json!(body.run_id);
    let infers = body.infer.unwrap_or(true);
    let mut results = Vec::new();
    for (n, message) in messages(body.messages)?.into_iter().enumerate() {
        let content = &message["content"];
        let id = json!(body.key.as_ref().map(|key| format!("{key}/{n}")));
        let event = if infers {
            of(
                "turn",
                &[
                    ("role", &message["role"]),
                    ("content", content),
                    ("session", &session),
                    ("speaker", &message["name"]),
                    ("metadata", &metadata),
                    ("at", &body.at),
                    ("id", &id),
                ],
            )
        } else {
            of(
                "remember",
                &[
                    ("content", content),
                    ("session", &session),
                    ("metadata", &metadata),
                    ("at", &body.at),
                    ("expires_at", &body.expires_at),
                    ("id", &id),
                ],
            )
        };
        let by = By { calls: &gateway.calls, caller, user: &user, key: None };
        let receipt = by.publish(event).await?;
        for decision in receipt["decisions"].as_array().into_iter().flatten() {
            results.extend(added(gateway, &user, decision, content));
        }
    }
    Ok(results)
}

/// Shows a decision that kept something as mem0's event. A dropped candidate has no row there.
fn added(gateway: &Gateway, user: &UserKey, decision: &Value, content: &Value) -> Option<Value> {
    let event = match decision["outcome"].as_str()? {
        "kept" | "superseded" | "duplicate" => "ADD",
        "merged" => "UPDATE",
        _ => return None,
    };
    let id = decision["memory"].as_str()?;
    owners(gateway).note(user, id);
    // The operator may have switched the texts of decisions off.
    let memory = decision["candidate"].as_str().map_or(content.clone(), Into::into);
    Some(json!({"id": id, "memory": memory, "event": event}))
}

/// Reads `messages`: a text, a message, or a list of messages. Parts of a message that are no text
/// are left out.
fn messages(value: Value) -> Result<Vec<Value>> {
    let list = match value {
        Value::String(text) => vec![json!({"role": "user", "content": text})],
        Value::Object(one) => vec![Value::Object(one)],
        Value::Array(list) if (1..=100).contains(&list.len()) => list,
        _ => {
            return Err(Refusal::invalid(
                "messages",
                "messages must be a list of 1 to 100 messages",
            ));
        }
    };
    list.into_iter()
        .map(|mut message| {
            if let Some(parts) = message["content"].as_array() {
                let texts: Vec<&str> =
                    parts.iter().filter_map(|part| part["text"].as_str()).collect();
                message["content"] = texts.join("\n").into();
            }
            if message["content"].is_string() {
                return Ok(message);
            }
            Err(Refusal::invalid("messages", "each message needs a text in content"))
        })
        .collect()
}

pub(crate) async fn search(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Noted(mut body, warnings): Noted<Searched>,
) -> Answer {
    let mut filters = Filters::read(std::mem::take(&mut body.filters))?;
    filters.of_user(body.user_id.take())?;
    filters.of_run(body.run_id.take());
    filters.labelled("agent_id", body.agent_id.take());
    let results = find(&gateway, &caller, &filters, body).await?;
    Ok(warned(json!({"results": results}), warnings))
}

pub(crate) async fn find(
    gateway: &Gateway,
    caller: &Caller,
    filters: &Filters,
    body: Searched,
) -> Result<Vec<Value>> {
    let user = caller.user(filters.user.as_deref())?;
    let request = of(
        "recall",
        &[
            ("query", &body.query.into()),
            ("limit", &json!(body.top_k)),
            ("where", &filters.conditions()),
            ("min_relevance", &json!(body.threshold)),
            ("session", &json!(filters.run)),
            ("include_archived", &if body.include_archived { json!(true) } else { Value::Null }),
            ("format", &"none".into()),
        ],
    );
    let reply = gateway.calls.ask(&user, request).await?;
    // A question that asks several things is answered by more than `top_k` memories.
    let most = body.top_k.map_or(usize::MAX, |top_k| top_k as usize);
    let memories = reply["memories"].as_array().into_iter().flatten().take(most);
    Ok(memories.map(|memory| row(gateway, &user, memory)).collect())
}

pub(crate) async fn list(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
) -> Answer {
    let mut filters = Filters::default();
    filters.of_run(named.run_id);
    filters.labelled("agent_id", named.agent_id);
    filters.labelled("app_id", named.app_id);
    let user = caller.user(named.user_id.as_deref())?;
    let count = named.top_k.or(named.limit).unwrap_or(LISTED);
    let rows = listed(&gateway, &user, &filters, 0, count).await?.0;
    Ok(Json(json!({"results": rows})))
}

/// Returns `count` memories behind the first `skipped`, and the number of all that meet the filters.
pub(crate) async fn listed(
    gateway: &Gateway,
    user: &UserKey,
    filters: &Filters,
    skipped: usize,
    count: usize,
) -> Result<(Vec<Value>, usize)> {
    let fields = [("where", &filters.conditions()), ("session", &json!(filters.run))];
    let listed = listing::read(gateway, user, &fields, skipped, count).await?;
    let rows = listed.memories.iter().map(|memory| row(gateway, user, memory));
    Ok((rows.collect(), listed.total))
}

/// A memory in the form of mem0.
pub(crate) fn row(gateway: &Gateway, user: &UserKey, memory: &Value) -> Value {
    owners(gateway).note(user, memory["id"].as_str().unwrap_or_default());
    let metadata = memory["metadata"].as_object().cloned().unwrap_or_default();
    let updated = &memory["updated_at"];
    let mut row = json!({
        "id": memory["id"],
        "memory": memory["content"],
        "user_id": user.user(),
        "agent_id": metadata.get("agent_id"),
        "app_id": metadata.get("app_id"),
        "run_id": memory["session"],
        "metadata": metadata,
        "created_at": memory["created_at"],
        "updated_at": if updated.is_null() { &memory["valid_from"] } else { updated },
    });
    let score = if memory["relevance"].is_null() { &memory["score"] } else { &memory["relevance"] };
    if !score.is_null() {
        row["score"] = score.clone();
    }
    row
}

pub(crate) async fn delete_all(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Answer {
    let user = caller.user(named.user_id.as_deref())?;
    for (name, given) in [("agent_id", &named.agent_id), ("app_id", &named.app_id)] {
        if given.is_some() {
            let what =
                format!("{name} cannot choose what is erased: give run_id, or user_id alone");
            return Err(Refusal::invalid(name, what));
        }
    }
    let event = match named.run_id {
        Some(session) => of("forget", &[("session", &session.into())]),
        None => of("forget", &[("everything", &true.into())]),
    };
    let key = idempotency_key(&headers);
    By { calls: &gateway.calls, caller: &caller, user: &user, key }.publish(event).await?;
    Ok(Json(json!({"message": "All relevant memories deleted"})))
}

/// Runs a tool on the memory of a path.
pub(crate) async fn on(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    named: &Named,
    name: &str,
    arguments: Value,
) -> Result<(UserKey, Value)> {
    let tool = Tool::named(name).ok_or_else(|| Refusal::not_found("no such tool"))?;
    caller.may(tool.right)?;
    let id = arguments["id"].as_str().unwrap_or_default();
    let (key, named) = (named.key.as_deref(), named.user_id.as_deref());
    let user = owners(gateway).of(&gateway.calls, caller, named, id).await?;
    let by = By { calls: &gateway.calls, caller, user: &user, key };
    let result = tool.call(&by, &arguments).await?;
    Ok((user, result))
}

pub(crate) async fn read(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
) -> Answer {
    let (user, reply) = on(&gateway, &caller, &named, "get_memory", json!({"id": id})).await?;
    Ok(Json(row(&gateway, &user, &reply["memory"])))
}

pub(crate) async fn update(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Answer {
    change(&gateway, &caller, &named.with_key(&headers), &id, &body).await?;
    let warnings = unknown_fields(&body, &[&TEXTS, &["metadata"]]);
    Ok(warned(json!({"message": "Memory updated successfully"}), warnings))
}

pub(crate) async fn change(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    named: &Named,
    id: &str,
    body: &Value,
) -> Result<()> {
    let mut arguments = json!({"id": id});
    let text = TEXTS.iter().find_map(|name| body[*name].as_str());
    if let Some(text) = text {
        arguments["text"] = text.into();
    }
    if let Some(metadata) = body["metadata"].as_object() {
        arguments["metadata"] = Value::Object(texts(metadata.clone())?);
    }
    if arguments.as_object().is_some_and(|fields| fields.len() == 1) {
        return Err(Refusal::invalid("text", "give text or metadata"));
    }
    on(gateway, caller, named, "update_memory", arguments).await?;
    Ok(())
}

pub(crate) async fn delete(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
) -> Answer {
    let named = named.with_key(&headers);
    on(&gateway, &caller, &named, "delete_memory", json!({"id": id})).await?;
    Ok(Json(json!({"message": "Memory deleted successfully"})))
}

pub(crate) async fn history(
    State(gateway): Shared,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(named): Query<Named>,
) -> Answer {
    let (_, rows) = changes(&gateway, &caller, &named, &id).await?;
    Ok(Json(Value::Array(rows)))
}

/// The contents of a memory one after another: mem0 has a row for each change.
pub(crate) async fn changes(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    named: &Named,
    id: &str,
) -> Result<(UserKey, Vec<Value>)> {
    let (user, reply) = on(gateway, caller, named, "memory_history", json!({"id": id})).await?;
    let memory = &reply["memory"];
    let earlier = reply["history"].as_array().cloned().unwrap_or_default();
    let mut contents: Vec<&Value> = earlier.iter().map(|revision| &revision["content"]).collect();
    contents.push(&memory["content"]);
    let rows: Vec<Value> = contents
        .iter()
        .enumerate()
        .map(|(n, content)| {
            let before = n.checked_sub(1);
            let old = before.map(|before| contents[before]);
            let changed = before.map_or(&memory["created_at"], |before| &earlier[before]["until"]);
            json!({
                "id": format!("{id}:{n}"),
                "memory_id": id,
                "old_memory": old,
                "new_memory": content,
                "event": if n == 0 { "ADD" } else { "UPDATE" },
                "created_at": memory["created_at"],
                "updated_at": changed,
                "is_deleted": false,
            })
        })
        .collect();
    Ok((user, rows))
}
