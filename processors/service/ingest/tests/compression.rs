//! A summary that stands for its memories: the marks, the ways back, and that a replay ends in the
//! same state.

use super::*;
use domain::{Memory, MemoryId};

/// Two turns of one session and the summary that stands for both, as records.
fn compressed(bench: &mut Bench) -> (MemoryId, Vec<MemoryId>) {
    bench.ingest.options.decode.trust_proposals = true;
    bench.outcomes(
        &["I live in Berlin with my sister Anna.", "My flight to Oslo leaves on 12 March at 7:40."]
            .map(turn),
    );
    let originals = bench.memories("ada");
    let covers: Vec<Value> = originals
        .iter()
        .map(|memory| json!({"id": memory.id.to_string(), "version": memory.version}))
        .collect();
    let summary = json!({"type": "summary", "user": "ada", "session": "s", "id": "s1",
        "content": "Lives in Berlin, flies to Oslo.", "covers": covers,
        "compresses_as": "semantic", "at": "2026-01-02T00:00:00Z"});
    let mut again = summary.clone();
    again["id"] = "s2".into();
    assert_eq!(bench.outcomes(&[summary, again]), ["summarised", "outdated"]);
    let made = bench.memories("ada").into_iter().find(|memory| !memory.covers.is_empty());
    (made.expect("the summary is stored").id, originals.iter().map(|memory| memory.id).collect())
}

fn one(bench: &Bench, id: MemoryId) -> Option<Memory> {
    bench.memories("ada").into_iter().find(|memory| memory.id == id)
}

/// Holds memory-spec 40.
#[test]
fn a_compressing_summary_marks_its_originals_until_it_or_one_of_them_goes() {
    fn forget(id: MemoryId) -> Value {
        json!({"type": "forget", "user": "ada", "memory": id.to_string()})
    }
    fn update(id: MemoryId) -> Value {
        json!({"type": "update", "user": "ada", "memory": id.to_string(),
            "content": "My flight to Bergen leaves on 12 March."})
    }
    type Undo = (&'static str, fn(MemoryId, &[MemoryId]) -> (MemoryId, bool));
    let ways: [Undo; 3] = [
        ("the summary is forgotten", |summary, _| (summary, false)),
        ("an original is forgotten", |_, originals| (originals[0], false)),
        ("an original is changed", |_, originals| (originals[1], true)),
    ];
    for (what, way) in ways {
        let mut bench = Bench::new();
        let (summary, originals) = compressed(&mut bench);
        let stored = one(&bench, summary).expect("it is stored");
        assert_eq!(
            (stored.kind.as_str(), stored.metadata["source_session_id"].as_str()),
            ("semantic", "s")
        );
        for id in &originals {
            let original = one(&bench, *id).expect("an original stays");
            assert_eq!((original.compressed_by, original.archived), (Some(summary), false));
        }
        let (target, is_update) = way(summary, &originals);
        bench.outcomes(&[if is_update { update(target) } else { forget(target) }]);
        assert!(one(&bench, summary).is_none(), "{what}: the summary is gone");
        for id in originals.iter().filter(|id| **id != target || is_update) {
            let original = one(&bench, *id).expect("the others stay");
            assert_eq!(original.compressed_by, None, "{what}");
        }
    }
}

#[test]
fn law_forgotten_survives_replay_of_a_compression() {
    fn told(bench: &mut Bench) -> Vec<domain::Memory> {
        let (_, originals) = compressed(bench);
        bench.outcomes(&[
            json!({"type": "forget", "user": "ada", "memory": originals[0].to_string()}),
        ]);
        bench.memories("ada")
    }
    let (first, second) = (told(&mut Bench::new()), told(&mut Bench::new()));
    assert_eq!(first, second, "the same log gives the same state");
    assert!(first.iter().all(|memory| !memory.content.contains("Berlin")), "{first:#?}");
    assert!(first.iter().all(|memory| memory.compressed_by.is_none()), "{first:#?}");
}
