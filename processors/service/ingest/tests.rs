//! Tests ingest without threads and without a broker: records in, effects out, applied by hand.

mod bounds;
mod compaction;
mod compression;
mod counts;
mod expiry;
mod faults;
mod forgotten;
mod generation;
mod parts;
mod poison;
mod quota;
mod schemas;
mod shadow;
mod signed;
mod stragglers;
mod survival;
mod tenant;
mod times;
mod traced;
mod wishes;
mod withheld;

use super::*;
use crate::assembly::Assembly;
use crate::compact::Compact;
use crate::ownership::Deployment;
use broker::clock::ManualClock;
use domain::{Decision, UserKey};
use kernel::Reads;
use models::embedder::{Model, ModelChoice, pool};
use serde_json::{Value, json};
use settings::Layers;
use std::sync::atomic::{AtomicUsize, Ordering};
use storage::checkpoint::Checkpoint;
use storage::home::Home;
use storage::index::{Bm25, Document, IndexOptions, SearchText, VectorBlocks};
use storage::shard::ShardOptions;
use storage::store::Digest;

pub(super) const PARTITIONS: i32 = 3;
const NOON: i64 = 1_767_268_800_000;

pub(super) struct Bench {
    pub(super) ingest: Ingest,
    next: [i64; PARTITIONS as usize],
    dir: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::with("keepsake")
    }

    fn with(profile: &str) -> Bench {
        Bench::of(&[("profile", profile)])
    }

    pub(super) fn of(options: &[(&str, &str)]) -> Bench {
        Bench::with_shards(options, |_| {})
    }

    /// A bench whose shards have these options, with a change.
    pub(super) fn with_shards(options: &[(&str, &str)], change: fn(&mut ShardOptions)) -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let mut layers = Layers::defaults();
        options
            .iter()
            .for_each(|(path, value)| layers.set(path, value, "test").expect("an option"));
        let config = layers.checked().expect("defaults");
        let options = models::embedder::EncoderOptions {
            model: ModelChoice::Hash,
            library: None,
            tokens_max: 256,
            threads: 1,
        };
        let model = Model::open(&options).expect("needs nothing");
        let (encoder, worker) = pool::pool(64);
        let session = model.session().expect("needs nothing");
        std::thread::spawn(move || worker.run(session));
        let place = Deployment {
            home: Home::Directory(dir.path().to_owned()),
            cluster: "test".into(),
            topic: "keepsake.events".into(),
            partitions: PARTITIONS,
            model: model.name().into(),
            dimensions: model.dimensions() as u32,
        };
        let mut shard = crate::ownership::options::shard(&config, PARTITIONS);
        change(&mut shard);
        let metrics = Arc::new(Metrics::new());
        let clock = Arc::new(ManualClock::at(Time(NOON)));
        let shards = Arc::new(ShardRegistry::new(place, shard, None, clock, metrics.clone()));
        for partition in 0..PARTITIONS {
            shards.open(partition).expect("a new shard");
        }
        let profiles = Profiles::load(&config).expect("built in");
        let ingest = Assembly::new(&config, &profiles, &shards, &metrics).ingest(encoder);
        Bench { ingest, next: [0; PARTITIONS as usize], dir }
    }

    /// A compaction worker over the same shards, with these options.
    pub(super) fn compaction(&self, changed: &[(&str, &str)]) -> Compact {
        let mut layers = Layers::defaults();
        for (path, value) in changed {
            layers.set(path, value, "test").expect("an option");
        }
        let config = layers.checked().expect("valid options");
        let Ingest { profiles, shards, metrics, .. } = &self.ingest;
        Assembly::new(&config, profiles, shards, metrics).compact()
    }

    /// Makes the event a record at the end of its user's partition.
    pub(super) fn record(&mut self, event: &Value) -> Record {
        let key = UserKey::new("default", event["user"].as_str().unwrap_or("ada")).expect("a name");
        self.record_on(key.partition(PARTITIONS), event)
    }

    fn record_on(&mut self, partition: i32, event: &Value) -> Record {
        let offset = &mut self.next[partition as usize];
        *offset += 1;
        Record {
            topic: "keepsake.events".into(),
            partition,
            offset: *offset - 1,
            timestamp_ms: NOON,
            value: Some(event.to_string().into_bytes()),
            ..Record::default()
        }
    }

    pub(super) fn step(&mut self, records: Vec<Record>) -> (Vec<OutgoingRecord>, Vec<Decision>) {
        let effects = self.ingest.step(records).expect("nothing outside of the process can fail");
        let decisions = effects.writes.iter().flat_map(|write| write.decisions.clone()).collect();
        for write in effects.writes {
            write.carry_out(None).expect("a disk");
        }
        (effects.outputs, decisions)
    }

    /// Delivers forwarded records, and the records they forward, until none is left.
    pub(super) fn settle(&mut self, mut outputs: Vec<OutgoingRecord>) -> Vec<Decision> {
        let mut decided = Vec::new();
        while !outputs.is_empty() {
            let records: Vec<Record> =
                outputs.into_iter().filter_map(|out| self.arrived(out)).collect();
            let (more, decisions) = self.step(records);
            decided.extend(decisions);
            outputs = more;
        }
        decided
    }

    /// Places a forwarded record at the end of its partition.
    pub(super) fn arrived(&mut self, out: OutgoingRecord) -> Option<Record> {
        let partition = out.partition.filter(|_| out.topic == "keepsake.events")?;
        let placed = self.record_on(partition, &Value::Null);
        let timestamp_ms = out.timestamp_ms.unwrap_or(NOON);
        Some(Record {
            timestamp_ms,
            key: out.key,
            value: out.value,
            headers: out.headers,
            ..placed
        })
    }

    fn outcomes(&mut self, events: &[Value]) -> Vec<&'static str> {
        let records = events.iter().map(|event| self.record(event)).collect();
        self.step(records).1.iter().map(|decision| decision.outcome.as_str()).collect()
    }

    pub(super) fn memories(&self, user: &str) -> Vec<domain::Memory> {
        let key = UserKey::new("default", user).expect("a name");
        let shard = self.ingest.shards.get(key.partition(PARTITIONS)).expect("all are open");
        let mut found = Vec::new();
        shard
            .store
            .memories(&key, &mut |memory| {
                found.push(memory);
                true
            })
            .expect("a disk");
        found
    }

    pub(super) fn digest(&self) -> Vec<Digest> {
        (0..PARTITIONS)
            .map(|p| {
                self.ingest.shards.get(p).expect("all are open").store.digest().expect("a disk")
            })
            .collect()
    }
}

