//! Cuts the words of asking off the query of a `forget`: "forget the memory about using MongoDB"
//! means what has "using MongoDB" in it. English.

use regex::Regex;
use std::sync::LazyLock;

/// Only words of forgetting and of memory: "my notes about taxes" names notes, and cutting them off
/// would erase all that is said of taxes.
static ASKING: LazyLock<Regex> = LazyLock::new(|| {
    let fixed = concat!(
        r"(?i)^\W*(please\s+)?((forget|delete|remove|erase)\s+)?",
        r"((the|any|all|every|each|my|your|that|those)\s+)*",
        r"(memory|memories)\s+(about|that|of|on|regarding|where|which)\s+",
        r"|^\W*(please\s+)?(forget|remember(ed)?)\s+(that|about)\s+",
    );
    Regex::new(fixed).expect("a fixed pattern, compiled by the tests")
});

/// Returns the rest of the query, or all of it if nothing else is in it.
pub fn meant(query: &str) -> &str {
    let rest = ASKING.find(query).map_or(query, |asking| &query[asking.end()..]);
    if rest.chars().any(char::is_alphanumeric) { rest } else { query }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_asking_are_cut_off() {
        for (query, expected) in [
            ("Forget the memory about using MongoDB", "using MongoDB"),
            ("the memory about using MongoDB", "using MongoDB"),
            ("please delete all my memories of Ann", "Ann"),
            ("remember that we use MongoDB", "we use MongoDB"),
            ("forget that I live in Porto", "I live in Porto"),
            ("my notes about taxes", "my notes about taxes"),
            ("the memory about ", "the memory about "),
            ("a bad memory for faces", "a bad memory for faces"),
            ("MongoDB", "MongoDB"),
        ] {
            assert_eq!(meant(query), expected, "{query:?}");
        }
    }
}
