//! Finds the hits for a question in a shard, each with the scores.
//!
//! 1. BM25 over the user's documents, and the nearest vectors, give up to `limit` ids each.
//! 2. Both scores are computed for every id, and [`rank::preselected`] keeps `limit` of them.
//! 3. Their memories are read from the store.
//! 4. Steps 2 and 3 are repeated once for the successors and revisions of the hits: for a question
//!    about Berlin, the answer is Lisbon.

use crate::profile::Profile;
use domain::fault::Fault;
use domain::{CosineScale, Memory, MemoryId, NeighbourTurn, Time, UserKey, Vector};
use foldhash::fast::RandomState;
use memory::ranking::{Hit, HitScore};
use memory::reads::StagedVectors;
use policies::rank;
use std::collections::HashSet;
use std::sync::Arc;
use storage::index::WordScores;
use storage::shard::Shard;

/// A question, prepared for the text index and the vector index.
pub struct PreparedQuestion {
    /// WordScores of the question in the original wording: names are good search terms.
    pub words: text::Words,
    /// Vector of the question in the first person of the speaker that the question names.
    pub vector: Vector,
    /// Vectors of the single words; empty if the profile does not use them.
    pub word_vectors: Vec<Vector>,
    pub spread: CosineScale,
    /// The greatest number of different words that are searched.
    pub terms_max: usize,
    /// The time that the answer is for. A memory that has expired by then is no hit of a recall.
    pub at: Time,
}

impl PreparedQuestion {
    /// Returns the search terms, and true if all of them are of one language.
    fn terms(&self, shard: &Shard, key: &UserKey) -> Result<(Vec<String>, bool), Fault> {
        let mut terms = self.words.searched(|| shard.index.text.languages(key))?;
        let is_in_one_language = terms.len() == self.words.content().len();
        let mut known: HashSet<String, RandomState> = HashSet::default();
        if terms.len() <= self.terms_max {
            return Ok((terms, is_in_one_language));
        }
        terms.retain(|term| {
            known.contains(term) || (known.len() < self.terms_max && known.insert(term.clone()))
        });
        Ok((terms, is_in_one_language))
    }
}

/// Returns the hits, and the information of the question's words among this user's documents.
pub fn find_hits(
    shard: &Shard,
    key: &UserKey,
    profile: &Profile,
    sought: &PreparedQuestion,
    limit: usize,
) -> Result<(Vec<Hit>, f32), Fault> {
    let PreparedQuestion { vector, word_vectors, spread, .. } = sought;
    let mut load = || shard.vectors(key);
    let (terms, is_in_one_language) = sought.terms(shard, key)?;
    let scored = shard.index.text.scored(key, &terms, profile.retrieval.words)?;
    let near = shard.index.vectors.nearest(key, &mut load, vector, limit, &StagedVectors::new())?;
    let mut next: Vec<MemoryId> =
        near.into_iter().chain(scored.best(limit)).map(|(id, _)| id).collect();
    next.sort_unstable();
    next.dedup();
    let (mut hits, mut read): (Vec<Hit>, HashSet<MemoryId, RandomState>) = Default::default();
    for _ in 0..2 {
        let cosines = shard.index.vectors.cosines(key, &mut load, vector, &next)?;
        let found: Vec<(MemoryId, WordScores, f32)> = next
            .iter()
            .zip(cosines)
            .zip(scored.of(&next))
            .map(|((id, cosine), words)| (*id, words, spread.standard(cosine)))
            .collect();
        let near: Vec<HitScore> = found
            .iter()
            .map(|(_, words, cosine)| HitScore { words: words.own, cosine: *cosine })
            .collect();
        let found: Vec<_> = rank::preselected(&near, profile.retrieval.dense, limit)
            .into_iter()
            .map(|place| found[place])
            .collect();
        let ids: Vec<MemoryId> = found.iter().map(|(id, ..)| *id).collect();
        let mut nearest_words = vec![0f32; ids.len()];
        for word in word_vectors {
            let cosines = shard.index.vectors.cosines(key, &mut load, word, &ids)?;
            nearest_words
                .iter_mut()
                .zip(cosines)
                .for_each(|(nearest, cosine)| *nearest = nearest.max(spread.standard(cosine)));
        }
        let first = hits.len();
        let memories =
            shard.store.cached_memories(key, &ids)?.into_iter().zip(found).zip(nearest_words);
        hits.extend(memories.filter_map(|((memory, (_, words, cosine)), nearest_word)| {
            Some(Hit { nearest_word, ..hit(memory?, words, is_in_one_language, cosine, sought) })
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
