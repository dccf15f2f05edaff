//! Lists the stems that say nothing of what a statement is about. The words are data, in `generic.txt`.

use crate::text;
use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Stems that two statements may share without being about the same thing: everyday words, units, days, and other languages' function
/// words.
pub fn is_generic(stem: &str) -> bool {
    GENERIC.contains(stem)
}

static GENERIC: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    include_str!("generic.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(text::stem)
        .collect()
});
