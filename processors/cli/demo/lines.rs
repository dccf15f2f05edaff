//! The demo's lines as text: a decision under who said it, a found memory, times, and long texts wrapped. Prints nothing.

use crate::cli::show::*;
use crate::text::shortened;
use crate::wire::Moment;
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;

pub const WIDTH: usize = 100;
/// Who, and below it what became of it.
pub const LEFT: usize = 12;
/// Of a factor's bar, and of the factor's name above it.
pub const FACTOR: usize = 6;
pub const FACTORS: [(&str, &str); 5] = [
    ("novelty", "novel"),
    ("contradiction", "contra"),
    ("specificity", "specif"),
    ("emphasis", "emphas"),
    ("context_switch", "switch"),
];

/// As messages carry it.
pub fn moment(ms: i64) -> String {
    let text = serde_json::to_value(Moment(ms)).unwrap_or_default();
    text.as_str().unwrap_or_default().to_owned()
}

/// "Tue 4 March"
pub fn day(ms: i64) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(TimeZone::UTC).strftime("%a %-d %B").to_string()
}

/// What became of it under who said it, a bar for each factor, the points, and why.
pub fn decided(decision: &Value) -> String {
    let (outcome, reason) = (text(decision, "outcome"), text(decision, "reason"));
    let style = outcome_style(outcome);
    let surprise = &decision["surprise"];
    if !surprise.is_object() {
        return format!(
            "{style}{outcome:<LEFT$}{PLAIN}{DIM}{}{PLAIN}",
            shortened(reason, WIDTH - LEFT)
        );
    }
    let bars: String = FACTORS
        .iter()
        .map(|(name, _)| format!("{} ", meter(number(surprise, name), FACTOR)))
        .collect();
    let points = format!("{:>5.2}/{:.2}", number(surprise, "total"), number(decision, "threshold"));
    let used = LEFT + FACTORS.len() * (FACTOR + 1) + points.len() + 2;
    // The numbers in brackets are those of the bars, and `/why` has them all.
    let reason = reason.split_once(" (").map_or(reason, |(words, _)| words);
    format!(
        "{style}{outcome:<LEFT$}{PLAIN}{bars}{DIM}{points}{PLAIN}  {}",
        shortened(reason, WIDTH - used)
    )
}

pub fn found(memory: &Value, all: &[Value]) -> String {
    let place = |id: &Value| {
        all.iter().position(|other| other["id"] == *id).map(|at| format!(" by {}", at + 1))
    };
    let at = all.iter().position(|other| other["id"] == memory["id"]).map_or(0, |at| at + 1);
    let old = match &memory["superseded_by"] {
        Value::Null => String::new(),
        newer => format!(
            "  superseded{} on {}",
            place(newer).unwrap_or_default(),
            text(memory, "valid_to").get(..10).unwrap_or_default()
        ),
    };
    let score = number(memory, "score");
    let day = text(memory, "created_at").get(..10).unwrap_or_default();
    let room = WIDTH - 40 - old.chars().count();
    let (kind, content) = (text(memory, "kind"), shortened(text(memory, "content"), room));
    format!(
        "   {at} {} {score:.2} {NAME}{kind:<12}{PLAIN} {DIM}{day}{PLAIN} {content}{CHANGED}{old}{PLAIN}",
        meter(score, 5)
    )
}

/// At spaces, where there are any.
pub fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("begins with one and only grows");
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
        assert!(plain.chars().count() <= WIDTH, "{} columns: {plain}", plain.chars().count());
    }

    #[test]
    fn long_texts_stay_within_the_width() {
        let long = "the harbour of a town that nobody remembers ".repeat(9);
        for outcome in ["kept", "superseded", "forgotten"] {
            check(&decided(
                &json!({"outcome": outcome, "reason": long, "surprise": {"total": -0.25, "novelty": 1.0}, "threshold": 0.3}),
            ));
            check(&decided(&json!({"outcome": outcome, "reason": long})));
        }
        let old = json!({"id": "a", "kind": "relationship", "content": long, "score": 1.05, "created_at": "2026-11-20T09:00:00Z",
            "superseded_by": "b", "valid_to": "2026-11-21T09:00:00Z"});
        let new = json!({"id": "b", "kind": "fact", "content": long, "score": 0.5, "created_at": "2026-11-21T09:00:00Z"});
        check(&found(&old, &[new.clone(), old.clone()]));
        check(&found(&new, &[new.clone(), old.clone()]));
        wrapped(&long, WIDTH).iter().for_each(|part| check(part));
    }

    #[test]
    fn wrapping_loses_no_word() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 7), [""]);
        assert_eq!(wrapped("unbreakable it is", 4), ["unbreakable", "it", "is"]);
    }
}
