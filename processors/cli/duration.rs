//! Durations as arguments: 90s, 30m, 12h, 7d.

/// Parses a duration; returns milliseconds.
pub fn parse(text: &str) -> Result<i64, String> {
    let unit_ms = match text.chars().last() {
        Some('s') => 1000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        _ => 0,
    };
    let count = text
        .get(..text.len().saturating_sub(1))
        .and_then(|count| count.parse::<i64>().ok())
        .filter(|count| *count >= 0);
    match count.and_then(|count| count.checked_mul(unit_ms)) {
        Some(ms) if unit_ms > 0 => Ok(ms),
        _ => Err("must be a duration such as 90s, 30m, 12h, 7d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_whole_number_and_a_unit() {
        for (text, expected) in [("90s", 90_000), ("30m", 1_800_000), ("7d", 604_800_000)] {
            assert_eq!(parse(text), Ok(expected));
        }
        for text in ["", "7", "d", "-7d", "1.5h", "9999999999999999d", "7w"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
