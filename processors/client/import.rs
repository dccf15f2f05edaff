//! Reads the lines of an export as `remember` events, user by user, and counts the outcomes.
//!
//! A user's memories are sorted by their age, because a later one may replace an earlier one. Those
//! that the service has are left out: by the id of the memory, or by the id of the event that an
//! earlier import sent.

use crate::rules::Rules;
use domain::UserKey;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Refused lines that a report shows; all are counted.
const SHOWN_MAX: usize = 20;

/// A memory of the file on its way to the service.
pub struct Wish {
    pub line: u64,
    pub event: Value,
    /// Id of the memory in the old service.
    memory: String,
}

/// The memories of one user that follow each other in the file.
pub struct UserBatch {
    pub key: UserKey,
    pub wishes: Vec<Wish>,
    pub superseded: u64,
    pub summaries: u64,
}

impl UserBatch {
    fn of(key: UserKey) -> UserBatch {
        UserBatch { key, wishes: Vec::new(), superseded: 0, summaries: 0 }
    }

    /// Leaves out the memories that are there, by the ids of [`ids_of`], and sorts the others by
    /// their age. Returns how many were left out.
    pub fn leave_out(&mut self, there: &BTreeSet<String>) -> u64 {
        let before = self.wishes.len();
        self.wishes.retain(|wish| {
            !there.contains(&wish.memory)
                && !there.contains(wish.event["id"].as_str().unwrap_or_default())
        });
        self.wishes.sort_by_cached_key(|wish| {
            (wish.event["at"].as_str().unwrap_or_default().to_owned(), wish.memory.clone())
        });
        (before - self.wishes.len()) as u64
    }
}

/// The ids of a page of a user's memories, and of the events that they came from.
pub fn ids_of(page: &Value) -> impl Iterator<Item = String> + '_ {
    page["memories"].as_array().into_iter().flatten().flat_map(|memory| {
        let ids = [&memory["id"], &memory["source"]["event_id"]];
        ids.into_iter().filter_map(Value::as_str).map(str::to_owned)
    })
}

#[derive(Default)]
pub struct Imported {
    pub lines: u64,
    pub memories: u64,
    /// Memories that are not published: superseded ones, those that are switched off, summaries,
    /// those that are there.
    pub superseded: u64,
    pub switched_off: u64,
    pub summaries: u64,
    pub there: u64,
    /// Outcomes of the published ones.
    pub outcomes: BTreeMap<String, u64>,
    pub refused: u64,
    pub first_refused: Vec<(u64, String)>,
    pub is_complete: bool,
}

impl Imported {
    pub fn refuse(&mut self, line: u64, why: String) {
        self.refused += 1;
        if self.first_refused.len() < SHOWN_MAX {
            self.first_refused.push((line, why));
        }
    }

    /// Notes memories that would be published.
    pub fn would_publish(&mut self, count: usize) {
        if count > 0 {
            *self.outcomes.entry("to publish".to_owned()).or_default() += count as u64;
        }
    }

    /// Notes the outcome of a published memory.
    pub fn note(&mut self, wish: &Wish, receipt: &Value) {
        let decision = &receipt["decisions"][0];
        let Some(outcome) = decision["outcome"].as_str() else {
            let message = receipt["error"]["message"].as_str().unwrap_or("no decision");
            return self.refuse(wish.line, message.to_owned());
        };
        if matches!(outcome, "refused" | "dropped") {
            let reason = decision["reason"].as_str().unwrap_or_default();
            return self.refuse(wish.line, reason.to_owned());
        }
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
    }

    pub fn json(&self) -> Value {
        let refused: Vec<Value> = (self.first_refused.iter())
            .map(|(line, why)| json!({"line": line, "reason": why}))
            .collect();
        json!({
            "complete": self.is_complete,
            "lines": self.lines,
            "memories": self.memories,
            "superseded": self.superseded,
            "switched_off": self.switched_off,
            "summaries": self.summaries,
            "there": self.there,
            "outcomes": self.outcomes,
            "refused": self.refused,
            "first_refused": refused,
        })
    }
}

