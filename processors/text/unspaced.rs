//! Splits text in scripts that put no spaces between words into searchable parts.
//!
//! A run of characters of one script becomes its overlapping pairs, like those of Lucene's
//! [CJKBigramFilter](https://lucene.apache.org/core/9_0_0/analysis/common/org/apache/lucene/analysis/cjk/CJKBigramFilter.html).
//! For example `我喜欢` becomes `我 我喜 喜 喜欢 欢`: the pairs, and each Chinese character by itself.
//!
//! Invariant: [`parts`] defines terms of the index, so a change there needs another
//! `STEMS_VERSION`.

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

/// Returns true if a word or part of a word begins in such a script. Korean counts although Korean
/// has spaces: most words end in a particle, and pairs match without the particle.
pub fn is_unspaced(word: &str) -> bool {
    !word.as_bytes().first().is_some_and(u8::is_ascii)
        && word.chars().next().and_then(script).is_some()
}

/// Calls `each` with the parts of a lower-case word, one run of a single script after the other:
///
/// - a run in another script (Latin, Cyrillic, …): the unchanged run;
/// - a longer run: the overlapping pairs of grapheme clusters;
/// - a run of one character: that character, unless it is Hiragana, where it is a particle;
/// - Chinese: each character by itself too, because many are words.
pub fn parts<'w>(word: &'w str, mut each: impl FnMut(&'w str)) {
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let run_script = script(first);
        // The marks that lengthen a vowel (ー) or repeat a character (々) stay in the run before
        // them.
        let end = rest
            .find(|c| {
                script(c) != run_script && !(run_script.is_some() && matches!(c, 'ー' | '々'))
            })
            .unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        match run_script {
            None => each(run),
            Some(script) => pairs(run, script, &mut each),
        }
        rest = after;
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
        before = Some(character);
        start = at;
    }
}

/// Average length of a word in a script without spaces.
const CHARACTERS_PER_WORD: usize = 2;

/// Counts words: runs between white space, or half of the unspaced characters if those are more.
pub fn count_words(text: &str) -> usize {
    let characters =
        if text.is_ascii() { 0 } else { text.chars().filter(|c| is_without_spaces(*c)).count() };
    text.split_whitespace().count().max(characters / CHARACTERS_PER_WORD)
}

/// Returns the byte offset at which the unspaced characters exceed `count` words, or `None` if they
/// never do.
pub fn end_of_words(text: &str, count: usize) -> Option<usize> {
    let mut characters = text.char_indices().filter(|(_, c)| is_without_spaces(*c));
    characters.nth(count * CHARACTERS_PER_WORD).map(|(at, _)| at)
}

/// Returns true for every script of this file but Korean, whose words are counted by their spaces.
fn is_without_spaces(c: char) -> bool {
    script(c).is_some_and(|script| script != Script::Hangul)
}

/// Looks up the script of a character by the [Unicode block](https://www.unicode.org/charts/).
/// `None` for scripts that put spaces between words.
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
