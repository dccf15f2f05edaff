//! Estimates the probability that a statement revises an earlier one of the same person, whatever
//! the wording.
//!
//! 1. [`PossibleRevision::of`] reads the new text. Unless the text has a cue ("no longer",
//!    "switched to") or a number, and states something, there is nothing to compare.
//! 2. [`PossibleRevision::revisions`] skips earlier texts whose cosine is less than one standard
//!    deviation above the mean of that person's memories ([`nearness`]), but for "The doctor halved
//!    it" and "my new flat", which do not name what they change.
//! 3. The rest is read, and `Pair` compares the two: shared rare stems, shared aspects, another
//!    number, another day, another person.
//!    `frame` finds the same sentence with another value, "The launch is on 10 May" after "on 3 May".
//! 4. A [logistic regression](https://en.wikipedia.org/wiki/Logistic_regression) over the features
//!    gives the probability. The weights are in `weight`.
//!
//! For example "I quit, not one cigarette." after "I smoke ten a day.", the nearest memory at 4
//! deviations: base -7.2, nearness +4.2, nearest +0.5, cue "quit" +1.25, first person +0.5 and
//! +0.4, shared aspect smoking +1.3, another number +0.6, length -0.33. The sum 1.22 gives a
//! probability of 0.77.
//!
//! A revision is a proposal. The newer memory is ranked first, and no memory is closed.

mod aspects;
mod cues;
mod frame;
mod generic;
mod people;
mod statement;

use cues::{CHANGED, CORRECTED, ENDED, STRONG};
use frame::{Difference, difference};
use generic::is_generic;
use statement::{Clause, Statement};

/// An earlier text of the same person.
pub struct EarlierStatement<'a> {
    pub content: &'a str,
    /// Cosine to the new text, in standard deviations above the mean of that person's memories.
    pub nearness: f32,
    /// No other memory of that person is nearer.
    pub is_nearest: bool,
    /// From the same session, in which talk tends to stay on one subject.
    pub is_same_session: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Index among the earlier texts.
    pub earlier: usize,
    pub probability: f32,
    /// Only part of the earlier text is revised: it names several days or people, or the newer text
    /// has "still" or "only".
    pub is_partial: bool,
    /// The reason, for display.
    pub why: String,
}

/// Rarity from which a shared stem shows that two statements are about the same thing. "sister" has
/// 10 bits, "stairwell" 18.
const RARE_BITS: f32 = 10.0;
/// Earlier texts further away are not compared: those were revised no more often than by chance.
const NEARNESS_MIN: f32 = 1.0;
/// Larger nearness counts as this.
const NEARNESS_MAX: f32 = 5.0;
/// Stems of statements about where the speaker is for long, and their greatest length.
const STAYING: [&str; 5] = ["live", "work", "rent", "drive", "studi"];
const STAYING_WORDS_MAX: usize = 10;
/// Stems of what a doctor changes without naming it.
const DOSES: [&str; 6] = ["mg", "mcg", "ml", "tablet", "pill", "dose"];
/// The least nearness of a statement that may be the same sentence with another value.
const SAME_NEARNESS_MIN: f32 = 2.0;
/// A longer statement about a switch names what it leaves.
const SWITCHING_WORDS_MAX: usize = 8;
/// Length in words above which a text gets no further deduction.
const WORDS_COUNTED: usize = 60;

