//! Numbers that a clause gives with what they number: "12 boats", "$300", "by 5 pm". English nouns
//! and units; whether another number is a change is not decided here.

use super::dates::{Moment, clock, day_first, is_year, iso_date, month, month_first};
use super::tokens::{Token, before, counting, text_at, tokens, touches, value};
use crate::text;
use std::collections::BTreeSet;

/// What a number is of. Only numbers of one family are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Count,
    Money,
    Duration,
    Percent,
    Date,
    Time,
    Measure,
    /// Without a noun: "is now 15".
    Bare,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    pub family: Family,
    /// What must agree: the stem of the head noun, or the unit.
    pub key: String,
    pub value: f64,
    /// As it was written.
    pub said: String,
    /// Of a count: all stems of the noun phrase.
    pub phrase: BTreeSet<String>,
    /// "a day", "weekly".
    pub rate: Option<&'static str>,
    /// "from 10 to 12": the 10.
    pub old: Option<f64>,
}

/// The numbers of a clause in lower case, in order, and the words of everything else it says.
pub fn numbers(plain: &str) -> (Vec<Number>, Vec<&str>) {
    let tokens = tokens(plain);
    let (mut numbers, mut rest, mut at) = (Vec::new(), Vec::new(), 0);
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
            let Found { family, key, value, phrase, .. } = found;
            numbers.push(Number { family, key, value, said, phrase, rate, old });
        } else if is_word {
            rest.extend(tokens[at..next].iter().map(|token| token.text));
        }
        at = next;
    }
    (numbers, rest)
}

/// May it hold a number at all? Quicker than reading it.
pub fn may_number(plain: &str) -> bool {
    plain.bytes().any(|byte| byte.is_ascii_digit())
        || plain.split(|c: char| !c.is_ascii_alphabetic()).any(|word| counting(word).is_some())
}

// ---------------------------------------------------------------- one number

struct Found {
    family: Family,
    key: String,
    value: f64,
    /// What one of its unit is worth.
    scale: f64,
    phrase: BTreeSet<String>,
    /// The first token that does not belong to it.
    until: usize,
}

impl Found {
    fn of(family: Family, key: impl Into<String>, value: f64, until: usize) -> Found {
        Found { family, key: key.into(), value, scale: 1.0, phrase: BTreeSet::new(), until }
    }
}

