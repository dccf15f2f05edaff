//! Finds earlier texts of the same speaker that a new text contradicts: another number for the same
//! thing, or "never" against a deed.
//!
//! 1. [`may_conflict`] filters new texts by cheap signs. Most texts end here.
//! 2. [`conflicts`] cuts the new text and the earlier ones into claims (`clauses.rs`), and reads
//!    the numbers, the deed or the denial of each.
//! 3. Two numbers contradict if family and key agree, the values differ, the new clause has a
//!    change word or names the old value, and the clauses share enough stems.
//! 4. A denial ("I have never …") and a deed ("I …") contradict if the deed has enough of the
//!    denied stems.
//! 5. Each conflict has a strength, the cosine plus a share of the overlap, by which the best are
//!    kept.
//!
//! For example "We now have 12 boats." contradicts "We have 10 boats." with the reason `says 12
//! where "We have 10 boats." said 10`.
//!
//! Limit: a conflict is a proposal. Most are real changes, but some only sound like one, so no
//! memory may be closed for a conflict.

use super::clauses::{claims, prose};
use super::english::{ascii_pattern, is_question};
use super::numbers::{Family, Number, may_number, numbers};
use foldhash::fast::RandomState;
use regex::Regex;
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

/// An earlier text with the cosine to the new one.
pub struct EarlierText<'a> {
    pub content: &'a str,
    pub cosine: f32,
    /// Number of texts that already conflict with this one.
    pub opposed: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// Index among the earlier texts.
    pub earlier: usize,
    /// The reason, for display.
    pub why: String,
    strength: f32,
}

/// Least cosine of two texts in conflict.
pub const CONFLICT_COSINE_MIN: f32 = 0.35;
/// Earlier texts that one number or one denial may contradict, because people repeat a fact.
const CONFLICTS_MAX: usize = 3;

/// Returns false if the text cannot contradict any earlier one, as most texts.
pub fn may_conflict(text: &str) -> bool {
    let plain = text.to_ascii_lowercase();
    denies(&plain) || (may_number(&plain) && (plain.contains("from ") || CHANGE.is_match(&plain)))
}

