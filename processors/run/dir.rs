//! The directory of a process: locked while it runs, with the names that it keeps there.

use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file that tells clients on this machine where the embedded broker listens.
pub const EMBEDDED_ADDRESS: &str = "embedded-broker";

/// The embedded broker forgets with the process, so its shards live apart from those of a real log.
pub fn store_dir(config: &Config) -> PathBuf {
    if config.kafka.is_embedded() {
        config.store.dir.join("embedded")
    } else {
        config.store.dir.clone()
    }
}

/// The name under which this store's process writes transactions, whoever runs it and wherever it is moved.
pub fn instance_id(dir: &Path) -> Result<String> {
    let file = dir.join("instance.id");
    let about = |error: std::io::Error| {
        Fault::stop(StopName::StoreUnwritable, format!("{}: {error}", file.display()))
    };
    match std::fs::read_to_string(&file) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(about(error)),
        _ => {
            let id = uuid::Uuid::new_v4().simple().to_string();
            std::fs::write(&file, &id).map_err(about)?;
            Ok(id)
        }
    }
}

/// Held as long as the file is: nobody else serves from this directory.
pub fn lock_dir(dir: &Path) -> Result<File> {
    let about = |e: std::io::Error| {
        Fault::stop(StopName::StoreUnwritable, format!("makes {}: {e}", dir.display()))
    };
    std::fs::create_dir_all(dir).map_err(about)?;
    let file = File::create(dir.join("LOCK")).map_err(about)?;
    file.try_lock().map_err(|_| {
        let what = format!(
            "{} is in use by another keepsake: stop it, or set store.dir to another directory",
            dir.display()
        );
        Fault::stop(StopName::StoreLocked, what)
    })?;
    Ok(file)
}

/// Both the embedded broker and its store begin empty; clients of this machine find the broker here.
pub fn begin_empty(dir: &Path, servers: &str) -> Result<()> {
    let about = |e: std::io::Error| {
        Fault::stop(StopName::StoreUnwritable, format!("empties {}: {e}", dir.display()))
    };
    for entry in std::fs::read_dir(dir).map_err(about)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(entry.path()).map_err(about)?;
        }
    }
    std::fs::write(dir.join(EMBEDDED_ADDRESS), servers).map_err(about)
}
