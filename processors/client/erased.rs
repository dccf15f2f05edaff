//! Decides whether the words of a decision or an event may be shown. They may not once they were
//! erased, and never if they were withheld from memory. The topics keep them until their time is over,
//! so every screen, command and call asks [`Erasures`] first.
//!
//! The receipts on the erasures topic list the erased memories. Receipts are read once, and later
//! reads go on where the last one ended.
//!
//! Limit: a receipt names neither the session nor the query of a `forget`. So after the `forget` of
//! a session no earlier decision in a session that made no memory shows words, and after that of a
//! query no earlier decision that made none.

use crate::reading::{self, OffsetRange};
use broker::Record;
use domain::fault::Result;
use domain::{MemoryId, Position, UserKey};
use kafka::Connection;
use serde::Deserialize;
use serde_json::{Map, Value};
use settings::Config;
use std::collections::{BTreeMap, HashMap, HashSet};
use text::redact::{self, Rule};
use uuid::Uuid;

/// Ids of erased memories and turns that are remembered: about 40 MB. With more, all words from
/// before are hidden, and the count begins again.
const IDS_MAX: usize = 1_000_000;
/// A user counts as this many ids.
const USER_IDS: usize = 16;
/// Stands for a turn among the ids of its memories, whose spans are smaller.
const WHOLE_TURN: u32 = u32::MAX;
const ERASED: &str = "left out, because it was forgotten";
/// Fields of an event that hold no words.
const WORDLESS: [&str; 10] =
    ["type", "tenant", "user", "session", "id", "at", "memory", "memories", "signal", "everything"];

/// The erasures of all users, as far as their topic was read.
#[derive(Default)]
pub struct Erasures {
    users: HashMap<UserKey, LastForgets>,
    /// Ids of erased memories, and of turns by their place. Of all users, because a memory of the
    /// tenant may be erased by another user than its author.
    ids: HashSet<Uuid>,
    /// The next offset of each partition.
    read: BTreeMap<i32, i64>,
    /// Nothing from before this time is shown.
    hidden_before_ms: Option<i64>,
}

/// The last `forget` of each kind of a user.
#[derive(Default)]
struct LastForgets {
    everything: Option<Mark>,
    session: Option<Mark>,
    query: Option<Mark>,
}

/// The place and time of a `forget`.
struct Mark {
    event: Position,
    at_ms: i64,
}

impl Mark {
    /// Offsets of one partition are in order; across partitions only the times are.
    fn is_after(&self, event: &Position, at_ms: i64) -> bool {
        match self.event.topic == event.topic && self.event.partition == event.partition {
            true => event.offset < self.event.offset,
            false => at_ms <= self.at_ms,
        }
    }
}

/// The fields of a receipt that are needed.
#[derive(Deserialize)]
struct Receipt {
    event: Place,
    continues: Option<Place>,
    tenant: String,
    user: String,
    target: String,
    texts: Vec<Text>,
    #[serde(default)]
    turns: Vec<Turns>,
    #[serde(default)]
    unlisted: u64,
}

#[derive(Deserialize)]
struct Place {
    topic: String,
    partition: i32,
    offset: i64,
}

impl From<Place> for Position {
    fn from(Place { topic, partition, offset }: Place) -> Position {
        Position { topic: topic.into(), partition, offset }
    }
}

#[derive(Deserialize)]
struct Text {
    memory: Uuid,
}

#[derive(Deserialize)]
struct Turns {
    topic: String,
    partition: i32,
    offsets: Vec<i64>,
}

impl Erasures {
    /// Reads the receipts up to these ends, from where the last call has stopped.
    pub fn read_on(
        &mut self,
        connection: &Connection,
        topic: &str,
        ends: &[OffsetRange],
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let next = |range: &OffsetRange, read: &BTreeMap<i32, i64>| {
            read.get(&range.partition).map_or(range.from, |read| range.from.max(*read))
        };
        let left: Vec<OffsetRange> =
            ends.iter().map(|it| OffsetRange { from: next(it, &self.read), ..*it }).collect();
        reading::read(connection, topic, &left, &mut |record| {
            check()?;
            self.read.insert(record.partition, record.offset + 1);
            self.note(&record);
            Ok(())
        })?;
        // The last offsets may be those of the markers of transactions.
        for range in left {
            let read = self.read.entry(range.partition).or_insert(range.end);
            *read = range.end.max(*read);
        }
        Ok(())
    }

