//! Tests tenant memories with several users at once: all shards end with the same memories,
//! whatever the order in which events arrive.

use super::{Bench, PARTITIONS};
use crate::ingest::lanes::Lanes;
use broker::{OutgoingRecord, Record, header};
use domain::{Decision, Memory, Outcome, SENDER_LIMITS, SIGNATURE, UserKey};
use kernel::Reads;
use proptest::prelude::*;
use serde_json::{Value, json};

const TENANT: &str = "default";

/// Finds the name of a user whose home is this partition.
fn user_on(partition: i32) -> String {
    let mut names = (0..).map(|n| format!("user-{n}"));
    names
        .find(|name| UserKey::new(TENANT, name).expect("a name").partition(PARTITIONS) == partition)
        .expect("names are endless")
}

fn house(content: &str, user: &str) -> Value {
    json!({"type": "remember", "scope": "tenant", "user": user, "content": content})
}

impl Bench {
    fn applied(&mut self, event: &Value) -> Vec<Decision> {
        let record = self.record(event);
        let (outputs, mut decided) = self.step(vec![record]);
        decided.extend(self.settle(outputs));
        decided
    }

    /// Returns each shard's tenant memories, without the offset of their last change there.
    fn of_tenant(&self) -> Vec<Vec<Memory>> {
        let everyone = UserKey::of_tenant(TENANT).expect("a name");
        let of = |partition| {
            let (shard, mut found) =
                (self.ingest.shards.get(partition).expect("all are open"), Vec::new());
            let keep = &mut |memory| {
                found.push(Memory { changed: 0, ..memory });
                true
            };
            shard.store.memories(&everyone, keep).expect("a disk");
            found
        };
        (0..PARTITIONS).map(of).collect()
    }

    fn awaits(&self, user: &str) -> bool {
        let key = UserKey::new(TENANT, user).expect("a name");
        self.ingest
            .shards
            .get(key.partition(PARTITIONS))
            .expect("open")
            .store
            .awaits(&key, i64::MAX)
            .expect("a disk")
    }
}

#[test]
fn a_tenant_memory_is_the_same_on_every_shard_and_decided_once() {
    for partition in 0..PARTITIONS {
        let (mut bench, user) = (Bench::new(), user_on(partition));
        let event = json!({"id": "e-1", "at": "2026-01-01T10:00:00Z", "session": "s"});
        let mut remember = house("The office closes at six.", &user);
        remember
            .as_object_mut()
            .expect("an object")
            .extend(event.as_object().expect("an object").clone());
        let decided = bench.applied(&remember);
        assert_eq!(
            (decided.len(), decided[0].outcome, decided[0].misrouted),
            (1, Outcome::Kept, false)
        );
        let held = bench.of_tenant();
        assert!(held.iter().all(|shard| *shard == held[0]) && held[0].len() == 1, "{held:#?}");
        assert_eq!(
            (Some(held[0][0].id), held[0][0].author.as_deref()),
            (decided[0].memory, Some(&*user))
        );
        assert!(!bench.awaits(&user));
        let again = bench.applied(&remember);
        assert_eq!((again[0].outcome, again[0].memory), (Outcome::Duplicate, decided[0].memory));
        let metadata = json!({"type": "update", "user": user, "memory": held[0][0].id.to_string(), "importance": 0.5});
        assert_eq!(bench.applied(&metadata)[0].outcome, Outcome::Updated);
        let unknown = json!({"type": "update", "user": user, "memory": uuid::Uuid::nil().to_string(), "importance": 0.5});
        assert_eq!(bench.applied(&unknown)[0].outcome, Outcome::Refused);
        let held = bench.of_tenant();
        assert!(held.iter().all(|shard| *shard == held[0]) && held[0][0].importance == 0.5);
    }
}

