//! Reads a rollout of Codex: lines with a time, a type and a payload, of which the response items
//! of the type `message` are what was said. Older rollouts have the items without the envelope.

use super::{Found, Item, What, hashed, left_out, time_of};
use serde_json::Value;

/// Beginnings of user messages that Codex itself writes.
const INSERTED: [&str; 7] = [
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
];
/// Lines with an envelope that have no message. `event_msg` repeats what the response items have.
const COMPANIONS: [&str; 4] = ["session_meta", "turn_context", "event_msg", "compacted"];

/// Reads the lines of one rollout.
pub struct Rollout {
    session: String,
    has_begun: bool,
}

impl Rollout {
    /// `file`: the id of the session where the lines have none.
    pub fn new(file: &str) -> Rollout {
        Rollout { session: file.to_owned(), has_begun: false }
    }

    /// Reads a line; `None` for one of another format.
    pub fn line(&mut self, line: &Value) -> Option<Vec<Found>> {
        let payload = &line["payload"];
        let kind = line["type"].as_str();
        match (kind, payload.is_object()) {
            (Some("response_item"), true) => Some(self.item(payload, &line["timestamp"])),
            (Some(companion), true) if COMPANIONS.contains(&companion) => {
                if companion == "session_meta" {
                    self.begin(&payload["id"]);
                }
                Some(Vec::new())
            }
            (Some("message"), false) if line["content"].is_array() => {
                Some(self.item(line, &line["timestamp"]))
            }
            (Some("function_call" | "function_call_output" | "reasoning"), false) => {
                Some(self.item(line, &line["timestamp"]))
            }
            (None, false) if line["record_type"].is_string() => Some(Vec::new()),
            (None, false) if line["id"].is_string() && line["timestamp"].is_string() => {
                self.begin(&line["id"]);
                Some(Vec::new())
            }
            _ => None,
        }
    }

    fn begin(&mut self, id: &Value) {
        // A session that was forked begins with the meta lines of both; its own is the first.
        if !self.has_begun
            && let Some(id) = id.as_str()
        {
            id.clone_into(&mut self.session);
        }
    }

    fn item(&mut self, payload: &Value, time: &Value) -> Vec<Found> {
        let only = |why| vec![Found::LeftOut(why)];
        match payload["type"].as_str() {
            Some("message") => {}
            Some("reasoning") => return only(left_out::THINKING),
            Some(kind) if kind.contains("call") => return only(left_out::TOOL),
            _ => return only(left_out::UNKNOWN),
        }
        let what = match payload["role"].as_str() {
            Some("user") => What::UserTurn,
            Some("assistant") => What::AssistantTurn,
            _ => return only(left_out::SYSTEM),
        };
        let mut found = Vec::new();
        let mut texts = Vec::new();
        for part in payload["content"].as_array().into_iter().flatten() {
            match (part["type"].as_str(), part["text"].as_str()) {
                (Some("input_text" | "output_text" | "text"), Some(text)) => texts.push(text),
                (Some("input_image"), _) => found.push(Found::LeftOut(left_out::IMAGE)),
                _ => found.push(Found::LeftOut(left_out::UNKNOWN)),
            }
        }
        let before = texts.len();
        if what == What::UserTurn {
            texts.retain(|text| {
                let text = text.trim_start();
                !INSERTED.iter().any(|start| text.starts_with(start))
            });
        }
        let text = texts.join("\n").trim().to_owned();
        if text.is_empty() {
            let is_of_program = before > texts.len();
            let why = if is_of_program { left_out::INSTRUCTIONS } else { left_out::EMPTY };
            if is_of_program || found.is_empty() {
                found.push(Found::LeftOut(why));
            }
            return found;
        }
        // Messages have no id of their own, and the time of each is written once.
        let role = if what == What::UserTurn { "user" } else { "assistant" };
        let id = hashed(&[&self.session, time.as_str().unwrap_or_default(), role, &text]);
        let mut item = Item::new(what, id, text);
        item.session = Some(self.session.clone());
        item.at_ms = time_of(time);
        if !std::mem::replace(&mut self.has_begun, true) {
            found.insert(0, Found::Conversation);
        }
        found.push(Found::Item(item));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{in_short, without_ids};
    use super::*;

    #[test]
    fn a_rollout_has_the_messages_of_both_and_none_of_the_program() {
        let sample = include_str!("../../../tests/data/imports/codex.jsonl");
        let mut rollout = Rollout::new("file");
        let lines = sample.lines().map(|line| serde_json::from_str(line).expect("a line"));
        let found: Vec<Found> =
            lines.flat_map(|line: Value| rollout.line(&line).expect("known")).collect();
        let expected = [
            "- system message",
            "- instructions or context of the program",
            "conversation",
            "user 2025-12-08T00:39:54Z x-1 I always deploy on Tuesdays.",
            "- thinking",
            "- tool call or output",
            "- tool call or output",
            "assistant 2025-12-08T00:40:10Z x-1 Noted: deployments on Tuesdays.",
            "- image or file",
        ];
        assert_eq!(without_ids(&in_short(&found)), expected);
    }

    #[test]
    fn an_old_rollout_has_items_without_an_envelope() {
        let mut rollout = Rollout::new("file");
        let lines = [
            serde_json::json!({"id": "old", "timestamp": "2025-05-01T00:00:00Z"}),
            serde_json::json!({"record_type": "state"}),
            serde_json::json!({"type": "message", "role": "user",
                "content": [{"type": "input_text", "text": "I use Rust."}]}),
        ];
        let found: Vec<Found> =
            lines.iter().flat_map(|line| rollout.line(line).expect("known")).collect();
        assert_eq!(without_ids(&in_short(&found)), ["conversation", "user - old I use Rust."]);
    }
}
