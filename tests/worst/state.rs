//! Law nobody-suffers for one user: the time for an event or a request grows at most in proportion to
//! what the user has, and is at most two seconds.
//!
//! A user with ten times as many memories, slots, sessions and links in a chain is compared with
//! another. A quadratic rule takes 100 times as long. `KEEPSAKE_WORST_MEMORIES=100000` sets the size,
//! and then the two seconds are checked too: for a release build.

use crate::support::in_process::InProcess;
use crate::support::number_from_env;
use broker::OutgoingRecord;
use contract::reply::{self, NewSummary, Proposal};
use domain::{
    Author, Authorship, ContextTurn, Extracted, Fact, IdleSession, JudgedMemory, Kind, Memory,
    MemoryId, MemoryVersion, Position, Revise, Role, Time, UserKey, Vector,
};
use kernel::reads::{Session, SlotHolder};
use kernel::staged::Staged;
use serde_json::{Value, json};
use std::time::Duration;

/// Memories in an unoptimised build.
const SMALL: usize = 3000;
/// Largest allowed ratio of the times for ten times the state. Linear is 10, quadratic is 100; 30 where
/// the cache of decoded memories holds the tenth and not the whole.
const RATIO_MAX: f64 = 40.0;
/// Below this time a ratio means nothing on a busy machine.
const SHORTEST: Duration = Duration::from_millis(100);
/// The pause of everybody else while one event is applied.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Slots of each memory.
const SLOTS: usize = 3;
/// Tries of each kind: a busy machine makes one measurement longer, never shorter.
const TRIES: usize = 3;
/// Memories that one proposal names.
const TOGETHER: usize = 32;

/// A user with much of everything.
struct Crowded {
    service: InProcess,
    key: UserKey,
    memories: Vec<Memory>,
}

impl Crowded {
    /// Puts the state into the store directly: each value of a fact has superseded the one before.
    fn of(size: usize) -> Crowded {
        let mut service = InProcess::with_hash_model();
        let first = json!({"type": "turn", "user": "mia", "session": "s0",
                           "content": "I keep 4 grey cats in Lisbon."});
        service.outcome_of(&first);
        let key = UserKey::new("default", "mia").expect("valid names");
        let shard = service.shards.get(0).expect("it is open");
        let (id, vector) = shard.vectors(&key).expect("a store in memory").remove(0);
        let pattern = kernel::Reads::memory(&shard.store, &key, id).expect("a store in memory");
        let pattern = pattern.expect("it has a vector");
        let source = |n: usize| Position { offset: 1_000_000 + n as i64, ..pattern.source.clone() };
        let id = |n: usize| MemoryId::of(&source(n), 0);
        let mut staged = Staged::over(&shard.store, &*shard);
        let mut memories = Vec::new();
        for n in 0..size {
            let mut memory = pattern.clone();
            memory.id = id(n);
            memory.source = source(n);
            memory.session = Some(format!("s{n}"));
            memory.content = format!("My w{n:x} is v{n:x}.");
            memory.created_at = Time(pattern.created_at.0 + n as i64);
            memory.supersedes = n.checked_sub(1).map(id).into_iter().collect();
            memory.superseded_by = (n + 1 < size).then(|| id(n + 1));
            memory.valid_to = memory.superseded_by.map(|_| memory.created_at);
            let mut values = vector.values.to_vec();
            let len = values.len();
            values[n % len] = (n % 251) as i8;
            values[n / len % len] = (n % 127) as i8;
            let vector = Vector { values: values.into(), ..vector.clone() };
            let session = format!("s{n}");
            let counted = Session { turns: 1, ..Session::default() };
            staged.put_session(&key, &session, &counted);
            let said = ContextTurn {
                speaker: "user".into(),
                role: Role::User,
                content: memory.content.as_str().into(),
                vector: vector.clone(),
                source: Some(memory.source.clone()),
                question: 0.0,
                memory: Some(memory.id),
            };
            staged.push_turn(&key, Some(&session), &said).expect("a store in memory");
            for slot in 0..SLOTS {
                let holder = SlotHolder { memory: memory.id, value: format!("v{n:x}") };
                staged.put_slot(&key, &format!("my_is:w{n:x}-{slot}"), &holder);
            }
            memories.push(memory.clone());
            staged.put_memory_and_vector(memory, &vector);
        }
        let batch = shard.store.encode(staged.into_changes());
        shard
            .apply_batch(batch.expect("a store in memory"), shard.applied(), None)
            .expect("a store in memory");
        drop(shard);
        Crowded { service, key, memories }
    }

