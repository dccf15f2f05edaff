//! Bank accounts: a country, the length its numbers have, and check digits that fit (ISO 13616, modulo 97).

use super::{before, digits, is_gap, is_joined};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// Where one may begin: "DE89", "de 89".
static BEGINNING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[A-Za-z]{2} ?[0-9]{2}").expect("a fixed pattern, compiled by the tests")
});

/// Characters of a country's account numbers, the country's own two letters included.
const LENGTHS: &str = "
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29
    ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20
    LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29
    PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20
    YE30";

/// Half of the shortest, Norway's.
pub const DIGITS_MIN: usize = 8;

pub fn ibans(text: &str) -> Vec<Range<usize>> {
    let starts = BEGINNING
        .find_iter(text)
        .map(|found| found.start())
        .filter(|start| !is_joined(before(text, *start)));
    starts.filter_map(|start| ending(text, start).map(|end| start..end)).collect()
}

/// Where the account number that begins here ends, if it is one.
fn ending(text: &str, start: usize) -> Option<usize> {
    let country = text[start..start + 2].to_ascii_uppercase();
    let length =
        LENGTHS.split_whitespace().find_map(|entry| entry.strip_prefix(&country)?.parse().ok())?;
    let (number, end) = characters(text, start, length)?;
    // Words that follow "at 20" have no digits; every country's account numbers are digits by half.
    let is_one = 2 * digits(&number) >= length
        && is_checked(&number)
        && !is_joined(text[end..].chars().next());
    is_one.then_some(end)
}

/// So many letters and digits from here on, in upper case, with at most one mark between two, and where they end.
fn characters(text: &str, start: usize, length: usize) -> Option<(String, usize)> {
    let (mut number, mut after_gap) = (String::with_capacity(length), false);
    for (at, c) in text[start..].char_indices() {
        match c {
            _ if c.is_ascii_alphanumeric() => number.push(c.to_ascii_uppercase()),
            _ if is_gap(c) && !after_gap => {}
            _ => return None,
        }
        after_gap = !c.is_ascii_alphanumeric();
        if number.len() == length {
            return Some((number, start + at + 1));
        }
    }
    None
}

/// With its first four characters at the end and letters as 10 to 35, the number leaves 1 when divided by 97.
fn is_checked(number: &str) -> bool {
    let moved = number.bytes().skip(4).chain(number.bytes().take(4));
    let rest = moved.fold(0u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte - b'A') + 10) % 97,
    });
    rest == 1
}