/// Returns the conflicts of `text` with earlier texts, strongest first, at most one for each
/// earlier text.
pub fn conflicts(text: &str, earlier: &[EarlierText<'_>]) -> Vec<Conflict> {
    if earlier.is_empty() {
        return Vec::new();
    }
    let new = Claim::all_of(text);
    let earlier: Vec<(&EarlierText<'_>, Vec<Claim>)> =
        earlier.iter().map(|one| (one, Claim::all_of(one.content))).collect();
    let mut found: Vec<Conflict> =
        new.iter().flat_map(|clause| other_numbers(clause, &earlier)).collect();
    found.extend(new.iter().flat_map(|clause| denied_deeds(clause, &earlier)));
    found.extend(contradicted_denials(&new, &earlier));
    found.sort_by(stronger_first);
    let mut seen = BTreeSet::new();
    found.retain(|conflict| seen.insert(conflict.earlier));
    found
}

fn stronger_first(a: &Conflict, b: &Conflict) -> std::cmp::Ordering {
    b.strength.total_cmp(&a.strength).then(b.earlier.cmp(&a.earlier))
}

/// Returns at most [`CONFLICTS_MAX`] conflicts whose strength is within `margin` of the best.
fn strongest(mut found: Vec<Conflict>, margin: f32) -> Vec<Conflict> {
    found.sort_by(stronger_first);
    let mut seen = BTreeSet::new();
    found.retain(|conflict| seen.insert(conflict.earlier));
    let least = found.first().map_or(0.0, |best| best.strength) - margin;
    found.into_iter().take(CONFLICTS_MAX).filter(|conflict| conflict.strength >= least).collect()
}

// ---------------------------------------------------------------- a text as it is compared

struct Claim {
    text: String,
    numbers: Vec<Number>,
    /// Stems of the clause without numbers and without [`GENERIC`] words.
    about: BTreeSet<String>,
    /// The clause has a change word.
    is_change: bool,
    says: Says,
}

/// The deed that a clause states or denies, as stems.
enum Says {
    Nothing,
    /// "I have never …", with the stems of the denied deed.
    Never(BTreeSet<String>),
    /// "I …", with the stems of the clause.
    Deed(BTreeSet<String>),
}

type Read<'a> = [(&'a EarlierText<'a>, Vec<Claim>)];

impl Claim {
    fn all_of(text: &str) -> Vec<Claim> {
        claims(&prose(text)).into_iter().map(Claim::of).collect()
    }

    fn of(text: String) -> Claim {
        let plain = text.to_ascii_lowercase();
        let (numbers, rest) = numbers(&plain);
        Claim {
            is_change: CHANGE.is_match(&plain),
            says: says(&plain),
            about: about(&rest),
            numbers,
            text,
        }
    }
}

fn about(words: &[&str]) -> BTreeSet<String> {
    let stems = crate::terms_of_english(&words.join(" "));
    stems.iter().filter(|stem| !GENERIC.contains(*stem)).map(str::to_owned).collect()
}

// ---------------------------------------------------------------- another number for the same
// thing

/// The least similarity of two clauses that are about the same thing.
struct Alike {
    cosine: f32,
    /// Shared stems as a fraction of the smaller clause.
    overlap: f32,
    /// Number of shared stems.
    shared: usize,
}

/// Returns the similarity required for a family of numbers. Counts and durations also agree in
/// their noun or unit, so less is required of the other words.
fn alike(family: Family) -> Alike {
    match family {
        Family::Count | Family::Bare | Family::Money | Family::Duration => {
            Alike { cosine: 0.40, overlap: 0.25, shared: 1 }
        }
        Family::Percent | Family::Date | Family::Time | Family::Measure => {
            Alike { cosine: 0.47, overlap: 0.33, shared: 2 }
        }
    }
}

/// The similarity required if the new clause names the former value ("from 10 to 12"), which is
/// nearly certain evidence.
const FROM_TO: Alike = Alike { cosine: CONFLICT_COSINE_MIN, overlap: 0.0, shared: 0 };
const FROM_TO_BONUS: f32 = 0.5;
/// An earlier clause with the same value and a strength within this margin means that nothing
/// changed.
const SAME_VALUE_MARGIN: f32 = 0.1;
const NUMBER_MARGIN: f32 = 0.3;

fn other_numbers(clause: &Claim, earlier: &Read<'_>) -> Vec<Conflict> {
    clause.numbers.iter().flat_map(|number| other_number(clause, number, earlier)).collect()
}

fn other_number(clause: &Claim, number: &Number, earlier: &Read<'_>) -> Vec<Conflict> {
    let mut other = Vec::new();
    let mut same = f32::NEG_INFINITY;
    for (place, (before, clauses)) in earlier.iter().enumerate() {
        for old in clauses {
            for old_number in &old.numbers {
                let Some(strength) =
                    about_one_thing((clause, number), (old, old_number), before.cosine)
                else {
                    continue;
                };
                if old_number.value == number.value {
                    same = same.max(strength);
                } else {
                    let why = format!(
                        "says {} where \"{}\" said {}",
                        number.said,
                        crate::shortened(&old.text, 60),
                        old_number.said
                    );
                    other.push(Conflict { earlier: place, why, strength });
                }
            }
        }
    }
    let best = other.iter().map(|conflict| conflict.strength).fold(f32::NEG_INFINITY, f32::max);
    let is_stated = clause.is_change || FIRST_PERSON.is_match(&clause.text.to_ascii_lowercase());
    if same >= best - SAME_VALUE_MARGIN || !is_stated {
        return Vec::new();
    }
    strongest(other, NUMBER_MARGIN)
}

fn about_one_thing(
    (clause, number): (&Claim, &Number),
    (old, old_number): (&Claim, &Number),
    cosine: f32,
) -> Option<f32> {
    if !is_comparable(number, old_number, &clause.about) {
        return None;
    }
    let shared: Vec<&str> = clause.about.intersection(&old.about).map(String::as_str).collect();
    let overlap = shared.len() as f32 / clause.about.len().min(old.about.len()).max(1) as f32;
    let is_named = number.old == Some(old_number.value);
    let need = if is_named { FROM_TO } else { alike(number.family) };
    // Different dates usually belong to different events, except for things that are scheduled.
    let is_dated = matches!(number.family, Family::Date | Family::Time);
    let is_scheduled = shared.iter().any(|stem| SCHEDULED.contains(*stem));
    let holds = (is_named || clause.is_change)
        && (!is_dated || is_scheduled)
        && cosine >= need.cosine
        && overlap >= need.overlap
        && shared.len() >= need.shared;
    holds.then_some(cosine + 0.5 * overlap + if is_named { FROM_TO_BONUS } else { 0.0 })
}

fn is_comparable(new: &Number, old: &Number, about: &BTreeSet<String>) -> bool {
    let is_one_kind = match new.family {
        // A bare number ("is now 15") is compared with a count whose noun the clause names.
        Family::Bare => old.family == Family::Count && about.contains(&old.key),
        _ => old.family == new.family && old.key == new.key,
    };
    let is_other_rate = new.rate.is_some() && old.rate.is_some() && new.rate != old.rate;
    is_one_kind && !is_other_rate && is_like_phrase(new, old)
}

/// Returns false if two noun phrases share only their head noun: "three new boats", "five old
/// boats".
fn is_like_phrase(new: &Number, old: &Number) -> bool {
    let [new_rest, old_rest] =
        [new, old].map(|number| number.phrase.iter().filter(|stem| **stem != number.key));
    let is_bare = new_rest.clone().next().is_none() || old_rest.clone().next().is_none();
    is_bare || new_rest.clone().any(|stem| old_rest.clone().any(|other| other == stem))
}

// ---------------------------------------------------------------- "I have never" against a deed

/// Least cosine of a denial and a deed. At 0.35 two of three denials named a wrong deed.
const DENIAL_NEAR_ENOUGH: f32 = 0.5;
const DENIAL_MARGIN: f32 = 0.2;

/// Returns how many of the denied stems a deed must have: half of them, and two of two.
pub fn shared_stems_min(denied: usize) -> usize {
    denied.div_ceil(2).max(denied.min(2))
}

/// Returns the earlier deeds that this clause denies.
fn denied_deeds(clause: &Claim, earlier: &Read<'_>) -> Vec<Conflict> {
    let Says::Never(denied) = &clause.says else { return Vec::new() };
    let found = earlier.iter().enumerate().flat_map(|(place, (before, clauses))| {
        clauses.iter().filter_map(move |old| {
            let strength = strength(denied, old, before.cosine)?;
            Some(Conflict {
                earlier: place,
                why: format!("denies \"{}\"", crate::shortened(&old.text, 60)),
                strength,
            })
        })
    });
    strongest(found.collect(), DENIAL_MARGIN)
}

/// Returns the earlier denials that a new deed contradicts. A denial with [`CONFLICTS_MAX`]
/// conflicts gets no more.
fn contradicted_denials(new: &[Claim], earlier: &Read<'_>) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (place, (before, clauses)) in
        earlier.iter().enumerate().filter(|(_, (before, _))| before.opposed < CONFLICTS_MAX)
    {
        for old in clauses {
            let Says::Never(denied) = &old.says else { continue };
            let strengths = new.iter().filter_map(|clause| strength(denied, clause, before.cosine));
            if let Some(strength) = strengths.max_by(f32::total_cmp) {
                let why = format!("tells what \"{}\" denied", crate::shortened(&old.text, 60));
                found.push(Conflict { earlier: place, why, strength });
            }
        }
    }
    strongest(found, f32::INFINITY)
}

/// Returns the strength of the contradiction between a denial and a clause, if there is one.
fn strength(denied: &BTreeSet<String>, told: &Claim, cosine: f32) -> Option<f32> {
    let Says::Deed(deed) = &told.says else { return None };
    let shared = denied.intersection(deed).count();
    let share = shared as f32 / denied.len() as f32;
    let holds = cosine >= DENIAL_NEAR_ENOUGH && shared >= shared_stems_min(denied.len());
    holds.then_some(cosine + 0.5 * share)
}

fn denies(plain: &str) -> bool {
    plain.contains("never") && NEVER.is_match(&plain.replace('’', "'"))
}

fn says(plain: &str) -> Says {
    if let Some(denied) = denied(plain) {
        return if denied.is_empty() { Says::Nothing } else { Says::Never(denied) };
    }
    let is_deed = IS_DOER.is_match(plain) && !is_question(plain) && !NEGATED.is_match(plain);
    if is_deed {
        Says::Deed(
            crate::terms_of_english(plain)
                .iter()
                .filter(|stem| is_no_number(stem))
                .map(str::to_owned)
                .collect(),
        )
    } else {
        Says::Nothing
    }
}

/// Returns the stems of the deed that a clause denies with "never", if any.
fn denied(plain: &str) -> Option<BTreeSet<String>> {
    let what = NEVER.captures(plain)?.name("what")?.as_str();
    let end = OBJECT_END.find(what).map_or(what.len(), |end| end.start());
    let is_said =
        |stem: &&str| is_no_number(stem) && !GENERIC.contains(*stem) && !LIGHT.contains(*stem);
    Some(crate::terms_of_english(&what[..end]).iter().filter(is_said).map(str::to_owned).collect())
}

fn is_no_number(stem: &str) -> bool {
    !stem.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the stems of each denied deed in a text, in order. They become the key under which the
/// denial is found when a later text mentions the deed.
pub fn denials(prose: &str) -> impl Iterator<Item = BTreeSet<String>> {
    let is_denied = denies(&prose.to_ascii_lowercase());
    let clauses = if is_denied { claims(prose) } else { Vec::new() };
    clauses
        .into_iter()
        .filter_map(|clause| denied(&clause.to_ascii_lowercase()))
        .filter(|denied| !denied.is_empty())
}

// ---------------------------------------------------------------- wordings, in lower-case ASCII

/// Change words. Without one anywhere in the clause, two numbers are taken for two things.
static CHANGE: LazyLock<Regex> = LazyLock::new(|| {
    words(concat!(
        "now|new|newly|actually|no longer|instead|anymore",
        "|(?:chang|updat|increas|decreas|extend|adjust|expand|reduc|mov)(?:e|ed|ing)|extending",
        "|improv(?:e|ed|ing|ement)|reach(?:ed|ing)?|resched[a-z]*|postpon[a-z]*|push(?:ed)?",
        "|adjust|expand|extend|rais(?:e|ed)|lower(?:ed)?",
        "|gr(?:ew|own|owth)|add(?:ed|ing)?|switch(?:ed|ing)?|recent(?:ly)?|just|latest",
        "|revis(?:e|ed)|boost(?:ed)?|bump(?:ed)?|total of",
        "|delay(?:ed)?|dropp?(?:ed)?|so far|already|by now|final|currently|as of",
        "|went (?:up|down)|(?:up|down) to",
    ))
});

/// Words too common to show that two clauses are about the same thing.
static GENERIC: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    stems(
        "project app application work working thing way make sure help need want get use using try \
         trying implement implementing create add code current currently example kinda worried know \
         think going would like please explain show understand time new now just recently also \
         really still already improve improved increase increased achieve best ensure",
    )
});

/// Words of a denial that name no deed.
static LIGHT: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    stems(
        "actually really ever once complete completed involving related before project time any \
         anything something",
    )
});

