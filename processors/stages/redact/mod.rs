//! Redact: secrets and personal data taken out of a text, by rules that each have a name. Pure; a text that was redacted stays as it is.

mod card;
mod contact;
mod iban;
mod key;
#[cfg(test)]
mod tests;

use regex::{Captures, Regex};
use std::ops::Range;

/// What is looked for, the most telling name first: where two rules find the same, the earlier one names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    pub const ALL: [Rule; 8] = [
        Rule::PrivateKey,
        Rule::Jwt,
        Rule::ApiKey,
        Rule::Bearer,
        Rule::Card,
        Rule::Iban,
        Rule::Email,
        Rule::Phone,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Rule::PrivateKey => "private_key",
            Rule::Jwt => "jwt",
            Rule::ApiKey => "api_key",
            Rule::Bearer => "bearer",
            Rule::Card => "card",
            Rule::Iban => "iban",
            Rule::Email => "email",
            Rule::Phone => "phone",
        }
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

    /// Most texts hold less of what these consist of than the shortest of them does.
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

/// The rules a profile has switched on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub rules: Vec<Rule>,
}

/// A text without what was found, and the rule of each place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted {
    pub text: String,
    pub found: Vec<Rule>,
}

/// Nothing, nearly always: there was nothing to be taken out.
pub fn redacted(text: &str, options: &Options) -> Option<Redacted> {
    let mut whole = once(text, options)?;
    // What stood close to a secret may show only now that it is gone. Ends: every round leaves less besides marks.
    while let Some(more) = once(&whole.text, options) {
        whole.text = more.text;
        whole.found.extend(more.found);
    }
    Some(whole)
}

fn once(text: &str, options: &Options) -> Option<Redacted> {
    let places = places(text, options);
    if places.is_empty() {
        return None;
    }
    let (mut clean, mut kept_to) = (String::with_capacity(text.len()), 0);
    for (rule, place) in &places {
        clean.push_str(&text[kept_to..place.start]);
        clean.push_str("[redacted:");
        clean.push_str(rule.as_str());
        clean.push(']');
        kept_to = place.end;
    }
    clean.push_str(&text[kept_to..]);
    Some(Redacted { text: clean, found: places.into_iter().map(|(rule, _)| rule).collect() })
}

/// In the order of the text, apart from each other: places that overlap become one, so that no end of a secret is left standing.
fn places(text: &str, options: &Options) -> Vec<(Rule, Range<usize>)> {
    let found = |rule: Rule| rule.find(text).into_iter().map(move |place| (rule, place));
    let digits = digits(text);
    let rules = options.rules.iter().copied().filter(|rule| rule.may_find(text, digits));
    let mut all: Vec<(Rule, Range<usize>)> = rules.flat_map(found).collect();
    all.sort_by_key(|(rule, place)| (place.start, *rule));
    let mut apart: Vec<(Rule, Range<usize>)> = Vec::with_capacity(all.len());
    for (rule, place) in all {
        match apart.last_mut() {
            Some((first, before)) if place.start < before.end => {
                before.end = before.end.max(place.end);
                *first = rule.min(*first);
            }
            _ => apart.push((rule, place)),
        }
    }
    apart
}

/// Bytes at the end of a refused match in which another match may begin. The longest name of a key with its separator has fewer, and a value
/// that begins further ahead ends where the refused one does, so `accept` refuses it for the same reason.
const NAME_BYTES_MAX: usize = 64;

/// The places that `accept` takes from what the pattern finds. A refused match may hide the beginning of another one, which is looked at too.
/// Limit: of a refused match only the end is read again. Reading all of it again takes 13 s for 64 KiB of `apikey=`.
fn accepted(
    pattern: &Regex,
    text: &str,
    accept: impl Fn(&Captures<'_>) -> Option<Range<usize>>,
) -> Vec<Range<usize>> {
    let (mut places, mut from) = (Vec::new(), 0);
    while let Some(found) = pattern.captures_at(text, from) {
        let whole = found.get_match().range();
        match accept(&found) {
            Some(place) => {
                from = whole.end;
                places.push(place);
            }
            None => {
                let next = whole.start + after(text, whole.start).map_or(1, char::len_utf8);
                from = next.max(text.floor_char_boundary(whole.end.saturating_sub(NAME_BYTES_MAX)));
            }
        }
    }
    places
}

/// Marks that people put between the groups of a number.
fn is_gap(c: char) -> bool {
    matches!(
        c,
        ' ' | '-' | '.' | '\u{a0}' | '\u{2009}' | '\u{202f}' | '\u{2010}' | '\u{2011}' | '\u{2013}'
    )
}

/// Counted in bytes, of which the compiler adds sixteen at a time; 255 of them are still a byte.
fn digits(text: &str) -> usize {
    let few = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(byte.is_ascii_digit())).sum::<u8>();
    text.as_bytes().chunks(255).map(|bytes| usize::from(few(bytes))).sum()
}

fn before(text: &str, at: usize) -> Option<char> {
    text[..at].chars().next_back()
}

fn after(text: &str, at: usize) -> Option<char> {
    text[at..].chars().next()
}

/// A letter or digit that could belong to the same name or number. Those of other scripts stand beside a number without a space.
fn is_joined(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_ascii_alphanumeric())
}
