//! A file of records: as read from a topic, one behind the other. Knows nothing of their meaning.
//!
//! ```text
//! "keepsake backup 1\n"
//! each record: u32 length of the rest │ i64 offset │ i64 timestamp │ key │ value │ u32 headers
//!              │ name and value of each header
//! key, value, name: u32 length │ bytes; the length u32::MAX stands for none
//! ```
//!
//! All numbers are big-endian.

use broker::Record;
use domain::fault::{Fault, Result, StopName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const BEGINNING: &[u8] = b"keepsake backup 1\n";
/// Longest record that is read. Topics take 33 MB at most, so a longer one is damage.
const RECORD_BYTES_MAX: usize = 64 << 20;
const NONE: u32 = u32::MAX;
const BUFFER: usize = 1 << 20;

/// Size and checksum of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub records: u64,
    pub bytes: u64,
    /// SHA-256 in hexadecimal, as `sha256sum` prints it.
    pub sha256: String,
}

/// Writes a file and computes its checksum from the bytes that were meant.
pub struct Writer {
    out: BufWriter<File>,
    path: PathBuf,
    hash: Sha256,
    facts: FileFacts,
    buffer: Vec<u8>,
}

impl Writer {
    /// Creates the file, readable by this account alone.
    pub fn create(path: &Path) -> Result<Writer> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path).map_err(|error| unwritable(path, &error))?;
        let mut writer = Writer {
            out: BufWriter::with_capacity(BUFFER, file),
            path: path.to_owned(),
            hash: Sha256::new(),
            facts: FileFacts::default(),
            buffer: BEGINNING.to_vec(),
        };
        writer.put()?;
        Ok(writer)
    }

    pub fn write(&mut self, record: &Record) -> Result<()> {
        self.buffer.clear();
        encode(record, &mut self.buffer);
        self.put()?;
        self.facts.records += 1;
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        self.hash.update(&self.buffer);
        self.facts.bytes += self.buffer.len() as u64;
        self.out.write_all(&self.buffer).map_err(|error| unwritable(&self.path, &error))
    }

    /// Waits until the bytes are on the disk.
    pub fn finish(self) -> Result<FileFacts> {
        let Writer { out, path, hash, facts, .. } = self;
        let file = out.into_inner().map_err(|error| unwritable(&path, error.error()))?;
        file.sync_all().map_err(|error| unwritable(&path, &error))?;
        Ok(FileFacts { sha256: hex::encode(hash.finalize()), ..facts })
    }
}

/// Reads a file record by record.
pub struct Reader {
    from: BufReader<File>,
    path: PathBuf,
    hash: Sha256,
    facts: FileFacts,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader> {
        let file = File::open(path).map_err(|error| damaged(path, &error.to_string()))?;
        let mut reader = Reader {
            from: BufReader::with_capacity(BUFFER, file),
            path: path.to_owned(),
            hash: Sha256::new(),
            facts: FileFacts::default(),
        };
        let mut beginning = [0; BEGINNING.len()];
        reader.exactly(&mut beginning)?;
        if beginning != BEGINNING {
            return Err(damaged(path, "it does not begin as a file of a backup does"));
        }
        Ok(reader)
    }

    /// Returns the next record, or `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        fn is_at_end(error: &std::io::Error) -> bool {
            error.kind() == std::io::ErrorKind::UnexpectedEof
        }
        let mut length = [0; 4];
        match self.from.read_exact(&mut length[..1]) {
            Err(error) if is_at_end(&error) => return Ok(None),
            read => read.map_err(|error| damaged(&self.path, &error.to_string()))?,
        }
        let rest = self.from.read_exact(&mut length[1..]);
        rest.map_err(|error| damaged(&self.path, &error.to_string()))?;
        self.note(&length);
        let length = u32::from_be_bytes(length) as usize;
        if length > RECORD_BYTES_MAX {
            return Err(damaged(&self.path, "a record is longer than any topic takes"));
        }
        let mut body = vec![0; length];
        self.exactly(&mut body)?;
        self.facts.records += 1;
        let record = decode(&body);
        record.map(Some).ok_or_else(|| damaged(&self.path, "a record cannot be read"))
    }

    fn exactly(&mut self, bytes: &mut [u8]) -> Result<()> {
        let read = self.from.read_exact(bytes);
        read.map_err(|error| damaged(&self.path, &error.to_string()))?;
        self.note(bytes);
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.facts.bytes += bytes.len() as u64;
    }

    /// Compares the bytes read, which must be the whole file, with the manifest.
    pub fn check(self, expected: &FileFacts) -> Result<()> {
        let found = FileFacts { sha256: hex::encode(self.hash.finalize()), ..self.facts };
        if found == *expected {
            return Ok(());
        }
        let what = format!(
            "it has {} records in {} bytes with the SHA-256 {}, the manifest says {} in {} with {}",
            found.records,
            found.bytes,
            found.sha256,
            expected.records,
            expected.bytes,
            expected.sha256
        );
        Err(damaged(&self.path, &what))
    }
}

