//! Tests the quotas of events and of memories: who is refused, which events still pass, and that no
//! answer depends on where a batch ends or on how often a batch is read.

use super::{Bench, NOON, PARTITIONS, remember, turn};
use broker::{OutgoingRecord, Record};
use domain::REDRIVEN;
use domain::fault::StopName;
use domain::{Decision, Outcome, UserKey};
use kernel::Reads;
use proptest::prelude::*;
use serde_json::{Value, json};

fn rate(limit: &str) -> Bench {
    Bench::of(&[
        ("quota.events_per_second", limit),
        ("quota.tenants.calm.events_per_second", "0"),
        ("ingest.dead_letters_in_a_row_max", "3"),
    ])
}

impl Bench {
    fn of_tenant_at(&mut self, tenant: &str, at_ms: i64, mut event: Value) -> Record {
        event["tenant"] = json!(tenant);
        let user = event["user"].as_str().expect("a user").to_owned();
        let key = UserKey::new(tenant, &user).expect("names");
        let record = self.record_on(key.partition(PARTITIONS), &event);
        let headers = vec![
            ("kafka_replyTopic".to_owned(), b"keepsake.replies".to_vec()),
            ("kafka_correlationId".to_owned(), user.into_bytes()),
        ];
        Record { timestamp_ms: NOON + at_ms, headers, ..record }
    }

    fn counter(&self, line: &str) -> Option<u64> {
        let page = self.ingest.metrics.page();
        let found = page.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        found.map(|count| count.parse().expect("a number"))
    }

    fn over_quota(&self, reason: &str) -> Option<u64> {
        self.counter(&format!("keepsake_over_quota_total{{reason=\"{reason}\"}}"))
    }

    fn live(&self, partition: i32) -> u64 {
        let shard = self.ingest.shards.get(partition).expect("all are open");
        shard.store.stored_live_memories("default").expect("a disk")
    }
}

fn letters(outputs: &[OutgoingRecord]) -> Vec<&OutgoingRecord> {
    outputs.iter().filter(|output| output.topic == "keepsake.dead-letters").collect()
}

fn header<'r>(record: &'r OutgoingRecord, name: &str) -> &'r str {
    let found = record.headers.iter().find(|(known, _)| known == name);
    std::str::from_utf8(&found.expect("a dead letter has this header").1).expect("text")
}

#[test]
fn events_over_the_quota_are_put_aside_and_stop_nobody() {
    let mut bench = rate("5");
    let mut records: Vec<Record> = (0..20)
        .map(|n| bench.of_tenant_at("flood", n, remember(&format!("The parcel is {n}."))))
        .collect();
    records.push(bench.of_tenant_at(
        "flood",
        30,
        json!({"type": "forget", "user": "ada", "query": "moon"}),
    ));
    records
        .extend((0..20).map(|n| {
            bench.of_tenant_at("calm", n, remember(&format!("The house number is {n}.")))
        }));
    records.push(bench.of_tenant_at("flood", 1000, remember("The next second.")));
    let effects = bench.ingest.step(records.clone()).expect("nobody stops");
    let letters = letters(&effects.outputs);
    assert_eq!(letters.len(), 15);
    for letter in &letters {
        assert_eq!(header(letter, "__connect.errors.exception.class.name"), "overloaded");
        assert!(
            header(letter, "__connect.errors.exception.message").contains("send it again in 9")
        );
    }
    let replies: Vec<Value> = effects
        .replies
        .iter()
        .map(|reply| serde_json::from_slice(reply.value.as_ref().expect("a body")).expect("JSON"))
        .collect();
    let of = |status: &str| replies.iter().filter(|reply| reply["status"] == status).count();
    assert_eq!((of("overloaded"), of("ok")), (15, 27), "a forget and the other tenant go on");
    assert_eq!(bench.over_quota("events-per-second"), None, "counted behind the commit");
    for write in effects.writes {
        write.carry_out(None).expect("a disk");
    }
    assert_eq!(bench.over_quota("events-per-second"), Some(15));
    let encoded = bench.counter("keepsake_encoded_texts_total").expect("texts were encoded");
    assert_eq!(encoded, 27, "what is put aside is not encoded");
}

