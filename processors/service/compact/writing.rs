//! Lets the language model write the summary of a session, and takes the quotes of the rules where
//! its answer is missing or unfaithful.
//!
//! The worker never waits for an answer: it asks, goes on, and proposes the summary in a later
//! round. The proposal is an event, so a replay repeats the recorded text and asks nobody.

use super::faithful::{Kept, Sources};
use super::plan::PlannedSummary;
use super::summarizer::ExtractiveSummarizer;
use crate::language::{Asker, Language, Question, Task, cleaned};
use crate::profile::Profile;
use domain::{Made, Maker, Memory, UserKey, fault};
use models::language::{Refusal, Shape};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Ids of summaries that were asked for, so that no session is asked about twice while its proposal
/// waits to be applied. 100,000 take about 8 MB; of more, all are forgotten.
const ASKED_MAX: usize = 100_000;

/// A summary that the model was asked for.
struct Asked {
    partition: i32,
    key: UserKey,
    /// With the quotes of the rules as its content.
    summary: PlannedSummary,
    sources: Sources,
    keep: Kept,
}

pub struct Writing {
    asker: Asker<Asked>,
    task: Arc<Task>,
    asked: HashSet<String>,
    /// Questions were left for the next round.
    has_left: bool,
}

/// A summary to propose, and where.
pub struct Written {
    pub partition: i32,
    pub key: UserKey,
    pub summary: PlannedSummary,
}

/// The connection of the compaction worker to the language model.
pub struct Summaries(Asker<Asked>);

impl Summaries {
    pub fn with_threads(
        language: Arc<Language>,
        threads: usize,
        questions_max: usize,
    ) -> fault::Result<Summaries> {
        Asker::with_threads(language, threads, questions_max).map(Summaries)
    }

    /// Each question is answered at once, for tests.
    pub fn in_place(language: Arc<Language>, questions_max: usize) -> Summaries {
        Summaries(Asker::in_place(language, questions_max))
    }
}

impl Writing {
    pub fn new(Summaries(asker): Summaries) -> Writing {
        let task = Arc::new(task());
        Writing { asker, task, asked: HashSet::new(), has_left: false }
    }

    pub fn begin(&mut self) {
        self.has_left = false;
    }

    /// Returns whether a further round could ask more.
    pub fn wants_round(&self) -> bool {
        self.has_left && !self.asker.is_waiting()
    }

    /// Asks for a summary. Returns those that the rules write, because nobody can be asked.
    pub fn ask(
        &mut self,
        (partition, key): (i32, &UserKey),
        profile: &Profile,
        memories: &[Memory],
        planned: Vec<PlannedSummary>,
    ) -> Vec<PlannedSummary> {
        let mut by_rules = Vec::new();
        for summary in planned {
            let id = super::id_of("summary", &summary.covers);
            if self.asked.contains(&id) {
                continue;
            }
            if let Some(refusal) = self.asker.language.refuses(key) {
                by_rules.push(quoting(summary, refusal.reason()));
                continue;
            }
            if !self.asker.has_room() {
                self.has_left = true;
                break;
            }
            let covered: Vec<&Memory> = summary
                .covers
                .iter()
                .filter_map(|seen| memories.iter().find(|memory| memory.id == seen.id))
                .collect();
            // Order matters: what must be kept is read from clean texts, because parts of a secret
            // look like numbers that no rule of redaction finds.
            let keep = Kept::of(&cleaned(&summary.content, profile));
            let question = Question::about(key, profile, &self.task, &covered)
                .with("keep", keep.all().collect());
            if !self.asker.language.fits(&question) {
                let why = "the session has more text than llm.question_bytes_max";
                by_rules.push(quoting(summary, why));
                continue;
            }
            let texts = covered.iter().flat_map(|memory| {
                [memory.content.as_str()].into_iter().chain(memory.speaker.as_deref())
            });
            let sources = Sources::of(texts);
            let about = Asked { partition, key: key.clone(), summary, sources, keep };
            if self.asker.ask(about, question) {
                if self.asked.len() >= ASKED_MAX {
                    self.asked.clear();
                }
                self.asked.insert(id);
            }
        }
        by_rules
    }

    /// Takes the next answer and returns the summary to propose.
    pub fn written(&mut self) -> Option<Written> {
        let (asked, answer) = self.asker.answer()?;
        let Asked { partition, key, summary, sources, keep } = asked;
        let summary = match faithful(answer, &sources, &keep) {
            Ok(content) => {
                let made = Made { by: Maker::Model, reason: self.asker.language.name().to_owned() };
                PlannedSummary { content, made: Some(made), ..summary }
            }
            Err(why) => quoting(summary, why),
        };
        Some(Written { partition, key, summary })
    }
}

/// The summaries of the rules, in a profile that asks for a model that is not there.
pub fn without_endpoint(planned: Vec<PlannedSummary>) -> Vec<PlannedSummary> {
    planned.into_iter().map(|summary| quoting(summary, "llm.url names no endpoint")).collect()
}

/// The summary of the rules, with the reason why the model did not write it.
fn quoting(summary: PlannedSummary, why: &str) -> PlannedSummary {
    let made = Made { by: Maker::Rules, reason: why.to_owned() };
    PlannedSummary { made: Some(made), ..summary }
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

fn task() -> Task {
    let instruction = format!(
        "The field `texts` holds what was said in one session of a user, in order. Summarise it in \
         two or three plain sentences, in the language of the texts and in the third person. Keep \
         every name and number listed in `keep` exactly as written there. State nothing that the \
         texts do not state. Write one line of at most {} characters, without markup.",
        chars_max()
    );
    let schema = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["summary"],
        "properties": {"summary": {"type": "string"}}
    });
    let check = |value: &Value| match Answer::deserialize(value) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    Task { instruction, shape: Shape { name: "summary", schema, check } }
}
