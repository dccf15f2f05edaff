//! Makes the reader of values with a schema from the options of the schema registry.

use super::endpoint;
use super::schemas::Schemas;
use contract::decode;
use registry::{Bounds, Limits, Login, Registry, RegistryOptions};
use std::sync::Arc;
use std::time::Duration;

impl Schemas {
    /// Checks the log-in. The error names the place and never the text.
    pub(super) fn check_login(&self) -> Result<(), String> {
        self.login().map(drop)
    }

    /// Reads the log-in from its file or its variable.
    fn login(&self) -> Result<Option<Login>, String> {
        endpoint::secret("schemas.login", &self.login, "the log-in", Login::of)
    }

    /// Returns `None` if `schemas.registry` is empty. Each thread that decodes has its own reader, so
    /// that none waits for the lookup of another.
    pub(super) fn reader(&self, json_bytes_max: usize) -> Option<Arc<dyn decode::Schemas>> {
        if !self.is_on() {
            return None;
        }
        Some(Arc::new(Registry::new(RegistryOptions {
            url: self.registry.clone(),
            login: self.login().expect("the log-in was checked at start"),
            timeout: Duration::from_millis(self.timeout_ms),
            lookups: Bounds::default(),
            limits: Limits { json_bytes_max, ..Limits::default() },
        })))
    }
}
