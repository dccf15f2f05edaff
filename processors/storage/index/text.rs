//! The text index of one shard: three layers that a search sees as one.
//!
//! ```text
//!  put, remove ──> fresh: MemSegment      changes since the last flush began
//!                    │ freeze
//!                  flushing: Arc<MemSegment>   immutable, on the way to disk
//!                    │ commit (tantivy)
//!                  segments: Segments     the last commit on disk
//! ```
//!
//! A change in a newer layer hides the document of the same user and id in the older layers, as in
//! an [LSM tree](https://en.wikipedia.org/wiki/Log-structured_merge-tree). A flush
//! ([`TextIndex::settle`]):
//!
//! 1. Move `fresh` into `flushing`, under the write lock: searches see the same documents.
//! 2. Write `flushing` to tantivy and commit, without that lock: searches and changes go on.
//! 3. Replace `segments` by those of the new commit and empty `flushing`, in one step under the
//!    write lock.
//!
//! If step 2 fails, `flushing` stays searchable, and the next flush applies `fresh` on top of
//! `flushing` and tries again.
//!
//! Invariant: every document is seen exactly once at any moment, also during a flush.

use super::bm25::{Bm25, QueryMatches, ScoredDocuments};
use super::disk::{IndexDir, OpenedDir, unreadable};
use super::document::{Document, LANGUAGE, SPEAKER, language_term, speaker_term};
use super::mem_segment::MemSegment;
use super::segments::Segments;
use super::{Mark, Options};
use domain::fault::{Fault, Result};
use domain::{MemoryId, UserKey};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use text::Language;

/// Looks for segments with deleted documents in one purge. A running merge of the merge policy
/// makes a second look necessary.
const PURGE_TRIES: usize = 5;

pub struct TextIndex {
    /// `None`: the index has no disk, documents stay in memory. Order matters: a flush locks the
    /// directory, then the layers, and the layers never for long.
    dir: Option<Mutex<IndexDir>>,
    /// Takes the place of the directory if there is none.
    flushed: FlushedIndex,
    layers: RwLock<Layers>,
    discarded: Option<String>,
    tail_max: usize,
}

/// The mark and the documents of the last flush of an index without a directory, for the next owner
/// of the shard. Clones share them.
#[derive(Clone, Default)]
pub struct FlushedIndex(Arc<Mutex<(Option<Mark>, Arc<MemSegment>)>>);

impl FlushedIndex {
    /// Copies mark and documents. Later flushes into the original do not reach the copy.
    pub fn detached(&self) -> FlushedIndex {
        FlushedIndex(Arc::new(Mutex::new(self.0.lock().clone())))
    }
}

/// The three layers of the index, oldest first.
struct Layers {
    segments: Segments,
    mark: Option<Mark>,
    /// On the way to disk: never changed in place, only replaced.
    flushing: Arc<MemSegment>,
    fresh: MemSegment,
}

impl TextIndex {
    /// Opens or creates the index. An index of another format or generation, or one that does not
    /// open, is removed with everything in `dir`: nothing else may live in that directory.
    pub fn open(dir: &Path, options: Options, generation: &str) -> Result<TextIndex> {
        let OpenedDir { dir, mark, discarded } = IndexDir::open(dir, options, generation)?;
        let layers = Layers::over(dir.segments()?, mark);
        Ok(TextIndex {
            dir: Some(Mutex::new(dir)),
            flushed: FlushedIndex::default(),
            layers: RwLock::new(layers),
            discarded,
            tail_max: options.tail_max,
        })
    }

    /// Opens an index without a directory, as of the last flush. Limit: no document ever leaves
    /// memory.
    pub fn in_memory(options: Options, flushed: FlushedIndex) -> TextIndex {
        let (mark, flushing) = flushed.0.lock().clone();
        TextIndex {
            dir: None,
            flushed,
            layers: RwLock::new(Layers { flushing, ..Layers::over(Segments::none(), mark) }),
            discarded: None,
            tail_max: options.tail_max,
        }
    }

    /// The position up to which the index on disk has applied the store. `None`: the index is empty
    /// and needs all of the store.
    pub fn mark(&self) -> Option<Mark> {
        self.layers.read().mark
    }

    /// The reason for which a former index was removed when this one was opened.
    pub fn discarded(&self) -> Option<&str> {
        self.discarded.as_deref()
    }

