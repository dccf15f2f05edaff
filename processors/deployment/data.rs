//! The data directory of the embedded log, `data.dir`: locked while its service runs, and private.
//!
//! ```text
//!   LOCK      held by the running service
//!   log/      the topics
//!   store/    the shards, unless store.dir names another place
//!   address   host:port of the running broker, for commands of this account
//!   service   version and process of the running service, and the files beside it: `presence.rs`
//!   secret    the password of the broker, if it has one
//!   model/    an encoder, if one was put there
//!   imports/  ids of messages that `keepsake import --from` has sent
//! ```
//!
//! Commands find the service by these files and never by a default port, on which the broker of
//! somebody else may listen.

use super::dir::{is_locked, unwritable};
use super::presence::{self, CLIENTS, Description, SERVICE, START};
use super::private::{self, Readers};
use domain::fault::{Fault, Result, StopName};
use settings::Config;
use settings::data_dir::{ADDRESS, LOCK, SECRET, read};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const LOG: &str = "log";
const STORE: &str = "store";
const MODEL: &str = "model";
/// A file is written under a name with this end and then renamed.
const NEW: &str = "new";

/// The data directory of the service in this process.
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Creates and locks the directory.
    pub fn open(config: &Config) -> Result<DataDir> {
        let path = &config.data.dir;
        make_private(path, config)?;
        let lock = lock(path)?;
        let data = DataDir { path: path.to_owned(), _lock: lock };
        // Left by a process that was killed.
        data.remove(ADDRESS)?;
        data.describe(&Description::of_this_process())?;
        Ok(data)
    }

    /// The directory of the topics.
    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Returns the password of the broker: a random one, made at the first start that wants one.
    pub fn secret(&self, is_wanted: bool) -> Result<Option<String>> {
        if !is_wanted {
            self.remove(SECRET)?;
            return Ok(None);
        }
        if let Some(secret) = read(&self.path.join(SECRET))? {
            return Ok(Some(secret));
        }
        let secret = settings::random_key();
        self.write(SECRET, &secret)?;
        Ok(Some(secret))
    }

    /// Lets commands of this account find the broker.
    pub fn write_address(&self, address: SocketAddr) -> Result<()> {
        self.write(ADDRESS, &address.to_string())
    }

    /// Lets clients of this account see which service runs here.
    pub fn describe(&self, description: &Description) -> Result<()> {
        self.write(SERVICE, &serde_json::json!(description).to_string())
    }

    /// Writes a file at once: a reader finds the whole file or none.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (file, new) = (self.path.join(name), self.path.join(name).with_extension(NEW));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options
            .open(&new)
            .and_then(|mut opened| opened.write_all(format!("{text}\n").as_bytes()))
            .and_then(|()| std::fs::rename(&new, &file))
            .map_err(|error| unwritable("cannot write", &file, &error))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let file = self.path.join(name);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(unwritable("cannot remove", &file, &error))
            }
            _ => Ok(()),
        }
    }
}

/// Order matters: the address goes while the lock is still held.
impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = self.remove(ADDRESS);
        let _ = self.remove(SERVICE);
    }
}

/// The directory of the topics of the embedded log.
pub fn log_dir(config: &Config) -> PathBuf {
    config.data.dir.join(LOG)
}

/// A data directory for a service that keeps nothing: removed at the end with all files.
pub struct TemporaryData {
    path: PathBuf,
}

