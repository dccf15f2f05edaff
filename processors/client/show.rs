//! Formats terminal output: colours that disappear when the output is not a terminal, bars, tables,
//! times. [`Output`] chooses between text for a person and JSON for a program.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// Audience of a command's output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Person,
    Json,
}

impl Output {
    /// Prints a value for a program, or lines for a person.
    pub fn print(self, value: &Value, lines: impl FnOnce() -> String) {
        match self {
            Output::Json => println!("{value}"),
            Output::Person => anstream::print!("{}", lines()),
        }
    }
}

pub const PLAIN: anstyle::Reset = anstyle::Reset;
pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const CHANGED: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const NAME: Style = AnsiColor::Cyan.on_default();

pub fn outcome_style(outcome: &str) -> Style {
    match outcome {
        "kept" | "updated" | "summarised" => GOOD,
        "merged" | "superseded" | "revised" | "noted" | "pruned" | "forgotten" => CHANGED,
        "refused" => BAD,
        _ => DIM,
    }
}

/// Draws a share of 0 to 1 in `width` characters, in steps of an eighth of a character: `███▌ `.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let text = format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]);
    let filled = eighths.div_ceil(8);
    format!("{text}{}", " ".repeat(width - filled.min(width)))
}

/// Draws a bar on a dim track, so that a share of 0 is visible.
pub fn meter(share: f64, width: usize) -> String {
    let bar = bar(share, width);
    let filled = bar.trim_end();
    format!("{filled}{DIM}{}{PLAIN}", "·".repeat(width - filled.chars().count()))
}

/// Formats rows under a head; each column is as wide as the longest cell.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = table_line(head.iter().copied(), &widths);
    for row in rows {
        text.push_str(&table_line(row.iter().map(String::as_str), &widths));
    }
    text
}

/// Formats JSON rows as a table. Each column is a head and the field that it shows.
pub fn table_of(columns: &[(&str, &str)], rows: &[Value]) -> String {
    let head: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let cell = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    table(
        &head,
        &rows
            .iter()
            .map(|row| columns.iter().map(|(_, field)| cell(&row[*field])).collect())
            .collect::<Vec<Vec<String>>>(),
    )
}

/// Adds up a number of JSON rows.
pub fn sum(rows: &[Value], field: &str) -> u64 {
    rows.iter().filter_map(|row| row[field].as_u64()).sum()
}

fn table_line<'c>(cells: impl Iterator<Item = &'c str>, widths: &[usize]) -> String {
    let padded: Vec<String> =
        cells.zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    format!("{}\n", padded.join("  ").trim_end())
}

/// Formats counts by name, largest first, with bars if the output is a terminal.
pub fn tally(counts: &BTreeMap<String, u64>) -> String {
    let mut counts: Vec<(&String, u64)> =
        counts.iter().map(|(name, count)| (name, *count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let most = counts.first().map_or(1, |(_, count)| *count).max(1);
    let width = counts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let mut text = String::new();
    for (name, count) in counts {
        let share = count as f64 / most as f64;
        let bar = if is_terminal { format!("  {}", bar(share, 20)) } else { String::new() };
        text.push_str(&format!("  {NAME}{name:<width$}{PLAIN} {count:>6}{}\n", bar.trim_end()));
    }
    text
}

/// Formats a time in UTC for a column of a table.
pub fn moment(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Formats a time as RFC 3339 for a program.
pub fn rfc_3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |at| at.to_string())
}

/// Returns a text field of a JSON object; empty if the field is missing.
pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns a text field of a JSON object, each line as [`printable`].
pub fn shown(value: &Value, field: &str) -> String {
    let lines = text(value, field).split('\n').map(|line| printable(&line.replace('\t', " ")));
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces control characters: a text from a record must not control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Returns a number of a JSON object; 0 if the field is missing.
pub fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_default()
}

/// Formats 1234567 as `1,234,567`.
pub fn grouped(value: i64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && digit != '-' && (digits.len() - n).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_the_given_width() {
        for (share, expected) in
            [(0.0, "     "), (0.5, "██▌  "), (1.0, "█████"), (7.0, "█████"), (f64::NAN, "     ")]
        {
            assert_eq!(bar(share, 5), expected, "{share}");
        }
    }

    #[test]
    fn table_columns_align() {
        let rows = [vec!["a".into(), "long cell".into()], vec!["bcd".into(), "x".into()]];
        assert_eq!(table(&["id", "what"], &rows), "id   what\na    long cell\nbcd  x\n");
    }

    #[test]
    fn thousands_are_separated_by_commas() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-123_456, "-123,456"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(value), expected);
        }
    }
}
