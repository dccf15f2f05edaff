//! Reads the memories that other programs keep as texts: those of mem0, and the graph of MCP's
//! reference memory server.

use super::{Found, Item, What, hashed, left_out, time_of};
use serde_json::Value;

/// Bytes of names and values of a memory's own metadata, of the contract's 2,048.
const METADATA_BYTES_MAX: usize = 1900;

/// Reads a memory of mem0's get_all; `None` for anything else.
pub fn mem0(value: &Value) -> Option<Vec<Found>> {
    // Older versions named the text `data`.
    let text = ["memory", "data"].iter().find_map(|field| value[field].as_str())?.trim();
    if text.is_empty() {
        return Some(vec![Found::LeftOut(left_out::EMPTY)]);
    }
    let id = value["id"].as_str().map_or_else(|| hashed(&[text]), str::to_owned);
    let mut item = Item::new(What::Memory, id, text.to_owned());
    item.at_ms = time_of(&value["created_at"]);
    item.session = value["run_id"].as_str().filter(|run| !run.is_empty()).map(str::to_owned);
    let mut bytes = 0;
    for (name, value) in value["metadata"].as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => continue,
        };
        bytes += name.len() + value.len();
        if bytes <= METADATA_BYTES_MAX {
            item.metadata.insert(name.clone(), value);
        }
    }
    Some(vec![Found::Item(item)])
}

/// Reads a line of the memory server's file; `None` for anything else.
pub fn graph(line: &Value) -> Option<Vec<Found>> {
    match line["type"].as_str()? {
        "entity" => {
            let name = line["name"].as_str()?;
            let observations = line["observations"].as_array().into_iter().flatten();
            let found: Vec<Found> = observations
                .map(|observation| statement(name, observation.as_str().unwrap_or_default()))
                .collect();
            Some(if found.is_empty() { vec![Found::LeftOut(left_out::EMPTY)] } else { found })
        }
        "relation" => {
            let from = line["from"].as_str()?;
            let relation = line["relationType"].as_str().unwrap_or("is related to");
            let to = line["to"].as_str()?;
            Some(vec![statement(from, &format!("{} {to}", relation.replace('_', " ")))])
        }
        _ => None,
    }
}

/// The server has no ids and rewrites its file: the text itself is the id.
fn statement(name: &str, observation: &str) -> Found {
    let (name, observation) = (name.trim(), observation.trim());
    if observation.is_empty() {
        return Found::LeftOut(left_out::EMPTY);
    }
    let text = format!("{}: {observation}", name.replace('_', " "));
    Found::Item(Item::new(What::Memory, hashed(&[name, observation]), text))
}

#[cfg(test)]
mod tests {
    use super::super::report::{in_short, without_ids};
    use super::*;

    #[test]
    fn a_memory_of_mem0_keeps_its_time_id_and_plain_metadata() {
        let sample = include_str!("../../../tests/data/imports/mem0.json");
        let sample: Value = serde_json::from_str(sample).expect("a sample");
        let list = sample["results"].as_array().expect("a list");
        let found: Vec<Found> = list.iter().flat_map(|it| mem0(it).expect("one")).collect();
        let expected = [
            "memory 2024-07-26T15:29:36.546Z -/892db2ae Likes to play cricket on weekends",
            "memory 2024-08-01T08:00:00Z run-7/5c1c11b2 Is a vegetarian",
            "- empty text",
        ];
        assert_eq!(in_short(&found), expected);
        let Found::Item(first) = &found[0] else { panic!("an item") };
        assert_eq!(first.metadata.get("category").map(String::as_str), Some("hobbies"));
        assert_eq!(first.metadata.get("score").map(String::as_str), Some("3"));
        assert_eq!(first.metadata.len(), 2);
    }

    #[test]
    fn a_graph_becomes_statements() {
        let sample = include_str!("../../../tests/data/imports/memory.jsonl");
        let lines = sample.lines().map(|line| serde_json::from_str(line).expect("a line"));
        let found: Vec<Found> =
            lines.flat_map(|line: Value| graph(&line).expect("known")).collect();
        let expected = [
            "memory - - John Smith: Speaks fluent Spanish",
            "memory - - John Smith: Graduated in 2019",
            "- empty text",
            "memory - - John Smith: works at Anthropic",
        ];
        assert_eq!(without_ids(&in_short(&found)), expected);
        assert!(graph(&serde_json::json!({"type": "user"})).is_none());
    }
}
