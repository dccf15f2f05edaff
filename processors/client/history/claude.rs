//! Reads the conversations of claude.ai's data export and the transcripts of Claude Code. Both have
//! messages of blocks, of which those of the type `text` are what was said.

use super::{Found, Item, What, hashed, left_out, time_of};
use serde_json::Value;

/// Texts that Claude Code itself puts into a user's message, up to their end.
const INSERTED: [(&str, &str); 3] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<ide_opened_file>", "</ide_opened_file>"),
    ("<ide_selection>", "</ide_selection>"),
];
/// Beginnings of user messages that are commands and their output.
const COMMANDS: [&str; 8] = [
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<bash-input>",
    "<bash-stdout>",
    "<task-notification>",
];
const NOTICES: [&str; 2] =
    ["Caveat: The messages below were generated", "[Request interrupted by user"];
/// Types of lines that belong to a transcript and have no message.
const COMPANIONS: [&str; 6] =
    ["summary", "system", "file-history-snapshot", "queue-operation", "progress", "attachment"];

/// Reads an element of conversations.json; `None` for anything else.
pub fn conversation(value: &Value) -> Option<Vec<Found>> {
    let messages = value["chat_messages"].as_array()?;
    let session = value["uuid"].as_str().map(str::to_owned);
    let begun = time_of(&value["created_at"]);
    let mut found = vec![Found::Conversation];
    for message in branch(value, messages) {
        let what = match message["sender"].as_str() {
            Some("human" | "user") => What::UserTurn,
            Some("assistant") => What::AssistantTurn,
            Some("system") => {
                found.push(Found::LeftOut(left_out::SYSTEM));
                continue;
            }
            _ => {
                found.push(Found::LeftOut(left_out::UNKNOWN));
                continue;
            }
        };
        let files = ["attachments", "files", "files_v2"]
            .into_iter()
            .filter_map(|field| message[field].as_array())
            .map(Vec::len)
            .max();
        found.extend((0..files.unwrap_or(0)).map(|_| Found::LeftOut(left_out::IMAGE)));
        // `text` of a message with blocks has a notice in the place of tools and thinking.
        let has_blocks = message["content"].as_array().is_some_and(|blocks| !blocks.is_empty());
        let content = if has_blocks { &message["content"] } else { &message["text"] };
        let Some(text) = text_of(content, &mut found) else { continue };
        let at = time_of(&message["created_at"]).or(begun);
        let mut item = Item::new(what, String::new(), text);
        item.id = match message["uuid"].as_str() {
            Some(id) => id.to_owned(),
            None => {
                let at = at.unwrap_or_default().to_string();
                hashed(&[session.as_deref().unwrap_or_default(), &at, &item.text])
            }
        };
        item.session.clone_from(&session);
        item.at_ms = at;
        found.push(Found::Item(item));
    }
    Some(found)
}

/// The messages up to the current leaf, where an export names it, and all messages otherwise.
fn branch<'a>(value: &Value, messages: &'a [Value]) -> Vec<&'a Value> {
    let by_id = |id: &str| messages.iter().find(|message| message["uuid"] == id);
    let leaf = value["current_leaf_message_uuid"].as_str().and_then(by_id);
    let Some(leaf) = leaf else { return messages.iter().collect() };
    let mut branch = vec![leaf];
    while let Some(parent) = branch.last().and_then(|it| it["parent_message_uuid"].as_str())
        && let Some(parent) = by_id(parent)
        && branch.len() < messages.len()
    {
        branch.push(parent);
    }
    branch.reverse();
    branch
}

/// Joins the texts of a content, and notes what else is in it. `None` if no text is left.
fn text_of(content: &Value, found: &mut Vec<Found>) -> Option<String> {
    let before = found.len();
    let mut texts = Vec::new();
    match content {
        Value::String(text) => texts.push(text.as_str()),
        blocks => {
            for block in blocks.as_array().into_iter().flatten() {
                match block["type"].as_str() {
                    Some("text") => texts.extend(block["text"].as_str()),
                    Some("thinking" | "redacted_thinking") => {
                        found.push(Found::LeftOut(left_out::THINKING));
                    }
                    Some("image" | "document") => found.push(Found::LeftOut(left_out::IMAGE)),
                    Some(kind) if kind.contains("tool") => {
                        found.push(Found::LeftOut(left_out::TOOL));
                    }
                    // Marks the end of what an answer may use.
                    Some("token_budget" | "flag") => {}
                    _ => found.push(Found::LeftOut(left_out::UNKNOWN)),
                }
            }
        }
    }
    let text = texts.join("\n").trim().to_owned();
    if !text.is_empty() {
        return Some(text);
    }
    if found.len() == before {
        found.push(Found::LeftOut(left_out::EMPTY));
    }
    None
}

/// Reads the lines of one transcript.
pub struct Transcript {
    file: String,
    has_begun: bool,
}

impl Transcript {
    /// `file`: the id of the session where the lines have none.
    pub fn new(file: &str) -> Transcript {
        Transcript { file: file.to_owned(), has_begun: false }
    }