pub(super) fn turn(content: &str) -> Value {
    json!({"type": "turn", "user": "ada", "session": "s", "content": content})
}

pub(super) fn remember(content: &str) -> Value {
    json!({"type": "remember", "user": "ada", "content": content})
}

#[test]
fn a_later_event_of_a_batch_sees_an_earlier_one() {
    let mut bench = Bench::new();
    let said = [
        "I live in Berlin with my sister Anna.",
        "I moved to Lisbon last month.",
        "I moved to Lisbon last month.",
    ]
    .map(turn);
    assert_eq!(bench.outcomes(&said), ["kept", "superseded", "merged"]);
    let memories = bench.memories("ada");
    let old = memories.iter().find(|memory| memory.content.contains("Berlin")).expect("kept");
    let new = memories.iter().find(|memory| memory.content.contains("Lisbon")).expect("kept");
    assert_eq!((old.superseded_by, new.confirmed), (Some(new.id), 1));
    assert!(old.valid_to.is_some() && new.supersedes == [old.id]);
}

#[test]
fn law_nothing_twice_a_record_that_comes_again_changes_nothing() {
    let mut bench = Bench::new();
    let records: Vec<Record> = [
        turn("My flight to Oslo leaves on 12 March at 7:40."),
        remember("the key is under the mat"),
    ]
    .iter()
    .map(|e| bench.record(e))
    .collect();
    bench.step(records.clone());
    let before = bench.digest();
    let (outputs, decisions) = bench.step(records);
    let written = outputs.iter().filter(|output| output.topic != survival::MEMORIES).count();
    assert_eq!((bench.digest(), written, decisions.len()), (before, 0, 0));
}

#[test]
fn the_same_id_again_is_a_duplicate_that_names_the_first_ones_memory() {
    let mut bench = Bench::new();
    let mut event = remember("the key is under the mat");
    event["id"] = "e1".into();
    let records = vec![bench.record(&event), bench.record(&event)];
    let (_, decisions) = bench.step(records);
    assert_eq!(decisions[1].outcome.as_str(), "duplicate");
    assert_eq!(decisions[1].memory, decisions[0].memory);
    assert_eq!(bench.memories("ada").len(), 1);
}

#[test]
fn an_id_that_comes_again_with_another_event_says_so() {
    let mut bench = Bench::new();
    let with = |mut event: Value, id: &str| {
        event["id"] = id.into();
        event
    };
    let everything = || json!({"type": "forget", "user": "ada", "everything": true});
    let session = |name: &str| json!({"type": "forget", "user": "ada", "session": name});
    for (event, id, expected, is_other) in [
        (remember("the key is under the mat"), "e1", "kept", false),
        (everything(), "e1", "duplicate", true),
        (session("a"), "e2", "forgotten", false),
        (session("b"), "e2", "duplicate", true),
        (session("a"), "e2", "duplicate", false),
        (remember("the key is under the mat"), "e1", "duplicate", false),
    ] {
        let record = bench.record(&with(event.clone(), id));
        let (_, decisions) = bench.step(vec![record]);
        let decision = &decisions[0];
        let is = (decision.outcome.as_str(), decision.of_other_event);
        assert_eq!(is, (expected, is_other), "{event} {id}: {decision:?}");
        assert_eq!(bench.memories("ada").len(), 1, "{event}");
    }
}

#[test]
fn a_misrouted_record_goes_home_once_and_keeps_where_it_came_from() {
    let mut bench = Bench::new();
    let home = UserKey::new("default", "ada").expect("a name").partition(PARTITIONS);
    let stray = bench.record_on((home + 1) % PARTITIONS, &remember("the key is under the mat"));
    let (outputs, decisions) = bench.step(vec![stray.clone()]);
    let meta = outputs.len() - 1;
    assert_eq!((meta, decisions.len(), outputs[0].partition), (1, 0, Some(home)));
    assert_eq!(outputs[meta].topic, survival::MEMORIES);

    let copy = |bench: &mut Bench| {
        let mut copy = bench.record_on(home, &Value::Null);
        (copy.value, copy.headers, copy.key) =
            (outputs[0].value.clone(), outputs[0].headers.clone(), outputs[0].key.clone());
        copy
    };
    let (first, torn) = (copy(&mut bench), copy(&mut bench));
    let (_, decisions) = bench.step(vec![first, torn]);
    assert_eq!(decisions.len(), 1, "a second copy is skipped");
    assert!(
        decisions[0].misrouted
            && decisions[0].event.offset == stray.offset
            && decisions[0].event.partition == stray.partition
    );
}

#[test]
fn law_forgotten_stays_forgotten_in_summaries_facts_and_context() {
    let mut bench = Bench::new();
    bench.outcomes(
        &["I live in Berlin with my sister Anna.", "My flight to Oslo leaves on 12 March at 7:40."]
            .map(turn),
    );
    let covers: Vec<Value> = bench
        .memories("ada")
        .iter()
        .map(|m| json!({"id": m.id.to_string(), "version": m.version}))
        .collect();
    let mut summary = json!({"type": "summary", "user": "ada", "session": "s", "id": "s1", "content": "Lives in Berlin.", "covers": covers});
    summary["at"] = "2026-01-02T00:00:00Z".into();
    bench.ingest.options.decode.trust_proposals = true;
    assert_eq!(bench.outcomes(&[summary]), ["summarised"]);

    assert_eq!(
        bench.outcomes(&[json!({"type": "forget", "user": "ada", "query": "Berlin"})]),
        ["forgotten"]
    );
    let key = UserKey::new("default", "ada").expect("a name");
    let shard = bench.ingest.shards.get(key.partition(PARTITIONS)).expect("open");
    assert_eq!(
        bench.memories("ada").iter().filter(|memory| memory.content.contains("Berlin")).count(),
        0
    );
    assert!(shard.store.window(&key, Some("s")).expect("a disk").said.is_empty());
    assert!(shard.store.slot(&key, "lives_in").expect("a disk").is_none());
    let bm25 = Bm25 { k1: 0.9, b: 0.4, previous: 0.3, short_words: 30.0 };
    let berlin: Vec<String> = text::terms("Berlin").iter().map(str::to_owned).collect();
    assert!(
        shard.index.text.scored(&key, &berlin, bm25, None).expect("an index").best(10).is_empty()
    );
    assert!(
        bench.memories("ada").iter().any(|memory| memory.content.contains("Oslo")),
        "unrelated memories stay"
    );
}