#[test]
fn a_batch_that_is_read_again_gets_the_same_answers() {
    let mut bench = rate("5");
    let records: Vec<Record> = (0..12)
        .map(|n| bench.of_tenant_at("flood", n, remember(&format!("The parcel is {n}."))))
        .collect();
    let put_aside = |bench: &mut Bench| {
        let effects = bench.ingest.step(records.clone()).expect("nobody stops");
        let letters = letters(&effects.outputs);
        let offsets = letters.iter().map(|letter| header(letter, "__connect.errors.offset"));
        offsets.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = put_aside(&mut bench);
    assert_eq!(first.len(), 7);
    assert_eq!(put_aside(&mut bench), first, "nothing of the first attempt was applied");
    bench.step(records);
    let later = bench.of_tenant_at("flood", 999, remember("The last of this second."));
    assert_eq!(letters(&bench.step(vec![later]).0).len(), 1, "and no record counted twice");
}

#[test]
fn a_forwarded_event_counts_once_and_copies_of_a_tenants_memory_do_not() {
    let mut bench = rate("3");
    fn event(text: &str) -> Value {
        json!({"type": "remember", "user": "ada", "content": text})
    }
    let home = UserKey::new("default", "ada").expect("a name").partition(PARTITIONS);
    let lost = bench.record_on((home + 1) % PARTITIONS, &event("The parcel is lost."));
    let mut house = event("The office closes at six.");
    house["scope"] = json!("tenant");
    let house = bench.record(&house);
    let outputs = bench.step(vec![lost, house]).0;
    assert_eq!(bench.settle(outputs).len(), 2);
    let more: Vec<Record> = (0..2).map(|n| bench.record(&event(&format!("Box {n}.")))).collect();
    let (outputs, decided) = bench.step(more);
    assert_eq!((decided.len(), letters(&outputs).len()), (1, 1), "one was left of three");
}

#[test]
fn a_redriven_event_is_applied_once_there_is_room() {
    let mut bench = rate("2");
    let records: Vec<Record> = (0..3)
        .map(|n| bench.of_tenant_at("flood", n, remember(&format!("The parcel is {n}."))))
        .collect();
    let (outputs, decided) = bench.step(records);
    assert_eq!(decided.len(), 2);
    let mut again = bench.of_tenant_at("flood", 2, remember("The parcel is 2."));
    assert_eq!(again.value, letters(&outputs)[0].value);
    again.headers.push((REDRIVEN.to_owned(), b"1".to_vec()));
    assert_eq!(bench.step(vec![again]).1[0].outcome, Outcome::Kept);
}

#[test]
fn other_dead_letters_still_stop_a_service_with_quotas() {
    let mut bench = rate("1");
    let mut records: Vec<Record> = (0..9)
        .map(|n| bench.of_tenant_at("flood", n, remember(&format!("The parcel is {n}."))))
        .collect();
    let mut unreadable = records[0].clone();
    unreadable.value = Some(b"{".to_vec());
    for _ in 0..4 {
        let next = records.last().expect("there are some").offset + 1;
        records.push(Record { offset: next, ..unreadable.clone() });
    }
    let Err(domain::fault::Fault::Stop(stop)) = bench.ingest.step(records) else {
        panic!("four unreadable records in a row stop the service")
    };
    assert_eq!(stop.name, StopName::DeadLetterFlood);
}

fn few_memories() -> Bench {
    Bench::of(&[("quota.tenants.default.memories_per_partition", "3")])
}

fn outcome_and_reason(decisions: &[Decision]) -> Vec<(&str, &str)> {
    decisions.iter().map(|one| (one.outcome.as_str(), one.reason.as_str())).collect()
}

#[test]
fn a_tenant_with_all_its_memories_goes_on_except_for_new_ones() {
    let mut bench = few_memories();
    let first = ["I live in Berlin.", "My sister Anna plays the harp.", "The gate code is 4711."];
    let said = [remember(first[0]), turn(first[1]), remember(first[2])];
    assert_eq!(bench.outcomes(&said), ["kept"; 3]);
    let harp = bench.memories("ada").into_iter().find(|memory| memory.content.contains("harp"));
    let harp = harp.expect("it was kept").id.to_string();
    let mut asked = remember("My brother Tom rents out boats in Norway.");
    asked["id"] = json!("boats");
    let record = bench.record(&asked);
    let (_, decisions) = bench.step(vec![record]);
    let [(outcome, reason)] = outcome_and_reason(&decisions)[..] else { panic!("one decision") };
    assert_eq!(outcome, "refused");
    for word in ["has 3 memories", "quota.memories_per_partition allows 3", "forget some"] {
        assert!(reason.contains(word), "{reason}");
    }
    let said = turn("My colleague Kim collects old maps of the Atlantic coast.");
    assert_eq!(bench.outcomes(&[said]), ["refused"]);
    let update = json!({"type": "update", "user": "ada", "memory": harp, "content": "Anna plays the cello."});
    let go_on = [remember("I moved to Lisbon."), turn(first[1]), update];
    assert_eq!(bench.outcomes(&go_on), ["superseded", "merged", "updated"]);
    assert_eq!(bench.over_quota("memories-per-partition"), Some(2));
    let forget = json!({"type": "forget", "user": "ada", "memory": harp});
    assert_eq!(bench.outcomes(&[forget, asked.clone()]), ["forgotten", "kept"], "under its id");
    assert_eq!(bench.outcomes(&[asked]), ["duplicate"]);
    let everything = json!({"type": "forget", "user": "ada", "everything": true});
    assert_eq!(bench.outcomes(&[everything, turn(first[1])]), ["forgotten", "kept"]);
}

#[test]
fn a_tenant_memory_over_the_quota_of_its_home_is_refused() {
    let mut bench = Bench::of(&[("quota.memories_per_partition", "1")]);
    let house =
        |text: &str| json!({"type": "remember", "user": "ada", "scope": "tenant", "content": text});
    let mut outcomes = Vec::new();
    for text in ["The office closes at six.", "The harbour has nine berths."] {
        let record = bench.record(&house(text));
        let (outputs, mut decided) = bench.step(vec![record]);
        decided.extend(bench.settle(outputs));
        outcomes.extend(decided.iter().map(|one| one.outcome.as_str()));
    }
    assert_eq!(outcomes, ["kept", "refused"]);
    let live: u64 = (0..PARTITIONS).map(|partition| bench.live(partition)).sum();
    assert_eq!(live, 1, "stored once");
}

/// One of some events that make, merge, replace, change and remove memories.
fn event(bench: &Bench, kind: u8, n: u8) -> Value {
    let ids: Vec<String> =
        bench.memories("ada").iter().map(|memory| memory.id.to_string()).collect();
    let known = ids.get(usize::from(n) % ids.len().max(1)).cloned();
    let known = known.unwrap_or_else(|| "0198c0de-0000-7000-8000-000000000000".to_owned());
    let city = ["Berlin", "Lisbon", "Porto", "Bergen"][usize::from(n) % 4];
    match kind {
        0..=2 => remember(&format!("Parcel number {n} lies in the {city} office.")),
        3 => remember(&format!("I live in {city}.")),
        4 => turn(&format!("I moved to {city} last month with my {n} cats.")),
        5 => {
            json!({"type": "update", "user": "ada", "memory": known, "content": format!("Box {n}.")})
        }
        6 => json!({"type": "forget", "user": "ada", "memory": known}),
        7 => json!({"type": "forget", "user": "ada", "query": city}),
        _ => json!({"type": "forget", "user": "ada", "everything": true}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The count is exact after every batch, and a batch of several events decides as single ones.
    #[test]
    fn the_count_of_memories_is_exact_and_no_batch_end_changes_a_refusal(
        events in proptest::collection::vec((0u8..9, 0u8..20), 1..40),
        batch in 1usize..6,
    ) {
        let options = [("quota.memories_per_partition", "6")];
        let [mut together, mut apart] = [Bench::of(&options), Bench::of(&options)];
        let home = UserKey::new("default", "ada").expect("a name").partition(PARTITIONS);
        for events in events.chunks(batch) {
            let made: Vec<Value> =
                events.iter().map(|(kind, n)| event(&together, *kind, *n)).collect();
            fn live(bench: &Bench) -> u64 {
                let memories = bench.memories("ada");
                memories.iter().filter(|memory| memory.valid_to.is_none()).count() as u64
            }
            let mut expected = Vec::new();
            for one in &made {
                let before = live(&apart);
                let outcomes = apart.outcomes(std::slice::from_ref(one));
                // An update or a forget may open an earlier memory again, over the limit.
                prop_assert!(before < 6 || !outcomes.contains(&"kept"), "{before}: {outcomes:?}");
                prop_assert!(before >= 6 || !outcomes.contains(&"refused") || one["type"] == "update");
                expected.extend(outcomes);
            }
            prop_assert_eq!(together.outcomes(&made), expected);
            prop_assert_eq!(together.live(home), live(&together));
            prop_assert_eq!(apart.live(home), live(&apart));
        }
    }
}
