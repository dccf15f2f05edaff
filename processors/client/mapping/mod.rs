//! Maps a JSON record of another application to turns, by the paths of the section `[map]`, or says
//! which field does not fit. Pure: uses no broker.

pub mod suggest;

use crate::history;
use crate::rules::Rules;
use crate::show::rfc_3339;
use broker::{Headers, OutgoingRecord, Record};
use contract::decode::brief;
use domain::fault::{Reject, RejectCode};
use serde_json::{Value, json};
use settings::Config;
use settings::map::{Source, Step};
use spans::TRACEPARENT;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Messages of one record: a long conversation. The turns of a record are published together.
const MESSAGES_MAX: usize = 1000;
/// The headers that go from a record to its turns. Any other could be one of Keepsake's own.
const CARRIED: [&str; 2] = [TRACEPARENT, "tracestate"];

pub struct Mapping {
    fields: BTreeMap<&'static str, Field>,
    /// Path of the list of messages, if a record has several.
    list: Option<Vec<Step>>,
    roles: BTreeMap<String, String>,
    pub rules: Rules,
}

struct Field {
    /// As the configuration has it.
    path: String,
    source: Option<Source>,
}

/// The turns of one record.
#[derive(Debug)]
pub struct Mapped {
    pub turns: Vec<OutgoingRecord>,
    /// Messages without a text, such as calls of tools.
    pub left_out: usize,
}

/// A message of a record.
struct Message<'a> {
    record: &'a Record,
    body: &'a Value,
    /// The element of the list, with its number.
    element: Option<(usize, &'a Value)>,
}

impl Mapping {
    pub fn of(config: &Config) -> Mapping {
        let fields: BTreeMap<&str, Field> = config
            .map
            .fields()
            .into_iter()
            .map(|(name, path)| {
                let source = Source::parse(path).expect("the paths were checked at start");
                (name, Field { path: path.to_owned(), source })
            })
            .collect();
        let mut lists = fields.values().filter_map(|field| field.source.as_ref()?.list());
        let list = lists.next().map(<[Step]>::to_vec);
        Mapping { list, fields, roles: config.map.roles(), rules: Rules::of(config) }
    }

