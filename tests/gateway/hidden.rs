//! What was erased, withheld or redacted is on no screen, and what was not is.

use super::{Gateway, call, keys_of, new_key};
use crate::support::client::outcome;
use crate::support::program::{command, run};
use crate::support::{Broker, Running, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    law_forgotten_stays_forgotten_on_every_screen
}

/// Words that each stand in one text that must not be shown, and those of a text that may.
const GONE: [&str; 12] = [
    "Quixhaven",
    "Zumbraquil",
    "Plimfrost",
    "Glenwhistle",
    "Grobbelwick",
    "Vexulo",
    "Ostrimel",
    "Hartwickle",
    "Pumfrelda",
    "4111",
    "sk-ant-api03",
    "Snorrivane",
];
const KEPT: &str = "Lapsang";
const CARD: &str = "My card is 4111 1111 1111 1111 and my key is sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefgh-AA.";

fn law_forgotten_stays_forgotten_on_every_screen(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let [ada, eve, zoe] = ["ada", "eve", "zoe"].map(|user| client.user("default", user));
    let in_session = |session: &str, content: &str| {
        ada.event(json!({"type": "turn", "session": session, "content": content}))
    };
    let forget = |what: Value| {
        let mut event = json!({"type": "forget"});
        event
            .as_object_mut()
            .expect("an object")
            .extend(what.as_object().expect("an object").clone());
        event
    };
    // Everything of a user.
    eve.turn("I live in Quixhaven.");
    eve.turn("Ok, thanks, Hartwickle!");
    assert_eq!(outcome(&eve.event(forget(json!({"everything": true})))), "forgotten");
    // One memory, and a decision that quotes it.
    let locker = ada.remember("My locker code is Zumbraquil.");
    ada.turn("My locker code is Birchby.");
    ada.event(forget(json!({"memory": locker})));
    // A session: a turn that was kept, and one that was dropped.
    in_session("s", "My sister is called Glenwhistle.");
    in_session("s", "Ok, thanks, Plimfrost!");
    ada.event(forget(json!({"session": "s"})));
    // A query that means a turn of which no memory was made.
    ada.turn("Ok, thanks, Grobbelwick!");
    ada.event(forget(json!({"query": "Grobbelwick"})));
    // Off the record, with the answer to it; taken back; only context.
    in_session("o", "Off the record: I cheated in Vexulo.");
    ada.event(json!({"type": "turn", "session": "o", "role": "assistant",
        "content": "I will not tell anybody in Vexulo."}));
    in_session("t", "My cousin is called Ostrimel.");
    in_session("t", "Forget what I just said.");
    in_session("u", "Ok, thanks, Pumfrelda!");
    in_session("u", "Forget what I just said.");
    ada.event(json!({"type": "turn", "content": "I sing in Snorrivane.", "remember": false}));
    // Redacted; and what may be shown.
    ada.turn(CARD);
    zoe.turn("My favourite tea is Lapsang.");
    zoe.turn("Ok, thanks, Lapsang!");

    let gateway = Gateway::start(&running.place, &[]);
    let mut screens: Vec<(String, String)> = Vec::new();
    let past = gateway.call("GET", "/v1/keepsake/decisions/past?limit=500", Value::Null).1;
    let decisions = past["decisions"].as_array().expect("a list").clone();
    assert!(decisions.len() >= 20, "{past}");
    let mut shown = 0;
    for decision in &decisions {
        let event = &decision["event"];
        let place = format!("partition={}&offset={}", event["partition"], event["offset"]);
        let (status, answer) =
            gateway.call("GET", &format!("/v1/keepsake/event?{place}"), Value::Null);
        shown += usize::from(status == 200);
        screens.push((format!("event {place}"), answer.to_string()));
        let ask = json!({"user": decision["user"], "event": event});
        let (_, answer) = gateway.call("POST", "/v1/keepsake/explain", ask);
        screens.push((format!("explain {place}"), answer.to_string()));
    }
    assert!(shown >= 3, "the events of zoe and the redacted one are shown");
    screens.push(("decisions/past".to_owned(), past.to_string()));
    for user in ["ada", "eve", "zoe"] {
        for path in ["decisions/past?limit=500&user=", "erasures?user=", "export?user="] {
            let path = format!("/v1/keepsake/{path}{user}");
            screens.push((path.clone(), gateway.call("GET", &path, Value::Null).1.to_string()));
        }
        for (name, asked) in [
            (
                "recall",
                json!({"user": user, "query": "My locker code, my sister", "explain": true}),
            ),
            ("list", json!({"user": user, "everything": true})),
            ("about", json!({"user": user})),
            ("stats", json!({"user": user})),
        ] {
            let (_, answer) = gateway.call("POST", &format!("/v1/keepsake/{name}"), asked);
            screens.push((format!("{name} of {user}"), answer.to_string()));
        }
        let path = format!("/memories?user_id={user}");
        screens.push((path.clone(), gateway.call("GET", &path, Value::Null).1.to_string()));
    }
    for path in ["users", "dead-letters", "shards"] {
        let path = format!("/v1/keepsake/{path}");
        screens.push((path.clone(), gateway.call("GET", &path, Value::Null).1.to_string()));
    }
    for arguments in [
        &["tail", "decisions", "--last", "500", "--exit"][..],
        &["tail", "decisions", "--last", "500", "--exit", "--json"],
        &["export", "--all"],
        &["dlq", "list"],
        &["list", "--user", "ada"],
        &["list", "--user", "eve"],
        &["stats", "--user", "ada"],
        &["whatif", "--profile", "lynkr", "--from-topic", "--json"],
    ] {
        let (code, stdout, stderr) = run(command(&running.place).args(arguments));
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        screens.push((format!("{arguments:?}"), stdout));
    }
    let leaks: Vec<(&str, &str, &str)> = screens
        .iter()
        .flat_map(|(name, text)| GONE.iter().map(move |word| (&**name, *word, &**text)))
        .filter(|(_, word, text)| text.contains(word))
        .collect();
    let named: Vec<(&str, &str)> = leaks.iter().map(|(name, word, _)| (*name, *word)).collect();
    assert!(leaks.is_empty(), "{named:?}\n{:?}", leaks.first());
    for screen in ["decisions/past", "event", "export", "[\"tail", "[\"export", "explain"] {
        let mut of_screen = screens.iter().filter(|(name, _)| name.contains(screen));
        assert!(of_screen.any(|(_, text)| text.contains(KEPT)), "{screen} shows what it may");
    }
    let tail = &screens.iter().find(|(name, _)| name.contains("--json")).expect("above").1;
    assert!(tail.contains("[redacted:card]"), "{tail}");
    assert_eq!(tail.matches("Ok, thanks, Lapsang!").count(), 1, "a dropped turn of another user");

    // A forget counts from the moment that it is acknowledged.
    eve.turn("My boat is called Quixhaven Two.");
    let path = "/v1/keepsake/decisions/past?user=eve";
    let answer = call(&gateway.address, "GET", path, Value::Null).1;
    assert!(answer.to_string().contains("Quixhaven Two"), "said after the forget: {answer}");
    eve.event(forget(json!({"everything": true})));
    let answer = call(&gateway.address, "GET", path, Value::Null).1;
    assert!(!answer.to_string().contains("Quixhaven"), "{answer}");

    // An event as it was sent needs the right of an administrator.
    let place = &running.place;
    let made = |rights: &str| new_key(place, &["--tenant", "default", "--rights", rights]).1;
    let (reader, admin) = (made("read"), made("read,admin"));
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let of_zoe = decisions.iter().find(|it| it["user"] == "zoe").expect("zoe spoke");
    let event = &of_zoe["event"];
    let path =
        format!("/v1/keepsake/event?partition={}&offset={}", event["partition"], event["offset"]);
    for (key, expected) in [(&reader, 403), (&admin, 200)] {
        let headers = [("x-api-key", key.as_str())];
        assert_eq!(gateway.call_with("GET", &path, &headers, Value::Null).0, expected);
    }
}
