//! Ranks memories and assembles the context as Alma's article describes both.
//!
//!   score  0.40 relevance + 0.30 importance + 0.20 recency + 0.10 frequency
//!   block  soul blocks, then memories in half of the remaining budget, then episodes and
//!          procedures, each part in an XML section of its own
//!
//! Each part is filled from candidates of its own, so that many memories take no place from the
//! episodes. The soul stands outside of the request's limit and filters.

use super::extraction::is_message;
use super::gate::{TOPICS, topics_of};
use crate::shared::wording::stems;
use crate::shared::{days_since_access, summed};
use domain::{Assembly, Comparison, Memory, MemoryId, Test, Time};
use kernel::policy::Room;
use kernel::ranking::{Hit, PromptBlock, Question, Ranked};
use policies::rank::frame::xml_text;
use policies::rank::{admitted, admitted_unfiltered, better_first, is_of_kind};
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    pub weights: Weights,
    /// Weights of single users, by `tenant/user`.
    #[serde(default)]
    pub users: BTreeMap<String, Weights>,
    pub recency_half_life_hours: f32,
    /// Largest share of the budget that memories may fill, after the soul blocks.
    pub memories_share: f32,
    /// A procedure matches a question with which it has a word in common, or at least this cosine.
    pub procedure_cosine_min: f32,
    /// Candidates of each part besides the soul.
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    pub relevance: f32,
    pub importance: f32,
    pub recency: f32,
    pub frequency: f32,
}

/// Soul blocks by their kinds, in the order of the article.
const SOUL: [&str; 4] = ["identity", "style", "context", "anti_patterns"];
/// The soul and the procedures, beside the kinds that rule in a template.
pub(super) const RULING_KINDS: [&str; 7] =
    ["identity", "style", "context", "anti_patterns", "procedure", "instruction", "preference"];
/// Name of the term that marks an episode with a topic of the question.
const TOPIC: &str = "topic";
/// A line with more bytes for each token that is left does not fit.
const BYTES_A_TOKEN: usize = 8;
/// Memories whose scores the reply lists. Open in the article.
const TOP_SCORES: usize = 10;

/// The parts of the context in their strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Soul,
    Memories,
    Episodes,
    Procedures,
}

const PARTS: [Part; 4] = [Part::Soul, Part::Memories, Part::Episodes, Part::Procedures];

impl Part {
    pub(super) fn of(memory: &Memory) -> Part {
        match memory.kind.as_str() {
            kind if SOUL.contains(&kind) => Part::Soul,
            "episode" | "summary" => Part::Episodes,
            "procedure" => Part::Procedures,
            _ => Part::Memories,
        }
    }

    fn tag(self) -> &'static str {
        match self {
            Part::Soul => "alma_soul",
            Part::Memories => "alma_memories",
            Part::Episodes => "alma_episodes",
            Part::Procedures => "alma_procedures",
        }
    }
}

/// Scores the candidates and orders them by part, at most `rank.limit` of each besides the soul.
pub fn ranked(rank: &Rank, hits: Vec<Hit>, question: &Question, at: Time) -> Vec<Ranked> {
    let off: BTreeSet<MemoryId> =
        hits.iter().filter(|hit| hit.memory.disabled).map(|hit| hit.memory.id).collect();
    let admitted = hits.into_iter().filter(|hit| {
        // An episode quotes the memories that it covers.
        is_candidate(rank, hit, question) && hit.memory.covers.iter().all(|id| !off.contains(id))
    });
    let asked = stems(question.text);
    let scored = admitted.map(|hit| {
        let weights = rank.users.get(hit.memory.key.as_str()).unwrap_or(&rank.weights);
        let parts = [
            ("relevance", weights.relevance * hit.own.cosine),
            // Confidence lowers the importance of an inference, so that a stated preference ranks
            // before a more important guess.
            ("importance", weights.importance * hit.memory.importance * hit.memory.confidence),
            ("recency", weights.recency * recency(rank, &hit.memory, at)),
            ("frequency", weights.frequency * frequency(hit.memory.uses)),
        ];
        let mut ranked = summed(hit.memory, question, &parts);
        // A block shows the latest episodes; who asks for episodes searches them by topic.
        let is_sought = !question.kinds.is_empty() && Part::of(&ranked.memory) == Part::Episodes;
        if is_sought && topics_of(&ranked.memory).any(|topic| !stems(topic).is_disjoint(&asked)) {
            ranked.terms.push((TOPIC, 1.0));
        }
        ranked
    });
    let mut left = BTreeMap::from(PARTS.map(|part| (part, rank.limit)));
    let mut ranked = arranged(scored.collect());
    ranked.retain(|one| {
        let part = Part::of(&one.memory);
        let left = left.get_mut(&part).expect("every part has its limit");
        let has_room = *left > 0;
        *left = left.saturating_sub(1);
        has_room || part == Part::Soul
    });
    ranked
}

