//! A story long enough to be interrupted: a stream of events, what is left of it in the end, and how two ends differ.

use super::{Message, Wire, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What a person may see of all these users' memories, without what differs from one log to another.
pub fn state(wire: &Wire, users: &[String]) -> BTreeMap<String, Vec<Value>> {
    users
        .iter()
        .map(|name| {
            let user = wire.user("laws", name);
            let whole = |memory: &Value| {
                user.ask(json!({"type": "get", "memory": memory["id"], "history": true}))
            };
            let memories = user.list().iter().map(|memory| told(&whole(memory))).collect();
            (name.clone(), memories)
        })
        .collect()
}

pub fn told(reply: &Value) -> Value {
    let mut reply = reply.clone();
    for field in ["applied_offset", "took_us", "stale"] {
        reply.as_object_mut().expect("an object").remove(field);
    }
    reply
}

/// Field by field, so that a failure can be read.
pub fn different(ours: &[Value], theirs: &[Value]) -> Vec<String> {
    let by_id = |all: &[Value]| -> BTreeMap<String, Value> {
        all.iter().map(|one| (one["memory"]["id"].to_string(), one["memory"].clone())).collect()
    };
    let (ours, theirs) = (by_id(ours), by_id(theirs));
    let ids: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let mut found = Vec::new();
    for id in ids {
        let (Some(one), Some(other)) = (ours.get(id), theirs.get(id)) else {
            found.push(format!("{id}: {:?} and {:?}", ours.get(id), theirs.get(id)));
            continue;
        };
        let fields: BTreeSet<&String> = [one, other]
            .into_iter()
            .filter_map(Value::as_object)
            .flat_map(|all| all.keys())
            .collect();
        let fields =
            fields.into_iter().filter(|field| one[field.as_str()] != other[field.as_str()]);
        found.extend(fields.map(|field| {
            format!(
                "{} of {}: {} and {}",
                field,
                one["content"],
                one[field.as_str()],
                other[field.as_str()]
            )
        }));
    }
    found
}

/// A stream in which every event depends on those before it: repetitions confirm, moves supersede, ids repeat.
pub fn stream(users: &[String], length: usize) -> Vec<Value> {
    let cities = ["Berlin", "Lisbon", "Porto", "Vienna", "Oslo"];
    (0..length)
        .map(|n| {
            let user = &users[n % users.len()];
            let round = n / users.len();
            let (kind, content) = match round % 5 {
                0 => ("turn", format!("I live in {}", cities[round / 5 % cities.len()])),
                1 => ("remember", format!("Parcel {n} is in the attic.")),
                2 => ("turn", "We decided to use Postgres for the billing service in March.".to_owned()),
                3 => ("turn", format!("My locker number is {n}.")),
                _ => ("turn", "Hi there!".to_owned()),
            };
            let mut event = json!({"type": kind, "tenant": "laws", "user": user, "content": content, "session": "s",
                "at": format!("2026-01-01T00:{:02}:{:02}Z", n / 60 % 60, n % 60)});
            // Every seventh id comes twice. What confirms has none: only its place in the log keeps it from counting twice.
            if round % 5 != 2 {
                event["id"] = json!(format!("{user}-{}", if round % 7 == 6 { round - 1 } else { round }));
            }
            event
        })
        .collect()
}

pub fn message(wire: &Wire, event: &Value) -> Message {
    let user = wire.user("laws", event["user"].as_str().expect("a name"));
    user.message("events", event.clone())
}

/// Everything a user sent is applied, or the answer is not the answer.
pub fn settled(wire: &Wire, ends: &BTreeMap<i32, (String, i64)>) {
    for (user, offset) in ends.values() {
        let user = wire.user("laws", user);
        eventually("the last event is applied", || {
            let request = user
                .message("recalls", json!({"type": "stats"}))
                .with("keepsake-min-offset", offset.to_string());
            (wire.exchange(request).json()["status"] == "ok").then_some(())
        });
    }
}

/// A generator that needs no crate and no clock: the test prints its seed, and a failure can be repeated.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
