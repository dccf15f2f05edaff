//! Ranks memories by Lynkr's formula, 0.30 recency + 0.40 importance + 0.30 relevance, and renders
//! the document's section for the system prompt.

use crate::shared::{self, best_first, days_since_access, summed};
use domain::{Memory, Purpose, Time};
use kernel::ranking::{Hit, Question, Ranked};
use policies::rank::frame::{self, Frame, date, one_line};
use policies::rank::{Fade, recency as recency_of};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    /// Switches the whole memory, `MEMORY_ENABLED`.
    pub enabled: bool,
    /// If false, a recall that names a session finds only the memories of that session.
    pub include_global: bool,
    pub recency: f32,
    pub importance: f32,
    pub relevance: f32,
    /// Smallest cosine at which a memory without a word of the question is found.
    pub meaning: f32,
    /// Divisor in exp(−days since access / `recency_days`).
    pub recency_days: f32,
    pub limit: usize,
    pub limit_max: usize,
    pub format: Format,
    pub injection: Injection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Compact,
    Detailed,
}

/// Says where the caller places the block, and chooses its opening line: in the system prompt, or in
/// a message of the assistant before the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Injection {
    System,
    AssistantPreamble,
}

impl Injection {
    /// The place of the block, whatever the purpose of a recall.
    pub fn placement(self) -> fn(Purpose) -> Option<&'static str> {
        match self {
            Injection::System => |_| Some("system"),
            Injection::AssistantPreamble => |_| Some("assistant_preamble"),
        }
    }
}

impl Rank {
    /// Fails for a number of memories outside of the guide's range.
    pub fn check(&self) -> Result<(), String> {
        if (1..=self.limit_max).contains(&self.limit) {
            return Ok(());
        }
        let (limit, most) = (self.limit, self.limit_max);
        Err(format!("rank.rule.lynkr.limit: must be 1 to {most}, not {limit}"))
    }

    /// True if the memory may be in an answer to this session.
    fn includes(&self, memory: &Memory, question: &Question) -> bool {
        let is_of_session = memory.session.as_deref() == question.session;
        self.include_global || question.session.is_none() || is_of_session
    }
}

/// Scores the memories that have a word in common with the question, as a full-text search would
/// find them, and those that mean nearly the same. BM25 has no upper bound, so the best word score
/// counts as a relevance of 1; without a word the cosine is the relevance.
pub fn ranked(
    rank: &Rank,
    fade: &Fade,
    mut hits: Vec<Hit>,
    question: &Question,
    at: Time,
) -> Vec<Ranked> {
    hits.retain(|hit| rank.includes(&hit.memory, question));
    let best = hits.iter().map(|hit| hit.own.words).fold(0.0, f32::max);
    let is_found = |hit: &Hit| hit.own.words > 0.0 || hit.own.cosine >= rank.meaning;
    let found = hits.into_iter().filter(is_found);
    let scored = found.map(|hit| {
        let relevance = if hit.own.words > 0.0 { hit.own.words / best } else { hit.own.cosine };
        let recency =
            (-days_since_access(&hit.memory, at) / rank.recency_days.max(f32::MIN_POSITIVE)).exp();
        let parts = [
            ("recency", rank.recency * recency),
            (
                "importance",
                rank.importance * hit.memory.importance * recency_of(&hit.memory, fade, at),
            ),
            ("relevance", rank.relevance * relevance),
        ];
        summed(hit.memory, question, &parts)
    });
    best_first(scored.collect())
}

pub(super) fn frame(rank: &Rank) -> Frame<'static> {
    let opening = match rank.injection {
        Injection::System => "## Relevant Context from Previous Conversations\n\n",
        Injection::AssistantPreamble => "From our previous conversations I remember:\n\n",
    };
    shared::frame(
        opening,
        match rank.format {
            Format::Compact => compact,
            Format::Detailed => detailed,
        },
    )
}

fn compact(one: &Ranked) -> String {
    format!("- [{}] {}\n", label(one.memory.kind.as_str()), one_line(&one.memory.content))
}

