//! Classifies a text as speech, in any language: small talk, a statement of the speaker's, a bare question, or in words that nobody here
//! knows. Principle: what cannot be judged is kept, since a wrong drop costs more than a memory too many.

use super::rarity::Rarity;
use super::reading::Reading;
use super::statement::{Statements, statements};
use crate::text::wordings::{
    CHINESE, Covered, ENGLISH, Found, JAPANESE, LANGUAGES, SPEECH, Sign, fold,
};
use crate::text::{self, Words};

/// Small talk by what it mostly is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallTalk {
    Greeting,
    Thanks,
    Acknowledgement,
    Praise,
    /// Laughter, an emoji, "oh well".
    Filler,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speech {
    /// The whole text is nothing else.
    pub small_talk: Option<SmallTalk>,
    /// Says something of the speaker or of theirs.
    pub states: bool,
    /// In a language that is not covered, or that cannot be told.
    pub unjudged: bool,
    /// Nothing but questions and requests.
    pub only_asks: bool,
}

/// Small talk is short. Longer texts are not looked through for it.
const SMALL_TALK_BYTES_MAX: usize = 100;
/// One word may stand beside a greeting or thanks: a name.
const NAME_WORDS_MAX: usize = 1;
/// A text of so many words says something, where verbs may carry the first person in their endings.
const STATEMENT_WORDS: usize = 4;
/// In scripts without spaces.
const STATEMENT_SIGNS: usize = 7;
/// Words, or signs in scripts without spaces, that say something behind a yes or no.
const ANSWER_LEFT: usize = 2;
/// A question this long tells something besides.
const TELLING_QUESTION_SIGNS: usize = 16;
/// English words by the encoder's vocabulary, where a text is too short to tell its language by.
const SHORT_ENGLISH_WORDS: usize = 3;

pub fn read(reading: &Reading<'_>, words: &Words, rarity: &Rarity) -> Speech {
    let is_english = words.language() == Some(text::Language::ENGLISH);
    let prose = &reading.prose;
    if is_english && prose.len() > SMALL_TALK_BYTES_MAX {
        return of_english(reading);
    }
    if !prose.chars().any(char::is_alphanumeric) {
        return Speech { small_talk: Some(SmallTalk::Filler), ..Speech::default() };
    }
    let folded = fold(prose);
    let found: Vec<Found<Sign>> = SPEECH.find(&folded).collect();
    let told =
        if is_english { Told::Surely(ENGLISH) } else { language(prose, words, &found, rarity) };
    if folded.len() <= SMALL_TALK_BYTES_MAX
        && let Some(small_talk) =
            small_talk(&folded, &found, told).or_else(|| drawn_out_small_talk(&folded, told))
    {
        return Speech { small_talk: Some(small_talk), ..Speech::default() };
    }
    match told {
        Told::Not => Speech { unjudged: true, ..Speech::default() },
        Told::Surely(ENGLISH) | Told::Perhaps(ENGLISH) => of_english(reading),
        Told::Surely(language) => of_another(reading, language, &folded, &found),
        Told::Perhaps(language) => {
            let speech = of_another(reading, language, &folded, &found);
            Speech { unjudged: !speech.states && !speech.only_asks, ..speech }
        }
    }
}