/// Things that have a date or time which can be moved.
static SCHEDULED: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    stems(
        "deadline due sprint meeting call zoom session appointment interview exam test launch \
         release delivery flight trip wedding party birthday event conference workshop presentation \
         submission milestone review class start demo visit dinner lunch surgery hearing game match \
         reunion reservation booking checkup draft concert move schedule course lesson practice \
         training date",
    )
});

fn stems(words: &str) -> HashSet<String, RandomState> {
    words.split_ascii_whitespace().map(crate::stem).collect()
}

static FIRST_PERSON: LazyLock<Regex> =
    LazyLock::new(|| words("i|i'm|i've|i'd|my|we|we've|we're|our|me"));

static IS_DOER: LazyLock<Regex> = LazyLock::new(|| words("i|i'm|i've|i'd|we|we've|we're"));

static NEVER: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(
        r"\b(?:i|we)(?:'ve| have)? never(?: actually| really| ever| once)? (?<what>(?u:[^.?!;])+)",
    )
});

/// Negations without "never". A clause with one is neither a denial nor a deed.
static NEGATED: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"\b(?:i|we)(?:'m| am| are|'re)?",
        r" ?(?:haven't|have not|didn't|did not|don't|do not|no longer|stopped)",
        r"(?: actually| really| ever| yet)? ",
    ))
});

