//! Payment cards: a number that begins as a network's do, has a length of theirs, and whose last digit fits (Luhn).

use regex::Regex;
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

/// Digits with at most one mark between two of them.
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[0-9]+(?:[ .\-\x{a0}\x{2009}\x{202f}\x{2010}\x{2011}\x{2013}][0-9]+)*")
        .expect("a fixed pattern, compiled by the tests")
});

static UUID: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
        .expect("a fixed pattern, compiled by the tests")
});

pub const DIGITS_MIN: usize = 12;
const DIGITS_MAX: usize = 19;
/// Shorter groups than this, but for the last one, are a list of small numbers.
const GROUP_MIN: usize = 3;

/// How a network's numbers begin, and how long they are.
const NETWORKS: &[(RangeInclusive<u64>, RangeInclusive<usize>)] = &[
    (4..=4, 13..=13), // Visa; 13 digits are old, and still in every list of test numbers
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

/// A card may stand among other numbers ("4111 1111 1111 1111 12 345"), so every row of groups is tried.
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
            let row = &groups[first..=last];
            let place = groups[first].start..groups[last].end;
            if is_card(&digits) && is_grouped(text, row) && !is_something_else(text, &place) {
                found.push(place);
            }
        }
    }
    found
}

fn groups(text: &str, run: &Range<usize>) -> Vec<Range<usize>> {
    let (mut groups, mut start) = (Vec::new(), run.start);
    for (at, gap) in text[run.clone()].char_indices().filter(|(_, c)| !c.is_ascii_digit()) {
        groups.push(start..run.start + at);
        start = run.start + at + gap.len_utf8();
    }
    groups.push(start..run.end);
    groups
}

/// With one kind of mark between all of them.
fn is_grouped(text: &str, row: &[Range<usize>]) -> bool {
    let mut gaps = row.windows(2).map(|pair| &text[pair[0].end..pair[1].start]);
    let first = gaps.next();
    gaps.all(|gap| Some(gap) == first)
        && row.iter().rev().skip(1).all(|group| group.len() >= GROUP_MIN)
}

fn is_card(digits: &str) -> bool {
    let is_of = |(begin, lengths): &(RangeInclusive<u64>, RangeInclusive<usize>)| {
        let width = begin.start().ilog10() as usize + 1;
        lengths.contains(&digits.len())
            && digits[..width].parse().is_ok_and(|prefix: u64| begin.contains(&prefix))
    };
    digits.len() >= DIGITS_MIN && NETWORKS.iter().any(is_of) && has_check_digit(digits)
}

/// Luhn: every second digit from the right counts twice, its own digits summed up.
fn has_check_digit(digits: &str) -> bool {
    let value = |(place, digit): (usize, u8)| {
        let digit = u32::from(digit - b'0') * if place % 2 == 1 { 2 } else { 1 };
        digit / 10 + digit % 10
    };
    digits.bytes().rev().enumerate().map(value).sum::<u32>().is_multiple_of(10)
}

/// A telephone number, a hash, a UUID: some of them fit by chance, and of Germany's mobile numbers a tenth.
fn is_something_else(text: &str, place: &Range<usize>) -> bool {
    let mut left =
        text[..place.start].chars().rev().take_while(char::is_ascii_alphanumeric).peekable();
    let mut right = text[place.end..].chars().take_while(char::is_ascii_alphanumeric).peekable();
    let is_inside = left.peek().is_some() || right.peek().is_some();
    let is_hex =
        is_inside && left.chain(right).all(|c| c.is_ascii_hexdigit() || matches!(c, 'x' | 'X'));
    let in_uuid =
        || UUID.find_iter(text).any(|uuid| uuid.start() < place.end && place.start < uuid.end());
    text[..place.start].ends_with('+') || is_hex || in_uuid()
}
