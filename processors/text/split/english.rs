//! English building blocks that several files of this folder share: names of days and months, the
//! question test, and the constructor of their regular expressions.

use regex::{Regex, RegexBuilder};

pub const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Months in order. The first three letters of each are its abbreviation.
pub const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Returns true if a clause ends in a question mark.
pub fn is_question(clause: &str) -> bool {
    clause.trim_end().ends_with('?')
}

/// Compiles a pattern with ASCII character classes. With Unicode word borders the engine leaves the
/// fast path at the first accented letter.
pub fn ascii_pattern(pattern: &str) -> Regex {
    RegexBuilder::new(pattern)
        .unicode(false)
        .build()
        .expect("every pattern is a constant, and the tests compile all of them")
}
