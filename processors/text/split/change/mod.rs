//! Estimates the probability that a statement revises an earlier one of the same person, whatever
//! the wording.
//!
//! 1. [`PossibleRevision::of`] reads the new text. Unless the text has a cue ("no longer",
//!    "switched to") or a number, and states something, there is nothing to compare.
//! 2. [`PossibleRevision::revisions`] skips earlier texts whose cosine is less than one standard
//!    deviation above the mean of that person's memories ([`nearness`]).
//! 3. The rest is read, and `Pair` compares the two: shared rare stems, shared aspects, another
//!    number, another day, another person.
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
mod generic;
mod people;
mod statement;

use cues::{CHANGED, CORRECTED, ENDED, STRONG};
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
            .filter(|(_, before)| before.nearness >= NEARNESS_MIN)
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
            None => "another number".to_owned(),
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
        self.evidence(before)
            + when(!rare.is_empty(), weight::RARE_WORD)
            + when(!rare.is_empty() && self.cues != 0, weight::RARE_WORD_CHANGES)
            + when(self.aspects != 0, weight::ASPECT)
            + when(!self.numbers.is_empty(), weight::OTHER_NUMBER)
            + when(self.days != 0, weight::OTHER_DAY)
            + weight::FIRST_PERSON_BEFORE
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
        if new.cues == 0 && !self.is_other_number {
            return None;
        }
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
        assert!(PossibleRevision::of("I like tea.").is_none());
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
