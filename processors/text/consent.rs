//! Finds the reason why a text may not be kept: a wish of the user, or a category that the profile
//! forbids. Fixed wordings decide (`config/languages/*.toml`), so the result can be checked against
//! a list. A wish must fill its clause: "I don't remember this" contains "don't remember this" and
//! is no wish.

use crate::wordings::{NEVER, PhraseMatch, WISHES, Wish, fold};
use domain::Category;

/// Finds the user's wish about this text or the text before. [`Wish::ForgetLastTurn`] takes
/// precedence.
pub fn wish(text: &str) -> Option<Wish> {
    let folded = fold(text);
    let mut wish = None;
    for found in WISHES.find(&folded) {
        if wish != Some(Wish::ForgetLastTurn) && is_meant(&folded, &found) {
            wish = Some(found.what);
        }
    }
    wish
}

/// Returns the first of these categories that has a word in the text.
pub fn forbidden(text: &str, categories: &[Category]) -> Option<Category> {
    if categories.is_empty() {
        return None;
    }
    let folded = fold(text);
    NEVER.find(&folded).map(|found| found.what).find(|category| categories.contains(category))
}

/// Words that may precede a wish in its clause.
const BEFORE: &[&str] = &[
    "please", "pls", "and", "but", "ok", "okay", "so", "oh", "hey", "actually", "also", "well",
    "wait", "sorry", "no", "just", "bitte", "und", "aber", "ach", "also", "por", "favor", "y",
    "pero", "mejor", "ay", "s'il", "te", "plait", "stp", "svp", "et", "mais", "alors", "bon", "e",
    "mas", "olha", "per", "favore", "ma", "ti", "prego", "this", "is", "that's", "it's", "das",
    "ist", "esto", "es", "c'est", "isso", "ora", "can", "could", "you", "let's", "kannst", "du",
];
/// Words that may follow a wish in its clause.
const BEHIND: &[&str] = &[
    "please", "pls", "ok", "okay", "though", "for", "now", "just", "thanks", "thank", "you",
    "then", "at", "all", "ever", "anywhere", "bitte", "ja", "danke", "por", "favor", "vale",
    "gracias", "s'il", "te", "plait", "stp", "svp", "vous", "merci", "ta", "bom", "obrigado",
    "obrigada", "per", "favore", "grazie", "va", "bene", "about", "uber", "sobre", "su", "de",
    "there", "again",
];
/// Prepositions that introduce the subject of a wish.
const ABOUT: &[&str] = &["about", "uber", "sobre", "su", "de"];
/// Bytes that are read on either side of a wish: thirty words. Without this limit, 64 KiB of text
/// without a border take 13 s.
const CLAUSE_BYTES_MAX: usize = 200;
const BORDERS: [char; 13] = ['.', ',', '!', '?', ';', ':', '\n', '(', ')', '"', '-', '…', '¡'];

/// True if the wording is a wish in its context. A prohibition must be the whole clause; "off the
/// record" may also begin or end a longer one. Languages without spaces are not checked.
fn is_meant(folded: &str, found: &PhraseMatch<Wish>) -> bool {
    if !found.language.is_spaced() {
        return true;
    }
    let near = folded.floor_char_boundary(found.start.saturating_sub(CLAUSE_BYTES_MAX))
        ..folded.floor_char_boundary(found.end.saturating_add(CLAUSE_BYTES_MAX));
    let before = folded[near.start..found.start].rsplit(BORDERS).next().unwrap_or_default();
    let behind = folded[found.end..near.end].split(BORDERS).next().unwrap_or_default();
    let begins = before.split_whitespace().all(|word| BEFORE.contains(&word));
    let mut words = behind.split_whitespace();
    let next = words.clone().next();
    let ends =
        next.is_some_and(|word| ABOUT.contains(&word)) || words.all(|word| BEHIND.contains(&word));
    match found.what {
        Wish::ForgetLastTurn => begins && ends,
        Wish::SkipThisTurn if forbids(&folded[found.start..found.end]) => begins && ends,
        Wish::SkipThisTurn => begins || ends,
    }
}

/// True for a wording with a negation: "don't remember this".
fn forbids(wording: &str) -> bool {
    const NEGATIONS: &[&str] = &[
        "don't",
        "do",
        "not",
        "no",
        "needn't",
        "nicht",
        "pas",
        "ne",
        "n'enregistre",
        "non",
        "nao",
        "nothing",
        "retiens",
        "can",
    ];
    wording.split_whitespace().any(|word| NEGATIONS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: Option<Wish>, texts: &[&str]) {
        for text in texts {
            assert_eq!(wish(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_wish_to_keep_nothing_is_found_in_every_language() {
        check(
            Some(Wish::SkipThisTurn),
            &[
                "I'm pregnant. Don't remember this.",
                "Please don't store that, ok",
                "off the record: I'm quitting",
                "I'm seeing somebody, off the record",
                "Keep this between us",
                "my boss drinks, just between us",
                "Ich kündige bald. Merk dir das bitte nicht.",
                "das bleibt unter uns: ich ziehe weg",
                "No guardes esto, por favor: me separo",
                "que quede entre nosotros, me voy",
                "ne retiens pas ça stp",
                "Je pars en mai, ça reste entre nous",
                "Não guarde isso, por favor",
                "cá entre nós, vou sair da empresa",
                "non salvarlo, per favore",
                "resti tra noi: cambio lavoro",
                "这事别记下来",
                "我要辞职了，你知我知",
                "これは覚えないで",
                "ここだけの話、会社を辞める",
            ],
        );
    }

    #[test]
    fn a_wish_to_forget_the_last_turn_is_found_in_every_language() {
        check(
            Some(Wish::ForgetLastTurn),
            &[
                "Forget what I just said.",
                "please forget what i just said about my job",
                "Sorry, delete my last message",
                "Vergiss, was ich gerade gesagt habe!",
                "olvida lo que acabo de decir por favor",
                "oublie ce que je viens de dire",
                "Esquece o que eu disse, tá bom?",
                "dimentica quello che ho appena detto",
                "忘了我刚才说的",
                "さっき言ったことは忘れて",
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
                "Forget what I said yesterday in the meeting with Tom",
                "ich kann mir das nicht merken",
                "je ne me souviens pas",
                "no recuerdo nada",
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
