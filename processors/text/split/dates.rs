//! Parses days of the year ("March 3rd", "3rd of March", "2024-03-03") and times of day ("5:30
//! p.m.") in the formats common in English. Years are skipped.

use super::english::MONTHS;
use super::tokens::{Token, text_at, touches, value};

pub struct DateOrTime {
    /// Month and day as 303, or minutes since midnight. Equal values mean the same day or time.
    pub value: f64,
    /// Index of the first token behind the date or time.
    pub until: usize,
}

/// Returns the number of a month, given the name or abbreviation in lower case.
pub fn month(word: &str) -> Option<f64> {
    let name = if word == "sept" { "september" } else { word };
    let place = MONTHS.iter().position(|month| *month == name || month[..3] == *name)?;
    Some((place + 1) as f64)
}

fn day_of_month(token: &str) -> Option<f64> {
    value(token).filter(|day| token.len() <= 2 && (1.0..=31.0).contains(day))
}

fn date(month: f64, day: f64, until: usize) -> DateOrTime {
    DateOrTime { value: month * 100.0 + day, until }
}

/// "March 3rd, 2024", "Mar. 3"
pub fn month_first(tokens: &[Token<'_>], at: usize) -> Option<DateOrTime> {
    let month = month(text_at(tokens, at))?;
    let day_at = if text_at(tokens, at + 1) == "." { at + 2 } else { at + 1 };
    let day = day_of_month(text_at(tokens, day_at))?;
    let mut until = after_ordinal(tokens, day_at);
    let comma = usize::from(text_at(tokens, until) == ",");
    if is_year(text_at(tokens, until + comma)) {
        until += comma + 1;
    }
    Some(date(month, day, until))
}

/// "3rd of March"
pub fn day_first(tokens: &[Token<'_>], at: usize, day: f64) -> Option<DateOrTime> {
    let behind = after_ordinal(tokens, at);
    let month_at = if text_at(tokens, behind) == "of" { behind + 1 } else { behind };
    let month = month(text_at(tokens, month_at))?;
    (1.0..=31.0).contains(&day).then(|| date(month, day, month_at + 1))
}

/// "2024-03-05"
pub fn iso_date(tokens: &[Token<'_>], at: usize) -> Option<DateOrTime> {
    let is_dashed = text_at(tokens, at).len() == 4
        && (1..5).all(|next| touches(tokens, at + next))
        && text_at(tokens, at + 1) == "-"
        && text_at(tokens, at + 3) == "-";
    let month = day_of_month(text_at(tokens, at + 2))?;
    let day = day_of_month(text_at(tokens, at + 4))?;
    is_dashed.then(|| date(month, day, at + 5))
}

fn after_ordinal(tokens: &[Token<'_>], at: usize) -> usize {
    let is_ordinal =
        touches(tokens, at + 1) && matches!(text_at(tokens, at + 1), "st" | "nd" | "rd" | "th");
    if is_ordinal { at + 2 } else { at + 1 }
}

pub fn is_year(token: &str) -> bool {
    token.len() == 4 && value(token).is_some_and(|year| (1900.0..=2100.0).contains(&year))
}

/// "5 pm", "5:30 p.m."
pub fn clock(tokens: &[Token<'_>], at: usize, hour: f64) -> Option<DateOrTime> {
    let has_minutes = text_at(tokens, at + 1) == ":" && touches(tokens, at + 2);
    let minutes = if has_minutes { value(text_at(tokens, at + 2))? } else { 0.0 };
    let half_at = if has_minutes { at + 3 } else { at + 1 };
    let (is_afternoon, until) = match (
        text_at(tokens, half_at),
        text_at(tokens, half_at + 1),
        text_at(tokens, half_at + 2),
    ) {
        ("am", ..) => (false, half_at + 1),
        ("pm", ..) => (true, half_at + 1),
        (half @ ("a" | "p"), ".", "m") if touches(tokens, half_at + 2) => {
            (half == "p", half_at + 3)
        }
        _ => return None,
    };
    let hour = hour % 12.0 + if is_afternoon { 12.0 } else { 0.0 };
    Some(DateOrTime { value: hour * 60.0 + minutes, until })
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn check(
        said: &str,
        find: fn(&[Token<'_>], usize) -> Option<DateOrTime>,
        expected: Option<(f64, usize)>,
    ) {
        let found = find(&tokens(said), 0);
        assert_eq!(found.map(|found| (found.value, found.until)), expected, "{said:?}");
    }

    #[test]
    fn a_day_is_read_in_any_order() {
        check("march 3rd, 2024 and", month_first, Some((303.0, 5)));
        check("mar. 3 or 4", month_first, Some((303.0, 3)));
        check("may 40", month_first, None);
        check("3rd of march", |tokens, at| day_first(tokens, at, 3.0), Some((303.0, 4)));
        check("3 boats", |tokens, at| day_first(tokens, at, 3.0), None);
        check("2024-03-05", iso_date, Some((305.0, 5)));
        check("2024 - 03 - 05", iso_date, None);
    }

    #[test]
    fn an_hour_needs_its_half_of_the_day() {
        check("5:30 p.m.", |tokens, at| clock(tokens, at, 5.0), Some((1050.0, 6)));
        check("12 am", |tokens, at| clock(tokens, at, 12.0), Some((0.0, 2)));
        check("5 people", |tokens, at| clock(tokens, at, 5.0), None);
    }
}