    /// Reads a line; `None` for one of another format.
    pub fn line(&mut self, line: &Value) -> Option<Vec<Found>> {
        let kind = line["type"].as_str()?;
        let is_message = matches!(kind, "user" | "assistant") && line["message"].is_object();
        let is_companion = COMPANIONS.contains(&kind) || line["sessionId"].is_string();
        if !is_message && (!is_companion || line["payload"].is_object()) {
            return None;
        }
        let mut found = Vec::new();
        if is_message {
            self.message(line, &mut found);
        }
        let has_item = found.iter().any(|it| matches!(it, Found::Item(_)));
        if has_item && !std::mem::replace(&mut self.has_begun, true) {
            found.insert(0, Found::Conversation);
        }
        Some(found)
    }

    fn message(&self, line: &Value, found: &mut Vec<Found>) {
        if line["isSidechain"] == true {
            return found.push(Found::LeftOut(left_out::SUB_AGENT));
        }
        if line["isMeta"] == true || line["isCompactSummary"] == true {
            return found.push(Found::LeftOut(left_out::INSTRUCTIONS));
        }
        let message = &line["message"];
        let what = match message["role"].as_str().or(line["type"].as_str()) {
            Some("user") => What::UserTurn,
            Some("assistant") => What::AssistantTurn,
            _ => return found.push(Found::LeftOut(left_out::SYSTEM)),
        };
        let Some(text) = text_of(&message["content"], found) else { return };
        let text = match what {
            What::UserTurn => match own_words(&text) {
                Some(text) => text,
                None => return found.push(Found::LeftOut(left_out::INSTRUCTIONS)),
            },
            _ => text,
        };
        let session = line["sessionId"].as_str().unwrap_or(&self.file).to_owned();
        let time = line["timestamp"].as_str().unwrap_or_default();
        let id = match line["uuid"].as_str() {
            Some(id) => id.to_owned(),
            None => hashed(&[&session, time, &text]),
        };
        let mut item = Item::new(what, id, text);
        item.session = Some(session);
        item.at_ms = time_of(&line["timestamp"]);
        found.push(Found::Item(item));
    }
}

/// The text that the person typed, without the parts that the program added.
fn own_words(text: &str) -> Option<String> {
    let mut text = text.to_owned();
    for (start, end) in INSERTED {
        while let Some(from) = text.find(start) {
            let length = text[from..].find(end).map(|at| at + end.len());
            text.replace_range(from..length.map_or(text.len(), |length| from + length), "");
        }
    }
    let text = text.trim();
    let is_of_program = COMMANDS.iter().chain(&NOTICES).any(|start| text.starts_with(start));
    (!text.is_empty() && !is_of_program).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::report::in_short;
    use super::*;

    #[test]
    fn an_export_has_texts_of_both_and_no_tools_thinking_or_files() {
        let sample = include_str!("../../../tests/data/imports/claude.json");
        let list: Vec<Value> = serde_json::from_str(sample).expect("a sample");
        let found: Vec<Found> = list.iter().flat_map(|it| conversation(it).expect("one")).collect();
        let expected = [
            "conversation",
            "user 2025-02-03T10:00:00Z k-1/m1 I am allergic to peanuts.",
            "- thinking",
            "- tool call or output",
            "- tool call or output",
            "assistant 2025-02-03T10:00:08Z k-1/m2 I will keep that in mind.",
            "- image or file",
            "user 2025-02-03T10:02:00Z k-1/m3 My dog is called Bruno.",
            "- empty text",
            "conversation",
            "user 2024-11-20T18:30:00Z k-0/m0 I work as a nurse.",
        ];
        assert_eq!(in_short(&found), expected);
    }

    #[test]
    fn an_export_that_names_its_leaf_is_read_to_the_leaf() {
        let message = |id: &str, parent: &str, text: &str| {
            serde_json::json!({"uuid": id, "parent_message_uuid": parent, "sender": "human",
                "text": text, "created_at": "2025-01-01T00:00:00Z"})
        };
        let conversation = conversation(&serde_json::json!({"uuid": "c",
            "current_leaf_message_uuid": "b2", "chat_messages": [message("a", "0", "one"),
            message("b1", "a", "two"), message("b2", "a", "three")]}));
        let expected = [
            "conversation",
            "user 2025-01-01T00:00:00Z c/a one",
            "user 2025-01-01T00:00:00Z c/b2 three",
        ];
        assert_eq!(in_short(&conversation.expect("one")), expected);
    }

    #[test]
    fn a_transcript_has_only_what_was_said() {
        let sample = include_str!("../../../tests/data/imports/claude-code.jsonl");
        let mut transcript = Transcript::new("file");
        let lines = sample.lines().map(|line| serde_json::from_str(line).expect("a line"));
        let found: Vec<Found> =
            lines.flat_map(|line: Value| transcript.line(&line).expect("known")).collect();
        let expected = [
            "- instructions or context of the program",
            "- instructions or context of the program",
            "conversation",
            "user 2025-11-03T09:00:00Z s-1/u-1 We use Postgres for the billing service.",
            "- thinking",
            "assistant 2025-11-03T09:00:09Z s-1/a-2 I will look at the billing service.",
            "- tool call or output",
            "- tool call or output",
            "- conversation of a sub-agent",
            "user 2025-11-03T09:05:00Z s-1/u-3 I prefer tabs over spaces.",
        ];
        assert_eq!(in_short(&found), expected);
        for other in [
            serde_json::json!({"type": "session_meta", "payload": {"id": "x"}}),
            serde_json::json!({"type": "entity", "name": "Ada"}),
            serde_json::json!({"role": "user", "content": "hi"}),
        ] {
            assert!(Transcript::new("file").line(&other).is_none(), "{other}");
        }
    }
}
