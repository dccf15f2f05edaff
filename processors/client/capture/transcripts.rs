//! Reads transcripts on from where they were read to. A session whose agent was killed is read by
//! the hook of a later session.

use super::{Capture, Project, State, cleaned, spool};
use crate::history::{Format, tail};
use broker::clock::{Clock, SystemClock};
use domain::fault::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// Time by which the clock of a transcript may be behind that of its first hook.
const SLACK_MS: i64 = 10_000;

/// A session of an agent that writes a transcript.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: String,
    pub format: Format,
    pub transcript: PathBuf,
    /// The hook runs at the beginning: what stands in the transcript already is of an earlier
    /// session, whose own transcript has it.
    pub begins: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    pub transcript: PathBuf,
    format: String,
    session: String,
    pub project: PathBuf,
    from_ms: i64,
    read_to: u64,
}

impl Capture {
    /// Remembers a session, so that its transcript is read even if its agent is killed now.
    pub fn note(&self, project: &Project, session: &Session) -> Result<()> {
        let is_known = |state: &State| {
            state.transcripts.iter().any(|known| known.transcript == session.transcript)
        };
        if is_known(&self.state()?) {
            return Ok(());
        }
        self.change(|state| {
            if !is_known(state) {
                let from_ms = match session.begins {
                    true => SystemClock.wall().0 - SLACK_MS,
                    false => project.since_ms,
                };
                state.transcripts.push(Known {
                    transcript: session.transcript.clone(),
                    format: session.format.name().to_owned(),
                    session: session.id.clone(),
                    project: project.dir.clone(),
                    from_ms,
                    read_to: 0,
                });
            }
            Ok(())
        })
    }

    /// Reads all known transcripts on, and returns the number of turns that wait for the service.
    pub fn read_on(&self) -> Result<usize> {
        self.change(|state| {
            let mut events = Vec::new();
            let mut known = std::mem::take(&mut state.transcripts);
            for one in &mut known {
                one.read_on(state, &mut events);
            }
            state.transcripts = known;
            // Order matters: after a crash between the two the turns are read again.
            spool::append(self, state, &events)?;
            spool::count(self)
        })
    }

    /// Has turns that an agent has no transcript of wait for the service.
    pub fn add(&self, project: &Project, event: Value) -> Result<()> {
        self.change(|state| match state.was_paused(SystemClock.wall().0) {
            true => Ok(()),
            false => spool::append(self, state, &[spool::of_project(event, project)]),
        })
    }
}

impl Known {
    /// A transcript that cannot be read stays known: its disk may come back.
    fn read_on(&mut self, state: &State, events: &mut Vec<Value>) {
        let project = state.projects.iter().find(|project| project.dir == self.project);
        let (Some(project), Some(format)) = (project, Format::parse(&self.format)) else { return };
        let Ok(tail) = tail(format, &self.transcript, &self.session, self.read_to) else { return };
        let from_ms = self.from_ms.max(project.since_ms);
        let is_captured =
            |at: Option<i64>| at.is_none_or(|at| at >= from_ms && !state.was_paused(at));
        for mut item in tail.items.into_iter().filter(|item| is_captured(item.at_ms)) {
            if let Some(text) = cleaned(&item.text) {
                item.text = text;
                events.push(spool::of_project(item.said(format), project));
            }
        }
        self.read_to = tail.read_to;
    }
}
