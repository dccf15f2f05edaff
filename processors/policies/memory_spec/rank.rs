//! Ranks memories by the specification's retrieval and renders its `<memory>` block.
//!
//!   1. Take the `top_k · 4` nearest memories by cosine, and all procedural ones.
//!   2. Leave out memories with too little importance.
//!   3. Put procedural memories first, each group in the order of its score.

use crate::rank::frame::{Frame, bare, one_line};
use crate::shared::{best_first, summed};
use memory::ranking::{Hit, Question, Ranked};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    /// Memories in an answer.
    pub top_k: usize,
    /// Candidates per memory in an answer.
    pub candidates_factor: usize,
    pub importance_min: f32,
    /// Turns on the weighted blend, the specification's fallback without a cross-encoder. This
    /// policy has no cross-encoder.
    pub reranker: bool,
    pub blend_cosine: f32,
    pub blend_importance: f32,
}

const PROCEDURAL: &str = "procedural";

/// Orders the hits. Procedural memories are always included, because the specification keeps them
/// in a table of their own; the others must be among the nearest.
pub fn ranked(rank: &Rank, hits: Vec<Hit>, question: &Question) -> Vec<Ranked> {
    let (procedural, mut others): (Vec<_>, Vec<_>) =
        hits.into_iter().partition(|hit| hit.memory.kind.as_str() == PROCEDURAL);
    others
        .sort_by(|a, b| b.own.cosine.total_cmp(&a.own.cosine).then(a.memory.id.cmp(&b.memory.id)));
    others.truncate(question.limit.saturating_mul(rank.candidates_factor));
    [procedural, others]
        .map(|mut hits| {
            hits.retain(|hit| hit.memory.importance >= rank.importance_min);
            best_first(hits.into_iter().map(|hit| scored(rank, hit, question)).collect())
        })
        .concat()
}

fn scored(rank: &Rank, hit: Hit, question: &Question) -> Ranked {
    let blend = [
        ("cosine", rank.blend_cosine * hit.own.cosine),
        ("importance", rank.blend_importance * hit.memory.importance),
    ];
    let parts = if rank.reranker { &blend[..] } else { &[("cosine", hit.own.cosine)] };
    summed(hit.memory, question, parts)
}

pub(super) fn frame() -> Frame<'static> {
    Frame {
        opening: "<memory>\n",
        headings: &[],
        between: "",
        closing: "</memory>\n",
        write: Box::new(write),
        section,
        shares: &[],
    }
}

fn section(one: &Ranked) -> u8 {
    u8::from(one.memory.kind.as_str() != PROCEDURAL)
}

fn write(one: &Ranked) -> String {
    let kind = escaped(&bare(one.memory.kind.as_str())).to_uppercase();
    format!("[{kind}] {}\n", escaped(&one_line(&one.memory.content)))
}

/// Escapes the signs with which a memory could end the `<memory>` block.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_spec::MemorySpec;
    use crate::rank::samples::{MemoryMut as _, ask, hit, nothing, recall, shipped};
    use domain::{Kind, Recall, Time, UnsetFields};
    use memory::Policy;

    fn policy(rank: Rank) -> MemorySpec {
        let gate = crate::shared::samples::shipped("memory-spec");
        MemorySpec { gate, rank }
    }

    fn rank() -> Rank {
        shipped("memory-spec")
    }

    fn of(number: u32, kind: &str, content: &str, cosine: f32) -> Hit {
        let mut hit = hit(number, content, 0.0, cosine);
        hit.memory_mut().kind = Kind::new(kind);
        hit
    }

    fn contents(rank: Rank, hits: &[Hit], limit: usize) -> Vec<String> {
        let none = nothing();
        let ranked = policy(rank)
            .rank(hits.to_vec(), &Question { limit, ..ask("q", &none) }, Time(0))
            .ranked;
        ranked.into_iter().map(|one| one.memory.content.clone()).collect()
    }

    #[test]
    fn nearest_first_but_procedural_memories_before_all_others_however_far() {
        let hits = [
            of(1, "semantic", "near", 0.9),
            of(2, "episodic", "nearer", 0.95),
            of(3, "procedural", "be brief", -0.2),
        ];
        assert_eq!(contents(rank(), &hits, 5), ["be brief", "nearer", "near"]);
        assert_eq!(contents(rank(), &hits, 2), ["be brief", "nearer"]);
    }

    #[test]
    fn importance_below_0_2_is_left_out() {
        fn with(importance: f32) -> usize {
            let mut hit = of(1, "semantic", "tea", 0.9);
            hit.memory_mut().importance = importance;
            contents(rank(), &[hit], 5).len()
        }
        assert_eq!((with(0.19), with(0.2), rank().importance_min), (0, 1, 0.2));
    }

    #[test]
    fn four_times_top_k_candidates_make_up_for_those_that_are_filtered_out() {
        let hits: Vec<Hit> = (0..10)
            .map(|number| {
                let mut hit =
                    of(number, "semantic", &number.to_string(), 1.0 - number as f32 / 100.0);
                hit.memory_mut().importance = if number < 8 { 0.1 } else { 0.5 };
                hit
            })
            .collect();
        assert_eq!(rank().candidates_factor, 4);
        assert_eq!(
            contents(rank(), &hits, 2),
            [] as [&str; 0],
            "the eight nearest were all unimportant"
        );
        assert_eq!(contents(rank(), &hits, 3), ["8", "9"]);
    }

    #[test]
    fn without_a_cross_encoder_the_blend_stands_in_for_it() {
        let mut important = of(1, "semantic", "important", 0.6);
        important.memory_mut().importance = 1.0;
        let hits = [important, of(2, "semantic", "near", 0.7)];
        assert_eq!(contents(rank(), &hits, 5), ["near", "important"]);
        assert_eq!(contents(Rank { reranker: true, ..rank() }, &hits, 5), ["important", "near"]);
        assert!(!rank().reranker, "off by default");
    }

    #[test]
    fn five_within_2000_tokens_are_the_defaults() {
        let recall =
            Recall { limit: 99, unsaid: UnsetFields { limit: true, format: true }, ..recall("q") };
        assert_eq!((policy(rank()).complete(&recall).limit, recall.token_budget), (5, 2000));
    }

    #[test]
    fn the_block_is_that_of_the_document() {
        let hits = [
            of(
                1,
                "semantic",
                "User is a backend engineer specializing in Python and PostgreSQL.",
                0.9,
            ),
            of(
                2,
                "semantic",
                "User is building a SaaS product with FastAPI and Stripe integration.",
                0.8,
            ),
            of(3, "procedural", "Communication style: direct, technical, no preamble.", 0.1),
            of(4, "episodic", "2024-01-20: Discussed </memory> migration.", 0.7),
        ];
        let ranked = policy(rank()).rank(hits.to_vec(), &ask("q", &nothing()), Time(0)).ranked;
        let block = |budget| {
            policy(rank())
                .render(&ranked, budget, &|text| text.split_whitespace().count())
                .expect("this policy renders a block of its own")
        };
        assert_eq!(
            block(100).text,
            "<memory>\n\
             [PROCEDURAL] Communication style: direct, technical, no preamble.\n\
             [SEMANTIC] User is a backend engineer specializing in Python and PostgreSQL.\n\
             [SEMANTIC] User is building a SaaS product with FastAPI and Stripe integration.\n\
             [EPISODIC] 2024-01-20: Discussed &lt;/memory&gt; migration.\n\
             </memory>\n"
        );
        assert_eq!(
            block(17).taken,
            [0, 3],
            "a memory that does not fit is skipped, and a later one that fits is taken"
        );
    }
}
