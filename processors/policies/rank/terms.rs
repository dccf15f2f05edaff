//! Defines the terms of a score in one table: the name in profiles and replies, the wording in
//! explanations, and the measure. A new term is a new row and a field of [`HitMeasures`].

use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;

/// One row: `weight × measure` is added to the score.
pub struct Term {
    /// The key of the weight under `[rank]` of a profile, and the name in a reply's `explain`.
    pub name: &'static str,
    /// The wording in an explanation for people.
    pub words: &'static str,
    measure: fn(&HitMeasures) -> f32,
}

/// The measures of one hit, each between 0 and 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HitMeasures {
    /// Cosine as a share of the best; see `score.rs`.
    pub dense: f32,
    /// BM25 as a share of the best; see `score.rs`.
    pub words: f32,
    /// Relevance of the turn before, if that turn is a question of another speaker.
    pub answer: f32,
    /// Relevance of the best neighbouring turn.
    pub neighbour: f32,
    /// Cosine to the whole question minus the cosine to the nearest word.
    pub beyond_word: f32,
    /// 0 for up to three quarters of the question's words by BM25, rising to 1 for all of them.
    pub literal: f32,
    /// The speaker is the only one that the question names: 1 for a memory that is near, less for one
    /// that is about something else.
    pub named: f32,
    /// The question asks when, and the memory has a word of time.
    pub has_time: bool,
    /// 1 for a plain question, falling with the number of words.
    pub only_asks: f32,
    /// The memory is of days that the question names.
    pub is_of_time: bool,
    /// Specificity from the surprise; 0 if users and assistants both speak.
    pub specificity: f32,
}

pub const TERMS: [Term; 11] = [
    Term { name: "dense", words: "near in meaning", measure: |hit| hit.dense },
    Term { name: "words", words: "shares words with the question", measure: |hit| hit.words },
    Term { name: "answer", words: "follows a question like this one", measure: |hit| hit.answer },
    Term {
        name: "neighbour",
        words: "stands next to a turn about it",
        measure: |hit| hit.neighbour,
    },
    Term {
        name: "beyond_word",
        words: "is near the whole question",
        measure: |hit| hit.beyond_word,
    },
    Term { name: "literal", words: "says nearly all that was asked", measure: |hit| hit.literal },
    Term { name: "speaker", words: "was said by the person named", measure: |hit| hit.named },
    Term { name: "when", words: "names a time", measure: |hit| f32::from(hit.has_time) },
    // Subtracted from zero, because a negated zero would be shown as -0.0.
    Term { name: "question", words: "only asks", measure: |hit| 0.0 - hit.only_asks },
    Term { name: "time", words: "is of the days named", measure: |hit| f32::from(hit.is_of_time) },
    Term { name: "specificity", words: "is specific", measure: |hit| hit.specificity },
];

/// The weight of each term, in the order of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Points([f32; TERMS.len()]);

impl Points {
    /// `words` gets the weight that `dense` leaves: `1 - dense`.
    pub fn new(written: &WrittenTerms) -> Points {
        Points(TERMS.each_ref().map(|term| match term.name {
            "words" => 1.0 - written.of("dense"),
            name => written.of(name),
        }))
    }

    pub fn of(&self, name: &str) -> f32 {
        TERMS.iter().position(|term| term.name == name).map_or(0.0, |place| self.0[place])
    }

    /// Returns `weight × measure` of every term, in the order of the table.
    pub(super) fn of_hit(&self, hit: &HitMeasures) -> [f32; TERMS.len()] {
        let mut shares = TERMS.each_ref().map(|term| (term.measure)(hit));
        shares.iter_mut().zip(self.0).for_each(|(share, weight)| *share *= weight);
        shares
    }
}

/// The weights as written in a profile. A missing term has weight 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WrittenTerms(BTreeMap<String, f32>);

impl WrittenTerms {
    fn of(&self, name: &str) -> f32 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// Returns these weights, with the other's for terms that are missing here.
    pub fn over(&self, other: &WrittenTerms) -> WrittenTerms {
        WrittenTerms(
            other.0.iter().chain(&self.0).map(|(name, weight)| (name.clone(), *weight)).collect(),
        )
    }
}

impl<'de> Deserialize<'de> for WrittenTerms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenTerms, D::Error> {
        let written = BTreeMap::<String, f32>::deserialize(deserializer)?;
        let unknown = written.keys().find(|name| {
            // The weight of `words` follows from that of `dense`.
            *name == "words" || !TERMS.iter().any(|term| term.name == *name)
        });
        match unknown {
            Some(name) => Err(de::Error::custom(format!("unknown field `{name}`"))),
            None => Ok(WrittenTerms(written)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pairs: &[(&str, f32)]) -> WrittenTerms {
        WrittenTerms(pairs.iter().map(|(name, x)| ((*name).to_owned(), *x)).collect())
    }

    #[test]
    fn a_weight_of_no_term_is_an_error_that_names_it() {
        let read =
            |text: &str| toml::from_str::<WrittenTerms>(text).map_err(|fault| fault.to_string());
        assert!(read("dense = 0.5\ntime = 0.2").is_ok());
        for bad in ["charm", "words"] {
            let fault = read(&format!("{bad} = 0.5")).unwrap_err();
            assert!(fault.contains(&format!("unknown field `{bad}`")), "{fault}");
        }
    }

    #[test]
    fn bm25_has_the_weight_that_the_cosine_leaves() {
        for (dense, words) in [(0.75, 0.25), (1.0, 0.0), (0.0, 1.0)] {
            assert_eq!(Points::new(&written(&[("dense", dense)])).of("words"), words);
        }
    }

    #[test]
    fn the_weights_for_one_speaker_override_those_for_several() {
        let (one, several) =
            (written(&[("dense", 0.7)]), written(&[("dense", 0.5), ("time", 0.2)]));
        assert_eq!(one.over(&several), written(&[("dense", 0.7), ("time", 0.2)]));
    }
}
