//! The words of one shard: what is on disk, what is being written there and what is not yet, searched as if it were one.
//! Every document is seen exactly once at any moment, also while a settling is under way.

use super::Options;
use super::bm25::{Bm25, Found, Scored};
use super::disk::{Disk, Opened, unreadable};
use super::document::{Document, LANGUAGE, SPEAKER, language, speaker};
use super::segments::Segments;
use super::tail::Tail;
use crate::domain::{MemoryId, UserKey};
use crate::fault::Result;
use crate::text::Language;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub struct TextIndex {
    /// Order matters: a settling holds the disk, then the view, and the view never for long. None: words stay in memory.
    disk: Option<Mutex<Disk>>,
    view: RwLock<View>,
    discarded: Option<String>,
    tail_max: usize,
}

/// Three layers, oldest first. A change in a newer one hides the document of the same user and id in an older one.
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
        let Opened { disk, mark, discarded } = Disk::open(dir, options, generation)?;
        let view = View {
            segments: disk.segments()?,
            mark,
            settling: Arc::default(),
            fresh: Tail::default(),
        };
        Ok(TextIndex {
            disk: Some(Mutex::new(disk)),
            view: RwLock::new(view),
            discarded,
            tail_max: options.tail_max,
        })
    }

    /// Begins empty each time and ends with its process. Limit: nothing of it ever leaves the memory.
    pub fn in_memory(options: Options) -> TextIndex {
        let view = View {
            segments: Segments::none(),
            mark: None,
            settling: Arc::default(),
            fresh: Tail::default(),
        };
        TextIndex {
            disk: None,
            view: RwLock::new(view),
            discarded: None,
            tail_max: options.tail_max,
        }
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

    pub fn remove(&self, key: &UserKey, id: MemoryId) {
        self.write().fresh.remove(key, id);
    }

    /// Each of the user's documents with how well its words answer.
    pub fn scored<'q>(
        &self,
        key: &UserKey,
        query_terms: &'q [String],
        bm25: Bm25,
    ) -> Result<Scored<'q>> {
        let found = self.read().find(key, query_terms)?;
        Ok(bm25.scored(found))
    }

    /// Those of the names of whom the user has a memory that they said.
    pub fn speakers(&self, key: &UserKey, names: &BTreeSet<String>) -> Result<Vec<String>> {
        self.read().speakers(key, names)
    }

    /// Those besides English that a memory of the user is told in.
    pub fn languages(&self, key: &UserKey) -> Result<Vec<Language>> {
        self.read().languages(key)
    }

    /// How many documents the user has, and how many words they have together.
    pub fn documents(&self, key: &UserKey) -> Result<(usize, u64)> {
        let found = self.read().find(key, &[])?;
        Ok((found.rows.len(), found.length_total()))
    }

    /// Every live document of the shard by its user and id, in no order.
    pub fn ids(&self) -> Result<Vec<(UserKey, MemoryId)>> {
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
        let (mut found, hidden) = (Found::nothing_yet(query_terms), self.hides(key));
        let has_changes = self.settling.has_changes_of(key) || self.fresh.has_changes_of(key);
        self.segments
            .gather(key, &mut found, has_changes.then_some(&hidden))
            .map_err(unreadable)?;
        self.settling.gather(key, &mut found, self.fresh.hides(key));
        self.fresh.gather(key, &mut found, |_| false);
        Ok(found)
    }

    fn speakers(&self, key: &UserKey, names: &BTreeSet<String>) -> Result<Vec<String>> {
        let settled = self.segments.terms_from(key, SPEAKER).map_err(unreadable)?;
        let mut speakers = Vec::new();
        for name in names {
            let is_known = self.has(key, &speaker(name), &settled)?;
            speakers.extend(is_known.then(|| name.clone()));
        }
        Ok(speakers)
    }

    fn languages(&self, key: &UserKey) -> Result<Vec<Language>> {
        let settled = self.segments.terms_from(key, LANGUAGE).map_err(unreadable)?;
        let mut languages = Vec::new();
        for one in Language::others() {
            let is_spoken = self.has(key, &language(one), &settled)?;
            languages.extend(is_spoken.then_some(one));
        }
        Ok(languages)
    }

    /// Whether a document that is still there has the term; on disk only one of those terms may.
    fn has(&self, key: &UserKey, term: &str, settled: &BTreeSet<String>) -> Result<bool> {
        if self.fresh.has(key, term, |_| false)
            || self.settling.has(key, term, self.fresh.hides(key))
        {
            return Ok(true);
        }
        Ok(settled.contains(term)
            && self.segments.has(key, term, self.hides(key)).map_err(unreadable)?)
    }

    fn ids(&self) -> Result<Vec<(UserKey, MemoryId)>> {
        let put = |tail: &Tail| {
            let documents = tail
                .changes()
                .filter_map(|(key, id, document)| document.map(|_| (key.clone(), id)));
            documents.collect::<Vec<_>>()
        };
        let mut ids = self.segments.ids().map_err(unreadable)?;
        ids.retain(|(key, id)| !self.hides(key)(*id));
        ids.extend(put(&self.settling).into_iter().filter(|(key, id)| !self.fresh.hides(key)(*id)));
        ids.extend(put(&self.fresh));
        Ok(ids)
    }

    /// Whether a change that is not on disk yet hides the user's document there.
    fn hides(&self, key: &UserKey) -> impl Fn(MemoryId) -> bool {
        let (fresh, settling) = (self.fresh.hides(key), self.settling.hides(key));
        move |id| fresh(id) || settling(id)
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
    use super::super::{Text, Words};
    use super::*;
    use crate::domain::Position;
    use crate::text::Stems;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tempfile::TempDir;

    const OPTIONS: Options = Options { writer_bytes: 0, tail_max: 3, documents_bytes_max: 500 };
    const BM25: Bm25 = Bm25 { k1: 1.2, b: 0.75, previous: 0.3, short_words: 2.0 };
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

    fn stems(text: &str) -> Stems {
        text.split(' ').collect()
    }

    /// Its own words, those of the turn before, of the one before that and of the one after, between bars.
    fn text(written: &str) -> Text {
        let mut places = written.split('|').map(stems);
        let own = places.next().unwrap_or_default();
        let (words, mut next) = (own.len(), || places.next().unwrap_or_default());
        Text {
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

    /// The ids and scores of the best.
    fn search(
        index: &TextIndex,
        user_number: usize,
        query: &str,
        limit: usize,
    ) -> Vec<(MemoryId, f32)> {
        index.scored(&user(user_number), &split(query), BM25).unwrap().best(limit)
    }

    type Model = BTreeMap<(UserKey, MemoryId), Text>;

    fn open(dir: &TempDir) -> TextIndex {
        TextIndex::open(dir.path(), OPTIONS, "one").unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put { n: usize, user: usize, places: Vec<Vec<&'static str>> },
        Remove { n: usize, user: usize },
        Settle,
        FailToSettle,
        Reopen,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let terms = prop::collection::vec(prop::sample::select(&WORDS[..]), 0..6);
        let places = prop::collection::vec(terms, 4);
        let put = (0..12usize, 0..3usize, places).prop_map(|(n, user, places)| Step::Put {
            n,
            user,
            places,
        });
        let remove = (0..12usize, 0..3usize).prop_map(|(n, user)| Step::Remove { n, user });
        prop::collection::vec(
            prop_oneof![12 => put, 4 => remove, 2 => Just(Step::Settle), 1 => Just(Step::FailToSettle), 1 => Just(Step::Reopen)],
            1..40,
        )
    }

    /// The formula once more: how well each document answers, judged by one set of documents and measured in another.
    fn formula(judges: &[Vec<String>], judged: &[Vec<String>], query: &[String]) -> Vec<f64> {
        let length = |stems: &Vec<String>| stems.len().max(1) as f64;
        let count = judges.len() as f64;
        let (k1, b) = (f64::from(BM25.k1), f64::from(BM25.b));
        let mean = judges.iter().map(length).sum::<f64>() / count;
        let score = |stems: &Vec<String>| {
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
            score
        };
        judged.iter().map(score).collect()
    }

    /// Of what the query says, the share that each document says too.
    fn shares(documents: &[Vec<String>], query: &[String]) -> Vec<f64> {
        let having =
            |term: &String| documents.iter().filter(|other| other.contains(term)).count() as f64;
        let weight = |term: &String| {
            (1.0 + (documents.len() as f64 - having(term) + 0.5) / (having(term) + 0.5)).ln()
        };
        let sum = |is_said: &dyn Fn(&String) -> bool| {
            query.iter().filter(|term| is_said(term)).map(weight).sum::<f64>()
        };
        documents.iter().map(|stems| sum(&|term| stems.contains(term)) / sum(&|_| true)).collect()
    }

    fn expected(model: &Model, key: &UserKey, query: &[String]) -> Vec<(MemoryId, Words)> {
        let documents: Vec<(&MemoryId, &Text)> = model
            .iter()
            .filter(|((owner, _), _)| owner == key)
            .map(|((_, id), text)| (id, text))
            .collect();
        let owned = |stems: &Stems| stems.iter().map(str::to_owned).collect::<Vec<_>>();
        let place = |of: &dyn Fn(&Text) -> Stems| {
            documents.iter().map(|(_, text)| owned(&of(text))).collect::<Vec<_>>()
        };
        let own = place(&|text| text.own.clone());
        let (before, after) =
            (place(&|text| text.before.clone()), place(&|text| text.after.clone()));
        let both = place(&|text| text.before.and(&text.earlier));
        let previous = formula(&both, &both, query);
        let [of_own, of_before, of_after] =
            [&own, &before, &after].map(|judged| formula(&own, judged, query));
        let shared = shares(&own, query);
        let words = |(n, (id, text)): (usize, &(&MemoryId, &Text))| {
            let shortness = (f64::from(BM25.short_words) / text.words.max(1) as f64).min(1.0);
            let own = of_own[n] + f64::from(BM25.previous) * shortness * previous[n];
            let [own, before, after, shared] =
                [own, of_before[n], of_after[n], shared[n]].map(|score| score as f32);
            (**id, Words { own, before, after, shared: Some(shared) })
        };
        documents.iter().enumerate().map(words).collect()
    }

    /// Sums of floats in another order may differ in their last bits.
    fn is_about(a: f32, b: f32) -> bool {
        (a - b).abs() <= 1e-5 * a.abs().max(b.abs())
    }

    /// Best first, of equals the smaller id first, each with the score that the formula gives it, and none left out for a worse one.
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

    fn check(index: &TextIndex, model: &Model) {
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
                    all.into_iter().chain([(id(999), Words::default())]).unzip();
                let found = index.scored(&key, &split(query), BM25).unwrap().of(&ids);
                let is_same = |a: &Words, b: &Words| {
                    is_about(a.own, b.own)
                        && is_about(a.before, b.before)
                        && is_about(a.after, b.after)
                        && match (a.shared, b.shared) {
                            (Some(a), Some(b)) => is_about(a, b),
                            (a, b) => a == b,
                        }
                };
                let same = found.len() == words.len()
                    && found.iter().zip(&words).all(|(a, b)| is_same(a, b));
                assert!(same, "{about}: {found:?}, expected {words:?}");
                let wordless = index.scored(&key, &[], BM25).unwrap().of(&ids);
                assert!(
                    wordless.iter().all(|words| *words == Words::default()),
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
    }

    #[test]
    fn a_language_is_known_of_those_who_spoke_it_for_as_long_as_a_memory_does() {
        let dir = tempfile::tempdir().unwrap();
        let index = open(&dir);
        let [danish, dutch] = [0, 1].map(|n| Language::others().nth(n).expect("there are a dozen"));
        let told = |n, user_number, language| {
            Document::new(id(n), user(user_number), move || Text { language, ..text("berlin") })
        };
        for document in
            [told(0, 0, Some(dutch)), told(1, 0, Some(danish)), told(2, 0, None), told(3, 1, None)]
        {
            index.put(document);
        }
        let languages = |user_number| index.languages(&user(user_number)).unwrap();
        assert_eq!((languages(0), languages(1)), (vec![danish, dutch], vec![]));
        assert!(index.settle(1).unwrap());
        assert_eq!((languages(0), languages(1)), (vec![danish, dutch], vec![]));
        index.remove(&user(0), id(1));
        assert_eq!(languages(0), [dutch]);
        assert_eq!(search(&index, 0, "berlin", 10).len(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_put_removed_and_settled_every_score_is_that_of_the_formula(steps in steps()) {
            let dir = TempDir::new().unwrap();
            let mut index = open(&dir);
            let mut model = Model::new();
            for (mark, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put { n, user: number, places } => {
                        let written = places.iter().map(|terms| terms.join(" ")).collect::<Vec<_>>().join("|");
                        model.insert((user(number), id(n)), text(&written));
                        index.put(document(n, number, &written));
                    }
                    Step::Remove { n, user: number } => {
                        model.remove(&(user(number), id(n)));
                        index.remove(&user(number), id(n));
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
        let model: Model =
            (0..5).map(|n| ((user(n % 2), id(n)), text("berlin flat|rent"))).collect();
        (0..5).for_each(|n| index.put(document(n, n % 2, "berlin flat|rent")));
        assert_eq!(index.mark(), None);
        assert_eq!([index.settle(7).unwrap(), index.settle(7).unwrap()], [true, false]);
        assert_eq!((index.mark(), index.pending()), (Some(7), 5));
        check(&index, &model);
    }

    const LAYERS: [&str; 3] = ["disk", "settling", "fresh"];

    /// What a layer does to a memory of one user.
    #[derive(Clone, Copy, PartialEq)]
    enum Did {
        Nothing,
        Put,
        Removed,
    }

    /// Counts the combinations of what each layer does to each of two users' memories with one id. A combination has two ids: of the even
    /// one the first user's change comes first, of the odd one the second user's.
    const COMBINATIONS: usize = 3usize.pow(2 * LAYERS.len() as u32);

    fn did(n: usize, user_number: usize, layer: usize) -> Did {
        let place = (2 * layer + user_number) as u32;
        [Did::Nothing, Did::Put, Did::Removed][n / 2 / 3usize.pow(place) % 3]
    }

    fn name(layer: usize, n: usize) -> String {
        format!("{} {n}", LAYERS[layer])
    }

    /// The word of a document names its layer, and its speaker also its id.
    fn change_of_layer(index: &TextIndex, layer: usize) {
        for n in 0..2 * COMBINATIONS {
            for user_number in [n % 2, 1 - n % 2] {
                let text = move || Text { speaker: Some(name(layer, n)), ..text(LAYERS[layer]) };
                match did(n, user_number, layer) {
                    Did::Nothing => (),
                    Did::Put => index.put(Document::new(id(n), user(user_number), text)),
                    Did::Removed => index.remove(&user(user_number), id(n)),
                }
            }
        }
    }

    /// Each user finds exactly what their own changes have left, whatever the other user did with the same ids.
    fn check_apart(index: &TextIndex, layers: usize, about: &str) {
        let mut all = Vec::new();
        for user_number in 0..2 {
            let last =
                |n| (0..layers).rev().find(|layer| did(n, user_number, *layer) != Did::Nothing);
            let put_by = |n| last(n).filter(|layer| did(n, user_number, *layer) == Did::Put);
            for (layer, word) in LAYERS.iter().enumerate() {
                let own = (0..2 * COMBINATIONS).filter(|n| put_by(*n) == Some(layer));
                let mut expected: Vec<MemoryId> = own.clone().map(id).collect();
                expected.sort_unstable();
                let mut found: Vec<_> =
                    search(index, user_number, word, 9999).into_iter().map(|(id, _)| id).collect();
                found.sort_unstable();
                assert_eq!(found, expected, "{about}: the words of {}, {word}", user(user_number));
                let names = (0..2 * COMBINATIONS).map(|n| name(layer, n)).collect();
                let speakers: BTreeSet<_> =
                    index.speakers(&user(user_number), &names).unwrap().into_iter().collect();
                assert_eq!(
                    speakers,
                    own.map(|n| name(layer, n)).collect(),
                    "{about}: who spoke to {}",
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
        assert!(index.settle(1).unwrap());
        check_apart(&index, 1, "on disk");
        change_of_layer(&index, 1);
        drop(index.write().freeze(2));
        check_apart(&index, 2, "while settling");
        change_of_layer(&index, 2);
        check_apart(&index, 3, "while settling, and changed since");
        assert!(index.settle(3).unwrap());
        check_apart(&index, 3, "all on disk");
        drop(index);
        check_apart(&open(&dir), 3, "opened again");
    }

    #[test]
    fn a_neighbours_documents_do_not_move_a_score_by_a_bit() {
        let (alone, crowded) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (alone, crowded) = (open(&alone), open(&crowded));
        for n in 0..200 {
            let text = format!("{} {}|{}", WORDS[n % 4], WORDS[n % 5], WORDS[n % 3]);
            alone.put(document(n, 0, &text));
            crowded.put(document(n, 0, &text));
            crowded.put(document(1000 + n, 1, &format!("{text} berlin berlin")));
            if n % 60 == 0 {
                crowded.settle(n as i64).unwrap();
            }
        }
        let found = |index: &TextIndex| search(index, 0, "berlin rent", 500);
        assert_eq!(found(&alone), found(&crowded));
        assert!(found(&crowded).len() > 50);
        let ids = found(&crowded).iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let of_another = crowded.scored(&user(1), &split("berlin rent"), BM25).unwrap().of(&ids);
        assert_eq!(of_another, vec![Words::default(); ids.len()]);
    }

    #[test]
    fn a_speaker_is_known_as_long_as_something_of_theirs_is() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        let by = |n, speaker: &str| {
            let speaker = (!speaker.is_empty()).then(|| speaker.to_owned());
            let text = Text { own: stems("mary"), speaker, ..Text::default() };
            index.put(Document::new(id(n), user(0), move || text.clone()));
        };
        let of = |user_number, name: &str| {
            index
                .speakers(
                    &user(user_number),
                    &BTreeSet::from([name.to_owned(), "nobody".to_owned()]),
                )
                .unwrap()
        };
        let known = |name: &str| of(0, name) == [name];
        by(1, "mary ann");
        by(2, "");
        for mark in 0..2 {
            assert!(known("mary ann") && !known("mary") && of(1, "mary ann").is_empty());
            index.settle(mark).unwrap();
        }
        by(1, "bo");
        assert!(known("bo") && !known("mary ann"));
        index.settle(3).unwrap();
        assert!(known("bo") && !known("mary ann"));
        index.remove(&user(0), id(1));
        assert!(!known("bo"));
    }

    #[test]
    fn what_was_settled_is_there_again_and_the_rest_is_for_the_mark_to_tell() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        assert_eq!((index.mark(), index.discarded()), (None, None));
        index.put(document(1, 0, "berlin"));
        index.put(document(2, 0, "berlin"));
        index.remove(&user(0), id(2));
        assert!(index.is_settling_due());
        assert!(index.settle(41).unwrap());
        assert!(!index.settle(41).unwrap());
        index.put(document(3, 0, "berlin"));
        assert_eq!(index.pending(), 1);
        drop(index);
        let index = open(&dir);
        assert_eq!(
            (index.mark(), index.discarded(), index.ids().unwrap()),
            (Some(41), None, vec![(user(0), id(1))])
        );
    }

    #[test]
    fn an_index_of_another_generation_is_begun_anew_and_says_so() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        index.put(document(1, 0, "berlin"));
        index.settle(7).unwrap();
        drop(index);
        let index = TextIndex::open(dir.path(), OPTIONS, "two").unwrap();
        assert_eq!((index.mark(), index.ids().unwrap()), (None, vec![]));
        assert_eq!(index.discarded(), Some("its generation is one, not two"));
    }

    #[test]
    fn an_index_with_a_damaged_file_is_begun_anew_or_answers_as_before() {
        let dir = TempDir::new().unwrap();
        let index = open(&dir);
        (0..50).for_each(|n| index.put(document(n, 0, "berlin flat")));
        index.settle(7).unwrap();
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
            "three damages to each of at least five files of the segment, not {discarded}"
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
    fn a_commit_that_a_kill_cut_short_is_made_again() {
        let (dir, killed) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let index = open(&dir);
        (1..21).for_each(|n| index.put(document(n, 0, "berlin")));
        assert!(index.settle(1).unwrap());
        drop(index);
        copied(dir.path(), killed.path(), |name| !name.ends_with(".lock"));
        let index = open(&dir);
        index.remove(&user(0), id(1));
        assert!(index.settle(2).unwrap());
        // All that the second commit wrote but the one file that makes it one.
        copied(dir.path(), killed.path(), |name| name.ends_with(".del") || name == ".managed.json");
        let index = open(&killed);
        assert_eq!((index.mark(), search(&index, 0, "berlin", 99).len()), (Some(1), 20));
        index.remove(&user(0), id(1));
        assert!(index.settle(2).unwrap());
        assert_eq!((index.mark(), search(&index, 0, "berlin", 99).len()), (Some(2), 19));
    }

    /// tantivy packs postings by 128, and positions by 128 of their own.
    #[test]
    fn a_word_in_very_many_documents_is_counted_in_each() {
        [256, 512, 700].into_iter().for_each(check_very_many);
    }

    fn check_very_many(count: usize) {
        let dir = tempfile::tempdir().unwrap();
        let (index, mut model) = (open(&dir), Model::new());
        for n in 0..count {
            let place = |from: usize| {
                (0..(n * from) % 5)
                    .map(|k| WORDS[(n / 3 + k * k) % 3])
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            let written = format!("berlin {}|{}|{}|{}", place(1), place(2), place(3), place(7));
            model.insert((user(n % 2), id(n)), text(&written));
            index.put(document(n, n % 2, &written));
        }
        assert!(index.settle(1).unwrap());
        check(&index, &model);
        for n in (0..count).filter(|n| n % 7 == 3) {
            model.remove(&(user(n % 2), id(n)));
            index.remove(&user(n % 2), id(n));
        }
        check(&index, &model);
        assert!(index.settle(2).unwrap());
        check(&index, &model);
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
            let settler =
                scope.spawn(|| (0..30).for_each(|mark| assert!(index.settle(mark).unwrap())));
            let mut version = 0;
            while !settler.is_finished() {
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
            assert!(version > 1, "nothing was written while it settled");
        });
    }
}
