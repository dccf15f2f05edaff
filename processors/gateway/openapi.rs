//! The OpenAPI 3.1 document of the gateway, made from the schemas of the contract: they are JSON
//! Schema already, so the bodies of Keepsake's own calls are the messages themselves.

use crate::routes::{Answer, Needs, ROUTES, Route};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

pub static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

macro_rules! schemas {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../schemas/", $name, ".json")))),*]
    };
}

const SCHEMAS: [(&str, &str); 22] = schemas!["applied" "common" "decision" "duplicates" "duplicates-reply" "erasure" "error"
    "explain" "explained" "feedback" "forget" "get" "list" "listed" "memory" "recall" "recalled"
    "remember" "stats" "stats-reply" "turn" "update"];

/// Each own call with the schema of its reply.
const OWN: [(&str, &str); 11] = [
    ("turn", "applied"),
    ("remember", "applied"),
    ("update", "applied"),
    ("forget", "applied"),
    ("feedback", "applied"),
    ("recall", "recalled"),
    ("list", "listed"),
    ("get", "memory"),
    ("explain", "explained"),
    ("stats", "stats-reply"),
    ("duplicates", "duplicates-reply"),
];

/// Name, purpose and media type of each call that returns many lines.
const STREAMS: [(&str, &str, &str); 3] = [
    (
        "decisions",
        "Decisions of a user as they are made, or of the whole tenant with the right admin",
        "text/event-stream",
    ),
    ("erasures", "Receipts of what was erased of a user", "application/json"),
    ("export", "The memories of a user, in the form of `keepsake import`", "application/jsonl"),
];

/// Names of a query with their types.
type Names = &'static [(&'static str, &'static str)];

/// Path below `/v1/keepsake/`, purpose and query of each call that only the explorer needs.
const EXPLORER: [(&str, &str, Names); 8] = [
    ("session", "The caller: tenant, user, rights; and the profiles that a recall may name", &[]),
    (
        "users",
        "The users of the tenant with their numbers of memories, by name; query is a part of the name",
        &[("query", "string"), ("limit", "integer"), ("after", "string")],
    ),
    (
        "decisions/past",
        "Decisions of a user, newest first, or of the whole tenant with the right admin; outcome lists \
         those that are wanted, with commas; partition names a shard",
        &[
            ("user", "string"),
            ("outcome", "string"),
            ("partition", "integer"),
            ("limit", "integer"),
            ("before", "string"),
        ],
    ),
    (
        "event",
        "An event as it was sent, redacted, while the topics have it and the decisions about it. Not one \
         that was forgotten or is off the record. Needs the right `admin`",
        &[("partition", "integer"), ("offset", "integer")],
    ),
    (
        "tenants",
        "The tenants that the caller may choose with the header X-Keepsake-Tenant: all of the service if \
         the gateway asks for no keys, otherwise that of the key",
        &[],
    ),
    (
        "shards",
        "How far each shard has come, and who serves it; needs the right admin. A key sees whether a \
         shard is behind and the dead letters of its tenant; numbers and hosts of all tenants only the \
         operator of a gateway without keys",
        &[],
    ),
    ("shards/answers", "Which shards answer, and why others do not; needs the right admin", &[]),
    (
        "dead-letters",
        "Dead letters, newest first; needs the right admin",
        &[("limit", "integer"), ("before", "string")],
    ),
];

/// Method, path and purpose of each path of mem0's server, and the names that it takes: those of a
/// body for POST and PUT, of the query otherwise; an asterisk marks the required ones.
const MEM0: [(&str, &str, &str, &[&str]); 8] = [
    (
        "post",
        "/memories",
        "Add messages, or store them as they are with infer: false",
        &["messages*", "user_id", "agent_id", "run_id", "metadata", "infer"],
    ),
    (
        "get",
        "/memories",
        "List a user's memories",
        &["user_id", "agent_id", "app_id", "run_id", "top_k"],
    ),
    ("delete", "/memories", "Erase a user's memories", &["user_id", "run_id"]),
    (
        "post",
        "/search",
        "Find the memories that answer a question; filters as in /v3/memories/",
        &["query*", "user_id", "agent_id", "run_id", "filters", "top_k", "threshold"],
    ),
    ("get", "/memories/{id}", "Read one memory", &["user_id"]),
    ("put", "/memories/{id}", "Change one memory", &["text", "metadata"]),
    ("delete", "/memories/{id}", "Erase one memory", &["user_id"]),
    ("get", "/memories/{id}/history", "Read the changes of one memory", &["user_id"]),
];

