//! The words of one shard: what is on disk, what is being written there and what is not yet, searched as if it were one.
//! Every document is seen exactly once at any moment, also while a settling is under way.

use super::bm25::{Bm25, Found};
use super::disk::{Disk, Opened, unreadable};
use super::segments::Segments;
use super::tail::Tail;
use super::{Document, Options};
use crate::domain::{MemoryId, UserKey};
use crate::fault::Result;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub struct TextIndex {
    /// Order matters: a settling holds the disk, then the view, and the view never for long. None: words stay in memory.
    disk: Option<Mutex<Disk>>,
    view: RwLock<View>,
    discarded: Option<String>,
    tail_max: usize,
}

/// Three layers, oldest first. A newer one hides what an older one says of an id it knows.
struct View {
    segments: Segments,
    mark: Option<i64>,
    /// On its way to disk: never written to, only replaced.
    settling: Arc<Tail>,
    fresh: Tail,
}

impl TextIndex {
    /// Creates what is not there, and begins anew what was made otherwise or does not open: nothing else may live in that directory.
    pub fn open(dir: &Path, options: Options, generation: &str) -> Result<TextIndex> {
        let Opened { disk, mark, discarded } = Disk::open(dir, options.writer_bytes, generation)?;
        let view = View { segments: disk.segments()?, mark, settling: Arc::default(), fresh: Tail::default() };
        Ok(TextIndex { disk: Some(Mutex::new(disk)), view: RwLock::new(view), discarded, tail_max: options.tail_max })
    }

    /// Begins empty each time and ends with its process. Limit: nothing of it ever leaves the memory.
    pub fn in_memory(options: Options) -> TextIndex {
        let view = View { segments: Segments::none(), mark: None, settling: Arc::default(), fresh: Tail::default() };
        TextIndex { disk: None, view: RwLock::new(view), discarded: None, tail_max: options.tail_max }
    }

    /// The event offset up to which the index on disk has read the store. None: nothing of it, read all.
    pub fn mark(&self) -> Option<i64> {
        self.read().mark
    }

    /// Why a former index was thrown away when this one was opened, if one was.
    pub fn discarded(&self) -> Option<&str> {
        self.discarded.as_deref()
    }

    pub fn put(&self, document: Document) {
        let document = Arc::new(document);
        self.write().fresh.put(document);
    }

    pub fn remove(&self, id: MemoryId) {
        self.write().fresh.remove(id);
    }

    /// The user's documents that have a word of the question, best first; of equals the one with the smaller id.
    pub fn search(&self, key: &UserKey, query_terms: &[String], bm25: Bm25, limit: usize) -> Result<Vec<(MemoryId, f32)>> {
        let found = self.read().find(key, query_terms)?;
        Ok(bm25.best(&found, limit))
    }

    /// The score of each of these documents, 0 where it has no word of the question or is not this user's.
    pub fn scores(&self, key: &UserKey, query_terms: &[String], bm25: Bm25, ids: &[MemoryId]) -> Result<Vec<f32>> {
        let scores: HashMap<_, _> = self.search(key, query_terms, bm25, usize::MAX)?.into_iter().collect();
        Ok(ids.iter().map(|id| scores.get(id).copied().unwrap_or_default()).collect())
    }

    /// How many documents the user has, and how many words they have together.
    pub fn documents(&self, key: &UserKey) -> Result<(usize, u64)> {
        let found = self.read().find(key, &[])?;
        Ok((found.rows.len(), found.length_total()))
    }

    /// Every live document of the shard, in no order.
    pub fn ids(&self) -> Vec<MemoryId> {
        self.read().ids()
    }

    /// Changes that are in memory only.
    pub fn pending(&self) -> usize {
        let view = self.read();
        view.settling.written() + view.fresh.written()
    }

    pub fn is_settling_due(&self) -> bool {
        self.pending() >= self.tail_max
    }

