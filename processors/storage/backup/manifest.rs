//! The manifest of a backup: the only list of its files.

use super::segment::{FileFacts, damaged, unwritable};
use crate::store::Digest;
use crate::store::format::check_version;
use domain::fault::{Fault, Result, StopName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The version of the manifest and of the files. A newer one is refused.
pub const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";
/// Ending of the files with records.
pub const RECORDS: &str = ".records";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Version of the program that wrote the manifest.
    pub keepsake: String,
    /// RFC 3339.
    pub began_at: String,
    pub ended_at: String,
    pub cluster: String,
    pub events_topic: String,
    pub memories_topic: String,
    pub partitions: i32,
    /// Version of the shards' records ([`crate::store::format::VERSION`]).
    pub state_format: u8,
    /// The encoder of the vectors; empty if no shard has applied an event.
    pub model: String,
    pub dimensions: u32,
    /// Digest of the service's signing key, by which a restore compares it with the target's.
    pub signing_key: Option<String>,
    pub shards: Vec<Shard>,
}

/// One partition of the memories topic and of the events topic.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Shard {
    pub partition: i32,
    /// Offset of the last event applied; -1 before the first.
    pub applied_offset: i64,
    /// The changelog was read up to, and without, this offset.
    pub changelog_end: i64,
    pub epoch: u64,
    /// The fields `records` and `digest`, which is 32 hexadecimal digits.
    #[serde(flatten)]
    pub digest: Digest,
    pub memories: u64,
    /// The digest is the one that the writer of the shard had noted. False if the last meta
    /// record has none.
    pub proven: bool,
    /// Memories that a later file removes or replaces, while an earlier one still has their texts.
    pub superseded: u64,
    pub files: Vec<SegmentFile>,
    pub events: Events,
}

/// Records of the memories topic, in the order of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SegmentFile {
    pub file: String,
    pub from: i64,
    pub end: i64,
    #[serde(flatten)]
    pub facts: FileFacts,
}

/// The events of a partition that the shard had not applied, up to an end that lies behind
/// everything any shard of the backup has seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Events {
    pub end: i64,
    pub file: Option<SegmentFile>,
    /// The last records before `end`, by which a restore recognises the same log.
    pub witnesses: Vec<Witness>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    pub offset: i64,
    pub timestamp_ms: i64,
    /// XXH3-128 of timestamp, key, value and headers, in hexadecimal.
    pub hash: String,
}

impl Shard {
    fn all_files(&self) -> impl Iterator<Item = &SegmentFile> {
        self.files.iter().chain(&self.events.file)
    }

    pub fn bytes(&self) -> u64 {
        self.all_files().map(|file| file.facts.bytes).sum()
    }
}

impl Manifest {
    /// Reads the manifest of a directory. `None` if there is no backup yet.
    pub fn found(dir: &Path) -> Result<Option<Manifest>> {
        let path = dir.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| damaged(&path, &error.to_string()))?,
        };
        /// Every format has `format`; the rest of the manifest is read by formats up to [`FORMAT`] only.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
            #[serde(default)]
            state_format: u8,
        }
        let version: Version =
            serde_json::from_str(&text).map_err(|error| damaged(&path, &error.to_string()))?;
        if version.format > FORMAT {
            let what = format!(
                "{} has the format {}, this keepsake reads up to {FORMAT}: use the newer one",
                path.display(),
                version.format
            );
            return Err(Fault::stop(StopName::StoreNewer, what));
        }
        check_version(version.state_format)
            .map_err(|fault| fault.about(format!("the backup in {}", dir.display())))?;
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|error| damaged(&path, &error.to_string()))?;
        manifest.check_names(&path)?;
        Ok(Some(manifest))
    }

    pub fn read(dir: &Path) -> Result<Manifest> {
        Manifest::found(dir)?.ok_or_else(|| {
            let what = format!("{} has no {NAME}: it is no backup", dir.display());
            Fault::stop(StopName::BackupDamaged, what)
        })
    }

    /// Refuses names of files that lie elsewhere, and shards that are missing.
    fn check_names(&self, path: &Path) -> Result<()> {
        fn is_name(name: &str) -> bool {
            name.ends_with(RECORDS)
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        }
        if let Some(file) = self.files().find(|file| !is_name(&file.file)) {
            return Err(damaged(path, &format!("{:?} is no name of a file of it", file.file)));
        }
        let partitions: Vec<i32> = self.shards.iter().map(|shard| shard.partition).collect();
        if partitions != (0..self.partitions).collect::<Vec<i32>>() {
            return Err(damaged(path, "it does not list every partition once"));
        }
        Ok(())
    }

    pub fn files(&self) -> impl Iterator<Item = &SegmentFile> {
        self.shards.iter().flat_map(Shard::all_files)
    }

    /// Replaces the manifest in one step. Order matters: the files that it names are on the disk.
    pub fn store(&self, dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        let new = dir.join("manifest.json.new");
        let text = serde_json::to_vec_pretty(self).expect("numbers and strings are always JSON");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let stored = options.open(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            File::open(dir)?.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(dir)?.sync_all()
        });
        stored.map_err(|error| unwritable(&path, &error))
    }

    /// Removes files of earlier and of interrupted backups. Returns their number.
    pub fn remove_others(&self, dir: &Path) -> Result<usize> {
        let kept: BTreeSet<&str> = self.files().map(|file| file.file.as_str()).collect();
        let mut removed = 0;
        let entries = std::fs::read_dir(dir).map_err(|error| unwritable(dir, &error))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours = name.ends_with(RECORDS) || name.ends_with(".part");
            if is_ours && !kept.contains(name.as_str()) {
                std::fs::remove_file(entry.path())
                    .map_err(|error| unwritable(&entry.path(), &error))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::format::VERSION;
    use serde_json::json;

    #[test]
    fn a_backup_of_another_version_stops_by_name() {
        for (manifest, name) in [
            (json!({"format": FORMAT + 1, "state_format": VERSION}), StopName::StoreNewer),
            (json!({"format": FORMAT + 1}), StopName::StoreNewer),
            (json!({"format": FORMAT, "state_format": VERSION + 1}), StopName::StoreNewer),
            (json!({"format": FORMAT, "state_format": VERSION - 1}), StopName::StoreOlder),
            (json!({"format": FORMAT}), StopName::StoreOlder),
        ] {
            let dir = tempfile::tempdir().expect("a folder");
            std::fs::write(dir.path().join(NAME), manifest.to_string()).expect("a disk");
            match Manifest::read(dir.path()) {
                Err(Fault::Stop(stop)) => assert_eq!(stop.name, name, "{}", stop.what),
                other => panic!("{other:?}"),
            }
        }
    }
}
