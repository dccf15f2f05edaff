//! Writes a search document as one string and tokenizes that string into tantivy terms.
//!
//! ```text
//! joined:  tenant/user ␟ stem ␟ stem ␟ ␞ ␟ stem ␟ ␞ ␟ ␞ ␟ ␞ ␟ speaker
//!          key           own field       before  earlier  after  attributes
//! terms:   tenant/user            position 0    postings = all documents of the user
//!          tenant/user␟stem       position = number of the field, see `TextField`
//! ```
//!
//! The detour through a string is for speed: tantivy would write a list of tokens as JSON and parse
//! that JSON again on the way to its writer, which is most of the cost of indexing a document.

use super::document::SearchText;
use domain::UserKey;
use tantivy::tokenizer::{Token, TokenStream, Tokenizer};
use text::Stems;

/// The name of the tokenizer in the schema.
pub const KEYED: &str = "keyed";

/// Ends the key and each stem. No name holds a control character, and no stem does.
const SEPARATOR: char = Stems::SEPARATOR;
/// Stands between two separators; the stems that follow belong to the next field.
const NEXT_FIELD: &str = "\u{1e}";

/// The term of a stem for one user. Invariant: the term of one user cannot be spelled from the key
/// of another user.
pub fn user_term(key: &UserKey, stem: &str) -> String {
    format!("{key}{SEPARATOR}{stem}")
}

/// Sorts behind all terms of one user and not behind the bare key of the next: the space follows the
/// separator, and names hold no control character.
pub fn behind(key: &UserKey) -> String {
    format!("{key} ")
}

/// The key, then the stems field by field, then the speaker and the language.
pub fn joined(key: &UserKey, text: &SearchText) -> String {
    let mut joined = key.as_str().to_owned();
    for field in text.fields() {
        joined.push_str(field.joined());
        joined.push(SEPARATOR);
        joined.push_str(NEXT_FIELD);
    }
    for term in text.attribute_terms() {
        joined.push(SEPARATOR);
        joined.push_str(&term);
    }
    joined
}

/// Tokenizer for `joined` strings. Emits the key alone, whose postings list the user's documents,
/// then each stem with the key before. The position of a token is the number of its field: one term
/// for each stem, however many fields hold the stem, since a term costs far more than a position.
#[derive(Clone, Default)]
pub struct KeyedTokenizer {
    token: Token,
}

pub struct KeyedTokens<'t> {
    token: &'t mut Token,
    /// Length of the key, with the separator behind the key from the second token on.
    prefix_bytes: usize,
    rest: std::str::Split<'t, char>,
    begun: bool,
}

impl Tokenizer for KeyedTokenizer {
    type TokenStream<'t> = KeyedTokens<'t>;

    fn token_stream<'t>(&'t mut self, text: &'t str) -> KeyedTokens<'t> {
        self.token.reset();
        KeyedTokens {
            token: &mut self.token,
            prefix_bytes: 0,
            rest: text.split(SEPARATOR),
            begun: false,
        }
    }
}

impl TokenStream for KeyedTokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(mut next) = self.rest.next() else { return false };
        if !self.begun {
            self.begun = true;
            self.token.position = 0;
            self.token.text.push_str(next);
            return true;
        }
        while next == NEXT_FIELD {
            self.token.position = self.token.position.wrapping_add(1);
            let Some(behind) = self.rest.next() else { return false };
            next = behind;
        }
        if self.prefix_bytes == 0 {
            self.token.text.push(SEPARATOR);
            self.prefix_bytes = self.token.text.len();
        }
        self.token.text.truncate(self.prefix_bytes);
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
    use super::*;

    fn key() -> UserKey {
        UserKey::new("acme", "ana b").unwrap()
    }

    fn tokens_of(text: SearchText) -> Vec<(usize, String)> {
        let text = joined(&key(), &text);
        let mut found = Vec::new();
        KeyedTokenizer::default()
            .token_stream(&text)
            .process(&mut |token| found.push((token.position, token.text.clone())));
        found
    }

    fn stems(stems: &[&str]) -> Stems {
        stems.iter().collect()
    }

    #[test]
    fn every_stem_has_the_users_key_before_and_the_key_is_a_term_alone() {
        assert_eq!(tokens_of(SearchText::default()), [(0, "acme/ana b".into())]);
        assert_eq!(
            tokens_of(SearchText { own: stems(&["berlin", "", "flat"]), ..SearchText::default() }),
            [
                (0, "acme/ana b".into()),
                (0, user_term(&key(), "berlin")),
                (0, user_term(&key(), "")),
                (0, user_term(&key(), "flat"))
            ]
        );
    }

    #[test]
    fn the_same_stem_in_another_field_is_the_same_term_at_another_position() {
        let text = SearchText {
            own: stems(&["flat"]),
            before: stems(&["flat", "rent"]),
            after: stems(&["flat"]),
            speaker: Some("ana".into()),
            ..SearchText::default()
        };
        let expected = [(0, "flat"), (1, "flat"), (1, "rent"), (3, "flat"), (4, "\u{4}ana")];
        let expected = expected.map(|(field, stem)| (field, user_term(&key(), stem)));
        assert_eq!(tokens_of(text)[1..], expected);
    }
}
