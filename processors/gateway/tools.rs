//! The twelve operations on one user's memories, as events and requests. MCP offers each as a tool.

use crate::calls::Calls;
use crate::keys::{Caller, Permission};
use crate::outcome;
use crate::refusal::{Refusal, Result};
use axum::http::HeaderMap;
use domain::UserKey;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The name of a tool, the arguments, and the right that a caller needs.
pub struct Tool {
    pub name: &'static str,
    pub description: &'static str,
    pub right: Permission,
    pub destructive: bool,
    pub idempotent: bool,
    /// JSON Schema of the arguments' properties.
    properties: &'static str,
    required: &'static [&'static str],
}

/// The caller of an operation and the user whose memory it is about.
pub struct By<'a> {
    pub calls: &'a Calls,
    pub caller: &'a Caller,
    pub user: &'a UserKey,
    /// The id of the event, if the call may come twice.
    pub key: Option<&'a str>,
}

const TEXT: &str = r#"{"type":"string"}"#;

pub static TOOLS: [Tool; 12] = [
    Tool {
        name: "add_memory",
        description: "Store one memory about the user as it is.",
        right: Permission::Write,
        destructive: false,
        idempotent: false,
        properties: r#"{"text":T,"metadata":M,"kind":T}"#,
        required: &["text"],
    },
    Tool {
        name: "add_turns",
        description: "Add turns of a conversation; what is worth remembering is kept.",
        right: Permission::Write,
        destructive: false,
        idempotent: false,
        properties: r#"{"turns":{"type":"array","minItems":1,"maxItems":100,"items":{"type":"object",
            "properties":{"role":{"type":"string","enum":["user","assistant","system","tool"]},
            "content":T,"speaker":T},"required":["role","content"]}},"session":T}"#,
        required: &["turns"],
    },
    Tool {
        name: "search_memories",
        description: "Find the user's memories that answer a question, best first.",
        right: Permission::Read,
        destructive: false,
        idempotent: true,
        properties: r#"{"query":T,"limit":{"type":"integer","minimum":1},"filters":M,
            "min_relevance":{"type":"number","minimum":0,"maximum":1},
            "as_of":{"type":"string","format":"date-time"},"from":T,"to":T}"#,
        required: &["query"],
    },
    Tool {
        name: "get_memories",
        description: "List the user's memories, newest first.",
        right: Permission::Read,
        destructive: false,
        idempotent: true,
        properties: r#"{"session":T,"kinds":{"type":"array","items":T},"filters":M,
            "limit":{"type":"integer","minimum":1},"after":T}"#,
        required: &[],
    },
    Tool {
        name: "forget_memories",
        description: "Erase for good the memories that mean a text, such as: the memory about using MongoDB.",
        right: Permission::Forget,
        destructive: true,
        idempotent: true,
        properties: r#"{"query":T}"#,
        required: &["query"],
    },
    Tool {
        name: "memory_stats",
        description: "Count the user's memories, and show their mean importance and the oldest; on request \
            also list the latest sessions.",
        right: Permission::Read,
        destructive: false,
        idempotent: true,
        properties: r#"{"sessions":{"type":"boolean"}}"#,
        required: &[],
    },
    Tool {
        name: "get_memory",
        description: "Read one memory by its id.",
        right: Permission::Read,
        destructive: false,
        idempotent: true,
        properties: r#"{"id":T}"#,
        required: &["id"],
    },
    Tool {
        name: "memory_history",
        description: "Read the earlier contents of one memory.",
        right: Permission::Read,
        destructive: false,
        idempotent: true,
        properties: r#"{"id":T}"#,
        required: &["id"],
    },
    Tool {
        name: "explain_memory",
        description: "Show why a memory was kept, with its numbers, and what happened to it since.",
        right: Permission::Read,
        destructive: false,
        idempotent: true,
        properties: r#"{"id":T}"#,
        required: &["id"],
    },
    Tool {
        name: "update_memory",
        description: "Change one memory: its text, metadata or confidence, or hide it from all answers; its history is kept.",
        right: Permission::Write,
        destructive: true,
        idempotent: true,
        properties: r#"{"id":T,"text":T,"metadata":M,
            "confidence":{"type":"number","minimum":0,"maximum":1},"enabled":{"type":"boolean"}}"#,
        required: &["id"],
    },
    Tool {
        name: "delete_memory",
        description: "Erase one memory for good.",
        right: Permission::Forget,
        destructive: true,
        idempotent: true,
        properties: r#"{"id":T}"#,
        required: &["id"],
    },
    Tool {
        name: "delete_all_memories",
        description: "Erase all memories of the user for good.",
        right: Permission::Forget,
        destructive: true,
        idempotent: true,
        properties: "{}",
        required: &[],
    },
];