    /// The fields that no path is set for; those that a turn needs first.
    pub fn unset(&self) -> Vec<&'static str> {
        let unset = |name: &&'static str| self.fields[name].source.is_none();
        ["user", "content", "session", "role", "time", "id", "speaker"]
            .into_iter()
            .filter(unset)
            .collect()
    }

    /// Returns all turns of the record, or why the record as a whole becomes a dead letter.
    pub fn map(&self, record: &Record) -> Result<Mapped, Reject> {
        if record.value.is_none() {
            let why = "a tombstone: whatever it deletes is not forgotten by it, send a forget";
            return Err(Reject::new(RejectCode::NotJson, why));
        }
        let body = self.rules.body(record)?;
        let mut mapped = Mapped { turns: Vec::new(), left_out: 0 };
        let Some(list) = &self.list else {
            let turn = self.turn(&Message { record, body: &body, element: None })?;
            mapped.turns.push(turn.ok_or_else(|| self.missing("content"))?);
            return Ok(mapped);
        };
        let messages = at(&body, list).and_then(Value::as_array);
        let messages =
            messages.ok_or_else(|| Reject::of_field("messages", "the record has no such list"))?;
        if messages.len() > MESSAGES_MAX {
            let why = format!("has more than {MESSAGES_MAX} messages: {}", messages.len());
            return Err(Reject::new(RejectCode::TooLarge, why));
        }
        for element in messages.iter().enumerate() {
            match self.turn(&Message { record, body: &body, element: Some(element) })? {
                Some(turn) => mapped.turns.push(turn),
                None => mapped.left_out += 1,
            }
        }
        match mapped.turns.is_empty() {
            true => Err(Reject::of_field("content", "no message of the record has a text")),
            false => Ok(mapped),
        }
    }

    /// Returns `None` for a message without a text.
    fn turn(&self, message: &Message<'_>) -> Result<Option<OutgoingRecord>, Reject> {
        let Some(content) = self.content(message)? else { return Ok(None) };
        let tenant = self.required("tenant", message)?;
        let user = self.required("user", message)?;
        let role = match self.fields["role"].source {
            None => None,
            Some(_) => Some(self.role(&self.required("role", message)?)?),
        };
        let event = json!({
            "type": "turn",
            "tenant": tenant,
            "user": user,
            "id": self.id(message)?,
            "session": self.text("session", message)?,
            "role": role,
            "speaker": self.text("speaker", message)?,
            "at": self.at(message)?,
            "content": content,
        });
        let mut event = event;
        if let Value::Object(fields) = &mut event {
            fields.retain(|_, value| !value.is_null());
        }
        let carried = |(name, _): &&(String, Vec<u8>)| CARRIED.contains(&name.as_str());
        let headers: Headers = message.record.headers.iter().filter(carried).cloned().collect();
        self.rules.event(&format!("{tenant}/{user}"), &event, headers).map(Some)
    }

    fn role(&self, word: &str) -> Result<&str, Reject> {
        let role = self.roles.get(&word.trim().to_lowercase());
        role.map(String::as_str).ok_or_else(|| {
            Reject::of_field("role", brief(&format!("[map.roles] does not have the word {word}")))
        })
    }

    /// The message's own id, or the place of its record. Messages of one record get its number
    /// unless the id is their own: with one id for all, only the first would count.
    fn id(&self, message: &Message<'_>) -> Result<String, Reject> {
        let Record { topic, partition, offset, .. } = message.record;
        let own = self.text("id", message)?;
        let is_of_element = own.is_some()
            && self.fields["id"].source.as_ref().is_some_and(|source| source.list().is_some());
        let id = own.unwrap_or_else(|| format!("{topic}/{partition}/{offset}"));
        Ok(match message.element {
            Some((number, _)) if !is_of_element => format!("{id}/{number}"),
            _ => id,
        })
    }

    fn at(&self, message: &Message<'_>) -> Result<Option<String>, Reject> {
        let recorded = Some(message.record.timestamp_ms).filter(|ms| *ms > 0);
        let ms =
            match self.value("time", message)? {
                None => recorded,
                Some(value) => Some(time_ms(&value).ok_or_else(|| {
                    Reject::of_field("time", brief(&format!("is no time: {value}")))
                })?),
            };
        Ok(ms.map(rfc_3339).filter(|at| !at.is_empty()))
    }

    fn content(&self, message: &Message<'_>) -> Result<Option<String>, Reject> {
        let Some(value) = self.value("content", message)? else { return Ok(None) };
        match &*value {
            Value::String(text) => Ok(Some(text.clone())),
            Value::Array(parts) => {
                let texts =
                    parts.iter().filter_map(|part| part.get("text").unwrap_or(part).as_str());
                let texts: Vec<&str> = texts.collect();
                Ok((!texts.is_empty()).then(|| texts.join("\n")))
            }
            other => Err(self.wrong("content", other, "a text or a list of parts")),
        }
    }

    fn required(&self, name: &str, message: &Message<'_>) -> Result<String, Reject> {
        self.text(name, message)?.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: &str) -> Reject {
        match self.fields[name].path.as_str() {
            "" => Reject::of_field(name, format!("map.{name} is not set")),
            path => Reject::of_field(name, format!("is missing at {path}")),
        }
    }

    fn wrong(&self, name: &str, found: &Value, wanted: &str) -> Reject {
        let kind = match found {
            Value::Object(_) => "an object",
            Value::Array(_) => "a list",
            _ => "a number or true or false",
        };
        let path = &self.fields[name].path;
        Reject::of_field(name, format!("is {kind} at {path}, not {wanted}"))
    }

    /// A text, or the digits of a number: ids are often numbers. An empty text counts as none.
    fn text(&self, name: &str, message: &Message<'_>) -> Result<Option<String>, Reject> {
        let Some(value) = self.value(name, message)? else { return Ok(None) };
        match &*value {
            Value::String(text) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Value::Number(number) => Ok(Some(number.to_string())),
            other => Err(self.wrong(name, other, "a text or a number")),
        }
    }

    fn value<'a>(
        &self,
        name: &str,
        message: &Message<'a>,
    ) -> Result<Option<Cow<'a, Value>>, Reject> {
        let of_bytes = |bytes: Option<&[u8]>| match bytes.map(std::str::from_utf8) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(Cow::Owned(Value::from(text)))),
            Some(Err(_)) => Err(Reject::of_field(name, "is not UTF-8")),
        };
        let Message { record, body, element } = message;
        let found = match &self.fields[name].source {
            None => None,
            Some(Source::Constant(text)) => Some(Cow::Owned(Value::from(text.as_str()))),
            Some(Source::Key) => of_bytes(record.key.as_deref())?,
            Some(Source::Header(header)) => of_bytes(record.header(header))?,
            Some(Source::Path(steps)) => {
                let each = steps.iter().position(|step| *step == Step::Each);
                let (start, steps) = match (each, element) {
                    (Some(each), Some((_, element))) => (*element, &steps[each + 1..]),
                    _ => (*body, &steps[..]),
                };
                at(start, steps).map(Cow::Borrowed)
            }
        };
        Ok(found.filter(|value| !value.is_null()))
    }
}

