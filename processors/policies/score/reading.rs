//! Extracts the features that a text's wording shows: facts, times, names, greetings, questions.
//! The rows of [`super::parts::PARTS`] turn these features into points.
//!
//! 1. Drop code blocks.
//! 2. Convert the rest to lower-case ASCII ([`Reading::plain`]), with `_` for each letter that has
//!    no ASCII form.
//! 3. Match the patterns of `patterns.rs`, each feature its own.
//!
//! Limit: the patterns are English. For other languages these features stay 0; `speech.rs` covers
//! them.

use super::patterns::*;
use std::borrow::Cow;

/// A text, prepared for the patterns.
pub struct Reading<'a> {
    /// The text without code, whose numbers and names are no facts about the user.
    pub prose: Cow<'a, str>,
    pub words: usize,
    /// The prose in lower-case ASCII.
    pub plain: String,
}

/// True if the whole text is one question.
pub fn is_question(text: &str) -> bool {
    let plain = plain(&prose(text));
    let mut sentences = sentences(&plain);
    sentences.next().is_some_and(asks) && sentences.next().is_none()
}

impl<'a> Reading<'a> {
    pub fn of(text: &'a str) -> Reading<'a> {
        let prose = prose(text);
        let plain = plain(&prose);
        Reading { words: count_words(&plain), prose, plain }
    }

    fn sentences(&self) -> impl Iterator<Item = &str> {
        sentences(&self.plain)
    }

    /// Counts the beginnings of facts ("I moved", "we bought", "I'm a"), up to 2.
    pub fn facts(&self) -> usize {
        FACT.find_iter(&self.plain).take(2).count()
    }

    pub fn mine(&self) -> bool {
        MINE.find_iter(&self.plain)
            .any(|found| !matches!(last_word(found.as_str()), "god" | "gosh" | "pleasure" | "bad"))
    }

    pub fn time(&self) -> bool {
        TIME.is_match(&self.plain)
    }

    pub fn number(&self) -> bool {
        self.plain.bytes().any(|byte| byte.is_ascii_digit()) || NUMBER.is_match(&self.plain)
    }

    pub fn correction(&self) -> bool {
        CORRECTION.is_match(&self.plain)
    }

    /// True for an order. "Do you remember that day?" and "I remember that day" are none.
    pub fn instruction(&self) -> bool {
        ORDER_FIRST.is_match(opening(&self.plain))
            || ORDER.captures_iter(&self.plain).any(|found| found.name("recollection").is_none())
    }

    pub fn greeting(&self) -> bool {
        GREETING_FIRST.is_match(opening(&self.plain)) || GREETING.is_match(&self.plain)
    }

    /// True if the text consists of questions, none of them about the speaker.
    pub fn only_asks(&self) -> bool {
        self.plain.contains('?')
            && self.sentences().all(asks)
            && self.sentences().next().is_some()
            && !FIRST_PERSON.is_match(&self.plain)
    }

    /// 0 to 1.
    pub fn emphasis(&self) -> f32 {
        let words = STRONG.find_iter(&self.plain).take(2).count() as f32;
        let marks = self.plain.bytes().filter(|byte| *byte == b'!').take(2).count() as f32;
        let strong = if words > 0.0 { 0.5 + 0.2 * words } else { 0.0 };
        strong + 0.1 * marks
    }

    /// Returns the share of the words that stand in sentences of praise, or in sentences with "you"
    /// and without "I".
    pub fn share_about_other(&self) -> f32 {
        let words: usize = self
            .sentences()
            .filter(|sentence| self.is_about_other(sentence))
            .map(count_words)
            .sum();
        words as f32 / self.words.max(1) as f32
    }

    fn is_about_other(&self, sentence: &str) -> bool {
        // "Here's your 46 in coins" settles a debt.
        if sentence.bytes().any(|byte| byte.is_ascii_digit()) {
            return false;
        }
        PRAISE.is_match(opening(sentence))
            || (SECOND_PERSON.is_match(sentence)
                && !FIRST_PERSON.is_match(sentence)
                && SECOND_PERSON.is_match(&REQUEST.replace_all(sentence, " ")))
    }

    /// Counts the different capitalised words inside sentences, up to 2.
    pub fn names(&self) -> usize {
        let mut first = None;
        let mut before = ['.', ' '];
        for word in self.prose.split_inclusive(|c: char| !is_name_char(c)) {
            let name = word.trim_end_matches(|c: char| !c.is_alphanumeric());
            if is_name(name) && !begins_sentence(before) && *first.get_or_insert(name) != name {
                return 2;
            }
            let mut last = word.chars().rev();
            if let Some(c) = last.next() {
                before = [last.next().unwrap_or(before[1]), c];
            }
        }
        usize::from(first.is_some())
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '\'' | '’' | '-')
}

/// True for "Lisbon", "O'Neill", "R2d2"; false for "NASA", which may be shouted, and for "I'm".
fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    let first = chars.next().is_some_and(char::is_uppercase);
    first
        && chars.next_back().is_some_and(|c| c.is_lowercase() || c.is_numeric())
        && !word.starts_with("I'")
        && !word.starts_with("I’")
}

