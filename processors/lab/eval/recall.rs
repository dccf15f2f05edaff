//! `keepsake eval recall`: measures the rank of the evidence in the answers, compared with a bare
//! cosine; the quality of `match` and `relevance` in the replies; and how often an answer is empty.

use super::bare::CosineBaseline;
use super::data::{Conversation, EvalQuestion};
use super::figures::{Figures, Fraction, Interval, mean, share};
use super::harness::{AnsweredMemory, Harness, RecallAnswer, SimulatedUser};
use super::reliability::{RatedAnswer, Reliability};
use super::report::{EvalReport, number, percent};
use super::sessions::{self, FoundSessions, Sessions};
use client::show;
use domain::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of questions of other conversations that each conversation is asked. No turn
/// answers them.
const FOREIGN_MAX: usize = 50;
const NEVER_SAID: &str = "never-said";
/// The `match` of a reply without a memory about the question.
const NONE: &str = "none";
/// Indexes into the pair of figures of each question.
const SERVICE: usize = 0;
const COSINE: usize = 1;
const FOREIGN_NAME: &str = "other conversations' questions";
/// Categories left out of the calibration: their evidence includes turns that no longer hold, so a
/// memory of such a turn is neither right nor wrong.
const NOT_FOR_RELEVANCE: [&str; 2] = ["knowledge_update", "trap"];

/// One question with the answer of the service and the ranking of a bare cosine.
struct AskedQuestion<'c> {
    conversation: &'c str,
    question: &'c EvalQuestion,
    answer: RecallAnswer,
    ranking: Vec<String>,
    cosine: Vec<String>,
    /// Sessions found by the service and by the bare cosine; `None` without sessions.
    sessions: [Option<FoundSessions>; 2],
    block: Option<Blocks>,
}

/// The default blocks of an answer, for each of [`BLOCK_LIMITS`].
type Blocks = [Block; BLOCK_LIMITS.len()];

/// The tokens of a prompt block, whether some evidence is in it, and the time of the call: without
/// the encoder, whose vectors are kept, and without a broker.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    tokens: usize,
    took: Duration,
    answers: bool,
}

/// Most memories of the blocks that are measured.
const BLOCK_LIMITS: [usize; 2] = [5, 10];

