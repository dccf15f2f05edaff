//! Client of Keepsake's gateway: long-term memory for chat and agent applications.
//!
//! An event returns when its effect can be read. After a failure that may pass, the same message is
//! sent again: each event has an id, so a second copy changes nothing. The calls block.

mod messages;

pub use messages::*;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::time::Duration;
use ureq::Agent;

const RETRIED: [&str; 4] = ["overloaded", "unavailable", "expired", "no_reply"];
const EVENTS: [&str; 5] = ["turn", "remember", "update", "forget", "feedback"];
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A failure that Keepsake reports, under its name in the contract, such as `not_found`.
#[derive(Clone, Debug)]
pub struct Error {
    pub status: String,
    pub message: String,
    pub field: Option<String>,
}

impl Error {
    fn new(status: &str, message: impl Into<String>) -> Error {
        Error { status: status.into(), message: message.into(), field: None }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.status, self.message)?;
        self.field.as_ref().map_or(Ok(()), |field| write!(f, " (field {field})"))
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

/// One client serves many users and threads.
#[derive(Clone)]
pub struct Keepsake {
    agent: Agent,
    url: String,
    key: Option<String>,
    /// How often a message is sent again after a failure that may pass.
    pub retries: u32,
}

impl Keepsake {
    pub fn new(url: &str) -> Keepsake {
        Keepsake::with_timeout(url, Duration::from_secs(30))
    }

    pub fn with_timeout(url: &str, timeout: Duration) -> Keepsake {
        let config = Agent::config_builder()
            .timeout_global(Some(timeout))
            // The reply to a refused message says why.
            .http_status_as_error(false)
            .build();
        let url = url.trim_end_matches('/').to_owned();
        Keepsake { agent: config.into(), url, key: None, retries: 2 }
    }

    /// Sends a key of `keepsake keys new`, which decides the tenant.
    pub fn with_key(self, key: &str) -> Keepsake {
        Keepsake { key: Some(key.to_owned()), ..self }
    }

    /// Adds one turn of a conversation; the surprising parts become memories.
    pub fn turn(&self, user: &str, content: &str, fields: Turn) -> Result<Applied> {
        self.call("turn", user, with(json!({"content": content}), fields)?)
    }

    /// Stores a text as it is. The decision has the id of the memory.
    pub fn remember(&self, user: &str, content: &str, fields: Remember) -> Result<Applied> {
        self.call("remember", user, with(json!({"content": content}), fields)?)
    }

    /// Changes one memory. Earlier contents stay in the history; metadata is replaced whole.
    pub fn update(&self, user: &str, memory: &str, fields: Update) -> Result<Applied> {
        self.call("update", user, with(json!({"memory": memory}), fields)?)
    }

    /// Erases for good; replays do not bring the memories back.
    pub fn forget(&self, user: &str, target: Forget) -> Result<Applied> {
        self.call("forget", user, with(json!({}), target)?)
    }

    /// Says what became of recalled memories: used, confirmed, wrong or irrelevant.
    pub fn feedback(&self, user: &str, memories: &[&str], signal: &str) -> Result<Applied> {
        self.call("feedback", user, json!({"memories": memories, "signal": signal}))
    }

    /// Finds the memories that answer a query, best first, and a block for the prompt.
    pub fn recall(&self, user: &str, query: &str, fields: Recall) -> Result<Recalled> {
        self.call("recall", user, with(json!({"query": query}), fields)?)
    }

    /// One page of memories; `after` of the reply asks for the next.
    pub fn list(&self, user: &str, fields: List) -> Result<Listed> {
        self.call("list", user, with(json!({}), fields)?)
    }

    /// One memory with its earlier contents.
    pub fn get(&self, user: &str, memory: &str) -> Result<OneMemory> {
        self.call("get", user, json!({"memory": memory, "history": true}))
    }

    /// Why a memory was kept, and what happened to it since.
    pub fn explain(&self, user: &str, memory: &str) -> Result<Explained> {
        self.call("explain", user, json!({"memory": memory}))
    }

    /// Counts of memories and decisions.
    pub fn stats(&self, user: &str) -> Result<Stats> {
        self.call("stats", user, json!({}))
    }

    /// Sends any message of the contract by its type.
    pub fn call<T: DeserializeOwned>(&self, kind: &str, user: &str, message: Value) -> Result<T> {
        let mut message = message;
        message["user"] = user.into();
        if EVENTS.contains(&kind) && message["id"].is_null() {
            message["id"] = uuid::Uuid::new_v4().to_string().into();
        }
        let body = message.to_string();
        let mut attempt = 0;
        loop {
            match self.send(kind, &body) {
                Err(error) if RETRIED.contains(&&*error.status) && attempt < self.retries => {
                    std::thread::sleep(RETRY_PAUSE * 2_u32.pow(attempt));
                    attempt += 1;
                }
                reply => {
                    return serde_json::from_value(reply?)
                        .map_err(|e| Error::new("bad_reply", e.to_string()));
                }
            }
        }
    }

    fn send(&self, kind: &str, body: &str) -> Result<Value> {
        let url = format!("{}/v1/keepsake/{kind}", self.url);
        let mut request = self.agent.post(&url).header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", &format!("Bearer {key}"));
        }
        let mut response = request.send(body).map_err(|e| match e {
            ureq::Error::Timeout(_) => Error::new("no_reply", e.to_string()),
            _ => Error::new("unavailable", format!("the gateway does not answer: {e}")),
        })?;
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(64 << 20)
            .read_to_string()
            .map_err(|e| Error::new("unavailable", format!("the reply was cut off: {e}")))?;
        let reply: Value = serde_json::from_str(&text)
            .map_err(|_| Error::new("bad_reply", format!("status {status}, and no JSON")))?;
        if status.is_success() && reply.get("error").is_none() {
            return Ok(reply);
        }
        let error = &reply["error"];
        Err(Error {
            status: error["code"].as_str().unwrap_or("bad_reply").to_owned(),
            message: error["message"].as_str().map_or(format!("status {status}"), str::to_owned),
            field: error["field"].as_str().map(str::to_owned),
        })
    }
}

/// Adds the fields that are given to a message.
fn with(mut message: Value, fields: impl Serialize) -> Result<Value> {
    let fields = serde_json::to_value(fields)
        .map_err(|e| Error::new("invalid", format!("the fields are no JSON: {e}")))?;
    if let (Some(message), Value::Object(fields)) = (message.as_object_mut(), fields) {
        let given: Map<_, _> = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
        message.extend(given);
    }
    Ok(message)
}