/// Passes each record of a file to `visit`, then compares the file with the manifest. Limit:
/// records before a damaged byte are visited first.
pub fn each(
    path: &Path,
    expected: &FileFacts,
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let mut reader = Reader::open(path)?;
    while let Some(record) = reader.next_record()? {
        if let Err(fault) = visit(record) {
            // A record that a damaged byte has changed may be refused for another reason.
            while reader.next_record()?.is_some() {}
            reader.check(expected)?;
            return Err(fault);
        }
    }
    reader.check(expected)
}

pub fn damaged(path: &Path, why: &str) -> Fault {
    Fault::stop(StopName::BackupDamaged, format!("{}: {why}", path.display()))
}

pub fn unwritable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::stop(StopName::StoreUnwritable, format!("{}: {error}", path.display()))
}

fn encode(record: &Record, bytes: &mut Vec<u8>) {
    bytes.extend([0; 4]);
    bytes.extend(record.offset.to_be_bytes());
    bytes.extend(record.timestamp_ms.to_be_bytes());
    put(bytes, record.key.as_deref());
    put(bytes, record.value.as_deref());
    bytes.extend((record.headers.len() as u32).to_be_bytes());
    for (name, value) in &record.headers {
        put(bytes, Some(name.as_bytes()));
        put(bytes, Some(value));
    }
    let length = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
}

fn put(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    bytes.extend(part.map_or(NONE, |part| part.len() as u32).to_be_bytes());
    bytes.extend(part.unwrap_or_default());
}

fn decode(mut body: &[u8]) -> Option<Record> {
    let offset = i64::from_be_bytes(taken(&mut body)?);
    let timestamp_ms = i64::from_be_bytes(taken(&mut body)?);
    let key = part(&mut body)?;
    let value = part(&mut body)?;
    let count = u32::from_be_bytes(taken(&mut body)?);
    let mut headers = Vec::new();
    for _ in 0..count {
        let name = String::from_utf8(part(&mut body)??).ok()?;
        headers.push((name, part(&mut body)??));
    }
    let record = Record { offset, timestamp_ms, key, value, headers, ..Record::default() };
    body.is_empty().then_some(record)
}

fn taken<const N: usize>(body: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = body.split_first_chunk::<N>()?;
    *body = rest;
    Some(*first)
}

fn part(body: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    let length = u32::from_be_bytes(taken(body)?);
    if length == NONE {
        return Some(None);
    }
    let (part, rest) = body.split_at_checked(length as usize)?;
    *body = rest;
    Some(Some(part.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let all = [
            (Some("acme/zoe/g"), Some("{}"), vec![("keepsake-state".to_owned(), vec![7, 0, 255])]),
            (Some("acme/zoe/x.00"), None, vec![]),
            (None, Some(""), vec![("a".to_owned(), vec![]), ("a".to_owned(), vec![1])]),
        ];
        let numbered = (5..).zip(all);
        numbered
            .map(|(offset, (key, value, headers))| Record {
                offset,
                timestamp_ms: 1_700_000_000_000 + offset,
                key: key.map(|key| key.as_bytes().to_vec()),
                value: value.map(|value| value.as_bytes().to_vec()),
                headers,
                ..Record::default()
            })
            .collect()
    }

    fn written(path: &Path) -> FileFacts {
        let mut writer = Writer::create(path).expect("a temporary directory is writable");
        records().iter().for_each(|record| writer.write(record).expect("there is space"));
        writer.finish().expect("there is space")
    }

    fn read(path: &Path, facts: &FileFacts) -> Result<Vec<Record>> {
        let mut all = Vec::new();
        each(path, facts, &mut |record| {
            all.push(record);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("p0");
        let facts = written(&path);
        let (ours, theirs) = (records(), read(&path, &facts).expect("the file is whole"));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
        assert_eq!(facts.records, 3);
        assert_eq!(facts.bytes, std::fs::metadata(&path).expect("it is there").len());
    }

    /// Law readable-forever: the bytes of a format never change.
    #[test]
    fn the_bytes_of_a_file_never_change() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let facts = written(&dir.path().join("p0"));
        assert_eq!(
            facts.sha256,
            "83ae20e5d0072430360a382c282dec079cdd7dbdedd7df87b46b393a0cb1cdbd"
        );
    }

    #[test]
    fn every_bit_that_flips_and_every_byte_that_is_missing_is_found_and_the_file_named() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("p0");
        let facts = written(&path);
        let whole = std::fs::read(&path).expect("it is there");
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &bytes).expect("a temporary directory is writable");
            let fault = read(&path, &facts).expect_err("a bit has changed").to_string();
            assert!(fault.contains("p0") && fault.contains("backup-damaged"), "{bit}: {fault}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).expect("a temporary directory is writable");
            read(&path, &facts).expect_err("bytes are missing");
        }
    }
}