/// Weights of the logistic regression. Fitted roughly on plain-dev and minds-dev with users left
/// out in turn, then rounded and moved by hand towards fewer links, because a wrong link costs more
/// than a missing one.
mod weight {
    pub const BASE: f32 = -7.2;
    pub const NEARNESS: f32 = 1.05;
    pub const NEAREST: f32 = 0.5;
    pub const RARE_WORD: f32 = 0.9;
    /// The shared rare word is in a clause with a cue.
    pub const RARE_WORD_CHANGES: f32 = 0.7;
    pub const ASPECT: f32 = 1.3;
    pub const CORRECTED: f32 = 1.0;
    pub const ENDED: f32 = 1.25;
    pub const CHANGED: f32 = 0.6;
    pub const TWO_CUES: f32 = 0.6;
    /// No cue but "now", "again", "new".
    pub const WEAK_CUE: f32 = -0.3;
    /// No cue, only another number.
    pub const NO_CUE: f32 = -1.0;
    pub const OTHER_NUMBER: f32 = 0.6;
    pub const OTHER_DAY: f32 = 0.5;
    pub const PLAN: f32 = -0.6;
    pub const FIRST_PERSON: f32 = 0.5;
    pub const FIRST_PERSON_BEFORE: f32 = 0.4;
    pub const WORDS: f32 = -0.9 / 20.0;
    pub const WORDS_BEFORE: f32 = -0.4 / 20.0;
    pub const PAST_EVENT_BEFORE: f32 = -1.5;
    /// "I used to live in Paris" ends nothing but a stay in Paris.
    pub const FORMER: f32 = -4.0;
    pub const REACTION: f32 = -1.0;
    /// For each of the two texts that requests help with a task.
    pub const REQUEST: f32 = -1.3;
    /// The earlier text has the same cue words: the change was already known.
    pub const REPEATED: f32 = -1.5;
    pub const OTHER_PERSON: f32 = -4.0;
    pub const ADDITION: f32 = -1.5;
    pub const SAME_SESSION: f32 = -1.0;
    /// The same sentence with another value, or with the opposite opinion.
    pub const OTHER_VALUE: f32 = 3.5;
    pub const OPPOSITE: f32 = 4.5;
    /// Another day for what both speak of: "It's Tuesdays now for deploys."
    pub const DAY_CHANGES: f32 = 1.0;
    /// "We switched to MySQL" after "We use PostgreSQL".
    pub const SWITCHES: f32 = 3.0;
    /// "The doctor halved it" after "I take 20 mg".
    pub const ELLIPSIS: f32 = 6.0;
    /// "My new flat in Porto" after "I live in Berlin".
    pub const ANEW: f32 = 6.0;
}

/// A new text that may revise earlier ones.
pub struct PossibleRevision(Statement);

impl PossibleRevision {
    /// Reads a text. `None` if the text cannot revise anything, as most texts.
    pub fn of(content: &str) -> Option<PossibleRevision> {
        let statement = Statement::new(content)?;
        let is_thin = statement.stems.len() < 2 && statement.numbers.is_empty();
        (!is_thin && statement.states_something()).then_some(PossibleRevision(statement))
    }

    /// True for a text that changes what it does not name: "The doctor halved it."
    pub fn changes_it(&self) -> bool {
        self.0.is_elliptical
    }

