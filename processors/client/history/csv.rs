//! Reads a table of comma-separated values ([RFC 4180](https://www.rfc-editor.org/rfc/rfc4180))
//! with a row of names. A row with a role is a turn, any other a text to remember.

use super::{Found, Item, What, hashed, left_out, time_ms};
use std::io::{self, BufRead};

/// Bytes of a row. A quote that never ends would take the whole file.
const ROW_BYTES_MAX: usize = 8 << 20;

const CONTENT: &[&str] = &["content", "text", "message", "memory"];
const ROLE: &[&str] = &["role", "sender"];
const SESSION: &[&str] = &["session", "conversation", "conversation_id", "session_id"];
const AT: &[&str] = &["at", "created_at", "timestamp", "time", "date"];
const KIND: &[&str] = &["kind"];
const ID: &[&str] = &["id"];

/// Calls `each` with every row. A table without a column of content is invalid data.
pub fn read(mut source: impl BufRead, each: &mut dyn FnMut(Found)) -> io::Result<()> {
    let Some(head) = row(&mut source, None)? else { return Ok(()) };
    let separator = [b',', b';', b'\t'].into_iter().max_by_key(|it| count(&head, *it));
    let names = fields(&head, separator.unwrap_or(b','));
    let names: Vec<String> = names.iter().map(|name| name.trim().to_lowercase()).collect();
    let column = |known: &[&str]| {
        known.iter().find_map(|name| names.iter().position(|it| it.as_str() == *name))
    };
    let Some(content) = column(CONTENT) else {
        let what = format!("the first row has no column content, but {}", shown(&names));
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    };
    let [role, session, at, kind, id] = [ROLE, SESSION, AT, KIND, ID].map(column);
    while let Some(bytes) = row(&mut source, separator)? {
        let fields = fields(&bytes, separator.unwrap_or(b','));
        let field = |column: Option<usize>| {
            let text = column.and_then(|column| fields.get(column)).map(|text| text.trim());
            text.filter(|text| !text.is_empty())
        };
        let Some(text) = field(Some(content)) else {
            each(Found::LeftOut(left_out::EMPTY));
            continue;
        };
        let what = match field(role).map(str::to_lowercase).as_deref() {
            None => What::Memory,
            Some("user" | "human") => What::UserTurn,
            Some("assistant" | "ai" | "bot") => What::AssistantTurn,
            Some("system" | "developer") => {
                each(Found::LeftOut(left_out::SYSTEM));
                continue;
            }
            Some("tool" | "function") => {
                each(Found::LeftOut(left_out::TOOL));
                continue;
            }
            Some(_) => {
                each(Found::LeftOut(left_out::UNKNOWN));
                continue;
            }
        };
        let own = field(id).map(str::to_owned);
        let [role, session, at] = [role, session, at].map(field);
        let parts = [session, at, role, Some(text)].map(Option::unwrap_or_default);
        let mut item = Item::new(what, own.unwrap_or_else(|| hashed(&parts)), text.to_owned());
        item.session = session.map(str::to_owned);
        item.at_ms = at.and_then(time_ms);
        item.kind = field(kind).map(str::to_owned);
        each(Found::Item(item));
    }
    Ok(())
}

/// Reads a row with the line breaks of its quoted fields. `None`: the end.
fn row(source: &mut impl BufRead, separator: Option<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    loop {
        if source.read_until(b'\n', &mut bytes)? == 0 {
            return Ok((!bytes.is_empty()).then_some(bytes));
        }
        if bytes.trim_ascii().is_empty() {
            bytes.clear();
        } else if !is_open(&bytes, separator) {
            return Ok(Some(bytes));
        } else if bytes.len() > ROW_BYTES_MAX {
            let what = "a quote does not end within 8 MiB";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
}

/// True if a quoted field goes on. A quote inside a plain field opens nothing.
fn is_open(bytes: &[u8], separator: Option<u8>) -> bool {
    let (mut is_open, mut is_start) = (false, true);
    for byte in bytes {
        match byte {
            b'"' if is_open || is_start => is_open = !is_open,
            _ => {}
        }
        let is_separator = separator.map_or(b",;\t".contains(byte), |it| it == *byte);
        // A doubled quote closes and opens again.
        is_start = is_separator || *byte == b'"';
    }
    is_open
}

fn fields(bytes: &[u8], separator: u8) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
    let mut fields = vec![String::new()];
    let mut is_open = false;
    let mut characters = text.chars().peekable();
    while let Some(it) = characters.next() {
        let field = fields.last_mut().expect("the list begins with one");
        match it {
            '"' if is_open && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' if is_open => is_open = false,
            '"' if field.is_empty() => is_open = true,
            it if it == char::from(separator) && !is_open => fields.push(String::new()),
            it => field.push(it),
        }
    }
    fields
}

fn count(bytes: &[u8], separator: u8) -> usize {
    bytes.iter().filter(|byte| **byte == separator).count()
}

fn shown(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(8).map(|it| text::shortened(it, 40)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::report::{in_short, without_ids};
    use super::*;

    fn check(table: &str, expected: &[&str]) {
        let mut found = Vec::new();
        read(table.as_bytes(), &mut |it| found.push(it)).expect("a table");
        assert_eq!(without_ids(&in_short(&found)), expected, "{table}");
    }

    #[test]
    fn a_row_with_a_role_is_a_turn_and_any_other_a_memory() {
        check(
            include_str!("../../../tests/data/imports/table.csv"),
            &[
                "user 2024-05-01T10:00:00Z s1 I live in \"old\" Rome,\nnear the river.",
                "assistant 2024-05-01T10:01:00Z s1 Noted.",
                "memory 2024-05-02T00:00:00Z - Likes tea",
                "- empty text",
                "- system message",
            ],
        );
    }

    #[test]
    fn a_quote_in_a_plain_field_and_other_separators_are_read() {
        check("content\n5\" pipes\nplain\n", &["memory - - 5\" pipes", "memory - - plain"]);
        check("\u{feff}role;content\nuser;a, b\n", &["user - - a, b"]);
        let error = read("name,age\nAda,7\n".as_bytes(), &mut |_| {}).expect_err("no content");
        assert!(error.to_string().contains("name, age"), "{error}");
    }
}
