//! `keepsake demo`: the whole service on a broker inside this process, and a client that shows it a conversation, asks about it,
//! lets time pass, and goes on as a chat. Decides nothing and has no way in but Kafka's: what is shown is what any client gets.

mod chat;
mod compaction;
mod lines;
mod script;
mod show;
mod stage;

use super::Output;
use super::client::Reply;
use crate::config::Config;
use crate::fault::{Fault, Result};
use clap::Args;
use script::{Line, QUESTIONS, Question, SESSIONS, Session, USER};
use serde_json::{Value, json};
use show::Screen;
use stage::Stage;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// No exchange takes so long unless the service has died.
const PATIENCE: Duration = Duration::from_secs(20);
const DAY_MS: i64 = 86_400_000;
/// Between two lines of a session.
const LINE_MS: i64 = 60_000;
/// Somebody is reading along: a turn takes about a millisecond or ten, and would be gone before it is seen.
const PACE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct Demo {
    /// End after the script instead of going on as a chat
    #[arg(long)]
    exit: bool,
}

impl Demo {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let screen = Screen::new(output);
        let watched = std::io::stdout().is_terminal() && output == Output::Person;
        let mut play = Play {
            stage: Stage::open(config, &screen)?,
            screen,
            pace: if watched { PACE } else { Duration::ZERO },
        };
        let played = play.script().and_then(|()| {
            match watched && std::io::stdin().is_terminal() && !self.exit {
                true => chat::chat(&mut play),
                false => Ok(()),
            }
        });
        // Why the service stopped says more than that nobody answered.
        play.stage.close().and(played)?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Play {
    stage: Stage,
    screen: Screen,
    pace: Duration,
}

impl Play {
    fn script(&mut self) -> Result<()> {
        self.screen.legend();
        SESSIONS
            .iter()
            .enumerate()
            .try_for_each(|(number, session)| self.session(number + 1, session))?;
        self.screen.chapter(
            "Five questions",
            "asked over the recalls topic, answered over the replies topic",
        );
        QUESTIONS
            .iter()
            .enumerate()
            .try_for_each(|(number, question)| self.question(number + 1, question))?;
        self.screen.chapter(
            "Compaction",
            "the worker plans and proposes, ingest applies: one log of changes, one writer",
        );
        self.compact("now", 0)?;
        self.compact("as if a year had passed", 365)?;
        self.figures();
        Ok(())
    }

    fn session(&mut self, number: usize, session: &Session) -> Result<()> {
        let began = self.stage.now_ms() - session.days_ago * DAY_MS;
        self.screen.session(number, session, began);
        for (place, line) in session.lines.iter().enumerate() {
            let mut event = line.event();
            event["session"] = session.name.into();
            event["at"] = lines::moment(began + place as i64 * LINE_MS).into();
            if matches!(line, Line::Forget(_)) {
                // A forget that names a session means all of it.
                event.as_object_mut().map(|fields| fields.remove("session"));
            }
            let reply = self.publish(event.clone())?;
            self.screen.turn(line.who(), line.text(), &event, &reply);
            std::thread::sleep(self.pace);
        }
        Ok(())
    }

    fn question(&mut self, number: usize, question: &Question) -> Result<()> {
        let request = json!({"type": "recall", "query": question.text, "limit": 3, "format": question.format, "explain": question.explain});
        let reply = self.ask(request.clone())?;
        self.screen.question(number, question, &request, &reply);
        std::thread::sleep(self.pace * 3);
        Ok(())
    }

    fn figures(&mut self) {
        let figures = self.stage.figures();
        self.screen.figures(self.stage.service.http, &figures);
    }

    /// One event of the demo's user; its receipt comes when its effect is there.
    fn publish(&mut self, mut event: Value) -> Result<Reply> {
        event["user"] = USER.into();
        served(self.stage.client.publish(&event, PATIENCE)?)
    }

    fn ask(&mut self, mut request: Value) -> Result<Reply> {
        request["user"] = USER.into();
        served(self.stage.client.ask(&request, PATIENCE)?)
    }
}

fn served(reply: Reply) -> Result<Reply> {
    match reply.error() {
        Some(error) => Err(Fault::retry(error)),
        None => Ok(reply),
    }
}

/// Looks again until it is so, or until the time is up.
fn wait_until(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + within;
    while !is_so() {
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
