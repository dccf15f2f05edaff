//! Removes secrets and personal data from a text by named rules: `4111 1111 1111 1111` becomes
//! `[redacted:card]`.
//!
//! 1. Run each rule of the profile that the text could match at all.
//! 2. Merge overlapping matches. The earlier rule in [`Rule`] gives the name.
//! 3. Replace each match by a placeholder with the name of the rule.
//! 4. Repeat until no rule matches: removing one secret can expose another beside it. A text that
//!    exposes one secret after the other loses everything behind the first.
//!
//! Invariant: redacting a redacted text changes nothing. No I/O, no state.

mod card;
mod contact;
mod iban;
mod key;
#[cfg(test)]
mod tests;

use regex::{Captures, Regex};
use std::ops::Range;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// The rules.
///
/// Order matters: where matches of two rules overlap, the placeholder has the name of the earlier
/// one, so specific rules come first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, EnumCount, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Rule {
    PrivateKey,
    Jwt,
    ApiKey,
    Bearer,
    Card,
    Iban,
    Email,
    Phone,
}

impl Rule {
    pub const ALL: [Rule; Rule::COUNT] =
        *Rule::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn find(self, text: &str) -> Vec<Range<usize>> {
        match self {
            Rule::PrivateKey => key::private_keys(text),
            Rule::Jwt => key::jwts(text),
            Rule::ApiKey => key::api_keys(text),
            Rule::Bearer => key::bearer_tokens(text),
            Rule::Card => card::cards(text),
            Rule::Iban => iban::ibans(text),
            Rule::Email => contact::emails(text),
            Rule::Phone => contact::phones(text),
        }
    }

    /// Returns false if the text, like most texts, lacks a part of every match of this rule: enough
    /// digits, or an `@`.
    fn may_find(self, text: &str, digits: usize) -> bool {
        match self {
            Rule::Card => digits >= card::DIGITS_MIN,
            Rule::Iban => digits >= iban::DIGITS_MIN,
            Rule::Phone => digits >= contact::PHONE_DIGITS_MIN,
            Rule::Email => text.contains('@'),
            Rule::PrivateKey | Rule::Jwt | Rule::ApiKey | Rule::Bearer => true,
        }
    }
}

/// A text with placeholders, and the rule of each placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted {
    pub text: String,
    pub found: Vec<Rule>,
}

/// Redacts a text. `None` if no rule matches, as for nearly all texts.
pub fn redacted(text: &str, rules: &[Rule]) -> Option<Redacted> {
    redacted_within(PASSES_MAX, text, rules)
}

fn redacted_within(passes_max: usize, text: &str, rules: &[Rule]) -> Option<Redacted> {
    let mut whole = once(text, rules)?;
    // A secret beside another one may match only after the first is gone.
    for _ in 1..passes_max {
        let Some(more) = once(&whole.text, rules) else { return Some(whole) };
        whole.text = more.text;
        whole.found.extend(more.found);
    }
    Some(cut_short(whole, rules))
}

/// Passes over one text. Each takes time in proportion to the length, and a text of secrets that
/// expose each other one by one would need a thousand of 64 KiB. Real texts need two.
const PASSES_MAX: usize = 16;

/// Removes everything behind the first placeholder, if a rule still matches: a secret that stays
/// costs more than text that goes.
fn cut_short(mut whole: Redacted, rules: &[Rule]) -> Redacted {
    let Some((rule, range)) = matches(&whole.text, rules).into_iter().next() else { return whole };
    let first = whole.text.find(PLACEHOLDER).unwrap_or(0);
    whole.text.truncate(first.min(range.start));
    // Without the text behind, the rest may match once more.
    if !matches(&format!("{}[", whole.text), rules).is_empty() {
        whole.text.clear();
    }
    whole.text.push_str(&placeholder(rule));
    whole.found.push(rule);
    whole
}

