//! The service of a data directory as other processes see it: running or not, the version, and the
//! clients for which a service stays up that a client started.
//!
//! ```text
//!   service   version, process id and explorer of the running service, as JSON
//!   CLIENTS   locked shared by each `keepsake mcp`, and exclusively by a service that ends
//!   START     locked by the client that starts a service, then by that service
//! ```
//!
//! The kernel releases the locks of a process that is killed, so nothing here goes stale.

use super::dir::unwritable;
use domain::fault::{Fault, Result, StopName};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use settings::Config;
use settings::data_dir::{is_locked, read, unreadable};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

pub const CLIENTS: &str = "CLIENTS";
pub const START: &str = "START";
pub const SERVICE: &str = "service";
/// Output of a service that a client started.
pub const LOG: &str = "service.log";

/// The description that a service leaves in its data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    pub version: String,
    pub pid: u32,
    /// Whether the service answers for all partitions.
    pub is_ready: bool,
    /// Address of the web pages, if the gateway runs in the same process.
    pub explorer: Option<String>,
    /// Started by a client, so the service ends after the last client.
    pub is_for_clients: bool,
}

impl Description {
    /// Describes this process, not ready yet.
    pub fn of_this_process() -> Description {
        Description {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            is_ready: false,
            explorer: None,
            is_for_clients: false,
        }
    }

    pub fn is_of_this_version(&self) -> bool {
        self.version == env!("CARGO_PKG_VERSION")
    }
}

/// Returns the description of the service that runs on the directory. `None`: none runs there. A
/// service that is opening the log has left no description yet, or there is still that of a killed
/// one: the result then has no version.
pub fn running(dir: &Path) -> Result<Option<Description>> {
    if !is_locked(dir)? {
        return Ok(None);
    }
    let text = read(&dir.join(SERVICE))?.unwrap_or_default();
    let unknown = Description { version: String::new(), pid: 0, ..Description::of_this_process() };
    let found = serde_json::from_str(&text).ok().filter(|it: &Description| is_alive(it.pid));
    Ok(Some(found.unwrap_or(unknown)))
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Lets a service stay for this process until the returned file is closed. `None`: the service ends
/// at this moment.
pub fn stay_for_this_process(config: &Config) -> Result<Option<File>> {
    let file = opened(config, CLIENTS)?;
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(unreadable(&config.data.dir.join(CLIENTS), &error)),
    }
}

/// Returns whether no client is there. While the returned file is open, none can come. Makes no
/// directory: one that is gone is a fault.
pub fn without_clients(config: &Config) -> Result<Option<File>> {
    let path = config.data.dir.join(CLIENTS);
    let file = lockable().open(&path).map_err(|error| unreadable(&path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(unreadable(&path, &error)),
    }
}

/// Opens for reading and writing: on NFS a shared lock needs the one and an exclusive lock the
/// other.
fn lockable() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

/// Returns the right to start a service on the directory, unless another process has the right. A
/// service that inherits the file keeps the right until the end of the process.
pub fn may_start(config: &Config) -> Result<Option<File>> {
    let file = opened(config, START)?;
    Ok(file.try_lock().is_ok().then_some(file))
}

/// Opens the log of a service that a client starts, and empties a long one.
pub fn open_log(config: &Config) -> Result<File> {
    /// Some 8,000 lines, months of starts.
    const BYTES_MAX: u64 = 1 << 20;
    let path = config.data.dir.join(LOG);
    let about = |error| unwritable("cannot write", &path, &error);
    let file =
        OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(about)?;
    if file.metadata().map_err(about)?.len() > BYTES_MAX {
        file.set_len(0).map_err(about)?;
    }
    Ok(file)
}

fn opened(config: &Config, name: &str) -> Result<File> {
    let (dir, path) = (&config.data.dir, config.data.dir.join(name));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| unwritable("cannot create", dir, &error))?;
    let file = lockable().create(true).truncate(false).mode(0o600).open(&path);
    file.map_err(|error| unwritable("cannot lock", &path, &error))
}

/// Names the service that runs on the directory, for a message: process, origin and pages.
pub fn named(dir: &Path) -> String {
    let found = running(dir).ok().flatten().filter(|found| found.pid != 0);
    let Some(Description { pid, explorer, is_for_clients, .. }) = found else {
        return String::new();
    };
    let origin = if is_for_clients { ", started by `keepsake mcp`" } else { "" };
    let pages = explorer.map_or(String::new(), |explorer| format!(", explorer at {explorer}"));
    format!(" (process {pid}{origin}{pages})")
}

/// The fault of a service that finds another one on its directory.
pub fn in_use(dir: &Path) -> Fault {
    let what = format!(
        "{} is in use by another keepsake{}: stop that one, or give another directory with --data DIR",
        dir.display(),
        named(dir)
    );
    Fault::stop(StopName::StoreLocked, what)
}

/// The fault of a client that finds a service of another version.
pub fn another_version(dir: &Path, found: &Description) -> Fault {
    let (ours, dir) = (env!("CARGO_PKG_VERSION"), dir.display());
    let (theirs, end) = match (found.version.as_str(), found.pid) {
        ("", _) | (_, 0) => ("another version".to_owned(), "stop it".to_owned()),
        (version, pid) => (format!("version {version}"), format!("stop it with `kill {pid}`")),
    };
    Fault::retry(format!(
        "the keepsake service on {dir} is {theirs} and this program is version {ours}; they are not \
         mixed: {end} and try again, or use the program of that version"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataDir;
    use settings::Layers;

    fn config(dir: &Path) -> Config {
        let mut layers = Layers::defaults();
        layers.set("data.dir", &dir.to_string_lossy(), "test").expect("an option");
        layers.checked().expect("valid")
    }

    #[test]
    fn a_service_ends_only_without_clients_and_one_client_starts_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = config(&dir.path().join("new"));
        let stay = || stay_for_this_process(&config).expect("opens");
        let (first, second) = (stay().expect("no service ends"), stay().expect("nor now"));
        let without = || without_clients(&config).expect("opens");
        drop(first);
        assert!(without().is_none(), "the second client is there");
        drop(second);
        let ending = without().expect("nobody is there");
        assert!(stay().is_none(), "the service ends");
        drop(ending);
        assert!(stay().is_some());

        let start = may_start(&config).expect("opens");
        assert!(start.is_some() && may_start(&config).expect("opens").is_none());
    }

    #[test]
    fn the_description_that_a_killed_service_left_is_not_believed() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let (dir, config) = (scratch.path(), config(scratch.path()));
        assert_eq!(running(dir).expect("reads"), None);
        let data = DataDir::open(&config).expect("opens");
        assert_eq!(running(dir).expect("reads"), Some(Description::of_this_process()));
        let mut ended = std::process::Command::new("true").spawn().expect("a program");
        ended.wait().expect("it ends");
        let left =
            Description { pid: ended.id(), is_ready: true, ..Description::of_this_process() };
        data.describe(&left).expect("writes");
        let found = running(dir).expect("reads").expect("the directory is locked");
        assert!(!found.is_ready && found.version.is_empty(), "{found:?}");
    }

    #[test]
    fn another_version_is_named_with_the_way_to_stop_it() {
        let mut found = Description::of_this_process();
        assert!(found.is_of_this_version());
        (found.version, found.pid) = ("9.1.0".into(), 4711);
        let told = another_version(Path::new("/d"), &found).to_string();
        for word in ["/d", "9.1.0", env!("CARGO_PKG_VERSION"), "kill 4711"] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
}
