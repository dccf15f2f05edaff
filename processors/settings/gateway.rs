//! The options of the gateway.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    pub listen: String,
    pub keys: String,
    pub tenant: String,
    pub hosts: Vec<String>,
    pub connections_max: usize,
    pub in_flight_max: usize,
    pub body_bytes_max: usize,
    pub body_ms: u64,
    pub reply_ms: u64,
    pub idle_ms: u64,
    pub requests_per_second: f64,
    pub remembered_max: usize,
    pub listed_max: usize,
    pub streams_max: usize,
    pub page_records_max: usize,
    pub followed_max: usize,
    pub redriven_max: usize,
    pub import_bytes_max: usize,
}
