//! What can be told from a text's wording alone: facts, times, names, greetings, questions. English; elsewhere these parts stay 0.

use super::patterns::*;
use regex::SetMatches;
use std::borrow::Cow;

/// A text as the patterns read it.
pub struct Reading<'a> {
    /// Without code: its numbers and names are no facts about the user.
    pub prose: Cow<'a, str>,
    pub words: usize,
    /// The prose in lower-case ASCII, so that the regex engine never leaves its quick path.
    pub plain: String,
    found: SetMatches,
}

/// The whole text is one question.
pub fn is_question(text: &str) -> bool {
    let plain = plain(&prose(text));
    let mut sentences = sentences(&plain);
    sentences.next().is_some_and(asks) && sentences.next().is_none()
}

impl<'a> Reading<'a> {
    pub fn of(text: &'a str) -> Reading<'a> {
        let prose = prose(text);
        let plain = plain(&prose);
        Reading { words: count_words(&plain), found: ANYWHERE.matches(&plain), prose, plain }
    }

    fn holds(&self, wording: Wording) -> bool {
        self.found.matched(wording as usize)
    }

    fn sentences(&self) -> impl Iterator<Item = &str> {
        sentences(&self.plain)
    }

    /// What "I moved", "we bought", "I'm a" begin: at most 2 are counted.
    pub fn facts(&self) -> usize {
        if self.holds(Wording::Fact) { FACT.find_iter(&self.plain).take(2).count() } else { 0 }
    }

    /// A lasting state of the speaker, worth keeping in however few words.
    pub fn state(&self) -> bool {
        self.holds(Wording::State)
    }

    pub fn mine(&self) -> bool {
        self.holds(Wording::Mine)
            && MINE.find_iter(&self.plain).any(|found| {
                !matches!(last_word(found.as_str()), "god" | "gosh" | "pleasure" | "bad")
            })
    }

    pub fn time(&self) -> bool {
        self.holds(Wording::Time)
    }

    pub fn number(&self) -> bool {
        self.plain.bytes().any(|byte| byte.is_ascii_digit()) || self.holds(Wording::Number)
    }

    pub fn decision(&self) -> bool {
        self.holds(Wording::Decision)
    }

    pub fn correction(&self) -> bool {
        self.holds(Wording::Correction)
    }

    pub fn never(&self) -> bool {
        self.holds(Wording::Never)
    }

    /// "Do you remember that day?" asks, and "I remember that day" tells: neither is an order.
    pub fn instruction(&self) -> bool {
        ORDER_FIRST.is_match(opening(&self.plain))
            || self.holds(Wording::Order)
                && ORDER.captures_iter(&self.plain).any(|found| found.name("told").is_none())
    }

    pub fn greeting(&self) -> bool {
        GREETING_FIRST.is_match(opening(&self.plain)) || self.holds(Wording::Greeting)
    }

    /// Nothing but questions, and none about the speaker.
    pub fn only_asks(&self) -> bool {
        self.plain.contains('?')
            && self.sentences().all(asks)
            && self.sentences().next().is_some()
            && !self.holds(Wording::FirstPerson)
    }

    /// 0 to 1.
    pub fn emphasis(&self) -> f32 {
        let strong = if self.holds(Wording::Strong) { 0.5 } else { 0.0 };
        let emphatic = if self.holds(Wording::Emphatic) {
            EMPHATIC.find_iter(&self.plain).take(2).count()
        } else {
            0
        };
        let marks = self.plain.bytes().filter(|byte| *byte == b'!').take(2).count() as f32;
        let shouted = if may_shout(&self.prose) && self.prose.split_whitespace().any(is_shouted) {
            0.2
        } else {
            0.0
        };
        (strong + 0.2 * emphatic as f32 + 0.1 * marks + shouted).min(1.0)
    }

    /// The share of the words in sentences that praise, or speak of "you" without "I".
    pub fn share_about_other(&self) -> f32 {
        let words: usize = self
            .sentences()
            .filter(|sentence| self.is_about_other(sentence))
            .map(count_words)
            .sum();
        words as f32 / self.words.max(1) as f32
    }

    fn is_about_other(&self, sentence: &str) -> bool {
        PRAISE.is_match(opening(sentence))
            || (SECOND_PERSON.is_match(sentence)
                && !(self.holds(Wording::FirstPerson) && FIRST_PERSON.is_match(sentence))
                && SECOND_PERSON.is_match(&REQUEST.replace_all(sentence, " ")))
    }

    /// Different capitalised words inside a sentence: at most 2 are counted.
    pub fn names(&self) -> usize {
        let mut first = None;
        let mut before = ['.', ' '];
        for word in self.prose.split_inclusive(|c: char| !is_name_char(c)) {
            // Most words are known by their first letter to be no name.
            if word.starts_with(char::is_uppercase) && !begins_sentence(before) {
                let name = word.trim_end_matches(|c: char| !c.is_alphanumeric());
                if is_name(name) && *first.get_or_insert(name) != name {
                    return 2;
                }
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

/// "Lisbon", "O'Neill", "R2d2"; not "NASA", which may be shouted, and not "I'm".
fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    let first = chars.next().is_some_and(char::is_uppercase);
    first
        && chars.next_back().is_some_and(|c| c.is_lowercase() || c.is_numeric())
        && !word.starts_with("I'")
        && !word.starts_with("I’")
}

/// By the two characters before: also a quotation or a bracket begins one.
fn begins_sentence([before, last]: [char; 2]) -> bool {
    matches!(last, '"' | '\'' | '(' | '[' | '“' | '‘' | '\n')
        || (last.is_whitespace()
            && matches!(before, '.' | '!' | '?' | ':' | '"' | '\'' | '”' | '\n'))
}

/// Three bytes in a row that are neither small letters nor space: quicker found than words, and few texts have them.
fn may_shout(prose: &str) -> bool {
    let mut row = 0;
    prose.bytes().any(|byte| {
        row = if byte.is_ascii_lowercase() || byte.is_ascii_whitespace() { 0 } else { row + 1 };
        row == 3
    })
}

fn is_shouted(word: &str) -> bool {
    word.chars().nth(2).is_some()
        && word.chars().any(char::is_uppercase)
        && !word.chars().any(char::is_lowercase)
}

pub fn asks(sentence: &str) -> bool {
    sentence
        .trim_end_matches(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\'' | ')'))
        .ends_with('?')
}

// ---------------------------------------------------------------- preparing the text

fn prose(text: &str) -> Cow<'_, str> {
    // One sign is found quicker than three of them.
    if !text.contains('`') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split("```").step_by(2).collect::<Vec<_>>().join(" "))
}

/// Lower-case ASCII: straight apostrophes, ASCII sentence marks, and `_` for every letter that has no place there, so that the "i"
/// of another language's word is not taken for an English one.
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

/// Pieces with a word in them, cut behind a sentence mark that a space follows, and at line ends.
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

pub fn opening(plain: &str) -> &str {
    plain.trim_start_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Of a wording that ends in a word.
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
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whoever_shouts_may_shout(word in "[A-Z0-9a-zÄäЖж!'.-]{1,6}") {
            prop_assert!(may_shout(&word) || !is_shouted(&word));
        }
    }

    fn check(part: fn(&Reading<'static>) -> bool, yes: &[&'static str], no: &[&'static str]) {
        for (texts, expected) in [(yes, true), (no, false)] {
            for text in texts {
                assert_eq!(part(&Reading::of(text)), expected, "{text:?}");
            }
        }
    }

    #[test]
    fn wording_tells_what_a_text_holds() {
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
        check(Reading::never, &["I’ve never been to Rome"], &["Never mind"]);
        check(Reading::decision, &["Let's go with Rust"], &["He decides"]);
        check(Reading::correction, &["I no longer smoke"], &["I smoke"]);
        check(Reading::greeting, &["  Hey Tom!", "So, how are you"], &["The hello world program"]);
        check(
            Reading::state,
            &["I live in Lisbon", "I'm a nurse", "My dog is called Rex"],
            &["I love it!"],
        );
    }

    #[test]
    fn an_order_is_told_from_a_recollection() {
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
    fn one_question_and_nothing_else_is_a_question() {
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