/// Order matters: what has a sign or a unit is no count of things.
fn found_at(tokens: &[Token<'_>], at: usize) -> Option<Found> {
    let date = |moment: Moment| Found::of(Family::Date, "date", moment.value, moment.until);
    if let Some(moment) = month_first(tokens, at) {
        return Some(date(moment));
    }
    let value = value(text_at(tokens, at))?;
    iso_date(tokens, at)
        .or_else(|| day_first(tokens, at, value))
        .map(date)
        .or_else(|| {
            clock(tokens, at, value)
                .map(|moment| Found::of(Family::Time, "time", moment.value, moment.until))
        })
        .or_else(|| money(tokens, at, value))
        .or_else(|| percent(tokens, at, value))
        .or_else(|| measure(tokens, at, value))
        .or_else(|| count(tokens, at, value))
        .or_else(|| bare(tokens, at, value))
}

/// "$300", "300 dollars", "€2k"
fn money(tokens: &[Token<'_>], at: usize, amount: f64) -> Option<Found> {
    let (thousands, next) = in_thousands(tokens, at);
    let is_signed = matches!(before(tokens, at, 1), "$" | "£" | "€");
    let is_named =
        matches!(text_at(tokens, next), "dollars" | "euros" | "pounds" | "usd" | "eur" | "gbp");
    (is_signed || is_named).then(|| {
        let found =
            Found::of(Family::Money, "money", amount * thousands, next + usize::from(is_named));
        Found { scale: thousands, ..found }
    })
}

/// "10k" is ten thousand: the factor, and what stands behind.
fn in_thousands(tokens: &[Token<'_>], at: usize) -> (f64, usize) {
    match text_at(tokens, at + 1) {
        "k" if touches(tokens, at + 1) => (1e3, at + 2),
        "m" if touches(tokens, at + 1) => (1e6, at + 2),
        _ => (1.0, at + 1),
    }
}

fn percent(tokens: &[Token<'_>], at: usize, share: f64) -> Option<Found> {
    matches!(text_at(tokens, at + 1), "%" | "percent")
        .then(|| Found::of(Family::Percent, "percent", share, at + 2))
}

/// The unit and how many of the smallest of its kind it is.
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

fn measure(tokens: &[Token<'_>], at: usize, amount: f64) -> Option<Found> {
    let (unit, scale) = unit(text_at(tokens, at + 1)).filter(|_| stands_alone(tokens, at))?;
    Some(Found { scale, ..Found::of(Family::Measure, unit, amount * scale, at + 2) })
}

/// Not "v2", "#12", "4/5" or "-3".
fn stands_alone(tokens: &[Token<'_>], at: usize) -> bool {
    let last = before(tokens, at, 1).chars().next_back();
    !touches(tokens, at)
        || !last.is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '.' | '/' | ':' | '#' | '-' | '$' | '_')
        })
}

/// Of a noun phrase.
const PHRASE_WORDS_MAX: usize = 4;
/// What ends one, besides function words.
const PHRASE_ENDS: &str = "per with including involving covering focusing using last next ago now today within across since every total already \
    completed scored tagged till due worth left away old merged";
/// What makes a number no count of anything one has or does: sizes, ordinals, items of a list.
const NO_COUNT: &str = "cm mm m km kg g lb lbs px ms mb gb inch ft unit degre x side dimension th nd st rd step exampl option tip way \
    question point col row line k";

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// "12 new boats", "a 30-minute walk"; a unit of time makes it a duration.
fn count(tokens: &[Token<'_>], at: usize, number: f64) -> Option<Found> {
    let (thousands, mut next) = in_thousands(tokens, at);
    if !stands_alone(tokens, at) || is_year(tokens[at].text) {
        return None;
    }
    next += usize::from(text_at(tokens, next) == "-" && touches(tokens, next));
    let is_noun = |token: &&Token<'_>| {
        token.text.starts_with(char::is_alphabetic)
            && !text::is_stop_word(token.text)
            && !is_in(PHRASE_ENDS, token.text)
    };
    let behind = tokens.get(next..).unwrap_or_default();
    let words: Vec<String> = behind
        .iter()
        .take(PHRASE_WORDS_MAX)
        .take_while(is_noun)
        .map(|token| text::stem(token.text))
        .collect();
    let (first, head) = (words.first()?, words.last()?);
    if touches(tokens, next) && text_at(tokens, next - 1) != "-"
        || is_in(NO_COUNT, first)
        || is_in(NO_COUNT, head)
    {
        return None;
    }
    let is_of_time = |stem: &&String| {
        matches!(stem.as_str(), "hour" | "hr" | "minut" | "min" | "day" | "week" | "month" | "year")
    };
    // The nouns are left for what the clause is about.
    Some(match [first, head].into_iter().find(is_of_time) {
        Some(unit) => Found::of(Family::Duration, unit_of_time(unit), number, next),
        None => {
            let found = Found::of(Family::Count, head.clone(), number * thousands, next);
            Found { scale: thousands, phrase: words.iter().cloned().collect(), ..found }
        }
    })
}

fn unit_of_time(stem: &str) -> &str {
    match stem {
        "hr" => "hour",
        "min" => "minut",
        other => other,
    }
}

/// "reached 165", "is now 15"
fn bare(tokens: &[Token<'_>], at: usize, number: f64) -> Option<Found> {
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
    is_plain.then(|| Found::of(Family::Bare, "bare", number, at + 1))
}

// ---------------------------------------------------------------- what stands around it

/// "by 20", "a 20 % increase": how much it changed, not what it is.
fn is_difference(tokens: &[Token<'_>], at: usize, found: &Found) -> bool {
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

/// Tokens between the two numbers of "from 10 boats to 12".
const FROM_TO_TOKENS_MAX: usize = 4;

fn is_to(tokens: &[Token<'_>], at: usize) -> bool {
    matches!(text_at(tokens, at), "to" | "→")
        || (text_at(tokens, at) == ">" && before(tokens, at, 1) == "-")
}

fn without_currency(tokens: &[Token<'_>], at: usize) -> usize {
    at - usize::from(matches!(before(tokens, at, 1), "$" | "£" | "€"))
}

/// The 10 of "from 10 to 12".
fn is_old_value(tokens: &[Token<'_>], at: usize, found: &Found) -> bool {
    let to = (found.until..tokens.len()).take(FROM_TO_TOKENS_MAX).find(|&to| is_to(tokens, to));
    before(tokens, without_currency(tokens, at), 1) == "from"
        && to.is_some_and(|to| {
            (to + 1..to + 3).any(|at| {
                value(text_at(tokens, at)).is_some() || month(text_at(tokens, at)).is_some()
            })
        })
}

/// Of the 12 of "from 10 to 12": the 10.
fn old_value(tokens: &[Token<'_>], at: usize) -> Option<f64> {
    let to = without_currency(tokens, at).checked_sub(1).filter(|&to| is_to(tokens, to))?;
    let first = to.saturating_sub(FROM_TO_TOKENS_MAX + 1);
    let old = (first..to).find(|&old| {
        before(tokens, without_currency(tokens, old), 1) == "from"
            && value(tokens[old].text).is_some()
    })?;
    value(tokens[old].text)
}

/// Words between a number and its rate: "5 km of swimming a day".
const RATE_WORDS_MAX: usize = 6;

fn rate(tokens: &[Token<'_>], from: usize) -> Option<&'static str> {
    let near = |at: usize| match text_at(tokens, at) {
        "per" | "a" | "an" | "each" | "every" | "/" => unit_of_rate(text_at(tokens, at + 1)),
        _ => None,
    };
    let anywhere = || tokens.iter().find_map(|token| unit_of_adverb(token.text));
    (from..tokens.len()).take(RATE_WORDS_MAX).find_map(near).or_else(anywhere)
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
        let old = |clause: &str| {
            let plain = clause.to_ascii_lowercase();
            numbers(&plain).0.iter().map(|number| (number.value, number.old)).collect::<Vec<_>>()
        };
        assert_eq!(old("it grew from 10 to 12 boats"), [(12.0, Some(10.0))]);
        assert_eq!(old("it went from 10 boats to 12 boats"), [(12.0, Some(10.0))]);
        assert_eq!(old("cut from $300 to $250"), [(250.0, Some(300.0))]);
        assert_eq!(old("down from 300 KB to 180 KB"), [(180_000.0, Some(300_000.0))]);
        assert_eq!(old("I drove to 12 harbours"), [(12.0, None)]);
    }

    #[test]
    fn how_often_belongs_to_a_count() {
        let rate = |clause: &str| numbers(clause).0[0].rate;
        assert_eq!(rate("I write 500 words a day"), Some("day"));
        assert_eq!(rate("30 pages/week"), Some("week"));
        assert_eq!(rate("my monthly budget is $300"), Some("month"));
        assert_eq!(rate("I wrote 500 words"), None);
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
