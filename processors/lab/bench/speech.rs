//! Generates chat for benchmarks: statements about a life, and questions about them, from the
//! templates and word lists of `speech.toml`. The same seed gives the same texts in every run.

use serde::Deserialize;
use std::collections::HashMap;
use std::sync::LazyLock;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatLists {
    statements: Vec<String>,
    remarks: Vec<String>,
    questions: Vec<String>,
    /// By class.
    words: HashMap<String, Vec<String>>,
}

static LISTS: LazyLock<ChatLists> = LazyLock::new(|| {
    toml::from_str(include_str!("speech.toml")).expect("it is compiled in, and the tests read it")
});

/// Generator of texts.
pub struct ChatGenerator {
    state: u64,
}

impl ChatGenerator {
    pub fn new(seed: u64) -> ChatGenerator {
        ChatGenerator { state: seed }
    }

    /// Returns one statement of about 12 words.
    pub fn statement(&mut self) -> String {
        let template = self.pick(&LISTS.statements);
        self.filled(template)
    }

    /// Returns about 25 words, as long as a turn of a chat between friends.
    pub fn turn(&mut self) -> String {
        let template = self.pick(&LISTS.remarks);
        format!("{} {}", self.statement(), self.filled(template))
    }

    pub fn question(&mut self) -> String {
        let template = self.pick(&LISTS.questions);
        self.filled(template)
    }

    /// Replaces each `{class}` of a template by a random word of that class.
    fn filled(&mut self, template: &str) -> String {
        let mut text = String::new();
        let mut rest = template;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            text.push_str(before);
            text.push_str(self.pick(&LISTS.words[name]));
            rest = after;
        }
        text + rest
    }

    fn pick(&mut self, from: &'static [String]) -> &'static str {
        &from[self.next() as usize % from.len()]
    }

    /// Returns the next number of [SplitMix64](https://prng.di.unimi.it/splitmix64.c).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_the_same_texts_again_and_hardly_repeats_one() {
        assert_eq!(turns(1), turns(1));
        assert_ne!(turns(1), turns(2));
        assert!(turns(1).iter().collect::<BTreeSet<_>>().len() > 990);
    }

    fn turns(seed: u64) -> Vec<String> {
        let mut speech = ChatGenerator::new(seed);
        (0..1000).map(|_| speech.turn()).collect()
    }

    #[test]
    fn every_gap_is_filled_and_a_turn_has_about_25_words() {
        let mut speech = ChatGenerator::new(7);
        let mut words = 0;
        for _ in 0..1000 {
            let turn = speech.turn();
            let text = format!("{turn} {}", speech.question());
            assert!(!text.contains(['{', '}']) && !text.contains("  "), "{text}");
            words += turn.split(' ').count();
        }
        assert!((25..=32).contains(&(words / 1000)), "{}", words / 1000);
    }
}
