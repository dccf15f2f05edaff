//! Ranks memories by recency, uses and confidence, and renders Talome's section for the system
//! prompt.
//!
//!   prompt  all memories of the user, whatever the question
//!   tool    those that have a word of the question; the recall tool searches

use crate::shared::{self, best_first, days_since_access, held, summed};
use domain::{Purpose, Time};
use kernel::ranking::{Hit, Question, Ranked};
use policies::rank::frame::{Frame, one_line};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    pub recency: f32,
    /// Weight of the natural logarithm of uses + 1, so that 100 uses score little more than 50.
    pub access: f32,
    pub confidence: f32,
    pub recency_half_life_days: f32,
    /// Added to a correction.
    pub correction: f32,
    /// Weight of the words in common with the question, in a search by the tool.
    pub text: f32,
    pub top: usize,
}

const CORRECTION: &str = "correction";
/// Corrections, beside the kinds that rule in a template.
pub(super) const RULING_KINDS: [&str; 3] = [CORRECTION, "instruction", "preference"];

pub fn ranked(rank: &Rank, mut hits: Vec<Hit>, question: &Question, at: Time) -> Vec<Ranked> {
    let is_search = question.purpose == Purpose::Tool && !question.is_blank;
    if is_search {
        hits.retain(|hit| hit.own.words > 0.0);
    }
    let words_most = hits.iter().map(|hit| hit.own.words).fold(f32::MIN_POSITIVE, f32::max);
    let scored = hits.into_iter().map(|hit| {
        let words = if is_search { hit.own.words / words_most } else { 0.0 };
        let memory = hit.memory;
        // Under this profile no feedback moves `fresh_at`: it is the time of creation or update.
        let half_lives =
            days_since_access(&memory, at) / rank.recency_half_life_days.max(f32::MIN_POSITIVE);
        let correction = held(memory.kind.as_str() == CORRECTION);
        let parts = [
            ("text", rank.text * words),
            ("recency", rank.recency * (-half_lives).exp2()),
            ("access", rank.access * (memory.uses as f32).ln_1p()),
            ("confidence", rank.confidence * memory.confidence),
            ("correction", rank.correction * correction),
        ];
        summed(memory, question, &parts)
    });
    best_first(scored.collect())
}

pub(super) fn frame() -> Frame<'static> {
    shared::frame("## What I Remember About You\n\n", write)
}

