//! What a text says otherwise than an earlier one of the same speaker: another number for the same
//! thing, or "never" against a deed. A proposal, never more: most are real changes, some only sound
//! like one, so nobody may close a memory for it.

use super::clauses::{claims, prose};
use super::numbers::{Family, Number, may_number, numbers};
use crate::text;
use foldhash::fast::RandomState;
use regex::{Regex, RegexBuilder};
use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

/// An earlier text, and how near the two texts are as a whole.
pub struct Earlier<'a> {
    pub content: &'a str,
    pub cosine: f32,
    /// How many texts say otherwise already.
    pub opposed: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// Its place among the earlier ones.
    pub earlier: usize,
    /// For a person.
    pub why: String,
    strength: f32,
}

/// Texts further apart are in no conflict, whatever they say.
pub const NEAR_ENOUGH: f32 = 0.35;
/// Earlier texts that one number or one denial may stand against: a fact is told more than once.
const CONFLICTS_MAX: usize = 3;

/// Whether it is worth looking for earlier texts: most are not.
pub fn may_conflict(text: &str) -> bool {
    let plain = text.to_ascii_lowercase();
    denies(&plain) || (may_number(&plain) && (plain.contains("from ") || CHANGE.is_match(&plain)))
}

/// What stands against `text`, strongest first, each earlier text once.
pub fn conflicts(text: &str, earlier: &[Earlier<'_>]) -> Vec<Conflict> {
    if earlier.is_empty() {
        return Vec::new();
    }
    let plain: Vec<String> = earlier.iter().map(|one| one.content.to_ascii_lowercase()).collect();
    let new = Sought::beside(&plain).read(text, &text.to_ascii_lowercase());
    let sought = Sought::against(&new);
    let earlier: Vec<_> = earlier
        .iter()
        .zip(&plain)
        .map(|(one, plain)| (one, sought.read(one.content, plain)))
        .collect();
    against(&new, &earlier)
}

fn against(new: &[Clause], earlier: &Read<'_>) -> Vec<Conflict> {
    let mut found: Vec<Conflict> =
        new.iter().flat_map(|clause| other_numbers(clause, earlier)).collect();
    found.extend(new.iter().flat_map(|clause| undone(clause, earlier)));
    found.extend(belied(new, earlier));
    found.sort_by(stronger_first);
    let mut seen = BTreeSet::new();
    found.retain(|conflict| seen.insert(conflict.earlier));
    found
}

fn stronger_first(a: &Conflict, b: &Conflict) -> std::cmp::Ordering {
    b.strength.total_cmp(&a.strength).then(b.earlier.cmp(&a.earlier))
}

/// At most three, and none much weaker than the best.
fn strongest(mut found: Vec<Conflict>, margin: f32) -> Vec<Conflict> {
    found.sort_by(stronger_first);
    let mut seen = BTreeSet::new();
    found.retain(|conflict| seen.insert(conflict.earlier));
    let least = found.first().map_or(0.0, |best| best.strength) - margin;
    found.into_iter().take(CONFLICTS_MAX).filter(|conflict| conflict.strength >= least).collect()
}

// ---------------------------------------------------------------- a text as it is compared

struct Clause {
    text: String,
    numbers: Vec<Number>,
    /// Stems of what it says besides its numbers, without what is said in every second message.
    about: BTreeSet<String>,
    /// Of a new text only, and beside numbers: nobody asks it elsewhere.
    is_change: bool,
    says: Says,
}

/// By whether it was done.
enum Says {
    Nothing,
    /// "I have never …": the stems of what.
    Never(BTreeSet<String>),
    /// "I …"; its stems.
    Deed(BTreeSet<String>),
}

type Read<'a> = [(&'a Earlier<'a>, Vec<Clause>)];

/// What is looked for in a text. Most earlier ones hold nothing that could stand against a new one,
/// and reading them is what takes time.
enum Sought<'a> {
    /// In a new text, what could stand against any of the earlier ones.
    New { numbers: bool, deeds: bool },
    /// In an earlier one, what stands against the new clauses.
    Against { numbers: Vec<(&'a Clause, &'a Number)>, deeds: bool, denials: bool },
}

