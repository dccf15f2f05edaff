//! Times of events that cannot be: a sender with a wrong clock, or with seconds for milliseconds.

use super::*;
use domain::Now;

const DAY_MS: i64 = 86_400_000;

fn at(mut event: Value, time: &str) -> Value {
    event["at"] = time.into();
    event
}

/// A bench with a memory of 2090, as from a producer whose clock is wrong.
fn poisoned(options: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::of(options);
    let believed = bench.ingest.options.decode.at_ahead_ms_max;
    bench.ingest.options.decode.at_ahead_ms_max = i64::MAX;
    assert_eq!(
        bench.outcomes(&[at(remember("I live in Berlin."), "2090-01-01T00:00:00Z")]),
        ["kept"]
    );
    bench.ingest.options.decode.at_ahead_ms_max = believed;
    bench
}

#[test]
fn a_time_far_ahead_counts_as_that_of_the_record_and_the_decision_says_so() {
    let mut bench = Bench::new();
    let future = bench.record(&at(remember("I live in Berlin."), "2090-01-01T00:00:00Z"));
    let tomorrow = bench.record(&at(remember("The blue key is new."), "2026-01-02T12:00:00Z"));
    let past = bench.record(&at(remember("The red key is old."), "2019-05-01T12:00:00Z"));
    let (outputs, decisions) = bench.step(vec![future, tomorrow, past]);
    let times: Vec<Time> = decisions.iter().map(|decision| decision.at).collect();
    assert_eq!(times, [Time(NOON), Time(NOON + DAY_MS), Time(1_556_712_000_000)]);
    let warned: Vec<usize> = decisions.iter().map(|decision| decision.warnings.len()).collect();
    assert_eq!(warned, [1, 0, 0]);
    let published = outputs.iter().filter_map(|out| out.value.as_deref());
    let published: Vec<Value> =
        published.filter_map(|value| serde_json::from_slice(value).ok()).collect();
    let said = published.iter().find_map(|decision| decision["warnings"][0].as_str());
    assert_eq!(said, Some("at: more than a day after the record, whose time counts instead"));

    // The later turn counts as later, and the turn from the future closes nothing.
    assert_eq!(bench.outcomes(&[remember("I live in Lisbon.")]), ["superseded"]);
    let open: Vec<String> = bench
        .memories("ada")
        .into_iter()
        .filter(|one| one.valid_to.is_none())
        .map(|one| one.content)
        .collect();
    assert!(open.contains(&"I live in Lisbon.".to_owned()), "{open:?}");
}

#[test]
fn an_old_fact_from_the_future_yields_to_what_is_said_now() {
    let mut bench = poisoned(&[]);
    assert_eq!(bench.outcomes(&[remember("I live in Lisbon.")]), ["superseded"]);
    let memories = bench.memories("ada");
    let of = |word: &str| memories.iter().find(|one| one.content.contains(word)).expect("kept");
    assert_eq!((of("Lisbon").valid_to, of("Berlin").valid_to), (None, Some(Time(NOON))));
    assert!(of("Berlin").valid_from <= Time(NOON), "ends before it begins");
    // A late statement of an earlier day is still late.
    let earlier = at(remember("I live in Porto."), "2019-05-01T12:00:00Z");
    assert_eq!(bench.outcomes(&[earlier]), ["superseded"]);
    let porto = bench.memories("ada").into_iter().find(|one| one.content.contains("Porto"));
    assert!(porto.expect("kept").valid_to.is_some());
}

#[test]
fn with_a_clock_from_events_every_time_is_believed() {
    let mut bench = Bench::of(&[("clock.from_events", "true")]);
    let replayed = at(remember("I live in Berlin."), "2090-01-01T00:00:00Z");
    let later = at(remember("I live in Lisbon."), "2089-01-01T00:00:00Z");
    assert_eq!(bench.outcomes(&[replayed, later]), ["kept", "superseded"]);
    let memories = bench.memories("ada");
    let lisbon = memories.iter().find(|one| one.content.contains("Lisbon")).expect("kept");
    assert!(lisbon.valid_to.is_some(), "2089 is before 2090");
}

/// The age of a memory from the future counts from the next event of its user.
#[test]
fn a_memory_from_the_future_obeys_its_retention() {
    let erased = |later: &[Value], days: i64| {
        let mut bench = poisoned(&[("retain.days", "10")]);
        let berlin = bench.memories("ada")[0].id.to_string();
        bench.outcomes(later);
        let mut worker = bench.compaction(&[("retain.days", "10")]);
        let now = Time(NOON + days * DAY_MS);
        let proposals = worker.step(Now { wall: now, events: now }).expect("a disk");
        let mut proposed = proposals.iter().filter_map(|proposal| proposal.value.as_deref());
        proposed.any(|value| String::from_utf8_lossy(value).contains(&berlin))
    };
    let note = remember("The blue key opens the shed.");
    let imported = at(remember("The red key opens the barn."), "2019-05-01T12:00:00Z");
    assert!(!erased(std::slice::from_ref(&note), 9));
    assert!(erased(std::slice::from_ref(&note), 11));
    assert!(!erased(&[], 11), "nothing says when it was applied");
    assert!(!erased(&[note.clone(), imported], 9), "an import of old memories ages nobody");
}
