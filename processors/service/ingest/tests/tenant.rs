//! Tests tenant memories with several users at once: the home alone has them, whatever the order in
//! which events arrive, and a topic tells others.

use super::{Bench, PARTITIONS};
use crate::ingest::TenantsTopic;
use broker::{OutgoingRecord, Record};
use domain::{Decision, Memory, Outcome, SENDER_LIMITS, SIGNATURE, UserKey};
use kernel::Reads;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

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

    /// Returns the tenant's memories from their home. No other shard has any.
    fn of_tenant(&self) -> Vec<Memory> {
        let everyone = UserKey::of_tenant(TENANT).expect("a name");
        let mut held = Vec::new();
        for partition in 0..PARTITIONS {
            let shard = self.ingest.shards.get(partition).expect("all are open");
            let is_home = everyone.partition(PARTITIONS) == partition;
            let keep = &mut |memory| {
                assert!(is_home, "another shard has {memory:?}");
                held.push(memory);
                true
            };
            shard.store.memories(&everyone, keep).expect("a disk");
        }
        held
    }

    /// True if the home has not applied yet what this user sent.
    fn awaits(&self, user: &str) -> bool {
        let key = UserKey::new(TENANT, user).expect("a name");
        let shard = self.ingest.shards.get(key.partition(PARTITIONS)).expect("open");
        !self.ingest.shards.has_applied(&shard, &key, shard.applied())
    }
}

#[test]
fn a_tenant_memory_is_stored_once_and_decided_once() {
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
        assert_eq!(held.len(), 1, "{held:#?}");
        assert_eq!(
            (Some(held[0].id), held[0].author.as_deref()),
            (decided[0].memory, Some(&*user))
        );
        assert!(!bench.awaits(&user));
        let again = bench.applied(&remember);
        assert_eq!((again[0].outcome, again[0].memory), (Outcome::Duplicate, decided[0].memory));
        let metadata = json!({"type": "update", "user": user, "memory": held[0].id.to_string(), "importance": 0.5});
        assert_eq!(bench.applied(&metadata)[0].outcome, Outcome::Updated);
        let unknown = json!({"type": "update", "user": user, "memory": uuid::Uuid::nil().to_string(), "importance": 0.5});
        assert_eq!(bench.applied(&unknown)[0].outcome, Outcome::Refused);
        assert_eq!(bench.of_tenant()[0].importance, 0.5);
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
    assert!(bench.of_tenant()[0].confidence < before[0].confidence);
    let mut record = bench.record(&json!({"type": "forget", "everything": true, "user": zoe}));
    record.headers.push((SENDER_LIMITS.to_owned(), b"one-user".to_vec()));
    let (outputs, _) = bench.step(vec![record]);
    bench.settle(outputs);
    assert!(bench.of_tenant().is_empty());
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
    assert!(!bench.awaits(&user) && bench.of_tenant().len() == 1);
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
    assert!(bench.awaits(&user) && first.is_empty());
    let then = bench.settle(outputs);
    assert_eq!(then.len(), 2);
    assert_eq!(
        (then[0].outcome, then[1].outcome, then[1].memory),
        (Outcome::Kept, Outcome::Duplicate, then[0].memory)
    );
    assert!(!bench.awaits(&user) && bench.of_tenant().len() == 1);
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
        let is_on_its_way = outputs.iter().any(|out| out.topic == "keepsake.events");
        assert_eq!(
            bench.awaits(&user),
            is_on_its_way,
            "a reader of this offset waits until both are applied"
        );
        decided.extend(bench.settle(outputs));
        let forgotten = decided.iter().filter(|one| one.outcome == Outcome::Forgotten);
        let erased: usize = forgotten.map(|one| one.related.len()).sum();
        assert_eq!(erased, 3, "one of the user's own and two of the tenant");
        let left: Vec<String> = bench.of_tenant().into_iter().map(|one| one.content).collect();
        assert_eq!(left, ["The office closes at six."], "the memory of another author stays");
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
    assert_eq!(bench.of_tenant().len(), 2, "the session of another user with the same name");
    bench.applied(&json!({"type": "forget", "session": "s1", "user": user}));
    let left = bench.of_tenant();
    assert!(left.len() == 1 && left[0].content == "Rule of s2.");
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
        let forgotten = decided.iter().filter(|one| one.outcome == Outcome::Forgotten);
        assert_eq!(forgotten.map(|one| one.related.len()).sum::<usize>(), 2, "{decided:?}");
        let mut left: Vec<String> = bench.of_tenant().into_iter().map(|it| it.content).collect();
        left.sort_unstable();
        assert_eq!(left, ["The office closes at six.", "Zanzibar waters the plants."]);
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
        for user in (0..PARTITIONS).map(user_on) {
            prop_assert!(!bench.awaits(&user));
        }
        bench.of_tenant();
    }
}

