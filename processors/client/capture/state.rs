//! The state of the hooks, as `state.json` has it. Bounded: the oldest entries go.

use super::Project;
use super::transcripts::Known;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

const PROJECTS_MAX: usize = 1_000;
const EXCLUDED_MAX: usize = 1_000;
const PAUSES_MAX: usize = 100;
/// Sessions of some months. An older one that goes on begins as a new one.
const TRANSCRIPTS_MAX: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub projects: Vec<Project>,
    pub excluded: Vec<PathBuf>,
    /// Times in which nothing is captured or shown; the last one may still go on.
    pub pauses: Vec<Pause>,
    pub(super) transcripts: Vec<Known>,
    pub lost: Lost,
    /// Prompts that did not wait for an answer.
    pub late: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub from_ms: i64,
    pub to_ms: Option<i64>,
}

/// Turns that will never reach the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    pub turns: u64,
    /// The reason of the last one.
    pub why: String,
    /// Turns that a session was told of.
    pub told: u64,
}

impl State {
    pub fn is_paused(&self) -> bool {
        self.pauses.last().is_some_and(|pause| pause.to_ms.is_none())
    }

    pub(super) fn was_paused(&self, at_ms: i64) -> bool {
        let is_in =
            |pause: &Pause| at_ms >= pause.from_ms && pause.to_ms.is_none_or(|to| at_ms < to);
        self.pauses.iter().any(is_in)
    }

    pub fn pause(&mut self, now_ms: i64) {
        if !self.is_paused() {
            self.pauses.push(Pause { from_ms: now_ms, to_ms: None });
        }
    }

    pub fn resume(&mut self, now_ms: i64) {
        if let Some(pause) = self.pauses.last_mut() {
            pause.to_ms = pause.to_ms.or(Some(now_ms));
        }
    }

    pub(super) fn lose(&mut self, turns: usize, why: &str) {
        self.lost.turns += turns as u64;
        why.clone_into(&mut self.lost.why);
    }

    pub(super) fn bound(&mut self) {
        fn newest<T>(all: &mut Vec<T>, max: usize) {
            all.drain(..all.len().saturating_sub(max));
        }
        newest(&mut self.projects, PROJECTS_MAX);
        newest(&mut self.excluded, EXCLUDED_MAX);
        newest(&mut self.pauses, PAUSES_MAX);
        newest(&mut self.transcripts, TRANSCRIPTS_MAX);
    }
}
