//! The tools of the published systems through MCP, with the words that their documents print.

use super::running_with;
use crate::support::program::command;
use crate::support::skips::model_or_skip;
use crate::support::stdio::Mcp;
use crate::support::{Running, eventually};
use serde_json::{Value, json};

fn client(running: &Running, user: &str) -> Mcp {
    Mcp::start(command(&running.place).args(["mcp", "--user", user]))
}

fn contents(found: &Value) -> Vec<&str> {
    let memories = found["memories"].as_array().map_or(&[][..], Vec::as_slice);
    memories.iter().filter_map(|memory| memory["content"].as_str()).collect()
}

/// Holds lynkr 38, 41, 42, 57.
#[test]
fn lynkrs_four_tools_answer_in_the_forms_of_its_guide() {
    let untested = "a search by meaning through MCP is not tested";
    let Some(model) = model_or_skip("seeds::tools", untested) else { return };
    let running = running_with("lynkr", &[("embedder.model", &model)]);
    let mut mcp = client(&running, "lynkr-tools");
    for text in ["I prefer JWT over sessions", "auth.js handles user authentication"] {
        let turns = json!({"turns": [{"role": "user", "content": text}], "session": "s"});
        mcp.tool("add_turns", turns);
    }
    let (text, _, _) = mcp.tool("search_memories", json!({"query": "authentication"}));
    assert!(text.starts_with("Found 2 relevant memories:\n1. ["), "{text}");
    assert!(text.contains("[Fact] auth.js handles user authentication"), "{text}");
    let added = json!({"text": "we're using PostgreSQL for this project"});
    let (_, added, _) = mcp.tool("add_memory", added);
    let (_, shown, _) = mcp.tool("get_memory", json!({"id": added["id"]}));
    let memory = [&shown["memory"]["kind"], &shown["memory"]["importance"]];
    assert_eq!(memory, [&json!("fact"), &json!(1.0)], "{shown}");
    mcp.tool("add_memory", json!({"text": "We are using MongoDB for logs"}));
    let about = json!({"query": "Forget the memory about using MongoDB"});
    let (text, forgotten, _) = mcp.tool("forget_memories", about);
    assert_eq!(forgotten["decisions"][0]["outcome"], "forgotten", "{text}");
    let (text, _, _) = mcp.tool("memory_stats", json!({}));
    let figures: Vec<&str> = text.lines().collect();
    assert_eq!(
        figures[..3],
        ["Total memories: 3", "Session memories: 2", "Global memories: 1"],
        "{text}"
    );
    assert!(figures[3].starts_with("Avg importance: "), "{text}");
    assert_eq!(figures[4..], ["Oldest memory: 0 days ago"], "{text}");
    assert_eq!(mcp.end(), Some(0));
    running.stop();
}

/// Holds talome 6, 7, 10.
#[test]
fn talomes_recall_tool_searches_counts_and_obeys_its_switch() {
    let running = running_with("talome", &[]);
    let mut mcp = client(&running, "talome-tools");
    mcp.tool(
        "add_memory",
        json!({"text": "Actually, my timezone is Europe/Bratislava, not America/New_York"}),
    );
    let (_, drive, _) =
        mcp.tool("add_memory", json!({"text": "My media drive is mounted at /mnt/media"}));
    let query = json!({"query": "Where is my media drive?"});
    let (_, found, _) = mcp.tool("search_memories", query.clone());
    assert_eq!(contents(&found), ["My media drive is mounted at /mnt/media"], "{found}");
    let id = json!({"id": drive["id"]});
    eventually("the search counts as an access", || {
        let (_, shown, _) = mcp.tool("get_memory", id.clone());
        (shown["memory"]["uses"] == 1).then_some(())
    });
    let (_, changed, refused) =
        mcp.tool("update_memory", json!({"id": drive["id"], "confidence": 0.5}));
    assert!(!refused, "{changed}");
    assert_eq!(mcp.tool("get_memory", id).1["memory"]["confidence"], 0.5);
    mcp.tool("update_memory", json!({"id": drive["id"], "enabled": false}));
    assert_eq!(contents(&mcp.tool("search_memories", query.clone()).1), [""; 0]);
    mcp.tool("update_memory", json!({"id": drive["id"], "enabled": true}));
    assert_eq!(contents(&mcp.tool("search_memories", query).1).len(), 1);
    assert_eq!(mcp.end(), Some(0));
    running.stop();
}
