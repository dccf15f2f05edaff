//! How things look on a terminal: colours that go away when nobody is looking, small bars, tables.

use crate::stages::rank::TERMS;
use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub const PLAIN: anstyle::Reset = anstyle::Reset;
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const CHANGED: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const NAME: Style = AnsiColor::Cyan.on_default();

/// A share of 0 to 1 in `width` characters, with eighths: ▕███▌ ▏.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let text = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
    let filled = eighths.div_ceil(8);
    format!("{text}{}", " ".repeat(width - filled.min(width)))
}

/// A bar on a dim track, so that nothing can be told from a blank.
pub fn meter(share: f64, width: usize) -> String {
    let bar = bar(share, width);
    let filled = bar.trim_end();
    format!("{filled}{DIM}{}{PLAIN}", "·".repeat(width - filled.chars().count()))
}

pub fn outcome_style(outcome: &str) -> Style {
    match outcome {
        "kept" | "updated" | "summarised" => GOOD,
        "merged" | "superseded" | "revised" | "noted" | "pruned" | "forgotten" => CHANGED,
        "refused" => BAD,
        _ => DIM,
    }
}

/// Rows under a head, columns as wide as they need.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
            .max(head[column].len())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = String>| -> String {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(&mut head.iter().map(|cell| (*cell).to_owned()));
    for row in rows {
        text.push_str(&line(&mut row.iter().cloned()));
    }
    text
}

/// What each name counts, the most first; with bars where somebody looks.
pub fn tally(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<(&String, u64)> =
        counts.iter().map(|(name, count)| (name, *count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let most = counts.first().map_or(1, |(_, count)| *count).max(1);
    let width = counts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let is_seen = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let line = |(name, count): &(&String, u64)| {
        let bar = if is_seen {
            format!("  {}", bar(*count as f64 / most as f64, 20))
        } else {
            String::new()
        };
        format!("  {NAME}{name:<width$}{PLAIN} {count:>6}{}\n", bar.trim_end())
    };
    counts.iter().map(line).collect()
}

/// A moment in UTC, for a column.
pub fn moment(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// The same for a program.
pub fn rfc_3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |at| at.to_string())
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_default()
}

/// The five factors of a surprise as small bars.
pub fn factors(surprise: &Value) -> String {
    let names = ["novelty", "contradiction", "specificity", "emphasis", "context_switch"];
    let one = |name: &&str| {
        let value = number(surprise, name);
        format!("{} {DIM}{}{PLAIN}", short(name), bar(value, 5))
    };
    names.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn short(name: &str) -> &str {
    match name {
        "contradiction" => "contra",
        "specificity" => "specific",
        "context_switch" => "switch",
        other => other,
    }
}

/// A decision on two lines: what became of what, and the numbers behind it.
pub fn decision(decision: &Value) -> String {
    let outcome = text(decision, "outcome");
    let style = outcome_style(outcome);
    let mut lines = format!("{style}{outcome:<10}{PLAIN} {}", text(decision, "reason"));
    if let Some(kind) = decision["kind"].as_str() {
        lines =
            format!("{style}{outcome:<10}{PLAIN} {NAME}{kind}{PLAIN} {}", text(decision, "reason"));
    }
    if decision["surprise"].is_object() {
        let (total, threshold) =
            (number(&decision["surprise"], "total"), number(decision, "threshold"));
        lines.push_str(&format!(
            "\n           {} {DIM}surprise {total:.2}, threshold {threshold:.2}{PLAIN}",
            factors(&decision["surprise"])
        ));
    }
    lines
}

/// A memory on one line. Its bar is its share of the best score.
pub fn memory(memory: &Value, best: f64) -> String {
    let share = |score: f64| if best > 0.0 { score / best } else { 0.0 };
    let score = memory["score"]
        .as_f64()
        .map_or(String::new(), |score| format!("{} {score:.2} ", bar(share(score), 5)));
    let day = text(memory, "created_at").get(..10).unwrap_or_default();
    let until = memory["valid_to"]
        .as_str()
        .map_or(String::new(), |_| format!(" {CHANGED}(no longer){PLAIN}"));
    let likely = memory["relevance"]
        .as_f64()
        .map_or(String::new(), |share| format!("{:>3.0} % ", 100.0 * share));
    format!(
        "{score}{likely}{NAME}{:<11}{PLAIN} {DIM}{day}{PLAIN} {}{until}",
        text(memory, "kind"),
        text(memory, "content")
    )
}

/// Numbers that a score is multiplied by; those that stand behind others; all the rest is added up.
const FACTORS: [&str; 3] = ["role", "superseded", "nudge"];
const BEHIND: [&str; 5] = ["cosine", "bm25", "recency", "importance", "confidence"];
/// Signals that relevance is estimated from, and relevance itself.
const LIKELY: [&str; 5] = ["relevance", "share", "shared", "whole", "above"];

/// What made a score: what was added, the most first, as bars; then the factors that changed it.
pub fn terms(explain: &Map<String, Value>) -> String {
    let number = |name: &str| explain.get(name).and_then(Value::as_f64);
    let numbers = explain.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)));
    let is_added =
        |name: &str| name != "score" && ![&FACTORS[..], &BEHIND, &LIKELY].concat().contains(&name);
    let mut added: Vec<(&str, f64)> =
        numbers.filter(|(name, value)| is_added(name) && *value != 0.0).collect();
    added.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut lines = String::new();
    for (name, value) in added {
        let style = if value < 0.0 { CHANGED } else { DIM };
        let words = TERMS.iter().find(|term| term.name == name).map_or("", |term| term.words);
        lines.push_str(&format!(
            "      {DIM}{name:<12}{PLAIN} {style}{}{PLAIN} {value:>+6.3}  {DIM}{words}{PLAIN}\n",
            bar(value.abs(), 20)
        ));
    }
    for (name, value) in FACTORS
        .iter()
        .filter_map(|name| Some((name, number(name)?)))
        .filter(|(_, value)| *value != 1.0)
    {
        lines.push_str(&format!("      {DIM}{name:<12} {:20} × {value:>5.3}{PLAIN}\n", ""));
    }
    for names in [&BEHIND, &LIKELY] {
        let numbers: Vec<String> =
            names.iter().filter_map(|name| Some(format!("{name} {:.2}", number(name)?))).collect();
        if !numbers.is_empty() {
            lines.push_str(&format!("      {DIM}{}{PLAIN}\n", numbers.join(", ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_wide_as_asked() {
        for (share, expected) in
            [(0.0, "     "), (0.5, "██▌  "), (1.0, "█████"), (7.0, "█████"), (f64::NAN, "     ")]
        {
            assert_eq!(bar(share, 5), expected, "{share}");
        }
    }

    #[test]
    fn the_terms_of_a_score_are_bars_with_their_factors_behind() {
        let explain = serde_json::json!({"dense": 0.5, "words": 0.0, "question": -0.1, "role": 0.5, "nudge": 1.0, "cosine": 0.4, "score": 0.2});
        let plain = anstream::adapter::strip_str(&terms(explain.as_object().unwrap())).to_string();
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

    #[test]
    fn tables_align() {
        let rows = [vec!["a".into(), "long cell".into()], vec!["bcd".into(), "x".into()]];
        assert_eq!(table(&["id", "what"], &rows), "id   what\na    long cell\nbcd  x\n");
    }
}