impl<'a> Sought<'a> {
    /// The earlier ones in small letters.
    fn beside(plain: &[String]) -> Sought<'a> {
        Sought::New {
            numbers: plain.iter().any(|plain| may_number(plain)),
            deeds: plain.iter().any(|plain| plain.contains("never")),
        }
    }

    fn against(new: &'a [Clause]) -> Sought<'a> {
        let each =
            new.iter().flat_map(|clause| clause.numbers.iter().map(move |number| (clause, number)));
        Sought::Against {
            numbers: each.filter(|(clause, number)| is_new(clause.is_change, number)).collect(),
            deeds: new.iter().any(|clause| matches!(clause.says, Says::Never(_))),
            denials: new.iter().any(|clause| matches!(clause.says, Says::Deed(_))),
        }
    }

    /// Invariant: finds no less that could stand against another text than if everything were
    /// looked for.
    fn read(&self, text: &str, plain: &str) -> Vec<Clause> {
        if self.may_be_in(plain) {
            claims(&prose(text)).into_iter().map(|text| self.clause(text)).collect()
        } else {
            Vec::new()
        }
    }

    fn may_be_in(&self, plain: &str) -> bool {
        self.is_numbers() && may_number(plain) || self.may_tell(plain)
    }

    fn clause(&self, text: String) -> Clause {
        let plain = text.to_ascii_lowercase();
        let (numbers, rest) = if self.is_numbers() && may_number(&plain) {
            numbers(&plain)
        } else {
            Default::default()
        };
        let is_change =
            matches!(self, Sought::New { .. }) && !numbers.is_empty() && CHANGE.is_match(&plain);
        // Stems are looked at only beside numbers that may be another's old or new ones.
        let is_like = |number| match self {
            Sought::New { .. } => is_new(is_change, number),
            Sought::Against { numbers, .. } => {
                numbers.iter().any(|(clause, new)| is_comparable(new, number, &clause.about))
            }
        };
        let about = if numbers.iter().any(is_like) { about(&rest) } else { BTreeSet::new() };
        let says = if self.may_tell(&plain) { says(&plain) } else { Says::Nothing };
        Clause { is_change, says, text, numbers, about }
    }

    fn is_numbers(&self) -> bool {
        match self {
            Sought::New { numbers, .. } => *numbers,
            Sought::Against { numbers, .. } => !numbers.is_empty(),
        }
    }

    /// Of a deed or a denial that is looked for. What a new text denies, any earlier one may tell
    /// of.
    fn may_tell(&self, plain: &str) -> bool {
        let (deeds, denials) = match self {
            Sought::New { deeds, .. } => (*deeds, true),
            Sought::Against { deeds, denials, .. } => (*deeds, *denials),
        };
        deeds || denials && plain.contains("never")
    }
}

/// May it take the place of another number? Only if something changes, or if it says what the
/// number was.
fn is_new(is_change: bool, number: &Number) -> bool {
    is_change || number.old.is_some()
}

fn about(words: &[&str]) -> BTreeSet<String> {
    let stems = text::terms_of_english(&words.join(" "));
    stems.iter().filter(|stem| !GENERIC.contains(*stem)).map(str::to_owned).collect()
}

// ---------------------------------------------------------------- another number for the same
// thing

/// When two clauses with a number of one family speak of one thing.
struct Alike {
    cosine: f32,
    /// Stems in common, as a share of the smaller clause and at least so many.
    overlap: f32,
    shared: usize,
}

/// Counts and durations also agree in their noun or unit, so less is asked of the rest; the others
/// have only the rest to go by.
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

/// "From 10 to 12", and 10 was said before: nearly certain.
const FROM_TO: Alike = Alike { cosine: NEAR_ENOUGH, overlap: 0.0, shared: 0 };
const FROM_TO_BONUS: f32 = 0.5;
/// The same value was said before about as closely: nothing new.
const SAME_VALUE_MARGIN: f32 = 0.1;
const NUMBER_MARGIN: f32 = 0.3;

