//! Reads the headers of a dead letter, and restores the original record from a dead letter.
//! Pure: uses no broker.

use crate::erased::redacted;
use crate::show::{self, printable};
use broker::{Headers, OutgoingRecord, Record, header};
use contract::reply::TRUNCATED;
use domain::fault::RejectCode;
use domain::{REDRIVEN, SIGNATURE, SignedParts, TENANT_SIGNATURE, TenantKeys};
use serde_json::{Value, json};
use settings::Config;
use std::borrow::Cow;
use text::shortened;

/// Header prefixes of a dead letter, in the forms of
/// [Kafka Connect](https://kafka.apache.org/documentation/#connect) and Spring for Apache Kafka.
const CONNECT: &str = "__connect.errors.";
const SPRING: &str = "kafka_dlt-";
/// Headers of a forwarded record. They are removed when a dead letter is sent again, because a
/// shard skips a forwarded record that was applied before.
const FORWARDED: [&str; 5] =
    ["keepsake-origin", "keepsake-via", "keepsake-hops", "keepsake-own", SIGNATURE];
/// Header of a change of a tenant's memories on the way between partitions.
const TENANT: &str = "keepsake-tenant";

pub struct DeadLetter(pub Record);

/// Names of the topics that a dead letter can be sent back to.
#[derive(Clone, Debug)]
pub struct SourceTopics {
    pub events: String,
    pub recalls: String,
    prefix: String,
}

impl SourceTopics {
    pub fn of(config: &Config) -> SourceTopics {
        let topics = &config.topics;
        SourceTopics {
            events: topics.events(),
            recalls: topics.recalls(),
            prefix: topics.prefix.clone(),
        }
    }

    pub fn without_prefix<'a>(&self, topic: &'a str) -> &'a str {
        topic.strip_prefix(self.prefix.as_str()).unwrap_or(topic)
    }
}