impl Tool {
    pub fn named(name: &str) -> Option<&'static Tool> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    pub fn schema(&self) -> Map<String, Value> {
        let metadata = r#"{"type":"object","additionalProperties":{"type":"string"}}"#;
        let text = self.properties.replace(":T", &format!(":{TEXT}"));
        let text = text.replace(":M", &format!(":{metadata}"));
        let mut properties: Value = serde_json::from_str(&text).unwrap_or_default();
        describe(&mut properties);
        let schema = json!({"type": "object", "properties": properties,
            "required": self.required, "additionalProperties": false});
        schema.as_object().cloned().unwrap_or_default()
    }

    /// Refuses an argument that the tool does not take, or that is missing.
    fn checked(&self, arguments: &Value) -> Result<()> {
        let schema = self.schema();
        for name in arguments.as_object().into_iter().flat_map(Map::keys) {
            if schema["properties"].get(name).is_none() {
                return Err(Refusal::invalid(name, format!("{} takes no {name}", self.name)));
            }
        }
        for name in self.required {
            if arguments[*name].is_null() {
                return Err(Refusal::invalid(name, format!("{} needs {name}", self.name)));
            }
        }
        Ok(())
    }

    /// Runs the operation and returns the result without the fields that only Kafka clients need.
    pub async fn call(&self, by: &By<'_>, it: &Value) -> Result<Value> {
        self.checked(it)?;
        let (calls, user) = (by.calls, by.user);
        let memory = &it["id"];
        match self.name {
            "add_memory" => {
                let fields = [("content", "text"), ("kind", "kind"), ("metadata", "metadata")];
                Ok(decided(by.publish(of_arguments("remember", it, &fields)).await?))
            }
            "add_turns" => add_turns(by, it).await,
            "search_memories" => {
                let fields = [
                    ("query", "query"),
                    ("limit", "limit"),
                    ("where", "filters"),
                    ("min_relevance", "min_relevance"),
                    ("as_of", "as_of"),
                    ("from", "from"),
                    ("to", "to"),
                ];
                Ok(shown(calls.ask(user, of_arguments("recall", it, &fields)).await?))
            }
            "get_memories" => {
                let fields = [
                    ("session", "session"),
                    ("kinds", "kinds"),
                    ("where", "filters"),
                    ("limit", "limit"),
                    ("after", "after"),
                ];
                Ok(shown(calls.ask(user, of_arguments("list", it, &fields)).await?))
            }
            "forget_memories" => {
                let event = of_arguments("forget", it, &[("query", "query")]);
                Ok(decided(by.publish(event).await?))
            }
            "memory_stats" => {
                let mut reply = shown(calls.ask(user, of("stats", &[])).await?);
                if it["sessions"] != true {
                    reply.as_object_mut().and_then(|fields| fields.remove("sessions"));
                }
                Ok(reply)
            }
            "get_memory" => {
                let request = of("get", &[("memory", memory)]);
                Ok(shown(calls.ask(user, request).await?))
            }
            "memory_history" => {
                let request = of("get", &[("memory", memory), ("history", &json!(true))]);
                let mut reply = shown(calls.ask(user, request).await?);
                if reply["history"].is_null() {
                    reply["history"] = json!([]);
                }
                Ok(reply)
            }
            "explain_memory" => {
                let request = of("explain", &[("memory", memory)]);
                Ok(shown(calls.ask(user, request).await?))
            }
            "update_memory" => {
                let fields = [
                    ("memory", "id"),
                    ("content", "text"),
                    ("metadata", "metadata"),
                    ("confidence", "confidence"),
                    ("enabled", "enabled"),
                ];
                let event = of_arguments("update", it, &fields);
                Ok(decided(by.change(memory, event).await?))
            }
            "delete_memory" => Ok(decided(by.erase(memory).await?)),
            _ => {
                let event = of("forget", &[("everything", &json!(true))]);
                Ok(decided(by.publish(event).await?))
            }
        }
    }
}

