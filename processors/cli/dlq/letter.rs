//! One dead letter: what its headers say, and the record that it was. Pure; knows no broker.

use crate::cli::show;
use crate::config::Config;
use crate::domain::MARK;
use crate::ports::broker::{Headers, Outgoing, Record, header};
use crate::text::shortened;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Says how often a record was redriven, so that one which keeps failing can be told from the others.
pub use crate::stages::decode::REDRIVEN;

const CONNECT: &str = "__connect.errors.";
const SPRING: &str = "kafka_dlt-";
/// Headers of a forwarded record. They are left out when a dead letter is sent again: a shard skips a forwarded record that has been applied.
const FORWARDED: [&str; 4] = ["keepsake-origin", "keepsake-via", "keepsake-hops", MARK];
/// Header of a change of a tenant's memories on its way between partitions.
const TENANT: &str = "keepsake-tenant";

pub struct Letter(pub Record);

/// The topics that a record may go back to.
pub struct Homes {
    pub events: String,
    pub recalls: String,
    prefix: String,
}

impl Homes {
    pub fn of(config: &Config) -> Homes {
        let topics = &config.topics;
        Homes { events: topics.events(), recalls: topics.recalls(), prefix: topics.prefix.clone() }
    }

    /// Without the prefix, which all of them share.
    pub fn short<'a>(&self, topic: &'a str) -> &'a str {
        topic.strip_prefix(self.prefix.as_str()).unwrap_or(topic)
    }
}

impl Letter {
    pub fn reason(&self) -> Cow<'_, str> {
        self.said("exception.class.name")
    }

    /// The topic it came from.
    pub fn topic(&self) -> Cow<'_, str> {
        self.said("topic")
    }

    pub fn redriven(&self) -> u32 {
        header(&self.0.headers, REDRIVEN)
            .and_then(|times| std::str::from_utf8(times).ok()?.parse().ok())
            .unwrap_or(0)
    }

    /// Empty for what somebody else wrote to the topic.
    fn said(&self, name: &str) -> Cow<'_, str> {
        String::from_utf8_lossy(
            header(&self.0.headers, &format!("{CONNECT}{name}")).unwrap_or_default(),
        )
    }

    /// The record as it was, for the topic it came from; or why it cannot go back.
    pub fn restored(&self, homes: &Homes) -> Result<Outgoing, String> {
        let topic = self.topic();
        if topic.is_empty() {
            return Err(format!(
                "has no header {CONNECT}topic, so it was not written by keepsake: send it again by hand"
            ));
        }
        if topic != homes.events && topic != homes.recalls {
            let (topic, events, recalls) = (plain(&topic), &homes.events, &homes.recalls);
            return Err(format!(
                "came from {topic}, and only {events} and {recalls} are redriven: send it again by hand"
            ));
        }
        if header(&self.0.headers, TENANT) == Some(b"copy")
            && header(&self.0.headers, "keepsake-via").is_some()
        {
            let what = "is keepsake's own copy of a tenant's event for another partition, which has been applied elsewhere";
            return Err(format!("{what}: send the event itself again"));
        }
        let is_event = topic == homes.events;
        Ok(Outgoing {
            topic: topic.into_owned(),
            partition: None,
            // An event without a time of its own happened when it was sent. A request that old would have expired.
            timestamp_ms: self.original_ms().filter(|_| is_event),
            key: self.0.key.clone(),
            value: self.0.value.clone(),
            headers: self.original_headers(),
        })
    }

    fn original_headers(&self) -> Headers {
        let ours = |name: &str| {
            name.starts_with(CONNECT)
                || name.starts_with(SPRING)
                || name == REDRIVEN
                || name == TENANT
                || FORWARDED.contains(&name)
        };
        let mut headers: Headers =
            self.0.headers.iter().filter(|(name, _)| !ours(name)).cloned().collect();
        headers.push((REDRIVEN.to_owned(), (self.redriven() + 1).to_string().into_bytes()));
        headers
    }

    fn original_ms(&self) -> Option<i64> {
        let bytes = header(&self.0.headers, "kafka_dlt-original-timestamp")?;
        <[u8; 8]>::try_from(bytes).ok().map(i64::from_be_bytes).filter(|ms| *ms > 0)
    }

    pub const HEAD: [&'static str; 8] =
        ["letter", "came from", "when", "stage", "reason", "redriven", "message", "key"];

    pub fn row(&self, homes: &Homes) -> Vec<String> {
        let Record { partition, offset, timestamp_ms, key, .. } = &self.0;
        let key = String::from_utf8_lossy(key.as_deref().unwrap_or_default());
        let redriven = match self.redriven() {
            0 => String::new(),
            times => times.to_string(),
        };
        let from = format!(
            "{}/{}/{}",
            homes.short(&self.topic()),
            self.said("partition"),
            self.said("offset")
        );
        let (stage, reason) = (self.said("stage"), self.reason());
        let cells = [&*from, &show::moment(*timestamp_ms), &*stage, &*reason, &redriven];
        let mut row = vec![format!("{partition}:{offset}")];
        row.extend(cells.iter().map(|cell| plain(cell)));
        row.extend([
            plain(&shortened(&self.said("exception.message"), 60)),
            plain(&shortened(&key, 40)),
        ]);
        row
    }

    pub fn json(&self) -> Value {
        let Record { partition, offset, timestamp_ms, key, value, .. } = &self.0;
        let number = |name: &str| self.said(name).parse::<i64>().ok();
        json!({
            "partition": partition,
            "offset": offset,
            "at": show::rfc_3339(*timestamp_ms),
            "from": {"topic": self.topic(), "partition": number("partition"), "offset": number("offset")},
            "stage": self.said("stage"),
            "reason": self.reason(),
            "message": self.said("exception.message"),
            "redriven": self.redriven(),
            "key": key.as_deref().map(String::from_utf8_lossy),
            // Bytes that are no text cannot be said in JSON; the topic has them.
            "value": value.as_deref().and_then(|value| std::str::from_utf8(value).ok()),
            "value_bytes": value.as_ref().map(Vec::len),
        })
    }
}