/// Cuts the list at a limit. The soul is always included and does not count.
pub fn limited(ranked: Vec<Ranked>, limit: usize) -> Vec<Ranked> {
    let (mut soul, mut others): (Vec<Ranked>, Vec<Ranked>) =
        arranged(ranked).into_iter().partition(|one| Part::of(&one.memory) == Part::Soul);
    others.truncate(limit);
    soul.append(&mut others);
    soul
}

fn is_candidate(rank: &Rank, hit: &Hit, question: &Question) -> bool {
    let memory = &*hit.memory;
    if is_message(memory) {
        return false;
    }
    match Part::of(memory) {
        Part::Soul => admitted_unfiltered(memory, question),
        Part::Memories => admitted(memory, question),
        Part::Episodes => {
            is_of_kind(memory, question)
                && has_topics(memory, question)
                && admitted_unfiltered(memory, question)
        }
        // "Behavioral patterns matching the current query". A request that names the kind lists
        // them.
        Part::Procedures => {
            let is_match = hit.own.words > 0.0 || hit.own.cosine >= rank.procedure_cosine_min;
            admitted(memory, question)
                && (!question.kinds.is_empty() || is_match && !question.is_blank)
        }
    }
}

/// True if the episode has the metadata that the question names. One of several topics is enough.
fn has_topics(memory: &Memory, question: &Question) -> bool {
    question.filter.holds_by(&|comparison| {
        let is_topic = match comparison {
            Comparison::Metadata(name, Test::Equals(value)) if name == TOPICS => {
                let value = value.trim().to_lowercase();
                topics_of(memory).any(|topic| topic.to_lowercase() == value)
            }
            _ => false,
        };
        is_topic || comparison.holds(memory)
    })
}

/// Orders by part: soul blocks as the article lists them, episodes latest first, the others by
/// score.
fn arranged(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_by(|a, b| {
        let part = Part::of(&a.memory);
        part.cmp(&Part::of(&b.memory)).then_with(|| match part {
            Part::Soul => soul_order(a).cmp(&soul_order(b)),
            Part::Episodes => episode_order(a).cmp(&episode_order(b)),
            Part::Memories | Part::Procedures => better_first(a, b),
        })
    });
    ranked
}

fn soul_order(one: &Ranked) -> impl Ord + use<> {
    let memory = &one.memory;
    let place = SOUL.iter().position(|kind| *kind == memory.kind.as_str());
    (place, memory.created_at, memory.source.offset, memory.id)
}

fn episode_order(one: &Ranked) -> impl Ord + use<> {
    let has_topic = one.terms.contains(&(TOPIC, 1.0));
    let memory = &one.memory;
    Reverse((has_topic, memory.created_at, memory.source.offset, memory.id))
}

/// Halves with every `recency_half_life_hours` since the last access.
fn recency(rank: &Rank, memory: &Memory, at: Time) -> f32 {
    let hours = 24.0 * days_since_access(memory, at);
    (-hours / rank.recency_half_life_hours.max(f32::MIN_POSITIVE)).exp2()
}

/// Grows with the logarithm of the uses and reaches 1 at 99.
fn frequency(uses: u32) -> f32 {
    ((uses as f32 + 1.0).log10() / 2.0).min(1.0)
}

