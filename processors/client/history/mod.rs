//! Reads the history that a person has in another program as turns of conversations or as texts to
//! remember. One file for each family of formats; `part.rs` reads a file piece by piece.
//!
//! The readers are lenient in fields and strict in kinds: what is neither a message nor a known
//! companion of messages counts as unknown, and a file with nothing known is of another format.

mod chatgpt;
mod claude;
mod codex;
mod csv;
mod guess;
mod json;
pub mod ledger;
mod markdown;
mod part;
pub mod report;
mod stores;

pub use part::{Part, read, survey, tail};

use domain::UserKey;
use domain::fault::{Fault, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Length of an id, of the contract's 256 with the round of an import. A longer one of a source is
/// replaced by its hash.
const ID_BYTES_MAX: usize = 240;
/// Names the source in the metadata of each memory.
const IMPORTED_FROM: &str = "imported_from";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    ChatGpt,
    Claude,
    ClaudeCode,
    Codex,
    Mem0,
    MemoryJsonl,
    Markdown,
    Csv,
}

impl Format {
    pub const ALL: [Format; 8] = [
        Format::ChatGpt,
        Format::Claude,
        Format::ClaudeCode,
        Format::Codex,
        Format::Mem0,
        Format::MemoryJsonl,
        Format::Markdown,
        Format::Csv,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Format::ChatGpt => "chatgpt",
            Format::Claude => "claude",
            Format::ClaudeCode => "claude-code",
            Format::Codex => "codex",
            Format::Mem0 => "mem0",
            Format::MemoryJsonl => "memory.jsonl",
            Format::Markdown => "markdown",
            Format::Csv => "csv",
        }
    }

    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Describes the files of the format, for errors.
    fn shape(self) -> &'static str {
        match self {
            Format::ChatGpt => {
                "conversations.json of ChatGPT's data export, a list of objects with `mapping`"
            }
            Format::Claude => {
                "conversations.json of claude.ai's data export, a list of objects with \
                 `chat_messages`"
            }
            Format::ClaudeCode => {
                "a transcript of ~/.claude/projects, lines with `type`, `sessionId` and `message`"
            }
            Format::Codex => {
                "a rollout of ~/.codex/sessions, lines with `timestamp`, `type` and `payload`"
            }
            Format::Mem0 => "the JSON of mem0's get_all, a list of objects with `memory`",
            Format::MemoryJsonl => {
                "the file of MCP's memory server, lines with the `type` entity or relation"
            }
            Format::Markdown => "a text with headings, list items and paragraphs",
            Format::Csv => "a first row of names, of which one is `content`",
        }
    }

    /// True for the files of the format in a directory.
    fn has(self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        match self {
            Format::ChatGpt | Format::Claude => {
                name.starts_with("conversations") && name.ends_with(".json")
            }
            Format::Mem0 => name.ends_with(".json"),
            Format::ClaudeCode | Format::Codex | Format::MemoryJsonl => name.ends_with(".jsonl"),
            Format::Markdown => name.ends_with(".md"),
            Format::Csv => name.ends_with(".csv"),
        }
    }

    /// Replaces each directory by the files of the format below it, in the order of their names.
    pub fn files(self, given: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in given {
            match path.is_dir() {
                false => files.push(path.clone()),
                true => self.files_below(path, &mut files)?,
            }
        }
        match files.is_empty() {
            true => Err(Fault::retry(format!(
                "no file of --from {} is there: expected {}",
                self.name(),
                self.shape()
            ))),
            false => Ok(files),
        }
    }

    fn files_below(self, dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
        let unreadable = |error: std::io::Error| part::unreadable(dir, &error);
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            // Links are not followed: one to a parent would never end.
            entries.push((entry.path(), entry.file_type().map_err(unreadable)?));
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (path, kind) in entries {
            if kind.is_dir() {
                self.files_below(&path, files)?;
            } else if kind.is_file() && self.has(&path) {
                files.push(path);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    UserTurn,
    AssistantTurn,
    /// A text to remember as it is.
    Memory,
}

/// A turn or a text to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub what: What,
    /// The source's own id, or [`hashed`].
    pub id: String,
    pub session: Option<String>,
    pub at_ms: Option<i64>,
    pub kind: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub text: String,
}

impl Item {
    fn new(what: What, id: String, text: String) -> Item {
        let (session, at_ms, kind) = (None, None, None);
        Item { what, id, session, at_ms, kind, metadata: BTreeMap::new(), text }
    }

    /// The id of the message, which is the same in every export.
    pub fn message_id(&self, format: Format) -> String {
        let id = format!("{}-{}", format.name(), self.id);
        match id.len() > ID_BYTES_MAX {
            true => format!("{}-{}", format.name(), hashed(&[&self.id])),
            false => id,
        }
    }

    /// The event of something that was just said, without its user.
    pub fn said(&self, format: Format) -> Value {
        let mut event = self.unaddressed(format);
        event["metadata"] = json!({"said_in": format.name()});
        event
    }

    fn event(&self, format: Format, key: &UserKey) -> Value {
        let mut event = self.unaddressed(format);
        event["tenant"] = json!(key.tenant());
        event["user"] = json!(key.user());
        event
    }

    fn unaddressed(&self, format: Format) -> Value {
        let mut metadata: Map<String, Value> = Map::new();
        let own = self.metadata.iter().map(|(name, value)| (name.clone(), json!(value)));
        metadata.extend(own.chain([(IMPORTED_FROM.to_owned(), json!(format.name()))]));
        let (kind, role) = match self.what {
            What::UserTurn => ("turn", Some("user")),
            What::AssistantTurn => ("turn", Some("assistant")),
            What::Memory => ("remember", None),
        };
        let at = self.at_ms.map(crate::show::rfc_3339).filter(|at| !at.is_empty());
        let mut event = json!({"type": kind, "id": self.message_id(format), "role": role, "session": self.session, "at": at,
            "kind": self.kind, "metadata": metadata, "content": self.text});
        if let Value::Object(fields) = &mut event {
            fields.retain(|_, value| !value.is_null());
        }
        event
    }
}

/// A piece of a history.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Conversation,
    Item(Item),
    /// With the reason: one of [`left_out`].
    LeftOut(&'static str),
}

/// Reasons for which a message is no turn.
pub mod left_out {
    pub const SYSTEM: &str = "system message";
    pub const EMPTY: &str = "empty text";
    pub const TOOL: &str = "tool call or output";
    pub const IMAGE: &str = "image or file";
    pub const THINKING: &str = "thinking";
    pub const HIDDEN: &str = "hidden message";
    pub const INSTRUCTIONS: &str = "instructions or context of the program";
    pub const SUB_AGENT: &str = "conversation of a sub-agent";
    pub const TOO_LONG: &str = "line over 64 MiB";
    pub const UNKNOWN: &str = "of an unknown kind";
    pub const REPEATED: &str = "repeated in the files";
}

/// The id of a message whose source gives none. It has no position: rows and lines that are added
/// before it later leave it the same, and the same text at the same time is one message.
fn hashed(parts: &[&str]) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, parts.join("\0").as_bytes()).to_string()
}

