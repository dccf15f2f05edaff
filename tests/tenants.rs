//! Memories of a whole tenant, where a group has two processes: one has the tenant's home, the other
//! follows.

use crate::support::admin::Admin;
use crate::support::client::{contents, memory_id, outcome};
use crate::support::service::Place;
use crate::support::{Broker, Child, Client, User, eventually, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    users_of_both_processes_read_what_they_ask_for_and_nothing_that_was_forgotten
    a_topic_that_was_deleted_is_filled_again
}

const TENANT: &str = "office";
const PARTITIONS: usize = 4;

/// Two processes of one group, and a user on each partition.
struct Pair {
    places: [Place; 2],
    children: Vec<Child>,
}

impl Pair {
    fn start(broker: Broker) -> Pair {
        let options = [
            ("topics.partitions", &*PARTITIONS.to_string()),
            ("kafka.librdkafka.session.timeout.ms", "6000"),
        ];
        let left = Place::lasting(broker, &options);
        let right = Place { dir: left.dir.with_extension("right"), ..left.clone() };
        let places = [left, right];
        let children = places.each_ref().map(started).into();
        Pair { places, children }
    }
}

fn started(place: &Place) -> Child {
    let mut child = Child::start(place);
    child.wait_until_ready();
    child
}

fn users(client: &Client) -> Vec<User<'_>> {
    let of = |n: usize| client.user(TENANT, &format!("u{n}"));
    let home = |user: &User<'_>| domain::partition_of(user.key().as_bytes(), PARTITIONS as i32);
    let found = (0..PARTITIONS as i32).map(|partition| {
        (0..).map(of).find(|user| home(user) == partition).expect("names are endless")
    });
    found.collect()
}

/// Publishes an event, and asks for what the user sees behind it.
fn behind(user: &User<'_>, event: Value) -> (Value, Vec<String>) {
    let (_, offset) = user.client.send(&user.message("events", event));
    let request = user.message("recalls", json!({"type": "list", "limit": 100}));
    let request = request.with("keepsake-min-offset", offset.to_string());
    let reply = user.client.exchange(request).json();
    assert_eq!(reply["status"], "ok", "{reply}");
    let seen = contents(&reply).into_iter().map(str::to_owned).collect();
    (reply, seen)
}

fn users_of_both_processes_read_what_they_ask_for_and_nothing_that_was_forgotten(broker: Broker) {
    let mut pair = Pair::start(broker);
    let client = pair.places[0].client();
    let users = users(&client);
    let rule = |n: usize| format!("Rule {n}: lock door {n} at night.");
    for (n, user) in users.iter().enumerate() {
        let event = json!({"type": "remember", "scope": "tenant", "content": rule(n)});
        let (reply, seen) = behind(user, event);
        assert!(seen.contains(&rule(n)), "{reply}");
        assert_ne!(reply["partial"], true, "{reply}");
    }
    let mut ids = Vec::new();
    for user in &users {
        eventually("every user sees all rules", || {
            (user.list().len() == users.len()).then_some(())
        });
        let found = user.recall("What about door 3?");
        assert!(contents(&found).contains(&&*rule(3)), "{found}");
        ids = user.list().iter().map(|memory| memory["id"].clone()).collect();
    }
    // Each changes a memory of another, and reads the change.
    for (n, user) in users.iter().enumerate() {
        let said = format!("Door {n} stays open, says {}.", user.user);
        let (reply, seen) =
            behind(user, json!({"type": "update", "memory": ids[n], "content": said}));
        assert!(seen.contains(&said), "{reply}");
    }
    let unknown = "0198c0de-0000-7000-8000-000000000000";
    for user in &users {
        let reply = user.event(json!({"type": "update", "memory": unknown, "content": "x"}));
        assert_eq!(reply["status"], "not_found", "{reply}");
    }
    // The process with the home is killed: those of the other go on reading.
    let home = domain::partition_of(format!("{TENANT}/").as_bytes(), PARTITIONS as i32);
    let has_home = |child: &Child| child.get("/readyz").contains(&format!("partition {home} "));
    let at = pair.children.iter().position(has_home).expect("one of them has it");
    pair.children[at].kill();
    eventually("all shards are with the other process", || {
        let page = pair.children[1 - at].get("/readyz");
        (page.matches(" ready,").count() == PARTITIONS).then_some(())
    });
    pair.children[at] = started(&pair.places[at]);
    for user in &users {
        eventually("every user sees all rules again", || {
            (user.list().len() == users.len()).then_some(())
        });
    }
    // Everybody forgets. A rule that another changed is still that of its author.
    for (n, user) in users.iter().enumerate() {
        let own = own_of(user);
        assert_eq!(own.len(), 1, "{own:?}");
        let (reply, _) = behind(user, json!({"type": "forget", "everything": true}));
        assert_eq!(contents(&reply).len(), users.len() - n - 1, "{reply}");
        assert!(!reply.to_string().contains(&own[0]), "{reply}");
    }
    for user in &users {
        eventually("nothing is left", || user.list().is_empty().then_some(()));
        assert!(contents(&user.recall("What about the doors?")).is_empty());
    }
}

/// The ids of the memories that the user has shared: those of events of the user.
fn own_of(user: &User<'_>) -> Vec<String> {
    let partition = domain::partition_of(user.key().as_bytes(), PARTITIONS as i32);
    let own = user.list().into_iter().filter(|it| it["source"]["partition"] == partition);
    own.map(|memory| memory["id"].as_str().expect("an id").to_owned()).collect()
}

fn a_topic_that_was_deleted_is_filled_again(broker: Broker) {
    let mut pair = Pair::start(broker);
    let servers = pair.places[0].servers.clone();
    let kept = {
        let client = pair.places[0].client();
        let asked = json!({"type": "remember", "scope": "tenant", "content": "Lock the doors."});
        let receipt = users(&client)[0].event(asked);
        assert_eq!(outcome(&receipt), "kept", "{receipt}");
        memory_id(&receipt)
    };
    for child in &mut pair.children {
        child.signal("-TERM");
        assert!(child.wait().success());
    }
    Admin::of(&servers).delete_topic(&pair.places[0].config().topics.tenants());
    pair.children = pair.places.each_ref().map(started).into();
    let client = pair.places[0].client();
    for user in users(&client) {
        let found = eventually("every user reads it again", || {
            let reply = user.ask_its_owner(&json!({"type": "get", "memory": kept}));
            (reply["status"] == "ok").then_some(reply)
        });
        assert_eq!(found["memory"]["content"], "Lock the doors.");
    }
}
