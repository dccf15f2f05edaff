//! Remembers which messages were imported, in a file of the data directory for each service, format
//! and user. A message is written after its receipt and never sent again, so nothing that was
//! forgotten or changed since comes back.
//!
//! The file has one id on each line, nothing of a text, and only grows: by the number of messages
//! in the source. The service itself recognises the last 1,000 ids of a user, which covers those
//! that were sent and whose receipt was lost.
//!
//! An import that sends everything again writes a mark before its ids and one behind them. Its
//! events have other ids, which the service does not know; one that was interrupted goes on.

use super::Format;
use domain::UserKey;
use domain::fault::{Fault, Result};
use settings::Config;
use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

const FOLDER: &str = "imports";
/// Marks of a round of `--again`. Ids begin with the name of a format.
const AGAIN: &str = "#again";
const END: &str = "#end";

/// Relation of a message to earlier imports and to the other messages of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    New,
    /// An earlier import sent it.
    Already,
    /// It stands in the files more than once, as the beginning of a resumed transcript does.
    Repeated,
}

pub struct Ledger {
    path: PathBuf,
    /// Sixteen bytes of each id.
    known: HashSet<Uuid>,
    met: HashSet<Uuid>,
    file: Option<File>,
    rounds: Rounds,
}

/// Rounds of `--again`.
#[derive(Default)]
struct Rounds {
    begun: usize,
    /// The ids of a round that has no end yet.
    open: Option<HashSet<Uuid>>,
    /// The round that this import is.
    own: Option<usize>,
}

impl Ledger {
    fn of(path: PathBuf) -> Ledger {
        let (known, met) = (HashSet::new(), HashSet::new());
        Ledger { path, known, met, file: None, rounds: Rounds::default() }
    }

    /// Reads the ledger; a dry run writes nothing.
    pub fn read(config: &Config, format: Format, key: &UserKey) -> Result<Ledger> {
        let mut ledger = Ledger::of(path(config, format, key));
        match File::open(&ledger.path) {
            Ok(file) => drop(ledger.fill(&file)?),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(ledger.unusable(&error)),
        }
        Ok(ledger)
    }

    /// Reads the ledger and holds it until the end of the process: a second import beside this one
    /// would send the same messages.
    pub fn open(config: &Config, format: Format, key: &UserKey) -> Result<Ledger> {
        let mut ledger = Ledger::of(path(config, format, key));
        let mut file = ledger.create().map_err(|e| ledger.unusable(&e))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let what = format!(
                    "another import of {} for {key} is running: wait for its end",
                    format.name()
                );
                return Err(Fault::retry(what));
            }
            Err(TryLockError::Error(error)) => return Err(ledger.unusable(&error)),
        }
        let is_whole = ledger.fill(&file)?;
        file.seek(SeekFrom::End(0)).map_err(|e| ledger.unusable(&e))?;
        if !is_whole {
            // The last line of an import that was killed. Its id was not written in full.
            file.write_all(b"\n").map_err(|e| ledger.unusable(&e))?;
        }
        ledger.file = Some(file);
        Ok(ledger)
    }

    fn create(&self) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)
    }

    /// Reads the ids, and returns whether the last line is whole.
    fn fill(&mut self, file: &File) -> Result<bool> {
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = lines.read_until(b'\n', &mut line).map_err(|e| self.unusable(&e))?;
            match (read, line.strip_suffix(b"\n")) {
                (0, _) => return Ok(true),
                (_, None) => return Ok(false),
                (_, Some(line)) => self.note(line),
            }
        }
    }

    fn note(&mut self, line: &[u8]) {
        match line {
            mark if mark == AGAIN.as_bytes() => {
                self.rounds.begun += 1;
                self.rounds.open = Some(HashSet::new());
            }
            mark if mark == END.as_bytes() => self.rounds.open = None,
            id => {
                if let Some(open) = &mut self.rounds.open {
                    open.insert(short(id));
                }
                self.known.insert(short(id));
            }
        }
    }

    /// Begins a round that sends everything again, or goes on with one that was interrupted.
    pub fn begin_again(&mut self) -> Result<()> {
        match self.rounds.open.take() {
            Some(open) => self.known = open,
            None => {
                self.known.clear();
                self.rounds.begun += 1;
                self.add([AGAIN].into_iter())?;
            }
        }
        self.rounds.own = Some(self.rounds.begun);
        Ok(())
    }

    /// Ends the round, after which another one would send everything once more.
    pub fn end(&mut self) -> Result<()> {
        match self.rounds.own {
            Some(_) => self.add([END].into_iter()),
            None => Ok(()),
        }
    }

    /// The id of the event that sends this message. The service knows those of earlier rounds.
    pub fn event_id(&self, id: &str) -> String {
        match self.rounds.own {
            Some(round) => format!("{id}~{round}"),
            None => id.to_owned(),
        }
    }

    /// Begins another pass over the same files.
    pub fn pass_again(&mut self) {
        self.met.clear();
    }

    pub fn standing(&mut self, id: &str) -> Standing {
        let id = short(id.as_bytes());
        if !self.met.insert(id) {
            return Standing::Repeated;
        }
        if self.known.contains(&id) { Standing::Already } else { Standing::New }
    }

    /// Writes the ids of messages that have a receipt.
    pub fn add<'a>(&mut self, ids: impl Iterator<Item = &'a str>) -> Result<()> {
        let lines: String = ids.map(|id| format!("{id}\n")).collect();
        let Some(file) = &mut self.file else { return Ok(()) };
        // One write, so that a kill leaves at most one line that is not whole.
        let written = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(|e| self.unusable(&e))
    }

    fn unusable(&self, error: &io::Error) -> Fault {
        Fault::retry(format!("cannot use {}: {error}", self.path.display()))
    }
}