    pub fn put(&self, document: Document) {
        let document = Arc::new(document);
        self.layers.write().fresh.put(document);
    }

    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.layers.write().fresh.remove(key, id);
    }

    /// Scores each of the user's documents against the query.
    pub fn scored(
        &self,
        key: &UserKey,
        query_terms: &[String],
        bm25: Bm25,
    ) -> Result<ScoredDocuments> {
        let matches = self.layers.read().find(key, query_terms)?;
        Ok(bm25.scored(matches))
    }

    /// Returns the names that are the speaker of a memory of the user.
    pub fn speakers(&self, key: &UserKey, names: &BTreeSet<String>) -> Result<Vec<String>> {
        self.layers.read().speakers(key, names)
    }

    /// The languages of the user's memories, English left out.
    pub fn languages(&self, key: &UserKey) -> Result<Vec<Language>> {
        self.layers.read().languages(key)
    }

    /// The number of the user's documents, and the number of stems in all of them.
    pub fn documents(&self, key: &UserKey) -> Result<(usize, u64)> {
        let matches = self.layers.read().find(key, &[])?;
        Ok((matches.rows.len(), matches.length_total()))
    }

    /// Every live document of the shard by user and id, in no order.
    pub fn ids(&self) -> Result<Vec<(UserKey, MemoryId)>> {
        self.layers.read().ids()
    }

    /// Counts the live documents of each user of the shard. Users without one are left out.
    pub fn counts(&self) -> Result<BTreeMap<UserKey, usize>> {
        self.layers.read().counts()
    }

    /// Number of changes that are in memory only.
    pub fn pending(&self) -> usize {
        let layers = self.layers.read();
        let flushing = if self.dir.is_some() { layers.flushing.written() } else { 0 };
        flushing + layers.fresh.written()
    }

    pub fn is_flush_due(&self) -> bool {
        self.pending() >= self.tail_max
    }

    /// Flushes the changes in memory to disk and notes there that the store has been applied up to
    /// `mark`: all changes up to that position must have been put. Returns `false` if there was
    /// nothing to write or note. Searches and changes go on meanwhile. After a failure all
    /// documents are still found, and the next call tries again.
    pub fn settle(&self, mark: Mark) -> Result<bool> {
        let Some(dir) = &self.dir else { return Ok(self.settle_in_memory(mark)) };
        let mut dir = dir.lock();
        let Some(flushing) = self.layers.write().freeze(mark) else { return Ok(false) };
        dir.commit(flushing.changes(), mark)?;
        let segments = dir.segments()?;
        let replaced = self.layers.write().flushed(segments, mark);
        // Dropped here, outside the lock that searches wait for: thousands of documents and the
        // files of a commit may go.
        drop(replaced);
        Ok(true)
    }

    fn settle_in_memory(&self, mark: Mark) -> bool {
        let mut flushed = self.flushed.0.lock();
        let mut layers = self.layers.write();
        if layers.mark == Some(mark) && layers.fresh.is_empty() {
            return false;
        }
        // The segment has no second holder during a change, and so need not be copied.
        flushed.1 = Arc::default();
        drop(layers.freeze(mark));
        layers.mark = Some(mark);
        *flushed = (layers.mark, layers.flushing.clone());
        true
    }

    /// Removes the terms of deleted documents from the disk, and returns whether there were any.
    /// Searches, changes and flushes go on meanwhile. Ends early with an error if `goes_on` returns
    /// false. Limit: concerns the files on disk, so `settle` comes before.
    pub fn purge(&self, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let Some(dir) = &self.dir else { return Ok(false) };
        let mut is_changed = false;
        for _ in 0..PURGE_TRIES {
            let holding = dir.lock().holding_deleted()?;
            if holding.is_empty() {
                if is_changed {
                    self.use_merged(&mut dir.lock())?;
                }
                return Ok(is_changed);
            }
            is_changed = true;
            for segment in holding {
                if !goes_on() {
                    return Err(Fault::retry("the index is needed for something else"));
                }
                // Order matters: the lock is free while the merge runs, which may take minutes. A
                // flush, and so ingest and a rebalance, waits for the lock.
                let merge = dir.lock().begin_merge(segment);
                // Fails if a merge of the merge policy has replaced the segment meanwhile, which
                // does the same. The next look shows the rest.
                if let Err(error) = merge.wait() {
                    tracing::debug!(%error, "a segment was not merged");
                }
            }
        }
        Err(Fault::retry("segments of the index are still being merged"))
    }

    /// Lets searches use the segments on disk as they are now, and removes the files of the former.
    fn use_merged(&self, dir: &mut IndexDir) -> Result<()> {
        let segments = dir.segments()?;
        let replaced = std::mem::replace(&mut self.layers.write().segments, segments);
        // Order matters: the files of segments that somebody holds are not removed.
        drop(replaced);
        dir.remove_unused_files()
    }
}

impl Layers {
    fn over(segments: Segments, mark: Option<Mark>) -> Layers {
        Layers { segments, mark, flushing: Arc::default(), fresh: MemSegment::default() }
    }