/// Returns the content of each memory with the stored neighbouring turns.
fn known_around(bench: &Bench) -> Vec<(String, [Option<String>; 3])> {
    fn words(neighbour: &Option<domain::NeighbourTurn>) -> Option<String> {
        neighbour.as_ref().map(|one| one.words.to_string())
    }
    let mut memories = bench.memories("ada");
    memories.sort_by_key(|memory| memory.source.offset);
    memories
        .into_iter()
        .map(|memory: domain::Memory| {
            let around = &memory.around;
            (
                memory.content.clone(),
                [words(&around.before), words(&around.earlier), words(&around.after)],
            )
        })
        .collect()
}

const BERGEN: [&str; 4] = [
    "My sister Anna plays the cello in Bergen.",
    "Which coast is that exactly?",
    "Bergen lies on the west coast of Norway, she moved there in 2019.",
    "Our flight to Oslo leaves on 12 March at 7:40.",
];

#[test]
fn memories_store_a_dropped_turn_as_their_neighbour() {
    let mut bench = Bench::new();
    assert_eq!(bench.outcomes(&BERGEN.map(turn)), ["kept", "dropped", "kept", "kept"]);
    let [cello, question, coast, flight] = BERGEN.map(str::to_owned);
    let expected = [
        (cello.clone(), [None, None, Some(question.clone())]),
        (coast.clone(), [Some(question), Some(cello), None]),
        (flight, [Some(coast), Some(BERGEN[1].to_owned()), None]),
    ];
    assert_eq!(known_around(&bench), expected);
    let coast =
        bench.memories("ada").into_iter().find(|memory| memory.content == BERGEN[2]).expect("kept");
    let before = coast.around.before.expect("there was one");
    assert_eq!(
        (before.question, before.source.offset, before.vector.is_empty()),
        (1.0, coast.source.offset - 1, false)
    );

    let other = json!({"type": "turn", "user": "ada", "session": "t", "content": "Always answer in French, please."});
    assert_eq!(bench.outcomes(&[other]), ["kept"]);
    assert_eq!(known_around(&bench)[3].1, [None, None, None], "another session is no neighbour");
}

#[test]
fn opening_an_index_removes_documents_of_users_without_such_a_memory() {
    let mut bench = Bench::new();
    assert_eq!(bench.outcomes(&[remember("The blue key opens the shed.")]), ["kept"]);
    let (memory, shards) = (bench.memories("ada").remove(0), &bench.ingest.shards);
    let partition = memory.key.partition(PARTITIONS);
    let identity = shards.get(partition).expect("all are open").store.identity().clone();
    shards.close(partition);
    let options =
        IndexOptions { mem_segment_max: 100, documents_bytes_max: 100, vectors_filed_min: 1 };
    let home = Home::Directory(bench.dir.path().to_owned());
    let index = home.index(options, VectorBlocks::new(0), &identity).expect("a disk");
    let of_another = UserKey::new("default", "bo").expect("a name");
    index.text.put(Document::new(memory.id, of_another, SearchText::default));
    let ahead = Checkpoint { applied: memory.changed + 1, changelog: None };
    index.text.flush(ahead).expect("a disk");
    assert_eq!(index.text.ids().expect("a disk").len(), 2);
    drop(index);
    let shard = shards.open(partition).expect("a disk");
    assert_eq!(shard.index.text.ids().expect("a disk"), [(memory.key, memory.id)]);
}

#[test]
fn law_forgotten_stays_forgotten_in_the_neighbours_of_memories() {
    fn by_id(bench: &Bench) -> Value {
        let cello = bench
            .memories("ada")
            .into_iter()
            .find(|memory| memory.content.contains("cello"))
            .expect("kept");
        json!({"type": "forget", "user": "ada", "memory": cello.id.to_string()})
    }
    let by = |name: &'static str, value: &'static str| {
        move |_: &Bench| {
            let mut event = json!({"type": "forget", "user": "ada"});
            event[name] = value.into();
            event
        }
    };
    fn said(bench: &Bench) -> Vec<String> {
        let (key, mut said) = (UserKey::new("default", "ada").expect("a name"), Vec::new());
        let shard = bench.ingest.shards.get(key.partition(PARTITIONS)).expect("open");
        said.extend(
            known_around(bench)
                .into_iter()
                .flat_map(|(content, around)| around.into_iter().flatten().chain([content])),
        );
        said.extend(
            shard
                .store
                .window(&key, Some("s"))
                .expect("a disk")
                .said
                .iter()
                .map(|said| said.content.to_string()),
        );
        said
    }
    let check = |forget: &dyn Fn(&Bench) -> Value, word: &str, left: usize| {
        let mut bench = Bench::new();
        bench.outcomes(&BERGEN.map(turn));
        assert!(
            said(&bench).iter().filter(|text| text.contains(word)).count() > 1,
            "several memories contain {word}"
        );
        let event = forget(&bench);
        assert_eq!(bench.outcomes(&[event]), ["forgotten"]);
        assert_eq!(
            said(&bench).iter().filter(|text| text.contains(word)).count(),
            0,
            "{word}: {:?}",
            said(&bench)
        );
        let vectors = bench
            .memories("ada")
            .iter()
            .flat_map(|memory| memory.around.all().cloned().collect::<Vec<_>>())
            .count();
        assert_eq!(vectors, left, "the other neighbours keep their vectors");
    };
    check(&by_id, "cello", 3);
    check(&by("query", "cello"), "cello", 3);
    check(&by("query", "exactly"), "exactly", 2);
    check(&by("session", "s"), "Bergen", 0);
}