impl TemporaryData {
    /// Moves the service of this configuration into a new directory and to a free port.
    pub fn of(config: &mut Config) -> Result<TemporaryData> {
        let name = format!("keepsake-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        // Fails if somebody has put anything there before.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| unwritable("cannot create", &path, &error))?;
        config.kafka.bootstrap_servers = "embedded".into();
        config.data.dir = path.clone();
        config.store.dir = path.join(STORE);
        config.embedded.listen = "127.0.0.1:0".into();
        Ok(TemporaryData { path })
    }
}

impl Drop for TemporaryData {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Creates the directory for this account alone, or takes the rights of others away. A directory
/// with files of others keeps its mode, unless others may write there.
fn make_private(dir: &Path, config: &Config) -> Result<()> {
    let about = |error| unwritable("cannot create", dir, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(about)?;
    let mode = std::fs::metadata(dir).map_err(about)?.permissions().mode();
    let readers = |name: &str| match Path::new(name).file_stem().and_then(OsStr::to_str) {
        Some(STORE | MODEL) => Some(Readers::Group),
        Some(LOCK | LOG | ADDRESS | SECRET | CLIENTS | START | SERVICE) => Some(Readers::Nobody),
        _ => None,
    };
    let mut entries = std::fs::read_dir(dir).map_err(about)?.flatten();
    let holds_others = entries.any(|entry| entry.file_name().to_str().and_then(readers).is_none());
    if holds_others && mode & 0o022 != 0 {
        let what = format!(
            "{} has other files, and others may write there: give a directory for the memories \
             alone with --data DIR",
            dir.display()
        );
        return Err(Fault::stop(StopName::StoreUnwritable, what));
    }
    private::make_private(dir, config, &readers);
    Ok(())
}

fn lock(dir: &Path) -> Result<File> {
    let file = File::create(dir.join(LOCK)).map_err(|e| unwritable("cannot lock", dir, &e))?;
    if is_locked(&file) { Ok(file) } else { Err(presence::in_use(dir)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;
    use settings::data_dir::connection;
    use std::fs::Permissions;

    fn config(dir: &Path) -> Config {
        let mut layers = Layers::defaults();
        layers.set("data.dir", &dir.to_string_lossy(), "test").expect("an option");
        layers.checked().expect("valid")
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
    }

    #[test]
    fn a_command_finds_the_service_of_its_directory_and_its_secret() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let dir = scratch.path().join("data");
        let config = config(&dir);
        let error = connection(&config).err().expect("nothing runs").to_string();
        for word in [&*dir.to_string_lossy(), "keepsake serve", "--data", "--brokers"] {
            assert!(error.contains(word), "{word}: {error}");
        }
        let data = DataDir::open(&config).expect("opens");
        assert!(matches!(connection(&config), Err(Fault::Retry(_))), "it has no address yet");
        let secret = data.secret(true).expect("writes").expect("wanted");
        data.write_address("127.0.0.1:9".parse().expect("an address")).expect("writes");
        let found = connection(&config).expect("it runs");
        assert_eq!(found.servers, "127.0.0.1:9");
        assert!(found.options.contains(&("sasl.password".to_owned(), secret.clone())));
        assert_eq!(data.secret(true).expect("reads"), Some(secret), "it stays the same");
        for (path, expected) in
            [(dir.clone(), 0o700), (dir.join(SECRET), 0o600), (dir.join(ADDRESS), 0o600)]
        {
            assert_eq!(mode(&path), expected, "{}", path.display());
        }
        assert_eq!(data.secret(false).expect("removes"), None);
        assert!(connection(&config).expect("it runs").options.is_empty());
        drop(data);
        assert!(connection(&config).is_err(), "it has ended");
    }

    #[test]
    fn the_address_of_a_killed_process_is_not_used() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(LOCK), "").expect("writes");
        std::fs::write(dir.path().join(ADDRESS), "127.0.0.1:9092").expect("writes");
        let error = connection(&config(dir.path())).err().expect("nobody holds the lock");
        assert!(error.to_string().contains("no keepsake runs on"), "{error}");
    }

    #[test]
    fn a_second_service_on_the_directory_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = config(dir.path());
        let _first = DataDir::open(&config).expect("opens");
        let error = DataDir::open(&config).err().expect("the first one holds the lock");
        assert!(error.to_string().contains("store-locked"), "{error}");
    }

    #[test]
    fn a_directory_becomes_private_unless_it_is_not_ours() {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let dir = scratch.path();
        for (name, before, after) in
            [("log", 0o755, Some(0o700)), ("notes.txt", 0o755, Some(0o755)), ("x", 0o777, None)]
        {
            std::fs::write(dir.join(name), "").expect("writes");
            std::fs::set_permissions(dir, Permissions::from_mode(before)).expect("sets the mode");
            assert_eq!(make_private(dir, &config(dir)).is_ok(), after.is_some(), "{name}");
            assert_eq!(mode(dir), after.unwrap_or(before), "{name}");
        }
    }
}
