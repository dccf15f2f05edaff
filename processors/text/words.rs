//! A text as the words that carry its meaning, and as their stems: what is scored, indexed, searched and compared.

use super::language::{Language, Signs};
use super::{is_stop_word, unspaced};
use foldhash::fast::RandomState;
use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use unicode_normalization::char::is_combining_mark;

/// Longer ones are keys, hashes and addresses.
pub const WORD_CHARS_MAX: usize = 40;

/// 16,384 words and their stems: about 1.5 MB a thread, and most of what a language uses.
const STEMS_REMEMBERED: usize = 16_384;
/// What is longer is hardly a word and would not come again.
const STEM_REMEMBERED_BYTES_MAX: usize = 32;

/// A turn's text is read for its score and for what was denied of it; for the index it is read with the memory of that turn and with those of
/// the next two. Eight are looked through sooner than one is read.
const TEXTS_REMEMBERED: usize = 8;
/// What is longer takes longer to compare, too, and room for as long as its thread lives.
const TEXT_REMEMBERED_BYTES_MAX: usize = 4096;

thread_local! {
    /// To stem a word takes ten times as long as to look it up.
    static STEMS: RefCell<HashMap<Box<str>, Box<str>, RandomState>> = RefCell::default();
    /// None: nobody asked to remember any.
    static TEXTS: RefCell<Option<Texts>> = RefCell::default();
}

/// Each as it was written and as it was read, oldest first.
type Texts = VecDeque<(Box<str>, Rc<Words>)>;

/// A text that has been read once.
pub struct Words {
    lower: String,
    /// Where in it each word begins and ends that is kept.
    content: Vec<Range<usize>>,
    signs: Signs,
    language: OnceCell<Option<Language>>,
    /// In the language they were first asked for in.
    stems: OnceCell<(Language, Stems)>,
}

impl Words {
    pub fn of(text: &str) -> Words {
        let (lower, mut signs) = (lower(text), Signs::default());
        let mut content = Vec::new();
        content_words(
            &lower,
            |word, is_stop_word| signs.count(word, is_stop_word),
            |word| content.push(range_in(&lower, word)),
        );
        Words { lower, content, signs, language: OnceCell::new(), stems: OnceCell::new() }
    }

    /// While this works, the last texts that are asked for again are remembered. Invariant: no longer than that, whatever comes of it, or what
    /// somebody wants forgotten would stay in memory.
    pub fn remembering<R>(work: impl FnOnce() -> R) -> R {
        struct Before(Option<Texts>);
        impl Drop for Before {
            fn drop(&mut self) {
                TEXTS.set(self.0.take());
            }
        }
        let _before = Before(TEXTS.replace(Some(Texts::new())));
        work()
    }

    /// The same; of the last eight texts that are remembered, none is read again.
    pub fn again(text: &str) -> Rc<Words> {
        if text.len() > TEXT_REMEMBERED_BYTES_MAX {
            return Words::of(text).into();
        }
        TEXTS.with_borrow_mut(|texts| {
            let Some(texts) = texts else { return Words::of(text).into() };
            if let Some((_, words)) = texts.iter().rev().find(|(known, _)| **known == *text) {
                return words.clone();
            }
            if texts.len() == TEXTS_REMEMBERED {
                texts.pop_front();
            }
            let words = Rc::new(Words::of(text));
            texts.push_back((text.into(), words.clone()));
            words
        })
    }

    #[cfg(test)]
    pub fn are_forgotten() -> bool {
        TEXTS.with_borrow(Option::is_none)
    }

    /// In lower case, in order, repetitions kept. Where a script has no spaces, pairs of characters.
    pub fn content(&self) -> impl ExactSizeIterator<Item = &str> {
        self.content.iter().map(|word| &self.lower[word.clone()])
    }

    /// None: it cannot be told.
    pub fn language(&self) -> Option<Language> {
        *self.language.get_or_init(|| self.signs.language(&self.lower))
    }

    /// In its own language; where that cannot be told, as if it were English.
    pub fn stems(&self) -> Stems {
        self.stems_in(self.language().unwrap_or(Language::ENGLISH))
    }

    pub fn stems_in(&self, language: Language) -> Stems {
        let (known, stems) = self.stems.get_or_init(|| (language, self.stemmed(language)));
        if *known == language { stems.clone() } else { self.stemmed(language) }
    }

    fn stemmed(&self, language: Language) -> Stems {
        let mut stems = Stemming::default();
        self.content().for_each(|word| stems.add(language, word));
        stems.done()
    }