    /// Moves to disk what is in memory and notes there that the store has been read up to `mark`: all changes up to there must have been
    /// put. False if there was nothing to note. Searches and changes go on meanwhile; after a failure all is still found, and tried again
    /// by the next call.
    pub fn settle(&self, mark: i64) -> Result<bool> {
        let Some(disk) = &self.disk else { return Ok(self.write().noted(mark)) };
        let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(settling) = self.write().freeze(mark) else { return Ok(false) };
        disk.commit(settling.changes(), mark)?;
        let segments = disk.segments()?;
        let settled = self.write().settled(segments, mark);
        // Dropped here, where no search waits for it: it may be thousands of documents and the files of a commit.
        drop(settled);
        Ok(true)
    }

    // A panic while one of these is held leaves whole layers behind, as each is replaced or changed by one document at a time.

    fn read(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn find<'q>(&self, key: &UserKey, query_terms: &'q [String]) -> Result<Found<'q>> {
        let mut found = Found::nothing_yet(query_terms);
        self.segments.gather(key, &mut found, |id| self.changed(id)).map_err(unreadable)?;
        self.settling.gather(key, &mut found, |id| self.fresh.knows(id));
        self.fresh.gather(key, &mut found, |_| false);
        Ok(found)
    }

    fn ids(&self) -> Vec<MemoryId> {
        let put = |tail: &Tail| tail.changes().filter_map(|(id, document)| document.map(|_| id)).collect::<Vec<_>>();
        let mut ids: Vec<_> = self.segments.ids().filter(|id| !self.changed(*id)).collect();
        ids.extend(put(&self.settling).into_iter().filter(|id| !self.fresh.knows(*id)));
        ids.extend(put(&self.fresh));
        ids
    }

    fn changed(&self, id: MemoryId) -> bool {
        self.fresh.knows(id) || self.settling.knows(id)
    }

    /// What must go to disk now: the fresh changes, on top of those that an earlier settling failed to write.
    fn freeze(&mut self, mark: i64) -> Option<Arc<Tail>> {
        let fresh = std::mem::take(&mut self.fresh);
        if self.settling.is_empty() {
            self.settling = Arc::new(fresh);
        } else {
            Arc::make_mut(&mut self.settling).apply(fresh);
        }
        let something = !self.settling.is_empty() || self.mark != Some(mark);
        something.then(|| Arc::clone(&self.settling))
    }

    /// As if it were on disk.
    fn noted(&mut self, mark: i64) -> bool {
        self.mark.replace(mark) != Some(mark)
    }

    fn settled(&mut self, segments: Segments, mark: i64) -> (Segments, Arc<Tail>) {
        self.mark = Some(mark);
        (std::mem::replace(&mut self.segments, segments), std::mem::take(&mut self.settling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Position;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tempfile::TempDir;

    const OPTIONS: Options = Options { writer_bytes: 0, tail_max: 3, vectors_bytes_max: 0 };
    const BM25: Bm25 = Bm25 { k1: 1.2, b: 0.75 };
    const WORDS: [&str; 6] = ["berlin", "flat", "lisbon", "move", "rent", ""];

    fn id(n: usize) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n as i64 }, 0)
    }

    /// The second could be read as a word of the first, if keys and words were joined carelessly.
    fn user(n: usize) -> UserKey {
        UserKey::new("acme", ["ana", "ana:berlin", "ana b"][n]).unwrap()
    }

    fn split(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn document(n: usize, user_number: usize, text: &str) -> Document {
        Document { id: id(n), key: user(user_number), terms: split(text) }
    }

    fn open(dir: &TempDir) -> TextIndex {
        TextIndex::open(dir.path(), OPTIONS, "one").unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put { n: usize, user: usize, terms: Vec<&'static str> },
        Remove { n: usize },
        Settle,
        FailToSettle,
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let terms = prop::collection::vec(prop::sample::select(&WORDS[..]), 0..6);
        let put = (0..12usize, 0..3usize, terms).prop_map(|(n, user, terms)| Step::Put { n, user, terms });
        let remove = (0..12usize).prop_map(|n| Step::Remove { n });
        prop::collection::vec(
            prop_oneof![12 => put, 4 => remove, 2 => Just(Step::Settle), 1 => Just(Step::FailToSettle), 1 => Just(Step::Reopen)],
            1..40,
        )
    }

    /// The formula once more, over nothing but a list of documents.
    fn expected(model: &BTreeMap<MemoryId, Document>, key: &UserKey, query: &[String]) -> Vec<(MemoryId, f32)> {
        let own: Vec<_> = model.values().filter(|document| document.key == *key).collect();
        let count = own.len() as f64;
        let lengths: Vec<_> = own.iter().map(|document| document.terms.len().max(1) as f64).collect();
        let (k1, b) = (f64::from(BM25.k1), f64::from(BM25.b));
        let mean = lengths.iter().sum::<f64>() / count;
        let mut hits = Vec::new();
        for (document, length) in own.iter().zip(lengths) {
            let mut score = 0.0;
            for (n, term) in query.iter().enumerate().filter(|(n, term)| !query[..*n].contains(term)) {
                let asked = query[n..].iter().filter(|other| *other == term).count() as f64;
                let having = own.iter().filter(|other| other.terms.contains(term)).count() as f64;
                let times = document.terms.iter().filter(|other| *other == term).count() as f64;
                let weight = asked * (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
                score += weight * (k1 + 1.0) * times / (times + k1 * (1.0 - b + b * length / mean));
            }
            hits.push((document.id, score as f32));
        }
        hits.retain(|(_, score)| *score > 0.0);
        hits.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        hits
    }

    fn check(index: &TextIndex, model: &BTreeMap<MemoryId, Document>) {
        for key in (0..3).map(user) {
            for query in ["berlin", "flat lisbon flat", "berlin move rent lisbon", " ", "tokyo"] {
                let query = split(query);
                let all = expected(model, &key, &query);
                assert_eq!(index.search(&key, &query, BM25, 100).unwrap(), all, "{key} {query:?}");
                assert_eq!(index.search(&key, &query, BM25, 2).unwrap(), all[..all.len().min(2)], "{key} {query:?}");
            }
            let lengths =
                model.values().filter(|document| document.key == key).map(|document| document.terms.len().max(1) as u64);
            assert_eq!(index.documents(&key).unwrap(), (lengths.clone().count(), lengths.sum()), "{key}");
        }
        let mut ids = index.ids();
        ids.sort_unstable();
        assert_eq!(ids, model.keys().copied().collect::<Vec<_>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_put_removed_and_settled_every_score_is_that_of_the_formula(steps in steps()) {
            let dir = TempDir::new().unwrap();
            let mut index = open(&dir);
            let mut model = BTreeMap::new();
            for (mark, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put { n, user, terms } => {
                        let document = document(n, user, &terms.join(" "));
                        model.insert(document.id, document.clone());
                        index.put(document);
                    }
                    Step::Remove { n } => {
                        model.remove(&id(n));
                        index.remove(id(n));
                    }
                    Step::Settle => assert!(index.settle(mark as i64).unwrap()),
                    Step::FailToSettle => drop(index.write().freeze(mark as i64)),
                    Step::Reopen => {
                        index.settle(mark as i64).unwrap();
                        drop(index);
                        index = open(&dir);
                        assert_eq!(index.mark(), Some(mark as i64));
                    }
                }
                check(&index, &model);
            }
        }
    }

    #[test]
    fn an_index_without_a_disk_finds_the_same_whether_settled_or_not() {
        let index = TextIndex::in_memory(OPTIONS);
        let model: BTreeMap<_, _> = (0..5).map(|n| (id(n), document(n, n % 2, "berlin flat"))).collect();
        model.values().for_each(|document| index.put(document.clone()));
        assert_eq!(index.mark(), None);
        assert_eq!([index.settle(7).unwrap(), index.settle(7).unwrap()], [true, false]);
        assert_eq!((index.mark(), index.pending()), (Some(7), 5));
        check(&index, &model);
    }

    #[test]
    fn a_neighbours_documents_do_not_move_a_score_by_a_bit() {
        let (alone, crowded) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (alone, crowded) = (open(&alone), open(&crowded));
        for n in 0..200 {
            let text = format!("{} {}", WORDS[n % 4], WORDS[n % 5]);
            alone.put(document(n, 0, &text));
            crowded.put(document(n, 0, &text));
            crowded.put(document(1000 + n, 1, &format!("{text} berlin berlin")));
            if n % 60 == 0 {
                crowded.settle(n as i64).unwrap();
            }
        }
        let found = |index: &TextIndex| index.search(&user(0), &split("berlin rent"), BM25, 500).unwrap();
        assert_eq!(found(&alone), found(&crowded));
        assert!(found(&crowded).len() > 50);
        let ids = found(&crowded).iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(crowded.scores(&user(1), &split("berlin rent"), BM25, &ids).unwrap(), vec![0.0; ids.len()]);
    }

    #[test]
    fn what_was_settled_is_there_again_and_the_rest_is_for_the_mark_to_tell() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        assert_eq!((index.mark(), index.discarded()), (None, None));
        index.put(document(1, 0, "berlin"));
        index.put(document(2, 0, "berlin"));
        index.remove(id(2));
        assert!(index.is_settling_due());
        assert!(index.settle(41).unwrap());
        assert!(!index.settle(41).unwrap());
        index.put(document(3, 0, "berlin"));
        assert_eq!(index.pending(), 1);
        drop(index);
        let index = open(&dir);
        assert_eq!((index.mark(), index.discarded(), index.ids()), (Some(41), None, vec![id(1)]));
    }

    #[test]
    fn an_index_of_another_generation_is_begun_anew_and_says_so() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        index.put(document(1, 0, "berlin"));
        index.settle(7).unwrap();
        drop(index);
        let index = TextIndex::open(dir.path(), OPTIONS, "two").unwrap();
        assert_eq!((index.mark(), index.ids()), (None, vec![]));
        assert_eq!(index.discarded(), Some("its generation is one, not two"));
    }

    #[test]
    fn an_index_with_a_damaged_file_is_begun_anew_or_answers_as_before() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        (0..50).for_each(|n| index.put(document(n, 0, "berlin flat")));
        index.settle(7).unwrap();
        let before = index.search(&user(0), &split("flat"), BM25, 100).unwrap();
        drop(index);
        let damages: [fn(&mut Vec<u8>); 3] = [
            Vec::clear,
            |bytes| bytes.truncate(bytes.len() / 2),
            |bytes| {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x55;
            },
        ];
        let mut discarded = 0;
        for file in std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap()) {
            for damage in damages {
                let copy = TempDir::new().unwrap();
                for other in std::fs::read_dir(dir.path()).unwrap().map(|other| other.unwrap()) {
                    let mut bytes = std::fs::read(other.path()).unwrap();
                    if other.file_name() == file.file_name() && !bytes.is_empty() {
                        damage(&mut bytes);
                    }
                    std::fs::write(copy.path().join(other.file_name()), bytes).unwrap();
                }
                let index = open(&copy);
                discarded += usize::from(index.discarded().is_some());
                let now = index.search(&user(0), &split("flat"), BM25, 100).unwrap();
                assert_eq!(now, if index.mark().is_some() { before.clone() } else { vec![] }, "{:?}", file.file_name());
            }
        }
        assert!(discarded >= 15, "three damages to each of at least five files of the segment, not {discarded}");
    }

    #[test]
    fn a_second_owner_of_the_directory_is_refused() {
        let dir = TempDir::new().unwrap();
        let _owner = open(&dir);
        let fault = TextIndex::open(dir.path(), OPTIONS, "one").err().expect("it is locked");
        assert_eq!(fault.exit_code(), crate::fault::StopName::StoreLocked.exit_code(), "{fault}");
    }

    #[test]
    fn a_document_written_again_while_settling_is_seen_exactly_once() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        std::thread::scope(|scope| {
            let settler = scope.spawn(|| (0..30).for_each(|mark| assert!(index.settle(mark).unwrap())));
            let mut version = 0;
            while !settler.is_finished() {
                version += 1;
                let newest = format!("version{version}");
                index.put(document(1, 0, &format!("always {newest}")));
                index.put(document(2, 0, "always"));
                index.remove(id(2));
                for word in ["always", &newest] {
                    let hits = index.search(&user(0), &split(word), BM25, 10).unwrap();
                    assert_eq!(hits.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)], "{word}");
                }
                assert_eq!(index.documents(&user(0)).unwrap(), (1, 2));
            }
            assert!(version > 1, "nothing was written while it settled");
        });
    }
}
