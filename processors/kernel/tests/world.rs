//! Sends events to the kernel as ingest does, and commits each alone or all together.

use super::shard::{Shard, User};
use crate::context::{Limits, Settings};
use crate::handled::Handled;
use crate::links::{conflicts, slots};
use crate::policy::{
    CandidateInput, Judgement, Learned, Lifecycle, Links, Policy, RememberInput, RememberJudgement,
    Traits,
};
use crate::prepared::{Part, Prepared, Sent, Statements};
use crate::ranking::{Hit, Question, RankedHits};
use crate::rules::TenantWriters;
use crate::staged::Staged;
use crate::{ActiveRules, Context, Rules, withheld};
use domain::fault::Result;
use domain::{
    Action, Category, Content, CosineScale, Decision, Event, Forget, Kind, Memory, MemoryId,
    MemoryVersion, Outcome, Position, Remember, Role, Scope, SenderLimits, SigningKey, Step,
    Surprise, Time, Turn, UserKey, Vector,
};
use serde_json::json;
use std::sync::Arc;
use text::Rarity;
use text::split::{self, Candidate};

/// Keeps every part of a turn but repetitions and parts that begin with "um". Stands for a policy
/// of which the kernel knows only the interface.
struct KeepsAll(Traits);

/// The least cosine of two texts with the same meaning.
const SAME: f32 = 0.99;

impl KeepsAll {
    fn links(cx: &Context<'_>, staged: &Staged<'_>, said: &CandidateInput<'_>) -> Result<Links> {
        let CandidateInput { turn, candidate, vector, .. } = said;
        let near = cx.nearest_lasting(staged, vector, conflicts::NEIGHBOURS)?;
        let person = slots::Person { role: turn.role, speaker: turn.speaker.as_deref() };
        let replaced = slots::replaced(staged, cx.key(), &candidate.slots, person, &near)?;
        let statement = conflicts::Statement { turn, text: &candidate.text, vector, near: &near };
        let mut opposed = conflicts::opposed(cx, staged, statement)?;
        opposed.retain(|one| replaced.iter().all(|other| other.id != one.memory.id));
        Ok(Links { slots: candidate.slots.clone(), replaced, opposed, revised: Vec::new() })
    }

    fn same(cx: &Context<'_>, staged: &Staged<'_>, vector: &Vector) -> Result<Option<Memory>> {
        match cx.nearest_lasting(staged, vector, 1)?.first() {
            Some((id, cosine)) if *cosine >= SAME => staged_memory(cx, staged, *id),
            _ => Ok(None),
        }
    }
}

fn staged_memory(cx: &Context<'_>, staged: &Staged<'_>, id: MemoryId) -> Result<Option<Memory>> {
    use crate::reads::Reads as _;
    staged.memory(cx.key(), id)
}

impl Policy for KeepsAll {
    fn traits(&self) -> &Traits {
        &self.0
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        let same = KeepsAll::same(cx, staged, said.vector)?;
        let links = KeepsAll::links(cx, staged, &said)?;
        let outcome = match &same {
            Some(_) => Outcome::Merged,
            None if said.candidate.text.starts_with("um") => Outcome::Dropped,
            None if links.replaced.is_empty() => Outcome::Kept,
            None => Outcome::Superseded,
        };
        Ok(Judgement {
            outcome,
            reason: "keeps all".to_owned(),
            class: "all",
            kind: said.turn.kind.clone().unwrap_or(said.candidate.kind.clone()),
            surprise: Surprise { total: 0.5, ..Surprise::default() },
            threshold: 0.0,
            importance: 0.5,
            confidence: 0.8,
            same,
            confirms: said.turn.role == Role::User,
            links,
            lifecycle: Lifecycle::Active,
            learned: Some(Learned { stems: None, total: 0.5 }),
        })
    }

    fn remember(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        let turn = said(Role::User, &asked.asked.content.text);
        let RememberInput { asked: Remember { content: Content { vector, .. }, .. }, candidate } =
            asked;
        let said = CandidateInput { turn: &turn, candidate, vector, has_foreign_totals: false };
        Ok(RememberJudgement {
            kind: asked.asked.kind.clone().unwrap_or(candidate.kind.clone()),
            confidence: 0.9,
            same: KeepsAll::same(cx, staged, vector)?,
            links: KeepsAll::links(cx, staged, &said)?,
        })
    }

    fn rank(&self, _: Vec<Hit>, _: &Question<'_>, _: Time) -> RankedHits {
        unreachable!("the kernel ranks nothing")
    }
}

