//! How a person is reached: e-mail addresses, and telephone numbers as people write them. A bare row of digits may be anything.

use super::{accepted, after, before, digits, is_joined};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

static EMAIL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{Latin}\p{N}_%+-]+(?:['.][\p{Latin}\p{N}_%+-]+)*@(?:[\p{Latin}\p{N}-]+\.)+\p{Latin}{2,}")
        .expect("a fixed pattern, compiled by the tests")
});

static PHONE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
          \+ [1-9] [0-9]{0,3} (?: [\ ./\x{a0}-]? (?: \([0-9]{1,5}\) | [0-9]{1,5} ) ){1,8}  # +49 (30) 123 45-67, +4930123456
        | 00 [1-9][0-9]{0,2} (?: [\ /\x{a0}-] (?: \([0-9]{1,5}\) | [0-9]{1,8} ) ){1,6}   # 0049 30 1234567
        | (?: 1 [\ .-] )? (?: \( [2-9][0-9]{2} \) \ ? | [2-9][0-9]{2} [\ .-] ) [2-9][0-9]{2} [\ .-] [0-9]{4} # (415) 555-0132
        | 0 [1-9] (?: [\ .-] [0-9]{2} ){4}                                             # 01 23 45 67 89
        | (?: \(0 [1-9] [0-9]{1,4}\) | 0 [1-9] [0-9]{1,4} ) [\ /.-] [0-9]{3,8} (?: [\ -] [0-9]{2,6} ){0,3}    # 030 1234567, (020) 7946 0958
        ",
    )
    .expect("a fixed pattern, compiled by the tests")
});

pub const PHONE_DIGITS_MIN: usize = 8;
/// E.164 allows no more.
const PHONE_DIGITS_MAX: usize = 15;

pub fn emails(text: &str) -> Vec<Range<usize>> {
    EMAIL.find_iter(text).map(|found| found.range()).collect()
}

pub fn phones(text: &str) -> Vec<Range<usize>> {
    accepted(&PHONE, text, |found| {
        Some(found.get_match().range()).filter(|place| is_phone(text, place))
    })
}

/// Enough digits and not too many, and not a part of a longer number, a version or a name.
fn is_phone(text: &str, place: &Range<usize>) -> bool {
    let digits = digits(&text[place.clone()]);
    let goes_on = |c: Option<char>| matches!(c, Some('.' | '-' | '/' | '_' | '#'));
    let begins = !is_joined(before(text, place.start)) && !goes_on(before(text, place.start));
    let next = after(text, place.end);
    let beyond = next.and_then(|c| after(text, place.end + c.len_utf8()));
    let ends = !(is_joined(next) || goes_on(next) && is_joined(beyond));
    (PHONE_DIGITS_MIN..=PHONE_DIGITS_MAX).contains(&digits) && begins && ends
}
