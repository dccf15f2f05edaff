//! Extracts slots, facts about the speaker that have one value at a time, and decides whether a
//! newer slot supersedes an older one. English only.
//!
//! Extraction ([`slots`]):
//!
//! 1. Remove fenced code and straighten apostrophes (`prose`).
//! 2. Turn each "I have never …" into a denial slot, named after the stems of the denied deed.
//! 3. Find the patterns of `statements.rs` that may match, in one pass. Most texts match none.
//! 4. Apply those to each clause that is neither a question nor a supposition ("if I moved").
//! 5. Name the slot: `lives_in`; `my_is:dog` for a thing of the speaker's; `prefers:go|python` for
//!    a comparison.
//! 6. Set `cue` if the clause has a change word, or the clause before withdrew something.
//!
//! For example "I changed my mind. I prefer Go over Python." gives `prefers:go|python = go` with
//! `cue`. An earlier "I prefer Python" gave `prefers = python`, and [`supersedes`] returns true for
//! the two: the comparison names Python and chooses something else.
//!
//! Limit: only direct statements count. "My sister lives in Lisbon" is not about the speaker.

use super::Slot;
use super::clauses::{clauses, prose};
use super::conflicts::{denials, shared_stems_min};
use super::english::{MONTHS, WEEKDAYS, is_question};
use super::statements::{
    PATTERNS, SlotPattern, is_change, is_no_employer, is_no_home, is_supposition, matching,
    withdraws,
};
use crate::{Language, Stems, Words};
use regex::Captures;
use std::collections::BTreeSet;

/// Slots kept of one text. Nobody makes more statements about themselves in one text, but a pasted
/// list could.
const SLOTS_MAX: usize = 16;

/// Extracts the slots of a text, denials first.
pub fn slots(chunk: &str) -> Vec<Slot> {
    let text = prose(chunk);
    let patterns = matching(&text);
    let mut slots: Vec<Slot> = denials(&text).map(denial).collect();
    if patterns.is_empty() {
        return slots;
    }
    let mut after_withdrawal = false;
    for clause in clauses(&text) {
        if !is_question(clause) && !is_supposition(clause) {
            let cue = after_withdrawal || is_change(clause);
            slots.extend(patterns.iter().flat_map(|&n| slots_of(&PATTERNS[n], clause, cue)));
        }
        after_withdrawal = withdraws(clause);
    }
    slots.truncate(SLOTS_MAX);
    slots
}

/// Prefix of denial slots. "I have never played tennis" gives `never:play+tenni`, which holds until
/// a later text mentions the deed. Each denied deed is a slot of its own.
pub const DENIALS: &str = "never:";
/// Stems in the name of a denial slot. The name becomes part of a key, and no clause needs more.
const DENIED_STEMS_MAX: usize = 8;

fn denial(denied: BTreeSet<String>) -> Slot {
    let value = denied.into_iter().take(DENIED_STEMS_MAX).collect::<Vec<_>>().join("+");
    Slot { name: format!("{DENIALS}{value}"), value, cue: false }
}

/// Returns the denials (`never:…` slots) that this text might contradict, by the names of their
/// slots. A cheap filter before [`conflicts`](super::conflicts()).
///
/// Invariant: never excludes a denial that `conflicts` would find contradicted.
pub fn possibly_contradicted<'d, T>(chunk: &str, denials: &'d [(String, T)]) -> Vec<&'d T> {
    if denials.is_empty() {
        return Vec::new();
    }
    let stems = Words::of(&prose(chunk)).stems_in(Language::ENGLISH);
    denials
        .iter()
        .filter(|(name, _)| may_contradict(&stems, name))
        .map(|(_, denial)| denial)
        .collect()
}

