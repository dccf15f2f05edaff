//! The directory of the words on disk: opened or begun anew, written to, committed with a note of how far it has read the store.
//! It is derived: what does not open, or was made otherwise, is removed, never repaired.

use super::owned::Owners;
use super::segments::{Fields, Segments};
use super::tokens::{KEYED, Keyed};
use super::{Document, Options};
use crate::domain::{MemoryId, UserKey};
use crate::fault::{Fault, Result, StopName};
use crate::text::{STEMS_VERSION, Words};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use tantivy::directory::error::LockError;
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy, NoMergePolicy};
use tantivy::schema::Schema;
use tantivy::{IndexReader, IndexSettings, IndexWriter, ReloadPolicy, TantivyError};

/// Changes with anything that is written differently: fields, terms, lengths.
const FORMAT: u32 = 4;

/// tantivy refuses less.
const WRITER_BYTES_MIN: usize = 15_000_000;

/// A segment of which a fifth is dead is written anew; tantivy's own default never does.
const DEAD_RATIO_MAX: f32 = 0.2;

pub struct Disk {
    /// None: it is being closed.
    writer: Option<IndexWriter>,
    reader: IndexReader,
    schema: Schema,
    fields: Fields,
    owners: Arc<Owners>,
    generation: String,
}

pub struct Opened {
    pub disk: Disk,
    pub mark: Option<i64>,
    /// Why a former index was thrown away, if one was.
    pub discarded: Option<String>,
}

/// What a commit says about itself. A reader of another format must still find these names.
#[derive(Serialize, Deserialize)]
struct Note {
    format: u32,
    stems: u32,
    generation: String,
    mark: i64,
}

impl Disk {
    pub fn open(dir: &Path, options: Options, generation: &str) -> Result<Opened> {
        let about = |fault: Fault| fault.about(format_args!("opens the index {}", dir.display()));
        let (index, mark, discarded) = match kept(dir, generation) {
            Ok(Some((index, mark))) => (index, mark, None),
            Ok(None) => (begun(dir).map_err(about)?, None, None),
            Err(why) => (begun(dir).map_err(about)?, None, Some(why)),
        };
        let disk = Disk::of(index, options, generation).map_err(|error| about(unopened(error)))?;
        Ok(Opened { disk, mark, discarded })
    }

    fn of(index: tantivy::Index, options: Options, generation: &str) -> tantivy::Result<Disk> {
        index.tokenizers().register(KEYED, Keyed::default());
        let owners = Arc::new(Owners::new(options.documents_bytes_max));
        let options = IndexWriterOptions::builder()
            .memory_budget_per_thread(options.writer_bytes.max(WRITER_BYTES_MIN))
            .num_worker_threads(1)
            .num_merge_threads(1)
            .build();
        let writer = index.writer_with_options(options)?;
        // A process that was killed may have left files that no commit names, under names that the next commit wants.
        writer.garbage_collect_files().wait()?;
        let mut policy = LogMergePolicy::default();
        policy.set_del_docs_ratio_before_merge(DEAD_RATIO_MAX);
        writer.set_merge_policy(Box::new(policy));
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        let (schema, fields) = Fields::schema();
        Ok(Disk {
            writer: Some(writer),
            reader,
            schema,
            fields,
            owners,
            generation: generation.to_owned(),
        })
    }

    /// The last commit, read.
    pub fn segments(&self) -> Result<Segments> {
        let read = || Segments::of(self.reader.searcher(), self.fields, Arc::clone(&self.owners));
        self.reader.reload().and_then(|()| read()).map_err(unreadable)
    }