fn other_numbers(clause: &Clause, earlier: &Read<'_>) -> Vec<Conflict> {
    clause.numbers.iter().flat_map(|number| other_number(clause, number, earlier)).collect()
}

fn other_number(clause: &Clause, number: &Number, earlier: &Read<'_>) -> Vec<Conflict> {
    let (mut other, mut same) = (Vec::new(), f32::NEG_INFINITY);
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
                        text::shortened(&old.text, 60),
                        old_number.said
                    );
                    other.push(Conflict { earlier: place, why, strength });
                }
            }
        }
    }
    let best = other.iter().map(|conflict| conflict.strength).fold(f32::NEG_INFINITY, f32::max);
    let is_own = || FIRST_PERSON.is_match(&clause.text.to_ascii_lowercase());
    if same >= best - SAME_VALUE_MARGIN || !(clause.is_change || is_own()) {
        return Vec::new();
    }
    strongest(other, NUMBER_MARGIN)
}

fn about_one_thing(
    (clause, number): (&Clause, &Number),
    (old, old_number): (&Clause, &Number),
    cosine: f32,
) -> Option<f32> {
    if !is_comparable(number, old_number, &clause.about) {
        return None;
    }
    let shared: Vec<&str> = clause.about.intersection(&old.about).map(String::as_str).collect();
    let overlap = shared.len() as f32 / clause.about.len().min(old.about.len()).max(1) as f32;
    let is_named = number.old == Some(old_number.value);
    let need = if is_named { FROM_TO } else { alike(number.family) };
    // Two other dates are two events, unless it is something that is scheduled.
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
        // "... is now 15" stands for a count whose noun the clause names.
        Family::Bare => old.family == Family::Count && about.contains(&old.key),
        _ => old.family == new.family && old.key == new.key,
    };
    let is_other_rate = new.rate.is_some() && old.rate.is_some() && new.rate != old.rate;
    is_one_kind && !is_other_rate && is_like_phrase(new, old)
}

/// "Three new boats" and "five old boats" have a noun in common and nothing else.
fn is_like_phrase(new: &Number, old: &Number) -> bool {
    let [new_rest, old_rest] =
        [new, old].map(|number| number.phrase.iter().filter(|stem| **stem != number.key));
    let is_bare = new_rest.clone().next().is_none() || old_rest.clone().next().is_none();
    is_bare || new_rest.clone().any(|stem| old_rest.clone().any(|other| other == stem))
}

// ---------------------------------------------------------------- "I have never" against a deed

/// A deed that is told in another connection denies nothing: at .35 two denials of three named a
/// wrong one.
const DENIAL_NEAR_ENOUGH: f32 = 0.5;
const DENIAL_MARGIN: f32 = 0.2;

/// Of the stems that are denied, how many a deed must name: half of them, and two where there are
/// two.
pub fn shared_stems_min(denied: usize) -> usize {
    denied.div_ceil(2).max(denied.min(2))
}

/// What "never" in this clause denies of what was told before.
fn undone(clause: &Clause, earlier: &Read<'_>) -> Vec<Conflict> {
    let Says::Never(denied) = &clause.says else { return Vec::new() };
    let found = earlier.iter().enumerate().flat_map(|(place, (before, clauses))| {
        clauses.iter().filter_map(move |old| {
            let strength = strength(denied, old, before.cosine)?;
            Some(Conflict {
                earlier: place,
                why: format!("denies \"{}\"", text::shortened(&old.text, 60)),
                strength,
            })
        })
    });
    strongest(found.collect(), DENIAL_MARGIN)
}