    /// Returns the earlier texts that this text revises with a probability of at least `least`, in
    /// their order. `bits` returns the rarity of a stem.
    pub fn revisions(
        &self,
        earlier: &[EarlierStatement<'_>],
        least: f32,
        bits: &dyn Fn(&str) -> f32,
    ) -> Vec<Revision> {
        let rare: Vec<&str> = self
            .0
            .stems
            .iter()
            .map(String::as_str)
            .filter(|stem| !is_generic(stem) && bits(stem) >= RARE_BITS)
            .collect();
        earlier
            .iter()
            .enumerate()
            .filter(|(_, before)| {
                before.nearness >= NEARNESS_MIN
                    || self.0.is_elliptical && before.is_nearest
                    || self.0.anew != 0
            })
            .filter(|(_, before)| logistic(self.0.most_evidence(before, &rare)) >= least)
            .filter_map(|(place, before)| {
                let pair = Pair::of(&self.0, &Statement::earlier(before.content), &rare);
                let probability =
                    pair.probability(before).filter(|probability| *probability >= least)?;
                let why = self.why(before.content, &pair);
                Some(Revision { earlier: place, probability, is_partial: pair.is_partial, why })
            })
            .collect()
    }

    /// Writes the reason of a revision: `revises "I smoke.": says "quit", both speak of smoking`.
    fn why(&self, before: &str, pair: &Pair<'_>) -> String {
        let cue = match &self.0.announced {
            Some(cue) => format!("says \"{cue}\""),
            None => "another value".to_owned(),
        };
        let subject = match (pair.rare.first(), aspects::name(pair.aspects)) {
            (Some(stem), _) => format!("both speak of \"{stem}\""),
            (None, Some(aspect)) => format!("both speak of {aspect}"),
            (None, None) => "both are close in meaning".to_owned(),
        };
        format!("revises \"{}\": {cue}, {subject}", crate::shortened(before, 60))
    }
}

fn when(holds: bool, weight: f32) -> f32 {
    if holds { weight } else { 0.0 }
}

fn logistic(sum: f32) -> f32 {
    1.0 / (1.0 + (-sum).exp())
}

impl Statement {
    /// Sums the weights that are known before the earlier text is read.
    fn evidence(&self, before: &EarlierStatement<'_>) -> f32 {
        weight::BASE
            + weight::NEARNESS * before.nearness.min(NEARNESS_MAX)
            + when(before.is_nearest, weight::NEAREST)
            + when(self.has(CORRECTED), weight::CORRECTED)
            + when(self.has(ENDED), weight::ENDED)
            + when(self.has(CHANGED), weight::CHANGED)
            + when(self.cues.count_ones() > 1, weight::TWO_CUES)
            + when(!self.has(STRONG), weight::WEAK_CUE)
            + when(self.cues == 0, weight::NO_CUE)
            + when(self.is_plan, weight::PLAN)
            + when(self.is_first_person, weight::FIRST_PERSON)
            + weight::WORDS * self.words.min(WORDS_COUNTED) as f32
            + when(self.is_reaction, weight::REACTION)
            + when(self.is_request, weight::REQUEST)
            + when(before.is_same_session && !self.has(CORRECTED), weight::SAME_SESSION)
            + when(self.is_addition && !self.has(ENDED | CORRECTED), weight::ADDITION)
    }

    /// The largest sum that any earlier text could reach. An earlier text is not read if this is
    /// too little.
    fn most_evidence(&self, before: &EarlierStatement<'_>, rare: &[&str]) -> f32 {
        let may_differ = self.has(CORRECTED) || self.frame.may_differ();
        self.evidence(before)
            + when(!rare.is_empty(), weight::RARE_WORD)
            + when(!rare.is_empty() && self.cues != 0, weight::RARE_WORD_CHANGES)
            + when(self.aspects != 0, weight::ASPECT)
            + when(!self.numbers.is_empty(), weight::OTHER_NUMBER)
            + when(self.days != 0, weight::OTHER_DAY)
            + weight::FIRST_PERSON_BEFORE
            + when(self.days != 0 && self.has(CHANGED), weight::DAY_CHANGES)
            + when(self.switches(), weight::SWITCHES)
            + when(self.is_elliptical, weight::ELLIPSIS)
            + when(self.anew != 0, weight::ANEW)
            + when(may_differ && self.is_near_enough(before), weight::OPPOSITE)
    }

    /// The same sentence is near, but for one that says itself that it corrects.
    fn is_near_enough(&self, before: &EarlierStatement<'_>) -> bool {
        before.nearness >= SAME_NEARNESS_MIN || self.has(CORRECTED)
    }

    /// "We switched to MySQL": the tool before is not named.
    fn switches(&self) -> bool {
        self.is_switch && self.words <= SWITCHING_WORDS_MAX
    }

    fn has(&self, kinds: cues::Cues) -> bool {
        self.cues & kinds != 0
    }
}

/// The features of a pair of statements: shared and differing parts.
struct Pair<'s> {
    new: &'s Statement,
    /// Shared rare stems, in order of the alphabet.
    rare: Vec<&'s str>,
    /// Shared aspects.
    aspects: aspects::Aspects,
    is_other_number: bool,
    is_other_day: bool,
    difference: Option<Difference>,
    /// The earlier statement says what is used.
    uses_before: bool,
    /// The earlier statement says where the speaker lives, works or the like.
    stays_before: bool,
    is_dose_before: bool,
    is_other_person: bool,
    is_repeated: bool,
    is_partial: bool,
    first_person_before: bool,
    is_past_event_before: bool,
    is_reaction_before: bool,
    is_request_before: bool,
    words_before: usize,
}