/// Reads line after line, and returns the memories of a user with the first line of the next.
pub struct Lines<'a> {
    rules: &'a Rules,
    pub report: Imported,
    batch: Option<UserBatch>,
    default_user: Option<UserKey>,
}

impl<'a> Lines<'a> {
    pub fn new(rules: &'a Rules) -> Lines<'a> {
        Lines { rules, report: Imported::default(), batch: None, default_user: None }
    }

    pub fn line(&mut self, line: &str) -> Option<UserBatch> {
        self.report.lines += 1;
        if line.trim().is_empty() {
            return None;
        }
        let number = self.report.lines;
        let value: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(error) => {
                let at = error.column();
                let what = format!("is not JSON from column {at} on: each line must be one object");
                self.report.refuse(number, what);
                return None;
            }
        };
        match value["part"].as_str() {
            Some("memory") => {}
            Some("user") => {
                self.default_user = owner(&value).ok();
                return None;
            }
            part => {
                self.report.is_complete |= part == Some("end");
                if part.is_none() {
                    self.report.refuse(number, "has no part: it is not of an export".to_owned());
                }
                return None;
            }
        }
        self.report.memories += 1;
        let key = match (owner(&value), &self.default_user) {
            (Ok(key), _) => key,
            (Err(_), Some(key)) => key.clone(),
            (Err(why), None) => {
                self.report.refuse(number, why);
                return None;
            }
        };
        let is_next = self.batch.as_ref().is_some_and(|batch| batch.key != key);
        let done = if is_next { self.batch.take() } else { None };
        let batch = self.batch.get_or_insert_with(|| UserBatch::of(key));
        let memory = &value["memory"];
        if !memory["superseded_by"].is_null() || !memory["valid_to"].is_null() {
            self.report.superseded += 1;
            batch.superseded += 1;
            return done;
        }
        if memory["enabled"] == false {
            self.report.switched_off += 1;
            return done;
        }
        if memory["covers"].as_array().is_some_and(|covers| !covers.is_empty()) {
            self.report.summaries += 1;
            batch.summaries += 1;
            return done;
        }
        let event = event_of(&batch.key, memory);
        match refusal(self.rules, &batch.key, &event) {
            Some(why) => self.report.refuse(number, why),
            None => batch.wishes.push(Wish {
                line: number,
                event,
                memory: memory["id"].as_str().unwrap_or_default().to_owned(),
            }),
        }
        done
    }

    /// The memories of the last user.
    pub fn end(&mut self) -> Option<UserBatch> {
        self.batch.take()
    }
}

fn owner(line: &Value) -> Result<UserKey, String> {
    let tenant = line["tenant"].as_str().unwrap_or_default();
    let user = line["user"].as_str().unwrap_or_default();
    UserKey::new(tenant, user).map_err(|e| format!("{}: {}", e.field, e.why))
}

fn event_of(key: &UserKey, memory: &Value) -> Value {
    let mut event = Map::new();
    event.insert("type".into(), "remember".into());
    event.insert("tenant".into(), key.tenant().into());
    event.insert("user".into(), key.user().into());
    let id = format!("import-{}", memory["id"].as_str().unwrap_or_default());
    event.insert("id".into(), id.into());
    event.insert("at".into(), memory["created_at"].clone());
    let fields = [
        "content",
        "kind",
        "importance",
        "confidence",
        "stability",
        "scope",
        "session",
        "expires_at",
        "metadata",
    ];
    for field in fields {
        if !memory[field].is_null() {
            event.insert(field.into(), memory[field].clone());
        }
    }
    Value::Object(event)
}

/// Why the service would not accept the event.
fn refusal(rules: &Rules, key: &UserKey, event: &Value) -> Option<String> {
    if event["at"].is_null() || event["id"] == "import-" {
        return Some("the memory has no id or no created_at".to_owned());
    }
    rules.check_event(key.as_str(), event).err().map(|reject| reject.to_string())
}