/// Fills the parts in their order. A memory that does not fit is left out whole, never cut. Soul
/// blocks come first, so they are left out only if the budget is too small for them alone.
pub(super) fn block(
    rank: &Rank,
    ranked: &[Ranked],
    &Room { budget, count_tokens, .. }: &Room<'_>,
) -> PromptBlock {
    let mut context = Context { lines: BTreeMap::new() };
    let mut left = budget;
    for part in PARTS {
        let share = if part == Part::Memories {
            (left as f32 * rank.memories_share) as usize
        } else {
            left
        };
        let used = context.fill(part, ranked, share, count_tokens);
        left = left.saturating_sub(used);
    }
    loop {
        let text = context.text();
        let tokens = count_tokens(&text);
        if tokens <= budget {
            let mut taken: Vec<usize> =
                context.lines.values().flatten().map(|(place, _)| *place).collect();
            taken.sort_unstable();
            let assembly = Some(context.assembly(ranked, tokens, count_tokens));
            return if taken.is_empty() {
                PromptBlock { assembly: Some(Assembly::default()), ..PromptBlock::default() }
            } else {
                PromptBlock { text, tokens, taken, assembly }
            };
        }
        // The whole block may count more tokens than the sum of its lines.
        context.drop_last();
    }
}

struct Context {
    lines: BTreeMap<Part, Vec<(usize, String)>>,
}

impl Context {
    /// Adds the lines of a part that fit into the budget, and returns the tokens they take.
    fn fill(
        &mut self,
        part: Part,
        ranked: &[Ranked],
        budget: usize,
        count_tokens: &dyn Fn(&str) -> usize,
    ) -> usize {
        let mut used = count_tokens(&format!("<{0}>\n</{0}>\n", part.tag()));
        let lines = self.lines.entry(part).or_default();
        for (place, one) in
            ranked.iter().enumerate().filter(|(_, one)| Part::of(&one.memory) == part)
        {
            let text = line(part, &one.memory);
            // Prose has about 5 bytes a token: a text this long is not worth counting.
            if text.len() / BYTES_A_TOKEN > budget.saturating_sub(used) {
                continue;
            }
            let tokens = count_tokens(&text);
            if used + tokens <= budget {
                used += tokens;
                lines.push((place, text));
            }
        }
        if lines.is_empty() { 0 } else { used }
    }

    fn text(&self) -> String {
        PARTS.map(|part| self.section(part)).concat()
    }

    /// The section of a part, empty if the part has no line.
    fn section(&self, part: Part) -> String {
        let lines = self.lines.get(&part).into_iter().flatten();
        let lines: String = lines.map(|(_, text)| text.as_str()).collect();
        if lines.is_empty() { lines } else { format!("<{0}>\n{lines}</{0}>\n", part.tag()) }
    }

    fn assembly(
        &self,
        ranked: &[Ranked],
        total_tokens: usize,
        count_tokens: &dyn Fn(&str) -> usize,
    ) -> Assembly {
        let included = |part| self.lines.get(&part).map_or(0, Vec::len);
        let tokens = |part| count_tokens(&self.section(part));
        let memories = self.lines.get(&Part::Memories).into_iter().flatten();
        let scores = memories.take(TOP_SCORES).map(|(place, _)| {
            let one = &ranked[*place];
            (one.memory.content.clone(), one.score)
        });
        Assembly {
            soul_tokens: tokens(Part::Soul),
            memories_included: included(Part::Memories),
            memories_tokens: tokens(Part::Memories),
            episodes_included: included(Part::Episodes),
            procedures_included: included(Part::Procedures),
            total_tokens,
            top_memory_scores: scores.collect(),
        }
    }

    fn drop_last(&mut self) {
        if let Some(lines) = self.lines.values_mut().rev().find(|lines| !lines.is_empty()) {
            lines.pop();
        }
    }
}

fn line(part: Part, memory: &Memory) -> String {
    let kind = memory.kind.as_str();
    let content = xml_text(&memory.content);
    match part {
        Part::Soul => format!("<{kind}>{content}</{kind}>\n"),
        Part::Memories => {
            format!(
                "<memory importance=\"{:.1}\" category=\"{}\">{content}</memory>\n",
                memory.importance,
                xml_text(kind)
            )
        }
        Part::Episodes => {
            let topics = attribute(memory, TOPICS);
            let outcome = attribute(memory, "outcome");
            format!("<episode{topics}{outcome}>{content}</episode>\n")
        }
        Part::Procedures => format!("<procedure>{content}</procedure>\n"),
    }
}

