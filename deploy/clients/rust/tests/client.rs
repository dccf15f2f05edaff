//! Runs against a real service; `KEEPSAKE_URL` is its gateway.

use keepsake_recall::{Forget, Keepsake, List, Recall, Remember, Turn, Update};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

fn keepsake() -> Keepsake {
    Keepsake::new(&std::env::var("KEEPSAKE_URL").expect("KEEPSAKE_URL names the gateway"))
}

fn someone() -> String {
    format!("user-{}", uuid::Uuid::new_v4())
}

#[test]
fn a_turn_is_decided_and_recalled() {
    let (keepsake, user) = (keepsake(), someone());
    let turn = Turn { session: Some("s1".into()), ..Turn::default() };
    let applied =
        keepsake.turn(&user, "I moved to Lisbon last month.", turn.clone()).expect("applied");
    assert_eq!(applied.decisions[0].outcome, "kept");
    let applied = keepsake.turn(&user, "Ok, thanks!", turn).expect("applied");
    assert_eq!(applied.decisions[0].outcome, "dropped");
    let reply = keepsake.recall(&user, "Where do I live?", Recall::default()).expect("memories");
    assert_eq!(reply.memories[0].content, "I moved to Lisbon last month.");
    assert_eq!(reply.memories[0].session.as_deref(), Some("s1"));
    assert!(reply.prompt.contains("Lisbon"), "{}", reply.prompt);
    assert_eq!(keepsake.stats(&user).expect("counts").memories.total, 1);
}

#[test]
fn a_memory_lives_from_remember_to_forget() {
    let (keepsake, user) = (keepsake(), someone());
    let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let fields = Remember {
        kind: Some("fact".into()),
        metadata: Some(labels.clone()),
        id: Some("e1".into()),
        ..Remember::default()
    };
    let bees = "Ada keeps bees in Lisbon";
    let applied = keepsake.remember(&user, bees, fields.clone()).expect("applied");
    let memory = applied.decisions[0].memory.clone().expect("an id");
    let again = keepsake.remember(&user, bees, fields).expect("applied");
    assert_eq!(again.decisions[0].outcome, "duplicate");
    let change = Update { content: Some("Ada keeps bees in Porto".into()), ..Update::default() };
    keepsake.update(&user, &memory, change).expect("applied");
    let reply = keepsake.get(&user, &memory).expect("the memory");
    assert_eq!((reply.memory.kind.as_str(), &reply.memory.metadata), ("fact", &labels));
    assert_eq!(reply.history[0].content, bees);
    let applied = keepsake.feedback(&user, &[&memory], "confirmed").expect("applied");
    assert_eq!(applied.decisions[0].outcome, "noted");
    let explained = keepsake.explain(&user, &memory).expect("the decision");
    assert_eq!(explained.decision.reason, "asked to remember");
    for (team, found) in [("blue", 1), ("red", 0)] {
        let conditions = Some(serde_json::json!({"team": {"$in": [team, "green"]}}));
        let page = keepsake.list(&user, List { conditions, ..List::default() }).expect("a page");
        assert_eq!(page.memories.len(), found, "{team}");
    }
    keepsake.forget(&user, Forget::Memory(memory.clone())).expect("applied");
    assert_eq!(keepsake.get(&user, &memory).expect_err("gone").status, "not_found");
    keepsake.forget(&user, Forget::Everything(true)).expect("applied");
}

#[test]
fn a_key_decides_the_tenant() {
    let [url, key] = ["KEEPSAKE_KEYED_URL", "KEEPSAKE_KEY"]
        .map(|name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set")));
    let user = someone();
    let owner = Keepsake::new(&url).with_key(&key);
    owner.remember(&user, "Ada keeps bees in Lisbon", Remember::default()).expect("applied");
    assert_eq!(owner.stats(&user).expect("counts").memories.total, 1);
    assert_eq!(keepsake().stats(&user).expect("counts").memories.total, 0);
    assert_eq!(Keepsake::new(&url).stats(&user).expect_err("no key").status, "unauthorized");
}

/// A proxy in front of the gateway loses the first reply.
#[test]
fn a_lost_reply_is_asked_for_again_with_the_same_id() {
    let url = std::env::var("KEEPSAKE_URL").expect("KEEPSAKE_URL names the gateway");
    let gateway = url.trim_start_matches("http://").to_owned();
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", proxy.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for (number, client) in proxy.incoming().enumerate() {
            let mut client = client.expect("a connection");
            let mut served = TcpStream::connect(&gateway).expect("the gateway listens");
            let mut request = vec![0; 64 * 1024];
            // Head and body are short, and may come in two pieces.
            std::thread::sleep(Duration::from_millis(100));
            let length = client.read(&mut request).expect("a request");
            served.write_all(&request[..length]).expect("the gateway reads");
            let mut reply = vec![0; 64 * 1024];
            let length = served.read(&mut reply).expect("a reply");
            if number > 0 {
                client.write_all(&reply[..length]).expect("the client reads");
            }
        }
    });
    let user = someone();
    let fields = Remember::default();
    let applied = Keepsake::new(&address).remember(&user, "Eva lives in Oslo", fields);
    assert_eq!(applied.expect("applied").decisions[0].outcome, "duplicate");
    assert_eq!(keepsake().stats(&user).expect("counts").memories.total, 1);
}

#[test]
fn a_wrong_message_is_refused_by_name() {
    let message = serde_json::json!({"query": "bees", "limit": "many"});
    let refused = keepsake().call::<serde_json::Value>("recall", &someone(), message);
    let error = refused.expect_err("invalid");
    assert_eq!((error.status.as_str(), error.field.as_deref()), ("invalid", Some("limit")));
    let mut away = Keepsake::new("http://127.0.0.1:1");
    away.retries = 0;
    assert_eq!(away.stats("ada").expect_err("away").status, "unavailable");
}
