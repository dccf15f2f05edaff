//! The directory of the shards of one process, `store.dir`: locked while the process runs. Besides
//! the shards, the directory holds `LOCK`, `instance.id` and `marks.key`.

use super::private::Readers;
use domain::fault::{Fault, Result, StopName};
use settings::Config;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

const LOCK_ATTEMPTS: usize = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

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

/// The readers of an entry that a service makes in `store.dir`. `None`: another program made the entry.
pub fn readers_of(name: &str, config: &Config) -> Option<Readers> {
    let is_shard = name.starts_with(&format!("{}events", config.topics.prefix));
    let is_own = ["LOCK", "instance.id"].contains(&name) || name.starts_with("marks.key");
    match is_shard {
        true => Some(Readers::Group),
        false => is_own.then_some(Readers::Nobody),
    }
}

/// Creates and locks the directory. The lock lasts as long as the returned file is open.
pub fn lock_dir(dir: &Path) -> Result<File> {
    let file = std::fs::create_dir_all(dir)
        .and_then(|()| File::create(dir.join("LOCK")))
        .map_err(|error| unwritable("cannot create", dir, &error))?;
    if is_locked(&file) {
        return Ok(file);
    }
    let what = format!(
        "{} is in use by another keepsake: stop it, or set store.dir to another directory",
        dir.display()
    );
    Err(Fault::stop(StopName::StoreLocked, what))
}

/// Locks the file, and waits a fifth of a second for an owner that gives the lock up. A program that the
/// owner starts holds the lock too until it runs, and a command that looks for the service holds it for
/// some microseconds.
pub(super) fn is_locked(file: &File) -> bool {
    (0..LOCK_ATTEMPTS).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(LOCK_PAUSE);
        }
        file.try_lock().is_ok()
    })
}

pub fn unwritable(what: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::stop(StopName::StoreUnwritable, format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_gives_up_just_now_is_waited_for() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let held = lock_dir(dir.path()).expect("nobody has locked it");
        let owner = std::thread::spawn(move || {
            std::thread::sleep(LOCK_PAUSE * 3);
            drop(held);
        });
        lock_dir(dir.path()).expect("the owner ends");
        owner.join().expect("it only drops the file");
    }
}
