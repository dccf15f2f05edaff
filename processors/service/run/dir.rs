//! The directory of one process, `store.dir`: locked while the process runs. Besides the shards,
//! the directory holds `LOCK`, `instance.id`, `marks.key` and the address of an embedded broker.

use crate::config::Config;
use domain::fault::{Fault, Result, StopName};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the file with the address of the embedded broker, for clients on this machine.
pub const EMBEDDED_ADDRESS: &str = "embedded-broker";

/// Returns the directory of the shards. The embedded broker loses its log with the process, so its
/// shards live apart from those of a real log.
pub fn store_dir(config: &Config) -> PathBuf {
    if config.kafka.is_embedded() {
        config.store.dir.join("embedded")
    } else {
        config.store.dir.clone()
    }
}

/// Returns the id of this store, which becomes a part of the transactional id, and the id of a
/// static group member. The id stays with the directory: a process that continues from a store
/// fences the one that used the store before.
pub fn instance_id(dir: &Path) -> Result<String> {
    let file = dir.join("instance.id");
    match std::fs::read_to_string(&file) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(unwritable("cannot read", &file, &error))
        }
        _ => {
            let id = uuid::Uuid::new_v4().simple().to_string();
            std::fs::write(&file, &id)
                .map_err(|error| unwritable("cannot write", &file, &error))?;
            Ok(id)
        }
    }
}

/// Creates the directory and locks it. The lock lasts as long as the returned file is open.
pub fn lock_dir(dir: &Path) -> Result<File> {
    let file = std::fs::create_dir_all(dir)
        .and_then(|()| File::create(dir.join("LOCK")))
        .map_err(|error| unwritable("cannot create", dir, &error))?;
    file.try_lock().map_err(|_| {
        let what = format!(
            "{} is in use by another keepsake: stop it, or set store.dir to another directory",
            dir.display()
        );
        Fault::stop(StopName::StoreLocked, what)
    })?;
    Ok(file)
}

/// Empties the directory of an embedded broker, whose log begins empty, and writes the broker's
/// address there.
pub fn begin_empty(dir: &Path, servers: &str) -> Result<()> {
    empty(dir)
        .and_then(|()| std::fs::write(dir.join(EMBEDDED_ADDRESS), servers))
        .map_err(|error| unwritable("cannot empty", dir, &error))
}

fn empty(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn unwritable(what: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::stop(StopName::StoreUnwritable, format!("{what} {}: {error}", path.display()))
}
