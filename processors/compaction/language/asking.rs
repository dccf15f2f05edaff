//! Asks the language model for summaries and facts without waiting: the worker asks, goes on, and
//! proposes the received answers in a later round. A proposal is an event, so a replay repeats the
//! recorded answer and asks nobody.

use super::asker::Asker;
use super::extracting::{self, PlannedExtraction};
use super::model::{Language, Question, Task};
use super::writing::SummaryDraft;
use crate::plan::{Answered, PlannedSummary, Snapshot, id_of, quoting};
use domain::{Extracted, Memory, Time, UserKey, fault};
use kernel::reads::ContextWindow;
use profiles::Profile;
use std::collections::HashSet;
use std::sync::Arc;

/// Ids that were asked about, so that no session is asked about twice while its proposal waits to
/// be applied. 100,000 take about 8 MB; of more, all are forgotten.
const ASKED_MAX: usize = 100_000;

/// The subject of a question, kept to turn the answer into a proposal.
enum Draft {
    Summary(SummaryDraft),
    Facts(PlannedExtraction),
}

/// The connection of the compaction worker to the language model.
pub struct Asking {
    asker: Asker<(i32, UserKey, Draft)>,
    facts: Arc<Task>,
    asked: HashSet<String>,
    /// Questions were left for the next round.
    has_left: bool,
}

impl Asking {
    pub fn with_threads(
        language: Arc<Language>,
        threads: usize,
        questions_max: usize,
    ) -> fault::Result<Asking> {
        Asker::with_threads(language, threads, questions_max).map(Asking::new)
    }

    /// Each question is answered at once, for tests.
    pub fn in_place(language: Arc<Language>, questions_max: usize) -> Asking {
        Asking::new(Asker::in_place(language, questions_max))
    }

    fn new(asker: Asker<(i32, UserKey, Draft)>) -> Asking {
        Asking {
            asker,
            facts: Arc::new(extracting::task()),
            asked: HashSet::new(),
            has_left: false,
        }
    }

    pub fn begin(&mut self) {
        self.has_left = false;
    }

    /// Returns whether an answer is still to come.
    pub fn is_waiting(&self) -> bool {
        self.asker.is_waiting()
    }

    /// Returns whether a further round could ask more.
    pub fn wants_round(&self) -> bool {
        self.has_left && !self.asker.is_waiting()
    }

    /// Asks for summaries. Returns those that the rules write, because nobody can be asked.
    pub fn summaries(
        &mut self,
        (partition, key): (i32, &UserKey),
        profile: &Profile,
        memories: &[Memory],
        planned: Vec<PlannedSummary>,
    ) -> Vec<PlannedSummary> {
        let mut by_rules = Vec::new();
        for summary in planned {
            let id = id_of("summary", &summary.covers);
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
            let (draft, question) = SummaryDraft::new((key, profile), memories, summary);
            if !self.asker.language.fits(&question) {
                by_rules
                    .push(draft.quoting("the session has more text than one question may have"));
                continue;
            }
            self.ask(id, (partition, key.clone(), Draft::Summary(draft)), question);
        }
        by_rules
    }

    /// Asks for the facts of the user's sessions that have paused. `is_applied` finds out whether an
    /// answer about the same turns was applied before, perhaps of another process.
    pub fn facts(
        &mut self,
        (partition, key): (i32, &UserKey),
        profile: &Profile,
        (snapshot, windows): (&Snapshot, &[(String, Arc<ContextWindow>)]),
        now: Time,
        is_applied: impl Fn(&str) -> fault::Result<bool>,
    ) -> fault::Result<Vec<Answered>> {
        let mut by_rules = Vec::new();
        for planned in extracting::plan(snapshot, windows, profile, now) {
            if self.asked.contains(&planned.id) || is_applied(&planned.id)? {
                continue;
            }
            // Asked later: the rules have kept their part, and the session can wait for more.
            if self.asker.language.refuses(key).is_some() {
                break;
            }
            if !self.asker.has_room() {
                self.has_left = true;
                break;
            }
            let question = Question::new(key, profile, &self.facts, planned.data());
            let id = planned.id.clone();
            if !self.asker.language.fits(&question) {
                let why = "the session has more text than one question may have";
                let found = planned.left_to_the_rules(why);
                self.note(id);
                by_rules.push(answered(partition, key.clone(), planned, found));
                continue;
            }
            self.ask(id, (partition, key.clone(), Draft::Facts(planned)), question);
        }
        Ok(by_rules)
    }

    /// Takes the next answer that leads to a proposal.
    pub fn answered(&mut self) -> Option<Answered> {
        loop {
            let ((partition, key, draft), answer) = self.asker.answer()?;
            let model = self.asker.language.name();
            match draft {
                Draft::Summary(draft) => {
                    let summary = draft.finished(answer, model);
                    return Some(Answered::Summary { partition, key, summary });
                }
                Draft::Facts(planned) => match planned.extracted(answer, model) {
                    Some(found) => return Some(answered(partition, key, planned, found)),
                    None => {
                        self.asked.remove(&planned.id);
                    }
                },
            }
        }
    }

    fn ask(&mut self, id: String, about: (i32, UserKey, Draft), question: Question) {
        if self.asker.ask(about, question) {
            self.note(id);
        }
    }

    fn note(&mut self, id: String) {
        if self.asked.len() >= ASKED_MAX {
            self.asked.clear();
        }
        self.asked.insert(id);
    }
}

fn answered(
    partition: i32,
    key: UserKey,
    planned: PlannedExtraction,
    found: Extracted,
) -> Answered {
    let PlannedExtraction { id, session, at, .. } = planned;
    Answered::Facts { partition, key, id, session, at, found }
}
