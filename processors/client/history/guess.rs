//! Describes a file that is not of the expected format, by its first bytes.

use super::part::unreadable;
use super::{Format, chatgpt, claude, codex, json, stores};
use domain::fault::Result;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes that are looked at. A first conversation that is longer is described as a list.
const HEAD_BYTES: u64 = 1 << 20;
/// Names of fields that a description shows.
const FIELDS_SHOWN: usize = 8;

/// The first value of a file.
enum Head {
    Empty,
    Zip,
    Element(Value),
    Line(Value),
    LongList,
    Text,
}

/// Returns the format of a file of JSON. Other files have no sign of theirs.
pub fn format_of(path: &Path) -> Result<Option<Format>> {
    Ok(match head(path)? {
        Head::Element(value) => of_element(&value),
        Head::Line(value) => of_line(&value),
        _ => None,
    })
}

pub fn description(path: &Path) -> Result<String> {
    let (what, format, value) = match head(path)? {
        Head::Empty => return Ok("an empty file".to_owned()),
        Head::Zip => return Ok("a zip archive: unpack it, and name the file in it".to_owned()),
        Head::LongList => return Ok("a long JSON value".to_owned()),
        Head::Text => return Ok("a text that is not JSON".to_owned()),
        Head::Element(value) => ("a JSON list", of_element(&value), value),
        Head::Line(value) => ("JSON", of_line(&value), value),
    };
    let fields = match &value {
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().take(FIELDS_SHOWN).map(String::as_str).collect();
            format!(" of objects with the fields {}", names.join(", "))
        }
        _ => " without objects".to_owned(),
    };
    let looks = format.map_or(String::new(), |it| format!(", which is --from {}", it.name()));
    Ok(format!("{what}{fields}{looks}"))
}

fn of_element(value: &Value) -> Option<Format> {
    if chatgpt::conversation(value).is_some() {
        return Some(Format::ChatGpt);
    }
    if claude::conversation(value).is_some() {
        return Some(Format::Claude);
    }
    stores::mem0(value).map(|_| Format::Mem0)
}

fn of_line(value: &Value) -> Option<Format> {
    if claude::Transcript::new("").line(value).is_some() {
        return Some(Format::ClaudeCode);
    }
    if codex::Rollout::new("").line(value).is_some() {
        return Some(Format::Codex);
    }
    stores::graph(value).map(|_| Format::MemoryJsonl)
}

fn head(path: &Path) -> Result<Head> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut bytes))
        .map_err(|e| unreadable(path, &e))?;
    if bytes.starts_with(b"PK\x03\x04") {
        return Ok(Head::Zip);
    }
    let text = bytes.trim_ascii_start();
    if text.is_empty() {
        return Ok(Head::Empty);
    }
    let mut first = None;
    let list = json::elements(text, &mut |value, _| {
        first.get_or_insert(value);
    });
    if let Some(value) = first {
        return Ok(Head::Element(value));
    }
    // A line of an object has no list of its own.
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(match serde_json::from_slice(line).or_else(|_| serde_json::from_slice(text)) {
        Ok(value) => Head::Line(value),
        Err(_) if list.is_err_and(|error| error.is_eof()) => Head::LongList,
        Err(_) => Head::Text,
    })
}