impl DeadLetter {
    pub fn reason(&self) -> Cow<'_, str> {
        self.header("exception.class.name")
    }

    /// Returns the reason as named in the summary.
    pub fn reason_for_people(&self) -> String {
        match self.reason() {
            reason if reason.is_empty() => "not by keepsake".to_owned(),
            reason => printable(&reason),
        }
    }

    /// Topic of the original record.
    pub fn topic(&self) -> Cow<'_, str> {
        self.header("topic")
    }

    /// Topic and partition of the original record, if Keepsake wrote the letter.
    pub fn origin(&self) -> Option<(String, i64)> {
        Some((self.topic().into_owned(), self.header("partition").parse().ok()?))
    }

    /// Number of times the record was redriven, from the header [`REDRIVEN`]. A record that keeps
    /// failing has a high number.
    pub fn redriven(&self) -> u32 {
        header(&self.0.headers, REDRIVEN)
            .and_then(|times| std::str::from_utf8(times).ok()?.parse().ok())
            .unwrap_or(0)
    }

    /// Returns a header of Keepsake's dead letters; empty for a record that another program wrote.
    fn header(&self, name: &str) -> Cow<'_, str> {
        let value = header(&self.0.headers, &format!("{CONNECT}{name}"));
        String::from_utf8_lossy(value.unwrap_or_default())
    }

    /// Builds the original record, or returns the reason why it cannot be sent again.
    pub fn restored(&self, topics: &SourceTopics) -> Result<OutgoingRecord, String> {
        let topic = self.topic();
        if topic.is_empty() {
            return Err(format!(
                "has no header {CONNECT}topic, so it was not written by keepsake: send it again by \
                 hand"
            ));
        }
        let SourceTopics { events, recalls, .. } = topics;
        if topic != *events && topic != *recalls {
            return Err(format!(
                "came from {}, and only {events} and {recalls} are redriven: send it again by hand",
                printable(&topic)
            ));
        }
        if self.is_truncated() {
            return Err(format!(
                "holds only the place, or the head, of a record that was too long: have its sender \
                 publish it again; the record itself is at {topic}/{}/{}",
                self.header("partition"),
                self.header("offset")
            ));
        }
        if header(&self.0.headers, TENANT) == Some(b"copy")
            && header(&self.0.headers, "keepsake-via").is_some()
        {
            return Err("is keepsake's own copy of a tenant's event for another partition, which \
                        was applied elsewhere: send the event itself again"
                .to_owned());
        }
        let is_event = topic == *events;
        Ok(OutgoingRecord {
            topic: topic.into_owned(),
            partition: None,
            // An event without a field `at` takes its time from the timestamp. A request with the
            // old timestamp would have expired.
            timestamp_ms: self.original_ms().filter(|_| is_event),
            key: self.0.key.clone(),
            value: self.0.value.clone(),
            headers: self.original_headers(),
        })
    }

    /// Signs the restored record again, because an event is forbidden if another one of its user
    /// was signed much later. A record that was forbidden, or whose signature was not valid, keeps
    /// the old signature, and so does one of a tenant without a key here.
    pub fn signed_again(
        &self,
        mut restored: OutgoingRecord,
        keys: &TenantKeys,
        now_ms: i64,
    ) -> OutgoingRecord {
        let key = restored.key.as_deref().unwrap_or_default();
        let tenant = key.split(|byte| *byte == b'/').next().unwrap_or_default();
        let tenant = String::from_utf8_lossy(tenant);
        let parts = SignedParts {
            topic: &restored.topic,
            partition: -1,
            key: restored.key.as_deref(),
            value: restored.value.as_deref(),
            headers: &restored.headers,
        };
        let own = header(&restored.headers, TENANT_SIGNATURE);
        let at_ms = self.original_ms().unwrap_or_default();
        let is_valid = self.reason() != RejectCode::Forbidden.as_str()
            && matches!(keys.verify(&tenant, &parts, own, at_ms), Ok(Some(_)));
        let signature = if is_valid { keys.sign(&tenant, &parts, now_ms) } else { None };
        if let Some(signature) = signature {
            restored.headers.retain(|(name, _)| name != TENANT_SIGNATURE);
            restored.headers.push((TENANT_SIGNATURE.to_owned(), signature.into_bytes()));
        }
        restored
    }

    /// True for a letter without the record, which was longer than the dead-letter topic takes.
    fn is_truncated(&self) -> bool {
        let is_shortened = self.0.value.is_none() || self.header("stage") == "recall";
        is_shortened && header(&self.0.headers, TRUNCATED).is_some()
    }

    fn original_headers(&self) -> Headers {
        let mut headers: Headers =
            self.0.headers.iter().filter(|(name, _)| !is_added(name)).cloned().collect();
        headers.push((REDRIVEN.to_owned(), (self.redriven() + 1).to_string().into_bytes()));
        headers
    }

    fn original_ms(&self) -> Option<i64> {
        let bytes = header(&self.0.headers, "kafka_dlt-original-timestamp")?;
        <[u8; 8]>::try_from(bytes).ok().map(i64::from_be_bytes).filter(|ms| *ms > 0)
    }

    pub const HEAD: [&'static str; 8] =
        ["letter", "came from", "when", "stage", "reason", "redriven", "message", "key"];

    /// Formats a row of the table. Control characters of foreign text are replaced.
    pub fn row(&self, topics: &SourceTopics) -> Vec<String> {
        let Record { partition, offset, timestamp_ms, key, .. } = &self.0;
        let key = String::from_utf8_lossy(key.as_deref().unwrap_or_default());
        let redriven = match self.redriven() {
            0 => String::new(),
            times => times.to_string(),
        };
        let from = format!(
            "{}/{}/{}",
            topics.without_prefix(&self.topic()),
            self.header("partition"),
            self.header("offset")
        );
        let cells = [
            &*format!("{partition}:{offset}"),
            &*from,
            &*show::moment(*timestamp_ms),
            &*self.header("stage"),
            &*self.reason(),
            &*redriven,
            &*shortened(&self.header("exception.message"), 60),
            &*shortened(&key, 40),
        ];
        cells.map(printable).to_vec()
    }

    pub fn json(&self) -> Value {
        let Record { partition, offset, timestamp_ms, key, value, .. } = &self.0;
        json!({
            "partition": partition,
            "offset": offset,
            "at": show::rfc_3339(*timestamp_ms),
            "from": {
                "topic": self.topic(),
                "partition": self.header("partition").parse::<i64>().ok(),
                "offset": self.header("offset").parse::<i64>().ok(),
            },
            "stage": self.header("stage"),
            "reason": self.reason(),
            "message": self.header("exception.message"),
            "redriven": self.redriven(),
            "key": key.as_deref().map(String::from_utf8_lossy),
            // JSON cannot hold bytes that are not UTF-8: such a value is null and must be read from
            // the topic.
            "value": value.as_deref().and_then(|value| std::str::from_utf8(value).ok()).map(redacted),
            "value_bytes": value.as_ref().map(Vec::len),
            "truncated": self.is_truncated(),
        })
    }
}

