//! Finds statements about the speaker that can have another value later, and tells when a newer one takes an older one's place.
//! English, and only what is said outright: "My sister lives in Lisbon" says nothing about the speaker.

use super::Slot;
use super::clauses::{clauses, prose};
use super::conflicts::{denials, told_at_least};
use super::statements::{STATEMENTS, Statement, is_change, is_supposed, matching, takes_back};
use crate::text::{self, Language, Stems, Words};
use regex::Captures;
use std::collections::BTreeSet;

/// More than anybody says of themselves in one piece; a pasted list could go on.
const SLOTS_MAX: usize = 16;

pub fn slots(chunk: &str) -> Vec<Slot> {
    let text = prose(chunk);
    let statements = matching(&text);
    let (mut slots, mut taken_back): (Vec<Slot>, bool) =
        (denials(&text).map(denial).collect(), false);
    if statements.is_empty() {
        return slots;
    }
    for clause in clauses(&text) {
        if !clause.ends_with('?') && !is_supposed(clause) {
            let cue = taken_back || is_change(clause);
            slots.extend(statements.iter().flat_map(|&n| said(&STATEMENTS[n], clause, cue)));
        }
        taken_back = takes_back(clause);
    }
    slots.truncate(SLOTS_MAX);
    slots
}

/// "I have never …" holds until the deed is told: `never:play+tenni`, a slot of its own for each thing that is denied.
pub const DENIALS: &str = "never:";
/// More stems than any clause needs to be told by: the name becomes a key.
const DENIED_STEMS_MAX: usize = 8;

fn denial(denied: BTreeSet<String>) -> Slot {
    let value = denied.into_iter().take(DENIED_STEMS_MAX).collect::<Vec<_>>().join("+");
    Slot { name: format!("{DENIALS}{value}"), value, cue: false }
}

/// Of denials, by the names of their slots, those whose deed the text may tell.
/// Invariant: no fewer than `conflicts` would find it to tell.
pub fn told<'d, T>(chunk: &str, denials: &'d [(String, T)]) -> Vec<&'d T> {
    if denials.is_empty() {
        return Vec::new();
    }
    let stems = Words::again(&prose(chunk)).stems_in(Language::ENGLISH);
    denials.iter().filter(|(name, _)| may_tell_of(name, &stems)).map(|(_, denial)| denial).collect()
}

/// A full slot may deny more than its name holds.
fn may_tell_of(denial: &str, stems: &Stems) -> bool {
    let Some(denied) = denial.strip_prefix(DENIALS) else { return false };
    let (mut all, mut told) = (0, 0);
    for denied in denied.split('+') {
        all += 1;
        told += usize::from(stems.iter().any(|stem| stem == denied));
    }
    told >= if all < DENIED_STEMS_MAX { told_at_least(all) } else { 1 }
}

/// Whether `new` says something else about the very thing `old` is about. "Lisbon" after "Lisbon, Portugal" is no change.
pub fn replaces(new: &Slot, old: &Slot) -> bool {
    let comparable = if new.name == old.name {
        new.cue || !MANY_AT_ONCE.contains(&new.name.as_str())
    } else {
        is_choice_about(new, old) || (new.cue && is_choice_about(old, new))
    };
    comparable && differ(&new.value.to_lowercase(), &old.value.to_lowercase())
}

/// Slots that hold several values at a time: only a change word makes a new value take an old one's place.
const MANY_AT_ONCE: [&str; 2] = ["prefers", "uses"];

/// "Go over Python" is about "I prefer Python" and about "I prefer Go", but not about "I prefer tea".
fn is_choice_about(choice: &Slot, plain: &Slot) -> bool {
    let pair =
        choice.name.strip_prefix(plain.name.as_str()).and_then(|rest| rest.strip_prefix(':'));
    MANY_AT_ONCE.contains(&plain.name.as_str())
        && pair.is_some_and(|pair| pair.split('|').any(|thing| thing == key(&plain.value)))
}