/// Follows a path into JSON.
fn at<'a>(start: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    steps.iter().try_fold(start, |value, step| match (step, value) {
        (Step::Field(name), Value::Array(list)) => list.get(name.parse::<usize>().ok()?),
        (Step::Field(name), value) => value.get(name),
        (Step::Index(index), Value::Array(list)) => {
            let from_end = list.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
            list.get(if *index < 0 { from_end? } else { usize::try_from(*index).ok()? })
        }
        _ => None,
    })
}

/// Reads a time: a text, or a number of seconds, milliseconds, microseconds or nanoseconds since
/// 1970. As seconds, the smallest number of each larger unit would be the year 5138 or later.
fn time_ms(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match history::time_ms(text) {
            Some(ms) => return Some(ms),
            None => text.trim().parse().ok(),
        },
        _ => None,
    };
    let number = number.filter(|number| *number > 0.0)?;
    let per_ms = match number {
        ..1e11 => 1e-3,
        ..1e14 => 1.0,
        ..1e17 => 1e3,
        ..1e20 => 1e6,
        _ => return None,
    };
    Some((number / per_ms).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    fn mapping(options: &[(&str, &str)]) -> Mapping {
        let mut layers = Layers::defaults();
        for (option, value) in options {
            layers.set(&format!("map.{option}"), value, "test").expect("a text");
        }
        Mapping::of(&layers.checked().expect("valid options"))
    }

    fn record(value: &Value) -> Record {
        Record {
            topic: "chat".to_owned(),
            partition: 2,
            offset: 7,
            timestamp_ms: 1_770_000_000_000,
            key: Some(b"room-1".to_vec()),
            value: Some(value.to_string().into_bytes()),
            headers: vec![
                ("org".to_owned(), b"acme".to_vec()),
                ("kafka_replyTopic".to_owned(), b"keepsake.replies".to_vec()),
                (TRACEPARENT.to_owned(), b"00-1".to_vec()),
            ],
        }
    }

    fn turns(mapping: &Mapping, value: &Value) -> Vec<Value> {
        let mapped = mapping.map(&record(value)).expect("fits");
        let turns = mapped.turns.into_iter().map(|turn| {
            serde_json::from_slice(&turn.value.expect("an event has a value")).expect("JSON")
        });
        turns.collect()
    }

    #[test]
    fn a_record_becomes_a_turn_with_its_fields_and_no_header_of_its_own() {
        let mapping = mapping(&[
            ("tenant", "@header.org"),
            ("user", "$.author.id"),
            ("session", "@key"),
            ("role", "/author/kind"),
            ("speaker", "author.names[-1]"),
            ("content", "parts"),
            ("time", "sent"),
            ("id", "message_id"),
        ]);
        let author = json!({"id": 42, "kind": "Human", "names": ["A", "Ada"]});
        let parts = json!([{"type": "text", "text": "I moved"}, {"type": "image"}, "to Rome."]);
        let value =
            json!({"author": author, "parts": parts, "sent": 1_769_000_000, "message_id": "m1"});
        let expected = json!({"type": "turn", "tenant": "acme", "user": "42", "session": "room-1",
            "role": "user", "speaker": "Ada", "content": "I moved\nto Rome.", "id": "m1",
            "at": "2026-01-21T12:53:20Z"});
        assert_eq!(turns(&mapping, &value), [expected]);
        let mapped = mapping.map(&record(&value)).expect("fits");
        let turn = &mapped.turns[0];
        assert_eq!(turn.key.as_deref(), Some(&b"acme/42"[..]));
        assert_eq!(turn.headers, [(TRACEPARENT.to_owned(), b"00-1".to_vec())]);
        assert_eq!(mapping.unset(), [""; 0]);

        // Behind the prefix of a registry stands JSON as well.
        let mut prefixed = record(&value);
        prefixed.value = Some([&[0, 0, 0, 0, 9], value.to_string().as_bytes()].concat());
        assert_eq!(mapping.map(&prefixed).expect("fits").turns, mapped.turns);
    }

    #[test]
    fn a_record_with_messages_becomes_a_turn_for_each_that_has_a_text() {
        let options = [
            ("user", "user"),
            ("role", "messages[].role"),
            ("content", "messages[].content"),
            ("id", "request"),
        ];
        let of_record = mapping(&options);
        let value = json!({"user": "ada", "request": "r1", "messages": [
            {"role": "developer", "content": "Be brief.", "id": "a"},
            {"role": "assistant", "content": null, "tool_calls": [1], "id": "b"},
            {"role": "user", "content": "I am ill.", "id": "c"},
        ]});
        let ids = |turns: &[Value]| {
            turns.iter().map(|turn| turn["id"].as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        let found = turns(&of_record, &value);
        assert_eq!(ids(&found), [Some("r1/0".to_owned()), Some("r1/2".to_owned())]);
        assert_eq!((&found[0]["role"], &found[1]["role"]), (&json!("system"), &json!("user")));
        assert_eq!(of_record.map(&record(&value)).expect("fits").left_out, 1);
        let own = mapping(&[&options[..3], &[("id", "messages[].id")]].concat());
        assert_eq!(ids(&turns(&own, &value)), [Some("a".to_owned()), Some("c".to_owned())]);
        let places = mapping(&options[..3]);
        assert_eq!(ids(&turns(&places, &value))[1], Some("chat/2/7/2".to_owned()));
        let many: Vec<Value> = vec![json!({"role": "user", "content": "x"}); MESSAGES_MAX + 1];
        for (messages, why) in [
            (json!([]), "no message of the record has a text"),
            (json!("none"), "no such list"),
            (json!(many), "more than 1000 messages"),
            (json!([{"content": "x"}]), "role: is missing at messages[].role"),
        ] {
            let value = json!({"user": "ada", "messages": messages});
            let reject = of_record.map(&record(&value)).expect_err(why);
            assert!(reject.to_string().contains(why), "{reject}");
        }
    }

    #[test]
    fn each_field_that_does_not_fit_is_named() {
        let mapping =
            mapping(&[("user", "from"), ("role", "role"), ("content", "text"), ("time", "at")]);
        let good = json!({"from": "ada", "role": "ai", "text": "Hello.", "at": "2026-01-01 10:00"});
        let turn = &turns(&mapping, &good)[0];
        assert_eq!(
            (&turn["at"], &turn["id"]),
            (&json!("2026-01-01T10:00:00Z"), &json!("chat/2/7"))
        );
        for (field, value, why) in [
            ("from", json!(null), "user: is missing at from"),
            ("from", json!({"id": 1}), "user: is an object at from"),
            ("from", json!("a/b"), "user: "),
            ("role", json!("robot"), "role: [map.roles] does not have the word robot"),
            ("role", json!(""), "role: is missing"),
            ("text", json!(7), "content: is a number"),
            ("text", json!([{"image": 1}]), "content: is missing at text"),
            ("text", json!("x".repeat(70_000)), "content: is longer than"),
            ("at", json!("yesterday"), "time: is no time"),
            ("at", json!(-5), "time: is no time"),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            let reject = mapping.map(&record(&bad)).expect_err(why);
            assert!(reject.to_string().starts_with(why), "{why}: {reject}");
        }
        let mut timeless = good.clone();
        timeless["at"] = Value::Null;
        assert_eq!(turns(&mapping, &timeless)[0]["at"], "2026-02-02T02:40:00Z");
        for (value, why) in [
            (None, "tombstone"),
            (Some(&b"{"[..]), "EOF"),
            (Some(b"\xff"), "utf-8"),
            (Some(b"[1]"), "not an object"),
            (Some(b"\0\0"), "prefix"),
        ] {
            let raw = Record { value: value.map(<[u8]>::to_vec), ..record(&good) };
            let reject = mapping.map(&raw).expect_err(why);
            assert!(reject.to_string().contains(why), "{why}: {reject}");
        }
    }

    #[test]
    fn units_of_a_time_are_told_apart_by_size() {
        for number in ["1769000000", "1769000000000", "1769000000000000", "1769000000000000000"] {
            assert_eq!(time_ms(&json!(number)), Some(1_769_000_000_000), "{number}");
            let number: i64 = number.parse().expect("a number");
            assert_eq!(time_ms(&json!(number)), Some(1_769_000_000_000), "{number}");
        }
        assert_eq!(time_ms(&json!("1769000000.25")), Some(1_769_000_000_250));
    }
}
