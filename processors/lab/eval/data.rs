//! Reads evaluation files: conversations with questions whose evidence is known, and labels.

use domain::fault::{Fault, Result, StopName};
use domain::{Time, UserKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Categories that no ranking of single turns answers; they are left out of the headline figures.
const NOT_IN_HEADLINE: [&str; 3] = ["adversarial", "event_ordering", "summarization"];

#[derive(Debug, Deserialize)]
pub struct Conversation {
    #[serde(rename = "conversation")]
    pub name: String,
    pub turns: Vec<EvalTurn>,
    #[serde(default)]
    pub questions: Vec<EvalQuestion>,
    #[serde(default)]
    pub conflicts: Vec<EvalConflict>,
}

#[derive(Debug, Deserialize)]
pub struct EvalTurn {
    pub id: String,
    pub session: Option<String>,
    pub at: String,
    pub speaker: Option<String>,
    pub role: String,
    pub content: String,
}

#[derive(Debug, Deserialize)]
pub struct EvalQuestion {
    pub id: String,
    pub text: String,
    /// When it is asked, of what was said by then. `None`: after the last turn.
    pub at: Option<String>,
    pub category: String,
    #[serde(default)]
    pub evidence: Vec<String>,
}

/// Turns that contradict earlier turns.
#[derive(Debug, Deserialize)]
pub struct EvalConflict {
    pub kind: String,
    pub earlier: Vec<String>,
    pub later: Vec<String>,
}

/// Labels of the turns of a conversation, by their ids.
#[derive(Debug, Deserialize)]
pub struct WishLabels {
    conversation: String,
    /// Wishes for every later answer.
    pub standing: Vec<String>,
    /// Wishes for one answer.
    pub one_off: Vec<String>,
    /// By question: the wishes that concern it.
    pub concern: HashMap<String, Vec<String>>,
}

impl Conversation {
    pub fn headline(&self) -> impl Iterator<Item = &EvalQuestion> {
        self.questions.iter().filter(|question| question.is_headline())
    }

    /// Returns the questions in the order of time, each with its place in the file and the number of
    /// turns before it.
    pub fn questions_in_time(&self) -> Vec<(usize, usize, &EvalQuestion)> {
        let before = |question: &EvalQuestion| {
            let at = question.time()?;
            self.turns.iter().position(|turn| turn.time() > Some(at))
        };
        let mut questions: Vec<_> = self
            .questions
            .iter()
            .enumerate()
            .map(|(place, question)| {
                (place, before(question).unwrap_or(self.turns.len()), question)
            })
            .collect();
        questions.sort_by_key(|(place, before, question)| (*before, question.time(), *place));
        questions
    }

    /// Maps turn ids to positions in the conversation.
    pub fn positions(&self) -> HashMap<&str, usize> {
        self.turns.iter().enumerate().map(|(position, turn)| (turn.id.as_str(), position)).collect()
    }
}

impl EvalTurn {
    pub fn is_users(&self) -> bool {
        self.role == "user"
    }

    pub fn time(&self) -> Option<Time> {
        parsed(&self.at)
    }
}

fn parsed(at: &str) -> Option<Time> {
    at.parse::<jiff::Timestamp>().ok().map(|at| Time(at.as_millisecond()))
}

impl EvalQuestion {
    pub fn time(&self) -> Option<Time> {
        self.at.as_deref().and_then(parsed)
    }

    /// True if the turn is evidence.
    pub fn needs(&self, turn: &str) -> bool {
        self.evidence.iter().any(|id| id == turn)
    }

    /// A question of one letter only marks evidence.
    pub fn is_asked(&self) -> bool {
        self.text.chars().nth(1).is_some()
    }

    /// The question counts for the headline figures: a ranking of turns can answer the question.
    pub fn is_headline(&self) -> bool {
        self.is_asked()
            && !NOT_IN_HEADLINE.contains(&self.category.as_str())
            && !self.evidence.is_empty()
    }
}

/// Reads and validates all conversations of the files.
pub fn read(files: &[PathBuf]) -> Result<Vec<Conversation>> {
    let mut found = Vec::new();
    for file in files {
        found.extend(lines("read", file, conversation)?);
    }
    if found.is_empty() {
        let what = "--data: there is no conversation in these files";
        return Err(Fault::stop(StopName::ConfigInvalid, what));
    }
    Ok(found)
}

/// Reads each line of a file that is not empty. An error begins with `what` and names the line.
pub fn lines<T>(
    what: &str,
    file: &Path,
    read: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<Vec<T>> {
    let invalid = |why: String| {
        Fault::stop(StopName::ConfigInvalid, format!("{what} {}: {why}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| invalid(e.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(n, line)| read(line).map_err(|why| invalid(format!("line {}: {why}", n + 1))))
        .collect()
}

/// Reads labels of wishes, by conversation.
pub fn wish_labels(file: &Path) -> Result<HashMap<String, WishLabels>> {
    let labels = lines("read", file, |line| {
        serde_json::from_str::<WishLabels>(line).map_err(|error| error.to_string())
    })?;
    Ok(labels.into_iter().map(|one| (one.conversation.clone(), one)).collect())
}

/// Reads files of labels by id: labels of turns, or kinds of questions.
pub fn by_id<T: DeserializeOwned>(files: &[PathBuf]) -> Result<HashMap<String, T>> {
    let mut found = HashMap::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|e| invalid(file, &e))?;
        found.extend(
            serde_json::from_str::<HashMap<String, T>>(&text).map_err(|e| invalid(file, &e))?,
        );
    }
    Ok(found)
}

fn conversation(line: &str) -> std::result::Result<Conversation, String> {
    let found: Conversation = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let name = &found.name;
    if let Err(not) = UserKey::new("default", name) {
        return Err(format!("conversation {name:?} {}: the name becomes a user name", not.why));
    }
    if let Some(turn) = found.turns.iter().find(|turn| turn.time().is_none()) {
        return Err(format!("conversation {name}, turn {}: not a time: {:?}", turn.id, turn.at));
    }
    let has_no_time = |question: &&EvalQuestion| question.at.is_some() && question.time().is_none();
    if let Some(question) = found.questions.iter().find(has_no_time) {
        return Err(format!("conversation {name}, question {}: not a time", question.id));
    }
    if found.positions().len() < found.turns.len() {
        return Err(format!("conversation {name}: two turns have the same id"));
    }
    Ok(found)
}

fn invalid(file: &Path, why: &dyn std::fmt::Display) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("read {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let error = conversation(line).expect_err(line);
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn an_invalid_conversation_is_refused_with_a_reason() {
        check(r#"{"turns": []}"#, "conversation");
        check(r#"{"conversation": "a/b", "turns": []}"#, "'/'");
        let noon = turn("noon");
        check(&format!(r#"{{"conversation": "a", "turns": [{noon}]}}"#), "not a time");
        let twice = turn("2024-05-01T09:00:00Z");
        check(&format!(r#"{{"conversation": "a", "turns": [{twice}, {twice}]}}"#), "same id");
    }

    fn turn(at: &str) -> String {
        format!(r#"{{"id": "1", "at": "{at}", "role": "user", "content": "Hi"}}"#)
    }

    #[test]
    fn a_question_without_evidence_is_not_counted() {
        let line = r#"{"conversation": "a", "turns": [], "questions": [
            {"id": "1", "text": "Who?", "category": "temporal"},
            {"id": "2", "text": "Who?", "category": "adversarial", "evidence": ["1"]},
            {"id": "3", "text": "Who?", "category": "temporal", "evidence": ["1"]}]}"#;
        let found = conversation(line).expect("well-formed");
        assert_eq!(
            found.headline().map(|question| question.id.as_str()).collect::<Vec<_>>(),
            ["3"]
        );
    }
}