/// A message whose fields are arguments of a tool, which have other names in some cases.
fn of_arguments(kind: &str, arguments: &Value, fields: &[(&str, &str)]) -> Value {
    let fields: Vec<(&str, &Value)> =
        fields.iter().map(|(field, argument)| (*field, &arguments[*argument])).collect();
    of(kind, &fields)
}

/// The description of each argument, the same in every tool.
const DESCRIPTIONS: [(&str, &str); 21] = [
    ("text", "The memory as one plain sentence, such as: I am allergic to peanuts."),
    (
        "metadata",
        "Labels of the memory, name to text, such as {\"project\": \"atlas\"}; filters finds them.",
    ),
    ("kind", "Kind of the memory: fact, preference, instruction, event, or a word of your own."),
    ("turns", "Turns of the conversation, oldest first."),
    ("role", "Who speaks; what the user says counts most."),
    ("content", "The turn word for word."),
    ("speaker", "Name of the speaker, where several people speak."),
    ("session", "Id of the conversation; turns of one conversation have the same."),
    ("sessions", "True: also list the latest conversations, with their turns and last day."),
    ("query", "The question in plain words, as the user asked it."),
    ("limit", "Most memories to return."),
    ("filters", "Only memories with all of these labels, name to text."),
    ("kinds", "Only memories of these kinds, such as [\"preference\"]."),
    (
        "min_relevance",
        "Leave out memories less likely than this to answer, 0 to 1; 0 leaves out none.",
    ),
    ("confidence", "How certain the memory is, 0 to 1."),
    ("enabled", "false hides the memory from all answers, true shows it again."),
    ("as_of", "Answer from what was known at this time, such as 2026-01-31T12:00:00Z."),
    ("from", "Only memories of this day or later, by the day they speak of: 2026-05-01."),
    ("to", "Only memories of this day or before: 2026-05-31."),
    ("after", "The cursor after from the page before."),
    ("id", "Id of the memory, as get_memories and search_memories return it."),
];

/// Adds a description to each property, and to those of the objects in a list.
fn describe(properties: &mut Value) {
    for (name, property) in properties.as_object_mut().into_iter().flatten() {
        if let Some((_, description)) = DESCRIPTIONS.iter().find(|(known, _)| known == name) {
            property["description"] = json!(description);
        }
        if let Some(inner) = property.pointer_mut("/items/properties") {
            describe(inner);
        }
    }
}

