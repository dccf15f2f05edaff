//! What a shard holds is what its changelog says: held by `keepsake verify`, and seen by it where it is not so.

use crate::support::program::command;
use crate::support::service::Place;
use crate::support::{Broker, Running, kafka};
use keepsake::domain::{Memory, UserKey};
use keepsake::ports::embedder::Model;
use keepsake::ports::kafka::Connection;
use keepsake::run::options;
use keepsake::stages::store::{self, Changes, Identity, Mark, Overlay, Reading, Store};
use serde_json::{Value, json};
use std::time::Duration;

fn typed(place: &Place, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        command(place).args(arguments).output().expect("the program was built with this test");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn verified(place: &Place) -> (Option<i32>, Value) {
    let (code, said, words) = typed(place, &["verify", "--json"]);
    (code, serde_json::from_str(&said).unwrap_or_else(|e| panic!("{code:?} {e}: {said}{words}")))
}

fn shard(verdict: &Value, partition: i32) -> &Value {
    let shards = verdict["shards"].as_array().expect("a list");
    shards
        .iter()
        .find(|shard| shard["partition"] == partition)
        .unwrap_or_else(|| panic!("no shard {partition}: {verdict}"))
}

/// Everything that changes a shard, at least once.
fn live(running: &Running, tenant: &str) {
    let client = running.client();
    for name in ["ada", "bob", "cleo", "dan", "eve"] {
        let user = client.user(tenant, name);
        for turn in [
            "I live in Berlin.",
            "I moved to Lisbon last month.",
            "Hi there!",
            "We use Postgres for the billing service.",
        ] {
            user.event(json!({"type": "turn", "content": turn, "session": "monday/a"}));
        }
        let kept = user.remember("The blue key opens the shed.");
        let gone = user.remember("The red key opens the hut.");
        user.event(json!({"type": "update", "memory": kept, "content": "The green key opens the shed.", "id": "u1"}));
        user.event(json!({"type": "feedback", "memory": kept, "signal": "confirmed"}));
        user.event(json!({"type": "forget", "memory": gone}));
    }
    client.user(tenant, "ada").event(
        json!({"type": "remember", "content": "The office closes at six.", "scope": "tenant"}),
    );
    client.user(tenant, "eve").event(json!({"type": "forget", "everything": true}));
}

/// The store of a shard whose process has ended.
fn opened(place: &Place, partition: i32) -> Store {
    let config = place.config();
    let servers = place.broker.servers().to_owned();
    let connection = Connection { servers, options: Vec::new(), embedded: false };
    let model = Model::open(&options::embedder(&config)).expect("needs nothing");
    let identity = Identity {
        cluster: connection.cluster_id(Duration::from_secs(10)).expect("it is up"),
        topic: config.topics.events(),
        partition,
        partitions: 3,
        model: model.name().to_owned(),
        dimensions: model.dimensions() as u32,
    };
    let dir = place.dir.join(format!("{}-{partition}/store", config.topics.events()));
    Store::open(&dir, &store::Options::default(), &identity, 0)
        .expect("it was closed in good order")
        .store
}

/// Changes records behind everybody's back.
fn tamper(
    place: &Place,
    key: &UserKey,
    change: impl Fn(&mut Overlay<'_>, Memory),
) -> (i32, Memory) {
    let partition = key.partition(3);
    let store = opened(place, partition);
    let mut memories = Vec::new();
    let every = &mut |memory: Memory| {
        memories.push(memory);
        true
    };
    store.memories(key, every).expect("a disk");
    let memory = memories
        .into_iter()
        .find(|memory| memory.content.contains("green key"))
        .expect("it was kept");
    let mut overlay = store.overlay();
    change(&mut overlay, memory.clone());
    let batch = overlay.finished();
    store
        .apply(batch, Mark { applied: store.applied(), changelog: store.changelog() })
        .expect("a disk");
    store.flush().expect("a disk");
    (partition, memory)
}

/// A restore that was killed has written records before it could say how far it had come. That is told, and all else compared.
fn cut_short(place: Place, further: &Place) -> Place {
    let partition = UserKey::new("zoo", "ada").expect("a name").partition(3);
    let put_ahead = |changes: &Changes| {
        let store = opened(&place, partition);
        store.apply_ahead(changes).expect("a disk");
        store.flush().expect("a disk");
    };
    let before = opened(&place, partition).everything().expect("a disk").records;
    let after = opened(further, partition).everything().expect("a disk").records;
    let mut some = Changes::default();
    let new = after.into_iter().filter(|(key, _)| !before.contains_key(key));
    new.step_by(2).for_each(|(key, value)| some.put(key, value.expect("it is there")));
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
    assert_eq!(found["index"], "behind", "what was removed ahead is still in it: {verdict:#}");
    let (_, said, words) = typed(&place, &["verify"]);
    assert!(
        said.contains("1 of 3 shards are unfinished") && said.contains("goes on at the next start"),
        "{said}{words}"
    );

    let (untouched, value) = before.into_iter().next().expect("somebody of the other tenant");
    let (mut without, mut again) = (Changes::default(), Changes::default());
    without.remove(untouched.clone());
    again.put(untouched, value.expect("it is there"));
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

#[test]
fn a_shard_is_what_its_changelog_says_and_where_it_is_not_verify_says_which() {
    if !kafka::is_wanted("a_shard_is_what_its_changelog_says_and_where_it_is_not_verify_says_which")
    {
        return;
    }
    let running = Running::start(Broker::Kafka, &[]);
    live(&running, "acme");
    let (code, _, words) = typed(&running.place, &["verify"]);
    assert!(
        code == Some(1) && words.contains("store-locked"),
        "while it is served: {code:?} {words}"
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
        "different users are in them: {digests:?}"
    );

    // Somebody else goes on, so the topic does too: this shard is still what it was at its own place.
    let mut elsewhere = place.clone();
    elsewhere.dir = place.dir.with_extension("elsewhere");
    let other = Running::at(elsewhere);
    live(&other, "zoo");
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
    assert_eq!(verified(&elsewhere).0, Some(0), "a shard that was restored is the same fold");

    let place = cut_short(place, &elsewhere);

    let bob = UserKey::new("acme", "bob").expect("a name");
    let (partition, memory) = tamper(&place, &bob, |overlay, memory| {
        overlay.put_memory(Memory { importance: 0.125, ..memory }).expect("a disk");
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
    let (code, said, words) = typed(&place, &["verify", "--partition", &partition.to_string()]);
    assert!(
        code == Some(1) && said.contains("DIFFERENT") && said.contains("acme/bob memory"),
        "{said}{words}"
    );
    assert!(said.contains("1 of 1 shards differ") && said.contains("importance: 0.125"), "{said}");

    let id = memory.id;
    tamper(&place, &bob, |overlay, _| overlay.remove_memory(&bob, id).expect("a disk"));
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

#[test]
fn a_store_without_a_changelog_has_nothing_to_be_compared_with() {
    let place = Place::new(Broker::Embedded, &[]);
    let (code, said, words) = typed(&place, &["verify"]);
    assert!(
        code == Some(2) && words.contains("nothing to compare it with"),
        "{code:?}: {said}{words}"
    );
}