#[test]
fn an_update_of_a_memory_forgotten_in_between_is_refused() {
    let everyone = UserKey::of_tenant(TENANT).expect("a name");
    let mut bench = Bench::new();
    let (orders, away): (Vec<i32>, Vec<i32>) =
        (0..PARTITIONS).partition(|p| everyone.partition(PARTITIONS) == *p);
    let id = bench.applied(&house("The office closes at six.", &user_on(0)))[0]
        .memory
        .expect("a memory")
        .to_string();
    let update = json!({"type": "update", "memory": id, "content": "It closes at seven.", "user": user_on(away[0])});
    let record = bench.record(&update);
    let (on_its_way, decided) = bench.step(vec![record]);
    assert!(decided.is_empty());
    bench.applied(&json!({"type": "forget", "memory": id, "user": user_on(orders[0])}));
    let told = bench.settle(on_its_way);
    assert_eq!(
        (told.len(), told[0].outcome, &*told[0].key.to_string()),
        (1, Outcome::Refused, &*format!("{TENANT}/{}", user_on(away[0])))
    );
    assert!(!bench.awaits(&user_on(away[0])));
}

/// The ids of tenant memories can be computed before the memories are made, so the gateway cannot
/// see whose they are.
#[test]
fn law_nobody_suffers_from_a_sender_for_one_user_who_names_memories_of_the_tenant() {
    let mut bench = Bench::new();
    let (zoe, eve) = (user_on(0), user_on(1));
    let id = bench.applied(&house("The office closes at six.", &zoe))[0].memory.expect("kept");
    let before = bench.of_tenant();
    let wrong =
        json!({"type": "feedback", "memory": id.to_string(), "signal": "wrong", "user": eve});
    let forget = json!({"type": "forget", "memory": id.to_string(), "user": eve});
    let update = json!({"type": "update", "memory": id.to_string(), "content": "x", "user": eve});
    for event in [&wrong, &forget, &update, &house("The office burns.", &eve)] {
        let mut record = bench.record(event);
        record.headers.push((SENDER_LIMITS.to_owned(), b"one-user".to_vec()));
        let (outputs, _) = bench.step(vec![record]);
        bench.settle(outputs);
        assert_eq!(bench.of_tenant(), before, "{event}");
    }
    // A sender that speaks for the tenant may, and every user may forget their own memories.
    bench.applied(&wrong);
    assert!(bench.of_tenant()[0][0].confidence < before[0][0].confidence);
    let mut record = bench.record(&json!({"type": "forget", "everything": true, "user": zoe}));
    record.headers.push((SENDER_LIMITS.to_owned(), b"one-user".to_vec()));
    let (outputs, _) = bench.step(vec![record]);
    bench.settle(outputs);
    assert!(bench.of_tenant().iter().all(Vec::is_empty));
}

/// Processes with different signing keys do not accept each other's forwarded records.
#[test]
fn an_event_without_a_valid_signature_is_a_dead_letter_after_three_hops() {
    let mut bench = Bench::new();
    let away = (0..PARTITIONS)
        .find(|p| UserKey::of_tenant(TENANT).expect("a name").partition(PARTITIONS) != *p);
    let user = user_on(away.expect("two others"));
    let mut event = house("The office closes at six.", &user);
    event["id"] = "e-1".into();
    let mut records = vec![bench.record(&event)];
    let (mut dead, mut hops) = (0, 0);
    while let Some(record) = records.pop() {
        let (outputs, decided) = bench.step(vec![record]);
        assert!(decided.is_empty(), "no duplicate is reported: {decided:?}");
        dead += outputs.iter().filter(|out| out.topic == "keepsake.dead-letters").count();
        for mut out in outputs {
            out.headers
                .iter_mut()
                .filter(|(name, _)| name == SIGNATURE)
                .for_each(|(_, mark)| mark.reverse());
            hops += usize::from(out.topic == "keepsake.events");
            records.extend(bench.arrived(out));
        }
        assert!(hops < 10, "the record is forwarded without end");
    }
    assert_eq!((dead, hops), (1, 3));
    // Sent again by hand, once the keys are equal.
    let redriven = bench.record(&event);
    let again = Record { headers: vec![("keepsake-redriven".into(), b"1".to_vec())], ..redriven };
    let (outputs, decided) = bench.step(vec![again]);
    assert!(decided.is_empty());
    let told = bench.settle(outputs);
    assert_eq!((told.len(), told[0].outcome), (1, Outcome::Kept));
    assert!(!bench.awaits(&user) && bench.of_tenant().iter().all(|shard| shard.len() == 1));
}

