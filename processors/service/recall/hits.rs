//! Finds the hits for a question in a shard, each with the scores.
//!
//! 1. BM25 over the user's documents, and the nearest vectors, give up to `limit` ids each. For a
//!    question with filters, all memories that meet them are taken, and of those beside them the best by
//!    BM25.
//! 2. Both scores are computed for every id, and [`rank::preselected`] keeps `limit` of them.
//! 3. Their memories are read from the store.
//! 4. Steps 2 and 3 are repeated once for the successors and revisions of the hits: for a question
//!    about Berlin, the answer is Lisbon.

use domain::fault::Fault;
use domain::{CosineScale, Memory, MemoryId, NeighbourTurn, Time, UserKey, Vector};
use foldhash::fast::RandomState;
use kernel::ranking::{Hit, HitScore};
use policies::rank;
use profiles::Profile;
use std::collections::HashSet;
use std::sync::Arc;
use storage::index::WordScores;
use storage::shard::Shard;
use storage::store::listing::{KEPT_FROM, Labels};

/// Different words of a question that are searched, the first ones. Each is looked up in the user's
/// documents while the next request waits; real questions have under fifty. The whole question is
/// still encoded, up to [`models::embedder::TOKENS_MAX`] tokens.
const TERMS_MAX: usize = 256;

/// A question, prepared for the text index and the vector index.
pub struct PreparedQuestion {
    /// WordScores of the question in the original wording: names are good search terms.
    pub words: text::Words,
    /// Vector of the question in the first person of the speaker that the question names.
    pub vector: Vector,
    /// Vectors of the single words; empty if the profile does not use them.
    pub word_vectors: Vec<Vector>,
    pub spread: CosineScale,
    /// The time that the answer is for. A memory that has expired by then is no hit of a recall.
    pub at: Time,
}

impl PreparedQuestion {
    /// Returns the search terms, and true if all of them are of one language.
    fn terms(&self, shard: &Shard, key: &UserKey) -> Result<(Vec<String>, bool), Fault> {
        let mut terms = self.words.searched(|| shard.index.text.languages(key))?;
        let is_in_one_language = terms.len() == self.words.content().len();
        let mut known: HashSet<String, RandomState> = HashSet::default();
        if terms.len() <= TERMS_MAX {
            return Ok((terms, is_in_one_language));
        }
        terms.retain(|term| {
            known.contains(term) || (known.len() < TERMS_MAX && known.insert(term.clone()))
        });
        Ok((terms, is_in_one_language))
    }
}

/// The memories that a question may find.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub key: &'a UserKey,
    /// Memories that each engine gives.
    pub limit: usize,
    /// All memories with these labels are wanted, up to [`ALL_MAX`].
    pub labels: Option<Wanted<'a>>,
}

/// The labels of the memories that a question with filters wants.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub are: &'a dyn Fn(&Labels) -> bool,
    /// A value that all of them have, as [`domain::Filter::required`] says.
    pub required: Option<(Option<&'a str>, &'a str)>,
}

/// Memories that are ranked for a question that wants all of some sort. The best hundred could all be
/// of another.
pub const ALL_MAX: usize = 10_000;

/// Wanted memories, up to which those beside them are looked up: so many stay in the cache until they
/// are ranked.
const LOOKED_UP_MAX: usize = 1_000;

/// All memories with the labels of a question.
struct WantedMemories {
    ids: Vec<MemoryId>,
    /// With those that may lend them relevance: the turns beside them, and their earlier values. `None`:
    /// all memories.
    among: Option<Vec<MemoryId>>,
}

impl WantedMemories {
    fn of(shard: &Shard, scope: Scope<'_>, labels: Wanted<'_>) -> Result<WantedMemories, Fault> {
        let listing = shard.store.listing(scope.key)?;
        let ids = listing.with_labels(labels.required, labels.are);
        let among = if ids.len() <= LOOKED_UP_MAX && scope.limit < ALL_MAX {
            let memories = shard.store.cached_memories(scope.key, &ids)?;
            let beside = listing.beside(memories.iter().flatten().map(|memory| &**memory));
            Some([&ids[..], &beside[..]].concat())
        } else {
            None
        };
        Ok(WantedMemories { ids, among })
    }
}