    fn find<'q>(&self, key: &UserKey, query_terms: &'q [String]) -> Result<QueryMatches<'q>> {
        let mut matches = QueryMatches::empty(query_terms);
        self.segments.gather(key, &mut matches, self.hides(key)).map_err(unreadable)?;
        self.flushing.gather(key, &mut matches, self.fresh.hides(key));
        self.fresh.gather(key, &mut matches, |_| false);
        Ok(matches)
    }

    fn speakers(&self, key: &UserKey, names: &BTreeSet<String>) -> Result<Vec<String>> {
        let on_disk = self.segments.terms_from(key, SPEAKER).map_err(unreadable)?;
        let mut speakers = Vec::new();
        for name in names {
            if self.has(key, &speaker_term(name), &on_disk)? {
                speakers.push(name.clone());
            }
        }
        Ok(speakers)
    }

    fn languages(&self, key: &UserKey) -> Result<Vec<Language>> {
        let on_disk = self.segments.terms_from(key, LANGUAGE).map_err(unreadable)?;
        let mut languages = Vec::new();
        for language in Language::others() {
            if self.has(key, &language_term(language), &on_disk)? {
                languages.push(language);
            }
        }
        Ok(languages)
    }

    /// True if a live document of the user has the term. `on_disk` are the candidate terms of the
    /// segments; only for one of these is a segment searched.
    fn has(&self, key: &UserKey, term: &str, on_disk: &BTreeSet<String>) -> Result<bool> {
        if self.fresh.has(key, term, |_| false)
            || self.flushing.has(key, term, self.fresh.hides(key))
        {
            return Ok(true);
        }
        Ok(on_disk.contains(term)
            && self.segments.has(key, term, self.hides(key)).map_err(unreadable)?)
    }

    fn ids(&self) -> Result<Vec<(UserKey, MemoryId)>> {
        let mut ids = self.segments.ids().map_err(unreadable)?;
        ids.retain(|(key, id)| !self.hides(key)(*id));
        let flushing = ids_put(&self.flushing);
        ids.extend(flushing.filter(|(key, id)| !self.fresh.hides(key)(*id)));
        ids.extend(ids_put(&self.fresh));
        Ok(ids)
    }

    fn counts(&self) -> Result<BTreeMap<UserKey, usize>> {
        let mut counts = BTreeMap::new();
        for key in self.segments.users().map_err(unreadable)? {
            let count = self.segments.count(&key, self.hides(&key)).map_err(unreadable)?;
            counts.insert(key, count);
        }
        let flushing = ids_put(&self.flushing);
        let flushing = flushing.filter(|(key, id)| !self.fresh.hides(key)(*id));
        for (key, _) in flushing.chain(ids_put(&self.fresh)) {
            *counts.entry(key).or_default() += 1;
        }
        counts.retain(|_, count| *count > 0);
        Ok(counts)
    }

    /// Returns a test whether a change in memory hides the user's document on disk.
    fn hides(&self, key: &UserKey) -> impl Fn(MemoryId) -> bool {
        let fresh = self.fresh.hides(key);
        let flushing = self.flushing.hides(key);
        move |id| fresh(id) || flushing(id)
    }

    /// Step 1 of a flush: returns the changes to write, the fresh ones on top of those that an
    /// earlier flush failed to write. `None` if there is nothing to write or note.
    fn freeze(&mut self, mark: Mark) -> Option<Arc<MemSegment>> {
        let fresh = std::mem::take(&mut self.fresh);
        if self.flushing.is_empty() {
            self.flushing = Arc::new(fresh);
        } else {
            Arc::make_mut(&mut self.flushing).apply(fresh);
        }
        let is_needed = !self.flushing.is_empty() || self.mark != Some(mark);
        is_needed.then(|| Arc::clone(&self.flushing))
    }

    /// Step 3 of a flush; returns the replaced layers.
    fn flushed(&mut self, segments: Segments, mark: Mark) -> (Segments, Arc<MemSegment>) {
        self.mark = Some(mark);
        (std::mem::replace(&mut self.segments, segments), std::mem::take(&mut self.flushing))
    }
}

/// The documents that a segment holds, without the removals.
fn ids_put(segment: &MemSegment) -> impl Iterator<Item = (UserKey, MemoryId)> {
    let changes = segment.changes();
    changes.filter_map(|(key, id, document)| document.map(|_| (key.clone(), id)))
}

#[cfg(test)]
mod tests {
    use super::super::disk::terms_on_disk;
    use super::super::{SearchText, WordScores};
    use super::*;
    use domain::Position;
    use proptest::prelude::*;
    use tempfile::TempDir;
    use text::Stems;

    const OPTIONS: Options = Options { writer_bytes: 0, tail_max: 3, documents_bytes_max: 500 };
    const BM25: Bm25 = Bm25 { k1: 1.2, b: 0.75, previous: 0.3, short_words: 2.0 };
    const WORDS: [&str; 6] = ["berlin", "flat", "lisbon", "move", "rent", ""];

