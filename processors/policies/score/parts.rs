//! Defines the parts of surprise in one table. A row holds the part's name in profiles and metrics,
//! its words in a reason, its effect on the verdict, and the function that measures the part.
//!
//! `surprise = Σ weight × measure`, with measures from 0 to 1 and weights from the profile's
//! `[weights]`. A new part is a new row, a weight in every profile, and `PART_COUNT` plus one.

use super::context::{ScoredText, ScoringContext, answers, is_short, rarest_bits};
use super::speech::SmallTalk;
use domain::Role;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The inputs of the measures.
pub struct SurpriseInputs<'a> {
    pub text: &'a ScoredText<'a>,
    pub ground: &'a ScoringContext<'a>,
    /// The best standard cosine to the user's earlier memories and turns.
    pub nearest: f32,
    /// The best standard cosine to the last turns of the session.
    pub nearest_in_context: f32,
    pub greets: bool,
    pub only_asks: bool,
}

pub struct SurprisePart {
    /// The key in the profile's `[weights]`, in decisions and in metrics.
    pub name: &'static str,
    /// The wording in a reason: "kept: rare words and a time".
    pub words: &'static str,
    pub effect: Effect,
    /// 0 to 1.
    pub measure: fn(&SurpriseInputs<'_>) -> f32,
}

/// The effect of a part on the verdict, besides its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    /// Keeps the candidate whatever the total, for this reason.
    Keeps(&'static str),
    /// Drops the candidate whatever the total, unless a row above keeps it.
    Drops(&'static str),
    /// Gives the reason of a drop that the total decides.
    Explains(&'static str),
}

/// Bits at which specificity is 1: the ten rarest words of a rich turn.
const SPECIFICITY_FULL: f32 = 140.0;
/// Distance (1 - cosine) at which novelty is 1: about that of unrelated turns.
pub const NOVELTY_FULL: f32 = 0.6;
/// Distance from the last turns at which the context switch is 1.
pub const CONTEXT_FULL: f32 = 0.8;
/// Above this cosine a candidate is a repetition.
pub const REPETITION_COSINE: f32 = 0.95;

/// From this probability on, what the vector shows of chatter decides, except about a statement. On
/// seven labelled sets it drops 62 of 323 turns of chatter that were kept, and none of 1,036 others;
/// .82 would drop 69 and 2.
const CHATTER: f32 = 0.88;

const fn part(
    name: &'static str,
    words: &'static str,
    effect: Effect,
    measure: fn(&SurpriseInputs<'_>) -> f32,
) -> SurprisePart {
    SurprisePart { name, words, effect, measure }
}

use Effect::{Drops, Explains, Keeps, None as Nothing};

/// Order matters: the reason comes from the first row with points among those that keep or drop,
/// else among those that explain.
pub static PARTS: [SurprisePart; PART_COUNT] = [
    part("specificity", "rare words", Nothing, |seen| {
        share(rarest_bits(seen.text, seen.ground) / SPECIFICITY_FULL)
    }),
    part("novelty", "something new", Nothing, |seen| share((1.0 - seen.nearest) / NOVELTY_FULL)),
    part("contradiction", "a change", Keeps("changes what was said before"), |seen| {
        f32::from(seen.ground.linked)
    }),
    part("emphasis", "emphasis", Nothing, |seen| seen.text.reading.emphasis()),
    part("context_switch", "another subject", Nothing, |seen| {
        share((1.0 - seen.nearest_in_context) / CONTEXT_FULL)
    }),
    part("fact", "a fact", Nothing, |seen| share(seen.text.reading.facts() as f32 / 2.0)),
    part("mine", "a possession", Nothing, |seen| f32::from(seen.text.reading.mine())),
    part("time", "a time", Nothing, |seen| f32::from(seen.text.reading.time())),
    part("number", "a number", Nothing, |seen| f32::from(seen.text.reading.number())),
    part("name", "a name", Nothing, |seen| share(seen.text.reading.names() as f32 / 2.0)),
    part("correction", "a correction", Nothing, |seen| f32::from(seen.text.reading.correction())),
    part("instruction", "an instruction", Keeps("an instruction"), |seen| {
        // An order in the words of an assistant may come from a web page that it quotes.
        f32::from(seen.ground.role == Role::User && seen.text.reading.instruction())
    }),
    part("small_talk", "small talk", Drops("small talk"), |seen| {
        f32::from(seen.text.speech.small_talk.is_some())
    }),
    part("chatter", "chatter", Drops("chatter"), |seen| {
        let states = seen.ground.role == Role::User && seen.text.speech.states;
        f32::from(!states && seen.ground.chatter >= CHATTER)
    }),
    part("answer", "an answer", Keeps("answers a question"), |seen| {
        f32::from(
            !seen.greets
                && !seen.only_asks
                && seen.text.speech.small_talk.is_none()
                && answers(seen.text, seen.ground),
        )
    }),
    part("statement", "a statement", Keeps("a statement about the speaker"), |seen| {
        f32::from(seen.ground.role == Role::User && seen.text.speech.states)
    }),
    part(
        "unjudged",
        "an unknown language",
        Keeps("not judged: the language is not covered"),
        |seen| f32::from(seen.ground.role == Role::User && seen.text.speech.unjudged),
    ),
    part("repetition", "a repetition", Explains("nothing new"), |seen| {
        f32::from(seen.nearest > REPETITION_COSINE)
    }),
    part("greeting", "a greeting", Explains("a greeting"), |seen| {
        f32::from(seen.greets || is(seen, SmallTalk::Greeting))
    }),
    part("thanks", "thanks", Explains("thanks"), |seen| f32::from(is(seen, SmallTalk::Thanks))),
    part("acknowledgement", "an acknowledgement", Explains("an acknowledgement"), |seen| {
        f32::from(is(seen, SmallTalk::Acknowledgement))
    }),
    part("question_only", "a bare question", Explains("only a question"), |seen| {
        f32::from(seen.only_asks)
    }),
    part("about_other", "praise", Explains("praise, or about the other"), |seen| {
        share(seen.text.reading.share_about_other().max(f32::from(is(seen, SmallTalk::Praise))))
    }),
    part("short", "few words", Explains("few words"), |seen| {
        f32::from(is_short(seen.text.words.content()) && !seen.text.speech.states)
    }),
];
const PART_COUNT: usize = 24;

fn is(seen: &SurpriseInputs<'_>, small_talk: SmallTalk) -> bool {
    seen.text.speech.small_talk == Some(small_talk)
}

/// The weight of each part, in the order of the table. `Deserialize` is the only constructor, so no
/// second set of numbers can drift from the profiles.
#[derive(Clone, Debug, PartialEq)]
pub struct SurpriseWeights([f32; PART_COUNT]);

impl SurpriseWeights {
    pub fn of(&self, place: usize) -> f32 {
        self.0[place]
    }

    /// Removes the parts that drop whatever the total, for a gate that keeps everything.
    pub fn open(&mut self) {
        for (weight, part) in self.0.iter_mut().zip(&PARTS) {
            if matches!(part.effect, Drops(_)) {
                *weight = 0.0;
            }
        }
    }
}

impl<'de> Deserialize<'de> for SurpriseWeights {
    /// Reads a weight for every part and refuses other names.
    fn deserialize<D: Deserializer<'de>>(written: D) -> Result<SurpriseWeights, D::Error> {
        use serde::de::Error;
        let mut written: BTreeMap<String, f32> = BTreeMap::deserialize(written)?;
        let mut weights = [0.0; PART_COUNT];
        for (weight, part) in weights.iter_mut().zip(&PARTS) {
            *weight =
                written.remove(part.name).ok_or_else(|| D::Error::missing_field(part.name))?;
        }
        match written.keys().next() {
            Some(unknown) => Err(D::Error::custom(format!(
                "unknown field `{unknown}`: no part of surprise has this name"
            ))),
            None => Ok(SurpriseWeights(weights)),
        }
    }
}

/// Clamps to 0..=1; NaN becomes 0.
fn share(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn read(text: &str) -> Result<SurpriseWeights, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn weights_name_every_part_once_and_no_other() {
        let names: HashSet<_> = PARTS.iter().map(|part| part.name).collect();
        assert_eq!(names.len(), PARTS.len());
        let all: String = PARTS.iter().map(|part| format!("{} = 0.5\n", part.name)).collect();
        assert_eq!(read(&all).expect("all of them").of(3), 0.5);
        assert!(read(&all.replace("novelty", "novelness")).is_err());
        assert!(
            read(&format!("{all}novelness = 1.0"))
                .expect_err("one too many")
                .to_string()
                .contains("novelness")
        );
    }
}