/// Returns the hits, and the information of the question's words among this user's documents.
pub fn find_hits(
    shard: &Shard,
    profile: &Profile,
    sought: &PreparedQuestion,
    scope: Scope<'_>,
) -> Result<(Vec<Hit>, f32), Fault> {
    let key = scope.key;
    let PreparedQuestion { vector, word_vectors, spread, .. } = sought;
    let (terms, is_in_one_language) = sought.terms(shard, key)?;
    let compared = shard.index.vectors.compared(key, &mut || shard.vectors(key), vector)?;
    // All are read where there are few.
    let labels = scope.labels.filter(|_| compared.count() >= KEPT_FROM);
    let wanted = labels.map(|labels| WantedMemories::of(shard, scope, labels)).transpose()?;
    let among = wanted.as_ref().and_then(|wanted| wanted.among.as_deref());
    let scored = shard.index.text.scored(key, &terms, profile.retrieval.words, among)?;
    let limit = if scope.labels.is_some() { ALL_MAX } else { scope.limit };
    let mut next = match wanted {
        None => [compared.nearest(limit), scored.best(limit)].concat(),
        Some(wanted) => [wanted.ids, scored.best(scope.limit)].concat(),
    };
    next.sort_unstable_by_key(|id| id.0.as_u128());
    next.dedup();
    let (mut hits, mut read): (Vec<Hit>, HashSet<MemoryId, RandomState>) = Default::default();
    for _ in 0..2 {
        if next.is_empty() {
            break;
        }
        let rows: Vec<Option<usize>> = next.iter().map(|id| compared.row(*id)).collect();
        let words = scored.of(&next);
        let near: Vec<HitScore> = rows
            .iter()
            .zip(&words)
            .map(|(row, words)| HitScore {
                words: words.own,
                cosine: spread.standard(compared.cosine(*row)),
            })
            .collect();
        let positions = rank::preselected(&near, profile.retrieval.dense, limit);
        let ids: Vec<MemoryId> = positions.iter().map(|position| next[*position]).collect();
        let first = hits.len();
        hits.reserve(ids.len());
        let memories = positions.into_iter().zip(shard.store.cached_memories(key, &ids)?);
        hits.extend(memories.filter_map(|(position, memory)| {
            let hit =
                hit(memory?, words[position], is_in_one_language, near[position].cosine, sought);
            let to_words = (word_vectors.iter())
                .map(|word| spread.standard(compared.cosine_to(rows[position], word)));
            let nearest_word = to_words.fold(0.0, f32::max);
            Some(Hit { nearest_word, ..hit })
        }));
        read.extend(ids);
        next = hits[first..]
            .iter()
            .filter_map(|hit| hit.memory.superseded_by.or(hit.memory.revised_by))
            .filter(|id| read.insert(*id))
            .collect();
    }
    // In a search in several languages, the stop words of one language ("where", "is") would count
    // as rare words of another.
    let information = if is_in_one_language { scored.information() } else { 0.0 };
    Ok((hits, information))
}

fn hit(
    memory: Arc<Memory>,
    words: WordScores,
    is_in_one_language: bool,
    cosine: f32,
    sought: &PreparedQuestion,
) -> Hit {
    Hit {
        own: HitScore { words: words.own, cosine },
        nearest_word: 0.0,
        shared: words.shared.filter(|_| is_in_one_language),
        before: neighbour_score(&memory.around.before, words.before, sought),
        after: neighbour_score(&memory.around.after, words.after, sought),
        memory,
    }
}

fn neighbour_score(
    neighbour: &Option<NeighbourTurn>,
    words: f32,
    sought: &PreparedQuestion,
) -> HitScore {
    let cosine = neighbour
        .as_ref()
        .map_or(0.0, |neighbour| sought.spread.standard(neighbour.vector.cosine(&sought.vector)));
    HitScore { words, cosine }
}