/// Parses a time: RFC 3339, without an offset as UTC, or a day.
pub(crate) fn time_ms(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(moment) = contract::wire::Moment::parse(text) {
        return Some(moment.0);
    }
    let at = text.parse::<jiff::civil::DateTime>().ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// Reads a time that is a text, or a number of seconds since 1970.
fn time_of(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => time_ms(text),
        Value::Number(seconds) => {
            let ms = seconds.as_f64()? * 1000.0;
            (ms.is_finite() && ms > 0.0).then_some(ms.round() as i64)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_original_time_and_an_id_of_its_source() {
        let mut item = Item::new(What::UserTurn, "m1".to_owned(), "I live in Rome.".to_owned());
        item.session = Some("c1".to_owned());
        item.at_ms = time_ms("2024-05-01 10:00:00");
        let key = UserKey::new("default", "ada").expect("a plain name");
        let event = item.event(Format::ChatGpt, &key);
        let expected = json!({"type": "turn", "tenant": "default", "user": "ada", "role": "user",
            "id": "chatgpt-m1", "session": "c1", "at": "2024-05-01T10:00:00Z",
            "metadata": {"imported_from": "chatgpt"}, "content": "I live in Rome."});
        assert_eq!(event, expected);
        item.id = "x".repeat(300);
        assert_eq!(item.message_id(Format::Csv).len(), "csv-".len() + 36);
    }

    #[test]
    fn times_are_texts_days_and_seconds() {
        for (value, expected) in [
            (json!("2024-05-01T10:00:00.250+02:00"), Some(1_714_550_400_250)),
            (json!("2024-05-01"), Some(1_714_521_600_000)),
            (json!(1_714_521_600.5), Some(1_714_521_600_500)),
            (json!("yesterday"), None),
            (json!(null), None),
            (json!(0), None),
        ] {
            assert_eq!(time_of(&value), expected, "{value}");
        }
    }
}