fn of_english(reading: &Reading<'_>) -> Speech {
    let Statements { states, only_asks } = statements(&reading.plain);
    Speech { states, only_asks, ..Speech::default() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Surely(Covered),
    /// By a word or two.
    Perhaps(Covered),
    /// Not covered, or it cannot be told.
    Not,
}

fn language(prose: &str, words: &Words, found: &[Found<Sign>], rarity: &Rarity) -> Told {
    let letters = prose.chars().filter(|c| c.is_alphabetic());
    let (mut all, mut kana, mut han, mut latin) = (0, 0, 0, 0);
    for c in letters {
        all += 1;
        match c {
            '\u{3040}'..='\u{30ff}' => kana += 1,
            '\u{3400}'..='\u{9fff}' => han += 1,
            _ => latin += usize::from(c < '\u{250}' || ('\u{1e00}'..'\u{1f00}').contains(&c)),
        }
    }
    if 2 * (kana + han) >= all && kana + han > 0 {
        return Told::Surely(if kana > 0 { JAPANESE } else { CHINESE });
    }
    if 2 * latin < all {
        return Told::Not;
    }
    if let Some(language) = words.language() {
        return Covered::named(&language.to_string()).map_or(Told::Not, Told::Surely);
    }
    let mut hits = [0; LANGUAGES];
    found
        .iter()
        .filter(|one| one.what == Sign::Word)
        .for_each(|one| hits[one.language.place()] += 1);
    let most = hits.into_iter().max().unwrap_or_default();
    let mut best = Covered::all().filter(|language| hits[language.place()] == most);
    if most > 0 {
        return match (best.next(), best.next()) {
            (Some(language), None) => Told::Perhaps(language),
            _ => Told::Not,
        };
    }
    let is_short_english = || {
        let mut all = words.content();
        prose.is_ascii() && all.len() <= SHORT_ENGLISH_WORDS && all.all(|word| rarity.knows(word))
    };
    if is_short_english() { Told::Perhaps(ENGLISH) } else { Told::Not }
}

/// Every word of the text is one of small talk: in its language, in English, which all mix in, or in any one where that is not sure.
fn small_talk(folded: &str, found: &[Found<Sign>], told: Told) -> Option<SmallTalk> {
    let languages = || {
        Covered::all().filter(|language| match told {
            Told::Surely(surely) => *language == surely,
            _ => true,
        })
    };
    // Order matters: what one language knows whole is not taken for another one's word and a name.
    let most_left = [0, NAME_WORDS_MAX];
    most_left
        .into_iter()
        .find_map(|most| languages().find_map(|language| talk_in(language, folded, found, most)))
}

/// "dankee", "holaa": `fold` leaves a letter that is written twice, as "Kaffee" needs it.
fn drawn_out_small_talk(folded: &str, told: Told) -> Option<SmallTalk> {
    let mut shorter = String::with_capacity(folded.len());
    let mut signs = folded.chars().peekable();
    while let Some(c) = signs.next() {
        let ends_word = signs.peek().is_none_or(|next| !next.is_alphanumeric());
        if !(ends_word && c.is_alphabetic() && shorter.ends_with(c)) {
            shorter.push(c);
        }
    }
    if shorter.len() == folded.len() {
        return None;
    }
    let found: Vec<Found<Sign>> = SPEECH.find(&shorter).collect();
    small_talk(&shorter, &found, told)
}

/// Wordings of small talk in this language and in English, and which bytes of the text they cover.
fn talk(
    language: Covered,
    folded: &str,
    found: &[Found<Sign>],
) -> (Vec<(usize, usize, SmallTalk)>, Vec<bool>) {
    let own = found.iter().filter(|one| one.language == language || one.language == ENGLISH);
    let own: Vec<_> = own.filter_map(|one| Some((one.start, one.end, kind(one.what)?))).collect();
    let mut covered = vec![false; folded.len()];
    own.iter().for_each(|(start, end, _)| covered[*start..*end].fill(true));
    (own, covered)
}

fn talk_in(
    language: Covered,
    folded: &str,
    found: &[Found<Sign>],
    most_left: usize,
) -> Option<SmallTalk> {
    let (own, covered) = talk(language, folded, found);
    // "na gut" is no greeting, though "na" is one.
    let is_part = |one: &(usize, usize, SmallTalk)| {
        own.iter()
            .any(|other| other.0 <= one.0 && one.1 <= other.1 && other.1 - other.0 > one.1 - one.0)
    };
    let best =
        own.iter().filter(|one| !is_part(one)).map(|one| one.2).min_by_key(|kind| *kind as u8);
    let left = left(language, folded, &covered);
    // "gracias, ya no fumo": beside news a word is no name.
    let is_news = found
        .iter()
        .any(|one| one.language == language && matches!(one.what, Sign::Change | Sign::State));
    let may_name = matches!(best, Some(SmallTalk::Greeting | SmallTalk::Thanks)) && !is_news;
    let most = if may_name { most_left } else { 0 };
    best.filter(|_| left <= most)
}

fn kind(sign: Sign) -> Option<SmallTalk> {
    match sign {
        Sign::Greeting => Some(SmallTalk::Greeting),
        Sign::Thanks => Some(SmallTalk::Thanks),
        Sign::Acknowledgement => Some(SmallTalk::Acknowledgement),
        Sign::Praise => Some(SmallTalk::Praise),
        Sign::Filler => Some(SmallTalk::Filler),
        _ => None,
    }
}

fn left(language: Covered, folded: &str, covered: &[bool]) -> usize {
    if language.is_spaced() { words_left(folded, covered) } else { signs_left(folded, covered) }
}

/// Words of which a part is not covered. One with a digit counts twice: it is no name.
fn words_left(folded: &str, covered: &[bool]) -> usize {
    let (mut left, mut start) = (0, None);
    let ends = folded.char_indices().chain([(folded.len(), ' ')]);
    for (at, c) in ends {
        match start {
            None if c.is_alphanumeric() => start = Some(at),
            Some(begin) if !c.is_alphanumeric() => {
                if covered[begin..at].contains(&false) {
                    left += if folded[begin..at].bytes().any(|byte| byte.is_ascii_digit()) {
                        2
                    } else {
                        1
                    };
                }
                start = None;
            }
            _ => {}
        }
    }
    left
}

fn signs_left(folded: &str, covered: &[bool]) -> usize {
    folded.char_indices().filter(|(at, c)| c.is_alphanumeric() && !covered[*at]).count()
}

/// In languages whose verbs carry the first person, or which leave it out, only what is short or asks can be told to state nothing.
fn of_another(
    reading: &Reading<'_>,
    language: Covered,
    folded: &str,
    found: &[Found<Sign>],
) -> Speech {
    let signs = || found.iter().filter(|one| one.language == language);
    let any = |sign: Sign| signs().any(|one| one.what == sign);
    let phatic: Vec<_> = signs().filter(|one| one.what == Sign::Phatic).collect();
    let speaks_of_self = signs().any(|one| {
        one.what == Sign::FirstPerson
            && !phatic.iter().any(|phatic| phatic.start <= one.start && one.end <= phatic.end)
    });
    let tells =
        speaks_of_self || any(Sign::State) || folded.bytes().any(|byte| byte.is_ascii_digit());
    let length = folded.chars().filter(|c| c.is_alphanumeric()).count();
    let (own, covered) = talk(language, folded, found);
    // "どう" asks, and "どうも" greets.
    let mut questions = signs().filter(|one| {
        one.what == Sign::Question
            && !own.iter().any(|(start, end, _)| *start <= one.start && one.end < *end)
    });
    let (is_long, asks_openly) = if language.is_spaced() {
        (folded.split_whitespace().count() >= STATEMENT_WORDS, questions.any(|one| one.start == 0))
    } else {
        (length >= STATEMENT_SIGNS, questions.next().is_some())
    };
    let may_only_ask = language.is_spaced() || length < TELLING_QUESTION_SIGNS;
    let only_asks =
        !tells && may_only_ask && (reading.only_asks() || asks_openly && !folded.contains(". "));
    let says_no = any(Sign::Negation)
        && folded.split_whitespace().count() > 1
        && phatic.is_empty()
        && language.is_spaced();
    // "sì, sono medico", "はい、医者です": who says yes or no and goes on says something of themselves.
    let begins_with_answer =
        own.iter().any(|(start, _, kind)| *start == 0 && *kind == SmallTalk::Acknowledgement);
    let goes_on = begins_with_answer && left(language, folded, &covered) >= ANSWER_LEFT;
    Speech {
        states: tells || !only_asks && (is_long || says_no || goes_on),
        only_asks,
        ..Speech::default()
    }
}

#[cfg(test)]
mod tests;
