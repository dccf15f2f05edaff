//! The options of the schema registry.

use super::endpoint;
use super::ranges::at_least_1;
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

    /// Checks all that needs no registry.
    pub fn checked(&self) -> Result<(), String> {
        self.check_login()?;
        if !self.is_on() {
            return Ok(());
        }
        endpoint::check("schemas.registry", &self.registry, "schemas.login")
    }
}