fn differ(new: &str, old: &str) -> bool {
    match (new.strip_prefix("not "), old.strip_prefix("not ")) {
        (None, None) => !alike(new, old),
        (Some(denied), None) => alike(denied, old),
        (None, Some(denied)) => alike(new, denied),
        (Some(_), Some(_)) => false,
    }
}

/// The words of one are all in the other.
fn alike(a: &str, b: &str) -> bool {
    let stems = |value| text::words(value).map(text::stem).collect::<BTreeSet<_>>();
    let (a, b) = (stems(a), stems(b));
    a.is_subset(&b) || b.is_subset(&a)
}

// ---------------------------------------------------------------- a clause to slots

fn said<'a>(
    statement: &'a Statement,
    clause: &'a str,
    cue: bool,
) -> impl Iterator<Item = Slot> + 'a {
    statement
        .wording
        .captures_iter(clause)
        .filter_map(move |found| slot(statement.name, &found, cue))
}

fn slot(name: &str, found: &Captures<'_>, cue: bool) -> Option<Slot> {
    let group = |name| found.name(name).map(|group| group.as_str());
    let (said, other) = match chosen(group("value")?) {
        (chosen, other) if name == "prefers" => (chosen, other),
        _ => (group("value")?, group("other")),
    };
    let value = value(name, said)?;
    let name = match (group("of"), other.map(until_function_word)) {
        (Some(of), _) => format!("{name}:{}", single(of)?),
        (_, Some(other)) if !other.is_empty() => format!("{name}:{}", pair(&value, &other)),
        _ => name.to_owned(),
    };
    let value = if group("not").is_some() { format!("not {value}") } else { value };
    Some(Slot { name, value, cue })
}

/// "tea over coffee": what is preferred, and to what.
fn chosen(text: &str) -> (&str, Option<&str>) {
    let borders = [" over ", " instead of ", " rather than ", " to "];
    let border =
        borders.iter().filter_map(|border| text.find(border).map(|at| (at, border.len()))).min();
    border.map_or((text, None), |(at, len)| (&text[..at], Some(&text[at + len..])))
}

fn value(slot: &str, said: &str) -> Option<String> {
    let value = match slot {
        "fav" | "prefers" => until_function_word(said),
        "job_title" if said.split(' ').any(|word| text::is_stop_word(&word.to_lowercase())) => {
            return None;
        }
        _ => said.trim_end_matches(|c: char| !c.is_alphanumeric()).to_lowercase(),
    };
    (!value.is_empty()).then(|| value.trim_end_matches("'s").to_owned())
}

/// What a value ends at, besides function words.
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

/// "the green these days" → "green".
fn until_function_word(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split_whitespace().map(|word| word.trim_end_matches(['.', '\'', '-', '&']));
    let words =
        words.skip_while(|word| matches!(*word, "a" | "an" | "the" | "my" | "our" | "using"));
    let said = words.take_while(|word| !text::is_stop_word(word) && !AFTERTHOUGHTS.contains(word));
    said.collect::<Vec<_>>().join(" ")
}

/// What one has several of: "my friend is Anna" and "my friend is Tom" are both true.
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

/// The key of what is the speaker's: its last word, in American spelling. None where one value does not exclude another.
fn single(owned: &str) -> Option<String> {
    let word = owned.split(' ').next_back()?.to_lowercase();
    let word = word
        .strip_suffix("our")
        .filter(|start| start.len() > 2)
        .map_or(word.clone(), |start| format!("{start}or"));
    let first = owned.split(' ').next()?;
    (!SEVERAL.contains(&word.as_str()) && !SEVERAL.contains(&first)).then(|| text::stem(&word))
}

fn pair(a: &str, b: &str) -> String {
    let mut keys = [key(a), key(b)];
    keys.sort();
    keys.join("|")
}

