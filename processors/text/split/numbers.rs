//! Extracts the numbers of a clause with their nouns or units: "12 boats", "$300", "by 5 pm".
//!
//! 1. Tokenize the clause. At each token try, in this order: date, time, money, percent, measure,
//!    count with a noun, bare number behind "reached" or "is now".
//! 2. Skip the size of a change ("by 20") and the former value of a pair ("from 10").
//! 3. Attach the former value to the new one, and the rate to a count ("a day").
//!
//! For example "it went from 10 boats to 12 boats a week" gives one number: family `Count`, key
//! `boat`, value 12, former value 10, rate `week`.
//!
//! Limit: English only. `conflicts.rs` decides whether another number is a contradiction.

use super::dates::{clock, day_first, is_year, iso_date, month, month_first};
use super::tokens::{Token, before, counting, text_at, tokens, touches, value};
use std::collections::BTreeSet;

/// The kind of quantity. Only numbers of the same family are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Count,
    Money,
    Duration,
    Percent,
    Date,
    Time,
    Measure,
    /// A number without a noun: "is now 15".
    Bare,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    pub family: Family,
    /// The unit, or the stem of the head noun. Numbers are comparable only if their keys are equal.
    pub key: String,
    pub value: f64,
    /// The number with the noun or unit, as written.
    pub said: String,
    /// All stems of the noun phrase, for a [`Family::Count`].
    pub phrase: BTreeSet<String>,
    /// The unit of time of a rate ("a day", "weekly").
    pub rate: Option<&'static str>,
    /// The former value, if the clause names both: 10 in "from 10 to 12".
    pub old: Option<f64>,
}

/// Returns the numbers of a lower-case clause in order, and the words of the clause outside of
/// them.
pub fn numbers(plain: &str) -> (Vec<Number>, Vec<&str>) {
    let tokens = tokens(plain);
    let mut numbers = Vec::new();
    let mut rest = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let found = found_at(&tokens, at);
        let next = found.as_ref().map_or(at + 1, |found| found.until);
        let is_word = tokens[at].text.starts_with(char::is_alphabetic);
        if let Some(found) = found
            .filter(|found| !is_difference(&tokens, at, found) && !is_old_value(&tokens, at, found))
        {
            let old = old_value(&tokens, at).map(|old| old * found.scale);
            let rate = if matches!(found.family, Family::Count | Family::Money) {
                rate(&tokens, found.until)
            } else {
                None
            };
            let said = plain[tokens[at].start..tokens[found.until - 1].end].to_owned();
            let NumberMatch { family, key, value, phrase, .. } = found;
            numbers.push(Number { family, key, value, said, phrase, rate, old });
        } else if is_word {
            rest.extend(tokens[at..next].iter().map(|token| token.text));
        }
        at = next;
    }
    (numbers, rest)
}

/// Returns false if the text has neither digits nor number words. A cheap filter before
/// [`numbers`].
pub fn may_number(plain: &str) -> bool {
    plain.bytes().any(|byte| byte.is_ascii_digit())
        || plain.split(|c: char| !c.is_ascii_alphabetic()).any(|word| counting(word).is_some())
}

// ---------------------------------------------------------------- one number

struct NumberMatch {
    family: Family,
    key: String,
    value: f64,
    /// Factor from the written number to the value: 1000 for "10k".
    scale: f64,
    phrase: BTreeSet<String>,
    /// Index of the first token behind the number.
    until: usize,
}

impl NumberMatch {
    fn of(family: Family, key: impl Into<String>, value: f64, until: usize) -> NumberMatch {
        NumberMatch { family, key: key.into(), value, scale: 1.0, phrase: BTreeSet::new(), until }
    }
}

