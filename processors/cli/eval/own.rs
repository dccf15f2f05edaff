//! `keepsake eval --own`: your own questions, asked of your own running service, with what the answers should hold.

use super::metrics::Figures;
use super::{Report, number, percent, say, show};
use crate::cli::client::{Client, who};
use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use crate::text::shortened;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const LIMIT: usize = 20;
const WITHIN: Duration = Duration::from_secs(10);
const MISSES_SHOWN: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    user: String,
    query: String,
    /// A memory's id, its event's id, or a part of its text.
    expect: Vec<String>,
    session: Option<String>,
}

struct Answered {
    question: Question,
    figures: Figures,
    /// What came first instead.
    first: Option<String>,
}

pub fn measure(config: &Config, file: &Path) -> Result<Report> {
    let questions = read(file)?;
    let mut client = Client::connect(config)?;
    let mut answered = Vec::with_capacity(questions.len());
    for question in questions {
        answered.push(ask(&mut client, question)?);
        if answered.len() % 100 == 0 {
            say(format!("{} questions asked", answered.len()));
        }
    }
    Ok(report(&answered))
}

fn ask(client: &mut Client, question: Question) -> Result<Answered> {
    let key = who(&question.user)?;
    let request = json!({
        "type": "recall", "tenant": key.tenant(), "user": key.user(), "query": question.query, "limit": LIMIT, "format": "none",
        "session": question.session,
    });
    let reply = client.ask(&request, WITHIN)?;
    if let Some(error) = reply.error() {
        return Err(Fault::retry(format!("asks {:?}: {error}", question.query)));
    }
    let memories = reply.value["memories"].as_array().map_or(&[][..], Vec::as_slice);
    let first = memories.first().map(|memory| show::text(memory, "content").to_owned());
    Ok(Answered {
        figures: Figures::of(&ranking(memories, &question.expect), &question.expect),
        question,
        first,
    })
}

/// In each memory's place the expectation that it is the first to meet, if any.
fn ranking(memories: &[Value], expect: &[String]) -> Vec<String> {
    let mut met = vec![false; expect.len()];
    let mut place = |memory: &Value| {
        let found = (0..expect.len()).find(|n| !met[*n] && meets(memory, &expect[*n]))?;
        met[found] = true;
        Some(expect[found].clone())
    };
    memories.iter().map(|memory| place(memory).unwrap_or_default()).collect()
}

fn meets(memory: &Value, expected: &str) -> bool {
    memory["id"] == expected
        || memory["source"]["event_id"] == expected
        || show::text(memory, "content").to_lowercase().contains(&expected.to_lowercase())
}

fn read(file: &Path) -> Result<Vec<Question>> {
    let invalid = |what: String| {
        Fault::stop(StopName::ConfigInvalid, format!("--own {}: {what}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| invalid(e.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let questions = lines.map(|(number, line)| {
        let question: Question =
            serde_json::from_str(line).map_err(|e| invalid(format!("line {}: {e}", number + 1)))?;
        let is_blank = question.expect.is_empty()
            || question.expect.iter().any(|expected| expected.trim().is_empty());
        if is_blank {
            Err(invalid(format!("line {}: expect says nothing", number + 1)))
        } else {
            Ok(question)
        }
    });
    let questions: Vec<Question> = questions.collect::<Result<_>>()?;
    if questions.is_empty() {
        Err(invalid("there is no question in it".into()))
    } else {
        Ok(questions)
    }
}

fn report(answered: &[Answered]) -> Report {
    let all: Vec<Figures> = answered.iter().map(|one| one.figures).collect();
    let mean = Figures::mean(&all);
    let missed: Vec<&Answered> =
        answered.iter().filter(|one| one.figures.recall_at(20) < 1.0).collect();
    let metrics: serde_json::Map<String, Value> =
        mean.named().map(|(name, value)| (name, number(value))).collect();
    let question = |one: &Answered| {
        json!({
            "user": one.question.user, "query": one.question.query, "expect": one.question.expect,
            "R@5": number(one.figures.recall_at(5)), "MRR": number(one.figures.mrr), "first": one.first,
        })
    };
    let json = json!({
        "metrics": metrics, "n": answered.len(), "questions": answered.iter().map(question).collect::<Vec<_>>(),
    });
    let (bold, dim, plain) = (show::BOLD, show::DIM, show::PLAIN);
    let mut text = format!("{} questions\n", answered.len());
    for (name, value) in mean.shown() {
        text.push_str(&format!("  {name:<8} {} {}\n", show::bar(value, 20), percent(value)));
    }
    if !missed.is_empty() {
        text.push_str(&format!("\n{bold}Not all found among the first {LIMIT}{plain}\n"));
    }
    for one in missed.iter().take(MISSES_SHOWN) {
        let first = one.first.as_deref().map_or("nothing came".to_owned(), |first| {
            format!("first came: {}", shortened(first, 70))
        });
        text.push_str(&format!(
            "  {}  {}\n    {dim}{first}{plain}\n",
            one.question.user, one.question.query
        ));
    }
    if missed.len() > MISSES_SHOWN {
        text.push_str(&format!(
            "  {dim}and {} more: --json has all{plain}\n",
            missed.len() - MISSES_SHOWN
        ));
    }
    Report { json, text }
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
        let ranked = |expect: &[&str]| {
            ranking(&memories, &expect.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(ranked(&["lisbon"]), ["lisbon", ""]);
        assert_eq!(ranked(&["m2"]), ["", "m2"]);
        assert_eq!(ranked(&["warm", "e7"]), ["e7", "warm"]);
        assert_eq!(ranked(&["Porto"]), ["", ""]);
    }
}
