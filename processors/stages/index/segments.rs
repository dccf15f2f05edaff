//! The words that are on disk, read. A term is `tenant/user`, a separator, a stem, as one token: another user's postings are out of reach,
//! because their terms cannot be spelled from this user's key. What is newer than the segments is not known here.

use super::bm25::{Found, Row};
use super::document::{Document, Lengths, Times};
use super::tokens::{KEYED, joined, spelled};
use crate::domain::{MemoryId, UserKey};
use std::collections::BTreeSet;
use std::sync::Arc;
use tantivy::columnar::ColumnValues;
use tantivy::postings::Postings;
use tantivy::schema::{BytesOptions, Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions};
use tantivy::{DocId, DocSet, InvertedIndexReader, Searcher, SegmentReader, TERMINATED, TantivyDocument, Term};
use uuid::Uuid;

/// No stored fields and no field norms: lengths are kept exactly, contents live in the store.
#[derive(Clone, Copy)]
pub struct Fields {
    terms: Field,
    /// The id as a term, to delete by.
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
        let terms = schema.add_text_field("terms", TextOptions::default().set_indexing_options(indexing));
        let id = schema.add_bytes_field("id", BytesOptions::default().set_indexed());
        for name in [ID_HIGH, ID_LOW, LENGTHS] {
            schema.add_u64_field(name, NumericOptions::default().set_fast());
        }
        (schema.build(), Fields { terms, id })
    }

    pub fn document(&self, schema: &Schema, document: &Document) -> tantivy::Result<TantivyDocument> {
        let (high, low) = document.id.0.as_u64_pair();
        let mut written = TantivyDocument::default();
        written.add_text(self.terms, joined(document));
        written.add_bytes(self.id, document.id.0.as_bytes());
        for (name, value) in [(ID_HIGH, high), (ID_LOW, low), (LENGTHS, document.lengths.packed())] {
            written.add_u64(schema.get_field(name)?, value);
        }
        Ok(written)
    }

    pub fn id_term(&self, id: MemoryId) -> Term {
        Term::from_field_bytes(self.id, id.0.as_bytes())
    }
}

/// The segments of one commit.
pub struct Segments {
    fields: Fields,
    all: Vec<Segment>,
    /// Keeps the files of this commit from being collected.
    _searcher: Option<Searcher>,
}

/// Invariant: every document has one value in each column, so that a document's number is its row there.
struct Segment {
    reader: SegmentReader,
    terms: Arc<InvertedIndexReader>,
    id_high: Arc<dyn ColumnValues<u64>>,
    id_low: Arc<dyn ColumnValues<u64>>,
    lengths: Arc<dyn ColumnValues<u64>>,
}

impl Segments {
    pub fn of(searcher: Searcher, fields: Fields) -> tantivy::Result<Segments> {
        let all =
            searcher.segment_readers().iter().map(|reader| Segment::open(reader, fields)).collect::<tantivy::Result<_>>()?;
        Ok(Segments { fields, all, _searcher: Some(searcher) })
    }

    /// Of an index without a disk.
    pub fn none() -> Segments {
        Segments { fields: Fields::schema().1, all: Vec::new(), _searcher: None }
    }

    /// Adds the user's documents that nothing newer hides.
    pub fn gather(&self, key: &UserKey, found: &mut Found, hidden: impl Fn(MemoryId) -> bool) -> tantivy::Result<()> {
        let owned = Term::from_field_text(self.fields.terms, key.as_str());
        let term = |word: &str| Term::from_field_text(self.fields.terms, &spelled(key, word));
        let terms: Vec<_> = found.words.iter().map(|word| term(word.text)).collect();
        for segment in &self.all {
            let first_row = found.rows.len() as u32;
            let docs = segment.live_rows(&owned, &mut found.rows, &hidden)?;
            if docs.is_empty() {
                continue;
            }
            for (word, term) in found.words.iter_mut().zip(&terms) {
                segment.times(term, &docs, |row, times| word.add(first_row + row, times))?;
            }
        }
        Ok(())
    }

