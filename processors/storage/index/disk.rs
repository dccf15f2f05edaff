//! Opens, writes and commits the tantivy directory of one shard. Each commit carries a note: the
//! format and the position up to which the index has applied the store ([`Checkpoint`]).
//!
//! The directory is derived data: an index that does not open, is damaged or has another format,
//! stemmer or generation is removed and started anew, never repaired.

use super::document::Document;
use super::search_cache::SearchCache;
use super::segments::{SchemaFields, Segments, TERMS_FIELD, terms_of};
use super::tokens::{KEYED, KeyedTokenizer};
use crate::checkpoint::Checkpoint;
use domain::fault::{Fault, Result, StopName};
use domain::{MemoryId, UserKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tantivy::directory::error::LockError;
use tantivy::index::{SegmentId, SegmentMeta};
use tantivy::indexer::{IndexWriterOptions, LogMergePolicy, NoMergePolicy};
use tantivy::schema::Schema;
use tantivy::{
    FutureResult, IndexReader, IndexSettings, IndexWriter, ReloadPolicy, SegmentReader,
    TantivyError,
};
use text::STEMS_VERSION;

/// Must change with the written form of a document: fields, terms, lengths.
const FORMAT: u32 = 4;

/// The write buffer of one flush, released after it: 10,000 documents of 80 words fit. Documents beyond
/// that become further segments, which are merged at once and double the work.
const WRITER_BYTES: usize = 64_000_000;

/// A segment with more deleted documents than this is merged. The default of tantivy never merges
/// because of deletions.
const DEAD_RATIO_MAX: f32 = 0.2;

#[derive(Clone, Copy, Debug)]
pub struct IndexOptions {
    /// Documents in the in-memory segment at which ingest waits for the flush: twice those that
    /// trigger it.
    pub mem_segment_max: usize,
    /// Limit of the search cache of one shard.
    pub documents_bytes_max: usize,
    /// Vectors from which on a user has a file of them: fewer are read from the store in a
    /// millisecond.
    pub vectors_filed_min: usize,
}

impl Default for IndexOptions {
    fn default() -> IndexOptions {
        IndexOptions {
            mem_segment_max: 20_000,
            documents_bytes_max: 1 << 19,
            vectors_filed_min: 200,
        }
    }
}

pub struct IndexDir {
    /// `None` only while the directory is being closed.
    writer: Option<IndexWriter>,
    /// A write has failed: the writer may have lost the thread that would take the next documents,
    /// and would commit without them.
    has_failed: bool,
    reader: IndexReader,
    schema: Schema,
    fields: SchemaFields,
    cache: Arc<SearchCache>,
    generation: String,
}

/// Waits five seconds in all, like the store for its own lock.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

pub struct OpenedDir {
    pub dir: IndexDir,
    /// The checkpoint of the last commit.
    pub checkpoint: Option<Checkpoint>,
    /// The reason for which a former index was removed.
    pub discarded: Option<String>,
}

/// The payload of a commit, as JSON. A reader of another format must still find these names.
#[derive(Serialize, Deserialize)]
struct CommitNote {
    format: u32,
    stems: u32,
    generation: String,
    /// The applied event offset.
    #[serde(rename = "mark")]
    applied: i64,
    changelog: Option<i64>,
}

impl IndexDir {
    pub fn open(path: &Path, options: IndexOptions, generation: &str) -> Result<OpenedDir> {
        IndexDir::open_or_create(path, options, generation)
            .map_err(|fault| fault.about(format_args!("opens the index {}", path.display())))
    }

    fn open_or_create(path: &Path, options: IndexOptions, generation: &str) -> Result<OpenedDir> {
        let (index, checkpoint, discarded) = match open_existing(path, generation) {
            Ok(Some((index, checkpoint))) => (index, checkpoint, None),
            Ok(None) => (create(path)?, None, None),
            Err(why) => (create(path)?, None, Some(why)),
        };
        let dir = IndexDir::of(index, options, generation).map_err(unopened)?;
        Ok(OpenedDir { dir, checkpoint, discarded })
    }

    fn of(
        index: tantivy::Index,
        options: IndexOptions,
        generation: &str,
    ) -> tantivy::Result<IndexDir> {
        index.tokenizers().register(KEYED, KeyedTokenizer::default());
        let cache = Arc::new(SearchCache::new(options.documents_bytes_max));
        let options = IndexWriterOptions::builder()
            .memory_budget_per_thread(WRITER_BYTES)
            .num_worker_threads(1)
            .num_merge_threads(1)
            .build();
        let writer = unlocked(|| index.writer_with_options(options.clone()))?;
        // A killed process may leave files that no commit names, under names that the next commit
        // uses again.
        writer.garbage_collect_files().wait()?;
        let mut policy = LogMergePolicy::default();
        policy.set_del_docs_ratio_before_merge(DEAD_RATIO_MAX);
        writer.set_merge_policy(Box::new(policy));
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?;
        let (schema, fields) = SchemaFields::schema();
        Ok(IndexDir {
            writer: Some(writer),
            has_failed: false,
            reader,
            schema,
            fields,
            cache,
            generation: generation.to_owned(),
        })
    }

    /// Opens the segments of the last commit.
    pub fn segments(&self) -> Result<Segments> {
        self.reader
            .reload()
            .and_then(|()| {
                Segments::of(self.reader.searcher(), self.fields, Arc::clone(&self.cache))
            })
            .map_err(unreadable)
    }

    /// Writes upserts and removals as one commit, all or nothing. After a failure nothing more is
    /// written until the directory is opened again.
    pub fn commit<'d>(
        &mut self,
        mut changes: impl Iterator<Item = (&'d UserKey, MemoryId, Option<&'d Document>)>,
        checkpoint: Checkpoint,
    ) -> Result<()> {
        if std::mem::replace(&mut self.has_failed, true) {
            return Err(unwritable("a write before has failed"));
        }
        changes
            .try_for_each(|(key, id, document)| self.write(key, id, document))
            .map_err(unwritable)?;
        let note = CommitNote {
            format: FORMAT,
            stems: STEMS_VERSION,
            generation: self.generation.clone(),
            applied: checkpoint.applied,
            changelog: checkpoint.changelog,
        };
        let note = serde_json::to_string(&note).expect("numbers and a string are always JSON");
        let mut commit = self.writer().prepare_commit().map_err(unwritable)?;
        commit.set_payload(&note);
        commit.commit().map_err(unwritable)?;
        self.has_failed = false;
        Ok(())
    }

    /// Returns the segments that hold deleted documents. A segment keeps the terms of its deleted
    /// documents until the next merge.
    pub fn holding_deleted(&mut self) -> Result<Vec<SegmentId>> {
        let metas = self.writer().index().searchable_segment_metas().map_err(unreadable)?;
        let holding = metas.iter().filter(|meta| meta.num_deleted_docs() > 0);
        Ok(holding.map(SegmentMeta::id).collect())
    }

    /// Begins to write a segment anew without its deleted documents. The caller waits for the
    /// result, which is an error if a merge of the merge policy has replaced the segment meanwhile.
    pub fn begin_merge(&mut self, segment: SegmentId) -> FutureResult<Option<SegmentMeta>> {
        self.writer().merge(&[segment])
    }

    /// Removes the files that no commit and no reader uses any more.
    pub fn remove_unused_files(&mut self) -> Result<()> {
        self.writer().garbage_collect_files().wait().map(drop).map_err(unwritable)
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
        self.writer.as_mut().expect("only `drop` takes the writer")
    }
}