fn write(one: &Ranked) -> String {
    format!("- {}\n", one_line(&one.memory.content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::samples::{shipped_gate, shipped_rank};
    use crate::talome::Talome;
    use domain::{Kind, Memory, Recall, UnsetFields};
    use kernel::Policy;
    use policies::rank::samples::{MemoryMut as _, ask, hit, nothing, recall, room};

    const DAY: i64 = 86_400_000;
    const NOW: Time = Time(1_000 * DAY);

    fn policy(rank: Rank) -> Talome {
        let gate = shipped_gate("talome");
        Talome::new(gate, rank)
    }

    fn rank() -> Rank {
        shipped_rank("talome")
    }

    fn of(number: u32, content: &str, edit: impl FnOnce(&mut Memory)) -> Hit {
        let mut hit = hit(number, content, 0.0, 0.0);
        hit.memory_mut().fresh_at = NOW;
        edit(hit.memory_mut());
        hit
    }

    fn order_of(hits: &[Hit]) -> Vec<Ranked> {
        let none = nothing();
        let question = Question { purpose: Purpose::Prompt, ..ask("whatever", &none) };
        policy(rank()).rank(hits.to_vec(), &question, NOW).ranked
    }

    /// Holds talome 8, 17.
    #[test]
    fn the_score_is_recency_and_the_logarithm_of_uses_and_confidence() {
        let hits = [of(1, "a", |memory| {
            (memory.uses, memory.confidence, memory.fresh_at) = (7, 0.8, Time(NOW.0 - 30 * DAY))
        })];
        let rank = rank();
        let expected = rank.recency * 0.5 + rank.access * 8f32.ln() + rank.confidence * 0.8;
        assert!((order_of(&hits)[0].score - expected).abs() < 1e-6);
    }

    /// Holds talome 19.
    #[test]
    fn used_100_times_scores_only_marginally_higher_than_used_50_times() {
        fn score(uses: u32) -> f32 {
            order_of(&[of(1, "a", |memory| memory.uses = uses)])[0].score
        }
        let (none, fifty, hundred) = (score(0), score(50), score(100));
        assert!(
            hundred > fifty && hundred - fifty < 0.2 * (fifty - none),
            "{none} {fifty} {hundred}"
        );
    }

    /// Holds talome 24.
    #[test]
    fn vectors_change_neither_what_is_found_nor_its_order() {
        let found = |purpose, cosines: [f32; 3]| -> Vec<(String, f32)> {
            let mut hits = vec![
                of(1, "used", |memory| memory.uses = 20),
                of(2, "plain", |_| ()),
                of(3, "unsure", |memory| memory.confidence = 0.8),
            ];
            for (hit, cosine) in hits.iter_mut().zip(cosines) {
                (hit.own.cosine, hit.own.words) = (cosine, 1.0);
            }
            let none = nothing();
            let question = Question { purpose, ..ask("fans", &none) };
            let ranked = policy(rank()).rank(hits, &question, NOW).ranked;
            ranked.into_iter().map(|one| (one.memory.content.clone(), one.score)).collect()
        };
        for purpose in [Purpose::Prompt, Purpose::Tool] {
            let without = found(purpose, [0.0; 3]);
            assert_eq!(without.len(), 3);
            assert_eq!(found(purpose, [-0.9, 0.1, 0.9]), without);
        }
    }

    #[test]
    fn newer_more_used_and_more_confident_memories_come_first() {
        let old = of(1, "old", |memory| memory.fresh_at = Time(NOW.0 - 90 * DAY));
        let fresh = of(2, "fresh", |_| ());
        let used = of(3, "used", |memory| memory.uses = 20);
        let unsure = of(4, "unsure", |memory| memory.confidence = 0.8);
        let contents: Vec<String> = order_of(&[old, unsure, fresh, used])
            .into_iter()
            .map(|one| one.memory.content.clone())
            .collect();
        assert_eq!(contents, ["used", "fresh", "unsure", "old"]);
    }

    /// Holds talome 9, 22.
    #[test]
    fn a_new_correction_comes_before_a_fact_that_was_used_four_times() {
        let used = of(1, "used", |memory| memory.uses = 4);
        let correction = of(2, "correction", |memory| memory.kind = Kind::new("correction"));
        assert_eq!(order_of(&[used, correction])[0].memory.content, "correction");
    }

    /// Holds talome 7, 26.
    #[test]
    fn the_tool_finds_memories_by_their_words_and_an_injection_takes_all() {
        fn found_by_words(number: u32, content: &str, words: f32, uses: u32) -> Hit {
            let mut hit = of(number, content, |memory| memory.uses = uses);
            hit.own.words = words;
            hit
        }
        let hits = vec![
            found_by_words(1, "best", 4.0, 2),
            found_by_words(2, "half", 2.0, 1),
            found_by_words(3, "other", 0.0, 100),
        ];
        let none = nothing();
        let found = |purpose, query| -> Vec<String> {
            let question = Question { purpose, ..ask(query, &none) };
            let ranked = policy(rank()).rank(hits.clone(), &question, NOW).ranked;
            ranked.into_iter().map(|one| one.memory.content.clone()).collect()
        };
        assert_eq!(found(Purpose::Tool, "q"), ["best", "half"]);
        assert_eq!(found(Purpose::Prompt, "q"), ["other", "best", "half"]);
        assert_eq!(found(Purpose::Tool, ""), ["other", "best", "half"], "nothing is asked");
    }

    /// Holds talome 18, 21.
    #[test]
    fn the_top_ten_are_returned_in_the_section_of_the_document() {
        let unsaid = UnsetFields { limit: true, format: true, ..UnsetFields::default() };
        let completed = policy(rank()).complete(&Recall { unsaid, ..recall("q") });
        assert_eq!((rank().top, completed.limit), (10, 10));
        let ranked = order_of(&[
            of(1, "User prefers Jellyfin over Plex", |_| ()),
            of(2, "Media\ndrive", |memory| memory.confidence = 0.5),
        ]);
        let block = policy(rank())
            .render(&ranked, &room(100, &|text| text.len()))
            .expect("this policy renders a block of its own");
        assert_eq!(
            block.text,
            "## What I Remember About You\n\n- User prefers Jellyfin over Plex\n- Media drive\n"
        );
    }
}