    /// Upserts and removes, all or nothing. After a failure the same changes, and others, may be written again.
    pub fn commit<'d>(
        &mut self,
        mut changes: impl Iterator<Item = (&'d UserKey, MemoryId, Option<&'d Document>)>,
        mark: i64,
    ) -> Result<()> {
        let written = Words::remembering(|| {
            changes.try_for_each(|(key, id, document)| self.write(key, id, document))
        });
        written.map_err(unwritable)?;
        let note = Note {
            format: FORMAT,
            stems: STEMS_VERSION,
            generation: self.generation.clone(),
            mark,
        };
        let note = serde_json::to_string(&note).expect("numbers and a string are always JSON");
        let mut commit = self.writer().prepare_commit().map_err(unwritable)?;
        commit.set_payload(&note);
        commit.commit().map_err(unwritable)?;
        Ok(())
    }

    fn write(
        &mut self,
        key: &UserKey,
        id: MemoryId,
        document: Option<&Document>,
    ) -> tantivy::Result<()> {
        let id = self.fields.id_term(key, id);
        let document =
            document.map(|document| self.fields.document(&self.schema, document)).transpose()?;
        let writer = self.writer();
        writer.delete_term(id);
        document.map_or(Ok(()), |document| writer.add_document(document).map(drop))
    }

    fn writer(&mut self) -> &mut IndexWriter {
        self.writer.as_mut().expect("it is there until it is closed")
    }
}

impl Drop for Disk {
    /// Waits for the merge that is under way: it writes down its outcome and removes files, and whoever opens the directory next would miss
    /// one of them.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.set_merge_policy(Box::new(NoMergePolicy));
            if let Err(error) = writer.wait_merging_threads() {
                tracing::warn!(%error, "ends a merge of the index");
            }
        }
    }
}

/// The index that is there, if it is whole and was made as we would make it; none if there is none; why it cannot be kept.
fn kept(
    dir: &Path,
    generation: &str,
) -> std::result::Result<Option<(tantivy::Index, Option<i64>)>, String> {
    if !dir.join("meta.json").exists() {
        return Ok(None);
    }
    let index = tantivy::Index::open_in_dir(dir).map_err(|error| error.to_string())?;
    let damaged = index.validate_checksum().map_err(|error| error.to_string())?;
    if let Some(file) = damaged.iter().next() {
        return Err(format!("a file is damaged: {}", file.display()));
    }
    if index.schema() != Fields::schema().0 {
        return Err("it has other fields".to_owned());
    }
    let meta = index.load_metas().map_err(|error| error.to_string())?;
    let mark = meta.payload.map(|note| mark_of(&note, generation)).transpose()?;
    Ok(Some((index, mark)))
}

fn mark_of(note: &str, generation: &str) -> std::result::Result<i64, String> {
    let note: Note =
        serde_json::from_str(note).map_err(|error| format!("its note cannot be read: {error}"))?;
    if note.format != FORMAT {
        Err(format!("its format is {}, not {FORMAT}", note.format))
    } else if note.stems != STEMS_VERSION {
        Err(format!("its stems are of version {}, not {STEMS_VERSION}", note.stems))
    } else if note.generation != generation {
        Err(format!("its generation is {}, not {generation}", note.generation))
    } else {
        Ok(note.mark)
    }
}

fn begun(dir: &Path) -> Result<tantivy::Index> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(unwritable)?;
    }
    std::fs::create_dir_all(dir).map_err(unwritable)?;
    let settings =
        IndexSettings { docstore_compress_dedicated_thread: false, ..IndexSettings::default() };
    tantivy::Index::builder()
        .schema(Fields::schema().0)
        .settings(settings)
        .create_in_dir(dir)
        .map_err(unwritable)
}

fn unopened(error: TantivyError) -> Fault {
    match error {
        TantivyError::LockFailure(LockError::LockBusy, _) => {
            Fault::stop(StopName::StoreLocked, "another process writes to it")
        }
        other => unwritable(other),
    }
}

fn unwritable(error: impl std::fmt::Display) -> Fault {
    Fault::stop(StopName::IndexUnwritable, format!("writes the index: {error}"))
}

pub fn unreadable(error: impl std::fmt::Display) -> Fault {
    Fault::stop(StopName::IndexUnwritable, format!("reads the index: {error}"))
}