/// Returns true if a text with these stems shares enough stems with the denial. One is enough for a
/// name of [`DENIED_STEMS_MAX`] stems, because the denial may have more than the name holds.
fn may_contradict(stems: &Stems, denial: &str) -> bool {
    let Some(denied) = denial.strip_prefix(DENIALS) else { return false };
    let denied: Vec<&str> = denied.split('+').collect();
    let shared = denied.iter().filter(|denied| stems.iter().any(|stem| stem == **denied)).count();
    let is_cut = denied.len() >= DENIED_STEMS_MAX;
    shared >= if is_cut { 1 } else { shared_stems_min(denied.len()) }
}

/// Returns true if `new` gives another value to the thing that `old` is about. "Lisbon" after
/// "Lisbon, Portugal" is the same value.
pub fn supersedes(new: &Slot, old: &Slot) -> bool {
    let comparable = if new.name == old.name {
        match new.name.as_str() {
            // A person may have two professions.
            "job_title" => new.cue,
            name if is_relative(name) => false,
            name if name.starts_with("my_is:") => of_one_kind(&new.value, &old.value),
            name => !MANY_AT_ONCE.contains(&name),
        }
    } else {
        is_choice_about(new, old) || (new.cue && is_choice_about(old, new))
    };
    comparable && differ(&new.value.to_lowercase(), &old.value.to_lowercase())
}

/// Returns true if `new` names a relative or an animal that `old` names otherwise: the same one
/// under another name, or a second one.
pub fn may_supersede(new: &Slot, old: &Slot) -> bool {
    new.name == old.name
        && is_relative(&new.name)
        && of_one_kind(&new.value, &old.value)
        && differ(&new.value.to_lowercase(), &old.value.to_lowercase())
}

fn is_relative(name: &str) -> bool {
    name.rsplit([':', ' '])
        .next()
        .is_some_and(|thing| RELATIVES.iter().any(|relative| crate::stem(relative) == thing))
}

/// True if both values answer the same question about a thing: "My wife is Julia" and "My wife is
/// Spanish" are both true. A word that may be an adjective answers none for certain.
fn of_one_kind(new: &str, old: &str) -> bool {
    kind(new).is_some_and(|new| Some(new) == kind(old))
}

#[derive(PartialEq)]
enum ValueKind {
    Name,
    Number,
    Day,
    Time,
}

fn kind(value: &str) -> Option<ValueKind> {
    let value = value.to_lowercase();
    let has_digits = value.contains(|c: char| c.is_ascii_digit());
    match () {
        _ if has_digits
            && (value.contains(':') || value.ends_with("am") || value.ends_with("pm")) =>
        {
            Some(ValueKind::Time)
        }
        _ if value.split(' ').any(|word| WEEKDAYS.contains(&word) || MONTHS.contains(&word)) => {
            Some(ValueKind::Day)
        }
        _ if has_digits => Some(ValueKind::Number),
        _ if ADJECTIVE_ENDINGS.iter().any(|ending| value.ends_with(ending)) => None,
        _ => Some(ValueKind::Name),
    }
}

/// Endings of capitalised adjectives: "Spanish", "Canadian", "Dutch", "Catholic", "Buddhist".
const ADJECTIVE_ENDINGS: [&str; 10] =
    ["ish", "ese", "an", "ch", "ic", "ist", "im", "ew", "ek", "ss"];

/// True for a slot with one value at a time, so that a new value replaces every earlier one.
pub fn has_one_value(slot: &Slot) -> bool {
    let family = slot.name.split(':').next().unwrap_or_default();
    !slot.name.starts_with(DENIALS)
        && !MANY_AT_ONCE.contains(&family)
        && family != "job_title"
        && !is_relative(&slot.name)
}

/// Slots that can hold several values at a time. A new value supersedes an older one only by name,
/// as in "Go over Python".
const MANY_AT_ONCE: [&str; 2] = ["prefers", "uses"];

