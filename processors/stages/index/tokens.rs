//! A document as one string, and that string as terms again. Handed to tantivy as a list of tokens, each document would be written as JSON
//! and parsed once more on the way to its writer, which is most of what indexing it costs.

use super::Document;
use crate::domain::UserKey;
use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// The tokenizer's name in the schema.
pub const KEYED: &str = "keyed";

/// No name holds a control character, and no stem: a key ends where this begins, and so does a stem.
const SEPARATOR: char = '\u{1f}';

/// A stem as another user cannot spell it.
pub fn spelled(key: &UserKey, stem: &str) -> String {
    format!("{key}{SEPARATOR}{stem}")
}

/// The key, then the stems.
pub fn joined(document: &Document) -> String {
    let stems: usize = document.terms().iter().map(|stem| stem.len() + SEPARATOR.len_utf8()).sum();
    let mut text = String::with_capacity(document.key.as_str().len() + stems);
    text.push_str(document.key.as_str());
    for stem in document.terms() {
        text.push(SEPARATOR);
        text.push_str(stem);
    }
    text
}

/// Every stem with the user's key before it, and the key alone, whose postings are the list of the user's documents.
#[derive(Clone, Default)]
pub struct Keyed {
    token: Token,
}

pub struct Tokens<'t> {
    token: &'t mut Token,
    /// The key, a separator behind it from the second token on.
    prefix_bytes: usize,
    rest: std::str::Split<'t, char>,
    begun: bool,
}

impl Tokenizer for Keyed {
    type TokenStream<'t> = Tokens<'t>;

    fn token_stream<'t>(&'t mut self, text: &'t str) -> Tokens<'t> {
        self.token.reset();
        Tokens { token: &mut self.token, prefix_bytes: 0, rest: text.split(SEPARATOR), begun: false }
    }
}

impl TokenStream for Tokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(next) = self.rest.next() else { return false };
        if self.begun {
            self.token.position = self.token.position.wrapping_add(1);
            if self.prefix_bytes == 0 {
                self.token.text.push(SEPARATOR);
                self.prefix_bytes = self.token.text.len();
            }
            self.token.text.truncate(self.prefix_bytes);
        } else {
            self.begun = true;
            self.token.position = 0;
        }
        self.token.text.push_str(next);
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;
    use crate::domain::{MemoryId, Position};

    fn tokens_of(terms: &[&str]) -> Vec<String> {
        let key = UserKey::new("acme", "ana b").unwrap();
        let id = MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: 1 }, 0);
        let own = terms.iter().map(|term| (*term).to_owned()).collect();
        let text = joined(&Document::new(id, key, Text { own, ..Text::default() }));
        let (mut keyed, mut found) = (Keyed::default(), Vec::new());
        keyed.token_stream(&text).process(&mut |token| found.push(token.text.clone()));
        found
    }

    #[test]
    fn every_stem_comes_with_its_users_key_and_the_key_comes_alone() {
        assert_eq!(tokens_of(&[]), ["acme/ana b"]);
        let key = UserKey::new("acme", "ana b").unwrap();
        assert_eq!(
            tokens_of(&["berlin", "", "flat"]),
            ["acme/ana b".into(), spelled(&key, "berlin"), spelled(&key, ""), spelled(&key, "flat")]
        );
    }
}