const PLACEHOLDER: &str = "[redacted:";

fn placeholder(rule: Rule) -> String {
    format!("{PLACEHOLDER}{}]", rule.as_str())
}

fn once(text: &str, rules: &[Rule]) -> Option<Redacted> {
    let matches = matches(text, rules);
    if matches.is_empty() {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut copied_to = 0;
    for (rule, range) in &matches {
        clean.push_str(&text[copied_to..range.start]);
        clean.push_str(&placeholder(*rule));
        copied_to = range.end;
    }
    clean.push_str(&text[copied_to..]);
    Some(Redacted { text: clean, found: matches.into_iter().map(|(rule, _)| rule).collect() })
}

/// Returns the matches to redact in the order of the text. Overlapping matches are merged, so that no
/// part of a secret remains.
fn matches(text: &str, rules: &[Rule]) -> Vec<(Rule, Range<usize>)> {
    let digits = digits(text);
    let mut all: Vec<(Rule, Range<usize>)> = rules
        .iter()
        .filter(|rule| rule.may_find(text, digits))
        .flat_map(|rule| rule.find(text).into_iter().map(|range| (*rule, range)))
        .collect();
    all.sort_by_key(|(rule, range)| (range.start, *rule));
    let mut merged: Vec<(Rule, Range<usize>)> = Vec::with_capacity(all.len());
    for (rule, range) in all {
        match merged.last_mut() {
            Some((first, before)) if range.start < before.end => {
                before.end = before.end.max(range.end);
                *first = rule.min(*first);
            }
            _ => merged.push((rule, range)),
        }
    }
    merged
}

/// Bytes at the end of a refused match in which another match may begin. The longest name of a key
/// with its separator is shorter. A value that begins earlier ends where the refused one ends, so
/// `accept` would refuse that match for the same reason.
const NAME_BYTES_MAX: usize = 64;

/// Returns the matches that `accept` selects from the matches of `pattern`. A refused match may hide
/// the beginning of another match, so the search continues inside its last [`NAME_BYTES_MAX`]
/// bytes. `accept` gets the text that the match lies in.
///
/// Behind a selected range the search continues as if nothing stood before: a placeholder will. So
/// all of several keys without a gap are found at once, although each hides the beginning of the
/// next.
///
/// Limit: only that end is searched again. Searching all of a refused match takes 13 s for 64 KiB
/// of `apikey=`.
fn accepted(
    pattern: &Regex,
    text: &str,
    accept: impl Fn(&Captures<'_>, &str) -> Option<Range<usize>>,
) -> Vec<Range<usize>> {
    let mut matches = Vec::new();
    let mut begin = 0;
    let mut from = 0;
    while let Some(found) = pattern.captures_at(&text[begin..], from) {
        let rest = &text[begin..];
        let whole = found.get_match().range();
        match accept(&found, rest) {
            Some(range) => {
                matches.push(begin + range.start..begin + range.end);
                begin += whole.end;
                from = 0;
            }
            None => {
                let next = whole.start + after(rest, whole.start).map_or(1, char::len_utf8);
                from = next.max(rest.floor_char_boundary(whole.end.saturating_sub(NAME_BYTES_MAX)));
            }
        }
    }
    matches
}

/// Returns true for the separators that people put between the groups of a number.
fn is_gap(c: char) -> bool {
    matches!(
        c,
        ' ' | '-' | '.' | '\u{a0}' | '\u{2009}' | '\u{202f}' | '\u{2010}' | '\u{2011}' | '\u{2013}'
    )
}

/// Counts ASCII digits.
fn digits(text: &str) -> usize {
    text.bytes().filter(u8::is_ascii_digit).count()
}

fn before(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}

fn after(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}

/// Returns true for an ASCII letter or digit, which could belong to the same name or number.
/// Letters of other scripts do not count, because some scripts put no space beside a number.
fn is_joined(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_ascii_alphanumeric())
}
