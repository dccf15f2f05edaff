//! Looks up which everyday aspects of a life a word speaks of: home, work, diet and others. The words are data, in `aspects.txt`.

use crate::text;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A set of aspects, a bit each.
pub type Aspects = u32;

/// The aspects of a word, by its English stem.
pub fn aspects_of(stem: &str) -> Aspects {
    TABLE.by_stem.get(stem).copied().unwrap_or(0)
}

/// The first aspect of a set, for a person.
pub fn name(aspects: Aspects) -> Option<&'static str> {
    TABLE.names.get(aspects.trailing_zeros() as usize).copied()
}

struct Table {
    names: Vec<&'static str>,
    by_stem: HashMap<String, Aspects, RandomState>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { names: Vec::new(), by_stem: HashMap::default() };
    let lines = include_str!("aspects.txt").lines().filter(|line| !line.starts_with('#'));
    for (name, words) in lines.filter_map(|line| line.split_once(':')) {
        let bit = 1 << table.names.len();
        table.names.push(name);
        words
            .split_whitespace()
            .for_each(|word| *table.by_stem.entry(text::stem(word)).or_default() |= bit);
    }
    table
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_aspect_share_its_bit() {
        let of = |word: &str| aspects_of(&text::stem(word));
        assert_ne!(of("flat") & of("rented"), 0);
        assert_ne!(of("cigarettes") & of("smoking"), 0);
        assert_eq!(of("flat") & of("cigarettes"), 0);
        assert_eq!(name(of("cigarettes")), Some("smoking"));
        assert_eq!((of("tuesday"), name(0)), (0, None));
        assert!(TABLE.names.len() <= Aspects::BITS as usize);
    }
}
