//! Finds the reason why a text may not be kept: a wish of the user, or a category that the profile
//! forbids. Lists decide on a category (`config/languages/*.toml`), lists and trained weights on a
//! wish.
//!
//! 1. `consent/pasted.rs` takes out quoted and pasted passages.
//! 2. `consent/clause.rs` cuts the rest into clauses and reads each by a grammar of word classes.
//! 3. `consent/judge.rs` scores the turn by trained weights.
//! 4. This file decides. A turn with a wish to keep nothing is withheld whole, also if the secret
//!    stands in another sentence. A turn retracts the one before if it holds nothing but wishes and
//!    their reasons. In doubt nothing is erased: "forget Tuesday, it's Friday" states a new value.

mod clause;
mod judge;
mod pasted;

use crate::wordings::{NEVER, WishPart, fold};
use clause::{Kind, Reading};
use domain::Category;
use judge::{Features, Scores};
use std::collections::HashSet;

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
    /// The wording is about memory or about earlier words. "Delete that" may be about a file.
    pub names_memory: bool,
    /// The subject that the wish names: "forget what I said about *my job*".
    pub topic: Option<String>,
}

/// A turn that retracts another one is short: about fifty words.
const RETRACTION_BYTES_MAX: usize = 300;
/// Words of unknown meaning in all reasons for a wish.
const UNKNOWN_OF_REASONS_MAX: usize = 4;
/// Words of unknown meaning in the reason to remove something.
const UNKNOWN_OF_REASON_TO_REMOVE_MAX: usize = 3;
/// Words of a name under a letter.
const SIGNATURE_WORDS_MAX: usize = 3;

/// Log-odds below which the judge objects to a wish that the rules find.
const OBJECTION_MAX: f32 = 1.0;
/// Log-odds above which the judge finds a wish to keep a turn out that the rules do not find.
const CERTAINTY_MIN: f32 = 1.0;
/// The same for a wish to forget: a memory that is erased in error does not come back.
const CERTAINTY_TO_FORGET_MIN: f32 = 2.0;

/// A turn as the rules and the judge read it.
struct Turn<'t> {
    text: &'t str,
    /// The user's own words, folded.
    own: String,
    readings: Vec<Reading>,
}

