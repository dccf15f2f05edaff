//! One test for each fault that a review found in ingest, so that none comes back.

use super::{Bench, remember, turn};
use serde_json::{Value, json};

fn answer(content: &str) -> Value {
    json!({"type": "turn", "user": "ada", "role": "assistant", "content": content})
}

/// Three parts that do not join into one candidate.
fn long_answer() -> Value {
    fn part(topic: &str) -> String {
        format!("I always use {topic} in project Alma. ").repeat(14)
    }
    answer(&[part("PostgreSQL"), part("Redis"), part("Kafka")].join("\n\n"))
}

#[test]
fn an_extraction_leaves_the_decision_about_parts_over_the_limit_as_it_is() {
    let mut bench = Bench::of(&[("profile", "alma")]);
    bench.ingest.options.candidates_max = 2;
    for _ in 0..4 {
        bench.outcomes(&[turn("I prefer tea."), answer("ok")]);
    }
    let record = bench.record(&long_answer());
    let (_, decisions) = bench.step(vec![record]);
    let outcomes: Vec<&str> = decisions.iter().map(|one| one.outcome.as_str()).collect();
    assert_eq!(outcomes.last(), Some(&"refused"), "{decisions:#?}");
    let (refused, candidates) = decisions.split_last().expect("one decision for each candidate");
    assert!(refused.reason.contains("the limit is 2"), "{}", refused.reason);
    assert_eq!(candidates.len(), 2);
    for decision in candidates {
        assert!(decision.reason.ends_with("messages extracted"), "{}", decision.reason);
        assert!(
            decision
                .memory
                .is_none_or(|id| bench.memories("ada").iter().any(|memory| memory.id == id)),
            "names a removed memory: {decision:#?}"
        );
    }
}

#[test]
fn the_reason_of_a_superseding_decision_is_about_a_closed_memory() {
    let mut bench = Bench::new();
    let both = "I live in Berlin, and since the spring I work at Siemens with my sister Anna.";
    bench.outcomes(&[remember("I work at Acme."), remember(both), remember("I live in Bonn.")]);
    let record = bench.record(&turn("I live in Lisbon and I work at Bosch."));
    let (_, decisions) = bench.step(vec![record]);
    let decision = &decisions[0];
    assert_eq!(decision.outcome.as_str(), "superseded", "{decision:#?}");
    assert!(decision.reason.starts_with("takes the place of"), "{}", decision.reason);
}

#[test]
fn the_reason_for_late_news_is_that_the_newer_statement_ended_it() {
    let mut bench = Bench::new();
    fn dated(content: &str, at: &str) -> Value {
        let mut turn = turn(content);
        turn["at"] = at.into();
        turn
    }
    bench.outcomes(&[dated("I live in Lisbon.", "2024-08-01T00:00:00Z")]);
    let record = bench.record(&dated("I live in Berlin.", "2024-02-01T00:00:00Z"));
    let (_, decisions) = bench.step(vec![record]);
    assert_eq!(decisions[0].outcome.as_str(), "superseded", "{decisions:#?}");
    assert_eq!(decisions[0].reason, "was true until \"I live in Lisbon.\"");
    let open: Vec<String> = bench
        .memories("ada")
        .into_iter()
        .filter(|memory| memory.valid_to.is_none())
        .map(|memory| memory.content)
        .collect();
    assert_eq!(open, ["I live in Lisbon."]);
}

#[test]
fn a_forget_that_is_sent_again_has_the_same_salt() {
    let mut bench = Bench::new();
    bench.outcomes(&[remember("I work at Acme.")]);
    let forget = json!({"type": "forget", "user": "ada", "everything": true, "id": "f-1"});
    let salts: Vec<Option<String>> = (0..2)
        .map(|_| {
            let record = bench.record(&forget);
            let (_, decisions) = bench.step(vec![record]);
            decisions[0].salt.as_ref().map(domain::Salt::hex)
        })
        .collect();
    assert!(salts[0].is_some() && salts[0] == salts[1], "{salts:?}");
}

/// The counters of events and decisions.
fn counted(bench: &Bench) -> Vec<String> {
    let page = bench.ingest.metrics.page();
    let counters = ["keepsake_events_total", "keepsake_decisions_total", "keepsake_judgements"];
    page.lines()
        .filter(|line| counters.iter().any(|counter| line.starts_with(counter)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn nothing_is_counted_and_no_explanation_is_forgotten_before_the_commit() {
    let mut bench = Bench::new();
    let kept = bench.record(&turn("My sister Anna plays the harp in Bergen."));
    let source = bench.step(vec![kept]).1[0].event.clone();
    let before = counted(&bench);
    let forget = bench.record(&json!({"type": "forget", "user": "ada", "everything": true}));
    let effects = bench.ingest.step(vec![forget]).expect("the shard is readable");
    let key = domain::UserKey::new("default", "ada").expect("valid names");
    let shard = effects.writes[0].shard.clone();
    assert_eq!(counted(&bench), before, "an aborted batch counts nothing");
    assert_eq!(shard.decisions_of(&key, &source).len(), 1, "an aborted batch forgets nothing");
    for write in effects.writes {
        write.carry_out(None).expect("the store is writable");
    }
    assert_ne!(counted(&bench), before);
    assert_eq!(shard.decisions_of(&key, &source).len(), 0);
}

#[test]
fn judgements_are_counted_under_every_policy() {
    for profile in ["keepsake", "alma", "lynkr", "memory-spec", "memory-platform", "talome"] {
        let mut bench = Bench::of(&[("profile", profile)]);
        bench.outcomes(&[turn("I decided to move to Lisbon in May."), answer("ok")]);
        let page = bench.ingest.metrics.page();
        // Talome takes turns as context only, so there is nothing to judge.
        let is_counted = page.lines().any(|line| line.starts_with("keepsake_judgements_total{"));
        assert_eq!(is_counted, profile != "talome", "{profile}");
    }
}

/// Number of files below the directory whose name ends so.
fn files_named(dir: &std::path::Path, end: &str) -> usize {
    let entries = std::fs::read_dir(dir).expect("a directory").flatten();
    entries
        .map(|entry| match entry.path() {
            path if path.is_dir() => files_named(&path, end),
            path => usize::from(path.to_string_lossy().ends_with(end)),
        })
        .sum()
}

#[test]
fn a_rebuilt_index_goes_to_disk_while_it_is_read() {
    let mut bench = Bench::with_shards(&[], |shard| shard.index.mem_segment_max = 6);
    for n in 0..10 {
        bench.outcomes(&[remember(&format!("Pebble {n} lies in box {n}."))]);
    }
    let key = domain::UserKey::new("default", "ada").expect("valid names");
    let partition = key.partition(super::PARTITIONS);
    bench.ingest.shards.close_all();
    let shard_dir = bench.dir.path().join(format!("keepsake.events-{partition}"));
    std::fs::remove_dir_all(shard_dir.join("index")).expect("closed");
    bench.ingest.shards.open(partition).expect("the store is there");
    let shard = bench.ingest.shards.get(partition).expect("it was opened");
    assert_eq!(shard.index.text.documents(&key).expect("readable").0, 10);
    let segments = files_named(bench.dir.path(), ".term");
    assert!(segments > 1, "all documents were in memory before one was on disk");
    let mark = shard.index.text.checkpoint().map(|checkpoint| checkpoint.applied);
    assert_eq!(mark, Some(shard.applied()), "and the index is complete");
}
