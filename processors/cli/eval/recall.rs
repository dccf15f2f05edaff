//! `keepsake eval recall`: measures which turns the questions of a file find and how high they stand, beside a bare cosine; what the reply
//! says of its own worth (`match`, `relevance`); and when it is empty.

use super::bare::Bare;
use super::data::{Conversation, Question};
use super::gate::Part;
use super::harness::{Answer, Kit, Life, Recalled};
use super::metrics::{Figures, Interval, share};
use super::reliability::{self, Reliability};
use super::{Report, number, percent, show};
use crate::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Questions of the other conversations that each one is asked: what they are about was never said here.
const FOREIGN: usize = 50;
const NEVER_SAID: &str = "never-said";
/// The `match` of a reply whose memories do not speak of the question.
const NONE: &str = "none";
const FOREIGN_NAME: &str = "other conversations' questions";
/// Their evidence includes turns that no longer hold: a memory of such a turn is neither right nor wrong.
const NOT_FOR_RELEVANCE: [&str; 2] = ["knowledge_update", "trap"];

/// One question with what answers it, best first, and what a bare cosine would have answered.
struct Asked<'c> {
    conversation: &'c str,
    question: &'c Question,
    answer: Answer,
    ranking: Vec<String>,
    cosine: Vec<String>,
}

/// Everything that was measured, of one or several files.
pub struct Measured {
    /// Figures of the service and of the bare cosine, question by question.
    by_category: BTreeMap<String, Vec<[Figures; 2]>>,
    silent: [(&'static str, f64); 3],
    /// Counts each `match` in a category.
    verdicts: BTreeMap<String, BTreeMap<String, usize>>,
    pub reliability: Reliability,
}

/// `explain`: with the terms of every score.
pub fn measure(kit: &Kit, conversations: &[Conversation], explain: bool) -> Result<Report> {
    let (asked, foreign) = ask_all(kit, conversations, explain)?;
    let measured = Measured::of(&asked, &foreign);
    let questions: Vec<Value> = asked.iter().map(Asked::json).collect();
    let json = json!({
        "questions": questions,
        "metrics": measured.json(),
        "config": {
            "profile": kit.config.profile,
            "model": kit.model_name(),
            "candidates": kit.config.recall.candidates,
            "tokens_max": kit.config.embedder.tokens_max,
        },
    });
    Ok(Report { json, text: measured.text() })
}

/// The figures alone, for a table over several files.
pub fn figures(kit: &Kit, conversations: &[Conversation]) -> Result<Measured> {
    let (asked, foreign) = ask_all(kit, conversations, false)?;
    Ok(Measured::of(&asked, &foreign))
}

/// The answers to all questions, and to those of other conversations.
fn ask_all<'c>(
    kit: &Kit,
    conversations: &'c [Conversation],
    explain: bool,
) -> Result<(Vec<Asked<'c>>, Vec<Answer>)> {
    let fields = json!({"explain": explain});
    let answers = kit.each(conversations, |encoder, conversation| {
        let mut life = Life::begin(kit, &kit.profiles, encoder, &conversation.name)?;
        life.hear(&conversation.turns)?;
        let mut bare = Bare::of(encoder, &conversation.turns)?;
        let ask = |question: &Question| {
            Ok((life.answer_to(&question.text, &fields)?, bare.ranking(&question.text)?))
        };
        let answers = conversation.questions.iter().map(ask).collect::<Result<Vec<_>>>()?;
        let foreign =
            foreign(conversations, conversation).map(|question| life.answer(&question.text));
        Ok((answers, foreign.collect::<Result<Vec<Answer>>>()?))
    })?;
    let (mut asked, mut foreign) = (Vec::new(), Vec::new());
    for (conversation, (answers, others)) in conversations.iter().zip(answers) {
        foreign.extend(others);
        for (question, (answer, cosine)) in conversation.questions.iter().zip(answers) {
            asked.push(Asked {
                conversation: &conversation.name,
                question,
                ranking: answer.ranking(),
                answer,
                cosine,
            });
        }
    }
    Ok((asked, foreign))
}

/// Evenly from all of them.
fn foreign<'c>(
    conversations: &'c [Conversation],
    here: &Conversation,
) -> impl Iterator<Item = &'c Question> {
    let others = conversations.iter().filter(|other| other.name != here.name);
    let questions: Vec<&Question> = others
        .flat_map(|other| &other.questions)
        .filter(|question| question.is_headline())
        .collect();
    let step = questions.len().div_ceil(FOREIGN).max(1);
    questions.into_iter().step_by(step)
}

