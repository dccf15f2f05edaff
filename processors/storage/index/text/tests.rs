//! Scores and lists over any layers, compared with a plain model.

mod apart;
mod flushes;

use super::super::bm25::WordScores;
use super::super::disk::terms_on_disk;
use super::super::document::SearchText;
use super::*;
use domain::Position;
use proptest::prelude::*;
use tempfile::TempDir;
use text::Stems;

const OPTIONS: IndexOptions =
    IndexOptions { mem_segment_max: 3, documents_bytes_max: 500, vectors_filed_min: 1 };
const BM25: Bm25 = Bm25 { k1: 1.2, b: 0.75, previous: 0.3, short_words: 2.0 };
/// The scores of a document without a word of the question.
const NO_WORD: WordScores = WordScores { own: 0.0, before: 0.0, after: 0.0, shared: Some(0.0) };
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
    let scored = index.scored(&user(user_number), &split(query), BM25, None).unwrap();
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
    let put =
        (0..12usize, 0..3usize, fields).prop_map(|(n, user, fields)| Step::Put { n, user, fields });
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
        for (n, term) in query.iter().enumerate().filter(|(n, term)| !query[..*n].contains(term)) {
            let asked = query[n..].iter().filter(|other| *other == term).count() as f64;
            let having = judges.iter().filter(|other| other.contains(term)).count() as f64;
            let times = stems.iter().filter(|other| *other == term).count() as f64;
            let weight = asked * (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
            score +=
                weight * (k1 + 1.0) * times / (times + k1 * (1.0 - b + b * length(stems) / mean));
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

fn expected(model: &ModelIndex, key: &UserKey, query: &[String]) -> Vec<(MemoryId, WordScores)> {
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
                all.into_iter().chain([(id(999), NO_WORD)]).unzip();
            let found = index.scored(&key, &split(query), BM25, None).unwrap().of(&ids);
            let same = found.len() == words.len()
                && found.iter().zip(&words).all(|(a, b)| are_about(a, b));
            assert!(same, "{about}: {found:?}, expected {words:?}");
            let some: Vec<MemoryId> = ids.iter().step_by(2).copied().collect();
            let alone = index.scored(&key, &split(query), BM25, Some(&some)).unwrap();
            let of_some = found.iter().step_by(2).copied();
            assert_eq!(alone.of(&some), of_some.collect::<Vec<_>>(), "{about}, some");
            let expected =
                search(index, user_number, query, ids.len()).into_iter().map(|(id, _)| id);
            let mut expected: Vec<_> = expected.filter(|id| some.contains(id)).collect();
            let mut best = alone.best(ids.len());
            expected.sort();
            best.sort();
            assert_eq!(best, expected, "{about}, some");
            let wordless = index.scored(&key, &[], BM25, None).unwrap().of(&ids);
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

fn at(applied: i64) -> Checkpoint {
    Checkpoint { applied, changelog: None }
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
    assert!(index.flush(at(1)).unwrap());
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
                Step::Flush => assert!(index.flush(at(mark as i64)).unwrap()),
                Step::FailToFlush => drop(index.layers.write().freeze(at(mark as i64))),
                Step::Reopen => {
                    index.flush(at(mark as i64)).unwrap();
                    drop(index);
                    index = open(&dir);
                    assert_eq!(index.checkpoint(), Some(at(mark as i64)));
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
    assert_eq!(index.checkpoint(), None);
    assert_eq!([index.flush(at(7)).unwrap(), index.flush(at(7)).unwrap()], [true, false]);
    assert_eq!((index.checkpoint(), index.pending()), (Some(at(7)), 0));
    check(&index, &model);
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
            crowded.flush(at(n as i64)).unwrap();
        }
    }
    let found = search(&crowded, 0, "berlin rent", 500);
    assert_eq!(search(&alone, 0, "berlin rent", 500), found);
    assert!(found.len() > 50);
    let ids = found.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let of_another = crowded.scored(&user(1), &split("berlin rent"), BM25, None).unwrap().of(&ids);
    assert_eq!(of_another, vec![NO_WORD; ids.len()]);
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
        index.flush(at(mark)).unwrap();
    }
    put(&index, 1, "bo");
    assert!(is_listed(&index, 0, "bo") && !is_listed(&index, 0, "mary ann"));
    index.flush(at(3)).unwrap();
    assert!(is_listed(&index, 0, "bo") && !is_listed(&index, 0, "mary ann"));
    index.remove(&user(0), id(1));
    assert!(!is_listed(&index, 0, "bo"));
}

/// tantivy packs postings in blocks of 128, and positions in separate blocks of 128.
#[test]
fn a_word_in_very_many_documents_is_counted_in_each() {
    [256, 512, 700].into_iter().for_each(check_very_many);
}

fn check_very_many(count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let options = IndexOptions { documents_bytes_max: 1 << 20, ..OPTIONS };
    let index = TextIndex::open(dir.path(), options, "one").unwrap();
    let mut model = ModelIndex::new();
    for n in 0..count {
        let fields = [1, 2, 3, 7].map(|from| {
            (0..(n * from) % 5).map(|k| WORDS[(n / 3 + k * k) % 3]).collect::<Vec<_>>().join(" ")
        });
        let written = format!("berlin {}", fields.join("|"));
        model.insert((user(n % 2), id(n)), text(&written));
        index.put(document(n, n % 2, &written));
    }
    assert!(index.flush(at(1)).unwrap());
    check(&index, &model);
    for n in (0..count).filter(|n| n % 7 == 3) {
        model.remove(&(user(n % 2), id(n)));
        index.remove(&user(n % 2), id(n));
    }
    check(&index, &model);
    assert!(index.flush(at(2)).unwrap());
    check(&index, &model);
}
