//! The sections of the configuration for the embedded log: where files are kept, how clients
//! connect, and how long a service stays that a client started.

use super::ranges::at_least_1;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Absolute, and never empty once the options are checked.
    pub dir: PathBuf,
    pub group_may_read: bool,
}

/// The options of `keepsake mcp`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mcp {
    #[serde(deserialize_with = "at_least_1")]
    pub idle_ms: u64,
}

/// The options of the broker in this process, the embedded log.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedLog {
    pub listen: String,
    pub secret: bool,
}

impl EmbeddedLog {
    /// Returns the loopback address, or an error about the option.
    pub fn address(&self) -> Result<SocketAddr, String> {
        let address: Option<SocketAddr> = self.listen.parse().ok();
        address.filter(|address| address.ip().is_loopback()).ok_or_else(|| {
            format!(
                "embedded.listen: must be a loopback address with a port such as 127.0.0.1:9092, \
                 not \"{}\". Loopback only, always: the embedded log has neither TLS nor rights",
                self.listen
            )
        })
    }
}
