//! Where the broker keeps its log and listens, and by which clock it goes.

use super::disk::{Disk, LocalDisk};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The user name of clients that log in.
pub const USER: &str = "keepsake";

/// Where the broker keeps its log and listens.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Directory of the log, which is made with mode 0700.
    pub dir: PathBuf,
    /// A loopback address. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// If set, clients log in by SASL PLAIN with this password and the user name [`USER`].
    pub secret: Option<String>,
    pub connections_max: usize,
    /// Bytes of each of the two files of the journal.
    pub journal_bytes: u64,
    /// How often old segments are looked for.
    pub clean_every: Duration,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn WallClock>,
}

impl EmbeddedOptions {
    pub fn new(dir: PathBuf, listen: SocketAddr) -> EmbeddedOptions {
        EmbeddedOptions {
            dir,
            listen,
            secret: None,
            connections_max: 512,
            journal_bytes: 16 << 20,
            clean_every: Duration::from_secs(60),
            disk: Arc::new(LocalDisk),
            clock: Arc::new(SystemTime),
        }
    }

    /// Compares `\0user\0password` in a time that does not depend on the place of a difference.
    pub fn accepts(&self, login: &[u8]) -> bool {
        let Some(secret) = &self.secret else { return true };
        let expected = [b"\0", USER.as_bytes(), b"\0", secret.as_bytes()].concat();
        let differences = expected.iter().zip(login).fold(0, |all, (a, b)| all | (a ^ b));
        expected.len() == login.len() && differences == 0
    }
}

/// Wall time, which tests set.
pub trait WallClock: Send + Sync + std::fmt::Debug {
    fn now_ms(&self) -> i64;
}

#[derive(Debug)]
pub struct SystemTime;

impl WallClock for SystemTime {
    fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        since.as_millis() as i64
    }
}
