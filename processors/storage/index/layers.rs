//! The three layers of a text index, which a search sees as one: `text.rs` decides when a document moves
//! from one to the next.
//!
//! A change in a newer layer hides the document of the same user and id in the older layers, as in
//! an [LSM tree](https://en.wikipedia.org/wiki/Log-structured_merge-tree).

use super::bm25::QueryMatches;
use super::disk::unreadable;
use super::document::{LANGUAGE, SPEAKER, language_term, speaker_term};
use super::mem_segment::MemSegment;
use super::segments::Segments;
use super::some_ids::SomeIds;
use crate::checkpoint::Checkpoint;
use domain::fault::Result;
use domain::{MemoryId, UserKey};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use text::Language;

/// The three layers of the index, oldest first.
pub struct Layers {
    pub segments: Segments,
    pub checkpoint: Option<Checkpoint>,
    /// On the way to disk: never changed in place, only replaced.
    pub flushing: Arc<MemSegment>,
    pub fresh: MemSegment,
}

/// The checkpoint and the documents of the last flush of an index without a directory, for the next owner
/// of the shard. Clones share them.
#[derive(Clone, Default)]
pub struct FlushedIndex(pub Arc<Mutex<(Option<Checkpoint>, Arc<MemSegment>)>>);

impl FlushedIndex {
    /// Copies checkpoint and documents. Later flushes into the original do not reach the copy.
    pub fn detached(&self) -> FlushedIndex {
        FlushedIndex(Arc::new(Mutex::new(self.0.lock().clone())))
    }
}

impl Layers {
    pub fn over(segments: Segments, checkpoint: Option<Checkpoint>) -> Layers {
        Layers { segments, checkpoint, flushing: Arc::default(), fresh: MemSegment::default() }
    }

    pub fn find<'q>(
        &self,
        key: &UserKey,
        query_terms: &'q [String],
    ) -> Result<QueryMatches<'q, '_>> {
        let mut matches = QueryMatches::empty(query_terms);
        let mut changed = self.flushing.changed(key).chain(self.fresh.changed(key)).peekable();
        let is_any_changed = changed.peek().is_some();
        let (some, hides) = (SomeIds::of(changed), self.hides(key));
        let is_hidden = is_any_changed.then_some(|_, id| some.may_have(id) && hides(id));
        self.segments.gather(key, &mut matches, is_hidden).map_err(unreadable)?;
        self.flushing.gather(key, &mut matches, self.fresh.hides(key));
        self.fresh.gather(key, &mut matches, |_| false);
        Ok(matches)
    }

    pub fn speakers(&self, key: &UserKey, names: &BTreeSet<String>) -> Result<Vec<String>> {
        let on_disk = self.segments.terms_from(key, SPEAKER).map_err(unreadable)?;
        let mut speakers = Vec::new();
        for name in names {
            if self.has(key, &speaker_term(name), &on_disk)? {
                speakers.push(name.clone());
            }
        }
        Ok(speakers)
    }

    pub fn languages(&self, key: &UserKey) -> Result<Vec<Language>> {
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

    pub fn ids(&self) -> Result<Vec<(UserKey, MemoryId)>> {
        let mut ids = self.segments.ids().map_err(unreadable)?;
        ids.retain(|(key, id)| !self.hides(key)(*id));
        let flushing = ids_put(&self.flushing);
        ids.extend(flushing.filter(|(key, id)| !self.fresh.hides(key)(*id)));
        ids.extend(ids_put(&self.fresh));
        Ok(ids)
    }

    pub fn counts(&self) -> Result<BTreeMap<UserKey, usize>> {
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
    pub fn freeze(&mut self, checkpoint: Checkpoint) -> Option<Arc<MemSegment>> {
        let fresh = std::mem::take(&mut self.fresh);
        if self.flushing.is_empty() {
            self.flushing = Arc::new(fresh);
        } else {
            Arc::make_mut(&mut self.flushing).add_newer(fresh);
        }
        let is_needed = !self.flushing.is_empty() || self.checkpoint != Some(checkpoint);
        is_needed.then(|| Arc::clone(&self.flushing))
    }

    /// Step 3 of a flush; returns the replaced layers.
    pub fn flushed(
        &mut self,
        segments: Segments,
        checkpoint: Checkpoint,
    ) -> (Segments, Arc<MemSegment>) {
        self.checkpoint = Some(checkpoint);
        (std::mem::replace(&mut self.segments, segments), std::mem::take(&mut self.flushing))
    }
}

/// The documents that a segment holds, without the removals.
fn ids_put(segment: &MemSegment) -> impl Iterator<Item = (UserKey, MemoryId)> {
    let changes = segment.changes();
    changes.filter_map(|(key, id, document)| document.map(|_| (key.clone(), id)))
}