    /// Reads all receipts that the topic has now.
    pub fn read_all(&mut self, connection: &Connection, config: &Config) -> Result<()> {
        let topic = config.topics.erasures();
        let ends = reading::whole_topic(connection, config, &topic)?;
        self.read_on(connection, &topic, &ends, &mut || Ok(()))
    }

    /// Notes a receipt. Somebody else's record on the topic is none.
    fn note(&mut self, record: &Record) {
        let value = record.value.as_deref().unwrap_or_default();
        let Ok(receipt) = serde_json::from_slice::<Receipt>(value) else { return };
        let Ok(key) = UserKey::new(&receipt.tenant, &receipt.user) else { return };
        let at_ms = record.timestamp_ms;
        let user = self.users.entry(key).or_default();
        let mark = Some(Mark { event: receipt.event.into(), at_ms });
        match receipt.target.as_str() {
            _ if receipt.unlisted > 0 => user.everything = mark,
            "everything" => user.everything = mark,
            "session" => user.session = mark,
            "query" if receipt.continues.is_none() => user.query = mark,
            _ => {}
        }
        self.ids.extend(receipt.texts.iter().map(|text| text.memory));
        for Turns { topic, partition, offsets } in receipt.turns {
            let topic: std::sync::Arc<str> = topic.into();
            self.ids.extend(
                offsets
                    .into_iter()
                    .map(|offset| turn_id(&Position { topic: topic.clone(), partition, offset })),
            );
        }
        if self.ids.len() + USER_IDS * self.users.len() > IDS_MAX {
            tracing::warn!("more erasures than are remembered: the words of before are hidden");
            (self.users, self.ids) = (HashMap::new(), HashSet::new());
            self.hidden_before_ms = Some(at_ms);
        }
    }

    /// Takes the words out of a decision that must not show them. `at_ms` is the time of the
    /// record. Returns true if the decision is withheld or erased.
    pub fn hide(&self, decision: &mut Value, at_ms: i64) -> bool {
        let hides = decision["withheld"] == true || self.covers(decision, at_ms);
        // The outcome of a `forget` has no words, and the user wants to see that decision.
        if hides && decision["outcome"] != "forgotten" {
            if let Some(fields) = decision.as_object_mut() {
                fields.remove("candidate");
            }
            if decision["withheld"] != true {
                decision["reason"] = ERASED.into();
                decision["withheld"] = true.into();
            }
        }
        hides
    }

    fn covers(&self, decision: &Value, at_ms: i64) -> bool {
        let text = |field: &str| decision[field].as_str().unwrap_or_default();
        let Ok(key) = UserKey::new(text("tenant"), text("user")) else { return true };
        let Ok(event) = Place::deserialize(&decision["event"]) else { return true };
        let related = decision["related"].as_array().into_iter().flatten();
        let ids: Vec<Uuid> = std::iter::once(&decision["memory"])
            .chain(related)
            .filter_map(|id| id.as_str()?.parse().ok())
            .collect();
        let about = About {
            event: &event.into(),
            at_ms,
            is_in_session: decision["session"].is_string(),
            made_none: decision["memory"].is_null(),
        };
        self.cover(&key, &about, &ids)
    }

    /// True if an event of the user was erased, judged by place and time.
    pub fn cover_event(&self, key: &UserKey, event: &Position, at_ms: i64) -> bool {
        let about = About { event, at_ms, is_in_session: false, made_none: false };
        self.cover(key, &about, &[])
    }

