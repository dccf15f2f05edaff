//! `keepsake eval --own`: sends a user's own questions to a running service, and compares the
//! answers with the expected ones.

use super::data;
use super::figures::Figures;
use super::report::{EvalReport, number, percent, progress};
use client::{Client, parse_user, show};
use domain::fault::{Fault, Result, StopName};
use serde::Deserialize;
use serde_json::{Value, json};
use settings::Config;
use std::path::Path;
use std::time::Duration;
use text::shortened;

const LIMIT: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const MISSES_SHOWN_MAX: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnQuestion {
    user: String,
    query: String,
    /// Each is the id of a memory, the id of its event, or a part of its text.
    expect: Vec<String>,
    session: Option<String>,
}

struct OwnAnswer {
    question: OwnQuestion,
    figures: Figures,
    /// Text of the first memory of the answer.
    first: Option<String>,
}

pub fn measure(config: &Config, file: &Path) -> Result<EvalReport> {
    let questions = read(file)?;
    let mut client = Client::connect(config)?;
    let mut answered = Vec::with_capacity(questions.len());
    for question in questions {
        answered.push(ask(&mut client, question)?);
        if answered.len() % 100 == 0 {
            progress(format!("{} questions asked", answered.len()));
        }
    }
    Ok(report(&answered))
}

fn ask(client: &mut Client, question: OwnQuestion) -> Result<OwnAnswer> {
    let key = parse_user(&question.user)?;
    let request = json!({
        "type": "recall", "tenant": key.tenant(), "user": key.user(), "query": question.query,
        "limit": LIMIT, "format": "none", "session": question.session,
    });
    let reply = client.ask(&request, TIMEOUT)?;
    if let Some(error) = reply.error() {
        return Err(Fault::retry(format!("ask {:?}: {error}", question.query)));
    }
    let memories = reply.value["memories"].as_array().map_or(&[][..], Vec::as_slice);
    let first = memories.first().map(|memory| show::text(memory, "content").to_owned());
    Ok(OwnAnswer {
        figures: Figures::of(&ranking(memories, &question.expect), &question.expect),
        question,
        first,
    })
}

/// Replaces each memory by the expectation that is met first, or by an empty text. Each
/// expectation is met once.
fn ranking(memories: &[Value], expect: &[String]) -> Vec<String> {
    let mut open: Vec<&String> = expect.iter().collect();
    memories
        .iter()
        .map(|memory| match open.iter().position(|expected| meets(memory, expected)) {
            Some(met) => open.remove(met).clone(),
            None => String::new(),
        })
        .collect()
}

fn meets(memory: &Value, expected: &str) -> bool {
    memory["id"] == expected
        || memory["source"]["event_id"] == expected
        || show::text(memory, "content").to_lowercase().contains(&expected.to_lowercase())
}

fn read(file: &Path) -> Result<Vec<OwnQuestion>> {
    let questions = data::lines("--own", file, |line| {
        let question: OwnQuestion = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let is_blank = question.expect.is_empty()
            || question.expect.iter().any(|expected| expected.trim().is_empty());
        if is_blank { Err("`expect` is empty".to_owned()) } else { Ok(question) }
    })?;
    if questions.is_empty() {
        let what = format!("--own {}: there is no question in this file", file.display());
        return Err(Fault::stop(StopName::ConfigInvalid, what));
    }
    Ok(questions)
}

fn report(answered: &[OwnAnswer]) -> EvalReport {
    let all: Vec<Figures> = answered.iter().map(|one| one.figures).collect();
    let mean = Figures::mean(&all);
    let missed: Vec<&OwnAnswer> =
        answered.iter().filter(|one| one.figures.recall_at(20) < 1.0).collect();
    let metrics: serde_json::Map<String, Value> =
        mean.named().map(|(name, value)| (name, number(value))).collect();
    let questions: Vec<Value> = answered.iter().map(OwnAnswer::json).collect();
    let json = json!({"metrics": metrics, "n": answered.len(), "questions": questions});
    let bold = show::BOLD;
    let dim = show::DIM;
    let plain = show::PLAIN;
    let mut text = format!("{} questions\n", answered.len());
    for (name, value) in mean.shown() {
        text.push_str(&format!("  {name:<8} {} {}\n", show::bar(value, 20), percent(value)));
    }
    if !missed.is_empty() {
        text.push_str(&format!("\n{bold}Not all found among the first {LIMIT}{plain}\n"));
    }
    for one in missed.iter().take(MISSES_SHOWN_MAX) {
        let first = one.first.as_deref().map_or("no memory was returned".to_owned(), |first| {
            format!("first memory: {}", shortened(first, 70))
        });
        text.push_str(&format!(
            "  {}  {}\n    {dim}{first}{plain}\n",
            one.question.user, one.question.query
        ));
    }
    if missed.len() > MISSES_SHOWN_MAX {
        text.push_str(&format!(
            "  {dim}and {} more: --json has all{plain}\n",
            missed.len() - MISSES_SHOWN_MAX
        ));
    }
    EvalReport { json, text }
}

impl OwnAnswer {
    fn json(&self) -> Value {
        json!({
            "user": self.question.user, "query": self.question.query,
            "expect": self.question.expect, "R@5": number(self.figures.recall_at(5)),
            "MRR": number(self.figures.mrr), "first": self.first,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_an_id_or_a_part_of_the_text_and_is_met_once() {
        let memories = [
            json!({"id": "m1", "content": "I live in Lisbon", "source": {"event_id": "e7"}}),
            json!({"id": "m2", "content": "Lisbon is warm", "source": {}}),
        ];
        for (expect, expected) in [
            (vec!["lisbon"], ["lisbon", ""]),
            (vec!["m2"], ["", "m2"]),
            (vec!["warm", "e7"], ["e7", "warm"]),
            (vec!["Porto"], ["", ""]),
        ] {
            let expect: Vec<String> = expect.into_iter().map(str::to_owned).collect();
            assert_eq!(ranking(&memories, &expect), expected);
        }
    }
}