impl<'t> Turn<'t> {
    fn of(text: &'t str) -> Turn<'t> {
        let own = fold(&pasted::own_words(text, |label| has_wish(&fold(label))));
        let readings = clause::readings(&own, &names(text));
        Turn { text, own, readings }
    }

    fn features(&self, rule: Option<&Wish>) -> Features {
        let verdict = match rule {
            Some(Wish::SkipThisTurn) => "skip",
            Some(Wish::ForgetLastTurn(_)) => "forget",
            Some(Wish::Unclear) => "unclear",
            None => "none",
        };
        Features::of(&self.own, &self.readings, verdict)
    }

    fn is_short(&self) -> bool {
        self.own.len() <= RETRACTION_BYTES_MAX
    }

    /// True for a short turn with a verb of keeping or removing, and nothing quoted, pasted or
    /// corrected.
    fn is_plain(&self) -> bool {
        let states = |one: &Reading| one.asks_to_keep || one.is_new && one.is_content;
        self.is_short()
            && !self.own.contains([pasted::PASSAGE, '"'])
            && !self.own.trim().contains('\n')
            && self.readings.iter().any(|one| one.parts.has_verb())
            && !self.readings.iter().any(|one| one.kind.is_none() && states(one))
    }
}

/// Finds the user's wish about this text or the text before.
pub fn wish(text: &str) -> Option<Wish> {
    let turn = Turn::of(text);
    let rule = by_rules(&turn);
    let scores = turn.features(rule.as_ref()).scores();
    let is_forget = decide(rule.as_ref(), scores, turn.is_short(), turn.is_plain());
    match (is_forget, rule) {
        (Some(true), Some(rule @ Wish::ForgetLastTurn(_))) => Some(rule),
        (Some(true), _) => {
            Some(Wish::ForgetLastTurn(retraction(&turn.readings).unwrap_or_default()))
        }
        (Some(false), _) => Some(Wish::SkipThisTurn),
        (None, Some(Wish::ForgetLastTurn(_) | Wish::Unclear)) => Some(Wish::Unclear),
        (None, _) => None,
    }
}

/// Joins the rules and the judge: true to forget earlier words, false to keep this turn out. The
/// judge does not object in a long turn, where the other words would outweigh the wish.
fn decide(rule: Option<&Wish>, scores: Scores, is_short: bool, is_plain: bool) -> Option<bool> {
    let by_rule = match rule {
        Some(Wish::ForgetLastTurn(_)) => Some(true),
        Some(Wish::SkipThisTurn) => Some(false),
        Some(Wish::Unclear) | None => None,
    };
    match by_rule {
        Some(_) if is_short && scores.wish < OBJECTION_MAX => None,
        Some(is_forget) if !is_plain || scores.before.abs() < CERTAINTY_MIN => Some(is_forget),
        None if !is_plain || scores.wish < CERTAINTY_MIN => None,
        // Not sure enough to erase: a turn that the rules keep out is kept out.
        None | Some(false) if scores.before > 0.0 && scores.wish < CERTAINTY_TO_FORGET_MIN => {
            by_rule
        }
        _ => Some(scores.before > 0.0),
    }
}

/// Reads the wish by the grammar alone.
fn by_rules(Turn { text, own, readings }: &Turn) -> Option<Wish> {
    let mut readings = readings.clone();
    let is_call = |reading: &Reading| reading.kind.is_none() && reading.unknown < 2;
    if calls_by_name(text) && readings.len() > 1 && is_call(&readings[0]) {
        readings.remove(0);
    }
    // "Kind regards, Dorothy" is no content.
    if let Some(closing) = readings.iter().position(|one| one.parts.has(WishPart::Closing)) {
        let signature = &readings[closing..];
        if signature.iter().all(|one| one.kind.is_none() && one.unknown <= SIGNATURE_WORDS_MAX) {
            readings.truncate(closing);
        }
    }
    let first = readings.iter().position(|reading| reading.kind.is_some())?;
    if readings[first].kind != Some(Kind::Forget) && readings[first].parts.has(WishPart::Next) {
        // "Don't keep this, but I told my boss" gives no reason.
        readings[first + 1..]
            .iter_mut()
            .filter(|reading| reading.kind.is_none() && reading.unknown > 0)
            .for_each(|reading| reading.is_content = true);
    }
    let is_short = own.len() <= RETRACTION_BYTES_MAX && !own.contains(pasted::PASSAGE);
    let has_content = readings.iter().any(|reading| reading.is_content);
    let skips = readings.iter().any(skips);
    // "I can't have my age on record, bin it." Only earlier words can be removed.
    let removes = removes(&readings);
    let states_more = states_value(&readings, first, removes) || has_content && skips && !removes;
    if is_short
        && !states_more
        && let Some(retraction) = retraction(&readings)
    {
        return Some(Wish::ForgetLastTurn(retraction));
    }
    if skips || has_content && ends_with_forget_this(&readings) {
        return Some(Wish::SkipThisTurn);
    }
    let of_memory = [WishPart::Forget, WishPart::Unsaid, WishPart::Said, WishPart::Memory];
    let forgets =
        |reading: &Reading| reading.kind == Some(Kind::Forget) && reading.parts.any(&of_memory);
    readings.iter().any(forgets).then_some(Wish::Unclear)
}

/// True if the turn states something beside its wishes and their reasons.
fn states_value(readings: &[Reading], first: usize, removes: bool) -> bool {
    let is_wish = |reading: &Reading| reading.kind.is_some();
    if readings.iter().any(|one| one.asks_to_keep) {
        return true;
    }
    if removes {
        return false;
    }
    let names_said =
        readings.iter().any(|reading| is_wish(reading) && reading.parts.has(WishPart::Said));
    let unknown = readings.iter().filter(|one| one.is_content).map(|one| one.unknown);
    !names_said && readings[..first].iter().any(|reading| reading.is_content)
        || readings.iter().any(|one| one.is_new && (one.is_content || !is_wish(one)))
        || unknown.sum::<usize>() > UNKNOWN_OF_REASONS_MAX
}

/// True if the turn asks to remove "it", and the rest is short enough for a reason.
fn removes(readings: &[Reading]) -> bool {
    use WishPart::*;
    let unknown: usize = readings.iter().map(|one| one.unknown).sum();
    readings.iter().any(|one| {
        one.kind == Some(Kind::Forget)
            && one.unknown == 0
            && one.parts.has(Remove)
            && one.parts.any(&[This, Said])
            && !one.parts.any(&[Later, Next, Idiom])
    }) && unknown <= UNKNOWN_OF_REASON_TO_REMOVE_MAX
        && !readings.iter().any(|one| one.is_new || one.parts.any(&[Later, Next, Thing]))
}

/// Finds the words with a capital letter inside a sentence, folded.
fn names(text: &str) -> HashSet<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let inside = words.windows(2).filter(|pair| !pair[0].ends_with(['.', '!', '?', ':', '…']));
    let names = inside.map(|pair| pair[1]).filter(|word| word.starts_with(char::is_uppercase));
    names.map(|word| fold(word.trim_end_matches(|c: char| !c.is_alphanumeric()))).collect()
}

