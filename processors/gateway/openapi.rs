//! The OpenAPI 3.1 document of the gateway, made from the schemas of the contract: they are JSON
//! Schema already, so the bodies of Keepsake's own calls are the messages themselves.

use crate::dialect::Dialect;
use crate::route::{Answer, Needs, Route};
use crate::routes;
use serde_json::{Map, Value, json};

macro_rules! schemas {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../schemas/", $name, ".json")))),*]
    };
}

const SCHEMAS: [(&str, &str); 24] = schemas!["about" "about-reply" "applied" "common" "decision" "duplicates" "duplicates-reply" "erasure" "error"
    "explain" "explained" "feedback" "forget" "get" "list" "listed" "memory" "recall" "recalled"
    "remember" "stats" "stats-reply" "turn" "update"];

/// Each own call with the schema of the reply.
const OWN: [(&str, &str); 12] = [
    ("turn", "applied"),
    ("remember", "applied"),
    ("update", "applied"),
    ("forget", "applied"),
    ("feedback", "applied"),
    ("recall", "recalled"),
    ("about", "about-reply"),
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

/// Writes the document of the gateway's own calls and of those of the dialect.
pub fn document(dialect: &Dialect) -> Value {
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
    for (method, path, summary, names) in dialect.calls {
        let paths = paths.entry(*path).or_insert_with(|| json!({}));
        paths[*method] = of_dialect(method, path, summary, names);
    }
    describe_needs(dialect, &mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Keepsake gateway", "version": env!("CARGO_PKG_VERSION"),
            "description": "Long-term memory over HTTP. MCP is at /mcp/{user}/. A key has a tenant, some \
                of the rights read, write, forget and admin, and perhaps one user. A key for one user \
                changes and erases no memory of the whole tenant."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer", "description": "A key, or with \
                gateway.oauth.issuer a token (JWT) of that issuer, for one user. \
                /.well-known/oauth-protected-resource names the issuer and the scopes."},
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
fn describe_needs(dialect: &Dialect, paths: &mut Map<String, Value>) {
    for route in routes::all(dialect) {
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
pub fn named(route: &Route) -> String {
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

fn of_dialect(method: &str, path: &str, summary: &str, names: &[&str]) -> Value {
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
    use crate::dialect::LACKING_MEM0;

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

    #[test]
    fn every_reference_of_the_document_leads_to_something() {
        let document = document(&LACKING_MEM0);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for to in found {
            let pointer = to.strip_prefix('#').unwrap_or(&to);
            assert!(document.pointer(pointer).is_some(), "{to}");
        }
    }
}