fn short(id: &[u8]) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, id)
}

/// The file of a service, a format and a user. Another cluster has another file, because it knows
/// nothing of what was sent to this one.
fn path(config: &Config, format: Format, key: &UserKey) -> PathBuf {
    let servers = &config.kafka.bootstrap_servers;
    let whose = [servers.as_str(), &config.topics.events(), key.as_str()].join("\0");
    let name = format!("{}-{}.ids", format.name(), short(whose.as_bytes()));
    config.data.dir.join(FOLDER).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_id_that_was_written_is_known_and_half_a_line_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut layers = settings::Layers::defaults();
        layers.set("data.dir", &dir.path().join("data").to_string_lossy(), "test").expect("a path");
        let config = layers.checked().expect("the defaults are valid");
        let key = UserKey::new("default", "ada").expect("a plain name");
        let open = || Ledger::open(&config, Format::Codex, &key);
        let mut ledger = open().expect("a new file");
        assert_eq!(ledger.standing("a"), Standing::New);
        assert_eq!(ledger.standing("a"), Standing::Repeated);
        ledger.add(["a", "b"].into_iter()).expect("written");
        assert!(open().is_err(), "one import at a time");
        let path = ledger.path.clone();
        drop(ledger);
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut file = OpenOptions::new().append(true).open(&path).expect("the file");
        file.write_all(b"hal").expect("written");
        let mut ledger = open().expect("the file");
        assert_eq!(ledger.standing("hal"), Standing::New);
        ledger.add(["half"].into_iter()).expect("written");
        drop(ledger);
        let mut ledger = Ledger::read(&config, Format::Codex, &key).expect("the file");
        for known in ["a", "b", "half"] {
            assert_eq!(ledger.standing(known), Standing::Already, "{known}");
        }
        let again = || {
            let mut ledger = open().expect("the file");
            ledger.begin_again().expect("written");
            ledger
        };
        let mut ledger = again();
        assert_eq!((ledger.standing("a"), ledger.event_id("a")), (Standing::New, "a~1".to_owned()));
        ledger.add(["a"].into_iter()).expect("written");
        drop(ledger);
        let mut ledger = again();
        assert_eq!(ledger.event_id("b"), "b~1", "the round goes on");
        assert_eq!(
            [ledger.standing("a"), ledger.standing("b")],
            [Standing::Already, Standing::New]
        );
        ledger.end().expect("written");
        drop(ledger);
        assert_eq!(again().event_id("a"), "a~2");
        let other = UserKey::new("default", "bob").expect("a plain name");
        let mut ledger = Ledger::read(&config, Format::Codex, &other).expect("no file");
        assert_eq!(ledger.standing("a"), Standing::New);
    }
}