/// Returns true if the comparison `choice` names the value of `plain`. "Go over Python" concerns "I
/// prefer Python" and "I prefer Go", but not "I prefer tea".
fn is_choice_about(choice: &Slot, plain: &Slot) -> bool {
    let pair =
        choice.name.strip_prefix(plain.name.as_str()).and_then(|rest| rest.strip_prefix(':'));
    MANY_AT_ONCE.contains(&plain.name.as_str())
        && pair.is_some_and(|pair| pair.split('|').any(|thing| thing == key(&plain.value)))
}

fn differ(new: &str, old: &str) -> bool {
    match (new.strip_prefix("not "), old.strip_prefix("not ")) {
        (None, None) => !same(new, old),
        (Some(denied), None) => same(denied, old),
        (None, Some(denied)) => same(new, denied),
        (Some(_), Some(_)) => false,
    }
}

/// Returns true if one value contains all words of the other, by their stems.
fn same(a: &str, b: &str) -> bool {
    let a: BTreeSet<String> = crate::words(a).map(crate::stem).collect();
    let b: BTreeSet<String> = crate::words(b).map(crate::stem).collect();
    a.is_subset(&b) || b.is_subset(&a)
}

// ---------------------------------------------------------------- from a clause to slots

fn slots_of<'a>(
    pattern: &'a SlotPattern,
    clause: &'a str,
    cue: bool,
) -> impl Iterator<Item = Slot> + 'a {
    pattern
        .regex
        .captures_iter(clause)
        .filter_map(move |found| slot(pattern.name, clause, &found, cue))
}

fn slot(name: &str, clause: &str, found: &Captures<'_>, cue: bool) -> Option<Slot> {
    let matched = group(found, "value")?;
    let whole = found.get(0)?;
    let is_other = match name {
        "works_at" => is_no_employer(whole.as_str(), &clause[whole.end()..]),
        "lives_in" => is_no_home(clause, &matched.to_lowercase()),
        _ => false,
    };
    if is_other {
        return None;
    }
    let (matched, other) = match name {
        "prefers" => split_comparison(matched),
        _ => (matched, group(found, "other")),
    };
    let value = value(name, matched)?;
    let name = match (group(found, "of"), other.map(until_function_word)) {
        (Some(of), _) => format!("{name}:{}", single_valued(of)?),
        (_, Some(other)) if !other.is_empty() => format!("{name}:{}", pair(&value, &other)),
        _ => name.to_owned(),
    };
    let value = if group(found, "not").is_some() { format!("not {value}") } else { value };
    Some(Slot { name, value, cue })
}

fn group<'t>(found: &Captures<'t>, name: &str) -> Option<&'t str> {
    found.name(name).map(|group| group.as_str())
}

/// Splits "tea over coffee" into the preferred thing and the other one, if a comparison is made.
fn split_comparison(text: &str) -> (&str, Option<&str>) {
    let first = [" over ", " instead of ", " rather than ", " to "]
        .into_iter()
        .filter_map(|border| text.find(border).map(|at| (at, border.len())))
        .min();
    first.map_or((text, None), |(at, len)| (&text[..at], Some(&text[at + len..])))
}

/// Normalises the matched text to the value of the slot. `None` if nothing is left, or if a job
/// title contains a function word.
fn value(slot: &str, matched: &str) -> Option<String> {
    let value = match slot {
        "fav" | "prefers" => until_function_word(matched),
        "job_title" if matched.split(' ').any(|word| crate::is_stop_word(&word.to_lowercase())) => {
            return None;
        }
        _ => matched.trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase(),
    };
    (!value.is_empty()).then(|| value.trim_end_matches("'s").to_owned())
}

/// Words that end a value, besides function words.
const AFTERTHOUGHTS: [&str; 10] = [
    "anymore",
    "instead",
    "nowadays",
    "lately",
    "currently",
    "again",
    "today",
    "actually",
    "always",
    "because",
];