static OBJECT_END: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r",|\b(?:but|so|because|and i|and i'm|which|before|in this project|yet|especially",
        r"|despite)\b",
    ))
});

fn words(alternatives: &str) -> Regex {
    ascii_pattern(&format!(r"\b(?:{alternatives})\b"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(earlier: &str, new: &str) -> Option<String> {
        let before = EarlierText { content: earlier, cosine: 0.6, opposed: 0 };
        assert!(conflicts(new, &[]).is_empty(), "{new:?} says nothing otherwise than itself");
        conflicts(new, &[before]).into_iter().next().map(|conflict| conflict.why)
    }

    #[test]
    fn another_number_for_the_same_thing_is_a_conflict() {
        for (earlier, new) in [
            ("We have 10 boats in the rental fleet.", "We now have 12 boats in the rental fleet!"),
            (
                "My savings goal is $3,000 for the bike",
                "I raised my savings goal for the bike to $4,500",
            ),
            (
                "I run 5 km every morning before breakfast",
                "My morning run is now 8 km before breakfast",
            ),
            (
                "The dentist appointment is on March 3",
                "They moved the dentist appointment to March 10",
            ),
            (
                "The choir practice starts at 6 pm on Mondays",
                "Choir practice on Mondays now starts at 7:30 pm",
            ),
            (
                "My reading list holds 40 novels",
                "The number of novels on my reading list grew from 40 to 46",
            ),
            (
                "Test coverage of the parser is 72%",
                "We improved the test coverage of the parser to 85 percent",
            ),
            (
                "I have 120 newsletter subscribers.",
                "My newsletter subscribers are growing, which have now reached 165",
            ),
            (
                "The bread needs 4 hours to rise in my kitchen",
                "In my kitchen the bread now needs 6 hours to rise",
            ),
            (
                "We cut the image from 300 KB",
                "The image shrank further, it went down from 300 KB to 180 KB",
            ),
        ] {
            assert!(conflict(earlier, new).is_some(), "{earlier:?} → {new:?}");
        }
    }

    #[test]
    fn another_thing_the_same_value_or_no_change_is_none() {
        for (earlier, new) in [
            ("We have 10 boats in the rental fleet.", "We now have 10 boats in the rental fleet"),
            ("We have 10 boats in the rental fleet.", "We have 12 tables in the dining room now"),
            ("We have 10 boats in the rental fleet.", "There are 12 boats on that painting"),
            ("I ate 3 apples for lunch", "Now I peel 5 pears for a pie"),
            ("I write 500 words a day in my diary", "I now write 3000 words a week in my diary"),
            ("I was in Porto on March 3", "I am now in Lisbon until March 9"),
            ("Three new members joined the club", "Five old members just left the club"),
            ("The fee is $300", "The fee just went up by $20"),
            ("I live at number 12", "My new number is 555-1234"),
            ("We have 10 boats in the rental fleet.", "Do you like boats?"),
            ("", "We now have 12 boats"),
        ] {
            assert_eq!(conflict(earlier, new), None, "{earlier:?} → {new:?}");
        }
    }

    #[test]
    fn never_stands_against_a_deed_in_either_order() {
        for (denial, deed) in [
            (
                "I have never used Zotero or any citation manager",
                "I just organised my citations with Zotero, the citation manager.",
            ),
            ("I've never written any Flask routes", "I wrote the Flask routes for the homepage"),
            ("We never visited Porto", "Last year we visited Porto and it rained"),
            ("I’ve never actually played tennis.", "I played tennis with Anna"),
        ] {
            assert!(conflict(denial, deed).is_some(), "{denial:?} → {deed:?}");
            assert!(conflict(deed, denial).is_some(), "{deed:?} → {denial:?}");
        }
    }

    #[test]
    fn what_was_not_done_either_or_by_others_or_is_only_asked_is_none() {
        let denial = "I have never visited Porto";
        for other in [
            "I didn't visit Porto",
            "My sister visited Porto",
            "Should I visit Porto?",
            "I have never visited Porto before",
            "I visited Lisbon",
            "Never mind, I walked",
        ] {
            assert_eq!(conflict(denial, other), None, "{other:?}");
            assert_eq!(conflict(other, denial), None, "{other:?}");
        }
    }

    #[test]
    fn a_conflict_says_what_and_is_told_once_for_each_earlier_text() {
        let why = conflict("We have 10 boats.", "We now have 12 boats.").expect("a conflict");
        assert_eq!(why, "says 12 where \"We have 10 boats.\" said 10");
        let why =
            conflict("I played tennis with Anna", "I never played tennis").expect("a conflict");
        assert_eq!(why, "denies \"I played tennis with Anna\"");
        let why =
            conflict("I never played tennis", "I played tennis with Anna").expect("a conflict");
        assert_eq!(why, "tells what \"I never played tennis\" denied");
        let (a, b) = ("We have 10 boats and 3 docks for the fleet.", "The fleet has 10 boats");
        let earlier = [a, b].map(|content| EarlierText { content, cosine: 0.7, opposed: 0 });
        let found = conflicts("Now we have 12 boats and 4 docks for the fleet", &earlier);
        assert_eq!(
            found.iter().map(|conflict| conflict.earlier).collect::<BTreeSet<_>>(),
            BTreeSet::from([0, 1])
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn far_texts_and_denials_that_were_answered_are_left_alone() {
        for (cosine, expected) in [(0.6, 1), (0.2, 0)] {
            let earlier = EarlierText { content: "We have 10 boats", cosine, opposed: 9 };
            assert_eq!(conflicts("We now have 12 boats", &[earlier]).len(), expected, "{cosine}");
        }
        for (opposed, expected) in [(2, 1), (3, 0)] {
            let earlier = EarlierText { content: "I never played tennis", cosine: 0.6, opposed };
            assert_eq!(conflicts("I played tennis", &[earlier]).len(), expected, "{opposed}");
        }
    }

    #[test]
    fn most_texts_are_not_worth_a_look() {
        for (text, expected) in [
            ("We now have 12 boats", true),
            ("it grew from ten to twelve", true),
            ("I’ve never been to Rome", true),
            ("We have 12 boats", false),
            ("I live in Lisbon now", false),
            ("Never mind", false),
            ("", false),
        ] {
            assert_eq!(may_conflict(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_denial_is_found_by_its_stems() {
        let keys: Vec<_> =
            denials("I have never really tried citation managers, but I'm eager. Never mind.")
                .collect();
        assert_eq!(keys, [BTreeSet::from(["citat".to_owned(), "manag".to_owned()])]);
    }
}
