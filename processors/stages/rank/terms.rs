//! Lists the terms of a score in one table: the name of each in profiles and replies, the words that
//! people read, and how it is measured. A new term is a new row.

use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;

/// One row: `weight × measure` is added to the score.
pub struct Term {
    /// The key of its weight under `[rank]` of a profile, and its name in a reply's `explain`.
    pub name: &'static str,
    /// Says in an explanation for people why a memory stands where it stands.
    pub words: &'static str,
    measure: fn(&Measured) -> f32,
}

/// Measurements of one hit, each between 0 and 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    /// Cosine and BM25 as shares of the best, see `score.rs`.
    pub dense: f32,
    pub words: f32,
    /// Relevance of the question before it, of which it may be the answer.
    pub answer: f32,
    /// Relevance of its better neighbour.
    pub neighbour: f32,
    /// How much nearer it is to the whole question than to any single word of it.
    pub beyond_word: f32,
    /// It says nearly all that was asked: 0 at three quarters, 1 at all of it.
    pub literal: f32,
    /// The one person said it whom the question names.
    pub is_named: bool,
    /// The question asks when, and a word of time is there.
    pub has_time: bool,
    /// 1 for a plain question, less the more is said besides.
    pub only_asks: f32,
    /// It was said in a month that the question names.
    pub is_of_month: bool,
    /// Specificity; 0 where an assistant speaks.
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
    Term {
        name: "speaker",
        words: "was said by the person named",
        measure: |hit| held(hit.is_named),
    },
    Term { name: "when", words: "names a time", measure: |hit| held(hit.has_time) },
    // Subtracted from zero: a negated zero would be shown as -0.0.
    Term { name: "question", words: "only asks", measure: |hit| 0.0 - hit.only_asks },
    Term { name: "month", words: "is of the month named", measure: |hit| held(hit.is_of_month) },
    Term { name: "specificity", words: "is specific", measure: |hit| hit.specificity },
];

fn held(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

/// Weights of the terms, in the order of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Points([f32; TERMS.len()]);

impl Points {
    /// `dense` is the share of meaning in relevance; the rest of it is the weight of words.
    pub fn new(written: &Written) -> Points {
        let weight = |term: &Term| match term.name {
            "words" => 1.0 - written.of("dense"),
            name => written.of(name),
        };
        Points(TERMS.each_ref().map(weight))
    }

    pub fn of(&self, name: &str) -> f32 {
        TERMS.iter().position(|term| term.name == name).map_or(0.0, |place| self.0[place])
    }

    /// Every term with its share of the score, in the order of the table.
    pub(super) fn of_hit(&self, hit: &Measured) -> [(&'static str, f32); TERMS.len()] {
        let mut shares = TERMS.each_ref().map(|term| (term.name, (term.measure)(hit)));
        shares.iter_mut().zip(self.0).for_each(|((_, share), weight)| *share *= weight);
        shares
    }
}

/// Weights as a profile writes them. A term that is not written adds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written(BTreeMap<String, f32>);

impl Written {
    fn of(&self, name: &str) -> f32 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// These, and the other's where these say nothing.
    pub fn over(&self, other: &Written) -> Written {
        Written(
            other.0.iter().chain(&self.0).map(|(name, weight)| (name.clone(), *weight)).collect(),
        )
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written, D::Error> {
        let written = BTreeMap::<String, f32>::deserialize(deserializer)?;
        // The weight of words follows from that of meaning.
        let is_known = |name: &str| name != "words" && TERMS.iter().any(|term| term.name == name);
        match written.keys().find(|name| !is_known(name)) {
            Some(name) => Err(de::Error::custom(format!("unknown field `{name}`"))),
            None => Ok(Written(written)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_of_no_term_is_an_error_that_names_it() {
        let read = |text: &str| toml::from_str::<Written>(text).map_err(|fault| fault.to_string());
        assert!(read("dense = 0.5\nmonth = 0.2").is_ok());
        for bad in ["charm", "words"] {
            let fault = read(&format!("{bad} = 0.5")).unwrap_err();
            assert!(fault.contains(&format!("unknown field `{bad}`")), "{fault}");
        }
    }

    #[test]
    fn words_have_the_weight_that_meaning_leaves() {
        let points = |dense| Points::new(&Written(BTreeMap::from([("dense".to_owned(), dense)])));
        for (dense, words) in [(0.75, 0.25), (1.0, 0.0), (0.0, 1.0)] {
            assert_eq!(points(dense).of("words"), words);
        }
    }

    #[test]
    fn the_weights_of_one_speaker_stand_over_those_of_several() {
        let written = |pairs: &[(&str, f32)]| {
            Written(pairs.iter().map(|(name, x)| ((*name).to_owned(), *x)).collect())
        };
        let (one, several) =
            (written(&[("dense", 0.7)]), written(&[("dense", 0.5), ("month", 0.2)]));
        assert_eq!(one.over(&several), written(&[("dense", 0.7), ("month", 0.2)]));
    }
}
