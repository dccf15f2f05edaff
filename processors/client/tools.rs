//! Writes replies as the tools of Lynkr's guide do: `memory_search` and `memory_stats`. Pure.

use crate::show::{number, text};
use jiff::Timestamp;
use serde_json::Value;

/// Lists the memories of a `recalled` reply: their count, then a numbered line with kind and text.
pub fn memory_search(reply: &Value) -> String {
    let memories = reply["memories"].as_array().map_or(&[][..], Vec::as_slice);
    let noun = if memories.len() == 1 { "memory" } else { "memories" };
    let mut lines = format!("Found {} relevant {noun}", memories.len());
    lines.push_str(if memories.is_empty() { "\n" } else { ":\n" });
    for (place, memory) in (1..).zip(memories) {
        let kind = capitalised(text(memory, "kind"));
        let words: Vec<&str> = text(memory, "content").split_whitespace().collect();
        lines.push_str(&format!("{place}. [{kind}] {}\n", words.join(" ")));
    }
    lines
}

/// Shows the five figures of a `stats` reply. A memory without a session is global.
pub fn memory_stats(reply: &Value, now: Timestamp) -> String {
    let memories = &reply["memories"];
    let total = memories["total"].as_u64().unwrap_or_default();
    let in_sessions = memories["in_sessions"].as_u64().unwrap_or_default();
    let oldest = text(reply, "oldest").parse::<Timestamp>();
    let age = oldest.map_or("none".to_owned(), |oldest| {
        let days = now.duration_since(oldest).as_hours().max(0) / 24;
        format!("{days} day{} ago", if days == 1 { "" } else { "s" })
    });
    format!(
        "Total memories: {total}\nSession memories: {in_sessions}\nGlobal memories: {}\n\
         Avg importance: {:.2}\nOldest memory: {age}\n",
        total.saturating_sub(in_sessions),
        number(reply, "importance_average")
    )
}

fn capitalised(kind: &str) -> String {
    let mut chars = kind.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Holds lynkr 38.
    #[test]
    fn a_search_is_a_numbered_list_as_the_guide_shows_it() {
        let reply = json!({"memories": [
            {"kind": "preference", "content": "I prefer JWT over sessions"},
            {"kind": "fact", "content": "auth.js handles\nuser authentication"},
            {"kind": "entity", "content": "File: utils/jwt.js creates tokens"},
        ]});
        assert_eq!(
            memory_search(&reply),
            "Found 3 relevant memories:\n\
             1. [Preference] I prefer JWT over sessions\n\
             2. [Fact] auth.js handles user authentication\n\
             3. [Entity] File: utils/jwt.js creates tokens\n"
        );
        assert_eq!(memory_search(&json!({"memories": []})), "Found 0 relevant memories\n");
    }

    /// Holds lynkr 42.
    #[test]
    fn statistics_are_the_five_lines_of_the_guide() {
        let reply = json!({"memories": {"total": 127, "in_sessions": 45},
            "importance_average": 0.6712, "oldest": "2026-01-01T10:00:00Z"});
        let now = "2026-01-24T12:00:00Z".parse().expect("a time");
        assert_eq!(
            memory_stats(&reply, now),
            "Total memories: 127\nSession memories: 45\nGlobal memories: 82\n\
             Avg importance: 0.67\nOldest memory: 23 days ago\n"
        );
    }
}
