//! `keepsake bench score`: times the stages of a turn without the encoder: decode, redact, split,
//! score. Uses neither broker nor store; the history of the user is held in memory.

use super::messages;
use super::report::{BenchReport, RatioTarget, progress};
use super::speech::ChatGenerator;
use clap::Args;
use domain::fault::{Fault, Result, StopName};
use domain::{
    Action, ContextTurn, CosineScale, Event, Role, Turn, UserKey, UserWordCounts, Vector,
};
use log::broker::Record;
use log::decode;
use models::embedder::{Model, TokenCounter};
use policies::keepsake::{self, Keepsake};
use policies::score::{self, GateVerdict, ScoredText, ScoringContext};
use service::config::Config;
use service::profile::{Profile, Profiles};
use service::run::options;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::split::change::{EarlierStatement, PossibleRevision};
use text::split::{self, Candidate, EarlierText};
use text::{Rarity, redact};

const USER: &str = "bench";
/// Target for all four stages of a turn of ordinary length. Encoding takes a hundred times as
/// long, so 50 µs do not count beside it.
const TARGET_US: f64 = 50.0;
/// Turns before the first one that is timed: they fill the window of totals.
const WARM_UP: usize = score::WINDOW;
/// Same numbers as in ingest: the context window of a session, the memories that a turn is checked
/// against for contradictions, and those that a turn is checked against for revisions.
const TURNS_RECENT: usize = 6;
const CONTRADICTION_CANDIDATES: usize = 20;
const REVISION_CANDIDATES: usize = 5;

#[derive(Args)]
pub struct ScoreBench {
    /// Turns per round
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    turns: usize,
    /// Rounds; the fastest counts, as other load on the machine can only slow a round down
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    rounds: usize,
}

impl ScoreBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let pipeline = Pipeline::new(config)?;
        let turns = self.turns.max(1);
        let mut fastest = pipeline.round(turns)?;
        for round in 0..self.rounds {
            let next = pipeline.round(turns)?;
            progress(format!("round {round}: {:.2} µs a turn", next.turn_ns() / 1e3));
            fastest = if next.turn_ns() < fastest.turn_ns() { next } else { fastest };
        }
        let ratio = fastest.turn_ns() / 1e3 / TARGET_US;
        report.ratio("score_50_us", ratio, RatioTarget::AtMost(1.0));
        report.figure("turn_ns", fastest.turn_ns());
        report.figure("decode_ns", fastest.per_turn_ns(fastest.decode));
        report.figure("redact_ns", fastest.per_turn_ns(fastest.redact));
        report.figure("split_ns", fastest.per_turn_ns(fastest.split));
        report.figure("score_ns", fastest.per_turn_ns(fastest.score));
        Ok(())
    }
}

/// Time of one round, by stage.
#[derive(Default)]
struct StageTimes {
    turns: usize,
    decode: Duration,
    redact: Duration,
    split: Duration,
    score: Duration,
}

impl StageTimes {
    fn turn_ns(&self) -> f64 {
        self.per_turn_ns(self.decode + self.redact + self.split + self.score)
    }

    fn per_turn_ns(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e9 / self.turns as f64
    }
}

/// The stages of ingest with their options.
struct Pipeline {
    decode: decode::Options,
    profile: Arc<Profile>,
    policy: Keepsake,
    tokens: TokenCounter,
    rarity: Rarity,
    dimensions: usize,
}