/// What was denied before and is told now. A denial that many deeds speak against has been
/// answered.
fn belied(new: &[Clause], earlier: &Read<'_>) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (place, (before, clauses)) in
        earlier.iter().enumerate().filter(|(_, (before, _))| before.opposed < CONFLICTS_MAX)
    {
        for old in clauses {
            let Says::Never(denied) = &old.says else { continue };
            let strengths = new.iter().filter_map(|clause| strength(denied, clause, before.cosine));
            if let Some(strength) = strengths.max_by(f32::total_cmp) {
                let why = format!("tells what \"{}\" denied", text::shortened(&old.text, 60));
                found.push(Conflict { earlier: place, why, strength });
            }
        }
    }
    strongest(found, f32::INFINITY)
}

/// How strongly a clause tells of what is denied.
fn strength(denied: &BTreeSet<String>, told: &Clause, cosine: f32) -> Option<f32> {
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
    let is_deed =
        IS_DOER.is_match(plain) && !plain.trim_end().ends_with('?') && !UNDONE.is_match(plain);
    if is_deed {
        Says::Deed(
            text::terms_of_english(plain)
                .iter()
                .filter(|stem| is_no_number(stem))
                .map(str::to_owned)
                .collect(),
        )
    } else {
        Says::Nothing
    }
}

/// The stems of what a clause says was never done, if it says so.
fn denied(plain: &str) -> Option<BTreeSet<String>> {
    let what = NEVER.captures(plain)?.name("what")?.as_str();
    let end = OBJECT_END.find(what).map_or(what.len(), |end| end.start());
    let is_said =
        |stem: &&str| is_no_number(stem) && !GENERIC.contains(*stem) && !LIGHT.contains(*stem);
    Some(text::terms_of_english(&what[..end]).iter().filter(is_said).map(str::to_owned).collect())
}

fn is_no_number(stem: &str) -> bool {
    !stem.bytes().all(|byte| byte.is_ascii_digit())
}

/// A key for each denial of a text, so that it can be found when the deed is told: the stems of
/// what was never done, in order.
pub fn denials(prose: &str) -> impl Iterator<Item = BTreeSet<String>> {
    let is_denied = denies(&prose.to_ascii_lowercase());
    let clauses = if is_denied { claims(prose) } else { Vec::new() };
    clauses
        .into_iter()
        .filter_map(|clause| denied(&clause.to_ascii_lowercase()))
        .filter(|denied| !denied.is_empty())
}

// ---------------------------------------------------------------- wordings, in lower-case ASCII

/// Anywhere in the clause: without one two numbers are two things.
static CHANGE: LazyLock<Regex> = LazyLock::new(|| {
    words(concat!(
        "now|new|newly|actually|no longer|instead|anymore|(?:chang|updat|increas|decreas|extend|adjust|expand|reduc|mov)(?:e|ed|ing)|extending",
        "|improv(?:e|ed|ing|ement)|reach(?:ed|ing)?|resched[a-z]*|postpon[a-z]*|push(?:ed)?|adjust|expand|extend|rais(?:e|ed)|lower(?:ed)?",
        "|gr(?:ew|own|owth)|add(?:ed|ing)?|switch(?:ed|ing)?|recent(?:ly)?|just|latest|revis(?:e|ed)|boost(?:ed)?|bump(?:ed)?|total of",
        "|delay(?:ed)?|dropp?(?:ed)?|so far|already|by now|final|currently|as of|went (?:up|down)|(?:up|down) to",
    ))
});

/// Said in every second message: no sign that two clauses are about one thing.
static GENERIC: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    stems(
        "project app application work working thing way make sure help need want get use using try trying implement implementing create \
         add code current currently example kinda worried know think going would like please explain show understand time new now just \
         recently also really still already improve improved increase increased achieve best ensure",
    )
});

/// Nothing that could be done.
static LIGHT: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    stems(
        "actually really ever once complete completed involving related before project time any anything something",
    )
});

static SCHEDULED: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    stems(
        "deadline due sprint meeting call zoom session appointment interview exam test launch release delivery flight trip wedding party \
         birthday event conference workshop presentation submission milestone review class start demo visit dinner lunch surgery hearing \
         game match reunion reservation booking checkup draft concert move schedule course lesson practice training date",
    )
});

