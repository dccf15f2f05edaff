//! Finds the reason why a text may not be kept: a wish of the user, or a category that the profile
//! forbids. Lists decide (`config/languages/*.toml`), so the result can be checked against them.
//!
//! 1. `consent/pasted.rs` takes out what the turn quotes or pastes.
//! 2. `consent/clause.rs` cuts the rest into clauses and reads each: a wish consists of phrases of
//!    the lists and of nothing else.
//! 3. This file decides. A turn retracts the one before if it holds nothing but wishes, courtesies
//!    and excuses. In doubt nothing is erased: "forget Tuesday, it's Friday" states a new value.

mod clause;
mod pasted;

use crate::wordings::{NEVER, WishPart, fold};
use clause::{Clauses, Kind};
use domain::Category;

/// A user's wish to keep something out of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Do not remember this turn: "off the record: …".
    SkipThisTurn,
    /// Forget the previous turn: "forget what I just said".
    ForgetLastTurn(Retraction),
    /// Words of forgetting inside other text, which erase nothing.
    Unclear,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retraction {
    /// The wording is about memory or about what was said. "Delete that" may be about a file.
    pub names_memory: bool,
    /// The subject that the wish names: "forget what I said about *my job*".
    pub topic: Option<String>,
}

/// A turn that retracts another one is short: about fifty words.
const RETRACTION_BYTES_MAX: usize = 300;

/// Finds the user's wish about this text or the text before.
pub fn wish(text: &str) -> Option<Wish> {
    let own = fold(&pasted::own_words(text, |label| Clauses::of(&fold(label)).has_wish()));
    let clauses = Clauses::of(&own);
    if !clauses.may_have_wish() {
        return None;
    }
    let readings = clauses.readings();
    let is_short = own.len() <= RETRACTION_BYTES_MAX && !own.contains(pasted::PASSAGE);
    let is_called = calls_by_name(text) && readings.first().is_some_and(|name| !name.is_whole);
    let first = usize::from(is_called);
    if is_short && let Some(retraction) = retraction(&readings[first..]) {
        return Some(Wish::ForgetLastTurn(retraction));
    }
    let skips = |reading: &clause::Reading| {
        !reading.is_reported && matches!(reading.kind, Some(Kind::KeepNot | Kind::Secret))
    };
    if readings.iter().any(skips) || clauses.ends_with_forget_this(&readings) {
        return Some(Wish::SkipThisTurn);
    }
    let is_forgetting =
        |reading: &clause::Reading| matches!(reading.kind, Some(Kind::Forget | Kind::Idiom));
    readings.iter().any(is_forgetting).then_some(Wish::Unclear)
}

/// Reads a turn that holds nothing but wishes to forget, with their reasons.
fn retraction(readings: &[clause::Reading]) -> Option<Retraction> {
    let (last, others) = readings.split_last()?;
    let is_plain = |reading: &clause::Reading| reading.is_whole && !reading.is_reported;
    if !others.iter().all(is_plain) || !is_plain(last) && last.topic.is_none() {
        return None;
    }
    let has = |part| readings.iter().any(|reading| reading.parts.has(part));
    let has_kind = |kind| readings.iter().any(|reading| reading.kind == Some(kind));
    let is_excused = has(WishPart::Excuse);
    // "Forget it" alone mostly means "never mind".
    let is_meant = has_kind(Kind::Forget) || has_kind(Kind::KeepNot);
    (is_meant || has_kind(Kind::Idiom) && is_excused).then(|| Retraction {
        names_memory: is_excused
            || [WishPart::Forget, WishPart::Remember, WishPart::Said].map(has).contains(&true),
        topic: last.topic.clone(),
    })
}

/// True if the turn begins by calling somebody by a name: "Juno, …".
fn calls_by_name(text: &str) -> bool {
    let Some((name, _)) = text.trim_start().split_once(',') else { return false };
    name.chars().all(char::is_alphabetic) && name.starts_with(char::is_uppercase)
}

