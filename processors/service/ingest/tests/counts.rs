//! Tests the counters of a batch: each thing counts once, and only after the commit.

use super::{Bench, remember, turn};
use serde_json::{Value, json};

/// The value of a series; 0 for one that does not exist.
fn value(bench: &Bench, series: &str) -> u64 {
    let page = bench.ingest.metrics.page();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |count| count.parse().expect("a counter is a whole number"))
}

fn changes(bench: &Bench, change: &str) -> u64 {
    value(bench, &format!("keepsake_memory_changes_total{{change=\"{change}\"}}"))
}

fn links(bench: &Bench, kind: &str) -> u64 {
    value(bench, &format!("keepsake_links_total{{kind=\"{kind}\"}}"))
}

fn about(kind: &str, bench: &Bench, more: Value) -> Value {
    let mut event = json!({"type": kind, "user": "ada", "memory": bench.memories("ada")[0].id.0});
    event.as_object_mut().expect("an object").extend(more.as_object().expect("too").clone());
    event
}

/// Every counter of the page that is not 0, except for work that is done before a commit and again
/// after an abort: texts that were encoded.
fn counted(bench: &Bench) -> Vec<String> {
    let page = bench.ingest.metrics.page();
    fn is_counted(line: &&str) -> bool {
        let series = line.rsplit_once(' ').unwrap_or_default();
        let is_ours = series.0.starts_with("keepsake_") && !series.0.contains("encode");
        let counts = ["_total", "_count", "_bucket", "_sum"];
        let name = series.0.split('{').next().unwrap_or_default();
        is_ours && counts.iter().any(|end| name.ends_with(end)) && series.1 != "0"
    }
    page.lines().filter(is_counted).map(str::to_owned).collect()
}

#[test]
fn a_batch_that_is_aborted_and_read_again_counts_once() {
    let story = [
        turn("My sister Anna plays the harp in Bergen."),
        turn("I live in Berlin."),
        turn("I live in Lisbon."),
        turn("ok"),
        turn("My card is 4111 1111 1111 1111."),
        remember("The parcel code is 4711."),
        json!({"type": "nonsense", "user": "ada"}),
        json!({"type": "forget", "user": "ada", "query": "parcel code"}),
    ];
    let told = |aborts: usize| {
        let mut bench = Bench::new();
        let records: Vec<_> = story.iter().map(|event| bench.record(event)).collect();
        let before = counted(&bench);
        for _ in 0..aborts {
            let aborted = bench.ingest.step(records.clone()).expect("no faults");
            assert!(!aborted.outputs.is_empty());
            assert_eq!(counted(&bench), before, "nothing counts before the commit");
        }
        bench.step(records);
        counted(&bench)
    };
    let once = told(0);
    assert!(once.len() > 12, "{once:#?}");
    assert_eq!(told(2), once);
}

#[test]
fn what_becomes_of_memories_and_links_is_counted() {
    let mut bench = Bench::new();
    bench.outcomes(&["I live in Berlin.", "I live in Lisbon."].map(turn));
    assert_eq!((changes(&bench, "created"), changes(&bench, "superseded")), (2, 1));
    assert_eq!((links(&bench, "supersedes"), links(&bench, "conflicts")), (1, 0));
    bench.outcomes(
        &["We have 10 boats in the fleet.", "We now have 12 boats in the fleet!"].map(turn),
    );
    assert_eq!(links(&bench, "conflicts"), 1, "the two memories name each other");
    assert_eq!(changes(&bench, "created"), 4);
    bench.outcomes(&[json!({"type": "forget", "user": "ada", "everything": true})]);
    assert_eq!((changes(&bench, "created"), changes(&bench, "erased")), (4, 4));
}

#[test]
fn a_change_of_a_memory_is_no_new_memory_and_its_links_are_not_counted_again() {
    let mut bench = Bench::new();
    bench.outcomes(&["I live in Berlin.", "I live in Lisbon."].map(turn));
    // A new text has a new vector.
    for (n, text) in
        ["I live in Lisbon by the sea.", "I live in Lisbon on a hill."].iter().enumerate()
    {
        let mut memories = bench.memories("ada");
        memories.retain(|memory| memory.valid_to.is_none());
        assert_eq!(memories.len(), 1);
        let update =
            json!({"type": "update", "user": "ada", "memory": memories[0].id.0, "content": text});
        assert_eq!(bench.outcomes(&[update]), ["updated"], "{n}");
    }
    assert_eq!((changes(&bench, "created"), links(&bench, "supersedes")), (2, 1));
}

#[test]
fn feedback_is_counted_by_its_signal() {
    let mut bench = Bench::new();
    bench.outcomes(&[remember("The parcel code is 4711.")]);
    let used = about("feedback", &bench, json!({"signal": "used"}));
    let wrong = about("feedback", &bench, json!({"signal": "wrong"}));
    bench.outcomes(&[used.clone(), wrong, used]);
    let of =
        |signal: &str| value(&bench, &format!("keepsake_feedback_total{{signal=\"{signal}\"}}"));
    assert_eq!((of("used"), of("wrong"), of("confirmed")), (2, 1, 0));
}

#[test]
fn a_memory_of_a_tenant_counts_once_although_every_shard_has_it() {
    let mut bench = Bench::new();
    let rule =
        json!({"type": "remember", "scope": "tenant", "user": "ada", "content": "No smoking."});
    let record = bench.record(&rule);
    let (outputs, _) = bench.step(vec![record]);
    bench.settle(outputs);
    assert_eq!(changes(&bench, "created"), 1);
}