/// A text sent between the `forget` and the continuation is not meant, and a part that is written
/// twice is applied once.
#[test]
fn a_forget_over_the_limit_goes_on_by_itself_until_nothing_is_left() {
    let mut bench = Bench::new();
    let options = &mut bench.ingest.options;
    (options.limits.forget_query_max, options.limits.forget_memories_max) = (3, 2);
    let kept: Vec<Value> = (0..300)
        .map(|n| json!({"type": "remember", "user": "ada", "content": format!("Zanzibar, day {n}.")}))
        .collect();
    bench.outcomes(&kept);
    let record = bench.record(&json!({"type": "forget", "user": "ada", "query": "zanzibar"}));
    let (outputs, mut decisions) = bench.step(vec![record]);
    let first = decisions.pop().expect("a forget is decided");
    assert_eq!((first.related.len(), first.left), (3, Some(297)));
    assert_eq!(first.reason, "3 memories are gone, 297 more are being forgotten");
    bench.outcomes(&[json!({"type": "remember", "user": "ada", "content": "Zanzibar again."})]);
    let rest: Vec<_> = outputs.into_iter().filter(|out| out.topic == "keepsake.events").collect();
    let mut parts = Vec::new();
    for decision in bench.settle([rest.clone(), rest].concat()) {
        parts.push((decision.outcome.as_str(), decision.related.len(), decision.left));
        assert!(decision.salt.is_none() || decision.salt == first.salt, "one salt for all parts");
    }
    let [one, two] = [("forgotten", 256, Some(41)), ("forgotten", 41, Some(0))];
    assert_eq!(parts.iter().filter(|part| **part == one).count(), 1, "{parts:?}");
    assert_eq!(parts.iter().filter(|part| **part == two).count(), 1, "{parts:?}");
    assert_eq!(parts.iter().filter(|part| part.0 == "duplicate").count(), 2, "{parts:?}");
    assert_eq!(bench.memories("ada").len(), 1, "what was said after the forget stays");
}

/// The receipt and the decision name each memory, and a record has a limit.
#[test]
fn a_forget_of_everything_goes_on_by_itself_in_parts_that_a_record_can_name() {
    let mut bench = Bench::new();
    bench.ingest.options.limits.forget_memories_max = 100;
    let kept: Vec<Value> = (0..250)
        .map(|n| json!({"type": "remember", "user": "ada", "content": format!("Zanzibar, day {n}.")}))
        .collect();
    bench.outcomes(&kept);
    let record = bench.record(&json!({"type": "forget", "user": "ada", "everything": true}));
    let (outputs, mut decisions) = bench.step(vec![record]);
    let first = decisions.pop().expect("a forget is decided");
    assert_eq!((first.related.len(), first.left), (100, Some(150)));
    bench.outcomes(&[json!({"type": "remember", "user": "ada", "content": "I live in Porto."})]);
    let rest: Vec<_> = outputs.into_iter().filter(|out| out.topic == "keepsake.events").collect();
    let parts: Vec<_> =
        bench.settle(rest).iter().map(|part| (part.related.len(), part.left)).collect();
    assert_eq!(parts, [(100, Some(50)), (50, Some(0))]);
    assert_eq!(bench.memories("ada").len(), 1, "what was said after the forget stays");
}

/// Only Keepsake may send the list of memories: from anyone else, the field is unknown.
#[test]
fn nobody_else_may_write_the_rest_of_a_forget() {
    let mut bench = Bench::new();
    bench.outcomes(&[remember("the key is under the mat")]);
    let id = bench.memories("ada")[0].id.to_string();
    let forged = json!({"type": "forget", "user": "ada", "memories": [id], "left": 0,
        "continues": {"topic": "keepsake.events", "partition": 0, "offset": 0}});
    assert_eq!(bench.outcomes(&[forged]), [""; 0], "a dead letter");
    assert_eq!(bench.memories("ada").len(), 1);
}

#[test]
fn a_forgotten_turn_is_no_longer_explained_even_if_it_was_dropped() {
    let mut bench = Bench::new();
    let record = bench.record(&turn("Hello Zanzibar!"));
    let decision = bench.step(vec![record]).1.pop().expect("a turn is decided");
    assert_eq!(decision.outcome.as_str(), "dropped");
    let explained = |bench: &Bench| {
        let shard = bench.ingest.shards.get(decision.event.partition).expect("open");
        shard.decisions_of(&decision.key, &decision.event).len()
    };
    assert_eq!(explained(&bench), 1);
    bench.outcomes(&[json!({"type": "forget", "user": "ada", "query": "Zanzibar"})]);
    assert_eq!(explained(&bench), 0);
}

#[test]
fn a_proposal_based_on_an_older_version_is_outdated() {
    let mut bench = Bench::new();
    bench.ingest.options.decode.trust_proposals = true;
    bench.outcomes(&[remember("the key is under the mat")]);
    let id = bench.memories("ada")[0].id.to_string();
    let prune = |version: u32| json!({"type": "prune", "user": "ada", "id": format!("p{version}"), "reason": "faded", "memories": [{"id": id, "version": version}]});
    assert_eq!(bench.outcomes(&[prune(7)]), ["outdated"]);
    assert_eq!(bench.outcomes(&[prune(1)]), ["pruned"]);
    assert!(bench.memories("ada")[0].archived);
}

#[test]
fn a_batch_ends_when_its_time_is_over_but_has_at_least_one_record() {
    let mut bench = Bench::new();
    let records: Vec<Record> = (0..5)
        .map(|n| {
            bench.record_on(
                1,
                &json!({"type": "remember", "user": "ada", "content": format!("Pebble {n}.")}),
            )
        })
        .collect();
    let asked = AtomicUsize::new(0);
    let goes_on = || asked.fetch_add(1, Ordering::Relaxed) < 2;
    for (of, expected) in [(5, 2), (3, 1)] {
        let left = records[records.len() - of..].to_vec();
        let effects = bench.ingest.step_while(left, &goes_on).expect("no faults");
        assert_eq!(
            effects.records, expected,
            "at least one record is decided, and the rest is read again"
        );
        for write in effects.writes {
            write.carry_out(None).expect("a disk");
        }
    }
    assert_eq!(bench.ingest.shards.get(1).expect("open").applied(), records[2].offset);
}