/// True if the two characters before a word end a sentence or open a quotation or a bracket.
fn begins_sentence([before, last]: [char; 2]) -> bool {
    matches!(last, '"' | '\'' | '(' | '[' | '“' | '‘' | '\n')
        || (last.is_whitespace()
            && matches!(before, '.' | '!' | '?' | ':' | '"' | '\'' | '”' | '\n'))
}

/// True if a question mark ends the sentence. Space, quotation marks and a bracket may follow.
pub fn asks(sentence: &str) -> bool {
    sentence
        .trim_end_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\'' | ')'))
        .ends_with('?')
}

// ---------------------------------------------------------------- preparing the text

/// Drops the blocks between pairs of "```".
fn prose(text: &str) -> Cow<'_, str> {
    if !text.contains("```") {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split("```").step_by(2).collect::<Vec<_>>().join(" "))
}

/// Converts to lower-case ASCII: straight apostrophes, ASCII sentence marks, and `_` for every
/// other letter. Without the `_`, the "i" in a word of another language would match as an English
/// "I".
fn plain(prose: &str) -> String {
    if prose.is_ascii() {
        return prose.to_ascii_lowercase();
    }
    let mut plain = String::with_capacity(prose.len());
    for c in prose.chars() {
        match c {
            '\0'..='\x7f' => plain.push(c.to_ascii_lowercase()),
            '’' | '‘' => plain.push('\''),
            '。' | '．' | '।' | '…' => plain.push_str(". "),
            '！' => plain.push_str("! "),
            '？' | '؟' => plain.push_str("? "),
            '；' => plain.push_str("; "),
            '，' | '、' => plain.push_str(", "),
            '–' | '—' => plain.push_str(" - "),
            _ if c.is_alphanumeric() => plain.push('_'),
            _ => plain.push(' '),
        }
    }
    plain
}

/// Splits at line ends and after sentence marks that a space follows. Pieces without a word are
/// skipped.
pub fn sentences(plain: &str) -> impl Iterator<Item = &str> {
    let mut before = ' ';
    let pieces = plain.split(move |c: char| {
        let border =
            c == '\n' || (c.is_ascii_whitespace() && matches!(before, '.' | '!' | '?' | ';'));
        before = c;
        border
    });
    pieces.map(str::trim).filter(|piece| piece.bytes().any(is_word_byte))
}

/// Skips everything before the first word.
pub fn opening(plain: &str) -> &str {
    plain.trim_start_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Returns the last word of a match that ends in a word.
fn last_word(found: &str) -> &str {
    found.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

fn count_words(plain: &str) -> usize {
    plain.as_bytes().split(|byte| !is_word_byte(*byte)).filter(|word| !word.is_empty()).count()
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(part: fn(&Reading<'static>) -> bool, yes: &[&'static str], no: &[&'static str]) {
        for (texts, expected) in [(yes, true), (no, false)] {
            for text in texts {
                assert_eq!(part(&Reading::of(text)), expected, "{text:?}");
            }
        }
    }

    #[test]
    fn the_patterns_find_each_feature() {
        check(
            Reading::mine,
            &["My sister called", "with our dog"],
            &["Oh my god!", "my pleasure", "mylar"],
        );
        check(
            Reading::time,
            &["See you at 5pm", "since 2019", "last week"],
            &["You may go", "40 people"],
        );
        check(Reading::correction, &["I no longer smoke"], &["I smoke"]);
        check(Reading::greeting, &["  Hey Tom!", "So, how are you"], &["The hello world program"]);
    }

    #[test]
    fn a_recollection_is_no_order() {
        check(
            Reading::instruction,
            &[
                "Always reply in French",
                "Please never use emojis",
                "Remember that I'm deaf",
                "From now on, be brief",
            ],
            &[
                "Do you remember that day?",
                "I remember this moment",
                "I'll make sure to remember this",
            ],
        );
    }

    #[test]
    fn names_are_capitalised_inside_a_sentence() {
        for (text, expected) in [
            ("I met Anna and Tom in Porto", 2),
            ("Anna left. Tom stayed.\nPorto slept", 0),
            ("well I'm here, and I've said \"Hello\" (Again)", 0),
            ("with Łukasz and NASA", 1),
            ("Anna saw Anna", 1),
        ] {
            assert_eq!(Reading::of(text).names(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_question_is_one_sentence_that_asks() {
        for (text, expected) in [
            ("How are you?", true),
            ("Hey Mel, what's new? 😊", true),
            ("(Really?)", true),
            ("你好吗？", true),
            ("Hi! How are you?", false),
            ("Why? And how?", false),
            ("I am fine.", false),
            ("?", false),
            ("", false),
        ] {
            assert_eq!(is_question(text), expected, "{text:?}");
        }
    }

    #[test]
    fn code_is_not_read() {
        let reading = Reading::of("Look:\n```\nlet my_age = 40; // yesterday\n```\nnice");
        assert!(!reading.time() && !reading.number());
        assert!(!Reading::of("open ```7 to the end").number());
    }

    #[test]
    fn letters_of_other_languages_are_not_english_words() {
        check(Reading::only_asks, &["Tôi ở đâu?"], &["Where am I?"]);
    }
}