pub struct World {
    /// All shards but the home of the tenant, then the home.
    shards: [&'static Shard; 2],
    staged: [Option<Staged<'static>>; 2],
    commits_each: bool,
    pub rules: Rules,
    /// Offset and time of the next event, in minutes.
    pub next: i64,
    pub session: Option<&'static str>,
    pub id: Option<&'static str>,
    pub role: Role,
    pub speaker: Option<&'static str>,
    pub limits: SenderLimits,
    pub memories_max: Option<u64>,
    /// Number of parts of a turn, of which the first is looked at.
    pub parts: usize,
    pub forget_memories_max: usize,
    /// The partition that reads the events; the user's where `None`.
    pub partition: Option<i32>,
    pub part: Part,
    pub sent: Option<Sent>,
    /// The place where the sender wrote the record, if elsewhere.
    pub source: Option<Position>,
}

pub const PARTITIONS: i32 = 3;

impl World {
    fn new(commits_each: bool) -> World {
        let effects = json!({
            "used": {"importance": 0.1, "confidence": 0.0},
            "confirmed": {"importance": 0.0, "confidence": 0.1},
            "wrong": {"importance": -0.3, "confidence": -0.5},
            "irrelevant": {"importance": -0.1, "confidence": 0.0},
            "returned": {"importance": 0.0, "confidence": 0.0},
            "returned_counts": false,
        });
        let roles =
            json!({"user": "gate", "assistant": "gate", "system": "context", "tool": "gate"});
        let policy = KeepsAll(Traits { wishes: true, ..Traits::default() });
        let read = "these are the fields";
        World {
            shards: [Box::leak(Box::default()), Box::leak(Box::default())],
            staged: [None, None],
            commits_each,
            rules: Rules {
                name: "keeps-all".into(),
                policy: Arc::new(policy),
                roles: serde_json::from_value(roles).expect(read),
                never: vec![Category::Health],
                change: serde_json::from_value(json!({"order": 0.6, "mark": 0.6})).expect(read),
                feedback: serde_json::from_value(effects).expect(read),
                tenant_writers: TenantWriters::Everybody,
                split: split::Options::default(),
            },
            next: 0,
            session: None,
            id: None,
            role: Role::User,
            speaker: None,
            limits: SenderLimits::default(),
            memories_max: None,
            parts: 1,
            forget_memories_max: 100,
            partition: None,
            part: Part::First,
            sent: None,
            source: None,
        }
    }

    pub fn send(&mut self, user: &str, action: Action) -> Handled {
        let key = key(user);
        let partition = self.partition.unwrap_or(key.partition(PARTITIONS));
        let at = Time(self.next * 60_000);
        let here = Position { topic: "events".into(), partition, offset: self.next };
        let prepared = Prepared {
            event: Event {
                key,
                session: self.session.map(str::to_owned),
                id: self.id.map(str::to_owned),
                at,
                metadata: Default::default(),
                source: self.source.clone().unwrap_or(here),
                warnings: Vec::new(),
                limits: self.limits,
                action: action.step(&mut Encoding { rules: &self.rules, parts: self.parts }),
            },
            partition,
            offset: self.next,
            part: self.part,
            sent: self.sent.unwrap_or(Sent { at, is_late: false, signed: None }),
        };
        self.next += 1;
        let (rarity, signing_key) =
            (Rarity::flat(), SigningKey::of("a key of these tests, 32 long ..."));
        let settings = Settings {
            rarity: &rarity,
            spread: CosineScale::STANDARD,
            chatter: None,
            partitions: PARTITIONS,
            limits: Limits {
                forget_query_max: 2,
                forget_memories_max: self.forget_memories_max,
                history_max: 2,
                ..Limits::default()
            },
            history_bytes_max: 1_000,
            memories_max: self.memories_max,
            signing_key: &signing_key,
            at_ahead_ms_max: 86_400_000,
        };
        let place = usize::from(partition == home());
        let shard = self.shards[place];
        let staged = self.staged[place].get_or_insert_with(|| Staged::over(shard, shard));
        let judges = ActiveRules { rules: &self.rules, shadow: None };
        let handled = crate::apply(settings, judges, staged, &prepared).expect("memory reads");
        if self.commits_each {
            self.commit();
        }
        handled
    }

    /// Hands an event to the tenant's home, as the user's partition sends it on.
    pub fn at_home(&mut self, part: Part, user: &str, action: Action) -> Handled {
        (self.part, self.partition) = (part, Some(home()));
        let handled = self.send(user, action);
        (self.part, self.partition) = (Part::First, None);
        handled
    }

    fn commit(&mut self) {
        for (shard, staged) in self.shards.iter_mut().zip(&mut self.staged) {
            let Some(mut staged) = staged.take() else { continue };
            staged.count_live_memories().expect("memory reads");
            let mut changed = shard.clone();
            changed.commit(staged.into_changes());
            *shard = Box::leak(Box::new(changed));
        }
    }

    /// Sends an event, and returns the only decision.
    pub fn decide(&mut self, user: &str, action: Action) -> Decision {
        let mut decisions = self.send(user, action).decisions;
        assert_eq!(decisions.len(), 1, "{decisions:#?}");
        decisions.remove(0)
    }

    pub fn say(&mut self, user: &str, content: &str) -> Decision {
        let turn = Turn { speaker: self.speaker.map(str::to_owned), ..said(self.role, content) };
        self.decide(user, Action::Turn(turn, ()))
    }

    pub fn remember(&mut self, user: &str, asked: Remember) -> Decision {
        self.decide(user, Action::Remember(asked))
    }

    pub fn forget(&mut self, user: &str, forget: Forget) -> Handled {
        self.send(user, Action::Forget(forget))
    }

    /// The state of a user as read by the next event.
    pub fn user(&mut self, user: &str) -> User {
        self.state_of(&key(user))
    }

    pub fn tenant(&mut self) -> User {
        self.state_of(&key("ada").tenant_key())
    }

    fn state_of(&mut self, key: &UserKey) -> User {
        self.commit();
        let shard = self.shards[usize::from(key.partition(PARTITIONS) == home())];
        shard.users.get(key).cloned().unwrap_or_default()
    }

    pub fn contents(&mut self, user: &str) -> Vec<String> {
        self.user(user).memories.into_values().map(|memory| memory.content).collect()
    }

    pub fn memory(&mut self, user: &str, decision: &Decision) -> Memory {
        let id = decision.memory.expect("the decision names a memory");
        self.user(user).memories.remove(&id).expect("the memory is there")
    }

    pub fn seen(&mut self, user: &str, decision: &Decision) -> MemoryVersion {
        let Memory { id, version, .. } = self.memory(user, decision);
        MemoryVersion { id, version }
    }
}

/// Runs a story with a batch for each event, and with one batch for all events between two looks.
/// Both end in the same state.
pub fn story(tell: impl Fn(&mut World)) {
    let [each, together] = [true, false].map(|commits_each| {
        let mut world = World::new(commits_each);
        tell(&mut world);
        world.commit();
        world.shards
    });
    assert_eq!(each, together, "where a batch ends changes nothing");
}

/// The home of the only tenant.
pub fn home() -> i32 {
    key("ada").tenant_key().partition(PARTITIONS)
}

pub fn key(user: &str) -> UserKey {
    UserKey::new("acme", user).expect("a name")
}

pub fn said(role: Role, content: &str) -> Turn {
    Turn { role, speaker: None, content: content.to_owned(), kind: None, remember: true }
}

pub fn wish(content: &str) -> Remember {
    Remember {
        content: content.into(),
        kind: None,
        importance: 0.7,
        confidence: None,
        stability: None,
        scope: Scope::User,
        expires_at: None,
    }
}

/// Gives every text its vector, and takes a turn as one candidate.
struct Encoding<'a> {
    rules: &'a Rules,
    parts: usize,
}

impl Step<(), ()> for Encoding<'_> {
    type Vector = Vector;
    type Statements = Statements;

    fn vector(&mut self, text: &str, (): ()) -> Vector {
        vector(text)
    }

    fn statements(&mut self, turn: &Turn, (): ()) -> Statements {
        let withheld = withheld::withheld(turn, self.rules);
        let content = turn.content.as_str();
        let candidates = match withheld {
            Some(_) => Vec::new(),
            None => vec![(candidate(content), vector(content))],
        };
        Statements { candidates, parts: self.parts, withheld }
    }
}

fn candidate(content: &str) -> Candidate {
    let (text, kind) = (content.to_owned(), Kind::new("fact"));
    Candidate { span: 0, text, kind, slots: split::slots(content) }
}

/// A vector that has a direction for each word.
fn vector(text: &str) -> Vector {
    let mut exact = [0.0_f32; 256];
    for word in text::words(&text.to_lowercase()) {
        let place = word.bytes().fold(7_usize, |sum, byte| (sum * 31 + usize::from(byte)) % 256);
        exact[place] += 1.0;
    }
    let length = exact.iter().map(|x| x * x).sum::<f32>().sqrt().max(f32::EPSILON);
    Vector::of(&exact.map(|x| x / length))
}