#[test]
fn a_batch_of_several_lanes_ends_as_one_of_one_lane() {
    let users = ["ada", "ben", "cleo", "dan", "eve", "finn", "gus"];
    let decided = |lanes: usize| {
        let mut bench = Bench::new();
        bench.ingest.lanes = Lanes::new(lanes).expect("threads");
        let records: Vec<Record> = (0..90)
            .map(|n| {
                let user = users[n % users.len()];
                let content = format!("My sister number {} plays the harp in Bergen.", n % 40);
                match n % 9 {
                    0 => bench.record_on(n as i32 % PARTITIONS, &json!({"type": "turn"})),
                    1 => bench.record(&json!({
                        "type": "remember", "user": user, "content": content, "scope": "tenant"
                    })),
                    _ => bench.record(&json!({"type": "turn", "user": user, "content": content})),
                }
            })
            .collect();
        let divided = bench.ingest.lanes.divided(records.clone(), |one| (one.partition, 1)).len();
        let (outputs, decisions) = bench.step(records);
        let mut outputs: Vec<String> = outputs.iter().map(|output| format!("{output:?}")).collect();
        let mut decisions: Vec<String> = decisions.iter().map(|one| format!("{one:?}")).collect();
        outputs.sort_unstable();
        decisions.sort_unstable();
        (divided, outputs, decisions, bench.digest())
    };
    let (one, several) = (decided(1), decided(3));
    assert_eq!((one.0, several.0), (1, 3));
    assert_eq!(one.2.len(), several.2.len());
    assert!(one.1 == several.1 && one.2 == several.2 && one.3 == several.3, "the same records");
}

#[test]
fn parts_beyond_the_limit_are_not_even_encoded() {
    let mut bench = Bench::new();
    bench.ingest.options.candidates_max = 8;
    let paragraphs: Vec<String> = (0..40)
        .map(|n| format!("Part {n}: {}", format!("the river {n} is long. ").repeat(60)))
        .collect();
    let outcomes = bench
        .outcomes(&[json!({"type": "turn", "user": "ada", "content": paragraphs.join("\n\n")})]);
    assert_eq!((outcomes.len(), outcomes.last()), (9, Some(&"refused")), "{outcomes:?}");
    let page = bench.ingest.metrics.page();
    assert!(page.contains("\nkeepsake_encoded_texts_total 8\n"), "{page}");
}

#[test]
fn an_invalid_record_becomes_a_dead_letter_and_the_offset_advances() {
    let mut bench = Bench::new();
    let record = bench.record_on(1, &json!({"type": "turn", "content": "no user"}));
    let (outputs, decisions) = bench.step(vec![record]);
    assert_eq!(
        (outputs[0].topic.as_str(), outputs[1].topic.as_str(), outputs.len(), decisions.len()),
        ("keepsake.dead-letters", survival::MEMORIES, 2, 0)
    );
    assert_eq!(bench.ingest.shards.get(1).expect("open").applied(), 0);
}

#[test]
fn too_many_dead_letters_stop_the_process_before_the_batch_is_written() {
    let mut bench = Bench::new();
    *bench.ingest.breaker.lock() =
        DeadLetterBreaker::new(breaker::Limits { in_a_row_max: 3, share_max: 1.0, window: 100 });
    let bad = json!({"type": "turn", "content": "no user"});
    let few: Vec<Record> = (0..3).map(|_| bench.record_on(1, &bad)).collect();
    assert_eq!(bench.step(few).0.len(), 3 + 1, "three in a row are within the limit");

    let good = bench.record_on(1, &json!({"type": "tick"}));
    let batch: Vec<Record> =
        std::iter::once(good).chain((0..4).map(|_| bench.record_on(1, &bad))).collect();
    let before = (bench.ingest.shards.get(1).expect("open").applied(), bench.digest());
    for _ in 0..2 {
        let Err(Fault::Stop(stop)) = bench.ingest.step(batch.clone()) else {
            panic!("four in a row are too many")
        };
        assert_eq!(stop.name, StopName::DeadLetterFlood);
        // A restart begins with a new breaker and reads the same records again.
        *bench.ingest.breaker.lock() = DeadLetterBreaker::new(breaker::Limits {
            in_a_row_max: 3,
            share_max: 1.0,
            window: 100,
        });
    }
    assert_eq!(
        (bench.ingest.shards.get(1).expect("open").applied(), bench.digest()),
        before,
        "nothing of the batch is written"
    );
    *bench.ingest.breaker.lock() =
        DeadLetterBreaker::new(breaker::Limits { in_a_row_max: 4, share_max: 1.0, window: 100 });
    let (outputs, decisions) = bench.step(batch);
    let letters = outputs.iter().filter(|output| output.topic == "keepsake.dead-letters").count();
    assert_eq!((letters, decisions.len()), (4, 1), "with a higher limit each is one dead letter");
}

#[test]
fn law_nobody_suffers_from_the_nonsense_of_another() {
    let mut bench = Bench::new();
    let bad = json!({"type": "remember", "user": "eve", "content": "x", "scope": "nonsense"});
    let good = bench.record(&turn("My sister lives in Berlin."));
    let partition = good.partition;
    let nonsense: Vec<Record> = (0..3000).map(|_| bench.record_on(partition, &bad)).collect();
    let after = bench.record(&turn("My brother works in Lisbon."));
    let letters = bench.step([vec![good], nonsense, vec![after]].concat()).0;
    let letters = letters.iter().filter(|it| it.topic == "keepsake.dead-letters").count();
    assert_eq!((letters, bench.memories("ada").len()), (3000, 2));
}

#[test]
fn a_memory_with_more_than_the_changed_fact_stays_valid_and_is_linked() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.outcomes(
            &["My dog is called Rex and I live in Berlin.", "I moved to Lisbon last month."]
                .map(turn)
        ),
        ["kept", "kept"]
    );
    let memories = bench.memories("ada");
    let old = memories.iter().find(|memory| memory.content.contains("Rex")).expect("kept");
    let new = memories.iter().find(|memory| memory.content.contains("Lisbon")).expect("kept");
    assert_eq!(
        (old.valid_to, &old.conflicts_with, &new.conflicts_with),
        (None, &vec![new.id], &vec![old.id])
    );
}

