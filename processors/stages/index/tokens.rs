//! A document as one string, and that string as terms again. Handed to tantivy as a list of tokens, each document would be written as JSON
//! and parsed once more on the way to its writer, which is most of what indexing it costs.

use super::document::Text;
use crate::domain::UserKey;
use crate::text::Stems;
use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// The tokenizer's name in the schema.
pub const KEYED: &str = "keyed";

/// No name holds a control character, and no stem: a key ends where this begins, and so does a stem.
const SEPARATOR: char = Stems::SEPARATOR;
/// Between two separators: what follows stands in the next place.
const NEXT_PLACE: &str = "\u{1e}";

/// A stem as another user cannot spell it.
pub fn spelled(key: &UserKey, stem: &str) -> String {
    format!("{key}{SEPARATOR}{stem}")
}

/// The key, then the stems place by place, then the speaker and the language.
pub fn joined(key: &UserKey, text: &Text) -> String {
    let mut joined = key.as_str().to_owned();
    for place in text.places() {
        joined.push_str(place.joined());
        joined.push(SEPARATOR);
        joined.push_str(NEXT_PLACE);
    }
    for term in text.told() {
        joined.push(SEPARATOR);
        joined.push_str(&term);
    }
    joined
}

/// Every stem with the user's key before it, and the key alone, whose postings are the list of the user's documents. A token's position
/// is the place it stands in: one term a stem, however many places have it, since a term costs far more than a position.
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
        Tokens {
            token: &mut self.token,
            prefix_bytes: 0,
            rest: text.split(SEPARATOR),
            begun: false,
        }
    }
}

impl TokenStream for Tokens<'_> {
    fn advance(&mut self) -> bool {
        let Some(mut next) = self.rest.next() else { return false };
        if !self.begun {
            self.begun = true;
            self.token.position = 0;
            self.token.text.push_str(next);
            return true;
        }
        while next == NEXT_PLACE {
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

    fn tokens_of(text: Text) -> Vec<(usize, String)> {
        let key = UserKey::new("acme", "ana b").unwrap();
        let text = joined(&key, &text);
        let (mut keyed, mut found) = (Keyed::default(), Vec::new());
        keyed
            .token_stream(&text)
            .process(&mut |token| found.push((token.position, token.text.clone())));
        found
    }

    fn stems(stems: &[&str]) -> Stems {
        stems.iter().collect()
    }

    #[test]
    fn every_stem_comes_with_its_users_key_and_the_key_comes_alone() {
        assert_eq!(tokens_of(Text::default()), [(0, "acme/ana b".into())]);
        let spelled = |stem| spelled(&UserKey::new("acme", "ana b").unwrap(), stem);
        assert_eq!(
            tokens_of(Text { own: stems(&["berlin", "", "flat"]), ..Text::default() }),
            [
                (0, "acme/ana b".into()),
                (0, spelled("berlin")),
                (0, spelled("")),
                (0, spelled("flat"))
            ]
        );
    }

    #[test]
    fn the_same_stem_in_another_place_is_the_same_term_at_another_position() {
        let text = Text {
            own: stems(&["flat"]),
            before: stems(&["flat", "rent"]),
            after: stems(&["flat"]),
            speaker: Some("ana".into()),
            ..Text::default()
        };
        let spelled = |stem| spelled(&UserKey::new("acme", "ana b").unwrap(), stem);
        let expected = [(0, "flat"), (1, "flat"), (1, "rent"), (3, "flat"), (4, "\u{4}ana")];
        assert_eq!(tokens_of(text)[1..], expected.map(|(place, stem)| (place, spelled(stem))));
    }
}