impl By<'_> {
    /// Publishes an event under its own id, the key of the call, or a new one: without an id
    /// whoever reads and writes the topic could have the event applied twice. Returns the receipt
    /// of an event that took effect, as far as the caller may see.
    pub async fn publish(&self, mut event: Value) -> Result<Value> {
        if event["id"].is_null() || event["id"] == "" {
            let id = self.key.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
            event["id"] = id.into();
        }
        let receipt = self.calls.publish(self.user, self.caller.limits(), event).await?;
        Ok(outcome::shown(self.caller, outcome::checked(receipt)?))
    }

    /// Publishes an event about one memory. The service answers an event about a memory that is not
    /// there by a decision, so the memory is read first.
    pub async fn change(&self, memory: &Value, event: Value) -> Result<Value> {
        self.check(memory).await?;
        self.publish(event).await
    }

    /// Erases one memory of several. One that is gone or has expired meanwhile needs no erasing.
    pub async fn erase_if_there(&self, memory: &Value) -> Result<()> {
        match self.erase(memory).await {
            Err(refusal) if refusal.code != "not_found" => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Erases one memory. A repeated call finds no memory, and succeeds if the first call erased
    /// the memory.
    pub async fn erase(&self, memory: &Value) -> Result<Value> {
        let event = of("forget", &[("memory", memory)]);
        match self.check(memory).await {
            Ok(()) => self.publish(event).await,
            Err(refusal) if refusal.code == "not_found" && self.key.is_some() => {
                let receipt = self.publish(event).await?;
                let decision = &receipt["decisions"][0];
                let is_repeated = decision["outcome"] == "duplicate";
                if is_repeated && decision["memory"] == *memory {
                    Ok(receipt)
                } else {
                    Err(refusal)
                }
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Refuses a memory that is not there, or that is not the caller's to change. The service lets a
    /// user change the memories of the tenant, but a key for one user does not speak for the others
    /// who see them.
    pub async fn check(&self, memory: &Value) -> Result<()> {
        let found = self.calls.ask(self.user, of("get", &[("memory", memory)])).await?;
        if self.caller.user.is_some() && found["memory"]["scope"] == "tenant" {
            let what = "a key for one user changes and erases no memory of the whole tenant";
            return Err(Refusal::forbidden(what));
        }
        Ok(())
    }
}

/// Builds a message from the fields that are given.
pub fn of(kind: &str, fields: &[(&str, &Value)]) -> Value {
    let mut message = json!({"type": kind});
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        message[*name] = (*value).clone();
    }
    message
}

/// Publishes turns in their order and returns all their decisions.
async fn add_turns(by: &By<'_>, it: &Value) -> Result<Value> {
    let turns = it["turns"].as_array().filter(|turns| (1..=100).contains(&turns.len()));
    let Some(turns) = turns else {
        return Err(Refusal::invalid("turns", "turns must be a list of 1 to 100 turns"));
    };
    let mut decisions = Vec::new();
    for (n, turn) in turns.iter().enumerate() {
        let id = by.key.map(|key| format!("{key}/{n}"));
        let event = of(
            "turn",
            &[
                ("role", &turn["role"]),
                ("content", &turn["content"]),
                ("speaker", &turn["speaker"]),
                ("session", &it["session"]),
                ("metadata", &it["metadata"]),
                ("id", &json!(id)),
            ],
        );
        let mut receipt = decided(by.publish(event).await?);
        if let Value::Array(made) = receipt["decisions"].take() {
            decisions.extend(made);
        }
    }
    Ok(json!({"decisions": decisions}))
}

fn decided(receipt: Value) -> Value {
    let decisions = receipt["decisions"].as_array().cloned().unwrap_or_default();
    let id = decisions.iter().find_map(|decision| decision["memory"].as_str());
    let mut result = json!({"decisions": decisions});
    if let Some(id) = id {
        result["id"] = json!(id);
    }
    result
}

fn shown(mut reply: Value) -> Value {
    if let Some(fields) = reply.as_object_mut() {
        for name in ["type", "status", "took_us", "misrouted"] {
            fields.remove(name);
        }
    }
    reply
}

/// The key of a call that may come twice. The key becomes the id of the event, and an event with an
/// id that was applied is a `duplicate`.
pub fn idempotency_key(headers: &HeaderMap) -> Option<&str> {
    headers.get("idempotency-key")?.to_str().ok()
}

/// Refuses a key that could not become the id of an event: without one, a repeated call would have a
/// second effect.
pub fn check_idempotency_key(headers: &HeaderMap) -> Result<()> {
    match headers.get("idempotency-key").map(|key| key.to_str()) {
        Some(Err(_)) => {
            Err(Refusal::invalid("Idempotency-Key", "Idempotency-Key has letters beyond ASCII"))
        }
        Some(Ok("")) => Err(Refusal::invalid("Idempotency-Key", "Idempotency-Key is empty")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_schema_that_names_what_it_requires() {
        for tool in &TOOLS {
            let schema = tool.schema();
            for name in tool.required {
                assert!(schema["properties"][name].is_object(), "{} {name}", tool.name);
            }
            let properties = schema["properties"].as_object().expect("an object");
            let in_lists =
                properties.values().filter_map(|it| it["items"]["properties"].as_object());
            for (name, property) in properties.iter().chain(in_lists.flatten()) {
                assert!(property["description"].is_string(), "{} {name}", tool.name);
            }
        }
        let search = Tool::named("search_memories").expect("a tool");
        let refused = search.checked(&json!({"query": "x", "limits": 3})).expect_err("unknown");
        assert_eq!(refused.field.as_deref(), Some("limits"));
        assert_eq!(search.checked(&json!({})).expect_err("none").field.as_deref(), Some("query"));
    }
}