#[test]
fn contradictions_are_linked_both_ways_and_invalidate_nothing() {
    for (earlier, later, why) in [
        (
            "We have 10 boats in the rental fleet.",
            "We now have 12 boats in the rental fleet!",
            "says 12 where \"We have 10",
        ),
        (
            "I played tennis with Anna in the park",
            "I have never played tennis in the park",
            "denies \"I played tennis",
        ),
        (
            "I have never played tennis in the park",
            "I played tennis with Anna in the park",
            "tells what \"I have never",
        ),
    ] {
        let mut bench = Bench::new();
        let records = [earlier, later].map(|said| bench.record(&turn(said)));
        let decision = bench.step(records.into()).1.pop().expect("a turn is decided");
        let (old, new) = match &bench.memories("ada")[..] {
            [a, b] if a.content == earlier => (a.clone(), b.clone()),
            [a, b] => (b.clone(), a.clone()),
            other => panic!("both are kept: {other:?}"),
        };
        assert_eq!(
            (decision.outcome.as_str(), &decision.related[..]),
            ("kept", &[old.id][..]),
            "{later}"
        );
        assert!(
            decision.reason.starts_with(why) && new.reason == decision.reason,
            "{}",
            decision.reason
        );
        assert_eq!(decision.surprise.map(|surprise| surprise.contradiction), Some(1.0));
        assert_eq!(
            (&old.conflicts_with[..], &new.conflicts_with[..]),
            (&[new.id][..], &[old.id][..])
        );
        assert_eq!((old.valid_to, new.valid_to, old.version), (None, None, 2));

        bench.outcomes(&[json!({"type": "forget", "user": "ada", "memory": old.id.to_string()})]);
        let left = bench.memories("ada");
        assert!(
            left[0].conflicts_with.is_empty() && !left[0].reason.contains("boats in"),
            "{:?}",
            left[0]
        );
        let record = bench.record(&turn(later));
        assert!(
            bench.step(vec![record]).1.iter().all(|decision| !decision.related.contains(&old.id))
        );
    }
}

#[test]
fn statements_of_different_speakers_do_not_conflict() {
    let mut bench = Bench::new();
    fn by(speaker: &str, role: &str, said: &str) -> Value {
        json!({"type": "turn", "user": "ada", "session": "s", "role": role, "speaker": speaker, "content": said})
    }
    let said = "We now have 12 boats in the rental fleet!";
    bench.outcomes(&[
        by("tom", "user", "We have 10 boats in the rental fleet."),
        by("kim", "assistant", "You have 10 boats in the rental fleet."),
        by("kim", "assistant", said),
        by("kim", "user", said),
    ]);
    assert!(bench.memories("ada").iter().all(|memory| memory.conflicts_with.is_empty()));
}

#[test]
fn a_contradiction_of_a_denial_is_found_after_many_other_turns() {
    let mut bench = Bench::new();
    bench.outcomes(&[turn("I have never played the accordion")]);
    let much: Vec<Value> = (0..30)
        .map(|n| {
            turn(&format!("I played the piano in town number {n} near the {n}th harbour of Norway"))
        })
        .collect();
    bench.outcomes(&much);
    let record = bench.record(&turn("Yesterday I played the accordion"));
    let decision = bench.step(vec![record]).1.pop().expect("a turn is decided");
    assert!(
        decision.reason.starts_with("tells what \"I have never played the accordion\" denied"),
        "{}",
        decision.reason
    );
}

#[test]
fn an_assistant_that_repeats_a_memory_confirms_nothing() {
    let mut bench = Bench::new();
    let said = "I moved to Lisbon with my sister Anna.";
    let echo = json!({"type": "turn", "user": "ada", "session": "s", "role": "assistant", "content": "You moved to Lisbon with your sister Anna!"});
    let records = [turn(said), echo, turn(said)].iter().map(|event| bench.record(event)).collect();
    let decisions = bench.step(records).1;
    let told: Vec<_> = decisions
        .iter()
        .map(|decision| (decision.outcome.as_str(), decision.reason.as_str()))
        .collect();
    assert_eq!(told[1].0, "merged");
    assert!(told[1].1.starts_with("repeats a memory of 1 January, 2026, cosine "), "{told:?}");
    assert_eq!(told[2], ("merged", "said before on 1 January, 2026, cosine 1.00"));
    let memories = bench.memories("ada");
    assert_eq!((memories.len(), memories[0].confirmed, memories[0].version), (1, 1, 2));
}

#[test]
fn forgetting_the_newer_value_makes_the_older_one_hold_the_fact_again() {
    let mut bench = Bench::new();
    bench.outcomes(
        &["I live in Berlin with my sister Anna.", "I moved to Lisbon last month."].map(turn),
    );
    bench.outcomes(&[json!({"type": "forget", "user": "ada", "query": "Lisbon"})]);
    assert_eq!(bench.outcomes(&[turn("I moved to Porto last week.")]), ["superseded"]);
    assert_eq!(bench.memories("ada").iter().filter(|memory| memory.valid_to.is_none()).count(), 1);
}

#[test]
fn an_update_changes_the_slots_of_a_memory() {
    let mut bench = Bench::new();
    bench.outcomes(&[turn("I live in Berlin with my sister Anna.")]);
    let id = bench.memories("ada")[0].id.to_string();
    let update = json!({"type": "update", "user": "ada", "memory": id, "content": "I live in Rome with my sister Anna."});
    assert_eq!(bench.outcomes(&[update, remember("I live in Berlin.")]), ["updated", "superseded"]);
}

