//! Scripts that put no spaces between words. A run of one script is searched by its overlapping pairs of characters, as Lucene does it.

use unicode_segmentation::UnicodeSegmentation;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Han,
    Hiragana,
    Katakana,
    Hangul,
    Thai,
    Lao,
    Myanmar,
    Khmer,
}

/// Whether a word or a part of one is in such a script. Korean has spaces, but most of its words end in a particle that their stem goes
/// without.
pub fn is_unspaced(word: &str) -> bool {
    !word.as_bytes().first().is_some_and(u8::is_ascii)
        && word.chars().next().and_then(script).is_some()
}

/// The parts of a lower-case word: pairs of characters as readers count them, for each run of one script; the only one of a run that has one,
/// unless it is Hiragana, where that is a particle; each Chinese character by itself too, since many are words; and what is in other letters,
/// as it is.
pub fn parts<'w>(word: &'w str, mut each: impl FnMut(&'w str)) {
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let of = script(first);
        // A mark that lengthens a vowel or repeats a sign goes with what it stands behind.
        let ends = |c: char| script(c) != of && !(of.is_some() && matches!(c, 'ー' | '々'));
        let (run, behind) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        match of {
            None => each(run),
            Some(of) => pairs(run, of, &mut each),
        }
        rest = behind;
    }
}

fn pairs<'w>(run: &'w str, script: Script, each: &mut impl FnMut(&'w str)) {
    let mut before: Option<&str> = None;
    let mut start = 0;
    for (at, character) in run.grapheme_indices(true) {
        if before.is_some() {
            each(&run[start..at + character.len()]);
        }
        if script == Script::Han || character.len() == run.len() && script != Script::Hiragana {
            each(character);
        }
        (before, start) = (Some(character), at);
    }
}

/// So many characters of such a script are about a word.
const CHARACTERS_OF_A_WORD: usize = 2;

/// Words as people count them.
pub fn count_words(text: &str) -> usize {
    let characters =
        if text.is_ascii() { 0 } else { text.chars().filter(|c| is_without_spaces(*c)).count() };
    text.split_whitespace().count().max(characters / CHARACTERS_OF_A_WORD)
}

/// Where the character begins that is one too many for so many words. None: there are not so many.
pub fn end_of_words(text: &str, count: usize) -> Option<usize> {
    let mut characters = text.char_indices().filter(|(_, c)| is_without_spaces(*c));
    characters.nth(count * CHARACTERS_OF_A_WORD).map(|(at, _)| at)
}

/// Korean words have their spaces.
fn is_without_spaces(c: char) -> bool {
    script(c).is_some_and(|script| script != Script::Hangul)
}

fn script(c: char) -> Option<Script> {
    match c {
        '\0'..='\u{dff}' => None,
        '\u{e00}'..='\u{e7f}' => Some(Script::Thai),
        '\u{e80}'..='\u{eff}' => Some(Script::Lao),
        '\u{1000}'..='\u{109f}' | '\u{a9e0}'..='\u{a9ff}' | '\u{aa60}'..='\u{aa7f}' => {
            Some(Script::Myanmar)
        }
        '\u{1780}'..='\u{17ff}' => Some(Script::Khmer),
        '\u{3041}'..='\u{309f}' => Some(Script::Hiragana),
        '\u{30a0}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}' => {
            Some(Script::Katakana)
        }
        '\u{3005}'..='\u{3007}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' => Some(Script::Han),
        '\u{20000}'..='\u{3ffff}' => Some(Script::Han),
        '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{ac00}'..='\u{d7af}' => {
            Some(Script::Hangul)
        }
        _ => None,
    }
}
