//! Lists stems that are too common to identify the subject of a statement. The words are data, in
//! `generic.txt`.

use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Returns true for everyday words, units, days, and the function words of other languages. Two
/// statements may share such a stem without being about the same thing.
pub fn is_generic(stem: &str) -> bool {
    GENERIC.contains(stem)
}

static GENERIC: LazyLock<HashSet<String, RandomState>> = LazyLock::new(|| {
    include_str!("generic.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .map(crate::stem)
        .collect()
});
