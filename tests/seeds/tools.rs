//! The tools of the published systems through MCP, with the words that their documents print.

use super::running_with;
use crate::support::program::command;
use crate::support::stdio::Mcp;
use crate::support::{Running, eventually};
use contract::wire::Moment;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

fn client(running: &Running, user: &str) -> Mcp {
    Mcp::start(command(&running.place).args(["mcp", "--user", user]))
}

fn contents(found: &Value) -> Vec<&str> {
    let memories = found["memories"].as_array().map_or(&[][..], Vec::as_slice);
    memories.iter().filter_map(|memory| memory["content"].as_str()).collect()
}

/// A minute before so many days.
fn days_ago(days: i64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let now = i64::try_from(now.as_millis()).expect("a time before 2262");
    let at = Moment(now - days * 86_400_000 - 60_000);
    serde_json::to_value(at).expect("a time is a JSON string")
}

/// Holds lynkr 38, 39, 41, 42, 57, 58.
#[test]
fn lynkrs_four_tools_answer_in_the_forms_of_its_guide() {
    let running = running_with("lynkr", &[]);
    let broker = running.client();
    let ada = broker.user("default", "lynkr-tools");
    for text in ["auth.js handles user authentication", "File: utils/jwt.js creates tokens"] {
        ada.event(json!({"type": "turn", "content": text, "session": "s", "at": days_ago(30)}));
    }
    let mut mcp = client(&running, "lynkr-tools");
    let text = "I prefer JWT over sessions";
    let turns = json!({"turns": [{"role": "user", "content": text}], "session": "s"});
    mcp.tool("add_turns", turns);
    let (text, _, _) = mcp.tool("search_memories", json!({"query": "authentication"}));
    let (list, _) = text.split_once("\n\nids").expect("the ids follow");
    assert_eq!(
        list,
        "Found 3 relevant memories:\n\
         1. [Preference] I prefer JWT over sessions\n\
         2. [Fact] auth.js handles user authentication\n\
         3. [Entity] File: utils/jwt.js creates tokens"
    );
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
        ["Total memories: 4", "Session memories: 3", "Global memories: 1"],
        "{text}"
    );
    assert!(figures[3].starts_with("Avg importance: "), "{text}");
    assert_eq!(figures[4..], ["Oldest memory: 30 days ago"], "{text}");
    assert_eq!(mcp.end(), Some(0));
    running.stop();
}

/// The guide's 127 memories: 45 of sessions, the oldest of 23 days ago.
/// Holds lynkr 42.
#[test]
fn lynkrs_statistics_are_those_of_its_guide_word_for_word() {
    let running = running_with("lynkr", &[]);
    let broker = running.client();
    let ada = broker.user("default", "lynkr-statistics");
    for number in 0..127 {
        let session = (number < 45).then_some("s");
        ada.event(json!({"type": "remember", "content": format!("Port {number} is open"),
            "session": session, "importance": 0.67, "at": days_ago(23)}));
    }
    let mut mcp = client(&running, "lynkr-statistics");
    let (text, _, _) = mcp.tool("memory_stats", json!({}));
    assert_eq!(
        text.trim_end(),
        "Total memories: 127\nSession memories: 45\nGlobal memories: 82\n\
         Avg importance: 0.67\nOldest memory: 23 days ago"
    );
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
