//! Finds bank account numbers in the format
//! [IBAN](https://en.wikipedia.org/wiki/International_Bank_Account_Number) (ISO 13616).
//!
//! A match has a country code, the length of that country's numbers, digits in at least half of its
//! places, and valid check digits (modulo 97).

use super::{before, digits, is_gap, is_joined};
use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The beginning of an account number: "DE89", "de 89".
static BEGINNING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[A-Za-z]{2} ?[0-9]{2}")
        .expect("the pattern is a constant, and the tests compile it")
});

/// Country codes with the number of characters of an account number, including the country code.
const LENGTHS: &str = "
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18
    DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23
    IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27
    MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19
    SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30";

/// Half of the shortest account numbers, those of Norway, rounded up.
pub const DIGITS_MIN: usize = 8;

pub fn ibans(text: &str) -> Vec<Range<usize>> {
    let starts = BEGINNING
        .find_iter(text)
        .map(|found| found.start())
        .filter(|start| !is_joined(before(text, *start)));
    starts.filter_map(|start| ending(text, start).map(|end| start..end)).collect()
}

/// Returns the end of the account number that begins at `start`, if there is one.
fn ending(text: &str, start: usize) -> Option<usize> {
    let country = text[start..start + 2].to_ascii_uppercase();
    let length =
        LENGTHS.split_whitespace().find_map(|entry| entry.strip_prefix(&country)?.parse().ok())?;
    let (number, end) = characters(text, start, length)?;
    // At least half of every country's account numbers are digits, unlike the words after "at 20".
    let is_account_number = 2 * digits(&number) >= length
        && has_check_digits(&number)
        && !is_joined(text[end..].chars().next());
    is_account_number.then_some(end)
}

/// Returns the next `length` letters and digits in upper case, with their end. `None` if more than
/// one separator stands between two of them.
fn characters(text: &str, start: usize, length: usize) -> Option<(String, usize)> {
    let mut number = String::with_capacity(length);
    let mut after_gap = false;
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

/// Validates the check digits: with the first four characters moved to the end and letters read as
/// 10 to 35, the number leaves 1 when divided by 97.
fn has_check_digits(number: &str) -> bool {
    let moved = number.bytes().skip(4).chain(number.bytes().take(4));
    let remainder = moved.fold(0u32, |remainder, byte| match byte {
        b'0'..=b'9' => (remainder * 10 + u32::from(byte - b'0')) % 97,
        _ => (remainder * 100 + u32::from(byte - b'A') + 10) % 97,
    });
    remainder == 1
}
