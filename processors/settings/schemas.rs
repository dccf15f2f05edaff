//! The options of the schema registry.

use super::endpoint;
use super::ranges::at_least_1;
use registry::Login;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schemas {
    pub registry: String,
    pub login: String,
    #[serde(deserialize_with = "at_least_1")]
    pub timeout_ms: u64,
}

impl Schemas {
    pub fn is_on(&self) -> bool {
        !self.registry.is_empty()
    }

    /// Reads the log-in from its file or its variable.
    pub fn login(&self) -> Result<Option<Login>, String> {
        endpoint::secret("schemas.login", &self.login, "the log-in", Login::of)
    }

    /// Checks all that needs no registry.
    pub fn checked(&self) -> Result<(), String> {
        self.login()?;
        if !self.is_on() {
            return Ok(());
        }
        endpoint::check("schemas.registry", &self.registry, "schemas.login")
    }
}