/// Results over one or several files.
pub struct RecallResults {
    /// Figures of the service and of the bare cosine for each question, by category.
    by_category: BTreeMap<String, Vec<[Figures; 2]>>,
    /// Share of empty answers, by group of questions.
    silent: [(&'static str, f64); 3],
    /// Count of each `match`, by category.
    verdicts: BTreeMap<String, BTreeMap<String, usize>>,
    /// By side.
    sessions: [Vec<FoundSessions>; 2],
    blocks: Vec<Blocks>,
    pub reliability: Reliability,
}

/// What is measured besides the ranking: the terms of every score, in the JSON, and the blocks.
#[derive(Clone, Copy, Default)]
pub struct Also {
    pub explain: bool,
    pub blocks: bool,
}

/// Measures and reports.
pub fn measure(
    harness: &Harness,
    conversations: &[Conversation],
    also: Also,
) -> Result<EvalReport> {
    let (asked, foreign) = ask_all(harness, conversations, also)?;
    let measured = RecallResults::of(&asked, &foreign);
    let questions: Vec<Value> = asked.iter().map(AskedQuestion::json).collect();
    let json = json!({
        "questions": questions,
        "metrics": measured.json(),
        "config": {
            "profile": harness.config.profile,
            "model": harness.model_name(),
            "candidates": harness.config.recall.candidates,
            "tokens_max": models::embedder::TOKENS_MAX,
        },
    });
    Ok(EvalReport { json, text: measured.text() })
}

/// Measures without a report, for a table over several files.
pub fn figures(harness: &Harness, conversations: &[Conversation]) -> Result<RecallResults> {
    let (asked, foreign) = ask_all(harness, conversations, Also::default())?;
    Ok(RecallResults::of(&asked, &foreign))
}

/// Returns the answers to all questions of each conversation, and to questions of the others.
fn ask_all<'c>(
    harness: &Harness,
    conversations: &'c [Conversation],
    also: Also,
) -> Result<(Vec<AskedQuestion<'c>>, Vec<RecallAnswer>)> {
    let fields = json!({"explain": also.explain});
    let answers = harness.each(conversations, |encoder, conversation| {
        let mut user =
            SimulatedUser::begin(harness, &harness.profiles, encoder, &conversation.name)?;
        let mut bare = CosineBaseline::of(encoder, &conversation.turns)?;
        let mut answers = Vec::new();
        let mut said = 0;
        for (place, before, question) in conversation.questions_in_time() {
            if said < before {
                user.publish_turns(&conversation.turns[said..before])?;
                said = before;
            }
            question.time().into_iter().for_each(|at| user.wait_until(at));
            let answer = user.answer_to(&question.text, &fields)?;
            let blocks = also.blocks.then(|| blocks(&mut user, question)).transpose()?;
            answers.push((place, (answer, bare.ranking(&question.text, before)?, blocks)));
        }
        user.publish_turns(&conversation.turns[said..])?;
        answers.sort_by_key(|(place, _)| *place);
        let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
        let foreign =
            foreign(conversations, conversation).map(|question| user.answer(&question.text));
        Ok((answers, foreign.collect::<Result<Vec<RecallAnswer>>>()?))
    })?;
    let mut asked = Vec::new();
    let mut foreign = Vec::new();
    for (conversation, (answers, others)) in conversations.iter().zip(answers) {
        foreign.extend(others);
        let of_turn = Sessions::of(conversation);
        for (question, (answer, cosine, block)) in conversation.questions.iter().zip(answers) {
            let ranking = answer.ranking();
            let sessions =
                [&ranking, &cosine].map(|ranking| of_turn.found(ranking, &question.evidence));
            asked.push(AskedQuestion {
                conversation: &conversation.name,
                question,
                ranking,
                answer,
                cosine,
                sessions,
                block,
            });
        }
    }
    Ok((asked, foreign))
}

/// Asks as an application does that puts the block into a prompt.
fn blocks(user: &mut SimulatedUser<'_>, question: &EvalQuestion) -> Result<Blocks> {
    let mut blocks = Blocks::default();
    for (block, limit) in blocks.iter_mut().zip(BLOCK_LIMITS) {
        let fields = json!({"limit": limit, "format": "markdown", "purpose": "prompt"});
        let began = Instant::now();
        let answer = user.answer_to(&question.text, &fields)?;
        let took = began.elapsed();
        let is_evidence =
            |memory: &AnsweredMemory| memory.turn().is_some_and(|turn| question.needs(turn));
        let answers = answer.memories.iter().chain(&answer.wishes).any(is_evidence);
        *block = Block { tokens: answer.tokens, took, answers };
    }
    Ok(blocks)
}

/// Picks questions of the other conversations, evenly spread.
fn foreign<'c>(
    conversations: &'c [Conversation],
    here: &Conversation,
) -> impl Iterator<Item = &'c EvalQuestion> {
    let others = conversations.iter().filter(|other| other.name != here.name);
    let questions: Vec<&EvalQuestion> = others
        .flat_map(|other| &other.questions)
        .filter(|question| question.is_headline())
        .collect();
    let step = questions.len().div_ceil(FOREIGN_MAX).max(1);
    questions.into_iter().step_by(step)
}

impl AskedQuestion<'_> {
    fn json(&self) -> Value {
        json!({
            "conversation": self.conversation,
            "id": self.question.id,
            "category": self.question.category,
            "evidence": self.question.evidence,
            "ranking": self.ranking,
            "cosine": self.cosine,
            "match": self.answer.verdict,
            "memories": self.answer.memories.iter().map(memory_json).collect::<Vec<_>>(),
        })
    }

    /// Returns the relevance of each memory for the calibration. `None` if the question is not
    /// counted there, or if the reply has no relevance.
    fn rated(&self) -> Option<RatedAnswer> {
        let is_answerable = self.question.is_headline();
        let counts = is_answerable || self.question.category == NEVER_SAID;
        if !counts || NOT_FOR_RELEVANCE.contains(&self.question.category.as_str()) {
            return None;
        }
        let memories = self
            .answer
            .memories
            .iter()
            .map(|memory| Some((memory.relevance?, self.is_evidence(memory))))
            .collect::<Option<_>>()?;
        Some(RatedAnswer { is_answerable, memories })
    }

    fn is_evidence(&self, memory: &AnsweredMemory) -> bool {
        memory.turn().is_some_and(|turn| self.question.needs(turn))
    }
}

fn memory_json(memory: &AnsweredMemory) -> Value {
    let mut json =
        json!({"turn": memory.turn(), "score": memory.score, "relevance": memory.relevance});
    if let Some(explain) = &memory.explain {
        json["explain"] = explain.clone();
    }
    json
}

