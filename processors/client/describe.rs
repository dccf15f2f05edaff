//! Formats decisions and recalled memories for a person: outcomes, factors, scores and their terms.

use crate::show::{CHANGED, DIM, NAME, PLAIN, bar, number, outcome_style, printable, shown, text};
use policies::rank::TERMS;
use serde_json::{Map, Value};

/// Factors of a surprise with the short names they are shown by.
const FACTORS: [(&str, &str); 5] = [
    ("novelty", "novelty"),
    ("contradiction", "contra"),
    ("specificity", "specific"),
    ("emphasis", "emphasis"),
    ("context_switch", "switch"),
];

/// Numbers of `explain` that multiply the score. The numbers in `INPUTS` and `SIGNALS` are shown
/// without a bar; all others are terms of the sum.
const MULTIPLIERS: [&str; 3] = ["role", "superseded", "nudge"];
/// Inputs of the terms.
const INPUTS: [&str; 5] = ["cosine", "bm25", "recency", "importance", "confidence"];
/// Relevance, and the signals that relevance is estimated from.
const SIGNALS: [&str; 5] = ["relevance", "share", "shared", "whole", "above"];

/// Formats a decision on two lines: outcome and reason, then the numbers.
pub fn decision(decision: &Value) -> String {
    let outcome = text(decision, "outcome");
    let style = outcome_style(outcome);
    let kind =
        decision["kind"].as_str().map_or(String::new(), |kind| format!(" {NAME}{kind}{PLAIN}"));
    let mut lines = format!("{style}{outcome:<10}{PLAIN}{kind} {}", shown(decision, "reason"));
    for warning in decision["warnings"].as_array().into_iter().flatten() {
        let warning = printable(warning.as_str().unwrap_or_default());
        lines.push_str(&format!("\n           {CHANGED}warning: {warning}{PLAIN}"));
    }
    if decision["surprise"].is_object() {
        let total = number(&decision["surprise"], "total");
        let threshold = number(decision, "threshold");
        lines.push_str(&format!(
            "\n           {} {DIM}surprise {total:.2}, threshold {threshold:.2}{PLAIN}",
            factors(&decision["surprise"])
        ));
    }
    lines
}

/// Formats a decision with the points behind its total, each on a line.
pub fn explained(decision: &Value) -> String {
    let mut lines = self::decision(decision);
    for (name, points) in decision["surprise"]["points"].as_object().into_iter().flatten() {
        let points = points.as_f64().unwrap_or_default();
        lines.push_str(&format!("\n           {DIM}{name:<15} {points:>6.3}{PLAIN}"));
    }
    lines
}