impl Asked<'_> {
    fn json(&self) -> Value {
        let memory = |memory: &Recalled| {
            let mut shown = json!({"turn": memory.turn(), "score": memory.score, "relevance": memory.relevance});
            if let Some(explain) = &memory.explain {
                shown["explain"] = explain.clone();
            }
            shown
        };
        json!({
            "conversation": self.conversation,
            "id": self.question.id,
            "category": self.question.category,
            "evidence": self.question.evidence,
            "ranking": self.ranking,
            "cosine": self.cosine,
            "match": self.answer.verdict,
            "memories": self.answer.memories.iter().map(memory).collect::<Vec<_>>(),
        })
    }

    /// None: the question counts for nothing here, or the reply knows no relevance.
    fn judged(&self) -> Option<reliability::Asked> {
        let is_answerable = self.question.is_headline();
        let counts = is_answerable || self.question.category == NEVER_SAID;
        if !counts || NOT_FOR_RELEVANCE.contains(&self.question.category.as_str()) {
            return None;
        }
        let is_evidence = |memory: &Recalled| {
            memory.turn().is_some_and(|turn| self.question.evidence.iter().any(|id| id == turn))
        };
        let judged = |memory: &Recalled| Some((memory.relevance?, is_evidence(memory)));
        let memories = self.answer.memories.iter().map(judged).collect::<Option<_>>()?;
        Some(reliability::Asked { is_answerable, memories })
    }
}

/// The reply's own `match`; one without `match` can only be empty or not.
fn verdict(answer: &Answer) -> &str {
    answer.verdict.as_deref().unwrap_or(if answer.memories.is_empty() { NONE } else { "unstated" })
}

