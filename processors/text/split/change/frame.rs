//! Recognises the same sentence with another value ("The launch is on 3 May." and "The launch is on
//! 10 May.") or with the opposite opinion ("I like coffee." and "I hate coffee.").
//!
//! 1. Leave out the words that only announce a change ("actually", "now"), and a denied value at the
//!    end ("…, not 3000").
//! 2. Compare from the front and from the back. What differs is one place of at most three words.
//! 3. This place is a value if the sentence says what is (see `STATES`) and both places have a number, a day
//!    or a name. A deed has no value: "I ran 5 km" and "I ran 7 km" are both true.

/// Longer statements say more than one thing.
const WORDS_MAX: usize = 14;
const DIFFERING_MAX: usize = 3;

const ANNOUNCING: [&str; 10] = [
    "actually",
    "now",
    "instead",
    "sorry",
    "correction",
    "wait",
    "update",
    "currently",
    "again",
    "from",
];
/// Words of a statement about what is, and not about what happened.
const STATES: [&str; 40] = [
    "is", "are", "am", "it's", "i'm", "uses", "use", "takes", "take", "costs", "cost", "starts",
    "start", "begins", "ends", "opens", "closes", "lasts", "pay", "pays", "weigh", "weighs",
    "needs", "need", "prefer", "prefers", "leaves", "departs", "arrives", "live", "lives", "earn",
    "earns", "charge", "charges", "called", "listens", "deploy", "meet", "work",
];
const LIKES: [&str; 7] = ["like", "love", "enjoy", "adore", "likes", "loves", "enjoys"];
const DISLIKES: [&str; 7] = ["hate", "dislike", "despise", "loathe", "detest", "hates", "dislikes"];
/// Names of people who eat no meat, kinds of meat, and verbs of eating.
const PLANTS: [&str; 4] = ["vegetarian", "vegan", "vegetarisch", "végétarien"];
const MEATS: [&str; 8] =
    ["meat", "steak", "beef", "chicken", "pork", "bacon", "burgers", "fleisch"];
const EATS: [&str; 4] = ["eat", "eating", "esse", "mange"];

/// The words of a short statement, in lower case; empty for a longer one.
#[derive(Default)]
pub struct Frame {
    words: Vec<String>,
    /// For each word: a number, a day, a month, or capitalised in a sentence.
    names_value: Vec<bool>,
}

/// Returns the place of the words with which a denied value begins: ", not 3000".
fn denied_at(text: &str) -> usize {
    let denial = text.rfind(", not ").filter(|at| text[*at..].split_whitespace().count() <= 4);
    denial.unwrap_or(text.len())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    Value,
    Opinion,
}

impl Frame {
    /// `is_value` recognises numbers and days.
    pub fn of(text: &str, is_value: impl Fn(&str) -> bool) -> Frame {
        let mut frame = Frame::default();
        let mut is_start = true;
        for written in text[..denied_at(text)].split_whitespace() {
            let bare = written.trim_matches(|c: char| !c.is_alphanumeric());
            let word = bare.to_lowercase();
            if bare.is_empty() || ANNOUNCING.contains(&word.as_str()) {
                continue;
            }
            let is_name = !is_start && bare.starts_with(char::is_uppercase) && word != "i";
            frame.names_value.push(is_name || is_value(&word));
            frame.words.push(word);
            is_start = written.ends_with(['.', '!', '?', ':']);
            if frame.words.len() > WORDS_MAX {
                return Frame::default();
            }
        }
        frame
    }

    /// True if the statement may differ from another in a value or an opinion.
    pub fn may_differ(&self) -> bool {
        self.has(&LIKES)
            || self.has(&DISLIKES)
            || self.has(&EATS) && self.has(&MEATS)
            || self.has(&STATES) && self.names_value.iter().any(|is_value| *is_value)
    }

    fn has(&self, list: &[&str]) -> bool {
        self.words.iter().any(|word| list.contains(&word.as_str()))
    }
}

/// Returns the difference between a newer statement and an earlier one that are otherwise the same.
/// `is_corrected`: the newer one says that it corrects, so that any other word is another value.
pub fn difference(old: &Frame, new: &Frame, is_corrected: bool) -> Option<Difference> {
    let is_diet = old.has(&PLANTS) && new.has(&EATS) && new.has(&MEATS) && !new.has(&["not", "no"]);
    if is_diet && old.has(&["i'm", "i", "ich", "je"]) && new.has(&["i", "i'm", "ich", "je"]) {
        return Some(Difference::Opinion);
    }
    let front = old.words.iter().zip(&new.words).take_while(|(a, b)| a == b).count();
    let (old_rest, new_rest) = (&old.words[front..], &new.words[front..]);
    let back = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let differing = [old_rest.len() - back, new_rest.len() - back];
    if front + back < 2 || differing.iter().any(|words| !(1..=DIFFERING_MAX).contains(words)) {
        return None;
    }
    let places = [front..old.words.len() - back, front..new.words.len() - back];
    if let ([a], [b]) = (&old.words[places[0].clone()], &new.words[places[1].clone()]) {
        let [a, b] = [a.as_str(), b.as_str()];
        if LIKES.contains(&a) && DISLIKES.contains(&b)
            || DISLIKES.contains(&a) && LIKES.contains(&b)
        {
            return Some(Difference::Opinion);
        }
    }
    let mut shared = old.words[..front].iter().chain(&old.words[old.words.len() - back..]);
    let says_what_is = shared.clone().any(|word| STATES.contains(&word.as_str()));
    let has_subject = shared
        .any(|word| !STATES.contains(&word.as_str()) && !crate::is_stop_word(word))
        || is_corrected;
    let are_values = old.names_value[places[0].clone()].contains(&true)
        && new.names_value[places[1].clone()].contains(&true);
    (says_what_is && has_subject && (are_values || is_corrected)).then_some(Difference::Value)
}