    /// What a question is searched by: its stems, and if it is not English, those of each other language that it may have been meant in. A
    /// question is short: what language it is in, mostly only those tell that its asker has spoken.
    pub fn searched<E>(
        &self,
        spoken: impl FnOnce() -> Result<Vec<Language>, E>,
    ) -> Result<Vec<String>, E> {
        let own = self.language();
        if own == Some(Language::ENGLISH) {
            return Ok(self.stems_in(Language::ENGLISH).iter().map(str::to_owned).collect());
        }
        let mut languages = vec![Language::ENGLISH];
        languages.extend(own);
        languages.extend(spoken()?.into_iter().filter(|one| Some(*one) != own));
        let stems = |word: &str| {
            let mut stems: Vec<String> =
                languages.iter().map(|language| stem_in(*language, word)).collect();
            stems.sort_unstable();
            stems.dedup();
            stems
        };
        Ok(self.content().flat_map(stems).collect())
    }
}

/// Stems in order, repetitions kept, as one string: hundreds of thousands are made a second, and most of what one takes is a string of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stems {
    /// Each behind a separator.
    joined: Arc<str>,
    count: usize,
}

impl Stems {
    /// No stem holds a control character.
    pub const SEPARATOR: char = '\u{1f}';

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.joined.split(Stems::SEPARATOR).skip(1)
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn joined(&self) -> &str {
        &self.joined
    }

    /// Those, and then these.
    pub fn and(&self, others: &Stems) -> Stems {
        Stems {
            joined: [&*self.joined, &*others.joined].concat().into(),
            count: self.count + others.count,
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for Stems {
    fn from_iter<I: IntoIterator<Item = S>>(stems: I) -> Stems {
        let mut made = Stemming::default();
        stems.into_iter().for_each(|stem| made.put(stem.as_ref()));
        made.done()
    }
}

/// Stems that are being made.
#[derive(Default)]
struct Stemming {
    joined: String,
    count: usize,
}

impl Stemming {
    fn add(&mut self, language: Language, word: &str) {
        if language == Language::ENGLISH {
            with_stem(word, |stem| self.put(stem))
        } else {
            self.put(&language.stem(word))
        }
    }

    fn put(&mut self, stem: &str) {
        self.joined.push(Stems::SEPARATOR);
        self.joined.push_str(stem);
        self.count += 1;
    }

    fn done(self) -> Stems {
        Stems { joined: self.joined.into(), count: self.count }
    }
}

/// Runs of letters and digits of any script: "don't" is "don" and "t".
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
}

/// What is indexed and searched: stems of the content words, in order, repetitions kept.
pub fn terms(text: &str) -> Stems {
    Words::of(text).stems()
}

/// Of a part of a text whose wording has shown it to be English.
pub fn terms_of_english(text: &str) -> Stems {
    let mut stems = Stemming::default();
    content_words(&lower(text), |_, _| {}, |word| stems.add(Language::ENGLISH, word));
    stems.done()
}

/// Of an English word; of one in other letters than Latin ones, its own.
pub fn stem(word: &str) -> String {
    with_stem(word, str::to_owned)
}

fn with_stem<R>(word: &str, use_it: impl FnOnce(&str) -> R) -> R {
    if word.len() > STEM_REMEMBERED_BYTES_MAX {
        return use_it(&Language::ENGLISH.stem(word));
    }
    STEMS.with_borrow_mut(|stems| {
        if let Some(stem) = stems.get(word) {
            return use_it(stem);
        }
        if stems.len() >= STEMS_REMEMBERED {
            stems.clear();
        }
        let stem = Language::ENGLISH.stem(word);
        let used = use_it(&stem);
        stems.insert(word.into(), stem.into());
        used
    })
}

/// Shows each word, and whether it is an English stop word; keeps parts of those that are none.
fn content_words<'l>(
    lower: &'l str,
    mut show: impl FnMut(&str, bool),
    mut keep: impl FnMut(&'l str),
) {
    let mut keep = |word: &'l str| {
        if word.len() <= WORD_CHARS_MAX || word.chars().count() <= WORD_CHARS_MAX {
            keep(word);
        }
    };
    for word in words(lower) {
        let is_stop_word = is_stop_word(word);
        show(word, is_stop_word);
        if is_stop_word {
            continue;
        }
        if word.is_ascii() { keep(word) } else { unspaced::parts(word, &mut keep) }
    }
}

fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

fn stem_in(language: Language, word: &str) -> String {
    if language == Language::ENGLISH { stem(word) } else { language.stem(word) }
}

/// As Unicode has it, but for the Turkish capital İ, which would become two characters, the second of them no letter.
fn lower(text: &str) -> String {
    if !text.is_ascii() && text.contains('İ') {
        text.replace('İ', "i").to_lowercase()
    } else {
        text.to_lowercase()
    }
}

/// From India to Indonesia vowels, tones and joined consonants are written with signs that are no letters by themselves: cut there, few words
/// would be left whole. Elsewhere such a sign may as well stand with an emoji.
fn is_of_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    c.is_alphanumeric() || ('\u{900}'..'\u{1b00}').contains(&c) && is_combining_mark(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn check(text: &str, expected: &str) {
        assert_eq!(terms(text).iter().collect::<Vec<_>>().join(" "), expected, "{text}");
    }

    /// Words and stems as they were when there was only English.
    fn english(text: &str) -> Vec<String> {
        let lower = text.to_lowercase();
        let words = lower
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty() && !is_stop_word(word));
        words.filter(|word| word.len() <= WORD_CHARS_MAX).map(stem).collect()
    }