/// Returns the first of these categories that has a word in the text.
pub fn forbidden(text: &str, categories: &[Category]) -> Option<Category> {
    if categories.is_empty() {
        return None;
    }
    let folded = fold(text);
    NEVER.find(&folded).map(|found| found.what).find(|category| categories.contains(category))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: Option<Wish>, texts: &[&str]) {
        for text in texts {
            assert_eq!(wish(text), expected, "{text:?}");
        }
    }

    fn forgets(names_memory: bool) -> Option<Wish> {
        Some(Wish::ForgetLastTurn(Retraction { names_memory, topic: None }))
    }

    #[test]
    fn a_wish_to_keep_nothing_is_found_in_every_language() {
        check(
            Some(Wish::SkipThisTurn),
            &[
                "I'm pregnant. Don't remember this.",
                "off the record: I'm quitting",
                "off the record i'm quitting",
                "I'm seeing somebody, off the record",
                "Keep this between us",
                "my boss drinks, just between us",
                "My PIN is 4711. Please forget that.",
                "pls forget it right after you answer: I snore",
                "Please don't store this:\npin: 4711\npuk: 3222",
                "Ich kündige bald. Merk dir das bitte nicht.",
                "das bleibt unter uns: ich ziehe weg",
                "No guardes esto, por favor: me separo",
                "que quede entre nosotros, me voy",
                "ne retiens pas ça : je m'en vais",
                "Je pars en mai, ça reste entre nous",
                "Não guarde isso, por favor: vou embora",
                "cá entre nós, vou sair da empresa",
                "non salvarlo, per favore: cambio lavoro",
                "resti tra noi: cambio lavoro",
                "我要辞职了，别记下来",
                "我要辞职了，你知我知",
                "これは覚えないで、会社を辞める",
                "ここだけの話、会社を辞める",
            ],
        );
    }

    #[test]
    fn a_wish_to_forget_the_last_turn_is_found_in_every_language() {
        check(
            forgets(true),
            &[
                "Forget what I just said.",
                "Juno, forget what I told you a moment ago!",
                "Sorry, delete my last message",
                "That was private. Please delete it.",
                "Don't remember that.",
                "Vergiss, was ich gerade gesagt habe!",
                "olvida lo que acabo de decir por favor",
                "oublie ce que je viens de dire",
                "Esquece o que eu disse, tá bom?",
                "dimentica quello che ho appena detto",
                "Vergeet wat ik net zei.",
                "忘了我刚才说的",
                "さっき言ったことは忘れて",
            ],
        );
        check(forgets(false), &["please delete that", "Please don't store that, ok"]);
        let topic = Some("my job".to_owned());
        let about = Wish::ForgetLastTurn(Retraction { names_memory: true, topic });
        check(Some(about), &["please forget what i just said about my job"]);
    }

    #[test]
    fn words_of_forgetting_beside_other_text_are_unclear() {
        check(
            Some(Wish::Unclear),
            &[
                "Forget what I said about the deadline, it's the 12th of March now.",
                "Forget what I just said. We're moving to Bonn.",
                "We're moving to Bonn. Forget what I said before.",
                "Vergiss, was ich gesagt habe, wir ziehen nach Bonn.",
            ],
        );
    }

    #[test]
    fn what_is_quoted_pasted_or_said_by_others_is_no_wish() {
        check(
            None,
            &[
                "He wrote \"forget what I just said\" in the channel.",
                "Sie sagte „das bleibt unter uns“ und ging.",
                "My sister said keep this between us, but my mother has cancer",
                "Keep this between us, she said, but my mother has cancer",
                "Meine Schwester meinte, das bleibt unter uns, aber Mama ist krank",
                "Tom H: forget what I said\nMarek: keep this between us",
                "```\n// don't remember this\n```\nit fails",
                "- call Ron\n- keep this between us",
                "妹に「ここだけの話ね」と言われた",
            ],
        );
    }

    #[test]
    fn a_recollection_is_no_wish() {
        check(
            None,
            &[
                "I don't remember this song",
                "I really don't remember that.",
                "Don't forget what I just said",
                "I can't forget what I said to her",
                "don't remember this place at all",
                "I want to forget that.",
                "It was not saved.",
                "Das habe ich vergessen.",
                "ich kann mir das nicht merken",
                "se me olvida",
                "je ne me souviens pas",
                "J'ai oublié ça.",
                "no recuerdo nada",
                "我忘了。",
                "忘れてしまいました。",
                "remember this",
            ],
        );
    }

    #[test]
    fn a_forbidden_category_is_found_in_each_language() {
        let said: [(Category, [&str; 8]); 5] = [
            (
                Category::Health,
                [
                    "I have diabetes.",
                    "Ich habe Depressionen",
                    "tengo cáncer",
                    "je suis asthmatique",
                    "tenho pressão alta",
                    "soffro di emicrania",
                    "我有糖尿病",
                    "来週手術です",
                ],
            ),
            (
                Category::Politics,
                [
                    "I voted for the Greens",
                    "ich bin in der SPD",
                    "voté en las últimas elecciones",
                    "je suis au syndicat",
                    "sou petista",
                    "sono iscritto al sindacato",
                    "我是党员",
                    "自民党に入れた",
                ],
            ),
            (
                Category::Religion,
                [
                    "we go to the mosque",
                    "ich bin evangelisch",
                    "voy a misa",
                    "je suis juive",
                    "sou católica",
                    "sono ateo",
                    "我信佛",
                    "教会に通ってる",
                ],
            ),
            (
                Category::Sexuality,
                [
                    "I'm gay",
                    "ich bin lesbisch",
                    "soy bisexual",
                    "je suis homo",
                    "sou bissexual",
                    "sono lesbica",
                    "我是同性恋",
                    "ゲイです",
                ],
            ),
            (
                Category::Money,
                [
                    "my salary is 40k",
                    "mein Gehalt ist mies",
                    "tengo deudas",
                    "j'ai des dettes",
                    "meu salário caiu",
                    "il mio stipendio",
                    "我的工资很低",
                    "貯金がない",
                ],
            ),
        ];
        for (category, texts) in said {
            for text in texts {
                assert_eq!(forbidden(text, &[category]), Some(category), "{text:?}");
                assert_eq!(forbidden(text, &[]), None);
            }
        }
        assert_eq!(forbidden("I live in Lisbon with a dog.", &Category::ALL), None);
        assert_eq!(forbidden("I have diabetes.", &[Category::Money]), None);
    }
}
