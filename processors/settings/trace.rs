//! The options of tracing.

use super::endpoint;
use super::ranges::{at_least_1, share};
use domain::fault::{Fault, StopName};
use serde::Deserialize;
use spans::Headers;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tracing {
    pub endpoint: String,
    #[serde(deserialize_with = "share")]
    pub ratio: f64,
    pub headers: String,
    pub service: String,
    pub users: bool,
    #[serde(deserialize_with = "at_least_1")]
    pub spans_max: usize,
}

impl Tracing {
    pub fn is_on(&self) -> bool {
        !self.endpoint.is_empty()
    }

    /// Reads the headers from their file or their variable.
    pub fn headers(&self) -> Result<Headers, String> {
        let headers = endpoint::secret("tracing.headers", &self.headers, "the text", Headers::of)?;
        Ok(headers.unwrap_or_default())
    }

    /// Checks all that needs no collector.
    pub fn checked(&self) -> Result<(), String> {
        self.headers()?;
        if !self.is_on() {
            return Ok(());
        }
        endpoint::check("tracing.endpoint", &self.endpoint, "tracing.headers")
    }

    /// Options of the exporter of spans; `None` if `tracing.endpoint` is empty.
    pub fn exporter(&self) -> domain::fault::Result<Option<spans::SpanOptions>> {
        if !self.is_on() {
            return Ok(None);
        }
        Ok(Some(spans::SpanOptions {
            endpoint: self.endpoint.clone(),
            headers: self.headers().map_err(|why| Fault::stop(StopName::ConfigInvalid, why))?,
            service: self.service.clone(),
            ratio: self.ratio,
            users: self.users,
            queue_max: self.spans_max,
            ..spans::SpanOptions::default()
        }))
    }
}