    fn id(n: usize) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n as i64 }, 0)
    }

    /// Careless joining of key and word would make the second user a word of the first.
    fn user(n: usize) -> UserKey {
        UserKey::new("acme", ["ana", "ana:berlin", "ana b"][n]).unwrap()
    }

    fn split(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn stems(text: &str) -> Stems {
        text.split(' ').collect()
    }

    /// Parses `own|before|earlier|after`.
    fn text(written: &str) -> SearchText {
        let mut fields = written.split('|').map(stems);
        let own = fields.next().unwrap_or_default();
        let words = own.len();
        let mut next = || fields.next().unwrap_or_default();
        SearchText {
            own,
            before: next(),
            earlier: next(),
            after: next(),
            speaker: None,
            language: None,
            words,
        }
    }

    fn document(n: usize, user_number: usize, written: &str) -> Document {
        let written = written.to_owned();
        Document::new(id(n), user(user_number), move || text(&written))
    }

    /// The ids and scores of the best documents, best first.
    fn search(
        index: &TextIndex,
        user_number: usize,
        query: &str,
        limit: usize,
    ) -> Vec<(MemoryId, f32)> {
        let scored = index.scored(&user(user_number), &split(query), BM25).unwrap();
        let ids = scored.best(limit);
        let scores = scored.of(&ids).into_iter().map(|words| words.own);
        let mut best: Vec<_> = ids.into_iter().zip(scores).collect();
        best.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        best
    }

    type ModelIndex = BTreeMap<(UserKey, MemoryId), SearchText>;

    fn open(dir: &TempDir) -> TextIndex {
        TextIndex::open(dir.path(), OPTIONS, "one").unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put { n: usize, user: usize, fields: Vec<Vec<&'static str>> },
        Remove { n: usize, user: usize },
        Flush,
        FailToFlush,
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let terms = prop::collection::vec(prop::sample::select(&WORDS[..]), 0..6);
        let fields = prop::collection::vec(terms, 4);
        let put = (0..12usize, 0..3usize, fields).prop_map(|(n, user, fields)| Step::Put {
            n,
            user,
            fields,
        });
        let remove = (0..12usize, 0..3usize).prop_map(|(n, user)| Step::Remove { n, user });
        prop::collection::vec(
            prop_oneof![
                12 => put,
                4 => remove,
                2 => Just(Step::Flush),
                1 => Just(Step::FailToFlush),
                1 => Just(Step::Reopen),
            ],
            1..40,
        )
    }

    /// The BM25 formula once more, written plainly. `judges` give the document frequencies and the
    /// mean length, `judged` are scored.
    fn formula(judges: &[Vec<String>], judged: &[Vec<String>], query: &[String]) -> Vec<f64> {
        let count = judges.len() as f64;
        let k1 = f64::from(BM25.k1);
        let b = f64::from(BM25.b);
        let mean = judges.iter().map(|stems| length(stems)).sum::<f64>() / count;
        let mut scores = Vec::new();
        for stems in judged {
            let mut score = 0.0;
            for (n, term) in
                query.iter().enumerate().filter(|(n, term)| !query[..*n].contains(term))
            {
                let asked = query[n..].iter().filter(|other| *other == term).count() as f64;
                let having = judges.iter().filter(|other| other.contains(term)).count() as f64;
                let times = stems.iter().filter(|other| *other == term).count() as f64;
                let weight = asked * (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
                score += weight * (k1 + 1.0) * times
                    / (times + k1 * (1.0 - b + b * length(stems) / mean));
            }
            scores.push(score);
        }
        scores
    }

    fn length(stems: &[String]) -> f64 {
        stems.len().max(1) as f64
    }

    /// The weighted share of the query words that each document contains.
    fn shares(documents: &[Vec<String>], query: &[String]) -> Vec<f64> {
        let mut weights = Vec::new();
        for term in query {
            let having = documents.iter().filter(|other| other.contains(term)).count() as f64;
            let weight = (1.0 + (documents.len() as f64 - having + 0.5) / (having + 0.5)).ln();
            weights.push((term, weight));
        }
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut shares = Vec::new();
        for stems in documents {
            let contained = weights.iter().filter(|(term, _)| stems.contains(term));
            shares.push(contained.map(|(_, weight)| weight).sum::<f64>() / total);
        }
        shares
    }

    fn expected(
        model: &ModelIndex,
        key: &UserKey,
        query: &[String],
    ) -> Vec<(MemoryId, WordScores)> {
        let documents: Vec<(&MemoryId, &SearchText)> = model
            .iter()
            .filter(|((owner, _), _)| owner == key)
            .map(|((_, id), text)| (id, text))
            .collect();
        let texts = documents.iter().map(|(_, text)| *text);
        let own: Vec<_> = texts.clone().map(|text| strings(&text.own)).collect();
        let before: Vec<_> = texts.clone().map(|text| strings(&text.before)).collect();
        let after: Vec<_> = texts.clone().map(|text| strings(&text.after)).collect();
        let both: Vec<_> = texts.map(|text| strings(&text.before.and(&text.earlier))).collect();
        let previous = formula(&both, &both, query);
        let [of_own, of_before, of_after] =
            [&own, &before, &after].map(|judged| formula(&own, judged, query));
        let shared = shares(&own, query);
        let mut expected = Vec::new();
        for (n, (id, text)) in documents.iter().enumerate() {
            let shortness = (f64::from(BM25.short_words) / text.words.max(1) as f64).min(1.0);
            let own = of_own[n] + f64::from(BM25.previous) * shortness * previous[n];
            let [own, before, after, shared] =
                [own, of_before[n], of_after[n], shared[n]].map(|score| score as f32);
            expected.push((**id, WordScores { own, before, after, shared: Some(shared) }));
        }
        expected
    }

    fn strings(stems: &Stems) -> Vec<String> {
        stems.iter().map(str::to_owned).collect()
    }

    /// Sums of floats in another order may differ in their last bits.
    fn is_about(a: f32, b: f32) -> bool {
        (a - b).abs() <= 1e-5 * a.abs().max(b.abs())
    }

    fn are_about(a: &WordScores, b: &WordScores) -> bool {
        is_about(a.own, b.own)
            && is_about(a.before, b.before)
            && is_about(a.after, b.after)
            && match (a.shared, b.shared) {
                (Some(a), Some(b)) => is_about(a, b),
                (a, b) => a == b,
            }
    }

    /// Checks that the hits are the best by the formula: sorted by score, among equal scores by id,
    /// each score as expected, no better document left out.
    fn check_best(
        found: &[(MemoryId, f32)],
        expected: &BTreeMap<MemoryId, f32>,
        limit: usize,
        about: &str,
    ) {
        assert!(
            found.is_sorted_by(|a, b| a.1.total_cmp(&b.1).reverse().then(a.0.cmp(&b.0)).is_lt()),
            "{about}: {found:?}"
        );
        assert!(
            found.iter().all(|(id, score)| is_about(*score, expected[id])),
            "{about}: {found:?}, expected {expected:?}"
        );
        let mut best: Vec<f32> = expected.values().copied().filter(|score| *score > 0.0).collect();
        best.sort_by(|a, b| b.total_cmp(a));
        best.truncate(limit);
        let scores: Vec<f32> = found.iter().map(|(_, score)| *score).collect();
        let same =
            scores.len() == best.len() && scores.iter().zip(&best).all(|(a, b)| is_about(*a, *b));
        assert!(same, "{about}: {scores:?}, expected {best:?}");
    }

    fn check(index: &TextIndex, model: &ModelIndex) {
        for (user_number, key) in (0..3).map(user).enumerate() {
            for query in ["berlin", "flat lisbon flat", "berlin move rent lisbon", " ", "tokyo"] {
                let about = format!("{key} {query:?}");
                let all = expected(model, &key, &split(query));
                let own: BTreeMap<MemoryId, f32> =
                    all.iter().map(|(id, words)| (*id, words.own)).collect();
                for limit in [100, 2] {
                    check_best(&search(index, user_number, query, limit), &own, limit, &about);
                }
                let (ids, words): (Vec<_>, Vec<_>) =
                    all.into_iter().chain([(id(999), WordScores::default())]).unzip();
                let found = index.scored(&key, &split(query), BM25).unwrap().of(&ids);
                let same = found.len() == words.len()
                    && found.iter().zip(&words).all(|(a, b)| are_about(a, b));
                assert!(same, "{about}: {found:?}, expected {words:?}");
                let wordless = index.scored(&key, &[], BM25).unwrap().of(&ids);
                assert!(
                    wordless.iter().all(|words| *words == WordScores::default()),
                    "{about}: {wordless:?}"
                );
            }
            let own = model.iter().filter(|((owner, _), _)| *owner == key);
            let lengths = own.map(|(_, text)| text.own.len().max(1) as u64);
            assert_eq!(
                index.documents(&key).unwrap(),
                (lengths.clone().count(), lengths.sum()),
                "{key}"
            );
        }
        let mut ids = index.ids().unwrap();
        ids.sort_unstable();
        assert_eq!(ids, model.keys().cloned().collect::<Vec<_>>());
        let mut counts: BTreeMap<UserKey, usize> = BTreeMap::new();
        ids.into_iter().for_each(|(key, _)| *counts.entry(key).or_default() += 1);
        assert_eq!(index.counts().unwrap(), counts);
    }

    fn at(applied: i64) -> Mark {
        Mark { applied, changelog: None }
    }

    fn in_language(n: usize, user_number: usize, language: Option<Language>) -> Document {
        Document::new(id(n), user(user_number), move || SearchText { language, ..text("berlin") })
    }

    #[test]
    fn a_language_is_listed_only_for_its_users_and_only_while_a_memory_has_the_language() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(&dir);
        let [danish, dutch] = [0, 1].map(|n| Language::others().nth(n).expect("there are a dozen"));
        index.put(in_language(0, 0, Some(dutch)));
        index.put(in_language(1, 0, Some(danish)));
        index.put(in_language(2, 0, None));
        index.put(in_language(3, 1, None));
        fn languages(index: &TextIndex, user_number: usize) -> Vec<Language> {
            index.languages(&user(user_number)).unwrap()
        }
        assert_eq!((languages(&index, 0), languages(&index, 1)), (vec![danish, dutch], vec![]));
        assert!(index.settle(at(1)).unwrap());
        assert_eq!((languages(&index, 0), languages(&index, 1)), (vec![danish, dutch], vec![]));
        index.remove(&user(0), id(1));
        assert_eq!(languages(&index, 0), [dutch]);
        assert_eq!(search(&index, 0, "berlin", 10).len(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 48,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn after_any_puts_removals_and_flushes_scores_equal_the_formula(steps in steps()) {
            let dir = TempDir::new().unwrap();
            let mut index = open(&dir);
            let mut model = ModelIndex::new();
            for (mark, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put { n, user: number, fields } => {
                        let fields = fields.iter().map(|terms| terms.join(" "));
                        let written = fields.collect::<Vec<_>>().join("|");
                        model.insert((user(number), id(n)), text(&written));
                        index.put(document(n, number, &written));
                    }
                    Step::Remove { n, user: number } => {
                        model.remove(&(user(number), id(n)));
                        index.remove(&user(number), id(n));
                    }
                    Step::Flush => assert!(index.settle(at(mark as i64)).unwrap()),
                    Step::FailToFlush => drop(index.layers.write().freeze(at(mark as i64))),
                    Step::Reopen => {
                        index.settle(at(mark as i64)).unwrap();
                        drop(index);
                        index = open(&dir);
                        assert_eq!(index.mark(), Some(at(mark as i64)));
                    }
                }
                check(&index, &model);
            }
        }
    }

    #[test]
    fn an_index_without_a_disk_finds_the_same_before_and_after_a_flush() {
        let index = TextIndex::in_memory(OPTIONS, FlushedIndex::default());
        let model: ModelIndex =
            (0..5).map(|n| ((user(n % 2), id(n)), text("berlin flat|rent"))).collect();
        (0..5).for_each(|n| index.put(document(n, n % 2, "berlin flat|rent")));
        assert_eq!(index.mark(), None);
        assert_eq!([index.settle(at(7)).unwrap(), index.settle(at(7)).unwrap()], [true, false]);
        assert_eq!((index.mark(), index.pending()), (Some(at(7)), 0));
        check(&index, &model);
    }

    const LAYERS: [&str; 3] = ["disk", "flushing", "fresh"];

    /// The change of a layer to a memory of one user.
    #[derive(Clone, Copy, PartialEq)]
    enum LayerChange {
        Nothing,
        Put,
        Removed,
    }

    /// Number of combinations of a change in each layer to each of two users' memories with the
    /// same id. Each combination has two ids: for the even one the first user's change comes first,
    /// for the odd one the second user's.
    const COMBINATIONS: usize = 3usize.pow(2 * LAYERS.len() as u32);

    fn change_in(n: usize, user_number: usize, layer: usize) -> LayerChange {
        let digit = (2 * layer + user_number) as u32;
        let changes = [LayerChange::Nothing, LayerChange::Put, LayerChange::Removed];
        changes[n / 2 / 3usize.pow(digit) % 3]
    }

    fn name(layer: usize, n: usize) -> String {
        format!("{} {n}", LAYERS[layer])
    }

    /// Applies the changes of a layer. The word of a document names the layer, the speaker also the
    /// id.
    fn change_of_layer(index: &TextIndex, layer: usize) {
        for n in 0..2 * COMBINATIONS {
            for user_number in [n % 2, 1 - n % 2] {
                let text =
                    move || SearchText { speaker: Some(name(layer, n)), ..text(LAYERS[layer]) };
                match change_in(n, user_number, layer) {
                    LayerChange::Nothing => (),
                    LayerChange::Put => index.put(Document::new(id(n), user(user_number), text)),
                    LayerChange::Removed => index.remove(&user(user_number), id(n)),
                }
            }
        }
    }

    /// Returns the layer that put the document, if no later layer removed the document.
    fn layer_of(n: usize, user_number: usize, layers: usize) -> Option<usize> {
        let last = (0..layers)
            .rev()
            .find(|layer| change_in(n, user_number, *layer) != LayerChange::Nothing);
        last.filter(|layer| change_in(n, user_number, *layer) == LayerChange::Put)
    }

    /// Checks that each user finds exactly the result of the own changes, whatever the other user
    /// changed under the same ids.
    fn check_apart(index: &TextIndex, layers: usize, about: &str) {
        let mut all = Vec::new();
        for user_number in 0..2 {
            for (layer, word) in LAYERS.iter().enumerate() {
                let own = (0..2 * COMBINATIONS)
                    .filter(|n| layer_of(*n, user_number, layers) == Some(layer));
                let mut expected: Vec<MemoryId> = own.clone().map(id).collect();
                expected.sort_unstable();
                let mut found: Vec<_> =
                    search(index, user_number, word, 9999).into_iter().map(|(id, _)| id).collect();
                found.sort_unstable();
                assert_eq!(found, expected, "{about}: words of {}, {word}", user(user_number));
                let names = (0..2 * COMBINATIONS).map(|n| name(layer, n)).collect();
                let speakers: BTreeSet<_> =
                    index.speakers(&user(user_number), &names).unwrap().into_iter().collect();
                assert_eq!(
                    speakers,
                    own.map(|n| name(layer, n)).collect(),
                    "{about}: speakers of {}",
                    user(user_number)
                );
                all.extend(expected.into_iter().map(|id| (user(user_number), id)));
            }
        }
        let mut ids = index.ids().unwrap();
        ids.sort_unstable();
        all.sort_unstable();
        assert_eq!(ids, all, "{about}");
    }

    #[test]
    fn law_isolated_two_users_with_the_same_ids_lose_no_word_to_each_other() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        change_of_layer(&index, 0);
        check_apart(&index, 1, "in memory");
        assert!(index.settle(at(1)).unwrap());
        check_apart(&index, 1, "on disk");
        change_of_layer(&index, 1);
        drop(index.layers.write().freeze(at(2)));
        check_apart(&index, 2, "during a flush");
        change_of_layer(&index, 2);
        check_apart(&index, 3, "during a flush, and changed since");
        assert!(index.settle(at(3)).unwrap());
        check_apart(&index, 3, "all on disk");
        drop(index);
        check_apart(&open(&dir), 3, "opened again");
    }

    #[test]
    fn a_neighbours_documents_do_not_move_a_score_by_a_bit() {
        let dirs = [(); 2].map(|()| TempDir::new().unwrap());
        let [alone, crowded] = [0, 1].map(|n| open(&dirs[n]));
        for n in 0..200 {
            let text = format!("{} {}|{}", WORDS[n % 4], WORDS[n % 5], WORDS[n % 3]);
            alone.put(document(n, 0, &text));
            crowded.put(document(n, 0, &text));
            crowded.put(document(1000 + n, 1, &format!("{text} berlin berlin")));
            if n % 60 == 0 {
                crowded.settle(at(n as i64)).unwrap();
            }
        }
        let found = search(&crowded, 0, "berlin rent", 500);
        assert_eq!(search(&alone, 0, "berlin rent", 500), found);
        assert!(found.len() > 50);
        let ids = found.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let of_another = crowded.scored(&user(1), &split("berlin rent"), BM25).unwrap().of(&ids);
        assert_eq!(of_another, vec![WordScores::default(); ids.len()]);
    }

    #[test]
    fn a_speaker_is_listed_as_long_as_a_memory_of_theirs_exists() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        fn put(index: &TextIndex, n: usize, speaker: &str) {
            let speaker = (!speaker.is_empty()).then(|| speaker.to_owned());
            let text = SearchText { own: stems("mary"), speaker, ..SearchText::default() };
            index.put(Document::new(id(n), user(0), move || text.clone()));
        }
        fn is_listed(index: &TextIndex, user_number: usize, name: &str) -> bool {
            let names = BTreeSet::from([name.to_owned(), "nobody".to_owned()]);
            let found = index.speakers(&user(user_number), &names).unwrap();
            assert!(found.is_empty() || found == [name], "{found:?}");
            !found.is_empty()
        }
        put(&index, 1, "mary ann");
        put(&index, 2, "");
        for mark in 0..2 {
            assert!(
                is_listed(&index, 0, "mary ann")
                    && !is_listed(&index, 0, "mary")
                    && !is_listed(&index, 1, "mary ann")
            );
            index.settle(at(mark)).unwrap();
        }
        put(&index, 1, "bo");
        assert!(is_listed(&index, 0, "bo") && !is_listed(&index, 0, "mary ann"));
        index.settle(at(3)).unwrap();
        assert!(is_listed(&index, 0, "bo") && !is_listed(&index, 0, "mary ann"));
        index.remove(&user(0), id(1));
        assert!(!is_listed(&index, 0, "bo"));
    }

    #[test]
    fn flushed_documents_survive_a_reopening_and_the_mark_shows_what_is_missing() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        assert_eq!((index.mark(), index.discarded()), (None, None));
        index.put(document(1, 0, "berlin"));
        index.put(document(2, 0, "berlin"));
        index.remove(&user(0), id(2));
        assert!(index.is_flush_due());
        assert!(index.settle(at(41)).unwrap());
        assert!(!index.settle(at(41)).unwrap());
        index.put(document(3, 0, "berlin"));
        assert_eq!(index.pending(), 1);
        drop(index);
        let index = open(&dir);
        assert_eq!(
            (index.mark(), index.discarded(), index.ids().unwrap()),
            (Some(at(41)), None, vec![(user(0), id(1))])
        );
    }

    /// Reads again if a merge in the background has removed a file meanwhile.
    fn contains(dir: &TempDir, word: &str) -> bool {
        let read = |n| (0..100).find_map(|_| terms_on_disk(dir.path(), &user(n)).ok());
        (0..3).any(|n| read(n).expect("a merge ends").contains(word))
    }

    /// A flush within the purge would wait for ever if the purge held the lock.
    #[test]
    fn a_purge_lets_flushes_through_and_ends_when_asked() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        for n in 0..3 {
            index.put(document(2 * n, 0, "berlin"));
            index.put(document(2 * n + 1, 1, "quarkberlin"));
            index.settle(at(n as i64)).unwrap();
            index.remove(&user(1), id(2 * n + 1));
        }
        index.settle(at(3)).unwrap();
        assert!(index.purge(&|| false).is_err(), "it was asked to end");
        assert!(contains(&dir, "quarkberlin"));
        let flushes = std::cell::Cell::new(0);
        let purged = index.purge(&|| {
            flushes.set(flushes.get() + 1);
            index.put(document(100 + flushes.get(), 0, "lisbon"));
            index.settle(at(3 + flushes.get() as i64)).unwrap()
        });
        assert!(purged.unwrap());
        assert!(flushes.get() > 0 && !contains(&dir, "quarkberlin"));
        assert_eq!(search(&index, 0, "berlin", 99).len(), 3);
        assert_eq!(search(&index, 0, "lisbon", 99).len(), flushes.get());
    }

    #[test]
    fn a_purge_removes_the_words_of_removed_documents_from_the_disk() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        (0..20).for_each(|n| index.put(document(n, 0, "berlin")));
        index.put(document(20, 1, "quarkberlin"));
        index.settle(at(1)).unwrap();
        (21..30).for_each(|n| index.put(document(n, 0, "lisbon")));
        index.settle(at(2)).unwrap();
        index.remove(&user(1), id(20));
        index.settle(at(3)).unwrap();
        assert!(contains(&dir, "quarkberlin"), "a removal alone leaves the word on disk");
        assert!(index.purge(&|| true).unwrap());
        assert!(!contains(&dir, "quarkberlin"));
        assert!(!index.purge(&|| true).unwrap());
        assert_eq!(search(&index, 0, "berlin", 99).len(), 20);
        assert_eq!(search(&index, 0, "lisbon", 99).len(), 9);
        index.put(document(31, 0, "berlin"));
        index.settle(at(4)).unwrap();
        drop(index);
        let index = open(&dir);
        assert_eq!((index.mark(), search(&index, 0, "berlin", 99).len()), (Some(at(4)), 21));
    }

    #[test]
    fn an_index_in_memory_is_opened_as_its_last_flush_left_it() {
        let flushed = FlushedIndex::default();
        let index = TextIndex::in_memory(OPTIONS, flushed.clone());
        index.put(document(1, 0, "berlin"));
        index.put(document(2, 0, "berlin"));
        assert!(index.settle(at(1)).unwrap());
        index.remove(&user(0), id(2));
        assert!(index.settle(at(2)).unwrap() && !index.settle(at(2)).unwrap());
        let crashed = flushed.detached();
        index.put(document(3, 0, "berlin"));
        assert_eq!(index.pending(), 1);
        assert!(index.settle(at(3)).unwrap());
        for (flushed, mark, documents) in [(crashed, 2, vec![1]), (flushed, 3, vec![1, 3])] {
            let again = TextIndex::in_memory(OPTIONS, flushed);
            let mut ids = again.ids().unwrap();
            ids.sort_unstable();
            let mut expected: Vec<_> = documents.into_iter().map(|n| (user(0), id(n))).collect();
            expected.sort_unstable();
            assert_eq!((again.mark(), again.pending(), ids), (Some(at(mark)), 0, expected));
        }
    }

    #[test]
    fn an_index_of_another_generation_is_discarded_with_the_reason() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        index.put(document(1, 0, "berlin"));
        index.settle(at(7)).unwrap();
        drop(index);
        let index = TextIndex::open(dir.path(), OPTIONS, "two").unwrap();
        assert_eq!((index.mark(), index.ids().unwrap()), (None, vec![]));
        assert_eq!(index.discarded(), Some("its generation is one, not two"));
    }

    #[test]
    fn an_index_with_a_damaged_file_is_discarded_or_answers_as_before() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        (0..50).for_each(|n| index.put(document(n, 0, "berlin flat")));
        index.settle(at(7)).unwrap();
        let before = search(&index, 0, "flat", 100);
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
                let now = search(&index, 0, "flat", 100);
                assert_eq!(
                    now,
                    if index.mark().is_some() { before.clone() } else { vec![] },
                    "{:?}",
                    file.file_name()
                );
            }
        }
        assert!(
            discarded >= 15,
            "expected three damages to each of at least five segment files, got {discarded}"
        );
    }

    fn copied(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) {
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            let name = entry.file_name();
            if wanted(&name.to_string_lossy()) {
                std::fs::copy(entry.path(), to.join(name)).unwrap();
            }
        }
    }

    #[test]
    fn a_commit_that_a_kill_cut_short_is_repeated() {
        let dir = TempDir::new().unwrap();
        let killed = TempDir::new().unwrap();
        let index = open(&dir);
        (1..21).for_each(|n| index.put(document(n, 0, "berlin")));
        assert!(index.settle(at(1)).unwrap());
        drop(index);
        copied(dir.path(), killed.path(), |name| !name.ends_with(".lock"));
        let index = open(&dir);
        index.remove(&user(0), id(1));
        assert!(index.settle(at(2)).unwrap());
        // All files of the second commit except `meta.json`, which makes the commit valid.
        copied(dir.path(), killed.path(), |name| name.ends_with(".del") || name == ".managed.json");
        let index = open(&killed);
        assert_eq!((index.mark(), search(&index, 0, "berlin", 99).len()), (Some(at(1)), 20));
        index.remove(&user(0), id(1));
        assert!(index.settle(at(2)).unwrap());
        assert_eq!((index.mark(), search(&index, 0, "berlin", 99).len()), (Some(at(2)), 19));
    }

    /// tantivy packs postings in blocks of 128, and positions in separate blocks of 128.
    #[test]
    fn a_word_in_very_many_documents_is_counted_in_each() {
        [256, 512, 700].into_iter().for_each(check_very_many);
    }

    fn check_very_many(count: usize) {
        let dir = tempfile::tempdir().unwrap();
        let index = open(&dir);
        let mut model = ModelIndex::new();
        for n in 0..count {
            let fields = [1, 2, 3, 7].map(|from| {
                (0..(n * from) % 5)
                    .map(|k| WORDS[(n / 3 + k * k) % 3])
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            let written = format!("berlin {}", fields.join("|"));
            model.insert((user(n % 2), id(n)), text(&written));
            index.put(document(n, n % 2, &written));
        }
        assert!(index.settle(at(1)).unwrap());
        check(&index, &model);
        for n in (0..count).filter(|n| n % 7 == 3) {
            model.remove(&(user(n % 2), id(n)));
            index.remove(&user(n % 2), id(n));
        }
        check(&index, &model);
        assert!(index.settle(at(2)).unwrap());
        check(&index, &model);
    }

    #[test]
    fn a_second_owner_of_the_directory_is_refused() {
        let dir = TempDir::new().unwrap();
        let _owner = open(&dir);
        let fault = TextIndex::open(dir.path(), OPTIONS, "one")
            .err()
            .expect("the first owner holds the lock");
        assert_eq!(fault.exit_code(), domain::fault::StopName::StoreLocked.exit_code(), "{fault}");
    }

    #[test]
    fn a_document_put_again_during_a_flush_is_seen_exactly_once() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        std::thread::scope(|scope| {
            let flusher =
                scope.spawn(|| (0..30).for_each(|mark| assert!(index.settle(at(mark)).unwrap())));
            let mut version = 0;
            while !flusher.is_finished() {
                version += 1;
                let newest = format!("version{version}");
                index.put(document(1, 0, &format!("always {newest}")));
                index.put(document(2, 0, "always"));
                index.remove(&user(0), id(2));
                for word in ["always", &newest] {
                    let hits = search(&index, 0, word, 10);
                    assert_eq!(
                        hits.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
                        [id(1)],
                        "{word}"
                    );
                }
                assert_eq!(index.documents(&user(0)).unwrap(), (1, 2));
            }
            assert!(version > 1, "no document was put during a flush");
        });
    }
}