/// Returns the reply's `match`. A reply without `match` counts as `none` only if it is empty.
fn verdict(answer: &RecallAnswer) -> &str {
    answer.verdict.as_deref().unwrap_or(if answer.memories.is_empty() { NONE } else { "unstated" })
}

impl RecallResults {
    fn of(asked: &[AskedQuestion<'_>], foreign: &[RecallAnswer]) -> RecallResults {
        let mut by_category: BTreeMap<String, Vec<[Figures; 2]>> = BTreeMap::new();
        let headline = || asked.iter().filter(|asked| asked.question.is_headline());
        for AskedQuestion { question, ranking, cosine, .. } in headline() {
            let both = [ranking, cosine].map(|ranking| Figures::of(ranking, &question.evidence));
            by_category.entry(question.category.clone()).or_default().push(both);
        }
        let mut verdicts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        let answers = asked.iter().map(|one| (one.question.category.as_str(), &one.answer));
        for (category, answer) in answers.chain(foreign.iter().map(|answer| (FOREIGN_NAME, answer)))
        {
            *verdicts
                .entry(category.to_owned())
                .or_default()
                .entry(verdict(answer).to_owned())
                .or_default() += 1;
        }
        RecallResults {
            by_category,
            silent: [
                ("headline", silent(asked, EvalQuestion::is_headline)),
                ("adversarial", silent(asked, |question| question.category == "adversarial")),
                ("foreign", share(foreign.iter().map(|answer| answer.ranking().is_empty()))),
            ],
            verdicts,
            sessions: [SERVICE, COSINE]
                .map(|side| headline().filter_map(|asked| asked.sessions[side]).collect()),
            blocks: headline().filter_map(|asked| asked.block).collect(),
            reliability: Reliability::of(
                &asked.iter().filter_map(AskedQuestion::rated).collect::<Vec<_>>(),
            ),
        }
    }

    /// Figures per question over all categories of the headline.
    pub fn all(&self) -> Vec<[Figures; 2]> {
        self.by_category.values().flatten().copied().collect()
    }

    /// Figures per question of one category.
    pub fn of_category(&self, category: &str) -> &[[Figures; 2]] {
        self.by_category.get(category).map_or(&[], Vec::as_slice)
    }

    /// Counts the questions of these categories that are answered with `match` none.
    pub fn nothing_matches(&self, categories: &[&str]) -> Fraction {
        let counts =
            self.verdicts.iter().filter(|(category, _)| categories.contains(&category.as_str()));
        counts.fold(Fraction::default(), |part, (_, counts)| Fraction {
            holds: part.holds + counts.get(NONE).copied().unwrap_or(0),
            of: part.of + counts.values().sum::<usize>(),
        })
    }

    /// Counts the questions of the headline that are answered with `match` none.
    pub fn nothing_matches_headline(&self) -> Fraction {
        self.nothing_matches(&self.by_category.keys().map(String::as_str).collect::<Vec<_>>())
    }

    fn json(&self) -> Value {
        let silent: Map<String, Value> =
            self.silent.iter().map(|(name, share)| ((*name).to_owned(), number(*share))).collect();
        let differences: Map<String, Value> =
            self.categories().map(|(name, rows)| (name, differences_json(&rows))).collect();
        json!({
            "all": figures_json(&self.all(), SERVICE),
            "by_category": self.by_category_json(SERVICE),
            "cosine": {
                "all": figures_json(&self.all(), COSINE),
                "by_category": self.by_category_json(COSINE),
            },
            "minus_cosine": differences,
            "match": self.verdicts,
            "reliability": self.reliability.json(),
            "silent": silent,
            "sessions": sessions::json(&self.sessions[SERVICE]),
            "sessions_cosine": sessions::json(&self.sessions[COSINE]),
            "blocks": self.blocks_json(),
        })
    }

    fn blocks_json(&self) -> Map<String, Value> {
        let of_limit = |n: usize, limit: usize| {
            let tokens = mean(self.blocks.iter().map(|blocks| blocks[n].tokens as f64));
            let answers = share(self.blocks.iter().map(|blocks| blocks[n].answers));
            let ms = mean(self.blocks.iter().map(|blocks| 1e3 * blocks[n].took.as_secs_f64()));
            let figures = json!({"tokens": number(tokens), "answers": number(answers),
                "call_ms": number(ms)});
            (limit.to_string(), figures)
        };
        let limits = BLOCK_LIMITS.into_iter().enumerate();
        limits.filter(|_| !self.blocks.is_empty()).map(|(n, limit)| of_limit(n, limit)).collect()
    }

    fn by_category_json(&self, side: usize) -> Map<String, Value> {
        self.by_category
            .iter()
            .map(|(name, rows)| (name.clone(), figures_json(rows, side)))
            .collect()
    }

    /// Returns the rows of all categories together, then those of each category.
    fn categories(&self) -> impl Iterator<Item = (String, Vec<[Figures; 2]>)> {
        let single = self.by_category.iter().map(|(name, rows)| (name.clone(), rows.clone()));
        std::iter::once(("all".to_owned(), self.all())).chain(single)
    }

    fn text(&self) -> String {
        let mut head = vec!["questions"];
        head.extend(Figures::default().shown().map(|(name, _)| name));
        head.push("n");
        let rows = self.categories().flat_map(|(name, rows)| {
            [row(&name, &rows, SERVICE), row("  bare cosine", &rows, COSINE)]
        });
        let mut text = show::table(&head, &rows.collect::<Vec<_>>());
        text.push_str(
            "\nservice minus bare cosine, in points, with the 95 % interval of the paired \
             difference:\n",
        );
        for (name, rows) in self.categories() {
            let [one, three] = [1, 3].map(|k| points(&difference(&rows, k)));
            text.push_str(&format!("  {name}: R@1 {one}, R@3 {three}\n"));
        }
        text.push_str("\nthe reply's match, by category:\n");
        for (category, counts) in &self.verdicts {
            let of: usize = counts.values().sum();
            let parts: Vec<String> = counts
                .iter()
                .map(|(name, count)| format!("{name} {}", percent(*count as f64 / of as f64)))
                .collect();
            text.push_str(&format!("  {category}: {} (of {of})\n", parts.join(", ")));
        }
        let [headline, adversarial, foreign] = self.silent.map(|(_, share)| percent(share));
        text.push_str(&format!(
            "no memory is returned for {headline} of these, {adversarial} of the adversarial ones, \
             {foreign} of other conversations' questions\n"
        ));
        if self.reliability.error.is_finite() {
            text.push_str(&format!("\n{}", self.reliability.text()));
        }
        text
    }
}

/// Share of the questions with an empty answer.
fn silent(asked: &[AskedQuestion<'_>], of: fn(&EvalQuestion) -> bool) -> f64 {
    share(asked.iter().filter(|one| of(one.question)).map(|one| one.ranking.is_empty()))
}

/// Paired difference of recall at `k`, service minus bare cosine. The service is not worse if
/// `high` is 0 or more.
fn difference(rows: &[[Figures; 2]], k: usize) -> Interval {
    let differences: Vec<f64> =
        rows.iter().map(|[service, cosine]| service.recall_at(k) - cosine.recall_at(k)).collect();
    Interval::of(&differences)
}

/// Formats a difference of shares in percentage points.
pub fn points(interval: &Interval) -> String {
    let Interval { mean, low, high, .. } = interval;
    if mean.is_finite() {
        format!("{:+.1} [{:+.1}, {:+.1}]", 100.0 * mean, 100.0 * low, 100.0 * high)
    } else {
        "–".to_owned()
    }
}

fn differences_json(rows: &[[Figures; 2]]) -> Value {
    let [one, three] = [1, 3].map(|k| difference_json(&difference(rows, k)));
    json!({"R@1": one, "R@3": three})
}

pub fn difference_json(interval: &Interval) -> Value {
    let Interval { mean, low, high, .. } = *interval;
    json!({
        "mean": number(mean), "low": number(low), "high": number(high), "not_worse": high >= 0.0,
    })
}

fn mean_of_side(rows: &[[Figures; 2]], side: usize) -> Figures {
    Figures::mean(&rows.iter().map(|row| row[side]).collect::<Vec<_>>())
}

fn figures_json(rows: &[[Figures; 2]], side: usize) -> Value {
    let figures = mean_of_side(rows, side);
    let mut named: Map<String, Value> =
        figures.named().map(|(name, value)| (name, number(value))).collect();
    named.insert("n".to_owned(), rows.len().into());
    Value::Object(named)
}

fn row(name: &str, rows: &[[Figures; 2]], side: usize) -> Vec<String> {
    let figures = mean_of_side(rows, side);
    let cells = figures.shown().map(|(_, value)| percent(value));
    std::iter::once(name.to_owned()).chain(cells).chain([rows.len().to_string()]).collect()
}
