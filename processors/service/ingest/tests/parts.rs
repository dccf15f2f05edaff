//! A `forget` of everything goes on in parts, with other events in between.

use super::*;

/// Memories, and sessions, of one part.
const TOGETHER: usize = 20;
const MEMORIES: usize = 100;

/// Facts have names of letters.
fn name(n: usize) -> String {
    [n / 26, n % 26].map(|n| char::from(b'a' + n as u8)).iter().collect()
}

/// A user with memories that hold a slot each, and with a session for each of them.
fn crowded() -> Bench {
    let mut bench = Bench::new();
    bench.ingest.options.limits.forget_memories_max = TOGETHER;
    bench.ingest.profiles = bench.ingest.profiles.clone().with_open_gate();
    for n in 0..MEMORIES {
        let mut said = turn(&format!("My zanzibar{} is {n}.", name(n)));
        said["session"] = format!("s{n}").into();
        bench.outcomes(&[said]);
    }
    assert_eq!(bench.memories("ada").len(), MEMORIES);
    bench
}

fn forget_everything(bench: &mut Bench) -> Vec<OutgoingRecord> {
    let record = bench.record(&json!({"type": "forget", "user": "ada", "everything": true}));
    bench.step(vec![record]).0
}

/// Every record of the shard that holds a word.
fn records_with(bench: &Bench, word: &str) -> Vec<String> {
    let key = UserKey::new("default", "ada").expect("a name");
    let shard = bench.ingest.shards.get(key.partition(PARTITIONS)).expect("all are open");
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let text = String::from_utf8_lossy(&[key, value].concat()).into_owned();
        found.extend(text.contains(word).then_some(text));
        true
    };
    shard.store.records(b"", &mut visit).expect("a disk");
    found
}

#[test]
fn law_nobody_suffers_no_part_of_a_forget_of_everything_changes_more_than_its_share() {
    let mut bench = crowded();
    let mut waiting = VecDeque::from(forget_everything(&mut bench));
    let mut parts = 1;
    while let Some(next) = waiting.pop_front() {
        let Some(record) = bench.arrived(next) else { continue };
        let outputs = bench.step(vec![record]).0;
        let changed = outputs.iter().filter(|out| out.topic == survival::MEMORIES).count();
        // Four for each memory (itself, slot, session, turn); then the gate, marks and meta record.
        assert!(changed <= 4 * TOGETHER + 8, "part {parts} changes {changed} records");
        waiting.extend(outputs);
        parts += 1;
    }
    assert_eq!(parts, MEMORIES / TOGETHER);
    assert_eq!((bench.memories("ada").len(), records_with(&bench, "zanzibar")), (0, vec![]));
    assert_eq!(records_with(&bench, "s77"), [""; 0], "no session is left");
}

/// The session's window, the slot and the replaced memory are not erased yet.
#[test]
fn law_forgotten_stays_forgotten_where_something_is_said_between_the_parts() {
    let mut bench = crowded();
    let outputs = forget_everything(&mut bench);
    let last = bench.memories("ada").pop().expect("a later part has it");
    let mut said =
        turn(&last.content.replace(" is ", " is now 7").replace('.', ", and I like Porto."));
    said["session"] = last.session.clone().into();
    bench.outcomes(&[said]);
    assert!(bench.memories("ada").iter().any(|it| it.superseded_by.is_some()), "they are linked");
    bench.settle(outputs);
    let left = bench.memories("ada");
    assert!(!left.is_empty() && left.iter().all(|it| it.content.contains("Porto")), "{left:?}");
    assert!(left.iter().all(|it| it.supersedes.is_empty() && it.valid_to.is_none()));
    assert_eq!(records_with(&bench, &last.content), [""; 0]);
}

/// The turn came on another partition than the `forget`, so their offsets have no order.
#[test]
fn law_forgotten_stays_forgotten_where_a_fact_is_extracted_between_the_parts() {
    let mut bench = crowded();
    bench.ingest.options.decode.trust_proposals = true;
    let key = UserKey::new("default", "ada").expect("a name");
    let elsewhere = (key.partition(PARTITIONS) + 1) % PARTITIONS;
    bench.next[elsewhere as usize] = 1_000;
    let mut said = turn("My zanzibarzz is 4711.");
    said["session"] = "last".into();
    let record = bench.record_on(elsewhere, &said);
    let outputs = bench.step(vec![record]).0;
    bench.settle(outputs);
    let mut memories = bench.memories("ada");
    let place = memories.iter().position(|it| it.content.contains("4711")).expect("kept");
    let memory = memories.swap_remove(place);
    assert_eq!(memory.source.partition, elsewhere);
    let outputs = forget_everything(&mut bench);
    let turn = json!({"topic": memory.source.topic, "partition": elsewhere,
        "offset": memory.source.offset});
    let decided = bench.outcomes(&[json!({"type": "extracted", "user": "ada", "id": "e-1",
        "session": "last", "turns": [turn], "by": "model", "reason": "a model",
        "seen": [{"id": memory.id.to_string(), "version": memory.version}],
        "at": "2030-01-01T00:00:00Z",
        "facts": [{"content": "Ada owns a zanzibarzz.", "kind": "fact", "turns": [0]}]})]);
    assert_eq!(decided, ["kept"]);
    bench.settle(outputs);
    assert_eq!((bench.memories("ada").len(), records_with(&bench, "zanzibar")), (0, vec![]));
}