impl Measured {
    fn of(asked: &[Asked<'_>], foreign: &[Answer]) -> Measured {
        let mut by_category: BTreeMap<String, Vec<[Figures; 2]>> = BTreeMap::new();
        for Asked { question, ranking, cosine, .. } in
            asked.iter().filter(|asked| asked.question.is_headline())
        {
            let both = [ranking, cosine].map(|ranking| Figures::of(ranking, &question.evidence));
            by_category.entry(question.category.clone()).or_default().push(both);
        }
        let silent = |of: &dyn Fn(&Question) -> bool| {
            share(asked.iter().filter(|one| of(one.question)).map(|one| one.ranking.is_empty()))
        };
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
        Measured {
            by_category,
            silent: [
                ("headline", silent(&Question::is_headline)),
                ("adversarial", silent(&|question| question.category == "adversarial")),
                ("foreign", share(foreign.iter().map(|answer| answer.ranking().is_empty()))),
            ],
            verdicts,
            reliability: Reliability::of(
                &asked.iter().filter_map(Asked::judged).collect::<Vec<_>>(),
            ),
        }
    }

    /// Question by question, of the headline's categories together.
    pub fn all(&self) -> Vec<[Figures; 2]> {
        self.by_category.values().flatten().copied().collect()
    }

    /// Question by question, of one category.
    pub fn of_category(&self, category: &str) -> &[[Figures; 2]] {
        self.by_category.get(category).map_or(&[], Vec::as_slice)
    }

    /// Questions of these categories whose reply says that nothing here speaks of them.
    pub fn nothing_matches(&self, categories: &[&str]) -> Part {
        let counts =
            self.verdicts.iter().filter(|(category, _)| categories.contains(&category.as_str()));
        counts.fold(Part::default(), |part, (_, counts)| Part {
            holds: part.holds + counts.get(NONE).copied().unwrap_or(0),
            of: part.of + counts.values().sum::<usize>(),
        })
    }

    /// The same of all categories of the headline.
    pub fn nothing_matches_headline(&self) -> Part {
        self.nothing_matches(&self.by_category.keys().map(String::as_str).collect::<Vec<_>>())
    }

    fn json(&self) -> Value {
        let side = |side: usize| -> (Value, Map<String, Value>) {
            let figures = |rows: &[[Figures; 2]]| {
                figures_json(&rows.iter().map(|row| row[side]).collect::<Vec<_>>())
            };
            (
                figures(&self.all()),
                self.by_category.iter().map(|(name, rows)| (name.clone(), figures(rows))).collect(),
            )
        };
        let ((all, by_category), (cosine, cosine_by_category)) = (side(0), side(1));
        let silent: Map<String, Value> =
            self.silent.iter().map(|(name, share)| ((*name).to_owned(), number(*share))).collect();
        let differences: Map<String, Value> =
            self.categories().map(|(name, rows)| (name, differences_json(&rows))).collect();
        json!({
            "all": all,
            "by_category": by_category,
            "cosine": {"all": cosine, "by_category": cosine_by_category},
            "minus_cosine": differences,
            "match": self.verdicts,
            "reliability": self.reliability.json(),
            "silent": silent,
        })
    }

    /// All together, then each category, where there are several.
    fn categories(&self) -> impl Iterator<Item = (String, Vec<[Figures; 2]>)> {
        let single = self.by_category.iter().map(|(name, rows)| (name.clone(), rows.clone()));
        std::iter::once(("all".to_owned(), self.all())).chain(single)
    }

    fn text(&self) -> String {
        let mut head = vec!["questions"];
        head.extend(Figures::default().shown().map(|(name, _)| name));
        head.push("n");
        let rows = self
            .categories()
            .flat_map(|(name, rows)| [row(&name, &rows, 0), row("  bare cosine", &rows, 1)]);
        let mut text = show::table(&head, &rows.collect::<Vec<_>>());
        text.push_str("\nservice minus bare cosine, in points, with the 95 % interval of the paired difference:\n");
        for (name, rows) in self.categories() {
            let [one, three] = [1, 3].map(|k| points(&difference(&rows, k)));
            text.push_str(&format!("  {name}: R@1 {one}, R@3 {three}\n"));
        }
        text.push_str("\nthe reply's match, by category:\n");
        for (category, counts) in &self.verdicts {
            let of: usize = counts.values().sum();
            let part = |(name, count): (&String, &usize)| {
                format!("{name} {}", percent(*count as f64 / of as f64))
            };
            text.push_str(&format!(
                "  {category}: {} (of {of})\n",
                counts.iter().map(part).collect::<Vec<_>>().join(", ")
            ));
        }
        let [headline, adversarial, foreign] = self.silent.map(|(_, share)| percent(share));
        text.push_str(&format!(
            "nothing is returned for {headline} of these, {adversarial} of the adversarial ones, {foreign} of other conversations' questions\n"
        ));
        if self.reliability.error.is_finite() {
            text.push_str(&format!("\n{}", self.reliability.text()));
        }
        text
    }
}

/// The paired difference of recall at `k`, service minus bare cosine. The service is not worse where `high` is 0 or more.
fn difference(rows: &[[Figures; 2]], k: usize) -> Interval {
    let differences: Vec<f64> =
        rows.iter().map(|[service, cosine]| service.recall_at(k) - cosine.recall_at(k)).collect();
    Interval::of(&differences)
}

pub fn points(interval: &Interval) -> String {
    let Interval { mean, low, high, .. } = interval;
    if mean.is_finite() {
        format!("{:+.1} [{:+.1}, {:+.1}]", 100.0 * mean, 100.0 * low, 100.0 * high)
    } else {
        "–".to_owned()
    }
}

fn differences_json(rows: &[[Figures; 2]]) -> Value {
    let one = |k: usize| difference_json(&difference(rows, k));
    json!({"R@1": one(1), "R@3": one(3)})
}

pub fn difference_json(interval: &Interval) -> Value {
    let Interval { mean, low, high, .. } = *interval;
    json!({"mean": number(mean), "low": number(low), "high": number(high), "not_worse": high >= 0.0})
}

fn figures_json(rows: &[Figures]) -> Value {
    let mut named: Map<String, Value> =
        Figures::mean(rows).named().map(|(name, value)| (name, number(value))).collect();
    named.insert("n".to_owned(), rows.len().into());
    Value::Object(named)
}

fn row(name: &str, rows: &[[Figures; 2]], side: usize) -> Vec<String> {
    let figures = Figures::mean(&rows.iter().map(|row| row[side]).collect::<Vec<_>>());
    let cells = figures.shown().map(|(_, value)| percent(value));
    std::iter::once(name.to_owned()).chain(cells).chain([rows.len().to_string()]).collect()
}
