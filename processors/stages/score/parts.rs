//! The table of the parts of surprise: one row is one part, with its name in the profile, its words in a reason, what it does to a verdict and
//! how it is measured. Weights are the profile's, keyed by the names of this table.

use super::speech::SmallTalk;
use super::{Ground, Said, answers, is_short, rarest_bits};
use crate::domain::Role;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Measurements that the parts are computed from.
pub struct Seen<'a> {
    pub text: &'a Said<'a>,
    pub ground: &'a Ground<'a>,
    /// The best cosine to anything said before, and to the last turns.
    pub nearest: f32,
    pub nearest_in_context: f32,
    pub greets: bool,
    pub only_asks: bool,
}

pub struct Part {
    /// As in the profile's `[weights]`, in decisions and in metrics.
    pub name: &'static str,
    /// As in "kept: rare words and a time".
    pub words: &'static str,
    pub effect: Effect,
    /// 0 to 1.
    pub measure: fn(&Seen<'_>) -> f32,
}

/// Effect of a part on the verdict, besides its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    /// Kept whatever the total, for this reason.
    Keeps(&'static str),
    /// Dropped whatever the total, unless a row above keeps it.
    Drops(&'static str),
    /// The reason of a drop that the total decides.
    Explains(&'static str),
}

/// Bits of the ten rarest words of a rich turn.
const SPECIFICITY_FULL: f32 = 140.0;
/// Unrelated turns are about that far apart.
pub const NOVELTY_FULL: f32 = 0.6;
pub const CONTEXT_FULL: f32 = 0.8;
pub const REPETITION_COSINE: f32 = 0.95;

const fn part(
    name: &'static str,
    words: &'static str,
    effect: Effect,
    measure: fn(&Seen<'_>) -> f32,
) -> Part {
    Part { name, words, effect, measure }
}

use Effect::{Drops, Explains, Keeps, None as Nothing};

/// Order matters: of the rows that keep or drop, and of those that explain, the first one that has points gives the reason.
pub static PARTS: [Part; PART_COUNT] = [
    part("specificity", "rare words", Nothing, |seen| {
        share(rarest_bits(seen.text, seen.ground) / SPECIFICITY_FULL)
    }),
    part("novelty", "something new", Nothing, |seen| share((1.0 - seen.nearest) / NOVELTY_FULL)),
    part("contradiction", "a change", Keeps("changes what was said before"), |seen| {
        held(seen.ground.linked)
    }),
    part("emphasis", "emphasis", Nothing, |seen| seen.text.reading.emphasis()),
    part("context_switch", "another subject", Nothing, |seen| {
        share((1.0 - seen.nearest_in_context) / CONTEXT_FULL)
    }),
    part("fact", "a fact", Nothing, |seen| share(seen.text.reading.facts() as f32 / 2.0)),
    part("mine", "what is one's own", Nothing, |seen| held(seen.text.reading.mine())),
    part("time", "a time", Nothing, |seen| held(seen.text.reading.time())),
    part("number", "a number", Nothing, |seen| held(seen.text.reading.number())),
    part("name", "a name", Nothing, |seen| share(seen.text.reading.names() as f32 / 2.0)),
    part("decision", "a decision", Nothing, |seen| held(seen.text.reading.decision())),
    part("correction", "a correction", Nothing, |seen| held(seen.text.reading.correction())),
    part("never", "what one never did", Nothing, |seen| held(seen.text.reading.never())),
    part("instruction", "an instruction", Keeps("an instruction"), |seen| {
        held(seen.text.reading.instruction())
    }),
    part("small_talk", "small talk", Drops("small talk"), |seen| {
        held(seen.text.speech.small_talk.is_some())
    }),
    part("answer", "an answer", Keeps("answers a question"), |seen| {
        held(
            !seen.greets
                && !seen.only_asks
                && seen.text.speech.small_talk.is_none()
                && answers(seen.text, seen.ground),
        )
    }),
    part("statement", "a statement", Keeps("says something of the speaker or theirs"), |seen| {
        held(seen.ground.role == Role::User && seen.text.speech.states)
    }),
    part(
        "unjudged",
        "words that are not known",
        Keeps("in words that no list knows, so it is not judged"),
        |seen| held(seen.ground.role == Role::User && seen.text.speech.unjudged),
    ),
    part("repetition", "a repetition", Explains("nothing new"), |seen| {
        held(seen.nearest > REPETITION_COSINE)
    }),
    part("greeting", "a greeting", Explains("a greeting"), |seen| {
        held(seen.greets || is(seen, SmallTalk::Greeting))
    }),
    part("thanks", "thanks", Explains("thanks"), |seen| held(is(seen, SmallTalk::Thanks))),
    part("acknowledgement", "an acknowledgement", Explains("an acknowledgement"), |seen| {
        held(is(seen, SmallTalk::Acknowledgement))
    }),
    part("question_only", "a bare question", Explains("only a question"), |seen| {
        held(seen.only_asks)
    }),
    part("about_other", "praise", Explains("praise, or about the other"), |seen| {
        share(seen.text.reading.share_about_other().max(held(is(seen, SmallTalk::Praise))))
    }),
    part("short", "few words", Explains("few words"), |seen| {
        held(
            is_short(seen.text.words.content())
                && !seen.text.reading.state()
                && !seen.text.speech.states,
        )
    }),
];
const PART_COUNT: usize = 25;

fn is(seen: &Seen<'_>, small_talk: SmallTalk) -> bool {
    seen.text.speech.small_talk == Some(small_talk)
}

/// Weight of each part, in the order of the table. Only a profile makes them, so no second set can drift from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights([f32; PART_COUNT]);

impl Weights {
    pub fn of(&self, place: usize) -> f32 {
        self.0[place]
    }

    /// Without what drops whatever the total: for a gate that keeps everything.
    pub fn open(&mut self) {
        let drops = PARTS.iter().map(|part| matches!(part.effect, Drops(_)));
        self.0
            .iter_mut()
            .zip(drops)
            .filter(|(_, drops)| *drops)
            .for_each(|(weight, _)| *weight = 0.0);
    }
}

impl<'de> Deserialize<'de> for Weights {
    /// Every part by its name, and no other.
    fn deserialize<D: Deserializer<'de>>(written: D) -> Result<Weights, D::Error> {
        use serde::de::Error;
        let mut written: BTreeMap<String, f32> = BTreeMap::deserialize(written)?;
        let mut weights = [0.0; PART_COUNT];
        for (weight, part) in weights.iter_mut().zip(&PARTS) {
            *weight =
                written.remove(part.name).ok_or_else(|| D::Error::missing_field(part.name))?;
        }
        match written.keys().next() {
            Some(unknown) => Err(D::Error::custom(format!(
                "unknown field `{unknown}`, there is no such part of surprise"
            ))),
            None => Ok(Weights(weights)),
        }
    }
}

/// 0 to 1; what is no number counts as nothing.
fn share(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

fn held(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn read(text: &str) -> Result<Weights, toml::de::Error> {
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
