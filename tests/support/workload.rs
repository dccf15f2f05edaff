//! A workload long enough to be interrupted: a stream of dependent events, the memories that remain
//! at its end, and the comparison of two such ends.

use super::{Client, Message, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Tenant of all users of a workload.
pub const TENANT: &str = "laws";

/// Last offset sent to each partition, with a user of that partition.
pub type Ends = BTreeMap<i32, (String, i64)>;

pub fn users(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("user-{n}")).collect()
}

/// All memories of these users with their histories, without the fields that depend on the log.
pub fn memories_by_user(client: &Client, users: &[String]) -> BTreeMap<String, Vec<Value>> {
    users
        .iter()
        .map(|name| {
            let user = client.user(TENANT, name);
            let memories = user.list().into_iter().map(|memory| {
                let get = json!({"type": "get", "memory": memory["id"], "history": true});
                let reply = user.ask_its_owner(&get);
                assert_eq!(reply["status"], "ok", "{reply}");
                comparable(&reply)
            });
            (name.clone(), memories.collect())
        })
        .collect()
}

/// A reply without the fields that differ between two logs with the same memories.
pub fn comparable(reply: &Value) -> Value {
    let mut reply = reply.clone();
    for field in ["applied_offset", "took_us", "stale"] {
        reply.as_object_mut().expect("a reply is an object").remove(field);
    }
    reply
}

/// The differences between two lists of memories, one line per memory and field.
pub fn differences(ours: &[Value], theirs: &[Value]) -> Vec<String> {
    let ours = by_id(ours);
    let theirs = by_id(theirs);
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
        for field in fields {
            let name = field.as_str();
            if one[name] != other[name] {
                let text = &one["content"];
                found.push(format!("{name} of {text}: {} and {}", one[name], other[name]));
            }
        }
    }
    found
}

fn by_id(replies: &[Value]) -> BTreeMap<String, Value> {
    replies
        .iter()
        .map(|reply| (reply["memory"]["id"].to_string(), reply["memory"].clone()))
        .collect()
}

/// A stream in which every event depends on earlier ones: repetitions confirm, moves supersede,
/// ids come twice.
pub fn stream(users: &[String], length: usize) -> Vec<Value> {
    let cities = ["Berlin", "Lisbon", "Porto", "Vienna", "Oslo"];
    let decision = "We decided to use Postgres for the billing service in March.";
    (0..length)
        .map(|n| {
            let user = &users[n % users.len()];
            let round = n / users.len();
            let (kind, content) = match round % 5 {
                0 => ("turn", format!("I live in {}", cities[round / 5 % cities.len()])),
                1 => ("remember", format!("Parcel {n} is in the attic.")),
                2 => ("turn", decision.to_owned()),
                3 => ("turn", format!("My locker number is {n}.")),
                _ => ("turn", "Hi there!".to_owned()),
            };
            let at = format!("2026-01-01T00:{:02}:{:02}Z", n / 60 % 60, n % 60);
            let mut event = json!({"type": kind, "tenant": TENANT, "user": user,
                "content": content, "session": "s", "at": at});
            // Every seventh id comes twice. A repeated decision has no id: only its place in the
            // log keeps it from counting twice.
            if round % 5 != 2 {
                let id = if round % 7 == 6 { round - 1 } else { round };
                event["id"] = json!(format!("{user}-{id}"));
            }
            event
        })
        .collect()
}

/// The record of one event of the stream.
pub fn record(client: &Client, event: &Value) -> Message {
    let user = client.user(TENANT, event["user"].as_str().expect("`stream` names a user"));
    user.message("events", event.clone())
}

/// Waits until the service has applied every offset in `ends`.
pub fn wait_until_applied(client: &Client, ends: &Ends) {
    for (user, offset) in ends.values() {
        let user = client.user(TENANT, user);
        eventually("the last event of the partition is applied", || {
            let request = user
                .message("recalls", json!({"type": "stats"}))
                .with("keepsake-min-offset", offset.to_string());
            (client.exchange(request).json()["status"] == "ok").then_some(())
        });
    }
}

/// A linear congruential generator with Knuth's constants (MMIX). It needs no crate and no clock:
/// a test prints its seed, and a failure can be repeated.
///
/// See <https://en.wikipedia.org/wiki/Linear_congruential_generator>.
pub struct Dice(pub u64);

impl Dice {
    /// A number from 0 to `limit` - 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