/// Writes a field of the metadata as an XML attribute, or nothing if the memory has no such field.
fn attribute(memory: &Memory, name: &str) -> String {
    let value = memory.metadata.get(name);
    value.map(|value| format!(" {name}=\"{}\"", xml_text(value))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alma::Alma;
    use crate::shared::samples::{shipped_gate, shipped_rank};
    use domain::Kind;
    use kernel::Policy;
    use policies::rank::samples::{MemoryMut as _, ask, hit, nothing, room};
    use proptest::prelude::*;

    const DAY: i64 = 86_400_000;
    const NOW: Time = Time(1_000 * DAY);

    fn policy(rank: Rank) -> Alma {
        let gate = shipped_gate("alma");
        Alma::new(gate, rank)
    }

    fn rank() -> Rank {
        shipped_rank("alma")
    }

    fn of(number: u32, kind: &str, content: &str, importance: f32) -> Hit {
        let mut hit = hit(number, content, 0.0, 0.5);
        hit.memory_mut().kind = Kind::new(kind);
        hit.memory_mut().importance = importance;
        hit.memory_mut().fresh_at = NOW;
        hit
    }

    fn ordered(rank: Rank, hits: &[Hit]) -> Vec<Ranked> {
        policy(rank).rank(hits.to_vec(), &ask("q", &nothing()), NOW).ranked
    }

    fn contents(hits: &[Hit]) -> Vec<String> {
        ordered(rank(), hits).into_iter().map(|one| one.memory.content.clone()).collect()
    }

    /// Holds alma 15, 16.
    #[test]
    fn the_weights_are_0_40_0_30_0_20_and_0_10() {
        let mut subject = of(1, "fact", "tea", 0.9);
        subject.own.cosine = 0.7;
        subject.memory_mut().uses = 9;
        subject.memory_mut().fresh_at = Time(NOW.0 - 7 * DAY);
        for confidence in [1.0, 0.7] {
            subject.memory_mut().confidence = confidence;
            let expected = 0.40 * 0.7 + 0.30 * 0.9 * confidence + 0.20 * 0.5 + 0.10 * 0.5;
            let score = ordered(rank(), std::slice::from_ref(&subject))[0].score;
            assert!((score - expected).abs() < 1e-6, "{confidence}: {score}");
        }
    }

    /// Holds alma 17.
    #[test]
    fn recency_is_1_today_0_5_after_a_week_and_0_25_after_two() {
        for (days, expected) in [(0, 1.0), (7, 0.5), (14, 0.25)] {
            let mut one = of(1, "fact", "tea", 0.5);
            one.memory_mut().fresh_at = Time(NOW.0 - days * DAY);
            assert!((recency(&rank(), &one.memory, NOW) - expected).abs() < 1e-6, "{days}");
        }
    }

    /// Holds alma 18.
    #[test]
    fn frequency_is_half_the_logarithm_of_ten_and_ends_at_1() {
        for (uses, expected) in [(0, 0.0), (9, 0.5), (99, 1.0), (100_000, 1.0)] {
            assert!((frequency(uses) - expected).abs() < 1e-6, "{uses}");
        }
    }

    /// Holds alma 19.
    #[test]
    fn a_migration_outranks_coffee_even_if_the_coffee_is_more_recent() {
        let mut migration = of(1, "project", "User is migrating to PostgreSQL this quarter", 0.9);
        migration.memory_mut().fresh_at = Time(NOW.0 - 7 * DAY);
        let coffee = of(2, "fact", "User mentioned coffee", 0.3);
        assert_eq!(
            contents(&[coffee, migration])[0],
            "User is migrating to PostgreSQL this quarter"
        );
    }

    /// Holds alma 22.
    #[test]
    fn a_stated_preference_surfaces_over_a_more_important_inference() {
        let stated = of(1, "preference", "User always uses TypeScript", 0.7);
        let mut inferred = of(2, "preference", "probably prefers dark mode", 0.9);
        inferred.memory_mut().confidence = 0.7;
        assert_eq!(contents(&[inferred, stated])[0], "User always uses TypeScript");
    }

    #[test]
    fn a_user_may_have_weights_of_their_own() {
        let mut near = of(1, "fact", "near", 0.1);
        let matters = of(2, "fact", "matters", 1.0);
        near.own.cosine = 0.9;
        let hits = [near, matters];
        let own = Weights { relevance: 1.0, importance: 0.0, recency: 0.0, frequency: 0.0 };
        let first = |user: &str| {
            let users = BTreeMap::from([(user.to_owned(), own)]);
            ordered(Rank { users, ..rank() }, &hits)[0].memory.content.clone()
        };
        assert_eq!(
            (first("default/bob"), first("default/anna")),
            ("matters".to_owned(), "near".to_owned())
        );
    }

    fn example() -> Vec<Hit> {
        let mut episode = of(5, "episode", "Debugged auth middleware", 0.5);
        episode.memory_mut().metadata.insert("topics".into(), "auth,middleware".into());
        vec![
            of(4, "preference", "Prefers concise code reviews", 0.7),
            of(6, "procedure", "Run the tests first", 0.5),
            episode,
            of(3, "project", "Migrating auth to PostgreSQL", 0.9),
            of(2, "anti_patterns", "Never <flatters>", 0.1),
            of(1, "identity", "A patient engineer", 0.2),
        ]
    }

    /// Holds alma 30.
    #[test]
    fn the_context_block_is_that_of_the_document() {
        let ranked = ordered(rank(), &example());
        let block = policy(rank())
            .render(&ranked, &room(1000, &|text| text.len() / 4))
            .expect("this policy renders a block of its own");
        assert_eq!(
            block.text,
            "<alma_soul>\n\
             <identity>A patient engineer</identity>\n\
             <anti_patterns>Never &lt;flatters&gt;</anti_patterns>\n\
             </alma_soul>\n\
             <alma_memories>\n\
             <memory importance=\"0.9\" category=\"project\">\
             Migrating auth to PostgreSQL</memory>\n\
             <memory importance=\"0.7\" category=\"preference\">\
             Prefers concise code reviews</memory>\n\
             </alma_memories>\n\
             <alma_episodes>\n\
             <episode topics=\"auth,middleware\">Debugged auth middleware</episode>\n\
             </alma_episodes>\n\
             <alma_procedures>\n<procedure>Run the tests first</procedure>\n</alma_procedures>\n"
        );
        assert_eq!(block.taken, [0, 1, 2, 3, 4, 5]);
    }

    /// Holds alma 25, 31.
    #[test]
    fn memories_fill_half_of_what_the_soul_leaves_and_one_too_long_is_skipped() {
        let soul = of(1, "identity", &"i".repeat(979), 0.5);
        let memory =
            |number, length: usize, importance| of(number, "fact", &"m".repeat(length), importance);
        let hits = [
            soul,
            memory(2, 600, 0.9),
            memory(3, 300, 0.5),
            memory(4, 200, 0.1),
            of(5, "episode", &"e".repeat(500), 0.5),
        ];
        let ranked = ordered(rank(), &hits);
        let budget = 2_050;
        let block = policy(rank())
            .render(&ranked, &room(budget, &|text| text.chars().count()))
            .expect("this policy renders a block of its own");
        let in_it = |c: char, length: usize| block.text.contains(&c.to_string().repeat(length));
        assert!(in_it('i', 979), "soul blocks are always included");
        assert!(!in_it('m', 600) && in_it('m', 300), "half of about 1,020 is left for memories");
        assert!(in_it('e', 500), "episodes use the half that memories may not fill");
        assert!(block.tokens <= budget);
    }

    proptest! {
        /// Holds alma 31.
        #[test]
        fn never_over_the_budget_and_never_cut(
            rows in prop::collection::vec(
                ("(identity|fact|episode|procedure|\\PC{1,5})", any::<String>(), 0f32..1.0),
                0..12,
            ),
            budget in 0usize..600,
        ) {
            let hits: Vec<Hit> = rows
                .iter()
                .enumerate()
                .map(|(n, (kind, content, x))| of(n as u32, kind, content, *x))
                .collect();
            let ranked = ordered(rank(), &hits);
            let block = policy(rank())
                .render(&ranked, &room(budget, &|text| text.len() + text.lines().count().pow(2)))
                .expect("this policy renders a block of its own");
            prop_assert!(block.tokens <= budget);
            prop_assert_eq!(block.text.is_empty(), block.taken.is_empty());
            for line in block.text.lines() {
                prop_assert!(line.starts_with('<') && line.ends_with('>'), "{}", block.text);
            }
            let opened = block.text.matches("<alma_").count();
            prop_assert_eq!(opened, block.text.matches("</alma_").count());
        }
    }
}