#[test]
fn where_a_batch_ends_changes_nothing() {
    let [mut together, mut apart] = [Bench::new(), Bench::new()];
    for bench in [&mut together, &mut apart] {
        bench.outcomes(&[remember("The parcel code is 4711.")]);
    }
    let id = together.memories("ada")[0].id.to_string();
    let update = json!({"type": "update", "user": "ada", "memory": id, "content": "I live in Rome with my sister Anna."});
    let said = [
        update,
        turn("The parcel code of today is 4711."),
        turn("We have 10 boats in the rental fleet."),
        turn("I have never played tennis in the park"),
        turn("We now have 12 boats in the rental fleet!"),
        turn("I played tennis with Anna in the park"),
        turn("We now have 14 boats in the rental fleet!"),
    ];
    let outcomes = together.outcomes(&said);
    assert_eq!(outcomes, said.map(|event| apart.outcomes(&[event])[0]));
    assert_eq!(together.digest(), apart.digest());
    let links: usize =
        together.memories("ada").iter().map(|memory| memory.conflicts_with.len()).sum();
    assert_eq!(
        links, 8,
        "12 against 10, 14 against both, and the deed against the denial, each both ways"
    );
}

/// More records than one group encodes. After the first half, the last hundred are delivered again,
/// as after a rebalance.
#[test]
fn a_large_batch_decides_as_single_records_do() {
    let [mut together, mut apart] = [Bench::new(), Bench::new()];
    fn said(n: usize) -> Value {
        turn(&format!(
            "I moved to house number {} in the {}th street of Lisbon",
            n * n % 97,
            n * 31 % 89
        ))
    }
    let mut records: Vec<Record> = (0..600).map(|n| together.record(&said(n))).collect();
    let alone: Vec<_> =
        records.iter().flat_map(|record| apart.step(vec![record.clone()]).1).collect();
    records.splice(300..300, records[200..300].to_vec());
    fn told(decisions: Vec<Decision>) -> impl PartialEq + std::fmt::Debug {
        decisions.into_iter().map(|one| (one.event, one.reason, one.memory)).collect::<Vec<_>>()
    }
    assert_eq!(told(together.step(records).1), told(alone));
    assert_eq!(together.digest(), apart.digest());
}

#[test]
fn where_a_batch_ends_changes_nothing_under_any_profile() {
    let said = [
        "I prefer Python",
        "I prefer Python",
        "Actually, I prefer Go",
        "I live in Berlin with my sister Anna.",
        "Hello",
        "This API uses port 3000.",
        "I moved to Lisbon last month, now I work on the billing service.",
        "We decided to use PostgreSQL.",
    ];
    let roles = ["user", "assistant"];
    let mut events: Vec<Value> =
        said.iter().cycle().take(3 * said.len()).map(|content| turn(content)).collect();
    for (n, event) in events.iter_mut().enumerate() {
        event["role"] = json!(roles[n % 2]);
        event["at"] = json!(format!("2026-01-{:02}T00:00:00Z", n + 1));
    }
    events.insert(9, remember("My timezone is EST."));
    events.push(remember("My timezone is EST timezone."));
    let names: Vec<String> = profiles::known::names().into_iter().map(str::to_owned).collect();
    assert!(names.len() > 1);
    for name in names {
        let [mut together, mut apart] = [Bench::with(&name), Bench::with(&name)];
        let outcomes = together.outcomes(&events);
        let one_by_one: Vec<&str> =
            events.iter().flat_map(|event| apart.outcomes(std::slice::from_ref(event))).collect();
        assert_eq!(outcomes, one_by_one, "{name}");
        assert_eq!(together.digest(), apart.digest(), "{name}");
        assert!(outcomes.contains(&"kept"), "{name}: {outcomes:?}");
    }
}

#[test]
fn a_summary_is_removed_when_a_covered_memory_is_superseded() {
    let mut bench = Bench::new();
    bench.ingest.options.decode.trust_proposals = true;
    bench.outcomes(&[turn("I live in Berlin with my sister Anna.")]);
    let covers: Vec<Value> = bench
        .memories("ada")
        .iter()
        .map(|m| json!({"id": m.id.to_string(), "version": m.version}))
        .collect();
    let summary = json!({"type": "summary", "user": "ada", "session": "s", "id": "s1", "content": "Lives in Berlin.", "covers": covers,
        "at": "2026-01-02T00:00:00Z"});
    assert_eq!(
        bench.outcomes(&[summary, turn("I moved to Lisbon last month.")]),
        ["summarised", "superseded"]
    );
    assert!(bench.memories("ada").iter().all(|memory| memory.covers.is_empty()));
}

#[test]
fn secrets_are_redacted_in_every_text_of_an_event_and_counted() {
    let mut bench = Bench::new();
    let card = "4242 4242 4242 4242";
    let of = |mut event: Value| {
        event["metadata"] = json!({"note": format!("paid with {card}")});
        event
    };
    let mut said = turn(&format!("I pay my rent in Lisbon with {card}."));
    said["speaker"] = json!(card);
    bench.outcomes(&[of(said), of(remember(&format!("My sister's card is {card}.")))]);
    let id = bench
        .memories("ada")
        .iter()
        .find(|memory| memory.speaker.is_none())
        .expect("remembered")
        .id
        .to_string();
    let update = json!({"type": "update", "user": "ada", "memory": id, "content": format!("Our card is {card}.")});
    assert_eq!(bench.outcomes(&[of(update)]), ["updated"]);
    let house = json!({"type": "remember", "user": "ada", "scope": "tenant", "content": format!("The house's card is {card}.")});
    let record = bench.record(&of(house));
    let copies = bench.step(vec![record]).0;
    let memories = bench.memories("ada");
    assert_eq!(memories.len(), 2);
    for memory in memories {
        assert!(memory.content.contains("[redacted:card]"), "{memory:?}");
        assert!(!format!("{memory:?}").contains("4242"), "{memory:?}");
    }
    // Two texts per event, and three for the turn, whose speaker is redacted too.
    fn counted(bench: &Bench) -> bool {
        bench.ingest.metrics.page().contains("keepsake_redacted_total{rule=\"card\"} 9\n")
    }
    assert!(counted(&bench), "{}", bench.ingest.metrics.page());
    assert_eq!(bench.settle(copies).len(), 1);
    assert!(
        counted(&bench),
        "a copy for another shard was counted at home: {}",
        bench.ingest.metrics.page()
    );
}

