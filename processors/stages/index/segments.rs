//! The words that are on disk, read. A term is `tenant/user`, a separator, a stem, as one token: another user's postings are out of reach,
//! because their terms cannot be spelled from this user's key. What is newer than the segments is not known here.

use super::bm25::{Found, Row, Rows};
use super::document::{Document, Lengths, Times};
use super::owned::{Owned, Owners, Part, Stamp};
use super::tokens::{KEYED, joined, spelled};
use crate::domain::{MemoryId, UserKey};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use tantivy::columnar::ColumnValues;
use tantivy::directory::{CompositeFile, FileSlice};
use tantivy::error::DataCorruption;
use tantivy::index::SegmentComponent;
use tantivy::positions::PositionReader;
use tantivy::postings::TermInfo;
use tantivy::schema::{
    BytesOptions, Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::{
    DocId, DocSet, InvertedIndexReader, Searcher, SegmentReader, TERMINATED, TantivyDocument, Term,
};
use uuid::Uuid;

/// No stored fields and no field norms: lengths are kept exactly, contents live in the store.
#[derive(Clone, Copy)]
pub struct Fields {
    terms: Field,
    /// The user's key and the id as one term, to delete by and to list.
    id: Field,
}

const ID_HIGH: &str = "id_high";
const ID_LOW: &str = "id_low";
const LENGTHS: &str = "lengths";

impl Fields {
    pub fn schema() -> (Schema, Fields) {
        let mut schema = Schema::builder();
        let indexing = TextFieldIndexing::default()
            .set_tokenizer(KEYED)
            .set_fieldnorms(false)
            .set_index_option(IndexRecordOption::WithFreqsAndPositions);
        let terms =
            schema.add_text_field("terms", TextOptions::default().set_indexing_options(indexing));
        let id = schema.add_bytes_field("id", BytesOptions::default().set_indexed());
        for name in [ID_HIGH, ID_LOW, LENGTHS] {
            schema.add_u64_field(name, NumericOptions::default().set_fast());
        }
        (schema.build(), Fields { terms, id })
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

/// Needs no separator: the id is the last 16 bytes. The key comes first, because the dictionary stores a common prefix once.
fn id_bytes(key: &UserKey, id: MemoryId) -> Vec<u8> {
    [key.as_str().as_bytes(), id.0.as_bytes()].concat()
}

/// The reverse of `id_bytes`. Terms come in order, so the key of the term before is tried first: mostly it is the same user's.
fn owner_and_id(bytes: &[u8], before: Option<&UserKey>) -> Option<(UserKey, MemoryId)> {
    let (key, id) = bytes.split_last_chunk::<16>()?;
    let key = match before {
        Some(before) if before.as_str().as_bytes() == key => before.clone(),
        _ => UserKey::parse(std::str::from_utf8(key).ok()?)?,
    };
    Some((key, MemoryId(Uuid::from_bytes(*id))))
}

/// The segments of one commit.
pub struct Segments {
    fields: Fields,
    all: Vec<Segment>,
    owners: Arc<Owners>,
    /// Keeps the files of this commit from being collected.
    _searcher: Option<Searcher>,
}

/// Invariant: every document has one value in each column, so that a document's number is its row there.
struct Segment {
    reader: SegmentReader,
    terms: Arc<InvertedIndexReader>,
    /// Of the terms, in the order of their postings.
    positions: FileSlice,
    id_high: Arc<dyn ColumnValues<u64>>,
    id_low: Arc<dyn ColumnValues<u64>>,
    lengths: Arc<dyn ColumnValues<u64>>,
}

impl Segments {
    pub fn of(
        searcher: Searcher,
        fields: Fields,
        owners: Arc<Owners>,
    ) -> tantivy::Result<Segments> {
        let all = searcher
            .segment_readers()
            .iter()
            .map(|reader| Segment::open(searcher.index(), reader, fields))
            .collect::<tantivy::Result<_>>()?;
        Ok(Segments { fields, all, owners, _searcher: Some(searcher) })
    }

    /// Of an index without a disk.
    pub fn none() -> Segments {
        Segments {
            fields: Fields::schema().1,
            all: Vec::new(),
            owners: Arc::new(Owners::new(0)),
            _searcher: None,
        }
    }

    /// Adds the user's documents that nothing newer hides. None: there is nothing newer.
    pub fn gather(
        &self,
        key: &UserKey,
        found: &mut Found,
        hidden: Option<&dyn Fn(MemoryId) -> bool>,
    ) -> tantivy::Result<()> {
        let key_alone = Term::from_field_text(self.fields.terms, key.as_str());
        let stamps: Vec<Stamp> =
            self.all.iter().map(|segment| Stamp::of(&segment.reader)).collect();
        let owned = self.owners.of(key, &stamps, |n| self.all[n].owned(&key_alone))?;
        // What is newer of this user mostly is a new memory, which hides nothing here.
        let hidden = hidden.filter(|hidden| owned.rows.ids().iter().any(|id| hidden(*id)));
        if hidden.is_none() {
            found.rows.begin_with(Arc::clone(&owned.rows));
        }
        let term = |word: &str| Term::from_field_text(self.fields.terms, &spelled(key, word));
        let terms: Vec<_> = found.words.iter().map(|word| term(word.text)).collect();
        for (segment, part) in
            self.all.iter().zip(&owned.parts).filter(|(_, part)| !part.docs.is_empty())
        {
            let (first_row, docs) = match hidden {
                None => (part.first_row, Cow::Borrowed(&part.docs)),
                Some(hidden) => {
                    (found.rows.len(), Cow::Owned(shown(&owned, part, hidden, &mut found.rows)))
                }
            };
            if docs.is_empty() {
                continue;
            }
            for (word, term) in found.words.iter_mut().zip(&terms) {
                segment.times(term, &docs, |row, times| word.add(first_row as u32 + row, times))?;
            }
        }
        Ok(())
    }

    /// Whether one of the user's documents that nothing newer hides has the term.
    pub fn has(
        &self,
        key: &UserKey,
        term: &str,
        hidden: impl Fn(MemoryId) -> bool,
    ) -> tantivy::Result<bool> {
        let term = Term::from_field_text(self.fields.terms, &spelled(key, term));
        for segment in &self.all {
            let mut is_there = false;
            segment.live(&term, |doc| is_there = is_there || !hidden(segment.id(doc)))?;
            if is_there {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The user's terms that begin so, those of documents that are gone or hidden among them. One look a segment and one a term: most users
    /// have none of such a kind, and looking for each that there might be is dear in many segments.
    pub fn terms_from(&self, key: &UserKey, beginning: char) -> tantivy::Result<BTreeSet<String>> {
        let (owner, from) = (spelled(key, ""), spelled(key, beginning.encode_utf8(&mut [0; 4])));
        let mut found = BTreeSet::new();
        for segment in &self.all {
            let mut terms = segment.terms.terms().range().ge(&from).into_stream()?;
            while terms.advance() && terms.key().starts_with(from.as_bytes()) {
                found.insert(String::from_utf8_lossy(&terms.key()[owner.len()..]).into_owned());
            }
        }
        Ok(found)
    }

    /// Every live document, by its user and id.
    pub fn ids(&self) -> tantivy::Result<Vec<(UserKey, MemoryId)>> {
        let mut ids = Vec::new();
        for segment in &self.all {
            segment.ids(self.fields.id, &mut ids)?;
        }
        Ok(ids)
    }
}

impl Segment {
    fn open(
        index: &tantivy::Index,
        reader: &SegmentReader,
        fields: Fields,
    ) -> tantivy::Result<Segment> {
        // Of a segment that was merged meanwhile the file may be gone: the reader has it mapped, and that mapping is what is opened.
        let files = index.segment(index.new_segment_meta(reader.segment_id(), reader.max_doc()));
        let positions = CompositeFile::open(&files.open_read(SegmentComponent::Positions)?)?;
        let column = |name| reader.fast_fields().u64(name).map(|column| column.values);
        Ok(Segment {
            terms: reader.inverted_index(fields.terms)?,
            positions: positions
                .open_read(fields.terms)
                .ok_or_else(|| DataCorruption::comment_only("no positions"))?,
            id_high: column(ID_HIGH)?,
            id_low: column(ID_LOW)?,
            lengths: column(LENGTHS)?,
            reader: reader.clone(),
        })
    }

    /// The user's documents that are not deleted, with their rows.
    fn owned(&self, key_alone: &Term) -> tantivy::Result<(Vec<DocId>, Vec<Row>)> {
        let mut docs = Vec::new();
        self.live(key_alone, |doc| docs.push(doc))?;
        docs.shrink_to_fit();
        let (high, low) = (values(&self.id_high, &docs), values(&self.id_low, &docs));
        let ids =
            high.into_iter().zip(low).map(|(high, low)| MemoryId(Uuid::from_u64_pair(high, low)));
        let lengths = values(&self.lengths, &docs).into_iter().map(Lengths::unpacked);
        let rows = ids.zip(lengths).map(|(id, lengths)| Row { id, lengths }).collect();
        Ok((docs, rows))
    }

    /// Which of these documents have the term, by their place in the list, and how often where. Block by block: asked for one document at a
    /// time, tantivy looks for its positions from the block's beginning each time.
    fn times(
        &self,
        term: &Term,
        docs: &[DocId],
        mut at: impl FnMut(u32, Times),
    ) -> tantivy::Result<()> {
        let Some(info) = self.terms.get_term_info(term)? else { return Ok(()) };
        let mut block =
            self.terms.read_block_postings_from_terminfo(&info, IndexRecordOption::WithFreqs)?;
        let mut reader =
            PositionReader::open(self.positions.read_bytes_slice(info.positions_range)?)?;
        let (mut row, mut read, mut steps) = (0, 0, Vec::new());
        while !block.docs().is_empty() {
            steps.resize(block.freqs().iter().sum::<u32>() as usize, 0);
            reader.read(read, &mut steps);
            read += steps.len() as u64;
            let mut rest = &steps[..];
            for (doc, count) in block.docs().iter().zip(block.freqs()) {
                let (own, others) = rest.split_at(*count as usize);
                rest = others;
                if docs.get(row) != Some(doc) {
                    row += first_not_below(&docs[row..], *doc);
                }
                if docs.get(row) == Some(doc) {
                    at(row as u32, times(own));
                    row += 1;
                }
            }
            block.advance();
        }
        Ok(())
    }

    fn ids(&self, field: Field, ids: &mut Vec<(UserKey, MemoryId)>) -> tantivy::Result<()> {
        let index = self.reader.inverted_index(field)?;
        let mut terms = index.terms().stream()?;
        while terms.advance() {
            let read = owner_and_id(terms.key(), ids.last().map(|(key, _)| key));
            let read =
                read.ok_or_else(|| DataCorruption::comment_only("an id without its user"))?;
            self.live_in(&index, terms.value(), |_| ids.push(read.clone()))?;
        }
        Ok(())
    }

    /// The documents that have the term and are not deleted.
    fn live(&self, term: &Term, each: impl FnMut(DocId)) -> tantivy::Result<()> {
        self.terms
            .get_term_info(term)?
            .map_or(Ok(()), |info| self.live_in(&self.terms, &info, each))
    }

    fn live_in(
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

/// How often a document has a term where: from position to position, the first counted from nothing.
fn times(steps: &[u32]) -> Times {
    let (mut times, mut position) = (Times::default(), 0);
    for step in steps {
        position += step;
        times.get_mut(position as usize).into_iter().for_each(|times| *times += 1);
    }
    times
}

/// Adds the rows of those that are not hidden; their numbers.
fn shown(
    owned: &Owned,
    part: &Part,
    hidden: &dyn Fn(MemoryId) -> bool,
    rows: &mut Rows,
) -> Vec<DocId> {
    let mut docs = Vec::with_capacity(part.docs.len());
    for (doc, row) in part.docs.iter().zip(owned.rows_of(part)).filter(|(_, row)| !hidden(row.id)) {
        docs.push(*doc);
        rows.push(row);
    }
    docs
}

/// The place of the first that is not less. Looked for in doubling steps, as it is mostly near: both lists are one user's.
fn first_not_below(docs: &[DocId], doc: DocId) -> usize {
    let mut end = 1;
    while docs.get(end - 1).is_some_and(|other| *other < doc) {
        end *= 2;
    }
    let begin = end / 2;
    begin + docs[begin..docs.len().min(end)].partition_point(|other| *other < doc)
}

/// All at once, because one at a time is the dearest part of a search.
fn values(column: &Arc<dyn ColumnValues<u64>>, docs: &[DocId]) -> Vec<u64> {
    let mut values = vec![0; docs.len()];
    column.get_vals(docs, &mut values);
    values
}
