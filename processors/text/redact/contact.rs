//! Finds e-mail addresses and telephone numbers.
//!
//! A telephone number needs a sign of being one: a leading `+` or `00`, or the grouping of a common
//! national format. Limit: a plain row of digits is not matched, because such a row may be
//! anything.

use super::{accepted, after, before, digits, is_joined};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"[\p{Latin}\p{N}_%+-]+(?:['.][\p{Latin}\p{N}_%+-]+)*",
        r"@(?:[\p{Latin}\p{N}-]+\.)+\p{Latin}{2,}",
    ))
    .expect("the pattern is a constant, and the tests compile it")
});

static PHONE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
          # +49 (30) 123 45-67, +4930123456
          \+ [1-9] [0-9]{0,3} (?: [\ ./\x{a0}-]? (?: \([0-9]{1,5}\) | [0-9]{1,5} ) ){1,8}
          # 0049 30 1234567
        | 00 [1-9][0-9]{0,2} (?: [\ /\x{a0}-] (?: \([0-9]{1,5}\) | [0-9]{1,8} ) ){1,6}
          # (415) 555-0132
        | (?: 1 [\ .-] )? (?: \( [2-9][0-9]{2} \) \ ? | [2-9][0-9]{2} [\ .-] )
          [2-9][0-9]{2} [\ .-] [0-9]{4}
          # 01 23 45 67 89
        | 0 [1-9] (?: [\ .-] [0-9]{2} ){4}
          # 030 1234567, (020) 7946 0958
        | (?: \(0 [1-9] [0-9]{1,4}\) | 0 [1-9] [0-9]{1,4} )
          [\ /.-] [0-9]{3,8} (?: [\ -] [0-9]{2,6} ){0,3}
        ",
    )
    .expect("the pattern is a constant, and the tests compile it")
});

pub const PHONE_DIGITS_MIN: usize = 8;
/// The most digits that [E.164](https://www.itu.int/rec/T-REC-E.164) allows.
const PHONE_DIGITS_MAX: usize = 15;

pub fn emails(text: &str) -> Vec<Range<usize>> {
    EMAIL.find_iter(text).map(|found| found.range()).collect()
}

pub fn phones(text: &str) -> Vec<Range<usize>> {
    accepted(&PHONE, text, |found, text| {
        Some(found.get_match().range()).filter(|range| is_phone(text, range))
    })
}

/// Returns true if the match has 8 to 15 digits and is not part of a longer number, a version or a
/// name.
fn is_phone(text: &str, range: &Range<usize>) -> bool {
    let digits = digits(&text[range.clone()]);
    let previous = before(text, range.start);
    let next = after(text, range.end);
    let second = next.and_then(|c| after(text, range.end + c.len_utf8()));
    let begins = !is_joined(previous) && !is_connector(previous);
    let ends = !(is_joined(next) || is_connector(next) && is_joined(second));
    (PHONE_DIGITS_MIN..=PHONE_DIGITS_MAX).contains(&digits) && begins && ends
}

/// Returns true for a sign that connects parts of a number, a version or a name.
fn is_connector(c: Option<char>) -> bool {
    matches!(c, Some('.' | '-' | '/' | '_' | '#'))
}