#[test]
fn an_event_sent_twice_before_it_is_applied_is_a_duplicate_with_its_memory() {
    let mut bench = Bench::new();
    let away = (0..PARTITIONS)
        .find(|p| UserKey::of_tenant(TENANT).expect("a name").partition(PARTITIONS) != *p);
    let user = user_on(away.expect("two others"));
    let mut event = house("The office closes at six.", &user);
    event["id"] = "e-1".into();
    let records = vec![bench.record(&event), bench.record(&event)];
    let (outputs, first) = bench.step(records);
    assert!(bench.awaits(&user));
    let then = bench.settle(outputs);
    assert_eq!((first.len(), then.len()), (1, 1));
    assert_eq!(
        (first[0].outcome, then[0].outcome, first[0].memory),
        (Outcome::Duplicate, Outcome::Kept, then[0].memory)
    );
    assert!(!bench.awaits(&user) && bench.of_tenant().iter().all(|shard| shard.len() == 1));
}

#[test]
fn law_nobody_suffers_from_what_others_of_the_tenant_do_when_one_forgets_everything() {
    for partition in 0..PARTITIONS {
        let (mut bench, user, other) =
            (Bench::new(), user_on(partition), user_on((partition + 1) % PARTITIONS));
        for event in [
            house("Ada keeps the spare key.", &user),
            json!({"type": "remember", "user": user, "content": "My locker is number nine."}),
            house("The office closes at six.", &other),
        ] {
            bench.applied(&event);
        }
        // One more memory is being forwarded while everything is forgotten.
        let forget = json!({"type": "forget", "everything": true, "user": user});
        let records =
            vec![bench.record(&house("Ada has the other key too.", &user)), bench.record(&forget)];
        let (outputs, mut decided) = bench.step(records);
        let is_on_its_way =
            outputs.iter().any(|out| out.headers.iter().any(|header| header.1 == b"order"));
        assert_eq!(
            bench.awaits(&user),
            is_on_its_way,
            "a reader of this offset waits until both are applied"
        );
        decided.extend(bench.settle(outputs));
        let forgotten =
            decided.iter().find(|one| one.outcome == Outcome::Forgotten).expect("a decision");
        assert!(forgotten.related.len() >= 2, "{forgotten:?}");
        for shard in bench.of_tenant() {
            let left: Vec<&str> = shard.iter().map(|memory| memory.content.as_str()).collect();
            assert_eq!(left, ["The office closes at six."], "the memory of another author stays");
        }
        assert!(bench.memories(&user).is_empty() && !bench.awaits(&user));
    }
}

#[test]
fn forgetting_a_session_removes_its_tenant_memories() {
    let (mut bench, user) = (Bench::new(), user_on(0));
    for session in ["s1", "s2"] {
        let mut event = house(&format!("Rule of {session}."), &user);
        event["session"] = session.into();
        bench.applied(&event);
    }
    bench.applied(&json!({"type": "forget", "session": "s1", "user": user_on(1)}));
    assert_eq!(bench.of_tenant()[0].len(), 2, "the session of another user with the same name");
    bench.applied(&json!({"type": "forget", "session": "s1", "user": user}));
    assert!(
        bench.of_tenant().iter().all(|shard| shard.len() == 1 && shard[0].content == "Rule of s2.")
    );
}

