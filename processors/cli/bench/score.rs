//! `keepsake bench score`: what ingest does with a turn before and beside the encoder, in microseconds. Neither broker nor store.

use super::report::{Report, Wanted};
use super::say;
use super::speech::Speech;
use crate::config::Config;
use crate::domain::{Action, Event, OwnWords, Role, SaidBefore, Spread, Turn, UserKey, Vector};
use crate::fault::{Fault, Result, StopName};
use crate::policies::keepsake::{self, Keepsake};
use crate::ports::broker::Record;
use crate::ports::embedder::{Model, TokenCounter};
use crate::profile::{Profile, Profiles};
use crate::run::options;
use crate::stages::score::{self, Ground, Rarity, Said, Verdict};
use crate::stages::split::change::{Before, News};
use crate::stages::split::{self, Candidate, Earlier};
use crate::stages::{decode, redact};
use clap::Args;
use serde_json::json;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const USER: &str = "bench";
/// All four stages of a turn of ordinary length: beside its vector, which takes a hundred times as long, that is nothing.
const WANTED_US: f64 = 50.0;
/// Turns that are not timed: they fill the window of totals.
const BEFORE: usize = score::WINDOW;
/// As many as ingest has of a session, and as many memories as it compares a turn with that may say otherwise.
const TURNS_RECENT: usize = 6;
const COMPARED: usize = 20;
/// As many as it compares a turn with that may revise one of them.
const REVISED: usize = 5;

#[derive(Args)]
pub struct Score {
    /// Turns of one round
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    turns: usize,
    /// Rounds; the fastest counts, as what else the machine does only makes them slower
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    rounds: usize,
}

impl Score {
    pub fn measure(&self, config: &Config, report: &mut Report) -> Result<()> {
        let setting = Setting::new(config)?;
        let turns = self.turns.max(1);
        let nanoseconds = |part: Duration| part.as_secs_f64() * 1e9 / turns as f64;
        let mut took = setting.round(turns)?;
        for round in 0..self.rounds {
            let next = setting.round(turns)?;
            say(format!("round {round}: {:.2} µs a turn", nanoseconds(next.turn()) / 1e3));
            took = if next.turn() < took.turn() { next } else { took };
        }
        report.ratio(
            "score_50_us",
            nanoseconds(took.turn()) / 1e3 / WANTED_US,
            Wanted::AtMost(1.0),
        );
        report.figure("turn_ns", nanoseconds(took.turn()));
        report.figure("decode_ns", nanoseconds(took.decode));
        report.figure("redact_ns", nanoseconds(took.redact));
        report.figure("split_ns", nanoseconds(took.split));
        report.figure("score_ns", nanoseconds(took.score));
        Ok(())
    }
}

/// A round's time, stage by stage.
#[derive(Default)]
struct Took {
    decode: Duration,
    redact: Duration,
    split: Duration,
    score: Duration,
}

impl Took {
    fn turn(&self) -> Duration {
        self.decode + self.redact + self.split + self.score
    }
}

struct Setting {
    decode: decode::Options,
    profile: Arc<Profile>,
    policy: Keepsake,
    tokens: TokenCounter,
    rarity: Rarity,
    dimensions: usize,
}