/// Recognises headers that were not on the original record.
fn is_added(name: &str) -> bool {
    name.starts_with(CONNECT)
        || name.starts_with(SPRING)
        || name == REDRIVEN
        || name == TRUNCATED
        || name == TENANT
        || FORWARDED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::reply::{self, DeadLetters};
    use domain::fault::{Reject, RejectCode};
    use domain::{SigningKey, Time};
    use std::collections::BTreeMap;

    fn topics() -> SourceTopics {
        SourceTopics { events: "k.events".into(), recalls: "k.recalls".into(), prefix: "k.".into() }
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

    /// Builds a dead letter with the code that ingest uses.
    fn letter(record: &Record) -> DeadLetter {
        letter_of(record, &Reject::new(RejectCode::NotUtf8, "is \u{1b}[2J no text"))
    }

    fn letter_of(record: &Record, reject: &Reject) -> DeadLetter {
        let dead_letters = DeadLetters { topic: "k.dead-letters".into(), bytes_max: 10_000 };
        let parked = reply::dead_letter(record, reject, "ingest", &dead_letters);
        DeadLetter(Record {
            headers: parked.headers,
            key: parked.key,
            value: parked.value,
            ..Record::default()
        })
    }

    #[test]
    fn a_letter_without_its_record_is_refused_with_the_place_of_the_record() {
        let record = Record { value: Some(vec![b' '; 10_000]), ..sent("k.events", &[]) };
        let letter = letter(&record);
        assert_eq!(letter.json()["truncated"], true);
        let why = letter.restored(&topics()).expect_err("there is nothing to send");
        assert!(why.contains("k.events/2/7"), "{why}");
        let own = sent("k.events", &[(TRUNCATED, "1")]);
        let whole = self::letter(&own).restored(&topics()).expect("the record is there");
        assert_eq!(whole.value, own.value, "a sender's header of this name changes nothing");
    }

    #[test]
    fn a_letter_is_restored_unchanged_with_one_redrive_more() {
        let record =
            sent("k.events", &[("app", "one"), ("kafka_replyTopic", "a.replies"), ("app", "two")]);
        let back = letter(&record).restored(&topics()).expect("an event");
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
        assert_eq!(again.restored(&topics()).expect("an event").headers, headers);
    }

    #[test]
    fn a_request_is_restored_with_a_new_time() {
        let back = letter(&sent("k.recalls", &[])).restored(&topics()).expect("a request");
        assert_eq!((back.topic.as_str(), back.timestamp_ms), ("k.recalls", None));
    }

    #[test]
    fn only_what_its_tenant_signed_is_signed_again() {
        let by_tenant = [("acme".to_owned(), SigningKey::of("a key of acme"))];
        let keys = TenantKeys { by_tenant: by_tenant.into(), others: true };
        let own = sent("k.events", &[("ce_id", "7")]);
        let (at, now) = (own.timestamp_ms, own.timestamp_ms + 1_000_000);
        let signed = |record: &Record, at| {
            let Record { topic, key, value, headers, .. } = record;
            let (key, value) = (key.as_deref(), value.as_deref());
            let parts = SignedParts { topic, partition: 2, key, value, headers };
            let mut signed = record.clone();
            let signature = keys.sign("acme", &parts, at).expect("a key").into_bytes();
            signed.headers.push((TENANT_SIGNATURE.into(), signature));
            signed
        };
        fn again(record: &Record, keys: &TenantKeys, now: i64) -> OutgoingRecord {
            let letter = letter(record);
            let restored = letter.restored(&topics()).expect("an event");
            letter.signed_again(restored, keys, now)
        }
        let back = again(&signed(&own, at), &keys, now);
        let OutgoingRecord { topic, key, value, headers, .. } = back.clone();
        let signature = header(&headers, TENANT_SIGNATURE);
        let (key, value) = (key.as_deref(), value.as_deref());
        let verified = SignedParts { topic: &topic, partition: 0, key, value, headers: &headers };
        assert_eq!(keys.verify("acme", &verified, signature, at), Ok(Some(Time(now))));

        // Once more, after becoming a dead letter again.
        let twice = Record { headers: back.headers, ..own.clone() };
        let back = again(&twice, &keys, now + 5);
        fn of(record: &OutgoingRecord) -> Option<String> {
            let signature = header(&record.headers, TENANT_SIGNATURE).unwrap_or_default();
            String::from_utf8_lossy(signature).split(':').next().map(str::to_owned)
        }
        assert_eq!(of(&back), Some((now + 5).to_string()));

        let none = TenantKeys { by_tenant: BTreeMap::new(), ..keys.clone() };
        assert_eq!(of(&again(&signed(&own, at), &none, now)), Some(at.to_string()), "no key here");
        let old = signed(&own, at - 400_000);
        assert_eq!(of(&again(&old, &keys, now)), Some((at - 400_000).to_string()), "too old");
        assert_eq!(of(&again(&own, &keys, now)), Some(String::new()), "never signed");
        let forbidden = Reject::new(RejectCode::Forbidden, "a copy");
        let letter = letter_of(&signed(&own, at), &forbidden);
        let restored = letter.restored(&topics()).expect("an event");
        assert_eq!(of(&letter.signed_again(restored, &keys, now)), Some(at.to_string()));
    }

    #[test]
    fn a_forwarded_record_is_restored_without_the_headers_that_would_hide_it() {
        let back = letter(&sent(
            "k.events",
            &[("keepsake-via", "1:5"), ("keepsake-origin", "k.events:1:5")],
        ))
        .restored(&topics());
        assert_eq!(back.expect("an event").headers.len(), 1);
    }

    #[test]
    fn a_letter_from_another_topic_is_refused() {
        for (letter, word) in [
            (letter(&sent("audit.log", &[])), "audit.log"),
            (
                letter(&sent("k.events", &[("keepsake-tenant", "copy"), ("keepsake-via", "1:5")])),
                "copy",
            ),
            (DeadLetter(sent("k.dead-letters", &[])), "not written by keepsake"),
        ] {
            let why = letter.restored(&topics()).expect_err("the source is none of the two topics");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_row_has_no_control_characters() {
        let row = letter(&sent("k.events", &[])).row(&topics());
        assert_eq!(
            (row[1].as_str(), row[4].as_str(), row[7].as_str()),
            ("events/2/7", "not-utf8", "acme/ada")
        );
        assert!(row.iter().all(|cell| !cell.contains('\u{1b}')), "{row:?}");
    }
}