fn key(value: &str) -> String {
    let lower = value.to_lowercase();
    let marks = |c: char| c.is_whitespace() || matches!(c, '\'' | '.' | '-');
    let stems = lower.split(marks).filter(|word| !word.is_empty()).map(text::stem);
    stems.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::conflicts::{Earlier, conflicts};
    use super::*;
    use proptest::prelude::*;

    fn check(said: &str, expected: &[(&str, &str)]) {
        let found = slots(said);
        assert_eq!(
            found.iter().map(|slot| (slot.name.as_str(), slot.value.as_str())).collect::<Vec<_>>(),
            expected,
            "{said:?}"
        );
    }

    fn is_change_of(new: &str, old: &str) -> bool {
        let (new, old) = (slots(new), slots(old));
        new.iter().any(|new| old.iter().any(|old| replaces(new, old)))
    }

    #[test]
    fn what_is_said_of_oneself_is_a_slot() {
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
    fn what_is_asked_supposed_or_said_of_others_is_none() {
        for said in [
            "Did I live in Berlin?",
            "If I moved to Lisbon, life would be cheap",
            "My sister lives in Lisbon",
            "I prefer to walk",
            "My friend is Anna",
            "```\nI live in Berlin\n```",
            "I'm a friend of the doctor",
            "我住在里斯本",
        ] {
            check(said, &[]);
        }
    }

    #[test]
    fn a_change_word_in_the_clause_is_a_cue() {
        for (said, expected) in [
            ("I prefer Go", false),
            ("Actually, I prefer Go", true),
            ("I changed my mind. I prefer Go.", true),
            ("It rains now. I prefer Go.", false),
        ] {
            assert_eq!(
                slots(said).iter().map(|slot| slot.cue).collect::<Vec<_>>(),
                [expected],
                "{said:?}"
            );
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
            ("My dog is called Rex", "My dog is named Bella"),
            ("my phone is 555-1234", "My phone is now 555-9999"),
            ("I prefer Word over Google Docs", "I now prefer Google Docs over Word"),
            ("My sister is Anna", "my sister is Maria"),
            ("We live in Ohio", "We're moving to Denver next week"),
            ("I use VS Code", "I switched to Neovim"),
            ("My birthday is March 3", "My birthday is March 5"),
            ("I'm vegetarian", "I'm not vegetarian anymore, I eat meat again"),
            ("I prefer Python", "Actually, I prefer Go"),
            ("I prefer Python", "I prefer Go over Python"),
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
    fn a_denial_is_asked_for_by_half_of_the_stems_it_names_or_by_any_of_many() {
        for (name, said, expected) in [
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
                told(said, &[(name.to_owned(), ())]).len(),
                usize::from(expected),
                "{name}, {said}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whoever_tells_what_was_denied_asks_for_the_denial(
            denied in prop::collection::vec(prop::sample::select(DEEDS), 1..12),
            done in prop::collection::vec(prop::sample::select(DEEDS), 1..12),
            rest in prop::sample::select(&["", " Ich wohne seit gestern mit meiner Schwester in Berlin.", "\nSee ```here``` and\n```\nthere"][..]),
        ) {
            let (before, new) = (format!("I have never {}", denied.join(" ")), format!("I have {}.{rest}", done.join(" ")));
            let names: Vec<_> = slots(&before).into_iter().map(|slot| (slot.name, ())).collect();
            let found = conflicts(&new, &[Earlier { content: &before, cosine: 0.9, opposed: 0 }]);
            prop_assert!(found.is_empty() || !told(&new, &names).is_empty(), "{before}: {new}");
        }
    }

    const DEEDS: &[&str] = &[
        "played", "tennis", "visited", "Porto", "the", "Rome", "sailed", "a boat", "with", "Anna",
        "painted", "kitchens", "in", "green", "sold", "violins", "to", "nurses",
    ];

    #[test]
    fn values_compare_without_case_and_by_whole_words() {
        let slot = |value: &str| Slot { name: "lives_in".into(), value: value.into(), cue: false };
        for (new, old, expected) in [
            ("Lisbon, Portugal", "lisbon", false),
            ("LISBON", "Lisbon", false),
            ("York", "Yorkshire", true),
            ("Dallas, Texas", "Austin, Texas", true),
            ("not Berlin", "Lisbon", false),
        ] {
            assert_eq!(replaces(&slot(new), &slot(old)), expected, "{old:?} → {new:?}");
        }
    }
}
