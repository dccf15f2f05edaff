//! Looks up the everyday aspects of a life (home, work, diet, …) to which a word belongs.
//!
//! Two statements that share an aspect are more likely about the same thing: "flat" and "rented"
//! share `home`. The words are data, in `aspects.txt`, at most 32 aspects.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A set of aspects, one bit for each line of `aspects.txt`.
pub type Aspects = u32;

/// Returns the aspects of a word, given the English stem.
pub fn aspects_of(stem: &str) -> Aspects {
    TABLE.by_stem.get(stem).copied().unwrap_or(0)
}

/// Returns the name of the first aspect in a set, for display.
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
        for word in words.split_whitespace() {
            *table.by_stem.entry(crate::stem(word)).or_default() |= bit;
        }
    }
    table
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_aspect_share_a_bit() {
        let [flat, rented, cigarettes, smoking, tuesday] =
            ["flat", "rented", "cigarettes", "smoking", "tuesday"]
                .map(|word| aspects_of(&crate::stem(word)));
        assert_ne!(flat & rented, 0);
        assert_ne!(cigarettes & smoking, 0);
        assert_eq!(flat & cigarettes, 0);
        assert_eq!(name(cigarettes), Some("smoking"));
        assert_eq!((tuesday, name(0)), (0, None));
        assert!(TABLE.names.len() <= Aspects::BITS as usize);
    }
}