#[test]
fn forgetting_by_a_query_removes_the_users_own_tenant_memories_and_nobody_elses() {
    for partition in 0..PARTITIONS {
        let (mut bench, user) = (Bench::new(), user_on(partition));
        let other = user_on((partition + 1) % PARTITIONS);
        for event in [
            house("The spare key is with Zanzibar.", &user),
            house("Zanzibar waters the plants.", &other),
            house("The office closes at six.", &user),
        ] {
            bench.applied(&event);
        }
        // One more is on its way when the query comes.
        let late = bench.record(&house("Zanzibar has the code.", &user));
        let forget = bench.record(&json!({"type": "forget", "user": user, "query": "Zanzibar"}));
        let (outputs, mut decided) = bench.step(vec![late, forget]);
        decided.extend(bench.settle(outputs));
        let forgotten = decided.iter().find(|one| one.outcome == Outcome::Forgotten);
        let related = forgotten.expect("a decision").related.len();
        assert!(related >= 1, "{decided:?}");
        for shard in bench.of_tenant() {
            let mut left: Vec<&str> = shard.iter().map(|memory| &*memory.content).collect();
            left.sort_unstable();
            assert_eq!(left, ["The office closes at six.", "Zanzibar waters the plants."]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 20, ..ProptestConfig::default() })]

    /// Three users on three partitions change one memory at once. Forwarded records are delivered
    /// partition by partition in any order.
    #[test]
    fn law_nobody_suffers_from_the_order_in_which_a_tenants_events_arrive(
        kinds in prop::collection::vec(0..5u8, 2..9),
        turns in prop::collection::vec(0..PARTITIONS, 1..60),
    ) {
        let mut bench = Bench::new();
        let id = bench.applied(&house("The guest wifi is called swordfish.", &user_on(0)))[0].memory.expect("a memory").to_string();
        let mut waiting: Vec<Vec<Record>> = vec![Vec::new(); PARTITIONS as usize];
        for (n, kind) in kinds.iter().enumerate() {
            let user = user_on(n as i32 % PARTITIONS);
            let mut event = match kind {
                0 | 1 => json!({"type": "update", "memory": id, "content": format!("The guest wifi is called mackerel {n}.")}),
                2 => json!({"type": "update", "memory": id, "metadata": {"by": user}}),
                3 => json!({"type": "feedback", "memory": id, "signal": (["confirmed", "wrong"][n % 2])}),
                _ if n > 5 => json!({"type": "forget", "memory": id}),
                _ => house(&format!("Rule {n}."), &user),
            };
            event["user"] = user.into();
            let record = bench.record(&event);
            waiting[record.partition as usize].push(record);
        }
        let mut turns = turns.into_iter().cycle();
        loop {
            let ready: Vec<usize> = (0..waiting.len()).filter(|partition| !waiting[*partition].is_empty()).collect();
            let turn = turns.next().expect("the iterator is endless") as usize;
            let Some(partition) = ready.get(turn % ready.len().max(1)).copied() else { break };
            let record = waiting[partition].remove(0);
            let forwarded: Vec<OutgoingRecord> = bench.step(vec![record]).0;
            for record in forwarded.into_iter().filter_map(|out| bench.arrived(out)) {
                waiting[record.partition as usize].push(record);
            }
        }
        let held = bench.of_tenant();
        prop_assert!(held.iter().all(|shard| *shard == held[0]), "{:#?}", held);
    }
}

/// A transaction has three seconds, and each of these events is written to every partition.
#[test]
fn many_large_tenant_events_are_cut_into_several_transactions() {
    let mut bench = Bench::new();
    bench.ingest.options.copied_bytes_max = 400_000;
    let everyone = UserKey::of_tenant(TENANT).expect("a name").partition(PARTITIONS);
    let user = user_on(everyone);
    let long = "the gate opens at nine. ".repeat(2700);
    let events: Vec<Value> = (0..10).map(|n| house(&format!("{n}: {long}"), &user)).collect();
    let mut records: Vec<Record> = events.iter().map(|event| bench.record(event)).collect();
    let mut transactions = Vec::new();
    while !records.is_empty() {
        let effects = bench.ingest.step(records.clone()).expect("no fault");
        let copies = effects.outputs.iter().filter(|out| out.topic == "keepsake.events");
        let bytes: usize = copies.map(OutgoingRecord::bytes).sum();
        transactions.push((effects.records, bytes));
        records.drain(..effects.records);
        for write in effects.writes {
            write.carry_out(None).expect("a disk");
        }
    }
    assert_eq!(transactions.iter().map(|(records, _)| records).sum::<usize>(), events.len());
    assert!(transactions.len() >= 3, "{transactions:?}");
    assert!(transactions.iter().all(|(_, bytes)| *bytes < 600_000), "{transactions:?}");
}

