//! The rules by which the service accepts a record: the service's decoder and limits, so that a
//! client refuses a message before writing it to a topic.

use crate::sign;
use broker::clock::{Clock, SystemClock};
use broker::{Headers, OutgoingRecord, Record};
use contract::decode::{self, DecodeOptions};
use domain::fault::Reject;
use settings::Config;

#[derive(Clone, Debug)]
pub struct Rules {
    events: String,
    decode: DecodeOptions,
}

impl Rules {
    pub fn of(config: &Config) -> Rules {
        Rules { events: config.topics.events(), decode: config.decoding() }
    }

    /// Returns why the service would refuse a signed record of the events or of the recalls topic.
    pub fn check(&self, signed: &OutgoingRecord) -> Result<(), Reject> {
        let OutgoingRecord { topic, key, value, headers, .. } = signed.clone();
        let timestamp_ms = SystemClock.wall().0;
        let record = Record { topic, timestamp_ms, key, value, headers, ..Record::default() };
        if record.topic == self.events {
            decode::event(&record, &self.decode).outcome.map(drop)
        } else {
            decode::request(&record, &self.decode).outcome.map(drop)
        }
    }

    /// Like [`Rules::check`], for the value of an event that is not signed yet.
    pub fn check_event(&self, key: &str, event: &serde_json::Value) -> Result<(), Reject> {
        self.event(key, event, Headers::new()).map(drop)
    }

    /// Builds the signed record of an event, or returns why the service would refuse it.
    pub fn event(
        &self,
        key: &str,
        event: &serde_json::Value,
        headers: Headers,
    ) -> Result<OutgoingRecord, Reject> {
        let mut signed = OutgoingRecord {
            topic: self.events.clone(),
            key: Some(key.as_bytes().to_vec()),
            value: Some(event.to_string().into_bytes()),
            headers,
            ..OutgoingRecord::default()
        };
        sign(&mut signed, &self.decode.tenants);
        self.check(&signed)?;
        Ok(signed)
    }

    /// Reads the JSON object of a record of any topic, within the limits of the service.
    pub fn body(&self, record: &Record) -> Result<serde_json::Value, Reject> {
        decode::body_of(record, &self.decode)
    }
}
