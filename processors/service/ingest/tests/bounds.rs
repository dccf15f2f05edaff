//! No list in an output grows with the past of a user until the record is longer than its topic
//! takes: the broker would refuse the record, and the process would stop there again and again.

use super::*;
use domain::{MemoryId, Now};
use kernel::{LINKS_MAX, Session, Staged};

const DAY_MS: i64 = 86_400_000;

/// Longest record of a topic, as set by `topics create`.
fn bytes_max(topic: &str) -> usize {
    let config = Layers::defaults().checked().expect("defaults");
    let topics = deployment::topics::topics(&config);
    let topic = topics.iter().find(|spec| spec.name.ends_with(topic)).expect("a topic");
    let size = topic.settings.iter().find(|(name, _)| *name == "max.message.bytes");
    size.expect("each topic has one").1.parse().expect("a number")
}

#[test]
fn law_bounded_summary_of_a_session_with_25_000_memories() {
    let dir = tempfile::tempdir().expect("a directory");
    let profile = dir.path().join("unpruned.toml");
    std::fs::write(&profile, "base = \"keepsake\"\n[prune]\naction = \"off\"\n").expect("a file");
    let mut bench = Bench::with(profile.to_str().expect("a plain path"));
    bench.ingest.options.decode.trust_proposals = true;
    let mut said = remember("The cat number 0 sleeps.");
    said["session"] = "s".into();
    bench.outcomes(&[said]);
    let first = bench.memories("ada").remove(0);
    let key = first.key.clone();
    let shard = bench.ingest.shards.get(key.partition(PARTITIONS)).expect("all are open");
    let mut staged = Staged::over(&shard.store, &*shard);
    for n in 1..25_000 {
        let mut memory = first.clone();
        memory.source.offset = n;
        memory.id = MemoryId::of(&memory.source, 1);
        memory.content = format!("The cat number {n} sleeps.");
        memory.created_at = Time(NOON + n);
        staged.put_memory(memory);
    }
    let at = Time(NOON);
    staged.put_session(
        &key,
        "s",
        &Session { turns: 25_000, first_at: at, last_at: at, summarised: 0 },
    );
    let changes = shard.store.encode(staged.into_changes()).expect("a disk");
    shard.apply_batch(changes, 0, None).expect("a disk");

    let mut worker = bench.compaction(&[]);
    let now = Time(NOON + DAY_MS);
    let proposals = worker.step(Now { wall: now, events: now }).expect("a disk");
    assert_eq!(proposals.len(), 1, "one summary");
    let bytes = proposals[0].bytes();
    assert!(bytes > 200_000 && bytes < bytes_max(".events") / 2, "{bytes} bytes");
    let (outputs, decisions) = {
        let record = bench.arrived(proposals.into_iter().next().expect("one")).expect("an event");
        bench.step(vec![record])
    };
    assert_eq!(decisions[0].outcome.as_str(), "summarised", "{:?}", decisions[0].reason);
    assert!(outputs.iter().all(|out| out.bytes() < bytes_max(".decisions")));
    let summary = bench.memories("ada").into_iter().find(|memory| !memory.covers.is_empty());
    let summary = summary.expect("applied");
    assert_eq!(summary.covers.len(), 4096);
    let stated = reply::memory(&summary).len() + 16 * summary.covers.len();
    assert!(stated < bytes_max(".memories") / 2, "{stated} bytes");
    assert!(bench.ingest.metrics.page().contains("keepsake_cut_total{what=\"covers\"} 20904"));
    // Nothing is left to propose: the session is summarised until the next turn.
    let mut round = || worker.step(Now { wall: now, events: now }).expect("a disk").len();
    assert_eq!((round(), round()), (0, 0));
}

/// "I live in Aaab.": a town for each number.
fn town(n: usize) -> Value {
    let letters: String =
        [n / 676, n / 26, n].map(|n| char::from(b'a' + (n % 26) as u8)).iter().collect();
    remember(&format!("I live in Q{letters}."))
}

#[test]
fn law_bounded_links_of_a_fact_whose_old_values_come_newest_first() {
    let mut bench = Bench::new();
    let count = LINKS_MAX + 50;
    let mut warned = 0;
    for n in 0..count {
        let mut event = town(n);
        let at = format!("{}-01-01T00:00:00Z", 2025 - n);
        event["at"] = at.into();
        let record = bench.record(&event);
        let (_, decisions) = bench.step(vec![record]);
        assert_eq!(decisions[0].outcome.as_str(), if n == 0 { "kept" } else { "superseded" });
        warned += decisions[0].warnings.len();
    }
    let memories = bench.memories("ada");
    assert_eq!(memories.len(), count, "no value is lost");
    assert_eq!(memories.iter().filter(|memory| memory.valid_to.is_none()).count(), 1);
    assert_eq!(memories.iter().map(|memory| memory.supersedes.len()).max(), Some(LINKS_MAX));
    assert_eq!(warned, count - 1 - LINKS_MAX, "each decision that left a link out says so");
}

