//! Asks the language model for the summary of a session, and takes the quotes of the rules where
//! its answer is missing or unfaithful. Pure.

use super::model::{Question, Task, cleaned, has_form};
use crate::plan::{PlannedSummary, quoting};
use domain::{Author, Authorship, Memory, UserKey};
use llm::{Refusal, Shape};
use profiles::Profile;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use text::faithful::{Kept, Sources};
use text::summarizer::ExtractiveSummarizer;

/// A summary that the model was asked for, with the quotes of the rules as its content.
pub struct SummaryDraft {
    summary: PlannedSummary,
    sources: Sources,
    keep: Kept,
}

impl SummaryDraft {
    /// Makes the question, and the draft by which the answer is judged.
    pub fn new(
        (key, profile): (&UserKey, &Profile),
        memories: &[Memory],
        summary: PlannedSummary,
    ) -> (SummaryDraft, Question) {
        let covered: Vec<&Memory> = summary
            .covers
            .iter()
            .filter_map(|seen| memories.iter().find(|memory| memory.id == seen.id))
            .collect();
        // Order matters: names and numbers to keep are read from redacted texts, because parts of a
        // secret look like numbers that no rule of redaction finds.
        let keep = Kept::of(&cleaned(&summary.content, profile));
        let question = Question::about(key, profile, &task(profile), &covered)
            .with("keep", keep.all().collect());
        let texts = covered.iter().flat_map(|memory| {
            [memory.content.as_str()].into_iter().chain(memory.speaker.as_deref())
        });
        let sources = Sources::of(texts);
        (SummaryDraft { summary, sources, keep }, question)
    }

    /// The summary that comes of the answer.
    pub fn finished(self, answer: Result<Value, Refusal>, model: &str) -> PlannedSummary {
        let SummaryDraft { summary, sources, keep } = self;
        match faithful(answer, &sources, &keep) {
            Ok(content) => {
                let made = Authorship { by: Author::Model, reason: model.to_owned() };
                PlannedSummary { content, made: Some(made), ..summary }
            }
            Err(why) => quoting(summary, why),
        }
    }

    /// The summary without a question.
    pub fn quoting(self, why: &str) -> PlannedSummary {
        quoting(self.summary, why)
    }
}

fn faithful(
    answer: Result<Value, Refusal>,
    sources: &Sources,
    keep: &Kept,
) -> Result<String, &'static str> {
    let answer = answer.map_err(Refusal::reason)?;
    let Answer { summary } =
        serde_json::from_value(answer).map_err(|_| Refusal::Invalid.reason())?;
    match sources.fault(&summary, keep, chars_max()) {
        Some(fault) => Err(fault),
        None => Ok(summary.trim().to_owned()),
    }
}

fn chars_max() -> usize {
    ExtractiveSummarizer::default().chars_max
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    summary: String,
}

const PROMPT: &str =
    "Summarise the conversation in two or three plain sentences, in the third person.";

fn task(profile: &Profile) -> Arc<Task> {
    let instruction = format!(
        "{}\n\nThe conversation is the field `texts`: what was said in one session of a user, in \
         order. Write in the language of the texts. Keep every name and number listed in `keep` \
         exactly as written there. State nothing that the texts do not state. Write one line of at \
         most {} characters, without markup.",
        profile.summary.prompt.as_deref().unwrap_or(PROMPT).trim(),
        chars_max()
    );
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["summary"],
        "properties": {"summary": {"type": "string"}}
    });
    let shape = Shape { name: "summary", schema, check: has_form::<Answer> };
    Arc::new(Task { instruction, shape })
}