/// The paths of the clients of mem0's hosted service, in the same form.
const HOSTED: [(&str, &str, &str, &[&str]); 17] = [
    ("get", "/v1/ping/", "Check the key; organization and project are the tenant", &[]),
    (
        "post",
        "/v3/memories/add/",
        "Add messages, or store them as they are with infer: false, as only then with expiration_date",
        &[
            "messages*",
            "user_id",
            "agent_id",
            "app_id",
            "run_id",
            "metadata",
            "infer",
            "filters",
            "timestamp",
            "expiration_date",
        ],
    ),
    (
        "post",
        "/v3/memories/",
        "List a user's memories. filters have AND, OR, NOT, all operators and created_at; user_id stands \
         at the top or inside AND. The private memories of a session are listed where run_id names one \
         session there. page and page_size are in the query",
        &["filters*", "start_date", "end_date"],
    ),
    (
        "post",
        "/v3/memories/search/",
        "Find the memories that answer a question; filters as in the list. rerank and keyword_search \
         change nothing: each search ranks by meaning and by words, and by the cross-encoder if the \
         operator has one. latest_only false also finds replaced and archived memories",
        &["query*", "filters*", "metadata", "top_k", "threshold", "fields", "latest_only"],
    ),
    (
        "delete",
        "/v1/memories/",
        "Erase what the given names have in common",
        &["user_id", "agent_id", "app_id", "run_id"],
    ),
    ("get", "/v1/memories/{id}/", "Read one memory", &["user_id"]),
    ("put", "/v1/memories/{id}/", "Change one memory", &["text", "metadata"]),
    (
        "delete",
        "/v1/memories/{id}/",
        "Erase one memory, with delete_linked also those that it replaced",
        &["user_id", "delete_linked"],
    ),
    ("get", "/v1/memories/{id}/history/", "Read the changes of one memory", &["user_id"]),
    ("put", "/v1/batch/", "Change up to 1,000 memories, one after another", &["memories*"]),
    ("delete", "/v1/batch/", "Erase the memories of the body, one after another", &[]),
    (
        "post",
        "/v1/feedback/",
        "POSITIVE confirms a memory, NEGATIVE is irrelevant, VERY_NEGATIVE wrong",
        &["memory_id*", "feedback*", "feedback_reason"],
    ),
    (
        "get",
        "/v1/entities/",
        "List the users, agents, apps and runs that have active memories. Reads the whole memories \
         topic, which takes seconds at a million memories; too_large if the tenant has more than \
         100,000",
        &["page", "page_size"],
    ),
    (
        "delete",
        "/v2/entities/{kind}/{name}/",
        "Erase a user, or all memories of an agent, an app or a run; also at /v1/entities/. An agent, an \
         app or a run of all users needs the right admin, also where DELETE /v1/memories/ names no user",
        &[],
    ),
    ("post", "/v1/exports/", "501 no_language_model, as /v1/summary/ and /v2/profiles/", &[]),
    ("get", "/api/v1/orgs/{rest}", "501 no_platform: a key has a tenant", &[]),
    ("get", "/api/v1/webhooks/{rest}", "501 no_webhooks: read the memories topic", &[]),
];

fn document() -> Value {
    let mut schemas = Map::new();
    for (name, text) in SCHEMAS {
        let mut schema: Value = serde_json::from_str(text).unwrap_or_default();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$id");
            fields.remove("$schema");
        }
        schemas.insert(name.to_owned(), linked(schema, name));
    }
    let mut paths = own_paths(&schemas);
    for (method, path, summary, names) in MEM0.into_iter().chain(HOSTED) {
        let paths = paths.entry(path).or_insert_with(|| json!({}));
        paths[method] = mem0(method, path, summary, names);
    }
    describe_needs(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Keepsake gateway", "version": env!("CARGO_PKG_VERSION"),
            "description": "Long-term memory over HTTP. MCP is at /mcp/{user}/. A key has a tenant, some \
                of the rights read, write, forget and admin, and perhaps one user. A key for one user \
                changes and erases no memory of the whole tenant."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}},
        "security": [{"bearer": []}, {"key": []}, {}],
    })
}

