//! Reads the text index of one tantivy commit: which documents a user has, and which of them
//! contain the words of a query. The in-memory segments, which are newer, are not known here.
//!
//! Invariant: a search for one user cannot reach the postings of another, because every term begins
//! with the `tenant/user` key (see `tokens.rs`) and no user can spell the key of another.
//!
//! `gather` runs once for each search:
//!
//! 1. Take the user's live documents of each segment from the [`SearchCache`], as ascending document
//!    numbers with rows (id and lengths).
//! 2. Find those that a newer layer hides.
//! 3. For each query word and segment, take the rows that have the word from the [`SearchCache`], or
//!    walk the postings of the word, search each document in the document list, and count the
//!    positions: a position is the number of a field, not a place in the text.

use super::bm25::{DocRows, Held, Matches, Part, QueryMatches};
use super::document::{Document, FieldCounts, Lengths};
use super::search_cache::{SearchCache, Stamp};
use super::tokens::{KEYED, behind, joined, user_term};
use domain::{MemoryId, UserKey};
use std::collections::BTreeSet;
use std::sync::Arc;
use tantivy::columnar::ColumnValues;
use tantivy::error::DataCorruption;
use tantivy::postings::{Postings, TermInfo};
use tantivy::schema::{
    BytesOptions, Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::{
    DocId, DocSet, InvertedIndexReader, Searcher, SegmentReader, TERMINATED, TantivyDocument, Term,
};
use uuid::Uuid;

/// The fields of the tantivy schema. No stored fields and no field norms: lengths are kept exactly
/// in a column, contents live in the store.
#[derive(Clone, Copy)]
pub struct SchemaFields {
    terms: Field,
    /// The user's key and the id as one term, for deletion and listing.
    id: Field,
}

/// Name of the field that holds the keyed terms.
pub const TERMS_FIELD: &str = "terms";
const ID_HIGH: &str = "id_high";
const ID_LOW: &str = "id_low";
const LENGTHS: &str = "lengths";

impl SchemaFields {
    pub fn schema() -> (Schema, SchemaFields) {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(KEYED)
            .set_fieldnorms(false)
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        let terms = schema
            .add_text_field(TERMS_FIELD, TextOptions::default().set_indexing_options(indexing));
        let id = schema.add_bytes_field("id", BytesOptions::default().set_indexed());
        for name in [ID_HIGH, ID_LOW, LENGTHS] {
            schema.add_u64_field(name, NumericOptions::default().set_fast());
        }
        (schema.build(), SchemaFields { terms, id })
    }

    pub fn document(
        &self,
        schema: &Schema,
        document: &Document,
    ) -> tantivy::Result<TantivyDocument> {
        let (high, low) = document.id.0.as_u64_pair();
        let mut written = TantivyDocument::default();
        let text = document.text();
        written.add_text(self.terms, joined(&document.key, &text));
        written.add_bytes(self.id, &id_bytes(&document.key, document.id));
        for (name, value) in [(ID_HIGH, high), (ID_LOW, low), (LENGTHS, text.lengths().packed())] {
            written.add_u64(schema.get_field(name)?, value);
        }
        Ok(written)
    }

    pub fn id_term(&self, key: &UserKey, id: MemoryId) -> Term {
        Term::from_field_bytes(self.id, &id_bytes(key, id))
    }
}

/// Joins key and id without a separator: the id is the last 16 bytes. The key comes first, because
/// the term dictionary stores a common prefix once.
fn id_bytes(key: &UserKey, id: MemoryId) -> Vec<u8> {
    [key.as_str().as_bytes(), id.0.as_bytes()].concat()
}

/// The reverse of `id_bytes`. Terms come in order, so the key of the previous term is tried first:
/// mostly both belong to the same user.
fn key_and_id(bytes: &[u8], previous: Option<&UserKey>) -> Option<(UserKey, MemoryId)> {
    let (key, id) = bytes.split_last_chunk::<16>()?;
    let key = match previous {
        Some(previous) if previous.as_str().as_bytes() == key => previous.clone(),
        _ => UserKey::parse(std::str::from_utf8(key).ok()?)?,
    };
    Some((key, MemoryId(Uuid::from_bytes(*id))))
}

/// The segments of one commit.
pub struct Segments {
    fields: SchemaFields,
    all: Vec<DiskSegment>,
    cache: Arc<SearchCache>,
    /// Keeps tantivy from deleting the files of this commit.
    _searcher: Option<Searcher>,
}

/// Invariant: every document has one value in each column, so that the number of a document is its
/// row in a column.
struct DiskSegment {
    reader: SegmentReader,
    terms: Arc<InvertedIndexReader>,
    id_high: Arc<dyn ColumnValues<u64>>,
    id_low: Arc<dyn ColumnValues<u64>>,
    lengths: Arc<dyn ColumnValues<u64>>,
}

impl Segments {
    pub fn of(
        searcher: Searcher,
        fields: SchemaFields,
        cache: Arc<SearchCache>,
    ) -> tantivy::Result<Segments> {
        let all = searcher
            .segment_readers()
            .iter()
            .map(|reader| DiskSegment::open(reader, fields))
            .collect::<tantivy::Result<_>>()?;
        Ok(Segments { fields, all, cache, _searcher: Some(searcher) })
    }

    /// The segments of an index without a disk.
    pub fn none() -> Segments {
        Segments {
            fields: SchemaFields::schema().1,
            all: Vec::new(),
            cache: Arc::new(SearchCache::new(0)),
            _searcher: None,
        }
    }

    /// Adds the user's documents that no newer layer hides. `is_hidden` is `None` if none is.
    pub fn gather(
        &self,
        key: &UserKey,
        matches: &mut QueryMatches,
        is_hidden: Option<impl Fn(usize, MemoryId) -> bool>,
    ) -> tantivy::Result<()> {
        let key_alone = Term::from_field_text(self.fields.terms, key.as_str());
        let stamps: Vec<Stamp> =
            self.all.iter().map(|segment| Stamp::of(&segment.reader)).collect();
        let user_docs =
            self.cache.documents(key, &stamps, |n| self.all[n].user_docs(&key_alone))?;
        let words = matches.words.iter();
        let terms: Vec<Term> = words.map(|word| self.term(key, word.text)).collect();
        for (segment, part) in self.all.iter().zip(&user_docs.parts) {
            if part.docs.is_empty() {
                continue;
            }
            let read = |term| {
                let read = || segment.matches(term, &part.docs);
                self.cache.matches(part.stamp, term, read).map(Held::Shared)
            };
            let found = terms.iter().map(read).collect::<tantivy::Result<_>>()?;
            let rows = Held::Shared(part.rows.clone());
            matches.parts.push(Part::new(rows, is_hidden.as_ref(), found));
        }
        Ok(())
    }

    /// True if one of the user's documents that no newer layer hides has the term.
    pub fn has(
        &self,
        key: &UserKey,
        term: &str,
        hidden: impl Fn(MemoryId) -> bool,
    ) -> tantivy::Result<bool> {
        let term = self.term(key, term);
        for segment in &self.all {
            let mut is_there = false;
            segment.each_live(&term, |doc| is_there = is_there || !hidden(segment.id(doc)))?;
            if is_there {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The user's terms with this prefix, terms of deleted and hidden documents included. Costs one
    /// lookup for each segment and a step for each term: most users have no such terms, and to look
    /// up every possible term in many segments would be expensive.
    pub fn terms_from(&self, key: &UserKey, prefix: char) -> tantivy::Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for segment in &self.all {
            found.extend(terms_of(&segment.terms, key, prefix.encode_utf8(&mut [0; 4]))?);
        }
        Ok(found)
    }

    /// Every live document, by user and id.
    pub fn ids(&self) -> tantivy::Result<Vec<(UserKey, MemoryId)>> {
        let mut ids = Vec::new();
        for segment in &self.all {
            segment.ids(self.fields.id, &mut ids)?;
        }
        Ok(ids)
    }

    /// Every user with a document, deleted ones included.
    pub fn users(&self) -> tantivy::Result<BTreeSet<UserKey>> {
        let mut users = BTreeSet::new();
        for segment in &self.all {
            segment.users(&mut users)?;
        }
        Ok(users)
    }

    /// Counts the user's documents that no newer layer hides.
    pub fn count(
        &self,
        key: &UserKey,
        hidden: impl Fn(MemoryId) -> bool,
    ) -> tantivy::Result<usize> {
        let key_alone = Term::from_field_text(self.fields.terms, key.as_str());
        let mut count = 0;
        for segment in &self.all {
            segment.each_live(&key_alone, |doc| count += usize::from(!hidden(segment.id(doc))))?;
        }
        Ok(count)
    }

    fn term(&self, key: &UserKey, stem: &str) -> Term {
        Term::from_field_text(self.fields.terms, &user_term(key, stem))
    }
}

/// The user's terms with this prefix in one segment, terms of deleted documents included, without the
/// user's key.
pub fn terms_of(
    segment: &InvertedIndexReader,
    key: &UserKey,
    prefix: &str,
) -> tantivy::Result<Vec<String>> {
    let key_bytes = user_term(key, "").len();
    let from = user_term(key, prefix);
    let mut found = Vec::new();
    let mut terms = segment.terms().range().ge(&from).into_stream()?;
    while terms.advance() && terms.key().starts_with(from.as_bytes()) {
        found.push(String::from_utf8_lossy(&terms.key()[key_bytes..]).into_owned());
    }
    Ok(found)
}

impl DiskSegment {
    fn open(reader: &SegmentReader, fields: SchemaFields) -> tantivy::Result<DiskSegment> {
        Ok(DiskSegment {
            terms: reader.inverted_index(fields.terms)?,
            id_high: column(reader, ID_HIGH)?,
            id_low: column(reader, ID_LOW)?,
            lengths: column(reader, LENGTHS)?,
            reader: reader.clone(),
        })
    }

    /// The user's documents that are not deleted, with their rows. `key_alone` is the term of the
    /// bare key, which every document of the user has.
    fn user_docs(&self, key_alone: &Term) -> tantivy::Result<(Vec<DocId>, DocRows)> {
        let mut docs = Vec::new();
        self.each_live(key_alone, |doc| docs.push(doc))?;
        docs.shrink_to_fit();
        let high = values(&self.id_high, &docs);
        let low = values(&self.id_low, &docs);
        let ids =
            high.into_iter().zip(low).map(|(high, low)| MemoryId(Uuid::from_u64_pair(high, low)));
        let lengths = values(&self.lengths, &docs).into_iter().map(Lengths::unpacked);
        let mut rows = DocRows::default();
        ids.zip(lengths).for_each(|(id, lengths)| rows.push(id, lengths));
        rows.shrink_to_fit();
        Ok((docs, rows))
    }

    /// The documents of `docs` that have the term, with their places in `docs` as rows.
    fn matches(&self, term: &Term, docs: &[DocId]) -> tantivy::Result<Matches> {
        let index = IndexRecordOption::WithFreqsAndPositions;
        let mut matches = Matches::default();
        let Some(mut postings) = self.terms.read_postings(term, index)? else { return Ok(matches) };
        let mut row = 0;
        let mut positions = Vec::new();
        while postings.doc() != TERMINATED {
            row += docs[row..].partition_point(|doc| *doc < postings.doc());
            if docs.get(row) == Some(&postings.doc()) {
                postings.positions(&mut positions);
                matches.push(row as u32, field_counts(&positions));
            }
            postings.advance();
        }
        matches.shrink_to_fit();
        Ok(matches)
    }

    fn ids(&self, field: Field, ids: &mut Vec<(UserKey, MemoryId)>) -> tantivy::Result<()> {
        let index = self.reader.inverted_index(field)?;
        let mut terms = index.terms().stream()?;
        while terms.advance() {
            let read = key_and_id(terms.key(), ids.last().map(|(key, _)| key));
            let read =
                read.ok_or_else(|| DataCorruption::comment_only("an id without a user's key"))?;
            self.each_live_in(&index, terms.value(), |_| ids.push(read.clone()))?;
        }
        Ok(())
    }

    /// Looks up the bare key of each user, and continues behind the user's words.
    fn users(&self, users: &mut BTreeSet<UserKey>) -> tantivy::Result<()> {
        let mut terms = self.terms.terms().stream()?;
        while terms.advance() {
            let key = std::str::from_utf8(terms.key()).ok().and_then(UserKey::parse);
            let key = key.ok_or_else(|| DataCorruption::comment_only("a term without a key"))?;
            terms = self.terms.terms().range().ge(behind(&key)).into_stream()?;
            users.insert(key);
        }
        Ok(())
    }

    /// Calls `each` for every document that has the term and is not deleted.
    fn each_live(&self, term: &Term, each: impl FnMut(DocId)) -> tantivy::Result<()> {
        self.terms
            .get_term_info(term)?
            .map_or(Ok(()), |info| self.each_live_in(&self.terms, &info, each))
    }

    fn each_live_in(
        &self,
        index: &InvertedIndexReader,
        info: &TermInfo,
        mut each: impl FnMut(DocId),
    ) -> tantivy::Result<()> {
        let mut postings = index.read_postings_from_terminfo(info, IndexRecordOption::Basic)?;
        let mut doc = postings.doc();
        while doc != TERMINATED {
            if !self.reader.is_deleted(doc) {
                each(doc);
            }
            doc = postings.advance();
        }
        Ok(())
    }

    fn id(&self, doc: DocId) -> MemoryId {
        MemoryId(Uuid::from_u64_pair(self.id_high.get_val(doc), self.id_low.get_val(doc)))
    }
}

fn column(reader: &SegmentReader, name: &str) -> tantivy::Result<Arc<dyn ColumnValues<u64>>> {
    reader.fast_fields().u64(name).map(|column| column.values)
}

/// Counts the positions of one term in one document. A position is the number of a field, and
/// positions of attribute terms lie beyond the fields.
fn field_counts(positions: &[u32]) -> FieldCounts {
    let mut counts = FieldCounts::default();
    for position in positions {
        if let Some(count) = counts.get_mut(*position as usize) {
            *count = count.saturating_add(1);
        }
    }
    counts
}

/// Reads the values of all documents in one call: one call for each document would be the most
/// expensive part of a search.
fn values(column: &Arc<dyn ColumnValues<u64>>, docs: &[DocId]) -> Vec<u64> {
    let mut values = vec![0; docs.len()];
    column.get_vals(docs, &mut values);
    values
}
