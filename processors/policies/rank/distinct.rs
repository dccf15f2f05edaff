//! Drops repeated memories, and summaries that repeat the memories above them.

use domain::{Memory, Role};
use foldhash::fast::RandomState;
use kernel::ranking::Ranked;
use std::collections::HashSet;

/// Keeps the first of several memories with the same words of the same speaker, up to `limit`. An
/// old version stays beside a valid memory with the same words, which is of another time. A summary
/// beside its memories takes only a place that they leave, and only with something that they do not
/// say.
pub(super) fn keep_first_different(ranked: &mut Vec<Ranked>, limit: usize) {
    let mut seen: HashSet<(bool, Role, Option<&str>, &str), RandomState> = HashSet::default();
    let mut is_taken = vec![false; ranked.len()];
    for (place, Ranked { memory, superseded, .. }) in ranked.iter().enumerate() {
        let says = || (*superseded, memory.role, memory.speaker.as_deref(), memory.content.trim());
        is_taken[place] = !is_summary(memory) && seen.len() < limit && seen.insert(says());
    }
    let mut room = limit.saturating_sub(seen.len());
    let said: Vec<&str> = seen.iter().map(|(.., content)| *content).collect();
    for (place, Ranked { memory, .. }) in ranked.iter().enumerate() {
        if room > 0 && is_summary(memory) && !repeats(&memory.content, &said) {
            is_taken[place] = true;
            room -= 1;
        }
    }
    let mut is_taken = is_taken.into_iter();
    ranked.retain(|_| is_taken.next() == Some(true));
}

/// True for a summary beside the memories of its session. One that stands for them is marked.
pub fn is_summary(memory: &Memory) -> bool {
    !memory.covers.is_empty() && !memory.metadata.contains_key("compression_source")
}

/// True if half of the quotes of a summary, or more, are said by memories that stand above it.
fn repeats(summary: &str, said: &[&str]) -> bool {
    let quotes: Vec<&str> = summary.lines().map(|line| line.trim_end_matches('…').trim()).collect();
    let repeated = quotes.iter().filter(|quote| said.iter().any(|one| one.starts_with(**quote)));
    2 * repeated.count() >= quotes.len()
}
