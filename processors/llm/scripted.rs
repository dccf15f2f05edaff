//! A stand-in for a language model that gives written answers, for tests. It holds the same
//! conversation as [`crate::ChatModel`], and one suite tests both (`tests/language.rs`).

use crate::conversation::{Message, ModelAnswer, converse};
use crate::model::{Cost, LanguageModel, Prompt, Refusal, Reply};
use parking_lot::Mutex;
use std::sync::Arc;

type Answers = dyn FnMut(&str) -> Result<String, Refusal> + Send;

pub struct Scripted {
    /// Gets the data of the prompt and returns the text of the model.
    answers: Mutex<Box<Answers>>,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    pub fn by(answers: impl FnMut(&str) -> Result<String, Refusal> + Send + 'static) -> Scripted {
        Scripted { answers: Mutex::new(Box::new(answers)), sent: Arc::default() }
    }

    /// Gives these answers one after the other, and none after the last.
    pub fn of(answers: Vec<Result<String, Refusal>>) -> Scripted {
        let mut answers = answers.into_iter();
        Scripted::by(move |_| answers.next().unwrap_or(Err(Refusal::Unavailable)))
    }

    /// Everything that was sent, in the order of sending: the contents of all messages.
    pub fn sent(&self) -> Arc<Mutex<Vec<String>>> {
        self.sent.clone()
    }
}

impl LanguageModel for Scripted {
    fn ask(&self, prompt: &Prompt<'_>) -> Reply {
        let data = prompt.data.to_string();
        converse(prompt, |messages: &[Message]| {
            let contents: Vec<&str> = messages.iter().map(|one| one.content.as_str()).collect();
            self.sent.lock().push(contents.join("\n"));
            let cost = Cost { requests: 1, tokens_in: 10, tokens_out: 5 };
            ModelAnswer { text: (self.answers.lock())(&data), cost }
        })
    }

    fn name(&self) -> &str {
        "scripted"
    }
}
