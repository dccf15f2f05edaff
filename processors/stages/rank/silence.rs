//! Whether a question is about something that was never said: then nothing is the right answer.

use super::admit::lends_context;
use super::score::is_of_the_named;
use super::{Hit, Question};
use serde::Deserialize;

/// The best cosine and the greatest share of the question's words that one memory says: together they tell best whether it was ever spoken
/// of, and they need not be of the same memory. By chance alone both are the greater, the more memories there are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silence {
    /// Less than this for each time that the memories have doubled, from one, and nothing is returned. 0: something always is.
    pub doubling: f32,
    /// How much that share counts beside the cosine.
    pub words: f32,
}

impl Silence {
    pub(super) fn is_due(&self, hits: &[Hit], question: &Question) -> bool {
        // Whoever says of which kind it is, or what stands with it, looks it up: the words matter less.
        if !question.kinds.is_empty() || !question.metadata.is_empty() {
            return false;
        }
        let known = || hits.iter().filter(|hit| lends_context(&hit.memory, question));
        // Of somebody whose words are here it cannot be said that they never came up.
        if known().any(|hit| is_of_the_named(&hit.memory, question)) {
            return false;
        }
        let among = question.among.saturating_sub(hits.len() - known().count()).max(1);
        let cosine = known().map(|hit| hit.own.cosine).fold(0.0, f32::max);
        // Not known of a question without words ("Who am I?"), nor of one searched in several languages: there a word has several stems, of
        // which a memory can have but one.
        let Some(shared) = known().map(|hit| hit.shared).try_fold(0.0, |most: f32, shared| Some(most.max(shared?))) else {
            return false;
        };
        cosine + self.words * shared < self.doubling * (among as f32).log2()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ask, hit, nothing};
    use super::*;
    use crate::domain::{Kind, Scope};

    const SILENCE: Silence = Silence { doubling: 0.07, words: 1.0 };

    fn found(cosine: f32, shared: Option<f32>) -> Hit {
        Hit { shared, ..hit(1, "tea", 1.0, cosine) }
    }

    fn check(hits: &[Hit], among: usize, expected: bool) {
        let none = nothing();
        assert_eq!(SILENCE.is_due(hits, &Question { among, ..ask("q", &none) }), expected, "of {among}: {hits:?}");
    }

    #[test]
    fn it_takes_both_to_be_silent() {
        check(&[found(0.3, Some(0.2))], 1000, true);
        check(&[found(0.3, Some(0.2)), found(0.8, Some(0.0))], 1000, false);
        check(&[found(0.3, Some(0.2)), found(0.1, Some(0.5))], 1000, false);
    }

    #[test]
    fn the_nearest_and_the_one_that_shares_most_need_not_be_the_same() {
        check(&[found(0.45, Some(0.0)), found(0.0, Some(0.25))], 1000, false);
    }

    #[test]
    fn the_more_memories_there_are_the_less_says_a_near_one() {
        let some = [found(0.3, Some(0.1))];
        check(&some, 32, false);
        check(&some, 128, true);
        check(&[found(0.0, Some(0.0))], 1, false);
        check(&[], 0, false);
    }

    #[test]
    fn where_it_is_not_known_what_is_shared_something_is_returned() {
        check(&[found(0.1, Some(0.0)), found(0.1, None)], 1000, false);
    }

    #[test]
    fn what_is_looked_up_by_kind_or_metadata_is_returned() {
        let (none, kinds) = (nothing(), [Kind::new("preference")]);
        let (far, app) = ([found(0.1, Some(0.0))], [("app".to_owned(), "chat".to_owned())].into());
        let asked = Question { among: 1000, ..ask("q", &none) };
        assert!(SILENCE.is_due(&far, &asked));
        assert!(!SILENCE.is_due(&far, &Question { kinds: &kinds, ..asked.clone() }));
        assert!(!SILENCE.is_due(&far, &Question { metadata: &app, ..asked }));
    }

    #[test]
    fn of_a_speaker_whose_words_the_question_may_see_something_is_returned() {
        let (none, mut hit) = (nothing(), found(0.1, Some(0.0)));
        let asked = Question { among: 1000, speaker: Some("ana"), ..ask("q", &none) };
        assert!(SILENCE.is_due(&[hit.clone()], &asked));
        hit.memory_mut().speaker = Some("Ana".into());
        assert!(!SILENCE.is_due(&[hit.clone()], &asked));
        (hit.memory_mut().scope, hit.memory_mut().session) = (Scope::Session, Some("other".into()));
        assert!(SILENCE.is_due(&[hit], &asked));
    }

    #[test]
    fn what_the_question_may_not_see_is_as_if_it_were_not_there() {
        let secret = |cosine| {
            let mut hit = found(cosine, Some(0.0));
            (hit.memory_mut().scope, hit.memory_mut().session) = (Scope::Session, Some("other".into()));
            hit
        };
        check(&[found(0.1, Some(0.0)), secret(0.9)], 1000, true);
        check(&[found(0.1, Some(0.0)), secret(0.1), secret(0.1)], 4, false);
        check(&[found(0.1, Some(0.0))], 4, true);
    }
}
