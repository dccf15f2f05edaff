//! Finds the service that runs on the data directory of the embedded log, by the files that the
//! service leaves there (`deployment/data.rs`).

use super::config::Config;
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

pub const LOCK: &str = "LOCK";
pub const ADDRESS: &str = "address";
pub const SECRET: &str = "secret";

/// Connects to the broker of the service that runs on the configured data directory.
pub fn connection(config: &Config) -> Result<Connection> {
    let dir = &config.data.dir;
    if !is_locked(dir)? {
        let what = format!(
            "no keepsake runs on {}: start `keepsake serve`, name the directory of another service \
             with --data DIR, or a cluster with --brokers host:port",
            dir.display()
        );
        return Err(Fault::stop(StopName::BrokerUnreachable, what));
    }
    let Some(servers) = read(&dir.join(ADDRESS))? else {
        let what = format!("the keepsake on {} starts or stops: try again", dir.display());
        return Err(Fault::retry(what));
    };
    let secret = read(&dir.join(SECRET))?;
    Ok(Connection { servers, options: options(config, secret.as_deref()) })
}

/// The options of a client of the embedded broker.
pub fn options(config: &Config, secret: Option<&str>) -> Vec<(String, String)> {
    let mut options = config.kafka.client_options();
    if let Some(secret) = secret {
        let login = [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "keepsake"),
            ("sasl.password", secret),
        ];
        options.extend(login.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    options
}

/// Returns whether a service runs on the directory. The file of a killed process is not locked.
pub fn is_locked(dir: &Path) -> Result<bool> {
    let file = dir.join(LOCK);
    let lock = match File::open(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unreadable(&file, &error)),
        Ok(lock) => lock,
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(unreadable(&file, &error)),
    }
}

pub fn read(file: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(file, &error)),
    }
}

pub fn unreadable(file: &Path, error: &std::io::Error) -> Fault {
    let what = format!("cannot read {}: {error}", file.display());
    Fault::stop(StopName::BrokerUnreachable, what)
}