/// The keys on the tenants topic, and whether each has a value.
fn published(outputs: &[OutgoingRecord]) -> BTreeMap<String, bool> {
    let of_topic = outputs.iter().filter(|out| out.topic == TOPIC);
    let named = of_topic.map(|out| {
        let key = String::from_utf8(out.key.clone().expect("a key")).expect("text");
        (key, out.value.is_some())
    });
    named.collect()
}

const TOPIC: &str = "keepsake.tenants";

fn topic(id: u128) -> Option<TenantsTopic> {
    Some(TenantsTopic { name: TOPIC.to_owned(), id })
}

#[test]
fn a_change_of_a_tenant_memory_is_written_to_no_partition_but_the_home() {
    for partition in 0..PARTITIONS {
        let mut bench = Bench::new();
        bench.ingest.options.tenants = topic(1);
        let home = UserKey::of_tenant(TENANT).expect("a name").partition(PARTITIONS);
        let user = user_on(partition);
        let mut written = Vec::new();
        let record = bench.record(&house("The office closes at six.", &user));
        let mut records = vec![record];
        while !records.is_empty() {
            let (outputs, _) = bench.step(records);
            records = outputs.iter().cloned().filter_map(|out| bench.arrived(out)).collect();
            written.extend(outputs);
        }
        let key = format!("{}/{}", UserKey::of_tenant(TENANT).unwrap(), bench.of_tenant()[0].id);
        let named = |topic: &str| {
            let of_topic = written.iter().filter(|out| out.topic == topic);
            of_topic.filter(|out| out.key.as_deref() == Some(key.as_bytes())).count()
        };
        let sent_on = written.iter().filter(|out| out.topic == "keepsake.events").count();
        assert_eq!((named("keepsake.memories"), named(TOPIC)), (1, 1));
        assert_eq!(sent_on, usize::from(partition != home));
        let told = published(&written);
        let mark = format!("via.{home}.{partition}");
        assert_eq!(told.contains_key(&mark), partition != home, "{told:?}");
        let gone = json!({"type": "forget", "user": user, "everything": true});
        let record = bench.record(&gone);
        let (outputs, _) = bench.step(vec![record]);
        let records = outputs.iter().cloned().filter_map(|out| bench.arrived(out)).collect();
        let later = bench.step(records).0;
        assert_eq!(published(&[outputs, later].concat()).get(&key), Some(&false));
    }
}

#[test]
fn a_topic_that_is_new_gets_all_tenant_memories_of_the_home_once() {
    let mut bench = Bench::new();
    let users: Vec<String> = (0..PARTITIONS).map(user_on).collect();
    let rules: Vec<String> = (0..2_050).map(|n| format!("Rule {n} of the office.")).collect();
    let asked = rules.iter().enumerate().map(|(n, rule)| house(rule, &users[n % users.len()]));
    let records = asked.map(|event| bench.record(&event)).collect();
    let (outputs, _) = bench.step(records);
    bench.settle(outputs);
    bench.applied(&json!({"type": "remember", "user": users[0], "content": "My own."}));
    let home = UserKey::of_tenant(TENANT).expect("a name").partition(PARTITIONS);
    for id in [1, 2] {
        bench.ingest.options.tenants = topic(id);
        for partition in 0..PARTITIONS {
            let shard = bench.ingest.shards.get(partition).expect("open");
            let (mut next, mut told, mut parts) = (None, BTreeMap::new(), 0);
            let applied = shard.applied();
            while bench.ingest.must_publish(&shard).expect("a disk") {
                let (effects, behind) = bench.ingest.publish(&shard, next).expect("a disk");
                let part = published(&effects.outputs);
                assert!(part.len() <= 1_000 + PARTITIONS as usize, "{}", part.len());
                told.extend(part);
                for write in effects.writes {
                    write.carry_out(None).expect("a disk");
                }
                (next, parts) = (behind, parts + 1);
            }
            let expected = match partition == home {
                true => rules.len() + PARTITIONS as usize, // and a mark for each of the others, and the end
                false => 1,
            };
            assert_eq!(told.get(&format!("home.{partition}")), Some(&true));
            let memories = told.keys().filter(|key| key.contains('/')).count();
            assert_eq!(
                (told.len(), memories),
                (expected, if partition == home { rules.len() } else { 0 })
            );
            assert_eq!(parts, if partition == home { 3 } else { 1 });
            assert_eq!(shard.applied(), applied);
        }
    }
    let shard = bench.ingest.shards.get(home).expect("open");
    assert!(!bench.ingest.must_publish(&shard).expect("a disk"));
}