/// The calls and streams of Keepsake's own dialect.
fn own_paths(schemas: &Map<String, Value>) -> Map<String, Value> {
    let mut paths = Map::new();
    for (call, reply) in OWN {
        let post = json!({
            "summary": schemas[call]["title"],
            "operationId": call,
            "parameters": if reply == "applied" { json!([idempotency()]) } else { json!([]) },
            "requestBody": {"required": true, "content": {"application/json": {"schema":
                {"$ref": format!("#/components/schemas/{call}")}}}},
            "responses": responses(json!({"$ref": format!("#/components/schemas/{reply}")})),
        });
        paths.insert(format!("/v1/keepsake/{call}"), json!({"post": post}));
    }
    for (name, summary, kind) in STREAMS {
        let user = json!({"name": "user", "in": "query", "schema": {"type": "string"}});
        let mut get =
            json!({"summary": summary, "operationId": name, "responses": responses(json!({}))});
        get["parameters"] = json!([user]);
        get["responses"]["200"]["content"] = json!({kind: {}});
        paths.insert(format!("/v1/keepsake/{name}"), json!({"get": get}));
    }
    for (path, summary, names) in EXPLORER {
        let parameters = names.iter().map(|(name, kind)| {
            json!({"name": name, "in": "query", "required": path == "event",
                "schema": {"type": kind}})
        });
        let get = json!({"summary": summary, "operationId": path.replace('/', "-"),
            "parameters": parameters.collect::<Vec<_>>(), "responses": responses(json!({}))});
        paths.insert(format!("/v1/keepsake/{path}"), json!({"get": get}));
    }
    paths.insert("/v1/keepsake/dead-letters/redrive".to_owned(), json!({"post": redrive()}));
    paths.insert("/v1/keepsake/import".to_owned(), json!({"post": import()}));
    paths
}

/// Adds the right that each route needs, and how a call without effect is answered.
fn describe_needs(paths: &mut Map<String, Value>) {
    for route in ROUTES {
        let Some(call) = paths.get_mut(&named(route)).and_then(|path| path.get_mut(route.method))
        else {
            continue;
        };
        if let Some(needs) = needed(route) {
            call["description"] = needs.into();
        }
        if route.answer == Answer::Receipt {
            call["responses"]["409"] = json!({"description": "nothing was done: refused by the \
                service, or id_used: the id was used by another event", "content":
                call["responses"]["default"]["content"]});
        }
    }
}

/// The path of a route as the document writes it.
fn named(route: &Route) -> String {
    route.path.replace("{*", "{")
}

fn needed(route: &Route) -> Option<&'static str> {
    match route.needs {
        Needs::Nothing => None,
        Needs::Key => Some("Any key."),
        Needs::Read => Some("Needs the right read."),
        Needs::Write => Some("Needs the right write."),
        Needs::Forget => Some("Needs the right forget."),
        Needs::Admin => Some("Needs the right admin."),
        Needs::Import => Some("Needs the right admin, or write with a key for one user."),
    }
}

fn idempotency() -> Value {
    json!({"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"},
        "description": "Becomes the id of the event: a call that comes twice has one effect. Entry n of \
            a batch has the id key/n. Not for an erasure by agent, or of an app or a run of all users"})
}

fn redrive() -> Value {
    let integer = json!({"type": "integer", "minimum": 0});
    let place = json!({"type": "object", "required": ["partition", "offset"],
        "additionalProperties": false, "properties": {"partition": integer, "offset": integer}});
    json!({
        "summary": "Send the original records of dead letters again; needs the right admin",
        "operationId": "redrive",
        "requestBody": {"required": true, "content": {"application/json": {"schema":
            {"type": "object", "required": ["letters"], "additionalProperties": false,
                "properties": {"letters": {"type": "array", "minItems": 1, "items": place}}}}}},
        "responses": responses(json!({})),
    })
}