/// Reads the number that begins at a token.
///
/// Order matters: signs and units are tried before [`count`], which accepts any noun.
fn found_at(tokens: &[Token<'_>], at: usize) -> Option<NumberMatch> {
    if let Some(date) = month_first(tokens, at) {
        return Some(NumberMatch::of(Family::Date, "date", date.value, date.until));
    }
    let value = value(text_at(tokens, at))?;
    iso_date(tokens, at)
        .or_else(|| day_first(tokens, at, value))
        .map(|date| NumberMatch::of(Family::Date, "date", date.value, date.until))
        .or_else(|| {
            clock(tokens, at, value)
                .map(|time| NumberMatch::of(Family::Time, "time", time.value, time.until))
        })
        .or_else(|| money(tokens, at, value))
        .or_else(|| percent(tokens, at, value))
        .or_else(|| measure(tokens, at, value))
        .or_else(|| count(tokens, at, value))
        .or_else(|| bare(tokens, at, value))
}

/// "$300", "300 dollars", "€2k"
fn money(tokens: &[Token<'_>], at: usize, amount: f64) -> Option<NumberMatch> {
    let (thousands, next) = in_thousands(tokens, at);
    let is_signed = matches!(before(tokens, at, 1), "$" | "£" | "€");
    let is_named =
        matches!(text_at(tokens, next), "dollars" | "euros" | "pounds" | "usd" | "eur" | "gbp");
    (is_signed || is_named).then(|| {
        let found = NumberMatch::of(
            Family::Money,
            "money",
            amount * thousands,
            next + usize::from(is_named),
        );
        NumberMatch { scale: thousands, ..found }
    })
}

/// Returns the factor of a suffix (1000 for "10k", else 1) and the index of the token behind.
fn in_thousands(tokens: &[Token<'_>], at: usize) -> (f64, usize) {
    match text_at(tokens, at + 1) {
        "k" if touches(tokens, at + 1) => (1e3, at + 2),
        "m" if touches(tokens, at + 1) => (1e6, at + 2),
        _ => (1.0, at + 1),
    }
}

fn percent(tokens: &[Token<'_>], at: usize, share: f64) -> Option<NumberMatch> {
    matches!(text_at(tokens, at + 1), "%" | "percent")
        .then(|| NumberMatch::of(Family::Percent, "percent", share, at + 2))
}

/// Returns the base unit of a unit, and the factor between them: a kilobyte is 1000 bytes.
fn unit(word: &str) -> Option<(&'static str, f64)> {
    Some(match word {
        "ms" | "millisecond" | "milliseconds" => ("ms", 1.0),
        "second" | "seconds" | "sec" | "secs" => ("s", 1.0),
        "kb" => ("byte", 1e3),
        "mb" => ("byte", 1e6),
        "gb" => ("byte", 1e9),
        "tb" => ("byte", 1e12),
        "px" => ("px", 1.0),
        "km" => ("km", 1.0),
        "mile" | "miles" => ("mile", 1.0),
        "kg" => ("kg", 1.0),
        "lb" | "lbs" => ("lb", 1.0),
        "mph" => ("mph", 1.0),
        "fps" => ("fps", 1.0),
        "steps" => ("step", 1.0),
        "calories" | "kcal" => ("kcal", 1.0),
        "bpm" => ("bpm", 1.0),
        _ => return None,
    })
}

fn measure(tokens: &[Token<'_>], at: usize, amount: f64) -> Option<NumberMatch> {
    let (unit, scale) = unit(text_at(tokens, at + 1)).filter(|_| stands_alone(tokens, at))?;
    Some(NumberMatch { scale, ..NumberMatch::of(Family::Measure, unit, amount * scale, at + 2) })
}

/// Returns false for a number that is part of something else: "v2", "#12", "4/5", "-3".
fn stands_alone(tokens: &[Token<'_>], at: usize) -> bool {
    let last = before(tokens, at, 1).chars().next_back();
    !touches(tokens, at)
        || !last.is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '.' | '/' | ':' | '#' | '-' | '$' | '_')
        })
}

/// Longest noun phrase behind a number, in words.
const PHRASE_WORDS_MAX: usize = 4;
/// Words that end a noun phrase, besides function words.
const PHRASE_ENDS: &str = "per with including involving covering focusing using last next ago now \
    today within across since every total already completed scored tagged till due worth left away \
    old merged";
/// Stems behind numbers that count nothing a person has or does: sizes, ordinals, items of a list.
const NO_COUNT: &str = "cm mm m km kg g lb lbs px ms mb gb inch ft unit degre x side dimension th \
    nd st rd step exampl option tip way question point col row line k";

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// Reads a count ("12 new boats"), or a duration if the noun is a unit of time ("a 30-minute
/// walk").
fn count(tokens: &[Token<'_>], at: usize, number: f64) -> Option<NumberMatch> {
    let (thousands, mut next) = in_thousands(tokens, at);
    if !stands_alone(tokens, at) || is_year(tokens[at].text) {
        return None;
    }
    next += usize::from(text_at(tokens, next) == "-" && touches(tokens, next));
    let words: Vec<String> = tokens
        .iter()
        .skip(next)
        .take(PHRASE_WORDS_MAX)
        .map(|token| token.text)
        .take_while(|word| word.starts_with(char::is_alphabetic))
        .take_while(|word| !crate::is_stop_word(word) && !is_in(PHRASE_ENDS, word))
        .map(crate::stem)
        .collect();
    let first = words.first()?;
    let head = words.last()?;
    if touches(tokens, next) && text_at(tokens, next - 1) != "-"
        || is_in(NO_COUNT, first)
        || is_in(NO_COUNT, head)
    {
        return None;
    }
    // The nouns are not consumed, because they also describe the subject of the clause.
    Some(match [first, head].into_iter().find_map(|stem| unit_of_time(stem)) {
        Some(unit) => NumberMatch::of(Family::Duration, unit, number, next),
        None => {
            let found = NumberMatch::of(Family::Count, head.clone(), number * thousands, next);
            NumberMatch { scale: thousands, phrase: words.iter().cloned().collect(), ..found }
        }
    })
}

/// Returns the stem of a unit of time, with abbreviations spelled out.
fn unit_of_time(stem: &str) -> Option<&str> {
    match stem {
        "hr" => Some("hour"),
        "min" => Some("minut"),
        "hour" | "minut" | "day" | "week" | "month" | "year" => Some(stem),
        _ => None,
    }
}

/// "reached 165", "is now 15"
fn bare(tokens: &[Token<'_>], at: usize, number: f64) -> Option<NumberMatch> {
    let is_led = matches!(
        before(tokens, at, 1),
        "to" | "reached" | "hit" | "now" | "total" | "totals" | "totaled" | "totaling"
    ) || (before(tokens, at, 1) == "at" && before(tokens, at, 2) == "now");
    let goes_on = touches(tokens, at + 1)
        && matches!(text_at(tokens, at + 1), "%" | ":" | "/" | "-" | "_")
        || touches(tokens, at + 1) && text_at(tokens, at + 1).starts_with(char::is_alphanumeric);
    let is_plain = is_led
        && !goes_on
        && !touches(tokens, at)
        && !is_year(tokens[at].text)
        && counting(tokens[at].text).is_none();
    is_plain.then(|| NumberMatch::of(Family::Bare, "bare", number, at + 1))
}

// ---------------------------------------------------------------- the words around a number

/// Returns true for the size of a change, which is no value: "by 20", "a 20 % increase".
fn is_difference(tokens: &[Token<'_>], at: usize, found: &NumberMatch) -> bool {
    let at = at - usize::from(matches!(before(tokens, at, 1), "$" | "£" | "€"));
    let hedges =
        usize::from(matches!(before(tokens, at, 1), "about" | "around" | "over" | "roughly"));
    let is_by = before(tokens, at, 1 + hedges) == "by"
        && !matches!(found.family, Family::Date | Family::Time);
    let is_of_change = matches!(
        text_at(tokens, found.until),
        "increase"
            | "improvement"
            | "boost"
            | "reduction"
            | "decrease"
            | "growth"
            | "drop"
            | "rise"
            | "higher"
            | "lower"
            | "more"
            | "less"
            | "faster"
            | "slower"
            | "gain"
            | "raise"
            | "off"
            | "discount"
            | "cut"
    );
    is_by || (is_of_change && found.family == Family::Percent)
}

/// Most tokens between the two numbers of "from 10 boats to 12".
const FROM_TO_TOKENS_MAX: usize = 4;

fn is_to(tokens: &[Token<'_>], at: usize) -> bool {
    matches!(text_at(tokens, at), "to" | "→")
        || (text_at(tokens, at) == ">" && before(tokens, at, 1) == "-")
}

fn without_currency(tokens: &[Token<'_>], at: usize) -> usize {
    at - usize::from(matches!(before(tokens, at, 1), "$" | "£" | "€"))
}

/// Returns true for the former value in a pair: the 10 of "from 10 to 12".
fn is_old_value(tokens: &[Token<'_>], at: usize, found: &NumberMatch) -> bool {
    let to = (found.until..tokens.len()).take(FROM_TO_TOKENS_MAX).find(|&to| is_to(tokens, to));
    before(tokens, without_currency(tokens, at), 1) == "from"
        && to.is_some_and(|to| {
            (to + 1..to + 3).any(|at| {
                value(text_at(tokens, at)).is_some() || month(text_at(tokens, at)).is_some()
            })
        })
}

/// Returns the former value of a number: given the 12 of "from 10 to 12", the 10.
fn old_value(tokens: &[Token<'_>], at: usize) -> Option<f64> {
    let to = without_currency(tokens, at).checked_sub(1).filter(|&to| is_to(tokens, to))?;
    let first = to.saturating_sub(FROM_TO_TOKENS_MAX + 1);
    let old = (first..to).find(|&old| {
        before(tokens, without_currency(tokens, old), 1) == "from"
            && value(tokens[old].text).is_some()
    })?;
    value(tokens[old].text)
}

/// Tokens searched for the rate behind a number: "5 km of swimming a day".
const RATE_WORDS_MAX: usize = 6;

fn rate(tokens: &[Token<'_>], from: usize) -> Option<&'static str> {
    (from..tokens.len())
        .take(RATE_WORDS_MAX)
        .find_map(|at| match text_at(tokens, at) {
            "per" | "a" | "an" | "each" | "every" | "/" => unit_of_rate(text_at(tokens, at + 1)),
            _ => None,
        })
        .or_else(|| tokens.iter().find_map(|token| unit_of_adverb(token.text)))
}

fn unit_of_rate(word: &str) -> Option<&'static str> {
    ["day", "week", "month", "year", "hour", "minute", "second"]
        .into_iter()
        .find(|unit| *unit == word)
}

fn unit_of_adverb(word: &str) -> Option<&'static str> {
    Some(match word {
        "daily" => "day",
        "weekly" => "week",
        "monthly" => "month",
        "yearly" | "annual" => "year",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::*;

    fn check(clause: &str, expected: &[(Family, &str, f64)]) {
        let plain = clause.to_ascii_lowercase();
        let found = numbers(&plain).0;
        let found: Vec<_> =
            found.iter().map(|number| (number.family, number.key.as_str(), number.value)).collect();
        assert_eq!(found, expected, "{clause:?}");
    }

    #[test]
    fn a_number_is_found_with_what_it_numbers() {
        check(
            "we have 12 new boats and five small canoes",
            &[(Count, "boat", 12.0), (Count, "cano", 5.0)],
        );
        check("I saved $1,200 of 2k euros", &[(Money, "money", 1200.0), (Money, "money", 2000.0)]);
        check(
            "it takes a 30-minute walk, or two hours",
            &[(Duration, "minut", 30.0), (Duration, "hour", 2.0)],
        );
        check("accuracy is at 85% now", &[(Percent, "percent", 85.0)]);
        check(
            "the exam is on March 3rd, 2024 at 5:30 p.m.",
            &[(Date, "date", 303.0), (Time, "time", 1050.0)],
        );
        check(
            "due 2024-03-05, not the 7th of May",
            &[(Date, "date", 305.0), (Date, "date", 507.0)],
        );
        check(
            "the page loads in 250ms and weighs 3 MB",
            &[(Measure, "ms", 250.0), (Measure, "byte", 3e6)],
        );
        check("commits have now reached 165, and more", &[(Bare, "bare", 165.0)]);
        check("a list of 10k subscribers", &[(Count, "subscrib", 10_000.0)]);
    }

    #[test]
    fn what_numbers_nothing_is_none() {
        for clause in [
            "Flask 2.3.1 on port v2 is #12",
            "4/5 correct in 2019",
            "step 3 of the plan",
            "a 20% increase",
            "it grew by 20 users",
            "by about $30",
            "1st, 2nd and 3rd",
            "",
            "١٢ قوارب",
        ] {
            check(clause, &[]);
        }
    }

    #[test]
    fn the_old_value_belongs_to_the_new_one() {
        fn old(clause: &str) -> Vec<(f64, Option<f64>)> {
            let plain = clause.to_ascii_lowercase();
            numbers(&plain).0.iter().map(|number| (number.value, number.old)).collect()
        }
        assert_eq!(old("it grew from 10 to 12 boats"), [(12.0, Some(10.0))]);
        assert_eq!(old("it went from 10 boats to 12 boats"), [(12.0, Some(10.0))]);
        assert_eq!(old("cut from $300 to $250"), [(250.0, Some(300.0))]);
        assert_eq!(old("down from 300 KB to 180 KB"), [(180_000.0, Some(300_000.0))]);
        assert_eq!(old("I drove to 12 harbours"), [(12.0, None)]);
    }

    #[test]
    fn how_often_belongs_to_a_count() {
        for (clause, rate) in [
            ("I write 500 words a day", Some("day")),
            ("30 pages/week", Some("week")),
            ("my monthly budget is $300", Some("month")),
            ("I wrote 500 words", None),
        ] {
            assert_eq!(numbers(clause).0[0].rate, rate, "{clause}");
        }
    }

    #[test]
    fn the_rest_is_given_word_by_word() {
        assert_eq!(
            numbers("my savings reached $300 in march 3").1,
            ["my", "savings", "reached", "in"]
        );
    }

    #[test]
    fn whether_there_may_be_a_number_is_seen_quickly() {
        assert!(
            may_number("twelve boats")
                && may_number("5 boats")
                && !may_number("some boats")
                && !may_number("often")
        );
    }
}