/// What a stranger wrote must not steer somebody's terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Reject, RejectCode};
    use crate::stages::reply;

    fn homes() -> Homes {
        Homes { events: "k.events".into(), recalls: "k.recalls".into(), prefix: "k.".into() }
    }

    fn sent(topic: &str, headers: &[(&str, &str)]) -> Record {
        Record {
            topic: topic.into(),
            partition: 2,
            offset: 7,
            timestamp_ms: 1_700_000_000_000,
            key: Some(b"acme/ada".to_vec()),
            value: Some(b"{\xff".to_vec()),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect(),
        }
    }

    /// As ingest writes it and the log gives it back.
    fn letter(record: &Record) -> Letter {
        let reject = Reject::new(RejectCode::NotUtf8, "is \u{1b}[2J no text");
        let parked = reply::dead_letter(record, &reject, "ingest", "k.dead-letters");
        Letter(Record {
            headers: parked.headers,
            key: parked.key,
            value: parked.value,
            ..Record::default()
        })
    }

    #[test]
    fn a_letter_goes_back_as_it_came_and_counts() {
        let record =
            sent("k.events", &[("app", "one"), ("kafka_replyTopic", "a.replies"), ("app", "two")]);
        let back = letter(&record).restored(&homes()).expect("an event");
        let mut headers = record.headers.clone();
        headers.push((REDRIVEN.into(), b"1".to_vec()));
        assert_eq!(
            (&back.headers, back.partition, back.timestamp_ms),
            (&headers, None, Some(record.timestamp_ms))
        );
        assert_eq!(
            (back.topic.as_str(), back.key, back.value),
            ("k.events", record.key.clone(), record.value.clone())
        );

        let again = letter(&Record { headers: back.headers, ..record.clone() });
        assert_eq!(again.redriven(), 1);
        *headers.last_mut().expect("just pushed") = (REDRIVEN.into(), b"2".to_vec());
        assert_eq!(again.restored(&homes()).expect("an event").headers, headers);
    }

    #[test]
    fn a_request_goes_back_with_a_new_time() {
        let back = letter(&sent("k.recalls", &[])).restored(&homes()).expect("a request");
        assert_eq!((back.topic.as_str(), back.timestamp_ms), ("k.recalls", None));
    }

    #[test]
    fn what_was_passed_on_goes_back_without_the_marks_that_would_hide_it() {
        let back = letter(&sent(
            "k.events",
            &[("keepsake-via", "1:5"), ("keepsake-origin", "k.events:1:5")],
        ))
        .restored(&homes());
        assert_eq!(back.expect("an event").headers.len(), 1);
    }

    #[test]
    fn what_did_not_come_from_events_or_recalls_is_refused() {
        for (letter, word) in [
            (letter(&sent("audit.log", &[])), "audit.log"),
            (
                letter(&sent("k.events", &[("keepsake-tenant", "copy"), ("keepsake-via", "1:5")])),
                "copy",
            ),
            (Letter(sent("k.dead-letters", &[])), "not written by keepsake"),
        ] {
            let why = letter.restored(&homes()).expect_err("it has no home");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn nothing_in_a_row_steers_a_terminal() {
        let row = letter(&sent("k.events", &[])).row(&homes());
        assert_eq!(
            (row[1].as_str(), row[4].as_str(), row[7].as_str()),
            ("events/2/7", "not-utf8", "acme/ada")
        );
        assert!(row.iter().all(|cell| !cell.contains('\u{1b}')), "{row:?}");
    }
}