fn import() -> Value {
    json!({
        "summary": "Take the memories of an export, or say with preview what that would do; needs the \
                    right admin, or write with a key for one user",
        "operationId": "import",
        "parameters": [{"name": "preview", "in": "query", "schema": {"type": "boolean"}}],
        "requestBody": {"required": true, "content": {"application/jsonl": {}}},
        "responses": responses(json!({})),
    })
}

fn responses(good: Value) -> Value {
    json!({
        "200": {"description": "done", "content": {"application/json": {"schema": good}}},
        "default": {"description": "refused by name", "content": {"application/json": {"schema":
            {"type": "object", "required": ["error"], "properties": {"error": {"type": "object",
                "required": ["code", "message"], "properties": {"code": {"type": "string"},
                "message": {"type": "string"}, "field": {"type": "string"}}}}}}}},
    })
}

fn mem0(method: &str, path: &str, summary: &str, names: &[&str]) -> Value {
    let plain = names.iter().map(|name| name.trim_end_matches('*'));
    let mut parameters = Vec::new();
    for name in ["id", "kind", "name", "rest"] {
        if path.contains(&format!("{{{name}}}")) {
            let mut schema = json!({"type": "string"});
            if name == "id" {
                schema["format"] = "uuid".into();
            }
            let place = json!({"name": name, "in": "path", "required": true, "schema": schema});
            parameters.push(place);
        }
    }
    let mut call = json!({"summary": summary, "responses": responses(json!({}))});
    if ["post", "put"].contains(&method) {
        let properties: Map<String, Value> =
            plain.map(|name| (name.to_owned(), json!({}))).collect();
        let required: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix('*')).collect();
        call["requestBody"] = json!({"required": true, "content": {"application/json": {"schema":
            {"type": "object", "properties": properties, "required": required}}}});
    } else {
        parameters.extend(plain.map(|name| json!({"name": name, "in": "query", "schema": {}})));
    }
    let is_list = ["/search", "/v3/memories/search/", "/v3/memories/"].contains(&path);
    if method != "get" && !is_list && !path.contains("exports") {
        parameters.push(idempotency());
    }
    call["parameters"] = Value::Array(parameters);
    call
}

/// Turns a reference to another file of the contract into one to the document's components.
fn linked(value: Value, own: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match value {
                Value::String(to) if name == "$ref" => {
                    let (file, part) = to.split_once('#').unwrap_or((&to, ""));
                    let file = file.strip_suffix(".json").filter(|it| !it.is_empty());
                    let to = format!("#/components/schemas/{}{part}", file.unwrap_or(own));
                    (name, Value::String(to))
                }
                value => (name, linked(value, own)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(|it| linked(it, own)).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
                    found.push(to.to_owned());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(all) => all.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    /// A path with and without a slash at its end is one; so is the older path of an entity.
    fn is_another_spelling(route: &Route) -> bool {
        let plain = route.path.trim_end_matches('/');
        plain != route.path && ROUTES.iter().any(|other| other.path == plain)
            || route.path.starts_with("/v1/entities/{kind}")
    }

    #[test]
    fn the_document_has_the_calls_of_the_table() {
        let document = document();
        let of = |route: &Route| &document["paths"][named(route)];
        for route in ROUTES {
            let is_told = route.needs != Needs::Nothing
                && route.answer != Answer::Unsupported
                && !route.path.starts_with("/mcp")
                && !is_another_spelling(route);
            let call = &of(route)[route.method];
            assert!(!is_told || call["description"].is_string(), "{} {}", route.method, route.path);
        }
        for (path, calls) in document["paths"].as_object().expect("paths") {
            for method in calls.as_object().expect("methods").keys() {
                let is_there = ROUTES.iter().any(|route| {
                    named(route) == *path && (route.method == method || route.method == "any")
                });
                assert!(is_there, "{method} {path}");
            }
        }
    }

    #[test]
    fn every_reference_of_the_document_leads_to_something() {
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for to in found {
            let pointer = to.strip_prefix('#').unwrap_or(&to);
            assert!(document.pointer(pointer).is_some(), "{to}");
        }
    }
}
