//! The options of the gateway.

use super::ranges::{at_least_1, not_negative};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    pub listen: String,
    pub keys: String,
    pub tenant: String,
    pub hosts: Vec<String>,
    #[serde(deserialize_with = "at_least_1")]
    pub connections_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub in_flight_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub body_bytes_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub reply_ms: u64,
    #[serde(deserialize_with = "at_least_1")]
    pub idle_ms: u64,
    #[serde(deserialize_with = "not_negative")]
    pub requests_per_second: f64,
    #[serde(deserialize_with = "at_least_1")]
    pub streams_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub followed_max: usize,
}

impl Gateway {
    /// Without a file of keys, every caller on this machine is served.
    pub fn keys_file(&self) -> Option<&Path> {
        Some(Path::new(&self.keys)).filter(|file| !file.as_os_str().is_empty())
    }

    pub fn reply_within(&self) -> Duration {
        Duration::from_millis(self.reply_ms)
    }

    pub fn idle_max(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}
