//! Counts the tokens of a text, for comparison with a budget.
//!
//! A tokenizer of the BERT kind makes no token across a blank, so a text has as many tokens as its
//! words together. The counts of recent words are cached, because a recall counts the tokens of its
//! whole prompt block. Other tokenizers count the text as a whole.

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokenizers::{ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};

/// Words in the cache of one counter, a million bytes at most. A full cache is emptied: an order of
/// use would cost each word of each block more than a new count.
const WORDS_MAX: usize = 8192;
/// Longer words are seldom met again.
const WORD_BYTES_MAX: usize = 40;

/// The characters at which every tokenizer of the BERT kind divides a text. Some other blanks are
/// removed as control characters, which joins their neighbours.
const BLANKS: [char; 4] = [' ', '\n', '\t', '\r'];

/// Counts the tokens of a text. A clone has a cache of its own.
pub struct TokenCounter {
    tokenizer: Option<Arc<Tokenizer>>,
    /// The tokens of single words, if the tokenizer divides at every blank.
    words: Option<Mutex<HashMap<String, usize, RandomState>>>,
}

impl TokenCounter {
    /// Estimates four characters a token, which is usual for English.
    pub fn estimate() -> TokenCounter {
        TokenCounter { tokenizer: None, words: None }
    }

    pub fn of(tokenizer: Arc<Tokenizer>) -> TokenCounter {
        let words = divides_at_blanks(&tokenizer).then(Mutex::default);
        TokenCounter { tokenizer: Some(tokenizer), words }
    }

    /// Counts the tokens of the whole text, without special tokens.
    pub fn count(&self, text: &str) -> usize {
        let Some(words) = &self.words else { return self.count_whole(text) };
        let mut words = words.lock();
        let parts = text.split(BLANKS).filter(|part| !part.is_empty());
        parts.map(|part| self.count_word(part, &mut words)).sum()
    }

    fn count_word(&self, word: &str, known: &mut HashMap<String, usize, RandomState>) -> usize {
        if word.len() > WORD_BYTES_MAX {
            return self.count_whole(word);
        }
        if let Some(count) = known.get(word) {
            return *count;
        }
        let count = self.count_whole(word);
        if known.len() == WORDS_MAX {
            known.clear();
        }
        known.insert(word.to_owned(), count);
        count
    }

    fn count_whole(&self, text: &str) -> usize {
        let counted =
            self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.encode_fast(text, false).ok());
        counted.map_or_else(|| text.chars().count().div_ceil(4), |encoding| encoding.len())
    }
}

impl Clone for TokenCounter {
    fn clone(&self) -> TokenCounter {
        match &self.tokenizer {
            Some(tokenizer) => TokenCounter::of(tokenizer.clone()),
            None => TokenCounter::estimate(),
        }
    }
}

/// True if no token contains a blank or depends on the text beyond one.
fn divides_at_blanks(tokenizer: &Tokenizer) -> bool {
    let is_bert = matches!(tokenizer.get_model(), ModelWrapper::WordPiece(_))
        && matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_)))
        && matches!(tokenizer.get_normalizer(), None | Some(NormalizerWrapper::BertNormalizer(_)));
    let added = tokenizer.get_added_tokens_decoder();
    is_bert && !added.values().any(|token| token.content.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};
    use std::path::PathBuf;
    use std::sync::LazyLock;

    /// A tokenizer of the BERT kind whose words are a few letters, with one special token.
    fn bert(special: &str) -> Tokenizer {
        let pieces = ["[UNK]", "[MASK]", "a", "b", "ab", "##a", "##b", "e", "##e", ".", "東", "("];
        let ids: Map<String, Value> =
            (0..).zip(pieces).map(|(id, piece)| (piece.to_owned(), Value::from(id))).collect();
        let file = json!({
            "version": "1.0",
            "added_tokens": [{
                "id": pieces.len(), "content": special, "special": true, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false,
            }],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": true,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": ids,
            },
        });
        Tokenizer::from_bytes(file.to_string()).expect("a tokenizer")
    }

    /// Counters of this tokenizer and, where there is a model, of the real one.
    static COUNTERS: LazyLock<Vec<TokenCounter>> = LazyLock::new(|| {
        let model = std::env::var_os("KEEPSAKE_TEST_MODEL").map(PathBuf::from);
        let real = model.map(|model| {
            let mut read = Tokenizer::from_file(model.join("tokenizer.json")).expect("a tokenizer");
            read.with_padding(None).with_truncation(None).expect("needs neither");
            read
        });
        let all = [bert("[MASK]")].into_iter().chain(real);
        all.map(|tokenizer| TokenCounter::of(Arc::new(tokenizer))).collect()
    });

    proptest! {
        #[test]
        fn the_words_of_a_text_have_as_many_tokens_as_the_whole(
            text in "([ab éE.(東\u{301}\u{85}\u{a0}\u{3000}\u{200b}\n\t\r\u{0}]|\\[MASK\\]|[a-z]{38,42}){0,24}"
        ) {
            for counter in COUNTERS.iter() {
                let whole = counter.count_whole(&text);
                for time in 0..2 {
                    prop_assert_eq!(counter.count(&text), whole, "time {}", time);
                }
            }
        }
    }

    #[test]
    fn a_tokenizer_of_the_bert_kind_counts_by_word() {
        assert!(TokenCounter::of(Arc::new(bert("[MASK]"))).words.is_some());
    }

    #[test]
    fn a_tokenizer_with_a_token_across_a_blank_counts_the_whole_text() {
        let counter = TokenCounter::of(Arc::new(bert("a b")));
        assert!(counter.words.is_none());
        assert_eq!(counter.count("a b a"), 2);
    }
}