impl Pipeline {
    fn new(config: &Config) -> Result<Pipeline> {
        let model = Model::open(&options::embedder(config))?;
        let rarity =
            model.vocabulary().map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words));
        let user = UserKey::new("default", USER).expect("the name is a constant without a slash");
        let profile = Profiles::load(config)?.of(&user).clone();
        let policy = keepsake::own(&*profile.rules.policy)
            .ok_or_else(|| {
                invalid("times the gate of the policy \"keepsake\": use such a profile")
            })?
            .clone();
        Ok(Pipeline {
            decode: options::decode(config),
            profile,
            policy,
            tokens: model.tokens(),
            rarity,
            dimensions: model.dimensions(),
        })
    }

    fn round(&self, turns: usize) -> Result<StageTimes> {
        let mut speech = ChatGenerator::new(8);
        let mut history = History::default();
        let mut times = StageTimes { turns, ..StageTimes::default() };
        for n in 0..WARM_UP + turns {
            let record = record(&speech.turn());
            let vector = self.vector(n);
            let began = Instant::now();
            let event = decode::event(&record, &self.decode)
                .outcome
                .map_err(|reject| invalid(&reject.to_string()))?;
            let decoded = Instant::now();
            let turn = self.redacted(event)?;
            let redacted = Instant::now();
            let candidates = split::candidates(
                &turn.content,
                turn.role,
                turn.kind.as_ref(),
                &self.profile.split,
                &|text: &str| self.tokens.count(text),
            );
            let split = Instant::now();
            for candidate in &candidates {
                black_box(self.judge(candidate, &Vector::of(&vector), &mut history));
            }
            let scored = Instant::now();
            history.push_turn(&turn, &Vector::of(&vector));
            if n >= WARM_UP {
                times.decode += decoded - began;
                times.redact += redacted - decoded;
                times.split += split - redacted;
                times.score += scored - split;
            }
        }
        Ok(times)
    }

    fn redacted(&self, event: Event) -> Result<Turn> {
        let Action::Turn(mut turn) = event.action else {
            return Err(invalid("a turn was decoded as another event"));
        };
        if let Some(redacted) = redact::redacted(&turn.content, &self.profile.redact) {
            turn.content = redacted.text;
        }
        Ok(turn)
    }

    /// Judges a candidate in the steps of ingest: look for contradictions and revisions among the
    /// memories, compute the surprise, compare the surprise with the threshold.
    fn judge(&self, candidate: &Candidate, vector: &Vector, history: &mut History) -> GateVerdict {
        let said = ScoredText::of(&candidate.text, &self.rarity);
        let conflicts = if split::may_conflict(&candidate.text) {
            split::conflicts(&candidate.text, &history.contradiction_candidates())
        } else {
            Vec::new()
        };
        if let Some(news) = PossibleRevision::of(&candidate.text) {
            let candidates = history.revision_candidates();
            black_box(news.revisions(&candidates, self.profile.rules.change.order, &|stem| {
                self.rarity.bits(stem)
            }));
        }
        let ground = ScoringContext {
            vector,
            nearest: 0.5,
            recent: history.recent.make_contiguous(),
            speaker: "user",
            role: Role::User,
            linked: !(candidate.slots.is_empty() && conflicts.is_empty()),
            rarity: &self.rarity,
            spread: CosineScale::STANDARD,
            own_words: &history.own_words,
        };
        let surprise = score::surprise(&said, &ground, &self.policy.weights);
        said.stems().iter().for_each(|stem| history.own_words.add(stem));
        push(&mut history.totals, surprise.total, score::WINDOW);
        let threshold = score::threshold(&self.policy.gate, history.totals.make_contiguous());
        score::verdict(&surprise, threshold)
    }

    /// Makes a vector for the `n`-th turn. Only the direction differs from turn to turn; the time
    /// of the stages does not depend on the meaning.
    fn vector(&self, n: usize) -> Vec<f32> {
        (0..self.dimensions).map(|axis| ((n * 31 + axis * 17) % 101) as f32 / 101.0 - 0.5).collect()
    }
}

/// Stands in for the records a shard holds of a user who has talked for a while.
#[derive(Default)]
struct History {
    own_words: UserWordCounts,
    totals: VecDeque<f32>,
    /// Context window of the session.
    recent: VecDeque<ContextTurn>,
    /// Memories that a new turn may contradict.
    memories: VecDeque<String>,
}

impl History {
    fn contradiction_candidates(&self) -> Vec<EarlierText<'_>> {
        self.memories
            .iter()
            .map(|content| EarlierText { content, cosine: 0.5, opposed: 0 })
            .collect()
    }

    fn revision_candidates(&self) -> Vec<EarlierStatement<'_>> {
        let near = self.memories.iter().take(REVISION_CANDIDATES);
        near.map(|content| EarlierStatement {
            content,
            nearness: 2.0,
            is_nearest: false,
            is_same_session: false,
        })
        .collect()
    }

    fn push_turn(&mut self, turn: &Turn, vector: &Vector) {
        push(&mut self.memories, turn.content.clone(), CONTRADICTION_CANDIDATES);
        let said = ContextTurn {
            speaker: turn.role.as_str().into(),
            role: turn.role,
            content: turn.content.as_str().into(),
            vector: vector.clone(),
            source: None,
            question: 0.0,
            memory: None,
        };
        push(&mut self.recent, said, TURNS_RECENT);
    }
}

/// Appends to a ring that holds at most `max` entries.
fn push<T>(ring: &mut VecDeque<T>, newest: T, max: usize) {
    ring.push_back(newest);
    ring.drain(..ring.len().saturating_sub(max));
}

fn record(content: &str) -> Record {
    Record {
        topic: "keepsake.events".into(),
        value: Some(messages::turn(USER, content).to_string().into_bytes()),
        ..Record::default()
    }
}

fn invalid(what: &str) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("bench score: {what}"))
}
