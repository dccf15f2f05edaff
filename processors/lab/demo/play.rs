//! Plays the script of the demo: publishes its sessions, asks its questions and runs compaction.

use super::compaction::{Round, run_round};
use super::lines;
use super::screen::Screen;
use super::script::{QUESTIONS, SESSIONS, ScriptLine, ScriptQuestion, ScriptSession};
use super::stage::Stage;
use domain::fault::Result;
use serde_json::json;
use std::time::Duration;

const DAY_MS: i64 = 86_400_000;
/// Leaves out instructions and neighbours that have nothing to do with a question of the script: they
/// reach 2.5 %, and the least of the answers 3.1 %.
const RELEVANCE_MIN: f64 = 0.03;
/// Time between two lines of a session.
const LINE_MS: i64 = 60_000;

pub struct Play {
    pub stage: Stage,
    pub screen: Screen,
    pub pace: Duration,
}

impl Play {
    pub fn script(&mut self) -> Result<()> {
        self.screen.legend();
        for (n, session) in SESSIONS.iter().enumerate() {
            self.session(n + 1, session)?;
        }
        self.screen.chapter(
            "Five questions",
            "asked over the recalls topic, answered over the replies topic",
        );
        for (n, question) in QUESTIONS.iter().enumerate() {
            self.question(n + 1, question)?;
        }
        self.screen.chapter(
            "Compaction",
            "the worker plans and proposes, ingest applies: one log of changes, one writer",
        );
        self.compact("now", 0)?;
        self.compact("as if a year had passed", 365)?;
        Ok(())
    }

    fn session(&mut self, number: usize, session: &ScriptSession) -> Result<()> {
        let began = self.stage.now_ms() - session.days_ago * DAY_MS;
        self.screen.session(number, session, began);
        for (n, line) in session.lines.iter().enumerate() {
            let mut event = line.event();
            event["at"] = lines::moment(began + n as i64 * LINE_MS).into();
            // A forget that names a session would erase the whole session.
            if !matches!(line, ScriptLine::Forget(_)) {
                event["session"] = session.name.into();
            }
            let reply = self.stage.publish(event.clone())?;
            self.screen.turn(line.who(), line.text(), &event, &reply);
            std::thread::sleep(self.pace);
        }
        Ok(())
    }

    fn question(&mut self, number: usize, question: &ScriptQuestion) -> Result<()> {
        let request = json!({
            "type": "recall", "query": question.text, "limit": 3, "min_relevance": RELEVANCE_MIN,
            "format": question.format, "explain": question.explain,
        });
        let reply = self.stage.ask(request.clone())?;
        self.screen.question(number, question, &request, &reply);
        std::thread::sleep(self.pace * 3);
        Ok(())
    }

    fn compact(&mut self, when: &str, days_ahead: i64) -> Result<()> {
        let at_ms = self.stage.now_ms() + days_ahead * DAY_MS;
        let Round { proposed, decisions } = run_round(&mut self.stage, at_ms)?;
        self.screen.compaction(when, &lines::moment(at_ms), proposed, &decisions);
        std::thread::sleep(self.pace * 3);
        Ok(())
    }
}
