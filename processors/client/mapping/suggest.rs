//! Proposes paths for the fields of a turn that the section `[map]` lacks, from the names of fields
//! that other applications use.

use serde_json::Value;

/// Levels and fields of a record that are looked at, and proposals for a field.
const DEPTH_MAX: usize = 6;
const LEAVES_MAX: usize = 500;
const PROPOSED_MAX: usize = 3;

/// Names in lower case without separators, the likeliest first. The last one or two names of a path
/// are compared: `author.id` is `authorid`.
const NAMES: [(&str, &[&str]); 7] = [
    (
        "user",
        &[
            "userid",
            "user",
            "customerid",
            "authorid",
            "senderid",
            "fromid",
            "accountid",
            "uid",
            "username",
            "author",
            "sender",
            "from",
            "customer",
            "email",
        ],
    ),
    ("content", &["content", "text", "messagetext", "messagecontent", "message", "body", "msg"]),
    (
        "session",
        &[
            "sessionid",
            "conversationid",
            "threadid",
            "chatid",
            "channelid",
            "roomid",
            "session",
            "conversation",
            "thread",
            "threadts",
            "chat",
            "channel",
            "room",
        ],
    ),
    ("role", &["role", "authorrole", "sendertype", "authortype", "direction"]),
    ("time", &["timestamp", "createdat", "sentat", "createtime", "time", "ts", "date", "created"]),
    ("id", &["messageid", "msgid", "eventid", "uuid", "id"]),
    ("speaker", &["speaker", "displayname", "authorname", "sendername", "name"]),
];
/// Names that mean something only beside the name before them, unless they are the first.
const GENERIC: [&str; 5] = ["id", "name", "text", "time", "type"];

/// Returns the paths of these records that may be the field, the likeliest first, each with a value.
pub fn paths(field: &str, bodies: &[Value]) -> Vec<(String, String)> {
    let names = NAMES.iter().find(|(name, _)| *name == field).map_or(&[][..], |(_, names)| names);
    let mut found: Vec<(usize, String, String)> = Vec::new();
    for body in bodies {
        let mut leaves = Vec::new();
        collect(body, &mut Vec::new(), &mut leaves);
        for (path, value) in leaves {
            let text = path.join(".").replace(".[]", "[]");
            let rank = names.iter().position(|name| fits(&path, name));
            if let Some(rank) = rank.filter(|_| found.iter().all(|(_, path, _)| *path != text)) {
                found.push((rank, text, value));
            }
        }
    }
    found.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    found.truncate(PROPOSED_MAX);
    found.into_iter().map(|(_, path, value)| (path, value)).collect()
}

fn fits(path: &[String], name: &str) -> bool {
    let plain = |name: &String| -> String {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let names: Vec<String> = path.iter().filter(|name| *name != "[]").map(plain).collect();
    let [before @ .., last] = &names[..] else { return false };
    let is_alone = before.is_empty() || path.get(path.len().wrapping_sub(2)) == Some(&"[]".into());
    (is_alone || !GENERIC.contains(&last.as_str())) && last == name
        || before.last().is_some_and(|before| format!("{before}{last}") == name)
}

/// Collects the texts and numbers of a record with their paths, of a list those of its first
/// element. A path with a dot in a name cannot be written with dots.
fn collect(value: &Value, path: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    if path.len() > DEPTH_MAX || leaves.len() >= LEAVES_MAX {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !name.contains(['.', '['])) {
                path.push(name.clone());
                collect(value, path, leaves);
                path.pop();
            }
        }
        // The parts of one message, not several messages.
        Value::Array(list) if list.first().is_some_and(|part| part["text"].is_string()) => {
            let is_messages = list[0].as_object().is_some_and(|part| part.contains_key("role"));
            match is_messages {
                true => collect_each(&list[0], path, leaves),
                false => leaves.push((path.clone(), list[0]["text"].to_string())),
            }
        }
        Value::Array(list) => {
            if let Some(first) = list.first() {
                collect_each(first, path, leaves);
            }
        }
        Value::String(_) | Value::Number(_) => leaves.push((path.clone(), value.to_string())),
        Value::Null | Value::Bool(_) => {}
    }
}

fn collect_each(first: &Value, path: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, String)>) {
    path.push("[]".to_owned());
    collect(first, path, leaves);
    path.pop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usual_names_are_found_wherever_they_stand() {
        let flat = json!({"user_id": 7, "text": "Hi", "ts": "1769000000.1", "id": "m"});
        let nested = json!({"data": {"author": {"id": "u", "displayName": "Ada"}, "threadId": 3,
            "content": [{"type": "text", "text": "Hi"}], "createdAt": "2026-01-01T00:00:00Z"}});
        let openai = json!({"user": "ada", "messages": [{"role": "user", "content": "Hi"}]});
        for (field, body, expected) in [
            ("user", &flat, "user_id"),
            ("content", &flat, "text"),
            ("time", &flat, "ts"),
            ("id", &flat, "id"),
            ("user", &nested, "data.author.id"),
            ("speaker", &nested, "data.author.displayName"),
            ("session", &nested, "data.threadId"),
            ("content", &nested, "data.content"),
            ("time", &nested, "data.createdAt"),
            ("user", &openai, "user"),
            ("role", &openai, "messages[].role"),
            ("content", &openai, "messages[].content"),
        ] {
            let found = paths(field, std::slice::from_ref(body));
            assert_eq!(found.first().map(|(path, _)| path.as_str()), Some(expected), "{field}");
        }
        assert!(paths("id", std::slice::from_ref(&nested)).is_empty());
        assert!(paths("role", &[flat, nested]).is_empty());
    }
}