/// Drops leading articles, and everything from the next function word on: "the green these days"
/// becomes "green".
fn until_function_word(text: &str) -> String {
    text.to_lowercase()
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', '\'', '-', '&']))
        .skip_while(|word| matches!(*word, "a" | "an" | "the" | "my" | "our" | "using"))
        .take_while(|word| !crate::is_stop_word(word) && !AFTERTHOUGHTS.contains(word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Things of which a person has several: "my friend is Anna" and "my friend is Tom" are both true.
const SEVERAL: [&str; 16] = [
    "friend",
    "cousin",
    "colleague",
    "coworker",
    "classmate",
    "teammate",
    "neighbor",
    "student",
    "client",
    "customer",
    "book",
    "idea",
    "option",
    "hobby",
    "favorite",
    "favourite",
];

/// Relatives and animals of which a person may have several. Two statements about one may be about
/// the same, so that they have a slot, but none replaces the other.
const RELATIVES: [&str; 19] = [
    "sister",
    "brother",
    "sibling",
    "son",
    "daughter",
    "child",
    "kid",
    "twin",
    "aunt",
    "uncle",
    "niece",
    "nephew",
    "grandmother",
    "grandfather",
    "grandson",
    "granddaughter",
    "dog",
    "cat",
    "pet",
];

/// Words before a thing that name no other one: "my new phone" is the phone.
const CURRENT: [&str; 5] = ["new", "current", "present", "latest", "own"];

/// Returns the key of a thing of the speaker's: the stems of its words, in American spelling, so
/// that the car's insurance is another thing than the health insurance. `None` for things of which
/// a person has several.
fn single_valued(owned: &str) -> Option<String> {
    let owned = owned.to_lowercase();
    let words: Vec<&str> = owned.split(' ').filter(|word| !CURRENT.contains(word)).collect();
    if words.is_empty() || words.iter().any(|word| SEVERAL.contains(word)) {
        return None;
    }
    let key: Vec<String> = words
        .into_iter()
        .map(|word| match word.strip_suffix("our") {
            Some(start) if start.len() > 2 => crate::stem(&format!("{start}or")),
            _ => crate::stem(word),
        })
        .collect();
    Some(key.join(" "))
}

/// Joins the keys of two compared values in order of the alphabet: `go|python`.
fn pair(a: &str, b: &str) -> String {
    let mut keys = [key(a), key(b)];
    keys.sort();
    keys.join("|")
}

/// Returns the stems of a value, separated by spaces.
fn key(value: &str) -> String {
    value
        .to_lowercase()
        .split(|c: char| c.is_whitespace() || matches!(c, '\'' | '.' | '-'))
        .filter(|word| !word.is_empty())
        .map(crate::stem)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::conflicts::{EarlierText, conflicts};
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = slots(text);
        assert_eq!(
            found.iter().map(|slot| (slot.name.as_str(), slot.value.as_str())).collect::<Vec<_>>(),
            expected,
            "{text:?}"
        );
    }

    fn is_change_of(new: &str, old: &str) -> bool {
        let old = slots(old);
        slots(new).iter().any(|new| old.iter().any(|old| supersedes(new, old)))
    }

    #[test]
    fn statements_about_the_speaker_give_slots() {
        check(
            "I live in São Paulo, and I work at Acme Corp.",
            &[("lives_in", "são paulo"), ("works_at", "acme corp")],
        );
        check("My favourite colour is dark blue these days", &[("fav:color", "dark blue")]);
        check("I’m a senior software engineer", &[("job_title", "senior software engineer")]);
        check(
            "My dog's name is Rex. My birthday is March 3",
            &[("my_is:dog", "rex"), ("my_is:birthday", "march 3")],
        );
        check(
            "I prefer Google Docs over Word when writing",
            &[("prefers:googl doc|word", "google docs")],
        );
        check("I prefer dark chocolate.", &[("prefers", "dark chocolate")]);
        check("We switched from Slack to Zulip", &[("uses:slack|zulip", "zulip")]);
        check("I prefer Node.js.", &[("prefers", "node.js")]);
        check("I no longer work at Google", &[("works_at", "not google")]);
        check("I live in Ohio, can you name a lake?", &[("lives_in", "ohio")]);
        check(
            "I've never played tennis in Porto",
            &[("never:play+porto+tenni", "play+porto+tenni")],
        );
    }

    #[test]
    fn questions_suppositions_and_statements_about_others_give_no_slot() {
        for text in [
            "Did I live in Berlin?",
            "If I moved to Lisbon, life would be cheap",
            "My sister lives in Lisbon",
            "I prefer to walk",
            "My friend is Anna",
            "```\nI live in Berlin\n```",
            "I'm a friend of the doctor",
            "我住在里斯本",
        ] {
            check(text, &[]);
        }
    }

    #[test]
    fn a_change_word_in_the_clause_is_a_cue() {
        for (text, expected) in [
            ("I prefer Go", false),
            ("Actually, I prefer Go", true),
            ("I changed my mind. I prefer Go.", true),
            ("It rains now. I prefer Go.", false),
        ] {
            let cues: Vec<bool> = slots(text).iter().map(|slot| slot.cue).collect();
            assert_eq!(cues, [expected], "{text:?}");
        }
    }

    #[test]
    fn another_value_of_the_same_slot_is_a_change() {
        for (old, new) in [
            ("I live in Berlin.", "I moved to Lisbon last month."),
            ("I'm based in New York", "I just relocated to Austin, Texas"),
            ("I work at Google as a designer", "I started at Stripe this week"),
            ("I work for Acme Corp", "I just joined Initech last Monday"),
            ("I'm a software engineer", "I was promoted to engineering manager"),
            ("I prefer tabs over spaces", "Actually I prefer spaces to tabs now"),
            ("My favourite color is blue", "my favorite color is green these days"),
            ("My manager is called Rex", "My new manager is named Bella"),
            ("my phone is 555-1234", "My phone is now 555-9999"),
            ("I prefer Word over Google Docs", "I now prefer Google Docs over Word"),
            ("We live in Ohio", "We're moving to Denver next week"),
            ("My birthday is March 3", "My birthday is March 5"),
            ("I'm vegetarian", "I'm not vegetarian anymore, I eat meat again"),
            ("I prefer Python", "I prefer Go over Python"),
            ("I use VS Code", "I switched from VS Code to Neovim"),
            ("I use Slack", "We switched from Slack to Zulip"),
            ("I work at Google", "I left Google in May"),
        ] {
            assert!(
                is_change_of(new, old),
                "{old:?} → {new:?}: {:?} → {:?}",
                slots(old),
                slots(new)
            );
        }
    }

    #[test]
    fn the_same_value_or_another_thing_is_no_change() {
        for (old, new) in [
            ("I live in Berlin", "My sister lives in Lisbon"),
            ("I work at Google", "I worked with Anna on it"),
            ("I moved to Lisbon", "I'm based in Lisbon, Portugal"),
            ("I'm a teacher", "I'm a big fan of jazz"),
            ("My dog is Rex", "My cat is Tom"),
            ("I prefer tea over coffee", "I prefer trains over planes"),
            ("I live in Berlin", "I moved into a new flat in Berlin"),
            ("I'm a doctor", "My brother is a lawyer"),
            ("I work at Google", "I'm working with React"),
            ("I prefer tea", "I prefer Go over Python"),
            ("I prefer Python", "I prefer Go"),
            ("I use Slack", "I use Rust"),
            ("I live in lisbon", "I live in LISBON"),
            ("I work at Google", "I left Berlin"),
            // A word before the thing makes another thing, and people have several relatives.
            ("My sister is Anna", "my sister is Maria"),
            ("My older sister is Anna", "My younger sister is Clara"),
            ("My dog is called Rex", "My dog is named Bella"),
            ("My work phone is 555-1234", "My home phone is 555-9999"),
            ("My favourite red wine is Rioja", "My favourite white wine is Riesling"),
            // Values of another kind answer another question.
            ("My wife is Julia", "My wife is Spanish"),
            ("My boss is Dutch", "My boss is called Helen"),
            ("My flight is LH1829", "My flight is Tuesday morning"),
            ("My appointment is Monday", "My appointment is 3:30 pm"),
            // No home, and no employer.
            ("I live in Berlin", "I nearly moved to Rome in 2015"),
            ("I live in Berlin", "We moved in March"),
            ("I live in Berlin", "We moved to Room 12"),
            ("I live in Berlin", "\"I moved to Paris,\" said the woman in the film"),
            ("I work at Bosch", "I joined Anna for dinner"),
            ("I work at Bosch", "I joined Facebook in 2008"),
            ("I work at Bosch", "I'm working at Starbucks this morning"),
            ("I work at Bosch", "I left Bosch early today"),
            ("I work for Oxfam", "I left Oxfam my old sofa"),
            ("I'm an accountant", "I'm a football coach on weekends"),
            // People have many tools and tastes: a change has to name the old one.
            ("I use VS Code", "I switched to Neovim"),
            ("I use Vim", "My colleague switched from Vim to VS Code"),
            ("I prefer tea", "I now prefer aisle seats"),
        ] {
            assert!(
                !is_change_of(new, old),
                "{old:?} → {new:?}: {:?} → {:?}",
                slots(old),
                slots(new)
            );
        }
    }

    #[test]
    fn a_denial_is_possibly_contradicted_by_half_of_its_stems_or_by_any_of_eight() {
        for (name, text, expected) in [
            ("never:play+tenni", "I played tennis", true),
            ("never:play+tenni", "I played chess", false),
            ("never:play", "I played chess", true),
            ("never:anna+play+tenni", "Anna plays chess", true),
            ("never:a+b+c+d+e+f+g+play", "I played chess", true),
            ("never:a+b+c+d+e+f+play", "I played chess", false),
            ("never:play+tenni", "I swim", false),
            ("my_is:play", "I played", false),
        ] {
            assert_eq!(
                possibly_contradicted(text, &[(name.to_owned(), ())]).len(),
                usize::from(expected),
                "{name}, {text}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_denial_in_conflict_passes_the_filter(
            denied in prop::collection::vec(prop::sample::select(DEEDS), 1..12),
            done in prop::collection::vec(prop::sample::select(DEEDS), 1..12),
            rest in prop::sample::select(OTHER_TEXT),
        ) {
            let before = format!("I have never {}", denied.join(" "));
            let new = format!("I have {}.{rest}", done.join(" "));
            let names: Vec<_> = slots(&before).into_iter().map(|slot| (slot.name, ())).collect();
            let found = conflicts(&new, &[EarlierText { content: &before, cosine: 0.9, opposed: 0 }]);
            prop_assert!(found.is_empty() || !possibly_contradicted(&new, &names).is_empty(), "{before}: {new}");
        }
    }

    const OTHER_TEXT: &[&str] = &[
        "",
        " Ich wohne seit gestern mit meiner Schwester in Berlin.",
        "\nSee ```here``` and\n```\nthere",
    ];

    const DEEDS: &[&str] = &[
        "played", "tennis", "visited", "Porto", "the", "Rome", "sailed", "a boat", "with", "Anna",
        "painted", "kitchens", "in", "green", "sold", "violins", "to", "nurses",
    ];

    #[test]
    fn values_compare_without_case_and_by_whole_words() {
        fn slot(value: &str) -> Slot {
            Slot { name: "lives_in".into(), value: value.into(), cue: false }
        }
        for (new, old, expected) in [
            ("Lisbon, Portugal", "lisbon", false),
            ("LISBON", "Lisbon", false),
            ("York", "Yorkshire", true),
            ("Dallas, Texas", "Austin, Texas", true),
            ("not Berlin", "Lisbon", false),
        ] {
            assert_eq!(supersedes(&slot(new), &slot(old)), expected, "{old:?} → {new:?}");
        }
    }
}