    /// True for a record of the events topic that was or may have been erased, by the user of its
    /// key: the record does not show whether a memory was made.
    pub fn cover_record(&self, record: &Record) -> bool {
        let key = std::str::from_utf8(record.key.as_deref().unwrap_or_default());
        let key = key.ok().and_then(|key| key.split_once('/'));
        let Some(Ok(key)) = key.map(|(tenant, user)| UserKey::new(tenant, user)) else {
            return false;
        };
        let Record { topic, partition, offset, .. } = record;
        let event =
            Position { topic: topic.as_str().into(), partition: *partition, offset: *offset };
        let at_ms = record.timestamp_ms;
        self.cover(&key, &About { event: &event, at_ms, is_in_session: true, made_none: true }, &[])
    }

    fn cover(&self, key: &UserKey, about: &About<'_>, ids: &[Uuid]) -> bool {
        if self.hidden_before_ms.is_some_and(|before| about.at_ms <= before) {
            return true;
        }
        if ids.iter().chain([&turn_id(about.event)]).any(|id| self.ids.contains(id)) {
            return true;
        }
        let Some(user) = self.users.get(key) else { return false };
        let is_before = |mark: &Option<Mark>| {
            mark.as_ref().is_some_and(|mark| mark.is_after(about.event, about.at_ms))
        };
        is_before(&user.everything)
            || about.made_none && is_before(&user.query)
            || about.made_none && about.is_in_session && is_before(&user.session)
    }
}

struct About<'a> {
    event: &'a Position,
    at_ms: i64,
    is_in_session: bool,
    made_none: bool,
}

fn turn_id(event: &Position) -> Uuid {
    MemoryId::of(event, WHOLE_TURN).0
}

/// Redacts every text of an event by all rules, and takes out the words of an event that only asks for
/// something, such as the query of a `forget`, or that Keepsake wrote to itself.
pub fn redact_event(event: &mut Map<String, Value>) {
    let name = event.get("type").and_then(Value::as_str).unwrap_or_default();
    let has_words = ["turn", "remember", "update"].contains(&name);
    if !has_words {
        leave_out_words(event);
    }
    event.values_mut().for_each(redact_value);
}

/// Leaves the fields of an event that hold no words.
pub fn leave_out_words(event: &mut Map<String, Value>) {
    event.retain(|name, _| WORDLESS.contains(&name.as_str()));
}

fn redact_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = redacted(text),
        Value::Array(all) => all.iter_mut().for_each(redact_value),
        Value::Object(fields) => fields.values_mut().for_each(redact_value),
        _ => {}
    }
}

