//! How a person is reached: e-mail addresses, and telephone numbers as people write them. A bare row of digits may be anything.

use super::{accepted, after, before, is_joined};
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

pub fn emails(text: &str) -> Vec<Range<usize>> {
    EMAIL.find_iter(text).map(|found| found.range()).collect()
}

pub fn phones(text: &str) -> Vec<Range<usize>> {
    accepted(&PHONE, text, |found| Some(found.get_match().range()).filter(|place| is_phone(text, place)))
}

/// 8 to 15 digits (E.164 allows no more), and not a part of a longer number, a version or a name.
fn is_phone(text: &str, place: &Range<usize>) -> bool {
    let digits = text[place.clone()].bytes().filter(u8::is_ascii_digit).count();
    let goes_on = |c: Option<char>| matches!(c, Some('.' | '-' | '/' | '_' | '#'));
    let begins = !is_joined(before(text, place.start)) && !goes_on(before(text, place.start));
    let next = after(text, place.end);
    let beyond = next.and_then(|c| after(text, place.end + c.len_utf8()));
    let ends = !(is_joined(next) || goes_on(next) && is_joined(beyond));
    (8..=15).contains(&digits) && begins && ends
}
