//! Writes the result of a tool as text for a model: the prompt block of a search, else a line for each
//! memory or decision. Pure.

use client::tools;
use serde_json::Value;

/// Returns the text of a result, in the form of Lynkr's guide where the guide has one, and takes out of
/// the result the fields that the text covers.
pub fn take(result: &mut Value) -> String {
    if let Some(fields) = result.as_object_mut()
        && let Some(Value::String(block)) = fields.remove("prompt")
    {
        for of_the_block in ["tokens", "budget_used"] {
            fields.remove(of_the_block);
        }
        // Only under Lynkr's policy the reply to a search gives its block a place.
        let block = match fields.get("placement").is_some() {
            true => tools::memory_search(&Value::Object(fields.clone())),
            false => block,
        };
        let lists = ["memories", "wishes"].map(|list| fields.get(list).and_then(Value::as_array));
        let found = lists.into_iter().flatten().flatten();
        let ids: Vec<&str> = found.filter_map(|memory| memory["id"].as_str()).collect();
        return match block.trim() {
            "" => "Nothing is remembered about that.".to_owned(),
            _ if ids.is_empty() => block,
            // A tool that changes a memory needs its id.
            _ => format!("{}\n\nids, best first: {}", block.trim_end(), ids.join(" ")),
        };
    }
    if result["memories"]["total"].is_u64() {
        let sessions = result["sessions"]["latest"].as_array().into_iter().flatten();
        let sessions = sessions.map(|one| {
            let text = |name: &str| one[name].as_str().unwrap_or_default();
            format!(
                "\nSession {}: {} turns, last {}",
                text("session"),
                one["turns"],
                text("last_at")
            )
        });
        let figures = tools::memory_stats(result, jiff::Timestamp::now());
        return figures.trim_end().to_owned() + &sessions.collect::<String>();
    }
    let lines = if let Some(memories) = result["memories"].as_array() {
        let next =
            result["after"].as_str().map(|after| format!("More: call again with after {after}"));
        memories.iter().map(memory).chain(next).collect()
    } else if result["memory"].is_object() {
        let earlier = result["history"].as_array().into_iter().flatten();
        let earlier = earlier.map(|version| format!("earlier: {}", said(version)));
        let why = Some(&result["decision"]).filter(|why| why.is_object()).map(explained);
        std::iter::once(memory(&result["memory"])).chain(why).chain(earlier).collect()
    } else if let Some(decisions) = result["decisions"].as_array() {
        decisions.iter().map(decision).collect()
    } else if result["decision"].is_object() {
        vec![explained(&result["decision"])]
    } else {
        vec![result.to_string()]
    };
    match lines.is_empty() {
        true => "Nothing is remembered.".to_owned(),
        false => lines.join("\n"),
    }
}

/// "I live in Lisbon. (fact, since 2026-11-27, id 0190…)". A tool that changes a memory needs its id.
fn memory(memory: &Value) -> String {
    let field = |name: &str| memory[name].as_str().unwrap_or_default();
    let day = field("created_at").get(..10).unwrap_or_default();
    format!("- {} ({}, since {day}, id {})", said(memory), field("kind"), field("id"))
}

/// "kept: I live in Lisbon. (novel, id 0190…)".
fn decision(decision: &Value) -> String {
    let field = |name: &str| decision[name].as_str().filter(|text| !text.is_empty());
    let mut line = field("outcome").unwrap_or("done").to_owned();
    if let Some(candidate) = field("candidate") {
        line.push_str(&format!(": {}", one_line(candidate)));
    }
    let id = field("memory").map(|id| format!("id {id}"));
    let notes: Vec<String> = field("reason").map(one_line).into_iter().chain(id).collect();
    match notes.is_empty() {
        true => line,
        false => format!("{line} ({})", notes.join(", ")),
    }
}

/// A decision with its numbers.
fn explained(why: &Value) -> String {
    match &why["surprise"] {
        Value::Null => decision(why),
        surprise => format!("{}\nsurprise: {surprise}", decision(why)),
    }
}

fn said(memory: &Value) -> String {
    one_line(memory["content"].as_str().unwrap_or_default())
}

/// Keeps a text from adding a line, which a model would read as another memory.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_result_has_a_text() {
        let one = json!({"id": "m-1", "kind": "fact", "content": "I live\nin Lisbon.",
            "created_at": "2026-11-27T10:00:00Z", "confidence": 1.0});
        let line = "- I live in Lisbon. (fact, since 2026-11-27, id m-1)";
        let kept = json!({"outcome": "kept", "candidate": "I sail.", "memory": "m-2",
            "reason": "new", "surprise": {"total": 0.9}});
        for (mut result, expected) in [
            (
                json!({"memories": [one], "prompt": "# Memories\n- x\n"}),
                "# Memories\n- x\n\nids, best first: m-1",
            ),
            (json!({"memories": [], "prompt": ""}), "Nothing is remembered about that."),
            (json!({"memories": [one]}), line),
            (json!({"memories": []}), "Nothing is remembered."),
            (
                json!({"memories": [one], "after": "c"}),
                &format!("{line}\nMore: call again with after c"),
            ),
            (
                json!({"memory": one, "history": [{"content": "I live in Rome."}]}),
                &format!("{line}\nearlier: I live in Rome."),
            ),
            (json!({"decisions": [kept]}), "kept: I sail. (new, id m-2)"),
            (json!({"decision": kept}), "kept: I sail. (new, id m-2)\nsurprise: {\"total\":0.9}"),
            (
                json!({"memory": one, "decision": kept}),
                &format!("{line}\nkept: I sail. (new, id m-2)\nsurprise: {{\"total\":0.9}}"),
            ),
            (json!({"decisions": [{"outcome": "forgotten"}]}), "forgotten"),
        ] {
            assert_eq!(take(&mut result), expected, "{result}");
            assert!(result["prompt"].is_null(), "{result}");
        }
    }
}