#[test]
fn lanes_share_the_bytes_of_copies_in_one_transaction() {
    let mut bench = Bench::new();
    bench.ingest.options.copied_bytes_max = 250_000;
    bench.ingest.lanes = Lanes::in_turn(PARTITIONS as usize);
    let long = "the gate opens at nine. ".repeat(2700);
    let mut records = Vec::new();
    for home in 0..PARTITIONS {
        let named = |n: &i32| UserKey::of_tenant(&format!("house{n}")).expect("a name");
        let tenant = (0..).find(|n| named(n).partition(PARTITIONS) == home).expect("some");
        let tenant = format!("house{tenant}");
        let of = |n: &i32| UserKey::new(&tenant, &format!("u{n}")).expect("a name");
        let user = (0..).find(|n| of(n).partition(PARTITIONS) == home).expect("some");
        for n in 0..3 {
            let mut event = house(&format!("{n}: {long}"), &format!("u{user}"));
            event["tenant"] = tenant.as_str().into();
            records.push(bench.record_on(home, &event));
        }
    }
    let mut transactions = Vec::new();
    while !records.is_empty() {
        let effects = bench.ingest.step(records.clone()).expect("no fault");
        let copies = effects.outputs.iter().filter(|out| out.topic == "keepsake.events");
        transactions.push((effects.records, copies.map(OutgoingRecord::bytes).sum::<usize>()));
        let mut applied = [-1; PARTITIONS as usize];
        for write in effects.writes {
            applied[write.shard.partition as usize] = write.applied;
            write.carry_out(None).expect("a disk");
        }
        records.retain(|record| record.offset > applied[record.partition as usize]);
    }
    assert_eq!(transactions.iter().map(|(records, _)| records).sum::<usize>(), 9);
    assert!(
        transactions.iter().all(|it| it.0 > 0 && it.1 > 0 && it.1 < 600_000),
        "{transactions:?}"
    );
}

/// Unknown fields, the key and the headers are copied with the rest of a record.
#[test]
fn a_padded_event_about_a_tenants_memory_is_refused_and_one_about_an_own_memory_is_not() {
    let mut bench = Bench::new();
    bench.ingest.options.copied_bytes_max = 90_000;
    let user = user_on(0);
    fn of(decided: &[Decision]) -> String {
        decided[0].memory.expect("a memory").to_string()
    }
    let shared = of(&bench.applied(&house("The office closes at six.", &user)));
    let own = json!({"type": "remember", "user": user, "content": "I live in Lisbon."});
    let own = of(&bench.applied(&own));
    let events = |memory: &str| {
        [
            json!({"type": "update", "user": user, "memory": memory, "importance": 0.5}),
            json!({"type": "feedback", "user": user, "memories": [memory], "signal": "used"}),
        ]
    };
    let forgets = [
        json!({"type": "forget", "user": user, "memory": shared}),
        json!({"type": "forget", "user": user, "session": "s"}),
        json!({"type": "forget", "user": user, "everything": true}),
    ];
    let mut outcome = |event: &Value, pad: &dyn Fn(&mut Record)| {
        let mut record = bench.record(event);
        pad(&mut record);
        let (outputs, decisions) = bench.step(vec![record]);
        let mut letters = outputs.iter().filter(|out| out.topic == "keepsake.dead-letters");
        let letter = letters.next().map(|letter| {
            header(&letter.headers, "__connect.errors.exception.class.name")
                .map(|code| String::from_utf8_lossy(code).into_owned())
        });
        let copies = outputs.iter().filter(|out| out.topic == "keepsake.events");
        let copied: usize = copies.map(OutgoingRecord::bytes).sum();
        assert!(copied <= 90_000, "{event}: {copied}");
        (letter.flatten(), !decisions.is_empty() || copied > 0)
    };
    fn value(record: &mut Record) {
        let value = record.value.as_mut().expect("it has one");
        let end = value.iter().rposition(|byte| *byte == b'}').expect("an object");
        value.splice(end..end, format!(",\"x\":\"{}\"", "x".repeat(60_000)).into_bytes());
    }
    fn headers(record: &mut Record) {
        record.headers.push(("x".into(), vec![b'x'; 20_000]));
        record.key = Some(vec![b'k'; 12_000]);
    }
    let refused = (Some("too-large".to_owned()), false);
    let long_memory = house(&"x".repeat(60_000), &user);
    assert_eq!(outcome(&long_memory, &|_| ()), refused);
    for event in events(&shared).iter().chain(&forgets) {
        assert_eq!(outcome(event, &value), refused, "{event}");
        assert_eq!(outcome(event, &headers), refused, "{event}");
    }
    for event in events(&own) {
        assert_eq!(outcome(&event, &value), (None, true), "{event}");
    }
    for event in events(&shared).iter().chain(&forgets) {
        assert_eq!(outcome(event, &|_| ()), (None, true), "{event}");
    }
}