/// The text redacted by all rules, whatever the profile.
pub fn redacted(text: &str) -> String {
    redact::redacted(text, &Rule::ALL).map_or_else(|| text.to_owned(), |redacted| redacted.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "0f8fad5b-d9cb-569f-a165-70867728950e";
    const OTHER: &str = "0f8fad5b-d9cb-569f-a165-70867728950f";

    fn place(partition: i32, offset: i64) -> Value {
        json!({"topic": "keepsake.events", "partition": partition, "offset": offset})
    }

    /// The receipt of a `forget` at offset 10 of partition 1, at 1,000 ms.
    fn receipt(target: &str, more: &Value) -> Record {
        let mut receipt = json!({"type": "erasure", "event": place(1, 10), "tenant": "acme",
            "user": "ada", "target": target, "texts": []});
        let fields = receipt.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        let value = Some(receipt.to_string().into_bytes());
        Record { value, timestamp_ms: 1_000, ..Record::default() }
    }

    fn decision(event: Value, more: &Value) -> Value {
        let mut decision = json!({"outcome": "kept", "reason": "new", "event": event,
            "tenant": "acme", "user": "ada", "candidate": "I like tea."});
        let fields = decision.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        decision
    }

    #[test]
    fn a_receipt_hides_what_it_covers_and_nothing_else() {
        let everything = receipt("everything", &json!({}));
        let session = receipt("session", &json!({}));
        let query = receipt("query", &json!({}));
        let rest = receipt("query", &json!({"continues": place(1, 9)}));
        let memory = receipt("memory", &json!({"texts": [{"memory": ID, "digest": "00"}]}));
        let turn = receipt(
            "turn",
            &json!({"turns":
            [{"topic": "keepsake.events", "partition": 1, "offsets": [7]}]}),
        );
        let unlisted = receipt("memory", &json!({"unlisted": 1}));
        let [none, own] = [json!({}), json!({"memory": ID})];
        let other = json!({"memory": OTHER});
        for (receipt, event, more, at_ms, expected) in [
            (&everything, place(1, 9), &other, 2_000, true),
            (&everything, place(1, 11), &other, 0, false),
            (&everything, place(0, 99), &other, 1_000, true),
            (&everything, place(0, 1), &other, 1_001, false),
            (&everything, place(1, 9), &json!({"user": "eve"}), 0, false),
            (&everything, place(1, 9), &json!({"tenant": "else"}), 0, false),
            (&session, place(1, 9), &json!({"session": "s"}), 0, true),
            (&session, place(1, 9), &json!({"session": "s", "memory": OTHER}), 0, false),
            (&session, place(1, 9), &none, 0, false),
            (&query, place(1, 9), &none, 0, true),
            (&query, place(1, 9), &other, 0, false),
            (&query, place(1, 11), &none, 0, false),
            (&rest, place(1, 9), &none, 0, false),
            (&memory, place(1, 9), &own, 0, true),
            (&memory, place(1, 11), &json!({"memory": OTHER, "related": [ID]}), 0, true),
            (&memory, place(1, 9), &other, 0, false),
            // A memory of the tenant, which another user erased.
            (&memory, place(1, 9), &json!({"memory": ID, "user": "eve"}), 0, true),
            (&turn, place(1, 7), &none, 0, true),
            (&turn, place(1, 8), &none, 0, false),
            (&unlisted, place(1, 9), &other, 0, true),
        ] {
            let mut erasures = Erasures::default();
            erasures.note(receipt);
            let mut decision = decision(event, more);
            assert_eq!(erasures.hide(&mut decision, at_ms), expected, "{decision}");
            assert_eq!(decision["candidate"].is_null(), expected, "{decision}");
            assert_eq!(decision["reason"] == ERASED, expected, "{decision}");
        }
    }

    #[test]
    fn what_was_withheld_keeps_its_reason_and_what_cannot_be_read_is_hidden() {
        let erasures = Erasures::default();
        let mut off = decision(place(1, 1), &json!({"withheld": true, "reason": "asked"}));
        assert!(erasures.hide(&mut off, 0));
        assert_eq!((&off["reason"], &off["candidate"]), (&json!("asked"), &Value::Null));
        let mut odd = decision(json!({"partition": "x"}), &json!({}));
        assert!(erasures.hide(&mut odd, 0) && odd["candidate"].is_null());
    }

    #[test]
    fn with_more_erasures_than_are_remembered_the_words_of_before_are_hidden() {
        let mut erasures = Erasures::default();
        erasures.ids.extend((0..IDS_MAX as u128).map(Uuid::from_u128));
        erasures.note(&receipt("memory", &json!({"texts": [{"memory": ID, "digest": "00"}]})));
        assert!(erasures.ids.is_empty());
        let mut before = decision(place(1, 9), &json!({"memory": OTHER}));
        assert!(erasures.hide(&mut before, 1_000), "it may be one of those");
        let mut after = decision(place(1, 9), &json!({"memory": OTHER}));
        assert!(!erasures.hide(&mut after, 1_001));
    }

    #[test]
    fn an_event_is_redacted_everywhere_and_a_query_is_left_out() {
        let card = "4111 1111 1111 1111";
        let mut turn = json!({"type": "turn", "content": format!("Card {card}"),
            "metadata": {"note": card}, "n": 3});
        let turn = turn.as_object_mut().expect("an object");
        redact_event(turn);
        assert_eq!(turn["content"], "Card [redacted:card]");
        assert_eq!((&turn["metadata"]["note"], &turn["n"]), (&json!("[redacted:card]"), &json!(3)));
        let mut forget = json!({"type": "forget", "user": "ada", "query": "locker"});
        let forget = forget.as_object_mut().expect("an object");
        redact_event(forget);
        assert_eq!(json!(forget), json!({"type": "forget", "user": "ada"}));
    }
}