impl<'s> Pair<'s> {
    /// Compares two statements. `rare` are the rare stems of the new one, in order of the alphabet.
    fn of(new: &'s Statement, old: &Statement, rare: &[&'s str]) -> Pair<'s> {
        let rare = rare
            .iter()
            .copied()
            .filter(|stem| old.stems.contains(*stem))
            .filter(|stem| !new.addressed.contains(*stem) && !old.addressed.contains(*stem))
            .collect();
        Pair {
            aspects: new.aspects & old.aspects,
            is_other_number: !new.numbers.is_empty()
                && !old.numbers.is_empty()
                && new.numbers.is_disjoint(&old.numbers),
            is_other_day: new.days != 0 && old.days != 0 && new.days != old.days,
            difference: difference(&old.frame, &new.frame, new.has(CORRECTED)).filter(|found| {
                *found == Difference::Opinion || !new.is_past_event && !old.is_past_event
            }),
            stays_before: old.is_first_person
                && old.words <= STAYING_WORDS_MAX
                && STAYING.iter().any(|stem| old.stems.contains(*stem)),
            is_dose_before: !old.numbers.is_empty()
                && DOSES.iter().any(|unit| old.stems.contains(*unit)),
            uses_before: old.stems.contains("use") || old.stems.contains("run"),
            is_other_person: is_about_another(new, old),
            is_repeated: is_repeated(new, old),
            is_partial: old.days.count_ones() > 1
                || old.names.len() > 1 && !old.names.is_subset(&new.stems)
                || new.says_what_is_left,
            first_person_before: old.is_first_person,
            is_past_event_before: old.is_past_event,
            is_reaction_before: old.is_reaction,
            is_request_before: old.is_request,
            words_before: old.words,
            new,
            rare,
        }
    }

    /// True if the new text is about the past, and about nothing that the earlier one mentions but
    /// the verb.
    fn is_former_other(&self) -> bool {
        const VERBS: [&str; 6] = ["live", "work", "drive", "play", "own", "studi"];
        self.new.announced.as_deref() == Some("used to")
            && self.rare.iter().all(|stem| VERBS.contains(stem))
    }

    /// Returns the probability of a revision, or `None` if there is neither a cue nor another
    /// number.
    fn probability(&self, before: &EarlierStatement<'_>) -> Option<f32> {
        let new = self.new;
        if new.cues == 0 && !self.is_other_number && self.difference.is_none() {
            return None;
        }
        let is_same = new.is_near_enough(before);
        let difference = self.difference.filter(|_| is_same);
        let is_ellipsis = new.is_elliptical && (self.aspects != 0 || self.is_dose_before);
        let is_anew = new.anew & self.aspects != 0 && self.stays_before;
        let day_changes = self.is_other_day && new.has(CHANGED) && !self.rare.is_empty();
        let is_rare_word_changed = new.clauses.iter().any(|clause| {
            clause.cues != 0 && self.rare.iter().any(|stem| clause.stems.contains(*stem))
        });
        let sum = new.evidence(before)
            + when(!self.rare.is_empty(), weight::RARE_WORD)
            + when(is_rare_word_changed, weight::RARE_WORD_CHANGES)
            + when(self.aspects != 0, weight::ASPECT)
            + when(self.is_other_number, weight::OTHER_NUMBER)
            + when(self.is_other_day, weight::OTHER_DAY)
            + when(self.first_person_before, weight::FIRST_PERSON_BEFORE)
            + weight::WORDS_BEFORE * self.words_before.min(WORDS_COUNTED) as f32
            + when(self.is_past_event_before, weight::PAST_EVENT_BEFORE)
            + when(self.is_reaction_before, weight::REACTION)
            + when(self.is_request_before, weight::REQUEST)
            + when(self.is_repeated, weight::REPEATED)
            + when(self.is_former_other(), weight::FORMER)
            + when(difference == Some(Difference::Value), weight::OTHER_VALUE)
            + when(difference == Some(Difference::Opinion), weight::OPPOSITE)
            + when(day_changes, weight::DAY_CHANGES)
            + when(new.switches() && self.uses_before, weight::SWITCHES)
            + when(is_ellipsis, weight::ELLIPSIS)
            + when(is_anew, weight::ANEW)
            + when(self.is_other_person, weight::OTHER_PERSON);
        Some(logistic(sum))
    }
}