/// Writes the compact line with the day and the importance. The document shows no detailed line.
fn detailed(one: &Ranked) -> String {
    let memory = &one.memory;
    let day = date(memory.created_at);
    let importance = memory.importance;
    format!(
        "- [{}] {} ({day}, importance {importance:.2})\n",
        label(memory.kind.as_str()),
        one_line(&memory.content)
    )
}

fn label(kind: &str) -> String {
    if kind == "preference" {
        return "User preference".to_owned();
    }
    let mut chars = frame::label(kind).chars().collect::<Vec<_>>();
    if let Some(first) = chars.first_mut() {
        *first = first.to_ascii_uppercase();
    }
    chars.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lynkr::Lynkr;
    use crate::shared::samples::{profile, shipped_gate, shipped_rank};
    use domain::{Kind, Recall, UnsetFields};
    use kernel::Policy;
    use policies::rank::samples::{MemoryMut as _, ask, hit, nothing, recall, room};

    const DAY: i64 = 86_400_000;
    const NOW: Time = Time(1_000 * DAY);

    fn policy(rank: Rank) -> Lynkr {
        let gate = shipped_gate("lynkr");
        let fade = profile("lynkr")["fade"].clone();
        Lynkr::new(gate, rank, fade.try_into().expect("[fade] parses"))
    }

    fn rank() -> Rank {
        shipped_rank("lynkr")
    }

    fn edited(number: u32, content: &str, words: f32, edit: impl FnOnce(&mut Memory)) -> Hit {
        let mut hit = hit(number, content, words, 0.0);
        hit.memory_mut().fresh_at = NOW;
        edit(hit.memory_mut());
        hit
    }

    fn scores(hits: &[Hit]) -> Vec<(String, f32)> {
        let ranked = policy(rank()).rank(hits.to_vec(), &ask("q", &nothing()), NOW).ranked;
        ranked.into_iter().map(|one| (one.memory.content.clone(), one.score)).collect()
    }

    /// Holds lynkr 17, 18.
    #[test]
    fn the_score_is_0_30_recency_0_40_importance_and_0_30_relevance() {
        let hits = [
            edited(1, "best", 8.0, |memory| memory.importance = 0.9),
            edited(2, "half", 4.0, |memory| {
                (memory.importance, memory.fresh_at) = (0.5, Time(NOW.0 - 30 * DAY))
            }),
            edited(3, "not found by a word", 0.0, |memory| memory.importance = 1.0),
        ];
        let found = scores(&hits);
        let expected = [
            ("best", 0.30 + 0.40 * 0.9 + 0.30),
            ("half", 0.30 * (-1f32).exp() + 0.40 * 0.5 * 0.5 + 0.30 * 0.5),
        ];
        assert_eq!(found.len(), expected.len());
        for ((content, score), (name, wanted)) in found.iter().zip(expected) {
            assert!(
                content == name && (score - wanted).abs() < 1e-6,
                "{content} {score}, not {name} {wanted}"
            );
        }
    }

    /// Holds lynkr 19, 30, 31.
    #[test]
    fn importance_is_halved_every_30_days_unless_decay_is_off() {
        fn part(days: i64, edit: impl FnOnce(&mut Fade)) -> f32 {
            let hit = edited(1, "tea", 1.0, |memory| {
                (memory.importance, memory.fresh_at) = (1.0, Time(NOW.0 - days * DAY));
                memory.created_at = Time(NOW.0 - 90 * DAY);
            });
            let mut policy = policy(rank());
            edit(&mut policy.fade);
            let ranked = policy.rank(vec![hit], &ask("q", &nothing()), NOW).ranked;
            let terms = ranked[0].terms.iter();
            let found = terms.clone().find(|(name, _)| *name == "importance");
            found.expect("a part of the score").1 / rank().importance
        }
        // Made 90 days ago in each case: the days are counted from the last access.
        for (days, left) in [(0, 1.0), (30, 0.5), (60, 0.25), (90, 0.125)] {
            let found = part(days, |_| ());
            assert!((found - left).abs() < 1e-6, "day {days}: {found}");
            let found = part(days, |fade| fade.enabled = false);
            assert!((found - 1.0).abs() < 1e-6, "day {days} without decay: {found}");
        }
        let weekly = part(7, |fade| fade.half_life_days.default = 7.0);
        assert!((weekly - 0.5).abs() < 1e-6, "half-life of 7 days: {weekly}");
    }

    /// Holds lynkr 32.
    #[test]
    fn without_global_memories_a_session_finds_only_its_own() {
        let hits = [
            edited(1, "of s1", 1.0, |memory| memory.session = Some("s1".into())),
            edited(2, "of s2", 1.0, |memory| memory.session = Some("s2".into())),
            edited(3, "global", 1.0, |_| ()),
        ];
        let found = |include_global: bool, session: Option<&'static str>| {
            let rank = Rank { include_global, ..rank() };
            let none = nothing();
            let question = Question { session, ..ask("q", &none) };
            policy(rank).rank(hits.to_vec(), &question, NOW).ranked.len()
        };
        assert_eq!([found(true, Some("s1")), found(false, Some("s1"))], [3, 1]);
        assert_eq!([found(true, None), found(false, None)], [3, 3]);
    }

    /// Holds lynkr 26.
    #[test]
    fn a_switched_off_memory_answers_nothing_and_the_limit_is_1_to_20() {
        let hit = edited(1, "tea", 1.0, |_| ());
        let off = policy(Rank { enabled: false, ..rank() });
        assert!(off.rank(vec![hit], &ask("q", &nothing()), NOW).ranked.is_empty());
        for (limit, is_valid) in [(0, false), (1, true), (20, true), (21, false)] {
            assert_eq!(Rank { limit, ..rank() }.check().is_ok(), is_valid, "{limit}");
        }
    }

    #[test]
    fn importance_outweighs_the_better_match() {
        let hits = [
            edited(1, "matches", 8.0, |memory| memory.importance = 0.2),
            edited(2, "matters", 4.0, |memory| memory.importance = 0.9),
        ];
        assert_eq!(
            scores(&hits).iter().map(|(content, _)| content.as_str()).collect::<Vec<_>>(),
            ["matters", "matches"]
        );
    }

    /// Holds lynkr 21, 35.
    #[test]
    fn the_section_is_that_of_the_document() {
        fn of(number: u32, kind: &str, content: &str, importance: f32) -> Hit {
            edited(number, content, 1.0, |memory| {
                (memory.kind, memory.importance) = (Kind::new(kind), importance)
            })
        }
        let hits = [
            of(1, "preference", "I prefer Python for data processing", 0.9),
            of(2, "decision", "Decided to use React for frontend", 0.8),
            of(3, "fact", "This app uses PostgreSQL database", 0.7),
            of(4, "entity", "File: src/api/auth.js handles authentication", 0.6),
        ];
        let ranked = policy(rank()).rank(hits.to_vec(), &ask("q", &nothing()), NOW).ranked;
        let block = |rank| {
            policy(rank)
                .render(&ranked, &room(1000, &|text| text.len()))
                .expect("this policy renders a block of its own")
                .text
        };
        assert_eq!(
            block(rank()),
            "## Relevant Context from Previous Conversations\n\n\
             - [User preference] I prefer Python for data processing\n\
             - [Decision] Decided to use React for frontend\n\
             - [Fact] This app uses PostgreSQL database\n\
             - [Entity] File: src/api/auth.js handles authentication\n"
        );
        let other = block(Rank {
            format: Format::Detailed,
            injection: Injection::AssistantPreamble,
            ..rank()
        });
        assert!(
            other.starts_with(
                "From our previous conversations I remember:\n\n- [User preference] I prefer Python"
            ),
            "{other}"
        );
        assert!(other.contains("data processing (1970-01-01, importance 0.90)\n"), "{other}");
    }

    /// Holds lynkr 20.
    #[test]
    fn five_are_returned_unless_asked_for_and_never_more_than_twenty() {
        fn asked(limit: usize, unsaid: bool) -> usize {
            let recall = Recall {
                limit,
                unsaid: UnsetFields { limit: unsaid, format: true, ..UnsetFields::default() },
                ..recall("q")
            };
            policy(rank()).complete(&recall).limit
        }
        assert_eq!((asked(7, true), asked(7, false), asked(100, false)), (5, 7, 20));
    }
}
