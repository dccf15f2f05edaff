//! `keepsake verify`: confirms that stopped shards equal the fold of their changelog, and names
//! every record that differs.

use crate::support::program::{Printed, command, parsed, run, run_bare};
use crate::support::service::Place;
use crate::support::store::NoIndex;
use crate::support::{Broker, Running, on_both_brokers};
use broker::{Broker as _, OutgoingRecord};
use domain::{Memory, UserKey};
use kafka::Connection;
use kernel::{Reads, Staged};
use serde_json::{Value, json};
use service::open;
use std::time::{Duration, Instant};
use storage::changelog::{Destination, last_meta};
use storage::store::{Changes, Identity, Store, StoreOptions};

fn keepsake(place: &Place, arguments: &[&str]) -> Printed {
    run(command(place).args(arguments))
}

/// Exit code and report of `keepsake verify`.
fn verified(place: &Place) -> (Option<i32>, Value) {
    let printed = keepsake(place, &["verify", "--json"]);
    (printed.0, parsed(&printed))
}

/// The report about one shard.
fn shard(verdict: &Value, partition: i32) -> &Value {
    let shards = verdict["shards"].as_array().expect("the report has a list of shards");
    shards
        .iter()
        .find(|shard| shard["partition"] == partition)
        .unwrap_or_else(|| panic!("no shard {partition}: {verdict}"))
}

/// Publishes at least one event of each type that changes a shard.
fn publish_events(running: &Running, tenant: &str) {
    let client = running.client();
    for name in ["ada", "bob", "cleo", "dan", "eve"] {
        let user = client.user(tenant, name);
        for turn in [
            "I publish_events in Berlin.",
            "I moved to Lisbon last month.",
            "Hi there!",
            "We use Postgres for the billing service.",
        ] {
            user.event(json!({"type": "turn", "content": turn, "session": "monday/a"}));
        }
        let kept = user.remember("The blue key opens the shed.");
        let gone = user.remember("The red key opens the hut.");
        user.event(json!({"type": "update", "memory": kept, "id": "u1",
            "content": "The green key opens the shed."}));
        user.event(json!({"type": "feedback", "memory": kept, "signal": "confirmed"}));
        user.event(json!({"type": "forget", "memory": gone}));
    }
    client.user(tenant, "ada").event(
        json!({"type": "remember", "content": "The office closes at six.", "scope": "tenant"}),
    );
    client.user(tenant, "eve").event(json!({"type": "forget", "everything": true}));
}

/// Opens the store of a shard whose process has ended.
fn opened(place: &Place, partition: i32) -> Store {
    let config = place.config();
    let servers = place.servers.clone();
    let connection = Connection { servers, options: Vec::new() };
    let model = open::encoder(&config).expect("the hash encoder needs no files");
    let identity = Identity {
        cluster: connection.cluster_id(Duration::from_secs(10)).expect("Kafka runs"),
        topic: config.topics.events(),
        partition,
        partitions: 3,
        model: model.name().to_owned(),
        dimensions: model.dimensions() as u32,
    };
    let dir = place.dir.join(format!("{}-{partition}/store", config.topics.events()));
    Store::open(&dir, &StoreOptions::default(), &identity, 0)
        .expect("the shard was closed cleanly")
        .store
}