#[test]
fn law_bounded_history_of_a_memory_with_long_texts() {
    let mut bench = Bench::new();
    bench.outcomes(&[remember("A long text.")]);
    let id = bench.memories("ada")[0].id.to_string();
    for n in 0..20 {
        let content = format!("{n} {}", "long text ".repeat(6_000));
        let update = json!({"type": "update", "user": "ada", "memory": id, "content": content});
        assert_eq!(bench.outcomes(&[update]), ["updated"]);
    }
    let memory = bench.memories("ada").remove(0);
    let bytes: usize = memory.history.iter().map(|earlier| earlier.content.len()).sum();
    assert!(bytes > 400_000 && bytes <= 1 << 19, "{bytes} bytes");
    assert!(memory.history.last().is_some_and(|last| last.content.starts_with("18 ")));
}

#[test]
fn law_bounded_only_the_event_is_put_aside_whose_record_its_topic_does_not_take() {
    let mut bench = Bench::new();
    let memories = bench.ingest.options.memories.clone();
    bench.ingest.options.sizes.0.insert(memories, 3000);
    let long = "My grandmother kept her recipes in a blue tin box. ".repeat(80);
    let said: Vec<Value> = (0..9)
        .map(|n| {
            remember(if n == 5 {
                long.as_str()
            } else {
                ["a", "b", "c", "d", "e", "f", "g", "h", "i"][n]
            })
        })
        .collect();
    let mut records: Vec<Record> = said.iter().map(|event| bench.record(event)).collect();
    let mut letters = Vec::new();
    while !records.is_empty() {
        let effects = bench.ingest.step(records.clone()).expect("a disk");
        records.drain(..effects.records);
        letters
            .extend(effects.outputs.into_iter().filter(|out| out.topic == "keepsake.dead-letters"));
        for write in effects.writes {
            write.carry_out(None).expect("a disk");
        }
    }
    assert_eq!((bench.memories("ada").len(), letters.len()), (8, 1));
    let said = |name: &str| {
        let header = letters[0].headers.iter().find(|(header, _)| header.ends_with(name));
        String::from_utf8_lossy(&header.expect("a header").1).into_owned()
    };
    assert_eq!(said("exception.class.name"), "too-large");
    assert!(
        said("exception.message").contains("max.message.bytes"),
        "{}",
        said("exception.message")
    );
    assert!(letters[0].value.is_some(), "it can be sent again");
}

#[test]
fn law_bounded_decision_and_receipt_of_a_forget_are_cut_and_nothing_stays() {
    let mut bench = Bench::new();
    for part in (0..600).collect::<Vec<_>>().chunks(100) {
        let said: Vec<Value> = part.iter().map(|n| remember(&format!("Item {n}."))).collect();
        bench.outcomes(&said);
    }
    let Options { decisions, erasures, .. } = &bench.ingest.options;
    let topics = [decisions.clone(), erasures.topic.clone()];
    let sizes = [15_000, 50_000];
    bench.ingest.options.sizes.0.extend(topics.clone().into_iter().zip(sizes));
    let (outputs, decided) = {
        let record = bench.record(&json!({"type": "forget", "user": "ada", "everything": true}));
        bench.step(vec![record])
    };
    assert_eq!((bench.memories("ada").len(), decided[0].related.len()), (0, 600));
    let written = topics.map(|topic| {
        let out = outputs.iter().find(|out| out.topic == topic).expect("it is written");
        serde_json::from_slice::<Value>(out.value.as_deref().expect("a value")).expect("JSON")
    });
    assert!(bench.ingest.options.sizes.refusal(&outputs).is_none());
    let [decision, receipt] = written;
    assert_eq!(decision["related"].as_array().map(Vec::len), Some(256));
    assert!(
        decision["warnings"][0].as_str().is_some_and(|it| it.contains("344 ids")),
        "{decision}"
    );
    assert_eq!(receipt["texts"].as_array().map(Vec::len), Some(256));
    assert_eq!((&receipt["count"], &receipt["unlisted"]), (&json!(600), &json!(688)));
}