/// Formats the five factors of a surprise as small bars.
fn factors(surprise: &Value) -> String {
    FACTORS
        .iter()
        .map(|(field, name)| format!("{name} {DIM}{}{PLAIN}", bar(number(surprise, field), 5)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Formats a recalled memory on one line. The bar is the memory's share of the `best` score.
pub fn memory(memory: &Value, best: f64) -> String {
    let score = memory["score"].as_f64().map_or(String::new(), |score| {
        let share = if best > 0.0 { score / best } else { 0.0 };
        format!("{} {score:.2} ", bar(share, 5))
    });
    let day = text(memory, "created_at").get(..10).unwrap_or_default();
    let until = memory["valid_to"]
        .as_str()
        .map_or(String::new(), |_| format!(" {CHANGED}(no longer){PLAIN}"));
    let end = memory["expires_at"].as_str().map_or(String::new(), |end| {
        format!(" {DIM}(until {}){PLAIN}", end.get(..16).unwrap_or(end).replace('T', " "))
    });
    let relevance = memory["relevance"]
        .as_f64()
        .map_or(String::new(), |share| format!("{:>7.0} % ", 100.0 * share));
    format!(
        "{score}{relevance}{NAME}{:<11}{PLAIN} {DIM}{day}{PLAIN} {}{until}{end}",
        shown(memory, "kind"),
        shown(memory, "content")
    )
}

/// The head of the columns of [`memory`], for memories with a score.
pub fn memory_head() -> String {
    format!("{DIM}{:<10} {:<9} {:<11} {:<10} memory{PLAIN}", "score", "relevance", "kind", "day")
}

/// The figures of a `stats` reply, each with its name.
pub fn stats(reply: &Value) -> Vec<(&'static str, String)> {
    let memories = &reply["memories"];
    if memories["total"] == 0 {
        return vec![("memories", "none".to_owned()), ("decisions", counted(&reply["decisions"]))];
    }
    vec![
        ("memories", format!("{}: {}", memories["total"], counted(&memories["by_state"]))),
        ("kinds", counted(&memories["by_kind"])),
        ("scopes", counted(&memories["by_scope"])),
        ("importance", format!("{:.2} of 1 on average", number(reply, "importance_average"))),
        ("oldest", text(reply, "oldest").get(..10).unwrap_or_default().to_owned()),
        ("sessions", sessions(&reply["sessions"])),
        ("size", size(number(reply, "bytes"))),
        ("decisions", counted(&reply["decisions"])),
    ]
}

/// Sessions by number, and the latest by name.
fn sessions(of: &Value) -> String {
    let latest = of["latest"].as_array().into_iter().flatten().take(3);
    let latest: Vec<String> = latest
        .map(|one| {
            let day = text(one, "last_at").get(..10).unwrap_or_default();
            format!("{} ({} turns, {day})", text(one, "session"), one["turns"])
        })
        .collect();
    match latest.is_empty() {
        true => "none".to_owned(),
        false => format!("{}: {}", of["total"], latest.join(", ")),
    }
}

fn size(bytes: f64) -> String {
    match bytes {
        ..1e4 => format!("{bytes} bytes in the store"),
        ..1e7 => format!("{:.0} kB in the store", bytes / 1e3),
        _ => format!("{:.0} MB in the store", bytes / 1e6),
    }
}

/// Formats an object of counts as `3 fact, 2 preference`.
fn counted(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten();
    let counts = counts.filter(|(_, count)| **count != 0);
    let counts: Vec<String> = counts.map(|(name, count)| format!("{count} {name}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// Formats the `explain` of a memory: the terms of the sum as bars, largest first, then the
/// multipliers that differ from 1, then the numbers behind.
pub fn terms(explain: &Map<String, Value>) -> String {
    let mut lines = String::new();
    for (name, value) in added_terms(explain) {
        let style = if value < 0.0 { CHANGED } else { DIM };
        let words = TERMS.iter().find(|term| term.name == name).map_or("", |term| term.words);
        lines.push_str(&format!(
            "      {DIM}{name:<12}{PLAIN} {style}{}{PLAIN} {value:>+6.3}  {DIM}{words}{PLAIN}\n",
            bar(value.abs(), 20)
        ));
    }
    for (name, value) in present(explain, &MULTIPLIERS).filter(|(_, value)| *value != 1.0) {
        lines.push_str(&format!("      {DIM}{name:<12} {:20} × {value:>5.3}{PLAIN}\n", ""));
    }
    for names in [&INPUTS, &SIGNALS] {
        let numbers: Vec<String> =
            present(explain, names).map(|(name, value)| format!("{name} {value:.2}")).collect();
        if !numbers.is_empty() {
            lines.push_str(&format!("      {DIM}{}{PLAIN}\n", numbers.join(", ")));
        }
    }
    lines
}

/// Returns the terms of the sum that are not 0, largest first.
fn added_terms(explain: &Map<String, Value>) -> Vec<(&str, f64)> {
    let others = [&MULTIPLIERS[..], &INPUTS, &SIGNALS, &["score"]].concat();
    let mut terms: Vec<(&str, f64)> = explain
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)))
        .filter(|(name, value)| !others.contains(name) && *value != 0.0)
        .collect();
    terms.sort_by(|a, b| b.1.total_cmp(&a.1));
    terms
}

/// Returns those of the named numbers that `explain` has.
fn present<'n>(
    explain: &Map<String, Value>,
    names: &'n [&'n str],
) -> impl Iterator<Item = (&'n str, f64)> {
    names.iter().filter_map(|name| Some((*name, explain.get(*name)?.as_f64()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_recalled_memory_stands_under_its_name() {
        let recalled = serde_json::json!({"score": 0.6, "relevance": 0.42, "kind": "fact",
            "created_at": "2026-11-27T10:00:00Z", "content": "I like tea."});
        let plain = |styled: &str| anstream::adapter::strip_str(styled).to_string();
        assert_eq!(
            [plain(&memory_head()), plain(&memory(&recalled, 0.6))],
            [
                "score      relevance kind        day        memory",
                "█████ 0.60      42 % fact        2026-11-27 I like tea.",
            ]
        );
    }

    #[test]
    fn figures_have_names_and_no_json() {
        let reply = serde_json::json!({
            "memories": {"total": 3, "by_state": {"active": 2, "archived": 1}, "by_kind": {"fact": 3},
                "by_scope": {"user": 3}},
            "importance_average": 0.512, "oldest": "2026-11-27T10:00:00Z", "bytes": 2048,
            "decisions": {"kept": 3, "dropped": 1},
            "sessions": {"total": 7, "latest": [
                {"session": "monday", "turns": 5, "last_at": "2026-11-27T10:00:00Z"}]},
        });
        let rows = stats(&reply);
        assert_eq!(rows[0], ("memories", "3: 2 active, 1 archived".to_owned()));
        assert_eq!(rows[5], ("sessions", "7: monday (5 turns, 2026-11-27)".to_owned()));
        assert_eq!(rows[6], ("size", "2048 bytes in the store".to_owned()));
        assert!(rows.iter().all(|(_, figures)| !figures.contains(['{', '"'])), "{rows:?}");
        let nobody = serde_json::json!({"memories": {"total": 0}, "decisions": {}});
        assert_eq!(stats(&nobody)[0], ("memories", "none".to_owned()));
    }

    #[test]
    fn the_terms_of_a_score_are_bars_followed_by_the_multipliers() {
        let explain = serde_json::json!({
            "dense": 0.5, "words": 0.0, "question": -0.1, "role": 0.5, "nudge": 1.0,
            "cosine": 0.4, "score": 0.2,
        });
        let explain = explain.as_object().expect("the literal is an object");
        let plain = anstream::adapter::strip_str(&terms(explain)).to_string();
        let lines: Vec<&str> = plain.lines().map(str::trim).collect();
        assert_eq!(
            lines[0],
            format!("dense        {}{} +0.500  near in meaning", "█".repeat(10), " ".repeat(10))
        );
        assert_eq!(lines[1], format!("question     ██{} -0.100  only asks", " ".repeat(18)));
        assert_eq!(
            (lines[2], lines[3], lines.len()),
            (&*format!("role         {:20} × 0.500", ""), "cosine 0.40", 4)
        );
    }
}