    fn id(&self, at: usize) -> String {
        self.memories[at].id.to_string()
    }

    fn seen(&self, from: usize, count: usize) -> Vec<MemoryVersion> {
        let shard = self.service.shards.get(0).expect("it is open");
        let all = self.memories[from..].iter().filter_map(|one| {
            let stored = kernel::Reads::memory(&shard.store, &self.key, one.id);
            let version = stored.expect("a store in memory")?.version;
            Some(MemoryVersion { id: one.id, version })
        });
        all.take(count).collect()
    }

    fn event(&mut self, mut event: Value) {
        event["user"] = "mia".into();
        self.service.decisions_of(&event);
    }

    fn request(&mut self, mut request: Value) {
        request["user"] = "mia".into();
        let reply = self.service.reply(Time(0), &request);
        assert_ne!(reply["type"], "error", "{request}: {reply}");
    }

    /// Applies a proposal of the compaction worker.
    fn own(&mut self, id: &str, build: impl FnOnce(&Proposal<'_>) -> OutgoingRecord) {
        let options = self.service.compaction(None).options;
        let (topic, signing_key) = (options.events.as_str(), &options.signing_key);
        let key = &self.key;
        let record = build(&Proposal { topic, partition: 0, key, id, at: Time(0), signing_key });
        self.service.outcome_of_own_record(&record);
    }
}

/// A name, and what is done at a try. Each try is about other memories; what changes the most is last.
type Work = (&'static str, fn(&mut Crowded, usize));

const WORK: &[Work] = &[
    ("turn", |it, n| {
        let said = format!("My w{n:x} is k{n}, and I moved to Porto.");
        it.event(json!({"type": "turn", "session": format!("s{n}"), "content": said}));
    }),
    ("remember", |it, n| {
        it.event(json!({"type": "remember", "content": format!("My w{n:x} is z.")}))
    }),
    ("update", |it, n| {
        let changed = json!({"type": "update", "memory": it.id(n), "content": "My w is x."});
        it.event(changed);
    }),
    ("feedback confirmed", |it, n| {
        it.event(json!({"type": "feedback", "memory": it.id(n), "signal": "confirmed"}));
    }),
    ("feedback wrong", |it, n| {
        it.event(json!({"type": "feedback", "memory": it.id(n), "signal": "wrong"}));
    }),
    ("tick", |it, _| it.event(json!({"type": "tick"}))),
    ("recall", |it, n| {
        it.request(json!({"type": "recall", "query": format!("What is my w{n:x}?")}))
    }),
    ("recall where", |it, _| {
        it.request(json!({"type": "recall", "query": "cats", "where": {"app": "x"}}));
    }),
    ("recall as of", |it, _| {
        it.request(json!({"type": "recall", "query": "cats", "as_of": "2025-01-01T00:00:00Z"}));
    }),
    ("list", |it, _| it.request(json!({"type": "list"}))),
    ("get", |it, n| it.request(json!({"type": "get", "memory": it.id(n)}))),
    ("explain", |it, n| it.request(json!({"type": "explain", "memory": it.id(n)}))),
    ("stats", |it, _| it.request(json!({"type": "stats"}))),
    ("duplicates", |it, _| it.request(json!({"type": "duplicates"}))),
    ("extracted", |it, n| {
        let facts = Extracted {
            turns: vec![it.memories[n].source.clone()],
            seen: it.seen(n, 1),
            facts: vec![Fact {
                content: "A fact.".into(),
                kind: Kind::new("fact"),
                turns: vec![0],
            }],
            made: Authorship { by: Author::Model, reason: "test".into() },
        };
        let session = format!("s{n}");
        it.own(&format!("x{n}"), |own| reply::proposal_extracted(own, &session, &facts));
    }),
    ("revise", |it, n| {
        let memory = it.seen(n + 1, 1)[0];
        let judged = vec![JudgedMemory { memory: it.seen(n, 1)[0], probability: 0.9 }];
        let revise = Revise { memory, judged, kind: None, reason: "test".into() };
        it.own(&format!("r{n}"), |own| reply::proposal_revise(own, &revise));
    }),
    ("summary", |it, n| {
        let (session, covers) = (format!("s{n}"), it.seen(n, TOGETHER));
        let (content, compresses_as, made) = ("Many things.", None, None);
        let (session, covers) = (session.as_str(), covers.as_slice());
        let summary = NewSummary { session, content, covers, compresses_as, made };
        it.own(&format!("y{n}"), |own| reply::proposal_summary(own, &summary));
    }),
    ("prune", |it, n| {
        let seen = it.seen(n, TOGETHER);
        it.own(&format!("p{n}"), |own| reply::proposal_prune(own, &seen, "faded"));
    }),
    ("clear idle sessions", |it, n| {
        let idle = (n..n + TOGETHER).map(|n| format!("s{n}"));
        let idle: Vec<IdleSession> =
            idle.map(|session| IdleSession { session, last_at: Some(Time(0)) }).collect();
        it.own(&format!("i{n}"), |own| reply::proposal_erase(own, &[], &idle, "old"));
    }),
    ("forget memory", |it, n| it.event(json!({"type": "forget", "memory": it.id(n)}))),
    ("forget query", |it, n| it.event(json!({"type": "forget", "query": format!("w{n:x}")}))),
    ("forget session", |it, n| it.event(json!({"type": "forget", "session": format!("s{n}")}))),
    ("erase", |it, n| {
        let seen = it.seen(n, TOGETHER);
        it.own(&format!("e{n}"), |own| reply::proposal_erase(own, &seen, &[], "old"));
    }),
];

/// Returns how long the work takes this thread, without the time in which others have the processor.
fn time(work: impl FnOnce()) -> Duration {
    let began = on_processor();
    work();
    on_processor() - began
}

fn on_processor() -> Duration {
    let known = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let nanos = known.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("a number of nanoseconds"))
}

/// The shortest time of each kind of work on a user of this size, `forget` everything at the end.
fn times(size: usize) -> Vec<(&'static str, Duration)> {
    let mut crowded = Crowded::of(size);
    let mut all = Vec::new();
    for (place, (name, work)) in WORK.iter().enumerate() {
        // The lower half is erased in turn, and the upper half keeps the size.
        let at = |n: usize| (place * TRIES + n) * size / (4 * TRIES * WORK.len());
        let tries = (0..TRIES).map(|n| time(|| work(&mut crowded, at(n))));
        all.push((*name, tries.min().expect("some tries")));
    }
    // Nobody forgets everything twice, so what comes before is as it was at the beginning.
    // With the first turn as many as one event erases.
    let mut crowded = Crowded::of(size.min(10_000) - 1);
    let forget = time(|| crowded.event(json!({"type": "forget", "everything": true})));
    let shard = crowded.service.shards.get(0).expect("it is open");
    let left = kernel::Reads::memory_ids(&shard.store, &crowded.key).expect("a store in memory");
    assert_eq!(left.len(), 0);
    all.push(("forget everything", forget));
    all
}

#[test]
fn law_nobody_suffers_from_a_user_with_much_of_everything() {
    let asked = number_from_env("KEEPSAKE_WORST_MEMORIES");
    let size = asked.map_or(SMALL, |asked| asked as usize);
    let (tenth, whole) = (times(size / 10), times(size));
    let mut slow = Vec::new();
    for ((name, tenth), (_, whole)) in tenth.into_iter().zip(whole) {
        let ratio = whole.as_secs_f64() / tenth.max(SHORTEST / 10).as_secs_f64();
        println!("{name}: {tenth:.1?} with {} memories, {whole:.1?} with {size}", size / 10);
        let is_long = asked.is_some() && whole > PAUSE_MAX;
        if is_long || whole > SHORTEST && ratio > RATIO_MAX {
            slow.push(format!("{name}: {tenth:.1?}, then {whole:.1?}"));
        }
    }
    assert!(slow.is_empty(), "these take disproportionately long: {slow:#?}");
}