/// Changes records of a store directly, without an event.
fn tamper(place: &Place, key: &UserKey, change: impl Fn(&mut Staged<'_>, Memory)) -> (i32, Memory) {
    let partition = key.partition(3);
    let store = opened(place, partition);
    let mut memories = Vec::new();
    let every = &mut |memory: Memory| {
        memories.push(memory);
        true
    };
    store.memories(key, every).expect("the store of a stopped shard is writable");
    let memory = memories
        .into_iter()
        .find(|memory| memory.content.contains("green key"))
        .expect("`publish_events` keeps this memory");
    let mut staged = Staged::over(&store, &NoIndex);
    change(&mut staged, memory.clone());
    let batch = store.encode(staged.into_changes()).expect("a disk");
    store.commit(batch, store.checkpoint()).expect("the store of a stopped shard is writable");
    store.flush().expect("the store of a stopped shard is writable");
    (partition, memory)
}

/// Makes the store look as after a restore that was killed: records are written, and the checkpoint
/// is not moved yet. `verify` reports the shard as unfinished and compares everything else.
fn check_unfinished_restore(place: Place, further: &Place) -> Place {
    let partition =
        UserKey::new("zoo", "ada").expect("tenant and user are valid names").partition(3);
    let put_ahead = |changes: &Changes| {
        let store = opened(&place, partition);
        store.write_ahead(changes).expect("the store of a stopped shard is writable");
        store.flush().expect("the store of a stopped shard is writable");
    };
    let before = opened(&place, partition)
        .everything()
        .expect("the store of a stopped shard is writable")
        .records;
    let after = opened(further, partition)
        .everything()
        .expect("the store of a stopped shard is writable")
        .records;
    let mut some = Changes::default();
    let new = after.into_iter().filter(|(key, _)| !before.contains_key(key));
    new.step_by(2).for_each(|(key, value)| {
        some.put(key, value.expect("a snapshot of a store has values only"))
    });
    assert!(!some.records.is_empty());
    put_ahead(&some);
    let (code, verdict) = verified(&place);
    let found = shard(&verdict, partition);
    assert_eq!(
        (code, &found["equal"], &found["unfinished"]),
        (Some(0), &json!(true), &json!(true)),
        "{verdict:#}"
    );
    assert_ne!(found["store_digest"], found["topic_digest"]);
    assert_eq!(found["index"], "behind", "the index still has removed records: {verdict:#}");
    let (_, stdout, stderr) = keepsake(&place, &["verify"]);
    assert!(
        stdout.contains("1 of 3 shards are unfinished")
            && stdout.contains("goes on at the next start"),
        "{stdout}{stderr}"
    );

    let (untouched, value) = before.into_iter().next().expect("the other tenant has records");
    let mut without = Changes::default();
    without.remove(untouched.clone());
    let mut again = Changes::default();
    again.put(untouched, value.expect("a snapshot of a store has values only"));
    put_ahead(&without);
    let (code, verdict) = verified(&place);
    assert_eq!(
        (code, &shard(&verdict, partition)["differences_total"]),
        (Some(1), &json!(1)),
        "{verdict:#}"
    );
    put_ahead(&again);

    let place = Running::at(place).stop();
    let (code, verdict) = verified(&place);
    let found = shard(&verdict, partition);
    assert_eq!(
        (code, &found["unfinished"], &found["store_digest"]),
        (Some(0), &json!(false), &found["topic_digest"]),
        "{verdict:#}"
    );
    place
}

on_both_brokers! {
    verify_confirms_equal_shards_and_names_records_that_differ
    verify_online_compares_the_changelog_of_a_running_service
}

fn verify_online_compares_the_changelog_of_a_running_service(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    publish_events(&running, "acme");
    let online = || keepsake(&running.place, &["verify", "--online", "--json"]);
    let printed = online();
    let verdict = parsed(&printed);
    assert_eq!((printed.0, &verdict["equal"]), (Some(0), &json!(true)), "{verdict:#}");
    for partition in 0..3 {
        let shard = shard(&verdict, partition);
        assert_eq!(shard["writer_digest"], shard["topic_digest"], "{shard:#}");
        assert_eq!(shard["state"], "equal");
    }
    // A record that the owner never wrote.
    let topic = running.place.config().topics.memories();
    let key = UserKey::new("acme", "bob").expect("valid names");
    let partition = key.partition(3);
    let name = format!("{key}/{}", uuid::Uuid::from_u128(7));
    kafka::Connection { servers: running.place.servers.clone(), options: Vec::new() }
        .producer("stranger")
        .and_then(|mut producer| {
            producer.send(&OutgoingRecord {
                topic,
                partition: Some(partition),
                key: Some(name.into_bytes()),
                value: Some(b"{}".to_vec()),
                headers: vec![("keepsake-state".to_owned(), vec![1, 2, 3])],
                ..OutgoingRecord::default()
            })?;
            producer.flush(Duration::from_secs(10))
        })
        .expect("Kafka takes the record");
    let printed = online();
    let verdict = parsed(&printed);
    let shard = shard(&verdict, partition);
    assert_eq!((printed.0, &shard["state"]), (Some(1), &json!("different")), "{verdict:#}");
    assert_eq!(
        shard["topic_records"].as_u64(),
        shard["writer_records"].as_u64().map(|records| records + 1)
    );
}

/// A restore stops at any meta record of another log, not only at the last one.
#[test]
fn verify_online_stops_at_a_meta_record_of_another_log_before_the_last_one() {
    let running = Running::lasting(Broker::Embedded, &[]);
    publish_events(&running, "acme");
    let partition = UserKey::new("acme", "bob").expect("valid names").partition(3);
    let number = partition.to_string();
    let online = || keepsake(&running.place, &["verify", "--online", "--partition", &number]);
    let (code, _, stderr) = online();
    assert_eq!(code, Some(0), "{stderr}");
    let connection =
        kafka::Connection { servers: running.place.servers.clone(), options: Vec::new() };
    let topic = running.place.config().topics.memories();
    let log = connection.log(&topic).expect("the topic exists");
    let end = log.end(partition).expect("the log answers");
    let last = last_meta(&*log, partition, end).expect("the log can be read");
    let (own, meta) = last.expect("the owner has written a batch");
    let foreign = Identity { cluster: "another".to_owned(), ..own.clone() };
    let to = Destination { topic: &topic, partition };
    let mut producer = connection.producer("stranger").expect("the broker answers");
    for identity in [&foreign, &own] {
        producer.send(&to.meta(identity, &meta)).expect("the broker takes the record");
    }
    producer.flush(Duration::from_secs(10)).expect("the broker takes the records");
    let (code, stdout, stderr) = online();
    assert!(
        code == Some(3) && stderr.contains("store-of-another-log"),
        "{code:?} {stdout}{stderr}"
    );
}

fn verify_confirms_equal_shards_and_names_records_that_differ(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    publish_events(&running, "acme");
    let (code, _, stderr) = keepsake(&running.place, &["verify"]);
    assert!(
        code == Some(1) && stderr.contains("store-locked"),
        "a running service locks the store: {code:?} {stderr}"
    );
    let place = running.stop();
    let (code, verdict) = verified(&place);
    assert_eq!(
        (code, &verdict["equal"], verdict["shards"].as_array().map(Vec::len)),
        (Some(0), &json!(true), Some(3)),
        "{verdict:#}"
    );
    for partition in 0..3 {
        let shard = shard(&verdict, partition);
        assert_eq!(
            (&shard["store_digest"], &shard["index"]),
            (&shard["topic_digest"], &json!("equal")),
            "{shard:#}"
        );
    }
    let digests: Vec<&Value> =
        (0..3).map(|partition| &shard(&verdict, partition)["store_digest"]).collect();
    assert!(
        digests[0] != digests[1] && digests[1] != digests[2],
        "shards with different users have different digests: {digests:?}"
    );

    // Another process extends the changelog. The stopped shards still equal the changelog at their
    // own positions.
    let elsewhere = Place { dir: place.dir.with_extension("elsewhere"), ..place.clone() };
    let other = Running::at(elsewhere);
    publish_events(&other, "zoo");
    let elsewhere = other.stop();
    let (code, behind) = verified(&place);
    assert_eq!((code, &behind["equal"]), (Some(0), &json!(true)), "{behind:#}");
    for (shard, before) in behind["shards"]
        .as_array()
        .into_iter()
        .flatten()
        .zip(verdict["shards"].as_array().into_iter().flatten())
    {
        assert_eq!(shard["store_digest"], before["store_digest"]);
        assert!(shard["changelog_end"].as_i64() > before["changelog_end"].as_i64(), "{shard:#}");
    }
    assert_eq!(verified(&elsewhere).0, Some(0), "a restored shard equals the fold");

    let place = check_unfinished_restore(place, &elsewhere);

    let bob = UserKey::new("acme", "bob").expect("tenant and user are valid names");
    let (partition, memory) = tamper(&place, &bob, |staged, memory| {
        staged.put_memory(Memory { importance: 0.125, ..memory });
    });
    let (code, verdict) = verified(&place);
    let shard_of_bob = shard(&verdict, partition);
    assert_eq!(
        (code, &verdict["equal"], &shard_of_bob["differences_total"]),
        (Some(1), &json!(false), &json!(1)),
        "{verdict:#}"
    );
    assert!(
        shard_of_bob["store_digest"] != shard_of_bob["topic_digest"]
            && shard_of_bob["index"] == "equal",
        "{verdict:#}"
    );
    let different = &shard_of_bob["differences"][0];
    assert_eq!(
        (&different["user"], &different["record"]),
        (&json!("acme/bob"), &json!(format!("memory {}", memory.id)))
    );
    assert_eq!(different["store"], "importance: 0.125");
    assert!(
        different["topic"]
            .as_str()
            .is_some_and(|held| held.starts_with("importance: ") && !held.contains("0.125")),
        "{different}"
    );
    let (code, stdout, stderr) =
        keepsake(&place, &["verify", "--partition", &partition.to_string()]);
    assert!(
        code == Some(1) && stdout.contains("DIFFERENT") && stdout.contains("acme/bob memory"),
        "{stdout}{stderr}"
    );
    assert!(
        stdout.contains("1 of 1 shards differ") && stdout.contains("importance: 0.125"),
        "{stdout}"
    );

    let id = memory.id;
    tamper(&place, &bob, |staged, _| {
        staged.remove_memory(&bob, id).expect("the store of a stopped shard is writable")
    });
    let (code, verdict) = verified(&place);
    let shard_of_bob = shard(&verdict, partition);
    assert_eq!(
        (code, &shard_of_bob["differences"][0]["store"], &shard_of_bob["index"]),
        (Some(1), &Value::Null, &json!("different"))
    );
    assert_eq!(
        shard_of_bob["index_differences"],
        json!([format!("acme/bob memory {id} is in the index and not in the store")]),
        "{verdict:#}"
    );
}

/// A search for what is left waits once for brokers that are gone, and not for each topic.
#[test]
fn a_search_without_a_broker_ends_after_one_wait_and_says_why() {
    let wait = Duration::from_secs(4);
    let connect = format!("kafka.connect_ms={}", wait.as_millis());
    let began = Instant::now();
    let search = ["--brokers", "127.0.0.1:1", "--set", &connect, "verify", "--erased", "ada"];
    let (code, stdout, stderr) = run_bare(&[&search[..], &["--text", "the blue key"]].concat());
    let took = began.elapsed();
    let topics = stdout.matches("[broker-unreachable, see deploy/RUNBOOK.md]").count();
    assert!(code == Some(1) && topics >= 5, "{code:?}: {stdout}{stderr}");
    assert!(took < 3 * wait, "{topics} topics took {took:?}");
}