impl Drop for IndexDir {
    /// Waits for the running merge: a merge writes the result and removes files, and the next owner
    /// of the directory would miss one of them.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.set_merge_policy(Box::new(NoMergePolicy));
            if let Err(error) = writer.wait_merging_threads() {
                tracing::warn!(%error, "cannot finish a merge of the index");
            }
        }
    }
}

/// Tries again while the directory is locked: an index that was closed a moment ago stays locked
/// until its running merge ends.
fn unlocked(open: impl Fn() -> tantivy::Result<IndexWriter>) -> tantivy::Result<IndexWriter> {
    for _ in 0..LOCK_TRIES {
        match open() {
            Err(TantivyError::LockFailure(LockError::LockBusy, _)) => {
                std::thread::sleep(LOCK_PAUSE)
            }
            opened => return opened,
        }
    }
    open()
}

/// Lists the terms of a user in the index at `path`, those of deleted documents included, and
/// changes nothing: works beside a process that has the index open, and on an index set aside.
/// Empty if there is no index.
pub fn terms_on_disk(path: &Path, key: &UserKey) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    if !path.join("meta.json").exists() {
        return Ok(found);
    }
    let index = tantivy::Index::open_in_dir(path).map_err(unreadable)?;
    let field = index.schema().get_field(TERMS_FIELD).map_err(unreadable)?;
    for segment in index.searchable_segments().map_err(unreadable)? {
        let terms = SegmentReader::open(&segment)
            .and_then(|reader| terms_of(&*reader.inverted_index(field)?, key, ""))
            .map_err(unreadable)?;
        found.extend(terms);
    }
    Ok(found)
}

type Existing = (tantivy::Index, Option<Checkpoint>);

/// Opens the existing index with the checkpoint of its last commit. `None` if there is no index; an
/// error gives the reason for which the index cannot be kept.
fn open_existing(dir: &Path, generation: &str) -> std::result::Result<Option<Existing>, String> {
    if !dir.join("meta.json").exists() {
        return Ok(None);
    }
    let index = tantivy::Index::open_in_dir(dir).map_err(|error| error.to_string())?;
    let damaged = index.validate_checksum().map_err(|error| error.to_string())?;
    if let Some(file) = damaged.iter().next() {
        return Err(format!("a file is damaged: {}", file.display()));
    }
    if index.schema() != SchemaFields::schema().0 {
        return Err("it has other fields".to_owned());
    }
    let meta = index.load_metas().map_err(|error| error.to_string())?;
    let checkpoint = meta.payload.map(|note| checkpoint_of(&note, generation)).transpose()?;
    Ok(Some((index, checkpoint)))
}

fn checkpoint_of(note: &str, generation: &str) -> std::result::Result<Checkpoint, String> {
    let note: CommitNote = serde_json::from_str(note)
        .map_err(|error| format!("the note of its last commit cannot be read: {error}"))?;
    if note.format != FORMAT {
        Err(format!("its format is {}, not {FORMAT}", note.format))
    } else if note.stems != STEMS_VERSION {
        Err(format!("its stemmer has version {}, not {STEMS_VERSION}", note.stems))
    } else if note.generation != generation {
        Err(format!("its generation is {}, not {generation}", note.generation))
    } else {
        Ok(Checkpoint { applied: note.applied, changelog: note.changelog })
    }
}

fn create(dir: &Path) -> Result<tantivy::Index> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(unwritable)?;
    }
    std::fs::create_dir_all(dir).map_err(unwritable)?;
    let settings =
        IndexSettings { docstore_compress_dedicated_thread: false, ..IndexSettings::default() };
    tantivy::Index::builder()
        .schema(SchemaFields::schema().0)
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
