//! The options of tracing.

use super::{endpoint, invalid};
use serde::Deserialize;
use spans::Headers;
use std::time::Duration;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tracing {
    pub endpoint: String,
    pub ratio: f64,
    pub headers_file: String,
    pub headers_env: String,
    pub service: String,
    pub users: bool,
    pub links_max: usize,
    pub spans_max: usize,
    pub batch_max: usize,
    pub every_ms: u64,
    pub timeout_ms: u64,
}

impl Tracing {
    pub fn is_on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// Reads the headers from their file or their variable.
    pub fn headers(&self) -> Result<Headers, String> {
        let file = ("tracing.headers_file", self.headers_file.as_str());
        let variable = ("tracing.headers_env", self.headers_env.as_str());
        let headers = endpoint::secret(file, variable, "the text", Headers::of)?;
        Ok(headers.unwrap_or_default())
    }

    /// Checks all that needs no collector.
    pub fn checked(&self) -> Result<(), String> {
        self.headers()?;
        if !(0.0..=1.0).contains(&self.ratio) {
            return Err(format!("tracing.ratio: must be 0 to 1, not {}", self.ratio));
        }
        if !self.is_on() {
            return Ok(());
        }
        let secrets = "tracing.headers_file or tracing.headers_env";
        endpoint::check("tracing.endpoint", &self.endpoint, secrets)
    }

    /// Options of the exporter of spans; `None` if `tracing.endpoint` is empty.
    pub fn exporter(&self) -> domain::fault::Result<Option<spans::Options>> {
        if !self.is_on() {
            return Ok(None);
        }
        Ok(Some(spans::Options {
            endpoint: self.endpoint.clone(),
            headers: self.headers().map_err(invalid)?,
            service: self.service.clone(),
            ratio: self.ratio,
            users: self.users,
            links_max: self.links_max,
            queue_max: self.spans_max,
            batch_max: self.batch_max,
            every: Duration::from_millis(self.every_ms),
            timeout: Duration::from_millis(self.timeout_ms),
        }))
    }
}