    fn searched(question: &str, spoken: &[Language]) -> String {
        Words::of(question).searched(|| Ok::<_, Infallible>(spoken.to_vec())).unwrap().join(" ")
    }

    fn german() -> Language {
        Words::of("Gestern war ich beim Arzt, und er hat mir neue Tabletten gegeben.")
            .language()
            .expect("a long sentence")
    }

    #[test]
    fn terms_are_stems_of_words_that_mean_something() {
        check("I'm moving to Lisbon; the flats were cheaper!", "move lisbon flat cheaper");
        check("what is it", "");
        check("Tokyo café", "tokyo café");
    }

    #[test]
    fn forms_of_a_word_are_one_term_in_the_language_of_their_text() {
        check(
            "Ich habe mit meiner Schwester zwei Häuser gekauft",
            "ich hab mit mein schwest zwei haus gekauft",
        );
        check(
            "Nous avons acheté deux chevaux, et ma soeur un cheval",
            "nous avon achet deux cheval et soeur un cheval",
        );
        check("Я купил два дома, этот дом новый", "я куп два дом этот дом нов");
        check("Αγόρασα δύο σπίτια και ένα σπίτι", "αγορασ δυ σπιτ κα εν σπιτ");
        check("İki ev satın aldım, evler büyük", "ik ev sat al ev büyük");
        check("வீடுகள் வீடு", "வீடு வீடு");
    }

    #[test]
    fn where_a_script_has_no_spaces_pairs_of_characters_are_the_terms() {
        check("私は東京に住んでいます。", "私 東 東京 京 住 んで でい いま ます");
        check("ラーメン、らーめん！", "ラー ーメ メン らー ーめ めん");
        check("我喜欢喝茶", "我 我喜 喜 喜欢 欢 欢喝 喝 喝茶 茶");
        check("ฉันกินข้าว", "ฉัน นกิ กิน นข้ ข้า าว");
        check("서울에서 살아요", "서울 울에 에서 살아 아요");
    }

    #[test]
    fn a_text_in_two_scripts_is_read_in_both() {
        check("我住在 Lisbon 3月", "我 我住 住 住在 在 lisbon 3 月");
        check("Мы переехали в Lisbon: the meetings were long", "мы перееха в lisbon meet long");
        check("LINEで送って", "line 送 って");
    }

    #[test]
    fn words_of_other_scripts_stay_whole() {
        check("हिन्दी में लिखो", "हिन्दी में लिखो");
        check("אני גר בליסבון", "אני גר בליסבון");
    }

    #[test]
    fn a_question_that_is_plainly_english_is_read_in_english_only() {
        assert_eq!(searched("Where did my sister buy the houses?", &[german()]), "sister buy hous");
    }

    #[test]
    fn a_short_question_is_read_in_every_language_its_asker_has_spoken() {
        assert_eq!(searched("Häuser", &[]), "häuser");
        assert_eq!(searched("Häuser", &[german()]), "haus häuser");
        assert_eq!(searched("Häuser Berlin", &[german()]), "haus häuser berlin");
    }

    #[test]
    fn short_english_code_and_tables_are_read_as_english() {
        for text in [
            "Lisbon!",
            "Take care!",
            "Later, take care!",
            "Buy milk",
            "Dentist Tuesday 4pm",
            "Kubernetes cluster Frankfurt",
            "peanut allergies",
            "favourite colour blue",
            "Anna, Tom, Maria",
            "San Francisco",
            "La Casa de Papel",
            "yes sure sounds great",
            "How does Melanie prioritize self-care?",
            "pip install numpy pandas",
            "CREATE TABLE IF NOT EXISTS transactions (id TEXT PRIMARY KEY, user_id TEXT, type TEXT, amount REAL)",
            "from flask import Flask, request, jsonify\napp = Flask(__name__)\napp.config['DATABASE_URI'] = 'sqlite:///budget.db'",
            "<div class=\"modal-content\"><h5 class=\"modal-title\" id=\"details\">Project details</h5></div>",
            "- **Rent**: $1,200\n- **Transportation**: $150\n- **Miscellaneous**: $150\n- **Total expenses**: $1,900",
        ] {
            assert_eq!(terms(text), english(text).iter().collect(), "{text}");
        }
    }