/// Holds alma 2.
#[test]
fn messages_that_no_extraction_will_read_are_removed() {
    let mut bench = Bench::of(&[("profile", "alma"), ("clock.from_events", "true")]);
    fn said(n: usize) -> Value {
        turn(&format!("We met Anna in house number {n}"))
    }
    let events: Vec<Value> = (0..30).map(said).collect();
    bench.outcomes(&events);
    let waiting = bench.memories("ada");
    assert_eq!((waiting.len(), waiting.iter().all(|memory| memory.archived)), (20, true));
    let mut answers: Vec<Value> = (0..5).map(|_| turn("ok")).collect();
    answers.iter_mut().for_each(|answer| answer["role"] = json!("assistant"));
    assert_eq!(bench.outcomes(&answers), ["kept", "kept", "kept", "kept", "dropped"]);
    let (read, kept): (Vec<_>, Vec<_>) =
        bench.memories("ada").into_iter().partition(|memory| memory.archived);
    assert!(kept.len() <= 11, "{kept:#?}");
    assert!(kept.iter().any(|memory| memory.kind.as_str() == "episode"), "{kept:#?}");
    assert_eq!(read.len() + kept.len(), 20 + 1, "the window of the next extraction: {read:#?}");
    // An extraction of another conversation removes them once they are old.
    for (at, expected) in [("2026-01-07T12:00:00Z", read.len()), ("2026-01-09T12:00:00Z", 0)] {
        for answer in &mut answers {
            answer["session"] = at.into();
            answer["at"] = at.into();
        }
        bench.outcomes(&answers);
        let left = bench
            .memories("ada")
            .into_iter()
            .filter(|memory| memory.archived && memory.session.as_deref() == Some("s"));
        assert_eq!(left.count(), expected, "{at}");
    }
}

/// Applies one event and returns the id of its memory.
fn memory_of(bench: &mut Bench, event: Value) -> domain::MemoryId {
    let record = bench.record(&event);
    bench.step(vec![record]).1.first().and_then(|decision| decision.memory).expect("a memory")
}

fn one(bench: &Bench, id: domain::MemoryId) -> domain::Memory {
    bench.memories("ada").into_iter().find(|memory| memory.id == id).expect("is there")
}

const SMOKES: &str = "I smoke twenty cigarettes a day.";
const QUIT: &str = "I quit smoking cigarettes, not twenty and not one a day.";

#[test]
fn a_changed_habit_revises_the_earlier_statement_and_invalidates_nothing() {
    fn later(content: &str) -> Value {
        json!({"type": "turn", "user": "ada", "session": "later", "content": content})
    }
    for say in [&later as &dyn Fn(&str) -> Value, &remember] {
        let mut bench = Bench::new();
        let (old, new) = (memory_of(&mut bench, turn(SMOKES)), memory_of(&mut bench, say(QUIT)));
        let (old, new) = (one(&bench, old), one(&bench, new));
        assert_eq!(
            (new.revises(old.id).is_some(), old.revised_by, old.valid_to),
            (true, Some(new.id), None)
        );
        assert!(
            new.reason.starts_with("revises") || new.reason == "asked to remember",
            "{}",
            new.reason
        );
    }
}

#[test]
fn statements_about_a_friend_or_by_an_assistant_revise_nothing() {
    let mut bench = Bench::new();
    let old = memory_of(&mut bench, remember(SMOKES));
    bench.outcomes(&[turn("My friend Jonas quit smoking cigarettes, not one a day.")]);
    bench.outcomes(&[
        json!({"type": "turn", "user": "ada", "role": "assistant", "content": "You quit smoking twenty cigarettes a day."}),
    ]);
    assert_eq!(one(&bench, old).revised_by, None);
}

#[test]
fn feedback_that_the_newer_one_is_wrong_undoes_its_links() {
    let mut bench = Bench::new();
    let (old, new) =
        (memory_of(&mut bench, remember(SMOKES)), memory_of(&mut bench, remember(QUIT)));
    let (berlin, lisbon) = (
        memory_of(&mut bench, remember("I live in Berlin.")),
        memory_of(&mut bench, remember("I moved to Lisbon.")),
    );
    assert_eq!(one(&bench, berlin).superseded_by, Some(lisbon));
    bench.outcomes(&[
        json!({"type": "feedback", "user": "ada", "memories": [new.to_string(), lisbon.to_string()], "signal": "wrong"}),
    ]);
    assert_eq!((one(&bench, old).revised_by, &one(&bench, new).revises[..]), (None, &[][..]));
    let berlin = one(&bench, berlin);
    assert_eq!(
        (berlin.superseded_by, berlin.valid_to, &one(&bench, lisbon).supersedes[..]),
        (None, None, &[][..])
    );
}

#[test]
fn an_update_undoes_a_link_that_its_words_would_not_make() {
    fn update(memory: domain::MemoryId, content: &str) -> Value {
        json!({"type": "update", "user": "ada", "memory": memory.to_string(), "content": content})
    }
    for changes_newer in [true, false] {
        let mut bench = Bench::new();
        let (old, new) =
            (memory_of(&mut bench, remember(SMOKES)), memory_of(&mut bench, remember(QUIT)));
        // Either the newer text changes the subject, or the older text is confirmed by an update.
        let event = if changes_newer {
            update(new, "The shed has a green door.")
        } else {
            update(old, SMOKES)
        };
        bench.outcomes(&[event]);
        assert_eq!(
            (one(&bench, old).revised_by, &one(&bench, new).revises[..]),
            (None, &[][..]),
            "{changes_newer}"
        );
    }
}

#[test]
fn forgetting_the_newer_statement_takes_its_mark_from_the_older_one() {
    let mut bench = Bench::new();
    let (old, new) =
        (memory_of(&mut bench, remember(SMOKES)), memory_of(&mut bench, remember(QUIT)));
    bench.outcomes(&[json!({"type": "forget", "user": "ada", "memory": new.to_string()})]);
    assert_eq!(one(&bench, old).revised_by, None);
}

#[test]
fn a_kind_of_dwelling_does_not_supersede_a_place() {
    let mut bench = Bench::new();
    let lisbon = memory_of(&mut bench, remember("I live in Lisbon."));
    bench.outcomes(&[turn("I live in an apartment."), turn("I live in a house with my sister.")]);
    assert_eq!((one(&bench, lisbon).valid_to, one(&bench, lisbon).revised_by), (None, None));
}
