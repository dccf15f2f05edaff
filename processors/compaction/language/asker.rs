//! Lets a worker ask without waiting: questions go to separate threads, and the worker takes the
//! answers in a later round.
//!
//! The threads hold nothing but their question. They are not waited for when the process stops,
//! because a hanging endpoint would hold the stop up for `llm.timeout_ms`; the question is asked
//! again by the next process.

use super::model::{Language, Question};
use crossbeam_channel::{Receiver, Sender, bounded};
use domain::fault::{Fault, Result, StopName};
use llm::Refusal;
use serde_json::Value;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Answer = std::result::Result<Value, Refusal>;

/// `T` is the data that the worker needs with the answer.
pub struct Asker<T> {
    pub language: Arc<Language>,
    work: Work<T>,
    /// Questions without a taken answer. Bounded by `questions_max`, and so are both queues.
    waiting: usize,
    questions_max: usize,
}

enum Work<T> {
    Threads {
        questions: Sender<(T, Question)>,
        answers: Receiver<(T, Answer)>,
    },
    /// For tests: each question is answered at once.
    InPlace(VecDeque<(T, Answer)>),
}

impl<T: Send + 'static> Asker<T> {
    pub fn with_threads(
        language: Arc<Language>,
        threads: usize,
        questions_max: usize,
    ) -> Result<Asker<T>> {
        let (questions, to_ask) = bounded::<(T, Question)>(questions_max);
        let (answered, answers) = bounded(questions_max);
        for _ in 0..threads {
            let (language, to_ask, answered) = (language.clone(), to_ask.clone(), answered.clone());
            let work = move || {
                for (about, question) in to_ask {
                    let answer = catch_unwind(AssertUnwindSafe(|| language.ask(&question)))
                        .unwrap_or(Err(Refusal::Unavailable));
                    if answered.send((about, answer)).is_err() {
                        break;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("language".to_owned()).spawn(work);
            thread.map_err(|error| {
                Fault::stop(
                    StopName::ThreadDied,
                    format!("cannot start a language thread: {error}"),
                )
            })?;
        }
        let work = Work::Threads { questions, answers };
        Ok(Asker { language, work, waiting: 0, questions_max })
    }

    /// Answers each question at once.
    pub fn in_place(language: Arc<Language>, questions_max: usize) -> Asker<T> {
        Asker { language, work: Work::InPlace(VecDeque::new()), waiting: 0, questions_max }
    }

    pub fn has_room(&self) -> bool {
        self.waiting < self.questions_max
    }

    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Asks a question. Returns false if too many wait; the worker asks again later.
    pub fn ask(&mut self, about: T, question: Question) -> bool {
        if !self.has_room() {
            return false;
        }
        let is_taken = match &mut self.work {
            Work::Threads { questions, .. } => questions.try_send((about, question)).is_ok(),
            Work::InPlace(answers) => {
                answers.push_back((about, self.language.ask(&question)));
                true
            }
        };
        self.waiting += usize::from(is_taken);
        is_taken
    }

    /// Takes the next answer, if there is one.
    pub fn answer(&mut self) -> Option<(T, Answer)> {
        let answer = match &mut self.work {
            Work::Threads { answers, .. } => answers.try_recv().ok(),
            Work::InPlace(answers) => answers.pop_front(),
        };
        self.waiting -= usize::from(answer.is_some());
        answer
    }
}