    #[test]
    fn a_stem_is_the_same_however_often_it_is_asked_for() {
        let words: Vec<String> =
            (0..STEMS_REMEMBERED + 10).map(|n| format!("walking{n}s")).collect();
        let first: Vec<String> = words.iter().map(|word| stem(word)).collect();
        assert_eq!(first, words.iter().map(|word| stem(word)).collect::<Vec<_>>());
        assert!(STEMS.with_borrow(|stems| stems.len()) <= STEMS_REMEMBERED);
        assert_eq!((stem("walking"), stem("walking")), ("walk".to_owned(), "walk".to_owned()));
    }

    #[test]
    fn the_last_texts_are_remembered_while_somebody_works_and_no_others() {
        let known = || {
            TEXTS.with_borrow(|texts| {
                texts.iter().flatten().map(|(text, _)| text.to_string()).collect::<Vec<_>>()
            })
        };
        let is_known = |text: &str| Rc::ptr_eq(&Words::again(text), &Words::again(text));
        let ended = std::panic::catch_unwind(|| {
            Words::remembering(|| {
                (0..TEXTS_REMEMBERED + 3).for_each(|n| drop(Words::again(&format!("text {n}"))));
                let long = "word ".repeat(TEXT_REMEMBERED_BYTES_MAX);
                assert_eq!(Words::again(&long).stems(), Words::of(&long).stems());
                let last =
                    (3..TEXTS_REMEMBERED + 3).map(|n| format!("text {n}")).collect::<Vec<_>>();
                assert!(known() == last && is_known("text 3"));
                assert!(Words::remembering(|| known().is_empty() && is_known("a part's")));
                assert_eq!(known(), last);
                panic!("it failed");
            })
        });
        assert_eq!(ended.expect_err("it panics").downcast_ref(), Some(&"it failed"));
        assert!(Words::are_forgotten() && !is_known("text 3") && known().is_empty());
    }

    #[test]
    fn stems_come_apart_as_they_were_put_together() {
        for stems in [&[][..], &[""], &["tea"], &["", "tea", "", "茶"]] {
            let together: Stems = stems.iter().collect();
            assert_eq!(
                (together.iter().collect::<Vec<_>>(), together.len(), together.is_empty()),
                (stems.to_vec(), stems.len(), stems.is_empty())
            );
            assert_eq!(together.and(&together).iter().collect::<Vec<_>>(), [stems, stems].concat());
        }
    }

    /// Words of other languages among them, where English took them in.
    const SAID: [&str; 16] = [
        "moving",
        "Lisbon",
        "kindergarten",
        "allergies",
        "restaurant",
        "Caroline",
        "schedule",
        "running",
        "piano",
        "data",
        "angst",
        "pasta",
        "meetings",
        "2024",
        "don't",
        "siesta",
    ];

    proptest! {
        #[test]
        fn english_is_read_as_it_always_was(
            parts in prop::collection::vec((prop::sample::select(&["the", "I", "was", "my", "because", "with"][..]), prop::sample::subsequence(&SAID[..], 0..3)), 2..30),
        ) {
            let text = parts.iter().map(|(stop, said)| format!("{stop} {}", said.join(" "))).collect::<Vec<_>>().join(", ");
            prop_assert_eq!(terms(&text), english(&text).iter().collect());
        }

        #[test]
        fn a_text_that_was_read_lately_has_the_words_it_has(asked in prop::collection::vec((0..12usize, prop::option::of(0..3usize)), 1..60)) {
            let languages: Vec<Language> = [Language::ENGLISH].into_iter().chain(Language::others()).collect();
            Words::remembering(|| {
                for (n, language) in asked {
                    let text = format!("Gestern gingen {n} Freunde with the walking houses");
                    let (again, new) = (Words::again(&text), Words::of(&text));
                    prop_assert!(again.content().eq(new.content()));
                    prop_assert_eq!(again.language(), new.language());
                    let stems = |words: &Words| language.map_or_else(|| words.stems(), |n| words.stems_in(languages[n]));
                    prop_assert_eq!(stems(&again), stems(&new));
                }
                Ok(())
            })?;
        }

        #[test]
        fn any_text_has_the_same_terms_each_time_and_none_of_them_is_empty(
            text in "(\\PC|[a-zäöüßñéçğşıåøőțà]{1,9} |[α-ω]{1,7} |[а-я]{1,7} |[ء-ي]{1,7} |[அ-்]{1,5} |[一-丰ぁ-んァ-ー가-갏]{1,6}|[ก-์]{1,8}|\n){0,60}",
        ) {
            let found = terms(&text);
            prop_assert_eq!(&found, &terms(&text));
            prop_assert!(found.iter().all(|term| !term.is_empty() && !term.contains(char::is_whitespace) && !term.contains(char::is_control)), "{:?}", found);
            prop_assert!(Words::of(&text).searched(|| Ok::<_, Infallible>(Language::others().collect())).unwrap().len() >= found.len());
        }
    }
}
