//! The options of the schema registry.

use super::endpoint;
use registry::Login;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schemas {
    pub registry: String,
    pub login_file: String,
    pub login_env: String,
    pub timeout_ms: u64,
    pub pause_ms: i64,
    pub unknown_ms: i64,
    pub lookups_per_second: f64,
    pub lookups_burst: f64,
    pub time_share: f64,
    pub time_burst_ms: f64,
    pub kept_max: usize,
    pub bytes_max: usize,
    pub references_max: usize,
    pub depth_max: usize,
}

impl Schemas {
    pub fn is_on(&self) -> bool {
        !self.registry.is_empty()
    }

    /// Reads the log-in from a file or a variable. The error names the place and never the
    /// text.
    pub fn login(&self) -> Result<Option<Login>, String> {
        let file = ("schemas.login_file", self.login_file.as_str());
        let variable = ("schemas.login_env", self.login_env.as_str());
        endpoint::secret(file, variable, "the log-in", Login::of)
    }

    /// Checks all that needs no registry.
    pub fn checked(&self) -> Result<(), String> {
        self.login()?;
        for (path, value) in [
            ("schemas.pause_ms", self.pause_ms as f64),
            ("schemas.unknown_ms", self.unknown_ms as f64),
            ("schemas.lookups_per_second", self.lookups_per_second),
            ("schemas.lookups_burst", self.lookups_burst),
            ("schemas.time_burst_ms", self.time_burst_ms),
        ] {
            if !(value >= 1.0 && value.is_finite()) {
                return Err(format!("{path}: must be at least 1"));
            }
        }
        if !(self.time_share > 0.0 && self.time_share <= 1.0) {
            return Err("schemas.time_share: must be above 0 and at most 1".into());
        }
        if !self.is_on() {
            return Ok(());
        }
        let secrets = "schemas.login_file or schemas.login_env";
        endpoint::check("schemas.registry", &self.registry, secrets)
    }
}
