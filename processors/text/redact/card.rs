//! Finds payment card numbers.
//!
//! 1. Find runs of digit groups with at most one separator between two groups.
//! 2. Try every sequence of groups of 12 to 19 digits: "4111 1111 1111 1111 12 345" contains a
//!    card.
//! 3. Accept a sequence with the prefix and length of a card network (`NETWORKS`), a valid
//!    [Luhn](https://en.wikipedia.org/wiki/Luhn_algorithm) check digit and the same separator
//!    throughout.
//! 4. Refuse telephone numbers, hashes and UUIDs, some of which pass by chance.

use regex::Regex;
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

/// Groups of digits with at most one separator between two groups.
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[0-9]+(?:[ .\-\x{a0}\x{2009}\x{202f}\x{2010}\x{2011}\x{2013}][0-9]+)*")
        .expect("the pattern is a constant, and the tests compile it")
});

static UUID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
        .expect("the pattern is a constant, and the tests compile it")
});

pub const DIGITS_MIN: usize = 12;
const DIGITS_MAX: usize = 19;
/// Digits of every group but the last. Shorter groups are a list of small numbers.
const GROUP_MIN: usize = 3;

/// Prefixes and lengths of the card networks' numbers, by
/// [issuer identification number](https://en.wikipedia.org/wiki/Payment_card_number).
const NETWORKS: &[(RangeInclusive<u64>, RangeInclusive<usize>)] = &[
    (4..=4, 13..=13), // Visa; 13 digits are obsolete, and still in every list of test numbers
    (4..=4, 16..=16),
    (4..=4, 19..=19),
    (51..=55, 16..=16), // Mastercard
    (2221..=2720, 16..=16),
    (34..=34, 15..=15), // American Express
    (37..=37, 15..=15),
    (6011..=6011, 16..=19), // Discover
    (644..=649, 16..=19),
    (65..=65, 16..=19),
    (300..=305, 14..=19), // Diners Club
    (3095..=3095, 14..=19),
    (36..=36, 14..=19),
    (38..=39, 14..=19),
    (3528..=3589, 16..=19), // JCB
    (62..=62, 16..=19),     // UnionPay
    (2200..=2204, 16..=19), // Mir
    (5018..=5018, 12..=19), // Maestro
    (5020..=5020, 12..=19),
    (5038..=5038, 12..=19),
    (5893..=5893, 12..=19),
    (6304..=6304, 12..=19),
    (6759..=6763, 12..=19),
];

pub fn cards(text: &str) -> Vec<Range<usize>> {
    NUMBERS
        .find_iter(text)
        .filter(|run| run.len() >= DIGITS_MIN)
        .flat_map(|run| in_run(text, run.range()))
        .collect()
}

/// Returns the cards in a run of digit groups, trying every sequence of groups.
fn in_run(text: &str, run: Range<usize>) -> Vec<Range<usize>> {
    let groups = groups(text, &run);
    let mut found = Vec::new();
    for first in 0..groups.len() {
        let mut digits = String::new();
        for last in first..groups.len() {
            digits.push_str(&text[groups[last].clone()]);
            if digits.len() > DIGITS_MAX {
                break;
            }
            let range = groups[first].start..groups[last].end;
            if is_card(&digits)
                && is_grouped(text, &groups[first..=last])
                && !is_something_else(text, &range)
            {
                found.push(range);
            }
        }
    }
    found
}

/// Cuts a run at the separators.
fn groups(text: &str, run: &Range<usize>) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let mut start = run.start;
    for (at, gap) in text[run.clone()].char_indices().filter(|(_, c)| !c.is_ascii_digit()) {
        groups.push(start..run.start + at);
        start = run.start + at + gap.len_utf8();
    }
    groups.push(start..run.end);
    groups
}

/// Returns true if the groups have the same separator throughout, and none but the last is short.
fn is_grouped(text: &str, groups: &[Range<usize>]) -> bool {
    let mut gaps = groups.windows(2).map(|pair| &text[pair[0].end..pair[1].start]);
    let first = gaps.next();
    gaps.all(|gap| Some(gap) == first)
        && groups.iter().rev().skip(1).all(|group| group.len() >= GROUP_MIN)
}

fn is_card(digits: &str) -> bool {
    let is_of_network = NETWORKS.iter().any(|(prefixes, lengths)| {
        let width = prefixes.start().ilog10() as usize + 1;
        lengths.contains(&digits.len())
            && digits[..width].parse().is_ok_and(|prefix: u64| prefixes.contains(&prefix))
    });
    is_of_network && has_check_digit(digits)
}

/// Computes the Luhn checksum: every second digit from the right is doubled, and the digits of the
/// results add up to a multiple of 10.
fn has_check_digit(digits: &str) -> bool {
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(index, digit)| u32::from(digit - b'0') * if index % 2 == 1 { 2 } else { 1 })
        .map(|value| value / 10 + value % 10)
        .sum();
    sum.is_multiple_of(10)
}

/// Returns true for a telephone number, a hash or a UUID. Some of them pass as cards by chance, and
/// a tenth of Germany's mobile numbers do.
fn is_something_else(text: &str, range: &Range<usize>) -> bool {
    let mut left =
        text[..range.start].chars().rev().take_while(char::is_ascii_alphanumeric).peekable();
    let mut right = text[range.end..].chars().take_while(char::is_ascii_alphanumeric).peekable();
    let is_inside = left.peek().is_some() || right.peek().is_some();
    let is_hex =
        is_inside && left.chain(right).all(|c| c.is_ascii_hexdigit() || matches!(c, 'x' | 'X'));
    text[..range.start].ends_with('+')
        || is_hex
        || UUID.find_iter(text).any(|uuid| uuid.start() < range.end && range.start < uuid.end())
}