    /// Whether one of the user's documents that nothing newer hides has the term.
    pub fn has(&self, key: &UserKey, term: &str, hidden: impl Fn(MemoryId) -> bool) -> tantivy::Result<bool> {
        let term = Term::from_field_text(self.fields.terms, &spelled(key, term));
        for segment in &self.all {
            let mut is_there = false;
            segment.postings(&term, |doc| is_there = is_there || !segment.reader.is_deleted(doc) && !hidden(segment.id(doc)))?;
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

    pub fn ids(&self) -> impl Iterator<Item = MemoryId> {
        self.all.iter().flat_map(|segment| segment.reader.doc_ids_alive().map(|doc| segment.id(doc)))
    }
}

impl Segment {
    fn open(reader: &SegmentReader, fields: Fields) -> tantivy::Result<Segment> {
        let column = |name| reader.fast_fields().u64(name).map(|column| column.values);
        Ok(Segment {
            terms: reader.inverted_index(fields.terms)?,
            id_high: column(ID_HIGH)?,
            id_low: column(ID_LOW)?,
            lengths: column(LENGTHS)?,
            reader: reader.clone(),
        })
    }

    /// Pushes a row for each live document of the user; their numbers in this segment, ascending.
    fn live_rows(&self, owned: &Term, rows: &mut Vec<Row>, hidden: impl Fn(MemoryId) -> bool) -> tantivy::Result<Vec<DocId>> {
        let mut docs = Vec::new();
        self.postings(owned, |doc| {
            if !self.reader.is_deleted(doc) {
                docs.push(doc);
            }
        })?;
        let (high, low) = (values(&self.id_high, &docs), values(&self.id_low, &docs));
        let ids = high.into_iter().zip(low).map(|(high, low)| MemoryId(Uuid::from_u64_pair(high, low)));
        let lengths = values(&self.lengths, &docs).into_iter().map(Lengths::unpacked);
        let mut found = ids.zip(lengths).map(|(id, lengths)| Row { id, lengths });
        rows.reserve(docs.len());
        docs.retain(|_| {
            let row = found.next().expect("a column has a value for every document");
            let shown = !hidden(row.id);
            rows.extend(shown.then_some(row));
            shown
        });
        Ok(docs)
    }

    /// Which of these documents have the term, by their place in the list, and how often where.
    fn times(&self, term: &Term, docs: &[DocId], mut at: impl FnMut(u32, Times)) -> tantivy::Result<()> {
        let (mut row, mut positions) = (0, Vec::new());
        let Some(mut postings) = self.terms.read_postings(term, IndexRecordOption::WithFreqsAndPositions)? else { return Ok(()) };
        while postings.doc() != TERMINATED {
            let doc = postings.doc();
            row += docs[row..].partition_point(|live| *live < doc);
            if docs.get(row) == Some(&doc) {
                postings.positions(&mut positions);
                let mut times = Times::default();
                for place in &positions {
                    times.get_mut(*place as usize).into_iter().for_each(|times| *times += 1);
                }
                at(row as u32, times);
            }
            postings.advance();
        }
        Ok(())
    }

    fn postings(&self, term: &Term, mut each: impl FnMut(DocId)) -> tantivy::Result<()> {
        let Some(mut postings) = self.terms.read_postings(term, IndexRecordOption::Basic)? else { return Ok(()) };
        let mut doc = postings.doc();
        while doc != TERMINATED {
            each(doc);
            doc = postings.advance();
        }
        Ok(())
    }

    fn id(&self, doc: DocId) -> MemoryId {
        MemoryId(Uuid::from_u64_pair(self.id_high.get_val(doc), self.id_low.get_val(doc)))
    }
}

/// All at once, because one at a time is the dearest part of a search.
fn values(column: &Arc<dyn ColumnValues<u64>>, docs: &[DocId]) -> Vec<u64> {
    let mut values = vec![0; docs.len()];
    column.get_vals(docs, &mut values);
    values
}