fn stems(words: &str) -> HashSet<String, RandomState> {
    words.split_ascii_whitespace().map(text::stem).collect()
}

static FIRST_PERSON: LazyLock<Regex> =
    LazyLock::new(|| words("i|i'm|i've|i'd|my|we|we've|we're|our|me"));

static IS_DOER: LazyLock<Regex> = LazyLock::new(|| words("i|i'm|i've|i'd|we|we've|we're"));

static NEVER: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"\b(?:i|we)(?:'ve| have)? never(?: actually| really| ever| once)? (?<what>(?u:[^.?!;])+)",
    )
});

/// Said not to be so: neither a denial that stands, nor a deed.
static UNDONE: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"\b(?:i|we)(?:'m| am| are|'re)? ?(?:haven't|have not|didn't|did not|don't|do not|no longer|stopped)",
        r"(?: actually| really| ever| yet)? ",
    ))
});

static OBJECT_END: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r",|\b(?:but|so|because|and i|and i'm|which|before|in this project|yet|especially|despite)\b",
    )
});

fn words(alternatives: &str) -> Regex {
    compiled(&format!(r"\b(?:{alternatives})\b"))
}

fn compiled(wording: &str) -> Regex {
    RegexBuilder::new(wording)
        .unicode(false)
        .build()
        .expect("the wordings are constants that every test compiles")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PIECES: &[&str] = &[
        "I ",
        "we ",
        "have ",
        "'ve ",
        "’ve ",
        "never ",
        "Never ",
        "played ",
        "tennis ",
        "now ",
        "from ",
        "to ",
        "10 ",
        "12 ",
        "twelve ",
        "boats ",
        "fleet ",
        "in the ",
        "park",
        ". ",
        ", ",
        "? ",
        "; ",
        "but ",
        "which is ",
        "\n",
        "```\n",
        "reached ",
        "$5 ",
        "by 5 pm ",
        "$7 ",
        "30 minutes ",
        "20 minutes a day ",
        "is now 15 ",
    ];

    fn read_in_full(text: &str) -> Vec<Clause> {
        let clause = |text: String| {
            let plain = text.to_ascii_lowercase();
            let (numbers, rest) = numbers(&plain);
            Clause {
                is_change: CHANGE.is_match(&plain),
                says: says(&plain),
                about: about(&rest),
                numbers,
                text,
            }
        };
        claims(&prose(text)).into_iter().map(clause).collect()
    }

    fn said() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(PIECES), 0..24)
            .prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn what_is_not_read_would_not_have_been_in_conflict(new in said(), before in prop::collection::vec(said(), 1..4)) {
            let earlier: Vec<_> = before.iter().map(|content| Earlier { content, cosine: 0.6, opposed: 0 }).collect();
            let all_read: Vec<_> = earlier.iter().map(|one| (one, read_in_full(one.content))).collect();
            prop_assert_eq!(conflicts(&new, &earlier), against(&read_in_full(&new), &all_read));
        }
    }

    fn conflict(earlier: &str, new: &str) -> Option<String> {
        let before = Earlier { content: earlier, cosine: 0.6, opposed: 0 };
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
        let earlier = [a, b].map(|content| Earlier { content, cosine: 0.7, opposed: 0 });
        let found = conflicts("Now we have 12 boats and 4 docks for the fleet", &earlier);
        assert_eq!(
            found.iter().map(|conflict| conflict.earlier).collect::<BTreeSet<_>>(),
            BTreeSet::from([0, 1])
        );
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn far_texts_and_denials_that_were_answered_are_left_alone() {
        let number = |cosine| {
            conflicts(
                "We now have 12 boats",
                &[Earlier { content: "We have 10 boats", cosine, opposed: 9 }],
            )
            .len()
        };
        assert_eq!((number(0.6), number(0.2)), (1, 0));
        let denial = |opposed| {
            conflicts(
                "I played tennis",
                &[Earlier { content: "I never played tennis", cosine: 0.6, opposed }],
            )
            .len()
        };
        assert_eq!((denial(2), denial(3)), (1, 0));
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