/// Returns true if one of the two statements is about a person around the speaker whom the other
/// does not mention, and the two share no name.
fn is_about_another(new: &Statement, old: &Statement) -> bool {
    let is_name_shared = new
        .stems
        .intersection(&old.stems)
        .any(|stem| new.names.contains(stem) || old.names.contains(stem));
    let changing = new.clauses.iter().filter(|clause| clause.cues != 0);
    !is_name_shared
        && (are_about_others(changing, old.people)
            || are_about_others(old.clauses.iter(), new.people))
}

/// Returns true if every clause has a person as its subject, and none is among the `known` people.
/// False if there is no clause.
fn are_about_others<'c>(clauses: impl Iterator<Item = &'c Clause>, known: people::People) -> bool {
    let mut clauses = clauses.peekable();
    clauses.peek().is_some()
        && clauses.all(|clause| clause.subject != 0 && clause.subject & known == 0)
}

/// Returns true if the earlier text already has the words of the change. A "now" makes the change
/// new.
fn is_repeated(new: &Statement, old: &Statement) -> bool {
    !new.has(cues::NOW) && !new.cue_stems.is_empty() && new.cue_stems.is_subset(&old.stems)
}

/// Returns a function that standardises a cosine by the mean and deviation of one person's
/// `cosines`, which are measured from the centre of that person's memories. Few cosines do not
/// determine their spread, so `PRIOR` cosines of an average person are added.
pub fn nearness(cosines: &[f32]) -> impl Fn(f32) -> f32 + use<> {
    /// Mean and deviation for unrelated statements of one person under the standard encoder,
    /// measured without a centre.
    const MEAN: f32 = 0.126;
    const DEVIATION: f32 = 0.085;
    /// Number of memories that the average person counts for.
    const PRIOR: f32 = 10.0;
    let count = cosines.len() as f32 + PRIOR;
    // MEAN holds only while there is no centre yet, so its share falls with the number of memories.
    let mean = (cosines.iter().sum::<f32>() + PRIOR * MEAN * PRIOR / count) / count;
    let squares: f32 = cosines.iter().map(|cosine| (cosine - mean).powi(2)).sum();
    let deviation = ((squares + PRIOR * DEVIATION.powi(2)) / count).sqrt();
    move |cosine| (cosine - mean) / deviation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probability(earlier: &str, later: &str, nearness: f32, is_nearest: bool) -> f32 {
        probability_from(0.0, earlier, later, nearness, is_nearest)
    }

    /// Returns 0 for probabilities below `least`.
    fn probability_from(
        least: f32,
        earlier: &str,
        later: &str,
        nearness: f32,
        is_nearest: bool,
    ) -> f32 {
        let before =
            EarlierStatement { content: earlier, nearness, is_nearest, is_same_session: false };
        let found = PossibleRevision::of(later).map(|news| news.revisions(&[before], least, &bits));
        found.and_then(|found| found.first().map(|revision| revision.probability)).unwrap_or(0.0)
    }

    /// Counts every word but the shortest as rare, as for a user without a vocabulary.
    fn bits(stem: &str) -> f32 {
        if stem.len() > 2 { 14.0 } else { 9.0 }
    }

    /// Returns the number of pairs of a kind that are linked from this probability on, and the
    /// number of all pairs of that kind.
    fn linked(what: &str, least: f32) -> (usize, usize) {
        let lines = include_str!("pairs.tsv").lines().filter(|line| !line.starts_with('#'));
        let mut linked = 0;
        let mut all = 0;
        for line in lines {
            let columns: Vec<&str> = line.split('\t').collect();
            let [kind, _, nearness, nearer, earlier, later] = columns[..] else {
                panic!("a pair has six columns: {line}")
            };
            if kind != what {
                continue;
            }
            let nearness: f32 = nearness.parse().expect("a number");
            let is_linked = probability(earlier, later, nearness, nearer == "0") >= least;
            linked += usize::from(is_linked);
            all += 1;
        }
        (linked, all)
    }

    /// With the nearness of each pair where a user has said nothing else.
    #[test]
    fn plain_changes_are_marked_and_statements_alike_are_not() {
        for (nearness, earlier, later) in [
            (1.1, "I prefer Python", "Actually, I prefer Go"),
            (2.9, "I prefer Python for scripting.", "I no longer prefer Python, I prefer Go."),
            (3.0, "The API uses port 3000.", "Actually, the API uses port 8080, not 3000."),
            (2.8, "We use PostgreSQL.", "We switched to MySQL."),
            (3.0, "The launch is on 3 May.", "The launch is on 10 May."),
            (3.0, "I like coffee.", "I hate coffee."),
            (2.3, "Let's use Redux for state.", "Let's drop Redux, we go with Zustand."),
            (3.0, "My manager is Carla.", "Carla left, Tom is my manager now."),
            (2.9, "We deploy on Fridays.", "It's Tuesdays now for deploys."),
            (0.4, "I take 20 mg.", "The doctor halved it."),
            (-0.4, "I live in Berlin.", "Writing this from my new flat in Porto."),
            (2.6, "I'm vegetarian.", "I eat meat again since last week."),
            (1.0, "I work at Bosch.", "First day at my new job, Siemens is huge."),
        ] {
            let found = probability(earlier, later, nearness, true);
            assert!(found >= 0.5, "{earlier} / {later}: {found}");
        }
        for (nearness, earlier, later) in [
            (2.7, "I have a cat called Tom.", "I have a dog called Rex."),
            (2.3, "The API uses port 3000.", "The web server uses port 8080."),
            (2.1, "We use PostgreSQL.", "We also use Redis for the cache."),
            (2.1, "My manager is Carla.", "My dentist is Tom."),
            (2.9, "I like coffee.", "I like tea."),
            (2.6, "I like coffee.", "Tom hates coffee."),
            (2.0, "The launch is on 3 May.", "The party is on 10 May."),
            (3.0, "I prefer Python for scripting.", "I prefer Go for services."),
            (2.2, "We deploy on Fridays.", "We meet on Tuesdays."),
            (3.5, "I ran 5 km today.", "I ran 7 km today."),
            (3.5, "Paid 40 for groceries.", "Paid 55 for groceries."),
            (3.2, "Room 12 is on floor 2.", "Room 14 is on floor 3."),
            (3.2, "Anna is 12.", "Ben is 14."),
            (3.3, "My sister is called Ann.", "My daughter is called Bea."),
            (0.3, "I live in Berlin.", "My new flatmate is from Porto."),
            (0.3, "I live in Berlin with two cats.", "I love my new bike."),
            (0.3, "I weigh 80 kg.", "The doctor halved it."),
            (0.3, "The rent is 900.", "They raised it by 50."),
            (1.0, "We painted the house blue.", "My new flat has no garden."),
        ] {
            let found = probability(earlier, later, nearness, true);
            assert!(found < 0.2, "{earlier} / {later}: {found}");
        }
    }

    #[test]
    fn only_pairs_below_the_bound_are_skipped() {
        let mut found = 0;
        for line in include_str!("pairs.tsv").lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            for (nearness, least) in [(1.0, 0.02), (2.0, 0.1), (3.0, 0.1), (5.0, 0.5)] {
                let all = probability(columns[4], columns[5], nearness, false);
                let expected = if all >= least { all } else { 0.0 };
                assert_eq!(
                    probability_from(least, columns[4], columns[5], nearness, false),
                    expected,
                    "{line}"
                );
                found += usize::from(expected > 0.0);
            }
        }
        assert!(found > 20, "{found}");
    }

    #[test]
    fn most_changes_are_recognised_and_few_traps_are_marked() {
        let (found, changes) = linked("change", 0.12);
        let (marked, traps) = linked("trap", 0.5);
        println!("{found} of {changes} changes linked, {marked} of {traps} traps marked");
        assert!(changes > 40 && traps > 40);
        assert!(found * 100 >= changes * 70, "{found} of {changes}");
        assert!(marked * 100 <= traps * 20, "{marked} of {traps}");
    }

    #[test]
    fn a_former_home_or_employer_ends_only_itself() {
        for (earlier, later) in [
            ("I live in Berlin.", "I used to live in Paris as a student."),
            ("I work at Bosch.", "I used to work at a bakery when I was 16."),
        ] {
            let found = probability(earlier, later, 3.5, true);
            assert!(found < 0.1, "{earlier:?} → {later:?}: {found}");
        }
        let found = probability("I work at Bosch.", "I used to work at Bosch.", 3.5, true);
        assert!(found > 0.5, "{found}");
    }

    #[test]
    fn a_change_is_recognised_in_any_wording() {
        for (earlier, later) in [
            (
                "I take the train to the office.",
                "I no longer take the train, they let me work from home now.",
            ),
            ("My gym is Fit4Life.", "I cancelled the gym."),
            ("My appointment is on the 3rd.", "I read it wrong, the appointment is on the 13th."),
            ("I stopped eating bread.", "I'm eating bread again."),
            ("Wir wohnen in Hamburg.", "Wir wohnen nicht mehr in Hamburg."),
            ("Trabajo en un banco.", "Ya no trabajo en el banco."),
        ] {
            let found = probability(earlier, later, 3.5, true);
            assert!(found >= 0.5, "{earlier:?} → {later:?}: {found}");
        }
    }

    #[test]
    fn a_statement_that_holds_beside_the_earlier_one_is_no_change() {
        for (earlier, later) in [
            ("I'm vegetarian.", "My friend Jonas stopped being vegetarian."),
            ("I work at a law firm.", "My flatmate got fired from her job."),
            ("I smoke about five a day.", "My dad quit smoking after thirty years."),
            ("I use Notion for notes.", "Should I switch from Notion to something else?"),
            ("I live in Lisbon.", "I live in an apartment on the fourth floor."),
            ("I don't eat pork.", "Thanks!"),
        ] {
            let found = probability(earlier, later, 3.0, true);
            assert!(found < 0.12, "{earlier:?} → {later:?}: {found}");
        }
    }

    #[test]
    fn a_statement_of_several_days_is_revised_only_in_part() {
        for (content, is_partial) in [
            ("I teach a class on mondays and thursdays.", true),
            ("I teach a class on thursdays.", false),
        ] {
            let found = revision(content, "The Thursday class is cancelled.");
            assert_eq!(found.is_partial, is_partial, "{content}");
        }
    }

    /// The worked example at the head of this file.
    #[test]
    fn a_reason_quotes_the_cue_and_names_the_shared_subject() {
        let found = revision("I smoke ten a day.", "I quit, not one cigarette.");
        assert_eq!(
            found.why,
            "revises \"I smoke ten a day.\": says \"i quit\", both speak of smoking"
        );
        assert!((found.probability - 0.77).abs() < 0.01, "{}", found.probability);
        assert!(PossibleRevision::of("Tea is nice.").is_none());
    }

    fn revision(earlier: &str, later: &str) -> Revision {
        let before = EarlierStatement {
            content: earlier,
            nearness: 4.0,
            is_nearest: true,
            is_same_session: false,
        };
        PossibleRevision::of(later).expect("news").revisions(&[before], 0.0, &|_| 14.0).remove(0)
    }

    #[test]
    fn nearness_is_measured_in_deviations_of_this_person() {
        let spread: Vec<f32> = (0..100).map(|n| if n % 2 == 0 { 0.1 } else { -0.1 }).collect();
        assert!((nearness(&spread)(0.3) - 3.0).abs() < 0.3);
        assert!(nearness(&[])(0.4) > 3.0);
    }
}
