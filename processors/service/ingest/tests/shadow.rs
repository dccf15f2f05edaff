//! Tests that the shadow profile changes nothing, judges the same wherever a batch ends, and agrees
//! with the real profile if both have the same weights.

use crate::ingest::tests::{Bench, PARTITIONS, remember, turn};
use domain::{Outcome, UserKey};
use serde_json::{Value, json};
use storage::store::Digest;

const DECISIONS: &str = "keepsake.decisions";

/// Covers everything a gate distinguishes: facts, changes, repetitions, contradictions, echoes,
/// small talk; and events that are not turns.
fn story() -> Vec<Value> {
    let said = [
        ("user", "I live in Berlin with my sister Anna."),
        ("assistant", "You live in Berlin with your sister Anna. Where do you work?"),
        ("user", "At the harbour"),
        ("user", "Hi there!"),
        ("user", "We have 10 boats in the rental fleet."),
        ("user", "We now have 12 boats in the rental fleet!"),
        ("user", "I have never played tennis in the park"),
        ("user", "I played tennis with Anna in the park"),
        ("user", "I moved to Lisbon last month, now I work on the billing service."),
        ("user", "I moved to Lisbon last month, now I work on the billing service."),
        ("tool", "17 rows found"),
        ("user", "I prefer Python"),
        ("user", "Actually, I prefer Go"),
        ("assistant", "Noted: Go it is."),
        ("user", "Always answer in French, please."),
    ];
    fn event((n, (role, content)): (usize, &(&str, &str))) -> Value {
        let mut event = turn(content);
        event["role"] = json!(role);
        event["at"] = json!(format!("2026-01-01T{:02}:{:02}:00Z", n / 60, n % 60));
        event
    }
    let mut events: Vec<Value> =
        said.iter().cycle().take(2 * said.len()).enumerate().map(event).collect();
    events.insert(7, remember("The parcel code of the fleet is 4711."));
    events.insert(12, json!({"type": "forget", "user": "ada", "query": "Berlin"}));
    events.push(json!({"type": "tick"}));
    events
}

/// Topic, key and value of an output.
type Output = (String, Option<Vec<u8>>, Option<Vec<u8>>);

struct Observed {
    /// Outputs without the shadow's decisions.
    real: Vec<Output>,
    decisions: Vec<Value>,
    shadows: Vec<Value>,
    digest: Vec<Digest>,
    bench: Bench,
}

fn observed(options: &[(&str, &str)], events: &[Value], batch: usize) -> Observed {
    let mut bench = Bench::of(options);
    let mut real = Vec::new();
    let mut decisions = Vec::new();
    let mut shadows = Vec::new();
    for events in events.chunks(batch) {
        let records = events.iter().map(|event| bench.record(event)).collect();
        for out in bench.step(records).0 {
            if out.topic == DECISIONS {
                let decision: Value =
                    serde_json::from_slice(out.value.as_deref().expect("a decision"))
                        .expect("JSON");
                if decision["shadow"] == true {
                    shadows.push(decision);
                    continue;
                }
                decisions.push(decision);
            }
            real.push((out.topic, out.key, out.value));
        }
    }
    Observed { real, decisions, shadows, digest: bench.digest(), bench }
}

#[test]
fn a_shadow_changes_neither_the_store_nor_the_outputs() {
    let events = story();
    let mut disagree = 0;
    for real in ["keepsake", "lynkr", "alma"] {
        let alone = observed(&[("profile", real)], &events, 4);
        assert!(alone.shadows.is_empty());
        for shadow in ["keepsake", "lynkr", "memory-spec", "memory-platform", "talome"]
            .into_iter()
            .filter(|name| *name != real)
        {
            let watched = observed(&[("profile", real), ("shadow.profile", shadow)], &events, 4);
            assert_eq!(watched.real, alone.real, "{real} under {shadow}");
            assert_eq!(watched.digest, alone.digest, "{real} under {shadow}");
            assert_eq!(
                watched.bench.memories("ada"),
                alone.bench.memories("ada"),
                "{real} under {shadow}"
            );
            let candidates =
                alone.decisions.iter().filter(|decision| decision["surprise"].is_object());
            let judged: Vec<&Value> = candidates.map(|decision| &decision["candidate"]).collect();
            let seen: Vec<&Value> =
                watched.shadows.iter().map(|decision| &decision["candidate"]).collect();
            assert_eq!(seen, judged, "every candidate once, {real} under {shadow}");
            assert!(watched.shadows.iter().all(|decision| decision["profile"] == shadow));
            let page = watched.bench.ingest.metrics.page();
            disagree += page
                .lines()
                .filter(|line| line.starts_with("keepsake_shadow_total{agrees=\"no\""))
                .count();
        }
    }
    assert!(disagree > 0, "at least one shadow disagrees");
}