fn has_wish(text: &str) -> bool {
    clause::readings(text, &HashSet::new()).iter().any(|reading| reading.kind.is_some())
}

/// True for a clause that asks to keep the turn out of memory.
fn skips(reading: &Reading) -> bool {
    match reading.kind {
        Some(Kind::KeepNot | Kind::Secret) => true,
        Some(Kind::Forget) => reading.parts.any(&[WishPart::Later, WishPart::Next]),
        None => false,
    }
}

/// True if the last sentence asks to forget "this", the content of earlier sentences.
fn ends_with_forget_this(readings: &[Reading]) -> bool {
    let Some(content) = readings.iter().rposition(|reading| reading.is_content) else {
        return false;
    };
    readings[content + 1..].iter().any(|reading| {
        reading.kind == Some(Kind::Forget)
            && reading.place > readings[content].place
            && reading.parts.has(WishPart::This)
            && !reading.parts.has(WishPart::Said)
    })
}

/// Reads a turn that holds nothing but wishes and their reasons.
fn retraction(readings: &[Reading]) -> Option<Retraction> {
    let has = |parts: &[WishPart]| readings.iter().any(|reading| reading.parts.any(parts));
    let wishes = |kind| readings.iter().filter(move |reading| reading.kind == Some(kind));
    let forgets = wishes(Kind::Forget).any(|reading| !reading.parts.has(WishPart::Idiom));
    let idiom = has(&[WishPart::Idiom])
        && has(&[WishPart::Please, WishPart::Excuse, WishPart::Private, WishPart::Said]);
    let keeps_not = wishes(Kind::KeepNot).next().is_some();
    let mut wishes = readings.iter().filter(|reading| reading.kind.is_some());
    (forgets || keeps_not || idiom).then(|| Retraction {
        names_memory: has(&[
            WishPart::Forget,
            WishPart::Unsaid,
            WishPart::Remember,
            WishPart::Memory,
            WishPart::Said,
            WishPart::Excuse,
        ]),
        topic: wishes.find_map(|reading| reading.topic.clone()),
    })
}

