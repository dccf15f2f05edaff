//! Formats the lines of the demo as text: decisions, recalled memories, times, wrapped paragraphs.
//! Prints nothing.

use client::show::{CHANGED, DIM, NAME, PLAIN, meter, number, outcome_style, text};
use contract::wire::Moment;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use text::shortened;

pub const WIDTH: usize = 100;
/// Width of the left column: the speaker, and the outcome below.
pub const LEFT: usize = 12;
/// Width of a bar, and of the name above the bar.
pub const BAR: usize = 5;
/// Points of a full bar: more than any factor gives. A contradiction gives .30, novelty .15.
const FULL: f64 = 0.4;
/// The five factors with the heads of their columns.
pub const FACTORS: [(&str, &str); 5] = [
    ("novelty", "new"),
    ("contradiction", "clash"),
    ("specificity", "rare"),
    ("emphasis", "loud"),
    ("context_switch", "topic"),
];
/// The heads behind them: all other points for the turn, and all against it.
pub const OTHERS: [&str; 2] = ["signs", "minus"];

/// Formats a time as messages contain it.
pub fn moment(ms: i64) -> String {
    let text = serde_json::to_value(Moment(ms)).unwrap_or_default();
    text.as_str().unwrap_or_default().to_owned()
}

/// Formats a day as "Tue 4 March".
pub fn day(ms: i64) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::UTC).strftime("%a %-d %B").to_string()
}

/// Formats a decision: the outcome, a bar for the points of each factor, of the other signs and of the
/// penalties, points and threshold, and the whole reason, on lines of its own if it is long.
pub fn decided(decision: &Value) -> String {
    let outcome = text(decision, "outcome");
    let reason = text(decision, "reason");
    let style = outcome_style(outcome);
    let surprise = &decision["surprise"];
    if !surprise.is_object() {
        let reason = wrapped(reason, WIDTH - LEFT).join(&format!("{PLAIN}\n{:LEFT$}{DIM}", ""));
        return format!("{style}{outcome:<LEFT$}{PLAIN}{DIM}{reason}{PLAIN}");
    }
    let points = surprise["points"].as_object();
    let is_factor = |name: &str| FACTORS.iter().any(|(factor, _)| *factor == name);
    let (mut signs, mut minus) = (0.0, 0.0);
    for (name, value) in points.into_iter().flatten() {
        let value = value.as_f64().unwrap_or_default();
        match value < 0.0 {
            true => minus -= value,
            false if !is_factor(name) => signs += value,
            false => {}
        }
    }
    let mut bars: String = FACTORS
        .iter()
        .map(|(name, _)| format!("{} ", meter(number(&surprise["points"], name) / FULL, BAR)))
        .collect();
    let (signs, minus) = (meter(signs / FULL, BAR), meter(minus / FULL, BAR));
    bars.push_str(&format!("{signs} {CHANGED}{minus}{PLAIN} "));
    let points = format!("{:>5.2}/{:.2}", number(surprise, "total"), number(decision, "threshold"));
    let used = LEFT + (FACTORS.len() + OTHERS.len()) * (BAR + 1) + points.len() + 2;
    // The numbers in brackets repeat the bars.
    let reason = reason.split_once(" (").map_or(reason, |(words, _)| words);
    let line = format!("{style}{outcome:<LEFT$}{PLAIN}{bars}{DIM}{points}{PLAIN}");
    if reason.chars().count() <= WIDTH - used {
        return format!("{line}  {reason}");
    }
    let reason = wrapped(reason, WIDTH - LEFT).join(&format!("\n{:LEFT$}", ""));
    format!("{line}\n{:LEFT$}{reason}", "")
}

/// Formats a recalled memory with its position among all memories of the reply, and marks a
/// superseded one.
pub fn recalled_memory(memory: &Value, all: &[Value]) -> String {
    let position = position(&memory["id"], all).unwrap_or(0);
    let old = match &memory["superseded_by"] {
        Value::Null => String::new(),
        newer => format!("  superseded{} on {}", by(newer, all), day_of(memory, "valid_to")),
    };
    let score = number(memory, "score");
    let day = day_of(memory, "created_at");
    let room = WIDTH - 40 - old.chars().count();
    let kind = text(memory, "kind");
    let content = shortened(text(memory, "content"), room);
    format!(
        "   {position} {} {score:.2} {NAME}{kind:<12}{PLAIN} {DIM}{day}{PLAIN} \
         {content}{CHANGED}{old}{PLAIN}",
        meter(score, 5)
    )
}

/// Position of a memory in a reply, counted from 1.
fn position(id: &Value, all: &[Value]) -> Option<usize> {
    all.iter().position(|other| other["id"] == *id).map(|position| position + 1)
}

fn by(newer: &Value, all: &[Value]) -> String {
    position(newer, all).map_or(String::new(), |position| format!(" by {position}"))
}

/// The date of an RFC 3339 field.
fn day_of<'a>(memory: &'a Value, field: &str) -> &'a str {
    text(memory, field).get(..10).unwrap_or_default()
}

/// Wraps a line at spaces. A longer word stays on one line.
pub fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("the list starts with one line and only grows");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(styled: &str) {
        let plain = anstream::adapter::strip_str(styled).to_string();
        for line in plain.lines() {
            assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        }
    }

    #[test]
    fn long_texts_stay_within_the_width() {
        let long = "the harbour of a town that nobody remembers ".repeat(9);
        for outcome in ["kept", "superseded", "forgotten"] {
            check(&decided(&json!({
                "outcome": outcome, "reason": long, "threshold": 0.3,
                "surprise": {"total": -0.25, "novelty": 1.0},
            })));
            check(&decided(&json!({"outcome": outcome, "reason": long})));
        }
        let old = json!({
            "id": "a", "kind": "relationship", "content": long, "score": 1.05,
            "created_at": "2026-11-20T09:00:00Z",
            "superseded_by": "b", "valid_to": "2026-11-21T09:00:00Z",
        });
        let new = json!({
            "id": "b", "kind": "fact", "content": long, "score": 0.5,
            "created_at": "2026-11-21T09:00:00Z",
        });
        check(&recalled_memory(&old, &[new.clone(), old.clone()]));
        check(&recalled_memory(&new, &[new.clone(), old.clone()]));
        wrapped(&long, WIDTH).iter().for_each(|part| check(part));
    }

    #[test]
    fn a_decision_shows_its_penalties_and_its_whole_reason() {
        let reason = "takes the place of \"I live in Berlin, not far from the Spree.\"";
        let styled = decided(&json!({
            "outcome": "dropped", "reason": reason, "threshold": 0.25,
            "surprise": {"total": -0.15, "points": {"novelty": 0.2, "greeting": -0.4, "time": 0.05}},
        }));
        let plain = anstream::adapter::strip_str(&styled).to_string();
        let lines: Vec<&str> = plain.lines().collect();
        let bars = "██▌·· ····· ····· ····· ····· ▋···· █████ -0.15/0.25";
        assert_eq!(lines, [format!("dropped     {bars}"), format!("{:12}{reason}", "")]);
    }

    #[test]
    fn wrapping_loses_no_word() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
        assert_eq!(wrapped("unbreakable it is", 4), ["unbreakable", "it", "is"]);
    }
}