#[test]
fn the_end_of_a_batch_does_not_change_a_shadow() {
    let events = story();
    for shadow in ["lynkr", "memory-spec", "memory-platform", "talome"] {
        let options = [("shadow.profile", shadow)];
        let [one_by_one, by_three, together] =
            [1, 3, events.len()].map(|batch| observed(&options, &events, batch).shadows);
        assert!(!together.is_empty());
        assert_eq!((&one_by_one, &by_three), (&together, &together), "{shadow}");
    }
}

#[test]
fn a_shadow_with_equal_weights_agrees_with_the_real_profile() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("alike.toml");
    std::fs::write(&path, "base = \"keepsake\"\n").expect("a disk");
    let path = path.to_str().expect("a path");
    // Long enough for the user's own totals to move the threshold.
    let events: Vec<Value> = story().into_iter().cycle().take(120).collect();
    let observed = observed(&[("shadow.profile", path)], &events, 5);
    fn without(decision: &Value) -> Value {
        let mut decision = decision.clone();
        let fields = decision.as_object_mut().expect("an object");
        fields.remove("profile");
        fields.remove("shadow");
        // A shadow makes no memory, so only a merge has an id.
        if decision["outcome"] != "merged" {
            decision.as_object_mut().expect("an object").remove("memory");
        }
        decision
    }
    let judged = observed.decisions.iter().filter(|decision| decision["surprise"].is_object());
    let (real, shadow): (Vec<Value>, Vec<Value>) =
        (judged.map(without).collect(), observed.shadows.iter().map(without).collect());
    assert_eq!(shadow.len(), real.len());
    for (shadow, real) in shadow.iter().zip(&real) {
        assert_eq!(shadow, real);
    }
    for outcome in ["kept", "merged", "superseded", "dropped"] {
        assert!(
            real.iter().any(|decision| decision["outcome"] == outcome),
            "no decision has the outcome {outcome}"
        );
    }
    let thresholds: Vec<&Value> = real.iter().map(|decision| &decision["threshold"]).collect();
    assert!(thresholds.iter().any(|threshold| *threshold != thresholds[0]), "the threshold moves");
    assert!(!observed.bench.ingest.metrics.page().contains("agrees=\"no\""));
}

#[test]
fn other_weights_leave_a_shadow_its_fixed_threshold() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("strict.toml");
    std::fs::write(
        &path,
        "base = \"keepsake\"\n[gate]\nfixed = 0.9\n[weights]\nnovelty = 0.1\nstatement = 0.0\n",
    )
    .expect("a disk");
    let options = [("shadow.profile", path.to_str().expect("a path"))];
    let observed = observed(
        &options,
        &[turn("We decided to use Postgres for the billing service in March.")],
        1,
    );
    assert_eq!(
        (&observed.decisions[0]["outcome"], &observed.shadows[0]["outcome"]),
        (&json!("kept"), &json!("dropped"))
    );
    assert_eq!(observed.shadows[0]["threshold"], 0.9);
    assert!(observed.shadows[0]["memory"].is_null());
}

#[test]
fn a_shadow_is_neither_explained_nor_counted_as_a_decision() {
    let observed = observed(
        &[("shadow.profile", "talome")],
        &[turn("I live in Berlin with my sister Anna.")],
        1,
    );
    assert_eq!(observed.shadows[0]["reason"], "user turns are context only");
    let key = UserKey::new("default", "ada").expect("a name");
    let shard = observed.bench.ingest.shards.get(key.partition(PARTITIONS)).expect("all are open");
    let kept = &observed.bench.memories("ada")[0];
    let explained: Vec<Outcome> =
        shard.decisions_of(&key, &kept.source).iter().map(|decision| decision.outcome).collect();
    assert_eq!(explained, [Outcome::Kept]);
    assert_eq!(shard.outcomes_of(&key).into_iter().collect::<Vec<_>>(), [("kept".to_owned(), 1)]);
    let page = observed.bench.ingest.metrics.page();
    for line in [
        "keepsake_decisions_total{outcome=\"kept\"} 1",
        "keepsake_shadow_total{agrees=\"no\",outcome=\"dropped\"} 1",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(page.contains("keepsake_decisions_total{outcome=\"dropped\"} 0\n"), "{page}");
}