/// True if the turn begins by calling somebody by a name: "Juno, …", "Hey Max, …".
fn calls_by_name(text: &str) -> bool {
    let Some((call, _)) = text.split_once(',') else { return false };
    let mut words = call.split_whitespace();
    let name = words.next_back().unwrap_or_default();
    words.count() < 2
        && name.chars().all(char::is_alphabetic)
        && name.starts_with(char::is_uppercase)
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

    #[test]
    fn a_wish_in_a_long_turn_is_not_outweighed_by_the_rest() {
        let confession = "I have been seeing Dana from the third floor since the summer party. ";
        for times in [1, 6, 14, 45] {
            let story = confession.repeat(times);
            for turn in [
                format!("{story}Please don't save that."),
                format!("Off the record: {story}"),
                format!("Don't remember this. {story}"),
            ] {
                assert_eq!(wish(&turn), Some(Wish::SkipThisTurn), "{turn}");
            }
        }
    }

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
        let topic = Some("job".to_owned());
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
    fn the_secret_may_stand_in_another_sentence_than_the_wish() {
        check(
            Some(Wish::SkipThisTurn),
            &[
                "This stays between us. My PIN is 4711.",
                "My PIN is 4711. Please don't save that.",
                "Entre nous and please not in your memory, I'm going to hand in my notice.",
                "Once you've answered, erase it: I failed my exam.",
                "No notes, please. I drink in the mornings.",
                "Ich möchte nicht, dass das irgendwo auftaucht: ich trinke.",
            ],
        );
    }

    #[test]
    fn ordinary_talk_about_remembering_is_no_wish() {
        check(
            None,
            &[
                "I can't remember his name",
                "remember to water the plants",
                "save the file",
                "Don't save the file yet.",
                "keep the change",
                "Don't keep the change.",
                "don't forget the milk",
                "I forgot my keys",
                "between us we have 40 euros",
                "Between us, Nadine and I have about 40 euros.",
                "My wife doesn't remember that.",
                "Why don't you remember what I said?",
                "He never keeps his promises.",
                "Delete the row and keep no log, please: write that function.",
                "Unter uns wohnt eine Familie.",
                "Non ricordo nulla di quella sera.",
                "Se me olvida siempre.",
            ],
        );
    }

    #[test]
    fn a_request_to_remember_erases_nothing() {
        check(
            None,
            &[
                "Whatever else you drop, remember that I'm the one giving the toast.",
                "Remember I don't do mornings, and never keep me waiting.",
                "Whatever happens, don't forget that I'm vegan.",
                "Merk dir bitte, dass ich freitags nie kann.",
                "Retiens que je ne mange jamais de porc.",
                "Recuerda que no como carne.",
                "Onthoud dat ik geen melk drink.",
            ],
        );
        let text = "You can forget the small stuff, just remember I take two sugars.";
        assert!(!matches!(wish(text), Some(Wish::ForgetLastTurn(_))));
    }

    #[test]
    fn what_can_be_removed_was_said_before() {
        check(
            forgets(true),
            &[
                "Sorry, I got carried away, it's too early to have that sitting anywhere. Clear it?",
                "I take back the interview thing, and I'd rather it left no trace with you.",
                "Je vous saurais gré de ne conserver aucune trace de ma dernière phrase.",
                "That was private. Chuck it. Kind regards, Dorothy",
            ],
        );
        check(forgets(false), &["Cancellala subito, dai.", "mds apaga issooo"]);
    }

    #[test]
    fn work_on_a_text_is_no_wish() {
        check(
            None,
            &[
                "Delete the last paragraph and make the tone friendlier.",
                "Ditch that and write it in the style of a pirate.",
                "Quita la cebolla de la receta, que me sienta mal.",
                "Gooi dat maar in de soep, zei oma altijd.",
            ],
        );
    }

    #[test]
    fn a_wish_is_found_after_a_report_and_without_a_comma() {
        check(
            Some(Wish::SkipThisTurn),
            &[
                "Mum begged me to tell no one, so you're not to remember it either.",
                "i ate my flatmates cheese dont save this lmao",
                "Can I vent without you logging it? I can't stand my own daughter lately.",
                "メモしないでね、実は前科があるんだ。",
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
