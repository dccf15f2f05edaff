//! The messages that the hooks of each agent send, and the answers that they read.
//!
//! | agent | described in |
//! |---|---|
//! | Claude Code | <https://code.claude.com/docs/en/hooks> |
//! | Codex | <https://developers.openai.com/codex/hooks> |
//! | Cursor | <https://cursor.com/docs/agent/hooks> |

use super::Agent;
use client::capture::Session;
use client::history::Format;
use domain::fault::{Fault, Result};
use serde_json::{Value, json};
use std::path::PathBuf;
use uuid::Uuid;

pub struct Message {
    agent: Agent,
    pub dir: PathBuf,
    pub moment: Moment,
    /// Where the agent has a transcript that can be read.
    pub session: Option<Session>,
    name: String,
    value: Value,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Moment {
    Begins,
    Prompt(String),
    /// The agent has answered, or is about to compact what was said.
    Ends,
    Other,
}

impl Message {
    pub fn parse(agent: Agent, text: &[u8]) -> Result<Message> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|e| Fault::retry(format!("the message of the hook is no JSON: {e}")))?;
        let name = string(&value, "hook_event_name").unwrap_or_default();
        let moment = match name.as_str() {
            "SessionStart" | "sessionStart" => Moment::Begins,
            "UserPromptSubmit" | "beforeSubmitPrompt" => {
                Moment::Prompt(string(&value, "prompt").unwrap_or_default())
            }
            "Stop" | "PreCompact" | "SessionEnd" | "afterAgentResponse" | "stop" | "preCompact"
            | "sessionEnd" => Moment::Ends,
            _ => Moment::Other,
        };
        let root = value["workspace_roots"][0].as_str().map(str::to_owned);
        let dir = string(&value, "cwd").or(root);
        let dir = dir.ok_or_else(|| Fault::retry("the message of the hook names no directory"))?;
        let format = match agent {
            Agent::ClaudeCode => Some(Format::ClaudeCode),
            Agent::Codex => Some(Format::Codex),
            Agent::Cursor | Agent::Send => None,
        };
        let session = format.zip(string(&value, "transcript_path")).map(|(format, path)| Session {
            id: string(&value, "session_id").unwrap_or_default(),
            format,
            transcript: path.into(),
            begins: moment == Moment::Begins,
        });
        Ok(Message { agent, dir: dir.into(), moment, session, name, value })
    }

    /// The turn that the message itself has, where the agent has no transcript.
    pub fn said(&self) -> Option<Value> {
        if self.agent != Agent::Cursor {
            return None;
        }
        let (role, content) = match &self.moment {
            Moment::Prompt(prompt) => ("user", prompt.clone()),
            Moment::Ends => ("assistant", string(&self.value, "text")?),
            Moment::Begins | Moment::Other => return None,
        };
        // One generation may answer in several pieces.
        let generation = string(&self.value, "generation_id").unwrap_or_default();
        let id = [generation.as_str(), role, &content].join("\0");
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes());
        let content = client::capture::cleaned(&content)?;
        Some(json!({"type": "turn", "id": format!("cursor-{id}"), "role": role,
            "session": string(&self.value, "conversation_id"), "content": content,
            "metadata": {"said_in": "cursor"}}))
    }

    /// The answer that gives the agent a context; `None` if there is nothing to say.
    pub fn answer(&self, context: &str) -> Option<Value> {
        match (self.agent, &self.moment) {
            (Agent::Cursor, Moment::Prompt(_)) => Some(json!({"continue": true})),
            (_, Moment::Ends | Moment::Other) => None,
            _ if context.is_empty() => None,
            (Agent::Cursor, _) => Some(json!({"additional_context": context})),
            _ => Some(json!({"hookSpecificOutput":
                {"hookEventName": self.name, "additionalContext": context}})),
        }
    }
}

fn string(value: &Value, name: &str) -> Option<String> {
    value[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(agent: Agent, value: Value) -> Message {
        Message::parse(agent, value.to_string().as_bytes()).expect("a message")
    }

    #[test]
    fn each_agent_gets_its_context_in_its_own_form() {
        let prompt = parsed(
            Agent::ClaudeCode,
            json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/p",
                "transcript_path": "/t.jsonl", "prompt": "Where do I deploy?"}),
        );
        assert_eq!(prompt.moment, Moment::Prompt("Where do I deploy?".into()));
        assert_eq!(prompt.session.as_ref().map(|it| it.id.as_str()), Some("s"));
        assert_eq!(
            prompt.answer("x"),
            Some(json!({"hookSpecificOutput":
                {"hookEventName": "UserPromptSubmit", "additionalContext": "x"}}))
        );
        assert_eq!(prompt.answer(""), None);
        assert_eq!(prompt.said(), None, "its transcript has the prompt");
        let begins = parsed(
            Agent::Cursor,
            json!({"hook_event_name": "sessionStart", "workspace_roots": ["/p"]}),
        );
        assert_eq!(begins.answer("x"), Some(json!({"additional_context": "x"})));
        assert!(begins.session.is_none());
        assert!(Message::parse(Agent::Codex, b"{}").is_err());
    }

    #[test]
    fn a_prompt_of_cursor_is_a_turn_with_an_id_that_stays() {
        let message = json!({"hook_event_name": "beforeSubmitPrompt", "conversation_id": "c",
            "generation_id": "g", "workspace_roots": ["/p"], "prompt": "I deploy on Fridays."});
        let (one, other) = (parsed(Agent::Cursor, message.clone()), parsed(Agent::Cursor, message));
        let said = one.said().expect("a turn");
        assert_eq!(Some(&said), other.said().as_ref());
        assert_eq!((&said["session"], &said["role"]), (&json!("c"), &json!("user")));
        assert_eq!(one.answer("x"), Some(json!({"continue": true})), "it takes no context here");
        let answer = parsed(
            Agent::Cursor,
            json!({"hook_event_name": "afterAgentResponse", "conversation_id": "c",
                "generation_id": "g", "workspace_roots": ["/p"], "text": "Noted."}),
        );
        let said = answer.said().expect("a turn");
        assert_eq!((&said["role"], answer.answer("")), (&json!("assistant"), None));
    }
}
