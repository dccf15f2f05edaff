//! Reads a conversation of ChatGPT's data export: a tree of messages, of which the branch to
//! `current_node` is what the person saw last. Answers that were made anew are on other branches.

use super::{Found, Item, What, hashed, left_out, time_of};
use serde_json::{Map, Value};

/// Reads an element of conversations.json; `None` for anything else.
pub fn conversation(value: &Value) -> Option<Vec<Found>> {
    let mapping = value["mapping"].as_object()?;
    let ids = [&value["conversation_id"], &value["id"]];
    let session = ids.into_iter().find_map(Value::as_str).map(str::to_owned);
    let begun = time_of(&value["create_time"]);
    let mut found = vec![Found::Conversation];
    for (node, message) in branch(value, mapping) {
        let at = time_of(&message["create_time"]).or(begun);
        found.extend(turn(node, message).into_iter().map(|mut it| {
            if let Found::Item(item) = &mut it {
                item.session.clone_from(&session);
                item.at_ms = at;
                if item.id.is_empty() {
                    item.id = hashed(&[session.as_deref().unwrap_or_default(), &item.text]);
                }
            }
            it
        }));
    }
    Some(found)
}

/// The messages from the root to the current node, the oldest first.
fn branch<'a>(value: &'a Value, mapping: &'a Map<String, Value>) -> Vec<(&'a str, &'a Value)> {
    let newest_leaf = || {
        let leaves = mapping.iter().filter(|(_, node)| {
            node["children"].as_array().is_none_or(Vec::is_empty) && node["message"].is_object()
        });
        leaves.max_by_key(|(_, node)| time_of(&node["message"]["create_time"])).map(|(id, _)| id)
    };
    let current = value["current_node"].as_str().filter(|id| mapping.contains_key(*id));
    let mut next = current.or_else(|| newest_leaf().map(String::as_str));
    let mut messages = Vec::new();
    // A tree has as many steps as nodes at most; a damaged one may have a circle.
    for _ in 0..mapping.len() {
        let Some(id) = next else { break };
        let node = &mapping.get(id).unwrap_or(&Value::Null);
        if node["message"].is_object() {
            messages.push((id, &mapping[id]["message"]));
        }
        next = mapping.get(id).and_then(|node| node["parent"].as_str());
    }
    messages.reverse();
    messages
}

fn turn(node: &str, message: &Value) -> Vec<Found> {
    let only = |why| vec![Found::LeftOut(why)];
    let what = match message["author"]["role"].as_str() {
        Some("user") => What::UserTurn,
        Some("assistant") => What::AssistantTurn,
        Some("tool" | "function") => return only(left_out::TOOL),
        Some("system" | "developer") => return only(left_out::SYSTEM),
        _ => return only(left_out::UNKNOWN),
    };
    if message["metadata"]["is_visually_hidden_from_conversation"] == true {
        return only(left_out::HIDDEN);
    }
    // An assistant's message to a tool, such as code to run.
    if message["recipient"].as_str().is_some_and(|recipient| recipient != "all") {
        return only(left_out::TOOL);
    }
    let content = &message["content"];
    match content["content_type"].as_str() {
        None | Some("text" | "multimodal_text") => {}
        Some("thoughts" | "reasoning_recap") => return only(left_out::THINKING),
        Some("user_editable_context" | "model_editable_context") => {
            return only(left_out::INSTRUCTIONS);
        }
        Some("code" | "execution_output" | "tether_browsing_display" | "tether_quote") => {
            return only(left_out::TOOL);
        }
        Some(_) => return only(left_out::UNKNOWN),
    }
    let mut texts: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for part in content["parts"].as_array().into_iter().flatten() {
        match part {
            Value::String(text) => texts.push(text),
            // Spoken text.
            part if part["content_type"] == "audio_transcription" => {
                texts.extend(part["text"].as_str());
            }
            _ => found.push(Found::LeftOut(left_out::IMAGE)),
        }
    }
    let text = texts.join("\n").trim().to_owned();
    if !text.is_empty() {
        let id = message["id"].as_str().unwrap_or(node).to_owned();
        found.insert(0, Found::Item(Item::new(what, id, text)));
    } else if found.is_empty() {
        found.push(Found::LeftOut(left_out::EMPTY));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::report::in_short;
    use super::*;

    const SAMPLE: &str = include_str!("../../../tests/data/imports/chatgpt.json");

    #[test]
    fn the_current_branch_is_read_from_the_first_message_on() {
        let list: Vec<Value> = serde_json::from_str(SAMPLE).expect("a sample");
        let found: Vec<Found> = list.iter().flat_map(|it| conversation(it).expect("one")).collect();
        let expected = [
            "conversation",
            "- system message",
            "- instructions or context of the program",
            "user 2024-03-02T09:00:10Z c-new/u1 I moved to Lisbon last month.",
            "- tool call or output",
            "- tool call or output",
            "- thinking",
            "assistant 2024-03-02T09:00:20Z c-new/a1b Lisbon is lovely in spring!",
            "user 2024-03-02T09:01:00Z c-new/u2 This is my balcony.",
            "- image or file",
            "user 2024-03-02T09:02:00Z c-new/u3 My sister is called Ines.",
            "- empty text",
            "conversation",
            "user 2023-06-01T08:00:00Z c-old/u0 I live in Berlin.",
            "assistant 2023-06-01T08:00:05Z c-old/a0 Good to know.",
        ];
        assert_eq!(in_short(&found), expected);
    }

    #[test]
    fn a_circle_ends_and_a_missing_current_node_is_the_newest_leaf() {
        let circle = serde_json::json!({"id": "c", "mapping": {
            "a": {"parent": "b", "children": ["b"], "message": {"author": {"role": "user"},
                "create_time": 1.0, "content": {"parts": ["one"]}}},
            "b": {"parent": "a", "children": [], "message": {"author": {"role": "user"},
                "create_time": 2.0, "content": {"parts": ["two"]}}}}});
        let found = conversation(&circle).expect("a conversation");
        let expected = [
            "conversation",
            "user 1970-01-01T00:00:01Z c/a one",
            "user 1970-01-01T00:00:02Z c/b two",
        ];
        assert_eq!(in_short(&found), expected);
        assert!(conversation(&serde_json::json!({"chat_messages": []})).is_none());
    }
}
