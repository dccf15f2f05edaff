//! Holds the text of the demo: four sessions on different days, and five questions about them.
//!
//! Data only; the service decides about each line. The lines are chosen so that every outcome and
//! every factor of the gate occurs at least once.

use serde_json::{Value, json};

pub const USER: &str = "ada";

/// One conversation, some days before today.
pub struct ScriptSession {
    pub name: &'static str,
    pub days_ago: i64,
    pub lines: &'static [ScriptLine],
}

/// One event of the conversation.
pub enum ScriptLine {
    Ada(&'static str),
    Assistant(&'static str),
    /// A command of the application, not a turn.
    Remember(&'static str),
    Forget(&'static str),
}

use ScriptLine::{Ada, Assistant, Forget, Remember};

impl ScriptLine {
    /// Builds the event, without user, session and time.
    pub fn event(&self) -> Value {
        match self {
            Ada(text) => json!({"type": "turn", "role": "user", "content": text}),
            Assistant(text) => json!({"type": "turn", "role": "assistant", "content": text}),
            Remember(text) => json!({"type": "remember", "content": text, "kind": "fact"}),
            Forget(query) => json!({"type": "forget", "query": query}),
        }
    }

    pub fn who(&self) -> &'static str {
        match self {
            Ada(_) => USER,
            Assistant(_) => "assistant",
            Remember(_) => "remember",
            Forget(_) => "forget",
        }
    }

    pub fn text(&self) -> &'static str {
        match self {
            Ada(text) | Assistant(text) | Remember(text) | Forget(text) => text,
        }
    }
}

pub const SESSIONS: [ScriptSession; 4] = [
    ScriptSession {
        name: "hello",
        days_ago: 12,
        lines: &[
            Ada("Hi there! How are you today?"),
            Assistant("Hello! Doing great, what can I do for you?"),
            Ada("I live in Berlin, not far from the Spree."),
            Ada("I prefer tea over coffee in the morning."),
            Assistant("Good to know! Is there any food you can't eat?"),
            Ada("Peanuts! I'm really, REALLY allergic."),
            Ada("My dog is called Rex, he barks at every bicycle."),
            Ada("Thanks, that's great!"),
        ],
    },
    ScriptSession {
        name: "travel",
        days_ago: 9,
        lines: &[
            Ada("My flight to Oslo leaves on 12 March at 7:40, seat 14C."),
            Assistant("Noted! The airport express takes 34 minutes from Alexanderplatz."),
            Ada("My sister Anna turns 30 that week, we'll celebrate on a boat in the harbour."),
            Ada("I prefer tea over coffee in the morning!"),
            Ada("ok"),
            Ada("The flight back from Oslo is on 19 March at 21:05."),
            Ada("At the moment I'm reading a slow novel about lighthouses."),
        ],
    },
    ScriptSession {
        name: "work",
        days_ago: 5,
        lines: &[
            Ada("Please always give me temperatures in Celsius."),
            Remember("In an emergency call Anna, 0171 5550199."),
            Ada("What is the capital of Norway?"),
            Assistant("Oslo is the capital of Norway."),
            Ada("My locker combination at the gym is 47-11-08."),
            Ada("We decided to use Postgres for the ward's rota, no more spreadsheets."),
            Forget("locker combination"),
        ],
    },
    ScriptSession {
        name: "news",
        days_ago: 1,
        lines: &[
            Ada("Guess what, I moved to Lisbon last week!"),
            Assistant("Wow, congratulations!"),
            Ada("I changed my mind. I prefer coffee over tea now."),
            Ada("Saturn's rings looked amazing through my new telescope on Sunday."),
            Ada("Good night!"),
        ],
    },
];

/// One question, and how its answer is shown.
pub struct ScriptQuestion {
    pub text: &'static str,
    pub format: &'static str,
    /// With `explain`, superseded memories are returned too.
    pub explain: bool,
    /// Shows the prompt block as given to the model.
    pub block: bool,
    /// Points out the interesting part of the answer.
    pub remark: &'static str,
}

pub const QUESTIONS: [ScriptQuestion; 5] = [
    ScriptQuestion {
        text: "Where do I live?",
        format: "markdown",
        explain: true,
        block: true,
        remark: "a changed fact: explained, so the older one comes too",
    },
    ScriptQuestion {
        text: "When does my flight leave?",
        format: "compact",
        explain: false,
        block: true,
        remark: "numbers and dates, in the shortest block",
    },
    ScriptQuestion {
        text: "What must never be in my meal?",
        format: "none",
        explain: false,
        block: false,
        remark: "no word in common with the memory: only its meaning matches",
    },
    ScriptQuestion {
        text: "Do I prefer coffee or tea?",
        format: "xml",
        explain: false,
        block: true,
        remark: "a changed mind: only the current preference, as XML",
    },
    ScriptQuestion {
        text: "What is my locker combination?",
        format: "markdown",
        explain: false,
        block: true,
        remark: "said, then forgotten on request",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_twenty_five_turns_over_four_sessions_on_different_days() {
        let turns: usize = SESSIONS.iter().map(|session| session.lines.len()).sum();
        assert!((20..=30).contains(&turns), "{turns}");
        assert!(SESSIONS.windows(2).all(|pair| pair[0].days_ago > pair[1].days_ago));
        assert!(
            SESSIONS.iter().all(|session| session.days_ago >= 1),
            "a session must be over to be summarised"
        );
    }

    #[test]
    fn every_kind_of_line_occurs() {
        fn lines() -> impl Iterator<Item = &'static ScriptLine> {
            SESSIONS.iter().flat_map(|session| session.lines.iter())
        }
        assert!(lines().any(|line| matches!(line, Remember(_))));
        assert!(lines().any(|line| matches!(line, Forget(_))));
        assert!(lines().filter(|line| matches!(line, Assistant(_))).count() >= 3);
        assert!(lines().all(|line| line.text().chars().count() <= 84), "each fits on its line");
    }

    #[test]
    fn every_format_of_a_block_but_json_is_shown() {
        for format in ["markdown", "compact", "xml"] {
            assert!(
                QUESTIONS.iter().any(|question| question.block && question.format == format),
                "{format}"
            );
        }
    }
}