impl Setting {
    fn new(config: &Config) -> Result<Setting> {
        let model = Model::open(&options::embedder(config))?;
        let rarity =
            model.vocabulary().map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words));
        let profile =
            Profiles::load(config)?.of(&UserKey::new("default", USER).expect("a name")).clone();
        let policy = keepsake::own(&*profile.policy)
            .ok_or_else(|| wrong("only the gate of Keepsake's own policy is timed"))?
            .clone();
        let (tokens, dimensions) = (model.tokens(), model.dimensions());
        Ok(Setting { decode: options::decode(config), profile, policy, tokens, rarity, dimensions })
    }

    fn round(&self, turns: usize) -> Result<Took> {
        let (mut speech, mut past, mut took) = (Speech::new(8), Past::default(), Took::default());
        for n in 0..BEFORE + turns {
            let (record, vector) = (record(&speech.turn()), self.vector(n));
            let began = Instant::now();
            let event = decode::event(&record, &self.decode)
                .outcome
                .map_err(|reject| wrong(&reject.to_string()))?;
            let decoded = Instant::now();
            let turn = self.redacted(event)?;
            let redacted = Instant::now();
            let count = |text: &str| self.tokens.count(text);
            let candidates =
                split::candidates(&turn.content, turn.kind.as_ref(), &self.profile.split, &count);
            let split = Instant::now();
            for candidate in &candidates {
                black_box(self.judged(candidate, &Vector::of(&vector), &mut past));
            }
            let scored = Instant::now();
            past.hear(&turn, &Vector::of(&vector));
            if n >= BEFORE {
                took.decode += decoded - began;
                took.redact += redacted - decoded;
                took.split += split - redacted;
                took.score += scored - split;
            }
        }
        Ok(took)
    }

    fn redacted(&self, event: Event) -> Result<Turn> {
        let Action::Turn(mut turn) = event.action else {
            return Err(wrong("a turn was read as something else"));
        };
        if let Some(redacted) = redact::redacted(&turn.content, &self.profile.redact) {
            turn.content = redacted.text;
        }
        Ok(turn)
    }

    /// As ingest does it with what a shard has found: compared with what may say otherwise, scored, held against the threshold.
    fn judged(&self, candidate: &Candidate, vector: &Vector, past: &mut Past) -> Verdict {
        let said = Said::of(&candidate.text, &self.rarity);
        let conflicts = match split::may_conflict(&candidate.text) {
            true => split::conflicts(&candidate.text, &past.earlier()),
            false => Vec::new(),
        };
        if let Some(news) = News::of(&candidate.text) {
            black_box(news.revisions(&past.before(), self.profile.change.order, &|stem| {
                self.rarity.bits(stem)
            }));
        }
        let ground = Ground {
            vector,
            nearest: 0.5,
            recent: past.said.make_contiguous(),
            speaker: "user",
            role: Role::User,
            linked: !(candidate.slots.is_empty() && conflicts.is_empty()),
            rarity: &self.rarity,
            spread: Spread::STANDARD,
            own_words: &past.own_words,
        };
        let surprise = score::surprise(&said, &ground, &self.policy.weights);
        said.stems().iter().for_each(|stem| past.own_words.add(stem));
        past.total(surprise.total);
        score::verdict(
            &surprise,
            score::threshold(&self.policy.gate, past.totals.make_contiguous()),
        )
    }

    /// In another direction for each turn, as good as any for what is timed here.
    fn vector(&self, n: usize) -> Vec<f32> {
        (0..self.dimensions).map(|axis| ((n * 31 + axis * 17) % 101) as f32 / 101.0 - 0.5).collect()
    }
}

/// What a shard knows of somebody who has talked for a while.
#[derive(Default)]
struct Past {
    own_words: OwnWords,
    totals: VecDeque<f32>,
    /// The last turns, the ground for the next.
    said: VecDeque<SaidBefore>,
    /// Memories that may be said otherwise than.
    memories: VecDeque<String>,
}

impl Past {
    fn earlier(&self) -> Vec<Earlier<'_>> {
        self.memories.iter().map(|content| Earlier { content, cosine: 0.5, opposed: 0 }).collect()
    }

    fn before(&self) -> Vec<Before<'_>> {
        let near = self.memories.iter().take(REVISED);
        near.map(|content| Before {
            content,
            nearness: 2.0,
            is_nearest: false,
            is_same_session: false,
        })
        .collect()
    }

    fn total(&mut self, total: f32) {
        push(&mut self.totals, total, score::WINDOW);
    }

    fn hear(&mut self, turn: &Turn, vector: &Vector) {
        let (speaker, content, vector) =
            (turn.role.as_str().to_owned(), turn.content.clone(), vector.clone());
        push(&mut self.memories, content.clone(), COMPARED);
        let said = SaidBefore {
            speaker: speaker.into(),
            role: turn.role,
            content: content.into(),
            vector,
            source: None,
            question: 0.0,
            memory: None,
        };
        push(&mut self.said, said, TURNS_RECENT);
    }
}

fn push<T>(ring: &mut VecDeque<T>, newest: T, most: usize) {
    ring.push_back(newest);
    ring.drain(..ring.len().saturating_sub(most));
}

fn record(content: &str) -> Record {
    let turn = json!({"type": "turn", "user": USER, "session": "bench", "content": content});
    Record {
        topic: "keepsake.events".into(),
        value: Some(turn.to_string().into_bytes()),
        ..Record::default()
    }
}

fn wrong(what: &str) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("bench score: {what}"))
}
